"""Axis scales z = s∘x learned by evidence, with every kernel's gradient in closed form on pairs of rows.

The sizes |x_i − x_j| along each axis are computed once for the pairs i < j of a set of rows, and shared
by kernels and iterations. For kernels of a sum over axes, log K or r² and their gradients are then one
matrix-vector product each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy import ndarray
from scipy.linalg import LinAlgError
from scipy.optimize import minimize
from scipy.spatial.distance import squareform
from torch import Tensor

from greenfold.learn.judges import SQUARES, Judge
from greenfold.solve.kernel import kernel_evidence

FAILED = 1e3  # the loss where A is not positive definite
COPY = 1e-9  # the distance of rows that are taken for one
APART = 0.03  # δ² at which a scale or a share is as likely again to be apart from the others
LOOSE = 0.3  # the same where scales have to find out which columns matter


class Pairs:
    """|x_i − x_j| of every axis, for the pairs i < j of n rows, and their squares: each (D, P)."""

    def __init__(self, size: ndarray, square: ndarray | None = None):
        self.size, self._square = size, square

    @staticmethod
    def of(x: ndarray) -> Pairs:
        first, second = np.triu_indices(len(x), 1)
        return Pairs(np.abs(x.T[:, first] - x.T[:, second]))

    @staticmethod
    def joined(x: ndarray, ties: ndarray) -> Pairs:
        """Summed over axes of the same group, (g, P): all that sums over axes need of one scale."""
        first, second = np.triu_indices(len(x), 1)
        size, square = np.zeros((2, int(ties.max()) + 1, len(first)))
        for column, group in zip(x.T, ties):
            along = np.abs(column[first] - column[second])
            size[group] += along
            square[group] += along**2
        return Pairs(size, square)

    @property
    def square(self) -> ndarray:
        if self._square is None:
            self._square = self.size**2
        return self._square


class AxisKernel(Protocol):
    """A kernel of axis scales s (D,) and, where it has them, shares p (D,) of the axes.

    Without shares it is a function of a sum over axes, and takes pairs that are joined.
    """

    shares: bool

    def value(self, pairs: Pairs, s: ndarray, p: ndarray) -> ndarray:
        """k (P,)."""

    def pull(
        self, pairs: Pairs, s: ndarray, p: ndarray, k: ndarray, b: ndarray
    ) -> tuple[ndarray, ndarray]:
        """Σ b dk/d(log s) (D,) and Σ b dk/d(logit p) (D,), with k as `value` gave it."""


class City:
    """Π_j e^{−s_j|δ_j|}."""

    shares = False

    def value(self, pairs: Pairs, s: ndarray, p: ndarray) -> ndarray:
        k: ndarray = -s @ pairs.size
        exp(k)
        return k

    def pull(
        self, pairs: Pairs, s: ndarray, p: ndarray, k: ndarray, b: ndarray
    ) -> tuple[ndarray, ndarray]:
        return -s * (pairs.size @ (b * k)), np.zeros(0)


class Radial:
    """A profile of r² = Σ_j (s_jδ_j)²: `heat` e^{−r²/2}, `cauchy` 1/(1 + r²/2), `exponential` e^{−r}."""

    shares = False

    def __init__(self, profile: str):
        self.profile = profile

    def value(self, pairs: Pairs, s: ndarray, p: ndarray) -> ndarray:
        r2 = s**2 @ pairs.square
        if self.profile == "heat":
            return np.exp(-r2 / 2)
        return 1 / (1 + r2 / 2) if self.profile == "cauchy" else np.exp(-np.sqrt(r2))

    def pull(
        self, pairs: Pairs, s: ndarray, p: ndarray, k: ndarray, b: ndarray
    ) -> tuple[ndarray, ndarray]:
        return -(s**2) * (pairs.square @ (b * self.fall(k))), np.zeros(0)

    def fall(self, k: ndarray) -> ndarray:
        """−2 dk/dr², where the kernel is k: its gradient from z to z' is fall · (z' − z)."""
        if self.profile == "heat":
            return k
        if self.profile == "cauchy":
            return k**2
        r = -np.log(np.maximum(k, 1e-300))
        return np.divide(k, r, out=np.zeros_like(k), where=r > COPY)  # copies have no slope


class Interactions:
    """Π_j (1 − p_j + p_j k(s_jδ_j)), k = e^{−t} for order 1, (1 + t) e^{−t} for order 2."""

    shares = True

    def __init__(self, order: int):
        self.order = order

    def value(self, pairs: Pairs, s: ndarray, p: ndarray) -> ndarray:
        k = torch.empty(pairs.size.shape[1], dtype=torch.float64)
        for tile in tiles(pairs):
            torch.prod(self._factors(pairs.size[:, tile], s, p)[1], 0, out=k[tile])
        return k.numpy()

    def _factors(self, size: ndarray, s: ndarray, p: ndarray) -> tuple[Tensor, Tensor]:
        """e^{−t} and the factor of every axis, each (D, tile), in as few passes as it takes."""
        t, s_, p_ = torch.from_numpy(size), torch.tensor(s)[:, None], torch.tensor(p)[:, None]
        e = (t * -s_).exp_()
        k = e * p_ if self.order == 1 else (t * (p_ * s_)).add_(p_).mul_(e)
        return e, k.add_(1 - p_)

    def pull(
        self, pairs: Pairs, s: ndarray, p: ndarray, k: ndarray, b: ndarray
    ) -> tuple[ndarray, ndarray]:
        # A factor f = 1 − p + p k has df/d(log s) = −p t^order e^{−t} and p df/dp = f − 1.
        along, share = np.zeros(len(s)), np.zeros(len(s))
        power = pairs.size if self.order == 1 else pairs.square
        for tile in tiles(pairs):
            e, factor = self._factors(pairs.size[:, tile], s, p)
            B = torch.from_numpy(b[tile] * k[tile])
            inverse = factor.clamp_min_(1e-300).reciprocal_()
            share += float(B.sum()) - (inverse @ B).numpy()
            along -= (e.mul_(torch.from_numpy(power[:, tile])).mul_(inverse) @ B).numpy()
        return p * s**self.order * along, share * (1 - p)


def exp(values: ndarray) -> None:
    """In place; PyTorch's is more than twice as fast as NumPy's."""
    torch.from_numpy(values).exp_()


def tiles(pairs: Pairs) -> list[slice]:
    """Pairs in groups of which all axes stay in cache."""
    step = max(512, 2**16 // len(pairs.size))
    return [slice(i, i + step) for i in range(0, pairs.size.shape[1], step)]


class Learned(NamedTuple):
    """Scales s (g,) of groups of axes; logits of the shares; log λ; the loss they reach; and lines.

    `log_c` is the variance that a linear function has, or None without one.
    """

    log_s: ndarray
    logit: ndarray
    log_noise: float
    loss: float
    log_c: float | None = None

    @property
    def s(self) -> ndarray:
        return np.exp(self.log_s)

    @property
    def theta(self) -> ndarray:
        lines = [] if self.log_c is None else [self.log_c]
        return np.concatenate([self.log_s, self.logit, lines, [self.log_noise]])

    def at(self, theta: ndarray, loss: float) -> Learned:
        """Other numbers of the same kind."""
        g, end = len(self.log_s), len(self.log_s) + len(self.logit)
        log_c = None if self.log_c is None else float(theta[-2])
        return Learned(theta[:g], theta[g:end], float(theta[-1]), loss, log_c)


class Rows(NamedTuple):
    """What scales are learned from."""

    pairs: Pairs  # of D axes, or of g groups
    Y: ndarray  # (n, c)
    weight: ndarray  # (n,)
    ties: ndarray  # (D,)  the group that an axis shares its scale with
    gram: ndarray | None = None  # (n, n)  X Xᵀ/D, where a linear function is learned beside
    apart: float = APART


LINES = 3.0  # standard deviation of log c
LOG_S, LOGIT = (
    (-30.0, 30.0),
    (-15.0, 15.0),
)  # where logarithms of scales and logits of shares may be


def loss_of(
    kernel: AxisKernel, rows: Rows, start: Learned, judge: Judge = SQUARES
) -> Callable[[ndarray], tuple[float, ndarray]]:
    """The evidence with its prior and its gradient, in θ = (log s, logit p, log c, log λ).

    Scales are alike unless the rows say otherwise: log s has N(−½ log D − ½, 3) for its mean, and around
    the place of most a law ∝ Π_j 1/(1 + δ_j²/0.03), whose tails let a few inputs matter alone. Were that
    law wider, few rows could be learned by heart through the scales of many columns. Logits of the shares
    have N(0, 4) for their mean and the same law around their place; log c has N(0, 9).
    """
    pairs, Y, weight, ties, gram, width = rows
    D, total, groups = len(ties), Y.size, len(start.log_s)
    own = ties if len(pairs.size) == D else np.arange(groups)
    products = None if gram is None else squareform(gram, checks=False)  # of pairs

    def loss(theta: ndarray) -> tuple[float, ndarray]:
        log_s, logit, log_noise, _, log_c = start.at(theta, 0.0)
        s = np.exp(log_s)[own]
        p = 1 / (1 + np.exp(-logit))
        noise = math.exp(log_noise) / weight
        k = kernel.value(pairs, s, p)
        K = squareform(k, checks=False)
        K[np.diag_indices_from(K)] = 1.0
        if gram is not None and log_c is not None:
            K += math.exp(log_c) * gram
        try:
            fit = kernel_evidence(K, Y, noise, judge.common)
        except LinAlgError:
            return FAILED, np.zeros_like(theta)
        M = fit.slope()
        b = 2 * squareform(M, checks=False)
        along, share = kernel.pull(pairs, s, p, k, b)
        away = log_s.mean() + 0.5 * math.log(D) + 0.5
        prior, g_s = alike(log_s, width)
        prior += away**2 / 6
        g_s = np.bincount(own, along, groups) + (g_s + away / (3 * groups)) / total
        slopes = [g_s]
        if len(logit):
            mean = logit.mean()
            value, g_p = alike(logit, width)
            prior += value + mean**2 / 8
            slopes.append(share + (g_p + mean / (4 * len(logit))) / total)
        if gram is not None and log_c is not None:
            prior += log_c**2 / (2 * LINES**2)
            linear = b @ products + np.diag(M) @ np.diag(gram)
            slopes.append([math.exp(log_c) * linear + log_c / LINES**2 / total])
        slopes.append([np.diag(M) @ noise])
        return fit.value + prior / total, np.concatenate(slopes)

    return loss


def alike(numbers: ndarray, width: float = APART) -> tuple[float, ndarray]:
    """Σ log(1 + δ²/width) of what numbers are apart from where most of them are, and its slopes.

    That place makes the sum least, as far as steps from the median lead. So a few numbers that are far
    away hardly move it, and it does not count in the slopes.
    """
    place = float(np.sort(numbers)[len(numbers) // 2])
    for _ in range(30):
        apart = numbers - place
        near = 1 / (width + apart**2)
        slope, bend = near @ apart, near @ (2 * width * near - 1)
        step = slope / near.sum()  # to the mean of those that are near
        if bend > 0 and abs(step) < 0.05:
            step = slope / bend  # Newton's
        place += step
        if abs(step) < 1e-9:
            break
    apart = numbers - place
    return float(np.log1p(apart**2 / width).sum()), 2 * apart / (width + apart**2)


def learn_axes(
    kernel: AxisKernel, rows: Rows, start: Learned, steps: int, judge: Judge = SQUARES
) -> Learned:
    """Descend the evidence with its prior, by L-BFGS from `start`."""
    start = start._replace(
        log_s=np.clip(start.log_s, *LOG_S),
        logit=np.clip(start.logit, *LOGIT),
        log_noise=float(np.clip(start.log_noise, *judge.log_noise)),
    )
    loss = loss_of(kernel, rows, start, judge)
    if steps == 0:
        return start._replace(loss=loss(start.theta)[0])
    lines = [] if start.log_c is None else [(-15.0, 15.0)]
    own = [LOG_S] * len(start.log_s) + [LOGIT] * len(start.logit)
    bounds = [*own, *lines, judge.log_noise]
    options = {"maxiter": steps, "maxcor": 20, "ftol": 1e-7, "gtol": 1e-6}
    end = minimize(loss, start.theta, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return start.at(end.x, float(end.fun))

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

from greenfold.learn.likelihoods import GAUSSIAN, Likelihood
from greenfold.solve.kernel import kernel_evidence

FAILED = 1e3  # the loss where A is not positive definite


class Pairs:
    """|x_i − x_j| of every axis, for the pairs i < j of n rows."""

    def __init__(self, size: ndarray):
        self.size = size  # (D, P)
        self._square: ndarray | None = None

    @staticmethod
    def of(x: ndarray) -> Pairs:
        first, second = np.triu_indices(len(x), 1)
        return Pairs(np.abs(x.T[:, first] - x.T[:, second]))

    @property
    def square(self) -> ndarray:
        if self._square is None:
            self._square = self.size**2
        return self._square


class AxisKernel(Protocol):
    """A kernel of axis scales s (D,) and, where it has them, shares p (D,) of the axes."""

    shares: bool

    def value(self, pairs: Pairs, s: ndarray, p: ndarray) -> ndarray:
        """k (P,)."""

    def pull(
        self, pairs: Pairs, s: ndarray, p: ndarray, k: ndarray, b: ndarray
    ) -> tuple[ndarray, ndarray]:
        """Σ b dk/d(log s) (D,) and Σ b dk/dp (D,), with k as `value` gave it."""


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
        if self.profile == "heat":
            slope = k
        elif self.profile == "cauchy":
            slope = k**2
        else:  # dk/dr² = −k/2r with r = −log k; copies have no slope
            slope = k / np.maximum(-np.log(np.maximum(k, 1e-300)), 1e-12)
        return -(s**2) * (pairs.square @ (b * slope)), np.zeros(0)


class Interactions:
    """Π_j (1 − p_j + p_j k(s_jδ_j)), k = e^{−t} for order 1, (1 + t) e^{−t} for order 2."""

    shares = True

    def __init__(self, order: int):
        self.order = order

    def value(self, pairs: Pairs, s: ndarray, p: ndarray) -> ndarray:
        k = np.empty(pairs.size.shape[1])
        for tile in tiles(pairs):
            factor = self._axes(pairs.size[:, tile], s, p)[0]
            np.multiply.reduce(factor, axis=0, out=k[tile])
        return k

    def _axes(self, size: ndarray, s: ndarray, p: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        """1 − p + p k, k − 1 and −dk/d(log s) of every axis, each (D, tile)."""
        t = s[:, None] * size
        e = np.negative(t)
        exp(e)
        gap = e - 1
        e *= t
        if self.order == 2:
            gap += e
            e *= t
        np.multiply(p[:, None], gap, out=t)
        t += 1
        return t, gap, e

    def pull(
        self, pairs: Pairs, s: ndarray, p: ndarray, k: ndarray, b: ndarray
    ) -> tuple[ndarray, ndarray]:
        along, share = np.zeros(len(s)), np.zeros(len(s))
        for tile in tiles(pairs):
            factor, gap, slope = self._axes(pairs.size[:, tile], s, p)
            np.maximum(factor, 1e-300, out=factor)
            slope /= factor
            gap /= factor
            B = b[tile] * k[tile]
            along -= p * (slope @ B)
            share += gap @ B
        return along, share


def exp(values: ndarray) -> None:
    """In place; PyTorch's is more than twice as fast as NumPy's."""
    torch.from_numpy(values).exp_()


def tiles(pairs: Pairs) -> list[slice]:
    """Pairs in groups of which all axes stay in cache."""
    step = max(512, 2**15 // len(pairs.size))
    return [slice(i, i + step) for i in range(0, pairs.size.shape[1], step)]


class Learned(NamedTuple):
    """Axis scales s (D,), or (1,) when tied; logits of the shares; log λ; and the loss they reach."""

    log_s: ndarray
    logit: ndarray
    log_noise: float
    loss: float

    @property
    def s(self) -> ndarray:
        return np.exp(self.log_s)


def loss_of(
    kernel: AxisKernel,
    pairs: Pairs,
    Y: ndarray,
    weight: ndarray,
    n_scales: int,
    common: bool = False,
) -> Callable[[ndarray], tuple[float, ndarray]]:
    """The evidence with its prior and its gradient, in θ = (log s, logit p, log λ).

    Scales are alike unless the rows say otherwise: log s has N(−½ log D − ½, 3) for its mean, and around
    it a law ∝ Π_j 1/(1 + δ_j²/0.3), whose tails let a few inputs matter alone. The logit of a share has
    N(0, 4).
    """
    D, total = len(pairs.size), Y.size

    def loss(theta: ndarray) -> tuple[float, ndarray]:
        log_s, logit, log_noise = theta[:n_scales], theta[n_scales:-1], float(theta[-1])
        s = np.broadcast_to(np.exp(np.clip(log_s, -30, 30)), (D,))
        p = 1 / (1 + np.exp(-logit))
        noise = math.exp(log_noise) / weight
        k = kernel.value(pairs, s, p)
        K = squareform(k, checks=False)
        K[np.diag_indices_from(K)] = 1.0
        try:
            fit = kernel_evidence(K, Y, noise, common)
        except LinAlgError:
            return FAILED, np.zeros_like(theta)
        M = fit.slope()
        along, share = kernel.pull(pairs, s, p, k, 2 * squareform(M, checks=False))
        level = log_s.mean()
        away, apart = level + 0.5 * math.log(D) + 0.5, log_s - level
        spread = 2 * apart / (0.3 + apart**2)
        prior = away**2 / 6 + np.log1p(apart**2 / 0.3).sum() + (logit**2).sum() / 8
        g_s = along if n_scales == D else along.sum(keepdims=True)
        g_s = g_s + (away / (3 * n_scales) + spread - spread.mean()) / total
        g_p = share * p * (1 - p) + logit / (4 * total) if len(logit) else logit
        return fit.value + prior / total, np.concatenate([g_s, g_p, [np.diag(M) @ noise]])

    return loss


def learn_axes(
    kernel: AxisKernel,
    pairs: Pairs,
    Y: ndarray,
    weight: ndarray,
    start: Learned,
    steps: int,
    likelihood: Likelihood = GAUSSIAN,
) -> Learned:
    """Descend the evidence with its prior, by L-BFGS from `start`."""
    size = len(start.log_s)
    theta = np.concatenate(
        [start.log_s, start.logit, [np.clip(start.log_noise, *likelihood.log_noise)]]
    )
    loss = loss_of(kernel, pairs, Y, weight, size, likelihood.common)
    if steps == 0:
        return start._replace(loss=loss(theta)[0])
    bounds = [(None, None)] * (len(theta) - 1) + [likelihood.log_noise]
    options = {"maxiter": steps, "maxcor": 20, "ftol": 1e-7, "gtol": 1e-6}
    end = minimize(loss, theta, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return Learned(end.x[:size], end.x[size:-1], float(end.x[-1]), float(end.fun))

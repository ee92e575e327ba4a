"""Charts from few rows of many columns: principal axes with a prior that follows their size.

Principal scores z (n, q) with standard deviations σ_j, ℓ_j = log σ_j/σ_1, are what a chart may look at::

    lines   A = 1 1ᵀ + e^c lin(a) + I                          lin(a) = Σ_j σ_1⁻² e^{−2aℓ_j} z_j z_jᵀ
    all     A = 1 1ᵀ + e^c lin(a) + k(x) + e^λ I               x_j = e^{g − bℓ_j} z_j/σ_1, k = e^{−r²/2}
    low     A = 1 1ᵀ + e^c lin(a) + k(Vx) + e^λ I              V (d, m), few coordinates

A power of 0 takes the components as they are, one of 1 whitens them. Lines and all have two and five
numbers and are learned by evidence. Low has many, so its score has Laplace's charge for V under a prior
V_kj ~ N(0, t_j), and folds that V has not seen judge it; leaving rows out of the source alone cannot.

The scores are those of the rows as they came, of standardized columns, and of each row standardized
(SNV); where neighboring columns are alike, as channels of a spectrum are, of derivatives along them too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy import ndarray
from scipy.linalg import LinAlgError, solve_triangular
from scipy.optimize import minimize
from torch import Tensor, nn

from greenfold.chart import Linear
from greenfold.chart.frames import SNV
from greenfold.learn.axes import FAILED
from greenfold.learn.data import Data
from greenfold.learn.judges import Judge
from greenfold.solve.kernel import KernelFit, kernel_evidence

COMPONENTS = (20, 100)  # at least and at most; in between a quarter of the rows
ALIKE = 0.9  # mean |correlation| of neighboring columns that are channels of one thing
ROUNDING = 1e-7  # of the largest component, below which one is rounding, of the numbers or of this
WINDOWS = (5, 9, 17, 33, 65)  # channels that a derivative is taken over
BEGIN = 250  # rows that directions begin on


# --- views of the rows, and their principal components


class View(NamedTuple):
    """What is done to rows before their principal components are taken."""

    scaled: bool = False  # columns of unit variance, in place of the user's units
    snv: bool = False
    window: int = 0  # of a Savitzky–Golay filter; 0 for none
    order: int = 0  # of its derivative

    def __str__(self) -> str:
        derivative = ("", "first", "second")[self.order]
        slope = f"{derivative} derivative over {self.window} channels" if self.order else ""
        parts = ["standardized columns" * self.scaled, "SNV" * self.snv, slope]
        return ", ".join(filter(None, parts)) or "as they came"


def views(data: Data) -> list[View]:
    out = [View(), View(scaled=True)]
    if not channels(data):
        return out
    windows = [w for w in WINDOWS if w <= data.x.shape[1] // 6]
    rows = [View(snv=True)]
    return (
        out + rows + [View(False, s, w, o) for w in windows for o in (1, 2) for s in (False, True)]
    )


def channels(data: Data) -> bool:
    """Do columns come in an order, each like its neighbors? So it was said, or so it looks."""
    if data.channels is not None:
        return data.channels
    x = data.x - data.x.mean(0)
    x = x / x.square().mean(0).sqrt().clamp_min(1e-300)
    return float((x[:, 1:] * x[:, :-1]).mean(0).abs().mean()) > ALIKE


def filtered(rows: ndarray, view: View, order: Tensor | None = None) -> ndarray:
    """Along the columns, in their order."""
    from scipy.signal import savgol_filter  # takes its time to import

    along = slice(None) if order is None else order.numpy()
    out = np.empty_like(rows)
    out[:, along] = savgol_filter(rows[:, along], view.window, 2, deriv=view.order, axis=1)
    return out


@dataclass(frozen=True)
class Components:
    """Principal components of a view: z = P first(x)."""

    first: nn.Module  # x (n, D) → (n, D), SNV or nothing
    P: Tensor  # (q, D)
    sd: ndarray  # (q,)
    least: float = 0.0  # size that smaller ones are taken for

    @staticmethod
    def of(data: Data, view: View) -> Components:
        x, D = data.looked_at, data.x.shape[1]
        n = len(x)
        first: nn.Module = nn.Identity()
        units = torch.ones_like(data.sd) if view.scaled else data.spread
        if view.snv:
            raw = SNV(data.spread, data.origin)
            first, units = (
                SNV(data.spread, data.origin, raw(x).mean(0)),
                torch.ones_like(data.sd),
            )
        rows = (first(x) * units).numpy()
        rows = filtered(rows, view, data.order) if view.order else rows
        rows = rows - rows.mean(0)
        q = int(np.clip(len(data) // 4, *COMPONENTS))
        if n < D:  # of the small matrix, whose values are squares
            values, U = np.linalg.eigh(rows @ rows.T)
            s = np.sqrt(np.maximum(values[::-1], 0))
            s = s[: max(1, min(q, int((s > ROUNDING * s[0]).sum())))]
            Vt = (U[:, ::-1][:, : len(s)] / np.maximum(s, 1e-300)).T @ rows
        else:
            _, s, Vt = np.linalg.svd(rows, full_matrices=False)
            s = s[: max(1, min(q, int((s > ROUNDING * s[0]).sum())))]
            Vt = Vt[: len(s)]
        # a column that does not vary has no say, not even that of rounding in the least component
        Vt = Vt * (np.abs(rows).max(0) > 1e-12 * np.abs(rows).max())
        if view.order:  # P S for the filter's matrix S, a block of its columns at a time
            blocks = [
                Vt @ filtered(np.eye(D)[part], view, data.order).T
                for part in np.array_split(np.arange(D), math.ceil(D / 500))
            ]
            Vt = np.hstack(blocks)
        P = torch.from_numpy(np.ascontiguousarray(Vt)) * units
        return Components(first, P, np.maximum(s / math.sqrt(n), 1e-300))

    @property
    def size(self) -> ndarray:
        """ℓ (q,)."""
        return np.log(np.maximum(self.sd / self.sd[0], self.least))

    def scores(self, data: Data) -> ndarray:
        """z/σ_1 (n, q), around their mean."""
        z = (self.first(data.x) @ self.P.mT).numpy() / self.sd[0]
        out: ndarray = z - z.mean(0)
        return out

    def chart(self, W: ndarray) -> nn.Module:
        """ξ = W z/σ_1."""
        weight = torch.from_numpy(W / self.sd[0]) @ self.P
        linear = Linear(weight.shape[1], len(weight), weight)
        return linear if isinstance(self.first, nn.Identity) else nn.Sequential(self.first, linear)


# --- numbers by evidence


class Problem(NamedTuple):
    """Scores of some rows, and what they should tell."""

    z: ndarray  # (n, q)
    size: ndarray  # (q,)  ℓ
    Y: ndarray  # (n, c)
    weight: ndarray  # (n,)
    judge: Judge

    @staticmethod
    def of(components: Components, data: Data) -> Problem:
        z = components.scores(data)
        return Problem(z, components.size, data.Y.numpy(), data.weight.numpy(), data.judge)

    def head(self, n: int) -> Problem:
        return self._replace(z=self.z[:n], Y=self.Y[:n], weight=self.weight[:n])

    def evidence(self, K: ndarray, log_noise: float) -> KernelFit:
        noise = math.exp(log_noise) / self.weight
        return kernel_evidence(K, self.Y, noise, self.judge.common)

    def lines(self, a: float) -> ndarray:
        """Scores (n, q) whose products are lin(a)."""
        return self.z * np.exp(-a * self.size)

    def noise_slope(self, M: ndarray, log_noise: float) -> float:
        return float(np.diag(M) @ (math.exp(log_noise) / self.weight))


def descended(
    loss: Callable[[ndarray], tuple[float, ndarray]], theta: ndarray, bounds: Any, steps: int
) -> tuple[ndarray, float]:
    """Where L-BFGS ends."""

    def safe(theta: ndarray) -> tuple[float, ndarray]:
        try:
            return loss(theta)
        except LinAlgError:
            return FAILED, np.zeros_like(theta)

    theta = np.clip(theta, [b[0] for b in bounds], [b[1] for b in bounds])
    if steps == 0:
        return theta, safe(theta)[0]
    options = {"maxiter": steps, "maxcor": 20, "ftol": 1e-8, "gtol": 1e-6}
    end = minimize(safe, theta, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    if end.fun >= FAILED:
        raise LinAlgError("no evidence")
    return end.x, float(end.fun)


def prior(theta: ndarray, mean: ndarray, sd: ndarray) -> tuple[float, ndarray]:
    """−log N(θ; mean, sd²) up to a constant, and its gradient."""
    u = (theta - mean) / sd
    return float(u @ u) / 2, u / sd


POWERS = (-0.2, 1.3)
LINES = np.array([5.0, 0.3]), np.array([5.0, 0.5])  # c, a: mean and sd
LINES_BOUNDS = [(-15.0, 25.0), POWERS]
ALL = np.array([0.0, 0.5, 0.0, 0.5, -5.0]), np.array([3.0, 0.5, 5.0, 0.5, 5.0])  # g, b, c, a, λ
ALL_START = np.array([-0.8, 0.4, 0.5, 0.3, -5.0])


def learn_lines(p: Problem, theta: ndarray, steps: int) -> tuple[ndarray, float]:
    """(c, a), and their loss."""

    def loss(theta: ndarray) -> tuple[float, ndarray]:
        c, a = theta
        X = p.lines(a)
        fit = p.evidence(math.exp(c) * (X @ X.T), 0.0)
        t = math.exp(c) * (X * (fit.slope() @ X)).sum(0)  # (q,)
        value, slope = prior(theta, *LINES)
        return fit.value + value / p.Y.size, np.array([t.sum(), -2 * p.size @ t]) + slope / p.Y.size

    return descended(loss, theta, LINES_BOUNDS, steps)


def learn_all(p: Problem, theta: ndarray, steps: int) -> tuple[ndarray, float]:
    """(g, b, c, a, λ), and their loss."""

    def loss(theta: ndarray) -> tuple[float, ndarray]:
        g, b, c, a, log_noise = theta
        X, L = math.exp(g) * p.lines(b), p.lines(a)
        k = gaussian(X)
        fit = p.evidence(k + math.exp(c) * (L @ L.T), log_noise)
        M = fit.slope()
        H = M * k
        # Σ H_im (x_ij − x_mj)² of every component
        apart = 2 * (H.sum(1) @ X**2 - (X * (H @ X)).sum(0))
        t = math.exp(c) * (L * (M @ L)).sum(0)
        value, slope = prior(theta, *ALL)
        noise = p.noise_slope(M, log_noise)
        grad = [-apart.sum(), p.size @ apart, t.sum(), -2 * p.size @ t, noise]
        return fit.value + value / p.Y.size, np.array(grad) + slope / p.Y.size

    bounds = [(-8.0, 6.0), POWERS, (-15.0, 15.0), POWERS, noise_bounds(p)]
    return descended(loss, theta, bounds, steps)


def noise_bounds(p: Problem) -> tuple[float, float]:
    low, high = p.judge.log_noise
    return max(low, -14.0), min(high, 5.0)


def gaussian(X: ndarray) -> ndarray:
    """e^{−r²/2} (n, n) between rows."""
    square = (X**2).sum(1)
    k = square[:, None] + square
    k -= 2 * (X @ X.T)
    k[np.diag_indices_from(k)] = 0.0
    np.maximum(k, 0, out=k)  # in one place, as evaluations spend much of their time here
    k *= -0.5
    out: ndarray = np.exp(k, out=k)
    return out


class Low(NamedTuple):
    """Few coordinates V of scaled components, with their prior and the other numbers."""

    V: ndarray  # (d, m)
    t: ndarray  # (m,) variances of its columns
    c: float
    log_noise: float


def steep(p: Problem, theta: ndarray, m: int) -> ndarray:
    """Directions (m, m) of scaled components, by how steep the response on all of them is along each."""
    g, b, c, a, log_noise = theta
    X, L = math.exp(g) * p.lines(b), p.lines(a)
    k = gaussian(X)
    fit = p.evidence(k + math.exp(c) * (L @ L.T), log_noise)
    total = np.zeros((m, m))
    for alpha, s in zip(fit.alpha.T, fit.s):
        B = k * alpha
        slope = (B @ X - B.sum(1)[:, None] * X)[:, :m]
        total += slope.T @ slope / s
    return np.linalg.eigh(total)[1][:, ::-1].T


@dataclass(frozen=True)
class Directions:
    """What V (d, m) is learned from: scaled components X (n, m), beside lines along L, or along Vx."""

    p: Problem
    X: ndarray  # (n, m)
    lin: ndarray | None  # (n, n)  L Lᵀ

    def head(self, n: int) -> Directions:
        """The first n rows, which are as good as any n."""
        if n >= len(self.X):
            return self
        lin = None if self.lin is None else self.lin[:n, :n]
        return Directions(self.p.head(n), self.X[:n], lin)

    def covariance(self, V: ndarray, c: float) -> tuple[ndarray, ndarray, ndarray]:
        xi = self.X @ V.T
        k = gaussian(xi)
        return xi, k, k + math.exp(c) * (xi @ xi.T if self.lin is None else self.lin)

    def value(
        self, V: ndarray, t: ndarray, c: float, log_noise: float
    ) -> tuple[float, ndarray, float, float]:
        """The loss, and its slopes along V, c and log λ."""
        X, N = self.X, self.p.Y.size
        xi, k, K = self.covariance(V, c)
        fit = self.p.evidence(K, log_noise)
        M = fit.slope()
        G = -(M * k)
        g_V = 2 * ((G.sum(1)[:, None] * xi).T @ X - (G @ xi).T @ X)
        if self.lin is None:
            g_c = math.exp(c) * float((xi * (M @ xi)).sum())
            g_V += 2 * math.exp(c) * (M @ xi).T @ X
        else:
            g_c = math.exp(c) * float((M * self.lin).sum())
        extra, slope = prior(np.array([c, log_noise]), ALL[0][[2, 4]], ALL[1][[2, 4]])
        loss = fit.value + (extra + float((V**2 / t).sum()) / 2) / N
        g_noise = self.p.noise_slope(M, log_noise)
        return loss, g_V + V / t / N, g_c + slope[0] / N, g_noise + slope[1] / N

    def warmed(self, low: Low, most: float) -> Low:
        """With one scale of V, with no prior of it, and c and λ where the loss is least."""
        V, free = low.V, np.full(len(low.t), np.inf)

        def loss(theta: ndarray) -> tuple[float, ndarray]:
            U = math.exp(theta[0]) * V
            loss, g_V, g_c, g_noise = self.value(U, free, theta[1], theta[2])
            return loss, np.array([(g_V * U).sum(), g_c, g_noise])

        theta = np.array([0.0, low.c, max(low.log_noise, -4.0)])
        bounds = [(-5.0, 3.0), (-15.0, most), noise_bounds(self.p)]
        (scale, c, log_noise), _ = descended(loss, theta, bounds, 20)
        V = math.exp(scale) * V
        return Low(V, np.full(len(low.t), (V**2).mean()), c, log_noise)

    def learned(self, low: Low, most: float, steps: int) -> tuple[Low, float, ndarray]:
        """On from there, with its score and how many of the numbers of every column the rows know."""
        (d, m), t, N = low.V.shape, low.t, self.p.Y.size

        def loss(theta: ndarray) -> tuple[float, ndarray]:
            V = theta[:-2].reshape(d, m)
            loss, g_V, g_c, g_noise = self.value(V, t, theta[-2], theta[-1])
            return loss, np.concatenate([g_V.ravel(), [g_c, g_noise]])

        theta = np.concatenate([low.V.ravel(), [low.c, low.log_noise]])
        bounds = [(-math.inf, math.inf)] * (d * m) + [(-15.0, most), noise_bounds(self.p)]
        theta, value = descended(loss, theta, bounds, steps)
        low = Low(theta[:-2].reshape(d, m), t, float(theta[-2]), float(theta[-1]))
        parts = self.covariance(low.V, low.c)
        charge, known = laplace(self.p, self.X, low, parts, self.lin is None)
        return low, value + charge / N + 3 / N, known


def learn_low(
    p: Problem,
    X: ndarray,
    L: ndarray | None,
    start: Low,
    rounds: int,
    steps: int,
    most: float = 15.0,
) -> tuple[Low, float]:
    """V on scaled components X (n, m), and its score. Lines are along L (n, q), or along Vx if None.

    `most` is the largest c. All rounds but the last are on few rows.
    """
    whole = Directions(p, X, None if L is None else L @ L.T)
    some = whole.head(BEGIN)
    low, score = some.warmed(start, most), math.inf
    for left in reversed(range(rounds)):
        last, score, known = (some if left else whole).learned(low, most, steps)
        # MacKay: what the rows say of a column, shrunk to the mean of all
        square = last.V**2
        low = last._replace(t=(square.sum(0) + square.mean()) / (known + 1))
    return last, score


def laplace(
    p: Problem,
    X: ndarray,
    start: Low,
    parts: tuple[ndarray, ndarray, ndarray],
    own_lines: bool,
) -> tuple[float, ndarray]:
    """½ log|I + T^½ F T^½|, and how many of the d numbers of every column the rows know."""
    V, t, c, log_noise = start
    (d, m), (xi, k, K) = V.shape, parts
    fit = p.evidence(K, log_noise)
    F = np.zeros((d * m, d * m))
    both = (xi[:, :, None] * X[:, None, :]).reshape(len(X), -1)  # (n, d m)
    for alpha, s in zip(fit.alpha.T, fit.s):
        B = k * alpha
        J = B.sum(1)[:, None] * both + B @ both
        J -= (xi[:, :, None] * (B @ X)[:, None, :] + (B @ xi)[:, :, None] * X[:, None, :]).reshape(
            J.shape
        )
        if own_lines:
            lines = (xi.T @ alpha)[None, :, None] * X[:, None, :] + xi[:, :, None] * (X.T @ alpha)
            J -= math.exp(c) * lines.reshape(J.shape)
        half = solve_triangular(fit.L, J, lower=True)
        F += half.T @ half / s
    root = np.tile(np.sqrt(t), d)
    H = root[:, None] * F * root + np.eye(d * m)
    L = np.linalg.cholesky(H)
    left = (solve_triangular(L, np.eye(d * m), lower=True) ** 2).sum(0).reshape(d, m)
    return float(np.log(np.diag(L)).sum()), (1 - left).sum(0)

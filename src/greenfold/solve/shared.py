"""Penalized likelihood by steps that share one factor among all outputs, such as classes.

With K = ΦΦᵀ between the rows and columns N (n, q) that no penalty falls on, and ℓ of `likelihoods.py`::

    J(a, b) = Σ_n weight_n ℓ(f_n, Y_n) + ½ α Σ_k a_kᵀ K a_k,     f = K a + N b,     w = Φᵀ a

and at the optimum α a = −weight ∂ℓ/∂f and Nᵀa = 0. If every row had one curvature s_n for all outputs,
Newton's step would be that of a weighted ridge, with one factor of A = K + α diag(1/s)::

    da = −A⁻¹(r/s + N db),   r = weight ∂ℓ/∂f + α a,   Nᵀ da = 0,   df = −(r + α da)/s

With one output, or two classes, it has one, and with more s is the mean. The factor is renewed every few
steps, and L-BFGS learns what it misses in between. Values f come with every step, so K is never
multiplied, unless A⁻¹ is rough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy import ndarray
from scipy.linalg.blas import daxpy
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtri

from greenfold.likelihoods.base import Likelihood, Terms
from greenfold.solve.solution import NOT_CONVERGED, SINGULAR, SolveError

# Steps after which the factor is of old curvatures: as many as take as long, within
RENEW = (8, 24)
MEMORY = 12
LONGEST = 64.0  # steps at once; where rounding makes J fall along a line, it would never end
LEAST = 1e-6  # curvature
FAR = 8.0  # what the curvature of a row lets one step move it by

Apply = Callable[[ndarray], ndarray]  # (n, c) → (n, c)


class System(Protocol):
    """K between n rows, and what is done with A = K + diag(d)."""

    @property
    def rough(self) -> bool:
        """Is A⁻¹ only near? Then K is multiplied once more in every step."""

    def __len__(self) -> int:
        """n."""

    def times(self, a: ndarray) -> ndarray:
        """K a."""

    def inverse(self, d: ndarray) -> tuple[Apply, ndarray]:
        """A⁻¹, and a triangular factor with its pivots on the diagonal."""

    def trace(self, d: ndarray, L: ndarray) -> float:
        """tr(A⁻¹ diag d), from what `inverse` gave."""


class Dense:
    """K (n, n) itself."""

    rough = False

    def __init__(self, K: ndarray):
        self.K = K

    def __len__(self) -> int:
        return len(self.K)

    def times(self, a: ndarray) -> ndarray:
        return self.K @ a

    def inverse(self, d: ndarray) -> tuple[Apply, ndarray]:
        A = self.K.copy()
        A[np.diag_indices_from(A)] += d
        L = factor(A, float(d.min()))
        return lambda B: dpotrs(L, B, lower=1)[0], L

    def trace(self, d: ndarray, L: ndarray) -> float:
        half, _ = dtrtri(L, lower=1)
        return float((np.tril(half) ** 2 @ d).sum())


class Thin:
    """K = ΦΦᵀ of fewer columns than rows: A⁻¹ = D⁻¹ − D⁻¹Φ(I + ΦᵀD⁻¹Φ)⁻¹ΦᵀD⁻¹."""

    rough = False

    def __init__(self, Phi: ndarray):
        self.Phi = Phi

    def __len__(self) -> int:
        return len(self.Phi)

    def times(self, a: ndarray) -> ndarray:
        return self.Phi @ (self.Phi.T @ a)

    def inverse(self, d: ndarray) -> tuple[Apply, ndarray]:
        Phi, scaled = self.Phi, self.Phi / d[:, None]
        A = Phi.T @ scaled
        A[np.diag_indices_from(A)] += 1
        L = factor(A, 1.0)
        return lambda B: B / d[:, None] - scaled @ dpotrs(L, scaled.T @ B, lower=1)[0], L

    def trace(self, d: ndarray, L: ndarray) -> float:
        half, _ = dtrtri(L, lower=1)
        return len(self.Phi) - len(L) + float((np.tril(half) ** 2).sum())


def factor(A: ndarray, least: float) -> ndarray:
    """The lower Cholesky factor of A, whose diagonal had at least so much added."""
    L, failed = dpotrf(A, lower=1, clean=0)
    if failed:
        raise SolveError(SINGULAR.format(p=len(A), alpha=least, jitter=0.0))
    return L


class Optimum(NamedTuple):
    """Where J is least."""

    a: ndarray  # (n, c)
    b: ndarray  # (q, c)
    f: ndarray  # (n, c)  of the rows
    iterations: int
    gap: float  # nats per row that the next step would still gain


def likeliest(
    system: System,
    law: Likelihood,
    Y: ndarray,
    weight: ndarray,
    alpha: float,
    N: ndarray | None = None,
    start: tuple[ndarray, ndarray] | None = None,
    tol: float = 1e-10,
    max_iter: int = 500,
) -> Optimum:
    """Minimize J for targets Y (n, k), from `start` (a, b) on, until a step gains less than `tol`.

    N is a constant unless given; its columns must be independent.
    """
    n, c = len(Y), law.outputs
    N = np.ones((n, 1)) if N is None else N
    if start is None:
        level = np.tile(law.start(Y, weight), (n, 1))
        a, b = np.zeros((n, c)), np.linalg.lstsq(N, level)[0]
        f = N @ b
    else:
        a, b = start
        f = system.times(a) + N @ b
    total = float(weight.sum())

    def value(a: ndarray, f: ndarray) -> tuple[float, Terms]:
        """J, with aᵀK a = aᵀf since Nᵀa = 0, and what it is made of."""
        terms = law.at(f, Y)
        return float(weight @ terms.value + 0.5 * alpha * np.vdot(a, f)), terms

    now, terms = value(a, f)
    r = weight[:, None] * terms.slope + alpha * a
    renew = int(np.clip(n // (6 * c), *RENEW))
    pairs: list[tuple[ndarray, ndarray, ndarray, ndarray, float]] = []  # secants of J
    for iteration in range(max_iter):
        if iteration % renew == 0:
            s = curvature(terms, r, weight)
            solve, _ = system.inverse(alpha / s)
            U = solve(N)
            inside = np.linalg.inv(N.T @ U)
        q, along = r.copy(), []
        for _, _, f_s, y, unit in reversed(pairs):
            along.append(np.vdot(q, f_s) / unit)
            add(q, -along[-1], y)
        z = np.ascontiguousarray(solve(q / s[:, None]))  # in one order, as all of these
        beta = inside @ (N.T @ z)
        z -= U @ beta
        f_z = system.times(z) + N @ beta if system.rough else (q - alpha * z) / s[:, None]
        for (a_s, b_s, f_s, y, unit), back in zip(pairs, reversed(along)):
            step = back - np.vdot(y, f_z) / unit
            add(z, step, a_s)
            add(f_z, step, f_s)
            beta += step * b_s
        slope = float(np.vdot(r, f_z))  # J falls by that along −z
        if abs(slope) <= tol * total:
            return Optimum(a, b, f, iteration, max(slope, 0.0) / total)
        if not slope > 0:  # rounding hides the way down
            raise SolveError(
                NOT_CONVERGED.format(iterations=iteration, gradient=-slope / total, tol=tol)
            )
        t, slack = 1.0, 1e-13 * abs(now)
        new, terms = value(a - z, f - f_z)
        while not new <= now - 1e-4 * t * slope + slack and t > 1e-12:
            t /= 2
            new, terms = value(a - t * z, f - t * f_z)
        # Where it is flat, as where probabilities saturate, the quadratic model is too careful: go on
        # while it pays.
        while 1 <= t < LONGEST:
            more, further = value(a - 2 * t * z, f - 2 * t * f_z)
            if not more < new:  # nor where it is no number any more
                break
            t, new, terms = 2 * t, more, further
        a_s, b_s, f_s = -t * z, -t * beta, -t * f_z
        a, b, f, now = a + a_s, b + b_s, f + f_s, new
        y, r = -r, weight[:, None] * terms.slope + alpha * a
        y += r
        unit = float(np.vdot(y, f_s))
        if unit > 0:
            pairs = [*pairs, (a_s, b_s, f_s, y, unit)][-MEMORY:]
    gap = slope / total
    raise SolveError(NOT_CONVERGED.format(iterations=max_iter, gradient=gap, tol=tol))


def add(to: ndarray, factor: float, more: ndarray) -> None:
    """to += factor · more in one pass, where both are in the order of rows."""
    if to.flags.c_contiguous and more.flags.c_contiguous:
        daxpy(more.ravel(), to.ravel(), a=factor)
    else:
        to += factor * more


def curvature(terms: Terms, r: ndarray, weight: ndarray) -> ndarray:
    """s (n,): that of the likelihood, more where it would throw a row far away."""
    return np.maximum(weight * np.maximum(terms.curvature, LEAST), np.abs(r).max(1) / FAR)


def degrees(
    system: System, s: ndarray, contrasts: int, alpha: float, N: ndarray | None = None
) -> tuple[float, float]:
    """Of freedom that the atoms use, as if all contrasts had one curvature s (n,); and A's condition.

    They are n − tr(D M) − q for each contrast, D = α diag(1/s) and M = A⁻¹ without what N explains. The
    condition is that of the pivots, of A at unit diagonal.
    """
    d = alpha / s
    N = np.ones((len(s), 1)) if N is None else N
    solve, L = system.inverse(d)
    U = solve(N)
    free = float(np.trace(np.linalg.solve(N.T @ U, U.T @ (d[:, None] * U))))
    used = len(system) - system.trace(d, L) + free - N.shape[1]
    size = np.sqrt((np.tril(L) ** 2).sum(1))
    pivots = np.diag(L) / size
    return contrasts * max(used, 0.0), float((pivots.max() / pivots.min()) ** 2)

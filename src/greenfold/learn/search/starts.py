"""Where the search starts: pursuit of frequencies, principal Hessian directions, axis scales."""

from dataclasses import replace

import numpy as np
from numpy import ndarray
from numpy.random import Generator

from greenfold.learn.search.charts import Axes, Linear
from greenfold.learn.search.evidence import Fit, Rows, optimize
from greenfold.learn.search.kernels import kernel_matrix
from greenfold.solve.kernel import kernel_evidence

SOLVED = -0.6  # Laplace evidence below which the search need not widen
FOUND = -0.05  # below which there is something to go on from


def linear(W: ndarray, name: str, log_noise: float = np.log(1e-2)) -> Fit:
    return Fit(Linear(*W.shape), W.ravel(), log_noise, "gaussian", name)


def residual(W: ndarray, rows: Rows) -> ndarray:
    """α = A⁻¹ y at λ = 1: what a smooth function of W x leaves unexplained (y itself if d = 0)."""
    Z = rows.X @ W.T
    known = kernel_evidence(kernel_matrix("gaussian", Z, Z), rows.Y, 1 / rows.weight)
    return known.alpha / np.sqrt(known.s)


def hessian_directions(rows: Rows, d: int) -> ndarray:
    """Principal Hessian directions: eigenvectors of Σ w_i y_i x_i x_iᵀ in whitened coordinates."""
    sd = rows.X.std(0) + 1e-9
    white = rows.X / sd
    y = rows.weight * rows.Y[:, 0]
    values, vectors = np.linalg.eigh((white * y[:, None]).T @ white)
    top = vectors[:, np.argsort(-np.abs(values))[:d]].T / sd
    return top / np.linalg.norm(top, axis=1, keepdims=True)


def powers(omega: ndarray, X: ndarray, alpha: ndarray) -> tuple[ndarray, ndarray]:
    """P(ω) = Σ_c |Σ_i α_ic e^{iω·x_i}|² and ½∇P."""
    phase = omega @ X.T  # (m, n)
    cos, sin = np.cos(phase), np.sin(phase)
    C, S = cos @ alpha, sin @ alpha  # (m, c)
    gradient = ((S @ alpha.T) * cos - (C @ alpha.T) * sin) @ X
    return (C**2 + S**2).sum(1), gradient


def pursue(
    X: ndarray, alpha: ndarray, rng: Generator, starts: int, keep: int, hurry: bool = False
) -> ndarray:
    """Frequencies ω where the residual has most power, by ascent from random starts.

    Near a peak log P falls like −ΔᵀCΔ with C the covariance of x, so C⁻¹∇P/2P is a Newton step;
    its length is capped. In a hurry only the best quarter goes on after six steps of twenty.
    """
    q = X.shape[1]
    X = X.astype(np.float32)
    alpha = (alpha / np.sqrt((alpha**2).sum())).astype(np.float32)
    curvature = X.var(0) + np.float32(0.05)
    direction = rng.standard_normal((starts, q))
    radius = np.exp(rng.uniform(np.log(0.3), np.log(4.0), (starts, 1)))
    omega = direction / np.linalg.norm(direction, axis=1, keepdims=True) * radius
    omega = omega.astype(np.float32)
    for step in range(20):
        P, gradient = powers(omega, X, alpha)
        if hurry and step == 6:
            best = np.argsort(-P)[: starts // 4]
            omega, P, gradient = omega[best], P[best], gradient[best]
        move = gradient / (P[:, None] + 1e-6) / curvature
        length = np.linalg.norm(move, axis=1, keepdims=True)
        omega = omega + move * np.minimum(1, 0.6 / (length + 1e-9))
    P, _ = powers(omega, X, alpha)
    return distinct(omega[np.argsort(-P)].astype(float), X.std(0), keep)


def distinct(omega: ndarray, sd: ndarray, keep: int) -> ndarray:
    """The first `keep` frequencies that differ (as axes ±ω) by half a radian over the data."""
    chosen: list[ndarray] = []
    while len(omega) and len(chosen) < keep:
        w = omega[0]
        chosen.append(w)
        gaps = [np.linalg.norm((omega + sign * w) * sd, axis=1) for sign in (-1, 1)]
        omega = omega[np.minimum(*gaps) > 0.5]
    return np.array(chosen)


def subspaces(X: ndarray) -> list[int]:
    """Numbers q of leading coordinates to search in; the widest gap of the spectrum comes first.

    A cut through coordinates of nearly equal variance is arbitrary, so it is not tried.
    """
    sd = X.std(0) + 1e-9
    r = len(sd)
    drop = sd[:-1] / sd[1:]  # (r − 1,)
    gap = 1 + int(np.argmax(drop)) if r > 2 and drop.max() > 2 else r
    levels = [q for q in (2, 5, 12, 30) if q < 0.8 * r and sd[q] < 0.7 * sd[0]] + [r]
    return [gap] + [q for q in levels if q != gap]


def best(fits: list[Fit]) -> Fit:
    return min(fits, key=lambda fit: fit.laplace)


def pursuit(
    rows: Rows, rng: Generator, starts: int, beam: int, d_max: int = 6, hurry: bool = False
) -> list[Fit]:
    """Charts of growing d: each adds a strong frequency of the residual as a new row of W.

    The residual is that of the chain of frequencies itself: a refitted W has enough freedom to
    bend towards the noise, and hides the direction that is still missing.
    """
    fits: list[Fit] = []
    scores: list[float] = []
    chains = [np.zeros((0, rows.X.shape[1]))]
    for d in range(1, min(d_max, rows.X.shape[1]) + 1):
        peaks = {1: 2 * beam, 2: beam}.get(d, 2)
        grown = [
            np.vstack([W, 0.7 * omega])
            for W in chains
            for omega in pursue(rows.X, residual(W, rows), rng, starts, peaks, hurry)
        ]
        tries = [optimize(linear(W, "pursuit"), rows, 8 if hurry else 30) for W in grown]
        order = np.argsort([fit.laplace for fit in tries])
        fits += [tries[i] for i in order[:2]]
        scores.append(tries[order[0]].laplace)
        chains = [grown[i] for i in order[: beam if d == 1 else 2]] + [tries[order[0]].W]
        if (d > 1 and scores[-1] < 4 * SOLVED) or (d > 2 and scores[-1] > scores[-2] - 0.005):
            break
    return fits


def linear_charts(rows: Rows, rng: Generator, starts: int, beam: int) -> list[Fit]:
    """Pursuit, principal Hessian directions and padded smaller charts in growing subspaces."""
    fits: list[Fit] = []
    for q in subspaces(rows.X):
        part = rows.first(q)
        level = pursuit(part, rng, *((500, 2) if fits else (starts, beam)))
        hessian = hessian_directions(part, min(2, q))
        level.append(optimize(linear(0.7 * hessian, "hessian"), part, 30))
        smaller = [fit for fit in fits if fit.chart.q < q]
        if smaller:
            W = best(smaller).W
            padded = np.hstack([W, np.zeros((len(W), q - W.shape[1]))])
            level.append(optimize(linear(padded, "padded", best(smaller).log_noise), part, 30))
        fits += level
        if best(fits).laplace < SOLVED:
            break
    return fits


def narrow(rows: Rows, rng: Generator) -> list[Fit]:
    """A quick look for planes, in the first and the last subspace."""
    fits: list[Fit] = []
    levels = subspaces(rows.X)
    for q in dict.fromkeys([levels[0], levels[-1]]):
        part = rows.first(q)
        fits += pursuit(part, rng, 500, 2, d_max=2, hurry=True)
        hessian = hessian_directions(part, min(2, q))
        fits.append(optimize(linear(0.7 * hessian, "hessian"), part, 8))
    return fits


def axis_charts(rows: Rows) -> list[Fit]:
    """Axis scales with the Cauchy and product-Laplace kernels, and a full Cauchy chart from them.

    The product kernel finds nothing from equal scales, so it starts from a short Cauchy fit, and is
    worth its time only with few columns or where that found something.
    """
    D = rows.X.shape[1]
    theta = np.full(D, -0.5 * np.log(D) - 0.5)
    short = optimize(Fit(Axes(D), theta, np.log(1e-2), "cauchy", "ard"), rows, 25)
    fits = [short]
    if D <= 30 or short.laplace < FOUND:
        fits.append(optimize(replace(short, kernel="laplace"), rows, 15))
    if 1 < D <= 20:
        full = Fit(Linear(D, D), short.W.ravel(), short.log_noise, "cauchy", "full")
        fits.append(optimize(full, rows, 25))
    return fits

"""Task dimension: the smallest number of linear directions that predict y as well as the best.

A Gaussian process on z = W x is fitted by evidence, the gradient outer product of its mean orders the
directions, and it is fitted again from the first d of them, d = 0, 1, …. Each row is predicted once, by
a fit to the other half of the rows. With ℓ_d those squared errors and ℓ_* the best of them, d is enough
if

    mean(ℓ_d − ℓ_*) ≤ max(2 standard errors of the difference, 1% of mean(ℓ_0 − ℓ_*))

The standard error carries the noise of y, so a noisier target needs a larger loss to ask for one more
direction. d = 0 is the mean: nothing to learn.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.linalg import LinAlgError

from greenfold.learn.search.evidence import Fit, Rows, optimize, predict
from greenfold.learn.search.kernels import contract, kernel_matrix
from greenfold.learn.search.ladder import isotropic, principal
from greenfold.learn.search.starts import linear, linear_charts
from greenfold.solve.kernel import kernel_evidence

Array = NDArray[np.float64]

MAX_ROWS = 300  # fitted to; the other rows of a half are predicted all the same
MAX_DIMS = 8
ERRORS, SHARE = 2.0, 0.01  # what d directions may lose: standard errors, or a share of the gain


@dataclass(frozen=True)
class Loss:
    """Left-out error of d directions."""

    d: int
    error: float  # mean squared, relative to d = 0
    excess: float  # over the best
    allowed: float


def directions(fit: Fit, rows: Rows) -> tuple[Array, Array]:
    """Orthonormal rows (q, q), those along which the mean of the fit changes most first; their shares."""
    W = fit.W
    Z = rows.X[:, : W.shape[1]] @ W.T
    K = kernel_matrix(fit.kernel, Z, Z)
    alpha = kernel_evidence(K, rows.Y, np.exp(fit.log_noise) / rows.weight).alpha
    G = np.vstack([contract(fit.kernel, Z, K, a[None, :]) @ W for a in alpha.T])  # (n c, q)
    values, V = np.linalg.eigh(G.T @ G)
    order = np.argsort(-values)
    total = max(float(values.sum()), 1e-300)
    return V[:, order].T, np.maximum(values[order], 0) / total


def restricted(fit: Fit, V: Array) -> Fit:
    """The same metric on the directions V (d, q) only."""
    _, S, R = np.linalg.svd(fit.W @ V.T, full_matrices=False)
    W = (S[:, None] * R) @ V
    return replace(linear(W, "directions", fit.log_noise), kernel=fit.kernel)


def halves(X: Array, Y: Array, rng: Generator, max_dims: int = MAX_DIMS) -> Array:
    """Squared errors (N, max_dims + 1) of every row by fits to rows of the other half."""
    first, second = np.array_split(rng.permutation(len(X)), 2)
    losses = np.zeros((len(X), max_dims + 1))
    for train, test in ((first, second), (second, first)):
        train = train[:MAX_ROWS]
        losses[test] = left_out(X[train], Y[train], X[test], Y[test], rng, max_dims)
    return losses


def enough(losses: Array) -> tuple[int, list[Loss]]:
    """The smallest d that loses no more than is allowed, and the curve."""
    error = losses.mean(0)
    best = int(error.argmin())
    gain = error[0] - error[best]
    standard = (losses - losses[:, [best]]).std(0) / np.sqrt(len(losses))
    curve = [
        Loss(d, float(e / error[0]), float((e - error[best]) / error[0]), float(a / error[0]))
        for d, (e, a) in enumerate(zip(error, np.maximum(ERRORS * standard, SHARE * gain)))
    ]
    return next(loss.d for loss in curve if loss.excess <= loss.allowed), curve


def task(X: Array, Y: Array, rng: Generator) -> tuple[int, list[Loss]]:
    """Task dimension from one random halving of the rows; Y (N, c) has variance 1."""
    return enough(halves(X, Y, rng, min(MAX_DIMS, X.shape[1])))


def left_out(
    X: Array, Y: Array, X_new: Array, Y_new: Array, rng: Generator, max_dims: int
) -> Array:
    """Squared errors (n', max_dims + 1) at new rows by the best fits with 0, 1, … directions."""
    shift, scale = Y.mean(0), np.where(Y.std(0) > 0, Y.std(0), 1.0)
    Y, Y_new = (Y - shift) / scale, (Y_new - shift) / scale
    center = X.mean(0)
    sd = X.std(0)
    frame = principal(X - center, (sd > 1e-12 * np.abs(X).max(0)).astype(float))
    rows = frame(Rows(X - center, Y, np.ones(len(X))))
    new = frame(Rows(X_new - center, Y_new, np.ones(len(X_new))))
    out = [(Y_new**2).mean(1)]
    fit = metric(rows, rng)
    V, share = directions(fit, rows)
    for d in range(1, max_dims + 1):
        if d <= 1 + (np.cumsum(share) < 1 - 1e-8).sum():  # more would be the same fit again
            try:
                small = optimize(restricted(fit, V[:d]), rows, 60)
                out.append(((predict(small, rows, new) - Y_new) ** 2).mean(1))
                continue
            except LinAlgError:
                pass
        out.append(out[-1])
    return np.stack(out, 1)


def metric(rows: Rows, rng: Generator) -> Fit:
    """A fit with directions enough: the best by evidence of a full metric and of pursued charts."""
    few = rows.head(250)
    start = isotropic(few)
    fits = [start]
    if few.X.shape[1] <= 30:
        fits.append(optimize(linear(start.W, "full", start.log_noise), few, 40))
    fits += linear_charts(few, rng, 1000, 2)
    return min(fits, key=lambda fit: fit.laplace)

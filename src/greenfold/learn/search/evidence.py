"""The evidence of an exact GP on a linear chart, its gradient, and what it expects of new rows.

The evidence L is that of `solve/kernel.py` with K = K(Z) and Z = X Wᵀ, y standardized. It ignores how
many numbers W holds, so kinds, subspaces and dimensions are compared by its Laplace approximation over
them, with J the Jacobian of the posterior mean and prior N(m, τ²)::

    L + |θ − m|² / 2τ²n + log|I + τ² Jᵀ A⁻¹ J / s| / 2n

Several outputs share W and λ; their evidences are averaged.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
from numpy import ndarray
from scipy.linalg import LinAlgError, solve_triangular
from scipy.optimize import minimize

from greenfold.learn.search.charts import Chart
from greenfold.learn.search.kernels import contract, kernel_matrix
from greenfold.solve.kernel import KernelFit, covariance, kernel_evidence

LOG_NOISE = (np.log(1e-12), np.log(1e3))


@dataclass(frozen=True)
class Rows:
    """Data in the working coordinates."""

    X: ndarray  # (n, q)
    Y: ndarray  # (n, c)
    weight: ndarray  # (n,), the noise of a row has variance λ/w

    def __len__(self) -> int:
        return len(self.X)

    def head(self, n: int) -> Rows:
        return Rows(self.X[:n], self.Y[:n], self.weight[:n])

    def first(self, q: int) -> Rows:
        """The first q coordinates."""
        return replace(self, X=self.X[:, :q])


@dataclass(frozen=True)
class Fit:
    """A chart with fitted parameters, in the working coordinates."""

    chart: Chart
    theta: ndarray
    log_noise: float
    kernel: str
    name: str
    evidence: float = np.inf
    laplace: float = np.inf
    seconds: float = 0.0  # of wall-clock time so far

    @property
    def W(self) -> ndarray:
        return self.chart.W(self.theta)


def loss(params: ndarray, fit: Fit, rows: Rows) -> tuple[float, ndarray]:
    """L + |θ − m|²/2τ²n and its gradient in (θ, log λ)."""
    theta, noise, n = params[:-1], np.exp(params[-1]), rows.Y.size
    W = fit.chart.W(theta)
    X = rows.X[:, : W.shape[1]]
    Z = X @ W.T  # (n, d)
    K = kernel_matrix(fit.kernel, Z, Z)
    try:
        known = kernel_evidence(K, rows.Y, noise / rows.weight)
    except LinAlgError:
        return 1e3, np.zeros_like(params)
    M = known.slope()
    dZ = 2 * contract(fit.kernel, Z, K, M)
    unit = fit.chart.deviation(theta)
    gradient = fit.chart.pull(theta, dZ.T @ X) + unit / (fit.chart.scale * n)
    slope = noise * (np.diag(M) / rows.weight).sum()
    return known.value + unit @ unit / (2 * n), np.append(gradient, slope)


def predict(fit: Fit, rows: Rows, new: Rows) -> ndarray:
    """Posterior mean at new rows, (n', c)."""
    W = fit.W
    Z, Z_new = (part.X[:, : W.shape[1]] @ W.T for part in (rows, new))
    K = kernel_matrix(fit.kernel, Z, Z)
    known = kernel_evidence(K, rows.Y, np.exp(fit.log_noise) / rows.weight)
    return (kernel_matrix(fit.kernel, Z_new, Z) + 1) @ known.alpha


@dataclass(frozen=True)
class Linearized:
    """The model around a fit: y = GP(A) + J(θ − θ̂), with θ and y in units of their prior."""

    A: ndarray
    known: KernelFit
    J: list[ndarray]  # one (n, p) per output: τ dE[y]/dθ / √s


def linearized(fit: Fit, rows: Rows) -> Linearized:
    X = rows.X[:, : fit.W.shape[1]]
    Z = X @ fit.W.T
    K, noise = kernel_matrix(fit.kernel, Z, Z), np.exp(fit.log_noise) / rows.weight
    known = kernel_evidence(K, rows.Y, noise)
    unit = known.alpha / np.sqrt(known.s)
    J = [fit.chart.jacobian(fit.theta, contract(fit.kernel, Z, K, a[None, :]), X) for a in unit.T]
    return Linearized(covariance(K, noise), known, J)


def whitened_jacobian(fit: Fit, rows: Rows) -> tuple[float, ndarray]:
    """Evidence, and L⁻¹ J τ / √s (n c, p): the noise and the prior of the fit have unit variance."""
    model = linearized(fit, rows)
    J = [solve_triangular(model.known.L, j, lower=True) for j in model.J]
    return model.known.value, np.concatenate(J)


def laplace_evidence(fit: Fit, rows: Rows) -> tuple[float, float]:
    """Evidence and Laplace evidence, the latter at its best prior width."""
    value, J = whitened_jacobian(fit, rows)
    gram = J.T @ J if J.shape[1] <= len(J) else J @ J.T
    spectrum = np.maximum(np.linalg.eigvalsh(gram), 0)
    unit = fit.chart.deviation(fit.theta)
    penalty = [
        unit @ unit / r + np.log1p(r * spectrum).sum()
        for r in ((tau / 3) ** 2 for tau in fit.chart.taus)
    ]
    return value, value + min(penalty) / (2 * rows.Y.size)


def preconditioner(fit: Fit, rows: Rows) -> ndarray:
    """R with R Rᵀ = (I/τ² + Jᵀ A⁻¹ J / s)⁻¹ n c, the inverse Gauss–Newton Hessian of the loss.

    At small noise the loss is a ravine, flat along the charts that explain y equally well and
    steeper than 1/λ across them; in u = R⁻¹ θ it is nearly round.
    """
    _, J = whitened_jacobian(fit, rows)
    H = J.T @ J
    H[np.diag_indices_from(H)] += 1
    values, vectors = np.linalg.eigh(H)
    return fit.chart.scale * vectors * np.sqrt(rows.Y.size / np.maximum(values, 1))


def descend(fit: Fit, rows: Rows, R: ndarray, steps: int) -> tuple[Fit, float]:
    """L-BFGS from the fit, in the coordinates θ = θ₀ + R u; and the loss it ends at."""
    p = len(fit.theta)

    def objective(params: ndarray) -> tuple[float, ndarray]:
        theta = fit.theta + R @ params[:p]
        value, gradient = loss(np.append(theta, params[p]), fit, rows)
        return value, np.append(R.T @ gradient[:p], gradient[p])

    start = np.append(np.zeros(p), fit.log_noise)
    bounds = [(None, None)] * p + [LOG_NOISE]
    options = {"maxiter": steps, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-7}
    end = minimize(objective, start, method="L-BFGS-B", jac=True, bounds=bounds, options=options)
    theta, log_noise = fit.theta + R @ end.x[:p], end.x[p]
    return replace(fit, theta=theta, log_noise=log_noise), float(end.fun)


def optimize(fit: Fit, rows: Rows, steps: int, rounds: int = 0) -> Fit:
    """Plain L-BFGS, then preconditioned up to `rounds` times while that gains, then the two scores."""
    begin = time.perf_counter()
    fit = optimized(fit, rows, steps, rounds)
    return replace(fit, seconds=fit.seconds + time.perf_counter() - begin)


def optimized(fit: Fit, rows: Rows, steps: int, rounds: int) -> Fit:
    fit = replace(fit, log_noise=max(fit.log_noise, np.log(1e-9)))
    fit, reached = descend(fit, rows, np.eye(len(fit.theta)), steps)
    try:
        for _ in range(rounds):
            before = reached
            fit, reached = descend(fit, rows, preconditioner(fit, rows), steps)
            if reached > before - 1e-5:
                break
        value, laplace = laplace_evidence(fit, rows)
    except LinAlgError:
        return fit
    return replace(fit, evidence=value, laplace=laplace)

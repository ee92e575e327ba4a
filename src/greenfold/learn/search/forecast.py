"""What a fit expects of new rows when its chart, too, is uncertain.

Leaving a row out of a GP on a *fixed* chart says nothing about the chart: W has seen the row. Around
the fit the model is linear in θ, so with the chart free it is again a GP, with the covariance
A + τ² J Jᵀ / s in place of A, and a row left out has the variance::

    v_i = s / (A⁻¹)_ii            with the chart fixed
    v_i = s / (B⁻¹)_ii            with the chart free, B = A + τ² J Jᵀ / s
    e_i = α_i / (B⁻¹)_ii          and what it misses of y, α = A⁻¹ y

That sees the neighborhood of one optimum. A rival chart with similar evidence shows the others.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy import ndarray
from scipy.linalg import LinAlgError

from greenfold.learn.search.evidence import Fit, Rows, linearized
from greenfold.solve import kernel

# Limits of doubt, set on hidden planes other than those of the benchmark.
NATS = 3.0  # evidence that anything was found at all
MISSED = 1e-2  # share of var y missed in new rows by a fit that claims to be free of noise
LOST = 6e-3  # share of var y lost to an uncertain chart
RIVAL = 1e-2  # share of var y by which charts of similar evidence disagree


@dataclass(frozen=True)
class Forecast:
    """Mean squared errors on a new row, as shares of the variance of y."""

    noise: float  # of the observation
    fixed: float  # with the chart taken for certain
    free: float  # with the chart as uncertain as its Laplace approximation
    rival: float  # squared difference to a chart with similar evidence
    nats: float  # Laplace evidence against noise, over all rows

    @property
    def doubt(self) -> str:
        """Why the chart may be wrong, or an empty string. Noise by itself is no reason."""
        if self.nats < NATS:
            return f"its evidence beats that of {like_noise(self.nats)}"
        if self.free > max(MISSED, 10 * self.noise):
            return (
                f"it takes {self.noise:.1g} of the variance of y for noise but expects to miss "
                f"{self.free:.1%} of it in new rows"
            )
        if self.free - self.fixed > max(LOST, 0.2 * self.noise):
            return (
                "the rows leave its directions uncertain, which adds "
                f"{self.free - self.fixed:.1%} of the variance of y to the error in new rows"
            )
        if self.rival > max(RIVAL, 0.75 * self.noise):
            return (
                "another chart explains these rows about as well and differs from it in new rows by "
                f"{self.rival:.1%} of the variance of y"
            )
        return ""


def like_noise(nats: float) -> str:
    return f"a y that does not depend on X by only {math.exp(max(nats, 0)):.2g} to 1"


def inverse(A: ndarray) -> ndarray:
    """A⁻¹, with as little added to the diagonal as rounding asks for."""
    scale = np.trace(A) / len(A)
    for jitter in (0, 1e-14, 1e-12, 1e-10):
        try:
            return kernel.inverse(kernel.factor(A + jitter * scale * np.eye(len(A))))
        except LinAlgError:
            continue
    raise LinAlgError("A is not positive definite")


def left_out(fit: Fit, rows: Rows) -> ndarray:
    """Errors (n, c) at every row when it is left out of the GP and, to first order, of the chart."""
    model = linearized(fit, rows)
    kept = np.stack([np.diag(inverse(model.A + J @ J.T)) for J in model.J], axis=1)
    return model.known.alpha / kept


def forecast(fit: Fit, rows: Rows, rival: float) -> Forecast:
    """Leave-one-out variances with the chart fixed and free, averaged over rows and outputs."""
    model = linearized(fit, rows)
    s = model.known.s
    fixed = s.mean() * (1 / np.diag(model.known.inverse())).mean()
    free = [v * (1 / np.diag(inverse(model.A + J @ J.T))).mean() for J, v in zip(model.J, s)]
    noise = float(np.exp(fit.log_noise) * s.mean())
    nats = -float(fit.laplace) * len(rows)
    return Forecast(noise, float(fixed), float(np.mean(free)), rival, nats)

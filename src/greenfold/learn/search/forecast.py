"""What a fit expects of new rows when its chart, too, is uncertain.

Leaving a row out of a GP on a *fixed* chart says nothing about the chart: W has seen the row. Around
the fit the model is linear in θ, so leaving rows out with the chart free is again a GP, with the
covariance A + τ² J Jᵀ / s in place of A (B is its inverse, ỹ = y + J (θ̂ − m))::

    r_i = (B ỹ)_i / B_ii,      v_i = s / B_ii
"""

from dataclasses import dataclass

import numpy as np
from numpy import ndarray
from scipy.linalg import LinAlgError

from greenfold.learn.search.evidence import Fit, Rows, factor, linearized

NATS = 15.0  # evidence that anything was found at all
NOISE_FREE = 6e-3
NOISY = 1e-2


@dataclass(frozen=True)
class Forecast:
    """Mean squared errors on a new row, as shares of the variance of y."""

    noise: float  # of the observation
    fixed: float  # with the chart taken for certain
    free: float  # with the chart as uncertain as its Laplace approximation
    nats: float  # Laplace evidence against noise, over all rows

    @property
    def doubt(self) -> str:
        """Why the chart may be wrong, or an empty string.

        Noise by itself is no reason: it is in `fixed` as in `free`. The limits were set on hidden
        planes other than those of the benchmark.
        """
        if self.nats < NATS:
            return f"only {max(self.nats, 0):.1f} nats tell its fit from noise"
        if self.free > max(NOISE_FREE, 10 * self.noise):
            return (
                f"it claims a noise of {self.noise:.1g} but expects to miss {self.free:.1%} of the "
                "variance of y in new rows"
            )
        if self.free - self.fixed > max(NOISY, 0.2 * self.noise):
            return (
                f"the uncertainty of the chart adds {self.free - self.fixed:.1%} of the variance of y "
                "to the error in new rows"
            )
        return ""


def inverse(A: ndarray) -> ndarray:
    """A⁻¹, with as little added to the diagonal as rounding asks for."""
    scale = np.trace(A) / len(A)
    for jitter in (0, 1e-14, 1e-12, 1e-10):
        try:
            return factor(A + jitter * scale * np.eye(len(A)))[1]
        except LinAlgError:
            continue
    raise LinAlgError("A is not positive definite")


def forecast(fit: Fit, rows: Rows) -> Forecast:
    """Leave-one-out errors with the chart fixed and free.

    Where the residuals are larger than their own variances, the chart is more uncertain than the
    linear model can see (a step is not linear in its direction), so the variance is raised by the
    square of that ratio.
    """
    model = linearized(fit, rows)
    unit = fit.chart.deviation(fit.theta)
    fixed, free = [], []
    for y, J, s in zip(rows.Y.T, model.J, model.s):
        B = inverse(model.A + J @ J.T)
        residual = B @ (y + np.sqrt(s) * J @ unit) / np.diag(B)
        variance = (s / np.diag(B)).mean()
        free.append(max(variance, (residual**2).mean() ** 2 / variance))
        fixed.append((s / np.diag(model.Ainv)).mean())
    noise = np.exp(fit.log_noise) * model.s.mean()
    return Forecast(
        float(noise), float(np.mean(fixed)), float(np.mean(free)), -float(fit.laplace) * len(rows)
    )

"""Numbers around a location: with outliers, or known to be larger."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtri
from scipy.stats import norm

from greenfold.likelihoods.base import Array, Likelihood, Terms, quantile_of, refuse

# Of log spread. Rows weigh 1/spread² beside a kernel of variance 1: half of the digits are left for it.
LEAST = math.log(np.finfo(np.float64).eps) / 4


class Located(Likelihood):
    """Numbers around η, at a distance that rows left out tell.

    Examples
    --------
    >>> from greenfold.likelihoods import StudentT
    >>> type(StudentT().at_spread(0.5)).__name__
    'StudentT'
    """

    spread: float  # in units of y's standard deviation

    settles: ClassVar[bool] = True

    def at_spread(self, spread: float) -> Located:
        return replace(self, spread=spread)  # type: ignore[type-var]

    def fitted(self, f: Array, Y: Array, weight: Array) -> Likelihood:
        if not np.isfinite(f).all():
            return self

        def loss(log_s: float) -> float:
            law = self.at_spread(math.exp(log_s))
            return float(weight @ law.at(f, Y).value) + 0.5 * (log_s / 6) ** 2

        found = minimize_scalar(loss, bounds=(LEAST, 4.0), method="bounded")
        return self.at_spread(math.exp(float(found.x)))

    @property
    def noise(self) -> float:
        return self.spread**2

    def sure(self, extra: float) -> Likelihood:
        return self.at_spread(self.spread / math.sqrt(1 + extra))

    def start(self, Y: Array, weight: Array) -> Array:
        return np.array([quantile_of(Y[:, 0], 0.5, weight)])

    def saturated(self, Y: Array) -> Array:
        return Y[:, :1]


@dataclass(frozen=True)
class StudentT(Located):
    """Numbers with outliers, which hardly count: noise of few degrees of freedom.

    Parameters
    ----------
    df : float
        Degrees of freedom. Noise is nearly normal above 30; 1 is the heaviest that is useful.
    spread : float
        Scale of the noise; set by a fit.

    Examples
    --------
    >>> from greenfold import IGLRegressor
    >>> from greenfold.likelihoods import StudentT
    >>> model = IGLRegressor(likelihood=StudentT(df=3.0))  # or likelihood="student_t"
    """

    df: float = 4.0
    spread: float = 0.5

    conformal: ClassVar[bool] = True

    def at(self, f: Array, Y: Array) -> Terms:
        """With the curvature of the parabola that lies above: steps cannot go up."""
        e = (f - Y[:, :1]) / self.spread
        known = (self.df + 1) / (self.df + e**2) / self.spread
        value = (self.df + 1) / 2 * np.log1p(e**2 / self.df) + math.log(self.spread)
        return Terms(value[:, 0], known * e, known[:, 0] / self.spread)

    def score(self, eta: Array, Y: Array, weight: Array) -> float:
        """Share of the absolute deviation from the median that is explained: outliers hardly count."""
        left = float(weight @ np.abs(Y[:, :1] - eta).mean(1))
        all_ = float(weight @ np.abs(Y[:, 0] - self.start(Y, weight)))
        return 1 - left / all_ if all_ > 0 else float(left <= 0)


@dataclass(frozen=True)
class LogNormal(Located):
    """Times and other positive numbers, some of them only known to be larger (right-censored).

    Y holds log y and 1 where it is censored.

    Parameters
    ----------
    spread : float
        Standard deviation of log y around what is learned; set by a fit.

    Examples
    --------
    >>> from greenfold import IGLRegressor
    >>> model = IGLRegressor(likelihood="lognormal")  # fit(X, times, censored=still_running)
    """

    spread: float = 0.5

    beside: ClassVar[str | None] = "censored"
    logs: ClassVar[bool] = True

    def columns(self, y: Array, beside: Array | None) -> Array:
        refuse(~(y > 0), "times must be positive", y)
        censored = np.zeros(len(y)) if beside is None else beside
        refuse((censored != 0) & (censored != 1), "`censored` must hold 0 and 1", censored)
        if (censored == 1).all():
            raise ValueError("every row is censored: there is nothing to learn from.")
        return np.column_stack([np.log(y), censored])

    def working(self, Y: Array) -> tuple[Array, Array]:
        """Censored rows at what is expected of them, as if all had one distribution."""
        y, censored = Y.T
        m, s = float(y[censored == 0].mean()), float(y.std()) or 1.0
        for _ in range(50):  # expectation and maximization
            z = (y - m) / s
            hazard = np.exp(norm.logpdf(z) - log_ndtr(-z))
            first = np.where(censored == 1, m + s * hazard, y)
            second = np.where(censored == 1, s**2 * (1 + z * hazard - hazard**2), 0.0)
            m = float(first.mean())
            s = math.sqrt(max(float(((first - m) ** 2 + second).mean()), 1e-300))
        return first[:, None], 1.0 - 0.5 * censored

    def at(self, f: Array, Y: Array) -> Terms:
        y, censored = Y[:, 0], Y[:, 1] == 1
        z = (y - f[:, 0]) / self.spread
        hazard = np.exp(norm.logpdf(z) - log_ndtr(-z))
        value = np.where(censored, -log_ndtr(-z), z**2 / 2 + math.log(self.spread) + HALF)
        slope = np.where(censored, -hazard, -z) / self.spread
        bend = np.where(censored, hazard * (hazard - z), 1.0) / self.spread**2
        return Terms(value, slope[:, None], np.maximum(bend, 1e-12))

    def ends(self, eta: Array, variance: Array, scale: float, alpha: float) -> tuple[Array, Array]:
        half = -float(ndtri(alpha / 2)) * scale * np.sqrt(self.spread**2 + variance)
        return self.response(eta - half), self.response(eta + half)

    def std(self, eta: Array, variance: Array, scale: float) -> Array:
        log_variance = np.minimum(scale**2 * (self.spread**2 + variance), 300.0)
        return self.response(eta + log_variance / 2) * np.sqrt(np.expm1(log_variance))

    def score(self, eta: Array, Y: Array, weight: Array) -> float:
        """Harrell's concordance: the share of comparable pairs in the right order."""
        return concordance(eta[:, 0], Y[:, 0], Y[:, 1] == 0)


HALF = 0.5 * math.log(2 * math.pi)


def concordance(eta: Array, y: Array, known: NDArray[np.bool_]) -> float:
    """Of pairs of which the earlier time is known, those with η in the same order; ties count half."""
    right = total = 0.0
    for i in np.flatnonzero(known):
        later = (y > y[i]) | ((y == y[i]) & ~known)
        total += later.sum()
        right += (eta[later] > eta[i]).sum() + 0.5 * (eta[later] == eta[i]).sum()
    return float(right / total) if total else math.nan

"""Counts, perhaps per exposure."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import gammaln
from scipy.stats import nbinom, poisson

from greenfold.likelihoods.base import WIDEST, Array, Likelihood, Terms, refuse


class Counts(Likelihood):
    """Whole numbers with the mean μ = e^η · exposure. Y holds them and log exposure.

    Examples
    --------
    >>> import numpy as np
    >>> from greenfold.likelihoods import Poisson
    >>> Y = Poisson().columns(np.array([3.0]), np.array([2.0]))  # three in two hours
    >>> Poisson().mean(np.zeros((1, 1)), Y), Poisson().extra(np.zeros(1))
    (array([2.]), array([0.]))
    """

    beside: ClassVar[str | None] = "exposure"
    scaled: ClassVar[bool] = False
    logs: ClassVar[bool] = True

    def columns(self, y: Array, beside: Array | None) -> Array:
        refuse((y < 0) | (y != np.round(y)), "counts must be whole numbers of at least 0", y)
        if not y.any():
            raise ValueError("all counts are 0: there is nothing to learn from.")
        exposure = np.ones(len(y)) if beside is None else beside
        refuse(~((exposure > 0) & np.isfinite(exposure)), "`exposure` must be positive", exposure)
        return np.column_stack([y, np.log(exposure)])

    def working(self, Y: Array) -> tuple[Array, Array]:
        """Square roots, whose variance hardly depends on the mean, of counts per exposure."""
        y, exposure = Y[:, 0], np.exp(Y[:, 1])
        root = (np.sqrt(y) + np.sqrt(y + 1)) / 2 / np.sqrt(exposure)
        return root[:, None], exposure / exposure.mean()

    def start(self, Y: Array, weight: Array) -> Array:
        rate = (weight @ Y[:, 0]) / (weight @ np.exp(Y[:, 1]))
        return np.log(np.maximum([rate], math.exp(-WIDEST)))

    def mean(self, f: Array, Y: Array) -> Array:
        """μ (n,)."""
        return np.exp(np.clip(f[:, 0] + Y[:, 1], -WIDEST, WIDEST))

    def saturated(self, Y: Array) -> Array:
        return np.log(np.maximum(Y[:, :1], math.exp(-WIDEST))) - Y[:, 1:]

    @property
    @abstractmethod
    def dispersion(self) -> float:
        """1/r: the variance is μ + μ²/r."""

    def ends(self, eta: Array, variance: Array, scale: float, alpha: float) -> tuple[Array, Array]:
        """An uncertain η makes counts vary more: μ is then as good as gamma distributed."""
        mu, extra = self.response(eta), self.extra(variance)
        r, near = 1 / np.maximum(extra, 1e-9), extra < 1e-8
        low, high = (
            np.where(near, poisson.ppf(q, mu), nbinom.ppf(q, r, r / (r + mu)))
            for q in (alpha / 2, 1 - alpha / 2)
        )
        return low, high

    def extra(self, variance: Array) -> Array:
        """(variance − μ)/μ² of a new count, where log μ has that variance."""
        return self.dispersion + np.expm1(np.minimum(variance, 5.0))

    def std(self, eta: Array, variance: Array, scale: float) -> Array:
        mu = self.response(eta)
        return np.sqrt(mu + self.extra(variance) * mu**2)


@dataclass(frozen=True)
class Poisson(Counts):
    """Counts whose variance is their mean.

    Examples
    --------
    >>> import numpy as np
    >>> from greenfold import IGLRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 1))
    >>> calls = rng.poisson(np.exp(X[:, 0]))
    >>> model = IGLRegressor(likelihood="poisson", effort="fast", random_state=0).fit(X, calls)
    >>> bool((model.predict(X) > 0).all())
    True
    """

    @property
    def dispersion(self) -> float:
        return 0.0

    def at(self, f: Array, Y: Array) -> Terms:
        y, mu = Y[:, 0], self.mean(f, Y)
        value = mu - y * (f[:, 0] + Y[:, 1]) + gammaln(y + 1)
        return Terms(value, (mu - y)[:, None], mu)


@dataclass(frozen=True)
class NegativeBinomial(Counts):
    """Counts that vary more than that: variance μ + μ²/r.

    Parameters
    ----------
    r : float, optional
        Found from rows left out unless it is given.
    known : float
        r that rows left out have found; set by a fit.

    Examples
    --------
    >>> from greenfold import IGLRegressor
    >>> from greenfold.likelihoods import NegativeBinomial
    >>> model = IGLRegressor(likelihood=NegativeBinomial(r=2.0))  # or likelihood="negative_binomial"
    """

    r: float | None = None
    known: float = 1.0  # what was found

    settles: ClassVar[bool] = True

    @property
    def size(self) -> float:
        return self.known if self.r is None else self.r

    @property
    def dispersion(self) -> float:
        return 1 / self.size

    def at(self, f: Array, Y: Array) -> Terms:
        """With the curvature that is expected: the observed one vanishes far below y."""
        y, mu, r = Y[:, 0], self.mean(f, Y), self.size
        total = np.log(r + mu)
        value = gammaln(r) - gammaln(y + r) + gammaln(y + 1)
        value += (y + r) * total - r * math.log(r) - y * (f[:, 0] + Y[:, 1])
        return Terms(value, (r * (mu - y) / (r + mu))[:, None], r * mu / (r + mu))

    def fitted(self, f: Array, Y: Array, weight: Array) -> Likelihood:
        if self.r is not None or not np.isfinite(f).all():
            return self

        def loss(log_r: float) -> float:
            value = replace(self, known=math.exp(log_r)).at(f, Y).value
            # one row more, of a variance that is twice the mean's
            return float(weight @ value) + 0.5 * (log_r / 4) ** 2

        found = minimize_scalar(loss, bounds=(-7.0, 14.0), method="bounded")
        return replace(self, known=math.exp(float(found.x)))

    def sure(self, variance: float) -> Likelihood:
        left = max(self.dispersion - math.expm1(min(variance, 5.0)), 1e-6)
        return self if self.r is not None else replace(self, known=1 / left)

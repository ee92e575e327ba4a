"""Classes in an order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit, ndtri

from greenfold.likelihoods.base import WIDEST, Array, Likelihood, Terms

LEAST_GAP = 1e-6  # between thresholds


@dataclass(frozen=True)
class Ordinal(Likelihood):
    """P(class ≤ k) = σ(t_k − η): one function, and a threshold between any two classes that are next.

    Y holds the number of the class, from 0. Thresholds are those at which rows left out are likeliest.
    """

    classes: int
    thresholds: tuple[float, ...] = ()

    scaled: ClassVar[bool] = False
    settles: ClassVar[bool] = True

    def edges(self) -> Array:
        """t with the ends (c + 1,)."""
        inner = self.thresholds or tuple(np.linspace(-1, 1, self.classes - 1))
        return np.array([-np.inf, *inner, np.inf])

    def working(self, Y: Array) -> tuple[Array, Array]:
        """Normal scores of the classes, from their shares."""
        share = np.bincount(Y[:, 0].astype(int), minlength=self.classes) / len(Y)
        middle = np.cumsum(share) - share / 2
        score = ndtri(np.clip(middle, 1e-6, 1 - 1e-6))
        return score[Y[:, 0].astype(int)][:, None], np.ones(len(Y))

    def start(self, Y: Array, weight: Array) -> Array:
        return np.zeros(1)

    def at(self, f: Array, Y: Array) -> Terms:
        """With a and b the distances to the thresholds above and below, ∂ℓ/∂η = 1 − σ(a) − σ(b)."""
        k, t = Y[:, 0].astype(int), self.edges()
        above, below = t[k + 1] - f[:, 0], t[k] - f[:, 0]
        a, b = expit(above), expit(below)
        value = -log_between(below, above)
        return Terms(value, (1 - a - b)[:, None], np.maximum(a * (1 - a) + b * (1 - b), 1e-12))

    def fitted(self, f: Array, Y: Array, weight: Array) -> Likelihood:
        if not np.isfinite(f).all():
            return self
        k, eta = Y[:, 0].astype(int), f[:, 0]
        share = (weight @ (k[:, None] <= np.arange(self.classes - 1)) + 0.5) / (weight.sum() + 1)
        begin = float(weight @ eta / weight.sum()) + logit(share)
        start = np.concatenate([begin[:1], np.log(np.maximum(np.diff(begin), 1e-3))])

        def thresholds(theta: Array) -> Array:
            gaps = LEAST_GAP + np.exp(np.minimum(theta[1:], 5.0))
            return np.cumsum(np.concatenate([theta[:1], gaps]))

        def loss(theta: Array) -> float:
            """One row more in every class keeps the thresholds of rare ones where they are."""
            law = Ordinal(self.classes, tuple(thresholds(theta)))
            return float(weight @ law.at(f, Y).value) + 0.05 * float(((theta - start) ** 2).sum())

        end = minimize(loss, start, method="L-BFGS-B")
        return Ordinal(self.classes, tuple(map(float, thresholds(end.x))))

    def log_proba(self, f: Array) -> Array:
        """(n, c)."""
        t = self.edges() - f
        return log_between(t[:, :-1], t[:, 1:])

    def saturated(self, Y: Array) -> Array:
        t = np.clip(self.edges(), -WIDEST, WIDEST)
        k = Y[:, 0].astype(int)
        return ((t[k] + t[k + 1]) / 2)[:, None]


def log_between(low: Array, high: Array) -> Array:
    """log(σ(high) − σ(low)), of ends that may be infinite, without cancellation far from 0."""
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.where(np.isfinite(high) & np.isfinite(low), high - low, np.inf)
    return log_expit(high) + log_expit(-low) + np.log(-np.expm1(-np.minimum(gap, 700.0)))

"""Classes, and probabilities that mean what they say."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from greenfold.likelihoods.base import WIDEST, Array, Likelihood, Terms


@dataclass(frozen=True)
class Softmax(Likelihood):
    """One-hot Y (n, c); probabilities are softmax(η/T), T from rows left out."""

    classes: int
    temperature: float = 1.0

    scaled: ClassVar[bool] = False

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return self.classes

    @property
    def contrasts(self) -> int:
        return self.classes - 1

    def start(self, Y: Array, weight: Array) -> Array:
        shares = np.log(np.maximum(weight @ Y / weight.sum(), 1e-3))
        return np.asarray(shares - shares.mean())

    def at(self, f: Array, Y: Array) -> Terms:
        """The curvature is the mean over the contrasts of the classes."""
        top = f.max(1)
        P = np.exp(f - top[:, None])
        size = P.sum(1)
        P /= size[:, None]
        value = np.log(size) + top - np.einsum("nc,nc->n", Y, f)
        mean = (1 - np.einsum("nc,nc->n", P, P)) / max(self.classes - 1, 1)
        P -= Y
        return Terms(value, P, mean)

    def apart(self, Y: Array) -> tuple[Likelihood, Array, Callable[[Array], Array]]:
        """Without classes that no row has: their logits would fall without end.

        All of them together are as likely as one row more.
        """
        there = Y.sum(0) > 0
        if there.all():
            return super().apart(Y)
        rare = math.log((len(Y) + 2) * (~there).sum())

        def complete(f: Array) -> Array:
            whole = np.tile(logsumexp(f, axis=1, keepdims=True) - rare, len(there))
            whole[:, there] = f
            return whole

        return Softmax(int(there.sum())), Y[:, there], complete

    def tried(self, f: Array, Y: Array, weight: Array) -> Array:
        """Before a temperature, with one error more than was seen."""
        return entropies(f, succeeded(Y, weight))

    def fitted(self, f: Array, Y: Array, weight: Array) -> Likelihood:
        T = temperature(f, Y, weight, near=NEAR) if np.isfinite(f).all() else 1.0
        return Softmax(self.classes, T)

    def losses(self, f: Array, Y: Array, weight: Array) -> Array:
        return entropies(f / self.temperature, Y)

    def pays(self, loss: float) -> float:
        return 5e-3 * loss

    def twice(self, loss: float) -> float:
        return 2 * loss

    def saturated(self, Y: Array) -> Array:
        return WIDEST * Y


@dataclass(frozen=True)
class Corners(Softmax):
    """The same with η solved for by least squares on κY, the corners of a simplex.

    One step solves for all classes, however many. It often predicts as well as cross-entropy does where
    classes are more than two and anchors are many.
    """

    sharpness: float = 1.0  # κ

    @property
    def dearness(self) -> int:
        """The factor is nearly all of it, and one for all."""
        return 1

    def start(self, Y: Array, weight: Array) -> Array:
        return np.asarray(self.sharpness * (weight @ Y) / weight.sum())

    def at(self, f: Array, Y: Array) -> Terms:
        error = f - self.sharpness * Y
        return Terms(0.5 * np.einsum("nc,nc->n", error, error), error, np.ones(len(f)))

    def apart(self, Y: Array) -> tuple[Likelihood, Array, Callable[[Array], Array]]:
        """A class that no row has is 0 everywhere."""
        return self, Y, lambda f: f

    def tried(self, f: Array, Y: Array, weight: Array) -> Array:
        """At the temperature that suits, with one error more than was seen."""
        law = self.fitted(f, Y, weight)
        return law.losses(f, succeeded(Y, weight), weight)

    def fitted(self, f: Array, Y: Array, weight: Array) -> Likelihood:
        T = temperature(f, Y, weight) if np.isfinite(f).all() else 1.0
        return replace(self, temperature=T)

    @property
    def settled(self) -> tuple[Likelihood, float]:
        """By corners that are as far apart as the temperature asks."""
        T = self.temperature
        return replace(self, sharpness=self.sharpness / T, temperature=1.0), T


def entropies(f: Array, Y: Array) -> Array:
    """−Σ Y log softmax(f), of every row (n,); infinite where a logit is no number."""
    value = logsumexp(f, axis=1) - np.einsum("nc,nc->n", Y, f)
    return np.where(np.isfinite(value), value, np.inf)


def averaged(u: Array, shares: Array) -> Array:
    """Logarithms (n, c) of the mean, with weights (k,), of the probabilities of logits u (k, n, c)."""
    u = u - u.max(2, keepdims=True)
    size = np.exp(u)
    total = size.sum(2, keepdims=True)
    if len(u) == 1:
        return (u - np.log(total))[0]
    # where probabilities underflow, that of the chart that gives most
    u -= np.log(total)
    top = u.max(0)
    return top + np.log(np.tensordot(shares, np.exp(u - top), 1))


ALONE = np.ones(1)


def succeeded(Y: Array, weight: Array) -> Array:
    """One-hot Y with one error more than was seen, shared among the classes a row does not have.

    By this rule of succession rows told apart without an error do not make the next one certain.
    """
    c = Y.shape[1]
    return Y + (1 - c * Y) / ((weight.sum() + 2) * (c - 1))


NEAR = 0.25  # log T of logits that were solved for by cross-entropy: these mean what they say


def temperature(
    u: Array, Y: Array, weight: Array, shares: Array = ALONE, near: float = math.inf
) -> float:
    """T > 0 for which softmax(u/T) has the least log-loss on one-hot Y; for u (k, n, c) their mean.

    Where T should be near 1, log T ~ N(0, near²).
    """
    Y = succeeded(Y, weight)
    u = u.reshape(-1, *Y.shape)

    def loss(log_t: float) -> float:
        logits = averaged(u / np.exp(log_t), shares)
        return 0.5 * (log_t / near) ** 2 - float(weight @ (Y * logits).sum(1))

    options = {"xatol": 1e-3}
    found = minimize_scalar(loss, bounds=(-7.0, 7.0), method="bounded", options=options)
    return float(np.exp(found.x))

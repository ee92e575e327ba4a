"""How a target is distributed around its prediction: what charts learn from, and what rows left out cost.

Charts are learned, and their sources solved for, by least squares on a working target Y (n, c), whatever
the likelihood. It then says what an error on a row left out costs, in nats, so that all candidates of a
race are compared by one number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy import ndarray
from scipy.optimize import minimize_scalar


class Likelihood(Protocol):
    """What a race asks of it."""

    common: bool  # do all columns of Y have one variance?
    log_noise: tuple[float, float]  # what log λ lies between

    @property
    def enough(self) -> float:
        """Nats per row at which nobody else is asked."""

    def losses(self, errors: ndarray, Y: ndarray, weight: ndarray) -> ndarray:
        """Of every row (n,), up to a constant, from errors Y − u (n, c) of rows left out."""

    def nats(self, errors: ndarray, Y: ndarray, weight: ndarray) -> float:
        """Their mean, up to a constant."""

    def score(self, nats: float) -> float:
        """As people read it."""


class Gaussian:
    """Noise of one variance, which is profiled out: ½ log of the mean square."""

    common = False
    log_noise = (math.log(1e-7), math.log(1e3))

    @property
    def enough(self) -> float:
        return -math.inf

    def losses(self, errors: ndarray, Y: ndarray, weight: ndarray) -> ndarray:
        square: ndarray = (errors**2).mean(1)
        mean = max(float(weight @ square / weight.sum()), 1e-300)
        return 0.5 * (square / mean - 1 + math.log(mean))

    def nats(self, errors: ndarray, Y: ndarray, weight: ndarray) -> float:
        mean = (weight @ errors**2).mean() / weight.sum()
        return 0.5 * math.log(max(float(mean), 1e-300))

    def score(self, nats: float) -> float:
        """The root mean square error."""
        return math.exp(min(nats, 700.0))


GAUSSIAN = Gaussian()


@dataclass(frozen=True)
class Softmax:
    """Classes. Y holds their indicators without their shares; probabilities are softmax(u/T).

    T is where rows left out have the least log-loss, so it is one for all of them.
    """

    shares: ndarray  # (c,)

    common = True
    log_noise = (-7.0, 5.0)  # indicators are no smooth functions: a fit through them is a poor one

    @property
    def entropy(self) -> float:
        p = self.shares[self.shares > 0]
        return -float(p @ np.log(p))

    @property
    def enough(self) -> float:
        """A twentieth of what the classes leave when nothing is known."""
        return 0.05 * self.entropy

    def losses(self, errors: ndarray, Y: ndarray, weight: ndarray) -> ndarray:
        onehot, u = Y + self.shares, Y - errors + self.shares
        if not np.isfinite(u).all():
            return np.full(len(u), math.inf)
        logits = averaged(u[None] / temperature(u, onehot, weight), ALONE)
        return -(onehot * logits).sum(1)

    def nats(self, errors: ndarray, Y: ndarray, weight: ndarray) -> float:
        return float(weight @ self.losses(errors, Y, weight) / weight.sum())

    def score(self, nats: float) -> float:
        """The log-loss."""
        return nats


def averaged(u: ndarray, shares: ndarray) -> ndarray:
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


def succeeded(Y: ndarray, weight: ndarray) -> ndarray:
    """One-hot Y with one error more than was seen, shared among the classes a row does not have.

    By this rule of succession rows told apart without an error do not make the next one certain.
    """
    c = Y.shape[1]
    return Y + (1 - c * Y) / ((weight.sum() + 2) * (c - 1))


NEAR = 0.25  # log T of logits that were solved for by cross-entropy: these mean what they say


def temperature(
    u: ndarray, Y: ndarray, weight: ndarray, shares: ndarray = ALONE, near: float = math.inf
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

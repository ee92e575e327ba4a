"""What errors on rows left out cost while charts compete.

Charts are learned, and their sources solved for, by least squares on a working target Y (n, c), whatever
the likelihood of the target is (`likelihoods.py`). A judge says what an error on a row left out costs, in
nats, so that all candidates of a race are compared by one number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy import ndarray

from greenfold.likelihoods.classes import ALONE, averaged, temperature


class Judge(Protocol):
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


class Squares:
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


SQUARES = Squares()


@dataclass(frozen=True)
class Indicators:
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

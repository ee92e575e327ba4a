"""What a likelihood is."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

WIDEST = 30.0  # |log μ| beyond which exponentials say nothing more


class Terms(NamedTuple):
    """Of −log p in nats, at one η for every row."""

    value: Array  # (n,), up to what η does not change
    slope: Array  # (n, c)
    curvature: Array  # (n,), what a step may rely on: positive


class Likelihood(ABC):
    """What targets Y (n, k) mean. The first column is in the units of η; others say more of a row.

    Examples
    --------
    >>> from greenfold.likelihoods import NAMED
    >>> sorted(NAMED)
    ['gaussian', 'lognormal', 'negative_binomial', 'poisson', 'student_t']

    What a likelihood can be asked, of counts with η = log μ:

    >>> import numpy as np
    >>> from greenfold.likelihoods import Poisson
    >>> counts, y, rows = Poisson(), np.array([0.0, 2.0, 5.0]), np.ones(3)
    >>> Y, f = counts.columns(y, None), np.zeros((3, 1))
    >>> counts.at(f, Y).value.shape, counts.losses(f, Y, rows).shape, counts.tried(f, Y, rows).shape
    ((3,), (3,), (3,))
    >>> float(np.exp(counts.start(Y, rows))[0].round(3)), counts.saturated(Y).shape, counts.names("y")
    (2.333, (3, 1), ['log y'])
    >>> counts.response(f)[:, 0].tolist(), round(counts.score(f, Y, rows), 2) < 1
    ([1.0, 1.0, 1.0], True)
    >>> low, high = counts.ends(f, np.zeros((3, 1)), 1.0, 0.1)
    >>> deviation = counts.std(f, np.zeros((3, 1)), 1.0)
    >>> target, weight = counts.working(Y)
    >>> same, left, complete = counts.apart(Y)
    >>> own = counts.fitted(f, Y, rows).sure(0.0)
    >>> counts.twice(1.0) > 0, counts.pays(1.0) > 0
    (True, True)
    """

    outputs: int = 1  # c
    beside: ClassVar[str | None] = None  # what `fit` may be told of every row beside y
    scaled: ClassVar[bool] = True  # is η in units of y, or a number of its own?
    logs: ClassVar[bool] = False  # is it the logarithm of what is predicted?
    settles: ClassVar[bool] = False  # has it numbers of its own that a solve depends on?
    conformal: ClassVar[bool] = False  # are intervals those of left-out errors around η?

    moved: tuple[float, ...] = ()  # what rows left out say is to be added to η
    sharpness: float = (
        0.0  # how far out corners are that least squares sends classes to; 0 for others
    )

    @property
    def dearness(self) -> int:
        """How many times what one output costs a solve takes."""
        return self.outputs

    @property
    def contrasts(self) -> int:
        """Functions that are free."""
        return self.outputs

    def columns(self, y: Array, beside: Array | None) -> Array:
        """Y (n, k) from y (n,) and what else is known."""
        return y[:, None]

    def working(self, Y: Array) -> tuple[Array, Array]:
        """What charts learn from by least squares (n, 1), and how much of it rows tell (n,)."""
        return near_most(Y[:, :1]), np.ones(len(Y))

    @abstractmethod
    def start(self, Y: Array, weight: Array) -> Array:
        """The best constant (c,), or nearly."""

    @abstractmethod
    def at(self, f: Array, Y: Array) -> Terms:
        """Of rows with η = f (n, c)."""

    def fitted(self, f: Array, Y: Array, weight: Array) -> Likelihood:
        """With its own numbers where rows left out, at which f was predicted, are likeliest."""
        return self

    def losses(self, f: Array, Y: Array, weight: Array) -> Array:
        """What rows cost (n,), in nats."""
        value = self.at(f, Y).value
        return np.where(np.isfinite(value), value, np.inf)

    def tried(self, f: Array, Y: Array, weight: Array) -> Array:
        """The same while scale and penalty are chosen."""
        return self.fitted(f, Y, weight).losses(f, Y, weight)

    def pays(self, loss: float) -> float:
        """Nats per row that another scale or penalty has to gain."""
        return 2e-3

    def twice(self, loss: float) -> float:
        """What it costs to err twice as much."""
        return loss + math.log(2)

    def apart(self, Y: Array) -> tuple[Likelihood, Array, Callable[[Array], Array]]:
        """Without outputs that these rows say nothing of, and what completes those that are left."""
        return self, Y, lambda f: f

    @property
    def settled(self) -> tuple[Likelihood, float]:
        """With η in nats, and the unit that it had."""
        return self, 1.0

    def response(self, eta: Array) -> Array:
        """What is predicted, in the units of y."""
        return np.exp(np.minimum(eta, 700.0)) if self.logs else eta

    @property
    def noise(self) -> float:
        """Of a new row, in the model's numbers; 1 where η is a number of its own."""
        return 1.0

    def names(self, y: str) -> list[str]:
        """Of the outputs."""
        return [f"log {y}" if self.logs else y]

    def sure(self, extra: float) -> Likelihood:
        """As it is where η is known: at rows left out it was off by so many times the noise."""
        return self

    def ends(self, eta: Array, variance: Array, scale: float, alpha: float) -> tuple[Array, Array]:
        """Between which a new y lies with probability 1 − alpha.

        η (n, c) is known up to a variance (n, 1) in the model's numbers, whose unit is the scale.
        """
        raise NotImplementedError

    def std(self, eta: Array, variance: Array, scale: float) -> Array:
        """Standard deviations (n, c) of a new y."""
        raise NotImplementedError

    def score(self, eta: Array, Y: Array, weight: Array) -> float:
        """Share of the deviance that is explained: 1 for all, 0 for the best constant."""
        null = np.broadcast_to(self.start(Y, weight), eta.shape)
        best = self.at(self.saturated(Y), Y).value
        left, all_ = (float(weight @ (self.at(f, Y).value - best)) for f in (eta, null))
        return 1 - left / all_ if all_ > 0 else float(left <= 0)

    @abstractmethod
    def saturated(self, Y: Array) -> Array:
        """η (n, c) at which every row is likeliest."""


def near_most(Y: Array) -> Array:
    """Outliers at three quartile distances from the middle half."""
    low, high = np.quantile(Y, [0.25, 0.75], axis=0)
    far = 3 * np.where(high > low, high - low, np.inf)
    return np.clip(Y, low - far, high + far)


def refuse(bad: NDArray[np.bool_], words: str, y: Array) -> None:
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"{words}, and {int(bad.sum())} of {len(y)} rows are not: row {first} has {y[first]:g}."
        )


def quantile_of(values: Array, level: float, weight: Array) -> float:
    """The quantile of values (n,) with weights; one row more lies beyond every end."""
    order = np.argsort(values)
    share = np.cumsum(weight[order]) / weight.sum()
    n = len(values)
    outward = level + (2 * level - 1) / n / 2 if n else level
    return float(values[order[np.searchsorted(share, min(max(outward, 0.0), 1.0)).clip(max=n - 1)]])

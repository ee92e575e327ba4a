"""What a fit predicts: rows in the user's numbers to values in theirs, by one model or several."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from greenfold.learn.data import Rows
from greenfold.learn.intervals import (
    ROWS,
    Constant,
    Intervals,
    OfTasks,
    Places,
    noise_share,
)
from greenfold.learn.posterior import Posterior
from greenfold.learn.units import Array, Units, chunks, evenly, finite
from greenfold.likelihoods.classes import averaged
from greenfold.likelihoods.ordinal import Ordinal
from greenfold.model import IGL

Judges = tuple[Places, Array, Array, Array, Array | None]  # where, errors, std, noise, weights


class Member(NamedTuple):
    """A model, what it weighs in the mean, and how sure it is where that is known."""

    weight: float
    model: IGL
    posterior: Posterior | None = None
    alpha: float | None = None  # strength that its source was solved for with, absolute
    name: str = ""  # in a stack
    whole: IGL | None = None  # the same with a source at every row, of which `model` is a sketch
    sharpness: float = 0.0  # of classes that least squares sent to corners so far out; 0 for others

    @property
    def predicts(self) -> IGL:
        return self.model if self.whole is None else self.whole


@dataclass(frozen=True)
class Predictor:
    """Members under one choice of units. Rows are X in the user's numbers, x in the model's."""

    units: Units
    members: tuple[Member, ...] = ()  # none before anything is learned
    intervals: Intervals | Constant | OfTasks | None = None
    temperature: float = 1.0  # what logits are divided by, of classes

    @property
    def heaviest(self) -> Member:
        return max(self.members, key=lambda member: member.weight)

    def alone(self) -> Predictor:
        """The member that weighs most, by itself; its intervals are of its own left-out errors."""
        one = self.heaviest
        intervals = None if one.posterior is None else Constant(one.posterior.loo_errors)
        return replace(self, members=(one._replace(weight=1.0),), intervals=intervals)

    def inside(self, X: Array) -> Tensor:
        return torch.from_numpy(self.units.x.inside(X))

    @torch.no_grad()
    def xi(self, x: Tensor) -> Array:
        """Coordinates (n, d) on the chart that weighs most."""
        return finite(chunks(self.heaviest.model.chart, x), "chart coordinates")

    @torch.no_grad()
    def each(self, x: Tensor) -> Array:
        """u of every member (k, n, c)."""
        return np.stack([finite(chunks(member.predicts, x), "values") for member in self.members])

    def mean(self, each: Array) -> Array:
        """u (n, c)."""
        return each[0] if len(each) == 1 else np.tensordot(self.weights, each, 1)

    def u(self, x: Tensor) -> Array:
        return self.mean(self.each(x))

    def log_proba(self, x: Tensor) -> Array:
        """Logarithms (n, c) of the probabilities of classes, whose logits members compute."""
        if isinstance(self.units.law, Ordinal):
            return self.units.law.log_proba(self.u(x))
        return averaged(self.each(x) / self.temperature, self.weights)

    @property
    def weights(self) -> Array:
        return np.array([member.weight for member in self.members])

    @torch.no_grad()
    def std(self, x: Tensor, each: Array) -> Array:
        """Standard deviations (n, c) of new observations, at rows with values (k, n, c)."""
        known = [(m.model, m.posterior) for m in self.members if m.posterior is not None]
        std = np.stack([chunks(partial(posterior.std, model), x) for model, posterior in known])
        return mixed(self.weights, each, std)

    @torch.no_grad()
    def places(self, x: Tensor, u: Array) -> Places:
        """Where rows with predictions u (n, c) lie."""
        return Places.of(chunks(self.heaviest.model.chart, x), x.cpu().numpy(), u)

    def judged(self, rows: Rows, errors: Array) -> Predictor:
        """With intervals from errors (k, m, c) of the members at the first m rows, left out."""
        return replace(self, intervals=Intervals.of(*self.judges(rows, errors), rows.together))

    def judges(self, rows: Rows, errors: Array) -> Judges:
        """What intervals are learned from: some of the rows, if many of them judge."""
        some, w = evenly(errors.shape[1], ROWS), self.weights
        apart, y = errors[:, some], rows.Y.numpy()[some]
        e = np.tensordot(w, apart, 1)
        known = [m.posterior for m in self.members if m.posterior is not None]
        loo_std = np.stack([np.asarray(posterior.loo_std)[some] for posterior in known])
        std = mixed(w, y - apart, loo_std)  # where charts have not seen a row, as at new ones
        noise = np.tensordot(w, np.stack([posterior.noise.numpy() for posterior in known]), 1)
        weight = None if rows.weight is None else rows.weight.numpy()[some]
        return self.places(rows.x[some], y - e), e, std, noise_share(noise, std), weight

    def error_unit(self, x: Tensor, each: Array) -> Array:
        """What errors are told in (n, c), at rows with values (k, n, c)."""
        assert self.intervals is not None
        return self.intervals.unit(self.places(x, self.mean(each)), self.std(x, each))

    def predict(
        self, X: Array, return_std: bool = False, offset: Array | None = None
    ) -> tuple[Array, Array | None]:
        """Values in the units and the shape of y, with standard deviations or None.

        An offset (n, 1) is added to u: the logarithm of an exposure.
        """
        x = self.inside(X)
        each = moved(self.each(x), offset)
        answer = self.units.values(self.mean(each), "predictions")
        if not return_std:
            return answer, None
        if self.units.law is None or self.intervals is not None:
            u = self.mean(each)
            return answer, self.units.spreads(self.std(x, each), "standard deviations", u)
        std = self.units.law.std(*self.known(x, each))
        return answer, self.units.shaped(finite(std, "standard deviations"))

    def known(self, x: Tensor, each: Array) -> tuple[Array, Array, float]:
        """η (n, c) of a likelihood, its variance (n, 1) in the model's numbers, and their unit."""
        law, y = self.units.law, self.units.y
        assert law is not None
        sure = any(m.posterior is None for m in self.members)
        variance = np.zeros((len(x), 1)) if sure else self.std(x, each) ** 2 - law.noise
        return y.outside(self.mean(each)), variance.clip(min=0.0), float(y.widths(np.ones(1))[0])

    def interval(self, X: Array, alpha: float, offset: Array | None = None) -> tuple[Array, Array]:
        """Lower and upper ends, in the units and the shape of y."""
        x = self.inside(X)
        each = moved(self.each(x), offset)
        if self.intervals is None:
            assert self.units.law is not None
            low, high = self.units.law.ends(*self.known(x, each), alpha)
            for end in low, high:
                finite(end, "ends of the intervals")
            return self.units.shaped(low), self.units.shaped(high)
        q = self.intervals.quantile(alpha)
        u, half = self.mean(each), q * self.error_unit(x, each)
        finite(self.units.y.outside(u), "predictions")
        low, high = (
            self.units.values(end, "ends of the intervals") for end in (u - half, u + half)
        )
        return low, high


def moved(each: Array, offset: Array | None) -> Array:
    return each if offset is None else each + offset


def mixed(w: Array, u: Array, std: Array) -> Array:
    """Standard deviation (n, c) of a mixture with weights w (k,), means and deviations (k, n, c)."""
    return np.sqrt(np.tensordot(w, std**2 + (u - np.tensordot(w, u, 1)) ** 2, 1))


def distinct(names: list[str]) -> list[str]:
    """The second of a name with a number after it."""
    return [name if name not in names[:i] else f"{name} {i + 1}" for i, name in enumerate(names)]

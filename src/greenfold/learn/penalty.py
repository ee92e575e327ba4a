"""Scale and penalty of a chart under a likelihood, by what rows left out cost.

The race is run by least squares on working targets, which wants other scales than cross-entropy or counts
do. Every scale and strength is solved for without each fold of the rows, on charts that have not seen it
where they have many numbers, and the fold judges. All rows are anchors: with few of them, rough kernels
look too fine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor, nn

from greenfold.design import Design
from greenfold.learn.candidates import Fit
from greenfold.learn.choice import dims, fewest_of, mean_of
from greenfold.learn.data import Data
from greenfold.learn.fit import rescaled
from greenfold.learn.wide import parts_of
from greenfold.likelihoods.base import Likelihood
from greenfold.solve import SolveError
from greenfold.solve.shared import Dense, likeliest

LIMITS = ((-12, 10), (-14, 6))  # of i and j
BOTH = ((0, -1), (0, 1), (-1, 0), (1, 0), (-1, -1), (1, 1))  # ways to go from (i, j)
STRENGTH = ((0, -1), (0, 1))
ALONG = ((0, -1), (0, 1), (-1, -1), (1, 1))  # wider kernels want less of a penalty
START = -2  # j
MANY = 12  # outputs above which less than a thousandth of a nat is not waited for
WARM = 2  # times that a likelihood finds its own numbers before scales are compared

Each = Callable[[Any, Any], list[Any]]
Point = tuple[int, int]  # (i, j): scale 2^{i/2} and strength 10^{j/2}


class Tuned(NamedTuple):
    """A chart at its best scale, and what it says of rows left out."""

    fit: Fit
    alpha: float  # for a kernel of unit variance
    f: ndarray  # (n, c)
    law: Likelihood  # with its own numbers

    @property
    def settled(self) -> Tuned:
        """With f in nats, if the likelihood has another unit for them."""
        law, unit = self.law.settled
        return self._replace(f=self.f / unit, law=law)


class Tried:
    """A chart at several scales and strengths; remembers what it has seen."""

    def __init__(self, fit: Fit | Fixed, data: Data, folds: int, law: Likelihood, Y: ndarray):
        data = data.coarse(len(fit.parts) or folds)
        self.parts = (fit,) if isinstance(fit, Fixed) else parts_of(fit, data) or (fit,)
        self.fit, self.x, self.law, self.Y = fit, data.x, law, Y
        self.weight, self.folds = data.weight.numpy(), data.folds.numpy()
        seen = np.zeros(len(data), dtype=bool) if fit.saw is None else fit.saw.numpy()
        self.judges = ~seen
        self.kernels: dict[int, list[ndarray]] = {}
        self.starts: dict[Point, tuple[ndarray, ndarray]] = {}  # by scale and fold
        self.seen: dict[Point, ndarray] = {}
        self.at: Point = (0, START)

    def kernel(self, i: int, k: int) -> ndarray:
        """K (n, n) of the chart without fold k, its scales times 2^{i/2}."""
        if i not in self.kernels:
            self.kernels = dict(list(self.kernels.items())[-1:])  # those of one scale are large
            self.kernels[i] = [part.kernel(self.x, 2 ** (i / 2)) for part in self.parts]
        return self.kernels[i][k % len(self.kernels[i])]

    def f(self, at: Point) -> ndarray:
        """(n, c) of rows left out with their folds; no numbers where a solve fails."""
        if at not in self.seen:
            self.seen[at] = np.full((len(self.Y), self.law.outputs), np.nan)
            for place, fold in enumerate(np.unique(self.folds)):
                self.leave_out(place, self.folds == fold, at)
        return self.seen[at]

    def leave_out(self, k: int, out: ndarray, at: Point) -> None:
        own, kept = np.flatnonzero(out), np.flatnonzero(~out)
        if not self.judges[own].any():
            return
        K, alpha = self.kernel(at[0], k), 10 ** (at[1] / 2)
        law, Y, complete = self.law.apart(self.Y[kept])
        known = Dense(K[np.ix_(kept, kept)]), law, Y, self.weight[kept], alpha
        tol = 1e-5 if law.outputs <= MANY else 1e-3
        for start in dict.fromkeys([(at[0], k), None]):  # a start may be too far away
            try:
                end = likeliest(*known, start=start and self.starts.get(start), tol=tol)
                break
            except SolveError:
                continue
        else:
            return
        self.starts[at[0], k] = end.a, end.b
        self.seen[at][own] = complete(K[np.ix_(own, kept)] @ end.a + end.b)

    def loss(self, at: Point) -> float:
        """Mean over the rows that judge, infinite where there is no solution."""
        f, Y, w = (part[self.judges] for part in (self.f(at), self.Y, self.weight))
        return float(w @ self.law.tried(f, Y, w) / w.sum())

    def warm(self, start: Point) -> None:
        """The likelihood finds its own numbers from rows left out."""
        for _ in range(WARM * self.law.settles):
            self.law, self.seen = self.fitted(start), {}

    def fitted(self, at: Point) -> Likelihood:
        f, Y, w = (part[self.judges] for part in (self.f(at), self.Y, self.weight))
        return self.law.fitted(f, Y, w)

    def walk(self, start: Point, step: int, ways: Sequence[Point]) -> Point:
        """To the best point near the start, in steps of 2^{step/2} and 10^{step/2}."""
        if rescaled(self.fit.chart, 1.0) is None:
            start, ways = (0, start[1]), STRENGTH
        self.at = compass(self.loss, self.law.pays, start, step, ways)
        return self.at

    @property
    def told(self) -> Tuned:
        """At the point where it is."""
        i, j = self.at
        chart, law = rescaled(self.fit.chart, 2 ** (i / 2)), self.fitted(self.at)
        assert isinstance(self.fit, Fit)
        fit = replace(self.fit, chart=self.fit.chart if chart is None else chart)
        return Tuned(fit, 10 ** (j / 2), self.f(self.at), law)


@dataclass(frozen=True)
class Fixed:
    """A design that is as it is: no scale to choose."""

    K: ndarray  # (n, n)
    chart: nn.Module = field(default_factory=nn.Identity)
    parts: tuple[Fit, ...] = ()
    saw: Tensor | None = None

    @staticmethod
    def of(design: Design, unit: float) -> Fixed:
        atom = design.penalty > 0
        Phi = (design.Phi[:, atom] * (design.penalty[atom] * unit).rsqrt()).double().numpy()
        return Fixed(Phi @ Phi.T)

    def kernel(self, x: Tensor, scale: float = 1.0) -> ndarray:
        return self.K


def strength_of(
    fixed: Fixed, data: Data, folds: int, law: Likelihood, Y: ndarray
) -> tuple[Likelihood, float, float]:
    """The likelihood with its own numbers, the best strength, and what rows left out cost there."""
    tried = Tried(fixed, data, folds, law, Y)
    tried.warm((0, START))
    start = tried.walk((0, START), 2, STRENGTH)
    tried.warm(start)
    at = tried.walk(start, 1, STRENGTH)
    return tried.fitted(at), 10 ** (at[1] / 2), tried.loss(at)


class Judges(NamedTuple):
    """Who judges, under which likelihood."""

    data: Data
    law: Likelihood
    Y: ndarray  # (n, k) targets of the likelihood

    def losses(self, found: Tuned, rows: ndarray) -> ndarray:
        """What some of the rows cost, left out."""
        w = self.data.weight.numpy()[rows]
        return found.law.losses(found.f[rows], self.Y[rows], w)


def tuned(
    fits: list[Fit],
    by: Judges,
    folds: int,
    most: int,
    kept: int,
    each: Each,
    rival: Likelihood | None = None,
) -> list[Tuned]:
    """The best of different kinds at the scales and strengths that the likelihood wants, the best first.

    They begin where the first ends; those to be kept go on in smaller steps. A rival, which solves for
    the same targets in another way, takes a chart over where its gain is more than its standard error.
    """
    kinds = [fit.candidate.kind for fit in fits]
    first = [fit for i, fit in enumerate(fits) if kinds[i] not in kinds[:i]][:most]
    tried = [Tried(fit, by.data, folds, by.law, by.Y) for fit in first]
    tried[0].warm((0, START))
    start = walked(tried[0], (0, START), 2, BOTH)
    tried[0].warm(start)
    for one in tried[1:]:
        one.law = tried[0].law
    each(walked, [(one, start, 2, BOTH) for one in tried[1:]])
    fair = unseen(first, by.data)
    tried = sorted(tried, key=lambda one: scored(one, by, fair).fit.nats)[:kept]
    each(walked, [(one, one.at, 1, ALONG) for one in tried])
    found = [scored(one, by, fair) for one in tried]
    if rival is not None:
        others = [Tried(one.fit, by.data, folds, rival, by.Y) for one in tried]
        each(walked, [(other, one.at, 2, BOTH) for other, one in zip(others, tried)])
        each(walked, [(other, other.at, 1, ALONG) for other in others])
        rivals = [scored(other, by, fair) for other in others]
        found = [preferred(one, other, by, fair) for one, other in zip(found, rivals)]
    return sorted(found, key=lambda one: one.fit.nats)


def preferred(one: Tuned, rival: Tuned, by: Judges, fair: ndarray) -> Tuned:
    """The rival, if it is ahead by more than rows vary."""
    w = by.data.weight.numpy()[fair]
    gain, error = mean_of(by.losses(one, fair) - by.losses(rival, fair), w)
    return rival if gain > error else one


@torch.no_grad()
def walked(tried: Tried, start: Point, step: int, ways: Sequence[Point]) -> Point:
    return tried.walk(start, step, ways)


def scored(tried: Tried, by: Judges, fair: ndarray) -> Tuned:
    """With its loss at the rows that no chart has seen."""
    w, found = by.data.weight.numpy()[fair], tried.told
    nats = float(w @ by.losses(found, fair) / w.sum())
    return found._replace(fit=replace(found.fit, nats=nats, price=0.0))


def fewest(found: list[Tuned], by: Judges) -> Tuned:
    """The fewest coordinates that rows left out cannot tell from the best, by one standard error.

    The usual candidate has to be behind by two. Charts of many coordinates explain little, and are in use
    only where all others err twice as much.
    """
    fair = unseen((one.fit for one in found), by.data)
    w = by.data.weight.numpy()[fair]
    losses = [by.losses(one, fair) for one in found]
    means = [mean_of(each, w)[0] for each in losses]

    def close(k: int, best: int) -> bool:
        behind, error = mean_of(losses[k] - losses[best], w)
        return behind <= (1 + found[k].fit.candidate.usual) * error

    sizes = [dims(one.fit, by.data) for one in found]
    return found[fewest_of(sizes, means, by.law.twice(min(means)), close)]


def unseen(fits: Iterable[Fit], data: Data) -> ndarray:
    """Rows (n,) that no chart has seen."""
    fair = np.ones(len(data), dtype=bool)
    for fit in fits:
        fair &= True if fit.saw is None else ~fit.saw.numpy()
    return fair


def compass(
    score: Callable[[Point], float],
    pays: Callable[[float], float],
    best: Point,
    step: int,
    ways: Sequence[Point],
) -> Point:
    """Move one of these ways, and on, as long as that pays."""
    ahead, tried = list(ways), 0
    while tried < len(ways):
        at = (best[0] + step * ahead[0][0], best[1] + step * ahead[0][1])
        inside = all(low <= value <= high for value, (low, high) in zip(at, LIMITS))
        if inside and score(at) < score(best) - pays(score(best)):
            best, tried = at, 0
        else:
            ahead, tried = [*ahead[1:], ahead[0]], tried + 1
    return best

"""Scale and penalty of a chart for classes, by the cross-entropy of rows left out.

The race is run by least squares, which wants other scales than cross-entropy does. Every scale and
strength is solved for without each fold of the rows, on charts that have not seen it where they have
many numbers, and the fold judges. All rows are anchors: with few of them, rough kernels look too fine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy import ndarray
from scipy.special import logsumexp

from greenfold.learn.candidates import Fit
from greenfold.learn.choice import dims, fewest_of, mean_of
from greenfold.learn.data import Data
from greenfold.learn.fit import rescaled
from greenfold.learn.likelihoods import NEAR, Softmax, succeeded, temperature
from greenfold.solve import SolveError
from greenfold.solve.shared import Dense, cross_entropy

LIMITS = ((-12, 10), (-14, 6))  # of i and j
BOTH = ((0, -1), (0, 1), (-1, 0), (1, 0), (-1, -1), (1, 1))  # ways to go from (i, j)
STRENGTH = ((0, -1), (0, 1))
ALONG = ((0, -1), (0, 1), (-1, -1), (1, 1))  # wider kernels want less of a penalty
START = -2  # j
PAYS = 5e-3  # of the loss, that a step has to gain

Each = Callable[[Any, Any], list[Any]]
Point = tuple[int, int]  # (i, j): scale 2^{i/2} and strength 10^{j/2}


class Tuned(NamedTuple):
    """A chart at its best scale, and what it says of rows left out."""

    fit: Fit
    alpha: float  # for a kernel of unit variance
    logits: ndarray  # (n, c)
    temperature: float


class Tried:
    """A chart at several scales and strengths; remembers what it has seen."""

    def __init__(self, fit: Fit, data: Data, folds: int):
        data = data.coarse(len(fit.parts) or folds)
        self.fit, self.x, self.Y = fit, data.x, onehot(data)
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
            charts = self.fit.parts or (self.fit,)
            self.kernels = dict(list(self.kernels.items())[-1:])  # those of one scale are large
            self.kernels[i] = [part.kernel(self.x, 2 ** (i / 2)) for part in charts]
        return self.kernels[i][k % len(self.kernels[i])]

    def logits(self, at: Point) -> ndarray:
        """(n, c) of rows left out with their folds; no numbers where a solve fails."""
        if at not in self.seen:
            self.seen[at] = np.full_like(self.Y, np.nan)
            for place, fold in enumerate(np.unique(self.folds)):
                self.leave_out(place, self.folds == fold, at)
        return self.seen[at]

    def leave_out(self, k: int, out: ndarray, at: Point) -> None:
        own, kept = np.flatnonzero(out), np.flatnonzero(~out)
        if not self.judges[own].any():
            return
        K, alpha = self.kernel(at[0], k), 10 ** (at[1] / 2)
        part = Dense(K[np.ix_(kept, kept)])
        there = self.Y[kept].sum(0) > 0  # classes; logits of the others would fall without end
        if there.sum() < 2:
            self.seen[at][own] = np.where(there, 0.0, -np.log(len(kept) + 2))
            return
        known = part, self.Y[kept][:, there], self.weight[kept], alpha
        for start in dict.fromkeys([(at[0], k), None]):  # a start may be too far away
            try:
                end = cross_entropy(*known, start=start and self.starts.get(start), tol=1e-5)
                break
            except SolveError:
                continue
        else:
            return
        self.starts[at[0], k] = end.a, end.b
        logits = K[np.ix_(own, kept)] @ end.a + end.b
        if not there.all():  # all of them together are as likely as one row more
            rare = np.log((len(kept) + 2) * (~there).sum())
            whole = np.tile(logsumexp(logits, axis=1, keepdims=True) - rare, there.size)
            whole[:, there] = logits
            logits = whole
        self.seen[at][own] = logits

    def loss(self, at: Point) -> float:
        """Mean over the rows that judge, infinite where there is no solution."""
        logits, w = self.logits(at)[self.judges], self.weight[self.judges]
        losses = log_losses(logits, succeeded(self.Y[self.judges], w))
        return float(w @ losses / w.sum())

    def walk(self, start: Point, step: int, ways: Sequence[Point]) -> Point:
        """To the best point near the start, in steps of 2^{step/2} and 10^{step/2}."""
        if rescaled(self.fit, 1.0) is None:
            start, ways = (0, start[1]), STRENGTH
        self.at = compass(self.loss, start, step, ways)
        return self.at

    @property
    def told(self) -> Tuned:
        """At the point where it is."""
        i, j = self.at
        chart, logits = rescaled(self.fit, 2 ** (i / 2)), self.logits(self.at)
        u, Y, weight = (part[self.judges] for part in (logits, self.Y, self.weight))
        T = temperature(u, Y, weight, near=NEAR) if np.isfinite(u).all() else 1.0
        fit = replace(self.fit, chart=self.fit.chart if chart is None else chart)
        return Tuned(fit, 10 ** (j / 2), logits, T)


def tuned(fits: list[Fit], data: Data, folds: int, most: int, kept: int, each: Each) -> list[Tuned]:
    """The best of different kinds at the scales and strengths that cross-entropy wants, the best first.

    They begin where the first ends; those to be kept go on in smaller steps.
    """
    kinds = [fit.candidate.kind for fit in fits]
    first = [fit for i, fit in enumerate(fits) if kinds[i] not in kinds[:i]][:most]
    tried = [Tried(fit, data, folds) for fit in first]
    start = walked(tried[0], (0, START), 2, BOTH)
    each(walked, [(one, start, 2, BOTH) for one in tried[1:]])
    fair = unseen(first, data)
    tried = [one for _, one in ranked(tried, data, fair)[:kept]]
    each(walked, [(one, one.at, 1, ALONG) for one in tried])
    return [found for found, _ in ranked(tried, data, fair)]


@torch.no_grad()
def walked(tried: Tried, start: Point, step: int, ways: Sequence[Point]) -> Point:
    return tried.walk(start, step, ways)


def ranked(tried: list[Tried], data: Data, fair: ndarray) -> list[tuple[Tuned, Tried]]:
    """With their losses at the rows that none has seen, the best first."""
    Y, w = onehot(data)[fair], data.weight.numpy()[fair]

    def scored(found: Tuned) -> Tuned:
        losses = log_losses(found.logits[fair] / found.temperature, Y)
        return found._replace(fit=replace(found.fit, nats=float(w @ losses / w.sum()), price=0.0))

    return sorted(((scored(one.told), one) for one in tried), key=lambda pair: pair[0].fit.nats)


def fewest(found: list[Tuned], data: Data) -> Tuned:
    """The fewest coordinates that rows left out cannot tell from the best, by one standard error.

    The usual candidate has to be behind by two. Charts of many coordinates explain little, and are in use
    only where all others err twice as much.
    """
    fair = unseen((one.fit for one in found), data)
    Y, w = onehot(data)[fair], data.weight.numpy()[fair]
    losses = [log_losses(one.logits[fair] / one.temperature, Y) for one in found]
    means = [mean_of(each, w)[0] for each in losses]

    def close(k: int, best: int) -> bool:
        behind, error = mean_of(losses[k] - losses[best], w)
        return behind <= (1 + found[k].fit.candidate.usual) * error

    sizes = [dims(one.fit, data) for one in found]
    return found[fewest_of(sizes, means, 2 * min(means), close)]


def unseen(fits: Iterable[Fit], data: Data) -> ndarray:
    """Rows (n,) that no chart has seen."""
    fair = np.ones(len(data), dtype=bool)
    for fit in fits:
        fair &= True if fit.saw is None else ~fit.saw.numpy()
    return fair


def onehot(data: Data) -> ndarray:
    assert isinstance(data.likelihood, Softmax)
    return data.Y.numpy() + data.likelihood.shares


def log_losses(logits: ndarray, Y: ndarray) -> ndarray:
    """(n,), infinite where logits are no numbers."""
    top = logits.max(1, keepdims=True)
    losses = np.log(np.exp(logits - top).sum(1)) + top[:, 0] - (Y * logits).sum(1)
    return np.where(np.isnan(losses), np.inf, losses)


def compass(
    score: Callable[[Point], float], best: Point, step: int, ways: Sequence[Point]
) -> Point:
    """Move one of these ways, and on, as long as that pays."""
    ahead, tried = list(ways), 0
    while tried < len(ways):
        at = (best[0] + step * ahead[0][0], best[1] + step * ahead[0][1])
        inside = all(low <= value <= high for value, (low, high) in zip(at, LIMITS))
        if inside and score(at) < score(best) * (1 - PAYS):
            best, tried = at, 0
        else:
            ahead, tried = [*ahead[1:], ahead[0]], tried + 1
    return best

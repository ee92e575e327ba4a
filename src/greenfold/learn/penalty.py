"""Scale and penalty of a chart for classes, by the cross-entropy of rows left out.

The race is run by least squares, which wants other scales than cross-entropy does. Every scale and
strength is solved for by Newton's method and leaves each row out in closed form (`solve/left_out.py`).
The closed form flatters weak penalties, so among strengths that the rows cannot tell apart the strongest
is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy import ndarray
from torch import Tensor

from greenfold.design import Design
from greenfold.learn.candidates import Fit
from greenfold.learn.fit import anchored, rescaled
from greenfold.solve import Logistic, SolveError, cross_entropy, left_out

LIMITS = ((-12, 10), (-14, 6))  # of i and j
BOTH = ((0, -1), (0, 1), (-1, 0), (1, 0), (-1, -1), (1, 1))  # ways to go from (i, j)
STRENGTH = ((0, -1), (0, 1))
START = -4  # j
NOISELESS = 1e-6  # as if λ, for the choice of anchors: confident rows hardly have noise

Point = tuple[int, int]  # (i, j): scale 2^{i/2} and strength 10^{j/2}


class Tried:
    """A chart at several scales and strengths; remembers what it has seen."""

    def __init__(
        self,
        fit: Fit,
        x: Tensor,
        Y: Tensor,
        weight: Tensor,
        n_anchors: int,
        folds: Tensor | None = None,
    ):
        self.fit = replace(fit, noise=NOISELESS)
        self.x, self.Y, self.weight, self.n_anchors, self.folds = x, Y, weight, n_anchors, folds
        self.designs: dict[int, tuple[Design, float]] = {}
        self.sources: dict[int, Tensor] = {}
        self.seen: dict[Point, ndarray] = {}

    def at(self, i: int) -> Fit:
        """The chart with its scales times 2^{i/2}."""
        chart = rescaled(self.fit, 2 ** (i / 2))
        return self.fit if chart is None else replace(self.fit, chart=chart)

    def losses(self, at: Point) -> ndarray:
        """(n,) of rows left out, infinite where the solve fails."""
        if at in self.seen:
            return self.seen[at]
        i, j = at
        if i not in self.designs:
            model = anchored(self.at(i), self.x, self.n_anchors)
            self.designs[i] = model.design(self.x), float(model.unit())
        design, unit = self.designs[i]
        alpha = 10 ** (j / 2) * unit
        try:
            solver = Logistic(alpha, relative=False, tol=1e-4)
            found = solver.solve(design, self.Y, self.weight, self.sources.get(i))
            left = left_out(design, self.Y, found, cross_entropy, self.weight, self.folds)
            losses = -(self.Y * left.u.log_softmax(1)).sum(1)
            self.sources[i], self.seen[at] = found.w, losses.nan_to_num(nan=np.inf).numpy()
        except SolveError:
            self.seen[at] = np.full(len(self.Y), np.inf)
        return self.seen[at]

    def mean(self, at: Point) -> float:
        return float(np.average(self.losses(at), weights=self.weight.numpy()))

    def best(self) -> tuple[Fit, float]:
        """The chart at the best scale, and α: steps of 2 and 10, then of √2 and √10."""
        near = compass(self.mean, (0, START), 2, self.ways)
        i, j = self.cautious(compass(self.mean, near, 1, self.ways))
        return self.at(i), 10 ** (j / 2)

    @property
    def ways(self) -> Sequence[Point]:
        """Rough kernels need more anchors: with few, every scale looks too fine."""
        rough = self.fit.operator.rough
        return STRENGTH if rough or rescaled(self.fit, 1.0) is None else BOTH

    def cautious(self, best: Point) -> Point:
        """The strongest penalty at this scale whose loss is within a standard error of the best."""
        i, j = best
        w = self.weight.numpy() / float(self.weight.sum())
        while j < LIMITS[1][1] and np.isfinite(self.mean((i, j + 1))):
            gap = self.losses((i, j + 1)) - self.losses(best)
            mean = float(w @ gap)
            if mean > np.sqrt(float(w @ (gap - mean) ** 2) / max(len(gap) - 1, 1)):
                break
            j += 1
        return i, j


def compass(
    score: Callable[[Point], float], best: Point, step: int, ways: Sequence[Point]
) -> Point:
    """Move one of these ways, and on, as long as that pays."""
    ahead, tried = list(ways), 0
    while tried < len(ways):
        at = (best[0] + step * ahead[0][0], best[1] + step * ahead[0][1])
        inside = all(low <= value <= high for value, (low, high) in zip(at, LIMITS))
        if inside and score(at) < score(best) * (1 - 5e-3):
            best, tried = at, 0
        else:
            ahead, tried = [*ahead[1:], ahead[0]], tried + 1
    return best

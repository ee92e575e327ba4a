"""Task dimension of few rows of many columns, by the charts that regressors learn from such rows.

Straight ones are few directions of principal components; where more of them are needed than anybody looks
at, curved ones stand in for them. As in `dims.task` every row is predicted by charts of the other half.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.linalg import LinAlgError

from greenfold.dims.task import MAX_DIMS, MAX_ROWS, Loss, enough, task
from greenfold.green.atoms import Point
from greenfold.learn.candidates import Fit, unit
from greenfold.learn.choice import dims
from greenfold.learn.curved import LOOKED_AT, bends
from greenfold.learn.data import Data
from greenfold.learn.principal import views
from greenfold.learn.units import Scaling
from greenfold.learn.wide import (
    SCREEN,
    Principal,
    WideFit,
    condensed,
    directions,
    looked,
    score,
)
from greenfold.solve.kernel import kernel_evidence

Array = NDArray[np.float64]


class Half:
    """Charts learned from some rows, and what they make of others."""

    def __init__(self, X: Array, Y: Array, X_new: Array, Y_new: Array):
        units = Scaling.of_inputs(X, scaled=False)
        shift, scale = Y.mean(0), np.where(Y.std(0) > 0, Y.std(0), 1.0)
        x, target = torch.from_numpy(units.inside(X)), torch.from_numpy((Y - shift) / scale)
        self.data = Data.of(x, target, units=units)
        self.new = torch.from_numpy(units.inside(X_new)) / self.data.sd
        self.Y_new = (Y_new - shift) / scale

    @cached_property
    def best_view(self) -> tuple[Fit, WideFit]:
        """Lines, and all components, of the view that does best on some of the rows."""
        few = self.data.head(SCREEN)
        pairs = [pair for view in views(self.data) if (pair := looked(view, few)) is not None]
        best = min(pairs, key=lambda pair: min(map(score, pair)))
        assert isinstance(best[0].candidate, Principal)
        lines, whole = looked(best[0].candidate.view, self.data, best) or best
        assert isinstance(whole, WideFit)
        return lines, whole

    @property
    def nothing(self) -> Array:
        """Squared errors (n',) of the mean."""
        return (self.Y_new**2).mean(1)

    def straight(self) -> Array:
        """Squared errors (n', MAX_DIMS + 1) of charts with 0, 1, … straight coordinates."""
        lines, whole = self.best_view
        fits = [condensed(fit, self.data) for fit in (lines, *directions(whole, self.data))]
        return self.by_number(fits)

    def curved(self) -> Array:
        """The same of curved coordinates, as many as y has columns at most."""
        most = min(self.data.Y.shape[1], MAX_DIMS)
        try:
            return self.by_number(bends(self.best_view[1], self.data, [*range(1, most + 1)])[1])
        except LinAlgError:
            return self.by_number([])

    def by_number(self, fits: list[Fit]) -> Array:
        """The most likely chart of every number of coordinates; where there is none, that of fewer."""
        out = [self.nothing]
        for d in range(1, MAX_DIMS + 1):
            some = [fit for fit in fits if dims(fit, self.data) == d]
            out.append(self.errors(min(some, key=score)) if some else out[-1])
        return np.stack(out, 1)

    @torch.no_grad()
    def errors(self, fit: Fit) -> Array:
        """Squared errors (n',) on the other rows."""
        z, z_new = fit.chart(self.data.x), fit.chart(self.new)
        one = unit(fit.operator, z.shape[1])
        alpha = kernel_evidence(fit.kernel(self.data.x), self.data.Y.numpy(), fit.noise).alpha
        u = (fit.operator.response(z_new, Point(z)).numpy() / one + 1) @ alpha
        return ((u - self.Y_new) ** 2).mean(1)


def task_by_charts(X: Array, Y: Array, rng: Generator) -> tuple[int, list[Loss]]:
    """Task dimension from one random halving of the rows; of few columns by directions alone."""
    n, D = X.shape
    if D <= 50 or n >= 4 * D:
        return task(X, Y, rng)
    first, second = np.array_split(rng.permutation(len(X)), 2)
    parts = [
        (test, Half(X[train[:MAX_ROWS]], Y[train[:MAX_ROWS]], X[test], Y[test]))
        for train, test in ((first, second), (second, first))
    ]
    losses = np.zeros((len(X), MAX_DIMS + 1))
    for test, half in parts:
        losses[test] = half.straight()
    value, curve = enough(losses)
    if value <= LOOKED_AT:
        return value, curve
    bent = np.zeros_like(losses)
    for test, half in parts:
        bent[test] = half.curved()
    better = bent.mean(0) < losses.mean(0)
    return enough(np.where(better, bent, losses))

"""Many rows: sources at all of them, as long as rows held out gain by it.

A race sees a few thousand rows and leaves a model of some 1500 anchors. Where half of these would do as
well, more would do no better, and it stays. Otherwise all rows become anchors, and conjugate gradients
solve for the source (`solve/many.py`): first at 4,000 rows, where rough kernels that lost on few rows may
win, then at four times as many, and so on to all of them. Rows held out of everything judge, choose λ and
one scale, and end it where four times as many rows gain nothing.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy import ndarray
from scipy.linalg import LinAlgError
from torch import Tensor

from greenfold.green.atoms import Point
from greenfold.learn.candidates import Fit, unit
from greenfold.learn.choice import LEAST as SHARE
from greenfold.learn.choice import least_squares, loss, mean_of
from greenfold.learn.data import Data, Rows
from greenfold.learn.fit import anchored, escalated, outside, rescaled
from greenfold.learn.posterior import Posterior
from greenfold.learn.race import CLOSE, Schedule, Tell
from greenfold.model import CONSTANT, IGL, Tied
from greenfold.solve import Solution, SolveError
from greenfold.solve.factor import jittered
from greenfold.solve.many import Kernel, Many, Tiles
from greenfold.solve.statistics import Statistics

LEAST = 2500  # rows below which anchors are not few beside them
SKETCHED = 8000  # rows that a sketch is solved from
HELD = 2000  # rows that judge, at most a fifth of all
FIRST = 4000  # rows of the first round
TIMES = 4  # as many in the next
TESTED = 6000  # rows that tell whether anchors are too few
NEAR = 0.1  # nats behind the best, in which a candidate may still win with more rows
GAIN = 0.003  # nats that more anchors, or rows, have to gain
DEAR = 0.01  # nats that rows have to promise, where K is made anew in every step
MEMORY = 5 * 2**30  # bytes of K, or a quarter of the machine's
CAREFUL = 0.02  # residuals of the solve, in root mean square errors
FINER = 1.0  # nats below those expected, at which residuals would show among errors
RAISED = (2000, 4000)  # rows that scales go on learning from, of four times as many
SAME = 1e-3  # nats that are none
FASTEST = 1.0  # errors fall no faster than 1/n
STEP, SCALE = 6.0, 1.3  # of λ, and of all scales
SMALL = 1e-3  # λ to begin from, at least: less takes longer


def budget() -> float:
    """Bytes of K that are kept."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not every system tells
        return MEMORY / 2
    return float(min(MEMORY, machine / 4))


def most_rows() -> int:
    """Whose K is kept, above the diagonal in float32."""
    return int(math.sqrt(2 * budget() / 4))


class Tried(NamedTuple):
    """A fit with sources at n rows, and how it does at those held out."""

    fit: Fit
    n: int
    a: ndarray  # (n, c), for a kernel of unit variance
    b: ndarray  # (1, c)
    errors: Tensor  # (m, c)
    nats: float
    info: dict[str, Any]
    rate: float = 0.0  # nats that a row held out gains as n grows e-fold


class Step(NamedTuple):
    """The same fit with sources at some rows, and at more."""

    before: Tried
    after: Tried


class Grown(NamedTuple):
    """Sources at all rows."""

    fit: Fit  # at λ and the scale that rows held out chose, on charts of x/sd
    order: Tensor  # (n,) of the rows that have sources
    a: ndarray  # (n, c), for a kernel of unit variance
    b: ndarray  # (1, c)
    held: Tensor  # (m,) rows that judged
    errors: Tensor  # (m, c) there, as small as they are with all rows
    info: dict[str, Any]


@dataclass(frozen=True)
class Field:
    """Rows, those that judge behind the others."""

    data: Data
    n: int  # rows that do not judge
    factor: int  # rows of the preconditioner

    @property
    def held(self) -> Data:
        return self.data.take(slice(self.n, None))

    @torch.no_grad()
    def system(self, fit: Fit, n: int, loose: float = 0.0) -> Many:
        """K between the first n rows."""
        m = max(min(self.factor, n // 8, n), 1)
        room = max(budget() - 16 * n * m, 0)  # beside the preconditioner and its copy
        tiles = Tiles(kernel(fit), fit.chart(self.data.x[:n]), budget=room)
        # what takes longer is not worth it: others are nearly as good
        return Many(tiles, m, max_iter=200, largest=m, escalates=n <= 2 * FIRST, loose=loose)

    def solved(
        self, system: Many, fit: Fit, n: int, start: ndarray | None = None
    ) -> tuple[ndarray, ndarray, dict[str, Any]]:
        """a (n, c) and b (1, c) of u = K a + b from the first n rows, and what it took."""
        data = self.data.head(n)
        rough = math.exp(min(fit.nats, 0.0)) if math.isfinite(fit.nats) else 1.0
        system.tol = max(CAREFUL * rough, 1e-9)
        d, Y = fit.noise / data.weight.numpy(), data.Y.numpy()
        a, b = system.solve(d, Y, np.ones((n, 1)), start)
        spent = system.used[-1]
        info = {
            "route": "conjugate gradients",
            "iterations": spent.iterations,
            "residual": spent.residual,
            "megabytes": round(system.tiles.megabytes),
            "dtype": str(spent.dtype).removeprefix("torch."),
        }
        return a, b, info

    @torch.no_grad()
    def tried(self, system: Many, fit: Fit, n: int, start: ndarray | None = None) -> Tried:
        """Judged with sources at the first n rows; a fit without a solution costs infinitely much.

        A solve is as careful as the errors that are expected ask for. Where they turn out to be far
        smaller, what it leaves would be taken for errors, so it goes on.
        """
        try:
            a, b, info = self.solved(system, fit, n, start)
        except SolveError:
            nothing = np.zeros((n, self.data.Y.shape[1]))
            return Tried(fit, n, nothing, nothing[:1], self.held.Y, math.inf, {})
        errors = self.held.Y - source_at(fit, self.data.x[:n], a, b)(self.held.x)
        found = Tried(fit, n, a, b, errors, self.held.nats(errors), info)
        if not found.nats < min(fit.nats, 0.0) - FINER:
            return found
        finer = self.tried(system, replace(fit, nats=found.nats), n, a)
        return finer if finer.nats < math.inf else found

    def best_noise(self, fit: Fit, n: int, most: int) -> Tried:
        """At the λ, of so many, where rows held out cost least: the larger of equals, as it is faster."""
        system = self.system(fit, n)
        best = first = self.tried(system, fit, n)
        for factor, slack in ((STEP, SAME), (1 / STEP, -SAME)):
            while most > 1:
                most -= 1
                other = replace(best.fit, noise=factor * best.fit.noise)
                tried = self.tried(system, other, n)
                if not tried.nats < best.nats + slack:
                    break
                best = tried
            if best is not first:
                break
        return best

    def best_scale(self, best: Tried, most: int) -> Tried:
        """All scales times one number, of so many, likewise."""
        first = best
        for c in (1 / SCALE, SCALE):
            while most:
                most -= 1
                chart = rescaled(best.fit.chart, c)
                if chart is None:
                    return best
                other = self.solved_anew(replace(best.fit, chart=chart), best.n)
                if not other.nats < best.nats - SAME:
                    break
                best = other
            if best is not first:
                break
        return best

    def solved_anew(self, fit: Fit, n: int) -> Tried:
        return self.tried(self.system(fit, n), fit, n)

    def learned(self, fit: Fit, rows: int, steps: int) -> Fit:
        """Gone on learning from so many rows, where it can."""
        if fit.rows >= rows or not fit.candidate.grows:
            return fit
        try:
            return replace(fit.candidate.learn(self.data.head(rows), fit, steps), nats=fit.nats)
        except (LinAlgError, SolveError):
            return fit

    def rougher(self, fit: Fit) -> Fit:
        """Likewise with a kernel that few rows cannot tell from smooth ones."""
        other = fit.candidate.rougher
        assert other is not None
        try:
            return replace(other.learn(self.data.head(self.n), fit, 8), nats=fit.nats)
        except (LinAlgError, SolveError):
            return fit


def kernel(fit: Fit) -> Kernel:
    """k of unit variance, between points of the chart."""
    operator = fit.operator
    return lambda a, b: operator.response(a, Point(b)).div_(unit(operator, a.shape[1]))


@torch.no_grad()
def source_at(fit: Fit, x: Tensor, a: ndarray, b: ndarray) -> IGL:
    """u = K a + b as a model, with sources at rows x."""
    d = fit.chart(x[:1]).shape[1]
    model = IGL(fit.chart, fit.operator, Tied(x), n_dims=d, null_space=CONSTANT).eval()
    strengths = torch.from_numpy(a) / unit(fit.operator, d)
    model.w = torch.cat([strengths, torch.from_numpy(b)])
    return model


# --- does it pay?


@torch.no_grad()
def too_few(fit: Fit, field: Field, n_anchors: int) -> tuple[bool, float]:
    """Would more anchors than these do better? If half of them do as well, they would not.

    And nats at the rows held out with so many.
    """
    rows, held = field.data.head(min(field.n, TESTED)), field.held
    model = anchored(fit, rows.x, n_anchors)
    design, there = model.design(rows.x), model.design(held.x)
    strength = fit.noise * float(model.unit()) * design.penalty
    m, w = int(design.penalty.sum()), rows.weight[:, None]
    gram, cross = design.Phi.T @ (w * design.Phi), design.Phi.T @ (w * rows.Y)
    errors = []
    for k in (m // 2, m):  # Φ is whitened in turn: its first columns are those of the first anchors
        own = torch.cat([torch.arange(k), torch.arange(m, len(strength))])
        F = jittered(gram[own][:, own] + strength[own].diag(), "the Gram matrix of the anchors")
        v = torch.cholesky_solve(cross[own], F)
        errors.append(held.Y - there.Phi[:, own] @ v)
    gain, error = behind(held, *errors)
    return gain > max(GAIN, 2 * error), held.nats(errors[1])


def parted(data: Data) -> tuple[Tensor, int]:
    """Rows in an order with those that judge at the end, and how many do not."""
    n = len(data)
    first = data.first(n - min(HELD, n // 5))
    return torch.cat([first.nonzero()[:, 0], (~first).nonzero()[:, 0]]), int(first.sum())


def grown(
    fits: list[Fit], data: Data, schedule: Schedule, tell: Tell, kept: int = 1
) -> list[Grown]:
    """Sources at all rows for so many of these fits, the one in use first; none if that gains nothing."""
    if len(data) < LEAST or fits[0].candidate.plain:
        return []
    order, n = parted(data)
    field = Field(data.take(order), n, schedule.anchors)
    pays, before = too_few(fits[0], field, schedule.anchors)
    if not pays:
        return []
    found = contest(fits, field, schedule, kept)
    best = [raised(rivals, field, tell) for rivals in found]
    best = [one for one in best if one.nats < before - GAIN]
    all_ = [whole(one, field, order) for one in sorted(best, key=by_nats)]
    return [one for one in all_ if one is not None]


def by_nats(tried: Tried) -> float:
    return tried.nats


def contest(fits: list[Fit], field: Field, schedule: Schedule, kept: int) -> list[list[Tried]]:
    """The best with sources at the first few thousand rows, which scales go on learning from.

    Rivals for one place, or the one for each of several.
    """
    near = [fit for fit in fits if loss(fit) <= loss(fits[0]) + NEAR and not fit.candidate.plain]
    near = [field.learned(fit, schedule.rows[2], 8) for fit in near[: schedule.refine // 2]]
    near += [field.rougher(fit) for fit in near if fit.candidate.rougher is not None]
    near = [replace(fit, noise=max(fit.noise, SMALL)) for fit in near or fits[:kept]]
    first = min(FIRST, field.n)
    tried = sorted([field.best_noise(fit, first, 4) for fit in near], key=by_nats)
    if schedule.refine:  # none of those that are close is behind for its scale
        close = tried[0].nats + CLOSE
        tried = [field.best_scale(one, 3) if one.nats <= close else one for one in tried]
        tried = sorted(tried, key=by_nats)
    if kept == 1:
        both = rivals(tried)
        both = [refined(one, field) for one in both] if schedule.refine else both
        return [sorted(both, key=by_nats)]
    tried = [one for one in tried[:kept] if one.nats <= tried[0].nats + NEAR / 2]
    tried = together(tried, field.held)
    return [[refined(one, field)] if schedule.refine else [one] for one in tried]


def over_axes(tried: Tried) -> bool:
    """Is its kernel a product over axes? Those of distances predict several times as fast."""
    return tried.fit.candidate.product


def rivals(tried: list[Tried]) -> list[Tried]:
    """The best, and the best of the other kind of kernel if it is close: with more rows it may win."""
    other = [one for one in tried if over_axes(one) != over_axes(tried[0])][:1]
    return [tried[0], *(one for one in other if one.nats <= tried[0].nats + CLOSE)]


def decided(steps: list[Step], held: Data) -> Step:
    """The best; but a kernel of distances wins if it is behind by no more than chance."""
    best = min(steps, key=lambda step: step.after.nats)
    for step in steps:
        gain, error = behind(held, step.after.errors, best.after.errors)
        if step.after.nats < math.inf and not over_axes(step.after) and gain <= 2 * error:
            return step
    return best


def behind(held: Data, one: Tensor, other: Tensor) -> tuple[float, float]:
    """What some errors (m, c) cost more than others, in nats of a row, and its standard error."""
    Y, weight = held.Y.numpy(), held.weight.numpy()
    a, b = (held.judge.losses(errors.numpy(), Y, weight) for errors in (one, other))
    return mean_of(a - b, weight)


def together(tried: list[Tried], held: Data) -> list[Tried]:
    """Those whose mean predicts rows held out better than the best of them, if by enough to pay."""
    errors = np.stack([one.errors.numpy() for one in tried])
    weights = least_squares(errors)
    mean = torch.from_numpy(np.tensordot(weights, errors, 1))
    if held.nats(mean) > tried[0].nats - GAIN:
        return tried[:1]
    return [one for one, weight in zip(tried, weights) if weight >= SHARE]


def refined(best: Tried, field: Field) -> Tried:
    """With scales from more rows, as long as that pays."""
    for rows in (n for n in RAISED if n > best.fit.rows):
        if field.n < best.fit.candidate.grows * rows:
            break
        more = field.solved_anew(field.learned(best.fit, rows, 8), best.n)
        if not more.nats < best.nats - GAIN:
            break
        best = more
    return best


def raised(rivals: list[Tried], field: Field, tell: Tell) -> Tried:
    """The best with sources at four times as many rows, and so on, as long as that pays.

    First as many as memory holds K of, then more, if errors fell so fast that these promise enough. What
    is best with few rows is often not with more, so the first step is that of both rivals.
    """
    best = rivals[0]
    tell(f"{best.n} rows, all of them anchors", [told(one) for one in rivals])
    kept, most = most_rows(), field.n
    while best.n < most:
        n = min(TIMES * best.n, most)
        if n > kept:
            n = kept if best.n < kept else n
            if n > kept and best.rate * math.log(n / best.n) < DEAR:
                break
        steps = [Step(one, field.best_noise(told(one), n, 2)) for one in rivals]
        before, more = decided(steps, field.held)
        tell(f"{more.n} rows, all of them anchors", [told(more)])
        if not more.nats < best.nats - GAIN:
            return min(best, more, key=by_nats)
        best = more._replace(rate=rate(before, more))
        rivals = [best]
    if best.rate:
        return best
    half = field.solved_anew(best.fit, best.n // 2)
    return best._replace(rate=rate(half, best))


def rate(few: Tried, many: Tried) -> float:
    """How fast errors fall with rows: d nats / d log n, none if they rise, or few have no solution."""
    gain = few.nats - many.nats
    return gain / math.log(many.n / few.n) if 0 < gain < math.inf and many.n > few.n else 0.0


def told(tried: Tried) -> Fit:
    return replace(tried.fit, nats=tried.nats, errors=tried.errors, price=0.0)


def whole(best: Tried, field: Field, order: Tensor) -> Grown | None:
    """With the rows that judged among the sources, if that has a solution.

    Their errors, which make the intervals, were of fewer sources: they become smaller as they did before.
    """
    data = field.data
    extra = torch.arange(field.n, len(data))
    rows = torch.cat([torch.arange(best.n), extra])
    all_ = replace(field, data=data.take(rows))
    start = np.vstack([best.a, np.zeros((len(extra), best.a.shape[1]))])
    system = all_.system(best.fit, len(rows))
    try:
        a, b, info = all_.solved(system, told(best), len(rows), start)
    except SolveError:
        return None
    errors = best.errors * (best.n / len(rows)) ** min(best.rate, FASTEST)
    return Grown(told(best), order[rows], a, b, order[field.n :], errors, info)


# --- what becomes of it


class Everywhere(NamedTuple):
    """A model with a source at every row, its sketch of fewer, which explains it, and how sure it is."""

    whole: IGL
    sketch: IGL
    solution: Solution  # of the sketch
    posterior: Posterior
    held: Tensor  # (m,) rows that judged
    errors: Tensor  # (m, c) there


@torch.no_grad()
def everywhere(grown: Grown, rows: Rows, data: Data, n_anchors: int) -> Everywhere:
    """For rows in the order of the race. The sketch is solved for u of the whole, at some of them."""
    fit = replace(grown.fit, chart=outside(grown.fit.chart, data))
    x = rows.x[grown.order]
    sketch, whole = anchored(fit, x, n_anchors), source_at(fit, x, grown.a, grown.b)
    size = float(sketch.unit())
    some = slice(0, SKETCHED)
    u = whole(x[some])
    alpha = fit.noise * size
    weight = (rows.weights / rows.weights.mean())[grown.order]
    sums = Statistics()
    sums.update(sketch.design(x[some]), u, weight[some])
    solution = escalated(sums, alpha * sums.n / float(weight.sum()))
    sketch.w = solution.w
    info = {**solution.info, **grown.info, "anchors": len(x), "alpha_relative": fit.noise}
    solution = solution._replace(alpha=torch.tensor(alpha, dtype=torch.float64), info=info)
    held, errors = grown.held, grown.errors
    posterior = Posterior.sketched(sketch, sums, x, weight, alpha, rows.Y[held], errors)
    return Everywhere(whole, sketch, solution, posterior, held, errors)

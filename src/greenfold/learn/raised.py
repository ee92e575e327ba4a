"""Many rows under a likelihood: sources at all of them, as long as rows held out gain by it.

As in `grown.py`, by the steps of `solve/shared.py` with conjugate gradients inside. The model of fewer
anchors stays as its sketch, which explains it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from greenfold.learn.candidates import Fit
from greenfold.learn.choice import mean_of, shares
from greenfold.learn.fit import outside, rescaled
from greenfold.learn.found import Raced
from greenfold.learn.grown import (
    FIRST,
    LEAST,
    TIMES,
    Field,
    kernel,
    most_rows,
    parted,
    source_at,
    too_few,
)
from greenfold.learn.penalty import MANY, Judges, Tuned, unseen
from greenfold.learn.posterior import Posterior
from greenfold.learn.predictor import Member, distinct
from greenfold.learn.race import Tell, narrator
from greenfold.likelihoods.base import Likelihood
from greenfold.model import IGL
from greenfold.solve import SolveError
from greenfold.solve.many import Many
from greenfold.solve.shared import Dense, Optimum, System, likeliest
from greenfold.spec import Settings
from greenfold.state import one_thread

STEPS = (1 / 3, 3.0)  # of the strength
SCALES = (1.3, 1 / 1.3)
TOL = (1e-7, 1e-5)  # nats per row that a step has to gain; of many outputs
LOOSE = 0.1  # residual of a step
FACTORED = 5000  # rows up to which K is
NEAR = 10  # times what pays, that a chart may be behind the best at a few thousand rows
DEAREST = 4e9  # n²c, of a product with K
LOOKED = 2e8  # the same, of another look at scale and strength
MORE = 1.5  # times as many rows as have judged, for another look at scale and strength
SKETCH = 1500  # anchors of a sketch, which tell whether more would do better


class Raised(NamedTuple):
    """A chart at the scale and strength that more rows want."""

    chart: Tuned  # f (m, c) at the rows held out
    held: Tensor  # (m,) these
    model: IGL | None = None  # with a source at every row, where that pays
    info: dict[str, Any] = {}  # noqa: RUF012, nobody changes it


class Tried(NamedTuple):
    """With sources at the first n rows, and how it does at those held out."""

    fit: Fit
    alpha: float  # for a kernel of unit variance
    n: int
    end: Optimum
    f: ndarray  # (m, c)
    nats: float
    info: dict[str, Any]


@dataclass(frozen=True)
class Likelier:
    """Rows under a likelihood, those that judge behind the others."""

    field: Field
    law: Likelihood
    Y: ndarray  # (n, k)

    @property
    def looked(self) -> int:
        """Rows that scale and strength are looked for with: a few thousand, less of many outputs."""
        return min(FIRST, int(math.sqrt(LOOKED / self.law.dearness)))

    @torch.no_grad()
    def solved(
        self, fit: Fit, alpha: float, n: int, known: Tried | None = None
    ) -> tuple[Optimum, dict[str, Any]]:
        """From the first n rows, and what it took. It begins where fewer ended, if that is known."""
        system = self.system(fit, n)
        weight = self.field.data.weight.numpy()[:n]
        start = None if known is None else padded(known, n)
        tol = TOL[int(self.law.outputs > MANY)]
        end = likeliest(system, self.law, self.Y[:n], weight, alpha, start=start, tol=tol)
        info = {"route": "shared", "iterations": end.iterations, "gap": end.gap}
        if isinstance(system, Many):
            products = sum(1 + each.iterations for each in system.used)
            info |= {
                "route": "conjugate gradients",
                "products": products,
                "megabytes": round(system.tiles.megabytes),
            }
        return end, info

    def system(self, fit: Fit, n: int) -> System:
        """K between the first n rows."""
        if n > FACTORED:
            return self.field.system(fit, n, LOOSE)
        z = fit.chart(self.field.data.x[:n])
        return Dense(kernel(fit)(z, z).numpy())

    @torch.no_grad()
    def tried(self, fit: Fit, alpha: float, n: int, known: Tried | None = None) -> Tried | None:
        """Judged by the rows held out; none where it has no solution."""
        try:
            end, info = self.solved(fit, alpha, n, known)
        except SolveError:
            return None
        model = source_at(fit, self.field.data.x[:n], end.a, end.b)
        f = model(self.field.held.x).numpy()
        return Tried(fit, alpha, n, end, f, self.nats(f), info)

    @property
    def judging(self) -> tuple[ndarray, ndarray]:
        """Targets and weights of the rows held out."""
        return self.Y[self.field.n :], self.field.held.weight.numpy()

    def nats(self, f: ndarray) -> float:
        Y, weight = self.judging
        return float(mean_of(self.law.tried(f, Y, weight), weight)[0])

    def better(self, best: Tried, other: Tried | None) -> bool:
        return other is not None and other.nats < best.nats - self.law.pays(best.nats)

    def best_strength(self, best: Tried, most: int) -> Tried:
        """Of so many."""
        first = best
        for factor in STEPS:
            while most > 0:
                most -= 1
                other = self.tried(best.fit, factor * best.alpha, best.n, best)
                if other is None or not self.better(best, other):
                    break
                best = other
            if best is not first:
                break
        return best

    def best_scale(self, best: Tried) -> Tried:
        """All scales times one number."""
        first = best
        for factor in SCALES:
            while (chart := rescaled(best.fit.chart, factor)) is not None:
                other = self.tried(replace(best.fit, chart=chart), best.alpha, best.n, best)
                if other is None or not self.better(best, other):
                    break
                best = other
            if best is not first:
                break
        return best


def padded(known: Tried, n: int) -> tuple[ndarray, ndarray]:
    """Where a solve with more rows begins: the new ones have no source yet."""
    a = np.zeros((n, known.end.a.shape[1]))
    a[: known.n] = known.end.a
    return a, known.end.b


def raised(found: list[Tuned], raced: Raced, s: Settings, most_anchors: int) -> list[Raised]:
    """The best of these charts, judged by rows held out, the best first.

    With sources at all rows, if there are more than `most_anchors` and that pays. None if rows held out
    gain nothing, or a number of sources was asked for.
    """
    data, rows, judged = raced.data, raced.rows, len(found[0].f)
    few = len(data) < MORE * judged or raced.fits[0].candidate.plain
    if few or s.n_atoms is not None or data.others is not None:
        return []
    order, n = parted(data)
    if any(one.fit.rows > n and not one.fit.candidate.rigid for one in found):
        return []  # it remembers the rows that would judge
    field = Field(data.take(order), n, SKETCH)
    laws = [Likelier(field, one.law, rows.Y[order].numpy()) for one in found]
    with one_thread():
        grows = len(data) > max(LEAST, most_anchors) and too_few(raced.fits[0], field, SKETCH)[0]
        if not grows and MORE * judged > laws[0].looked:
            return []
        firsts = close([begun(by, one) for by, one in zip(laws, found)], laws)
        bests = [
            first and by.best_strength(by.best_scale(first), 3) for by, first in zip(laws, firsts)
        ]
        if not grows and all(best is first for best, first in zip(bests, firsts)):
            return []
        tell, ends = narrator(s.verbose, data.judge), []
        for by, one, best in zip(laws, found, close(bests, laws)):
            if best is None:
                continue
            end = more_rows(by, best, tell) if grows else best
            law = by.law.fitted(end.f, *by.judging)
            known = whole(by, end, law, order, raced) if grows else (None, {})
            fit = replace(end.fit, nats=end.nats, price=0.0)
            chart = one._replace(fit=fit, alpha=end.alpha, f=end.f, law=law)
            ends.append(Raised(chart, order[n:], *known))
    return sorted(ends, key=lambda end: end.chart.fit.nats)


def close(tried: list[Tried | None], laws: list[Likelier]) -> list[Tried | None]:
    """Without those that are far behind the best."""
    least = min((one.nats for one in tried if one is not None), default=math.inf)
    limits = [least + NEAR * by.law.pays(least) for by in laws]
    return [
        one if one is not None and one.nats <= limit else None for one, limit in zip(tried, limits)
    ]


def begun(by: Likelier, one: Tuned) -> Tried | None:
    """Of one chart, as it is, from a few thousand rows."""
    field = by.field
    fit = one.fit.candidate.refit(one.fit, field.data.head(field.n))
    return by.tried(fit, one.alpha, min(by.looked, field.n))


def more_rows(by: Likelier, best: Tried, tell: Tell) -> Tried:
    """With sources at four times as many rows, and so on, as long as that pays."""
    most = min(by.field.n, most_rows(), int(math.sqrt(DEAREST / by.law.outputs)))
    while best.n < most:
        more = by.tried(best.fit, best.alpha, min(TIMES * best.n, most), best)
        if more is None or not by.better(best, more):
            break
        best = by.best_strength(more, 2) if more.n < most else more
        tell(f"{best.n} rows, all of them anchors", [replace(best.fit, nats=best.nats, price=0.0)])
    return best


def whole(
    by: Likelier, best: Tried, law: Likelihood, order: Tensor, raced: Raced
) -> tuple[IGL | None, dict[str, Any]]:
    """With the rows that judged among the sources, if that has a solution; and what it took."""
    field, m = by.field, len(order) - by.field.n
    own = torch.cat([torch.arange(best.n), torch.arange(field.n, len(order))])
    all_ = Likelier(replace(field, data=field.data.take(own)), by.law, by.Y[own.numpy()])
    try:
        end, info = all_.solved(best.fit, best.alpha, best.n + m, best)
    except SolveError:
        return None, {}
    b = end.b + np.asarray(law.moved) if law.moved else end.b
    fit = replace(best.fit, chart=outside(best.fit.chart, raced.data))
    return source_at(fit, raced.rows.x[order[own]], end.a, b), {**info, "anchors": len(own)}


class Stack(NamedTuple):
    """Charts that are averaged, the heaviest first, and what they say of rows that judge."""

    charts: list[Tuned]
    share: ndarray  # (k,)
    fair: ndarray  # (m,) rows at which f of the charts is known and no chart has seen
    Y: ndarray  # (m, ·)
    weight: ndarray  # (m,)
    raised: list[Raised]  # the same charts, or none

    @property
    def f(self) -> ndarray:
        """(k, m, c)."""
        return np.stack([one.f[self.fair] for one in self.charts])

    def member(
        self, k: int, model: IGL, alpha: float, posterior: Posterior | None = None
    ) -> Member:
        """With a source at every row, if that is known."""
        name = distinct([one.fit.candidate.name for one in self.charts])[k]
        whole, law = self.raised[k].model if self.raised else None, self.charts[k].law
        return Member(float(self.share[k]), model, posterior, alpha, name, whole, law.sharpness)


def stacked(charts: list[Tuned], by: Judges, raced: Raced, s: Settings, most_anchors: int) -> Stack:
    """Weighed by rows held out, if more rows than judged before tell more, or else by those."""
    found = raised(charts, raced, s, most_anchors)
    Y, weight = by.Y, by.data.weight.numpy()
    fair = unseen((one.fit for one in charts), by.data)
    if found:
        charts, held = [one.chart for one in found], found[0].held
        Y, weight = raced.rows.Y[held].numpy(), raced.data.weight[held].numpy()
        fair = np.ones(len(held), dtype=bool)
    share = shares([one.fit.nats for one in charts], raced.data.n_effective)
    kept = [k for k in np.argsort(-share, kind="stable") if share[k] > 0]
    return Stack(
        [charts[k] for k in kept],
        share[kept],
        fair,
        Y[fair],
        weight[fair],
        [found[k] for k in kept] if found else [],
    )

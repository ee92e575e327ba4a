"""Under a likelihood: charts compete on working targets, and rows left out choose all the rest."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from greenfold.design import Design
from greenfold.learn.choice import loss
from greenfold.learn.data import Rows, shuffled
from greenfold.learn.found import CHARTS, Raced, Several, asked, data_of, tuned_charts
from greenfold.learn.numbers import race_numbers
from greenfold.learn.penalty import Fixed, strength_of
from greenfold.learn.posterior import Posterior
from greenfold.learn.predictor import Member, Predictor
from greenfold.learn.race import EFFORTS, MOST, apart, narrator, side_by_side
from greenfold.learn.raised import Raised, stacked
from greenfold.learn.tails import without_tails
from greenfold.learn.units import Scaling, Units
from greenfold.likelihoods.base import Likelihood
from greenfold.model import IGL
from greenfold.solve import Likely, Solution, SolveError
from greenfold.solve.likely import working
from greenfold.spec import Settings
from greenfold.state import one_thread

STRONGER = 10  # tens that a strength may be raised by where it has no solution
ROUNDED = 1e-3  # nats per row, above which rounding has made strengths worthless


def working_rows(rows: Rows, law: Likelihood) -> Rows:
    """With targets (n, 1) that charts learn from by least squares."""
    Y, told = law.working(rows.Y.numpy())
    weight = rows.weights * torch.from_numpy(told)
    target = torch.from_numpy(Scaling.of_targets(Y).inside(Y))
    return rows._replace(Y=target, weight=weight / weight.mean())


def likely_charts(rows: Rows, s: Settings, seed: int, units: Scaling, law: Likelihood) -> Raced:
    """For targets Y (n, k) of a likelihood: charts compete on its working targets."""
    Y, told = law.working(rows.Y.numpy())
    order = torch.from_numpy(shuffled(rows.x.numpy(), rows.Y.numpy(), seed))
    target = torch.from_numpy(Scaling.of_targets(Y).inside(Y))
    weight = rows.weights * torch.from_numpy(told)
    working, rows = (
        rows._replace(Y=target, weight=weight / weight.mean()).take(order),
        rows.take(order),
    )
    data, rng = data_of(working, s, seed, units), np.random.default_rng(seed)
    tell = narrator(s.verbose, data.judge)
    data = without_tails(data, tell)
    with side_by_side(s.n_jobs) as each:
        schedule = EFFORTS[s.effort]
        won, rivals = race_numbers(data, schedule, rng, s.effort, asked(s), tell=tell, each=each)
    rivals = sorted((fit for fit in rivals if math.isfinite(fit.nats)), key=loss)
    # their own weights count from here on
    return Raced(replace(data, weight=rows.weights / rows.weights.mean()), rows, [won, *rivals], [])


class Likeliest(NamedTuple):
    """A source under a likelihood."""

    solution: Solution
    posterior: Posterior | None  # of several outputs, none
    unsure: float  # variance of η at rows left out, on average, over that of the noise


@torch.no_grad()
def likely_strength(
    model: IGL, rows: Rows, s: Settings, seed: int, law: Likelihood
) -> tuple[Likelihood, float, float]:
    """On a chart as it is: the likelihood with its own numbers, absolute α, and nats of rows left out."""
    rows = rows.take(torch.from_numpy(shuffled(rows.x.numpy(), rows.Y.numpy(), seed)))
    data = data_of(rows, s, seed, Scaling.none(rows.x.shape[1]))
    judges = EFFORTS[s.effort].judging(data.head(MOST))
    x, Y = rows.x[: len(judges)], rows.Y[: len(judges)].numpy()
    folds = s.cv if isinstance(s.cv, int) else apart(len(judges))
    unit = float(model.unit()) if model.energy else 1.0
    with one_thread():
        law, alpha, nats = strength_of(Fixed.of(model.design(x), unit), judges, folds, law, Y)
    return law, alpha * unit, nats


@torch.no_grad()
def likely_source(
    model: IGL, rows: Rows, law: Likelihood, alpha: float, tol: float = 1e-6
) -> Likeliest:
    """The source at strength α, absolute. Where one output is looked for, how sure it is.

    Quantiles are moved by what rows left out have told.
    """
    x, Y, weight, _ = rows
    design = model.design(x)
    solution = escalated(law, alpha, tol, design, Y, weight)
    if law.moved:
        free = int((design.penalty > 0).sum())  # the first column beside the atoms is constant
        solution.w[free] += torch.tensor(law.moved, dtype=solution.w.dtype)
    model.w = solution.w
    if law.outputs > 1:
        return Likeliest(solution, None, 0.0)
    f = (design.Phi @ solution.w).numpy()
    z, s = working(law, f, Y.numpy(), rows.weights.numpy())
    known = solution._replace(
        alpha=solution.alpha * law.noise
    )  # rows of weight 1 have that variance
    told = torch.from_numpy(z), known, torch.from_numpy(law.noise * s)
    posterior = Posterior.of(model, x, *told, design=design, folds=rows.own())
    return Likeliest(solution, posterior, float(np.square(posterior.relative).mean()) - 1)


def escalated(
    law: Likelihood, alpha: float, tol: float, design: Design, Y: Tensor, weight: Tensor | None
) -> Solution:
    """At a strength, or at the least multiple of it by tens that has a solution.

    Strengths that rounding has made worthless are none.
    """
    for k in range(STRONGER):
        try:
            solution = Likely(law, 10**k * alpha, tol).solve(design, Y, weight)
        except SolveError:
            continue
        if solution.info["rounding"] <= ROUNDED:
            return solution
    return Likely(law, 10**STRONGER * alpha, tol).solve(design, Y, weight)


def surely(law: Likelihood, end: Likeliest, unsure: float) -> tuple[Likelihood, Posterior | None]:
    """The likelihood where η is known, and a posterior with its noise."""
    law = law.sure(unsure)
    return law, None if end.posterior is None else end.posterior.of_noise(law.noise)


def likely_stack(rows: Rows, s: Settings, seed: int, units: Units) -> Several:
    """Up to three charts under a likelihood, η averaged with weights from rows left out."""
    law, anchors = units.law, EFFORTS[s.effort].anchors
    assert law is not None
    raced = likely_charts(rows, s, seed, units.x, law)
    charts, by = tuned_charts(raced, s, law, CHARTS)
    stack = stacked(charts, by, raced, s, anchors)
    models = [raced.model(one.fit, one.alpha, anchors) for one in stack.charts]
    with one_thread():
        ends = [
            likely_source(model, raced.rows, one.law, alpha)
            for one, (model, alpha) in zip(stack.charts, models)
        ]
    law = law.fitted(np.tensordot(stack.share, stack.f, 1), stack.Y, stack.weight)
    unsure = float(stack.share @ np.array([end.unsure for end in ends]))
    members = [
        stack.member(k, model, alpha, surely(law, end, unsure)[1])
        for k, (end, (model, alpha)) in enumerate(zip(ends, models))
    ]
    judges, members = judging(members, stack.raised, raced.rows)
    predictor = Predictor(replace(units, law=law.sure(unsure)), tuple(members))
    if law.conformal:
        known = [one.posterior for one in members if one.posterior is not None]
        errors = np.stack([posterior.loo_errors for posterior in known])
        predictor = predictor.judged(judges, errors)
    used = [(float(w), one.fit) for w, one in zip(stack.share, stack.charts)]
    told = raced.standings(used)
    told[: len(used)] = [one._replace(score=fit.nats) for one, (_, fit) in zip(told, used)]
    return Several(raced.data, told, predictor)


def judging(members: list[Member], found: list[Raised], rows: Rows) -> tuple[Rows, list[Member]]:
    """Rows that errors are known for: those held out, if there is a source at all others."""
    if not any(member.whole for member in members):
        return rows, members
    rows, told = rows.take(found[0].held), []
    for member, one in zip(members, found):
        posterior = member.posterior
        if posterior is not None:
            errors = rows.Y[:, :1].numpy() - one.chart.f
            posterior = posterior.judged(member.model, rows.x, errors)
        told.append(member._replace(posterior=posterior))
    return rows, told

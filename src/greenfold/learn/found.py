"""Charts that are found: rows in random order, a race, models of those in use, and how sure they are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from greenfold.green.operators import operator as operator_by_name
from greenfold.learn.candidates import Fit
from greenfold.learn.choice import LEAST, average, doubtful, errors_of, least_squares, standing
from greenfold.learn.classes import race_classes
from greenfold.learn.curved import race_bent
from greenfold.learn.data import Data, Rows, shuffled
from greenfold.learn.fit import anchored, judged, outside, solved
from greenfold.learn.folds import held_out, unseen
from greenfold.learn.graphs import ON_GRAPH, with_graph
from greenfold.learn.grown import Everywhere, everywhere, grown
from greenfold.learn.judges import Indicators, Judge
from greenfold.learn.numbers import race_numbers
from greenfold.learn.penalty import Judges, Tuned, tuned
from greenfold.learn.pictures import shape_of
from greenfold.learn.posterior import Posterior
from greenfold.learn.predictor import Member, Predictor
from greenfold.learn.race import (
    CLASS_EFFORTS,
    EFFORTS,
    MOST,
    NOTHING,
    Asked,
    Each,
    Schedule,
    Tell,
    apart,
    narrator,
    race,
    side_by_side,
)
from greenfold.learn.searched import explained, searched, verified
from greenfold.learn.standings import Standing, ranked
from greenfold.learn.tails import without_tails
from greenfold.learn.units import Array, Scaling, Units
from greenfold.learn.wide import wide
from greenfold.likelihoods.base import Likelihood
from greenfold.model import IGL
from greenfold.solve import SolveError
from greenfold.spec import Settings
from greenfold.state import one_thread

CHARTS = 3  # for classes, that scale and penalty are chosen for
AFFORDED = 1e8  # n²c of the rows that judge these, together


def asked(s: Settings) -> Asked:
    """What the race is restricted to."""
    return Asked(None if s.operator == "auto" else operator_by_name(s.operator), s.n_dims)


def data_of(
    rows: Rows,
    s: Settings,
    seed: int,
    units: Scaling,
    judge: Judge | None = None,
    others: Tensor | None = None,
) -> Data:
    """Rows, in random order, as candidates see them; `others` (m, D) have no label."""
    data = Data.of(*rows[:3], seed, judge, units, rows.folds, s.channels, others)
    return replace(data, shape=shape_of(s.image_shape, data.x))


def standings(
    data: Data, used: Iterable[tuple[float, Fit]], rivals: Iterable[Fit]
) -> list[Standing]:
    """Of those in use, with their weights, and of all others."""
    told = [standing(fit, data, float(weight)) for weight, fit in used]
    return ranked([*told, *(standing(fit, data) for fit in rivals)])


# --- numbers


class Best(NamedTuple):
    """The chart that predicts rows left out best."""

    data: Data
    standings: list[Standing]
    model: IGL  # with its anchors; its source is not solved for yet
    noise: float  # λ
    errors: Array | None  # (n, c) on folds that it has not seen, where it can learn again
    doubt: str  # why it may be wrong
    everywhere: Everywhere | None = None  # sources at every row, where rows held out gain by it


def best_chart(
    rows: Rows, s: Settings, seed: int, units: Scaling, others: Tensor | None = None
) -> Best:
    """For one chart in use."""
    order = torch.from_numpy(shuffled(rows.x.numpy(), rows.Y.numpy(), seed))
    rows = rows.take(order)
    data, schedule = data_of(rows, s, seed, units, others=others), EFFORTS[s.effort]
    tell, rng = narrator(s.verbose, data.judge), np.random.default_rng(seed)
    data = without_tails(data, tell)
    with side_by_side(s.n_jobs) as each:
        won, rivals = race_numbers(data, schedule, rng, s.effort, asked(s), tell=tell, each=each)
    if asked(s) == Asked():
        won, rivals = with_graph(data, won, rivals)
    for fit, all_ in more_rows([won, *rivals], data, rows, s, tell):
        all_ = all_._replace(held=order[all_.held])
        told = standings(data, [(1.0, fit)], [won, *rivals])
        return Best(data, told, all_.sketch, fit.noise, None, "", all_)
    fit = replace(won, chart=outside(won.chart, data))
    model, noise = anchored(fit, rows.x, s.n_atoms or schedule.anchors), won.noise
    if won.errors is not None and len(won.errors) < len(data):  # λ saw only those
        noise = float(solved(model, *rows[:3], noise).alpha) / float(model.unit())
    errors, told = unseen(won, data), standings(data, [(1.0, won)], rivals)
    known = None if errors is None else errors[order.argsort()].numpy()
    return Best(data, told, model, noise, known, doubtful(won, 1 + len(rivals)))


def more_rows(
    fits: list[Fit], data: Data, rows: Rows, s: Settings, tell: Tell, kept: int = 1
) -> list[tuple[Fit, Everywhere]]:
    """Sources at every row, for the best of the fits; none if their number was asked for."""
    if s.n_atoms is not None or s.alpha != "evidence" or s.sparsity or data.others is not None:
        return []
    schedule = EFFORTS[s.effort]
    with one_thread():
        found = grown(fits, data, schedule, tell, kept)
        return [(one.fit, everywhere(one, rows, data, schedule.anchors)) for one in found]


class Several(NamedTuple):
    """Charts that are averaged."""

    data: Data
    standings: list[Standing]
    predictor: Predictor


def several_charts(
    rows: Rows, s: Settings, seed: int, units: Units, others: Tensor | None = None
) -> Several:
    """Those that share the weight. Rows come in random order, every column in its own unit."""
    data = data_of(rows, s, seed, units.x, others=others)
    data = without_tails(data, narrator(s.verbose, data.judge))
    with side_by_side(s.n_jobs) as each:
        fits, out = race_several(data, s, seed, each)
        won, rivals = with_graph(data, fits[0], fits[1:])
        fits = [won, *rivals]
        many = more_rows(fits, data, rows, s, narrator(s.verbose, data.judge), CHARTS)
        if many:
            return everywhere_several(many, data, rows, units, fits + out)
        used = average(fits, data.n_effective)
        charts = [replace(fit, chart=outside(fit.chart, data)) for _, fit in used]
        models = [anchored(fit, rows.x, EFFORTS[s.effort].anchors) for fit in charts]
        jobs = [(model, *rows[:3], fit.noise) for model, (_, fit) in zip(models, used)]
        solutions = each(solved, jobs)
        errors = each(unseen, [(fit, data) for _, fit in used])
    own = rows.own()
    members = []
    for i, ((weight, fit), model, solution) in enumerate(zip(used, models, solutions)):
        alpha = float(solution.alpha)
        if errors[i] is None:
            errors[i] = held_out(model, rows, alpha, errors_of(fit), folds=own)
        with torch.no_grad(), one_thread():
            posterior = Posterior.of(model, *rows[:2], solution, rows.weight, folds=own)
        members.append(Member(weight, model, posterior, alpha, fit.candidate.name))
    predictor = Predictor(units, tuple(members))
    predictor = predictor.judged(rows, torch.stack(errors).numpy())
    kept = [fit for _, fit in used]
    rivals = [fit for fit in fits + out if fit not in kept]
    return Several(data, standings(data, used, rivals), predictor)


def everywhere_several(
    found: list[tuple[Fit, Everywhere]], data: Data, rows: Rows, units: Units, rivals: list[Fit]
) -> Several:
    """Those with sources at every row, weighed by the rows held out."""
    held = found[0][1].held
    weights = least_squares(np.stack([e.errors.numpy() for _, e in found]))
    used = [(float(w), *one) for w, one in zip(weights, found) if w >= LEAST]
    total = sum(w for w, _, _ in used)
    members = [
        Member(
            w / total, e.sketch, e.posterior, float(e.solution.alpha), fit.candidate.name, e.whole
        )
        for w, fit, e in used
    ]
    errors = np.stack([e.errors.numpy() for _, _, e in used])
    predictor = Predictor(units, tuple(members)).judged(rows.take(held), errors)
    return Several(
        data, standings(data, [(w / total, fit) for w, fit, _ in used], rivals), predictor
    )


def race_several(data: Data, s: Settings, seed: int, each: Each) -> tuple[list[Fit], list[Fit]]:
    """What may be averaged, and what was out before."""
    schedule, found = EFFORTS[s.effort], []
    if s.effort != "fast":
        found = searched(data, np.random.default_rng(seed), s.effort)
    clear = bool(found) and explained(found[0])
    fits = race_bent(data, found, clear, each) if wide(data) else []
    if fits:
        out = found
    elif clear:
        fits, out = [judged(found[0], data.head(schedule.judges))], found[1:]
    else:
        tell = narrator(s.verbose, data.judge)
        fits, out = race(data, schedule, found, tell=tell, each=each)
        fits = verified(fits, data, np.random.default_rng(seed))
    if not fits or not math.isfinite(fits[0].nats):
        raise SolveError(NOTHING)
    return fits, out


# --- classes


class Raced(NamedTuple):
    """What a race for classes leaves: rows in its order, and fits, the best first."""

    data: Data
    rows: Rows
    fits: list[Fit]
    out: list[Fit]

    def model(self, fit: Fit, alpha: float, n_anchors: int) -> tuple[IGL, float]:
        """Of a fit, with so many anchors, and its strength, absolute."""
        fit = fit.candidate.refit(fit, self.data)
        fit = replace(fit, chart=outside(fit.chart, self.data), noise=alpha)
        model = anchored(fit, self.rows.x, n_anchors)
        return model, alpha * float(model.unit())

    def standings(self, used: list[tuple[float, Fit]]) -> list[Standing]:
        kinds = [id(fit.candidate) for _, fit in used]
        rivals = [fit for fit in self.fits + self.out if id(fit.candidate) not in kinds]
        return standings(self.data, used, rivals)


def won_by_graph(raced: Raced) -> Raced:
    """With the graph alone, if it won: what few rows say of others that are tuned on them is flattery."""
    first, *rest = raced.fits
    if first.candidate is not ON_GRAPH:
        return raced
    return raced._replace(fits=[first], out=rest + raced.out)


def class_schedule(s: Settings) -> Schedule:
    """Scales are left to cross-entropy."""
    known = CLASS_EFFORTS[s.effort]
    return known if s.loss == "least_squares" else replace(known, refine=0)


def class_charts(
    rows: Rows, s: Settings, seed: int, units: Scaling, others: Tensor | None = None
) -> Raced:
    """For class indicators Y (n, c)."""
    rng, schedule = np.random.default_rng(seed), class_schedule(s)
    weight = rows.weights.numpy()
    shares = weight @ rows.Y.numpy() / weight.sum()
    rows = rows.take(torch.from_numpy(rng.permutation(len(rows.x))))
    if s.cv is None and rows.own() is None:  # all candidates are judged by the same folds
        rows = rows._replace(folds=apart(min(len(rows.x), schedule.judges)))
    working = rows._replace(Y=rows.Y - torch.from_numpy(shares), weight=rows.weights)
    data = data_of(working, s, seed, units, Indicators(shares), others)
    tell = narrator(s.verbose, data.judge)
    data = without_tails(data, tell)
    with side_by_side(s.n_jobs) as each:
        fits, out = race_classes(data, schedule, rng, s.effort, asked(s), tell=tell, each=each)
    if asked(s) == Asked() and fits:
        won, rivals = with_graph(schedule.judging(data.head(MOST)), fits[0], fits[1:])
        fits = [won, *rivals]
    if not fits:
        raise SolveError(NOTHING)
    return Raced(data, rows, fits, out)


def tuned_charts(
    raced: Raced, s: Settings, law: Likelihood, kept: int, rival: Likelihood | None = None
) -> tuple[list[Tuned], Judges]:
    """So many of the best, at scales and strengths for a likelihood or its rival, and who judged.

    Rows of the race hold its targets.
    """
    schedule = class_schedule(s) if s.classifies else EFFORTS[s.effort]
    judges = schedule.judging(raced.data.head(MOST))
    judged_by = Judges(judges, law, raced.rows.Y[: len(judges)].numpy())
    folds = s.cv if isinstance(s.cv, int) else apart(len(judges))
    afforded = max(int(AFFORDED / (len(judges) ** 2 * law.dearness)), kept)
    with side_by_side(s.n_jobs) as each, one_thread():
        most = min(max(CHARTS, kept), afforded)
        return tuned(raced.fits, judged_by, folds, most, kept, each, rival), judged_by

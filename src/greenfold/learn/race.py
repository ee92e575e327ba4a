"""One race: candidates learn on growing shares of the rows, and rows left out judge them.

Rounds grow what charts learn from, never what judges them: few rows flatter smooth kernels. Candidates
with few numbers are learned once, and only the source is solved for without the rows that judge. The
others could learn those rows by heart, so they are learned again without each of three folds, and dropped
after the first if they lose there. One criterion holds for all: nats per row.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from joblib import Parallel, delayed
from scipy.linalg import LinAlgError
from torch import Tensor
from tqdm.auto import tqdm

from greenfold.chart import AxisScales, Linear
from greenfold.green.base import Operator
from greenfold.green.operators import Cauchy
from greenfold.learn.candidates import (
    AXIS_RQ,
    CLASSES,
    FREE,
    KERNELS,
    RIGID,
    Candidate,
    Fit,
    Searched,
    allowed,
    equal_scales,
    restricted,
)
from greenfold.learn.data import Data
from greenfold.learn.fit import judged, refined
from greenfold.learn.likelihoods import Likelihood
from greenfold.learn.search import search
from greenfold.learn.search.forecast import NATS, like_noise
from greenfold.learn.search.ladder import ROOM
from greenfold.learn.search.starts import SOLVED
from greenfold.learn.standings import Standing, named, searched_chart
from greenfold.learn.wide import LINES, condensed, race_wide, wide
from greenfold.solve import SolveError
from greenfold.state import one_thread

BEHIND = 0.1  # nats per row behind the best at which a candidate is out
CLOSE = 0.02  # nats within which more rows or another scale may still change the order
FOLDS = (3, 5)  # that charts with many numbers are learned without, more of them below
FEW = 300  # rows
VERIFIED = 600  # rows up to which a searched chart has to be found without some of them
SEARCHES = 5  # folds that it is searched for without
LITTLE = math.log(0.2)  # nats of errors that are a fifth of y's standard deviation
ASKED = 600  # rows that two numbers are asked of
LEAST = 0.03  # weight below which a fit is not worth its time
FEWEST = 20  # rows whose folds can tell candidates apart
MOST = 5000  # rows of a race
SEARCHED = 500  # rows that linear charts for classes are searched on
# Classes that leave less than so many times what is enough are not searched for linear charts: among few
# columns, where that is quick, and among many.
CLEAR = (10, 16)
WORTHLESS = "no chart predicts rows left out better than their mean does"
NOTHING = (
    "no chart has a solution on these rows. Usually their weights differ too much: "
    "look at `sample_weight`."
)
MANY = 10  # coordinates, more than anybody looks at
CODES = 12  # columns that stand in for the indicators of more classes while charts are searched for


@dataclass(frozen=True)
class Schedule:
    """What an effort pays for."""

    pool: tuple[Candidate, ...]
    rows: tuple[int, int, int]  # to learn from: every candidate, those near the best, if that pays
    steps: tuple[int, int, int]
    judges: int  # rows that judge; with up to a fifth more, all of them
    refine: int  # times that left-out rows are asked for one scale and λ
    anchors: int

    def judging(self, data: Data) -> Data:
        """The rows that judge."""
        return data.head(self.judges) if len(data) > 1.2 * self.judges else data


EFFORTS = {
    "fast": Schedule((RIGID[0], AXIS_RQ, LINES), (300, 500, 500), (12, 8, 0), 500, 0, 1000),
    "normal": Schedule((*RIGID, LINES), (300, 500, 1000), (15, 10, 8), 1000, 9, 1500),
    "full": Schedule((*RIGID, LINES, *FREE), (500, 800, 1500), (25, 15, 12), 1500, 16, 2000),
}

# For classes a scale of every axis is a chart with many numbers: on few rows it learns them by heart.
CLASS_EFFORTS = {
    "fast": Schedule(CLASSES[:-2], (300, 500, 500), (12, 8, 0), 500, 0, 1000),
    "normal": Schedule(CLASSES, (300, 500, 500), (15, 10, 8), 1000, 9, 1500),
    "full": Schedule(CLASSES + FREE[:3], (500, 800, 1000), (25, 15, 12), 1500, 16, 2000),
}

Tell = Callable[[str, list[Fit]], None]
Each = Callable[[Any, Iterable[tuple[Any, ...]]], list[Any]]


def silent(round_: str, fits: list[Fit]) -> None:
    """Tell nobody."""


def narrator(verbose: int, likelihood: Likelihood) -> Tell:
    """Each round on a line of its own: who stays, how well the best does, and since when."""
    begin = time.perf_counter()

    def tell(round_: str, fits: list[Fit]) -> None:
        names = ", ".join(fit.candidate.name for fit in fits)
        score = likelihood.score(loss(fits[0])) if fits else math.nan
        spent = time.perf_counter() - begin
        tqdm.write(f"{round_}: {names}; best {score:.4g}; {spent:.1f} s", file=sys.stderr)

    return tell if verbose else silent


def one_by_one(function: Any, arguments: Iterable[tuple[Any, ...]]) -> list[Any]:
    return [function(*each) for each in arguments]


@contextmanager
def side_by_side(n_jobs: int | None) -> Iterator[Each]:
    """In several threads; results do not depend on how many."""
    with Parallel(n_jobs=n_jobs, prefer="threads") as pool:
        yield lambda function, arguments: list(pool(delayed(function)(*row) for row in arguments))


def race(
    data: Data,
    schedule: Schedule,
    found: Sequence[Fit] = (),
    *,
    tell: Tell = silent,
    each: Each = one_by_one,
) -> tuple[list[Fit], list[Fit]]:
    """Those that stayed to the end, the best first, and those that were out before.

    The first that the search `found` stays, unless it scales columns, as others in the race do: such
    scales are another place to start from. `each` maps a function over tuples of arguments, perhaps in
    several threads.
    """
    given = [fit for fit in found[:1] if not scales_columns(fit)]
    with one_thread():
        fits, out = Race(data.head(MOST), schedule, tell, each).run(given, found)
    return fits, [*out, *found[len(given) :]]


class Race:
    """The rounds, one after another."""

    def __init__(self, data: Data, schedule: Schedule, tell: Tell, each: Each):
        self.data, self.schedule, self.tell, self.each = data, schedule, tell, each
        self.judges = schedule.judging(data)
        self.stages = [data.head(n) for n in schedule.rows]
        self.pool = [candidate for candidate in schedule.pool if candidate.suits(data)]
        self.out: list[Fit] = []

    def run(self, given: list[Fit], found: Sequence[Fit]) -> tuple[list[Fit], list[Fit]]:
        first, more, _ = self.schedule.rows
        some = self.judges.head(more)
        fits = self.keep(self.judge(self.begin(found), some), BEHIND, 5)
        before = fits[0].nats if fits else math.inf
        if len(self.data) > first:
            fits = self.learn(fits, 1)
        fits = self.keep(self.judge(fits, self.judges), BEHIND, 5)
        if len(self.data) > more and fits:
            if judged(fits[0], some).nats < before - CLOSE:  # more rows paid
                fits = self.learn(fits, 2)
            else:
                fits = self.keep(fits, BEHIND / (1 if loss(fits[0]) < LITTLE else 2), 3)
        fits = self.judge(fits, self.judges, True) + self.judge(given, self.judges)
        fits = self.refine(self.go_on(sorted(fits, key=loss)))
        if not fits or loss(fits[0]) > self.data.likelihood.enough:
            free = [c for c in self.pool if not c.rigid]
            fits += self.honest(free, fits) or ([] if fits else self.only(free[:1]))
        fits = sorted([condensed(fit, self.judges) for fit in fits], key=loss)
        self.tell("the end", fits)
        return fits, sorted([condensed(fit, self.judges) for fit in self.out], key=loss)

    def begin(self, found: Sequence[Fit]) -> list[Fit]:
        """Every candidate on few rows, from the scales that the smoothest finds.

        From equal scales it may miss columns that matter a little; the search may have found them.
        """
        starts = [equal_scales(self.data), *map(scales_found, found)]
        known = [start for start in starts if start is not None]
        first = self.each(
            self.learned, [(AXIS_RQ, self.stages[0], start, 25) for start in known[:2]]
        )
        self.start = min(first, key=lambda fit: fit.evidence)
        rigid, steps = [c for c in self.pool if c.rigid], self.schedule.steps[0]
        rest = [c for c in rigid if c is not AXIS_RQ]
        jobs = [(candidate, self.stages[0], self.start, steps) for candidate in rest]
        first = [self.start] if AXIS_RQ in rigid else []
        return [*first, *self.each(self.learned, jobs)]

    def learn(self, fits: list[Fit], stage: int) -> list[Fit]:
        """On from where they are, with more rows."""
        data, steps = self.stages[stage], self.schedule.steps[stage]
        return self.each(self.learned, [(fit.candidate, data, fit, steps) for fit in fits])

    def learned(self, candidate: Candidate, data: Data, start: Fit, steps: int) -> Fit:
        """The candidate on these rows; where its evidence cannot be computed, as it was."""
        begin = time.perf_counter()
        again = start.candidate is candidate
        try:
            fit = candidate.learn(data, start, steps)
        except (LinAlgError, SolveError):
            fit = start if again else replace(start, candidate=candidate, failed=True)
        spent = start.seconds if again else 0.0
        return replace(fit, seconds=spent + time.perf_counter() - begin)

    def judge(self, fits: list[Fit], rows: Data, scan: bool = False) -> list[Fit]:
        return self.each(self.judged, [(fit, rows, scan) for fit in fits if not fit.failed])

    def judged(self, fit: Fit, rows: Data, scan: bool = False) -> Fit:
        begin = time.perf_counter()
        fit = judged(fit, rows, scan)
        return replace(fit, seconds=fit.seconds + time.perf_counter() - begin)

    def keep(self, fits: list[Fit], gap: float, most: int) -> list[Fit]:
        """Those near the best, and what would do if it were; the others are out."""
        fits = sorted(fits, key=loss)
        stay = [fit for fit in fits[:most] if loss(fit) <= loss(fits[0]) + gap]
        stay += [fit for fit in fits[len(stay) :] if fit.candidate.plain]
        self.out += [fit for fit in fits if fit not in stay]
        self.tell(f"{len(self.judges)} rows", stay)
        return stay

    def go_on(self, fits: list[Fit]) -> list[Fit]:
        """Where little of y is left, scales decide: the best learn on, if rows left out gain by it."""
        if not self.schedule.refine or not fits or loss(fits[0]) > LITTLE:
            return fits
        top = [fit for fit in fits[:3] if loss(fit) <= loss(fits[0]) + 2 * BEHIND]
        top = [fit for fit in top if fit.candidate.refines]
        data, steps = self.stages[2], self.schedule.steps[0]
        jobs = [(fit.candidate, data, fit.candidate.anew(fit, data), steps) for fit in top]
        more = self.judge(self.each(self.learned, jobs), self.judges, True)
        better = [min(pair, key=loss) for pair in zip(top, more, strict=True)]
        return sorted(better + [fit for fit in fits if fit not in top], key=loss)

    def refine(self, fits: list[Fit]) -> list[Fit]:
        """One scale and λ of the best two, asked of the rows left out."""
        if not self.schedule.refine or not fits or len(self.data) > 2 * len(self.judges):
            return fits
        top = [fit for fit in fits[:2] if loss(fit) <= loss(fits[0]) + CLOSE]
        top = [fit for fit in top if fit.candidate.refines]
        some = self.judges.head(ASKED)
        better = self.each(refined, [(fit, some, self.schedule.refine) for fit in top])
        if len(some) < len(self.judges):
            better = self.judge(better, self.judges)
        return better + [fit for fit in fits if fit not in top]

    def only(self, free: list[Candidate]) -> list[Fit]:
        """What there is, where rows are too few for folds of their own."""
        made = [self.learned(c, self.stages[2], self.start, self.schedule.steps[0]) for c in free]
        return self.judge(made, self.judges)

    def honest(self, free: list[Candidate], rivals: list[Fit]) -> list[Fit]:
        """Candidates with many numbers, judged by folds that their charts have not seen."""
        if len(self.judges) < 5 * FOLDS[0]:
            return []
        found = self.each(self.unseen, [(candidate, rivals) for candidate in free])
        return [fit for fit in found if fit is not None]

    def unseen(self, candidate: Candidate, rivals: list[Fit]) -> Fit | None:
        data = self.judges.coarse(apart(len(self.judges)))
        errors, start, steps = torch.empty_like(data.Y), self.start, self.schedule.steps[0]
        most, parts = self.schedule.rows[2], []
        for fold in data.folds.unique().tolist():
            own = data.folds == fold
            part = data.without(fold)
            fit = self.learned(candidate, part.head(most), start, steps)
            fit = candidate.refit(fit, part)
            there = None if fit.failed else self.judged(fit, data).errors
            if there is None:
                return None
            parts.append(fit)
            errors[own], part = there[own], data.take(own)
            if fold == 0:
                known = [part.nats(fit.errors[own]) for fit in rivals if fit.errors is not None]
                if part.nats(errors[own]) > min(known, default=math.inf) + BEHIND:
                    return None
                start = fit
        fit = self.learned(candidate, data.head(most), start, self.schedule.steps[1])
        fit = candidate.refit(fit, data)
        return replace(fit, errors=errors, nats=data.nats(errors), parts=tuple(parts))


def apart(n: int) -> int:
    """Folds of n rows that charts are learned without."""
    return FOLDS[n < FEW]


def errors_of(fit: Fit) -> Tensor:
    assert fit.errors is not None, "it was not judged"
    return fit.errors


def loss(fit: Fit) -> float:
    """What fits are compared by."""
    return fit.nats + fit.price


def best(fits: list[Fit], data: Data) -> Fit:
    """The least loss; the usual candidate unless it is behind by more than chance; lines if they may be.

    What does best on few rows is often not best: another than the usual must lead by 1/(4√n), and another
    than a linear function by one standard error, too.
    """
    leader = min(fits, key=loss)
    limit = loss(leader) - math.log(1 - 0.25 / math.sqrt(len(data)))
    usual = [fit for fit in fits if fit.candidate.usual and loss(fit) <= limit]
    plain = [fit for fit in fits if fit.candidate.plain]
    plain = [fit for fit in plain if loss(fit) <= limit or near(fit, leader, data)]
    return min(plain or usual or [leader], key=loss)


def near(fit: Fit, leader: Fit, data: Data, errors: float = 1.0) -> bool:
    """Is it behind by no more than so many standard errors of what it costs more at rows left out?"""
    if fit is leader:
        return True
    if fit.errors is None or leader.errors is None or len(fit.errors) != len(leader.errors):
        return False
    behind, error = difference(fit, leader, data.head(len(fit.errors)))
    return behind + fit.price - leader.price <= errors * error


def scales_columns(fit: Fit) -> bool:
    """Is every coordinate a column of its own?"""
    W = next(fit.chart.parameters())
    return bool(W.any()) and bool((W != 0).sum(1).le(1).all())


def scales_found(fit: Fit) -> Fit | None:
    """Axis scales that the search found for the smoothest kernel of the race, if it is that."""
    W = next(fit.chart.parameters()).detach()
    if not isinstance(fit.operator, Cauchy) or not scales_columns(fit):
        return None
    s = W.abs().sum(0).clamp_min(1e-3 * float(W.abs().max()))
    return Fit(AXIS_RQ, AxisScales(len(s), s), fit.operator, fit.noise)


def verified(fits: list[Fit], data: Data, rng: np.random.Generator) -> list[Fit]:
    """With a chart that was searched for judged by folds that the search has not seen, while it leads.

    Where a chart has more than a number for every twenty rows, its directions may hold those rows and no
    others.
    """
    checked: list[Fit] = []
    while fits and len(data) <= VERIFIED:
        leader, rival = sorted([*fits, constant(data)], key=loss)[:2]
        few = 20 * math.expm1(2 * leader.price) <= 1  # numbers that it was learned with, per row
        if not isinstance(leader.candidate, Searched) or few or leader in checked:
            break
        again = looked_again(leader, rival, data, rng)
        checked.append(again)
        fits = [again if fit is leader else fit for fit in fits]
    return sorted(fits, key=loss)


def looked_again(fit: Fit, rival: Fit, data: Data, rng: np.random.Generator) -> Fit:
    """The fit, or what it costs at rows left out of the search if that is more than its rival costs.

    The search is run again without one fold after another, until their rows tell the two apart. Where
    they do not, the chart stays: fewer rows may not be enough to find it.
    """
    begin, folded = time.perf_counter(), data.coarse(SEARCHES)
    errors, seen = errors_of(fit).clone(), torch.zeros(len(data), dtype=torch.bool)
    for fold in folded.folds.unique().tolist():
        own = folded.folds == fold
        part = judged(searched(folded.without(fold), rng, "fast")[0], folded)
        errors[own] = folded.Y[own] if part.errors is None else part.errors[own]
        seen |= own
        behind, error = difference(replace(fit, errors=errors), rival, folded, seen)
        if abs(behind) > 2 * error:
            break
    fit = replace(fit, seconds=fit.seconds + time.perf_counter() - begin)
    if behind <= error:
        return fit
    return replace(fit, nats=folded.take(seen).nats(errors[seen]), errors=errors, price=0.0)


def fewest(fits: list[Fit], data: Data) -> Fit:
    """The fewest coordinates that rows left out cannot tell from the best, by one standard error.

    The usual candidate has to be behind by two. Charts of many coordinates explain little, and are in use
    only where all others err twice as much. Where the best could be so by chance, it is the mean.
    """
    leader = min(fits, key=loss)
    if -len(errors_of(leader)) * loss(leader) - math.log(len(fits)) < NATS:
        return constant(data)
    sizes, losses = [dims(fit, data) for fit in fits], [loss(fit) for fit in fits]

    def close(k: int, best: int) -> bool:
        return near(fits[k], fits[best], data, 1.0 + fits[k].candidate.usual)

    return fits[fewest_of(sizes, losses, min(losses) + math.log(2), close)]


def fewest_of(
    sizes: Sequence[int], losses: Sequence[float], twice: float, close: Callable[[int, int], bool]
) -> int:
    """The least size that is close to the best; a size above MANY where no other errs below `twice`."""
    every = range(len(sizes))
    kept = [k for k in every if sizes[k] <= MANY and losses[k] <= twice] or every
    best = min(kept, key=lambda k: losses[k])
    return min([k for k in kept if close(k, best)], key=lambda k: (sizes[k], losses[k]))


@torch.no_grad()
def dims(fit: Fit, data: Data) -> int:
    """Coordinates of its chart."""
    return int(fit.chart(data.x[:1]).shape[1])


def shares(losses: Sequence[float], n: float) -> np.ndarray:
    """Weights ∝ e^{−√n Δ}, Δ in nats per row: what n rows cannot tell apart shares its weight."""
    gaps = np.array(losses)
    weights = np.exp(-math.sqrt(n) * (gaps - gaps.min()))
    weights = np.where(weights >= LEAST * weights.sum(), weights, 0.0)
    return np.asarray(weights / weights.sum())


def average(fits: list[Fit], n: float) -> list[tuple[float, Fit]]:
    """Those that share the weight."""
    weights = shares([loss(fit) for fit in fits], n)
    return [(float(w), fit) for w, fit in zip(weights, fits) if w > 0]


# --- linear charts, found by a search of their own


def searched(data: Data, rng: np.random.Generator, effort: str) -> list[Fit]:
    """What the search for linear charts finds, the best evidence first."""
    with one_thread():
        X, axes = (data.x * data.sd).numpy(), None
        if X.shape[1] > len(X):  # these tell directions of their span apart, not columns
            _, S, axes = np.linalg.svd(X, full_matrices=False)
            axes = axes[: max(1, int((1e-10 * S[0] < S).sum()))]
            X = X @ axes.T
            # and are not enough to pursue directions among as many
            effort = "fast" if effort == "normal" and 2 * X.shape[1] > len(X) else effort
        found = search(X, data.Y.numpy(), rng, effort, data.weight.numpy())
    fits = []
    for each in found:
        W = torch.from_numpy(each.W if axes is None else each.W @ axes) * data.sd
        # A product kernel that leaves no residual says nothing of its error, so its λ has a floor.
        noise = max(each.noise, 1e-7) if each.kernel == "laplace" else each.noise
        fits.append(
            Fit(
                Searched(
                    searched_chart("pca" if axes is not None and each.name == "ard" else each.name)
                ),
                Linear(W.shape[1], W.shape[0], W),
                KERNELS[each.kernel](),
                noise,
                each.laplace,
                each.rows,
                price=0.5 * math.log(1 + min(each.learned / len(data), 1 / 3)),
                nats=math.log(max(each.error, 1e-300)),
                doubt="" if each.forecast is None else each.forecast.doubt,
                seconds=each.seconds,
            )
        )
    return fits


class Asked(NamedTuple):
    """What users restrict a race to."""

    operator: Operator | None = None
    n_dims: int | None = None

    def pool(self, schedule: Schedule, data: Data) -> Schedule:
        D = data.x.shape[1]
        return replace(schedule, pool=restricted(schedule.pool, self.operator, self.n_dims, D))

    def of(self, found: list[Fit], data: Data) -> list[Fit]:
        fits = [allowed(fit, self.operator, self.n_dims, data) for fit in found]
        return [fit for fit in fits if fit is not None]


def race_classes(
    data: Data,
    schedule: Schedule,
    rng: np.random.Generator,
    effort: str,
    asked: Asked,
    *,
    tell: Tell = silent,
    each: Each = one_by_one,
) -> tuple[list[Fit], list[Fit]]:
    """The race for classes; unless they are explained, linear charts that a search finds challenge it.

    Of few rows with many columns those challenge it that are made for them.
    The search sees part of the rows only, and the others judge it: what was fitted to the class of a row
    is no judge of it. Its best is used when its gain there is more than twice its standard error.
    """
    fits, out = race(data, asked.pool(schedule, data), tell=tell, each=each)
    judges = schedule.judging(data.head(MOST))
    if asked.operator is None and wide(judges):
        few = race_wide(judges, [], False, each)
        few = [fit for fit in few if asked.n_dims in (None, dims(fit, judges))]
        return sorted(few + fits, key=loss), out
    seen = judges.first(min(SEARCHED, 2 * len(judges) // 3))
    clear = CLEAR[int(data.x.shape[1] > ROOM)]
    if (
        int(seen.sum()) < 20
        or bool(seen.all())
        or (fits and loss(fits[0]) < clear * data.likelihood.enough and effort != "full")
    ):
        return fits, out
    part, beam = judges.take(seen), "full" if effort == "full" else "fast"
    part = replace(part, Y=codes(part.Y, rng))
    with one_thread():
        found = asked.of(searched(part, rng, beam), part)[:2]
        rivals = [judged(fit, judges, scan=True) for fit in found]
    rivals = [
        fit for fit in rivals if next(fit.chart.parameters()).any() and fit.errors is not None
    ]
    if not rivals or not fits:
        return fits or rivals, out
    rest = judges.take(~seen)
    rivals = [replace(f, price=0.0, nats=rest.nats(errors_of(f)[~seen])) for f in rivals]
    rivals.sort(key=loss)
    gain, error = difference(fits[0], rivals[0], judges, ~seen)
    rivals = [replace(f, errors=None, rows=len(rest), saw=seen) for f in rivals]  # that judged them
    tell("searched", rivals)
    return (rivals + fits, out) if gain > 2 * error else (fits, out + rivals)


def difference(
    one: Fit, other: Fit, data: Data, rows: Tensor | slice = slice(None)
) -> tuple[float, float]:
    """Mean of what `one` costs more than `other` at some of the rows, and its standard error."""
    Y, weight = data.Y.numpy(), data.weight.numpy()
    a, b = (data.likelihood.losses(errors_of(f).numpy(), Y, weight)[rows] for f in (one, other))
    return mean_of(a - b, weight[rows])


def mean_of(values: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """With its standard error."""
    w = weight / weight.sum()
    mean = float(w @ values)
    return mean, math.sqrt(float(w @ (values - mean) ** 2) / max(len(w) - 1, 1))


def codes(Y: Tensor, rng: np.random.Generator) -> Tensor:
    """Columns that tell classes apart, from indicators Y (n, c): one of two, or random halves of many."""
    c = Y.shape[1]
    if c == 2:
        return Y[:, :1]
    signs = rng.choice([-1.0, 1.0], size=(c, CODES))
    return Y @ torch.from_numpy(signs) if c > CODES else Y


def explained(fit: Fit) -> bool:
    """Is there nothing to challenge? Not what is constant, nor a smooth chart that explains y.

    One with at most a third of the columns' dimensions explains y when it leaves little of it, others
    only when they leave next to nothing: there rough kernels on all columns often predict better.
    """
    W = next(fit.chart.parameters())
    enough = SOLVED if 3 * W.shape[0] <= W.shape[-1] else 4 * SOLVED
    smooth = fit.operator.smooth and fit.evidence < enough
    return not bool(W.any()) or (smooth and useful(fit))


def useful(fit: Fit) -> bool:
    """Does it predict rows left out no worse than their mean? Evidence alone can claim anything.

    A column that is zero but for one row, say, is explained without noise by a line on which that row
    lies apart, and what is left of λ then interpolates the other columns.
    """
    return loss(fit) <= 0


def believed(found: list[Fit], data: Data) -> Fit:
    """The most evidence among what is useful; if nothing is, the least error, be it that of the mean."""
    for fit in found:
        if useful(fit):
            return fit
    return min([*(replace(fit, doubt=WORTHLESS) for fit in found), constant(data)], key=loss)


def constant(data: Data) -> Fit:
    """The mean."""
    w = data.weight / data.weight.sum()
    errors = (data.Y - w @ data.Y) / (1 - w)[:, None]  # around the mean of the others
    error = float((w @ errors**2).mean().sqrt())
    chart = Linear(data.x.shape[1], 1, torch.zeros(1, data.x.shape[1], dtype=data.x.dtype))
    fit = Fit(Searched("constant"), chart, KERNELS["gaussian"](), 1.0, 0.0, len(data))
    return replace(fit, nats=math.log(error), errors=errors, doubt=WORTHLESS)


def standing(fit: Fit, data: Data, weight: float = 0.0) -> Standing:
    """What is told of a fit; its score is that of the likelihood, in standard deviations of y."""
    chart = fit.candidate.told(fit)
    rows = fit.rows if fit.errors is None else len(fit.errors)
    score = data.likelihood.score(loss(fit))
    return Standing(named(chart, fit.operator), score, rows, fit.seconds, dims(fit, data), weight)


def doubtful(fit: Fit, rivals: int) -> str:
    """Why a winner may be wrong: its own doubt, or that rows left out hardly tell it from noise."""
    if fit.errors is None or isinstance(fit.candidate, Searched):
        return fit.doubt
    # The likelihood of rows left out against that of noise. The best of several may be so by chance, and
    # every number of the chart has seen these rows: half a nat each, as if it had been free.
    numbers = fit.candidate.numbers(fit)
    gain = -len(fit.errors) * loss(fit) - math.log(rivals) - numbers / 2
    return f"on rows held out it beats {like_noise(gain)}" if gain < NATS else ""

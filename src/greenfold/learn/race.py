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

import torch
from joblib import Parallel, delayed
from scipy.linalg import LinAlgError
from tqdm.auto import tqdm

from greenfold.green.base import Operator
from greenfold.learn.candidates import (
    AXIS_RQ,
    CLASSES,
    FREE,
    OPENING,
    RIGID,
    Candidate,
    Fit,
    allowed,
    equal_scales,
    restricted,
)
from greenfold.learn.choice import loss
from greenfold.learn.data import Data
from greenfold.learn.fit import judged, refined
from greenfold.learn.judges import Judge
from greenfold.learn.pictures import PICTURES
from greenfold.learn.searched import on_axes, scales_columns
from greenfold.learn.turned import TURNED
from greenfold.learn.wide import LINES, condensed
from greenfold.solve import SolveError
from greenfold.state import one_thread

BEHIND = 0.1  # nats per row behind the best at which a candidate is out
CLOSE = 0.02  # nats within which more rows or another scale may still change the order
FOLDS = (3, 5)  # that charts with many numbers are learned without, more of them below
FEW = 300  # rows
LITTLE = math.log(0.2)  # nats of errors that are a fifth of y's standard deviation
ASKED = 600  # rows that two numbers are asked of
FEWEST = 20  # rows whose folds can tell candidates apart
MOST = 5000  # rows of a race
NOTHING = (
    "no chart has a solution on these rows. Usually their weights differ too much: "
    "look at `sample_weight`."
)


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
    "normal": Schedule((*RIGID, LINES, TURNED), (300, 500, 1000), (15, 10, 8), 1000, 9, 1500),
    "full": Schedule(
        (*RIGID, LINES, TURNED, *FREE), (500, 800, 1500), (25, 15, 12), 1500, 16, 2000
    ),
}

# For classes a scale of every axis is a chart with many numbers: on few rows it learns them by heart.
CLASS_EFFORTS = {
    "fast": Schedule(CLASSES[:-2], (300, 500, 500), (12, 8, 0), 500, 0, 1000),
    "normal": Schedule((*CLASSES, TURNED, PICTURES), (300, 500, 500), (15, 10, 8), 1000, 9, 1500),
    "full": Schedule(
        (*CLASSES, TURNED, *FREE[:3], PICTURES), (500, 800, 1000), (25, 15, 12), 1500, 16, 2000
    ),
}

Tell = Callable[[str, list[Fit]], None]
Each = Callable[[Any, Iterable[tuple[Any, ...]]], list[Any]]


def silent(round_: str, fits: list[Fit]) -> None:
    """Tell nobody."""


def narrator(verbose: int, judge: Judge) -> Tell:
    """Each round on a line of its own: who stays, how well the best does, and since when."""
    begin = time.perf_counter()

    def tell(round_: str, fits: list[Fit]) -> None:
        names = ", ".join(fit.candidate.name for fit in fits)
        score = judge.score(loss(fits[0])) if fits else math.nan
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

    The first that the search `found` stays, unless it scales columns, as others in the race do: those
    begin from the best of such scales, too. `each` maps a function over tuples of arguments, perhaps in
    several threads.
    """
    given = [fit for fit in found[:1] if not scales_columns(fit)]
    scales = [on_axes(fit) for fit in found if scales_columns(fit)][:1]
    with one_thread():
        fits, out = Race(data.head(MOST), schedule, tell, each, scales).run(given)
    return fits, [*out, *found[len(given) :]]


class Race:
    """The rounds, one after another."""

    def __init__(
        self, data: Data, schedule: Schedule, tell: Tell, each: Each, scales: Sequence[Fit] = ()
    ):
        self.data, self.schedule, self.tell, self.each = data, schedule, tell, each
        self.scales = scales  # to begin from, beside others
        self.judges = schedule.judging(data)
        self.stages = [data.head(n) for n in schedule.rows]
        self.pool = [each.among(data, self.judges) for each in schedule.pool if each.suits(data)]
        self.out: list[Fit] = []

    def run(self, given: list[Fit]) -> tuple[list[Fit], list[Fit]]:
        first, more, _ = self.schedule.rows
        some = self.judges.head(more)
        fits = self.keep(self.judge(self.begin(), some), BEHIND, 5)
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
        open_ = not fits or loss(fits[0]) > self.data.judge.enough
        free = [c for c in self.pool if not c.rigid and (open_ or c.eager)]
        fits += self.honest(free, fits) or ([] if fits else self.only(free[:1]))
        fits = sorted([condensed(fit, self.judges) for fit in fits], key=loss)
        self.tell("the end", fits)
        return fits, sorted([condensed(fit, self.judges) for fit in self.out], key=loss)

    def begin(self) -> list[Fit]:
        """Every candidate on few rows, from the scales that the smoothest finds.

        A law that holds scales together hides columns that matter a little, so they are looked for under
        a looser one, too.
        """
        equal = equal_scales(self.data)
        opened = self.learned(OPENING, self.stages[1], equal, 25)
        begun = self.each(
            self.learned,
            [(AXIS_RQ, self.stages[0], start, 25) for start in (equal, opened, *self.scales)],
        )
        self.start = min(begun, key=lambda fit: fit.evidence)
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

    def without(self, fold: int, judges: Data) -> Data:
        """All rows but those of a fold of the judges, and but those that may belong to it."""
        if judges.grouped:
            return judges.without(fold)
        kept = torch.ones(len(self.data), dtype=torch.bool)
        kept[: len(judges)] = judges.folds != fold
        return self.data.take(kept)

    def unseen(self, candidate: Candidate, rivals: list[Fit]) -> Fit | None:
        data = self.judges.coarse(apart(len(self.judges)))
        errors, start, steps = torch.empty_like(data.Y), self.start, self.schedule.steps[0]
        most, parts = len(self.data) if candidate.eager else self.schedule.rows[2], []
        for fold in data.folds.unique().tolist():
            own = data.folds == fold
            part = self.without(fold, data) if candidate.eager else data.without(fold)
            fit = self.learned(candidate, part.head(most), start, steps)
            fit = candidate.refit(fit, part)
            # sources may be at other rows of this fold, as they are for all candidates
            there = None if fit.failed else self.judged(fit, self.judges).errors
            if there is None:
                return None
            parts.append(fit)
            errors[own], part = there[own], data.take(own)
            if fold == 0:
                known = [part.nats(fit.errors[own]) for fit in rivals if fit.errors is not None]
                if part.nats(errors[own]) > min(known, default=math.inf) + BEHIND:
                    return None
                start = fit if candidate.warm else start
        whole = self.data if candidate.eager else data.head(most)
        fit = self.learned(candidate, whole, start, self.schedule.steps[1])
        fit = candidate.refit(fit, data)
        return replace(fit, errors=errors, nats=data.nats(errors), parts=tuple(parts))


def apart(n: int) -> int:
    """Folds of n rows that charts are learned without."""
    return FOLDS[n < FEW]


# --- what users restrict it to


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

"""Rungs on one set of rows, compared on held-out folds.

Rungs with few parameters are learned once, on all rows, and the better ones refined. The others could
learn the held-out rows by heart: they are learned again without each of three folds, from a common
start, and dropped after the first if they lose. What a fold found is where the fit on all rows starts.
Of many rows a part is enough to learn any chart from, and the rest to judge it by: then every rung is
learned once, after a heat on few rows that leaves the best three. Either way the source is solved for
without a tenth of the rows at a time, so that errors are those of nearly as many rows as there are: with
fewer, smooth kernels would look better than they are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from greenfold.chart import AxisScales, Linear, Mixed
from greenfold.learn.rungs import (
    KERNELS,
    RUNGS,
    Fitted,
    Solved,
    anchored,
    blocks,
    learn,
    refined,
    short_fit,
    solve,
)
from greenfold.learn.search import Candidate, search
from greenfold.learn.search.forecast import NATS, like_noise
from greenfold.learn.search.starts import SOLVED
from greenfold.learn.standings import Standing, chart_name, named, ranked, searched_chart
from greenfold.model import IGL
from greenfold.solve import SolveError

FOLDS = 3  # that charts are learned without
PARTS = 10  # that sources are solved for without
LOSING = 1.1  # a rung whose error exceeds the best by this factor is neither refined nor learned on
LARGEST = 8 * 10**6  # entries, axes times rows squared, of an anova kernel to learn from
USUAL = "anova.m32"  # the rung that does well on most tables
MOST = 5000  # rows on which a contest is held
ENOUGH = 1000  # rows to judge by
FEW = 2000  # rows of a heat, held if there are more
FINAL = 3  # rungs that a heat leaves


@dataclass(frozen=True)
class Budget:
    """What an effort pays for."""

    rungs: tuple[str, ...]
    rows: int  # to learn from
    block: int
    max_iter: int
    anchors: int
    refine: int  # rows up to which scales and λ are refined

    @property
    def seen(self) -> int:
        """The first rows, that charts are learned from and anchors chosen among."""
        return max(self.rows, 3 * self.anchors // 2)


BUDGETS = {
    "fast": Budget(("ard.l1", "ard.rq"), 500, 500, 20, 1000, 0),
    "normal": Budget(
        tuple(n for n, rung in RUNGS.items() if rung.rigid), 1000, 1000, 30, 1500, 2000
    ),
    "full": Budget(tuple(RUNGS), 1600, 1000, 35, 2000, 2000),
}
HEAT = Budget((), 600, 600, 15, 600, 0)


@dataclass(frozen=True)
class Task:
    """What is to be learned from; rows come in random order."""

    x: Tensor
    Y: Tensor
    weight: Tensor | None
    folds: Tensor  # (n,)
    budget: Budget
    seed: int

    def without(self, fold: int) -> Task:
        keep = self.folds != fold
        weight = None if self.weight is None else self.weight[keep]
        x, Y, folds = self.x[keep], self.Y[keep], self.folds[keep]
        return replace(self, x=x, Y=Y, weight=weight, folds=folds)

    @property
    def judged(self) -> Tensor:
        """Those after the rows that charts and anchors see, if there are enough; or all."""
        seen, n = self.budget.seen, len(self.x)
        return torch.arange(seen if n >= seen + ENOUGH else 0, n)

    def learn(self, name: str, start: Fitted, share: int = 1) -> Fitted:
        """`share` divides the number of iterations."""
        rows, block = self.budget.rows, self.budget.block
        if name.startswith("anova"):  # evaluated an axis at a time
            block = min(block, math.isqrt(LARGEST // self.x.shape[1]))
            rows = min(rows, 2 * block)
        begin = time.perf_counter()
        with torch.random.fork_rng(devices=[]), threadpool_limits(1):
            torch.manual_seed(self.seed)
            data = blocks(self.x, self.Y, self.weight, rows, block)
            fit = learn(name, start, data, self.budget.max_iter // share)
        before = start.seconds if start.name == name else 0.0
        return replace(fit, seconds=before + time.perf_counter() - begin)

    def solve(self, fit: Fitted, scan: bool = True) -> Solved:
        begin = time.perf_counter()
        with threadpool_limits(1):
            data = self.x, self.Y, self.weight, self.parts
            solved = solve(fit, *data, self.budget.anchors, scan)
        return replace(solved, seconds=fit.seconds + time.perf_counter() - begin)

    def refine(self, fit: Fitted) -> Solved:
        begin = time.perf_counter()
        with threadpool_limits(1):
            fit = refined(fit, self.x, self.Y, self.weight, self.parts)
        fit = replace(fit, seconds=fit.seconds + time.perf_counter() - begin)
        return self.solve(fit, scan=False)

    def standing(self, fit: Fitted, score: float, rows: int, seconds: float) -> Standing:
        name = named(chart_name(fit.encoder), fit.operator)
        with torch.no_grad():
            d = fit.encoder(self.x[:1]).shape[1]
        return Standing(name, score, rows, seconds, d)

    @property
    def parts(self) -> Tensor:
        """What the source is solved for without, numbered (n,): of few rows each by itself."""
        n = len(self.x)
        return torch.arange(n) if n <= PARTS else torch.arange(n) // FOLDS % PARTS


@dataclass(frozen=True)
class Part:
    """A rung learned without one fold, and its errors there."""

    fit: Fitted
    errors: Tensor
    seconds: float


def shuffled(X: np.ndarray, Y: np.ndarray, seed: int) -> np.ndarray:
    """Row numbers in a random order that depends neither on that of the rows nor of the columns."""
    order = np.lexsort(np.hstack([Y, np.sort(X, axis=1)]).T[::-1])
    return order[np.random.default_rng(seed).permutation(len(X))]


def suits(name: str, n: int, D: int) -> bool:
    """Is there data enough for a rung, and room for its parameters?"""
    if name.startswith("mlp") and n <= 1000:
        return False
    return D <= 200 or name == "ard.rq"


def begin(task: Task) -> Fitted:
    with threadpool_limits(1):
        return short_fit(task.x, task.Y, task.weight, min(1000, task.budget.rows))


def on_all_rows(task: Task, start: Fitted, name: str, share: int = 1) -> Solved:
    return task.solve(task.learn(name, start, share))


def on_one_fold(task: Task, start: Fitted, name: str, fold: int) -> Part:
    fit = task.without(fold).learn(name, start)
    solved = task.solve(fit)
    return Part(fit, solved.errors[task.folds == fold], solved.seconds)


def smooth(task: Task) -> Fitted | None:
    """The search's linear chart with a Gaussian kernel, if that has the best evidence."""
    with threadpool_limits(1):
        rng = np.random.default_rng(task.seed)
        found = search(task.x.numpy(), task.Y.numpy(), rng)[0]
    if found.kernel != "gaussian" or found.name == "constant":
        return None
    W = torch.from_numpy(found.W)
    encoder = Linear(W.shape[1], W.shape[0], W)
    return Fitted("smooth", encoder, KERNELS["gaussian"](), max(found.noise, 1e-7), found.laplace)


def size(errors: Tensor, weight: Tensor | None, rows: Tensor | None = None) -> float:
    """Root mean square."""
    if weight is None:
        return float(errors.square().mean().sqrt())
    w = weight if rows is None else weight[rows]
    return float(((w @ errors.square()).mean() / w.sum()).sqrt())


Each = Callable[[Any, Iterable[tuple[Any, ...]]], list[Any]]


def one_by_one(function: Any, arguments: Iterable[tuple[Any, ...]]) -> list[Any]:
    return [function(*each) for each in arguments]


def attempt(function: Any, *arguments: Any) -> Any:
    """None where there is no solution: a rung that has none is out, and the others go on."""
    try:
        return function(*arguments)
    except SolveError:
        return None


def attempts(each: Each, function: Any, arguments: Iterable[tuple[Any, ...]]) -> list[Any]:
    """What `attempt` returns for each."""
    return each(attempt, [(function, *row) for row in arguments])


@dataclass(frozen=True)
class Outcome:
    """Held-out errors (k, c) of the rungs that stayed, and what is known of every rung."""

    errors: dict[str, Tensor]  # on the k rows by which they are judged
    standings: dict[str, Standing]
    fits: dict[str, Fitted]  # learned once
    solved: dict[str, Solved]  # on all rows
    parts: dict[str, list[Part]]  # fold by fold

    @property
    def sizes(self) -> dict[str, float]:
        """Root mean square errors."""
        return {name: s.score for name, s in self.standings.items()}

    def finish(
        self, task: Task, names: Iterable[str], each: Each = one_by_one
    ) -> dict[str, Solved]:
        """These rungs on all rows, as far as they have a solution there."""
        open_ = [name for name in names if name not in self.solved]
        jobs = [(task, self.parts[name][0].fit, name, 3) for name in open_]
        again = [s for s in attempts(each, on_all_rows, jobs) if s is not None]
        return {**self.solved, **{s.name: s for s in again}}


def contest(
    task: Task,
    names: Iterable[str],
    given: Iterable[Fitted] = (),
    each: Each = one_by_one,
    start: Fitted | None = None,
) -> Outcome:
    """All rungs named, and fits whose charts are given, on held-out folds.

    `each` maps a function over tuples of arguments, perhaps in several processes; `start` has the axis
    scales that rungs start from, if they are known.
    """
    names = [name for name in names if suits(name, *task.x.shape)]
    start, judged = start or begin(task), task.judged
    begun: dict[str, Fitted] = {}
    standings: dict[str, Standing] = {}
    if len(task.x) > FEW and len(names) > FINAL:
        begun, standings = heat(task, names, start, each)
        names = list(begun)
    apart = len(judged) < len(task.x)  # from the rows that charts are learned from
    once = [name for name in names if RUNGS[name].rigid or apart]
    free = [name for name in names if name not in once and len(task.x) >= 5 * FOLDS]
    jobs = [(name, begun[name], 2) if name in begun else (name, start) for name in once]
    fits = [fit for fit in attempts(each, task.learn, jobs) if fit is not None]
    done = attempts(each, task.solve, [(fit,) for fit in [*fits, *given]])
    solved: dict[str, Solved] = {s.name: s for s in done if s is not None}
    if len(task.x) <= task.budget.refine and solved:
        limit = LOSING * min(size(s.errors, task.weight) for s in solved.values())
        good = [name for name, s in solved.items() if size(s.errors, task.weight) <= limit]
        refined_ = attempts(each, task.refine, [(fit,) for fit in fits if fit.name in good])
        solved |= {s.name: s for s in refined_ if s is not None}
    seconds = {name: s.seconds for name, s in solved.items()}
    errors = {name: s.errors[judged] for name, s in solved.items()}
    parts = by_folds(task, free, start, errors, each)
    first = torch.nonzero(task.folds == 0)[:, 0]
    for name, found in parts.items():
        seconds[name] = sum(part.seconds for part in found)
        if len(found) == 1:
            score = size(found[0].errors, task.weight, first)
            standings[name] = task.standing(found[0].fit, score, len(first), seconds[name])
            continue
        errors[name] = torch.empty_like(task.Y)
        for fold, part in enumerate(found):
            errors[name][task.folds == fold] = part.errors
    learned = {fit.name: fit for fit in [*fits, *given]}
    learned |= {name: found[0].fit for name, found in parts.items()}
    for name, e in errors.items():
        score = size(e, task.weight, judged)
        standings[name] = task.standing(learned[name], score, len(judged), seconds[name])
    return Outcome(errors, standings, {fit.name: fit for fit in fits}, solved, parts)


def by_folds(
    task: Task, names: list[str], start: Fitted, others: dict[str, Tensor], each: Each
) -> dict[str, list[Part]]:
    """Rungs learned without each fold, or only without the first if they lose there.

    `others` has the held-out errors of rungs that are known already.
    """
    if not names:
        return {}
    first = task.folds == 0
    tried = attempts(each, on_one_fold, [(task, start, name, 0) for name in names])
    parts = {name: [part] for name, part in zip(names, tried) if part is not None}
    found = {name: size(part.errors, task.weight, first) for name, [part] in parts.items()}
    errors = [size(e[first], task.weight, first) for e in others.values()]
    limit = LOSING * min([*found.values(), *errors], default=math.inf)
    kept = [name for name, error in found.items() if error <= limit]
    more = [(name, fold) for name in kept for fold in range(1, FOLDS)]
    rest = attempts(each, on_one_fold, [(task, start, *job) for job in more])
    for (name, _), part in zip(more, rest):
        parts[name].append(part)
    return {name: own for name, own in parts.items() if None not in own}


def heat(
    task: Task, names: list[str], start: Fitted, each: Each
) -> tuple[dict[str, Fitted], dict[str, Standing]]:
    """On few rows: the best rungs, as far as they learned there, and how all of them did."""
    x, Y, folds = task.x[:FEW], task.Y[:FEW], task.folds[:FEW]
    weight = None if task.weight is None else task.weight[:FEW]
    few = replace(task, x=x, Y=Y, weight=weight, folds=folds, budget=HEAT)
    tried = contest(few, names, each=each, start=start)
    sizes = tried.sizes
    limit = LOSING * min(sizes.values(), default=math.inf)
    best = sorted(sizes, key=lambda name: sizes[name])[:FINAL]
    return {n: tried.fits[n] for n in best if sizes[n] <= limit}, tried.standings


# --- one winner


class Champion(NamedTuple):
    """What won."""

    rung: tuple[IGL, float] | None  # the model of a rung and its λ; None if the search's chart won
    standings: list[Standing]
    doubt: str  # why the winner may be wrong, if it may


def champion(
    found: list[Candidate],
    x: Tensor,
    Y: Tensor,
    weight: Tensor | None,
    seed: int,
    effort: str,
    n_anchors: int,
) -> Champion:
    """The best that the search found, or the rung that beats it on held-out rows, if one does.

    A smooth chart that explains y is not challenged.
    """
    first = found[0]
    searched = [searched_standing(each) for each in found]
    doubt = "" if first.forecast is None else first.forecast.doubt
    solved = first.kernel == "gaussian" and first.laplace < SOLVED
    if solved or first.name == "constant" or len(x) < 50:  # folds too small to tell
        return Champion(None, ranked([searched[0]._replace(weight=1.0), *searched[1:]]), doubt)
    spread = x.std(0, correction=0)
    sd = torch.where(spread > 1e-12 * x.abs().amax(0), spread, torch.ones_like(spread))
    order = torch.from_numpy(shuffled(x.numpy(), Y.numpy(), seed))
    rows, mean = order[:MOST], 1.0 if weight is None else float(weight.mean())
    w = None if weight is None else weight[rows] / mean
    task = Task(x[rows] / sd, Y[rows], w, torch.arange(len(rows)) % FOLDS, BUDGETS[effort], seed)
    W = torch.from_numpy(first.W) * sd
    held = Fitted(
        "search",
        Linear(W.shape[1], W.shape[0], W),
        KERNELS[first.kernel](),
        max(first.noise, 1e-7),
        first.laplace,
        first.seconds,
    )
    outcome = contest(task, task.budget.rungs, [held])
    sizes = {"search": math.inf} | {name: outcome.sizes[name] for name in outcome.errors}
    sizes["search"] = paid(sizes["search"], first.learned, len(rows))
    best = winner(sizes, len(rows))
    won = outcome.finish(task, [best] if best != "search" else []).get(best)
    best = "search" if won is None else best
    known = {"search": searched[0]} | outcome.standings
    if math.isfinite(sizes["search"]):
        known["search"] = known["search"]._replace(name=searched[0].name, score=sizes["search"])
    known[best] = known[best]._replace(weight=1.0)
    standings = ranked([*known.values(), *searched[1:]])
    if won is None:
        return Champion(None, standings, doubt)
    noise = float(won.solution.alpha) / float(won.model.unit())
    fit = Fitted(best, unscaled(won.model.encoder, sd), won.model.operator, noise, np.nan)
    parts = nn.ModuleList([won.model.encoder, won.model.operator])
    learned = sum(p.numel() for p in parts.parameters() if p.requires_grad)
    error = max(paid(standings[0].score, learned, len(rows)), 1e-300)
    # How likely held-out rows are, against noise; the best of several may be so by chance.
    nats = -standings[0].rows * math.log(error) - math.log(len(sizes))
    doubt = f"on rows held out it beats {like_noise(nats)}" if nats < NATS else ""
    return Champion((anchored(fit, x[order], n_anchors), noise * mean), standings, doubt)


def searched_standing(found: Candidate) -> Standing:
    name = named(searched_chart(found.name), KERNELS[found.kernel]())
    return Standing(name, found.error, found.rows, found.seconds, len(found.W))


def paid(error: float, learned: int, n: int) -> float:
    """The error of a chart that learned so many numbers from n rows, the held-out ones among them."""
    return error * math.sqrt(1 + min(learned / n, 1 / 3))


def winner(sizes: dict[str, float], n: int) -> str:
    """The name with the least held-out error, if it is ahead by more than chance.

    What does best on few rows is often not best: the rung that does well on most tables is taken unless
    another leads by 1/(4√n).
    """
    best = min(sizes, key=lambda name: sizes[name])
    usual = USUAL if USUAL in sizes else "search"
    return best if sizes[best] < (1 - 0.25 / math.sqrt(n)) * sizes[usual] else usual


def unscaled(encoder: nn.Module, sd: Tensor) -> nn.Module:
    """The chart of x from that of x / sd."""
    if isinstance(encoder, AxisScales):
        return AxisScales(len(sd), encoder.scale.detach() / sd)
    if isinstance(encoder, Mixed):
        W = (torch.eye(len(sd)) + encoder.mix.detach()) * (encoder.axes.scale.detach() / sd)
        return Linear(W.shape[1], W.shape[0], W)
    units = AxisScales(len(sd), 1 / sd).requires_grad_(False)
    return nn.Sequential(units, encoder)

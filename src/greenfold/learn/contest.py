"""Rungs on one set of rows, compared on held-out folds.

Rungs with few parameters are learned once, on all rows, and the better ones refined. The others could
learn the held-out rows by heart: they are learned again without each of three folds, from a common
start, and dropped after the first if they lose. What a fold found is where the fit on all rows starts.
Either way the source is solved for without a tenth of the rows at a time, so that errors are those of
nearly as many rows as there are: with fewer, smooth kernels would look better than they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

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
from greenfold.learn.search.starts import SOLVED
from greenfold.model import IGL

FOLDS = 3  # that charts are learned without
PARTS = 10  # that sources are solved for without
LOSING = 1.1  # a rung whose error exceeds the best by this factor is neither refined nor learned on
LARGEST = 8 * 10**6  # entries, axes times rows squared, of an anova kernel to learn from
USUAL = "anova.m32"  # the rung that does well on most tables
MOST = 5000  # rows on which a contest is held


@dataclass(frozen=True)
class Budget:
    """What an effort pays for."""

    rungs: tuple[str, ...]
    rows: int  # to learn from
    block: int
    max_iter: int
    anchors: int
    refine: int  # rows up to which scales and λ are refined


BUDGETS = {
    "fast": Budget(("ard.l1", "ard.rq"), 800, 400, 20, 1000, 0),
    "normal": Budget(
        tuple(n for n, rung in RUNGS.items() if rung.rigid), 1000, 1000, 30, 1500, 2000
    ),
    "full": Budget(tuple(RUNGS), 1600, 1000, 35, 2000, 2000),
}


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

    def learn(self, name: str, start: Fitted, share: int = 1) -> Fitted:
        """`share` divides the number of iterations."""
        rows, block = self.budget.rows, self.budget.block
        if name.startswith("anova"):  # evaluated an axis at a time
            block = min(block, math.isqrt(LARGEST // self.x.shape[1]))
            rows = min(rows, 2 * block)
        with torch.random.fork_rng(devices=[]), threadpool_limits(1):
            torch.manual_seed(self.seed)
            data = blocks(self.x, self.Y, self.weight, rows, block)
            return learn(name, start, data, self.budget.max_iter // share)

    def solve(self, fit: Fitted, scan: bool = True) -> Solved:
        with threadpool_limits(1):
            data = self.x, self.Y, self.weight, self.parts
            return solve(fit, *data, self.budget.anchors, scan)

    def refine(self, fit: Fitted) -> Solved:
        with threadpool_limits(1):
            fit = refined(fit, self.x, self.Y, self.weight, self.parts)
        return self.solve(fit, scan=False)

    @property
    def parts(self) -> Tensor:
        """What the source is solved for without, numbered (n,)."""
        return torch.arange(len(self.x)) // FOLDS % PARTS


@dataclass(frozen=True)
class Part:
    """A rung learned without one fold, and its errors there."""

    fit: Fitted
    errors: Tensor


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
        return short_fit(task.x, task.Y, task.weight)


def on_all_rows(task: Task, start: Fitted, name: str, share: int = 1) -> Solved:
    return task.solve(task.learn(name, start, share))


def on_one_fold(task: Task, start: Fitted, name: str, fold: int) -> Part:
    fit = task.without(fold).learn(name, start)
    return Part(fit, task.solve(fit).errors[task.folds == fold])


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


@dataclass(frozen=True)
class Outcome:
    """Held-out errors (n, c) of the rungs that stayed, and what is known of every rung."""

    errors: dict[str, Tensor]
    sizes: dict[str, float]
    solved: dict[str, Solved]  # on all rows
    parts: dict[str, list[Part]]  # fold by fold

    def finish(
        self, task: Task, names: Iterable[str], each: Each = one_by_one
    ) -> dict[str, Solved]:
        """These rungs on all rows."""
        open_ = [name for name in names if name not in self.solved]
        again = each(on_all_rows, [(task, self.parts[name][0].fit, name, 3) for name in open_])
        return {**self.solved, **{s.name: s for s in again}}


def contest(
    task: Task, names: Iterable[str], given: Iterable[Fitted] = (), each: Each = one_by_one
) -> Outcome:
    """All rungs named, and fits whose charts are given, on held-out folds.

    `each` maps a function over tuples of arguments, perhaps in several processes.
    """
    names = [name for name in names if suits(name, *task.x.shape)]
    rigid = [name for name in names if RUNGS[name].rigid]
    free = [name for name in names if not RUNGS[name].rigid and len(task.x) >= 5 * FOLDS]
    start = begin(task)
    fits = each(task.learn, [(name, start) for name in rigid])
    once = each(task.solve, [(fit,) for fit in [*fits, *given]])
    if len(task.x) <= task.budget.refine:
        least = min(size(s.errors, task.weight) for s in once)
        good = [f for f, s in zip(fits, once) if size(s.errors, task.weight) <= LOSING * least]
        once += each(task.refine, [(fit,) for fit in good])
    solved: dict[str, Solved] = {s.name: s for s in once}
    errors = {name: s.errors for name, s in solved.items()}
    first = task.folds == 0
    tried = each(on_one_fold, [(task, start, name, 0) for name in free])
    parts = {name: [part] for name, part in zip(free, tried)}
    sizes = {name: size(part.errors, task.weight, first) for name, part in zip(free, tried)}
    best = min([size(e[first], task.weight, first) for e in errors.values()] + list(sizes.values()))
    kept = [name for name in free if sizes[name] <= LOSING * best]
    jobs = [(name, fold) for name in kept for fold in range(1, FOLDS)]
    rest = each(on_one_fold, [(task, start, *job) for job in jobs])
    for (name, _), part in zip(jobs, rest):
        parts[name].append(part)
    for name in kept:
        errors[name] = torch.empty_like(task.Y)
        for fold, part in enumerate(parts[name]):
            errors[name][task.folds == fold] = part.errors
    sizes |= {name: size(e, task.weight) for name, e in errors.items()}
    return Outcome(errors, sizes, solved, parts)


# --- one winner


def champion(
    found: Candidate,
    x: Tensor,
    Y: Tensor,
    weight: Tensor | None,
    seed: int,
    effort: str,
    n_anchors: int,
) -> tuple[IGL, float] | None:
    """The rung that beats what the search found on held-out rows, with its λ, if one does.

    A smooth chart that explains y is not challenged.
    """
    solved = found.kernel == "gaussian" and found.laplace < SOLVED
    if solved or found.name == "constant" or len(x) < 50:  # folds too small to tell
        return None
    spread = x.std(0, correction=0)
    sd = torch.where(spread > 1e-12 * x.abs().amax(0), spread, torch.ones_like(spread))
    order = torch.from_numpy(shuffled(x.numpy(), Y.numpy(), seed))
    rows, mean = order[:MOST], 1.0 if weight is None else float(weight.mean())
    w = None if weight is None else weight[rows] / mean
    task = Task(x[rows] / sd, Y[rows], w, torch.arange(len(rows)) % FOLDS, BUDGETS[effort], seed)
    W = torch.from_numpy(found.W) * sd
    held = Fitted(
        "search",
        Linear(W.shape[1], W.shape[0], W),
        KERNELS[found.kernel](),
        max(found.noise, 1e-7),
        found.laplace,
    )
    outcome = contest(task, task.budget.rungs, [held])
    best = winner({name: outcome.sizes[name] for name in outcome.errors}, len(rows), W.numel())
    if best == "search":
        return None
    won = outcome.finish(task, [best])[best]
    noise = float(won.solution.alpha) / float(won.model.unit())
    fit = Fitted(best, unscaled(won.model.encoder, sd), won.model.operator, noise, np.nan)
    return anchored(fit, x[order], n_anchors), noise * mean


def winner(sizes: dict[str, float], n: int, n_searched: int) -> str:
    """The name with the least held-out error, if it is ahead by more than chance.

    What does best on few rows is often not best: the rung that does well on most tables is taken unless
    another leads by 1/(4√n). The searched chart pays for its numbers, since it was fitted to the held-out
    rows as well.
    """
    paid = {"search": sizes["search"] * math.sqrt(1 + min(n_searched / n, 1 / 3))}
    sizes = sizes | paid
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

"""Rungs on one set of rows, compared on held-out folds.

Rungs with few parameters are learned once, on all rows, and only their source is solved for again
without each fold. The others could learn the held-out rows by heart: they are learned again for each
fold, from a common start, and dropped after the first if they lose. What a fold found is where the fit
on all rows starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from greenfold.chart import AxisScales, Linear, Mixed
from greenfold.learn.rungs import (
    RUNGS,
    Fitted,
    Solved,
    anchored,
    blocks,
    learn,
    short_fit,
    solve,
    source,
)
from greenfold.learn.search import Candidate, search
from greenfold.learn.search.starts import SOLVED
from greenfold.model import IGL

FOLDS = 3
LOSING = 1.1  # a rung is dropped whose error in the first fold exceeds the best by this factor
MOST = 5000  # rows on which a contest is held


@dataclass(frozen=True)
class Budget:
    """What an effort pays for."""

    rungs: tuple[str, ...]
    rows: int  # to learn from
    block: int
    fold_block: int  # the same for rungs that are learned in every fold
    max_iter: int
    anchors: int


BUDGETS = {
    "fast": Budget(("ard.l1", "ard.rq", "full.rq"), 1600, 800, 400, 25, 1000),
    "full": Budget(tuple(RUNGS), 1600, 800, 500, 35, 1500),
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
        block = self.budget.block if RUNGS[name].rigid else self.budget.fold_block
        with torch.random.fork_rng(devices=[]), threadpool_limits(1):
            torch.manual_seed(self.seed)
            data = blocks(self.x, self.Y, self.weight, self.budget.rows, block)
            return learn(name, start, data, self.budget.max_iter // share)

    def solve(self, fit: Fitted) -> Solved:
        with threadpool_limits(1):
            return solve(fit, self.x, self.Y, self.weight, self.folds, self.budget.anchors)

    def source(self, fit: Fitted) -> IGL:
        with threadpool_limits(1):
            return source(fit, self.x, self.Y, self.weight, min(self.budget.anchors, 1000))


@dataclass(frozen=True)
class Part:
    """A rung learned without one fold, and its errors there."""

    fit: Fitted
    errors: Tensor


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
    rest, out = task.without(fold), task.folds == fold
    fit = rest.learn(name, start)
    model = rest.source(fit)
    with torch.no_grad(), threadpool_limits(1):
        return Part(fit, task.Y[out] - model(task.x[out]))


def smooth(task: Task) -> Fitted | None:
    """The search's linear chart with a Gaussian kernel, if that has the best evidence."""
    with threadpool_limits(1):
        rng = np.random.default_rng(task.seed)
        found = search(task.x.numpy(), task.Y.numpy(), rng)[0]
    if found.kernel != "gaussian" or found.name == "constant":
        return None
    W = torch.from_numpy(found.W)
    encoder = Linear(W.shape[1], W.shape[0], W)
    return Fitted("smooth", encoder, "gaussian", max(found.noise, 1e-7), found.laplace)


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
    once = each(on_all_rows, [(task, start, name) for name in rigid])
    once += each(task.solve, [(fit,) for fit in given])
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
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(x)))
    rows, mean = order[:MOST], 1.0 if weight is None else float(weight.mean())
    w = None if weight is None else weight[rows] / mean
    task = Task(x[rows] / sd, Y[rows], w, torch.arange(len(rows)) % FOLDS, BUDGETS[effort], seed)
    W = torch.from_numpy(found.W) * sd
    held = Fitted(
        "search",
        Linear(W.shape[1], W.shape[0], W),
        found.kernel,
        max(found.noise, 1e-7),
        found.laplace,
    )
    names = ["ard.l1", "ard.rq"] if effort == "fast" else task.budget.rungs
    outcome = contest(task, names, [held])
    best = min(outcome.errors, key=lambda name: outcome.sizes[name])
    if outcome.sizes[best] > 0.99 * outcome.sizes["search"]:
        return None
    winner = outcome.finish(task, [best])[best]
    noise = float(winner.solution.alpha) / float(winner.model.unit())
    fit = Fitted(best, unscaled(winner.model.encoder, sd), RUNGS[best].kernel, noise, np.nan)
    return anchored(fit, x[order], n_anchors), noise * mean


def unscaled(encoder: nn.Module, sd: Tensor) -> nn.Module:
    """The chart of x from that of x / sd."""
    if isinstance(encoder, AxisScales):
        return AxisScales(len(sd), encoder.scale.detach() / sd)
    if isinstance(encoder, Mixed):
        W = (torch.eye(len(sd)) + encoder.mix.detach()) * (encoder.axes.scale.detach() / sd)
        return Linear(W.shape[1], W.shape[0], W)
    units = AxisScales(len(sd), 1 / sd).requires_grad_(False)
    return nn.Sequential(units, encoder)

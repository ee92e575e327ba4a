"""Which chart, kernel, scale and strength give the best probabilities, by leave-one-out log-loss.

Every trial solves cross-entropy by Newton's method on at most a few hundred anchors and leaves each row
out in closed form (`solve/leave_out.py`). The closed form flatters weak penalties, so among strengths
that the rows cannot tell apart the strongest is taken. Isotropic charts come first, in the units of the
data and with unit variances; a wide kernel on them is as good as linear logistic regression. Unless they
already explain the classes, linear charts found by `search` on part of the rows compete and are judged on
the other rows: a chart that was fitted to the class of a row is no judge of it.

With many classes Newton's method is too slow to be asked a hundred times: charts, kernels and scales are
then chosen by least squares on class indicators, and only the strength of the winner by cross-entropy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy import ndarray
from numpy.random import Generator
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from torch import Tensor

from greenfold.design import Design
from greenfold.learn.search import BEAMS, search
from greenfold.learn.search.kernels import kernel_matrix
from greenfold.solve import Logistic, SolveError, leave_one_out, ridge_leave_one_out

MAX_ROWS = 1500  # that trials are fitted to, or 10,000 over the number of classes
MAX_AXES = 100  # principal axes of an isotropic chart
SEARCH_ROWS = 500
MANY = 30  # classes above which least squares stands in for cross-entropy
CODES = 12  # columns that stand in for the indicators of more classes while charts are searched for
EXPLAINED = 0.05  # share of the class entropy left over at which no better chart is looked for
MISSING = 1e-8  # variance of a kernel with k(0) = 1 below which a row needs no anchor
SCALES = (-1, 1, 3, 5)  # i of isotropic charts, from which better ones are looked for
LIMITS = ((-12, 10), (-14, 6))  # of i and j
BOTH = ((0, -1), (0, 1), (-1, 0), (1, 0), (-1, -1), (1, 1))  # ways to go from (i, j)
STRENGTH = ((0, -1), (0, 1))

Point = tuple[int, int]  # (i, j): scale 2^{i/2} and strength 10^{j/2}
Tick = Callable[[float], None]


@dataclass(frozen=True)
class Trial:
    """A chart z = (x − mean) Wᵀ, its kernel and strength, and how well they predict left-out rows."""

    W: ndarray  # (d, D)
    mean: ndarray  # (D,)
    kernel: str
    alpha: float  # of the energy penalty, for a kernel with k(0) = 1
    log_loss: float  # mean leave-one-out log-loss over the rows that judge
    name: str
    losses: ndarray  # (n,) of each row
    rows: int = 0  # that judge
    seconds: float = 0.0  # of wall-clock time


class Judge:
    """The rows that trials are fitted to, and which of them judge."""

    def __init__(
        self,
        X: ndarray,
        Y: ndarray,
        weight: ndarray,
        n_atoms: int,
        least_squares: bool = False,
        tick: Tick | None = None,
    ):
        self.least_squares = least_squares
        self.X, self.mean, self.n_atoms, self.tick = X, X.mean(0), n_atoms, tick
        self.Y, self.weight = torch.from_numpy(Y), torch.from_numpy(weight)
        self.rows = np.ones(len(X), dtype=bool)

    def average(self, losses: ndarray) -> float:
        return float(np.average(losses[self.rows], weights=self.weight.numpy()[self.rows]))

    def difference(self, a: ndarray, b: ndarray) -> tuple[float, float]:
        """Mean of a − b over the rows that judge, and its standard error."""
        share = self.weight.numpy()[self.rows]
        with np.errstate(invalid="ignore"):  # where both solves failed
            gap = (a - b)[self.rows]
            mean = np.average(gap, weights=share)
            variance = np.average((gap - mean) ** 2, weights=share)
        return float(mean), float(np.sqrt(variance / max(len(gap) - 1, 1)))

    def design(self, W: ndarray, kernel: str) -> Design:
        return anchored((self.X - self.mean) @ W.T, kernel, self.n_atoms)[0]

    def losses(
        self, design: Design, alpha: float, start: Tensor | None
    ) -> tuple[ndarray, Tensor | None]:
        """Log-loss (n,) of every row without itself, and w if there is one to start from."""
        w = None
        if self.least_squares:
            u = ridge_leave_one_out(design, self.Y, alpha, self.weight).logits
            logits = u / temperature(u.numpy(), self.Y.numpy(), self.weight.numpy())
        else:
            solver = Logistic(alpha, relative=False, tol=1e-4)
            w = solver.solve(design, self.Y, self.weight, start).w
            logits = leave_one_out(design, self.Y, w, alpha, self.weight).logits
        losses = -(self.Y * logits.log_softmax(1)).sum(1)
        return losses.nan_to_num(nan=np.inf).numpy(), w


def temperature(u: ndarray, Y: ndarray, weight: ndarray) -> float:
    """T > 0 for which softmax(u/T) has the least log-loss on one-hot Y.

    One error more than was seen is shared among the classes a row does not have (rule of succession):
    rows that u tells apart without an error do not make the next one certain.
    """
    c = Y.shape[1]
    Y = Y + (1 - c * Y) / ((weight.sum() + 2) * (c - 1))

    def loss(log_t: float) -> float:
        return -float(weight @ (Y * log_softmax(u / np.exp(log_t), axis=1)).sum(1))

    return float(np.exp(minimize_scalar(loss, bounds=(-7.0, 7.0), method="bounded").x))


class Family:
    """One chart and kernel at all scales and strengths; remembers what it has seen."""

    def __init__(self, judge: Judge, W: ndarray, kernel: str, name: str):
        self.judge, self.W, self.kernel, self.name = judge, W, kernel, name
        self.designs: dict[int, Design] = {}
        self.sources: dict[int, Tensor | None] = {}
        self.seen: dict[Point, ndarray] = {}
        self.seconds = 0.0

    def score(self, at: Point) -> float:
        """Mean log-loss of left-out rows; infinite where the solve fails."""
        i, j = at
        judge = self.judge
        if at not in self.seen:
            begin = time.perf_counter()
            if i not in self.designs:
                self.designs[i] = judge.design(2 ** (i / 2) * self.W, self.kernel)
            try:
                self.seen[at], self.sources[i] = judge.losses(
                    self.designs[i], 10 ** (j / 2), self.sources.get(i)
                )
            except SolveError:
                self.seen[at] = np.full(len(judge.X), np.inf)
            self.seconds += time.perf_counter() - begin
            if judge.tick is not None:
                judge.tick(judge.average(self.seen[at]))
        return judge.average(self.seen[at])

    def tune(self, start: Point, ways: Sequence[Point] = BOTH) -> Trial:
        """The best scale and strength near the start: steps of 2 and 10, then of √2 and √10."""
        near = compass(self.score, start, 2, ways)
        best = self.caution(compass(self.score, near, 1, ways))
        i, j = best
        W, alpha = 2 ** (i / 2) * self.W, 10 ** (j / 2)
        score, rows = self.score(best), int(self.judge.rows.sum())
        return Trial(
            W,
            self.judge.mean,
            self.kernel,
            alpha,
            score,
            self.name,
            self.seen[best],
            rows,
            self.seconds,
        )

    def caution(self, best: Point) -> Point:
        """The strongest penalty at this scale whose loss is within a standard error of the best."""
        i, j = best
        while j < LIMITS[1][1] and np.isfinite(self.score((i, j + 1))):
            loss, error = self.judge.difference(self.seen[i, j + 1], self.seen[best])
            if loss > error:
                break
            j += 1
        return i, j


def compass(
    score: Callable[[Point], float], best: Point, step: int, ways: Sequence[Point]
) -> Point:
    """Move one of these ways, and on, as long as that pays."""
    ahead, tried = list(ways), 0
    while tried < len(ways):
        at = (best[0] + step * ahead[0][0], best[1] + step * ahead[0][1])
        inside = all(low <= value <= high for value, (low, high) in zip(at, LIMITS))
        if inside and score(at) < score(best) * (1 - 5e-3):
            best, tried = at, 0
        else:
            ahead, tried = [*ahead[1:], ahead[0]], tried + 1
    return best


def anchored(Z: ndarray, kernel: str, n_atoms: int) -> tuple[Design, ndarray]:
    """Φ F⁻ᵀ on pivoted anchors with G = F Fᵀ, and a constant, as `IGL` has it; the anchors' rows.

    The first columns of the pivoted Cholesky factor of the whole kernel matrix are just that, and need
    only the matrix's columns at the anchors.
    """
    L = np.zeros((len(Z), min(n_atoms, len(Z))))
    missing, rows = np.ones(len(Z)), []
    for k in range(L.shape[1]):
        row = int(missing.argmax())
        if missing[row] < MISSING:
            break
        column = kernel_matrix(kernel, Z, Z[[row]])[:, 0] - L[:, :k] @ L[row, :k]
        L[:, k] = column / np.sqrt(missing[row])
        missing = np.maximum(missing - L[:, k] ** 2, 0)
        missing[row] = 0
        rows.append(row)
    Phi = torch.from_numpy(np.ascontiguousarray(L[:, : len(rows)]))
    return Design.stack(Phi, Phi.new_ones(len(Phi), 1)), np.array(rows)


def isotropic(X: ndarray, weights: ndarray) -> ndarray:
    """Principal axes of the weighted columns (d, D), scaled so that E|z|² = 1."""
    centered = (X - X.mean(0)) * weights
    _, S, Vt = np.linalg.svd(centered, full_matrices=False)
    rank = min(max(1, int((1e-7 * S[0] < S).sum())), MAX_AXES)
    sign = np.sign(np.take_along_axis(Vt, np.abs(Vt).argmax(1)[:, None], 1))
    total = np.sqrt((S**2).sum() / len(X))
    return (sign * Vt)[:rank] * weights / (total if total > 0 else 1.0)


def isotropic_trials(judge: Judge) -> list[Trial]:
    """Both units unless one is clearly worse, then the better with a heavy-tailed kernel; best first."""
    sd = judge.X.std(0)
    used = sd > 1e-12 * np.abs(judge.X).max(0)
    inverse = np.divide(1.0, sd, out=np.zeros_like(sd), where=used)
    families = [
        Family(judge, isotropic(judge.X, used.astype(float)), "gaussian", "isotropic"),
        Family(judge, isotropic(judge.X, inverse), "gaussian", "standardized"),
    ]
    starts = [min(((i, -4) for i in SCALES), key=family.score) for family in families]
    scores = [family.score(start) for family, start in zip(families, starts)]
    trials = [
        family.tune(start)
        for family, start, score in zip(families, starts, scores)
        if score <= 1.5 * min(scores)
    ]
    best = min(trials, key=lambda trial: trial.log_loss)
    start = (0, round(2 * np.log10(best.alpha)))
    trials.append(Family(judge, best.W, "cauchy", best.name).tune(start))
    return sorted(trials, key=lambda trial: trial.log_loss)


def select(
    X: ndarray,
    Y: ndarray,
    weight: ndarray,
    rng: Generator,
    *,
    effort: str = "normal",
    n_atoms: int = 200,
    least_squares: bool = False,
    tick: Tick | None = None,
) -> list[Trial]:
    """Trials for one-hot Y (n, c), the one to use first.

    Rows must come in an order of their own; at most 1500 are fitted to. Unless effort is 'full', charts
    are searched for only while the isotropic ones leave more than 5% of the class entropy. A chart that
    was searched for is used when its gain is more than twice its standard error. With `least_squares` the
    source is solved for that way, and has its probabilities by `temperature`.
    """
    if effort not in BEAMS:
        raise ValueError(f"unknown effort {effort!r}. Choose from {list(BEAMS)}.")
    n_classes = Y.shape[1]
    order = rng.permutation(len(X))[: min(MAX_ROWS, max(500, 10_000 // n_classes))]
    X, Y, weight = X[order], Y[order], weight[order]
    many = n_classes > MANY and not least_squares
    judge = Judge(X, Y, weight, n_atoms, least_squares or many, tick)
    trials = compete(judge, rng, effort)
    if many:
        judge = Judge(X, Y, weight, n_atoms, tick=tick)
        best = Family(judge, trials[0].W, trials[0].kernel, trials[0].name)
        trials[0] = best.tune((0, -4), STRENGTH)
    return trials


def compete(judge: Judge, rng: Generator, effort: str) -> list[Trial]:
    """Isotropic charts, and those searched for if there is need; the one to use first."""
    X, Y, weight = judge.X, judge.Y.numpy(), judge.weight.numpy()
    trials = isotropic_trials(judge)
    share = weight @ Y / weight.sum()
    entropy = -(share[share > 0] * np.log(share[share > 0])).sum()
    enough = effort != "full" and trials[0].log_loss < EXPLAINED * entropy
    n_search = min(SEARCH_ROWS, 2 * len(X) // 3)
    if enough or n_search < 20:
        return trials
    found = search(X[:n_search], codes(Y[:n_search], rng), rng, effort, weight[:n_search])
    judge.rows = np.arange(len(X)) >= n_search
    rivals = [
        Family(judge, candidate.W, candidate.kernel, candidate.name).tune((-1, -4))
        for candidate in found[:2]
        if candidate.name != "constant"
    ]
    rivals.sort(key=lambda trial: trial.log_loss)
    if rivals:
        gain, error = judge.difference(trials[0].losses, rivals[0].losses)
        if gain > 2 * error:
            return rivals + trials
    return trials + rivals


def codes(Y: ndarray, rng: Generator) -> ndarray:
    """Columns that tell the classes of one-hot Y (n, c) apart: one of two, or random halves of many."""
    c = Y.shape[1]
    if c == 2:
        return Y[:, :1]
    return Y @ rng.choice([-1.0, 1.0], size=(c, CODES)) if c > CODES else Y

"""A stack of charts, weighted by cross-validation."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from scipy.optimize import nnls
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits
from torch import Tensor
from tqdm.auto import tqdm

from greenfold.chart import Linear
from greenfold.estimators.base import Array, Units, chunks, conformal, finite
from greenfold.learn.rungs import RUNGS, Fitted, Solved, blocks, learn, short_fit, solve, source
from greenfold.learn.search import search
from greenfold.model import IGL

FOLDS = 3
LOSING = 1.2  # a rung is dropped whose error in the first fold exceeds the best by this factor
LEAST = 0.03  # weight below which a rung is not worth its time


@dataclass(frozen=True)
class Budget:
    """What an effort pays for."""

    rungs: tuple[str, ...]
    rows: int  # to learn from
    block: int
    max_iter: int
    anchors: int


BUDGETS = {
    "fast": Budget(("ard.l1", "iso.l1", "ard.rq", "full.rq"), 1500, 500, 25, 1000),
    "full": Budget(tuple(RUNGS), 2100, 700, 40, 1500),
}


class IGLStack(RegressorMixin, Units):
    """Several charts with rough and smooth kernels, averaged with weights from cross-validation.

    For real tabular data, where no single chart is right. The charts are those of
    `greenfold.learn.rungs`, each learned by evidence; their weights are non-negative, add up to one and
    minimize the error on held-out rows, drawn towards equal weights. There is no one `chart_`: use
    `IGLRegressor` for that.

    Parameters
    ----------
    effort : 'fast' or 'full'
        'full' adds warped, mixed, searched and (above 1000 rows) neural charts, and longer training.
    n_jobs : int, optional
        Processes that fit rungs and folds side by side; the result does not depend on it.
    random_state : int, RandomState or None
    verbose : int
        1 shows a progress bar.

    Attributes
    ----------
    rungs_ : dict of str to IGL
        The models that are averaged, in internal units.
    weights_ : dict of str to float
    cv_errors_ : dict of str to float
        Root mean square error on held-out rows of every rung that was tried, in standard deviations of y;
        of the first fold only for one that was dropped after it.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(80, 3))
    >>> y = np.abs(X[:, 0]) + X[:, 1]
    >>> bool(IGLStack(random_state=0).fit(X, y).score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        *,
        effort: str = "fast",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.effort = effort
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "IGLStack":
        """Learn the charts, and the weights of their predictions.

        Parameters
        ----------
        X : array-like of shape (n, D)
        y : array-like of shape (n,) or (n, c)
        sample_weight : array-like of shape (n,), optional
            How often each row counts. Rows of weight zero are as good as absent.
        """
        if self.effort not in BUDGETS:
            raise ValueError(f"unknown effort {self.effort!r}. Choose 'fast' or 'full'.")
        X, Y, weight = self._rows(X, y, sample_weight)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        # An order that depends neither on that of the rows nor on that of the columns, then a random one.
        order = np.lexsort(np.hstack([Y, np.sort(X, axis=1)]).T[::-1])
        order = order[np.random.default_rng(seed).permutation(len(X))]
        X, Y, weight = X[order], Y[order], weight[order]
        x, target = self._units(X, Y)
        w = None if np.all(weight == weight[0]) else torch.from_numpy(weight / weight.mean())
        self._learn(x, target, w, seed)
        return self

    def _own_chart(self) -> bool:
        return True  # every input in its own unit

    def _learn(self, x: Tensor, Y: Tensor, weight: Tensor | None, seed: int) -> None:
        budget = BUDGETS[self.effort]
        folds = torch.arange(len(x)) % min(FOLDS, len(x))
        task = Task(x, Y, weight, folds, budget, seed)
        names = [name for name in budget.rungs if suits(name, *x.shape)]
        rigid = [name for name in names if RUNGS[name].rigid]
        free = [name for name in names if not RUNGS[name].rigid and len(x) >= 5 * FOLDS]
        bar = tqdm(
            total=len(rigid) + (FOLDS + 1) * len(free), leave=False, disable=not self.verbose
        )
        with Parallel(n_jobs=self.n_jobs) as pool:

            def each(function: Any, arguments: Iterable[tuple]) -> list[Any]:
                results = pool(delayed(function)(*each) for each in arguments)
                bar.update(len(results))
                return list(results)

            start = begin(task)
            jobs = [(task, start, name) for name in rigid]
            if self.effort == "full":
                jobs.append((task, start, "smooth"))
            solved = {s.name: s for s in each(on_all_rows, jobs) if s is not None}
            errors = {name: s.errors for name, s in solved.items()}  # (n, c) each
            first = folds == 0
            best = min(size(e[first], weight, first) for e in errors.values())

            tried = each(on_one_fold, [(task, start, name, 0) for name in free])
            parts = {name: [part] for name, part in zip(free, tried)}
            self.cv_errors_ = {n: size(p[0].errors, weight, first) for n, p in parts.items()}
            best = min([best, *self.cv_errors_.values()])
            kept = [name for name in free if self.cv_errors_[name] <= LOSING * best]
            jobs = [(task, start, name, k) for name in kept for k in range(1, FOLDS)]
            for (_, _, name, _), part in zip(jobs, each(on_one_fold, jobs)):
                parts[name].append(part)
            for name in kept:
                errors[name] = torch.empty_like(Y)
                for k, part in enumerate(parts[name]):
                    errors[name][folds == k] = part.errors

            weights = combine(errors, weight)
            jobs = [(task, parts[n][0].fit, n) for n in kept if n in weights]
            solved |= {s.name: s for s in each(again, jobs)}
        bar.close()
        self.cv_errors_ |= {name: size(e, weight) for name, e in errors.items()}
        self.weights_ = weights
        self.rungs_ = {name: solved[name].model for name in weights}
        self._posteriors = {name: solved[name].posterior for name in weights}
        self._errors = sum(w * errors[name] for name, w in weights.items()).numpy()
        self.n_iter_ = budget.max_iter

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """u(x), with the standard deviation of a new observation on request."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        x, w = self._inside(X), np.array(list(self.weights_.values()))
        with torch.no_grad(), threadpool_limits(1):
            u = np.stack([chunks(model, x) for model in self.rungs_.values()])  # (k, n, c)
            mean = np.tensordot(w, u, 1)
            answer = self._outside(mean, "predictions")
            if not return_std:
                return answer
            std = np.stack([chunks(partial(p.std, m), x) for m, p in self._members()])
        var = np.tensordot(w, std**2 + (u - mean) ** 2, 1)  # of the mixture
        return answer, self._spread(np.sqrt(var), "standard deviations")

    def predict_interval(self, X: Any, alpha: float = 0.05) -> tuple[Array, Array]:
        """Lower and upper ends that cover a new observation with probability 1 − alpha.

        Conformal: the (1 − alpha) quantile of the cross-validation residuals around the prediction.
        """
        check_is_fitted(self)
        half = self._spread(conformal(self._errors, alpha)[None], "widths of the intervals")[0]
        u = np.asarray(self.predict(X))
        for end in u - half, u + half:
            finite(end.reshape(len(u), -1), "ends of the intervals")
        return u - half, u + half

    def _members(self) -> list[tuple[Any, Any]]:
        return [(self.rungs_[name], self._posteriors[name]) for name in self.weights_]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


# --- the parts of a fit, each of which may run in a process of its own


@dataclass(frozen=True)
class Task:
    """What is to be learned from; rows come in random order."""

    x: Tensor
    Y: Tensor
    weight: Tensor | None
    folds: Tensor  # (n,)
    budget: Budget
    seed: int

    def without(self, fold: int) -> "Task":
        keep = self.folds != fold
        weight = None if self.weight is None else self.weight[keep]
        return Task(self.x[keep], self.Y[keep], weight, self.folds[keep], self.budget, self.seed)

    def learn(self, name: str, start: Fitted, max_iter: int) -> Fitted:
        with torch.random.fork_rng(devices=[]), threadpool_limits(1):
            torch.manual_seed(self.seed)
            data = blocks(self.x, self.Y, self.weight, self.budget.rows, self.budget.block)
            return learn(name, start, data, max_iter)

    def solve(self, fit: Fitted) -> Solved:
        with threadpool_limits(1):
            return solve(fit, self.x, self.Y, self.weight, self.folds, self.budget.anchors)

    def source(self, fit: Fitted) -> IGL:
        with threadpool_limits(1):
            return source(fit, self.x, self.Y, self.weight, self.budget.anchors)


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


def on_all_rows(task: Task, start: Fitted, name: str) -> Solved | None:
    if name == "smooth":
        fit = smooth(task)
        return None if fit is None else task.solve(fit)
    return task.solve(task.learn(name, start, task.budget.max_iter))


def on_one_fold(task: Task, start: Fitted, name: str, fold: int) -> Part:
    rest, out = task.without(fold), task.folds == fold
    fit = rest.learn(name, start, task.budget.max_iter)
    model = rest.source(fit)
    with torch.no_grad(), threadpool_limits(1):
        return Part(fit, task.Y[out] - model(task.x[out]))


def again(task: Task, fit: Fitted, name: str) -> Solved:
    """All rows, on from what one fold found."""
    return task.solve(task.learn(name, fit, task.budget.max_iter // 3))


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


def combine(errors: dict[str, Tensor], weight: Tensor | None) -> dict[str, float]:
    """Non-negative weights that add up to one and minimize the combined error, drawn to equal ones.

    A pull of √(k/n) times the error of the best rung: about the noise in the estimated errors.
    """
    names = list(errors)
    E = torch.stack([e.reshape(-1) for e in errors.values()], dim=1)  # (n c, k)
    n, k = E.shape
    root = (
        torch.ones(n, 1) / n
        if weight is None
        else weight.repeat_interleave(n // len(weight))[:, None]
    )
    E = E * (root / root.sum()).sqrt()
    unit = float(E.square().sum(0).min().sqrt()) or 1.0
    pull = (k / n) ** 0.25
    A = np.vstack([E.numpy() / unit, pull * np.eye(k), 1e4 * np.ones((1, k))])
    w, _ = nnls(A, np.concatenate([np.zeros(n), np.full(k, pull / k), [1e4]]))
    w = np.where(w < LEAST, 0.0, w)
    w = w / w.sum()
    return {name: float(v) for name, v in zip(names, w) if v > 0}

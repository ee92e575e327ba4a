"""Charts amortized over tasks: learned once over many, and each new task solved for in closed form."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from greenfold.estimators.adapted import AdaptedClassifier, AdaptedRegressor, OnChart
from greenfold.estimators.classifier import IGLClassifier
from greenfold.estimators.options import check, defaults_on_one_level
from greenfold.estimators.regressor import IGLRegressor
from greenfold.green.operators import operator as operator_by_name
from greenfold.learn.applicability import Domain
from greenfold.learn.data import Rows
from greenfold.learn.episodes import blocks, halves, predicted
from greenfold.learn.given import Given
from greenfold.learn.intervals import OfTasks
from greenfold.learn.posterior import Posterior
from greenfold.learn.predictor import Predictor
from greenfold.learn.trainer import walk
from greenfold.learn.units import Array, Scaling, Units
from greenfold.model import IGL, Tied
from greenfold.options import Option, integer, number, refuse, same
from greenfold.solve import Ridge, Solution, Statistics
from greenfold.state import one_thread, own_draws, seed_of

FEWEST = 4  # tasks
JUDGES = 5  # every so many-th task is left out of learning, and judges
LEAST = 1e-6  # λ
ACTS = {"chart", "hidden", "shape", "n_dims", "operator", "loss"}  # options of the estimator


class Task(NamedTuple):
    """Rows of a task in the model's numbers; the first `support` rows are it, where that is given."""

    x: Tensor  # (n, D)
    Y: Tensor  # (n, c)
    label: Tensor  # (n,) of classes
    support: int | None = None


class Learner(BaseEstimator):
    """A chart learned over many tasks, on which a new one is solved for in milliseconds.

    Tasks share what x means and differ in what y is of it. In every episode the rows of a task are
    halved: on the support the source is solved for in closed form, and what it costs at the query is
    descended through the solve, so that the chart is one on which few rows predict others. Chart, noise
    and, for classes, the temperature are then fixed; `adapt` solves for the source of a new task, as
    `fit` with that chart and that penalty would. One task in five is left
    out of learning: its queries tell how wide the intervals of regressors have to be.

    Parameters
    ----------
    estimator : IGLRegressor or IGLClassifier
        With a given chart, of any kind, and an operator (heat by default); a classifier with
        loss='least_squares', as sources are solved for in closed form. A module is trained in place.
    n_support : int, optional
        Rows to solve with in an episode, about as many as new tasks have; by default half of a task. For
        classes they are spread evenly over them.
    epochs : int
        Passes over the tasks, each with other halves.
    batch_size : int
        Tasks in a step of Adam.
    learning_rate : float
        At the start; it falls to 0 as a cosine.
    random_state : int, RandomState or None

    Attributes
    ----------
    chart_ : nn.Module
        The encoder, of rows in the model's numbers.
    noise_ : float
        λ, the variance of noise over that of the field.
    temperature_ : float
        What logits are divided by, for classes.
    score_ : float
        At queries of tasks left out: R², or accuracy.
    history_ : History
        The descent.

    Examples
    --------
    >>> import numpy as np
    >>> from greenfold import IGLRegressor, Learner
    >>> rng = np.random.default_rng(0)
    >>> def task(n):
    ...     x, phase = rng.uniform(-3, 3, (n, 1)), rng.uniform(0, 6)
    ...     return x, np.sin(x[:, 0] + phase)
    >>> learner = Learner(IGLRegressor(chart="mlp"), epochs=20, random_state=0)
    >>> learner = learner.fit_tasks(task(20) for _ in range(100))
    >>> model = learner.adapt(*task(10))  # from ten rows
    >>> low, high = model.predict_interval([[0.5]], alpha=0.1)
    """

    def __init__(
        self,
        estimator: IGLRegressor | IGLClassifier,
        *,
        n_support: int | None = None,
        epochs: int = 100,
        batch_size: int = 8,
        learning_rate: float = 1e-2,
        random_state: Any = None,
    ):
        self.estimator = estimator
        self.n_support = n_support
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit_tasks(self, tasks: Iterable[Any]) -> Learner:
        """Learn the chart.

        Parameters
        ----------
        tasks : iterable of (X, y), or of ((X, y), (X, y))
            Some dozens to thousands. A pair of pairs is an episode that is given: its support, and its
            query. The columns of X mean the same in all; classes are those of each task by itself.

        Returns
        -------
        Learner
            Itself, with `chart_`.
        """
        self._check()
        given = [_parts(task) for task in tasks]
        if len(given) < FEWEST:
            raise ValueError(f"`tasks` must hold at least {FEWEST} tasks, got {len(given)}.")
        seed = seed_of(self.random_state)
        draws = torch.Generator().manual_seed(seed)
        self._base = self._began(given)
        learned = [self._task(parts) for parts in given]
        judges = learned[:: -(-len(learned) // max(1, len(learned) // JUDGES))]
        rest = [task for task in learned if not any(task is judge for judge in judges)]
        s = self._base._s
        chart = Given(s)
        chart.d = int(s.n_dims or 2)
        x = torch.cat([task.x for task in rest])
        self.operator_ = deepcopy(operator_by_name("heat" if s.operator == "auto" else s.operator))
        with own_draws(s.chart, x, draws), one_thread():
            self.chart_ = chart.encoder(x, draws)
            self._descend(rest, draws)
            self._judge(judges, draws)
        self._on_chart = OnChart(self._places, self.operator_, self.noise_)
        return self

    def adapt(self, X: Any, y: Any) -> Any:
        """What predicts a new task: the source is solved for on the chart as it is.

        Parameters
        ----------
        X : array-like of shape (n, D)
        y : array-like of shape (n,) or, of numbers, (n, c)

        Returns
        -------
        AdaptedRegressor or AdaptedClassifier
            With `predict` and `predict_interval`, or `predict_proba`; its `estimator()` is a fitted
            IGLRegressor or IGLClassifier, which can do all that these can.
        """
        if not hasattr(self, "chart_"):
            raise NotFittedError("no chart is learned yet: call `fit_tasks` first.")
        base, make, chart = self._base, partial(self._estimator, X, y), self._on_chart
        if isinstance(base, IGLClassifier):
            classes, index = np.unique(np.asarray(y), return_inverse=True)
            if len(classes) < 2:
                raise ValueError(f"a task needs two classes, got one class: {classes}.")
            told = (chart, X, np.eye(len(classes))[index], make, Scaling.none(len(classes)))
            return AdaptedClassifier(*told, classes=classes, temperature=self.temperature_)
        Y = self._targets(y)
        assert self._intervals is not None
        flat = np.asarray(y).ndim == 1
        told = (chart, X, Y, make, base.units_.y)
        return AdaptedRegressor(*told, intervals=self._intervals, flat=flat)

    @torch.no_grad()
    def _places(self, X: Any) -> Tensor:
        """On the chart, (n, d)."""
        return self.chart_(self._base._inside(self._base._validated(X, reset=False)))

    def _targets(self, y: Any) -> Array:
        Y, c = _columns(y), len(self._base.units_.y.shift)
        if Y.shape[1] != c:
            raise ValueError(f"y has {Y.shape[1]} columns, that of the tasks had {c}.")
        return Y

    def _check(self) -> None:
        if not isinstance(self.estimator, IGLRegressor | IGLClassifier):
            raise ValueError(
                f"`estimator` must be an IGLRegressor or an IGLClassifier, got {self.estimator!r}."
            )
        options = {
            "n_support": integer(1, None),
            "epochs": integer(1),
            "batch_size": integer(1),
            "learning_rate": number(0.0, zero=False),
            "random_state": Option(lambda value: True, "a seed"),
        }
        values = {name: getattr(self, name) for name in options}
        refuse(options, values, values, self)
        check(self.estimator)
        s = self.estimator._s
        if not s.given or s.as_given:
            raise ValueError(
                "a Learner needs a chart that is given and learned, such as "
                f"{type(self.estimator).__name__}(chart='mlp'): 'auto' finds one for a single task."
            )
        for name, default in defaults_on_one_level(type(self.estimator)).items():
            if name not in ACTS and not same(getattr(s, name), default):
                raise ValueError(
                    f"{name}={getattr(s, name)!r} would do nothing: of its estimator a Learner takes "
                    f"{sorted(ACTS)}, and has a way of its own to train and to choose the penalty."
                )
        if s.n_dims == "auto":
            raise ValueError("n_dims='auto' counts for a single task: give `n_dims` a number.")
        if is_classifier(self.estimator) and self.estimator.loss != "least_squares":
            raise ValueError(
                "a Learner needs IGLClassifier(loss='least_squares'): sources of new tasks are solved "
                f"for in closed form, got loss={self.estimator.loss!r}."
            )

    def _began(self, given: Sequence[tuple[Any, Any, int | None]]) -> Any:
        """The estimator with units of all rows."""
        base = copy(self.estimator)
        first, y, _ = given[0]
        base._validated(first, y, multi_output=True)
        X = np.concatenate([base._validated(X, reset=False) for X, _, _ in given])
        if is_classifier(base):
            units = Units(base._input_units(X), Scaling.none(1))
        else:
            Y = np.concatenate([_columns(y) for _, y, _ in given])
            units = Units(base._input_units(X), Scaling.of_targets(Y), np.asarray(y).ndim == 1)
        base.predictor_ = Predictor(units)
        return base

    def _task(self, parts: tuple[Any, Any, int | None]) -> Task:
        X, y, support = parts
        x = self._base._inside(self._base._validated(X, reset=False))
        if is_classifier(self._base):
            label = torch.from_numpy(np.unique(np.asarray(y), return_inverse=True)[1])
            return Task(
                x, torch.eye(int(label.max()) + 1, dtype=torch.float64)[label], label, support
            )
        Y = torch.from_numpy(self._base.units_.y.inside(_columns(y)))
        return Task(x, Y, torch.zeros(len(x), dtype=torch.long), support)

    def _halved(self, task: Task, draws: torch.Generator) -> tuple[Tensor, Tensor]:
        if task.support is not None:
            every = torch.arange(len(task.x))
            return every[: task.support], every[task.support :]
        return halves(task.label, self.n_support, is_classifier(self._base), draws)

    def _descend(self, tasks: list[Task], draws: torch.Generator) -> None:
        """Chart, noise and temperature, by what queries cost."""
        classes = is_classifier(self._base)
        log_noise, log_t = (
            torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (math.log(0.1), 1.0)
        )
        learned = [*self.chart_.parameters(), *self.operator_.parameters(), log_noise]
        learned += [log_t] if classes else []

        def cost(batch: Tensor) -> Tensor:
            some = [tasks[i] for i in batch.tolist()]
            each = self.chart_.train()(torch.cat([task.x for task in some]))
            places = each.split([len(task.x) for task in some])
            cut = [self._halved(task, draws) for task in some]
            supports = [z[own] for z, (own, _) in zip(places, cut, strict=True)]
            pairs = blocks(
                self.operator_,
                supports,
                [z[rest] for z, (_, rest) in zip(places, cut, strict=True)],
            )
            known = [task.Y[own] for task, (own, _) in zip(some, cut, strict=True)]
            found = predicted(pairs, known, LEAST + log_noise.exp())
            costs = [
                nn.functional.cross_entropy(log_t.exp() * u, task.label[rest])
                if classes
                else (u - task.Y[rest]).square().mean()
                for u, task, (_, rest) in zip(found, some, cut, strict=True)
            ]
            return torch.stack(costs).mean()

        self.history_ = walk(
            self.chart_,
            cost,
            learned,
            len(tasks),
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.learning_rate,
            patience=self.epochs,
            generator=draws,
        )
        self.chart_.eval()
        self.noise_ = LEAST + float(log_noise.detach().exp())
        self.temperature_ = float((-log_t.detach()).exp()) if classes else 1.0

    def _judge(self, judges: list[Task], draws: torch.Generator) -> None:
        """What queries of tasks left out say: of intervals, and of the score."""
        told: list[tuple[Array, Array, Array]] = []
        for task in judges:
            own, rest = self._halved(task, draws)
            model, _, posterior = self._solved(Rows(task.x[own], task.Y[own]))
            with torch.no_grad():
                u = model(task.x[rest]).numpy()
                std = posterior.std(model, task.x[rest]).numpy()
            told.append((u, std, task.Y[rest].numpy()))
        if is_classifier(self._base):
            right = [u.argmax(1) == Y.argmax(1) for u, _, Y in told]
            self.score_, self._intervals = float(np.concatenate(right).mean()), None
            return
        u, std, Y = (np.concatenate(part) for part in zip(*told, strict=True))
        self.score_ = 1 - float(np.square(u - Y).sum() / np.square(Y - Y.mean(0)).sum())
        self._intervals = OfTasks(np.abs(u - Y) / np.maximum(std, 1e-300))

    @torch.no_grad()
    def _solved(self, rows: Rows) -> tuple[IGL, Solution, Posterior]:
        """The model of a task, its sources at its rows, and how sure it is."""
        d = self.chart_(rows.x[:1]).shape[1]
        sources = Tied(rows.x)
        model = IGL(self.chart_, deepcopy(self.operator_), sources, n_dims=d, energy=True).eval()
        alpha = self.noise_ * float(model.unit())
        solution = model.solve(rows.x, rows.Y, Ridge(alpha, relative=False), rows.weight)
        return model, solution, Posterior.of(model, rows.x, rows.Y, solution, rows.weight)

    def _estimator(self, X: Any, y: Any) -> Any:
        begin, other = time.perf_counter(), copy(self._base)
        if is_classifier(other):
            X, Y, weight = _class_rows(other, X, y)
            other.predictor_ = Predictor(
                Units(self._base.units_.x, Scaling.none(Y.shape[1])), temperature=self.temperature_
            )
        else:
            X, Y, weight, _ = other._rows(X, y, None, reset=False)
            other.predictor_ = Predictor(replace(self._base.units_, flat=np.asarray(y).ndim == 1))
        units = other.units_
        target = torch.from_numpy(units.y.inside(Y))
        rows = Rows(other._inside(X), target, torch.from_numpy(weight))
        other._remember(X, Y, weight)
        model, solution, posterior = self._solved(rows)
        if is_classifier(other):
            other._store(model, solution)
            other._sums = Statistics()
            other._sums.update(model.design(rows.x), target, rows.weight)
            other.effective_rank_ = Y.shape[1] * posterior.rank
            error = math.nan
        else:
            other._store(model, solution, posterior)
            other.predictor_ = replace(other.predictor_, intervals=self._intervals)
            error = other._left_out(rows)
        other.domain_ = Domain.of(model, rows.x)
        other.history_, other.n_iter_ = self.history_, len(self.history_.loss)
        other._alone(error, len(rows.x), time.perf_counter() - begin)
        return other


def _parts(task: Any) -> tuple[Any, Any, int | None]:
    """X, y, and how many of the first rows are the support, if that is given."""
    try:
        first, second = task
    except (TypeError, ValueError):
        raise ValueError(
            "a task must be a pair (X, y), or a pair of such pairs, support and query; got "
            f"{type(task).__name__}."
        ) from None
    if not (isinstance(first, tuple) and isinstance(second, tuple)):
        return first, second, None
    X, y = (np.concatenate([np.asarray(part) for part in pair]) for pair in zip(first, second))
    return X, y, len(first[0])


def _columns(y: Any) -> Array:
    Y = np.asarray(y, dtype=np.float64)
    return Y[:, None] if Y.ndim == 1 else Y


def _class_rows(other: Any, X: Any, y: Any) -> tuple[Array, Array, Array]:
    """Rows and indicators of a task with classes of its own."""
    X, y = other._validated(X, y, reset=False, ensure_min_samples=2)
    other.classes_, index = np.unique(y, return_inverse=True)
    if len(other.classes_) < 2:
        raise ValueError(f"a task needs two classes, got one class: {other.classes_}.")
    X, Y, weight, _ = other._count(X, np.eye(len(other.classes_))[index], np.ones(len(y)))
    other.target_names_ = None
    return X, Y, weight

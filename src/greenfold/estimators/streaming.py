"""Fitting to streams, and to rows that come later."""

import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor

from greenfold.estimators.coordinates import Coordinates
from greenfold.estimators.options import STREAM, STREAM_ARGUMENTS, check
from greenfold.learn.applicability import Domain
from greenfold.learn.data import SAMPLE, Rows
from greenfold.learn.fit import ridge
from greenfold.learn.given import Given
from greenfold.learn.marginals import Marginals
from greenfold.learn.trainer import History
from greenfold.learn.units import Array
from greenfold.model import IGL
from greenfold.options import defaults_of, refuse
from greenfold.solve import Solution, Statistics
from greenfold.spec import settings_of
from greenfold.state import own_draws


class Streaming(Coordinates):
    """What regressor and classifier share: `fit_stream`, and the steps of `partial_fit`."""

    def fit_stream(
        self,
        source: Any,
        *,
        target: Any = None,
        epochs: int = 3,
        steps: int | None = None,
        batch_size: int = 4096,
        sample: int = 5000,
        blocks: int = 16,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int = 100,
        deterministic: bool = False,
        first_decides: bool = False,
        route: str = "auto",
        timeout: float = 60.0,
    ) -> Any:
        """Fit to rows that need not fit in memory, in one process or in all that were launched together.

        Units, anchors and the start of the chart come from a random sample of the rows. A given chart is
        then trained by Adam on shuffled blocks of rows, and the source solved for on all rows, exactly,
        before every epoch and at the end; the chart with the lowest exact loss is kept. With chart='auto'
        the chart is the one found on the sample, and the source is solved for on all rows.

        Charts of classes are trained by least squares on their indicators. With loss='cross_entropy' the
        source is then solved for in some 5 to 20 passes over all rows, at the penalty that suits the
        sample.

        Parameters
        ----------
        source : str, path, list of them, (X, y), Dataset, callable or Stream
            See `greenfold.stream`.
        target : str or int, optional
            Column to predict, of files; the last by default.
        epochs : int
            Passes of Adam over the rows; 0 solves for the source on the chart as it starts.
        steps : int, optional
            Steps in an epoch at most; by default all rows are seen.
        batch_size : int
            Rows of a step, over all processes.
        sample : int
            Rows of the random sample.
        blocks : int
            Parts of the rows; every step draws from each. They are shared out among the processes, of
            which there can be as many, and decide the result where the number of processes does not.
        checkpoint : path, optional
            Folder for checkpoints. The same call goes on from the newest one that is whole.
        every : int
            Steps between checkpoints.
        deterministic : bool
            Sum in the order of the blocks: the same bits from one process or several, interrupted or not.
            Each uses one thread. Otherwise results differ by rounding.
        first_decides : bool
            Take solves and steps from the first process, for machines whose arithmetic differs.
        route : 'auto', 'sums' or 'passes'
            How least squares are solved for: by sums over all rows, in one pass, whose cost grows with
            the square of the number of sources; or by conjugate gradients, a pass for each step, from the
            solution of the sample and at the penalty that suits it. By default sums, up to 10,000
            sources.
        timeout : float
            Seconds without a sign of life after which another process counts as dead.

        Returns
        -------
        estimator
            Itself.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> import numpy as np
        >>> from greenfold import IGLRegressor, Source
        >>> X = np.random.default_rng(0).normal(size=(40, 3))
        >>> quick = IGLRegressor("linear", n_dims=1, source=Source(n_atoms=10), random_state=0)
        >>> with TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/rows.npy", np.c_[X, X[:, 0]])
        ...     model = quick.fit_stream(f"{folder}/rows.npy", target=-1, epochs=0)
        >>> model.predict(X).shape
        (40,)
        """
        from greenfold.scale.files import Tables
        from greenfold.scale.fit import fit_stream
        from greenfold.scale.group import Group
        from greenfold.scale.streams import stream

        arguments = {
            "epochs": epochs, "steps": steps, "batch_size": batch_size, "sample": sample,
            "blocks": blocks, "checkpoint": checkpoint, "every": every,
            "deterministic": deterministic, "first_decides": first_decides, "route": route,
            "timeout": timeout,
        }  # fmt: skip
        known = defaults_of(Streaming.fit_stream)
        settings = SimpleNamespace(estimator=self, **arguments)
        refuse(STREAM_ARGUMENTS, arguments, known, settings)
        self._check_stream()
        rows = stream(source, target=target)
        options = {
            "epochs": epochs, "steps": steps, "batch_size": batch_size, "sample": sample,
            "folder": None if checkpoint is None else Path(checkpoint), "every": every,
            "route": route,
        }  # fmt: skip
        with Group(
            blocks, ordered=deterministic, first_decides=first_decides, timeout=timeout
        ) as group:
            fit_stream(Learner(self), rows, group, options)
        self.target_names_ = None if rows.target_name is None else [rows.target_name]
        if isinstance(rows, Tables):
            self._take_table(rows.table, rows.columns)
        return self

    def _check_stream(self) -> None:
        """Refuse what needs all rows in memory."""
        check(self, STREAM)

    def _stream_factor(self, labels: Any) -> Tensor | None:
        """Factors (c,) on the weights of rows, by class."""
        return None

    def _solve_sums(self, model: IGL, sums: Statistics) -> Solution:
        """The source from sums."""
        solver = ridge(self._s.alpha, model)
        if isinstance(solver.alpha, str) and solver.alpha not in ("evidence", "gcv"):
            raise ValueError(
                f"alpha={solver.alpha!r} needs all rows in memory. Choose 'evidence', 'gcv' or a number."
            )
        return sums.solve(solver.alpha, relative=solver.relative)

    def _new_rows(self, X: Any, y: Any, sample_weight: Any) -> tuple[Array, Any, Tensor]:
        """Rows for `partial_fit`, checked against those of before, and weights in their unit."""
        numeric = {} if self._s.classifies else {"multi_output": True, "y_numeric": True}
        X, y = self._validated(X, y, reset=False, **numeric)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return X, y, torch.from_numpy(weight / self._weight_unit)

    def _keep_sample(self, x: Tensor, Y: Array) -> None:
        """Rows for `report`."""
        X = self.units_.x.outside(x.cpu().numpy())
        self.sample_ = (X[:SAMPLE], Y[:SAMPLE], np.ones(len(X[:SAMPLE])))
        self.marginals_ = Marginals.of(x.cpu().double().numpy())


class Learner:
    """An estimator as `scale.fit` sees it: before, between and after steps."""

    def __init__(self, estimator: Any):
        self.estimator = estimator
        self.settings = settings_of(estimator)
        self.trained, self.labeled = self.settings.given, self.settings.classifies
        self.in_passes = self.labeled and self.settings.loss != "least_squares"

    def begin(
        self, X: Array, y: Any, labels: Any, seed: int, rows: int, n_atoms: int
    ) -> tuple[IGL, Tensor, Tensor, Tensor | None]:
        """A model from a sample, started on its first rows; x and target of the sample; and factors
        (c,) on the weights of rows, by class."""
        one, generator = self.estimator, torch.Generator().manual_seed(seed)
        n_atoms = self.settings.n_atoms or n_atoms
        x, target = one._begin_stream(X, y, labels)
        factor = one._stream_factor(labels)
        if not self.trained:
            model = self.found(X, y, None if factor is None else target @ factor, seed, n_atoms)
            return model, *self.encoded(X, y), factor
        first, given = x[:rows], Given(self.settings)
        given.find_dims(first, target[:rows], generator)
        one._keep_dimension(given)
        with own_draws(self.settings.chart, first, generator):
            model = given.start(first, n_atoms, generator)
            goal = given.goal(first, len(model.mean))
            if goal is not None:
                given.begin(model, first, goal)
        return model, x, target, factor

    def found(self, X: Array, y: Any, weight: Tensor | None, seed: int, n_atoms: int) -> IGL:
        """The model of the chart that is found on a sample; the estimator has what was learned."""
        from greenfold.scale.fit import learned_by

        one, inner = self.estimator, clone(self.estimator)
        inner.set_params(source__n_atoms=n_atoms, random_state=seed)
        if self.in_passes:
            inner.set_params(loss="cross_entropy")  # as all rows will be solved for
        if weight is not None:
            inner.set_params(class_weight=None)  # `weight` has it, from all rows
        inner.fit(X, y, None if weight is None else weight.numpy())
        all_classes = {"classes_": one.classes_} if self.labeled else {}  # the sample may lack some
        of_targets = one.units_.y
        vars(one).update(learned_by(inner) | all_classes)
        if self.labeled:
            units = replace(one.units_, y=of_targets)
            one.predictor_ = replace(one.predictor_, units=units)
        return inner.model_

    def encoded(self, X: Array, y: Any) -> tuple[Tensor, Tensor]:
        return self.estimator._inside(X), self.estimator._stream_target(y)

    def solve(self, model: IGL, sums: Statistics) -> Solution:
        return self.estimator._solve_sums(model, sums)

    def strength(self, model: IGL, sample: Rows) -> float:
        return self.estimator._stream_strength(model, sample)

    def finish(
        self, model: IGL, sums: Any, solution: Solution, sample: Rows,
        history: History, start: float,
    ) -> None:  # fmt: skip
        one, x = self.estimator, sample.x
        one.fitted_to_, one._weight_unit = (sums.rows, sums.n), 1.0
        error = one._finish_stream(model, sums, solution, sample)
        if self.trained:
            one.history_, one.n_iter_ = history, max(1, len(history.loss))
            one._settle(model, sample)
            one.domain_ = Domain.of(model, x)
            one._alone(error, len(x), time.perf_counter() - start)


def check_forget(forget: float) -> None:
    if not 0 < forget <= 1:
        raise ValueError(f"`forget` must be above 0 and at most 1, got {forget}.")

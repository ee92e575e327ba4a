"""Regression on a learned chart."""

import math
import time
import warnings
from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from greenfold.estimators.likely import beside, law_of
from greenfold.estimators.numbers import Numbers
from greenfold.estimators.options import TASKS, check
from greenfold.estimators.streaming import Streaming, check_forget
from greenfold.green.base import Operator
from greenfold.learn.applicability import Domain
from greenfold.learn.counts import counted
from greenfold.learn.data import Rows
from greenfold.learn.explained import explained
from greenfold.learn.fit import ridge, solution_of
from greenfold.learn.folds import held_out
from greenfold.learn.found import best_chart
from greenfold.learn.given import Given
from greenfold.learn.grown import Everywhere
from greenfold.learn.judges import SQUARES
from greenfold.learn.posterior import Posterior
from greenfold.learn.predictor import Member, Predictor
from greenfold.learn.tasks import shared_chart, standardized
from greenfold.learn.transfer import corrected
from greenfold.learn.units import Array, Scaling, Units
from greenfold.likelihoods import Likelihood
from greenfold.model import IGL, Tied, n_sources
from greenfold.solve import Solution, Statistics
from greenfold.spec import Chart, Source, Training
from greenfold.state import own_draws, seed_of
from greenfold.table import is_table, joined


class IGLRegressor(Numbers, Streaming):
    """Regression on a learned chart: one chart, one operator, and the source that explains y.

    Without settings, linear charts found by principal components, pursuit and axis scales compete with
    a smooth, a heavy-tailed and a product kernel by their evidence, and the source is solved for on the
    winner. Unless that is a smooth chart that explains y, axis scales learned on more rows (and, with
    effort='full', mixed, warped and neural charts) and a linear function replace it if they predict
    held-out rows better. Of few rows with many columns (spectra, pictures, genes) it is a linear function
    or a few directions of principal components, the fewest that held-out rows cannot tell from the best;
    where neighboring columns are alike, rows may be standardized and differentiated along them first.
    Of many rows, where 1500 sources are too few, every row becomes one (`solver_info_`, docs/scaling.md).
    Give `chart` to train one kind of chart instead.

    Parameters
    ----------
    chart : 'auto', 'axis', 'linear', 'warp', 'eigenmap', 'mlp', 'pca', 'conv', nn.Module or Chart
        How x becomes ξ; `Chart` says more about a given one. Under a `Product` 'auto' is columns as they
        are.
    operator : str or Operator
        Name in `greenfold.green.OPERATORS`. With chart='auto' only this one may win, and it must be a
        covariance that is the same everywhere. For a given chart 'auto' is heat; a null space is fitted
        without penalty, or a constant where rows are no more than the columns of that.
    n_dims : int or 'auto', optional
        Coordinates of the chart. With chart='auto' only charts with so many may win; for given ones that
        do not imply it it is 2, and 'auto' asks `greenfold.dimension` how many directions the task needs
        and keeps the report as `dimension_`.
    likelihood : str or Likelihood
        How y is distributed around what is learned: 'gaussian'; 'poisson' and 'negative_binomial' for
        counts; 'student_t' where some of y are outliers; 'lognormal' for times, also censored ones; or
        one of `greenfold.likelihoods`, such as Quantile([0.05, 0.5, 0.95]). Charts compete on targets
        that are nearly normal; scale, penalty and source are those of the likelihood.
    effort : 'fast', 'normal' or 'full'
        Budget of the search. 'fast' compares few charts and kernels, on few rows.
    channels : bool or array-like of shape (D,), optional
        Do columns come in an order, as the channels of a spectrum do? Then charts of principal components
        compete, also of rows that are standardized (SNV) and differentiated along the columns. True says
        so, and positions such as wavelengths say in what order; False forbids it. By default columns are
        channels where neighbors are alike and rows are few. Pictures draw loadings over the positions.
    source : Source, optional
        What the source is made of, and its penalty.
    training : Training, optional
        How a given chart is trained.
    cv : int, splitter or iterable, optional
        How rows are left out to judge: so many folds (10 by default), or as scikit-learn splits them;
        every row in one fold. Given folds, as with `groups`, are never split further.
    n_jobs : int, optional
        Threads: charts that compete, or the starts of a given chart, are learned side by side. The
        result does not depend on it.
    random_state : int, RandomState or None
    verbose : int
        1 tells of every round, or shows a progress bar while a given chart is trained.
    Attributes
    ----------
    model_ : IGL
        The whole path as an `nn.Module`, in internal units.
    chart_ : nn.Module
        The encoder.
    loadings_ : ndarray of shape (d, D)
        How coordinates move with the columns of X, in its units: rows of a linear chart, mean slopes of
        others.
    explained_ : ndarray of shape (d,)
        What each coordinate explains: the drop of the left-out R² when its gate closes and the source is
        solved for again. Coordinates of a linear chart that was found come in this order, as far as the
        operator does not tell them apart, and rise with the target they go along with most.
    effects_ : Effects
        What single columns do to the prediction, and pairs beyond them, with bands and shares; a list
        for several targets. Charts that mix columns have none. See docs/effects.md.
    channels_ : ndarray of shape (D,) or None
        Positions of the columns, if they were taken as channels.
    gates_ : ndarray of shape (d,)
    source_ : ndarray of shape (r, c)
        Weights of the source atoms, in source units.
    alpha_ : float
    effective_rank_ : float
        Terms of the source in use. With a `sparsity` the atoms that are not zero (for 'importance'
        those with ρ_r above a hundredth of the largest); otherwise the degrees of freedom of the solve.
    standings_ : list of Standing
        What competed, the model in use first, then its rivals, the best first: `name`, `score`, `rows`,
        `seconds`, `n_dims` and `weight` of each. The score is the root mean square error at the `rows`
        that were left out of the solve, in standard deviations of y; charts that the search found on
        those rows pay for it. A rival may be ahead by less than chance. A given chart has no rivals, and
        with mode='joint' no score (NaN), since nothing is solved for.
    history_ : History or None
        The descent of a given chart; None with chart='auto'.
    solver_info_ : dict
        Route, jitter, rank and condition of the final solve.
    n_unlabeled_ : int
        Rows without a label.
    data_sha256_ : str
        Of the rows with copies joined, their targets and weights, in whatever order they came.
    table_ : Table or None
        What becomes of the columns of a table; the columns of `loadings_` are `encoded_names_`, those
        of `encode(X)`.
    predictor_ : Predictor
        Units, model, posterior and intervals in one: what predictions, reports and exports are made by.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> y = np.sin(X[:, 0] + X[:, 1])
    >>> bool(IGLRegressor(random_state=0).fit(X, y).score(X, y) > 0.9)
    True

    With a chart that is given, on the first two columns of which y depends:

    >>> from greenfold import Source
    >>> given = IGLRegressor("linear", n_dims=2, source=Source(n_atoms=30), random_state=0).fit(X, y)
    >>> low, high = given.predict_interval(X[:3], alpha=0.1)  # 90%
    >>> given.transform(X).shape, given.applicability(X).outside.shape
    ((60, 2), (60,))
    >>> squared = given.refit_source(X, y**2)  # another target on the same chart
    >>> second = given.transfer(1.01 * X[:8], y[:8])  # another instrument
    >>> later = given.partial_fit(X[:5], y[:5])  # more rows
    >>> one, two = given.fit_tasks([(X, y), (X[:40], -y[:40])])
    >>> one.predict(X).shape
    (60,)
    """

    def __init__(
        self,
        chart: str | nn.Module | Chart = "auto",
        operator: str | Operator = "auto",
        n_dims: int | str | None = None,
        *,
        likelihood: str | Likelihood = "gaussian",
        effort: str = "normal",
        channels: Any = None,
        source: Source | None = None,
        training: Training | None = None,
        cv: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.chart = chart
        self.operator = operator
        self.n_dims = n_dims
        self.likelihood = likelihood
        self.effort = effort
        self.channels = channels
        self.source = source
        self.training = training
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        groups: Any = None,
        *,
        exposure: Any = None,
        censored: Any = None,
    ) -> "IGLRegressor":
        """Find the chart and solve for the source.

        Parameters
        ----------
        X : array-like of shape (n, D), or table
            Of pandas, polars or pyarrow, also with text, categories and missing values; so it is for
            every method.
        y : array-like of shape (n,) or (n, c)
            Rows with NaN have no label: they tell what X looks like, and a graph of all rows competes.
        sample_weight : array-like of shape (n,), optional
            How often each row counts beside the others: their unit is no matter, nor is a repetition
            of the whole table. Rows of weight zero are as good as absent.
        groups : array-like of shape (n,), optional
            Rows that belong together, such as repeated measurements of one sample: they are left out
            together whenever rows judge a chart, a penalty or an interval.
        exposure : array-like of shape (n,), optional
            What counts are counted in, such as hours or areas: the model learns counts per exposure.
        censored : array-like of shape (n,), optional
            True where y is only known to be larger, with likelihood='lognormal'.

        Returns
        -------
        IGLRegressor
            Itself.
        """
        check(self)
        seed, law = seed_of(self.random_state), law_of(self.likelihood)
        known = beside(law, X, exposure=exposure, censored=censored)
        if law is not None:
            rows = self._likely_rows(X, y, sample_weight, groups, law, known)
            self._learn_likely(rows, seed, law)
            return self
        X, Y, weight, folds = self._rows(X, y, sample_weight, groups)
        x, target = self._units(X, Y, np.asarray(y).ndim == 1)
        self._remember(X, Y, weight)
        rows, others = Rows.of(x, target, weight, folds), self._take_others()
        rows = rows if self._s.given else self._unskewed(rows, X, Y, seed)
        self._learn(rows, seed, others)
        return self

    def _learn(self, rows: Rows, seed: int, others: Tensor | None = None) -> None:
        x, target, weight, _ = rows
        s, begin, given = self._s, time.perf_counter(), Given(self._s, others=others)
        alpha, doubt, errors = s.alpha, "", None
        if s.given:
            generator = torch.Generator().manual_seed(seed)
            model, self.history_, _ = given.train(rows, s.n_atoms or 150, generator)
            self._keep_dimension(given)
            self.n_iter_ = max(1, len(self.history_.loss))
        else:
            best = best_chart(rows, s, seed, self.units_.x, others)
            self.history_, self.n_iter_, self.standings_ = None, 1, best.standings
            self._keep_channels(best.data)
            if best.everywhere is not None:
                self._store_everywhere(best.everywhere, rows)
                return
            model, doubt, errors = best.model, best.doubt, best.errors
            if alpha == "evidence" and not s.sparsity:
                alpha = best.noise  # chosen by evidence already
        self._settle(model, rows)
        if given.prunes and model.w is None:
            given.prune(model, rows)
        own = rows.own(dealt=s.given and self.cv is not None)
        with torch.no_grad():
            joint = model.w  # joint training leaves its own
            asked = not isinstance(s.alpha, str)
            solution = solution_of(model, rows, alpha, asked)
            posterior = Posterior.of(model, x, target, solution, weight, folds=own)
            model.w = solution.w if joint is None else joint
        self._store(model, solution, posterior)
        self.domain_ = Domain.of(model, x, own)
        errors = self._held_out(rows, own) if errors is None else errors
        self.predictor_ = self.predictor_.judged(rows, errors[None])
        if s.given:
            error = self._left_out(rows) if joint is None else math.nan
            self._alone(error, len(x), time.perf_counter() - begin)
        if doubt:
            self._warn(doubt)

    def _store_everywhere(self, found: Everywhere, rows: Rows) -> None:
        """A source at every row, and the rows that were held out of all."""
        self._settle(found.sketch, rows)
        self._store(found.sketch, found.solution, found.posterior)
        member = self._member._replace(whole=found.whole)
        self.predictor_ = replace(self.predictor_, members=(member,))
        self.domain_ = Domain.of(found.sketch, rows.x, rows.own())
        held = rows.take(found.held)
        self.predictor_ = self.predictor_.judged(held, found.errors.numpy()[None])

    def _left_out(self, rows: Rows) -> float:
        """Root mean square of the leave-one-out residuals, in standard deviations of y."""
        errors = self.posterior_.loo_errors
        return SQUARES.score(SQUARES.nats(errors, errors, rows.weights.numpy()))

    def _held_out(self, rows: Rows, folds: Tensor | None) -> Array:
        """Errors (n, c) of rows left out: of the solve or, where rows are few, of the chart as well."""
        errors = self.posterior_.loo_errors
        s = self._s
        if s.mode == "joint":  # the chart learned from a source that is not solved for
            return errors
        alpha, known = self.posterior_.alpha, torch.from_numpy(errors)
        steps, draws = -(-s.iterations // 10), torch.Generator().manual_seed(len(rows.x))
        told = (rows, alpha, known, s.objective, steps, folds)
        with own_draws(s.chart, rows.x, draws):
            return held_out(self.model_, *told).numpy()

    def _warn(self, doubt: str) -> None:
        """Tell the user what is doubtful about the model in use, how much, and what to do."""
        used = self.standings_[0]
        wider = "" if self.effort == "full" else ", and effort='full' compares more charts"
        warnings.warn(
            f"the chart in use ({used.name}, d = {used.n_dims}) may be wrong: {doubt}. It errs by "
            f"{used.score:.2f} standard deviations of y at rows left out, and may err by more at new "
            f"ones. More rows than these {used.rows} help most{wider}; columns known not to matter are "
            "better left out.",
            ConvergenceWarning,
            stacklevel=4,
        )

    @property
    def posterior_(self) -> Any:  # Posterior, which the oldest files lack
        return self._member.posterior

    def _store(self, model: IGL, solution: Solution, posterior: Posterior | None = None) -> None:
        super()._store(model, solution, posterior)
        sparsity = self._s.sparsity
        if sparsity == "importance":
            rho = model.rho.detach()
            self.effective_rank_ = float((rho > 1e-2 * rho.max()).sum())
        else:
            self.effective_rank_ = len(model.raw_rho) if sparsity else self.posterior_.rank

    def refit_source(self, X: Any, y: Any, sample_weight: Any = None) -> "IGLRegressor":
        """A new target on the same chart: stage 2 only, in closed form. Returns a new estimator.

        The chart and its anchors stay; twenty rows and a millisecond are enough where the chart fits.

        Parameters
        ----------
        X : array-like of shape (n, D), or table
            Rows.
        y : array-like of shape (n,) or (n, c)
            Other targets.
        sample_weight : array-like of shape (n,), optional
            How often each row counts.

        Returns
        -------
        IGLRegressor
            A new one.
        """
        check_is_fitted(self)
        self._normal("refit_source")
        begin = time.perf_counter()
        other = copy(self)
        X, Y, share, _ = other._rows(X, y, sample_weight, reset=False)
        units = Units(self.units_.x, Scaling.of_targets(Y), np.asarray(y).ndim == 1)
        other.predictor_ = Predictor(units)
        x, weight = self._inside(X), torch.from_numpy(share)
        target = torch.from_numpy(units.y.inside(Y))
        other._remember(X, Y, share)
        chart = self.model_.encoder  # shared; all that a solve may change is not
        model = deepcopy(self.model_, {id(chart): chart})
        with torch.no_grad():
            solution = model.solve(x, target, ridge(self._s.alpha, model), weight)
            posterior = Posterior.of(model, x, target, solution, weight)
        other._store(model, solution, posterior)
        other.explained_ = explained(model, x, target, weight)
        rows = Rows(x, target, weight)
        other.predictor_ = other.predictor_.judged(rows, posterior.loo_errors[None])
        other._alone(other._left_out(rows), len(x), time.perf_counter() - begin)
        return other

    def transfer(self, X: Any, y: Any) -> "IGLRegressor":
        """The same model for a second instrument, from a few standards. Returns a new estimator.

        What the second instrument measures is taken as a scaled and shifted copy of what the first would
        have measured. One slope, and one offset for each coordinate of the chart, are found such that
        predictions meet the targets, as near to no correction as these allow; chart and source stay. It
        works through the units of X, so that files, reports and exports have it. Intervals are wider
        where standards that are left out err by more than they should. To solve for the source again,
        too, call `refit_source` on what is returned.

        Parameters
        ----------
        X : array-like of shape (n, D)
            Five to ten samples, measured by the second instrument; over the range of y, best.
        y : array-like of shape (n,) or (n, c)
            Their targets: known values, or predictions from the first instrument.

        Returns
        -------
        IGLRegressor
            A new one.
        """
        check_is_fitted(self)
        self._normal("transfer")
        model, other = self.model_, copy(self)
        if not isinstance(model.sources, Tied):
            raise ValueError(
                "transfer needs sources that are tied to rows: Source(anchors='tied')."
            )
        X, Y, weight, _ = other._rows(X, y, None, reset=False)
        target = torch.from_numpy(self.units_.y.inside(Y))
        if target.shape[1] != self.source_.shape[1]:
            raise ValueError(
                f"y has {target.shape[1]} columns, that of the first instrument {self.source_.shape[1]}."
            )
        noise = torch.from_numpy(np.square(self.posterior_.loo_errors).mean(0))
        found = corrected(model, model.sources.x, self._inside(X), target, noise)
        known = self.intervals_
        other.predictor_ = replace(
            self.predictor_,
            units=replace(self.units_, x=self.units_.x.corrected(found.slope, found.offset)),
            intervals=replace(known, scores=known.scores * found.excess),
        )
        other.target_names_, other._weight_unit = self.target_names_, self._weight_unit
        other.sample_ = (X, Y, weight)
        return other

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, forget: float = 1.0
    ) -> "IGLRegressor":
        """Add rows: the source is solved for again, exactly, as if all rows were there; the chart stays.

        The first call of all is `fit`.

        Parameters
        ----------
        X : array-like of shape (n, D)
        y : array-like of shape (n,) or (n, c)
        sample_weight : array-like of shape (n,), optional
        forget : float
            What rows of before count from now on; 1 forgets nothing.

        Returns
        -------
        IGLRegressor
            Itself.
        """
        check_forget(forget)
        if not hasattr(self, "model_"):
            return self.fit(X, y, sample_weight)
        self._normal("partial_fit")
        if self._s.mode == "joint":
            raise ValueError("mode='joint' solves for no source that could be brought up to date.")
        if self._member.whole is not None:
            many = n_sources(self._member.whole.sources)
            warnings.warn(
                f"there is a source at every one of {many} rows, which new rows would change all of. "
                f"From now on the {len(self.source_)} sources of its sketch predict, brought up to date; "
                "`fit` with all rows for more.",
                stacklevel=2,
            )
        X, y, weight = self._new_rows(X, y, sample_weight)
        model, target = self.model_, self._stream_target(np.asarray(y, dtype=np.float64))
        rows, n = self.fitted_to_
        with torch.no_grad():
            assert model.w is not None
            sums = self.posterior_.sums(model.w, n, rows)
            sums.decay, x = forget, self._inside(X)
            if target.shape[1] != model.w.shape[1]:
                raise ValueError(
                    f"y has {target.shape[1]} columns, that of before had {model.w.shape[1]}."
                )
            sums.update(model.design(x), target, weight)
            solution = self._solve_sums(model, sums)
            model.w = solution.w
            known = self.intervals_
            posterior = Posterior.from_sums(model, sums, solution, x, target, weight, known.errors)
        self._store(model, solution, posterior)
        new = self.predictor_.judges(Rows(x, target, weight), posterior.loo_errors[None])
        self.predictor_ = replace(self.predictor_, intervals=known.extended(*new, forget))
        self.fitted_to_ = (sums.rows, sums.n)
        self.__dict__.pop("data_sha256_", None)
        return self

    def _normal(self, what: str) -> None:
        """Refuse what only least squares has."""
        if self.units_.law is not None:
            raise ValueError(
                f"{what} needs likelihood='gaussian', whose sources are solved for by least squares: "
                "under others call `fit` with all rows."
            )

    def _begin_stream(self, X: Array, y: Array, labels: Any) -> tuple[Tensor, Tensor]:
        """Units from a sample of the rows."""
        X, y = self._valid(X, y)
        return self._units(X, y.reshape(len(X), -1), y.ndim == 1)

    def _stream_target(self, y: Array) -> Tensor:
        Y = np.asarray(y, dtype=np.float64)
        Y = Y[:, None] if Y.ndim == 1 else Y  # there may be no rows
        return torch.from_numpy(self.units_.y.inside(Y))

    def _finish_stream(self, model: IGL, sums: Statistics, solution: Solution, rows: Rows) -> float:
        """What is known of the fit to all rows; the error of those at hand, each left out."""
        posterior = Posterior.from_sums(model, sums, solution, *rows[:3])
        self._store(model, solution, posterior)
        self.predictor_ = self.predictor_.judged(rows, posterior.loo_errors[None])
        self._keep_sample(rows.x, self.units_.y.outside(rows.Y.numpy()))
        return self._left_out(rows)

    def fit_tasks(self, tasks: Sequence[tuple[Any, Any]]) -> list["IGLRegressor"]:
        """One chart for several targets, each with rows of its own.

        The chart descends the sum of the tasks' objectives. Without a given chart it is linear and
        starts from the directions that the search finds for the single tasks, as many of them as the
        leave-one-out errors of all tasks ask for.

        Parameters
        ----------
        tasks : sequence of (X, y)
            The columns of X mean the same in all of them.

        Returns
        -------
        list of IGLRegressor
            One fitted estimator per task, all with the same `chart_`. Call `refit_source` on any of
            them for a new task: twenty rows and a millisecond.
        """
        check(self, TASKS)
        if not len(tasks):
            raise ValueError("`tasks` must hold at least one pair (X, y), got none.")
        tables = [X for X, _ in tasks if is_table(X)]
        if len(tables) == len(tasks):  # levels and medians are those of all rows
            self._validated(joined(tables))
        else:
            self._valid(*tasks[0])
        checked = [self._valid(X, y, reset=False) for X, y in tasks]
        rows = [counted(X, y.reshape(len(X), -1), np.ones(len(X))) for X, y in checked]
        pooled = np.unique(np.concatenate([X for X, _ in checked]), axis=0)
        x, _ = self._units(pooled, pooled[:, :1])
        parts = [
            Rows(self._inside(part.X), standardized(part.Y), torch.from_numpy(part.weight))
            for part in rows
        ]
        fitted = copy(self)
        model, fitted.history_ = shared_chart(x, parts, self._s, seed_of(self.random_state))
        fitted.predictor_ = Predictor(self.units_, (Member(1.0, model),))
        fitted.domain_ = Domain.of(model, torch.cat([part.x for part in parts]))
        fitted.n_iter_ = max(1, len(fitted.history_.loss))
        return [fitted.refit_source(X, y) for X, y in tasks]

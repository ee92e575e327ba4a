"""A stack of charts, weighted by cross-validation."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from greenfold.estimators.base import Stacked, in_order, together
from greenfold.estimators.options import check
from greenfold.learn.curved import race_bent
from greenfold.learn.data import Data, shuffled
from greenfold.learn.fit import anchored, judged, solved
from greenfold.learn.folds import held_out, unseen
from greenfold.learn.intervals import Intervals
from greenfold.learn.posterior import Posterior
from greenfold.learn.predictor import Member, Predictor
from greenfold.learn.race import (
    EFFORTS,
    NOTHING,
    average,
    challengers,
    errors_of,
    explained,
    narrator,
    race,
    searched,
    side_by_side,
    standing,
    verified,
)
from greenfold.learn.standings import ranked
from greenfold.learn.units import Array
from greenfold.learn.wide import wide
from greenfold.solve import SolveError
from greenfold.state import one_thread, seed_of


class IGLStack(RegressorMixin, Stacked):
    """Several charts with rough and smooth kernels, averaged with weights from cross-validation.

    For real tabular data, where no single chart is right. The charts are those of
    `greenfold.learn.candidates`, each learned by evidence; the less they err on held-out rows the more
    they weigh. There is no one `chart_`: use `IGLRegressor` for that.

    Parameters
    ----------
    effort : 'fast', 'normal' or 'full'
        'fast' has two charts, learned on few rows. 'full' adds warped, mixed, searched and (above 1000
        rows) neural charts, and longer training.
    channels : bool or array-like of shape (D,), optional
        Do columns come in an order, as the channels of a spectrum do? See `IGLRegressor`.
    cv : int, splitter or iterable, optional
        How rows are left out to judge: so many folds (10 by default), or as scikit-learn splits them;
        every row in one fold. Given folds, as with `groups`, are never split further.
    n_jobs : int, optional
        Threads that learn charts side by side; the result does not depend on it.
    random_state : int, RandomState or None
    verbose : int
        1 tells of every round.

    Attributes
    ----------
    models_ : dict of str to IGL
        The models that are averaged, in internal units.
    weights_ : dict of str to float
    standings_ : list of Standing
        What competed: the charts that are averaged, by their `weight`, then the others, the best first.
        See `IGLRegressor`.

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
        effort: str = "normal",
        channels: Any = None,
        cv: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.effort = effort
        self.channels = channels
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> "IGLStack":
        """Learn the charts, and the weights of their predictions.

        Parameters
        ----------
        X : array-like of shape (n, D)
        y : array-like of shape (n,) or (n, c)
        sample_weight : array-like of shape (n,), optional
            How often each row counts beside the others: their unit is no matter, nor is a repetition
            of the whole table. Rows of weight zero are as good as absent.
        groups : array-like of shape (n,), optional
            Rows that belong together, such as repeated measurements of one sample: they are left out
            together whenever rows judge a chart or an interval.
        """
        check(self)
        X, Y, weight, folds = self._rows(X, y, sample_weight, groups)
        self._remember(X, Y, weight)
        seed = seed_of(self.random_state)
        order = shuffled(X, Y, seed)
        X, Y, weight = X[order], Y[order], weight[order]
        x, target = self._units(X, Y, np.asarray(y).ndim == 1)
        w = None if np.all(weight == 1) else torch.from_numpy(weight)
        self._learn(x, target, w, seed, in_order(folds, torch.from_numpy(order)))
        return self

    def _own_units(self) -> bool:
        return True  # every input in its own unit

    def _learn(
        self, x: Tensor, Y: Tensor, weight: Tensor | None, seed: int, folds: Tensor | int
    ) -> None:
        schedule = EFFORTS[self.effort]
        units, channels = self.units_.x, self.channels
        data = Data.of(x, Y, weight, seed, units=units, folds=folds, channels=channels)
        self._keep_channels(data)
        given = []
        if self.effort != "fast":
            given = searched(data, np.random.default_rng(seed), self.effort)[:1]
        tell = narrator(self.verbose, data.likelihood)
        with side_by_side(self.n_jobs) as each:
            clear = bool(given) and explained(given[0])
            fits = race_bent(data, given, clear, each) if wide(data) else []
            if fits:
                out = given
            elif clear:
                fits, out = [judged(given[0], data.head(schedule.judges))], given[1:]
            else:
                rivals = challengers(given)
                fits, out = race(data, schedule, rivals, tell=tell, each=each)
                out += given[len(rivals) :]
                fits = verified(fits, data, np.random.default_rng(seed))
            if not fits or not math.isfinite(fits[0].nats):
                raise SolveError(NOTHING)
            members = average(fits, data.n_effective)
            models = [anchored(fit, x, schedule.anchors) for _, fit in members]
            jobs = [(m, x, Y, weight, fit.noise) for m, (_, fit) in zip(models, members)]
            solutions = each(solved, jobs)
            own = data.folds if data.grouped else None
            apart = each(unseen, [(fit, data) for _, fit in members])
            errors = [
                held_out(m, x, Y, weight, float(solution.alpha), errors_of(fit), folds=own)
                if e is None
                else e
                for m, solution, (_, fit), e in zip(models, solutions, members, apart)
            ]
        shares = {id(fit): w for w, fit in members}
        self.standings_ = ranked(standing(f, data, shares.get(id(f), 0.0)) for f in fits + out)
        with torch.no_grad(), one_thread():
            known = [
                Member(
                    w,
                    model,
                    Posterior.of(model, x, Y, solution, weight, folds=own),
                    float(solution.alpha),
                    fit.candidate.name,
                )
                for (w, fit), model, solution in zip(members, models, solutions)
            ]
        predictor = Predictor(self.units_, tuple(known))
        judges = predictor.judges(x, Y, weight, torch.stack(errors).numpy())
        alike = 1.0 if own is None else together(own.numpy())
        self.predictor_ = replace(predictor, intervals=Intervals.of(*judges, alike))
        self.n_iter_ = sum(schedule.steps)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """u(x), with the standard deviation of a new observation on request.

        That is the posteriors', with the same noise everywhere; `predict_interval` knows where it is.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        with one_thread():
            u, std = self.predictor_.predict(X, return_std)
        return u if std is None else (u, std)

    def predict_interval(self, X: Any, alpha: float = 0.05) -> tuple[Array, Array]:
        """Lower and upper ends that cover a new observation with probability 1 − alpha.

        Conformal: the (1 − alpha) quantile of errors of rows left out, in units of a local scale, learned
        from where they are large. See `IGLRegressor.predict_interval`.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        with one_thread():
            return self.predictor_.interval(X, alpha)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

"""A stack of charts, weighted by cross-validation."""

from typing import Any

import numpy as np

from greenfold.estimators.base import Stacked
from greenfold.estimators.likely import beside, law_of
from greenfold.estimators.numbers import Numbers
from greenfold.estimators.options import check
from greenfold.learn.data import Rows, shuffled
from greenfold.learn.found import several_charts
from greenfold.learn.likely import likely_stack
from greenfold.learn.race import EFFORTS
from greenfold.likelihoods import Likelihood
from greenfold.state import seed_of


class IGLStack(Numbers, Stacked):
    """Several charts with rough and smooth kernels, averaged with weights from cross-validation.

    For real tabular data, where no single chart is right. The charts are those of
    `greenfold.learn.candidates`, each learned by evidence; the less they err on held-out rows the more
    they weigh. There is no one `chart_`: use `IGLRegressor` for that.

    Parameters
    ----------
    likelihood
        See `IGLRegressor`.
    effort : 'fast', 'normal' or 'full'
        'fast' has two charts, learned on few rows. 'full' adds warped, mixed, searched and (above 1000
        rows) neural charts, and longer training.
    channels, cv, n_jobs, random_state, verbose
        See `IGLRegressor`.

    Attributes
    ----------
    models_ : dict of str to IGL
        The models that are averaged, in internal units.
    weights_ : dict of str to float
    effects_ : Effects
        See `IGLRegressor`; of the charts that have them, if those weigh at least half.
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
    >>> stack = IGLStack(effort="fast", random_state=0).fit(X, y)
    >>> low, high = stack.predict_interval(X[:3])
    >>> stack.predict(X).shape, low.shape
    ((80,), (3,))
    """

    def __init__(
        self,
        *,
        likelihood: str | Likelihood = "gaussian",
        effort: str = "normal",
        channels: Any = None,
        cv: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.likelihood = likelihood
        self.effort = effort
        self.channels = channels
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
    ) -> "IGLStack":
        """Learn the charts, and the weights of their predictions.

        Parameters
        ----------
        X : array-like of shape (n, D)
        y : array-like of shape (n,) or (n, c)
        sample_weight, groups, exposure, censored
            See `IGLRegressor.fit`.

        Returns
        -------
        IGLStack
            Itself.
        """
        check(self)
        seed, law = seed_of(self.random_state), law_of(self.likelihood)
        self.n_iter_ = sum(EFFORTS[self.effort].steps)
        known = beside(law, X, exposure=exposure, censored=censored)
        if law is not None:
            rows = self._likely_rows(X, y, sample_weight, groups, law, known)
            data, self.standings_, self.predictor_ = likely_stack(rows, self._s, seed, self.units_)
            self._keep_channels(data)
            return self
        X, Y, weight, folds = self._rows(X, y, sample_weight, groups)
        order = shuffled(X, Y, seed)
        x, target = self._units(X[order], Y[order], np.asarray(y).ndim == 1)
        self._remember(X, Y, weight)
        others = self._take_others()
        folds = folds[order] if isinstance(folds, np.ndarray) else folds
        rows = Rows.of(x, target, weight[order], folds)
        rows = self._unskewed(rows, X[order], Y[order], seed)
        data, self.standings_, self.predictor_ = several_charts(
            rows, self._s, seed, self.units_, others
        )
        self._keep_channels(data)
        return self

    def _own_units(self) -> bool:
        return True  # every input in its own unit

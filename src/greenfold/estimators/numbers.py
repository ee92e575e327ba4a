"""What regressors share: rows and targets, predictions, intervals."""

from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from greenfold.estimators.compression import Compresses
from greenfold.estimators.labels import labeled_numbers
from greenfold.estimators.likely import beside, columns, units_of
from greenfold.learn.compressed import Far
from greenfold.learn.data import Folds, Rows, folds_of
from greenfold.learn.decomposed import Told
from greenfold.learn.effects import Effects
from greenfold.learn.predictor import Predictor
from greenfold.learn.skewed import power_of
from greenfold.learn.units import Array, Units, names_of
from greenfold.likelihoods import Likelihood


class Numbers(RegressorMixin, Compresses):
    """Numbers in, numbers out."""

    def _rows(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        groups: Any = None,
        reset: bool = True,
        law: Likelihood | None = None,
        beside: Array | None = None,
    ) -> tuple[Array, Array, Array, Folds]:
        """Rows, targets (n, c), weights of mean 1 and folds, from what a regressor's `fit` is given."""
        self.target_names_ = names_of(y)
        known = labeled_numbers(y) if reset else None
        self.__dict__.pop("_others", None)
        if known is not None:
            X, sample_weight, groups = self._part(X, known, sample_weight, groups)
            y, beside = np.asarray(y)[known], None if beside is None else beside[known]
        X, y = self._valid(X, y, reset and known is None, sample_weight)
        y = y if law is None else columns(law, y, beside)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        folds = folds_of(self.cv, groups, X, y) if reset else None
        return self._count(X, y.reshape(len(X), -1), weight, folds)

    def _far(self, tolerance: float) -> Far:
        """By mean squares, in those of errors at rows left out: that both add up is thought."""
        posterior = self.predictor_.heaviest.posterior
        if self.units_.law is not None or posterior is None:
            raise ValueError("compress needs likelihood='gaussian', whose errors are numbers.")
        allowed = torch.from_numpy(2 * tolerance * np.square(posterior.loo_errors).mean(0))
        return lambda few, u: float(((few - u).square().mean(0) / allowed).max())

    def _unskewed(self, rows: Rows, X: Array, Y: Array, seed: int) -> Rows:
        """With the logarithm or the root of a skewed target, where that is learned better."""
        power = power_of(rows, Y, self.units_.x, seed)
        if power == 1:
            return rows
        _, target = self._units(X, Y, self.units_.flat, power)
        return rows._replace(Y=target)

    def _likely_rows(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        groups: Any,
        law: Likelihood,
        beside: Array | None,
    ) -> Rows:
        """Rows with the targets of a likelihood, whose units are set."""
        X, Y, weight, folds = self._rows(X, y, sample_weight, groups, law=law, beside=beside)
        units = Units(self._input_units(X), units_of(law, Y), True, law)
        self.predictor_ = Predictor(units)
        self._remember(X, Y, weight)
        self._take_others()
        return Rows.of(self._inside(X), torch.from_numpy(units.target(Y)), weight, folds)

    def _valid(
        self, X: Any, y: Any, reset: bool = True, sample_weight: Any = None
    ) -> tuple[Array, Array]:
        checks = {"multi_output": True, "y_numeric": True, "ensure_min_samples": 2}
        X, y = self._validated(X, y, sample_weight, reset, **checks)
        return X, np.asarray(y, dtype=np.float64)

    def predict(self, X: Any, return_std: bool = False, *, exposure: Any = None) -> Any:
        """u(x), with the standard deviation of a new observation on request.

        That is the posterior's, with the same noise everywhere; `predict_interval` knows where it is.
        Counts are means for an `exposure` (n,), 1 unless given; of times with likelihood='lognormal' it
        is the median; quantiles have a column each.

        Parameters
        ----------
        X : array-like of shape (n, D), or table
            Rows.
        return_std : bool
            Return the standard deviation too.
        exposure : array-like of shape (n,), optional
            What counts are counted in.

        Returns
        -------
        u : ndarray of shape (n,) or (n, c)
        std : ndarray of the same shape
            If it was asked for.
        """
        offset = self._offset(X, exposure)
        u, std = self.predictor_.predict(self.encode(X), return_std, offset)
        return u if std is None else (u, std)

    def predict_interval(
        self, X: Any, alpha: float = 0.05, *, exposure: Any = None
    ) -> tuple[Array, Array]:
        """Lower and upper ends that cover a new observation with probability 1 − alpha.

        Conformal: the (1 − alpha) quantile of errors of rows left out, which holds whatever the noise is
        like, as long as rows are exchangeable. Errors are in units of a local scale, learned from where
        they are large on the chart, over the inputs and over the predictions, so that intervals are wide
        where the noise is. Where rows are few, the chart, too, is learned without rows that judge it.

        Those of counts and times are quantiles of their distribution, with all that is uncertain about
        it. Those of quantiles lie between two of them.

        Parameters
        ----------
        X : array-like of shape (n, D), or table
            Rows.
        alpha : float
            Share of new observations that may lie outside.
        exposure : array-like of shape (n,), optional
            What counts are counted in.

        Returns
        -------
        low, high : ndarray of shape (n,) or (n, c)
        """
        offset = self._offset(X, exposure)
        return self.predictor_.interval(self.encode(X), alpha, offset)

    def _offset(self, X: Any, exposure: Any) -> Array | None:
        """Logarithm (n, 1) of what counts are counted in."""
        check_is_fitted(self)
        known = beside(self.units_.law, X, exposure=exposure)
        if known is None:
            return None
        if not (known > 0).all():
            raise ValueError("`exposure` must be positive.")
        return np.log(known)[:, None]

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        exposure: Any = None,
        censored: Any = None,
    ) -> float:
        """How much of y is explained: R², or what stands in its place under another likelihood.

        Of counts it is the share of the deviance, of quantiles that of the pinball loss, for 'student_t'
        that of the absolute error; of times it is the concordance, ½ by chance.

        Parameters
        ----------
        X : array-like of shape (n, D), or table
            Rows.
        y : array-like of shape (n,) or (n, c)
            Targets.
        sample_weight : array-like of shape (n,), optional
            How often each row counts.
        exposure, censored : array-like of shape (n,), optional
            Of counts and of times.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        law = self.units_.law
        known = beside(law, X, exposure=exposure, censored=censored)
        if law is None:
            return float(super().score(X, y, sample_weight))
        X, y = self._valid(X, y, reset=False)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        Y = self.units_.target(columns(law, y, known))
        return law.score(self.predictor_.u(self._inside(X)), Y, weight)

    @property
    def intervals_(self) -> Any:
        return self.predictor_.intervals

    @property
    def effects_(self) -> Effects | list[Effects]:
        """What single columns do, and pairs beyond them: curves and maps with bands, and their shares.

        The prediction is a mean plus effects of columns, of pairs of them, and of more together. They are
        orthogonal under rows whose columns are spread as in the rows fitted to, but do not depend on each
        other; shares are shares of the variance there. A list of them, one for each of several targets.
        Of counts and times they are effects on the logarithm of what is predicted.
        Computed when asked for the first time. Charts that mix columns have none: `AttributeError`.
        """
        return self._effects_of(Told.numbers(self.units_, self.target_names_))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

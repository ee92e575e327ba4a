"""What regressors share: rows and targets, predictions, intervals."""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_sample_weight, validate_data

from greenfold.estimators.base import Estimator
from greenfold.learn.data import Folds, folds_of
from greenfold.learn.units import Array, names_of


class Numbers(RegressorMixin, Estimator):
    """Numbers in, numbers out."""

    def _rows(
        self, X: Any, y: Any, sample_weight: Any, groups: Any = None, reset: bool = True
    ) -> tuple[Array, Array, Array, Folds]:
        """Rows, targets (n, c), weights of mean 1 and folds, from what a regressor's `fit` is given."""
        self.target_names_ = names_of(y)
        X, y = self._valid(X, y, reset)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        folds = folds_of(self.cv, groups, X, y) if reset else None
        return self._count(X, y.reshape(len(X), -1), weight, folds)

    def _valid(self, X: Any, y: Any, reset: bool = True) -> tuple[Array, Array]:
        X, y = validate_data(
            self, X, y, reset=reset, dtype=np.float64, multi_output=True, y_numeric=True,
            ensure_min_samples=2,
        )  # fmt: skip
        return X, np.asarray(y, dtype=np.float64)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """u(x), with the standard deviation of a new observation on request.

        That is the posterior's, with the same noise everywhere; `predict_interval` knows where it is.
        """
        X = self._checked(X)
        u, std = self.predictor_.predict(X, return_std)
        return u if std is None else (u, std)

    def predict_interval(self, X: Any, alpha: float = 0.05) -> tuple[Array, Array]:
        """Lower and upper ends that cover a new observation with probability 1 − alpha.

        Conformal: the (1 − alpha) quantile of errors of rows left out, which holds whatever the noise is
        like, as long as rows are exchangeable. Errors are in units of a local scale, learned from where
        they are large on the chart, over the inputs and over the predictions, so that intervals are wide
        where the noise is. Where rows are few, the chart, too, is learned without rows that judge it.
        """
        X = self._checked(X)
        return self.predictor_.interval(X, alpha)

    @property
    def intervals_(self) -> Any:
        return self.predictor_.intervals

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

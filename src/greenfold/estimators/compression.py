"""The same predictions from fewer sources."""

import warnings
from abc import abstractmethod
from copy import copy
from dataclasses import replace
from typing import Any, Self

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from greenfold.estimators.base import Estimator
from greenfold.learn.compressed import Far, compressed
from greenfold.model import IGL, Tied, n_sources


class Compresses(Estimator):
    """Of regressors and classifiers."""

    @abstractmethod
    def _far(self, tolerance: float) -> Far:
        """What tells that values of fewer sources, in the model's numbers, are too far off."""

    def compress(self, X: Any = None, tolerance: float = 0.005) -> Self:
        """The same predictions from as few sources as are enough. Returns a new estimator.

        For quick predictions and small files. A source of fewer anchors is solved for the predictions
        themselves, at rows that need no targets. Intervals, standard deviations and the chart stay as
        they are.

        Parameters
        ----------
        X : array-like of shape (n, D), optional
            Rows like those to be predicted, thousands are best; by default those that sources are at,
            and those that `fit` has kept.
        tolerance : float
            What may be added to the error at rows left out, as a share of it: of the root mean square
            error of numbers, or of the log-loss of classes.

        Returns
        -------
        estimator
            Of the same class. It warns, and predicts as before, if more than half of the sources are
            needed.

        Examples
        --------
        >>> import numpy as np
        >>> from greenfold import IGLRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (400, 2))
        >>> y = np.sin(3 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * rng.normal(size=400)
        >>> model = IGLRegressor("axis", operator="matern", random_state=0).fit(X, y)
        >>> small = model.compress()
        >>> bool(np.abs(small.predict(X) - model.predict(X)).max() < 0.1)  # a third of the noise
        True
        """
        check_is_fitted(self)
        if not 0 < tolerance < 1:
            raise ValueError(f"`tolerance` must lie between 0 and 1, got {tolerance}.")
        if not all(isinstance(m.predicts.sources, Tied) for m in self.predictor_.members):
            raise ValueError(
                "compress needs sources that are tied to rows: Source(anchors='tied'), the default."
            )
        far, members = self._far(tolerance), []
        for member in self.predictor_.members:
            few = compressed(member.predicts, self._rows_for(member.predicts, X), far)
            members.append(member if few is None else member._replace(whole=few))
        if all(new is old for new, old in zip(members, self.predictor_.members)):
            told = ", ".join(str(n_sources(member.predicts.sources)) for member in members)
            warnings.warn(
                f"more than half of the {told} sources are needed, or they are few already: no smaller "
                f"model predicts the same within tolerance={tolerance:g} of the error. The model stays "
                "as it is.",
                stacklevel=2,
            )
        other = copy(self)
        other.predictor_ = replace(self.predictor_, members=tuple(members))
        return other

    def _rows_for(self, model: IGL, X: Any) -> Tensor:
        """Rows (n, D) as the model sees them: those given, or all that are known."""
        if X is not None:
            return self._inside(self.encode(X))
        kept = getattr(self, "sample_", None)  # model files have none
        known = [] if kept is None else [self._inside(kept[0])]
        assert isinstance(model.sources, Tied)
        return torch.cat([model.sources.x, *known])

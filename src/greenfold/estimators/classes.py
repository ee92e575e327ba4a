"""What classifiers share: labels, the race for classes, probabilities."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from greenfold.estimators.base import Estimator, Folds, in_order
from greenfold.learn.candidates import Fit
from greenfold.learn.data import Data, folds_of
from greenfold.learn.fit import anchored, unscaled
from greenfold.learn.likelihoods import Softmax
from greenfold.learn.penalty import Tuned, tuned
from greenfold.learn.predictor import Predictor
from greenfold.learn.race import (
    CLASS_EFFORTS,
    MOST,
    NOTHING,
    Asked,
    Schedule,
    apart,
    narrator,
    race_classes,
    side_by_side,
)
from greenfold.learn.units import Array, Scaling, Units, names_of
from greenfold.model import IGL
from greenfold.solve import Logistic, SolveError
from greenfold.state import one_thread

ANCHORS = 3000  # at most
CHARTS = 3  # that scale and penalty are chosen for


class Raced(NamedTuple):
    """What a race for classes leaves: rows in its order, and fits, the best first."""

    data: Data
    x: Tensor
    onehot: Tensor
    weight: Tensor
    fits: list[Fit]
    out: list[Fit]


class Classes(ClassifierMixin, Estimator):
    """Labels in, probabilities out."""

    def _labeled(
        self, X: Any, y: Any, sample_weight: Any, groups: Any
    ) -> tuple[Array, Array, Array, Folds]:
        """Rows, indicators (n, c), weights of mean 1 and folds, from what `fit` is given."""
        self.target_names_ = names_of(y)
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        self.classes_, index = np.unique(y[weight > 0], return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"a classifier needs two classes with positive weight, got one class: {self.classes_}."
            )
        onehot = np.zeros((len(y), len(self.classes_)))
        onehot[weight > 0] = np.eye(len(self.classes_))[index]
        weight = weight * (onehot @ self._class_weights(weight @ onehot))
        X, Y, weight, folds = self._count(X, onehot, weight, folds_of(self.cv, groups, X, y))
        return X, Y, weight, folds

    def _class_weights(self, total: Array) -> Array:
        """The factor on each class, given its total weight (c,)."""
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            balanced: Array = total.sum() / (len(total) * total)
            return balanced
        try:
            factor = np.asarray(
                compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_),
                float,
            )
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"class_weight={self.class_weight!r} cannot be used: {error}."
            ) from error
        if not (np.isfinite(factor) & (factor >= 0)).all() or (factor > 0).sum() < 2:
            raise ValueError(
                "`class_weight` must hold finite numbers, none negative, two of them positive, "
                f"got {dict(zip(self.classes_.tolist(), factor.tolist()))} for the classes of y."
            )
        return factor

    def _inputs(self, X: Array) -> Tensor:
        """Rows as the model sees them; logits are its own numbers."""
        y = Scaling.none(len(self.classes_))
        self.predictor_ = Predictor(Units(Scaling.of_inputs(X, self._own_units()), y))
        return self._inside(X)

    def _race(
        self, x: Tensor, Y: Array, weight: Array, seed: int, folds: Folds, asked: Asked
    ) -> Raced:
        rng, shares = np.random.default_rng(seed), weight @ Y / weight.sum()
        order = torch.from_numpy(rng.permutation(len(x)))
        x, onehot, w = x[order], torch.from_numpy(Y)[order], torch.from_numpy(weight)[order]
        likelihood, schedule = Softmax(shares), self._schedule()
        kept = in_order(folds, order)
        if self.cv is None and isinstance(kept, int):  # all candidates are judged by the same folds
            kept = apart(min(len(x), schedule.judges))
        told = {"units": self.units_.x, "folds": kept, "channels": self._s.channels}
        data = Data.of(x, onehot - torch.from_numpy(shares), w, seed, likelihood, **told)
        self._keep_channels(data)
        tell = narrator(self.verbose, likelihood)
        with side_by_side(self.n_jobs) as each:
            fits, out = race_classes(data, schedule, rng, self.effort, asked, tell=tell, each=each)
        if not fits:
            raise SolveError(NOTHING)
        self.n_iter_ = sum(schedule.steps)
        return Raced(data, x, onehot, w, fits, out)

    def _schedule(self) -> Schedule:
        """Scales are left to cross-entropy."""
        return replace(CLASS_EFFORTS[self.effort], refine=0)

    def _tuned(self, raced: Raced, kept: int) -> tuple[list[Tuned], Data]:
        """So many of the best charts, at scales and strengths for cross-entropy, and who judged."""
        judges = self._schedule().judging(raced.data.head(MOST))
        with side_by_side(self.n_jobs) as each:
            folds = self.cv if isinstance(self.cv, int) else apart(len(judges))
            return tuned(raced.fits, judges, folds, max(CHARTS, kept), kept, each), judges

    def _anchored(self, fit: Fit, raced: Raced, alpha: float, most: int) -> tuple[IGL, float]:
        """The model of a fit with so many anchors, and its strength, absolute."""
        fit = fit.candidate.refit(fit, raced.data)
        fit = replace(fit, chart=unscaled(fit.chart, raced.data.sd), noise=alpha)
        model = anchored(fit, raced.x, self._s.n_atoms or most)
        return model, alpha * float(model.unit())

    def _checked(self, X: Any) -> Array:
        check_is_fitted(self)
        rows: Array = validate_data(self, X, reset=False, dtype=np.float64)
        return rows

    @property
    def temperature_(self) -> float:
        return self.predictor_.temperature

    def predict_proba(self, X: Any) -> Array:
        """Probabilities (n, c), columns in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the probabilities (n, c), finite where the probabilities underflow."""
        x = self._inside(self._checked(X))
        with one_thread():
            return self.predictor_.log_proba(x)

    def predict(self, X: Any) -> Any:
        """The most probable class."""
        best = self.predict_log_proba(X).argmax(1)
        return self.classes_[best]


def entropy(alpha: float) -> Logistic:
    """What solves for sources of charts that competed."""
    return Logistic(alpha, relative=False, tol=1e-4, shared=True)


def n_anchors(most: int, n_classes: int, asked: int | None) -> int:
    """As many as asked for, or fewer for many classes."""
    return asked or max(60, min(most, 4 * most // n_classes))


def log_loss(logits: Tensor, Y: Tensor, weight: Tensor | None) -> float:
    """Mean over rows; infinite where a logit is no number."""
    losses = -(Y * logits.log_softmax(1)).sum(1).nan_to_num(nan=-math.inf)
    return float(losses.mean() if weight is None else weight @ losses / weight.sum())

"""What classifiers share: labels, the race for classes, probabilities."""

import math
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor

from greenfold.estimators.compression import Compresses
from greenfold.estimators.labels import labeled_classes
from greenfold.learn.compressed import Far
from greenfold.learn.data import Folds, Rows, folds_of
from greenfold.learn.decomposed import Told
from greenfold.learn.effects import Effects
from greenfold.learn.found import Raced, class_charts, class_schedule
from greenfold.learn.penalty import MANY
from greenfold.learn.predictor import Predictor
from greenfold.learn.units import Array, Scaling, Units, names_of
from greenfold.likelihoods.base import Likelihood
from greenfold.likelihoods.classes import Corners, Softmax
from greenfold.solve.likely import Likely

ANCHORS = 3000  # at most
GAIN = 3e-7  # nats a row that a step has to gain for each of many classes, as it costs so many times more


class Classes(ClassifierMixin, Compresses):
    """Labels in, probabilities out."""

    def _labeled(
        self, X: Any, y: Any, sample_weight: Any, groups: Any, unlabeled: Any = None
    ) -> tuple[Array, Array, Array, Folds]:
        """Rows, indicators (n, c), weights of mean 1 and folds, from what `fit` is given."""
        self.target_names_, known = names_of(y), labeled_classes(y, unlabeled)
        self.__dict__.pop("_others", None)
        if known is not None:
            X, sample_weight, groups = self._part(X, known, sample_weight, groups)
            y = np.array(np.asarray(y)[known].tolist())
        reset = known is None
        X, y = self._validated(X, y, sample_weight, reset, ensure_min_samples=2)
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
            return total.sum() / (len(total) * total)
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

    def _inputs(self, X: Array, outputs: int | None = None) -> Tensor:
        """Rows as the model sees them; logits, one for a class unless told, are its own numbers."""
        y = Scaling.none(outputs or len(self.classes_))
        self.predictor_ = Predictor(Units(self._input_units(X), y))
        return self._inside(X)

    def _race(self, rows: Rows, seed: int, others: Tensor | None = None) -> Raced:
        raced = class_charts(rows, self._s, seed, self.units_.x, others)
        self._keep_channels(raced.data)
        self.image_shape_ = raced.data.shape
        self.n_iter_ = sum(class_schedule(self._s).steps)
        return raced

    def _far(self, tolerance: float) -> Far:
        """By the probabilities that differ: Kullback and Leibler's nats, in those of rows left out."""
        if self.units_.law is not None:
            raise ValueError("compress takes loss='cross_entropy' or 'least_squares'.")
        allowed = tolerance * self.standings_[0].score

        def far(few: Tensor, u: Tensor) -> float:
            p, q = ((each / self.temperature_).log_softmax(1) for each in (u, few))
            return float((p.exp() * (p - q)).sum(1).mean()) / allowed

        return far

    @property
    def temperature_(self) -> float:
        return self.predictor_.temperature

    def predict_proba(self, X: Any) -> Array:
        """Probabilities (n, c), columns in the order of `classes_`.

        Parameters
        ----------
        X : array-like of shape (n, D), or table
            Rows.

        Returns
        -------
        ndarray of shape (n, c)
        """
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the probabilities (n, c), finite where the probabilities underflow.

        Parameters
        ----------
        X : array-like of shape (n, D), or table
            Rows.

        Returns
        -------
        ndarray of shape (n, c)
        """
        X = self.encode(X)
        return self.predictor_.log_proba(self._inside(X))

    def predict(self, X: Any) -> Any:
        """The most probable class.

        Parameters
        ----------
        X : array-like of shape (n, D), or table
            Rows.

        Returns
        -------
        ndarray of shape (n,)
        """
        best = self.predict_log_proba(X).argmax(1)
        return self.classes_[best]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy: the share of rows whose class is right.

        Parameters
        ----------
        X : array-like of shape (n, D), or table
            Rows.
        y : array-like of shape (n,)
            Their classes.
        sample_weight : array-like of shape (n,), optional
            How often each row counts.

        Returns
        -------
        float
        """
        return float(super().score(X, y, sample_weight))

    @property
    def effects_(self) -> Effects | list[Effects]:
        """As `IGLRegressor.effects_`, of the log-odds of two classes; they have no bands.

        Of more classes a list, one for each: of logits, less their mean over the classes.
        """
        if len(self.predictor_.members) > 1:
            raise AttributeError(
                "a stack for classes averages probabilities, and these are no sum of effects: "
                "IGLClassifier has one chart, whose logits are."
            )
        if self.units_.law is not None:  # classes in an order have one function
            return self._effects_of(Told.numbers(self.units_, self.target_names_))
        return self._effects_of(Told.classes(self.classes_, self.predictor_.temperature))


def laws(loss: str, n_classes: int) -> tuple[Softmax, Softmax | None]:
    """What sources of charts that competed are solved for by, and what may take its place."""
    entropy, squares = Softmax(n_classes), Corners(n_classes)
    if loss == "cross_entropy":
        return entropy, None
    if n_classes > MANY:
        return squares, None
    return entropy, squares if n_classes > 2 else None


def solver(law: Likelihood, alpha: float) -> Likely:
    """At absolute strength α."""
    return Likely(law, alpha, (1e-8 if law.outputs <= MANY else GAIN * law.outputs) ** 0.5)


def n_anchors(most: int, n_classes: int, asked: int | None) -> int:
    """As many as asked for, or fewer for many classes."""
    return asked or max(60, min(most, 4 * most // n_classes))


def log_loss(logits: Tensor, Y: Tensor, weight: Tensor | None) -> float:
    """Mean over rows; infinite where a logit is no number."""
    losses = -(Y * logits.log_softmax(1)).sum(1).nan_to_num(nan=-math.inf)
    return float(losses.mean() if weight is None else weight @ losses / weight.sum())

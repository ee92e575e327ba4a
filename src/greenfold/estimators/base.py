"""What the estimators share: units, charts, prediction in chunks."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from greenfold.learn.counts import counted
from greenfold.learn.standings import Standing, chart_name, named
from greenfold.model import IGL
from greenfold.solve import Solution

Array = NDArray[np.float64]

CHUNK = 2048  # rows evaluated at a time
SAMPLE = 2000  # rows kept for `report`


class Units(BaseEstimator):
    """Data in numbers of order one."""

    _weight_unit = 1.0  # given weight that counts 1

    def _units(self, X: Array, Y: Array) -> tuple[Tensor, Tensor]:
        """Numbers of order one, with shifts and scales that a change of units by 2^k leaves exact."""
        self._x_unit = power_of_two(X)
        X = X / self._x_unit
        self._x_shift = X.mean(0)
        spread = (X - self._x_shift).std(0)
        flat = spread <= 1e-12 * (np.abs(self._x_shift) + np.abs(X).max(0))
        self._x_scale = np.where(flat, 1.0, spread) if self._own_chart() else np.ones(X.shape[1])
        return self._inside(X * self._x_unit), self._target_units(Y)

    def _target_units(self, Y: Array) -> Tensor:
        self._y_unit = power_of_two(Y)
        Y = Y / self._y_unit
        self._y_shift = Y.mean(0)
        self._y_scale = (Y - self._y_shift).std(0)
        self._y_scale[~(self._y_scale > 1e-14 * (1 + np.abs(self._y_shift)))] = 1.0
        return torch.from_numpy((Y - self._y_shift) / self._y_scale)

    def _rows(
        self, X: Any, y: Any, sample_weight: Any, reset: bool = True
    ) -> tuple[Array, Array, Array]:
        """Rows, targets (n, c) and weights of mean 1, from what a regressor's `fit` is given."""
        self._y_names = names_of(y)
        X, y = validate_data(
            self, X, y, reset=reset, dtype=np.float64, multi_output=True, y_numeric=True,
            ensure_min_samples=2,
        )  # fmt: skip
        y = np.asarray(y, dtype=np.float64)
        self._flat = y.ndim == 1
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return self._count(X, y.reshape(len(X), -1), weight)

    def _count(self, X: Array, Y: Array, weight: Array) -> tuple[Array, Array, Array]:
        """Copies joined, weights of mean 1: the one place where what is given becomes what counts."""
        X, Y, weight, self._weight_unit = counted(X, Y, weight)
        check_rows(X)
        return X, Y, weight

    def _outside(self, u: Array, what: str) -> Array:
        """Predictions in the units and the shape of y."""
        u = finite((u * self._y_scale + self._y_shift) * self._y_unit, what)
        return u[:, 0] if self._flat else u

    def _spread(self, spread: Array, what: str) -> Array:
        """Standard deviations in the units and the shape of y."""
        spread = finite(spread * self._y_scale * self._y_unit, what)
        return spread[:, 0] if self._flat else spread

    def _ends(self, u: Array, half: Array) -> tuple[Array, Array]:
        """Ends of intervals around u, in the units and the shape of y, from half widths (n, c)."""
        half = self._spread(half, "widths of the intervals")
        for end in u - half, u + half:
            finite(end.reshape(len(u), -1), "ends of the intervals")
        return u - half, u + half

    def _remember(self, X: Array, Y: Array, weight: Array) -> None:
        """The hash of the rows, and some of them for `report`; those are not part of model files."""
        digest = hashlib.sha256()
        for part in (X, Y, weight):  # in a fixed order: that of the table is no matter
            digest.update(np.ascontiguousarray(part, dtype="<f8").tobytes())
        self.data_sha256_ = digest.hexdigest()
        keep = evenly(len(X), SAMPLE)
        self._sample = (X[keep], Y[keep], weight[keep])
        self._fitted_to = (len(X), float(weight.sum()))

    def report(
        self,
        path: str | os.PathLike[str],
        X: Any = None,
        y: Any = None,
        *,
        names: list[str] | None = None,
        image_shape: tuple[int, int] | None = None,
    ) -> Path:
        """Write one page, without any request, to look at the model and to play with it.

        The page computes with the model's own numbers: chart, source and response on any plane of the
        chart; a point source to drag; gates, strengths and the operator's scale to change. It solves
        for a source on rows fitted to, and scores it on those shown. Of a stack it shows the chart that
        weighs most.

        Parameters
        ----------
        path : str or path
            Such as "report.html".
        X, y : array-like, optional
            Rows to show. By default up to 2000 of those fitted to, or, for a model that was loaded
            from a file, the rows its sources are tied to.
        names : list of str, optional
            Of the columns of X.
        image_shape : (int, int), optional
            Height and width, if rows are images: pointing at one then shows it.
        """
        from greenfold.report import write

        return write(self, path, X, y, names=names, image_shape=image_shape)

    def _own_chart(self) -> bool:
        """Is the kind of chart given, rather than searched for?"""
        return getattr(self, "chart", "auto") != "auto"

    def _inside(self, X: Array) -> Tensor:
        X = np.ascontiguousarray(X / self._x_unit, dtype=np.float64)  # the one copy
        X -= self._x_shift
        X /= self._x_scale
        return torch.from_numpy(X).to(getattr(self, "device", "cpu"))


class Base(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Units):
    """What regressor, classifier and autoencoder share: charts, prediction in chunks."""

    @torch.no_grad()
    def _store(self, model: IGL, solution: Solution) -> None:
        """What every fitted estimator has."""
        self.model_, self.chart_ = model, model.encoder
        self.gates_ = model.gates().numpy()
        self.source_ = model.source_weights().numpy()
        self._absolute_alpha = float(solution.alpha)  # absolute
        self.alpha_ = (
            self._absolute_alpha / float(model.unit())
            if model.energy
            else solution.info["alpha_relative"]
        )
        self.solver_info_ = {**solution.info, "condition": float(solution.condition)}

    def _alone(self, score: float, rows: int, seconds: float) -> None:
        """Standings of a chart that nothing competed with."""
        name = named(chart_name(self.model_.encoder), self.model_.operator)
        self.standings_ = [Standing(name, score, rows, seconds, len(self.gates_), 1.0)]

    def transform(self, X: Any) -> Array:
        """Chart coordinates ξ of the rows, shape (n, d)."""
        check_is_fitted(self)
        return self._xi(validate_data(self, X, reset=False, dtype=np.float64))

    @torch.no_grad()
    def _xi(self, X: Array) -> Array:
        """ξ (n, d) of rows that were checked."""
        return finite(chunks(self.model_.chart, self._inside(X)), "chart coordinates")

    @property
    def _n_features_out(self) -> int:
        return len(self.gates_)

    def _raw(self, X: Array) -> Array:
        with torch.no_grad():
            return finite(chunks(lambda x: self.model_(x), self._inside(X)), "values")


def names_of(y: Any) -> list[str] | None:
    """What a series or table calls its columns; None for arrays, and for names that are no text."""
    names = [getattr(y, "name", None)] if not hasattr(y, "columns") else list(y.columns)
    return [str(v) for v in names] if all(isinstance(v, str) and v for v in names) else None


def evenly(n: int, most: int) -> NDArray[np.int64]:
    """Up to `most` of n positions, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))


def power_of_two(values: Array) -> float:
    largest = float(np.abs(values).max(initial=0.0))
    return float(2.0 ** np.floor(np.log2(largest))) if largest > 0 else 1.0


def chunks(f: Callable[[Tensor], Tensor], x: Tensor) -> Array:
    """f over blocks of rows, into one array: results kept between blocks would fragment the heap."""
    out: Array | None = None
    for start in range(0, max(len(x), 1), CHUNK):
        part = f(x[start : start + CHUNK]).cpu().double().numpy()
        if out is None:
            out = np.empty((len(x), *part.shape[1:]))
        out[start : start + len(part)] = part
    assert out is not None
    return out


def finite(values: Array, what: str) -> Array:
    bad = int((~np.isfinite(values)).any(1).sum())
    if bad:
        raise ValueError(
            f"the {what} of {bad} of {len(values)} rows leave float64 (about 1e308). Either the rows lie "
            "that far from those fitted to, or the data are near that limit: rescale them."
        )
    return values


def check_rows(X: Array) -> None:
    if len(X) < 2:
        raise ValueError(
            f"fitting needs at least 2 different rows with positive weight, got n_samples={len(X)}."
        )

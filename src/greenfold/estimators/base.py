"""What the estimators share: units, charts, prediction in chunks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from greenfold.chart import Linear
from greenfold.chart.start import farthest_points, pivots
from greenfold.green.atoms import Point
from greenfold.green.base import Operator
from greenfold.green.diffusion import Heat
from greenfold.green.operators import Cauchy, ProductScreened
from greenfold.learn.search import Candidate
from greenfold.model import IGL, Tied
from greenfold.solve import Solution

Array = NDArray[np.float64]

MAX_ANCHORS = 1500
MAX_ROWS = 2500  # among which anchors are chosen
CHUNK = 4096  # rows evaluated at a time

KERNELS: dict[str, Callable[[], Operator]] = {
    "gaussian": lambda: Heat(0.5),  # e^{−r²/2}
    "cauchy": lambda: Cauchy(1.0),  # 1/(1 + r²/2)
    "laplace": lambda: ProductScreened(1.0),  # Π e^{−|δ_j|}
}


class Base(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What regressor, classifier and autoencoder share: units, charts, prediction in chunks."""

    def _units(self, X: Array, Y: Array) -> tuple[Tensor, Tensor]:
        """Numbers of order one, with shifts and scales that a change of units by 2^k leaves exact."""
        self._x_unit = power_of_two(X)
        X = X / self._x_unit
        self._x_shift = X.mean(0)
        spread = (X - self._x_shift).std(0)
        flat = spread <= 1e-12 * (np.abs(self._x_shift) + np.abs(X).max(0))
        self._x_scale = np.where(flat, 1.0, spread) if self._own_chart() else np.ones(X.shape[1])
        self._y_unit = power_of_two(Y)
        Y = Y / self._y_unit
        self._y_shift = Y.mean(0)
        self._y_scale = (Y - self._y_shift).std(0)
        self._y_scale[~(self._y_scale > 1e-14 * (1 + np.abs(self._y_shift)))] = 1.0
        return self._inside(X * self._x_unit), torch.from_numpy((Y - self._y_shift) / self._y_scale)

    def _own_chart(self) -> bool:
        """Is the kind of chart given, rather than searched for?"""
        return getattr(self, "chart", "auto") != "auto"

    def _inside(self, X: Array) -> Tensor:
        X = np.ascontiguousarray(X / self._x_unit, dtype=np.float64)  # the one copy
        X -= self._x_shift
        X /= self._x_scale
        return torch.from_numpy(X).to(self.device)

    @torch.no_grad()
    def _store(self, model: IGL, solution: Solution) -> None:
        """What every fitted estimator has."""
        self.model_, self.chart_ = model, model.encoder
        self.gates_ = model.gates().numpy()
        self.source_ = model.source_weights().numpy()
        unit = float(model.unit())
        self.alpha_ = (
            float(solution.alpha) / unit if model.energy else solution.info["alpha_relative"]
        )
        self.solver_info_ = {**solution.info, "condition": float(solution.condition)}

    def transform(self, X: Any) -> Array:
        """Chart coordinates ξ of the rows, shape (n, d)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        with torch.no_grad():
            xi = chunks(lambda x: self.model_.chart(x), self._inside(X))
        return finite(xi, "chart coordinates")

    @property
    def _n_features_out(self) -> int:
        return len(self.gates_)

    def _raw(self, X: Array) -> Array:
        with torch.no_grad():
            return finite(chunks(lambda x: self.model_(x), self._inside(X)), "values")


def power_of_two(values: Array) -> float:
    largest = float(np.abs(values).max(initial=0.0))
    return float(2.0 ** np.floor(np.log2(largest))) if largest > 0 else 1.0


def chunks(f: Callable[[Tensor], Tensor], x: Tensor) -> Array:
    return np.concatenate([f(part).cpu().double().numpy() for part in x.split(CHUNK)])


def finite(values: Array, what: str) -> Array:
    bad = int((~np.isfinite(values)).any(1).sum())
    if bad:
        raise ValueError(
            f"the {what} of {bad} of {len(values)} rows leave float64 (about 1e308). Either the rows lie "
            "that far from those fitted to, or the data are near that limit: rescale them."
        )
    return values


def unique_rows(X: Array, Y: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Distinct rows in a fixed order, with their weights added: order and repetition do not matter."""
    keep = weight > 0
    both, index = np.unique(np.hstack([X[keep], Y[keep]]), axis=0, return_inverse=True)
    total = np.bincount(index.ravel(), weights=weight[keep], minlength=len(both)).astype(np.float64)
    return both[:, : X.shape[1]], both[:, X.shape[1] :], total


def check_rows(X: Array) -> None:
    if len(X) < 2:
        raise ValueError(
            f"fitting needs at least 2 different rows with positive weight, got n_samples={len(X)}."
        )


def tied(candidate: Candidate, x: Tensor, n_anchors: int) -> IGL:
    """The model a candidate stands for: its linear chart, its kernel, anchors at rows of the data."""
    W = torch.from_numpy(candidate.W)
    encoder = Linear(W.shape[1], W.shape[0], W)
    kernel = KERNELS[candidate.kernel]()
    with torch.no_grad():
        z = encoder(x)
        rows = farthest_points(z, MAX_ROWS) if len(x) > MAX_ROWS else torch.arange(len(x))
        G = kernel.response(z[rows], Point(z[rows]))
        missing = max(1e-2 * candidate.noise, 1e-13) * float(G[0, 0])  # well below the noise
        rows = rows[pivots(G, missing)[:n_anchors]]
    model = IGL(encoder, kernel, Tied(x[rows]), n_dims=len(W), energy=True)
    model.mean = W @ torch.from_numpy(candidate.mean)
    return model.eval()

"""What the estimators share: units, charts, prediction in chunks."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn
from tqdm.auto import tqdm

from greenfold.chart import MLP, AxisScales, Linear, PCAResidual, Warp
from greenfold.chart.start import farthest_points, pca, pivots
from greenfold.dims import dimension
from greenfold.green.atoms import Point
from greenfold.green.base import Operator
from greenfold.green.diffusion import Heat
from greenfold.green.operators import Cauchy, ProductScreened
from greenfold.green.operators import operator as operator_by_name
from greenfold.learn.search import Candidate
from greenfold.learn.trainer import Epoch, History, descend
from greenfold.model import IGL, Tied
from greenfold.solve import OBJECTIVES, Solution

Array = NDArray[np.float64]

MAX_ANCHORS = 1500
MAX_ROWS = 2500  # among which anchors are chosen
CHUNK = 4096  # rows evaluated at a time

CHARTS: dict[str, Callable[[Tensor, int], nn.Module]] = {
    "axis": lambda X, d: AxisScales(X.shape[1], X.shape[1] ** -0.5),
    "linear": lambda X, d: Linear(X.shape[1], d, pca(X, d)),
    "warp": lambda X, d: Warp(X.shape[1], scale=X.shape[1] ** -0.5),
    "mlp": lambda X, d: MLP(X.shape[1], d),
    "pca": lambda X, d: PCAResidual(pca(X, d)),
}
KERNELS: dict[str, Callable[[], Operator]] = {
    "gaussian": lambda: Heat(0.5),  # e^{−r²/2}
    "cauchy": lambda: Cauchy(1.0),  # 1/(1 + r²/2)
    "laplace": lambda: ProductScreened(1.0),  # Π e^{−|δ_j|}
}


class Base(TransformerMixin, BaseEstimator):
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
        X = (X / self._x_unit - self._x_shift) / self._x_scale
        return torch.from_numpy(np.ascontiguousarray(X, dtype=np.float64)).to(self.device)

    def _operator(self) -> Operator:
        return operator_by_name(self.operator if self.operator != "auto" else "heat")

    def _dims(self, X: Tensor, target: Tensor | None) -> int:
        """The number asked for, or the one found: `dimension_` then has the whole answer."""
        if self.n_dims != "auto":
            return self.n_dims or 2
        y = None if target is None else target.double().numpy()
        seed = int(torch.randint(2**31 - 1, (1,)))
        self.dimension_ = dimension(X.numpy(), y, interval=False, random_state=seed)
        answer = self.dimension_.chart if target is None else self.dimension_.task
        assert answer is not None
        if answer.value is None:
            raise ValueError(f"n_dims='auto' has no answer: {answer.note}. Give `n_dims` a number.")
        return max(1, answer.value)

    def _encoder(self, X: Tensor, target: Tensor | None = None) -> nn.Module:
        if isinstance(self.chart, nn.Module):
            return self.chart
        if self.chart not in CHARTS:
            raise ValueError(
                f"unknown chart {self.chart!r}. Choose 'auto', one of {sorted(CHARTS)}, or pass an "
                "nn.Module from (n, D) to (n, d)."
            )
        limit = min(X.shape)
        return CHARTS[self.chart](X, min(self._dims(X, target), limit)).double()

    def _start(self, x: Tensor, n_atoms: int, target: Tensor | None = None) -> IGL:
        """A given chart with anchors tied to rows that spread over where it starts."""
        encoder = self._encoder(x, target)
        with torch.no_grad():
            z = encoder(x)
        return IGL(
            encoder,
            self._operator(),
            Tied(x[farthest_points(z, n_atoms)]),
            n_dims=z.shape[1],
            standardize=self.chart in ("mlp", "pca"),
            energy=True,
        ).train()

    def _descend(
        self,
        model: IGL,
        x: Tensor,
        target: Tensor,
        weight: Tensor | None,
        goal: Tensor | None = None,
    ) -> tuple[IGL, History]:
        """Stage 1 for a given chart; the encoder is fitted to `goal` (n, d) first, if there is one."""
        if self.objective not in OBJECTIVES:
            raise ValueError(
                f"unknown objective {self.objective!r}. Choose one of {sorted(OBJECTIVES)}."
            )
        if goal is not None:
            descend(
                model,
                lambda: (model.encoder(x) - goal).square().mean(),
                list(model.encoder.parameters()),
                max_iter=3 * self.max_iter,
            )
            sources = model.sources
            assert isinstance(sources, Tied)
            sources.x = x[farthest_points(goal, len(sources.x))]
        log_alpha = torch.tensor(math.log(1e-2 * float(model.unit())), dtype=torch.float64)
        log_alpha.requires_grad_()
        objective = OBJECTIVES[self.objective]
        pull = getattr(self, "pull", 0.0) if goal is not None else 0.0

        def loss() -> Tensor:
            value = objective(model.design(x), target, log_alpha.clamp(-30, 10), weight)
            return value + pull * (model.encoder(x) - goal).square().mean() if pull else value

        callbacks = list(self.callbacks or [])
        if self.verbose:
            callbacks.append(Progress(self.max_iter))
        history = descend(
            model,
            loss,
            [*model.parameters(), log_alpha],
            max_iter=self.max_iter,
            callbacks=callbacks,
        )
        return model.settle(x), history

    @torch.no_grad()
    def _store(self, model: IGL, solution: Solution) -> None:
        """What every fitted estimator has."""
        self.model_, self.chart_ = model, model.encoder
        self.gates_ = model.gates().numpy()
        self.source_ = model.source_weights().numpy()
        self.alpha_ = float(solution.alpha) / float(model.unit())
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


class Progress:
    """A bar on the terminal, one tick per iteration."""

    def __init__(self, total: int):
        self.bar = tqdm(total=total, desc="chart", leave=False)

    def __call__(self, epoch: Epoch) -> None:
        self.bar.update()
        self.bar.set_postfix(loss=f"{epoch.loss:.4g}")

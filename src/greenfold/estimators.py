"""scikit-learn estimators: convert, build, train, convert back."""

import math
import warnings
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from tqdm.auto import tqdm

from greenfold.chart import MLP, AxisScales, Linear, PCAResidual, Warp
from greenfold.chart.start import farthest_points, isomap, pca, pivots
from greenfold.green.atoms import Point
from greenfold.green.base import Operator
from greenfold.green.diffusion import Heat
from greenfold.green.operators import Cauchy, ProductScreened
from greenfold.green.operators import operator as operator_by_name
from greenfold.learn.posterior import Posterior
from greenfold.learn.search import SOLVED, Candidate, search
from greenfold.learn.trainer import Callback, Epoch, History, descend
from greenfold.model import IGL, Tied
from greenfold.solve import OBJECTIVES, Logistic, Ridge, Solution, laplace_evidence

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


class _Base(TransformerMixin, BaseEstimator):
    """What regressor, classifier and autoencoder share: units, charts, prediction in chunks."""

    def _units(self, X: Array, Y: Array) -> tuple[Tensor, Tensor]:
        """Numbers of order one, with shifts and scales that a change of units by 2^k leaves exact."""
        self._x_unit = _power_of_two(X)
        X = X / self._x_unit
        self._x_shift = X.mean(0)
        spread = (X - self._x_shift).std(0)
        flat = spread <= 1e-12 * (np.abs(self._x_shift) + np.abs(X).max(0))
        self._x_scale = np.where(flat, 1.0, spread) if self._own_chart() else np.ones(X.shape[1])
        self._y_unit = _power_of_two(Y)
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

    def _encoder(self, X: Tensor) -> nn.Module:
        if isinstance(self.chart, nn.Module):
            return self.chart
        if self.chart not in CHARTS:
            raise ValueError(
                f"unknown chart {self.chart!r}. Choose 'auto', one of {sorted(CHARTS)}, or pass an "
                "nn.Module from (n, D) to (n, d)."
            )
        limit = min(X.shape)
        return CHARTS[self.chart](X, min(self.n_dims or 2, limit)).double()

    def _start(self, x: Tensor, n_atoms: int) -> IGL:
        """A given chart with anchors tied to rows that spread over where it starts."""
        encoder = self._encoder(x)
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
            xi = _chunks(lambda x: self.model_.chart(x), self._inside(X))
        return _finite(xi, "chart coordinates")

    @property
    def _n_features_out(self) -> int:
        return len(self.gates_)

    def _raw(self, X: Array) -> Array:
        with torch.no_grad():
            return _finite(_chunks(lambda x: self.model_(x), self._inside(X)), "values")


def _power_of_two(values: Array) -> float:
    largest = float(np.abs(values).max(initial=0.0))
    return float(2.0 ** np.floor(np.log2(largest))) if largest > 0 else 1.0


def _chunks(f: Callable[[Tensor], Tensor], x: Tensor) -> Array:
    return np.concatenate([f(part).cpu().double().numpy() for part in x.split(CHUNK)])


def _finite(values: Array, what: str) -> Array:
    bad = int((~np.isfinite(values)).any(1).sum())
    if bad:
        raise ValueError(
            f"the {what} of {bad} of {len(values)} rows leave float64 (about 1e308). Either the rows lie "
            "that far from those fitted to, or the data are near that limit: rescale them."
        )
    return values


def _unique_rows(X: Array, Y: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Distinct rows in a fixed order, with their weights added: order and repetition do not matter."""
    keep = weight > 0
    both, index = np.unique(np.hstack([X[keep], Y[keep]]), axis=0, return_inverse=True)
    total = np.bincount(index.ravel(), weights=weight[keep], minlength=len(both)).astype(np.float64)
    return both[:, : X.shape[1]], both[:, X.shape[1] :], total


def _check_rows(X: Array) -> None:
    if len(X) < 2:
        raise ValueError(
            f"fitting needs at least 2 different rows with positive weight, got n_samples={len(X)}."
        )


class IGLRegressor(RegressorMixin, _Base):
    """Regression on a learned chart: one chart, one operator, and the source that explains y.

    Without settings, linear charts found by principal components, pursuit and axis scales compete with
    a smooth, a heavy-tailed and a product kernel by their evidence, and the source is solved for on the
    winner. Give `chart` to train one kind of chart instead.

    Parameters
    ----------
    chart : 'auto', 'axis', 'linear', 'warp', 'mlp', 'pca' or nn.Module
        How x becomes ξ. A module maps (n, D) to (n, d) in float64 and is trained in place.
    n_dims : int, optional
        Chart dimension for charts that do not imply it; 2 by default. `chart='auto'` finds its own.
    operator : str or Operator
        Name in `greenfold.OPERATORS` for a given chart; 'auto' is heat there.
    n_atoms : int, optional
        Anchors, tied to rows of the data spread over the chart; by default all rows up to 1500, or 150
        while a given chart is trained.
    objective : 'evidence', 'loo', 'gcv', 'penalized' or 'log_mse'
        What a given chart descends, with the source solved for at every step.
    alpha : float, 'evidence', 'gcv' or 'loo'
        Strength of the energy penalty in the final solve: a number, or how to choose it.
    mode : 'two-stage' or 'joint'
        How a given chart is trained. Two-stage solves for the source inside every step; joint training,
        for comparison, moves chart and source together down the mean squared residual.
    effort : 'fast' or 'full'
        Budget of the search.
    max_iter : int
        L-BFGS iterations for a given chart.
    device : str
    random_state : int, RandomState or None
    verbose : int
        1 shows a progress bar while a given chart is trained.
    callbacks : iterable of callables, optional
        Functions of `Epoch`, called after each iteration.

    Attributes
    ----------
    model_ : IGL
        The whole path as an `nn.Module`, in internal units.
    chart_ : nn.Module
        The encoder.
    gates_ : ndarray of shape (d,)
    source_ : ndarray of shape (r, c)
        Weights of the source atoms, in source units.
    alpha_ : float
    effective_rank_ : float
        Degrees of freedom the source uses.
    history_ : History or list of Candidate
        How training went, or the candidates the search compared, best first.
    solver_info_ : dict
        Route, jitter, rank and condition of the final solve.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> y = np.sin(X[:, 0] + X[:, 1])
    >>> bool(IGLRegressor(random_state=0).fit(X, y).score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        *,
        chart: str | nn.Module = "auto",
        n_dims: int | None = None,
        operator: str | Operator = "auto",
        n_atoms: int | None = None,
        objective: str = "evidence",
        alpha: float | str = "evidence",
        mode: str = "two-stage",
        effort: str = "fast",
        max_iter: int = 100,
        device: str = "cpu",
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Iterable[Callback] | None = None,
    ):
        self.chart = chart
        self.n_dims = n_dims
        self.operator = operator
        self.n_atoms = n_atoms
        self.objective = objective
        self.alpha = alpha
        self.mode = mode
        self.effort = effort
        self.max_iter = max_iter
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "IGLRegressor":
        """Find the chart and solve for the source.

        Parameters
        ----------
        X : array-like of shape (n, D)
        y : array-like of shape (n,) or (n, c)
        sample_weight : array-like of shape (n,), optional
            How often each row counts. Rows of weight zero are as good as absent.
        """
        X, y = validate_data(
            self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2
        )
        y = np.asarray(y, dtype=np.float64)
        self._flat = y.ndim == 1
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        X, Y, weight = _unique_rows(X, y.reshape(len(X), -1), weight)
        _check_rows(X)
        x, target = self._units(X, Y)
        w = None if np.all(weight == 1) else torch.from_numpy(weight)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._learn(x, target, w, seed)
        return self

    def _learn(self, x: Tensor, target: Tensor, weight: Tensor | None, seed: int) -> None:
        if self.mode not in ("two-stage", "joint"):
            raise ValueError(f"`mode` must be 'two-stage' or 'joint', got {self.mode!r}.")
        if self.mode == "joint" and not self._own_chart():
            raise ValueError("joint training needs a given chart, such as chart='linear' or 'mlp'.")
        alpha: float | str = Ridge(
            self.alpha
        ).alpha  # refused here, before the work, if it is no strength
        if not self._own_chart():
            with threadpool_limits(1):  # matrices of a few hundred rows: threads only wait
                found = search(x.numpy(), target.numpy(), np.random.default_rng(seed), self.effort)
            self.history_: Any = found
            self.n_iter_ = 1
            model = _tied(found[0], x, self.n_atoms or MAX_ANCHORS)
            if alpha == "evidence":
                alpha = found[0].noise  # the search chose it by evidence
        else:
            start = self._start(x, self.n_atoms or 150)
            if self.mode == "joint":
                model, self.history_ = self._joint(start, x, target, weight)
            else:
                model, self.history_ = self._descend(start, x, target, weight)
            self.n_iter_ = max(1, len(self.history_.loss))
        unit = float(model.unit())
        solver = Ridge(alpha) if isinstance(alpha, str) else Ridge(alpha * unit, relative=False)
        with torch.no_grad():
            joint = model.w  # joint training leaves its own
            solution = model.solve(x, target, solver, weight)
            self._posterior = Posterior.of(model, x, target, solution, weight)
            model.w = solution.w if joint is None else joint
        self._store(model, solution)
        self.effective_rank_, loo = self._posterior.rank, self._posterior.loo_r2
        if not self._own_chart() and self.history_[0].name != "constant":
            evidence = self.history_[0].laplace
            if evidence > SOLVED and loo < 0.9:
                warnings.warn(
                    f"the search may not have found the chart: its evidence is {evidence:.2f} per row "
                    f"(solved problems are below {SOLVED}) and the leave-one-out R² is {loo:.2f}. The "
                    "target may be noise, or need more rows; effort='full' searches wider.",
                    ConvergenceWarning,
                    stacklevel=3,
                )

    def _joint(
        self, model: IGL, x: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[IGL, History]:
        """Chart and source together, by gradient: what two-stage training is measured against."""
        columns = model.design(x).Phi.shape[1]
        w = torch.zeros(columns, target.shape[1], dtype=torch.float64, requires_grad=True)
        share = torch.ones(len(x), 1, dtype=torch.float64) if weight is None else weight[:, None]

        def loss() -> Tensor:
            return (share * (model.design(x).Phi @ w - target).square()).sum() / share.sum()

        callbacks = list(self.callbacks or [])
        parameters = [*model.parameters(), w]
        history = descend(model, loss, parameters, max_iter=self.max_iter, callbacks=callbacks)
        model.settle(x)
        model.w = w.detach()
        return model, history

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """u(x), with the standard deviation of a new observation on request."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        u = (self._raw(X) * self._y_scale + self._y_shift) * self._y_unit
        u = _finite(u, "predictions")
        u = u[:, 0] if self._flat else u
        if not return_std:
            return u
        with torch.no_grad():
            std = _chunks(lambda x: self._posterior.std(self.model_, x), self._inside(X))
        std = _finite(std * self._y_scale * self._y_unit, "standard deviations")
        return u, std[:, 0] if self._flat else std

    def predict_interval(self, X: Any, alpha: float = 0.05) -> tuple[Array, Array]:
        """Lower and upper ends that cover a new observation with probability 1 − alpha.

        Conformal: the (1 − alpha) quantile of the leave-one-out residuals around the prediction, which
        holds whatever the noise is like, as long as rows are exchangeable.
        """
        if not 0 < alpha < 1:
            raise ValueError(f"`alpha` must lie between 0 and 1, got {alpha}.")
        u = np.asarray(self.predict(X))
        errors = np.sort(self._posterior.loo_errors, axis=0) * self._y_scale * self._y_unit
        n = len(errors)
        k = math.ceil((n + 1) * (1 - alpha))
        if k > n:
            warnings.warn(
                f"{n} rows cannot tell a {1 - alpha:.0%} interval; the largest residual is used.",
                stacklevel=2,
            )
        half = errors[min(k, n) - 1]
        half = half[0] if self._flat else half
        for end in u - half, u + half:
            _finite(end.reshape(len(u), -1), "ends of the intervals")
        return u - half, u + half

    def refit_source(self, X: Any, y: Any, sample_weight: Any = None) -> "IGLRegressor":
        """A new target on the same chart: stage 2 only, in closed form. Returns a new estimator.

        The chart and its anchors stay; twenty rows and a millisecond are enough where the chart fits.
        """
        check_is_fitted(self)
        X, y = validate_data(
            self, X, y, reset=False, dtype=np.float64, multi_output=True, y_numeric=True
        )
        y = np.asarray(y, dtype=np.float64)
        other = copy(self)
        other._flat = y.ndim == 1
        Y = y.reshape(len(X), -1)
        other._y_unit = _power_of_two(Y)
        Y = Y / other._y_unit
        other._y_shift, other._y_scale = Y.mean(0), Y.std(0)
        other._y_scale = np.where(other._y_scale > 0, other._y_scale, 1.0)
        target = torch.from_numpy((Y - other._y_shift) / other._y_scale)
        weight = None
        if sample_weight is not None:
            weight = torch.from_numpy(_check_sample_weight(sample_weight, X, dtype=np.float64))
        x = self._inside(X)
        other.model_ = copy(self.model_)
        with torch.no_grad():
            solution = other.model_.solve(x, target, Ridge("evidence"), weight)
            other._posterior = Posterior.of(other.model_, x, target, solution, weight)
        other._store(other.model_, solution)
        other.effective_rank_ = other._posterior.rank
        return other

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


class IGLClassifier(ClassifierMixin, _Base):
    """Classification on a learned chart, with probabilities that mean what they say.

    The chart and kernel are those that explain the class indicators best (see `IGLRegressor`); the source
    is then solved for cross-entropy, by Newton's method run to convergence inside every step, and its
    strength and the chart's scale are refined by the Laplace approximation of the evidence.

    Parameters
    ----------
    chart, n_dims, operator
        See `IGLRegressor`; a given chart is trained by the Laplace evidence of its classes.
    n_atoms : int, optional
        Anchors; by default as many as the kernel needs, up to 200, or 1500 over the number of classes.
    loss : 'cross_entropy' or 'least_squares'
        What the source is solved for. Least squares on class indicators is faster and not calibrated.
    effort, device, random_state
        See `IGLRegressor`.
    max_iter : int
        Iterations of the refinement.

    Attributes
    ----------
    classes_ : ndarray
    model_, chart_, gates_, source_, history_, solver_info_
        See `IGLRegressor`.
    alpha_ : float
        Strength of the energy penalty.
    """

    def __init__(
        self,
        *,
        chart: str | nn.Module = "auto",
        n_dims: int | None = None,
        operator: str | Operator = "auto",
        n_atoms: int | None = None,
        loss: str = "cross_entropy",
        effort: str = "fast",
        max_iter: int = 20,
        device: str = "cpu",
        random_state: Any = None,
    ):
        self.chart = chart
        self.n_dims = n_dims
        self.operator = operator
        self.n_atoms = n_atoms
        self.loss = loss
        self.effort = effort
        self.max_iter = max_iter
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "IGLClassifier":
        """Find the chart and solve for the source of every class."""
        if self.loss not in ("cross_entropy", "least_squares"):
            raise ValueError(
                f"`loss` must be 'cross_entropy' or 'least_squares', got {self.loss!r}."
            )
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
        X, Y, weight = _unique_rows(X, onehot, weight)
        x, centered = self._units(X, Y)
        w = None if np.all(weight == 1) else torch.from_numpy(weight)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        limit = self.n_atoms or max(20, min(200, MAX_ANCHORS // Y.shape[1]))
        self.history_: Any = []
        self.n_iter_ = 1
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if self._own_chart():
                model = self._start(x, limit)
            else:
                indicators = centered if Y.shape[1] > 2 else centered[:, :1]
                with threadpool_limits(1):
                    rng = np.random.default_rng(seed)
                    self.history_ = search(x.numpy(), indicators.numpy(), rng, self.effort)
                model = _tied(self.history_[0], x, limit)
        target = torch.from_numpy(Y)
        if self.loss == "cross_entropy":
            solver: Any = Logistic(self._refine(model, x, target, w), relative=False)
        else:
            solver = Ridge("evidence")
        with torch.no_grad():
            solution = model.solve(x, target, solver, w)
        self._store(model, solution)
        return self

    def _refine(self, model: IGL, x: Tensor, Y: Tensor, weight: Tensor | None) -> float:
        """The strength α, and the chart if it is small, at the best Laplace evidence."""
        log_alpha = torch.tensor(math.log(float(model.unit())) - 3, dtype=torch.float64)
        log_alpha.requires_grad_()
        size = sum(p.numel() for p in model.encoder.parameters())
        small = self._own_chart() or size <= 50
        parameters = [log_alpha, *(model.encoder.parameters() if small else ())]

        def loss() -> Tensor:
            return laplace_evidence(model.design(x), Y, log_alpha.clamp(-25, 10), weight)

        history = descend(model, loss, parameters, max_iter=self.max_iter, tol=1e-6)
        model.settle(x)
        self.n_iter_ = max(1, len(history.loss))
        return float(log_alpha.detach().clamp(-25, 10).exp())

    def decision_function(self, X: Any) -> Array:
        """Log-odds for two classes, logits (n, c) for more."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        u = self._raw(X)
        return u[:, 1] - u[:, 0] if len(self.classes_) == 2 else u

    def predict_proba(self, X: Any) -> Array:
        """Probabilities (n, c)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return softmax(self._raw(X), axis=1)

    def predict(self, X: Any) -> Any:
        """The most probable class."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]


class IGLAutoencoder(_Base):
    """A chart that rebuilds the data: x → ξ → x, with the source solved for at every step.

    Parameters
    ----------
    n_dims : int
        Chart dimension.
    chart : 'mlp', 'pca', 'linear', 'axis', 'warp' or nn.Module
        The encoder.
    start : 'isomap', 'pca' or None
        What the encoder is fitted to first. Isomap unrolls what is rolled up.
    pull : float
        Weight of the squared distance to that start, kept during training.
    operator, n_atoms, objective, max_iter, device, random_state, verbose, callbacks
        See `IGLRegressor`.

    Attributes
    ----------
    model_, chart_, gates_, source_, alpha_, history_, solver_info_
        See `IGLRegressor`.
    """

    def __init__(
        self,
        n_dims: int = 2,
        *,
        chart: str | nn.Module = "mlp",
        start: str | None = "isomap",
        pull: float = 0.0,
        operator: str | Operator = "auto",
        n_atoms: int | None = None,
        objective: str = "evidence",
        max_iter: int = 100,
        device: str = "cpu",
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Iterable[Callback] | None = None,
    ):
        self.n_dims = n_dims
        self.chart = chart
        self.start = start
        self.pull = pull
        self.operator = operator
        self.n_atoms = n_atoms
        self.objective = objective
        self.max_iter = max_iter
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def fit(self, X: Any, y: Any = None) -> "IGLAutoencoder":
        """Learn the chart; `y` is ignored."""
        if self.start not in (None, "pca", "isomap"):
            raise ValueError(f"`start` must be 'isomap', 'pca' or None, got {self.start!r}.")
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        rows, _, _ = _unique_rows(X, X[:, :0], np.ones(len(X)))
        _check_rows(rows)
        x, _ = self._units(rows, rows)
        target = x.clone()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self._start(x, self.n_atoms or 150)
            goal = self._goal(x, len(model.mean))
            model, self.history_ = self._descend(model, x, target, None, goal)
        self.n_iter_ = max(1, len(self.history_.loss))
        with torch.no_grad():
            solution = model.solve(x, target, Ridge("evidence"))
        self._store(model, solution)
        return self

    def _goal(self, x: Tensor, n_dims: int) -> Tensor | None:
        """Coordinates (n, d) for the encoder to begin with."""
        if self.start is None or n_dims > min(len(x) - 1, x.shape[1]):
            return None
        if self.start == "isomap" and len(x) > 10:
            with warnings.catch_warnings():  # of graphs in pieces, which are then joined
                warnings.simplefilter("ignore")
                return isomap(x, n_dims)
        return x @ pca(x, n_dims).T

    def inverse_transform(self, Z: Any) -> Array:
        """Rows rebuilt from chart coordinates."""
        check_is_fitted(self)
        Z = check_array(Z, dtype=np.float64)
        if Z.shape[1] != len(self.gates_):
            raise ValueError(
                f"Z has {Z.shape[1]} coordinates, but the chart has {len(self.gates_)}: pass what "
                "`transform` returns."
            )
        with torch.no_grad():
            x = _chunks(lambda xi: self.model_.decode(xi), torch.from_numpy(Z))
        return _finite((x * self._x_scale + self._x_shift) * self._x_unit, "rebuilt values")

    def predict(self, X: Any) -> Array:
        """The rows as the chart rebuilds them."""
        return self.inverse_transform(self.transform(X))

    def score(self, X: Any, y: Any = None) -> float:
        """R² of the reconstruction, over all columns together."""
        rebuilt = self.predict(X)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        unit = _power_of_two(X)
        X, rebuilt = X / unit, rebuilt / unit
        total, error = np.square(X - X.mean(0)).sum(), np.square(X - rebuilt).sum()
        _finite(np.atleast_2d(error), "squared errors")
        return float(1 - error / total) if total > 0 else 1.0


def _tied(candidate: Candidate, x: Tensor, n_anchors: int) -> IGL:
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

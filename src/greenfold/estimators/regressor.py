"""Regression on a learned chart."""

import math
import warnings
from collections.abc import Iterable
from copy import copy
from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from greenfold.estimators.base import (
    MAX_ANCHORS,
    Array,
    Base,
    check_rows,
    chunks,
    finite,
    power_of_two,
    tied,
    unique_rows,
)
from greenfold.green.base import Operator
from greenfold.learn.posterior import Posterior
from greenfold.learn.search import SOLVED, search
from greenfold.learn.trainer import Callback, History, descend
from greenfold.model import IGL
from greenfold.solve import Ridge


class IGLRegressor(RegressorMixin, Base):
    """Regression on a learned chart: one chart, one operator, and the source that explains y.

    Without settings, linear charts found by principal components, pursuit and axis scales compete with
    a smooth, a heavy-tailed and a product kernel by their evidence, and the source is solved for on the
    winner. Give `chart` to train one kind of chart instead.

    Parameters
    ----------
    chart : 'auto', 'axis', 'linear', 'warp', 'mlp', 'pca' or nn.Module
        How x becomes ξ. A module maps (n, D) to (n, d) in float64 and is trained in place.
    n_dims : int or 'auto', optional
        Chart dimension for charts that do not imply it; 2 by default. 'auto' takes the number of linear
        directions that `greenfold.dimension` says y needs, and keeps its report as `dimension_`.
        `chart='auto'` finds its own.
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
        n_dims: int | str | None = None,
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
        X, Y, weight = unique_rows(X, y.reshape(len(X), -1), weight)
        check_rows(X)
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
            model = tied(found[0], x, self.n_atoms or MAX_ANCHORS)
            if alpha == "evidence":
                alpha = found[0].noise  # the search chose it by evidence
        else:
            start = self._start(x, self.n_atoms or 150, target)
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
        u = finite(u, "predictions")
        u = u[:, 0] if self._flat else u
        if not return_std:
            return u
        with torch.no_grad():
            std = chunks(lambda x: self._posterior.std(self.model_, x), self._inside(X))
        std = finite(std * self._y_scale * self._y_unit, "standard deviations")
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
            finite(end.reshape(len(u), -1), "ends of the intervals")
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
        other._y_unit = power_of_two(Y)
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

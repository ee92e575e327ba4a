"""Classification on a learned chart."""

import math
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from greenfold.estimators.base import (
    MAX_ANCHORS,
    Array,
    Base,
    tied,
    unique_rows,
)
from greenfold.green.base import Operator
from greenfold.learn.search import search
from greenfold.learn.trainer import descend
from greenfold.model import IGL
from greenfold.solve import Logistic, Ridge, laplace_evidence


class IGLClassifier(ClassifierMixin, Base):
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
        n_dims: int | str | None = None,
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
        X, Y, weight = unique_rows(X, onehot, weight)
        x, centered = self._units(X, Y)
        w = None if np.all(weight == 1) else torch.from_numpy(weight)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        limit = self.n_atoms or max(20, min(200, MAX_ANCHORS // Y.shape[1]))
        self.history_: Any = []
        self.n_iter_ = 1
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if self._own_chart():
                model = self._start(x, limit, centered)
            else:
                indicators = centered if Y.shape[1] > 2 else centered[:, :1]
                with threadpool_limits(1):
                    rng = np.random.default_rng(seed)
                    self.history_ = search(x.numpy(), indicators.numpy(), rng, self.effort)
                model = tied(self.history_[0], x, limit)
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

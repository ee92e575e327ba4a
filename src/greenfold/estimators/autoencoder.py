"""A chart that rebuilds the data."""

import time
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted
from torch import nn

from greenfold.estimators.base import Base, check_rows
from greenfold.estimators.options import check
from greenfold.green.base import Operator
from greenfold.learn.data import Rows
from greenfold.learn.fit import solution_of
from greenfold.learn.given import Given
from greenfold.learn.posterior import Posterior
from greenfold.learn.predictor import Predictor
from greenfold.learn.units import Array, Units, chunks, finite, power_of_two
from greenfold.spec import Chart, Source, Training
from greenfold.state import seed_of


class IGLAutoencoder(Base):
    """A chart that rebuilds the data: x → ξ → x, with the source solved for at every step.

    Parameters
    ----------
    n_dims : int or 'auto'
        Chart dimension; 'auto' asks `greenfold.dimension`, and keeps the report as `dimension_`.
    chart : 'mlp', 'pca', 'linear', 'axis', 'warp', 'conv', nn.Module or Chart
        The encoder. It is fitted to Isomap's coordinates first, unless `Chart` says otherwise.
    operator, source, training, n_jobs, random_state, verbose
        See `IGLRegressor`.

    Attributes
    ----------
    model_, chart_, gates_, source_, alpha_, history_, solver_info_
        See `IGLRegressor`.
    standings_ : list of Standing
        See `IGLRegressor`; the score is that of the rebuilt columns, in their standard deviations.

    Examples
    --------
    >>> import numpy as np
    >>> from greenfold import IGLAutoencoder
    >>> t = np.linspace(0, 3, 80)
    >>> X = np.c_[np.cos(t), np.sin(t), t]  # a curve in space
    >>> model = IGLAutoencoder(n_dims=1, random_state=0).fit(X)
    >>> model.transform(X).shape, bool(model.score(X) > 0.9)
    ((80, 1), True)
    >>> bool(np.allclose(model.inverse_transform(model.transform(X)), model.predict(X)))
    True
    """

    def __init__(
        self,
        n_dims: int | str = 2,
        *,
        chart: str | nn.Module | Chart = "mlp",
        operator: str | Operator = "auto",
        source: Source | None = None,
        training: Training | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.n_dims = n_dims
        self.chart = chart
        self.operator = operator
        self.source = source
        self.training = training
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> "IGLAutoencoder":
        """Learn the chart; `y` is ignored.

        Parameters
        ----------
        X : array-like of shape (n, D), or table
            Rows.
        y : None
            Ignored.

        Returns
        -------
        IGLAutoencoder
            Itself.
        """
        check(self)
        X = self._validated(X, ensure_min_samples=2)
        X = np.unique(X, axis=0)
        check_rows(X)
        x, _ = self._units(X, X)
        self.predictor_ = Predictor(Units(self.units_.x, self.units_.x))
        self._remember(X, X[:, :0], np.ones(len(X)))
        rows = Rows(x, x.clone())
        begin = time.perf_counter()
        generator = torch.Generator().manual_seed(seed_of(self.random_state))
        s = self._s
        given = Given(s)
        model, self.history_, _ = given.train(rows, s.n_atoms or 150, generator)
        self._keep_dimension(given)
        self.n_iter_ = max(1, len(self.history_.loss))
        if given.prunes:
            given.prune(model, rows)
        with torch.no_grad():
            solution = solution_of(model, rows, s.alpha, asked=not isinstance(s.alpha, str))
            left = Posterior.of(model, *rows[:2], solution, None).loo_errors
        self._store(model, solution)
        error = float(np.sqrt(np.square(left).mean()))
        self._alone(error, len(x), time.perf_counter() - begin)
        return self

    def inverse_transform(self, Z: Any) -> Array:
        """Rows rebuilt from chart coordinates; of a table the columns `encoded_names_`.

        Parameters
        ----------
        Z : array-like of shape (n, d)
            Chart coordinates.

        Returns
        -------
        ndarray of shape (n, D)
        """
        check_is_fitted(self)
        Z = check_array(Z, dtype=np.float64)
        if Z.shape[1] != len(self.gates_):
            raise ValueError(
                f"Z has {Z.shape[1]} coordinates, but the chart has {len(self.gates_)}: pass what "
                "`transform` returns."
            )
        with torch.no_grad():
            x = chunks(lambda xi: self.model_.decode(xi), torch.from_numpy(Z))
        return self.units_.values(x, "rebuilt values")

    def predict(self, X: Any) -> Array:
        """The rows as the chart rebuilds them.

        Parameters
        ----------
        X : array-like of shape (n, D), or table
            Rows.

        Returns
        -------
        ndarray of shape (n, D)
        """
        return self.inverse_transform(self.transform(X))

    def score(self, X: Any, y: Any = None) -> float:
        """R² of the reconstruction, over all columns together.

        Parameters
        ----------
        X : array-like of shape (n, D), or table
            Rows.
        y : None
            Ignored.

        Returns
        -------
        float
        """
        rebuilt, X = self.predict(X), self.encode(X)
        unit = power_of_two(X)
        X, rebuilt = X / unit, rebuilt / unit
        total, error = np.square(X - X.mean(0)).sum(), np.square(X - rebuilt).sum()
        finite(np.atleast_2d(error), "squared errors")
        return float(1 - error / total) if total > 0 else 1.0

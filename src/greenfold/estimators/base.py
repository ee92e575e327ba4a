"""What the estimators share: units, charts, prediction in chunks."""

import hashlib
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import _safe_indexing, check_array, check_X_y
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor, nn

from greenfold.channels import positions_in
from greenfold.estimators.labels import Mask
from greenfold.learn.counts import counted
from greenfold.learn.data import SAMPLE, Data, Folds
from greenfold.learn.decomposed import Told, effects_of
from greenfold.learn.effects import Effects
from greenfold.learn.given import Given
from greenfold.learn.loadings import loadings
from greenfold.learn.marginals import Marginals
from greenfold.learn.posterior import Posterior
from greenfold.learn.predictor import Member, Predictor
from greenfold.learn.principal import channels
from greenfold.learn.standings import Standing, chart_name, named
from greenfold.learn.units import Array, Scaling, Units, evenly
from greenfold.learn.wide import wide
from greenfold.model import IGL
from greenfold.solve import Solution
from greenfold.spec import SPECS, Settings, settings_of, spec_of
from greenfold.table import Table, is_table, listed


class Estimator(BaseEstimator):
    """What is done with rows before and after a fit."""

    _weight_unit = 1.0  # given weight that counts 1
    cv: Any = None
    predictor_: Predictor  # all that predictions, reports and exports are made by
    target_names_: list[str] | None
    table_: Table | None = None  # how columns of a table become numbers; None for arrays
    marginals_: Marginals | None
    _others: Array | None = None  # rows without labels, while a fit is made
    n_unlabeled_ = 0
    _effects: tuple[Predictor, list[Effects]] | None = None  # and what they are the effects of

    @property
    def units_(self) -> Units:
        return self.predictor_.units

    def _units(
        self, X: Array, Y: Array, flat: bool = False, power: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """Rows and targets as the model sees them; `flat` targets were given as (n,)."""
        x = self._input_units(X)
        self.predictor_ = Predictor(Units(x, Scaling.of_targets(Y, power), flat))
        return self._inside(X), torch.from_numpy(self.units_.y.inside(Y))

    def _part(
        self, X: Any, known: Mask, sample_weight: Any, groups: Any
    ) -> tuple[Any, Array | None, Array | None]:
        """Rows with labels, with their weights and groups; the others go to `_others`, encoded."""
        encoded = self._validated(X, sample_weight=sample_weight)
        if len(encoded) != len(known):
            raise ValueError(f"X has {len(encoded)} rows and y has {len(known)}.")
        self._others = encoded[~known]
        rest = (None if v is None else np.asarray(v)[known] for v in (sample_weight, groups))
        return (_safe_indexing(X, np.flatnonzero(known)), *rest)

    def _count(
        self, X: Array, Y: Array, weight: Array, folds: Folds = None
    ) -> tuple[Array, Array, Array, Folds]:
        """Copies joined, weights of mean 1: the one place where what is given becomes what counts.

        Copies in different folds stay apart.
        """
        if isinstance(folds, np.ndarray):
            X = np.hstack([X, folds[:, None]])
        X, Y, weight, self._weight_unit = counted(X, Y, weight)
        if isinstance(folds, np.ndarray):
            X, folds = X[:, :-1], X[:, -1].astype(np.int64)
        check_rows(X)
        return X, Y, weight, folds

    def _remember(self, X: Array, Y: Array, weight: Array) -> None:
        """The hash of the rows, and some of them for `report`; those are not part of model files."""
        digest = hashlib.sha256()
        for part in (X, Y, weight):  # in a fixed order: that of the table is no matter
            digest.update(np.ascontiguousarray(part, dtype="<f8").tobytes())
        self.data_sha256_ = digest.hexdigest()
        keep = evenly(len(X), SAMPLE)
        self.sample_ = (X[keep], Y[keep], weight[keep])
        self.fitted_to_ = (len(X), float(weight.sum()))
        self.marginals_ = Marginals.of(self.units_.x.inside(X), weight)

    def report(
        self,
        path: str | os.PathLike[str],
        X: Any = None,
        y: Any = None,
        *,
        names: list[str] | None = None,
        image_shape: tuple[int, int] | bool | None = None,
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
        image_shape : (int, int) or False, optional
            Height and width, if rows are images: pointing at one then shows it. Squares without names
            whose neighbors are alike are taken for images; False says that they are none.

        Returns
        -------
        Path
            Of the page.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> import numpy as np
        >>> from greenfold import IGLRegressor, Source
        >>> X = np.random.default_rng(0).normal(size=(40, 3))
        >>> quick = IGLRegressor("linear", n_dims=1, source=Source(n_atoms=10), random_state=0)
        >>> model = quick.fit(X, X[:, 0])
        >>> with TemporaryDirectory() as folder:
        ...     model.report(f"{folder}/report.html", X, X[:, 0]).name
        'report.html'
        """
        from greenfold.report import write

        return write(self, path, X, y, names=names, image_shape=image_shape)

    def _effects_of(self, told: Told) -> Effects | list[Effects]:
        """Kept until something else is learned; one for each output where these are several."""
        check_is_fitted(self)
        known = self._effects
        if known is None or known[0] is not self.predictor_:
            names = self.encoded_names_ or [f"x{j}" for j in range(self.n_features_in_)]
            marginals = getattr(self, "marginals_", None)
            known = self.predictor_, effects_of(self.predictor_, marginals, names, told)
            self._effects = known
        found = known[1]
        return found[0] if len(found) == 1 else found

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "predictor_") and bool(self.predictor_.members)

    @property
    def _s(self) -> Settings:
        """All options, flat."""
        return settings_of(self)

    def _own_units(self) -> bool:
        """Is every input in its own unit? Charts that are searched for are in that of the data."""
        return self._s.given

    def _input_units(self, X: Array) -> Scaling:
        """Of the columns, of all rows; what are places for the operator stays as it is."""
        if self._s.as_given:
            return Scaling.none(X.shape[1])
        X = X if self._others is None else np.vstack([X, self._others])
        return Scaling.of_inputs(X, self._own_units())

    def set_params(self, **params: Any) -> Any:
        """`chart__pull` and its like reach the `Chart`, `Source` or `Training` that a name stands for."""
        nested = {name.partition("__")[0] for name in params if "__" in name}
        for name in nested & set(SPECS) & set(self.get_params(deep=False)):
            value = params.pop(name, getattr(self, name))
            setattr(self, name, spec_of(value, name))
        return super().set_params(**params)

    def _take_others(self) -> Tensor | None:
        """Rows without labels as the model sees them; they are not kept."""
        others, self.n_unlabeled_ = self._others, 0
        self.__dict__.pop("_others", None)
        if others is None:
            return None
        self.n_unlabeled_ = len(others)
        return self._inside(others)

    def _inside(self, X: Array) -> Tensor:
        return self.predictor_.inside(X)

    def encode(self, X: Any) -> Array:
        """Numbers (n, p) that the model computes with: of a table the columns `encoded_names_`.

        Categories are one-hot, missing numbers are the median of the rows fitted to. Arrays stay as
        they are.

        Parameters
        ----------
        X : array-like of shape (n, D), or table
            Rows.

        Returns
        -------
        ndarray of shape (n, p)

        Examples
        --------
        >>> import numpy as np
        >>> from greenfold import IGLRegressor, Source
        >>> X = np.random.default_rng(0).normal(size=(40, 3))
        >>> quick = IGLRegressor("linear", n_dims=1, source=Source(n_atoms=10), random_state=0)
        >>> model = quick.fit(X, X[:, 0])
        >>> model.encode(X).shape
        (40, 3)
        """
        check_is_fitted(self)
        return self._validated(X, reset=False)

    @property
    def encoded_names_(self) -> list[str] | None:
        """Of the columns that `encode` makes; None if nothing has a name."""
        if self.table_ is not None:
            return self.table_.names
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]

    def _validated(
        self,
        X: Any,
        y: Any = "no_validation",
        sample_weight: Any = None,
        reset: bool = True,
        **checks: Any,
    ) -> Any:
        """Numbers (n, p), and y if it is given: the one place where rows from outside come in.

        Names and number of columns are those of X as it is given.
        """
        if not reset and isinstance(y, str) and not checks and self._plain(X):
            return X
        if reset:
            self.table_ = None
        if not is_table(X) or not (reset or self.table_):
            if self.table_ is not None and not self.table_.as_it_is:
                raise ValueError(
                    f"X is a {type(X).__name__}, and the model was fitted to a table with "
                    "columns that are no numbers. Give a table (pandas, polars, pyarrow) with the "
                    f"columns {listed([column.name for column in self.table_.columns])}."
                )
            try:
                return validate_data(self, X, y, reset=reset, dtype=np.float64, **checks)
            except ValueError as error:
                if "Input X contains NaN" not in str(error):
                    raise
                fit = "Give" if reset else "This model was fitted to an array; fit it to"
                raise ValueError(
                    f"Input X contains NaN, which arrays may not. {fit} a table, such as "
                    "pandas.DataFrame(X): gaps in it are filled, and columns tell where they were."
                ) from None
        validate_data(self, X, y, reset=reset, skip_check_array=True)
        if reset:
            weight = None
            if sample_weight is not None:
                weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
            self.table_ = Table.learn(X, weight, strict=True)
        assert self.table_ is not None
        if self.table_.as_it_is:  # columns by themselves would take long where they are thousands
            X = check_array(X, dtype=np.float64, ensure_all_finite="allow-nan", estimator=self)
            numbers = self.table_.filled(X)
        else:
            numbers = self.table_.encode(X)
        if isinstance(y, str):
            return check_array(numbers, input_name="X", estimator=self, **checks)
        return check_X_y(numbers, y, estimator=self, **checks)

    @np.errstate(all="ignore")  # infinities of both signs have no sum
    def _plain(self, X: Any) -> bool:
        """Is this an array as it has to be? To look is far quicker than `validate_data`."""
        return (
            type(X) is np.ndarray
            and X.dtype == np.float64
            and X.ndim == 2
            and X.shape == (len(X) or 1, getattr(self, "n_features_in_", None))
            and self.table_ is None
            and not hasattr(self, "feature_names_in_")
            and math.isfinite(X.sum())
        )

    def _take_table(self, table: Table | None, names: list[str]) -> None:
        """Rows come from columns of these names, though those fitted to were encoded already."""
        self.table_, self.n_features_in_ = table, len(names)
        self.feature_names_in_ = np.array(names, dtype=object)

    def _keep_channels(self, data: Data) -> None:
        """Where columns are, if they come in an order: as given, as their names say, or 0, 1, 2, …"""
        self.channels_: Array | None = None
        if not isinstance(self._s.channels, bool | None):
            self.channels_ = np.asarray(self._s.channels, dtype=np.float64)
        elif wide(data) and channels(data):
            named = positions_in(self.encoded_names_)
            self.channels_ = np.arange(len(data.sd), dtype=np.float64) if named is None else named


class Base(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """What regressor, classifier and autoencoder share: charts, prediction in chunks."""

    @torch.no_grad()
    def _store(self, model: IGL, solution: Solution, posterior: Posterior | None = None) -> None:
        """What every fitted estimator has."""
        alpha = float(solution.alpha)
        self.predictor_ = replace(self.predictor_, members=(Member(1.0, model, posterior, alpha),))
        self.alpha_ = (
            alpha / float(model.unit()) if model.energy else solution.info["alpha_relative"]
        )
        self.solver_info_ = {**solution.info, "condition": float(solution.condition)}

    @property
    def _member(self) -> Member:
        for member in self.predictor_.members:
            return member
        raise AttributeError("nothing is learned yet: call `fit` first.")

    @property
    def model_(self) -> IGL:
        return self._member.model

    @property
    def absolute_alpha_(self) -> float | None:
        return self._member.alpha

    @property
    def chart_(self) -> nn.Module:
        return self.model_.encoder

    @property
    @torch.no_grad()
    def gates_(self) -> Array:
        return self.model_.gates().numpy()

    @property
    @torch.no_grad()
    def source_(self) -> Array:
        return self.model_.source_weights().numpy()

    def _keep_dimension(self, given: Given) -> None:
        """The whole answer, if the number of coordinates was asked for."""
        if given.dimension is not None:
            self.dimension_ = given.dimension

    def _alone(self, score: float, rows: int, seconds: float) -> None:
        """Standings of a chart that nothing competed with."""
        name = named(chart_name(self.model_.encoder), self.model_.operator)
        self.standings_ = [Standing(name, score, rows, seconds, self._n_features_out, 1.0)]

    def transform(self, X: Any) -> Array:
        """Chart coordinates ξ of the rows, shape (n, d).

        Parameters
        ----------
        X : array-like of shape (n, D), or table
            Rows.

        Returns
        -------
        ndarray of shape (n, d)
        """
        X = self.encode(X)
        return self.predictor_.xi(self._inside(X))

    @property
    def loadings_(self) -> Array:
        """What a coordinate is made of: ∂ξ_k/∂X_j (d, D), in the units of X.

        Of a linear chart these are its rows, through whatever units and filters came before; of others
        the mean over rows that hold its sources, or the value at the mean row if none do.
        """
        check_is_fitted(self)
        return loadings(self.model_, self.units_.x)

    @property
    def _n_features_out(self) -> int:
        return len(self.model_.mean)


class Stacked(Estimator):
    """What stacks have in place of one chart."""

    @property
    def models_(self) -> dict[str, IGL]:
        return {member.name: member.model for member in self.predictor_.members}

    @property
    def weights_(self) -> dict[str, float]:
        return {member.name: member.weight for member in self.predictor_.members}


def check_rows(X: Array) -> None:
    if len(X) < 2:
        raise ValueError(
            f"fitting needs at least 2 different rows with positive weight, got n_samples={len(X)}."
        )

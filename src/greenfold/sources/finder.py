"""Sources from readings, as an estimator."""

import copy
import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import t as student
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from greenfold.green import Transport
from greenfold.sources.asked import (
    check_options,
    check_walls,
    learnable,
    numbers_of,
    region_of,
)
from greenfold.sources.estimates import Estimate, Few, Spread
from greenfold.sources.readings import Readings
from greenfold.sources.responses import columns, mass, source_atoms
from greenfold.sources.smooth import fit_field
from greenfold.sources.sparse import (
    Problem,
    find,
    physics,
    residual_and_slopes,
    with_physics,
)
from greenfold.sources.uncertainty import Check, Suggestion, Value, moran, next_readings

Array = NDArray[np.float64]

MET = 1e-5  # of the size of readings: residuals below are left by rounding and shrinkage
TARGETS = ("total", "sources", "field")


class FoundSource(NamedTuple):
    """A source and how sure it is.

    Attributes
    ----------
    position : ndarray of shape (d,)
    strength : float
    position_std : ndarray of shape (d,)
        Standard deviations of the position.
    strength_std : float
        Of the strength.

    Examples
    --------
    >>> import numpy as np
    >>> from greenfold.sources import FoundSource  # `SourceFinder.sources_` lists them
    >>> FoundSource(np.array([0.2, 0.3]), 1.2, np.array([0.01, 0.01]), 0.03).strength
    1.2
    """

    position: Array  # (d,)
    strength: float
    position_std: Array  # (d,)
    strength_std: float


class SourceFinder(RegressorMixin, BaseEstimator):
    """Where does it come from? Sources of a `Transport` from readings of what they make.

    Parameters
    ----------
    operator : Transport
        How what is emitted spreads. Numbers that are learned start from its own.
    region : array of shape (2, d), optional
        Lower and upper corner of where sources may be; by default that of the readings, inside walls.
    kind : 'sparse' or 'smooth'
        A few sources, whose number is found, or a field of them.
    sign : 'positive', 'negative' or 'any', optional
        Of sparse sources; positive by default. A field may have any.
    width : float, optional
        Standard deviation of a source; points by default. Of a field its finest detail, chosen by
        evidence by default.
    learn : sequence of 'kappa', 'wind' and 'diffusivity'
        Physical numbers to learn beside sparse sources.
    max_sources : int
        Of sparse ones.

    Attributes
    ----------
    sources_ : list of FoundSource
        `position`, `strength` (what it emits per time), `position_std`, `strength_std`; the strongest
        first. Of sparse sources only.
    total_ : Value
        `value` and `std` of what all sources emit.
    covariance_ : array of shape (k, k)
        Of positions, strengths and learned numbers, in this order; of the strengths of a field.
    physics_ : dict of Value
        The learned numbers.
    noise_ : float
        Standard deviation of a reading of mean weight.
    check_ : Check
        Are residuals of neighbors alike? Then `fine` is False, and `meaning` says what to look for.
    dof_ : float
        Readings less numbers found: intervals are those of Student's distribution.

    Examples
    --------
    >>> import numpy as np
    >>> from greenfold.green import Transport
    >>> rng = np.random.default_rng(0)
    >>> air = Transport(kappa=1.0, wind=(3.0, 0.0))
    >>> sensors = rng.uniform(0, 1, (30, 2))
    >>> leak = SourceFinder(air, width=0.05).simulate([[0.3, 0.6]], [2.0], sensors)
    >>> finder = SourceFinder(air, width=0.05).fit(sensors, leak + 0.01 * rng.normal(size=30))
    >>> len(finder.sources_)
    1
    >>> bool(abs(finder.total_.value - 2) < 3 * finder.total_.std)
    True
    >>> new = rng.uniform(0, 1, (10, 2))
    >>> u, std = finder.predict(new, return_std=True)
    >>> finder.source(new).shape, finder.responses(new).shape  # f there; readings of one source at each
    ((10,), (30, 10))
    >>> sorted(finder.interval(0.9))[:2]
    ['position', 'strength']
    >>> next_reading = finder.suggest(finder.places(100))
    >>> bool(finder.score(sensors, leak) > 0.9)
    True
    >>> from tempfile import TemporaryDirectory
    >>> figure = finder.plot()
    >>> with TemporaryDirectory() as folder:
    ...     finder.report(f"{folder}/leak.html").name
    'leak.html'
    """

    def __init__(
        self,
        operator: Transport,
        region: Any = None,
        kind: str = "sparse",
        sign: str | None = None,
        width: float | None = None,
        learn: Sequence[str] = (),
        max_sources: int = 10,
    ):
        self.operator = operator
        self.region = region
        self.kind = kind
        self.sign = sign
        self.width = width
        self.learn = learn
        self.max_sources = max_sources

    # --- fit

    def fit(self, positions: Any, readings: Any, sample_weight: Any = None) -> "SourceFinder":
        """Find sources.

        Parameters
        ----------
        positions : array of shape (n, d), or a sequence of places, `Average` and `Flux`
        readings : array of shape (n,)
        sample_weight : array of shape (n,), optional
            One over the variance of a reading, up to a factor.

        Returns
        -------
        SourceFinder
            Itself.
        """
        self._check()
        where = Readings.of(positions)
        d = self.n_features_in_ = where.middle.shape[1]
        if d > 3:
            raise ValueError(f"places have 1 to 3 coordinates, `positions` have {d}.")
        y = numbers_of(readings, len(where))
        weight = np.ones(len(y))
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, where.middle, ensure_non_negative=True)
            weight = weight * (len(y) / weight.sum())
        learn = learnable(self.operator, self.kind, self.learn, d)
        self.region_ = region_of(self.operator, where, self.region)
        self.readings_, self.y_, self.weight_ = where, y, weight
        names, theta = physics(self.operator, learn, d)
        operator = covering(self.operator, where, self.region_)
        if self.kind == "sparse":
            self._fit_sparse(operator, names, theta)
        else:
            self._fit_smooth(operator)
        value, slopes = self.estimate_.total()
        self.total_ = Value(value, float(self.estimate_.std(slopes[None])[0]))
        self.noise_ = math.sqrt(self.estimate_.noise)
        if not self.check_.fine:
            warnings.warn(
                f"{self.check_.meaning} (z = {self.check_.z:.1f}). Sources and their deviations may be "
                "far off.",
                stacklevel=2,
            )
        return self

    def _check(self) -> None:
        check_options(self.operator, self.kind, self.sign, self.width, self.max_sources)

    def _fit_sparse(self, operator: Transport, names: list[str], theta: Array) -> None:
        n, d = self.readings_.middle.shape
        most = min(self.max_sources, (n - len(names) - 1) // (d + 1))
        if most < 1:
            raise ValueError(
                f"one source has {d + 1} unknowns and `learn` adds {len(names)}, and there are {n} "
                f"readings; at least {d + 2 + len(names)} are needed. Read more, or learn less."
            )
        resolution = float(np.linalg.norm(self.region_[1] - self.region_[0])) / 500
        problem = Problem(
            operator, self.readings_, self.y_, np.sqrt(self.weight_), self.region_, self.width,
            self.sign or "positive", names, theta, resolution,
        )  # fmt: skip
        found = find(problem, most)
        order = np.argsort(-np.abs(found.q), kind="stable")
        found = found._replace(mu=found.mu[order], q=found.q[order])
        k = len(found.parameters)
        if len(found.q):
            residual, J = residual_and_slopes(problem, found)
        else:
            residual, J = -problem.root * self.y_, np.zeros((n, k))
        self.dof_ = float(n - k)
        noise = float(residual @ residual) / self.dof_
        covariance, Z = _laplace(J, noise, bool(len(found.q)))
        self.operator_ = with_physics(operator, names, found.theta, d)
        self.estimate_: Estimate = Few(covariance, noise, found, names, self.width, resolution)
        std = np.sqrt(np.diag(covariance))
        m = len(found.q)
        places, strengths = std[: m * d].reshape(m, d), std[m * d : m * (d + 1)]
        self.sources_ = [
            FoundSource(found.mu[i], float(found.q[i]), places[i], float(strengths[i]))
            for i in range(m)
        ]
        self.physics_ = {
            name: Value(float(value), float(sd))
            for name, value, sd in zip(names, found.theta, std[m * (d + 1) :])
        }
        self.covariance_ = covariance
        self.check_: Check = self._checked(residual, Z)
        self._warn_of_edges(found.mu)

    def _fit_smooth(self, operator: Transport) -> None:
        field = fit_field(operator, self.readings_, self.y_, self.weight_, self.region_, self.width)
        self.operator_, self.physics_, self.covariance_ = operator, {}, field.covariance
        self.estimate_ = Spread(field.covariance, field.noise, field.model)
        self.dof_ = max(len(self.y_) - field.rank, 1.0)
        y = np.sqrt(self.weight_) * self.y_
        self.check_ = self._checked(y - field.Z @ (field.Z.T @ y), field.Z)

    def _checked(self, residual: Array, Z: Array) -> Check:
        size = np.linalg.norm(np.sqrt(self.weight_) * self.y_)
        if np.linalg.norm(residual) <= MET * size:
            return Check(0.0, True, f"readings are met to {MET:g} of their size")
        return moran(self.readings_.middle, residual, Z)

    def _warn_of_edges(self, mu: Array) -> None:
        low, high = self.region_
        slack = 1e-6 * (high - low)
        edge = ((mu <= low + slack) | (mu >= high - slack)).any(1)
        if edge.any():
            warnings.warn(
                f"{int(edge.sum())} of {len(mu)} sources lie on the edge of `region`, so that the best "
                "place may be beyond it and deviations say nothing. Enlarge `region`.",
                stacklevel=3,
            )

    # --- what was found

    def predict(self, positions: Any, return_std: bool = False) -> Any:
        """u at places (n, d), or what `Average` and `Flux` would read; with its standard deviation.

        Parameters
        ----------
        positions : array-like of shape (n, d), or list of Average and Flux
            Where.
        return_std : bool
            Return the standard deviation too.

        Returns
        -------
        u : ndarray of shape (n,)
        std : ndarray of shape (n,)
            If it was asked for.
        """
        check_is_fitted(self, "estimate_")
        where = self._where(positions)
        u, slopes = self._read(where)
        return (u, self.estimate_.std(slopes)) if return_std else u

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of readings at other places.

        Parameters
        ----------
        X : array-like of shape (n, d), or list of Average and Flux
            Where they were read.
        y : array-like of shape (n,)
            Readings.
        sample_weight : array-like of shape (n,), optional
            How often each counts.

        Returns
        -------
        float
        """
        return float(super().score(X, y, sample_weight))

    def _where(self, positions: Any, name: str = "positions") -> Readings:
        known = isinstance(positions, Readings)
        where = positions if known else Readings.of(positions, self.n_features_in_, name)
        check_walls(self.operator_, where)
        return where

    def _read(self, where: Readings) -> tuple[Array, Array]:
        return self.estimate_.read(covering(self.operator_, where, self.region_), where)

    def source(self, x: Any, return_std: bool = False) -> Any:
        """f at places (n, d): what is emitted per time and volume; with its standard deviation.

        Parameters
        ----------
        x : array-like of shape (n, d)
            Places.
        return_std : bool
            Return the standard deviation too.

        Returns
        -------
        f : ndarray of shape (n,)
        std : ndarray of shape (n,)
            If it was asked for.
        """
        check_is_fitted(self, "estimate_")
        f, slopes = self.estimate_.source(Readings.of(x, self.n_features_in_, "x").middle)
        return (f, self.estimate_.std(slopes)) if return_std else f

    def interval(self, level: float = 0.9) -> dict[str, Any]:
        """Bounds (…, 2) of 'position' (m, d, 2), 'strength' (m, 2), 'total' and every learned number.

        Parameters
        ----------
        level : float
            Probability.

        Returns
        -------
        dict
            Lower and upper ends, by name.
        """
        check_is_fitted(self, "estimate_")
        if not 0 < level < 1:
            raise ValueError(f"`level` must lie between 0 and 1, got {level}.")
        q = float(student.ppf((1 + level) / 2, self.dof_)) * np.array([-1.0, 1.0])
        known = {"total": self.total_, **self.physics_}
        found = {name: v.value + q * v.std for name, v in known.items()}
        if self.kind == "sparse":
            S = self.sources_
            found["position"] = np.array(
                [s.position[:, None] + q * s.position_std[:, None] for s in S]
            )
            found["strength"] = np.array([s.strength + q * s.strength_std for s in S])
        return found

    def places(self, n: int = 400) -> Array:
        """About n places (·, d) on a grid over the region, such as to choose the next reading from.

        Parameters
        ----------
        n : int
            About how many.

        Returns
        -------
        ndarray of shape (about n, d)
        """
        check_is_fitted(self, "estimate_")
        d = self.n_features_in_
        side = max(2, round(n ** (1 / d)))
        lines = [np.linspace(low, high, side + 2)[1:-1] for low, high in self.region_.T]
        return np.stack(np.meshgrid(*lines, indexing="ij"), -1).reshape(-1, d)

    def suggest(self, candidates: Any, n: int = 1, target: str = "total") -> Suggestion:
        """Which of the candidates to read next.

        Parameters
        ----------
        candidates : array of shape (c, d), or a sequence of places, `Average` and `Flux`
        n : int
            How many; each is chosen for what it adds to those before it.
        target : 'total', 'sources' or 'field'
            What is to become surer: what all sources emit; where they are and how strong, each in units
            of its deviation now; or u over the region.

        Returns
        -------
        Suggestion
        """
        check_is_fitted(self, "estimate_")
        if target not in TARGETS:
            raise ValueError(f"`target` must be one of {TARGETS}, got {target!r}.")
        if not len(self.covariance_):
            raise ValueError("no source was found, so there is nothing to become surer of.")
        where = self._where(candidates, "candidates")
        if not n >= 1:
            raise ValueError(f"`n` must be at least 1, got {n}.")
        _, J = self._read(where)
        return next_readings(self.covariance_, self.estimate_.noise, J, self._targets(target), n)

    def _targets(self, target: str) -> Array:
        """Slopes (t, k) of what is to become surer."""
        if target == "total":
            return self.estimate_.total()[1][None]
        if target == "field":
            return self._read(Readings.of(self.places()))[1]
        std = np.sqrt(np.diag(self.covariance_))
        m = len(self.covariance_) - len(self.physics_)
        return np.diag(1 / np.maximum(std, 1e-300))[:m]

    def responses(self, places: Any) -> Array:
        """What every reading (n, g) would be for a source of strength 1 at each of the places (g, d).

        Parameters
        ----------
        places : array-like of shape (m, d)
            Where.

        Returns
        -------
        ndarray of shape (n, m)
        """
        check_is_fitted(self, "estimate_")
        mu = Readings.of(places, self.n_features_in_, "places").middle
        operator = covering(self.operator_, self.readings_, np.vstack([self.region_, mu]))
        atoms = self.estimate_.kind_of(torch.from_numpy(mu))
        return (columns(operator, self.readings_, atoms) / mass(atoms)).numpy()

    def simulate(self, positions: Any, strengths: Any, sensors: Any) -> Array:
        """What `sensors` would read (n,) of sources of this finder's width, without noise.

        Parameters
        ----------
        positions : array-like of shape (m, d)
            Of sources.
        strengths : array-like of shape (m,)
            Of these.
        sensors : array-like of shape (n, d), or list of Average and Flux
            What reads them.

        Returns
        -------
        ndarray of shape (n,)
        """
        self._check()
        mu = Readings.of(positions).middle
        where = Readings.of(sensors, mu.shape[1], "sensors")
        q = np.asarray(strengths, dtype=np.float64)
        if q.shape != (len(mu),):
            raise ValueError(f"`strengths` must have shape ({len(mu)},), got {q.shape}.")
        check_walls(self.operator, where)
        operator = covering(self.operator, where, mu)
        atoms = source_atoms(torch.from_numpy(mu), self.width, 1e-3 * operator.extent)
        return (columns(operator, where, atoms) / mass(atoms)).numpy() @ q

    def plot(self, axes: Any = None) -> Any:
        """Map of u with sensors, sources and their 90% ellipses, and of f; returns the Figure.

        Parameters
        ----------
        axes : Axes or sequence of Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        Figure
        """
        from greenfold.sources.figure import draw

        check_is_fitted(self, "estimate_")
        return draw(self, axes)

    def report(self, path: str | os.PathLike[str], *, names: list[str] | None = None) -> Path:
        """Write one page with the map, the sources, and a hypothetical source to drag.

        Parameters
        ----------
        path : str or path
            Such as "page.html".
        names : sequence of str, optional
            Of the axes.

        Returns
        -------
        Path
            Of the page.
        """
        from greenfold.report.sources import write

        check_is_fitted(self, "estimate_")
        return write(self, path, names)


def covering(operator: Transport, where: Readings, region: Array) -> Transport:
    """A copy that is good at the distances between readings and sources."""
    corners = np.vstack([where.low, where.high, region])
    extent = float(np.linalg.norm(np.ptp(corners, axis=0)))
    operator = copy.deepcopy(operator)
    operator.extent = 2.0 ** (math.ceil(2 * math.log2(max(extent, 1e-12))) / 2)
    return operator.requires_grad_(False)


def _laplace(J: Array, noise: float, found: bool) -> tuple[Array, Array]:
    """σ²(JᵀJ)⁻¹, and an orthonormal basis of what was fitted."""
    k = J.shape[1]
    if not found:
        return np.zeros((k, k)), J[:, :0]
    scale = np.maximum(np.linalg.norm(J, axis=0), 1e-300)
    U, S, Vt = np.linalg.svd(J / scale, full_matrices=False)
    if S[-1] < 1e-10 * S[0]:
        worst = np.abs(Vt[-1]).argmax()
        warnings.warn(
            "the readings do not tell all unknowns apart (condition "
            f"{S[0] / max(S[-1], 1e-300):.0e}, mostly unknown {worst}): deviations are lower bounds.",
            stacklevel=4,
        )
    inverse = (Vt.T / np.maximum(S, 1e-10 * S[0]) ** 2) @ Vt
    return noise * inverse / np.outer(scale, scale), U

"""Quantiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit

from greenfold.likelihoods.base import Array, Likelihood, Terms, quantile_of

CORNER = 0.1  # of the mean distance of errors, that corners are rounded off over


@dataclass(frozen=True, init=False)
class Quantile(Likelihood):
    """Several quantiles at once, which do not cross.

    Below η_k lies a share of y that is its level. A row costs its distance from η_k, times the level
    above and the rest below; the corner is rounded off over a tenth of the distance of left-out errors.
    At the end every quantile is moved such that as many left-out rows lie below it as should, and
    quantiles that would cross are put in order.

    Parameters
    ----------
    levels : sequence of float
        Between 0 and 1.
    width : float
        Over which the corner is rounded; set by a fit.
    moved : sequence of float
        How far each quantile is moved at the end; set by a fit.

    Examples
    --------
    >>> import numpy as np
    >>> from greenfold import IGLRegressor
    >>> from greenfold.likelihoods import Quantile
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(60, 1))
    >>> y = X[:, 0] + X[:, 0] * rng.normal(size=60)
    >>> model = IGLRegressor(likelihood=Quantile([0.1, 0.9]), effort="fast", random_state=0).fit(X, y)
    >>> model.predict(X).shape
    (60, 2)
    """

    levels: tuple[float, ...]
    width: float = 0.05
    moved: tuple[float, ...] = ()

    settles: ClassVar[bool] = True

    def __init__(
        self, levels: Sequence[float] | float, width: float = 0.05, moved: Sequence[float] = ()
    ):
        given = tuple(np.atleast_1d(np.asarray(levels, dtype=float)).tolist())
        if not given or not all(0 < level < 1 for level in given):
            raise ValueError(f"levels must lie between 0 and 1, got {levels!r}.")
        if len(set(given)) < len(given):
            raise ValueError(f"levels must differ, got {levels!r}.")
        object.__setattr__(self, "levels", tuple(sorted(given)))
        object.__setattr__(self, "width", float(width))
        object.__setattr__(self, "moved", tuple(moved))

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return len(self.levels)

    def start(self, Y: Array, weight: Array) -> Array:
        order = np.argsort(Y[:, 0])
        share = np.cumsum(weight[order]) / weight.sum()
        return Y[order[np.searchsorted(share, self.levels).clip(max=len(order) - 1)], 0]

    def at(self, f: Array, Y: Array) -> Terms:
        """With the curvature of the parabola that lies above, in the mean over the levels."""
        e = (Y[:, :1] - f) / self.width
        value = self.width * (np.array(self.levels) * e + np.logaddexp(0.0, -e))
        slope = expit(-e) - np.array(self.levels)
        size = np.maximum(np.abs(e), 1e-6)
        bend = np.tanh(size / 2) / (2 * size) / self.width
        return Terms(value.sum(1), slope, bend.mean(1))

    def losses(self, f: Array, Y: Array, weight: Array) -> Array:
        """Pinball, summed over the levels, as nats of the likelihood whose scale suits all rows best."""
        each = pinball(f, Y[:, :1], np.array(self.levels)).sum(1)
        mean = float(weight @ each / weight.sum())
        if not math.isfinite(mean):
            return np.full(len(f), np.inf)
        mean = max(mean, 1e-300)
        return self.outputs * (each / mean - 1 + math.log(mean))

    def fitted(self, f: Array, Y: Array, weight: Array) -> Likelihood:
        """Moved to where as many rows lie below each as should, corners as wide as errors allow."""
        if not np.isfinite(f).all():
            return self
        middle = f[:, np.abs(np.array(self.levels) - 0.5).argmin()]
        width = CORNER * float(weight @ np.abs(Y[:, 0] - middle) / weight.sum())
        e = Y[:, :1] - f
        moved = [quantile_of(e[:, k], level, weight) for k, level in enumerate(self.levels)]
        return Quantile(self.levels, max(width, 1e-6), moved)

    def names(self, y: str) -> list[str]:
        return [f"{100 * level:g}% of {y}" for level in self.levels]

    def response(self, eta: Array) -> Array:
        return np.sort(eta, axis=1)

    def ends(self, eta: Array, variance: Array, scale: float, alpha: float) -> tuple[Array, Array]:
        """Two of the quantiles."""
        where = [np.isclose(self.levels, level) for level in (alpha / 2, 1 - alpha / 2)]
        if not all(found.any() for found in where):
            raise ValueError(
                f"an interval of {1 - alpha:g} lies between the quantiles {alpha / 2:g} and "
                f"{1 - alpha / 2:g}, and those learned are {list(self.levels)}: learn these too, or "
                "ask for another alpha."
            )
        eta = self.response(eta)
        low, high = (eta[:, found] for found in where)
        return low, high

    def std(self, eta: Array, variance: Array, scale: float) -> Array:
        raise ValueError("quantiles come without standard deviations: ask for more levels instead.")

    def score(self, eta: Array, Y: Array, weight: Array) -> float:
        """Share of the pinball loss of the best constants that is explained, all levels together."""
        level = np.array(self.levels)
        left, all_ = (
            float(weight @ pinball(f, Y[:, :1], level).sum(1))
            for f in (eta, self.start(Y, weight)[None])
        )
        return 1 - left / all_ if all_ > 0 else float(left <= 0)

    def saturated(self, Y: Array) -> Array:
        return np.repeat(Y[:, :1], self.outputs, axis=1)


def pinball(f: Array, y: Array, level: Array) -> Array:
    return np.maximum(level * (y - f), (level - 1) * (y - f))

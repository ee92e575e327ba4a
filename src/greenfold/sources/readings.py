"""What sensors read: u at a place, its mean over a box, or how much flows through a place."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Average:
    """The mean of u over the box from `low` to `high`; where both agree along an axis, at that place.

    Parameters
    ----------
    low, high : sequence of float
        Corners of the box.

    Examples
    --------
    >>> from greenfold.sources import Average
    >>> beam = Average(low=(0.0, 0.5), high=(1.0, 0.5))  # a laser across the yard
    """

    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class Flux:
    """How much flows through `x` along an axis, v_j u − (D∇u)_j: carried by the wind and spread.

    Parameters
    ----------
    x : sequence of float
        A place.
    axis : int
        Along which.

    Examples
    --------
    >>> from greenfold.sources import Flux
    >>> through = Flux(x=(0.5, 0.5), axis=0)
    """

    x: Sequence[float]
    axis: int


@dataclass(frozen=True)
class Readings:
    """n linear functionals of u."""

    middle: Array  # (n, d)
    half: Array  # (n, d) of the box that is averaged over; zeros are places
    axis: Array  # (n,) of the flux; −1 where u itself is read

    @staticmethod
    def of(positions: Any, n_dims: int | None = None, name: str = "positions") -> "Readings":
        """From an array (n, d), or a sequence of places, `Average` and `Flux`."""
        rows = list(positions) if isinstance(positions, list | tuple) else None
        if rows is None or not any(isinstance(row, Average | Flux) for row in rows):
            x = _places(positions, name)
            found = Readings(x, np.zeros_like(x), np.full(len(x), -1))
        else:
            parts = [_one(row, i, name) for i, row in enumerate(rows)]
            if len({len(part[0]) for part in parts}) > 1:
                sizes = sorted({len(part[0]) for part in parts})
                raise ValueError(f"`{name}` have different numbers of coordinates: {sizes}.")
            found = Readings(*(np.array(v) for v in zip(*parts)))
        found.check(n_dims, name)
        return found

    def check(self, n_dims: int | None, name: str) -> None:
        d = self.middle.shape[1]
        if n_dims is not None and d != n_dims:
            raise ValueError(f"`{name}` have {d} coordinates, expected {n_dims}.")
        bad = ~np.isfinite(np.hstack([self.middle, self.half])).all(axis=1)
        if bad.any():
            raise ValueError(
                f"`{name}` must be finite, got NaN or infinity in {bad.sum()} of {len(bad)} rows."
            )
        if (self.half < 0).any():
            raise ValueError("an Average needs low ≤ high along every axis.")
        if (self.axis >= d).any() or (self.axis < -1).any():
            raise ValueError(f"a Flux has an axis from 0 to {d - 1}, got {int(self.axis.max())}.")

    def __len__(self) -> int:
        return len(self.middle)

    @property
    def places(self) -> bool:
        """Are all of them values at places?"""
        return not self.half.any() and bool((self.axis < 0).all())

    @property
    def low(self) -> Array:
        return self.middle - self.half

    @property
    def high(self) -> Array:
        return self.middle + self.half


def _places(positions: Any, name: str) -> Array:
    x = np.asarray(positions, dtype=np.float64)
    if x.ndim != 2 or not len(x):
        raise ValueError(
            f"`{name}` must have shape (n, d), one row per reading, got {x.shape}. A single row of "
            "coordinates is [[…]]; one coordinate each is `x[:, None]`."
        )
    return x


def _one(row: Any, i: int, name: str) -> tuple[Array, Array, int]:
    if isinstance(row, Average):
        low, high = (np.atleast_1d(np.asarray(v, dtype=np.float64)) for v in (row.low, row.high))
        if low.shape != high.shape:
            raise ValueError(f"`{name}`[{i}]: low and high of an Average differ in length.")
        return (low + high) / 2, (high - low) / 2, -1
    flux = isinstance(row, Flux)
    x = np.atleast_1d(np.asarray(row.x if flux else row, dtype=np.float64))
    if flux and not 0 <= row.axis < len(x):
        raise ValueError(
            f"`{name}`[{i}]: a Flux has an axis from 0 to {len(x) - 1}, got {row.axis}."
        )
    return x, np.zeros_like(x), row.axis if flux else -1

"""The user's numbers and the model's, which are of order one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from greenfold.likelihoods.base import Likelihood

Array = NDArray[np.float64]

CHUNK = 2048  # rows evaluated at a time


@dataclass(frozen=True)
class Scaling:
    """inside = (T(outside/unit) − shift)/scale. A change of the user's units by 2^k changes `unit` only.

    T is the identity, or for skewed targets a root or the logarithm.
    """

    unit: float  # a power of two
    shift: Array  # (c,)
    scale: Array  # (c,)
    power: float = 1.0  # T(v) = v^power, log v for 0

    @staticmethod
    def of_inputs(X: Array, scaled: bool) -> Scaling:
        """Of columns (n, c), each in its own standard deviation if `scaled` and it varies."""
        unit = power_of_two(X)
        X = X / unit
        shift = X.mean(0)
        spread = (X - shift).std(0)
        flat = spread <= 1e-12 * (np.abs(shift) + np.abs(X).max(0))
        return Scaling(unit, shift, np.where(flat | (not scaled), 1.0, spread))

    @staticmethod
    def of_targets(Y: Array, power: float = 1.0) -> Scaling:
        unit = power_of_two(Y)
        Y = bent(Y / unit, power)
        shift = Y.mean(0)
        spread = (Y - shift).std(0)
        scale = np.where(spread > 1e-14 * (1 + np.abs(shift)), spread, 1.0)
        return Scaling(unit, shift, scale, power)

    @staticmethod
    def none(c: int) -> Scaling:
        """Of c columns that are the model's own numbers."""
        return Scaling(1.0, np.zeros(c), np.ones(c))

    def inside(self, values: Array) -> Array:
        values = np.ascontiguousarray(values / self.unit, dtype=np.float64)  # the one copy
        values = values if self.power == 1 else bent(values, self.power)
        values -= self.shift
        values /= self.scale
        return values

    def corrected(self, slope: float, offset: Array) -> Scaling:
        """Whose inside is slope·inside + offset."""
        return Scaling(self.unit, self.shift - offset * self.scale / slope, self.scale / slope)

    def outside(self, values: Array) -> Array:
        return straight(values * self.scale + self.shift, self.power) * self.unit

    @property
    def bent(self) -> tuple[Array, Array]:
        """Shift and scale (c,) that turn the model's numbers into T(y): shift + scale·u."""
        unit = self.unit**self.power
        shift = self.shift * unit if self.power else self.shift + np.log(self.unit)
        return shift, self.scale * unit

    def names(self, names: list[str]) -> list[str]:
        """Of T(y)."""
        if self.power == 1:
            return names
        return [f"log {name}" if self.power == 0 else f"√{name}" for name in names]

    def widths(self, values: Array, at: Array | None = None) -> Array:
        """Of differences, which have no shift, around values of the model; of small ones, if T bends."""
        widths = values * self.scale * self.unit
        if self.power == 1:
            return widths
        assert at is not None, "where T bends, widths depend on the place"
        t = at * self.scale + self.shift
        return widths * (np.exp(np.minimum(t, 700.0)) if self.power == 0 else 2 * np.maximum(t, 0))


def bent(v: Array, power: float) -> Array:
    """T(v)."""
    if power == 1:
        return v
    if (v < 0).any() or (power == 0 and (v == 0).any()):
        raise ValueError(
            "the targets fitted to were positive, and their logarithm or root was learned: those that "
            f"come now must be positive, too, and the least is {float(v.min()):g} (in the model's units)."
        )
    return np.log(v) if power == 0 else np.sqrt(v)


def straight(t: Array, power: float) -> Array:
    """T⁻¹."""
    if power == 1:
        return t
    return np.exp(np.minimum(t, 700.0)) if power == 0 else np.square(np.maximum(t, 0.0))


@dataclass(frozen=True)
class Units:
    """Of the inputs, and of what a model computes; for an autoencoder the same."""

    x: Scaling
    y: Scaling
    flat: bool = False  # is y (n,), not (n, 1)?
    law: Likelihood | None = None  # of y around u; None for normal noise

    def values(self, u: Array, what: str) -> Array:
        """u (n, c) in the units and the shape of y."""
        eta = self.y.outside(u)
        return self.shaped(finite(eta if self.law is None else self.law.response(eta), what))

    def target(self, Y: Array) -> Array:
        """Targets (n, k) as the model sees them; what a likelihood has beside y stays as it is."""
        if self.law is None:
            return self.y.inside(Y)
        return np.hstack([self.y.inside(Y[:, :1]), Y[:, 1:]])

    def spreads(self, std: Array, what: str, at: Array | None = None) -> Array:
        """Standard deviations (n, c) around u in the units and the shape of y."""
        return self.shaped(finite(self.y.widths(std, at), what))

    def shaped(self, values: Array) -> Array:
        """As y was given: (n, c), or (n,) if that is one column."""
        return values[:, 0] if self.flat and values.shape[1] == 1 else values


def names_of(y: Any) -> list[str] | None:
    """What a series or table calls its columns; None for arrays, and for names that are no text."""
    names = [getattr(y, "name", None)] if not hasattr(y, "columns") else list(y.columns)
    return [str(v) for v in names] if all(isinstance(v, str) and v for v in names) else None


def power_of_two(values: Array) -> float:
    largest = float(np.abs(values).max(initial=0.0))
    return float(2.0 ** np.floor(np.log2(largest))) if largest > 0 else 1.0


def evenly(n: int, most: int) -> NDArray[np.int64]:
    """Up to `most` of n positions, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))


def chunks(f: Callable[[Tensor], Tensor], x: Tensor) -> Array:
    """f over blocks of rows, into one array: results kept between blocks would fragment the heap."""
    out: Array | None = None
    for start in range(0, max(len(x), 1), CHUNK):
        part = f(x[start : start + CHUNK]).cpu().double().numpy()
        if out is None:
            out = np.empty((len(x), *part.shape[1:]))
        out[start : start + len(part)] = part
    assert out is not None
    return out


def finite(values: Array, what: str) -> Array:
    bad = int((~np.isfinite(values)).any(1).sum())
    if bad:
        raise ValueError(
            f"the {what} of {bad} of {len(values)} rows leave float64 (about 1e308). Either the rows lie "
            "that far from those fitted to, or the data are near that limit: rescale them."
        )
    return values

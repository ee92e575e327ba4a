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
    """inside = (outside/unit − shift)/scale. A change of the user's units by 2^k changes `unit` only."""

    unit: float  # a power of two
    shift: Array  # (c,)
    scale: Array  # (c,)

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
    def of_targets(Y: Array) -> Scaling:
        unit = power_of_two(Y)
        Y = Y / unit
        shift = Y.mean(0)
        spread = (Y - shift).std(0)
        return Scaling(unit, shift, np.where(spread > 1e-14 * (1 + np.abs(shift)), spread, 1.0))

    @staticmethod
    def none(c: int) -> Scaling:
        """Of c columns that are the model's own numbers."""
        return Scaling(1.0, np.zeros(c), np.ones(c))

    def inside(self, values: Array) -> Array:
        values = np.ascontiguousarray(values / self.unit, dtype=np.float64)  # the one copy
        values -= self.shift
        values /= self.scale
        return values

    def corrected(self, slope: float, offset: Array) -> Scaling:
        """Whose inside is slope·inside + offset."""
        return Scaling(self.unit, self.shift - offset * self.scale / slope, self.scale / slope)

    def outside(self, values: Array) -> Array:
        return (values * self.scale + self.shift) * self.unit

    def widths(self, values: Array) -> Array:
        """Of differences, which have no shift."""
        return values * self.scale * self.unit


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

    def spreads(self, std: Array, what: str) -> Array:
        """Standard deviations (n, c) in the units and the shape of y."""
        return self.shaped(finite(self.y.widths(std), what))

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

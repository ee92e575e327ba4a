"""What columns do, and pairs beyond them, for the page: curves with bands, maps, and shares."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from greenfold.learn.effects import LEAST, Effect, Effects
from greenfold.report.pack import packed

Array = NDArray[np.float64]

MOST = 9  # effects that are drawn
OUTPUTS = 20  # that have them
SIDE = 40  # of a map
BINS = 24  # of rows along a column
CELL = 8  # pixels of a level


def told(estimator: Any, names: list[str], outputs: list[int]) -> list[dict[str, Any]] | None:
    """For the page: of every output shown, or of all together where there is one; None without any."""
    found = getattr(estimator, "effects_", None)
    if found is None:
        return None
    each = [found] if isinstance(found, Effects) else [found[k] for k in outputs[:OUTPUTS]]
    return [_of_output(effects.named(names)) for effects in each]


def _of_output(effects: Effects) -> dict[str, Any]:
    shares = [[" × ".join(e.columns), e.share] for e in effects if e.share >= LEAST]
    return {
        "mean": effects.mean,
        "covered": effects.covered,
        "shares": [*shares, ["everything else", effects.rest]],
        "effects": [_drawn(effect) for effect in effects[:MOST] if effect.share >= LEAST],
    }


def _drawn(effect: Effect) -> dict[str, Any]:
    values, axes = effect.values, [_axis(grid) for grid in effect.grid]
    about = {"columns": list(effect.columns), "share": effect.share, "axes": axes}
    if values.ndim == 2:
        return {**about, **_map(effect)}
    band = None if effect.band is None else packed(effect.band, "f4")
    (x,), (weight,) = effect.grid, effect.weight
    at, rows = np.arange(float(len(x))), weight
    if axes[0]["names"] is None:
        at, edges = x, np.linspace(x[0], x[-1], BINS + 1)
        rows = np.diff(np.interp(edges, x, np.cumsum(weight) - weight / 2))
    told = {"at": packed(at), "values": packed(values, "f4"), "band": band}
    return {**about, **told, "rows": packed(rows / (rows.max() or 1.0), "f4")}


def _axis(grid: np.ndarray) -> dict[str, Any]:
    """Ends of an axis, and the names of its levels if it has such."""
    if grid.dtype.kind == "U":
        return {"ends": [-0.5, len(grid) - 0.5], "names": grid.tolist()}
    low, high = float(grid[0]), float(grid[-1])
    return {"ends": [low, high] if high > low else [low - 0.5, low + 0.5], "names": None}


def _map(effect: Effect) -> dict[str, Any]:
    """A field over evenly spaced places, the first column across; levels are cells of some places."""
    field = effect.values
    for axis, grid in enumerate(effect.grid):
        field = np.moveaxis(_even(np.moveaxis(field, axis, 0), grid), 0, axis)
    return {"shape": list(field.shape), "values": packed(field.T, "f4")}


def _even(field: Array, grid: np.ndarray) -> Array:
    if grid.dtype.kind == "U":
        return np.repeat(field, CELL, axis=0)
    at = np.linspace(grid[0], grid[-1], SIDE)
    return np.stack([np.interp(at, grid, column) for column in field.T], axis=1)

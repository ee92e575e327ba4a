"""What coordinates are: how much each explains, and what it is made of; for the page, figures and text.

Loadings are drawn over the positions of channels, as pictures, or as bars. But for channels each is times
the standard deviation of its column, as columns may have units of their own.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from greenfold.channels import positions_in
from greenfold.learn.loadings import column_spreads, loadings
from greenfold.report.pack import packed

Array = NDArray[np.float64]

MOST = 6  # coordinates that are shown
MANY = 60  # coordinates of a chart above which none is looked at by itself
BARS = 8  # columns


class Shown(NamedTuple):
    """Some coordinates, those that explain most first."""

    which: list[int]  # (k,)
    explained: Array | None  # (k,)
    loadings: Array  # (k, D), in the units of X
    sizes: Array  # (k, D), times the standard deviations of the columns
    positions: Array | None  # (D,) of channels


def shown(model: Any, names: Sequence[str] | None = None, most: int = MOST) -> Shown | None:
    """Of a fitted estimator, or None if its chart has too many coordinates."""
    igl, units = model.model_, model.units_.x
    d = len(igl.mean)
    if d > MANY:
        return None
    known = getattr(model, "explained_", None)
    order = np.arange(d) if known is None else np.argsort(-known, kind="stable")
    which = order[:most].tolist()
    slopes = loadings(igl, units)[which]
    positions = getattr(model, "channels_", None)
    named = positions_in(getattr(model, "encoded_names_", None) if names is None else names)
    if named is not None and (positions is None or (positions == np.arange(len(named))).all()):
        positions = named
    sizes = slopes * column_spreads(igl, units)
    return Shown(which, None if known is None else known[which], slopes, sizes, positions)


def told(
    model: Any, names: list[str], image_shape: Sequence[int] | None
) -> list[dict[str, Any]] | None:
    """For the page."""
    found = shown(model, names)
    if found is None:
        return None
    explained = [None] * len(found.which) if found.explained is None else found.explained.tolist()
    return [
        {"axis": k, "explained": v, **_picture(slopes, sizes, found.positions, names, image_shape)}
        for k, v, slopes, sizes in zip(
            found.which, explained, found.loadings, found.sizes, strict=True
        )
    ]


def _picture(
    slopes: Array,
    sizes: Array,
    positions: Array | None,
    names: list[str],
    image_shape: Sequence[int] | None,
) -> dict[str, Any]:
    if image_shape is not None:
        return {"kind": "image", "shape": list(image_shape), "values": packed(sizes, "f4")}
    if positions is not None:
        order = np.argsort(positions, kind="stable")
        at = packed(positions[order])
        return {"kind": "curve", "at": at, "values": packed(slopes[order], "f4")}
    best = largest(sizes)
    return {"kind": "bars", "names": [names[j] for j in best], "values": packed(sizes[best], "f4")}


def largest(sizes: Array, most: int = BARS) -> list[int]:
    """Columns that move a coordinate most."""
    order: list[int] = np.argsort(-np.abs(sizes), kind="stable")[:most].tolist()
    return [j for j in order if abs(sizes[j]) > 1e-3 * abs(sizes[order[0]])]


def lines(model: Any, names: Sequence[str] | None) -> list[str]:
    """Every coordinate in a line of text."""
    found = shown(model, names)
    if found is None:
        return []
    columns = [f"x{j}" for j in range(found.sizes.shape[1])] if names is None else list(names)
    if names is None and found.positions is not None:
        columns = [f"channel {at:g}" for at in found.positions]
    out = []
    for i, k in enumerate(found.which):
        explained = "" if found.explained is None else f" explains {found.explained[i]:.3g} of R2,"
        parts = [f"{columns[j]} ({found.sizes[i, j]:+.2g})" for j in largest(found.sizes[i], 4)]
        out.append(f"{k + 1}:{explained} moves with {', '.join(parts) or 'nothing'}")
    left = len(model.model_.mean) - len(out)
    return [*out, f"and {left} more"] if left else out

"""What is asked of a `SourceFinder`, and why it cannot be answered where it cannot."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from greenfold.green import Transport
from greenfold.green.base import Operator
from greenfold.sources.readings import Readings
from greenfold.sources.sparse import SIGNS

Array = NDArray[np.float64]

LEARNED = ("kappa", "wind", "diffusivity")
MESH = "media that change from place to place, obstacles and curved walls need a mesh (finite elements)"


def check_options(
    operator: Any, kind: str, sign: str | None, width: float | None, max_sources: int
) -> None:
    if not isinstance(operator, Transport):
        hint = ""
        if isinstance(operator, Operator):
            hint = f" Without a wind, screened and plain Poisson operators are Transport(kappa); {MESH}."
        raise ValueError(
            f"`operator` must be a green.Transport, got {type(operator).__name__}.{hint}"
        )
    if kind not in ("sparse", "smooth"):
        raise ValueError(f"`kind` must be 'sparse' or 'smooth', got {kind!r}.")
    if sign is not None and sign not in SIGNS:
        raise ValueError(f"`sign` must be one of {sorted(SIGNS)}, got {sign!r}.")
    if kind == "smooth" and sign is not None:
        raise ValueError("a smooth field may have any sign: leave `sign` at None.")
    if width is not None and not (math.isfinite(width) and width > 0):
        raise ValueError(f"`width` must be positive, got {width}.")
    if int(max_sources) != max_sources or max_sources < 1:
        raise ValueError(f"`max_sources` must be a whole number from 1 on, got {max_sources}.")


def learnable(
    operator: Transport, kind: str, learn: str | Sequence[str], d: int
) -> tuple[str, ...]:
    """What is to be learned, if readings can tell it."""
    learn = (learn,) if isinstance(learn, str) else tuple(learn)
    unknown = [name for name in learn if name not in LEARNED]
    if unknown:
        raise ValueError(f"`learn` takes {LEARNED}, got {unknown}.")
    if learn and kind == "smooth":
        raise ValueError(
            f"{' and '.join(learn)} cannot be told beside a smooth field of sources, which can stand in "
            "for any decay or wind: give them, or look for kind='sparse'."
        )
    if "kappa" in learn and not float(operator.kappa.detach()) > 0:
        raise ValueError("to learn `kappa`, give the operator a first guess above 0.")
    walls = [s is not None and s.boundary == "neumann" for s in operator.sides(d)]
    if "wind" in learn and all(walls):
        raise ValueError("no wind blows across Neumann sides: there is none to learn.")
    known = [name for name in ("kappa", "wind") if name not in learn]
    given = [name for name in known if bool(getattr(operator, name).detach().any())]
    if "diffusivity" in learn and operator.release == "steady" and not given:
        raise ValueError(
            "a steady field tells κ²/D, v/D and strength/D, not D itself: to learn `diffusivity`, give a "
            "wind or a kappa that is known, and leave it out of `learn`."
        )
    return learn


def check_walls(operator: Transport, where: Readings) -> Array:
    """Between walls (2, d), infinite where there are none; readings must be inside."""
    d = where.middle.shape[1]
    box = np.array([[-np.inf] * d, [np.inf] * d])
    for j, side in enumerate(operator.sides(d)):
        if side is not None and side.boundary != "periodic":
            box[:, j] = side.low, side.high
    outside = ((where.low < box[0]) | (where.high > box[1])).any(1)
    if outside.any():
        raise ValueError(
            f"{int(outside.sum())} of {len(where)} readings lie outside the walls of the operator's "
            f"domain. Check units and the order of coordinates; {MESH}."
        )
    return box


def region_of(operator: Transport, where: Readings, region: Any) -> Array:
    """(2, d), inside the walls."""
    box, d = check_walls(operator, where), where.middle.shape[1]
    if region is None:
        around = np.array([where.low.min(0), where.high.max(0)])
        region = np.where(np.isfinite(box), box, around)
    else:
        region = np.asarray(region, dtype=np.float64)
        if region.shape != (2, d) or not np.isfinite(region).all():
            raise ValueError(f"`region` must be finite of shape (2, {d}), got {region.tolist()}.")
        if ((region[0] < box[0]) | (region[1] > box[1])).any():
            raise ValueError("`region` must lie inside the walls of the operator's domain.")
    if not (region[0] < region[1]).all():
        raise ValueError(f"`region` must have low < high, got {region.tolist()}.")
    return region


def numbers_of(readings: Any, n: int) -> Array:
    y = np.asarray(readings, dtype=np.float64)
    if y.shape != (n,):
        raise ValueError(
            f"`readings` must have shape ({n},), one for each position, got {y.shape}."
        )
    bad = int((~np.isfinite(y)).sum())
    if bad:
        raise ValueError(
            f"`readings` must be finite, got NaN or infinity in {bad} of {n}. Leave those rows out."
        )
    return y

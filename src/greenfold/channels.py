"""Columns that come in an order, such as the wavelengths of a spectrum: positions given, or in names."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FEWEST = 10  # columns whose names are numbers before they are taken for positions
NAME = re.compile(
    r"(?:(?:wavelengths?|wavenumbers?|lambda|λ|wl|wn|nm|raman|nir|ir|mz|x)[ _\-.:=]*)?"
    r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"[ _]*(?:\[|\()?(?:nm|µm|μm|um|cm-1|cm\^-1|cm⁻¹|1/cm|ev|kev|mz|hz|khz|mhz|ghz)?(?:\]|\))?",
    re.IGNORECASE,
)


def are_channels(value: Any) -> bool:
    """None, True, False, or distinct positions."""
    if value is None or isinstance(value, bool):
        return True
    try:
        positions = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    plain = positions.ndim == 1 and len(positions) > 1 and bool(np.isfinite(positions).all())
    return plain and len(np.unique(positions)) == len(positions)


def ordered(channels: Any, n_columns: int) -> tuple[bool | None, NDArray[np.int64] | None]:
    """Are columns channels (None: to be seen), and their order (D,) unless it is the one they are in."""
    if channels is None or isinstance(channels, bool):
        return channels, None
    positions = np.asarray(channels, dtype=np.float64)
    if len(positions) != n_columns:
        raise ValueError(
            f"`channels` must be one position for each column of X: there are {n_columns} columns, "
            f"and it has {len(positions)}."
        )
    order = np.argsort(positions, kind="stable")
    steps = np.diff(order)
    return True, None if (steps == 1).all() or (steps == -1).all() else order


def numbered(names: Sequence[Any]) -> dict[str, float]:
    """Names that are numbers, with a unit or a word such as wavelength, and these numbers."""
    found = {str(name): NAME.fullmatch(str(name).strip()) for name in names}
    return {name: float(each[1]) for name, each in found.items() if each is not None}


def some_positions(names: Sequence[Any]) -> list[str]:
    """Names among others that would be positions by themselves."""
    some = list(numbered(names))
    return some if positions_in(some) is not None else []


def positions_in(names: Sequence[Any] | None) -> Array | None:
    """Numbers that all names hold ("850", "850.5 nm", "wl_850"), if they only rise or only fall.

    None where they do not, and for 0, 1, 2, … and 1, 2, 3, …, which number columns of any kind.
    """
    if names is None or len(names) < FEWEST or len(numbered(names)) < len(names):
        return None
    values = np.array(list(numbered(names).values()))
    steps = np.diff(values)
    if not ((steps > 0).all() or (steps < 0).all()):
        return None
    counted = values[0] in (0, 1) and bool((steps == 1).all())
    return None if counted else values

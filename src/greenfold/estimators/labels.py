"""Rows without labels: which they are, and what is left for the solve."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


def labeled_numbers(y: Any) -> Mask | None:
    """Which rows (n,) have numbers in y (n,) or (n, c); None if all do, or y is not of numbers."""
    try:
        values = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        return None  # scikit-learn says what is wrong with it
    if values.ndim not in (1, 2) or not np.isnan(values).any():
        return None
    missing = np.isnan(values.reshape(len(values), -1))
    some = missing.any(1) & ~missing.all(1)
    if some.any():
        raise ValueError(
            f"{int(some.sum())} rows of y have some targets and lack others, the first of them row "
            f"{int(np.flatnonzero(some)[0])}. A row without labels is NaN in all columns; fit targets "
            "that are known of different rows one by one."
        )
    return checked(~missing[:, 0], "NaN")


def labeled_classes(y: Any, unlabeled: Any = None) -> Mask | None:
    """Which rows (n,) have a label: one that is not None, NaN or `unlabeled`; None if all do."""
    values = np.asarray(y)
    if values.ndim != 1 or values.dtype.kind not in "fOiuUSb":
        return None
    if values.dtype.kind == "f":
        known = ~np.isnan(values)
    elif values.dtype.kind == "O":
        known = np.array([v is not None and bool(v == v) for v in values], dtype=bool)
    else:
        known = np.ones(len(values), dtype=bool)
    if unlabeled is not None:
        known &= np.asarray(values != unlabeled, dtype=bool)
    told = "None or NaN" if unlabeled is None else f"{unlabeled!r}, None or NaN"
    return None if known.all() else checked(known, told)


def checked(known: Mask, mark: str) -> Mask:
    """Said aloud, as a value that was lost by mistake looks the same."""
    without = int((~known).sum())
    if not known.any():
        raise ValueError(
            f"all {len(known)} rows are without a label ({mark} in y): nothing can be learned. "
            "IGLAutoencoder learns charts without any."
        )
    warnings.warn(
        f"{without} of {len(known)} rows have no label ({mark} in y). They tell what X looks like; the "
        "source is solved for on the others.",
        UnlabeledWarning,
        stacklevel=5,
    )
    return known


class UnlabeledWarning(UserWarning):
    """How many rows have no label."""

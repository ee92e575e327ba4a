"""Targets that are no numbers with normal noise: what a fit is told of them, and what becomes of it."""

from typing import Any

import numpy as np
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from greenfold.learn.units import Array, Scaling
from greenfold.likelihoods import NAMED, Likelihood


def law_of(value: str | Likelihood) -> Likelihood | None:
    """What `likelihood` means; None is normal noise."""
    return NAMED[value] if isinstance(value, str) else value


def is_law(value: Any) -> bool:
    return isinstance(value, Likelihood) or (isinstance(value, str) and value in NAMED)


def beside(law: Likelihood | None, X: Any, **told: Any) -> Array | None:
    """What is known of every row beside y (n,); refused where the likelihood has no use for it."""
    for name, values in told.items():
        if values is None:
            continue
        if law is None or law.beside != name:
            users = [key for key, each in NAMED.items() if each is not None and each.beside == name]
            raise ValueError(f"`{name}` needs likelihood={' or '.join(map(repr, users))}.")
        check_consistent_length(X, values)
        return np.asarray(check_array(column_or_1d(values), ensure_2d=False, dtype=np.float64))
    return None


def columns(law: Likelihood, y: Array, known: Array | None) -> Array:
    """Targets (n, k) of one column y."""
    if y.ndim > 1 and y.shape[1] > 1:
        raise ValueError(
            f"a likelihood other than 'gaussian' has one target, and y has {y.shape[1]} columns: fit one "
            "estimator for each."
        )
    return law.columns(y.reshape(-1), known)


def units_of(law: Likelihood, Y: Array) -> Scaling:
    """Of η."""
    return Scaling.of_targets(Y[:, :1]) if law.scaled else Scaling.none(1)

"""How sure sources are, whether readings disagree with the model, and where to read next."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

Array = NDArray[np.float64]

NEIGHBORS = 6
ALARM = 3.0  # standard deviations
MOST = 1500  # readings that are asked whether they are alike


class Value(NamedTuple):
    """A number and its standard deviation.

    Attributes
    ----------
    value, std : float

    Examples
    --------
    >>> from greenfold.sources import Value
    >>> Value(2.1, 0.3).std
    0.3
    """

    value: float
    std: float


class Check(NamedTuple):
    """Are residuals of neighboring readings alike? z is in standard deviations of what chance does.

    Attributes
    ----------
    z : float
        In standard deviations of what chance does.
    fine : bool
        Is z below 3?
    meaning : str
        In words.

    Examples
    --------
    >>> from greenfold.sources import Check  # `SourceFinder.check_` is one
    >>> Check(0.4, True, "residuals of neighbors are as different as chance makes them").fine
    True
    """

    z: float
    fine: bool
    meaning: str


class Suggestion(NamedTuple):
    """Which candidates to read next, in this order, and how sure the target is after each.

    Attributes
    ----------
    indices : ndarray of int of shape (n,)
        Of the candidates.
    std : ndarray of shape (n,)
        Of the target, after each.

    Examples
    --------
    >>> import numpy as np
    >>> from greenfold.sources import Suggestion  # `SourceFinder.suggest` gives one
    >>> Suggestion(np.array([4, 1]), np.array([0.2, 0.1])).std[-1]
    np.float64(0.1)
    """

    indices: Array  # (n,)
    std: Array  # (n,)


def moran(places: Array, residual: Array, Z: Array) -> Check:
    """Moran's I of residuals e = (I − ZZᵀ)ε, in standard deviations of its values for independent ε.

    With W the matrix of neighbors, I = eᵀWe/eᵀe; the mean and the variance of that ratio are those of
    quadratic forms in ε. Of many readings, some that lie evenly among them are asked.
    """
    n = len(places)
    if n < 2 * NEIGHBORS or not np.any(residual):
        return Check(0.0, True, "too few readings to tell whether their residuals are alike")
    some = np.unique(np.linspace(0, n - 1, min(n, MOST)).astype(int))
    places, e, own = places[some], residual[some], Z[some]
    _, index = cKDTree(places).query(places, NEIGHBORS + 1)
    W = np.zeros((len(some), len(some)))
    for i, near in enumerate(index):
        W[i, near[near != i][:NEIGHBORS]] = 1.0
    W = (W + W.T) / 2
    C = np.eye(len(some)) - own @ (2 * np.eye(Z.shape[1]) - Z.T @ Z) @ own.T  # covariance of e
    mean = np.sum(W * C) / np.trace(C)
    A = W @ C - mean * C
    spread = np.sqrt(2 * np.sum(A * A.T)) / np.trace(C)
    z = float((e @ W @ e / (e @ e) - mean) / spread)
    if z <= ALARM:
        return Check(z, True, "residuals of neighbors are as different as chance makes them")
    meaning = (
        "residuals of neighbors are alike, so readings hold something that the model does not: walls, a "
        "wind or a decay that are not as given, sources beyond `region` or of another width"
    )
    return Check(z, False, meaning)


def next_readings(covariance: Array, noise: float, J: Array, targets: Array, n: int) -> Suggestion:
    """Greedily the n rows of J (c, k) that leave least variance in the `targets` (t, k), summed.

    A reading with slopes j takes (cᵀΣj)²/(σ² + jᵀΣj) from the variance of cᵀx, and Σ loses
    Σj jᵀΣ/(σ² + jᵀΣj).
    """
    S = covariance.copy()
    indices, left = [], []
    for _ in range(n):
        gain = gains(S, noise, J, targets)
        best = int(np.argmax(gain))
        Sj = S @ J[best]
        S = S - np.outer(Sj, Sj) / (noise + J[best] @ Sj)
        indices.append(best)
        left.append(np.einsum("tk,kl,tl->", targets, S, targets))
    return Suggestion(np.array(indices), np.sqrt(np.maximum(left, 0)))


def gains(covariance: Array, noise: float, J: Array, targets: Array) -> Array:
    """What each row of J (c, k) takes from the summed variance of the targets (t, k), shape (c,)."""
    SJ = covariance @ J.T  # (k, c)
    return np.square(targets @ SJ).sum(0) / (noise + np.einsum("ck,kc->c", J, SJ))

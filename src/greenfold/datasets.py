"""Small manifolds whose coordinates are known."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def hidden_plane(
    n: int, n_hidden: int = 2, noise: float = 0.0, seed: Any = 0, D: int = 100, bend: float = 0.0
) -> tuple[Array, Array, Array]:
    """Rows x = Qz of a plane in R^D, a target of the first two coordinates, and z (n, n_hidden).

    u = sin 2z₁ cos 1.5z₂ + ½ sin(z₁ + z₂), z uniform in [−2, 2]. With `bend` the plane is curved by
    sines of random directions of z, of that size in all.
    """
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.normal(size=(D, n_hidden)))
    z = rng.uniform(-2, 2, (n, n_hidden))
    u = np.sin(2 * z[:, 0]) * np.cos(1.5 * z[:, 1]) + 0.5 * np.sin(z[:, 0] + z[:, 1])
    X = z @ Q.T
    y = u + noise * rng.normal(size=n)
    if bend:
        X = X + bend / np.sqrt(D) * np.sin(
            z @ rng.normal(size=(n_hidden, D)) + rng.uniform(0, 6, D)
        )
    return X, y, z


def roll(t: Array, h: Array) -> Array:
    """Points (n, 3) of the swiss roll at angles t and heights h."""
    return np.stack([t * np.cos(t), h, t * np.sin(t)], 1) / 10


def swiss_roll(n: int, seed: Any = 0, rotated: bool = False) -> tuple[Array, Array, Array]:
    """Rows (n, 3) of a sheet rolled up one and a half turns, its angle t and its height h.

    t is uniform in [1.5π, 4.5π] and h in [0, 21], as scikit-learn has it; columns are divided by 10.
    `rotated` turns the roll by a random rotation.
    """
    rng = np.random.default_rng(seed)
    t, h = rng.uniform(1.5 * np.pi, 4.5 * np.pi, n), rng.uniform(0, 21, n)
    X = roll(t, h)
    if rotated:
        X = X @ np.linalg.qr(rng.normal(size=(3, 3)))[0].T
    return X, t, h


def rotated_shape(
    name: str, n: int, angle: float, seed: Any = 0
) -> tuple[Array, NDArray[np.int64]]:
    """Points of the square [−1, 1]² and two classes: a turned 'square', 'checkerboard' or 'stripes'."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    c, s = np.cos(angle), np.sin(angle)
    z = X @ np.array([[c, -s], [s, c]])
    if name == "square":
        return X, (np.abs(z).max(1) < 0.5).astype(np.int64)
    if name == "checkerboard":
        return X, ((np.floor(2 * z[:, 0]) + np.floor(2 * z[:, 1])) % 2).astype(np.int64)
    if name == "stripes":
        return X, (np.floor(3 * z[:, 0]) % 2).astype(np.int64)
    raise ValueError(f"`name` must be 'square', 'checkerboard' or 'stripes', got {name!r}.")

"""Small manifolds whose coordinates are known, and one real set of spectra."""

from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Spectra(NamedTuple):
    """Spectra with what was measured of the same samples.

    Attributes
    ----------
    X : ndarray of shape (n, channels)
        One spectrum in each row.
    Y : ndarray of shape (n, targets)
        Reference values.
    names : list of str
        Of the columns of Y.
    wavelengths : ndarray of shape (channels,)
        Of the columns of X, in nanometers.
    split : ndarray of shape (n,)
        0 marks rows to learn from, 1 rows to test on, 2 rows beyond the range of both.

    Examples
    --------
    >>> meat = load_tecator()
    >>> meat.names
    ['moisture', 'fat', 'protein']
    """

    X: Array
    Y: Array
    names: list[str]
    wavelengths: Array
    split: NDArray[np.int64]


def load_tecator() -> Spectra:
    """Near infrared spectra of 240 samples of meat, with their moisture, fat and protein in percent.

    Recorded on a Tecator Infratec Food and Feed Analyzer: absorbances at 100 channels from 850 to 1050
    nm.
    The data come with the package; `data/tecator.txt` beside them has their source and the permission to
    pass them on. Mention the instrument and the company, Tecator, where you publish results.

    Returns
    -------
    Spectra
        X (240, 100), Y (240, 3), the customary split: 172 rows to learn from, 43 to test on, and 25 that
        have more fat, or more protein, than those.

    Examples
    --------
    >>> meat = load_tecator()
    >>> meat.X.shape, meat.Y.shape
    ((240, 100), (240, 3))
    >>> fat = meat.Y[:, meat.names.index("fat")]
    >>> float(fat[meat.split == 0].max()), float(fat[meat.split == 2].max())
    (49.1, 58.5)
    """
    with (
        files("greenfold").joinpath("data", "tecator.npz").open("rb") as file,
        np.load(file) as npz,
    ):
        Y, split = npz["contents"] / 1e3, npz["split"]
        X = npz["steps"].cumsum(1).cumsum(1).cumsum(1) / 1e5
    wavelengths = np.linspace(850, 1050, X.shape[1])
    return Spectra(X, Y, ["moisture", "fat", "protein"], wavelengths, split.astype(np.int64))


def hidden_plane(
    n: int, n_hidden: int = 2, noise: float = 0.0, seed: Any = 0, D: int = 100, bend: float = 0.0
) -> tuple[Array, Array, Array]:
    """Rows of a plane in R^D, and a target that depends on two of its coordinates.

    x = Qz and u = sin 2z₁ cos 1.5z₂ + ½ sin(z₁ + z₂), z uniform in [−2, 2].

    Parameters
    ----------
    n : int
        Rows.
    n_hidden : int
        Dimensions of the plane. Two of them matter.
    noise : float
        Standard deviation of normal noise in y.
    seed : int or Generator
        Of Q, z and the noise.
    D : int
        Columns.
    bend : float
        Size of sines of random directions of z that are added to x; 0 leaves the plane flat.

    Returns
    -------
    X : ndarray of shape (n, D)
    y : ndarray of shape (n,)
    z : ndarray of shape (n, n_hidden)

    Examples
    --------
    >>> X, y, z = hidden_plane(300, n_hidden=10, noise=0.1)
    >>> X.shape, y.shape, z.shape
    ((300, 100), (300,), (300, 10))
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
    """Points of the swiss roll.

    Parameters
    ----------
    t, h : ndarray of shape (n,)
        Angles and heights.

    Returns
    -------
    ndarray of shape (n, 3)

    Examples
    --------
    >>> roll(np.array([0.0, np.pi]), np.array([0.0, 10.0])).round(2) + 0.0
    array([[ 0.  ,  0.  ,  0.  ],
           [-0.31,  1.  ,  0.  ]])
    """
    return np.stack([t * np.cos(t), h, t * np.sin(t)], 1) / 10


def swiss_roll(n: int, seed: Any = 0, rotated: bool = False) -> tuple[Array, Array, Array]:
    """A sheet rolled up one and a half turns, with its angles and heights.

    t is uniform in [1.5π, 4.5π] and h in [0, 21], as scikit-learn has it; columns are divided by 10.

    Parameters
    ----------
    n : int
        Rows.
    seed : int or Generator
        Of t, h and the rotation.
    rotated : bool
        Turn the roll by a random rotation.

    Returns
    -------
    X : ndarray of shape (n, 3)
    t, h : ndarray of shape (n,)

    Examples
    --------
    >>> X, t, h = swiss_roll(500)
    >>> bool(np.allclose(X, roll(t, h)))
    True
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
    """Points of the square [−1, 1]², and two classes with edges that are turned.

    Parameters
    ----------
    name : 'square', 'checkerboard' or 'stripes'
    n : int
        Rows.
    angle : float
        In radians.
    seed : int or Generator

    Returns
    -------
    X : ndarray of shape (n, 2)
    y : ndarray of shape (n,)
        0 or 1.

    Examples
    --------
    >>> X, y = rotated_shape("stripes", 200, angle=0.5)
    >>> sorted(set(y.tolist()))
    [0, 1]
    """
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

"""The data: real tables, and manifolds whose structure is known.

A directory of real tables holds <name>/data.csv.gz, target last, and <name>/test_mask.csv.gz, one column
per split, 1 for a test row. The other sets come with ten splits made here.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_diabetes

from greenfold.datasets import hidden_plane, swiss_roll

N_SPLITS = 10


class Set(NamedTuple):
    X: np.ndarray  # (n, D)
    y: np.ndarray  # (n,)
    test: np.ndarray  # (n, splits), True for test rows


class Split(NamedTuple):
    """Inputs and targets with mean 0 and variance 1 on the training rows; `scale` is y's unit."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    scale: float


def plane(hidden: int, noise: float, bend: float) -> Set:
    """A plane in R^100 and a function of two of its coordinates: 500 training rows, 1000 test rows."""
    X, y, _ = hidden_plane(1500, n_hidden=hidden, noise=noise, bend=bend, seed=0)
    return Set(X, y, masks(1500, 1000))


def rolled(target: str) -> Set:
    """A turned swiss roll in R³ and a smooth function of its angle, or of angle and height."""
    X, t, h = swiss_roll(1500, seed=0, rotated=True)
    y = np.sin(t) if target == "angle" else np.sin(t) * np.cos(h / 4)
    return Set(X, y, masks(1500, 1000))


def masks(n: int, n_test: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.stack([rng.permutation(n) < n_test for _ in range(N_SPLITS)], axis=1)


SYNTHETIC = {
    "plane": lambda: plane(2, 0.0, 0.0),
    "plane-noisy": lambda: plane(2, 0.1, 0.0),
    "plane-of-5": lambda: plane(5, 0.05, 0.0),
    "plane-bent": lambda: plane(2, 0.0, 0.5),
    "roll-angle": lambda: rolled("angle"),
    "roll-both": lambda: rolled("both"),
}


def tables_in(folder: str | None) -> Path | None:
    """Where the tables are: in the folder, or in its `uci`."""
    if not folder:
        return None
    inner = Path(folder) / "uci"
    return inner if inner.is_dir() else Path(folder)


def real_names(folder: str | None) -> list[str]:
    inside = tables_in(folder)
    paths = sorted(inside.iterdir()) if inside else []
    return ["diabetes", *(p.name for p in paths if (p / "data.csv.gz").exists())]


def load(name: str, folder: str | None) -> Set:
    if name in SYNTHETIC:
        return SYNTHETIC[name]()
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
        return Set(X, y, masks(len(y), len(y) // 10))
    inside = tables_in(folder)
    if inside is None or name not in real_names(folder):
        raise SystemExit(
            f"no data set {name!r}. Have {[*real_names(folder), *SYNTHETIC]}; "
            "name the directory of others with --data or GREENFOLD_DATA."
        )
    table = np.loadtxt(inside / name / "data.csv.gz", delimiter=",")
    test = np.loadtxt(inside / name / "test_mask.csv.gz", delimiter=",", ndmin=2) > 0
    return Set(table[:, :-1], table[:, -1], test)


def split(data: Set, k: int, n: int | None) -> Split:
    """Split k, with n of its training rows if a number is given; the same rows for every method."""
    test = data.test[:, k]
    train = np.random.default_rng(k).permutation(np.flatnonzero(~test))[:n]
    X, y = data.X[train], data.y[train]
    mean, sd = X.mean(0), X.std(0)
    sd = np.where(sd > 1e-12 * np.abs(X).max(0), sd, 1.0)
    shift, scale = y.mean(), float(y.std()) or 1.0
    return Split(
        (X - mean) / sd,
        (y - shift) / scale,
        (data.X[test] - mean) / sd,
        (data.y[test] - shift) / scale,
        scale,
    )

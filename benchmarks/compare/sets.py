"""The data: real tables with a number or a class to predict, and manifolds whose structure is known.

A directory of real tables holds
    uci/<name>/data.csv.gz        a number last; test_mask.csv.gz has a column per split, 1 for a test row
    tables/<name>.csv             a number last
    tables/weka_numeric.zip       ARFF files, a number last
    tables/<name>.csv.gz          a class last
or the first kind only, without the folder `uci`. Two sets come with scikit-learn: diabetes, and digits
(its breast cancer is `wdbc`). No table is chosen by a result: every one counts that has at least 200
training rows and no gaps, since how these are filled would be compared, too.
Categories are one-hot for every method. What has no mask comes with ten splits made here.
"""

import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.csv
from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import StratifiedShuffleSplit, train_test_split

from greenfold.datasets import hidden_plane, swiss_roll
from greenfold.table import Table
from tables import arff

N_SPLITS = 10
LEAST = 200  # training rows of a table
MOST = {"letter": 3000}  # training rows; of other sets
MOST_ROWS = 10_000
MOST_TEST = 5000


class Set(NamedTuple):
    X: np.ndarray  # (n, D)
    y: np.ndarray  # (n,), integers 0, 1, … if they are classes
    test: np.ndarray  # (n, splits), True for test rows
    most: int = MOST_ROWS  # training rows

    @property
    def classes(self) -> int:
        """How many; 0 if y are numbers."""
        return int(self.y.max()) + 1 if self.y.dtype.kind == "i" else 0

    @property
    def n_train(self) -> int:
        return min(self.most, int((~self.test).sum(0).min()))


class Split(NamedTuple):
    """Inputs, and targets that are numbers, with mean 0 and variance 1 on the training rows.

    `scale` is the unit of such targets.
    """

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    scale: float


# --- known manifolds


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


# --- real tables


def diabetes() -> Set:
    X, y = load_diabetes(return_X_y=True)
    return Set(X, y, masks(len(y), len(y) // 10))


def digits() -> Set:
    X, y = load_digits(return_X_y=True)
    return named_classes("digits", X, y)


def masked(folder: Path) -> Set:
    table = np.loadtxt(folder / "data.csv.gz", delimiter=",")
    test = np.loadtxt(folder / "test_mask.csv.gz", delimiter=",", ndmin=2) > 0
    return Set(table[:, :-1], table[:, -1], test)


def numbers(path: Path) -> Set:
    table = np.loadtxt(path, delimiter=",")
    return Set(table[:, :-1], table[:, -1], masks(len(table), len(table) // 4))


def weka(archive: Path, name: str) -> Set:
    with zipfile.ZipFile(archive) as files:
        real = arff(Path(name).stem, files.read(name).decode("latin-1"))
    if any(column.null_count for column in real.frame.columns):
        return Set(np.zeros((0, 1)), np.zeros(0), np.zeros((0, 1), dtype=bool))
    X = Table.learn(real.frame).encode(real.frame)
    return Set(X, real.y, masks(len(X), len(X) // 4))


def classes(path: Path) -> Set:
    options = pyarrow.csv.ReadOptions(autogenerate_column_names=True)
    frame = pyarrow.csv.read_csv(path, read_options=options)
    *_, target = frame.column_names
    y, frame = frame[target].to_numpy().astype(str), frame.drop_columns([target])
    return named_classes(path.name.split(".")[0], Table.learn(frame).encode(frame), y)


def named_classes(name: str, X: np.ndarray, y: np.ndarray) -> Set:
    """A quarter of the rows are test rows, with the same shares of the classes."""
    y = np.unique(y, return_inverse=True)[1].astype(np.int64)
    test = np.zeros((len(y), N_SPLITS), dtype=bool)
    drawn = StratifiedShuffleSplit(N_SPLITS, test_size=0.25, random_state=0).split(X, y)
    for k, (_, rows) in enumerate(drawn):
        test[rows, k] = True
    return Set(X, y, test, MOST.get(name, MOST_ROWS))


def readers(folder: str | None) -> dict[str, Callable[[], Set]]:
    """How to read every set at hand, by its name."""
    found: dict[str, Callable[[], Set]] = {**SYNTHETIC, "diabetes": diabetes, "digits": digits}
    if not folder:
        return found
    inner, tables = Path(folder) / "uci", Path(folder) / "tables"
    for path in sorted((inner if inner.is_dir() else Path(folder)).iterdir()):
        if (path / "data.csv.gz").exists():
            found[path.name] = partial(masked, path)
    for path in sorted(tables.glob("*.csv")):
        found[path.stem] = partial(numbers, path)
    for path in sorted(tables.glob("*.csv.gz")):
        found[path.name.split(".")[0]] = partial(classes, path)
    for archive in sorted(tables.glob("*.zip")):
        with zipfile.ZipFile(archive) as files:
            for name in sorted(files.namelist()):
                found.setdefault(Path(name).stem, partial(weka, archive, name))
    return found


def load(name: str, folder: str | None) -> Set:
    known = readers(folder)
    if name not in known:
        raise SystemExit(
            f"no data set {name!r}. Have {[*known]}; "
            "name the directory of others with --data or GREENFOLD_DATA."
        )
    return known[name]()


def real_sets(folder: str | None) -> dict[str, Set]:
    """Every real table that is compared on."""
    found = {name: read() for name, read in readers(folder).items() if name not in SYNTHETIC}
    return {name: data for name, data in found.items() if data.n_train >= LEAST}


def split(data: Set, k: int, n: int | None) -> Split:
    """Split k, with n of its training rows if a number is given; the same rows for every method."""
    rng = np.random.default_rng(k)
    train, test = (np.flatnonzero(rows) for rows in (~data.test[:, k], data.test[:, k]))
    train, test, n = rng.permutation(train), test[:MOST_TEST], min(n or data.most, data.most)
    if data.classes and n < len(train):
        train, _ = train_test_split(train, train_size=n, stratify=data.y[train], random_state=k)
    train = train[:n]
    X, y, y_test = data.X[train], data.y[train], data.y[test]
    mean, sd, scale = X.mean(0), X.std(0), 1.0
    sd = np.where(sd > 1e-12 * np.abs(X).max(0), sd, 1.0)
    if not data.classes:
        shift, scale = y.mean(), float(y.std()) or 1.0
        y, y_test = (y - shift) / scale, (y_test - shift) / scale
    return Split((X - mean) / sd, y, (data.X[test] - mean) / sd, y_test, scale)

"""Report pages of the site, written into docs/live by `make docs`; those that are there are kept."""

from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits, make_friedman1

from greenfold import IGLClassifier, IGLRegressor, SourceFinder
from greenfold.datasets import hidden_plane, load_tecator
from greenfold.green import Transport

FOLDER = Path(__file__).parent / "live"


def meat(path):
    """Fat from a spectrum: two coordinates in 100 channels."""
    data = load_tecator()
    fat, learn, test = data.Y[:, 1], data.split == 0, data.split == 1
    names = [f"{v:.0f} nm" for v in data.wavelengths]
    known = pd.Series(fat[learn], name="fat")
    model = IGLRegressor(channels=data.wavelengths, random_state=0).fit(data.X[learn], known)
    model.report(path, data.X[test], fat[test], names=names)


def plane(path):
    """Two directions among ten, in 100 columns."""
    X, y, _ = hidden_plane(700, 10, noise=0.1)
    model = IGLRegressor(random_state=0).fit(X[:300], y[:300])
    model.report(path, X[300:], y[300:])


def digits(path):
    """Pictures of four digits."""
    X, y = load_digits(n_class=4, return_X_y=True)
    model = IGLClassifier(random_state=0).fit(X[:400], y[:400])
    model.report(path, X[400:], y[400:])


def friedman(path):
    """A table whose columns have effects that are known."""
    X, y = make_friedman1(500, noise=1.0, random_state=0)
    model = IGLRegressor(random_state=0).fit(X[:300], y[:300])
    model.report(path, X[300:], y[300:])


def leaks(path):
    """Two sources of a gas from forty readings."""
    air, rng = Transport(kappa=3.0, wind=(4.0, 2.0)), np.random.default_rng(0)
    sensors = rng.uniform(0, 1, (40, 2))
    clean = SourceFinder(air).simulate([[0.25, 0.3], [0.7, 0.75]], [1.2, 0.9], sensors)
    finder = SourceFinder(air, region=[[0, 0], [1, 1]])
    finder.fit(sensors, clean + 0.01 * rng.normal(size=40)).report(path)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for make in (meat, plane, digits, friedman, leaks):
        path = FOLDER / f"live-{make.__name__}.html"
        if not path.exists():
            make(path)
            print(path.name, f"{path.stat().st_size / 1e6:.1f} MB")

"""Pictures by default: IGLClassifier() beside a support vector machine that is tuned.

digits (five stratified folds), MNIST (2000 random rows, all 10,000 test pictures), COIL-20 (five random
pictures of each object, all others judge); accuracy, coordinates, and CPU seconds of one thread. The
machine is tuned by three folds of the training rows: standardized or not, C and γ. MNIST comes from
`greenfold data mnist`, COIL-20 from the directory that GREENFOLD_DATA names. Results go to
results/images.json, after every split: a second call goes on from there.

    python benchmarks/images.py [--splits 3] [--sets digits mnist coil]
"""

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from greenfold import IGLClassifier, load_mnist

COORDINATES = 15  # at most


def digits(split, folder):
    X, y = load_digits(return_X_y=True)
    folds = list(StratifiedKFold(5, shuffle=True, random_state=1234).split(X, y))
    train, test = folds[split % 5]
    return X[train], y[train], X[test], y[test]


def mnist(split, folder):
    (X, y), (T, t) = load_mnist("train"), load_mnist("test")
    rows = np.random.default_rng(split).permutation(len(X))[:2000]
    flat = [part.reshape(len(part), -1) / 255.0 for part in (X[rows], T)]
    return flat[0], y[rows], flat[1], t


def coil(split, folder):
    with np.load(folder / "manifolds" / "coil20.npz") as file:
        X, y = file["X"].astype(float), file["y"]
    rng = np.random.default_rng(split)
    known = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:5] for c in np.unique(y)])
    rest = np.setdiff1d(np.arange(len(y)), known)
    return X[known], y[known], X[rest], y[rest]


SETS = {"digits": digits, "mnist": mnist, "coil": coil}


def igl(X, y):
    return IGLClassifier(random_state=0).fit(X, y)


def svc(X, y):
    model = Pipeline([("scale", StandardScaler()), ("svc", SVC())])
    wide = {"svc__C": [1.0, 10.0, 100.0], "svc__gamma": np.logspace(-4, -1, 7)}
    unit = 1 / (X.shape[1] * X.var())  # what "scale" is
    own = wide | {"svc__gamma": unit * np.logspace(-1.5, 1.5, 7)}
    grid = [{"scale": [StandardScaler()]} | wide, {"scale": ["passthrough"]} | own]
    return GridSearchCV(model, grid, cv=3).fit(X, y)


METHODS = {"igl": igl, "svc": svc}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--data", type=Path, default=os.environ.get("GREENFOLD_DATA", "data"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    path = Path("results/images.json")
    path.parent.mkdir(exist_ok=True)
    known = json.loads(path.read_text()) if path.exists() else {}
    for name in arguments.sets:
        for split in range(arguments.splits):
            for method in METHODS:
                key = f"{name}, {method}, {split}"
                if key not in known:
                    X, y, T, t = SETS[name](split, Path(arguments.data))
                    begin = time.process_time()
                    model = METHODS[method](X, y)
                    spent = time.process_time() - begin
                    dims = model.standings_[0].n_dims if method == "igl" else X.shape[1]
                    known[key] = [float(model.score(T, t)), dims, spent]
                    path.write_text(json.dumps(known, indent=1))
                print(f"{key}: {known[key][0]:.4f}, d = {known[key][1]}, {known[key][2]:.0f} CPU-s")
        means = {m: mean(known, name, m, arguments.splits) for m in METHODS}
        good = means["igl"][0] >= means["svc"][0] and means["igl"][1] <= COORDINATES
        print(
            f"{name}: accuracy {means['igl'][0]:.4f} with at most {means['igl'][1]:.0f} coordinates "
            f"(goal: ≥ {means['svc'][0]:.4f} with ≤ {COORDINATES}): {'met' if good else 'MISSED'}",
            flush=True,
        )


def mean(known, name, method, splits):
    """Accuracy, and the most coordinates."""
    rows = np.array([known[f"{name}, {method}, {k}"] for k in range(splits)])
    return rows[:, 0].mean(), rows[:, 1].max()


if __name__ == "__main__":
    main()

"""Few rows of many columns: spectra, faces and genes, beside what people use for them.

The directory (--data, or GREENFOLD_DATA) holds spectra/*.npz, manifolds/faces.npz and genes/srbct.npz.
Splits are the customary ones where there are such, else a quarter of the rows is left out, by seeds 0, 1
and 2; 500 faces are learned from. Peers are tuned by cross-validation on the training rows, xRFM for 5
CPU-seconds; those that are not installed are left out. Every fit is a line of results/wide.jsonl, and a
second run goes on from there. `--page` then writes docs/wide.md.

    python benchmarks/wide.py [--data DIR] [--only tecator faces …] [--methods PLS …] [--page]
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from greenfold import IGLClassifier, IGLRegressor, IGLStack

sys.path.append(str(Path(__file__).parent / "compare"))
from methods import METHODS as COMPARED
from methods import Clock

SPECTRA = ("tecator", "corn", "gasoline", "yarn", "diesel")
SPLITS = 3
BUDGET = 5.0  # CPU-seconds to tune xRFM
ALPHAS = np.logspace(-8, 4, 25)
RESULTS = Path("results/wide.jsonl")
Mask = np.ndarray


# --- rows


class Task(NamedTuple):
    name: str
    X: np.ndarray
    Y: np.ndarray  # (n, c)
    splits: list[tuple[Mask, Mask]]  # rows to learn from, rows that judge


def resplit(rows: np.ndarray, n: int, out: int) -> list[tuple[Mask, Mask]]:
    """`out` of the rows left out, by seeds 0, 1, …"""
    splits = []
    for seed in range(SPLITS):
        order = np.random.default_rng(seed).permutation(rows)
        test, train = np.zeros(n, bool), np.zeros(n, bool)
        test[order[:out]], train[order[out:]] = True, True
        splits.append((train, test))
    return splits


def tasks(data: Path) -> Iterator[Task]:
    for name in SPECTRA:
        held = np.load(data / "spectra" / f"{name}.npz", allow_pickle=True)
        X, Y = held["X"].astype(float), held["Y"].reshape(len(held["X"]), -1)
        for target, y in zip(held["names"], Y.T, strict=True):
            known = np.isfinite(y)
            rows = np.flatnonzero(known)
            splits = resplit(rows, len(X), len(rows) // 4)
            if "split" in held.files:
                part = held["split"]
                splits = [(known & (part == 0), known & (part == 1))]
                if (name, target) == ("tecator", "fat"):
                    inside = np.flatnonzero(part < 2)  # the others are for extrapolation
                    again = resplit(inside, len(X), len(inside) // 4)
                    yield Task("tecator fat, other splits", X, y[:, None], again)
            yield Task(f"{name} {target}", X, y[:, None], splits)
    held = np.load(data / "manifolds" / "faces.npz")
    X = held["X"].astype(float)
    yield Task("faces", X, held["Y"], resplit(np.arange(len(X)), len(X), len(X) - 500))


# --- methods: rows (n, D) and targets (n,) or (n, c) to a fitted model


def ridge(X: np.ndarray, y: np.ndarray) -> Any:
    return RidgeCV(ALPHAS).fit(X, y)


def scaled_ridge(X: np.ndarray, y: np.ndarray) -> Any:
    return make_pipeline(StandardScaler(), RidgeCV(ALPHAS)).fit(X, y)


def pls(X: np.ndarray, y: np.ndarray) -> Any:
    most = min(20, 4 * len(X) // 5 - 2)
    return chosen(PLSRegression(scale=False), {"n_components": list(range(1, most + 1))}, X, y)


def kernel_ridge(X: np.ndarray, y: np.ndarray) -> Any:
    size = float(((X - X.mean(0)) ** 2).sum(1).mean())
    grid = {"gamma": np.logspace(-3, 1, 9) / size, "alpha": np.logspace(-8, 0, 9)}
    return Shifted(X, y, lambda x, t: chosen(KernelRidge(kernel="rbf"), grid, x, t))


def process(X: np.ndarray, y: np.ndarray) -> Any:
    """A Gaussian and a linear kernel on principal components; how many of them, by evidence."""

    def fitted(q: int) -> Any:
        scores = PCA(q).fit(X)
        unit = np.sqrt(scores.explained_variance_[0])
        kernel = ConstantKernel(1.0, (1e-3, 1e5)) * RBF(1.0, (1e-2, 1e3))
        kernel += ConstantKernel(1.0, (1e-3, 1e5)) * DotProduct(0.0, "fixed")
        kernel += WhiteKernel(1e-2, (1e-7, 10.0))
        z = scores.transform(X) / unit
        model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(z, y)
        return model, lambda x: model.predict(scores.transform(x) / unit)

    tried = [fitted(q) for q in (5, 10, 20, 40) if q < min(X.shape)]
    return Predicts(max(tried, key=lambda pair: pair[0].log_marginal_likelihood_value_)[1])


def catboost(X: np.ndarray, y: np.ndarray) -> Any:
    """Every split looks at a tenth of the columns; learning rate and depth by cross-validation."""
    from catboost import CatBoostRegressor

    grid = {"learning_rate": [0.05, 0.1], "depth": [3, 5]}
    options = {"thread_count": 1, "verbose": False, "random_seed": 0, "allow_writing_files": False}
    model = CatBoostRegressor(iterations=300, rsm=0.1, **options)
    models = [chosen(model, grid, X, column, 3) for column in y.reshape(len(y), -1).T]
    return Predicts(lambda x: np.stack([m.predict(x) for m in models], 1))


def compared(name: str) -> Callable[[np.ndarray, np.ndarray], Any]:
    """A peer of `make bench-compare`, tuned as there: columns and target standardized, one at a time."""

    def fit(X: np.ndarray, y: np.ndarray) -> Any:
        units = StandardScaler().fit(X)
        Y = y.reshape(len(y), -1)
        mean, sd = Y.mean(0), Y.std(0)
        models = [
            COMPARED[name].fit(units.transform(X), column, Clock(BUDGET), 0).model
            for column in ((Y - mean) / sd).T
        ]
        return Predicts(
            lambda x: (
                mean + sd * np.stack([np.ravel(m.predict(units.transform(x))) for m in models], 1)
            )
        )

    return fit


def network(name: str) -> Callable[[np.ndarray, np.ndarray], Any]:
    """RealMLP or TabM with the defaults of pytabkit."""

    def fit(X: np.ndarray, y: np.ndarray) -> Any:
        import pytabkit

        model = getattr(pytabkit, f"{name}_D_Regressor")
        return model(device="cpu", n_threads=1, random_state=0).fit(X, y)

    return fit


class Predicts(NamedTuple):
    predict: Callable[[np.ndarray], np.ndarray]


class Shifted:
    """Learned from rows and targets around their mean."""

    def __init__(self, X: np.ndarray, y: np.ndarray, fit: Callable[[Any, Any], Any]):
        self.X0, self.y0 = X.mean(0), y.mean(0)
        self.model = fit(X - self.X0, y - self.y0)

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict(X - self.X0) + self.y0)


def chosen(model: Any, grid: dict[str, Any], X: np.ndarray, y: np.ndarray, k: int = 10) -> Any:
    folds = KFold(k, shuffle=True, random_state=0)
    return GridSearchCV(model, grid, cv=folds, scoring="neg_mean_squared_error").fit(X, y)


class Method(NamedTuple):
    fit: Callable[[np.ndarray, np.ndarray], Any]
    package: str = "sklearn"


METHODS = {
    "Ridge": Method(ridge),
    "Ridge, scaled": Method(scaled_ridge),
    "PLS": Method(pls),
    "kernel ridge": Method(kernel_ridge),
    "Gaussian process": Method(process),
    "CatBoost": Method(catboost, "catboost"),
    "xRFM": Method(compared("xRFM"), "xrfm"),
    "RealMLP": Method(network("RealMLP"), "pytabkit"),
    "TabM": Method(network("TabM"), "pytabkit"),
    "IGLRegressor": Method(lambda X, y: IGLRegressor(random_state=0).fit(X, y), "greenfold"),
    "IGLStack": Method(lambda X, y: IGLStack(random_state=0).fit(X, y), "greenfold"),
}


def installed(method: str) -> bool:
    return importlib.util.find_spec(METHODS[method].package) is not None


# --- results, a line each


def measured(task: Task, split: int, method: str) -> dict[str, Any]:
    train, test = task.splits[split]
    y = task.Y[train] if task.Y.shape[1] > 1 else task.Y[train, 0]
    begin = time.process_time()
    model = METHODS[method].fit(task.X[train], y)
    spent = time.process_time() - begin
    u = np.reshape(model.predict(task.X[test]), (test.sum(), -1))
    rmse = np.sqrt(((u - task.Y[test]) ** 2).mean(0))
    row = {
        "rows": int(train.sum()),
        "columns": task.X.shape[1],
        "rmse": rmse.tolist(),
        "cpu": spent,
    }
    if hasattr(model, "standings_"):
        low, high = (
            end.reshape(u.shape) for end in model.predict_interval(task.X[test], alpha=0.1)
        )
        inside = (low <= task.Y[test]) & (task.Y[test] <= high)
        used = model.standings_[0]
        row |= {"inside": int(inside.sum()), "judges": inside.size}
        row |= {"dims": used.n_dims, "name": used.name}
    return row


def flagged(data: Path) -> dict[str, Any]:
    """Rows of tecator with more fat than any training row, and test rows, by `applicability`."""
    held = np.load(data / "spectra" / "tecator.npz", allow_pickle=True)
    X, part = held["X"].astype(float), held["split"]
    y = held["Y"][:, list(held["names"]).index("fat")]
    model = IGLRegressor(random_state=0).fit(X[part == 0], y[part == 0])
    beyond = (part == 2) & (y > y[part == 0].max())
    far, near = (model.applicability(X[rows]).outside for rows in (beyond, part == 1))
    return {
        "flagged": int(far.sum()),
        "beyond": len(far),
        "alarms": int(near.sum()),
        "test": len(near),
    }


def genes(data: Path) -> dict[str, Any]:
    held = np.load(data / "genes" / "srbct.npz", allow_pickle=True)
    X, y = held["X"].astype(float), held["y"]
    begin = time.process_time()
    model = IGLClassifier(random_state=0).fit(X[:63], y[:63])
    spent = time.process_time() - begin
    peer = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(X[:63], y[:63])
    ours, theirs = (float(m.score(X[63:], y[63:])) for m in (model, peer))
    return {"accuracy": ours, "logistic": theirs, "dims": model.standings_[0].n_dims, "cpu": spent}


def done() -> dict[str, dict[str, Any]]:
    """What was measured, by its key."""
    if not RESULTS.exists():
        return {}
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    return {row["key"]: row for row in rows}


def version() -> str:
    """The commit that is measured."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    here = Path(__file__).parent
    return subprocess.run(
        asked, capture_output=True, text=True, check=True, cwd=here
    ).stdout.strip()


def run(data: Path, only: list[str], methods: list[str]) -> None:
    known, commit = done(), version()
    RESULTS.parent.mkdir(exist_ok=True)

    def once(key: str, measure: Callable[[], dict[str, Any]], **told: Any) -> None:
        if key not in known:
            row = {"key": key, "commit": commit, **told, **measure()}
            with RESULTS.open("a") as file:
                file.write(json.dumps(row) + "\n")
            shown = " ".join(f"{v:.4g}" for v in row.get("rmse", []))
            print(f"{key}: {shown}  {row.get('cpu', 0.0):.1f} CPU-s", flush=True)

    def wanted(name: str) -> bool:
        return not only or any(word in name for word in only)

    for task in tasks(data):
        for split in range(len(task.splits)) if wanted(task.name) else ():
            for method in methods:
                once(
                    f"{task.name} | {split} | {method}",
                    lambda task=task, split=split, method=method: measured(task, split, method),
                    task=task.name,
                    split=split,
                    method=method,
                )
    if wanted("applicability"):
        once("applicability", lambda: flagged(data))
    if wanted("genes"):
        once("genes", lambda: genes(data))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("GREENFOLD_DATA"))
    parser.add_argument("--only", nargs="*", default=[], help="words of names of tasks")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--page", action="store_true", help="write docs/wide.md, too")
    options = parser.parse_args()
    if not options.data:
        parser.error("where are the data? Give --data DIR or set GREENFOLD_DATA.")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for method in options.methods:
        if not installed(method):
            print(f"{method} is left out: {METHODS[method].package} is not installed")
    run(Path(options.data), options.only, [m for m in options.methods if installed(m)])
    if options.page:
        from wide_page import write

        write(done(), Path(options.data), Path("docs"))


if __name__ == "__main__":
    main()

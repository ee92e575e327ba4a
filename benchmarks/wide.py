"""Few rows of many columns: spectra, faces and genes, beside Ridge, PLS and kernel ridge.

The directory (--data, or GREENFOLD_DATA) holds spectra/*.npz, manifolds/faces.npz and genes/srbct.npz.
Splits are the customary ones where there are such, else a quarter of the rows is left out, three times;
500 faces are learned from. RMSE (mean over splits), its ratio to the better of Ridge and PLS, coordinates
of the chart in use, and CPU time of one thread; targets beside what is measured.

    python benchmarks/wide.py [--data DIR] [--only tecator faces …] [--splits 3]
"""

import argparse
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.cross_decomposition import PLSRegression
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from greenfold import IGLClassifier, IGLRegressor, IGLStack

SPECTRA = ("tecator", "corn", "gasoline", "yarn", "diesel")
FACES = (0.055, 0.036, 0.085)
Mask = np.ndarray


class Task(NamedTuple):
    name: str
    X: np.ndarray
    Y: np.ndarray  # (n, c)
    splits: list[tuple[Mask, Mask]]  # rows to learn from, rows that judge


def resplit(rows: np.ndarray, n: int, out: int, count: int) -> list[tuple[Mask, Mask]]:
    """`out` of the rows left out, by seeds 0, 1, …"""
    splits = []
    for seed in range(count):
        order = np.random.default_rng(seed).permutation(rows)
        test, train = np.zeros(n, bool), np.zeros(n, bool)
        test[order[:out]], train[order[out:]] = True, True
        splits.append((train, test))
    return splits


def tasks(data: Path, count: int) -> Iterator[Task]:
    for name in SPECTRA:
        held = np.load(data / "spectra" / f"{name}.npz", allow_pickle=True)
        X = held["X"].astype(float)
        for j, (target, y) in enumerate(zip(held["names"], held["Y"].reshape(len(X), -1).T)):
            known = np.isfinite(y)
            rows = np.flatnonzero(known)
            splits = resplit(rows, len(X), len(rows) // 4, count)
            if "split" in held.files:
                splits = [(known & (held["split"] == 0), known & (held["split"] == 1))]
            yield Task(f"{name} {target}", X, held["Y"].reshape(len(X), -1)[:, [j]], splits)
    held = np.load(data / "manifolds" / "faces.npz")
    X = held["X"].astype(float)
    splits = resplit(np.arange(len(X)), len(X), len(X) - 500, count)
    yield Task("faces", X, held["Y"], splits)


def ridge(X: np.ndarray, y: np.ndarray) -> Any:
    return RidgeCV(np.logspace(-8, 4, 25)).fit(X, y)


def scaled_ridge(X: np.ndarray, y: np.ndarray) -> Any:
    return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-8, 4, 25))).fit(X, y)


def pls(X: np.ndarray, y: np.ndarray) -> Any:
    most = min(20, 4 * len(X) // 5 - 2)
    grid = {"n_components": list(range(1, most + 1))}
    return chosen(PLSRegression(scale=False), grid, X, y)


def kernel_ridge(X: np.ndarray, y: np.ndarray) -> Any:
    size = float(((X - X.mean(0)) ** 2).sum(1).mean())
    grid = {"gamma": np.logspace(-3, 1, 9) / size, "alpha": np.logspace(-8, 0, 9)}
    X0, y0 = X.mean(0), y.mean(0)
    found = chosen(KernelRidge(kernel="rbf"), grid, X - X0, y - y0)
    return type("Model", (), {"predict": lambda self, x: found.predict(x - X0) + y0})()


def chosen(model: Any, grid: dict[str, Any], X: np.ndarray, y: np.ndarray) -> Any:
    folds = KFold(10, shuffle=True, random_state=0)
    return GridSearchCV(model, grid, cv=folds, scoring="neg_mean_squared_error").fit(X, y)


def regressor(X: np.ndarray, y: np.ndarray) -> Any:
    return IGLRegressor(random_state=0).fit(X, y)


def stack(X: np.ndarray, y: np.ndarray) -> Any:
    return IGLStack(random_state=0).fit(X, y)


METHODS = {
    "Ridge": ridge, "Ridge, scaled": scaled_ridge, "PLS": pls, "kernel ridge": kernel_ridge,
    "IGLRegressor": regressor, "IGLStack": stack,
}  # fmt: skip
LINEAR = ("Ridge", "Ridge, scaled", "PLS")


class Result(NamedTuple):
    rmse: np.ndarray  # (c,)
    cpu: float
    dims: list[int]
    covered: list[float]  # share inside 90% intervals


def measured(task: Task, method: str) -> Result:
    errors, spent, dims, covered = [], [], [], []
    for train, test in task.splits:
        y = task.Y[train] if task.Y.shape[1] > 1 else task.Y[train, 0]
        begin = time.process_time()
        model = METHODS[method](task.X[train], y)
        spent.append(time.process_time() - begin)
        u = np.reshape(model.predict(task.X[test]), (test.sum(), -1))
        errors.append(np.sqrt(((u - task.Y[test]) ** 2).mean(0)))
        if hasattr(model, "standings_"):
            dims.append(model.standings_[0].n_dims)
            low, high = model.predict_interval(task.X[test], 0.1)
            inside = (low <= task.Y[test].reshape(low.shape)) & (
                task.Y[test].reshape(low.shape) <= high
            )
            covered.append(float(inside.mean()))
    return Result(np.mean(errors, 0), float(np.mean(spent)), dims, covered)


def genes(data: Path) -> None:
    held = np.load(data / "genes" / "srbct.npz", allow_pickle=True)
    X, y = held["X"].astype(float), held["y"]
    begin = time.process_time()
    model = IGLClassifier(random_state=0).fit(X[:63], y[:63])
    spent = time.process_time() - begin
    peer = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(X[:63], y[:63])
    ours, theirs = (m.score(X[63:], y[63:]) for m in (model, peer))
    dims = model.standings_[0].n_dims
    told = f"{dims} coordinates (≤ 5), {spent:.1f} CPU-s"
    print(f"srbct genes: accuracy {ours:.3f} (1.0 or one row below {theirs:.3f}), {told}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("GREENFOLD_DATA"))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    if not options.data:
        parser.error("where are the data? Give --data DIR or set GREENFOLD_DATA.")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    data, ratios, all_dims = Path(options.data), {"IGLRegressor": [], "IGLStack": []}, []
    for task in tasks(data, options.splits):
        if options.only and not any(word in task.name for word in options.only):
            continue
        found = {method: measured(task, method) for method in METHODS}
        n = int(task.splits[0][0].sum())
        print(f"\n{task.name}: {n} rows, {task.X.shape[1]} columns")
        for method, result in found.items():
            told = " ".join(f"{v:.4g}" for v in result.rmse)
            line = f"    {method:14s} {told:24s} {result.cpu:5.1f} CPU-s"
            if method in ratios:
                line += f"   90% intervals cover {np.mean(result.covered):.2f}"
            if method in ratios and task.name != "faces":
                peer = min(float(found[m].rmse[0]) for m in LINEAR)
                ratio = float(result.rmse[0]) / peer
                ratios[method].append(ratio)
                limit = 1.08 if method == "IGLRegressor" else 1.05
                line += f"   {ratio:.3f} of the better of Ridge and PLS (≤ {limit})"
            if method == "IGLRegressor":
                line += f"   coordinates {result.dims}"
                all_dims += result.dims if task.name != "faces" else []
            print(line, flush=True)
        if task.name == "tecator fat":
            print("    to reach: .50 with at most 3 coordinates")
        if task.name == "faces":
            print(f"    to reach: {FACES} with at most 6 coordinates")
    for method, limit in (("IGLRegressor", 0.87), ("IGLStack", 0.82)):
        if ratios[method]:
            mean = float(np.exp(np.mean(np.log(ratios[method]))))
            print(
                f"\n{method}: geometric mean {mean:.3f} (≤ {limit}), worst {max(ratios[method]):.3f}"
            )
    if all_dims:
        print(
            f"coordinates on spectra: median {median(all_dims)} (≤ 4), most {max(all_dims)} (≤ 10)"
        )
    if not options.only or "genes" in options.only:
        genes(data)


if __name__ == "__main__":
    main()

"""Real tabular data: IGLRegressor and IGLStack beside what users would pick instead.

Peers are tuned by cross-validation on the training rows; nothing is set per data set. Errors are root
mean squares on the test rows of each split. Results go to results/tabular.json.

    python benchmarks/tabular.py --data DIR [--splits 3] [--first 0] [--n N] [--sets a,b] [--methods a,b]

DIR (or GREENFOLD_DATA) holds <name>/data.csv.gz, target last, and <name>/test_mask.csv.gz, one column
per split. Without it only scikit-learn's own set is used.
"""

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from greenfold import IGLRegressor, IGLStack

N_TUNE = 2000  # rows on which the cubic peers are tuned; the fit itself sees all


def standardized(model):
    scaled = make_pipeline(StandardScaler(), model)
    return TransformedTargetRegressor(scaled, transformer=StandardScaler())


def kernel_ridge(kernel, gammas):
    def fit(X, y):
        name = "regressor__kernelridge__"
        grid = {name + "gamma": gammas / X.shape[1], name + "alpha": np.logspace(-7, 0, 8)}
        model = standardized(KernelRidge(kernel=kernel))
        search = GridSearchCV(model, grid, cv=5, scoring="neg_mean_squared_error", refit=False)
        rows = np.random.default_rng(0).permutation(len(X))[:N_TUNE]
        search.fit(X[rows], y[rows])
        return model.set_params(**search.best_params_).fit(X, y)

    return fit


def boosting(X, y):
    grid = {
        "learning_rate": [0.02, 0.05, 0.1, 0.2],
        "max_leaf_nodes": [7, 15, 31],
        "min_samples_leaf": [3, 10, 20],
        "l2_regularization": [0.0, 1.0],
        "max_iter": [150, 300, 600],
    }
    model = HistGradientBoostingRegressor(early_stopping=False, random_state=0)
    search = RandomizedSearchCV(
        model, grid, n_iter=12, cv=3, scoring="neg_mean_squared_error", random_state=0
    )
    return search.fit(X, y)


def trees(X, y):
    grid = {"max_features": [0.35, 0.7, 1.0], "min_samples_leaf": [1, 3]}
    model = ExtraTreesRegressor(n_estimators=300, random_state=0)
    return GridSearchCV(model, grid, cv=3, scoring="neg_mean_squared_error").fit(X, y)


def gp(X, y):
    if len(X) > 1000:
        return None
    kernel = ConstantKernel(1.0) * RBF(np.ones(X.shape[1]), (1e-2, 1e3)) + WhiteKernel(0.1)
    return standardized(GaussianProcessRegressor(kernel, random_state=0)).fit(X, y)


METHODS = {
    "igl": lambda X, y: IGLRegressor(random_state=0).fit(X, y),
    "stack": lambda X, y: IGLStack(random_state=0).fit(X, y),
    "stack full": lambda X, y: IGLStack(effort="full", random_state=0).fit(X, y),
    "krr rbf": kernel_ridge("rbf", np.logspace(-2, 1, 7)),
    "krr l1": kernel_ridge("laplacian", np.logspace(-2, 1, 7)),
    "hist gb": boosting,
    "trees": trees,
    "gp ard": gp,
}
OURS = ("igl", "stack", "stack full")


def data_sets(folder, names):
    """Yields name, X, y and the test masks (n, splits)."""
    X, y = load_diabetes(return_X_y=True)
    rng = np.random.default_rng(0)
    masks = np.stack([rng.permutation(len(y)) < len(y) // 10 for _ in range(10)], axis=1)
    if not names or "diabetes" in names:
        yield "diabetes", X, y, masks
    for path in sorted(Path(folder).iterdir()) if folder else []:
        if (path / "data.csv.gz").exists() and (not names or path.name in names):
            table = np.loadtxt(path / "data.csv.gz", delimiter=",")
            masks = np.loadtxt(path / "test_mask.csv.gz", delimiter=",", ndmin=2) > 0
            yield path.name, table[:, :-1], table[:, -1], masks


def run(method, X, y, X_new, y_new):
    start = time.process_time()
    model = METHODS[method](X, y)
    seconds = time.process_time() - start
    if model is None:
        return None
    result = {
        "rmse": float(np.sqrt(np.mean((model.predict(X_new) - y_new) ** 2))),
        "cpu": seconds,
    }
    if hasattr(model, "predict_interval"):
        low, high = model.predict_interval(X_new)
        result["coverage"] = float(np.mean((low <= y_new) & (y_new <= high)))
    return result


def ranks(results, methods):
    """Mean rank over (set, split), among methods that ran."""
    cells = {}
    for r in results:
        cells.setdefault((r["set"], r["split"]), {})[r["method"]] = r["rmse"]
    places = {m: [] for m in methods}
    for errors in cells.values():
        for place, method in enumerate(sorted(errors, key=errors.get), 1):
            places[method].append(place)
    return {m: float(np.mean(p)) for m, p in places.items() if p}


def report(results, methods):
    names = list(dict.fromkeys(r["set"] for r in results))
    print(f"\n{'set':<14}" + "".join(f"{m:>12}" for m in methods) + "   ours/best peer")
    ratios = {m: [] for m in methods if m in OURS}
    for name in names:
        mean = {}
        for method in methods:
            errors = [r["rmse"] for r in results if r["set"] == name and r["method"] == method]
            mean[method] = float(np.mean(errors)) if errors else np.nan
        peers = [mean[m] for m in methods if m not in OURS and np.isfinite(mean[m])]
        line = f"{name:<14}" + "".join(f"{mean[m]:12.4g}" for m in methods) + "   "
        for method in ratios:
            if peers and np.isfinite(mean[method]):
                ratios[method].append(mean[method] / min(peers))
                line += f"{ratios[method][-1]:6.3f}"
        print(line)
    cpu = {m: [r["cpu"] for r in results if r["method"] == m] for m in methods}
    place = ranks(results, methods)
    print(f"{'mean rank':<14}" + "".join(f"{place.get(m, np.nan):12.2f}" for m in methods))
    print(f"{'CPU-s, mean':<14}" + "".join(f"{np.mean(cpu[m] or np.nan):12.1f}" for m in methods))
    for method, r in ratios.items():
        covered = [c["coverage"] for c in results if c["method"] == method and "coverage" in c]
        if r:
            print(
                f"{method}: RMSE over the best peer's {np.exp(np.mean(np.log(r))):.3f} (geometric mean), "
                f"worst {max(r):.3f}; 95% intervals cover {np.mean(covered):.3f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default=os.environ.get("GREENFOLD_DATA"))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="first split")
    parser.add_argument("--n", type=int, help="use only this many training rows")
    parser.add_argument("--sets", help="comma-separated; all by default")
    parser.add_argument("--methods", help="comma-separated; all by default")
    parser.add_argument("--out", default="results/tabular.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    chosen = arguments.methods.split(",") if arguments.methods else list(METHODS)
    results = []
    names = arguments.sets.split(",") if arguments.sets else []
    for name, X, y, masks in data_sets(arguments.data, names):
        for split in range(arguments.first, arguments.first + arguments.splits):
            test = masks[:, split]
            train = np.flatnonzero(~test)
            train = np.random.default_rng(split).permutation(train)[: arguments.n]
            for method in chosen:
                result = run(method, X[train], y[train], X[test], y[test])
                if result is None:
                    continue
                results.append({"set": name, "split": split, "method": method, **result})
                print(
                    f"{name:<14} {split:>2} {method:<12} {result['rmse']:10.4g} "
                    f"{result['cpu']:7.1f} CPU-s",
                    flush=True,
                )
    report(results, chosen)
    path = Path(arguments.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1))
    print(f"written to {path}")


if __name__ == "__main__":
    main()

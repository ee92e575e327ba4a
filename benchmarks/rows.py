"""Errors against rows: 1,000, 4,000, 16,000 and all of them, beside tuned peers at every size.

    python benchmarks/rows.py [--data DIR] [--sizes 1000,4000,16000,all] [--sets …] [--methods …]

Sets are those of `compare` with more than 5,000 rows, and friedman1 with 100,000. Peers are tuned
within `--budget` CPU-seconds, times the number of rows over 4,000 if that is more. From 4,000 rows on
boosting may have more and larger trees than in `compare`, and is tuned on up to 8,000 rows. One split,
one thread and a process of its own for every run. Results are appended to results/rows.jsonl; what is
there is not run again. The table at the end has RMSE in standard deviations of y, CPU-seconds, coverage
of 90% intervals, and the rank correlation of |error| with the standard deviation that is told.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.update({f"{lib}_NUM_THREADS": "1" for lib in ("OMP", "MKL", "OPENBLAS")})
HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE / "compare")]

import numpy as np  # noqa: E402
from methods import (  # noqa: E402
    BOOSTING,
    BOOSTING_FIRST,
    CATBOOST,
    CATBOOST_FIRST,
    LIGHTGBM,
    LIGHTGBM_FIRST,
    METHODS,
    Clock,
    catboost,
    hist_boosting,
    installed,
    lightgbm,
    tuned,
)
from scipy.stats import gmean, spearmanr  # noqa: E402
from sets import load  # noqa: E402
from sklearn.datasets import make_friedman1  # noqa: E402

SETS = ("protein", "elevators", "parkinsons", "kin8nm", "pumadyn32nm", "friedman1")
OURS = ("IGLRegressor", "IGLStack")
PEERS = ("LightGBM", "CatBoost", "xRFM", "HistGB")
MOST_TEST = 5000
MANY = 4000  # rows from which boosting wants more and larger trees
TUNED_ON = 8000
TREES = [100, 200, 400, 800, 1600, 3200]
LEAVES = [15, 31, 63, 127, 255]
LARGER = {
    "LightGBM": tuned(
        lightgbm,
        {**LIGHTGBM, "num_leaves": LEAVES, "n_estimators": TREES},
        {**LIGHTGBM_FIRST, "learning_rate": 0.05, "num_leaves": 63, "n_estimators": 800},
        TUNED_ON,
    ),
    "HistGB": tuned(
        hist_boosting,
        {**BOOSTING, "max_leaf_nodes": LEAVES, "max_iter": TREES},
        {**BOOSTING_FIRST, "learning_rate": 0.05, "max_leaf_nodes": 63, "max_iter": 400},
        TUNED_ON,
    ),
    "CatBoost": tuned(
        catboost,
        {**CATBOOST, "depth": [4, 6, 8], "iterations": TREES},
        {**CATBOOST_FIRST, "depth": 6, "iterations": 800},
        TUNED_ON,
    ),
}


def rows(name: str, folder: str | None) -> tuple[np.ndarray, ...]:
    """Training rows in random order and test rows, standardized by the former."""
    if name == "friedman1":
        X, y = make_friedman1(100_000 + MOST_TEST, noise=1.0, random_state=0)
        test = np.arange(len(X)) >= 100_000
    else:
        data = load(name, folder)
        X, y, test = data.X, data.y, data.test[:, 0]
    order = np.random.default_rng(0).permutation(np.flatnonzero(~test))
    there = np.flatnonzero(test)[:MOST_TEST]
    sd = X[order].std(0)
    X = (X - X[order].mean(0)) / np.where(sd > 0, sd, 1.0)
    y = (y - y[order].mean()) / y[order].std()
    return X[order], y[order], X[there], y[there]


def run(name: str, size: str, method: str, folder: str | None, budget: float) -> dict[str, Any]:
    """One fit, in this process."""
    warnings.simplefilter("ignore")
    X, y, X_test, y_test = rows(name, folder)
    n = len(X) if size == "all" else int(size)
    X, y = X[:n], y[:n]
    begin = time.process_time()
    clock = Clock(budget * max(len(X) / 4000, 1))
    fit = LARGER[method] if len(X) >= MANY and method in LARGER else METHODS[method].fit
    model, _ = fit(X, y, clock, 0)
    spent = time.process_time() - begin
    begin = time.process_time()
    error = model.predict(X_test) - y_test
    told: dict[str, Any] = {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "cpu": spent,
        "rows_per_second": len(X_test) / (time.process_time() - begin),
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    if hasattr(model, "predict_interval"):
        low, high = model.predict_interval(X_test, alpha=0.1)
        _, std = model.predict(X_test, return_std=True)
        told["coverage"] = float(np.mean((low <= y_test) & (y_test <= high)))
        told["spearman"] = float(spearmanr(std, np.abs(error))[0])
        told["anchors"] = getattr(model, "solver_info_", {}).get("anchors")
    return told


def read(path: Path) -> dict[tuple[str, str, str], dict[str, Any]]:
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines]
    return {(r["set"], r["size"], r["method"]): r for r in found}


def table(results: dict[tuple[str, str, str], dict[str, Any]], sizes: list[str]) -> None:
    """Errors and costs, and what the sizes say of ours beside the best peer."""
    ratios = []
    for name in dict.fromkeys(name for name, _, _ in results):
        for size in sizes:
            cells = {m: r for (s, n, m), r in results.items() if (s, n) == (name, size)}
            cells = {m: r for m, r in cells.items() if "rmse" in r}
            if cells:
                shown = "  ".join(
                    f"{m} {r['rmse']:.4f} ({r['cpu']:.0f} s)" for m, r in cells.items()
                )
                print(f"{name:<14}{size:>6}  {shown}")
            peers = [r["rmse"] for m, r in cells.items() if m in PEERS]
            if size == "all" and peers and "IGLRegressor" in cells:
                ratios.append(cells["IGLRegressor"]["rmse"] / min(peers))
        for m in OURS:
            known = [results.get((name, size, m), {}).get("rmse") for size in sizes]
            known = [value for value in known if value is not None]
            if len(known) > 1:
                rises = max(b / a for a, b in pairwise(known))
                print(f"{name:<14}       {m}: with more rows at most × {rises:.3f}")
    if ratios:
        print(f"all rows, over the best peer: mean {gmean(ratios):.3f}, most {max(ratios):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("GREENFOLD_DATA"))
    parser.add_argument("--sizes", default="1000,4000,16000,all")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--methods", default=",".join((*OURS, *PEERS)))
    parser.add_argument("--budget", type=float, default=15.0)
    parser.add_argument("--results", default=str(HERE.parent / "results" / "rows.jsonl"))
    parser.add_argument("--one", help=argparse.SUPPRESS)  # set/size/method, in this process
    arguments = parser.parse_args()
    if arguments.one:
        told = run(*arguments.one.split("/"), arguments.data, arguments.budget)
        print(json.dumps(told))
        return
    path, sizes = Path(arguments.results), arguments.sizes.split(",")
    path.parent.mkdir(parents=True, exist_ok=True)
    known = [m for m in arguments.methods.split(",") if installed(METHODS[m])]
    for name in arguments.sets.split(","):
        if name != "friedman1" and not arguments.data:
            print(f"{name}: name the directory of real tables with --data or GREENFOLD_DATA")
            continue
        most = len(rows(name, arguments.data)[0])
        for size in (s for s in sizes if s == "all" or int(s) < most):
            for method in known:
                if (name, size, method) in read(path):
                    continue
                one = ["--one", f"{name}/{size}/{method}", "--budget", str(arguments.budget)]
                one += ["--data", arguments.data] if arguments.data else []
                done = subprocess.run(
                    [sys.executable, __file__, *one], capture_output=True, text=True, check=False
                )
                failed = {"failed": (done.stderr.strip().splitlines() or ["?"])[-1]}
                told = failed if done.returncode else json.loads(done.stdout.splitlines()[-1])
                with path.open("a") as file:
                    file.write(
                        json.dumps({"set": name, "size": size, "method": method, **told}) + "\n"
                    )
                print(name, size, method, told, flush=True)
    table(read(path), sizes)


if __name__ == "__main__":
    main()

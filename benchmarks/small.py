"""Small noisy tables: the defaults beside Ridge, boosting and extra trees, and beside the mean.

The directory (--data, or GREENFOLD_DATA) holds tables/weka_numeric.zip, ARFF files whose last attribute
is a number; categories become one-hot columns and gaps are filled, as on the command line. Three tenths
of the rows judge, by seeds 0, 1, … R² (mean over splits) and CPU time of one thread; then what is behind.

    python benchmarks/small.py [--data DIR] [--splits 5] [--first 0] [--only servo cloud …]
"""

import argparse
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from greenfold import IGLRegressor, IGLStack
from greenfold.table import Table
from tables import Real, tables

METHODS: dict[str, Any] = {
    "mean": lambda seed: DummyRegressor(),
    "Ridge": lambda seed: make_pipeline(StandardScaler(), RidgeCV(np.logspace(-4, 5, 28))),
    "boosting": lambda seed: HistGradientBoostingRegressor(random_state=seed),
    "trees": lambda seed: ExtraTreesRegressor(300, random_state=seed),
    "IGLRegressor": lambda seed: IGLRegressor(random_state=seed),
    "IGLStack": lambda seed: IGLStack(random_state=seed),
}
PEERS = ("Ridge", "boosting", "trees")
OURS = ("IGLRegressor", "IGLStack")
BEHIND = 0.05  # of R²
ROWS = 40  # from which a table counts beside Ridge


def measured(real: Real, seed: int) -> tuple[dict[str, float], dict[str, float], str]:
    """R² and CPU of every method on one split, and what the regressor uses."""
    n = len(real.y)
    order = np.random.default_rng(seed).permutation(n)
    train, test = order[: 7 * n // 10], order[7 * n // 10 :]
    table = Table.learn(real.frame.take(pa.array(train)))
    X, X_test = (table.encode(real.frame.take(pa.array(rows))) for rows in (train, test))
    scores, spent, used = {}, {}, ""
    for name, make in METHODS.items():
        begin = time.process_time()
        model = make(seed).fit(X, real.y[train])
        spent[name] = time.process_time() - begin
        scores[name] = r2_score(real.y[test], model.predict(X_test))
        if name == "IGLRegressor":
            best = model.standings_[0]
            used = f"{best.name} ({best.n_dims}), left out {1 - best.score**2:.2f}"
    return scores, spent, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("GREENFOLD_DATA"))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    if not options.data:
        parser.error("where are the data? Give --data DIR or set GREENFOLD_DATA.")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"{'':14s}{'rows':>5s}{'cols':>5s}", *(f"{name:>12s}" for name in METHODS), "  CPU-s")
    means: dict[str, dict[str, float]] = {}
    for real in tables(Path(options.data)):
        if (
            real.y.dtype.kind != "f"
            or not real.weka
            or real.name not in (options.only or [real.name])
        ):
            continue
        runs = [measured(real, options.first + k) for k in range(options.splits)]
        means[real.name] = {m: float(np.mean([run[0][m] for run in runs])) for m in METHODS}
        cpu = " ".join(f"{np.mean([run[1][m] for run in runs]):5.1f}" for m in OURS)
        told = " ".join(f"{means[real.name][m]:12.3f}" for m in METHODS)
        shape = f"{len(real.y):5d}{real.frame.num_columns:5d}"
        print(f"{real.name:14s}{shape} {told}  {cpu}  {runs[0][2]}", flush=True)
        if len(real.y) < ROWS:
            means[real.name]["small"] = 1.0
    for ours in OURS:
        large = {name: row for name, row in means.items() if "small" not in row}
        behind = [name for name, row in large.items() if row[ours] < row["Ridge"] - BEHIND]
        worse = [name for name, row in means.items() if row[ours] < row["mean"] - BEHIND]
        ahead = [row[ours] > max(row[peer] for peer in PEERS) for row in means.values()]
        mean, ridge = (np.mean([row[m] for row in means.values()]) for m in (ours, "Ridge"))
        print(
            f"{ours}: mean R² {mean:.3f} (Ridge {ridge:.3f}); more than {BEHIND} below Ridge on "
            f"{len(behind)} of {len(large)} with at least {ROWS} rows {behind}; more than {BEHIND} "
            f"below the mean on {len(worse)} {worse}; above every peer on {sum(ahead)} of {len(ahead)}"
        )


if __name__ == "__main__":
    main()

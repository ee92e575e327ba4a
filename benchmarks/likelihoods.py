"""Counts and quantiles of real tables, beside boosting with the same loss.

Of the tables that `tables.py` finds, counts are targets of whole numbers from 0 on, with at least 10 and
at most 1000 different values and a mean below 100; quantiles (5%, 50%, 95%) are of the tables in uci. At
most 1000 rows are fitted to and 2000 judge, by seeds 0, 1, … Boosting (scikit-learn's) is tuned by three
folds over rounds, rate and rows of a leaf, for every level by itself.

    python benchmarks/likelihoods.py [--data DIR] [--splits 3] [--only strike wine …]
"""

import argparse
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import make_scorer, mean_pinball_loss, mean_poisson_deviance
from sklearn.model_selection import GridSearchCV

from greenfold import IGLRegressor
from greenfold.likelihoods import Quantile
from greenfold.table import Table
from tables import Real, tables

LEVELS = (0.05, 0.5, 0.95)
GRID = {"max_iter": [50, 150, 400], "learning_rate": [0.03, 0.1], "min_samples_leaf": [5, 20]}
ROWS = (1000, 2000)  # to fit to, and that judge


def is_count(y: np.ndarray) -> bool:
    if y.dtype.kind not in "iuf" or (y < 0).any() or (y != np.round(y)).any():
        return False
    return 10 <= len(np.unique(y)) <= 1000 and y.mean() < 100 and len(y) >= 100


def boosting(loss: str, scorer: Any, **more: Any) -> GridSearchCV:
    model = HistGradientBoostingRegressor(loss=loss, random_state=0, **more)
    return GridSearchCV(model, GRID, scoring=scorer, cv=3)


def split(real: Real, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    n = len(real.y)
    order = np.random.default_rng(seed).permutation(n)
    k = min(ROWS[0], 7 * n // 10)
    train, test = order[:k], order[k : k + ROWS[1]]
    table = Table.learn(real.frame.take(pa.array(train)))
    X, new = (table.encode(real.frame.take(pa.array(rows))) for rows in (train, test))
    return X, real.y[train].astype(float), new, real.y[test].astype(float)


def counts(real: Real, seed: int) -> dict[str, float]:
    """Mean deviance of Poisson at new rows."""
    X, y, new, truth = split(real, seed)
    least = 1e-6
    scorer = make_scorer(
        lambda t, p: mean_poisson_deviance(t, np.maximum(p, least)), greater_is_better=False
    )
    models = {
        "poisson": IGLRegressor(likelihood="poisson", random_state=seed),
        "negative_binomial": IGLRegressor(likelihood="negative_binomial", random_state=seed),
        "boosting": boosting("poisson", scorer),
    }
    told = {}
    for name, model in models.items():
        begin = time.process_time()
        guess = np.maximum(model.fit(X, y).predict(new), least)
        told[name] = mean_poisson_deviance(truth, guess)
        told[f"{name} CPU"] = time.process_time() - begin
    return told


def quantiles(real: Real, seed: int) -> dict[str, float]:
    """Pinball loss, all levels together, and the share of new rows between the outer ones."""
    X, y, new, truth = split(real, seed)
    begin = time.process_time()
    own = IGLRegressor(likelihood=Quantile(LEVELS), random_state=seed).fit(X, y).predict(new)
    spent = [time.process_time() - begin]
    begin = time.process_time()
    peer = np.column_stack(
        [
            boosting(
                "quantile",
                make_scorer(mean_pinball_loss, greater_is_better=False, alpha=q),
                quantile=q,
            )
            .fit(X, y)
            .predict(new)
            for q in LEVELS
        ]
    )
    spent.append(time.process_time() - begin)
    told = {}
    for name, guess, cpu in zip(("quantiles", "boosting"), (own, peer), spent):
        each = [mean_pinball_loss(truth, guess[:, k], alpha=q) for k, q in enumerate(LEVELS)]
        inside = (guess[:, 0] <= truth) & (truth <= guess[:, -1])
        told |= {name: sum(each), f"{name} covers": float(inside.mean()), f"{name} CPU": cpu}
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("GREENFOLD_DATA"))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[])
    arguments = parser.parse_args()
    if not arguments.data:
        raise SystemExit("give --data, or set GREENFOLD_DATA.")
    warnings.simplefilter("ignore")
    for real in tables(Path(arguments.data)):
        if arguments.only and real.name not in arguments.only:
            continue
        in_uci = not real.weka and real.y.dtype.kind == "f" and len(np.unique(real.y)) > 20
        for measure in [counts] * is_count(real.y) + [quantiles] * in_uci:
            runs = [measure(real, seed) for seed in range(arguments.splits)]
            means = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
            told = ", ".join(f"{key} {value:.4g}" for key, value in means.items())
            print(
                f"{measure.__name__:10s} {real.name:14s} {len(real.y):6d} rows  {told}", flush=True
            )


if __name__ == "__main__":
    main()

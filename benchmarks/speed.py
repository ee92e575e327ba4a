"""How long the defaults take, beside the code before: CPU-seconds of one thread, and errors at new rows.

Errors are RMSE in standard deviations of y, or the log-loss of classes.

    python benchmarks/speed.py [--before COMMIT] [--data DIR] [--repeat 3] [--only TEXT …] [--no-before]

The code before is laid out in a git worktree and measured in the same run, case by case in turn, since
machines are noisy; medians of the repeats count. Real tables come from --data or GREENFOLD_DATA, as
`tables.py` has them; what is not there is left out. Seconds are also scaled to a machine where the
Cholesky factor of a 1000 × 1000 matrix takes 13 ms.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

BEFORE = "229779f"
FRIEDMAN = (300, 1000, 3000, 10_000)
REAL = ("concrete", "energy", "wine", "kin8nm", "pumadyn32nm")
TABLES = (
    "australian", "contraceptive", "heart", "ionosphere", "letter", "mammographic", "phoneme", "pima",
    "segment", "spambase", "vehicle",
)  # fmt: skip
CLASSES = ("iris", "wine_types", "cancer", "digits", *TABLES)
MANY = "200 classes"  # for which the code before would take too long
LIMITS = {"friedman1 300": 1.5, "friedman1 1000": 4.0, "friedman1 10000": 8.0, MANY: 20.0}  # s


def rows(name: str, data: Path | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Inputs and target of a case, in random order."""
    from sklearn import datasets

    if name.startswith("friedman1"):
        return datasets.make_friedman1(int(name.split()[1]) + 2000, noise=1.0, random_state=1)
    if name == MANY:  # 3000 rows to learn from and 1000 to judge by
        return datasets.make_blobs(4000, 10, centers=200, cluster_std=2.0, random_state=0)[:2]
    loaders = {
        "iris": datasets.load_iris,
        "wine_types": datasets.load_wine,
        "cancer": datasets.load_breast_cancer,
        "digits": datasets.load_digits,
        "diabetes": datasets.load_diabetes,
    }
    if name in loaders:
        X, y = loaders[name](return_X_y=True)
    else:
        paths = [] if data is None else [data / "uci" / name / "data.csv.gz"]
        paths += (
            []
            if data is None
            else [data / "tables" / f"{name}{end}" for end in (".csv", ".csv.gz")]
        )
        path = next((p for p in paths if p.exists()), None)
        if path is None:
            return None
        table = np.loadtxt(path, delimiter=",", dtype=str)
        X, y = table[:, :-1].astype(float), table[:, -1]
        y = y if name in CLASSES else y.astype(float)
    order = np.random.default_rng(0).permutation(len(X))
    return X[order], y[order]


def measured(name: str, data: Path | None, seed: int) -> dict[str, Any] | None:
    """CPU-seconds and error of one fit, by whichever greenfold is on the path."""
    import torch
    from sklearn.metrics import log_loss

    from greenfold import IGLClassifier, IGLRegressor

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = rows(name, data)
    if found is None:
        return None
    X, y = found
    n = int(name.split()[1]) if name.startswith("friedman1") else min(3000, int(0.8 * len(X)))
    classes = name in (*CLASSES, MANY)
    kind = IGLClassifier if classes else IGLRegressor
    begin = time.process_time()
    model = kind(random_state=seed).fit(X[:n], y[:n])
    spent, X, y = time.process_time() - begin, X[n:], y[n:]
    if classes:
        error = log_loss(y, model.predict_proba(X), labels=model.classes_)
    else:
        error = float(np.sqrt(np.square(model.predict(X) - y).mean()) / y.std())
    return {"seconds": spent, "error": float(error)}


def elsewhere(name: str, data: Path | None, seed: int, source: Path) -> dict[str, Any] | None:
    """The same in a process that has the greenfold of this folder."""
    command = [sys.executable, __file__, "--measure", name, "--seed", str(seed)]
    command += [] if data is None else ["--data", str(data)]
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    answer: dict[str, Any] | None = json.loads(done.stdout.splitlines()[-1])
    return answer


def floor() -> float:
    """Seconds of a Cholesky factor here, over those of the machine that limits are meant for."""
    from scipy.linalg import cho_factor

    A = np.random.default_rng(0).normal(size=(1000, 1000))
    A, spent = A @ A.T + 1000 * np.eye(1000), []
    for _ in range(9):
        begin = time.process_time()
        cho_factor(A)
        spent.append(time.process_time() - begin)
    return median(spent) / 0.013


def compare(cases: list[str], data: Path | None, repeat: int, before: Path | None) -> None:
    here = Path(__file__).parent.parent / "src"
    slower = floor()
    print(f"this machine takes {slower:.2f} times as long as the one that limits are meant for")
    print(f"{'':<18}{'before':>9}{'now':>8}{'scaled':>8}{'limit':>7}{'ratio':>7}{'error':>17}")
    ratios: dict[str, float] = {}
    changes: dict[str, float] = {}  # of errors
    for name in cases:
        now: list[dict[str, Any]] = []
        old: list[dict[str, Any]] = []
        for seed in range(repeat):
            for source, kept in ((before, old), (here, now)):
                skipped = source is None or (source == before and name == MANY)
                one = None if skipped else elsewhere(name, data, seed, source)
                kept += [] if one is None else [one]
        if not now:
            print(f"{name:<18}  not at hand")
            continue
        spent, error = (median(o[key] for o in now) for key in ("seconds", "error"))
        line = f"{spent:>7.1f}s{spent / slower:>7.1f}s"
        line += f"{f'{LIMITS[name]:g}s' if name in LIMITS else '':>7}"
        if not old:
            print(f"{name:<18}{'':>9}{line}{'':>7}{error:>17.4f}", flush=True)
            continue
        once, error_before = (median(o[key] for o in old) for key in ("seconds", "error"))
        ratios[name], changes[name] = once / spent, error / error_before
        errors = f"{error_before:.4f} → {error:.4f}"
        print(f"{name:<18}{once:>8.1f}s{line}{ratios[name]:>6.1f}×{errors:>17}", flush=True)
    for what, some in (
        ("regression, without kin8nm", [n for n in ratios if n not in (*CLASSES, "kin8nm")]),
        ("classes", [n for n in ratios if n in CLASSES]),
    ):
        if some:
            faster, error = (
                math.exp(sum(math.log(values[n]) for n in some) / len(some))
                for values in (ratios, changes)
            )
            print(
                f"{what}: {faster:.1f} times as fast, {error:.3f} times the error "
                f"(geometric means of {len(some)})"
            )


def predicting(repeat: int) -> None:
    """One row, and many."""
    from greenfold import IGLRegressor, Source, Training

    X = np.random.default_rng(1).normal(size=(200_000, 8))
    y = np.sin(X[:300, 0]) + X[:300, 1]
    for chart, d in (("linear", 2), ("axis", 8)):
        options = {"n_dims": d} if chart == "linear" else {}
        source, training = Source(n_atoms=150), Training(max_iter=5)
        model = IGLRegressor(chart, source=source, training=training, random_state=0, **options)
        model.fit(X[:300], y)
        spent = {}
        for n, times in ((1, 200), (len(X), 1)):
            begin = [time.perf_counter()]
            for _ in range(repeat * times):
                model.predict(X[:n])
                begin.append(time.perf_counter())
            spent[n] = median(np.diff(begin))
        rate = len(X) / spent[len(X)] / 1e6
        print(f"predict, d = {d}, 150 anchors: 1 row {1e3 * spent[1]:.2f} ms; {rate:.2f}M rows/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", default=BEFORE)
    parser.add_argument("--no-before", action="store_true")
    parser.add_argument("--data", type=Path, default=os.environ.get("GREENFOLD_DATA"))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--only", nargs="*", default=[], help="cases whose names contain one of these"
    )
    parser.add_argument("--measure", help="one case, by itself")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    data = None if arguments.data is None else Path(arguments.data)
    if arguments.measure:
        print(json.dumps(measured(arguments.measure, data, arguments.seed)))
        return
    cases = [f"friedman1 {n}" for n in FRIEDMAN] + ["diabetes", *REAL, *CLASSES, MANY]
    cases = [c for c in cases if not arguments.only or any(t in c for t in arguments.only)]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        root = Path(__file__).parent.parent
        git = ["git", "-C", str(root), "worktree"]
        if arguments.no_before:
            compare(cases, data, arguments.repeat, None)
        else:
            subprocess.run([*git, "add", "-q", "--detach", str(tree), arguments.before], check=True)
            try:
                compare(cases, data, arguments.repeat, tree / "src")
            finally:
                subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    if not arguments.only or "predict" in arguments.only:
        predicting(arguments.repeat)


if __name__ == "__main__":
    main()

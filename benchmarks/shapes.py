"""Rotated square, checkerboard and stripes: IGLClassifier() beside a tuned support vector machine.

1,000 training rows, 4,000 test rows, fresh seeds and a fresh rotation each; accuracy and log-loss, CPU
time of one thread. Results go to results/shapes.json.

    python benchmarks/shapes.py [--seeds 5]
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from statistics import median

import numpy as np
import torch
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from greenfold import IGLClassifier
from greenfold.datasets import rotated_shape

GOALS = {"square": 0.990, "checkerboard": 0.955, "stripes": 0.990}


def svm(X, y):
    grid = {"C": np.logspace(0, 4, 5), "gamma": np.logspace(-0.5, 2, 6)}
    best = GridSearchCV(SVC(), grid, cv=4).fit(X, y).best_params_
    return SVC(probability=True, random_state=0, **best).fit(X, y)


METHODS = {"igl": lambda X, y: IGLClassifier(random_state=0).fit(X, y), "svm": svm}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results = []
    print(
        f"{'shape':<14} {'method':<6} {'accuracy':>9} {'worst':>7} {'log-loss':>9} {'worst':>7} "
        f"{'CPU-s':>6}  target"
    )
    for name, goal in GOALS.items():
        for method, fit in METHODS.items():
            accuracy, loss, cpu = [], [], []
            for seed in range(50_000, 50_000 + arguments.seeds):
                rng = np.random.default_rng(seed)
                angle = rng.uniform(0, np.pi / 2)
                (X, y), (X_new, y_new) = (rotated_shape(name, n, angle, rng) for n in (1000, 4000))
                start = time.process_time()
                model = fit(X, y)
                cpu.append(time.process_time() - start)
                accuracy.append(model.score(X_new, y_new))
                loss.append(log_loss(y_new, model.predict_proba(X_new)))
            print(
                f"{name:<14} {method:<6} {median(accuracy):9.4f} {min(accuracy):7.4f} "
                f"{median(loss):9.4f} {max(loss):7.4f} {median(cpu):6.1f}  "
                f"{f'>= {goal}' if method == 'igl' else ''}",
                flush=True,
            )
            row = {
                "shape": name,
                "method": method,
                "accuracy": accuracy,
                "log_loss": loss,
                "cpu": cpu,
            }
            results.append(row)
    path = Path("results/shapes.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(results, indent=1))
    print(f"written to {path}")


if __name__ == "__main__":
    main()

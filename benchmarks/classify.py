"""Digits and breast cancer: IGLClassifier() beside tuned support vector machines and logistic regression.

Five stratified folds; accuracy, log-loss and CPU time of one thread, means over the folds. Every peer is
tuned by cross-validation inside its training rows. "svc" standardizes the columns and has Platt scaling
with pairwise coupling; "svc-units" may also leave the columns as they are. Results go to
results/classify.json.

    python benchmarks/classify.py [--seed 1234] [--data digits cancer] [--methods igl svc …]
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from greenfold import IGLClassifier

DATA = {"digits": load_digits, "cancer": load_breast_cancer}
SCALERS = {"standard": StandardScaler(), "none": "passthrough"}


def igl(X, y):
    return IGLClassifier(random_state=0).fit(X, y)


def svc(X, y, scalers=("standard",)):
    model = Pipeline([("scale", StandardScaler()), ("svc", SVC())])
    grid = {
        "scale": [SCALERS[name] for name in scalers],
        "svc__C": np.logspace(-1, 3, 5),
        "svc__gamma": np.logspace(-4, 0, 9),
    }
    best = GridSearchCV(model, grid, cv=3).fit(X, y).best_estimator_
    return best.set_params(svc__probability=True, svc__random_state=0).fit(X, y)


def svc_units(X, y):
    return svc(X, y, ("standard", "none"))


def logistic(X, y):
    model = Pipeline([("scale", StandardScaler()), ("logistic", LogisticRegression(max_iter=2000))])
    grid = {"logistic__C": np.logspace(-3, 2, 11)}
    return GridSearchCV(model, grid, scoring="neg_log_loss", cv=3).fit(X, y)


METHODS = {"igl": igl, "svc": svc, "svc-units": svc_units, "logistic": logistic}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1234, help="of the folds")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results = []
    print(f"{'data':<8} {'method':<10} {'accuracy':>8} {'log-loss':>9} {'worst':>7} {'CPU-s':>6}")
    for data in arguments.data:
        X, y = DATA[data](return_X_y=True)
        folds = StratifiedKFold(5, shuffle=True, random_state=arguments.seed)
        for method in arguments.methods:
            accuracy, loss, cpu = [], [], []
            for train, test in folds.split(X, y):
                start = time.process_time()
                model = METHODS[method](X[train], y[train])
                cpu.append(time.process_time() - start)
                accuracy.append(float((model.predict(X[test]) == y[test]).mean()))
                loss.append(log_loss(y[test], model.predict_proba(X[test])))
            print(
                f"{data:<8} {method:<10} {np.mean(accuracy):8.4f} {np.mean(loss):9.4f} "
                f"{max(loss):7.4f} {np.mean(cpu):6.1f}",
                flush=True,
            )
            row = {
                "data": data,
                "method": method,
                "accuracy": accuracy,
                "log_loss": loss,
                "cpu": cpu,
            }
            results.append(row)
    path = Path("results/classify.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(results, indent=1))
    print(f"written to {path}")


if __name__ == "__main__":
    main()

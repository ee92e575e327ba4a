"""One run: one method on one split, in a process of its own."""

import importlib
import os
import resource
import time
import warnings
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch
from classes import CLASSIFIERS
from methods import METHODS, Clock
from scores import accuracy, calibration_error, log_loss, probabilities
from sets import Split, load, split


class Cell(NamedTuple):
    """What is run. A result is found again by these."""

    set: str
    n: int | None  # training rows; none for all
    split: int
    method: str


def cpu() -> float:
    """CPU-seconds of this process and of those it started."""
    own, started = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + started.ru_utime + started.ru_stime


def megabytes() -> float:
    """Peak resident memory so far."""
    users = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(who).ru_maxrss for who in users) / 1024


def inputs(model: Any, X: np.ndarray, y: np.ndarray) -> int:
    """How many columns matter: shuffling one raises the mean squared error by 5% or more."""
    rng = np.random.default_rng(0)
    before, count = np.mean((model.predict(X) - y) ** 2), 0
    for j in range(X.shape[1]):
        shuffled = X.copy()
        shuffled[:, j] = rng.permutation(X[:, j])
        count += int(np.mean((model.predict(shuffled) - y) ** 2) > 1.05 * before)
    return count


def number_scores(model: Any, rows: Split) -> dict[str, Any]:
    """Test error in units of y."""
    guess = np.asarray(model.predict(rows.X_test)).reshape(-1)
    if not np.isfinite(guess).all():
        raise ArithmeticError("predictions are not finite")
    error = float(np.sqrt(np.mean((guess - rows.y_test) ** 2)))
    return {"rmse": error * rows.scale, "relative": error}  # in standard deviations of y


def class_scores(model: Any, rows: Split) -> dict[str, Any]:
    n_classes = int(rows.y.max()) + 1
    P = probabilities(model, rows.X_test, n_classes)
    if not np.isfinite(P).all():
        raise ArithmeticError("probabilities are not finite")
    return {
        "log_loss": log_loss(P, rows.y_test),
        "accuracy": accuracy(P, rows.y_test),
        "ece": calibration_error(P, rows.y_test),
        "classes": n_classes,
    }


def interval_scores(model: Any, rows: Split) -> dict[str, Any]:
    """Coverage and width of 95% intervals."""
    low, high = model.predict_interval(rows.X_test)
    return {
        "coverage": float(np.mean((low <= rows.y_test) & (rows.y_test <= high))),
        "width": float(np.mean(high - low)) * rows.scale,
        "inputs": inputs(model, rows.X_test, rows.y_test),
    }


def run(cell: Cell, folder: str | None, budget: float) -> dict[str, Any]:
    """Scores at test rows, cost, and coverage of 95% intervals where there are intervals."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    data = load(cell.set, folder)
    methods, scores = (CLASSIFIERS, class_scores) if data.classes else (METHODS, number_scores)
    rows = split(data, cell.split, cell.n)
    method = methods[cell.method]
    if importlib.util.find_spec(method.package):  # imports are not part of a fit
        importlib.import_module(method.package)
    idle = megabytes()
    begin, wall = cpu(), time.perf_counter()
    model, notes = method.fit(rows.X, rows.y, Clock(budget), cell.split)
    fitted = cpu()
    result: dict[str, Any] = {
        **scores(model, rows),
        "cpu_predict": cpu() - fitted,
        "cpu": getattr(model, "cpu", cpu() - begin),
        "wall": time.perf_counter() - wall,
        "megabytes": megabytes() - idle,  # beyond what imports and data take
        "rows": len(rows.X),
        "columns": rows.X.shape[1],
        "test_rows": len(rows.X_test),
        "budget": budget,
        **notes,
    }
    if hasattr(model, "predict_interval"):
        result |= interval_scores(model, rows)
    return result


def answer(pipe: Connection, cell: Cell, folder: str | None, budget: float, limit: int) -> None:
    """`run` in a process of its own, which ends after `limit` CPU-seconds; it prints nothing."""
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    try:
        pipe.send(run(cell, folder, budget))
    except Exception as error:
        pipe.send({"failed": f"{type(error).__name__}: {str(error)[:200]}"})

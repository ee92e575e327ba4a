"""How good probabilities of classes are. Classes are 0, 1, … and P is (n, classes)."""

from typing import Any

import numpy as np

BINS = 15  # of equal width, for the calibration of every method


def probabilities(model: Any, X: np.ndarray, n_classes: int) -> np.ndarray:
    """(n, classes); a class that the model has not seen has probability 0."""
    P = np.zeros((len(X), n_classes))
    P[:, np.asarray(model.classes_, dtype=int)] = model.predict_proba(X)
    return P / P.sum(1, keepdims=True)


def log_loss(P: np.ndarray, y: np.ndarray) -> float:
    """Mean of −log p of the true class; p is at least the rounding error of 1, as scikit-learn has it."""
    p = P[np.arange(len(y)), y]
    return float(-np.log(np.maximum(p, np.finfo(float).eps)).mean())


def accuracy(P: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean(P.argmax(1) == y))


def calibration_error(P: np.ndarray, y: np.ndarray) -> float:
    """ECE: |share that is right − mean probability| in bins of the largest probability, by their rows."""
    top, right = P.max(1), P.argmax(1) == y
    bins = np.minimum((top * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, weights=right - top, minlength=BINS)
    return float(np.abs(gaps).sum() / len(y))

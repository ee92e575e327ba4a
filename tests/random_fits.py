"""Random tables and random options for every estimator, one case for each seed.

Options come from the signatures: `OPTIONS` has values for each, proper ones and a few that are none.
"""

import contextlib
import inspect
import signal
import warnings

import numpy as np
from torch import nn

from greenfold import OPERATORS, IGLAutoencoder, IGLClassifier, IGLRegressor, IGLStack

ESTIMATORS = [IGLRegressor, IGLRegressor, IGLClassifier, IGLAutoencoder, IGLStack]
CHARTS = ["auto", "axis", "linear", "warp", "mlp", "pca", "conv", "module"]
OPTIONS = {
    "chart": [*CHARTS * 3, "bogus"],
    "n_dims": [None, 1, 2, 3, 5, 7, 12, "auto", 0, -7],
    "operator": ["auto", *OPERATORS, "bogus"],
    "anchors": ["tied", "free", "grid", "grid"],
    "n_atoms": [None, 1, 2, 15, 60, 400, 0],
    "objective": ["evidence", "loo", "gcv", "penalized", "log_mse"],
    "alpha": ["evidence", "gcv", "loo", 0.0, 1e-9, 1e-3, 10.0, 1e9, -1.0],
    "gates": ["open", "learned"],
    "gamma": ["fixed", "learned", "free", "alternating"],
    "sparsity": [0.0, 0.01, 0.3, 0.9, "importance", "importance", 1.0],
    "start": [None, "pca", "isomap"],
    "pull": [0.0, 0.1, 10.0, -1.0],
    "mode": ["two-stage", "joint"],
    "effort": ["fast", "normal", "full", "bogus"],
    "optimizer": ["auto", "lbfgs", "adam"],
    "max_iter": [0, 1, 5, 20, -3],
    "n_restarts": [1, 2, 0],
    "n_jobs": [None, 1],
    "device": ["cpu"],
    "random_state": [0, 1, None],
    "verbose": [0],
    "callbacks": [None, []],
    "loss": ["cross_entropy", "least_squares"],
    "class_weight": [None, "balanced", {0: 0.5}, {0: -1.0}, {0: 0.0}],
}
SHARE = 0.2  # of the options that are not at their default
SHAPES = ["smooth", "linear", "rough", "noise", "levels", "constant", "exact", "spike"]


def options(kind, rng, n_columns):
    """Settings of one estimator. Without a given chart most options have no meaning, so most have one."""
    names = list(inspect.signature(kind).parameters)
    chosen = {n: OPTIONS[n] for n in names if rng.random() < SHARE}
    if "chart" in names and rng.random() < 0.85:
        chosen["chart"] = OPTIONS["chart"]
    if "max_iter" in names:
        chosen["max_iter"] = OPTIONS["max_iter"]
    settings = {name: values[rng.integers(len(values))] for name, values in chosen.items()}
    if settings.get("chart") == "module":
        settings["chart"] = nn.Linear(n_columns, 2).double()
    return settings


def inputs(rng):
    """X (n, D) of many shapes: few or many rows and columns, copies, levels, constants, units."""
    n = int(rng.choice([2, 3, 4, 6, 10, 20, 40, 80, 150, 300]))
    D = int(rng.choice([1, 2, 3, 4, 9, 16, 40]))
    X = rng.normal(size=(n, D))
    match rng.integers(10):
        case 0:
            X = rng.integers(0, 3, size=(n, D)).astype(float)
        case 1:
            X = np.eye(min(D, n))[rng.integers(0, min(D, n), n)]  # one category
        case 2:
            X = X[rng.integers(0, max(2, n // 4), n)]  # rows of which most are repeated
        case 3:
            X[:, rng.integers(D)] = 3.0
        case 4:
            X = X[:, :1] @ rng.normal(size=(1, D))  # a line
        case 5:
            X = X * 10.0 ** rng.integers(-6, 7, D)
        case 6:
            X = rng.standard_t(1, size=(n, D))  # far rows
        case 7:
            X = np.round(X, 1)
    return X


def target(X, rng, labels):
    """y (n,) or (n, c) of many shapes, or labels."""
    n = len(X)
    z = (X - X.mean(0)) / (X.std(0) + 1e-12)
    if labels:
        c = int(rng.choice([2, 2, 3, 5, 20, n, n]))
        if rng.random() < 0.5:
            return rng.integers(0, c, n)
        order = np.argsort(np.argsort(z[:, 0] + 0.1 * rng.normal(size=n), kind="stable"))
        return order * min(c, n) // n
    columns = []
    for _ in range(int(rng.choice([1, 1, 1, 2, 4]))):
        v = z @ rng.normal(size=z.shape[1]) / np.sqrt(z.shape[1])
        columns.append(
            {
                "smooth": np.sin(2 * v) + 0.1 * rng.normal(size=n),
                "linear": v + 0.3 * rng.normal(size=n),
                "rough": np.sign(v) + np.abs(z[:, -1]),
                "noise": rng.normal(size=n),
                "levels": np.round(v),
                "constant": np.full(n, 7.0),
                "exact": np.cos(v),
                "spike": (np.arange(n) == 0).astype(float),
            }[SHAPES[rng.integers(len(SHAPES))]]
        )
    y = np.stack(columns, 1) * 10.0 ** rng.choice([0, 0, 0, -9, 9]) + rng.choice([0.0, 0.0, 1e4])
    return y[:, 0] if y.shape[1] == 1 and rng.random() < 0.8 else y


def weights(n, rng):
    match rng.integers(8):
        case 0:
            return rng.integers(0, 4, n).astype(float)
        case 1:
            return np.full(n, 5.0)
        case 2:
            return rng.uniform(0, 1, n)
    return None


class Slow(Exception):
    """A fit used up its time."""


@contextlib.contextmanager
def at_most(seconds):
    """Raise `Slow` after so many seconds of CPU."""

    def stop(*_):
        raise Slow(f"more than {seconds} CPU-s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def outcome(seed, seconds=30):
    """'fitted' or 'refused', or what is wrong with the case of this seed."""
    rng = np.random.default_rng(seed)
    kind = ESTIMATORS[rng.integers(len(ESTIMATORS))]
    X = inputs(rng)
    settings = options(kind, rng, X.shape[1])
    y = X if kind is IGLAutoencoder else target(X, rng, kind is IGLClassifier)
    w = weights(len(X), rng)
    new = (X + X[rng.permutation(len(X))]) / 2  # between the rows
    case = f"seed {seed}: {kind.__name__}(**{settings}) on {X.shape}, y {np.shape(y)}"
    try:
        with at_most(seconds), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = kind(**settings)
            model = model.fit(X) if kind is IGLAutoencoder else model.fit(X, y, w)
            told = [model.predict(X), model.predict(new)]
            if kind is IGLClassifier:
                told = [model.predict_proba(X), model.predict_proba(new)]
    except (ValueError, TypeError):
        return "refused"
    except Exception as error:  # whatever it is, it is the finding
        return f"{case}: {type(error).__name__}: {error}"
    u = np.concatenate(told).reshape(2 * len(X), -1)
    if kind is IGLClassifier:
        return "fitted" if np.allclose(u.sum(1), 1) else f"{case}: probabilities {u.sum(1)}"
    y = np.reshape(y, (len(X), -1)) if w is None else np.reshape(y, (len(X), -1))[w > 0]
    reach = 100 * (y.max(0) - y.min(0)) + 1e-6 * np.abs(y).max(0) + 1e-300
    far = np.abs(u - (y.max(0) + y.min(0)) / 2).max(0) / reach
    return "fitted" if (far <= 1).all() else f"{case}: {100 * far.max():.3g} times the range of y"

"""Random tables and random options for every estimator, one case for each seed.

Options come from the signatures: `OPTIONS` has values for each, proper ones and a few that are none.
Where a call is refused, one option less is tried, so that most cases end in a fit.

`python -m tests.random_fits FIRST LAST` tells how many were fitted, and what is wrong with the others.
"""

import contextlib
import signal
import sys
import time
import warnings
from collections import Counter

import numpy as np
import torch
from torch import nn

from greenfold import IGLAutoencoder, IGLClassifier, IGLRegressor, IGLStack, IGLStackClassifier
from greenfold.estimators.classes import Classes
from greenfold.estimators.options import defaults_on_one_level
from greenfold.green import OPERATORS
from greenfold.likelihoods import Quantile
from tests.nested import nested

ESTIMATORS = [
    IGLRegressor,
    IGLRegressor,
    IGLClassifier,
    IGLAutoencoder,
    IGLStack,
    IGLStackClassifier,
]
CHARTS = ["auto", "axis", "linear", "warp", "mlp", "pca", "conv", "module"]
OPTIONS = {
    "chart": [*CHARTS * 3, "bogus"],
    "n_dims": [None, 1, 2, 3, 5, 7, 12, "auto", 0, -7],
    "operator": ["auto", *OPERATORS, "bogus"],
    "anchors": ["tied", "free", "grid", "grid"],
    "atoms": ["auto", "point", "gaussian", "gabor", "mexican_hat", "box", "hat", "bogus"],
    "n_atoms": [None, 1, 2, 15, 60, 200, 0],
    "objective": ["evidence", "loo", "gcv", "penalized", "log_mse"],
    "alpha": ["evidence", "gcv", "loo", 0.0, 1e-9, 1e-3, 10.0, 1e9, -1.0],
    "gates": ["open", "learned"],
    "gamma": ["fixed", "learned", "free", "alternating"],
    "sparsity": [0.0, 0.01, 0.3, 0.9, "importance", "importance", 1.0],
    "start": [None, "pca", "isomap"],
    "channels": [None, None, True, False],
    "pull": [0.0, 0.1, 10.0, -1.0],
    "mode": ["two-stage", "joint"],
    "effort": ["fast", "normal", "full", "bogus"],
    "optimizer": ["auto", "lbfgs", "adam"],
    "max_iter": [0, 1, 5, 20],
    "n_restarts": [1, 2, 0],
    "n_jobs": [None, 1],
    "cv": [None, 3, 1],
    "hidden": [None, (3,), (0,)],
    "shape": [None, (1, 2, 2)],
    "image_shape": [None, None, False, (2, 2)],
    "random_state": [1, 7],
    "verbose": [0],
    "callbacks": [None, []],
    "likelihood": [
        "gaussian",
        "gaussian",
        "student_t",
        "lognormal",
        "poisson",
        Quantile([0.1, 0.9]),
    ],
    "loss": ["cross_entropy", "least_squares", "ordinal"],
    "class_weight": [None, "balanced", {0: 0.5}, {0: -1.0}, {0: 0.0}],
}
ROWS = [2, 3, 4, 6, 10, 20, 20, 40, 40, 80, 150]
FEW = [2, 3, 4, 6, 10, 12]
NEW = 50  # rows to predict at that were not fitted
SHARE = 0.2  # of the options that are not at their default
SHAPES = ["smooth", "linear", "rough", "noise", "levels", "constant", "exact", "spike"]


def options(kind, rng, n_columns):
    """Settings of one estimator. Without a given chart most options have no meaning, so most have one."""
    names = list(defaults_on_one_level(kind))
    chosen = {n: OPTIONS[n] for n in names if rng.random() < SHARE}
    if "chart" in names and rng.random() < 0.9:
        chosen["chart"] = OPTIONS["chart"]
    if "max_iter" in names:
        chosen["max_iter"] = OPTIONS["max_iter"]
    settings = {name: values[rng.integers(len(values))] for name, values in chosen.items()}
    if settings.get("chart") == "module":
        with torch.random.fork_rng():  # the case of a seed is the same whatever ran before
            torch.manual_seed(int(rng.integers(2**31)))
            settings["chart"] = nn.Linear(n_columns, 2).double()
    return settings


def inputs(rng, rows=ROWS):
    """X (n, D) of many kinds (copies, levels, constants, units, …), and more rows of the kind."""
    n = int(rng.choice(rows))
    D = int(rng.choice([1, 2, 3, 4, 9, 16, 40]))
    X = rng.normal(size=(n + NEW, D))
    match rng.integers(13):
        case 0:
            X = rng.integers(0, 3, size=X.shape)
        case 1:
            X = np.eye(D)[rng.integers(0, D, n + NEW)]  # one category
        case 2:
            X = X[rng.integers(0, max(2, n // 4), n + NEW)]  # rows of which most are repeated
        case 3:
            X[:, rng.integers(D)] = 3.0
        case 4:
            X = X[:, :1] @ rng.normal(size=(1, D))  # a line
        case 5:
            X = X * 10.0 ** rng.integers(-6, 7, D)
        case 6:
            X = rng.standard_t(1, size=X.shape)  # far rows
        case 7:
            X = np.round(X, 1)
        case 8:
            X = X * 10.0 ** rng.choice([-150, -30, -12, 12, 30, 150])
        case 9:
            X = X.astype(np.float32)
        case 10:
            X = X + 1e7  # far from zero
        case 11:
            X = np.where(rng.random(X.shape) < 0.9, 0.0, X)  # mostly zero
    return X[:n], X[n:]


def target(X, rng, labels):
    """y (n,) or (n, c) of many shapes, or labels."""
    n = len(X)
    scale = X.std(0)
    z = (X - X.mean(0)) / np.where(scale > 0, scale, 1.0)
    if labels:
        c = int(rng.choice([2, 2, 3, 3, 5, 20, n]))
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


class Slow(BaseException):
    """A fit used up its time; not an `Exception`, which one might catch who tries several charts."""


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


def within(X, new):
    """Rows to predict at (m, D): those fitted, rows between two of them, and `new` in their range."""
    between = X[:-1] / 2 + X[1:] / 2
    return np.concatenate([X, between, np.clip(new, X.min(0), X.max(0))])


def told(model, X, y, w, new):
    """Predictions (m, c) or probabilities of a model fitted here."""
    model = model.fit(X) if isinstance(model, IGLAutoencoder) else model.fit(X, y, w)
    predict = model.predict_proba if isinstance(model, Classes) else model.predict
    return np.reshape(predict(new), (len(new), -1))


def wrong(kind, u, y, w):
    """What is wrong with predictions u (m, c), or nothing. The range of y is that of rows with weight."""
    if not np.isfinite(u).all():
        return "not finite"
    if issubclass(kind, Classes):
        return "" if np.allclose(u.sum(1), 1) and u.min() >= 0 else "no probabilities"
    y = np.reshape(y, (len(y), -1)).astype(float)
    y = y if w is None or kind is IGLAutoencoder else y[w > 0]
    low, high = y.min(0), y.max(0)
    # 100 ranges, and digits: those of y lost at its distance from zero
    reach = 100 * (high - low) + 1e-6 * np.abs(y).max(0)
    far = np.maximum(u - high, low - u).max(0) > reach
    worst = np.abs(u).max(0)
    return f"up to {worst[far]} where y is in {[*zip(low[far], high[far])]}" if far.any() else ""


def outcome(seed, rows=ROWS, seconds=30):
    """'fitted' or 'refused', or what is wrong with the case of this seed."""
    rng = np.random.default_rng(seed)
    kind = ESTIMATORS[rng.integers(len(ESTIMATORS))]
    X, new = inputs(rng, rows)
    settings = options(kind, rng, X.shape[1])
    y = X if kind is IGLAutoencoder else target(X, rng, issubclass(kind, Classes))
    w = weights(len(X), rng)
    while True:
        case = f"seed {seed}: {kind.__name__}(**{settings}) on {X.dtype} {X.shape}, y {np.shape(y)}"
        start = time.process_time()
        try:
            with at_most(seconds), warnings.catch_warnings(record=True) as told_of:
                warnings.simplefilter("always")
                u = told(kind(**nested(**{"random_state": 0, **settings})), X, y, w, within(X, new))
        except (ValueError, TypeError) as error:
            if len(str(error)) < 10:
                return f"{case}: refused without a reason: {error!r}"
            if not settings:
                return "refused"
            settings.pop(list(settings)[rng.integers(len(settings))])
            continue
        except (Exception, Slow) as error:  # whatever it is, it is the finding
            return f"{case}: {type(error).__name__}: {error}"
        if time.process_time() - start > seconds:
            return f"{case}: more than {seconds} CPU-s"
        # a penalty that was asked for does not hold u between rows, and that is said
        free = settings.get("alpha") == 0 or any("does not hold" in str(w.message) for w in told_of)
        found = "" if free and np.isfinite(u).all() else wrong(kind, u, y, w)
        return f"{case}: {found}" if found else "fitted"


def outcomes(seeds, rows=ROWS, tell=lambda found: None):
    """How many cases were fitted and refused, and what is wrong with the others."""
    ends = Counter()
    for seed in seeds:
        ends[end := outcome(seed, rows)] += 1
        if end not in ("fitted", "refused"):
            tell(end)
    return ends.pop("fitted", 0), ends.pop("refused", 0), list(ends)


if __name__ == "__main__":
    seeds = range(int(sys.argv[1]), int(sys.argv[2]))
    fitted, refused, others = outcomes(seeds, tell=lambda found: print(found, flush=True))
    print(f"{fitted} fitted, {refused} refused, {len(others)} findings")

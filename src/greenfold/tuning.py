"""A small search over the settings that matter, within a time budget."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils import check_array, check_consistent_length
from tqdm.auto import tqdm

from greenfold.estimators import IGLClassifier, IGLRegressor, IGLStack, IGLStackClassifier
from greenfold.estimators.options import OPTIONS
from greenfold.learn.counts import counted
from greenfold.learn.units import Array
from greenfold.solve import SolveError
from greenfold.spec import Training
from greenfold.state import seed_of

FOLDS = 3
ROUNDS = ((9, 150, 500), (3, 150, 2000))  # share of the rows, the least and the most; then all
MOST_CLASSES = 20  # that whole numbers stand for; more are taken for quantities
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}

LATE = "out of time"

Settings = dict[str, Any]

# In the order they are tried: the defaults first, so that there is an answer early.
REGRESSION: list[Settings] = [
    {"estimator": "IGLRegressor"},
    {"estimator": "IGLStack"},
    {"estimator": "IGLRegressor", "chart": "axis", "operator": "product_screened"},
    {"estimator": "IGLRegressor", "chart": "axis", "operator": "cauchy"},
    {"estimator": "IGLRegressor", "chart": "linear", "n_dims": 1},
    {"estimator": "IGLRegressor", "chart": "linear", "n_dims": 2},
    {"estimator": "IGLRegressor", "chart": "linear", "n_dims": 4},
    {"estimator": "IGLRegressor", "chart": "warp", "operator": "cauchy"},
    {"estimator": "IGLRegressor", "chart": "mlp", "n_dims": 2},
    {"estimator": "IGLRegressor", "chart": "mlp", "n_dims": 4, "operator": "cauchy"},
    {"estimator": "IGLRegressor", "chart": "mlp", "n_dims": 2, "training": Training("loo")},
    {"estimator": "IGLRegressor", "effort": "full"},
    {"estimator": "IGLStack", "effort": "full"},
]
CLASSIFICATION: list[Settings] = [
    {"estimator": "IGLClassifier"},
    {"estimator": "IGLStackClassifier"},
    {"estimator": "IGLClassifier", "loss": "least_squares"},
    {"estimator": "IGLClassifier", "chart": "axis", "operator": "cauchy"},
    {"estimator": "IGLClassifier", "chart": "linear", "n_dims": 2},
    {"estimator": "IGLClassifier", "chart": "linear", "n_dims": 4},
    {"estimator": "IGLClassifier", "chart": "mlp", "n_dims": 2},
    {"estimator": "IGLClassifier", "effort": "full"},
]
ESTIMATORS: dict[str, Any] = {
    cls.__name__: cls for cls in (IGLRegressor, IGLStack, IGLClassifier, IGLStackClassifier)
}


class Trial(NamedTuple):
    """Settings, and how they did on held-out rows."""

    settings: Settings
    rows: int  # that were split into folds
    error: float  # root mean square in standard deviations of y, or log-loss
    seconds: float  # of wall-clock time, all folds
    failed: str = ""  # what went wrong, if something did


@dataclass(frozen=True)
class Tuned:
    """The estimator fitted to all rows, and every trial in the order they were made.

    Attributes
    ----------
    best : estimator
        Fitted to all rows.
    settings : dict
        Its parameters.
    error : float
        At rows left out.
    trials : list of dict
        What was tried.
    seconds : float
        How long it took.

    Examples
    --------
    >>> import numpy as np
    >>> from greenfold import tune
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> found = tune(X, X[:, 0] ** 2, budget="1s", random_state=0)
    >>> found.predict(X).shape, len(found.table()) > 0
    ((60,), True)
    """

    best: Any
    settings: Settings
    error: float
    trials: list[Trial] = field(repr=False)
    seconds: float = 0.0

    def predict(self, X: Any) -> Any:
        """`best.predict`.

        Parameters
        ----------
        X : array-like of shape (n, D), or table
            Rows.

        Returns
        -------
        ndarray of shape (n,) or (n, c)
        """
        return self.best.predict(X)

    def table(self) -> str:
        """Trials on the most rows first, the best of them first."""
        lines = [f"{'rows':>6} {'error':>9} {'seconds':>8}  settings"]
        for trial in sorted(self.trials, key=lambda t: (-t.rows, t.error)):
            error = trial.failed or f"{trial.error:.4g}"
            lines.append(
                f"{trial.rows:>6} {error:>9} {trial.seconds:>8.2f}  {said(trial.settings)}"
            )
        return "\n".join(lines)

    __str__ = table


def said(settings: Settings) -> str:
    """The settings as they are typed."""
    rest = ", ".join(f"{k}={v!r}" for k, v in settings.items() if k != "estimator")
    return f"{settings['estimator']}({rest})"


def tune(
    X: Any,
    y: Any,
    budget: float | str = "60s",
    *,
    task: str = "auto",
    random_state: Any = None,
    verbose: int = 0,
) -> Tuned:
    """Find settings by cross-validation in the time given, and fit them to all rows.

    Successive halving: estimators, charts, operators, dimensions and efforts are compared on a ninth of
    the rows (at most 500), the better half of them on a third (at most 2000) and the better half of those
    on all, three folds each. What would not end in time, by what it took on fewer rows, is left out, so
    with little time or many rows fewer settings are compared; the default is always tried, and time for
    the last fit is set aside, and folds stop when time is out. A single fit cannot be interrupted: with a
    budget below what the default takes, that is what it takes.

    Parameters
    ----------
    X : array-like of shape (n, D)
    y : array-like of shape (n,), or (n, c) for several targets
    budget : float or str
        Seconds of wall-clock time, or text such as '60s', '2m', '1h'.
    task : 'auto', 'regression' or 'classification'
        By default text, booleans and up to 20 distinct whole numbers are classes.
    random_state : int, RandomState or None
    verbose : int
        1 shows a progress bar.

    Returns
    -------
    Tuned
        With the fitted estimator `best`, its `settings`, `trials`, and `table()` to print.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(60, 3))
    >>> found = tune(X, np.abs(X[:, 0]) + X[:, 1], budget="1s", random_state=0)
    >>> bool(found.best.score(X, np.abs(X[:, 0]) + X[:, 1]) > 0.9)
    True
    """
    if not OPTIONS["verbose"].takes(verbose):
        raise ValueError(f"`verbose` must be {OPTIONS['verbose'].words}, got {verbose!r}.")
    begin, limit = time.perf_counter(), seconds(budget)
    rows, target = checked(X, y)
    classes = labeled(target, task)
    rows, target, weight = joined(rows, target, classes)
    rng = np.random.default_rng(seed_of(random_state))
    order = rng.permutation(len(rows))
    rows, target, weight = rows[order], target[order], weight[order]
    seed = int(rng.integers(2**31 - 1))
    open_ = [dict(s) for s in (CLASSIFICATION if classes else REGRESSION)]
    trials: list[Trial] = []
    best: Trial | None = None
    with tqdm(desc="trials", leave=False, disable=not verbose) as bar:
        for n in sizes(len(rows)):
            made: list[Trial] = []
            for settings in open_:
                left = limit - (time.perf_counter() - begin)
                leader = best or min(made, key=lambda t: t.error, default=None)
                last = forecast(leader.settings, trials, len(rows), 1) if leader else 0.0
                if trials and forecast(settings, trials, n, FOLDS) + last > left:
                    continue
                deadline = begin + limit - last if trials else math.inf
                part = rows[:n], target[:n], weight[:n]
                new = trial(settings, *part, classes, seed, deadline)
                trials.append(new)
                if new.failed == LATE:
                    continue
                made.append(new)
                bar.set_postfix_str(f"{made[-1].error:.4g} {said(settings)}")
                bar.update()
            made.sort(key=lambda t: t.error)
            if made and math.isfinite(made[0].error):
                best = made[0]
            open_ = [t.settings for t in made[: -(-len(made) // 2)] if math.isfinite(t.error)]
    if best is None:
        raise ValueError(
            f"none of {len(trials)} settings could be fitted; the first said: {trials[0].failed}"
        )
    fitted = estimator(best.settings, seed).fit(X, y)
    return Tuned(fitted, best.settings, best.error, trials, time.perf_counter() - begin)


def seconds(budget: float | str) -> float:
    """'90', '90s', '1.5m' or 90, in seconds."""
    text = str(budget).strip().lower()
    number = text.rstrip("smhin ")
    unit = text[len(number) :].strip()
    try:
        value = float(number) * UNITS[unit]
    except (ValueError, KeyError):
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(
            f"`budget` must be a positive number of seconds or text such as '60s', '2m' or '1h', "
            f"got {budget!r}."
        )
    return value


def checked(X: Any, y: Any) -> tuple[Array, Array]:
    rows: Array = check_array(X, dtype=np.float64)
    target = np.asarray(y)
    check_consistent_length(rows, target)
    if target.ndim > 2 or target.ndim == 0:
        raise ValueError(f"`y` must have shape (n,) or (n, c), got {target.shape}.")
    return rows, target


def joined(X: Array, y: Array, classes: bool) -> tuple[Array, Array, Array]:
    """Rows, targets and weights, with copies of a row as one: they are in one fold together."""
    names, index = np.unique(y, return_inverse=True) if classes else (None, y)
    Y = np.asarray(index, dtype=np.float64).reshape(len(X), -1)
    X, Y, weight, _ = counted(X, Y, np.ones(len(X)))
    if len(X) < 5 * FOLDS:
        raise ValueError(
            f"`X` must have at least {5 * FOLDS} different rows to compare settings on, got {len(X)}. "
            "Fit `IGLRegressor()` or `IGLClassifier()` as it is."
        )
    if names is not None:
        return X, names[Y[:, 0].astype(np.int64)], weight
    return X, Y.reshape(len(X), *y.shape[1:]), weight


def labeled(y: Any, task: str) -> bool:
    """Are these classes?"""
    if task not in ("auto", "regression", "classification"):
        raise ValueError(f"unknown task {task!r}. Choose 'auto', 'regression' or 'classification'.")
    if task != "auto":
        return task == "classification"
    if y.ndim == 2 and y.shape[1] > 1:
        return False
    if y.dtype.kind in "iu":
        return len(np.unique(y)) <= min(MOST_CLASSES, len(y) // 2)
    return bool(y.dtype.kind != "f")


def sizes(n: int) -> list[int]:
    """Rows of each round, growing up to n."""
    return sorted(
        {min(n, max(least, min(most, n // share))) for share, least, most in ROUNDS} | {n}
    )


def forecast(settings: Settings, trials: list[Trial], n: int, fits: int) -> float:
    """Seconds that so many fits to n rows may take, from the latest trial of these settings; without one,
    from the mean of all.

    Cost grows about as n: charts learn from a bounded number of rows, sources from all.
    """
    known = [t for t in trials if t.settings == settings][-1:] or trials
    costs = [t.seconds * fits / FOLDS * (n / t.rows) for t in known]
    return sum(costs) / max(len(costs), 1)


def estimator(settings: Settings, seed: int) -> BaseEstimator:
    rest = {k: v for k, v in settings.items() if k != "estimator"}
    return ESTIMATORS[settings["estimator"]](random_state=seed, **rest)


def trial(
    settings: Settings,
    X: Array,
    y: Any,
    weight: Array,
    classes: bool,
    seed: int,
    deadline: float = math.inf,
) -> Trial:
    """All folds, or fewer if those would end after the deadline."""
    begin, errors = time.perf_counter(), list[float]()
    folds = StratifiedKFold(FOLDS) if classes else KFold(FOLDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # doubts about settings that may lose anyway
        try:
            for train, test in folds.split(X, y if classes else None):
                now = time.perf_counter()
                each = (now - begin) / max(len(errors), 1)
                if now + each > deadline:
                    spent = each * FOLDS  # had it gone on
                    return Trial(settings, len(X), math.inf, spent, LATE)
                model = estimator(settings, seed).fit(X[train], y[train], weight[train])
                errors.append(weight[test] @ losses(model, X[test], y[test], classes))
        except (SolveError, ValueError) as error:
            return Trial(settings, len(X), math.inf, time.perf_counter() - begin, str(error))
    mean = sum(errors) / weight.sum()
    if not classes:
        Y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        center = np.average(Y, axis=0, weights=weight)
        spread = np.average((Y - center) ** 2, axis=0, weights=weight).mean()
        mean = math.sqrt(mean / float(spread or 1.0))
    return Trial(settings, len(X), mean, time.perf_counter() - begin)


def losses(model: Any, X: Array, y: Any, classes: bool) -> Array:
    """(n,) squared errors, or log-loss; a class never seen in training costs what the rarest can."""
    if not classes:
        errors: Array = (model.predict(X).reshape(y.shape) - y).reshape(len(y), -1)
        return (errors**2).mean(1)
    P = model.predict_proba(X)
    column = np.searchsorted(model.classes_, np.ravel(y)).clip(max=P.shape[1] - 1)
    seen = model.classes_[column] == np.ravel(y)
    p = np.where(seen, P[np.arange(len(P)), column], 0.0)
    return np.asarray(-np.log(p.clip(min=1e-12)))

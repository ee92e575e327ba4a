"""`dimension`: three questions about (X, y), each answered with an interval or not at all."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.utils import check_array, check_consistent_length
from tqdm.auto import tqdm

from greenfold.dims.chart import LAX, LIMITS, STRICT, Ladder
from greenfold.dims.intrinsic import plateau, scales
from greenfold.dims.many_columns import task_by_charts
from greenfold.dims.paper import gates, knockout, nested
from greenfold.dims.report import Answer, DimensionReport
from greenfold.state import one_thread, seed_of

Array = NDArray[np.float64]
Method = Callable[[Array, Array, Generator], tuple[int, list[Any]]]

METHODS: dict[str, Method] = {
    "directions": task_by_charts,
    "gates": gates,
    "knockout": knockout,
    "nested": nested,
}
FEWEST = {"intrinsic": 50, "chart": 100, "task": 60}  # distinct rows below which nothing is said
MAX_ROWS = {"intrinsic": 5000, "chart": 1500, "task": 3000}
SHARE = 0.7  # of the rows, in a refit of the chart
MANY = 100  # columns


def dimension(
    X: Any,
    y: Any = None,
    *,
    method: str = "directions",
    through: str = "x",
    interval: bool = True,
    coverage: float = 0.9,
    n_refits: int = 8,
    random_state: Any = None,
    verbose: int = 0,
) -> DimensionReport:
    """How many dimensions do these data, a chart of them, and this task need?

    Three numbers, as they differ: a circle has intrinsic dimension 1 and chart dimension 2, as no one
    coordinate is continuous and one-to-one on it; a target on it may need a single direction.

    - *intrinsic*: how the number of neighbors grows with distance;
    - *chart*: the smallest d whose chart rebuilds rows it has not seen, with no tear;
    - *task*: the smallest number of linear directions of x, or of the chart found, that predict y as
      well as the best, 0 included. Of few rows of many columns these are coordinates of the charts that
      `IGLRegressor` learns from such rows, and where more than three straight ones are needed, curved
      ones stand in for them.

    Columns in different units should be scaled first: all three depend on what a distance is.

    Parameters
    ----------
    X : array-like of shape (N, D)
    y : array-like of shape (N,) or (N, c), optional
        Labels that are not numbers, or integers with at most 20 values, count as classes.
    method : 'directions', 'gates', 'knockout' or 'nested'
        How the task dimension is found. The last three are the paper's; see `greenfold.dims.paper` for
        when they fail.
    through : 'x' or 'chart'
        Whose directions the task may use.
    interval : bool
        Refit for intervals; without, `low` and `high` are None and the values come sooner.
    coverage : float
        Aim of the intervals, see `Answer`.
    n_refits : int
        Refits for the chart's interval; the task takes half as many.
    random_state : int, RandomState or None
    verbose : int
        1 shows a progress bar.

    Returns
    -------
    DimensionReport

    Examples
    --------
    >>> import numpy as np
    >>> t = np.random.default_rng(0).uniform(0, 2 * np.pi, 400)
    >>> X = np.stack([np.cos(t), np.sin(t)], axis=1)
    >>> report = dimension(X, interval=False, random_state=0)
    >>> report.intrinsic.value, report.chart.value
    (1, 2)
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}. Choose one of {sorted(METHODS)}.")
    if through not in ("x", "chart"):
        raise ValueError(f"`through` must be 'x' or 'chart', got {through!r}.")
    if not 0 < coverage < 1:
        raise ValueError(f"`coverage` must lie between 0 and 1, got {coverage}.")
    if interval and n_refits < 2:
        raise ValueError(f"`n_refits` must be at least 2, got {n_refits}.")
    X = check_array(X, dtype=np.float64)
    Y = None if y is None else outputs(y)
    if Y is not None:
        check_consistent_length(X, Y)
    X = X / (np.abs(X).max() or 1.0)
    # refits for one answer leave the others alone
    rng, *rngs = np.random.default_rng(seed_of(random_state)).spawn(4)
    refits = n_refits if interval else 0
    bar = tqdm(total=2 * refits + refits // 2, desc="refits", disable=not verbose, leave=False)
    with one_thread(), bar:
        _, index = np.unique(X, axis=0, return_index=True)  # distinct rows
        index = rng.permutation(index)
        rows = rotated(scaled(X[index]))
        intrinsic = intrinsic_answer(rows, rngs[0], refits, coverage, bar.update)
        ladder, chart = chart_answer(
            rows, intrinsic.estimate, rngs[1], refits, coverage, bar.update
        )
        answer = None
        if Y is not None and through == "chart":
            found = None if ladder is None else ladder.flat_chart()
            if found is None:
                answer = Answer("task", None, note="no chart was found for it to go through")
            else:
                Z = found.Z_out
                Y = Y[index[: len(Z)]]
                answer = task_answer(Z, Y, method, rngs[2], refits // 2, coverage, bar.update)
        elif Y is not None:
            # a copy in the other half would be known there
            both = np.unique(np.hstack([X, Y]), axis=0)
            both = both[rng.permutation(len(both))[: MAX_ROWS["task"]]]
            Z, Y = both[:, : X.shape[1]], both[:, X.shape[1] :]
            answer = task_answer(Z, Y, method, rngs[2], refits // 2, coverage, bar.update)
    return DimensionReport(intrinsic, chart, answer, len(rows), X.shape[1])


def outputs(y: Any) -> Array:
    """Y (N, c) of numbers; classes become indicator columns."""
    y = np.asarray(y)
    if y.ndim == 1 and y.dtype.kind != "f" and (y.dtype.kind != "i" or len(np.unique(y)) <= 20):
        labels = np.unique(y)
        return (y[:, None] == labels).astype(np.float64)
    Y = check_array(y.reshape(len(y), -1), dtype=np.float64)
    return Y / (np.abs(Y).max() or 1.0)


def scaled(X: Array) -> Array:
    """Mean 0 and rms radius 1."""
    X = X - X.mean(0)
    radius = float(np.sqrt((X**2).sum(1).mean()))
    return X / radius if radius > 0 else X


def rotated(X: Array) -> Array:
    """Along principal axes if columns are many, without those that hold less than 10⁻⁵ of the variance.

    Distances stay as they are, and there are fewer columns to rebuild.
    """
    if X.shape[1] <= MANY:
        return X
    _, s, Vt = np.linalg.svd(X, full_matrices=False)
    left = 1 - np.cumsum(s**2) / max(float((s**2).sum()), 1e-300)
    return X @ Vt[: 1 + int((left > 1e-5).sum())].T


def too_few(name: str, n: int) -> Answer | None:
    if n >= FEWEST[name]:
        return None
    note = f"{n} distinct rows are too few, {FEWEST[name]} are the least this is read from"
    return Answer(name, None, note=note)


Tick = Callable[[], Any]


def intrinsic_answer(X: Array, rng: Generator, refits: int, coverage: float, tick: Tick) -> Answer:
    """Half-samples have about the variance of the whole (delete-half jackknife)."""
    answer = too_few("intrinsic", len(X))
    if answer is not None:
        return answer
    X = X[: MAX_ROWS["intrinsic"]]
    curve = scales(X)
    estimate = plateau(curve)
    rows = [asdict(scale) for scale in curve]
    if not np.isfinite(estimate):
        note = "neighbors are at equal distances, as on a grid"
        return Answer("intrinsic", None, curve=rows, note=note)
    value = max(1, round(estimate))
    if not refits:
        return Answer("intrinsic", value, estimate=estimate, curve=rows)
    found = []
    for _ in range(2 * refits):
        found.append(plateau(scales(X[rng.permutation(len(X))[: len(X) // 2]])))
    for _ in range(refits):
        tick()
    half = norm.ppf((1 + coverage) / 2) * float(np.std(found))
    low, high = max(1, round(estimate - half)), max(1, round(estimate + half))
    return Answer("intrinsic", value, low, high, coverage, None, estimate, rows, found)


def chart_answer(
    X: Array, intrinsic: float | None, rng: Generator, refits: int, coverage: float, tick: Tick
) -> tuple[Ladder | None, Answer]:
    answer = too_few("chart", len(X))
    if answer is not None:
        return None, answer
    if intrinsic is None:
        return None, Answer("chart", None, note="the intrinsic dimension is not known")
    X = X[: MAX_ROWS["chart"]]
    ladder = Ladder(X, intrinsic, rng)
    value = ladder.value()
    found = []
    for _ in range(refits):
        part = scaled(X[rng.permutation(len(X))[: int(SHARE * len(X))]])
        found.append(Ladder(part, plateau(scales(part)), rng).value())
        tick()
    sensitivity = (ladder.value(LAX), ladder.value(STRICT))
    rows = [
        {
            "d": d,
            "error": t.error,
            "tear": t.tear(ladder.graph),
            "median": t.median(),
            "chart": t.name,
        }
        for d, t in ladder.curve()
    ]
    if value is None:
        note = (
            f"no chart of up to {ladder.last} dimensions rebuilds the data: the errors are in the curve, "
            f"and tears count from {LIMITS.tear}"
        )
        return ladder, Answer("chart", None, curve=rows, refits=found, note=note)
    low, high, note = ends(value, found, coverage)
    known = coverage if low is not None else None
    return ladder, Answer("chart", value, low, high, known, sensitivity, None, rows, found, note)


def task_answer(
    X: Array, Y: Array, method: str, rng: Generator, refits: int, coverage: float, tick: Tick
) -> Answer:
    answer = too_few("task", len(X))
    if answer is not None:
        return answer
    sd = Y.std(0)
    varies = sd > 1e-12 * np.abs(Y).max(0)
    if not varies.any():
        return Answer("task", 0, note="y is constant")
    if not X.std(0).any():
        return Answer("task", 0, note="X is constant")
    Y = (Y[:, varies] - Y[:, varies].mean(0)) / sd[varies]
    value, curve = METHODS[method](X, Y, rng)
    found: list[int | None] = []
    for _ in range(refits):
        found.append(METHODS[method](X, Y, rng)[0])
        tick()
    low, high, note = ends(value, found, coverage)
    note = "; ".join(part for part in (note, "nothing to learn" if value == 0 else "") if part)
    rows = [asdict(loss) for loss in curve]
    known = coverage if low is not None else None
    return Answer("task", value, low, high, known, None, None, rows, found, note)


def ends(
    value: int, found: list[int | None], coverage: float
) -> tuple[int | None, int | None, str]:
    """Quantiles of the refits, widened to hold the value."""
    if not found:
        return None, None, ""
    known = [v for v in found if v is not None]
    note = f"{len(found) - len(known)} of {len(found)} refits could not tell"
    if 2 * len(known) < len(found):
        return None, None, note
    low = int(np.quantile(known, (1 - coverage) / 2, method="lower"))
    high = int(np.quantile(known, (1 + coverage) / 2, method="higher"))
    return min(low, value), max(high, value), note if len(known) < len(found) else ""

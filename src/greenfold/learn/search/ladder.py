"""Search for a linear chart z = W x and a kernel: kinds of chart that compete by Laplace evidence.

Rows are put into a canonical order first, so the result does not depend on the order they came in.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy import ndarray
from numpy.random import Generator
from scipy.linalg import LinAlgError

from greenfold.learn.search.charts import Axes, Linear
from greenfold.learn.search.evidence import Fit, Rows, optimize, predict
from greenfold.learn.search.forecast import Forecast, forecast, left_out
from greenfold.learn.search.starts import (
    FOUND,
    SOLVED,
    axis_charts,
    best,
    linear,
    linear_charts,
    narrow,
    pursuit,
    subspaces,
)


@dataclass(frozen=True)
class Candidate:
    """One chart z = (x − mean) Wᵀ with its kernel, noise and scores (lower is better)."""

    W: ndarray  # (d, D)
    mean: ndarray  # (D,)
    kernel: str  # "gaussian", "cauchy" or "laplace"
    noise: float  # λ, for a kernel of unit variance
    evidence: float  # negative log evidence per row and output
    laplace: float  # the same, with the volume of the chart's parameters
    name: str  # the kind of start it came from
    forecast: Forecast | None = None  # what the best expects of new rows
    error: float = np.nan  # root mean square at rows left out, in the units of y
    rows: int = 0  # that were used
    learned: int = 0  # numbers in the chart
    seconds: float = 0.0  # of wall-clock time


@dataclass(frozen=True)
class Frame:
    """Working coordinates x̃ = P x of centered x."""

    P: ndarray  # (r, D)

    def __call__(self, rows: Rows) -> Rows:
        return replace(rows, X=rows.X @ self.P.T)

    def chart(self, fit: Fit) -> ndarray:
        """W of the fit in the units of x."""
        return fit.W @ self.P[: fit.W.shape[1]]


Pool = list[tuple[Frame, Fit]]


def score(pair: tuple[Frame, Fit]) -> float:
    return pair[1].laplace


def principal(X: ndarray, weights: ndarray) -> Frame:
    """Principal coordinates of the weighted columns, the first with standard deviation 1."""
    _, S, Vt = np.linalg.svd(X * weights, full_matrices=False)
    rank = max(1, int((1e-7 * S[0] < S).sum()))
    return Frame(Vt[:rank] * weights / S[0] * np.sqrt(len(X)))


def spread(X: ndarray) -> ndarray:
    """Standard deviation of each column, exactly 0 where it is only rounding."""
    sd = X.std(0)
    return np.where(sd > 1e-12 * np.abs(X).max(0), sd, 0.0)


def sample(rows: Rows, rng: Generator, size: int) -> Rows:
    """At most `size` random rows, the same ones whatever order they came in; mean weight 1."""
    order = np.lexsort(np.hstack([rows.Y, rows.X]).T[::-1])
    chosen = order[rng.permutation(len(rows))[:size]]
    weight = rows.weight[chosen] / rows.weight[chosen].mean()
    return Rows(rows.X[chosen], rows.Y[chosen], np.clip(weight, 1e-6, 1e6))


def isotropic(rows: Rows) -> Fit:
    chart = Axes(rows.X.shape[1], tied=True)
    return optimize(Fit(chart, np.zeros(1), np.log(1e-2), "gaussian", "isotropic"), rows, 40)


# Starts of the pursuit, how many go on, the rows it sees, and all rows that are used.
BEAMS = {
    "fast": (500, 2, 120, 300),
    "normal": (2000, 4, 200, 500),
    "full": (2000, 8, 200, 500),
}


ROOM = 8  # directions among which few starts miss nothing


def search(
    X: ndarray,
    y: ndarray,
    rng: Generator,
    effort: str = "normal",
    weight: ndarray | None = None,
) -> list[Candidate]:
    """Charts and kernels for (X, y), best Laplace evidence first.

    Parameters
    ----------
    X : ndarray (n, D)
    y : ndarray (n,) or (n, c)
        Constant outputs are ignored.
    rng : Generator
        Chooses the rows (at most 500 are used, 300 if fast) and the starts of the pursuit.
    effort : str
        "fast", "normal" or "full": how wide the pursuit of linear charts is, see `BEAMS`. Above 2000 rows
        "full" is as wide as "normal".
    weight : ndarray (n,), optional
        How often each row counts, above 0: the noise of a row has variance λ w̄/w.

    Returns
    -------
    list of Candidate
        At most 5. Evidences refer to the rows used; the first has a `forecast`, whose `doubt` says
        when it deserves a warning.
    """
    if effort not in BEAMS:
        raise ValueError(f"unknown effort {effort!r}. Choose from {list(BEAMS)}.")
    X = np.asarray(X, float)
    if effort == "full" and len(X) > 2000:
        effort = "normal"  # wide beams make up for few rows
    weight = np.ones(len(X)) if weight is None else np.asarray(weight, float)
    rows = sample(Rows(X, np.asarray(y, float).reshape(len(X), -1), weight), rng, BEAMS[effort][-1])
    mean, sd, y_sd = rows.X.mean(0), spread(rows.X), spread(rows.Y)
    Y = rows.Y[:, y_sd > 0]
    if not sd.any() or not Y.size:
        w = rows.weight / rows.weight.sum()
        errors = (rows.Y - w @ rows.Y) / (1 - w)[:, None]  # around the mean of the others
        error = float(np.sqrt((w @ errors**2).mean()))
        W = np.zeros((1, X.shape[1]))
        constant = Candidate(W, mean, "gaussian", 1.0, 0.0, 0.0, "constant")
        return [replace(constant, error=error, rows=len(rows))]
    scale = sd.max()
    rows = replace(rows, X=(rows.X - mean) / scale, Y=(Y - Y.mean(0)) / y_sd[y_sd > 0])
    pool = explore(rows, sd / scale, rng, effort)
    found = [
        Candidate(
            frame.chart(fit) / scale,
            mean,
            fit.kernel,
            float(np.exp(fit.log_noise)),
            float(fit.evidence),
            float(fit.laplace),
            fit.name,
            error=missed(fit, frame(rows), y_sd),
            rows=len(rows),
            learned=len(fit.theta),
            seconds=fit.seconds,
        )
        for frame, fit in pool[:5]
    ]
    return [replace(found[0], forecast=outlook(pool, rows)), *found[1:]]


def missed(fit: Fit, rows: Rows, sd: ndarray) -> float:
    """Root mean square error at rows left out, for outputs of these standard deviations (c,).

    Infinite where the kernel matrix cannot be factored.
    """
    try:
        errors = left_out(fit, rows) * sd[sd > 0]
    except LinAlgError:
        return np.inf
    w = rows.weight / rows.weight.sum()
    return float(np.sqrt((w @ errors**2).sum() / len(sd)))


def outlook(pool: Pool, rows: Rows) -> Forecast | None:
    """What the best fit expects of new rows, and how far charts of similar evidence disagree there.

    Of centered rows, (x_i + x_j)/√2 is a new one with the same covariance.
    """
    frame, winner = pool[0]
    new = replace(rows, X=(rows.X + np.roll(rows.X, 1, axis=0)) / np.sqrt(2))
    rivals = [pair for pair in pool[:5] if score(pair) <= 0.75 * winner.laplace]
    try:
        told = [predict(fit, view(rows), view(new)) for view, fit in rivals]
        apart = max((float(((u - told[0]) ** 2).mean()) for u in told), default=0.0)
        chosen = isinstance(winner.chart, Linear)  # it left directions out
        return forecast(winner, frame(rows), apart if chosen else 0.0)
    except LinAlgError:
        return None


def explore(rows: Rows, sd: ndarray, rng: Generator, effort: str) -> Pool:
    """All kinds on few rows, the best polished on all; unless fast, wider again if unsolved."""
    used = sd > 0
    inverse = np.divide(1.0, sd, out=np.zeros_like(sd), where=used)
    n_starts, beam, n_few, _ = BEAMS[effort]
    few = rows.head(n_few)
    frames = [principal(rows.X, used.astype(float)), principal(rows.X, inverse)]
    starts = [isotropic(frame(few)) for frame in frames]
    chosen = int(starts[1].laplace < starts[0].laplace - 0.02)  # are the units comparable?
    frame, start = frames[chosen], starts[chosen]
    seen = frame(few)
    crowded = seen.X.shape[1] > ROOM
    n_starts, beam = (n_starts, beam) if crowded else BEAMS["fast"][:2]

    fits = [start]
    pcs = [d for d in (2, 3) if d <= seen.X.shape[1]]
    fits += [optimize(linear(0.7 * np.eye(d), "pca"), seen, 30) for d in pcs]
    small = len(rows) <= 8 or best(fits).laplace < 4 * SOLVED
    pool = [(frame, fit) for fit in fits]
    axes = Frame(np.diag(inverse)[used])
    if not small and used.sum() <= 200:
        pool += [(axes, fit) for fit in axis_charts(axes(few))]
    easy = min(map(score, pool))
    if not small:
        wide = easy >= FOUND
        if not wide:  # axes or all columns together tell something: is a plane better still?
            planes = narrow(seen, rng)
            pool += [(frame, fit) for fit in planes]
            wide = best(planes).laplace < easy - 0.02
        if wide:
            pool += [(frame, fit) for fit in linear_charts(seen, rng, n_starts, beam)]
    if effort == "fast":
        return polish(pool, rows, 1)
    pool = polish(pool, rows)
    d = len(pool[0][1].W)
    unsolved = score(pool[0]) > SOLVED or (d >= 3 and score(pool[0]) > 4 * SOLVED)
    if not small and easy >= FOUND and unsolved and crowded:
        n_starts, beam = (4000, 10) if len(few) <= 150 else (2000, 4)
        fits = pursuit(seen.first(subspaces(seen.X)[0]), rng, n_starts, beam, d_max=2)
        pool += polish([(frame, fit) for fit in fits[-2:]], rows)
    return unlike(sorted(pool, key=score))


def unlike(pool: Pool) -> Pool:
    """Drop fits that found the same optimum as an earlier one."""
    keys = [(fit.kernel, len(fit.W), round(fit.laplace, 2)) for _, fit in pool]
    return [pair for i, pair in enumerate(pool) if keys[i] not in keys[:i]]


def polish(pool: Pool, rows: Rows, n_best: int = 3) -> Pool:
    """The best few on all rows, and the best of them with rougher kernels; best first.

    A smooth target that is already solved needs neither rivals on more rows nor a rough kernel, and
    charts of axes go on to learn in the race.
    """
    pool = unlike(sorted(pool, key=score))
    solved = score(pool[0]) < 4 * SOLVED and len(pool[0][1].W) > 1
    if not isinstance(pool[0][1].chart, Linear):
        pool = [pair for pair in pool[:n_best] if score(pair) < score(pool[0]) + 0.15]
        pool = [(frame, optimize(fit, frame(rows), 10)) for frame, fit in pool]
        return sorted(pool, key=score)
    pool = pool[: 1 if solved and len(rows) > 200 else n_best]
    pool = [
        (frame, optimize(fit, frame(rows), *((80, 3) if fit.log_noise < np.log(0.03) else (40, 0))))
        for frame, fit in pool
    ]
    frame, fit = min(pool, key=score)
    if fit.kernel == "gaussian" and not solved:
        rougher = ["cauchy", "laplace"] if len(fit.W) == 1 else ["cauchy"]
        others = [replace(fit, kernel=k, log_noise=max(fit.log_noise, -9.0)) for k in rougher]
        pool += [(frame, optimize(other, frame(rows), 60, rounds=1)) for other in others]
    return sorted(pool, key=score)

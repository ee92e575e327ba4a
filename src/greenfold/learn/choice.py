"""Which fits are in use: the best, the fewest coordinates that are as good, or several with weights.

Fits are compared by what rows left out cost, in nats, and by what they paid for numbers that have seen
those rows. What is no further behind than chance is as good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from greenfold.chart import Linear
from greenfold.learn.candidates import KERNELS, Fit, Searched
from greenfold.learn.data import Data
from greenfold.learn.search.forecast import NATS, like_noise
from greenfold.learn.standings import FRAMES, Standing, named

LEAST = 0.03  # weight below which a fit is not worth its time
MANY = 10  # coordinates, more than anybody looks at
WORTHLESS = "no chart predicts rows left out better than their mean does"


def errors_of(fit: Fit) -> Tensor:
    assert fit.errors is not None, "it was not judged"
    return fit.errors


def loss(fit: Fit) -> float:
    """What fits are compared by."""
    return fit.nats + fit.price


def best(fits: list[Fit], data: Data) -> Fit:
    """The least loss; the usual candidate unless it is behind by more than chance; lines if they may be.

    What does best on few rows is often not best: another than the usual must lead by 1/(4√n), and another
    than a linear function by one standard error, too.
    """
    leader = min(fits, key=loss)
    limit = loss(leader) - math.log(1 - 0.25 / math.sqrt(len(data)))
    usual = [fit for fit in fits if fit.candidate.usual and loss(fit) <= limit]
    plain = [fit for fit in fits if fit.candidate.plain]
    plain = [fit for fit in plain if loss(fit) <= limit or near(fit, leader, data)]
    return min(plain or usual or [leader], key=loss)


def near(fit: Fit, leader: Fit, data: Data, errors: float = 1.0) -> bool:
    """Is it behind by no more than so many standard errors of what it costs more at rows left out?"""
    if fit is leader:
        return True
    if fit.errors is None or leader.errors is None or len(fit.errors) != len(leader.errors):
        return False
    behind, error = difference(fit, leader, data.head(len(fit.errors)))
    return behind + fit.price - leader.price <= errors * error


def difference(
    one: Fit, other: Fit, data: Data, rows: Tensor | slice = slice(None)
) -> tuple[float, float]:
    """Mean of what `one` costs more than `other` at some of the rows, and its standard error."""
    Y, weight = data.Y.numpy(), data.weight.numpy()
    a, b = (data.judge.losses(errors_of(f).numpy(), Y, weight)[rows] for f in (one, other))
    return mean_of(a - b, weight[rows])


def mean_of(values: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """With its standard error."""
    w = weight / weight.sum()
    mean = float(w @ values)
    return mean, math.sqrt(float(w @ (values - mean) ** 2) / max(len(w) - 1, 1))


def fewest(fits: list[Fit], data: Data) -> Fit:
    """The fewest coordinates that rows left out cannot tell from the best, by one standard error.

    The usual candidate has to be behind by two. Charts of many coordinates explain little, and are in use
    only where all others err twice as much. Where the best could be so by chance, it is the mean.
    """
    leader = min(fits, key=loss)
    if -len(errors_of(leader)) * loss(leader) - math.log(len(fits)) < NATS:
        return constant(data)
    sizes, losses = [dims(fit, data) for fit in fits], [loss(fit) for fit in fits]

    def close(k: int, best: int) -> bool:
        return near(fits[k], fits[best], data, 1.0 + fits[k].candidate.usual)

    return fits[fewest_of(sizes, losses, min(losses) + math.log(2), close)]


def fewest_of(
    sizes: Sequence[int], losses: Sequence[float], twice: float, close: Callable[[int, int], bool]
) -> int:
    """The least size that is close to the best; a size above MANY where no other errs below `twice`."""
    every = range(len(sizes))
    kept = [k for k in every if sizes[k] <= MANY and losses[k] <= twice] or every
    best = min(kept, key=lambda k: losses[k])
    return min([k for k in kept if close(k, best)], key=lambda k: (sizes[k], losses[k]))


@torch.no_grad()
def dims(fit: Fit, data: Data) -> int:
    """Coordinates of its chart; factors, where several are one."""
    if fit.operator.rooted:
        return fit.operator.n_gates(data.x.shape[1])
    return int(fit.chart(data.x[:1]).shape[1])


def shares(losses: Sequence[float], n: float) -> np.ndarray:
    """Weights ∝ e^{−√n Δ}, Δ in nats per row: what n rows cannot tell apart shares its weight."""
    gaps = np.array(losses)
    weights = np.exp(-math.sqrt(n) * (gaps - gaps.min()))
    weights = np.where(weights >= LEAST * weights.sum(), weights, 0.0)
    return np.asarray(weights / weights.sum())


def least_squares(errors: np.ndarray) -> np.ndarray:
    """Weights (k,), none negative and 1 in all, at which errors (k, m, c) of many rows are least."""
    E = errors.reshape(len(errors), -1)
    one = 1e3 * np.linalg.norm(E)  # a row that makes them sum to 1
    weights, _ = nnls(np.vstack([E.T, np.full((1, len(E)), one)]), np.append(0 * E[0], one))
    return np.asarray(weights / weights.sum())


def average(fits: list[Fit], n: float) -> list[tuple[float, Fit]]:
    """Those that share the weight."""
    weights = shares([loss(fit) for fit in fits], n)
    return [(float(w), fit) for w, fit in zip(weights, fits) if w > 0]


def useful(fit: Fit) -> bool:
    """Does it predict rows left out no worse than their mean? Evidence alone can claim anything.

    A column that is zero but for one row, say, is explained without noise by a line on which that row
    lies apart, and what is left of λ then interpolates the other columns.
    """
    return loss(fit) <= 0


def believed(found: list[Fit], data: Data) -> Fit:
    """The most evidence among what is useful; if nothing is, the least error, be it that of the mean."""
    for fit in found:
        if useful(fit):
            return fit
    return min([*(replace(fit, doubt=WORTHLESS) for fit in found), constant(data)], key=loss)


def constant(data: Data) -> Fit:
    """The mean."""
    w = data.weight / data.weight.sum()
    errors = (data.Y - w @ data.Y) / (1 - w)[:, None]  # around the mean of the others
    error = float((w @ errors**2).mean().sqrt())
    chart = Linear(data.x.shape[1], 1, torch.zeros(1, data.x.shape[1], dtype=data.x.dtype))
    fit = Fit(Searched("constant"), chart, KERNELS["gaussian"](), 1.0, 0.0, len(data))
    return replace(fit, nats=math.log(error), errors=errors, doubt=WORTHLESS)


def standing(fit: Fit, data: Data, weight: float = 0.0) -> Standing:
    """What is told of a fit; its score is that of the judge, in standard deviations of y."""
    chart = fit.candidate.told(fit) + ("" if data.squash is None else FRAMES[type(data.squash)])
    rows = fit.rows if fit.errors is None else len(fit.errors)
    score = data.judge.score(loss(fit))
    return Standing(named(chart, fit.operator), score, rows, fit.seconds, dims(fit, data), weight)


def doubtful(fit: Fit, rivals: int) -> str:
    """Why a winner may be wrong: its own doubt, or that rows left out hardly tell it from noise."""
    if fit.errors is None or isinstance(fit.candidate, Searched):
        return fit.doubt
    # The likelihood of rows left out against that of noise. The best of several may be so by chance, and
    # every number of the chart has seen these rows: half a nat each, as if it had been free.
    numbers = fit.candidate.numbers(fit)
    gain = -len(fit.errors) * loss(fit) - math.log(rivals) - numbers / 2
    return f"on rows held out it beats {like_noise(gain)}" if gain < NATS else ""

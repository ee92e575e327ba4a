"""Skewed targets: whether the logarithm or the root of y is learned better than y itself.

Nats of y, whatever T(y) is learned, are those of T(y) left out minus log dT/dy. A short fit on few rows
tells them apart. T is in use if its nats are fewer by more than twice their standard error, and the
predictions of T⁻¹ are no further from y, either: what is likelier is not always nearer.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.linalg import LinAlgError

from greenfold.learn.candidates import AXIS_RQ, equal_scales, few_columns
from greenfold.learn.choice import errors_of, mean_of
from greenfold.learn.data import Data, Rows, shuffled
from greenfold.learn.fit import judged
from greenfold.learn.units import Array, Scaling, straight
from greenfold.learn.wide import LINES
from greenfold.solve import SolveError
from greenfold.state import one_thread

SKEWED = 1.0  # third moment, above which anything else than y is looked at
FEWEST = 40  # rows that tell
ROWS, STEPS = 300, 12  # of the short fit
POWERS = (1.0, 0.5, 0.0)


def power_of(rows: Rows, Y: Array, units: Scaling, seed: int) -> float:
    """1 for y itself; ½ for its root, 0 for its logarithm."""
    y = Y[:, 0]
    if Y.shape[1] > 1 or len(y) < FEWEST or not y.min() > 0 or skewness(y) < SKEWED:
        return 1.0
    order = shuffled(rows.x.numpy(), Y, seed)[:ROWS]
    part, y = rows.take(torch.from_numpy(order)), y[order]
    told = {power: losses(part, y, power, units, seed) for power in POWERS}
    nats, distance = told.pop(1.0)
    weight = part.weights.numpy()
    best, least = 1.0, 0.0
    for power, (own, far) in told.items():
        gain, error = mean_of(nats - own, weight)
        if gain > max(least, 2 * error) and weight @ far**2 <= weight @ distance**2:
            best, least = power, gain
    return best


def skewness(y: Array) -> float:
    """The third moment in units of the second; 0 of what does not vary."""
    e = y / np.abs(y).max() - (y / np.abs(y).max()).mean()
    size = math.sqrt(float((e**2).mean()))
    return float((e**3).mean()) / size**3 if size > 1e-12 else 0.0


def losses(rows: Rows, y: Array, power: float, units: Scaling, seed: int) -> tuple[Array, Array]:
    """Nats of y (n,), and distances of predictions from it, both left out."""
    scaling = Scaling.of_targets(y[:, None], power)
    target = scaling.inside(y[:, None])
    data = Data.of(rows.x, torch.from_numpy(target), rows.weight, seed, None, units, rows.folds)
    kind = AXIS_RQ if few_columns(data) else LINES
    with one_thread():
        try:
            fit = judged(kind.learn(data, equal_scales(data), STEPS), data, scan=True)
            errors = errors_of(fit).numpy()
        except (LinAlgError, SolveError, AssertionError):
            return np.full(len(y), np.inf), np.full(len(y), np.inf)
    v = y / scaling.unit
    slope = (power - 1) * np.log(v) + np.log(power or 1.0)  # log dT/dv
    nats = data.judge.losses(errors, target, data.weight.numpy()) + np.log(scaling.scale) - slope
    guess = straight((target - errors) * scaling.scale + scaling.shift, power) * scaling.unit
    return nats, np.abs(y - guess[:, 0])

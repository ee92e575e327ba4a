"""Columns with long tails: most rows are close together there, and a few lie far from all others.

Kernels of standardized columns see little but those few. Squashed columns (`Squash`) are another view of
the rows. The smooth kernel on axis scales, which every race begins with, tells which view predicts rows
left out better. The race then sees the rows that way.
"""

from __future__ import annotations

from scipy.linalg import LinAlgError
from torch import Tensor

from greenfold.chart.frames import Squash
from greenfold.learn.candidates import AXIS_RQ, FEW, Fit, equal_scales, few_columns
from greenfold.learn.choice import difference, loss
from greenfold.learn.data import Data
from greenfold.learn.fit import judged
from greenfold.learn.race import Tell
from greenfold.learn.wide import wide
from greenfold.solve import SolveError
from greenfold.state import one_thread

LONG = 8.0  # E(x − Ex)⁴ over the variance squared; normal columns have 3
WIDTHS = (1.0, 1 / 4)  # of the part that stays a line, in median distances from the median
JUDGES = 1000  # rows
STEPS = 25
LEAST = 50  # rows that tell views apart


def without_tails(data: Data, tell: Tell) -> Data:
    """Rows as they are, or with long tails squashed where rows left out gain more than chance by it."""
    long = long_tails(data.x)
    usual = data.shape is None and few_columns(data) and not wide(data)
    if not usual or not bool(long.any()) or len(data) < LEAST:
        return data
    judges = data.head(JUDGES)
    with one_thread():
        plain = best = viewed(judges)
        kept = data
        for width in WIDTHS:
            squash = Squash.of(data.looked_at, long, width)
            fit = viewed(judges.squashed(squash))
            if fit is not None and (best is None or loss(fit) < loss(best)):
                best, kept = fit, data.squashed(squash)
    if plain is None or best is None or best is plain:
        return data
    gain, error = difference(plain, best, judges)
    if gain <= error:
        return data
    tell(f"{int(long.sum())} columns with long tails squashed", [best])
    return kept


def long_tails(x: Tensor) -> Tensor:
    """Which columns (D,) have them. Two values are no tail, however rare one of them is."""
    two = ((x == x.amin(0)) | (x == x.amax(0))).all(0)
    x = x - x.mean(0)
    return (x.pow(4).mean(0) > LONG * x.square().mean(0).square()) & ~two


def viewed(data: Data) -> Fit | None:
    """Scales of the axes by evidence, judged by rows left out."""
    try:
        fit = AXIS_RQ.learn(data.head(FEW), equal_scales(data), STEPS)
        return judged(fit, data, scan=True)
    except (LinAlgError, SolveError):
        return None

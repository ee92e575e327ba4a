"""How often rows count: what is one measurement, what is a copy, and what is a coincidence.

Weights compare rows; they do not say how many there are. Twice the weights, or every row twice, is the
same table, so the mean weight is 1 and a repetition that all rows share is divided out. A row that comes
more often than others is one of two things. A *copy* is no new measurement: it makes its row weigh more,
for copies that agree to the last digit would look like the absence of noise. Rows that coincide *by
chance*, as in tables of whole numbers, are measurements and stay rows. Chance is told by the company: the
x of such a row also comes with another y, and its y with another x.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MOST = 20_000  # rows that coinciding ones are kept as, all together
DENOMINATOR = 100  # up to which weights are looked at as fractions of one another


class Counted(NamedTuple):
    """Rows in a fixed order, whatever order they came in; weights are 1 on average."""

    X: Array  # (n, D)
    Y: Array  # (n, c)
    weight: Array  # (n,)
    unit: float  # given weight that counts 1


def counted(X: Array, Y: Array, weight: Array) -> Counted:
    """Rows of positive weight, copies joined; the sum of weights is the number of measurements."""
    keep, largest = weight > 0, float(weight.max(initial=0.0))
    if not keep.any():
        return Counted(X[keep], Y[keep], weight[keep], 1.0)
    both, index, times = np.unique(
        np.hstack([X[keep], Y[keep]]), axis=0, return_inverse=True, return_counts=True
    )
    total: Array = np.bincount(index.ravel(), weights=weight[keep] / largest).astype(np.float64)
    X, Y = both[:, : X.shape[1]], both[:, X.shape[1] :]
    pieces, times = np.ones(len(both), dtype=np.int64), proportion(total, times)
    if by_chance(X, Y, times):
        share = min(1.0, max(MOST, len(both)) / times.sum())
        pieces = np.maximum(1, np.round(share * times)).astype(np.int64)
    rows = np.repeat(np.arange(len(both)), pieces)
    each = total[rows] / pieces[rows]
    mean = float(each.mean())
    return Counted(X[rows], Y[rows], rounded(each / mean), mean * largest)


def proportion(weight: Array, times: NDArray[np.int64]) -> NDArray[np.int64]:
    """The least whole numbers in the proportion of the weights; without such, that of `times`."""
    ratio = weight / weight.min()
    if ratio.max() < 1e6:
        for k in range(1, DENOMINATOR + 1):
            whole = np.round(k * ratio)
            if np.abs(k * ratio - whole).max() < 1e-6:
                return whole.astype(np.int64)
    return times // np.gcd.reduce(times)


def by_chance(X: Array, Y: Array, times: NDArray[np.int64]) -> bool:
    """Do most of the rows that come again coincide by chance? X and Y are of distinct pairs."""
    again = times - 1
    if not again.any():
        return False
    return bool(2 * again[shared(X) & shared(Y)].sum() > again.sum())


def shared(rows: Array) -> NDArray[np.bool_]:
    """Which rows come more than once."""
    _, index, times = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    return np.asarray(times[index.ravel()] > 1)


def rounded(values: Array) -> Array:
    """To 40 binary digits: those after them depend on the unit of the weights, and training on them."""
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(mantissa * 2.0**40), exponent - 40))

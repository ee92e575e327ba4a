"""∫ e^{−aL} da over times a, by Gauss–Legendre in logarithmic time: the inverse of L where a wind blows.

A source seen from downstream arrives within a narrow range of times: at a = r/v, with a width √(2/ρa) in
log a, ρ = Σ_j v_j²/D_j. Best sums of exponentials do not know that, so nodes are put where they are
needed: t is log a while ρa < 1 and stretches as √(ρa) beyond, so that every arrival is as wide in t.
"""

import math
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

WIDTH = 0.4  # of an arrival in log a, without a wind
MOST = 1024  # nodes


def log_times(first: float, last: float, rho: float, error: float) -> tuple[Tensor, Tensor]:
    """Times a (k,) and logarithms of their weights: ∫ from `first` to `last`, to a relative `error`.

    Parameters
    ----------
    first, last : float
        The range of times that matters.
    rho : float
        ρ = Σ_j v_j²/D_j.
    """
    # rounded, so that small changes of physical numbers leave the nodes where they are
    first, rho = 2.0 ** math.floor(math.log2(first)), _rounded(rho)
    a, log_weight = _nodes(first, last, rho, error)
    return torch.from_numpy(a.copy()), torch.from_numpy(log_weight.copy())


def _rounded(value: float) -> float:
    return 2.0 ** math.ceil(math.log2(value)) if value > 0 else 0.0


@lru_cache(maxsize=256)
def _nodes(first: float, last: float, rho: float, error: float) -> tuple[Array, Array]:
    c = rho * WIDTH**2 / 2
    low, high = _stretched(first, c), _stretched(last, c)
    # a bell of width 1 at nodes δ apart is integrated to 2e^{−2π²/δ²}
    step = math.sqrt(2) * math.pi / math.sqrt(math.log(8 / error))  # with something to spare
    n = 8 + math.ceil(math.pi / 2 * (high - low) / step)
    if n > MOST:
        raise ValueError(
            f"an error of {error:g} takes {n} times, more than {MOST}: the wind carries sources over "
            f"{rho * last:.1e} times the distance on which they spread. Raise `error`, or lower `extent`."
        )
    x, w = np.polynomial.legendre.leggauss(n)
    t = (low + high) / 2 + (high - low) / 2 * x
    a = _times(t, c)
    weight = w * (high - low) / 2 * WIDTH * a / np.sqrt(1 + c * a)
    weight[0] += first  # before it sources are as they are
    return a, np.log(weight)


def _stretched(a: float, c: float) -> float:
    """t(a) with dt = √(1 + ca)/(WIDTH·a) da."""
    if not c:
        return math.log(a) / WIDTH
    q = math.sqrt(1 + c * a)
    return (2 * q + math.log(c * a) - 2 * math.log1p(q)) / WIDTH


def _times(t: Array, c: float) -> Array:
    """a(t), by Newton in log(q − 1) with q = √(1 + ca): 2q + log((q − 1)/(q + 1)) = WIDTH·t."""
    T = WIDTH * t
    if not c:
        return np.exp(T)
    x = np.where(T < 2, T - 2 + math.log(2), np.log(np.maximum(T, 2) / 2))
    for _ in range(60):
        g = np.exp(x)
        x = x - (2 + 2 * g + x - np.log(g + 2) - T) / (2 * g + 2 / (g + 2))
    g = np.exp(x)
    return g * (g + 2) / c

"""One axis of a drifting heat kernel: what a source has become of after a time, at places and on average.

`side` is None for a free axis or an `Interval`, `kind` the name of the atoms, D and v those of the axis.
Times a are (k, 1), places (n, 1, 1) and the numbers of the atoms (r,); values are (n, k, r).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from greenfold.green.integrals import GAUSSIAN, Integral, box, interval_gaussian, interval_point
from greenfold.green.walls import circled_box, walled_box, walled_gaussian, walled_point

if TYPE_CHECKING:
    from greenfold.green.diffusion import Interval

SIGNS = {"dirichlet": -1.0, "neumann": 1.0}
WALLED: dict[str, Integral] = {
    "point": walled_point,
    "gaussian": walled_gaussian,
    "box": walled_box,
}
PANEL = np.polynomial.legendre.leggauss(16)


def along(
    side: Interval | None, kind: str, x: Tensor, a: Tensor, D: Tensor, v: Tensor, *shape: Tensor
) -> Tensor:
    """[e^{−aL_j} φ_rj](x)."""
    V, drift = 2 * a * D, a * v
    if side is None:
        return GAUSSIAN[kind](x - drift, V, *shape)
    y, mu, rest = x - side.low, shape[0] - side.low, shape[1:]
    if side.boundary != "periodic":
        sign = SIGNS[side.boundary]
        return WALLED[kind](y, V, mu, *rest, v / (2 * D), side.length, sign)
    if kind == "box":
        return circled_box(y - drift, V, mu, rest[0], side.length)
    on_circle: Integral = interval_point if kind == "point" else interval_gaussian
    length = torch.tensor(side.length, dtype=torch.float64)
    return on_circle(y - drift, V, mu, *rest, length, "periodic")


def mean_along(
    side: Interval | None,
    kind: str,
    middle: Tensor,
    half: Tensor,
    a: Tensor,
    D: Tensor,
    v: Tensor,
    *shape: Tensor,
) -> Tensor:
    """The mean of `along` over x from middle − half to middle + half, for points and Gaussians."""
    V, drift, mu = 2 * a * D, a * v, shape[0]
    walled = side is not None and side.boundary != "periodic"
    if side is not None and walled and kind == "gaussian":
        return _by_panels(side, middle, half, a, D, v, *shape)
    if side is not None and walled:  # seen from the point, a box that the wind blows away from
        y, b = mu - side.low, -v / (2 * D)
        value = walled_box(y, V, middle - side.low, half, b, side.length, SIGNS[side.boundary])
        return value / (2 * half)
    mass = 1.0 if kind == "point" else shape[1] * math.sqrt(2 * math.pi)
    s2 = V if kind == "point" else shape[1] ** 2 + V
    if side is None:
        return mass * box(mu + drift, s2, middle, half) / (2 * half)
    return mass * circled_box(mu + drift, s2, middle, half, side.length) / (2 * half)


def _by_panels(
    side: Interval, middle: Tensor, half: Tensor, a: Tensor, D: Tensor, v: Tensor, *shape: Tensor
) -> Tensor:
    """Gauss–Legendre over panels of four widths, in which a Gaussian is all but a polynomial."""
    widest, narrowest = float(half.detach().max()), float(shape[1].detach().min())
    n = max(1, math.ceil(widest / (2 * narrowest)))
    total = torch.zeros(())
    for i in range(n):
        for node, weight in zip(*PANEL):
            x = middle + half * ((2 * i + 1 + float(node)) / n - 1)
            value = along(side, "gaussian", x, a, D, v, *shape)
            total = total + float(weight) / (2 * n) * value
    return total

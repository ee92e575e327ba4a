"""One axis of a box with a wind along it: sources that end at its walls, under a drifting heat kernel.

With b = v/2D and a heat time a, V = 2Da, the kernel of −D∂² + v∂ between 0 and L is::

    e^{b(y−z) − b²V/2} K_V(y, z),   K_V the heat kernel of −½∂² at time V, with its walls

because e^{−bz} takes the wind away and leaves Dirichlet ends what they are. While V < L²/9 the kernel is
summed over images, all exponents together so that nothing overflows, beyond that over eigenfunctions; no
more than 1e-16 of it is left out. The functions integrate the kernel against a source over z in [0, L],
for V of shape (k, 1), places (n, 1, 1) and numbers of sources (r,).
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from greenfold.green.integrals import box

_NODES, _WEIGHTS = (torch.from_numpy(v) for v in np.polynomial.legendre.leggauss(48))
N_MODES = 9
REACH = 8.5  # standard deviations that hold a Gaussian to rounding

Integral = Callable[[Tensor], Tensor]


def _images(y: Tensor, length: float, sign: float) -> list[tuple[float, Tensor]]:
    """Where y is seen from z, and with which sign: odd for Dirichlet walls, even for Neumann ones."""
    shifts = [2 * m * length for m in (0, -1, 1)]
    return [(1.0, y + m) for m in shifts] + [(sign, m - y) for m in shifts]


def _over_images(
    one: Callable[[Tensor, Tensor], Tensor],
    y: Tensor,
    mu: Tensor,
    V: Tensor,
    s2: Tensor,
    lift: Tensor,
    length: float,
    sign: float,
) -> Tensor:
    """Σ ± one(image, V), leaving out times at which an image is less than e^{−45} wherever it is seen.

    `one` is at most exp(lift − distance²/2s²), with `lift` and `s2` of shape (k, 1).
    """
    (_, first), *rest = _images(y, length, sign)
    total = one(first, V)
    for s, image in rest:
        with torch.no_grad():
            gap = torch.maximum(image.amin() - mu.amax(), mu.amin() - image.amax()).clamp_min(0)
            late = (lift - gap**2 / (2 * s2) > -45.0)[:, 0].nonzero()
        if len(late):  # from some time on: V grows
            k = int(late[0, 0])
            seen = torch.nn.functional.pad(s * one(image, V[k:]), (0, 0, k, 0))
            total = total + seen
    return total


def _modes(y: Tensor, V: Tensor, length: float, sign: float, overlap: Integral) -> Tensor:
    """Σ_n ψ_n(y) e^{−Vk_n²/2} ∫ψ_n, with `overlap` the integral of a source against cos or sin(kz)."""
    wave = torch.sin if sign < 0 else torch.cos
    ranks = torch.arange(1 if sign < 0 else 0, N_MODES, dtype=torch.float64)
    total = torch.zeros(())
    for k in (ranks * math.pi / length).unbind():
        norm = (1 if k == 0 else 2) / length
        total = total + norm * wave(k * y) * torch.exp(-V * k**2 / 2) * overlap(k)
    return total


def _joined(V: Tensor, length: float, short: Integral, long: Integral) -> Tensor:
    """`short` for V (k, 1) below L²/9, `long` for those above."""
    is_short = V[:, 0] < length**2 / 9
    if bool(is_short.all()) or not bool(is_short.any()):
        return (short if bool(is_short.all()) else long)(V)
    order = torch.argsort(is_short.int(), descending=True, stable=True)
    both = torch.cat([short(V[is_short]), long(V[~is_short])], dim=-2)
    return both[..., torch.argsort(order), :]


def walled_point(y: Tensor, V: Tensor, mu: Tensor, b: Tensor, length: float, sign: float) -> Tensor:
    """The kernel itself."""

    def short(V: Tensor) -> Tensor:
        def one(image: Tensor, V: Tensor) -> Tensor:
            return torch.exp(b * (y - mu) - b**2 * V / 2 - (image - mu) ** 2 / (2 * V))

        lift = b.abs() * length - b**2 * V / 2
        return _over_images(one, y, mu, V, V, lift, length, sign) * (2 * math.pi * V).rsqrt()

    def long(V: Tensor) -> Tensor:
        wave = torch.sin if sign < 0 else torch.cos
        tilted = torch.exp(b * (y - mu) - b**2 * V / 2)
        return tilted * _modes(y, V, length, sign, lambda k: wave(k * mu))

    return _joined(V, length, short, long)


def walled_gaussian(
    y: Tensor, V: Tensor, mu: Tensor, sigma: Tensor, b: Tensor, length: float, sign: float
) -> Tensor:
    """e^{−(z−μ)²/2σ²}, which e^{−bz} moves by −σ²b: what lies between the walls of it."""
    moved = mu - sigma**2 * b

    def short(V: Tensor) -> Tensor:
        def one(image: Tensor, V: Tensor) -> Tensor:
            s2 = sigma**2 + V
            root = sigma * (2 * V / s2).sqrt()  # √2 times the width of kernel times source
            middle = (sigma**2 * image + V * moved) / s2
            inside = (torch.erf((length - middle) / root) + torch.erf(middle / root)) / 2
            start = b * (y - mu) + b**2 * (sigma**2 - V) / 2
            return inside * torch.exp(start - (image - moved) ** 2 / (2 * s2))

        widest = sigma.amax() ** 2 + V
        lift = b.abs() * 2 * length + b**2 * (widest - 2 * V) / 2
        total = _over_images(one, y, moved, V, widest, lift, length, sign)
        return sigma * (sigma**2 + V).rsqrt() * total

    def long(V: Tensor) -> Tensor:
        low = (moved - REACH * sigma).clamp(0, length)
        high = (moved + REACH * sigma).clamp(0, length)
        wave = torch.sin if sign < 0 else torch.cos
        z = (low + high) / 2 + (high - low) / 2 * _NODES.view(-1, *[1] * (moved.ndim))
        weight = _WEIGHTS.view(-1, *[1] * moved.ndim) * (high - low) / 2
        source = weight * torch.exp(b * (mu - z) - (z - mu) ** 2 / (2 * sigma**2))
        tilted = torch.exp(b * (y - mu) - b**2 * V / 2)
        return tilted * _modes(y, V, length, sign, lambda k: (source * wave(k * z)).sum(0))

    return _joined(V, length, short, long)


def walled_box(
    y: Tensor, V: Tensor, mu: Tensor, sigma: Tensor, b: Tensor, length: float, sign: float
) -> Tensor:
    """1 for |z − μ| ≤ σ, as far as it lies between the walls."""
    low, high = (mu - sigma).clamp(0, length), (mu + sigma).clamp(0, length)
    middle, half = (low + high) / 2, ((high - low) / 2).clamp_min(1e-12 * length)

    def short(V: Tensor) -> Tensor:
        total = torch.zeros(())
        for s, image in _images(y, length, sign):
            lift = torch.exp((b * (y - image)).clamp_max(600))
            total = total + s * lift * box(image - b * V, V, middle, half)
        return total

    def long(V: Tensor) -> Tensor:
        def overlap(k: Tensor) -> Tensor:  # ∫ e^{b(μ−z)} cos or sin(kz) dz
            if sign > 0 and k == 0:  # no wind there
                return 2 * half
            return upper(k, high) - upper(k, low)

        def upper(k: Tensor, z: Tensor) -> Tensor:
            sin, cos = torch.sin(k * z), torch.cos(k * z)
            wave = -b * sin - k * cos if sign < 0 else k * sin - b * cos
            return torch.exp(b * (mu - z)) * wave / (b**2 + k**2)

        tilted = torch.exp(b * (y - mu) - b**2 * V / 2)
        return tilted * _modes(y, V, length, sign, overlap)

    return _joined(V, length, short, long)


def circled_box(y: Tensor, V: Tensor, mu: Tensor, sigma: Tensor, length: float) -> Tensor:
    """1 for |z − μ| ≤ σ on a circle, under the heat kernel of the circle."""
    delta = y - mu
    delta = delta - length * torch.floor((delta / length).detach())

    def short(V: Tensor) -> Tensor:
        zero = torch.zeros_like(mu)
        parts = (box(delta + m * length, V, zero, sigma) for m in range(-7, 7))
        return torch.stack(torch.broadcast_tensors(*parts)).sum(0)

    def long(V: Tensor) -> Tensor:
        total = 2 * sigma / length
        for n in range(1, N_MODES):
            k = 2 * math.pi * n / length
            weight = 4 / (k * length) * torch.sin(k * sigma) * torch.exp(-V * k**2 / 2)
            total = total + weight * torch.cos(k * delta)
        return total

    switch = torch.tensor(length**2 / 4, dtype=torch.float64)
    return torch.where(switch > V, short(torch.minimum(V, switch)), long(torch.maximum(V, switch)))

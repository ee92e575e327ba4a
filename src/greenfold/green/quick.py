"""Kernels where nothing asks for slopes: few passes over blocks that stay in cache, mostly in float32.

Distances come from one product of matrices. It rounds |ζ − μ|² by some ε(|ζ|² + |μ|²), which matters at a
cusp: pairs so near each other that their distance would be off by more than `OFF` are looked at again. A
kernel with slopes up to 1, as e^{−r}, is then exact to `OFF`, and to rounding between equal points.

Along one axis |x − y| is 2 max(x, y) − x − y, and e^{−|x − y|} the smaller of e^x e^{−y} and e^{−x} e^y:
no exponential of n·r numbers is taken.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

BLOCK = 2**20  # bytes that a few passes go over
OFF = 1e-5  # of a distance, at most
ROUNDING = 5e-7  # of |ζ|² + |μ|² ≈ 2|ζ|² between near points, over |ζ|²
CROWDED = 0.05  # share of near pairs above which all are looked at
FAR = 60.0  # e^{−60} is nothing, and numbers far below it are slow
HIGH = 80.0  # exponents whose exponentials are numbers, and their products at worst 0 and infinity
OPEN = 1 / 64  # 1 − p that may be divided by


InPlace = Callable[[Tensor], Tensor]


def kept(r: Tensor) -> Tensor:
    """As they are."""
    return r


def squares(a: Tensor, b: Tensor, more: float = 0.0) -> Tensor:
    """|a_i − b_j|² (n, r) and so much more, by one product: less by rounding."""
    s, t = (z.double().square().sum(1, keepdim=True) for z in (a, b))
    one, two = torch.ones_like(s).to(a), torch.ones_like(t).to(b)
    return torch.cat([-2 * a, (s + more).to(a), one], 1) @ torch.cat([b, two, t.to(b)], 1).T


def rational(a: Tensor, b: Tensor, beta: float) -> Tensor:
    """(1 + |a_i − b_j|²/2β)^{−β} (n, r)."""
    a, b = a / math.sqrt(2 * beta), b / math.sqrt(2 * beta)
    Phi = squares(a, b, 1.0)
    for part in Phi.split(height(Phi)):
        part.clamp_min_(1)
        part.reciprocal_() if beta == 1 else part.pow_(-beta)
    return Phi


def distances(a: Tensor, b: Tensor, then: InPlace = kept) -> Tensor:
    """|a_i − b_j| (n, r), off by at most `OFF`, and what becomes of them while they are in cache."""
    center = b.mean(0)
    a, b = a - center, b - center
    r2, s = squares(a, b), a.square().sum(1)
    if not r2.numel():
        return then(r2)
    limits = torch.maximum((ROUNDING / 2 / OFF * s).square(), 2 * ROUNDING * s)
    rows = height(r2)
    for x, part, limit in zip(a.split(rows), r2.split(rows), limits.split(rows)):
        near = (part.amin(1) < limit).nonzero()[:, 0]
        if len(near):
            i, j = (part[near] < limit[near, None]).nonzero().T
            if len(i) > CROWDED * part.numel():
                part.copy_(torch.cdist(x, b, compute_mode="donot_use_mm_for_euclid_dist").square_())
            else:
                i = near[i]
                part[i, j] = (x[i] - b[j]).square().sum(1)
        then(part.clamp_min_(0).sqrt_())
    return r2


def faded(r: Tensor) -> Tensor:
    """e^{−r} in place, as a power of 2, which takes 60% of the time."""
    return r.clamp_max_(FAR).mul_(-math.log2(math.e)).exp2_()


def height(M: Tensor) -> int:
    """Rows of M that passes over them stay in cache with."""
    return max(1, BLOCK // max(M.shape[1] * M.itemsize, 1))


def city(a: Tensor, b: Tensor, then: InPlace = kept) -> Tensor:
    """Σ_j |a_ij − b_rj| (n, r), and what becomes of them while they are in cache."""
    center = b.mean(0)
    a, b = a - center, b - center
    total, there = a.new_empty(len(a), len(b)), b.T.contiguous()
    rows = height(total)
    more = torch.empty_like(total[:rows])
    for x, sums in zip(a.split(rows), total.split(rows)):
        other = more[: len(x)]
        torch.maximum(x[:, :1], there[0], out=sums)
        for own, at in zip(columns(x)[1:], there[1:]):
            sums.add_(torch.maximum(own, at, out=other))
        # 2 Σ max − Σ a − Σ b
        then(sums.mul_(2).sub_(x.sum(1, keepdim=True)).sub_(b.sum(1)).clamp_min_(0))
    return total


def interactions(a: Tensor, b: Tensor, share: Tensor, order: int) -> Tensor:
    """Π_j (1 − p_j + p_j k(a_ij − b_rj)) (n, r), k(δ) = e^{−|δ|}, times 1 + |δ| of order 2.

    In the dtype of b, float32 or float64.
    """
    dtype, center = b.dtype, b.double().mean(0)
    a, b = a.double() - center, b.double() - center
    Phi = torch.ones(len(a), len(b), dtype=dtype)
    if not Phi.numel():
        return Phi
    p, far = share.tolist(), (torch.cat([a, b]).abs().amax(0) > HIGH).tolist()
    level = math.prod(1 - own for own in p if 1 - own > OPEN)
    over, under, at = (z.T.to(dtype).contiguous() for z in (b.exp(), (-b).exp(), b))
    rows = height(Phi)
    buffers = Phi.new_empty(2, min(rows, len(a)), len(b))  # few, so that they stay in cache
    for x, part in zip(a.split(rows), Phi.split(rows)):
        k, other = buffers[:, : len(x)]
        own = (columns(z.to(dtype)) for z in (x.exp(), (-x).exp(), x))
        axes = zip(*own, over, under, at)
        for j, (up, down, here, over_j, under_j, there) in enumerate(axes):
            if far[j]:
                torch.sub(here, there, out=k).abs_().clamp_max_(FAR).neg_().exp_()
            else:
                torch.mul(up, under_j, out=k)
                torch.minimum(k, torch.mul(down, over_j, out=other), out=k)
            if order == 2:
                k.addcmul_(k, torch.sub(here, there, out=other).abs_())
            if 1 - p[j] > OPEN:  # the 1 − p are in the level
                part.addcmul_(part, k, value=p[j] / (1 - p[j]))
            else:
                part.mul_(k.mul_(p[j]).add_(1 - p[j]))
        part.mul_(level)
    return Phi


def columns(x: Tensor) -> tuple[Tensor, ...]:
    """Each (n, 1)."""
    return x.T.contiguous()[..., None].unbind(0)

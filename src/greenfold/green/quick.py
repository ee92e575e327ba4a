"""Kernels where nothing asks for slopes: few passes over blocks that stay in cache, mostly in float32.

`Blocks` fills a block of K between some rows and some sources. `whole` joins them to Φ (n, r); `times`
multiplies each by the strengths of its sources while it is in cache, so that there is never a Φ.

Distances come from one product of matrices. It rounds |ζ − μ|² by some ε(|ζ|² + |μ|²), which matters at a
cusp: pairs so near each other that their distance would be off by more than `OFF` are looked at again. A
kernel with slopes up to 1, as e^{−r}, is then exact to `OFF`, and to rounding between equal points.

Along one axis |x − y| is 2 max(x, y) − x − y, and e^{−|x − y|} is e^{−x} e^{−y} min(e^{2x}, e^{2y}): no
exponential of n·r numbers is taken. In a product over axes the first two factors are those of all axes at
once. Where there are exponentials, powers of 2 take a third of the time of those of e. Columns of two
values, as the levels of a category have, go by one product of matrices.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from greenfold.design import widest

BLOCK = 2**20  # bytes that a few passes go over
WIDE = 1024  # sources of a block, over which its dtype sums
ROUNDING = 4.2  # ε of |ζ|² + |μ|² ≈ 2|ζ|² between near points, over |ζ|²
OFF = {torch.float32: 1e-5, torch.float64: 1e-10}  # of a distance, at most
CROWDED = 0.05  # share of near pairs above which all are looked at
FAR = 87.0  # 2^{−87} is nothing in float32, and numbers far below it are slow
HIGH = 80.0  # exponents that have exponentials, also of their negatives
SOME = 8  # columns of two values, for which a product of matrices pays
BITS = math.log2(math.e)


Fill = Callable[[Any, Any, Tensor], object]


class Grid(NamedTuple):
    """Blocks of a matrix (n, r): of so many rows, and so many sources."""

    n: int
    r: int
    high: int
    wide: int
    like: Tensor  # (0,), of the dtype and on the device of the blocks

    @staticmethod
    def of(a: Tensor, b: Tensor, dtype: torch.dtype) -> "Grid":
        """Between points a (n, d) and sources b (r, d); one block where there is no such cache."""
        n, r, like = len(a), len(b), a.new_empty(0, dtype=dtype)
        if like.device.type != "cpu":
            return Grid(n, r, max(n, 1), max(r, 1), like)
        wide = max(min(WIDE, r), 1)
        return Grid(n, r, max(BLOCK // (wide * like.itemsize), 1), wide, like)

    def rows(self, z: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
        """What is known of rows, for every block."""
        return z.to(self.like).contiguous().split(self.high, dim)

    def sources(self, z: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
        return z.to(self.like).contiguous().split(self.wide, dim)


class Blocks(NamedTuple):
    """K (n, r) between points and sources, but for a factor."""

    grid: Grid
    rows: list[Any]  # what `fill` wants to know of the rows of every block
    sources: list[Any]  # and of its sources
    fill: Fill  # (rows, sources, out): a block, into one of its shape
    factor: float = 1.0

    def whole(self) -> Tensor:
        """K (n, r)."""
        grid = self.grid
        K = grid.like.new_empty(grid.n, grid.r)
        for source, part in zip(self.sources, K.split(grid.wide, 1)):
            for row, block in zip(self.rows, part.split(grid.high)):
                self.fill(row, source, block)
                if self.factor != 1:
                    block.mul_(self.factor)
        return K

    def times(self, w: Tensor) -> Tensor:
        """K w (n, c) of strengths (r, c): blocks in their dtype, and sums over them in float64."""
        grid = self.grid
        u = w.new_zeros(w.shape[1], grid.n, dtype=widest(w.device))
        # (c, r), so and not (r, c): products with few columns are slow
        for source, v in zip(self.sources, grid.sources(self.factor * w.to(u).T, 1)):
            for row, sums in zip(self.rows, u.split(grid.high, 1)):
                block = grid.like.new_empty(sums.shape[1], v.shape[1])
                self.fill(row, source, block)
                sums += v @ block.T
        return u.T


def centered(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both around the mean of b, in float64: kernels depend on differences, which round least there."""
    a, b = (z.to(widest(z.device)) for z in (a, b))
    center = b.mean(0)
    return a - center, b - center


def squares(a: Tensor, b: Tensor, scale: float = 1.0, more: float = 0.0) -> tuple[Tensor, Tensor]:
    """Matrices (n, d + 2) and (d + 2, r) whose product is scale |a_i − b_j|² + more."""
    s, t = (scale * z.square().sum(1, keepdim=True) for z in (a, b))
    left = torch.cat([-2 * scale * a, s + more, torch.ones_like(s)], 1)
    return left, torch.cat([b, torch.ones_like(t), t], 1).T


def rational(a: Tensor, b: Tensor, dtype: torch.dtype, beta: float) -> Blocks:
    """(1 + |a_i − b_j|²/2β)^{−β}."""
    grid = Grid.of(a, b, dtype)
    left, right = squares(*centered(a, b), 1 / (2 * beta), 1.0)

    def fill(x: Tensor, y: Tensor, out: Tensor) -> None:
        torch.mm(x, y, out=out).clamp_min_(1)  # rounding of far points leaves less
        out.reciprocal_() if beta == 1 else out.pow_(-beta)

    return Blocks(grid, [*grid.rows(left)], [*grid.sources(right, 1)], fill)


def gaussian(a: Tensor, b: Tensor, dtype: torch.dtype, factor: float = 1.0) -> Blocks:
    """factor · exp(−½ |a_i − b_j|²)."""
    grid = Grid.of(a, b, dtype)
    left, right = squares(*centered(a, b), -BITS / 2)

    def fill(x: Tensor, y: Tensor, out: Tensor) -> None:
        torch.mm(x, y, out=out).clamp_max_(0).exp2_()  # rounding of far points leaves more

    return Blocks(grid, [*grid.rows(left)], [*grid.sources(right, 1)], fill, factor)


def distances(a: Tensor, b: Tensor, dtype: torch.dtype, fade: bool = False) -> Blocks:
    """|a_i − b_j|, off by at most `OFF`; with `fade` 2 to the power of minus that."""
    grid, (a, b) = Grid.of(a, b, dtype), centered(a, b)
    s, epsilon = a.square().sum(1), ROUNDING * torch.finfo(dtype).eps
    limits = torch.maximum((epsilon / 2 / OFF[dtype] * s).square(), 2 * epsilon * s)
    far = longest(a, 2) + longest(b, 2) > FAR

    def fill(row: tuple[Tensor, ...], source: tuple[Tensor, ...], out: Tensor) -> None:
        (left, x, limit), (right, y) = row, source
        torch.mm(left, right, out=out)
        near = (out.amin(1) < limit).nonzero()[:, 0]
        if len(near):
            again(x, y, out, near, limit)
        out.sqrt_()  # what was below 0 was near
        if fade:
            halved(out, far)

    left, right = squares(a, b)
    rows = zip(grid.rows(left), grid.rows(a), grid.rows(limits))
    sources = zip(grid.sources(right, 1), grid.sources(b))
    return Blocks(grid, list(rows), list(sources), fill)


def again(x: Tensor, y: Tensor, r2: Tensor, rows: Tensor, limit: Tensor) -> None:
    """Squares of distances that are below their limits in these rows, from differences."""
    i, j = (r2[rows] < limit[rows, None]).nonzero().T
    if len(i) > CROWDED * r2.numel():
        r2.copy_(torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square_())
    else:
        i = rows[i]
        r2[i, j] = (x[i] - y[j]).square().sum(1)


def longest(z: Tensor, p: int) -> float:
    """The largest norm of a row."""
    return float(z.norm(p, 1).amax()) if len(z) else 0.0


def halved(r: Tensor, far: bool) -> None:
    """2^{−r} in place."""
    if far and r.dtype == torch.float32:
        r.clamp_max_(FAR)
    r.neg_().exp2_()


def city(
    a: Tensor, b: Tensor, dtype: torch.dtype, fade: bool = False, factor: float = 1.0
) -> Blocks:
    """Σ_k |a_ik − b_jk|; with `fade` 2 to the power of minus that. Times a factor."""
    grid, (a, b) = Grid.of(a, b, dtype), centered(a, b)
    far = longest(a, 1) + longest(b, 1) > FAR
    two = two_valued(a, b)
    left, right = levels(a[:, two], b[:, two])
    a, b = a[:, ~two], b[:, ~two]

    def fill(row: tuple[Any, ...], source: tuple[Any, ...], out: Tensor) -> None:
        torch.add(row[0], source[0], out=out)
        if len(source[1]):
            out.addmm_(row[1], source[1])
        larger = torch.empty_like(out)
        for x, y in zip(row[2], source[2]):
            out.add_(torch.maximum(x, y, out=larger))
        out.clamp_min_(0)  # rounding of far points leaves less
        if fade:
            halved(out, far)

    rows = zip(
        grid.rows(-a.sum(1, keepdim=True)), grid.rows(left), axes(grid.rows, 2 * a[..., None])
    )
    sources = zip(grid.sources(-b.sum(1)), grid.sources(right, 1), axes(grid.sources, 2 * b))
    return Blocks(grid, list(rows), list(sources), fill, factor)


def two_valued(a: Tensor, b: Tensor) -> Tensor:
    """Columns (d,) with two values, as the levels of a category have; none where those are few."""
    d = b.shape[1]
    if not len(b) or d < SOME:
        return torch.zeros(d, dtype=torch.bool, device=b.device)
    low, high = b.aminmax(dim=0)
    two = ((b == low) | (b == high)).all(0) & ((a == low) | (a == high)).all(0)
    return two if int(two.sum()) >= SOME else torch.zeros_like(two)


def levels(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices (n, 2m) and (2m, r) whose product is Σ_k |a_ik − b_jk| over columns of two values l < h.

    With α = [a = h] and β = [b = h] that is Σ (h − l)(α(1 − β) + (1 − α)β): equal rows are 0 apart.
    """
    if not b.shape[1]:
        return a, b.T
    low, high = b.aminmax(dim=0)
    alpha, beta = ((z == high).to(b) for z in (a, b))
    left = torch.cat([alpha, 1 - alpha], 1) * (high - low).repeat(2)
    return left, torch.cat([1 - beta, beta], 1).T


def axes(parts: Callable[[Tensor, int], tuple[Tensor, ...]], z: Tensor) -> list[tuple[Tensor, ...]]:
    """Columns of z (n, d, …), for every block; copies, which start with a line of cache."""
    return [tuple(own.clone() for own in part.unbind(0)) for part in parts(z.transpose(0, 1), 1)]


class Along(NamedTuple):
    """What products over m axes want to know of the points z of a block, a tensor for every axis."""

    reach: list[float]  # (m,) how far from 0 they lie
    whole: float  # over all axes together
    sums: list[Tensor]  # (m + 1,) of z over the axes before, in float64
    z: list[Tensor]  # times log₂e
    once: list[Tensor]  # e^z, of rows times 1 − p
    twice: list[Tensor]  # p e^{2z}

    @staticmethod
    def of(z: Tensor, once: Tensor, p: Tensor, like: Tensor, *shape: int) -> "Along":
        """Of points (n, m), as columns or rows of a block."""
        z = z.T.contiguous()  # (m, n)
        size, e = z.abs(), z.exp()
        sums = torch.cat([z.new_zeros(1, z.shape[1]), z]).cumsum(0)
        parts = (part.to(like) for part in (BITS * z, once[:, None] * e, p[:, None] * e * e))
        known = ([own.view(shape) for own in part.unbind()] for part in (sums, *parts))
        return Along(size.amax(1).tolist(), float(size.sum(0).amax()), *known)

    def less(self, run: range) -> Tensor:
        """e^{−Σz} over some of the axes."""
        return (self.sums[run.start] - self.sums[run.stop]).exp_()


def interactions(a: Tensor, b: Tensor, dtype: torch.dtype, share: Tensor, order: int) -> Blocks:
    """Π_k (1 − p_k + p_k k(a_ik − b_jk)), k(δ) = e^{−|δ|}, times 1 + |δ| of order 2.

    Of order 1 it is e^{−Σx} e^{−Σy} Π ((1 − p) e^x e^y + p min(e^{2x}, e^{2y})): three passes each.
    """
    grid, (a, b) = Grid.of(a, b, dtype), centered(a, b)
    kept = felt(a, b, share, order, dtype)
    a, b, p = a[:, kept], b[:, kept], share[kept]
    shares, closed = p.tolist(), (1 - p).to(grid.like).unbind()

    def fill(row: Along, source: Along, out: Tensor) -> None:
        k, apart = torch.empty_like(out), torch.empty_like(out)
        near, far = runs(row, source)
        if not near:
            out.fill_(1)
        for run in near:
            x, y = (own.less(run).to(out) for own in (row, source))
            torch.mul(x, y, out=out) if run is near[0] else out.mul_(x).mul_(y)
            for j in run:
                torch.minimum(row.twice[j], source.twice[j], out=k)
                if order == 2:
                    k.addcmul_(
                        k, torch.sub(row.z[j], source.z[j], out=apart).abs_(), value=1 / BITS
                    )
                out.mul_(k.addcmul_(row.once[j], source.once[j]))
        for j in far:
            torch.sub(row.z[j], source.z[j], out=apart).abs_()
            halved(k.copy_(apart), True)
            if order == 2:
                k.addcmul_(k, apart, value=1 / BITS)
            out.mul_(torch.add(closed[j], k, alpha=shares[j], out=k))

    rows = [Along.of(x, 1 - p, p, grid.like, -1, 1) for x in a.split(grid.high) if len(x)]
    sources = [Along.of(y, torch.ones_like(p), p, grid.like, -1) for y in b.split(grid.wide)]
    return Blocks(grid, rows, sources, fill)


def felt(a: Tensor, b: Tensor, share: Tensor, order: int, dtype: torch.dtype) -> Tensor:
    """Axes, but for those along which points lie so near that no product changes by more than rounding.

    Those that reach least come first.
    """
    if not len(a) or not len(b):
        return torch.arange(0, device=a.device)
    reach = torch.maximum(a.amax(0), b.amax(0)) - torch.minimum(a.amin(0), b.amin(0))
    lost = -torch.expm1(-reach) - (reach * torch.exp(-reach) if order == 2 else 0.0)  # 1 − k there
    lost, found = (share * lost).sort()
    found = found[lost.cumsum(0) > torch.finfo(dtype).eps]
    return found[reach[found].argsort()]


def runs(row: Along, source: Along) -> tuple[list[range], list[int]]:
    """Axes one after another whose e^{x + y} are numbers together; and those that reach too far."""
    if row.whole + source.whole <= HIGH:
        return [range(len(row.z))], []
    near, far, room = [], [], 0.0
    for j, reach in enumerate(x + y for x, y in zip(row.reach, source.reach)):
        if reach > HIGH:
            far.append(j)
            room = 0.0
        elif reach > room:
            near.append(range(j, j + 1))
            room = HIGH - reach
        else:
            near[-1] = range(near[-1].start, j + 1)
            room -= reach
    return near, far

"""Least squares of more rows than memory holds, a pass over them for every step of conjugate gradients.

    (ΦᵀWΦ + αC) w = ΦᵀWY

Sums ΦᵀWΦ of p columns cost 2np² products, passes 4np each and the kernel. From some thousand sources on
passes are cheaper, and beyond 10,000 sums do not fit in memory. A sample of the rows, weighed as all of
them, gives the start and the preconditioner M ≈ A = ΦᵀWΦ + αC. The residual r tells how far values are
off: ‖W^{½}Φ δw‖² ≤ rᵀA⁻¹r, of which rᵀM⁻¹r is an estimate.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from greenfold.solve.factor import definite
from greenfold.solve.solution import Solution, SolveError
from greenfold.solve.statistics import Statistics

TOL = 1e-6  # of ‖Y‖, by which values may be off
PASSES = 200  # at most
NARROW = 10  # times that, by which float32 may move what is left

STUCK = """\
after {passes} passes over the rows values may still be off by {off:.1e} of the targets, more than \
{tol:.0e}. Usually one of:

(a) the sample is too small to stand for all rows: raise `sample`;
(b) the penalty is so small that rows are interpolated: raise `alpha`.
"""


class Pass(NamedTuple):
    """Sums over all rows at some v."""

    product: Tensor  # (p, c)  ΦᵀWΦ v
    cross: Tensor  # (p, c)  ΦᵀWY
    square: Tensor  # (c, c)  YᵀWY
    n: float  # Σ weight
    rows: int


Gather = Callable[[Tensor, torch.dtype], Pass]  # at v (p, c), with a kernel of this dtype


class Place(NamedTuple):
    """All that a descent goes on from."""

    w: Tensor  # (p, c)
    r: Tensor  # (p, c)  what is left of ΦᵀWY
    p: Tensor  # (p, c)  direction
    told: Tensor  # (3 + c,)  passes so far, what is next, whether steps are in float64, and rᵀM⁻¹r


class End(NamedTuple):
    sums: Statistics  # ΦᵀWΦ of the sample, the others of all rows
    solution: Solution


LOOK, PROBE, STEP = 0, 1, 2  # at what is left, at what float32 makes of it, and conjugate gradients


def descend(
    gather: Gather,
    sample: Statistics,
    start: Solution,
    place: Place | None,
    keep: Callable[[Place], None],
) -> End:
    """From the solution of a sample, whose sums are weighed as all rows, or on from a place.

    Steps are in float32 where what it makes of the first residual is near enough. What they end with is
    looked at in float64, in which it goes on if need be.
    """
    alpha, penalty = float(start.alpha), sample.penalty.double()[:, None]
    near = definite(sample.gram + (alpha * penalty[:, 0]).diag(), alpha)
    if place is None:
        told = torch.zeros(3 + start.w.shape[1], dtype=torch.float64)
        nothing = torch.zeros_like(start.w, dtype=torch.float64)
        place = Place(start.w.double(), nothing, nothing, told)
    while True:
        w, r, p, told = place
        count, now, wide, rz = int(told[0]), int(told[1]), bool(told[2]), told[3:]
        narrow = now == PROBE or (now == STEP and not wide)
        known = gather(p if now == STEP else w, torch.float32 if narrow else torch.float64)
        size = known.square.diagonal().clamp_min(1e-300)
        if now == STEP:
            curved = known.product + alpha * penalty * p
            length = rz / (p * curved).sum(0).clamp_min(1e-300)
            w, r = w + length * p, r - length * curved
            z = near.solve(r)
            new = (r * z).sum(0)
            p, rz = z + new / rz.clamp_min(1e-300) * p, new
            if bool((rz <= TOL**2 * size / 4).all()):
                now, wide = LOOK, True
        else:
            left = known.cross - known.product - alpha * penalty * w
            z = near.solve(left - r if now == PROBE else left)
            if now == PROBE:
                off = ((left - r) * z).sum(0)
                now, wide = STEP, bool((off > (NARROW * TOL) ** 2 * size).any())
            else:
                r, p, rz = left, z, (left * z).sum(0)
                if bool((rz <= TOL**2 * size).all()):
                    return ended(place, known, sample, start, float((rz / size).max().sqrt()))
                now = STEP if wide else PROBE
        count += 1
        if count >= PASSES:
            far = float((rz / size).max().sqrt())
            raise SolveError(STUCK.format(passes=count, off=far, tol=TOL))
        ahead = torch.tensor([count, now, float(wide)], dtype=torch.float64)
        place = Place(w, r, p, torch.cat([ahead, rz]))
        keep(place)


def ended(place: Place, known: Pass, sample: Statistics, start: Solution, off: float) -> End:
    sums = Statistics()
    sums.gram, sums.penalty = sample.gram, sample.penalty
    sums.cross, sums.square, sums.n, sums.rows = known.cross, known.square, known.n, known.rows
    w, passes = place.w, int(place.told[0]) + 1
    left = known.square.trace() - 2 * (w * known.cross).sum() + (w * known.product).sum()
    info = {
        **start.info,
        "route": "passes",
        "iterations": passes,
        "residual": off,
    }
    residual = left.clamp_min(0) / (known.n * w.shape[1])
    return End(sums, start._replace(w=w, residual=residual, info=info))

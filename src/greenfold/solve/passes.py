"""Penalized cross-entropy of more rows than memory holds: J(w) of `softmax.py`, a pass at a time.

A pass over the rows at some w gathers sums: J, its gradient g (p, c), and what the Hessian would be if
every row had one curvature s_n for all contrasts of the classes, the mean of theirs::

    A = Σ_n weight_n s_n φ_n φ_nᵀ + diag ρ                                                       (p, p)

Some of the rows stay in memory, with weights that sum to those of all. Their Hessian H has the classes
apart, but other rows in it than all rows have. So it is moved to where all rows are: with A = L Lᵀ, and
L'L'ᵀ the same sum over the rows that stay::

    M = T H Tᵀ,   T = L L'⁻¹,   step = −M⁻¹ g

With two classes M = A, and this is Newton's method. With more, L-BFGS learns what M misses.
"""

import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from greenfold.design import Design
from greenfold.solve.factor import definite
from greenfold.solve.left_out import Block
from greenfold.solve.newton import SAFEGUARD, minimize
from greenfold.solve.shared import MEMORY
from greenfold.solve.softmax import (
    Problem,
    Solve,
    centered,
    inverse,
    mean_curvature,
    probabilities,
)
from greenfold.solve.solution import Solution, check_finite, mean_square

TOL = 1e-6  # logits, of the rows that stay, by which the last step moves them at most
PASSES = 60  # at most
START = 1e-5  # gradient, per row and unit column, with which the rows that stay are left
INNER = 1e-2  # of conjugate gradients

NOT_THERE = """\
after {passes} passes over the rows the next step would still move logits by {move:.1e}, more than \
{tol:.0e}. The source is as good as that; fewer atoms (`Source(n_atoms=…)`) need fewer passes.\
"""


class Pass(NamedTuple):
    """Sums over all rows at w."""

    w: Tensor  # (p, c)
    value: Tensor  # ()  J
    gradient: Tensor  # (p, c)  ∂J/∂w
    curvature: Tensor  # (p, p)  A
    square: Tensor  # ()  Σ weight |Y − P|²
    counts: Tensor  # (c,)  rows of each class
    n: float  # Σ weight

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    @staticmethod
    def size(p: int, c: int) -> int:
        """Of `sums_of`."""
        return 1 + p * c + p * p + 1 + c + 1

    @staticmethod
    def of(flat: Tensor, w: Tensor) -> "Pass":
        """From `sums_of` all rows."""
        p, c = w.shape
        value, g, A, square, counts, n = flat.split([1, p * c, p * p, 1, c, 1])
        shaped = g.reshape(p, c), A.reshape(p, p)
        return Pass(w, value[0], *shaped, square[0], counts, float(n))

    def penalized(self, rho: Tensor) -> "Pass":
        """With the ridge ½ Σ_p ρ_p ‖w_p‖²."""
        return self._replace(
            value=self.value + 0.5 * (rho @ self.w.square()).sum(),
            gradient=self.gradient + rho[:, None] * self.w,
            curvature=self.curvature + rho.diag(),
        )


def sums_of(rows: Problem, w: Tensor) -> Tensor:
    """What rows add to a pass at w, in one vector for processes to exchange; they bring no ridge."""
    P = probabilities(rows.Phi @ w)
    square = rows.weight @ (rows.Y - P).square().sum(1)
    A = rows.block(mean_curvature(P))
    parts = (rows.value(w), rows.gradient(w), A, square, rows.Y.sum(0), rows.weight.sum())
    return torch.cat([part.reshape(-1) for part in parts])


def start_of(some: Problem, shares: Tensor) -> Tensor:
    """w (p, c) that the rows that stay would have, for classes with these shares (c,) of all rows.

    Each of them is a little of the classes that none of them has, whose logits would fall without end.
    """
    missing = torch.where(some.Y.sum(0) > 0, 0.0, shares)
    Y = some.Y * (1 - missing.sum()) + missing
    w = some.Phi.new_zeros(some.Phi.shape[1], len(shares))
    return minimize(some._replace(Y=Y), w, START, 100)[0]


class Descent(NamedTuple):
    """Where a descent ended."""

    w: Tensor  # (p, c)
    last: Pass  # a step before
    passes: int
    move: float  # of logits, by the last step


def descend(
    gather: Callable[[Tensor], Pass],
    some: Problem,
    points: list[Tensor],
    agree: Callable[[Tensor], Tensor],
    keep: Callable[[list[Tensor]], None],
) -> Descent:
    """Minimize J from the last of `points` (2, p, c), which are w with the gradients there.

    `some` are the rows that stay, with the ridge, `gather` makes a pass, and `agree` makes steps of
    several processes the same. `keep` is told the points so far after every step: from there the descent
    can go on.
    """
    now, points, passes = gather(points[-1][0]), points[:-1], 1
    while True:
        points = [*points, torch.stack([now.w, centered(now.gradient)])][-MEMORY - 1 :]
        keep(points)
        step, move, slope = _step(some, now, points, agree)
        if move <= TOL or passes >= PASSES:
            break
        t, slack = 1.0, 1e-13 * abs(float(now.value))  # below, J does not resolve the decrease
        new = gather(now.w + step)
        passes += 1
        while float(new.value) > float(now.value) + 1e-4 * t * slope + slack and t > 1e-6:
            t /= 2
            new = gather(now.w + t * step)
            passes += 1
        now = new
    if move > TOL:
        text = NOT_THERE.format(passes=passes, move=move, tol=TOL)
        warnings.warn(text, ConvergenceWarning, stacklevel=2)
    return Descent(now.w + step if move <= TOL else now.w, now, passes, move)


def _step(
    some: Problem, now: Pass, points: list[Tensor], agree: Callable[[Tensor], Tensor]
) -> tuple[Tensor, float, float]:
    """The step (p, c), how far it moves the logits of the rows that stay, and the slope of J along it."""
    g = points[-1][1]
    precondition = moved(some, now)
    pairs = [(b - a).unbind() for a, b in pairwise(points)]  # (dw, dg)
    pairs = [(s, y) for s, y in pairs if float((s * y).sum()) > 0 and g.shape[1] > 2]
    q, along = g, []
    for s, y in reversed(pairs):
        along.append((s * q).sum() / (s * y).sum())
        q = q - along[-1] * y
    z = centered(precondition(q))
    for (s, y), back in zip(pairs, reversed(along)):
        z = z + (back - (y * z).sum() / (s * y).sum()) * s
    check_finite("the next step", z, float(some.rho.min()))
    move = (some.Phi @ z).abs().max().reshape(1)
    agreed = agree(torch.cat([-z.reshape(-1), move, -(g * z).sum().reshape(1)]))
    step, size, slope = agreed.split([z.numel(), 1, 1])
    return step.reshape(z.shape), float(size), float(slope)


def moved(some: Problem, now: Pass) -> Solve:
    """M⁻¹ at the w of a pass."""
    H = inverse(some, now.w, tol=INNER)
    own = some.block(mean_curvature(probabilities(some.Phi @ now.w))) + some.rho.diag()
    least = float(some.rho.min())
    L, L_own = definite(now.curvature, least), definite(own, least)

    def solve(B: Tensor) -> Tensor:
        B = L_own.d[:, None] * (L_own.L @ L.half(B))  # T⁻¹ B
        X = L_own.L.mT @ (L_own.d[:, None] * H.solve(B))
        return torch.linalg.solve_triangular(L.L.mT, X, upper=True) / L.d[:, None]

    return solve


def left_out_of(last: Pass, design: Design, Y: Tensor, weight: Tensor, w: Tensor) -> Tensor:
    """Logits (n, c) at w of some of the rows, each left out of all of them, by one step as in
    `left_out.py`, as if all contrasts had their mean curvature."""
    Phi = design.Phi.double()
    u = Phi @ w
    P = probabilities(u)
    half = definite(last.curvature, float(last.curvature.diagonal().min())).half(Phi.mT)
    slope = weight[:, None] * (P - Y)
    step, _ = Block.single(half, weight * mean_curvature(P), slope).leave(None)
    return u + step[:, 0]


def solution_of(end: Descent, some: Problem, penalty: Tensor, alpha: float) -> Solution:
    """The strengths where a descent ended, with the degrees of freedom of the atoms as
    `info["degrees"]`, as if all contrasts had their mean curvature."""
    check_finite("w", end.w, alpha)
    last, c = end.last, end.w.shape[1]
    chol = definite(last.curvature, float(some.rho.min()))
    kept = (some.rho * chol.inverse().diagonal())[penalty > 0]
    scale = float(mean_square(some.weight @ some.Phi.square(), penalty.double()))
    info = {
        "route": "passes",
        "jitter": chol.jitter,
        "rank": len(penalty),
        "alpha_relative": alpha / scale if scale > 0 else 0.0,
        "iterations": end.passes,
        "move": end.move,
        "degrees": max(c - 1, 1) * float((1 - kept).sum()),
        "safeguard": SAFEGUARD if bool((penalty == 0).any()) else 0.0,
    }
    new = end.w.new_tensor
    residual = last.square / (last.n * c)
    return Solution(end.w, new(alpha), residual, new(chol.condition), info)

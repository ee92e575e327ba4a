"""What values would be if their rows had not been there, from one converged solve.

Without the rows of a fold the optimum moves by one Newton step of J less their losses. With V the
covariance of their values, R Rᵀ the second derivative of their losses and g its slope, both with the
weights of the rows::

    u₋ = u + V₋ g,     V₋ = (V⁻¹ − R Rᵀ)⁻¹ = V + VR (I − RᵀVR)⁻¹ RᵀV,     V = Φ H⁻¹ Φᵀ

For a quadratic loss the step is exact, and of a single row it is r/(1 − h); for cross-entropy it misses
the change of the other rows' curvature [1]_.

References
----------
.. [1] K. Rad, A. Maleki, "A scalable estimate of the out-of-sample prediction error via approximate
   leave-one-out cross-validation", J. R. Stat. Soc. B 82 (2020), 965–996.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from greenfold.design import Design
from greenfold.solve import softmax
from greenfold.solve.factor import definite, jittered
from greenfold.solve.newton import penalized_problem
from greenfold.solve.softmax import Problem, contrasts, probabilities
from greenfold.solve.solution import Solution

MANY = 12  # classes above which one factor for all of them takes longer than it is worth
TIGHT = 1e-8  # 1 − h below differs from 0 by no more than rounding makes of it


class LeftOut(NamedTuple):
    """Values (n, c) without their own rows, and the degrees of freedom of the atoms."""

    u: Tensor
    rank: float


def left_out(
    design: Design,
    Y: Tensor,
    solution: Solution,
    loss: Callable[..., LeftOut],
    weight: Tensor | None = None,
    folds: Tensor | None = None,
) -> LeftOut:
    """Leave every row out of what minimizes a loss, `squares` or `cross_entropy`, with its whole weight
    and with its fold where `folds` (n,) has them.

    Parameters
    ----------
    design : Design
        Φ (n, p) and its penalty.
    Y : Tensor of shape (n, c)
        Targets.
    weight : Tensor of shape (n,), optional
        How often each row counts.
    solution : Solution
        Of all rows.
    loss : callable
        `squares` or `cross_entropy`.
    folds : Tensor of shape (n,), optional
        Which rows leave together.

    Returns
    -------
    LeftOut
        Values (n, c) of rows that were left out, and what goes with them.

    Examples
    --------
    >>> import torch
    >>> from greenfold import Design
    >>> from greenfold.solve import Ridge, left_out, squares
    >>> Phi = torch.eye(3, dtype=torch.float64).repeat(2, 1)
    >>> Y = torch.arange(6, dtype=torch.float64)[:, None]
    >>> design = Design(Phi, torch.ones(3, dtype=torch.float64))
    >>> found = left_out(design, Y, Ridge(1e-12).solve(design, Y), squares)
    >>> found.u[:, 0].round().tolist()  # each row by its twin
    [3.0, 4.0, 5.0, 0.0, 1.0, 2.0]
    """
    with torch.no_grad():
        W = torch.ones_like(Y[:, 0]) if weight is None else weight
        return loss(design, Y, W, solution, folds)


class Block(NamedTuple):
    """Values of the rows, e of each, that move together."""

    V: Tensor  # (n, e, e)
    cov: Callable[[Tensor], Tensor]  # V (m e, m e) of some rows at once
    R: Tensor  # (n, e, k)
    g: Tensor  # (n, e, r), for r problems that share V and R

    @staticmethod
    def single(half: Tensor, curve: Tensor, g: Tensor) -> "Block":
        """One value of each row: V = halfᵀ half, with half (p, n), curvatures (n,) and g (n, r)."""
        V, R = half.square().sum(0)[:, None, None], curve.sqrt()[:, None, None]
        return Block(V, lambda own: half[:, own].mT @ half[:, own], R, g[:, None, :])

    def leave(self, folds: Tensor | None) -> tuple[Tensor, Tensor]:
        """V₋ g (n, e, r) and the diagonal of V₋ (n, e)."""
        VR = self.V @ self.R
        step, variance = _without(self.V, VR, self.R.mT @ VR, self.g)
        for k in [] if folds is None else folds.unique():
            own = (folds == k).nonzero()[:, 0]
            V, R, g = self.cov(own), self.R[own], self.g[own]
            VR = _times(V, R)
            moved, kept = _without(V, VR, _times(VR.mT, R), g.flatten(0, 1))
            step[own], variance[own] = moved.reshape(g.shape), kept.reshape(len(own), -1)
        return step, variance


def _times(M: Tensor, R: Tensor) -> Tensor:
    """M (·, m e) times the blocks R (m, e, k), (·, m k)."""
    return (M.reshape(len(M), len(R), 1, -1) @ R).flatten(1)


def _without(V: Tensor, VR: Tensor, RVR: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """V₋ g and the diagonal of V₋, with the eigenvalues of I − RᵀVR kept from zero."""
    A = torch.eye(RVR.shape[-1]).to(V) - RVR
    L, failed = torch.linalg.cholesky_ex(A)
    if not failed.any() and float(L.diagonal(dim1=-2, dim2=-1).amin()) ** 2 > TIGHT:
        half = torch.linalg.solve_triangular(L, VR.mT, upper=False)
    else:
        values, Q = torch.linalg.eigh(A)
        half = (VR @ Q / values.clamp_min(TIGHT).sqrt()[..., None, :]).mT
    step = V @ g + half.mT @ (half @ g)  # V₋ = V + halfᵀ half
    return step, V.diagonal(dim1=-2, dim2=-1) + half.square().sum(-2)


# --- least squares


@dataclass(frozen=True)
class Quadratic:
    """Strengths w at α, and the factor F of A = ΦᵀWΦ + αC."""

    design: Design
    Y: Tensor
    weight: Tensor
    alpha: float
    w: Tensor
    F: Tensor

    @staticmethod
    def of(
        design: Design, Y: Tensor, weight: Tensor, alpha: float, w: Tensor | None = None
    ) -> "Quadratic":
        """With the w that belongs to α unless it is known."""
        Phi = design.Phi * weight.sqrt()[:, None]
        F = jittered(Phi.T @ Phi + (alpha * design.penalty).diag(), "the posterior of the source")
        if w is None:
            w = torch.cholesky_solve(Phi.T @ (weight.sqrt()[:, None] * Y), F)
        return Quadratic(design, Y, weight, alpha, w, F)

    @property
    def residual(self) -> Tensor:
        return self.Y - self.design.Phi @ self.w

    @property
    def noise(self) -> Tensor:
        """σ² (c,)."""
        energy = self.alpha * self.design.penalty @ self.w.square()
        free = float(self.weight.sum()) - int((self.design.penalty == 0).sum())
        return (self.weight @ self.residual.square() + energy) / max(free, 1.0)

    @cached_property
    def half(self) -> Tensor:
        """F⁻¹Φᵀ (p, n): V = halfᵀ half."""
        return torch.linalg.solve_triangular(self.F, self.design.Phi.T, upper=False)

    @cached_property
    def leverage(self) -> Tensor:
        """h (n,)."""
        return (self.weight * self.half.square().sum(0)).clamp_max(1 - TIGHT)

    @property
    def rank(self) -> float:
        """Degrees of freedom of the atoms, for one output."""
        return float(self.leverage.sum()) - int((self.design.penalty == 0).sum())

    def resolved(self) -> "Quadratic":
        """Itself, or with a little more noise where it goes through its rows: there r and 1 − h are
        rounding errors, which r/(1 − h) would be made of."""
        if bool((self.leverage < 1 - TIGHT).all()):
            return self
        square = float(self.weight @ self.design.Phi.square().sum(1))
        more = 1e-7 * square / max(int(self.design.penalty.sum()), 1)
        return Quadratic.of(self.design, self.Y, self.weight, self.alpha + more)

    def leave(self, folds: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Errors (n, c) of rows without their fold, and φA⁻¹φᵀ (n,) without that fold in A."""
        g = -self.weight[:, None] * self.residual
        step, variance = Block.single(self.half, self.weight, g).leave(folds)
        return self.residual - step[:, 0], variance[:, 0]


def squares(
    design: Design, Y: Tensor, weight: Tensor, solution: Solution, folds: Tensor | None
) -> LeftOut:
    """Rows left out of least squares, exactly.

    Parameters
    ----------
    design : Design
        Φ (n, p) and its penalty.
    Y : Tensor of shape (n, c)
        Targets.
    weight : Tensor of shape (n,)
        How often each row counts.
    solution : Solution
        Of all rows.
    folds : Tensor of shape (n,) or None
        Which rows leave together.

    Returns
    -------
    LeftOut

    Examples
    --------
    >>> from greenfold.solve import left_out, squares  # left_out(design, Y, solution, squares)
    >>> squares.__name__
    'squares'
    """
    fit = Quadratic.of(design, Y, weight, float(solution.alpha), solution.w)
    return LeftOut(Y - fit.resolved().leave(folds)[0], Y.shape[1] * fit.rank)


# --- cross-entropy


def cross_entropy(
    design: Design, Y: Tensor, weight: Tensor, solution: Solution, folds: Tensor | None
) -> LeftOut:
    """Above (c − 1)·p = 3000 unknowns, or 12 classes, these are treated one by one, which overstates how
    far their logits would move.

    Parameters
    ----------
    design : Design
        Φ (n, p) and its penalty.
    Y : Tensor of shape (n, c)
        Targets.
    weight : Tensor of shape (n,)
        How often each row counts.
    solution : Solution
        Of all rows.
    folds : Tensor of shape (n,) or None
        Which rows leave together.

    Returns
    -------
    LeftOut

    Examples
    --------
    >>> from greenfold.solve import cross_entropy, left_out
    >>> cross_entropy.__name__
    'cross_entropy'
    """
    w, atom = solution.w.double(), design.penalty > 0
    problem = penalized_problem(design, Y, solution.alpha.double(), weight)
    (p, c), (Phi, Y, weight, rho) = w.shape, problem
    if max(c - 1, 1) * p <= softmax.LARGEST_HESSIAN and c <= MANY:
        return _together(problem, w, atom, folds)
    u, rank = Phi @ w, 0.0
    P = probabilities(u)
    slope = weight[:, None] * (P - Y)
    for k, H in enumerate(problem.class_blocks(w)):
        chol, curve = definite(H, float(rho.min())), weight * P[:, k] * (1 - P[:, k])
        step, _ = Block.single(chol.half(Phi.mT), curve, slope[:, k, None]).leave(folds)
        u[:, k] += step[:, 0, 0]
        rank += float((1 - rho * chol.inverse().diagonal())[atom].sum())
    return LeftOut(u, rank * max(c - 1, 1) / c)


def _together(problem: Problem, w: Tensor, atom: Tensor, folds: Tensor | None) -> LeftOut:
    (p, c), (Phi, Y, weight, rho) = w.shape, problem
    u = Phi @ w
    P, E = probabilities(u), contrasts(c).to(w)  # (n, c), (c, e)
    e = E.shape[1]
    R = (E.mT - (P @ E)[:, :, None]) * P.sqrt()[:, None, :]  # (n, e, c)
    R = R.norm(dim=2, keepdim=True) if c == 2 else R
    R = (P * (1 - P)).sqrt()[:, :, None] if c == 1 else R
    inverse = definite(problem.hessian(w), float(rho.min())).inverse().reshape(e, p, e, p)
    V = Phi.new_empty(len(Phi), e, e)
    for a in range(e):
        for b in range(a + 1):
            V[:, a, b] = V[:, b, a] = ((Phi @ inverse[a, :, b]) * Phi).sum(1)

    def cov(own: Tensor) -> Tensor:
        both = torch.einsum("ip,apbq,jq->iajb", Phi[own], inverse, Phi[own])
        return both.reshape(e * len(own), -1)

    g = weight[:, None] * (P - Y) @ E  # (n, e)
    step, _ = Block(V, cov, weight.sqrt()[:, None, None] * R, g[:, :, None]).leave(folds)
    kept = torch.einsum("apap->p", inverse) * rho  # of every column, over the contrasts
    return LeftOut(u + step[:, :, 0] @ E.mT, float((e - kept)[atom].sum()))

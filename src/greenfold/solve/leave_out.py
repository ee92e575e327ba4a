"""What logits would be if their own row had not been there, from one converged Newton solve.

Without row i the optimum moves by one Newton step of J − weight_i ℓ_i. With V_i the covariance of the
row's logits and S_i the second derivative of its loss, both on the contrasts of the classes::

    η₋ᵢ = η_i + V_i (I − weight_i S_i V_i)⁻¹ weight_i (p_i − y_i),     V_i = φ_i H⁻¹ φ_iᵀ

For a quadratic loss the step is exact and this is r/(1 − h); for cross-entropy it misses the change of
the other rows' curvature [1]_.

References
----------
.. [1] K. Rad, A. Maleki, "A scalable estimate of the out-of-sample prediction error via approximate
   leave-one-out cross-validation", J. R. Stat. Soc. B 82 (2020), 965–996.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from greenfold.design import Design
from greenfold.solve import softmax
from greenfold.solve.factor import cholesky
from greenfold.solve.newton import penalized_problem
from greenfold.solve.softmax import Problem, contrasts, probabilities
from greenfold.solve.solution import SINGULAR, SolveError

MANY = 12  # classes above which one factor for all of them takes longer than it is worth
SLACK = 1e-9  # kept of I − S V: a row fitted whatever its class is has no leave-one-out logits


class LeaveOneOut(NamedTuple):
    """Logits (n, c) without their own rows, and the degrees of freedom of the atoms."""

    logits: Tensor
    rank: float


def leave_one_out(
    design: Design,
    Y: Tensor,
    w: Tensor,
    alpha: float,
    weight: Tensor | None = None,
    folds: Tensor | None = None,
) -> LeaveOneOut:
    """Leave every row out of the fit w (p, c) that `Logistic` found at absolute strength α.

    A row is left out with its whole weight, and with its fold where `folds` (n,) has them. Above
    (c − 1)·p = 3000 unknowns, or 12 classes, these are treated one by one, which overstates how far their
    logits would move.
    """
    with torch.no_grad():
        strength = torch.as_tensor(alpha, dtype=torch.float64, device=w.device)
        problem = penalized_problem(design, Y, strength, weight)
        atom = design.penalty > 0
        p, c = w.shape
        if max(c - 1, 1) * p <= softmax.LARGEST_HESSIAN and c <= MANY:
            return _together(problem, w.double(), atom, folds)
        return _one_by_one(problem, w.double(), atom, folds)


def ridge_leave_one_out(
    design: Design,
    Y: Tensor,
    alpha: float,
    weight: Tensor | None = None,
    folds: Tensor | None = None,
) -> LeaveOneOut:
    """The same for least squares at absolute strength α, where it is exact: Y − r/(1 − h)."""
    with torch.no_grad():
        root = torch.ones_like(Y[:, 0]) if weight is None else weight.sqrt()
        Phi = root[:, None] * design.Phi
        inverse = _inverse(Phi.mT @ Phi + (alpha * design.penalty).diag(), alpha * design.penalty)
        H = Phi @ inverse
        leverage = (H * Phi).sum(1).clamp_max(1 - 1e-8)
        u = design.Phi @ (H.mT @ (root[:, None] * Y))
        rank = Y.shape[1] * float(leverage.sum() - (design.penalty == 0).sum())
        left = (Y - u) / (1 - leverage)[:, None]
        for own in _members(folds):
            A = (1 + SLACK) * torch.eye(len(own)).to(H) - H[own] @ Phi[own].mT
            left[own] = torch.linalg.solve(A, root[own, None] * (Y - u)[own]) / root[own, None]
        return LeaveOneOut(Y - left, rank)


def _members(folds: Tensor | None) -> list[Tensor]:
    """The rows of every fold; of none where each row is left out alone."""
    return [] if folds is None else [(folds == k).nonzero()[:, 0] for k in folds.unique()]


def _together(
    problem: Problem, w: Tensor, atom: Tensor, folds: Tensor | None = None
) -> LeaveOneOut:
    Phi, Y, weight, rho = problem
    u = Phi @ w
    P, p = probabilities(u), len(w)
    E = contrasts(w.shape[1]).to(P)  # (c, e)
    e = E.shape[1]
    inverse = _inverse(problem.hessian(w), rho)  # (e p, e p)
    V = Phi.new_empty(len(Phi), e, e)
    for a in range(e):
        for b in range(a + 1):
            block = inverse[a * p : (a + 1) * p, b * p : (b + 1) * p]
            V[:, a, b] = V[:, b, a] = ((Phi @ block) * Phi).sum(1)
    if w.shape[1] == 1:
        S = (P * (1 - P))[:, :, None]
    else:
        S = torch.einsum("nk,ka,kb->nab", P, E, E) - (P @ E)[:, :, None] * (P @ E)[:, None, :]
    g = weight[:, None] * (P - Y) @ E  # (n, e)
    eye = (1 + SLACK) * torch.eye(e).to(P)
    A = eye - weight[:, None, None] * S @ V  # (n, e, e)
    step = V @ torch.linalg.solve_ex(A, g[:, :, None])[0]
    for own in _members(folds):
        # rows of a fold move each other: V is (m e, m e) over all of them
        J = torch.kron(torch.eye(e).to(P), Phi[own])  # (e m, e p), contrast by contrast
        cov, m = J @ inverse @ J.mT, len(own)
        curve = torch.zeros(e, m, e, m).to(P)
        curve[:, range(m), :, range(m)] = weight[own, None, None] * S[own]
        system = (1 + SLACK) * torch.eye(e * m).to(P) - curve.reshape(e * m, e * m) @ cov
        moved = cov @ torch.linalg.solve_ex(system, g[own].mT.reshape(-1, 1))[0]
        step[own] = moved.reshape(e, m).mT[:, :, None]
    rank = e * int(atom.sum()) - float((inverse.diagonal() * (rho * atom).repeat(e)).sum())
    return LeaveOneOut(u + step[:, :, 0] @ E.mT, rank)


def _one_by_one(
    problem: Problem, w: Tensor, atom: Tensor, folds: Tensor | None = None
) -> LeaveOneOut:
    Phi, Y, weight, rho = problem
    u = Phi @ w
    P, rank = probabilities(u), 0.0
    logits = u.clone()
    for k, H in enumerate(problem.class_blocks(w)):
        inverse = _inverse(H, rho)
        V = ((Phi @ inverse) * Phi).sum(1)  # (n,)
        g, curve = weight * (P[:, k] - Y[:, k]), weight * P[:, k] * (1 - P[:, k])  # (n,)
        step = V * g / (1 - curve * V).clamp_min(SLACK)
        for own in _members(folds):
            cov = Phi[own] @ inverse @ Phi[own].mT
            system = (1 + SLACK) * torch.eye(len(own)).to(P) - curve[own, None] * cov
            step[own] = cov @ torch.linalg.solve_ex(system, g[own, None])[0][:, 0]
        logits[:, k] += step
        rank += float((1 - rho * inverse.diagonal())[atom].sum())
    return LeaveOneOut(logits, rank * max(w.shape[1] - 1, 1) / w.shape[1])


def _inverse(H: Tensor, rho: Tensor) -> Tensor:
    chol = cholesky(H)
    if chol is None:
        raise SolveError(SINGULAR.format(p=len(H), alpha=float(rho.min()), jitter=0.0))
    return torch.cholesky_inverse(chol.L) / chol.d / chol.d[:, None]

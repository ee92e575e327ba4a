"""Weighted rows with the null-space columns projected out: plain ridge regression is what remains.

    √W Φ = [Φ_a, N],   P = N N⁺
    min_{w, b} ‖√W Y − Φ_a w − N b‖² + α Σ c_r w_r²
        = min_v ‖(I − P)√W Y − Φ̃ v‖² + α ‖v‖²,     Φ̃ = (I − P) Φ_a C^{−1/2},   v = C^{1/2} w

Null-space columns are therefore never penalized, at any α, and enter the degrees of freedom as rank N.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from greenfold.design import Design
from greenfold.solve.factor import EPS, Factor
from greenfold.solve.implicit import Implicit, Unexplained
from greenfold.solve.solution import check


class Projected(NamedTuple):
    """A ridge problem in float64; see the module docstring."""

    Phi: Tensor  # (n, m)  Φ̃
    Y: Tensor  # (n, c)  (I − P)√W Y
    atoms: Tensor  # (n, m)  Φ_a C^{−1/2}, before the projection
    target: Tensor  # (n, c)  √W Y
    null: Tensor  # (n, q)  N
    pinv: Tensor  # (q, n)  N⁺, constant
    q: int  # rank of N
    n: float  # Σ weight: a weight counts repetitions of its row
    order: Tensor  # (p,)  where each column of Φ went in [Φ_a, N]
    root: Tensor  # (m,)  √c_r on the atoms

    def scale(self) -> Tensor:
        """tr(Φ_aᵀ W Φ_a C⁻¹)/m, the unit of a relative ridge strength."""
        return self.atoms.square().sum() / max(self.atoms.shape[1], 1)

    def least(self) -> Tensor:
        """(c,) the sum of squares that rounding leaves of the targets; sums below it mean nothing."""
        return (EPS * self.target.detach().norm(dim=0)).square() + torch.finfo(torch.float64).tiny

    def assemble(self, v: Tensor) -> Tensor:
        """Strengths of all columns (p, c), in the order of Φ, from v (m, c)."""
        b = fit(self.null, self.pinv, self.target - self.atoms @ v)  # (q, c)
        return torch.cat([v / self.root[:, None], b])[self.order]


def project(design: Design, Y: Tensor, weight: Tensor | None = None) -> Projected:
    """Check the arguments, weight the rows, set the null-space columns apart. Weights are constants."""
    check(design, Y, weight)
    Phi, Y = design.Phi.double(), Y.double()
    penalty = design.penalty.detach().double()
    n = float(len(Phi))
    if weight is not None:
        n = float(weight.double().sum())
        root_weight = weight.detach().double().sqrt()[:, None]  # (n, 1)
        Phi, Y = Phi * root_weight, Y * root_weight
    is_atom = penalty > 0
    root = penalty[is_atom].sqrt()  # (m,)
    m = len(root)
    if bool(is_atom[:m].all()):  # as `Design.stack` puts them: views are cheaper than gathers
        order = torch.arange(len(penalty), device=penalty.device)
        atoms, null = Phi.split([m, len(penalty) - m], 1)
    else:
        order = torch.cat([is_atom.nonzero()[:, 0], (~is_atom).nonzero()[:, 0]]).argsort()
        atoms, null = Phi[:, is_atom], Phi[:, ~is_atom]
    atoms = atoms / root
    pinv, q = _pinv(null.detach())
    if q == 0:
        return Projected(atoms, Y, atoms, Y, null, pinv, 0, n, order, root)
    Phi = Unexplained.apply(atoms, null, pinv)
    # An atom inside the span of N leaves rounding, which equilibration would blow up: make it zero.
    left, whole = (M.detach().square().sum(0) for M in (Phi, atoms))
    dead = left <= (EPS * max(Phi.shape)) ** 2 * whole
    if bool(dead.any()):
        Phi = Phi - Phi.detach() * dead
    rest = Unexplained.apply(Y, null, pinv)
    return Projected(Phi, rest, *(atoms, Y, null, pinv, q, n, order, root))


def _pinv(N: Tensor) -> tuple[Tensor, int]:
    """N⁺ (q, n) and the rank of N, after scaling its columns to unit norm."""
    d = N.norm(dim=0)
    if N.shape[1] == 1 and float(d) > 0:
        return N.mT / d**2, 1
    d = torch.where(d > 0, d, torch.ones_like(d))
    U, S, Vt = torch.linalg.svd(N / d, full_matrices=False)
    k = int((EPS * max(N.shape) * S.amax() < S).sum()) if len(S) else 0
    return (Vt[:k].mT / S[:k]) @ U[:, :k].mT / d[:, None], k


def fit(N: Tensor, pinv: Tensor, M: Tensor) -> Tensor:
    """Least squares b = N⁺ M, shape (q, ·), differentiable in N and M at constant rank."""
    with torch.no_grad():
        b = pinv @ M
        b = b + pinv @ (M - N @ b)  # one refinement: the projection is orthogonal to rounding
    return Implicit.apply(b, N.mT @ (N @ b - M), lambda g: pinv @ (pinv.mT @ g))


def ridge(Phi: Tensor, Y: Tensor, alpha: Tensor, factor: Factor) -> Tensor:
    """v = (Φ̃ᵀΦ̃ + αI)⁻¹ Φ̃ᵀY, shape (m, c), differentiable in Φ̃, Y and α."""
    with torch.no_grad():
        v = factor.weights(Y)
    return Implicit.apply(v, Phi.mT @ (Phi @ v - Y) + alpha * v, factor.solve)

"""Weighted rows with the null-space columns projected out: plain ridge regression is what remains.

    √W Φ = [Φ_a, N],   P = N N⁺
    min_{w, b} ‖√W Y − Φ_a w − N b‖² + α Σ c_r w_r²
        = min_v ‖(I − P)√W Y − Φ̃ v‖² + α ‖v‖²,     Φ̃ = (I − P) Φ_a C^{−1/2},   v = C^{1/2} w

Null-space columns are therefore never penalized, at any α, and enter the degrees of freedom as rank N.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from greenfold.design import Design
from greenfold.solve.factor import EPS, Factor
from greenfold.solve.implicit import Implicit, Unexplained
from greenfold.solve.solution import check


@dataclass(frozen=True)
class Columns:
    """Which columns of a design are atoms, how they and the rows are scaled."""

    m: int  # atoms
    atom: Tensor | None  # (m,)  where they are, if not in front
    null: Tensor | None  # (q,)  and where the others are
    root: Tensor | None  # (m,)  √c_r, if not 1
    root_weight: Tensor | None  # (n, 1)  √weight

    @staticmethod
    def of(penalty: Tensor, weight: Tensor | None) -> "Columns":
        positive = penalty > 0
        m = int(positive.sum())
        atom = null = None
        if bool(positive[:m].all()):  # as `Design.stack` puts them: views are cheaper than gathers
            own = penalty[:m]
        else:
            atom, null = positive.nonzero()[:, 0], (~positive).nonzero()[:, 0]
            own = penalty[atom]
        root = None if bool((own == 1).all()) else own.detach().double().sqrt()
        return Columns(
            m,
            atom,
            null,
            root,
            None if weight is None else weight.detach().double().sqrt()[:, None],
        )

    def weighted(self, M: Tensor) -> Tensor:
        return M if self.root_weight is None else M * self.root_weight

    def split(self, Phi: Tensor) -> tuple[Tensor, Tensor]:
        """Φ_a C^{−1/2} and N, of rows that are weighted."""
        if self.atom is None:
            atoms, null = Phi[:, : self.m], Phi[:, self.m :]
        else:
            atoms, null = Phi[:, self.atom], Phi[:, self.null]
        return atoms if self.root is None else atoms / self.root, null

    def joined(self, atoms: Tensor, null: Tensor) -> Tensor:
        """The adjoint of weighing and splitting, (n, p)."""
        both = torch.cat([atoms if self.root is None else atoms / self.root, null], 1)
        return self.weighted(self.ordered(both.mT).mT)

    def ordered(self, rows: Tensor) -> Tensor:
        """Rows (p, ·) of the atoms, then of the others, in the order of Φ's columns."""
        if self.atom is None or self.null is None:
            return rows
        return rows[torch.cat([self.atom, self.null]).argsort()]


@dataclass(frozen=True)
class Projected:
    """A ridge problem in float64; see the module docstring."""

    Phi: Tensor  # (n, m)  Φ̃
    Y: Tensor  # (n, c)  (I − P)√W Y
    given: tuple[Tensor, Tensor]  # Φ (n, p) and Y (n, c) in float64
    columns: Columns
    pinv: Tensor  # (q, n)  N⁺, constant
    q: int  # rank of N
    n: float  # Σ weight: a weight counts repetitions of its row

    @cached_property
    def target(self) -> Tensor:
        """√W Y (n, c)."""
        return self.columns.weighted(self.given[1])

    @cached_property
    def parts(self) -> tuple[Tensor, Tensor]:
        """Φ_a C^{−1/2} (n, m) before the projection, and N (n, q)."""
        return self.columns.split(self.columns.weighted(self.given[0]))

    @property
    def null(self) -> Tensor:
        return self.parts[1]

    def scale(self) -> Tensor:
        """tr(Φ_aᵀ W Φ_a C⁻¹)/m, the unit of a relative ridge strength."""
        return self.parts[0].square().sum() / max(self.columns.m, 1)

    def least(self) -> Tensor:
        """(c,) the sum of squares that rounding leaves of the targets; sums below it mean nothing."""
        return (EPS * self.target.detach().norm(dim=0)).square() + torch.finfo(torch.float64).tiny

    def assemble(self, v: Tensor) -> Tensor:
        """Strengths of all columns (p, c), in the order of Φ, from v (m, c)."""
        atoms, null = self.parts
        b = fit(null, self.pinv, self.target - atoms @ v)  # (q, c)
        w = v if self.columns.root is None else v / self.columns.root[:, None]
        return self.columns.ordered(torch.cat([w, b]))


def project(design: Design, Y: Tensor, weight: Tensor | None = None) -> Projected:
    """Check the arguments, weight the rows, set the null-space columns apart. Weights are constants."""
    check(design, Y, weight)
    given = Phi, Y = design.Phi.double(), Y.double()
    columns = Columns.of(design.penalty, weight)
    n = float(len(Phi)) if weight is None else float(weight.double().sum())
    pinv, q = _pinv(columns.split(columns.weighted(Phi.detach()))[1])
    if q == 0:
        atoms, _ = columns.split(columns.weighted(Phi))
        return Projected(atoms, columns.weighted(Y), given, columns, pinv, 0, n)
    left, rest, whole = Unexplained.apply(Phi, Y, columns, pinv)
    # An atom inside the span of N leaves rounding, which equilibration would blow up: make it zero.
    dead = left.detach().square().sum(0) <= (EPS * max(left.shape)) ** 2 * whole
    if bool(dead.any()):
        left = left - left.detach() * dead
    return Projected(left, rest, given, columns, pinv, q, n)


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

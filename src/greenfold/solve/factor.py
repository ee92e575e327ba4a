"""Factors of the penalized system A = ΦᵀΦ + αI, from the cheapest to the most careful.

    α ≥ 1e-10 tr(ΦᵀΦ)/m     Cholesky of A (m, m), or of ΦΦᵀ + αI (n, n) when there are fewer rows
    below                   QR of [Φ; √α I], columns scaled to unit norm
    Φ numerically singular  SVD of Φ; with α = 0 the minimum-norm solution

The error in predictions is about 5e-17/α_rel for Cholesky and 1e-17/√α_rel for QR, as
measured on ill-conditioned columns, which is where the thresholds come from.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from greenfold.design import all_finite
from greenfold.solve.solution import (
    NOT_DIFFERENTIABLE,
    NOT_POSITIVE,
    OVERFLOW,
    SINGULAR,
    SolveError,
)

SMALLEST_FOR_CHOLESKY = 1e-10  # relative ridge below which the Gram matrix has lost too many digits
JITTERS = (0.0, 1e-14, 1e-13, 1e-12)
LARGEST_CONDITION = 1e14
SAFE_PIVOT = 1e-9
EPS = torch.finfo(torch.float64).eps


class Cholesky(NamedTuple):
    """A = D L Lᵀ D for a symmetric positive definite A, D chosen so that L Lᵀ has unit diagonal."""

    L: Tensor  # (p, p)
    d: Tensor  # (p,)
    jitter: float  # added to the unit diagonal
    B: Tensor  # (p, p)  L Lᵀ, before the jitter

    @property
    def condition(self) -> float:
        """Of L Lᵀ, 2-norm, estimated."""
        return _condition(self.B, self.L)

    def solve(self, B: Tensor) -> Tensor:
        """A⁻¹ B for B of shape (p, c)."""
        return torch.cholesky_solve(B / self.d[:, None], self.L) / self.d[:, None]

    def half(self, B: Tensor) -> Tensor:
        """X with Xᵀ X = Bᵀ A⁻¹ B."""
        return torch.linalg.solve_triangular(self.L, B / self.d[:, None], upper=False)

    def inverse(self) -> Tensor:
        return torch.cholesky_inverse(self.L) / self.d / self.d[:, None]

    def logdet(self) -> Tensor:
        return 2 * (self.L.diagonal().log().sum() + self.d.log().sum())


def cholesky(A: Tensor) -> Cholesky | None:
    """Factor A (p, p) after scaling it to unit diagonal; None when no small jitter is enough.

    Scaling to unit diagonal is within a factor p of the best diagonal scaling [1]_. A zero on the
    diagonal belongs to an exactly zero column: its equation becomes 1·w = 0.

    References
    ----------
    .. [1] A. van der Sluis, "Condition numbers and equilibration of matrices", Numer. Math. 14
       (1969), 14–23.
    """
    d = A.diagonal().sqrt()
    d = d.masked_fill(~(d > 0), 1)
    B = (A / d).div_(d[:, None])
    B.diagonal().fill_(1)
    if not all_finite(B):
        return None
    for jitter in JITTERS:
        shifted = B + jitter * torch.eye(len(d)).to(B) if jitter else B
        L, failed = torch.linalg.cholesky_ex(shifted)
        # The least pivot is close to the least eigenvalue in practice: far from trouble it will do.
        if not failed and (
            float(L.diagonal().amin()) ** 2 > SAFE_PIVOT or _condition(B, L) < LARGEST_CONDITION
        ):
            return Cholesky(L, d, jitter, B)
    return None


def definite(A: Tensor, alpha: float) -> Cholesky:
    """The factor of A (p, p), which belongs to strength α."""
    chol = cholesky(A)
    if chol is None:
        raise SolveError(SINGULAR.format(p=len(A), alpha=alpha, jitter=JITTERS[-1]))
    return chol


def jittered(A: Tensor, what: str, start: float = 0.0) -> Tensor:
    """L (p, p) with L Lᵀ = A + jitter·mean diagonal, the least jitter that does, from `start` up."""
    eye = torch.eye(len(A)).to(A)
    unit = A.diagonal().mean()
    for jitter in (start, *(10.0**k for k in range(-15, 3) if 10.0**k > start)):
        L, failed = torch.linalg.cholesky_ex(A + jitter * unit * eye)
        if not int(failed) and bool(L.detach().isfinite().all()):
            return L
    largest = float(A.detach().abs().max())
    raise SolveError(NOT_POSITIVE.format(what=what, n=len(A), largest=largest))


def _condition(B: Tensor, L: Tensor, steps: int = 12) -> float:
    """λ_max/λ_min of B = L Lᵀ by power iteration both ways: from below, usually within 10 %."""
    p = len(B)
    if p == 0:
        return 1.0
    start = torch.cos(torch.arange(1, p + 1).to(B)[:, None] * torch.tensor([1.0, 2.3, 5.9]).to(B))
    x, y = start, start
    for _ in range(steps):
        x = B @ (x / x.norm(dim=0))
        y = torch.cholesky_solve(y / y.norm(dim=0), L)
    return float(x.norm(dim=0).max() * y.norm(dim=0).max())


@dataclass(frozen=True)
class _OfCholesky:
    Phi: Tensor
    chol: Cholesky
    rank: int
    route = "cholesky"

    @property
    def jitter(self) -> float:
        return self.chol.jitter

    @property
    def condition(self) -> float:
        return self.chol.condition


@dataclass(frozen=True)
class Primal(_OfCholesky):
    """Cholesky of A (m, m)."""

    def solve(self, B: Tensor) -> Tensor:
        """A⁻¹ B for B of shape (m, c)."""
        return self.chol.solve(B)

    def weights(self, Y: Tensor) -> Tensor:
        """w = A⁻¹ ΦᵀY, shape (m, c)."""
        return self.solve(self.Phi.mT @ Y)

    def hat(self) -> Tensor:
        """H = ΦA⁻¹, shape (n, m)."""
        return self.solve(self.Phi.mT).mT

    def logdet(self) -> Tensor:
        """log|A|."""
        return self.chol.logdet()


@dataclass(frozen=True)
class Dual(_OfCholesky):
    """Cholesky of K = ΦΦᵀ + αI (n, n), for fewer rows than columns: ΦA⁻¹ = K⁻¹Φ."""

    alpha: float

    def solve(self, B: Tensor) -> Tensor:
        return (B - self.Phi.mT @ self.chol.solve(self.Phi @ B)) / self.alpha

    def weights(self, Y: Tensor) -> Tensor:
        return self.Phi.mT @ self.chol.solve(Y)

    def hat(self) -> Tensor:
        return self.chol.solve(self.Phi)

    def logdet(self) -> Tensor:
        n, m = self.Phi.shape
        return self.chol.logdet() + (m - n) * math.log(self.alpha)


class QR(NamedTuple):
    """[Φ; √α I] = Q R D, so that A = D Rᵀ R D without ever forming ΦᵀΦ."""

    Q: Tensor  # (n, m)  the rows that face Φ
    R: Tensor  # (m, m)  upper triangular
    d: Tensor  # (m,)
    condition: float
    rank: int
    route: str = "qr"
    jitter: float = 0.0

    def solve(self, B: Tensor) -> Tensor:
        return torch.cholesky_solve(B / self.d[:, None], self.R, upper=True) / self.d[:, None]

    def weights(self, Y: Tensor) -> Tensor:
        z = torch.linalg.solve_triangular(self.R, self.Q.mT @ Y, upper=True)
        return z / self.d[:, None]

    def hat(self) -> Tensor:
        return torch.linalg.solve_triangular(self.R, self.Q.mT, upper=True).mT / self.d

    def logdet(self) -> Tensor:
        return 2 * (self.R.diagonal().abs().log().sum() + self.d.log().sum())


class SVD(NamedTuple):
    """Φ = U S Vᵀ, good for every α at once; singular values that are rounding are removed."""

    U: Tensor  # (n, k)
    S: Tensor  # (k,)
    V: Tensor  # (m, k)
    alpha: float
    route: str = "svd"
    jitter: float = 0.0

    @property
    def rank(self) -> int:
        return len(self.S)

    @property
    def condition(self) -> float:
        if self.rank == 0:
            return 1.0
        low = self.S[-1].square() if self.rank == len(self.V) else 0.0
        return float((self.S[0].square() + self.alpha) / (low + self.alpha))

    def solve(self, B: Tensor) -> Tensor:
        m, k = self.V.shape
        if self.alpha == 0 and k < m:
            raise SolveError(NOT_DIFFERENTIABLE.format(rank=k, p=m))
        b = self.V.mT @ B  # (k, c)
        inside = self.V @ (b / (self.S.square() + self.alpha)[:, None])
        return inside if k == m else inside + (B - self.V @ b) / self.alpha

    def _filter(self) -> Tensor:
        return self.S / (self.S.square() + self.alpha)  # (k,)

    def weights(self, Y: Tensor) -> Tensor:
        return self.V @ (self._filter()[:, None] * (self.U.mT @ Y))

    def hat(self) -> Tensor:
        return self.U * self._filter() @ self.V.mT

    def logdet(self) -> Tensor:
        m, k = self.V.shape
        rest = (m - k) * math.log(self.alpha) if k < m else 0.0
        return (self.S.square() + self.alpha).log().sum() + rest


Factor = Primal | Dual | QR | SVD


def factorize(Phi: Tensor, alpha: float) -> Factor:
    """The cheapest factor of ΦᵀΦ + αI that keeps enough digits; Phi (n, m) float64, detached."""
    n, m = Phi.shape
    wide = n < m
    A = Phi @ Phi.mT if wide else Phi.mT @ Phi
    square = Phi.square().sum(0) if wide else A.diagonal().clone()  # (m,)
    total = float(square.sum())
    if not (math.isfinite(alpha) and math.isfinite(total)):
        raise SolveError(OVERFLOW.format(what="the squared norm of Φ or `alpha`", alpha=alpha))
    if alpha > 0 and alpha >= SMALLEST_FOR_CHOLESKY * total / max(m, 1):
        A.diagonal().add_(alpha)
        chol = cholesky(A)
        if chol is not None:
            rank = min(n, int((square > 0).sum()))
            return Dual(Phi, chol, rank, alpha) if wide else Primal(Phi, chol, rank)
    if n >= m:
        qr = _qr(Phi, square, alpha)
        if qr is not None:
            return qr
    return svd(Phi, alpha)


def _qr(Phi: Tensor, square: Tensor, alpha: float) -> QR | None:
    n, m = Phi.shape
    d = (square + alpha).sqrt()
    if m == 0 or not bool((d > 0).all()):
        return None
    rows = torch.cat([Phi / d, (math.sqrt(alpha) / d).diag()]) if alpha > 0 else Phi / d
    Q, R = torch.linalg.qr(rows)  # (n + m, m), (m, m)
    S = torch.linalg.svdvals(R)
    if float(S[-1]) <= EPS * max(n, m) * float(S[0]):
        return None
    return QR(Q[:n], R, d, float(S[0] / S[-1]) ** 2, m)


def svd(Phi: Tensor, alpha: float = 0.0) -> SVD:
    """The singular values above max(n, m) ε of the largest, and their vectors."""
    try:
        U, S, Vt = torch.linalg.svd(Phi, full_matrices=False)
    except RuntimeError as error:
        raise SolveError(OVERFLOW.format(what="the SVD of Φ", alpha=alpha)) from error
    largest = float(S[0]) if len(S) else 0.0
    k = int((EPS * max(Phi.shape) * largest < S).sum())
    return SVD(U[:, :k], S[:k], Vt[:k].mT, alpha)

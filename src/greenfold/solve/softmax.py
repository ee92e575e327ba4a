"""Penalized cross-entropy, its derivatives, and solves with its Hessian.

    J(w) = Σ_n weight_n ℓ(Φ_n w, Y_n) + ½ Σ_p ρ_p ‖w_p‖²,   ρ = α c on atoms

ℓ is the cross-entropy of softmax logits, one column of w for each of c ≥ 2 classes (the symmetric
parametrization), or of a single logit for the probability of Y = 1 when c = 1.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from greenfold.solve.factor import JITTERS, definite
from greenfold.solve.solution import SINGULAR, SolveError

LARGEST_HESSIAN = 3000  # c·p above which Newton's equations are solved by conjugate gradients
# c·p above which the same pays for more than three classes, whose blocks are c²/2
MANY_CLASSES = 600


class Problem(NamedTuple):
    """Everything J depends on, float64."""

    Phi: Tensor  # (n, p)
    Y: Tensor  # (n, c)  probabilities of the classes, or of Y = 1 when c = 1
    weight: Tensor  # (n,)
    rho: Tensor  # (p,)  ridge on every column

    def value(self, w: Tensor) -> Tensor:
        """J(w)."""
        u = self.Phi @ w  # (n, c)
        log_z = softplus(u) if u.shape[1] == 1 else u.logsumexp(1, keepdim=True)
        loss = log_z.sum(1) - (self.Y * u).sum(1)  # (n,)
        return self.weight @ loss + 0.5 * (self.rho @ w.square()).sum()

    def gradient(self, w: Tensor) -> Tensor:
        """∂J/∂w = Φᵀ W (P − Y) + ρ w, shape (p, c)."""
        error = self.weight[:, None] * (probabilities(self.Phi @ w) - self.Y)  # (n, c)
        return self.Phi.mT @ error + self.rho[:, None] * w

    def block(self, curvature: Tensor) -> Tensor:
        """Φᵀ W diag(s) Φ, shape (p, p), for a second derivative s (n,) of the loss in the logits."""
        return self.Phi.mT @ ((self.weight * curvature)[:, None] * self.Phi)

    def hessian(self, w: Tensor) -> Tensor:
        """∂²J/∂w² along the contrasts E of the classes, shape (e p, e p), contrast by contrast.

        The second derivative of the loss in the logits is S_n = Eᵀ(diag P_n − P_n P_nᵀ)E.
        """
        P = probabilities(self.Phi @ w)  # (n, c)
        E = contrasts(P.shape[1]).to(P)  # (c, e)
        PE = P @ E  # (n, e)
        R, blocks = self.rho.diag(), {}
        for a in range(E.shape[1]):
            for b in range(a + 1):
                S = P @ (E[:, a] * E[:, b]) - PE[:, a] * PE[:, b]  # (n,)
                blocks[a, b] = self.block(S) + R if a == b else self.block(S)
        e = range(E.shape[1])
        return torch.cat([torch.cat([blocks[max(a, b), min(a, b)] for b in e], 1) for a in e])

    def class_blocks(self, w: Tensor) -> list[Tensor]:
        """The (p, p) diagonal blocks of ∂²J/∂w², one for each class."""
        P = probabilities(self.Phi @ w)
        return [self.block(s) + self.rho.diag() for s in (P * (1 - P)).unbind(1)]


def contrasts(c: int) -> Tensor:
    """Orthonormal E (c, c − 1) with columns that sum to zero; 1 for a single logit.

    Equal logits for all classes change no probability, so along 1 only the ridge acts and w* has no part
    there, whatever Φ is. Working on the contrasts keeps that direction from spoiling the condition.
    """
    if c == 1:
        return torch.ones(1, 1)
    E = torch.ones(c, c - 1, dtype=torch.float64).triu()
    E[1:].diagonal().copy_(-torch.arange(1, c))
    return E / E.norm(dim=0)


def centered(w: Tensor) -> Tensor:
    """w (p, c) without the part that is equal for all classes."""
    return w - w.mean(1, keepdim=True) if w.shape[1] > 1 else w


def probabilities(u: Tensor) -> Tensor:
    """Class probabilities of logits u (n, c)."""
    return u.sigmoid() if u.shape[1] == 1 else u.softmax(1)


def mean_curvature(P: Tensor) -> Tensor:
    """(n,) of the loss in the logits, over the contrasts of the classes; for two they have only one."""
    return (P * (1 - P)).sum(1) / max(P.shape[1] - 1, 1)


Solve = Callable[[Tensor], Tensor]  # (p, c) → (p, c)


class Inverse(NamedTuple):
    """H⁻¹ on the contrasts of the classes, at some w."""

    solve: Solve
    condition: float
    jitter: float
    route: str


def inverse(problem: Problem, w: Tensor, tol: float = 1e-12) -> Inverse:
    """Solve with the Hessian at w: Cholesky of all of it when small, else conjugate gradients."""
    most = LARGEST_HESSIAN if w.shape[1] <= 3 else min(LARGEST_HESSIAN, MANY_CLASSES)
    return _direct(problem, w) if w.numel() <= most else _iterative(problem, w, tol)


def _direct(problem: Problem, w: Tensor) -> Inverse:
    chol = definite(problem.hessian(w), float(problem.rho.min()))
    E = contrasts(w.shape[1]).to(w)  # (c, e)

    def solve(B: Tensor) -> Tensor:
        z = chol.solve((B @ E).mT.reshape(-1, 1)).reshape(-1, len(B)).mT  # (p, e)
        return z @ E.mT

    return Inverse(solve, chol.condition, chol.jitter, "newton")


def _iterative(problem: Problem, w: Tensor, tol: float) -> Inverse:
    """Conjugate gradients on the contrasts, preconditioned by one block that all classes share.

    It has their mean curvature in every row. Where the classes differ too much for it, at weak penalties,
    their own blocks take over, after about as many steps as these take to build.
    """
    Phi, _, weight, rho = problem
    P = probabilities(Phi @ w)  # (n, c)
    c, p = P.shape[1], len(rho)
    shared = definite(problem.block(mean_curvature(P)) + rho.diag(), float(rho.min()))

    @cache
    def factors() -> tuple[Tensor, Tensor]:
        """Of the classes' own blocks at unit diagonal (c, p, p), and the roots of that (p, c)."""
        H = torch.stack(problem.class_blocks(w))
        d = H.diagonal(dim1=1, dim2=2).sqrt()  # (c, p)
        H = H / d[:, :, None] / d[:, None, :]
        H.diagonal(dim1=1, dim2=2).fill_(1 + JITTERS[-1])
        L, failed = torch.linalg.cholesky_ex(H)
        if bool(failed.any()):
            raise SolveError(SINGULAR.format(p=p, alpha=float(rho.min()), jitter=JITTERS[-1]))
        return L, d.mT

    def apart(B: Tensor) -> Tensor:
        L, d = factors()
        return torch.cholesky_solve((B / d).mT[:, :, None], L)[:, :, 0].mT / d

    def product(V: Tensor) -> Tensor:
        u = P * (Phi @ V)  # (n, c)
        du = u - P * (u.sum(1, keepdim=True) if c > 1 else u)
        return Phi.mT @ (weight[:, None] * du) + rho[:, None] * V

    def solve(B: Tensor) -> Tensor:
        B = centered(B)
        x, near = _conjugate(product, shared.solve, B, torch.zeros_like(B), tol, p)
        return x if near else _conjugate(product, apart, B, x, tol, 10 * p)[0]

    return Inverse(solve, shared.condition, shared.jitter, "newton-cg")


def _conjugate(
    product: Solve, precondition: Solve, B: Tensor, x: Tensor, tol: float, steps: int
) -> tuple[Tensor, bool]:
    """Conjugate gradients for H x = B from x on the contrasts, and whether they are done: ‖r‖ ≤ tol ‖B‖
    in the norm of the preconditioner."""
    stop = tol**2 * float((B * centered(precondition(B))).sum())
    r = B - product(x)
    d, before = torch.zeros_like(r), torch.inf
    for _ in range(steps):
        z = centered(precondition(r))
        rz = float((r * z).sum())
        if rz <= stop:
            return x, True
        d = z + rz / before * d
        Hd = product(d)
        step = rz / (d * Hd).sum()
        x, r, before = x + step * d, r - step * Hd, rz
    return x, False

"""How sure a fitted source is: predictive variances and leave-one-out residuals."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from greenfold.design import Design
from greenfold.model import IGL
from greenfold.solve import Solution, Statistics
from greenfold.solve.factor import jittered

Array = NDArray[np.float64]
RESOLVED = 1 - 1e-8  # leverages above differ from 1 by no more than rounding makes of them


@dataclass(frozen=True)
class Posterior:
    """The Bayesian linear model behind the source: how sure its predictions are.

    A new row φ has variance σ²(1 + φA⁻¹φᵀ + (k(x,x) − |φ|²)/α): noise, uncertain weights, and what
    anchors cannot express of a field with prior covariance σ²/α·k (under the energy norm only).
    """

    factor: Tensor  # Cholesky factor of A = ΦᵀΦ + αC
    noise: Tensor  # (c,) σ²
    alpha: float
    prior: float  # k(x, x)
    n_atoms: int
    loo_errors: Array  # (n, c) absolute leave-one-out residuals
    loo_r2: float
    rank: float  # degrees of freedom of the atoms

    @staticmethod
    def of(
        model: IGL,
        x: Tensor,
        Y: Tensor,
        solution: Solution,
        weight: Tensor | None,
        design: Design | None = None,
    ) -> "Posterior":
        """`design` is the model's at x, if it is known already."""
        design = model.design(x) if design is None else design
        w = torch.ones(len(x), dtype=torch.float64) if weight is None else weight
        alpha = float(solution.alpha)
        Phi = design.Phi * w.sqrt()[:, None]
        A = Phi.T @ Phi + torch.diag(alpha * design.penalty)
        F = jittered(A, "the posterior of the source")
        leverage = _leverage(F, Phi)
        residual = Y - design.Phi @ solution.w
        energy = alpha * (design.penalty[:, None] * solution.w.square()).sum(0)
        n, q = float(w.sum()), int((design.penalty == 0).sum())
        noise = ((w[:, None] * residual.square()).sum(0) + energy) / max(n - q, 1.0)
        loo = residual / (1 - leverage)[:, None]
        if bool((leverage >= RESOLVED).any()):
            # A fit through its rows: r and 1 − h are rounding errors, and a little more noise is not.
            scale = float(Phi.square().sum()) / max(int(design.penalty.sum()), 1)
            F_up = jittered(A + torch.diag(1e-7 * scale * design.penalty), "leaving rows out")
            u = design.Phi @ torch.cholesky_solve(Phi.T @ (w.sqrt()[:, None] * Y), F_up)
            loo = (Y - u) / (1 - _leverage(F_up, Phi))[:, None]
        total = (w[:, None] * (Y - (w[:, None] * Y).sum(0) / n).square()).sum()
        r2 = 1 - float((w[:, None] * loo.square()).sum() / total) if float(total) > 0 else 1.0
        return Posterior(
            factor=F,
            noise=noise,
            alpha=alpha,
            prior=float(model.unit()) if model.energy else 0.0,
            n_atoms=int(design.penalty.sum()),
            loo_errors=loo.abs().numpy(),
            loo_r2=r2,
            rank=float(leverage.sum()) - q,
        )

    @staticmethod
    def from_sums(
        model: IGL,
        sums: Statistics,
        solution: Solution,
        x: Tensor,
        Y: Tensor,
        errors: Array | None = None,
    ) -> "Posterior":
        """From sums over all rows; leave-one-out residuals of those at hand, after earlier `errors`."""
        alpha, penalty = float(solution.alpha), sums.penalty.double()
        F = jittered(sums.gram + torch.diag(alpha * penalty), "the posterior of the source")
        design = model.design(x)
        leverage = _leverage(F, design.Phi)
        loo = ((Y - design.Phi @ solution.w) / (1 - leverage)[:, None]).abs().numpy()
        loo = loo if errors is None else np.concatenate([errors, loo])
        q = int((penalty == 0).sum())
        left = sums.square.diagonal() - (solution.w * sums.cross).sum(0)  # residual and energy
        mean = sums.cross[-1] / sums.n  # the last column is constant
        total = float((sums.square.diagonal() / sums.n - mean.square()).sum())
        return Posterior(
            factor=F,
            noise=left.clamp_min(0) / max(sums.n - q, 1.0),
            alpha=alpha,
            prior=float(model.unit()) if model.energy else 0.0,
            n_atoms=int(penalty.sum()),
            loo_errors=loo,
            loo_r2=1 - float(np.square(loo).mean(0).sum()) / total if total > 0 else 1.0,
            rank=float(torch.cholesky_solve(sums.gram, F).trace()) - q,
        )

    def sums(self, w: Tensor, n: float, rows: int) -> Statistics:
        """What the strengths w were solved from: A = ΦᵀΦ + αC, A w = ΦᵀY, and the noise."""
        penalty = (torch.arange(len(self.factor)) < self.n_atoms).double()
        A = self.factor @ self.factor.T
        cross = A @ w
        q = len(penalty) - self.n_atoms
        square = self.noise * max(n - q, 1.0) + (w * cross).sum(0)
        counts = torch.tensor([n, rows], dtype=torch.float64)
        parts = [(A - torch.diag(self.alpha * penalty)).reshape(-1), cross.reshape(-1)]
        flat = torch.cat([*parts, square.diag().reshape(-1), counts])
        return Statistics.from_flat(flat, penalty, w.shape[1])

    def std(self, model: IGL, x: Tensor) -> Tensor:
        """(n, c)."""
        Phi = model.design(x).Phi
        weights = torch.linalg.solve_triangular(self.factor, Phi.T, upper=False).square().sum(0)
        missing = (self.prior - Phi[:, : self.n_atoms].square().sum(1)).clamp_min(0)
        missing = missing / self.alpha if self.alpha > 0 else torch.zeros_like(missing)
        return ((1 + weights + missing)[:, None] * self.noise).sqrt()


def _leverage(F: Tensor, Phi: Tensor) -> Tensor:
    """φ A⁻¹ φᵀ of every row, with the factor F of A."""
    half = torch.linalg.solve_triangular(F, Phi.T, upper=False)  # (p, n)
    return half.square().sum(0).clamp_max(RESOLVED)

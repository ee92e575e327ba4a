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
    prior: float  # k(x, x), at the origin of the chart
    n_atoms: int
    loo_errors: Array  # (n, c) leave-one-out residuals
    loo_r2: float
    rank: float  # degrees of freedom of the atoms
    loo_std: Array | None = None  # (n, c) standard deviations of those; older files have none

    @staticmethod
    def of(
        model: IGL,
        x: Tensor,
        Y: Tensor,
        solution: Solution,
        weight: Tensor | None,
        design: Design | None = None,
        folds: Tensor | None = None,
    ) -> "Posterior":
        """`design` is the model's at x, if it is known already; `folds` (n,) leave rows out together."""
        design = model.design(x) if design is None else design
        w = torch.ones(len(x), dtype=torch.float64) if weight is None else weight
        alpha = float(solution.alpha)
        Phi = design.Phi * w.sqrt()[:, None]
        A = Phi.T @ Phi + torch.diag(alpha * design.penalty)
        F = jittered(A, "the posterior of the source")
        n, q = float(w.sum()), int((design.penalty == 0).sum())
        prior, m = float(model.unit()) if model.energy else 0.0, int(design.penalty.sum())

        there = _prior(model, x, prior)

        def left_out(strengths: Tensor, alpha: float, F: Tensor) -> tuple[Tensor, ...]:
            """h (n,), σ² (c,), and residuals and standard deviations (n, c) of rows left out."""
            h, extra = _leverage(F, design.Phi, w)
            residual = Y - design.Phi @ strengths
            energy = alpha * (design.penalty[:, None] * strengths.square()).sum(0)
            noise = ((w[:, None] * residual.square()).sum(0) + energy) / max(n - q, 1.0)
            left = residual / (1 - h)[:, None]
            if folds is not None:
                left, extra = _folds_out(F, design.Phi, w, residual, folds)
            extra = extra + _missing(design.Phi, there, m, alpha)
            return h, noise, left, ((1 + extra)[:, None] * noise).sqrt()

        leverage, noise, loo, loo_std = left_out(solution.w, alpha, F)
        if bool((leverage >= RESOLVED).any()):
            # A fit through its rows: r and 1 − h are rounding errors, and a little more noise is not.
            more = 1e-7 * float(Phi.square().sum()) / max(m, 1)
            F_up = jittered(A + torch.diag(more * design.penalty), "leaving rows out")
            up = torch.cholesky_solve(Phi.T @ (w.sqrt()[:, None] * Y), F_up)
            _, _, loo, loo_std = left_out(up, alpha + more, F_up)
        total = (w[:, None] * (Y - (w[:, None] * Y).sum(0) / n).square()).sum()
        r2 = 1 - float((w[:, None] * loo.square()).sum() / total) if float(total) > 0 else 1.0
        return Posterior(
            factor=F,
            noise=noise,
            alpha=alpha,
            prior=prior,
            n_atoms=m,
            loo_errors=loo.numpy(),
            loo_r2=r2,
            rank=float(leverage.sum()) - q,
            loo_std=loo_std.numpy(),
        )

    @staticmethod
    def from_sums(
        model: IGL,
        sums: Statistics,
        solution: Solution,
        x: Tensor,
        Y: Tensor,
        weight: Tensor | None = None,
        earlier: Array | None = None,
    ) -> "Posterior":
        """From sums over all rows; leave-one-out residuals of those at hand, which are among them.

        R² is of the `earlier` ones, too.
        """
        alpha, penalty = float(solution.alpha), sums.penalty.double()
        F = jittered(sums.gram + torch.diag(alpha * penalty), "the posterior of the source")
        design = model.design(x)
        w = torch.ones(len(x), dtype=torch.float64) if weight is None else weight
        h, extra = _leverage(F, design.Phi, w)
        loo = ((Y - design.Phi @ solution.w) / (1 - h)[:, None]).numpy()
        q, m = int((penalty == 0).sum()), int(penalty.sum())
        left = sums.square.diagonal() - (solution.w * sums.cross).sum(0)  # residual and energy
        mean = sums.cross[m] / sums.n  # the first column beside the atoms is constant
        total = float((sums.square.diagonal() / sums.n - mean.square()).sum())
        noise = left.clamp_min(0) / max(sums.n - q, 1.0)
        prior = float(model.unit()) if model.energy else 0.0
        extra = extra + _missing(design.Phi, _prior(model, x, prior), m, alpha)
        known = loo if earlier is None else np.concatenate([earlier, loo])
        return Posterior(
            factor=F,
            noise=noise,
            alpha=alpha,
            prior=prior,
            n_atoms=m,
            loo_errors=loo,
            loo_r2=1 - float(np.square(known).mean(0).sum()) / total if total > 0 else 1.0,
            rank=float(torch.cholesky_solve(sums.gram, F).trace()) - q,
            loo_std=((1 + extra)[:, None] * noise).sqrt().numpy(),
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
        prior = _prior(model, x, self.prior)
        missing = _missing(Phi, prior, self.n_atoms, self.alpha)
        return ((1 + weights + missing)[:, None] * self.noise).sqrt()


@torch.no_grad()
def _prior(model: IGL, x: Tensor, prior: float) -> Tensor:
    """k(x, x) (n,), from that at the origin of the chart; 0 where no field is thought of."""
    if not prior:
        return x.new_zeros(len(x))
    return prior + model.operator.rise(model.chart(x), model.gates())


def _missing(Phi: Tensor, prior: Tensor, n_atoms: int, alpha: float) -> Tensor:
    """(k(x,x) − |φ|²)/α (n,): what anchors cannot express, in units of the noise."""
    missing = (prior - Phi[:, :n_atoms].square().sum(1)).clamp_min(0)
    return missing / alpha if alpha > 0 else torch.zeros_like(missing)


def _leverage(F: Tensor, Phi: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """h = w φA⁻¹φᵀ of every row, with the factor F of A; and φA⁻¹φᵀ with the row left out of A."""
    half = torch.linalg.solve_triangular(F, Phi.T, upper=False)  # (p, n)
    uncertain = half.square().sum(0)
    h = (weight * uncertain).clamp_max(RESOLVED)
    return h, uncertain / (1 - h)


def _folds_out(
    F: Tensor, Phi: Tensor, weight: Tensor, residual: Tensor, folds: Tensor
) -> tuple[Tensor, Tensor]:
    """Residuals (n, c) of rows left out with their fold, and φA⁻¹φᵀ (n,) without that fold in A.

    With V = Φ_k A⁻¹ Φ_kᵀ over the rows of a fold of weights w they are (I − V w)⁻¹ r and the diagonal of
    (I − V w)⁻¹ V.
    """
    left, uncertain = torch.empty_like(residual), torch.empty_like(weight)
    for k in folds.unique():
        own = folds == k
        half = torch.linalg.solve_triangular(F, Phi[own].T, upper=False)  # (p, m)
        V, root = half.T @ half, weight[own].sqrt()
        A = torch.eye(len(V)).to(V) - root[:, None] * V * root
        values, Q = torch.linalg.eigh(A)
        Q = Q / values.clamp_min(1 - RESOLVED).sqrt()  # A⁻¹ = Q Qᵀ
        left[own] = residual[own] + V @ (
            root[:, None] * (Q @ (Q.T @ (root[:, None] * residual[own])))
        )
        uncertain[own] = (V + (V * root) @ Q @ Q.T @ (root[:, None] * V)).diagonal()
    return left, uncertain

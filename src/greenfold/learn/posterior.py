"""How sure a fitted source is: predictive variances and leave-one-out residuals."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from greenfold.design import Design
from greenfold.learn.nearby import COLUMNS, Nearby, columns
from greenfold.model import IGL
from greenfold.solve import Solution, Statistics
from greenfold.solve.factor import jittered
from greenfold.solve.left_out import Quadratic

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Posterior:
    """The Bayesian linear model behind the source: how sure its predictions are.

    A new row φ has variance σ²(1 + φA⁻¹φᵀ + (k(x,x) − |φ|²)/α): noise, uncertain weights, and what
    anchors cannot express of a field with prior covariance σ²/α·k (under the energy norm only).
    """

    factor: Tensor  # Cholesky factor of A = ΦᵀΦ + αC (p, p), or its lower triangle in float32
    noise: Tensor  # (c,) σ²
    alpha: float
    prior: float  # k(x, x), at the origin of the chart
    n_atoms: int
    loo_errors: Array  # (n, c) leave-one-out residuals
    loo_r2: float
    rank: float  # degrees of freedom of the atoms
    loo_std: Array | None = None  # (n, c) standard deviations of those; older files have none
    nearby: Nearby | None = None  # rows that tell more than anchors, where all are sources

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
        fit = Quadratic.of(design, Y, w, float(solution.alpha), solution.w)
        fine = fit.resolved()
        loo, extra = fine.leave(folds)
        prior, m = float(model.unit()) if model.energy else 0.0, int(design.penalty.sum())
        extra = 1 + extra + _missing(model, x, design.Phi, prior, m, fine.alpha)
        std = (extra[:, None] * fine.noise).sqrt()
        total = float((w @ (Y - w @ Y / w.sum()).square()).sum())
        r2 = 1 - float((w @ loo.square()).sum()) / total if total > 0 else 1.0
        known = (fit.F, fit.noise, fit.alpha, prior, m)
        return Posterior(*known, loo.numpy(), r2, fit.rank, std.numpy())

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
        errors, extra = Quadratic(design, Y, w, alpha, solution.w, F).leave()
        loo, square = errors.numpy(), sums.square.diagonal()
        q, m = int((penalty == 0).sum()), int(penalty.sum())
        left = square - (solution.w * sums.cross).sum(0)  # residual and energy
        noise = left.clamp_min(0) / max(sums.n - q, 1.0)
        mean = sums.cross[m] / sums.n  # the first column beside the atoms is constant
        total = float((square / sums.n - mean.square()).sum())
        seen = loo if earlier is None else np.concatenate([earlier, loo])
        r2 = 1 - float(np.square(seen).mean(0).sum()) / total if total > 0 else 1.0
        prior = float(model.unit()) if model.energy else 0.0
        extra = 1 + extra + _missing(model, x, design.Phi, prior, m, alpha)
        std = (extra[:, None] * noise).sqrt()
        rank = float(torch.cholesky_solve(sums.gram, F).trace()) - q
        return Posterior(F, noise, alpha, prior, m, loo, r2, rank, std.numpy())

    @staticmethod
    def sketched(
        model: IGL,
        sums: Statistics,
        x: Tensor,
        weight: Tensor,
        alpha: float,
        Y: Tensor,
        errors: Tensor,
    ) -> "Posterior":
        """Of all rows x (n, D) with weights (n,), which are sources, from sums over some of them.

        The last m were held out first. Their errors (m, c) tell the noise; Y (m, c) is what they are
        errors of.
        """
        m, gram = len(errors), float(weight.sum()) / sums.n * sums.gram
        F = jittered(gram + (alpha * sums.penalty).diag(), "the posterior of the source")
        z, atoms = model.chart(x).float(), int(sums.penalty.sum())
        rank = float(torch.cholesky_solve(gram, F).trace()) - (len(F) - atoms)
        w = weight[-m:, None]
        total = float((w * (Y - (w * Y).sum(0) / w.sum()).square()).sum())
        r2 = 1 - float((w * errors.square()).sum()) / total if total > 0 else 1.0
        known = (packed(F), torch.ones(errors.shape[1]).double(), alpha, float(model.unit()), atoms)
        others = Nearby(z[:-m], weight[:-m].float())
        first = Posterior(*known, errors.numpy(), r2, rank, None, others)
        unit = first.std(model, x[-m:])  # of noise 1, from the other rows
        noise = (errors.square() / (unit.square() - 1 + 1 / w)).mean(0)
        std = unit * noise.sqrt()
        nearby = Nearby(z, weight.float())
        return replace(first, noise=noise, loo_std=std.numpy(), nearby=nearby)

    @property
    def lower(self) -> Tensor:
        """The factor (p, p)."""
        if self.factor.ndim == 2:
            return self.factor
        p = (math.isqrt(8 * len(self.factor) + 1) - 1) // 2
        F = torch.zeros(p, p, dtype=torch.float64)
        F[*torch.tril_indices(p, p)] = self.factor.double()
        return F

    @property
    def relative(self) -> Array:
        """Deviations (n, c) at rows left out, in those of the noise; 1 where there is none."""
        std, unit = np.asarray(self.loo_std), self.noise.sqrt().numpy()
        return np.divide(std, unit, out=np.ones_like(std), where=unit > 0)

    def of_noise(self, noise: float) -> "Posterior":
        """The same in units of another noise, at rows left out as at new ones."""
        std = math.sqrt(noise) * self.relative
        return replace(self, noise=torch.full_like(self.noise, noise), loo_std=std)

    @torch.no_grad()
    def judged(self, model: IGL, x: Tensor, errors: Array) -> "Posterior":
        """With the errors (m, c) of a whole that the model is a sketch of, at rows held out of it."""
        return replace(self, loo_errors=errors, loo_std=self.std(model, x).numpy())

    def sums(self, w: Tensor, n: float, rows: int) -> Statistics:
        """What the strengths w were solved from: A = ΦᵀΦ + αC, A w = ΦᵀY, and the noise."""
        F = self.lower
        penalty, A = (torch.arange(len(F)) < self.n_atoms).double(), F @ F.T
        cross = A @ w
        q = len(penalty) - self.n_atoms
        square = self.noise * max(n - q, 1.0) + (w * cross).sum(0)
        counts = torch.tensor([n, rows], dtype=torch.float64)
        parts = (A - torch.diag(self.alpha * penalty), cross, square.diag(), counts)
        flat = torch.cat([part.reshape(-1) for part in parts])
        return Statistics.from_flat(flat, penalty, w.shape[1])

    def std(self, model: IGL, x: Tensor) -> Tensor:
        """(n, c)."""
        if self.nearby is not None:
            m, xi = min(COLUMNS, self.n_atoms), model.chart(x)
            phi, known = columns(model, xi, m), (self.prior, m, self.alpha)
            half = torch.linalg.solve_triangular(self.lower[:m, :m], phi.T, upper=False)
            left = half.square().sum(0) + _missing(model, x, phi, *known)
            left -= self.nearby.taken(model, xi, phi, self.alpha)
            return ((1 + left.clamp_min(0))[:, None] * self.noise).sqrt()
        Phi = model.design(x).Phi
        extra = 1 + self.spread(Phi) + _missing(model, x, Phi, self.prior, self.n_atoms, self.alpha)
        return (extra[:, None] * self.noise).sqrt()

    def spread(self, Phi: Tensor) -> Tensor:
        """φ A⁻¹ φᵀ (n,): variances of Φ w by what is not known of w, in units of the noise."""
        return torch.linalg.solve_triangular(self.lower, Phi.T, upper=False).square().sum(0)


def packed(F: Tensor) -> Tensor:
    """A lower triangle in a quarter of the bytes, for files."""
    return F[*torch.tril_indices(len(F), len(F))].float()


@torch.no_grad()
def _missing(
    model: IGL, x: Tensor, Phi: Tensor, prior: float, n_atoms: int, alpha: float
) -> Tensor | float:
    """(k(x,x) − |φ|²)/α (n,): what anchors cannot express, in units of the noise."""
    if not prior or alpha <= 0:  # no field is thought of
        return 0.0
    k = prior + model.operator.rise(model.chart(x), model.gates(), model.atoms())
    return (k - Phi[:, :n_atoms].square().sum(1)).clamp_min(0) / alpha

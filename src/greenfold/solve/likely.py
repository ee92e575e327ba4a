"""Sources under any likelihood."""

import math

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from greenfold.design import Design
from greenfold.likelihoods.base import Likelihood
from greenfold.solve.shared import LEAST, Dense, System, Thin, degrees, likeliest
from greenfold.solve.solution import Solution, check, check_finite, mean_square


class Likely:
    """What is likeliest, with a penalty ½ α Σ_p c_p ‖w_p‖², by steps with one factor for all outputs.

    For many columns: up to as many as rows. `w` has no gradient. It stops where a step gains less than
    tol² nats per row, and comes with the degrees of freedom of the atoms as `info["degrees"]`. Columns
    without a penalty are free.

    Parameters
    ----------
    law : Likelihood
    alpha : float
        Strength, absolute.
    tol : float

    Examples
    --------
    >>> import torch
    >>> from greenfold import Design
    >>> from greenfold.likelihoods import Poisson
    >>> from greenfold.solve import Likely
    >>> counts = torch.tensor([[2.0], [4.0], [6.0]], dtype=torch.float64)
    >>> columns = torch.tensor([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]], dtype=torch.float64)
    >>> design = Design(columns, torch.tensor([1.0, 0.0], dtype=torch.float64))
    >>> Y = Poisson().columns(counts[:, 0].numpy(), None)
    >>> Likely(Poisson(), 1e-6).solve(design, torch.from_numpy(Y)).w.shape
    torch.Size([2, 1])
    """

    def __init__(self, law: Likelihood, alpha: float, tol: float = 1e-4):
        if not 0 < alpha < math.inf:
            raise ValueError(f"`alpha` must be finite and positive, got {alpha}.")
        self.law, self.alpha, self.tol = law, alpha, tol

    @torch.no_grad()
    def solve(
        self, design: Design, Y: Tensor, weight: Tensor | None = None, start: Tensor | None = None
    ) -> Solution:
        """Fit targets Y (n, k) of the likelihood."""
        check(design, Y, weight)
        Phi, penalty = design.Phi.double(), design.penalty.double()
        count = torch.ones_like(Phi[:, 0]) if weight is None else weight.double()
        atom = penalty > 0
        unit = penalty[atom].rsqrt()  # so that every column costs the same
        rows, N, y, w = (
            (Phi[:, atom] * unit).numpy(),
            Phi[:, ~atom].numpy(),
            Y.numpy(),
            count.numpy(),
        )
        system: System = Dense(rows @ rows.T) if 2 * rows.shape[1] > len(rows) else Thin(rows)
        end = likeliest(system, self.law, y, w, self.alpha, N, tol=self.tol**2)
        found = Phi.new_empty(len(atom), self.law.outputs)
        found[atom] = unit[:, None] * torch.from_numpy(rows.T @ end.a)
        found[~atom] = torch.from_numpy(end.b)
        check_finite("w", found, self.alpha)
        terms = self.law.at(end.f, y)
        residual = float(w @ (terms.slope**2).mean(1) / w.sum())
        lost = self.law.at((Phi @ found).numpy(), y).value - terms.value
        s = w * np.maximum(terms.curvature, LEAST)
        used, condition = degrees(system, s, self.law.contrasts, self.alpha, N)
        scale = float(mean_square(count @ Phi.square(), penalty))
        info = {
            "route": "shared",
            "jitter": 0.0,
            "rank": rows.shape[1],
            "alpha_relative": self.alpha / scale if scale > 0 else 0.0,
            "iterations": end.iterations,
            "gap": end.gap,
            "rounding": float(w @ lost / w.sum()),  # nats per row that strengths lose by it
            "degrees": used,
            "safeguard": 0.0,
        }
        told = found.new_tensor([self.alpha, residual, condition])
        return Solution(found, told[0], told[1], told[2], info)


def working(law: Likelihood, f: ndarray, Y: ndarray, weight: ndarray) -> tuple[ndarray, ndarray]:
    """Targets z (n, c) and weights (n,) whose weighted ridge has its optimum where the likelihood has.

    Around f a likelihood is a parabola: how sure a source is, and what rows left out would change, is
    that of least squares on z.
    """
    terms = law.at(f, Y)
    s = np.maximum(terms.curvature, LEAST)
    return f - terms.slope / s[:, None], weight * s

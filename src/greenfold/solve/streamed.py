"""Outer objectives from sums over rows, for training on minibatches.

With G = ΦᵀWΦ, b = ΦᵀWY and yy = diag YᵀWY, scaled to n rows and with the null-space columns eliminated,
everything the objectives need of the rows is there::

    S = yy − bᵀA⁻¹b,   ‖Y − Φw‖² = S − α wᵀw,   A = G + αI,   w = A⁻¹b

A batch gives noisy sums, so batches are averaged with weights that fall off into the past; the gradient
flows through the newest batch. Leave-one-out needs the rows themselves and is not among them.
"""

import math

import torch
from torch import Tensor

from greenfold.design import Design
from greenfold.solve.factor import jittered
from greenfold.solve.solution import check

STREAMED = ("evidence", "gcv", "log_mse", "penalized")


def check_streamed(name: str) -> None:
    """Refuse objectives that need all rows at once."""
    if name not in STREAMED:
        raise ValueError(
            f"objective {name!r} needs all rows at once. On minibatches choose one of {STREAMED}."
        )


class RunningSums:
    """Sums of Φ and Y as they pass, each batch counting `1 − decay` of the total.

    Parameters
    ----------
    n : float
        Rows the sums stand for.
    decay : float
        Memory: 0 uses each batch alone.
    """

    def __init__(self, n: float, decay: float = 0.9):
        if not 0 <= decay < 1:
            raise ValueError(f"`decay` must be in [0, 1), got {decay}.")
        self.n, self.decay = n, decay
        self.total: list[Tensor] | None = None
        self.share = 0.0  # how much of the average is filled

    def objective(
        self,
        name: str,
        design: Design,
        Y: Tensor,
        log_alpha: Tensor | float,
        weight: Tensor | None = None,
    ) -> Tensor:
        """The objective with this batch added to the sums; see `OBJECTIVES` for what each is."""
        check_streamed(name)
        check(design, Y, weight)
        Phi, Y = design.Phi.double(), Y.double()
        root = Phi.new_ones(len(Phi)) if weight is None else weight.double().sqrt()
        Phi, Y = root[:, None] * Phi, root[:, None] * Y
        scale = self.n / float(root.square().sum())
        new = [scale * (Phi.mT @ Phi), scale * (Phi.mT @ Y), scale * Y.square().sum(0)]
        return self.value(name, new, design.penalty, log_alpha)

    def value(
        self, name: str, new: list[Tensor], penalty: Tensor, log_alpha: Tensor | float
    ) -> Tensor:
        """The objective with the sums ΦᵀΦ, ΦᵀY and diag YᵀY of a batch, scaled to n rows, mixed in."""
        old = self.total or [torch.zeros_like(part) for part in new]
        mixed = [self.decay * a + (1 - self.decay) * b for a, b in zip(old, new, strict=True)]
        self.total = [part.detach() for part in mixed]
        self.share = 1 - self.decay * (1 - self.share)
        G, b, yy = (part / self.share for part in mixed)
        alpha = torch.as_tensor(log_alpha, dtype=torch.float64).exp()
        return _objective(name, G, b, yy, penalty.double(), alpha, self.n)


def _objective(
    name: str, G: Tensor, b: Tensor, yy: Tensor, penalty: Tensor, alpha: Tensor, n: float
) -> Tensor:
    atom = penalty > 0
    root = penalty[atom].sqrt()
    Ga, ba = G[atom][:, atom], b[atom]
    q = int((~atom).sum())
    if q:  # eliminate the null space
        F = jittered(G[~atom][:, ~atom], "the Gram matrix of the null-space columns")
        C = torch.linalg.solve_triangular(F, G[~atom][:, atom], upper=False)  # (q, m)
        c = torch.linalg.solve_triangular(F, b[~atom], upper=False)  # (q, c)
        Ga, ba, rest = Ga - C.mT @ C, ba - C.mT @ c, yy - c.square().sum(0)
    else:
        rest = yy
    Ga, ba = Ga / root / root[:, None], ba / root[:, None]
    m = len(Ga)
    L = jittered(Ga + alpha * torch.eye(m, dtype=Ga.dtype), "the Gram matrix of a batch")
    half = torch.linalg.solve_triangular(L, ba, upper=False)  # (m, c)
    S = (rest - half.square().sum(0)).clamp_min(1e-12 * yy.detach() + 1e-300)  # (c,)
    if name == "penalized":
        return S.mean() / n
    if name == "evidence":
        nu = n - q
        noise = nu * (2 * math.pi * math.e * S / nu).log().mean()
        volume = 2 * L.diagonal().log().sum() - m * alpha.log()
        return (noise + volume) / (2 * n)
    w = torch.linalg.solve_triangular(L.mT, half, upper=True)
    rss = (S - alpha * w.square().sum(0)).clamp_min(1e-12 * yy.detach() + 1e-300)
    if name == "log_mse":
        return (rss.mean() / n).log()
    inverse = torch.linalg.solve_triangular(L, torch.eye(m, dtype=L.dtype), upper=False)
    dof = q + m - alpha * inverse.square().sum()
    return rss.mean() / n / (1 - dof / n).clamp_min(1e-8).square()

"""Outer objectives from sums over rows, for training on minibatches.

With G = ΦᵀWΦ, b = ΦᵀWY and yy = diag YᵀWY, scaled to n rows and with the null-space columns eliminated,
everything the objectives need of the rows is there::

    S = yy − bᵀA⁻¹b,   ‖Y − Φw‖² = S − α wᵀw,   A = G + αI,   w = A⁻¹b

A batch gives noisy sums, so batches are averaged with weights that fall off into the past; the gradient
flows through the newest batch. Leave-one-out needs the rows themselves and is not among them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from greenfold.design import Design
from greenfold.solve.criteria import CRITERIA, Summary
from greenfold.solve.factor import jittered
from greenfold.solve.solution import check


class RunningSums:
    """Sums of Φ and Y as they pass, each batch counting `1 − decay` of the total.

    Parameters
    ----------
    n : float
        Rows the sums stand for.
    decay : float
        Memory: 0 uses each batch alone.

    Examples
    --------
    >>> import torch
    >>> from greenfold import Design
    >>> from greenfold.solve import RunningSums
    >>> sums = RunningSums(100.0)
    >>> Phi = torch.randn(32, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> design = Design(Phi, torch.ones(3, dtype=torch.float64))
    >>> sums.objective("evidence", design, Phi[:, :1], torch.tensor(-5.0).double()).shape
    torch.Size([])
    >>> y = Phi[:, :1]
    >>> new = [Phi.T @ Phi, Phi.T @ y, (y * y).sum(0)]  # the same from sums of a batch
    >>> sums.value("evidence", new, design.penalty, -5.0).shape
    torch.Size([])
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
        return CRITERIA[name](Sums.of(G, b, yy, penalty.double(), alpha, self.n))


@dataclass(frozen=True)
class Sums(Summary):
    """Of sums over rows, without the null-space columns and in units of the penalty, differentiable."""

    yy: Tensor  # (c,)
    alpha: Tensor
    L: Tensor  # (m, m)  of A
    half: Tensor  # (m, c)  L⁻¹b

    @staticmethod
    def of(G: Tensor, b: Tensor, yy: Tensor, penalty: Tensor, alpha: Tensor, n: float) -> "Sums":
        """Of ΦᵀΦ, ΦᵀY and diag YᵀY."""
        atom = penalty > 0
        root, least, q = penalty[atom].sqrt(), 1e-12 * yy.detach() + 1e-300, int((~atom).sum())
        Ga, ba = G[atom][:, atom], b[atom]
        if q:  # eliminate the null space
            F = jittered(G[~atom][:, ~atom], "the Gram matrix of the null-space columns")
            C = torch.linalg.solve_triangular(F, G[~atom][:, atom], upper=False)  # (q, m)
            c = torch.linalg.solve_triangular(F, b[~atom], upper=False)  # (q, c)
            Ga, ba, yy = Ga - C.mT @ C, ba - C.mT @ c, yy - c.square().sum(0)
        A = Ga / root / root[:, None] + alpha * torch.eye(len(root)).to(Ga)
        L = jittered(A, "the Gram matrix of a batch")
        half = torch.linalg.solve_triangular(L, ba / root[:, None], upper=False)
        return Sums(n, q, least, yy, alpha, L, half)

    @property
    def S(self) -> Tensor:
        return self.yy - self.half.square().sum(0)

    @property
    def rss(self) -> Tensor:
        w = torch.linalg.solve_triangular(self.L.mT, self.half, upper=True)
        return torch.maximum(self.S, self.least) - self.alpha * w.square().sum(0)

    @property
    def logdet(self) -> Tensor:
        return 2 * self.L.diagonal().log().sum() - len(self.L) * self.alpha.log()

    @property
    def dof(self) -> Tensor:
        m = len(self.L)
        inverse = torch.linalg.solve_triangular(self.L, torch.eye(m).to(self.L), upper=False)
        return self.q + m - self.alpha * inverse.square().sum()

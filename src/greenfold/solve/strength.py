"""The ridge strength chosen from data, all candidates from one SVD of Φ̃."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from greenfold.solve.criteria import CRITERIA, Summary
from greenfold.solve.factor import SVD, svd
from greenfold.solve.projected import Projected
from greenfold.solve.solution import TOO_FEW_ROWS, SolveError

CHOOSING = ("evidence", "gcv", "loo")  # criteria that have a minimum in α
# descending: ties go to the smoothest
GRID = torch.logspace(3, -12, 61, dtype=torch.float64).tolist()


@dataclass(frozen=True)
class Spectrum(Summary):
    """Of Φ̃ = U S Vᵀ and b = UᵀY at any α, with t = 1 − s²/(s² + α)."""

    factor: SVD
    b: Tensor  # (k, c)
    rest: Tensor  # (n, c)  Y − Ub
    null: Tensor  # (n,)  leverages of the null-space columns
    t: Tensor  # (k,)

    @staticmethod
    def of(problem: Projected) -> "Spectrum":
        factor, Y = svd(problem.Phi.detach()), problem.Y.detach()
        b = factor.U.mT @ Y
        null = (problem.null.detach() * problem.pinv.mT).sum(1)
        known = (factor, b, Y - factor.U @ b, null, torch.ones_like(factor.S))
        return Spectrum(problem.n, problem.q, problem.least(), *known)

    def at(self, alpha: float) -> "Spectrum":
        return replace(self, t=alpha / (self.factor.S.square() + alpha))

    @property
    def S(self) -> Tensor:
        return self.rest.square().sum(0) + self.t @ self.b.square()

    @property
    def rss(self) -> Tensor:
        return self.rest.square().sum(0) + self.t.square() @ self.b.square()

    @property
    def logdet(self) -> Tensor:
        return -self.t.log().sum()

    @property
    def dof(self) -> Tensor:
        return self.q + (1 - self.t).sum()

    def left(self) -> tuple[Tensor, Tensor]:
        r = self.rest + self.factor.U @ (self.t[:, None] * self.b)
        return r, self.null + self.factor.U.square() @ (1 - self.t)


def choose(problem: Projected, criterion: str, alphas: list[float] | None) -> tuple[float, SVD]:
    """The α (absolute) with the lowest criterion, and the factor of Φ̃ at it.

    Among `alphas` when given. Otherwise on a grid of relative strengths from 1e-12 to 1e3, then on
    finer and finer grids between the neighbors of the best, to 4 digits.
    """
    if problem.n <= problem.q:
        raise SolveError(TOO_FEW_ROWS.format(n=problem.n, q=problem.q))
    spectrum, scale = Spectrum.of(problem), float(problem.scale().detach()) or 1.0

    grid = [scale * relative for relative in GRID] if alphas is None else alphas
    for _ in range(4 if alphas is None else 1):
        values = [float(CRITERIA[criterion](spectrum.at(alpha))) for alpha in grid]
        i = values.index(min(values))
        alpha = grid[i]
        high, low = math.log(grid[max(i - 1, 0)]), math.log(grid[min(i + 1, len(grid) - 1)])
        grid = torch.linspace(high, low, 17, dtype=torch.float64).exp().tolist()
    return alpha, spectrum.factor._replace(alpha=alpha)

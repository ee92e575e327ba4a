"""The ridge strength chosen from data, all candidates from one SVD of Φ̃.

With Φ̃ = U S Vᵀ (null space projected out, `projected.py`), b = UᵀY, and q null-space columns::

    evidence   (n−q)/2n log(2πe S(α)/(n−q)) + Σ log(1 + s²/α)/2n,   S(α) = ‖Y⊥‖² + Σ α b²/(s² + α)
    gcv        RSS/n / (1 − dof/n)²,   dof = q + Σ s²/(s² + α)
    loo        mean of (r_n/(1 − h_n))²

The same quantities, differentiable in Φ, are in `objectives.py`.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from greenfold.solve.factor import EPS, SVD, svd
from greenfold.solve.projected import Projected
from greenfold.solve.solution import TOO_FEW_ROWS, SolveError

GRID = torch.logspace(
    3, -12, 61, dtype=torch.float64
).tolist()  # descending: ties go to the smoothest
FLOOR = 1e-8  # of 1 − h and 1 − dof/n: an interpolated row has a 0/0 leave-one-out residual


def smallest_square(target: Tensor) -> Tensor:
    """(c,) the sum of squares that rounding leaves of targets (n, c); sums below it mean nothing."""
    return (EPS * target.detach().norm(dim=0)).square() + torch.finfo(torch.float64).tiny


def check_rows(problem: Projected) -> None:
    if problem.n <= problem.q:
        raise SolveError(TOO_FEW_ROWS.format(n=problem.n, q=problem.q))


class Spectrum:
    """Everything the three criteria need of (Φ̃, Y), computed once."""

    def __init__(self, problem: Projected):
        self.factor = svd(problem.Phi.detach())
        self.n, self.q = problem.n, problem.q
        self.b = self.factor.U.mT @ problem.Y.detach()  # (k, c)
        self.rest = problem.Y.detach() - self.factor.U @ self.b  # (n, c)  Y⊥
        self.tiny = smallest_square(problem.target)  # (c,)
        self.h_null = (problem.null.detach() * problem.pinv.mT).sum(1)  # (n,)

    def shrunk(self, alpha: float) -> Tensor:
        """1 − s²/(s² + α), shape (k,)."""
        return alpha / (self.factor.S.square() + alpha)

    def evidence(self, alpha: float) -> float:
        n, nu, t = self.n, self.n - self.q, self.shrunk(alpha)
        S = self.rest.square().sum(0) + t @ self.b.square()  # (c,)
        noise = (2 * math.pi * math.e * torch.maximum(S, self.tiny) / nu).log().mean()
        return float(nu * noise - t.log().sum()) / (2 * n)

    def gcv(self, alpha: float) -> float:
        n, t = self.n, self.shrunk(alpha)
        rss = self.rest.square().sum(0) + t.square() @ self.b.square()  # (c,)
        dof = self.q + float((1 - t).sum())
        return float(torch.maximum(rss, self.tiny).mean()) / n / max(1 - dof / n, FLOOR) ** 2

    def loo(self, alpha: float) -> float:
        t = self.shrunk(alpha)
        r = self.rest + self.factor.U @ (t[:, None] * self.b)  # (n, c)
        h = self.h_null + self.factor.U.square() @ (1 - t)  # (n,)
        e = r / (1 - h).clamp_min(FLOOR)[:, None]
        return float(torch.maximum(e.square().sum(0), self.tiny).mean()) / self.n


CRITERIA: dict[str, Callable[[Spectrum, float], float]] = {
    "evidence": Spectrum.evidence,
    "gcv": Spectrum.gcv,
    "loo": Spectrum.loo,
}


def choose(problem: Projected, criterion: str, alphas: list[float] | None) -> tuple[float, SVD]:
    """The α (absolute) with the lowest criterion, and the factor of Φ̃ at it.

    Among `alphas` when given. Otherwise on a grid of relative strengths from 1e-12 to 1e3, then on
    finer and finer grids between the neighbors of the best, to 4 digits.
    """
    check_rows(problem)
    spectrum, scale = Spectrum(problem), float(problem.scale().detach()) or 1.0

    def best(candidates: list[float]) -> int:
        values = [CRITERIA[criterion](spectrum, alpha) for alpha in candidates]
        return values.index(min(values))

    if alphas is not None:
        alpha = alphas[best(alphas)]
        return alpha, spectrum.factor._replace(alpha=alpha)
    grid = [scale * relative for relative in GRID]
    for _ in range(4):
        i = best(grid)
        alpha = grid[i]
        high, low = math.log(grid[max(i - 1, 0)]), math.log(grid[min(i + 1, len(grid) - 1)])
        grid = torch.linspace(high, low, 17, dtype=torch.float64).exp().tolist()
    return alpha, spectrum.factor._replace(alpha=alpha)

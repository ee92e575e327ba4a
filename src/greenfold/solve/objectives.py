"""What the outer problem minimizes: criteria of a design, with the strengths already solved for.

All of them take a design, targets Y (n, c), the logarithm of the absolute ridge strength α, and weights
that count repetitions of a row (n = Σ weight). All are differentiable in Φ, Y and log α, and free of
the basis chosen for the null-space columns, which are projected out and never penalized.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from greenfold.design import Design
from greenfold.solve import fused
from greenfold.solve.criteria import CRITERIA, Summary
from greenfold.solve.factor import Factor, factorize
from greenfold.solve.implicit import Leverage, LogDet, SquaredResidual
from greenfold.solve.projected import Projected, project, ridge


@dataclass(frozen=True)
class Factored(Summary):
    """Of rows and any factor, differentiable."""

    problem: Projected
    alpha: Tensor
    factor: Factor

    @staticmethod
    def of(
        design: Design, Y: Tensor, log_alpha: Tensor | float, weight: Tensor | None = None
    ) -> "Factored":
        problem = project(design, Y, weight)
        alpha = torch.as_tensor(log_alpha, dtype=torch.float64, device=problem.Y.device).exp()
        factor = factorize(problem.Phi.detach(), float(alpha.detach()))
        return Factored(problem.n, problem.q, problem.least(), problem, alpha, factor)

    @property
    def S(self) -> Tensor:
        v = self.factor.weights(self.problem.Y.detach())  # at the minimum v may be held constant
        fit = self.problem.Phi @ v
        return (self.problem.Y - fit).square().sum(0) + self.alpha * v.square().sum(0)

    @property
    def rss(self) -> Tensor:
        return SquaredResidual.apply(self.problem.Phi, self.problem.Y, self.alpha, self.factor)

    @property
    def logdet(self) -> Tensor:
        Phi = self.problem.Phi
        return LogDet.apply(Phi, self.alpha, self.factor) - Phi.shape[1] * self.alpha.log()

    @property
    def dof(self) -> Tensor:
        return self.q + Leverage.apply(self.problem.Phi, self.alpha, self.factor.hat()).sum()

    def left(self) -> tuple[Tensor, Tensor]:
        Phi, Y, alpha = self.problem.Phi, self.problem.Y, self.alpha
        h = Leverage.apply(Phi, alpha, self.factor.hat())
        if self.q:  # N(NᵀN)⁺ = (N⁺)ᵀ
            pinv = self.problem.pinv
            h = h + Leverage.apply(self.problem.null, torch.zeros_like(alpha), pinv.mT)
        return Y - Phi @ ridge(Phi, Y, alpha, self.factor), h


TAKES = """

Parameters
----------
design : Design
    Φ (n, p) and its penalty.
Y : Tensor of shape (n, c)
    Targets.
log_alpha : Tensor or float
    Logarithm of the penalty's strength, absolute.
weight : Tensor of shape (n,), optional
    How often each row counts.

Returns
-------
Tensor of shape ()

Examples
--------
>>> import torch
>>> from greenfold import Design
>>> from greenfold.solve import {name}
>>> Phi = torch.randn(30, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
>>> Y = Phi @ torch.ones(4, 1, dtype=torch.float64)
>>> design = Design(Phi, torch.ones(4, dtype=torch.float64))
>>> bool({name}(design, Y, -20.0) < {name}(design, Y, 5.0))  # a weak penalty fits these rows
True

"""


def _objective(name: str) -> Callable[..., Tensor]:
    def objective(
        design: Design, Y: Tensor, log_alpha: Tensor | float, weight: Tensor | None = None
    ) -> Tensor:
        quick = (
            fused.log_mse(design, Y, log_alpha) if name == "log_mse" and weight is None else None
        )
        if quick is not None:
            return quick
        return CRITERIA[name](Factored.of(design, Y, log_alpha, weight)).to(design.Phi.dtype)

    objective.__name__ = objective.__qualname__ = name
    about = inspect.cleandoc(CRITERIA[name].__doc__ or "").partition("References")
    objective.__doc__ = about[0].rstrip() + TAKES.format(name=name) + "".join(about[1:])
    return objective


OBJECTIVES = {name: _objective(name) for name in CRITERIA}
evidence, gcv, log_mse, loo, penalized = OBJECTIVES.values()

"""What the outer problem minimizes: functions of Φ, Y and log α with the strengths already solved for.

All of them take a design, targets Y (n, c), the logarithm of the absolute ridge strength α, and weights
that count repetitions of a row (n = Σ weight). All are differentiable in Φ, Y and log α, and free of
the basis chosen for the null-space columns, which are projected out and never penalized.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from greenfold.design import Design
from greenfold.solve.factor import Factor, factorize
from greenfold.solve.implicit import Leverage, LogDet, SquaredResidual
from greenfold.solve.projected import Projected, project, ridge
from greenfold.solve.strength import FLOOR, check_rows, smallest_square


def _factored(
    design: Design, Y: Tensor, log_alpha: Tensor | float, weight: Tensor | None
) -> tuple[Projected, Tensor, Factor]:
    problem = project(design, Y, weight)
    alpha = torch.as_tensor(log_alpha, dtype=torch.float64, device=problem.Y.device).exp()
    return problem, alpha, factorize(problem.Phi.detach(), float(alpha.detach()))


def _floored(sums: Tensor, problem: Projected) -> Tensor:
    """Sums of squares (c,), kept above what rounding leaves of the targets."""
    return torch.maximum(sums, smallest_square(problem.target))


def _penalized_sums(problem: Projected, alpha: Tensor, factor: Factor) -> Tensor:
    """‖Y − Φw‖² + α wᵀCw for each output (c,). At its minimum over w, w may be held constant."""
    v = factor.weights(problem.Y.detach())
    return (problem.Y - problem.Phi @ v).square().sum(0) + alpha * v.square().sum(0)


def _leverages(problem: Projected, alpha: Tensor, factor: Factor) -> Tensor:
    """h (n,): how much each fitted value follows its own target, null-space columns included."""
    h = Leverage.apply(problem.Phi, alpha, factor.hat())
    if problem.q:  # N(NᵀN)⁺ = (N⁺)ᵀ
        h = h + Leverage.apply(problem.null, torch.zeros_like(alpha), problem.pinv.mT)
    return h


def evidence(
    design: Design, Y: Tensor, log_alpha: Tensor | float, weight: Tensor | None = None
) -> Tensor:
    """Negative log marginal likelihood per row, averaged over outputs that share α.

    Strengths have the prior w ~ N(0, σ²(αC)⁻¹) and are integrated out; the noise variance σ² of each
    output is at its maximum. Null-space coefficients are restricted out (REML [1]_): the likelihood is
    that of n − q orthonormal contrasts of Y, which do not contain them::

        (n−q)/2n log(2πe S/(n−q)) + (log|Φ̃ᵀΦ̃ + αI| − m log α)/2n,   S = ‖Y − Φw‖² + α wᵀCw

    An S below the rounding error of ‖Y‖² is replaced by it, so that exact fits stay finite.

    References
    ----------
    .. [1] D. Harville, "Maximum likelihood approaches to variance component estimation and to related
       problems", J. Am. Stat. Assoc. 72 (1977), 320–338.
    """
    problem, alpha, factor = _factored(design, Y, log_alpha, weight)
    check_rows(problem)
    n, nu, m = problem.n, problem.n - problem.q, problem.Phi.shape[1]
    S = _floored(_penalized_sums(problem, alpha, factor), problem)  # (c,)
    noise = nu * (2 * math.pi * math.e * S / nu).log().mean()
    volume = LogDet.apply(problem.Phi, alpha, factor) - m * alpha.log()
    return ((noise + volume) / (2 * n)).to(design.Phi.dtype)


def loo(
    design: Design, Y: Tensor, log_alpha: Tensor | float, weight: Tensor | None = None
) -> Tensor:
    """Mean squared leave-one-out residual, exact without refitting.

    (1/n) Σ_i weight_i (r_i/(1 − h_i))², where row i is left out with its whole weight, averaged over
    outputs. 1 − h_i is kept above 1e-8: a row fitted exactly whatever its target is has no
    leave-one-out residual.
    """
    problem, alpha, factor = _factored(design, Y, log_alpha, weight)
    v = ridge(problem.Phi, problem.Y, alpha, factor)
    r = problem.Y - problem.Phi @ v  # (n, c)
    e = r / (1 - _leverages(problem, alpha, factor)).clamp_min(FLOOR)[:, None]
    return (e.square().sum(0).mean() / problem.n).to(design.Phi.dtype)


def gcv(
    design: Design, Y: Tensor, log_alpha: Tensor | float, weight: Tensor | None = None
) -> Tensor:
    """Generalized cross-validation, (RSS/n)/(1 − dof/n)², averaged over outputs.

    dof = q + tr Φ̃A⁻¹Φ̃ᵀ counts the null-space columns; 1 − dof/n is kept above 1e-8.
    """
    problem, alpha, factor = _factored(design, Y, log_alpha, weight)
    rss = SquaredResidual.apply(problem.Phi, problem.Y, alpha, factor).mean()
    dof = problem.q + Leverage.apply(problem.Phi, alpha, factor.hat()).sum()
    slack = (1 - dof / problem.n).clamp_min(FLOOR)
    return (rss / problem.n / slack.square()).to(design.Phi.dtype)


def penalized(
    design: Design, Y: Tensor, log_alpha: Tensor | float, weight: Tensor | None = None
) -> Tensor:
    """(‖Y − Φw‖² + α wᵀCw)/n, averaged over outputs.

    What the inner problem minimizes, so its gradient is exact with w held constant (the envelope
    theorem) and costs no second solve.
    """
    problem, alpha, factor = _factored(design, Y, log_alpha, weight)
    return (_penalized_sums(problem, alpha, factor).mean() / problem.n).to(design.Phi.dtype)


def log_mse(
    design: Design, Y: Tensor, log_alpha: Tensor | float, weight: Tensor | None = None
) -> Tensor:
    """log(‖Y − Φw‖²/nc), the mean squared residual with the gradient of w included.

    Below the rounding error of ‖Y‖² the value stays there.
    """
    problem, alpha, factor = _factored(design, Y, log_alpha, weight)
    rss = SquaredResidual.apply(problem.Phi, problem.Y, alpha, factor)  # (c,)
    return (_floored(rss, problem).mean() / problem.n).log().to(design.Phi.dtype)


OBJECTIVES: dict[str, Callable[..., Tensor]] = {
    "evidence": evidence,
    "gcv": gcv,
    "log_mse": log_mse,
    "loo": loo,
    "penalized": penalized,
}

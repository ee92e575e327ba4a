"""Source strengths by penalized least squares."""

from collections.abc import Sequence

import torch
from torch import Tensor

from greenfold.design import Design
from greenfold.solve.factor import Factor, factorize
from greenfold.solve.projected import project, ridge
from greenfold.solve.solution import Solution, check_finite
from greenfold.solve.strength import CHOOSING, choose


class Ridge:
    """Ridge regression that leaves the null-space columns alone.

    Solves in float64 and answers in the dtype of Φ::

        w = argmin Σ_n weight_n ‖(Φw − Y)_n‖² + α Σ_p c_p w_p²,   c = design.penalty

    `w` is differentiable in Φ and Y by the implicit formula, which reuses the factor of the solve. A
    relative α moves with Φ and is differentiated too; a chosen α is treated as a constant. Rows may be
    fewer than columns, and exactly zero columns get w = 0. With α = 0 and dependent columns the answer
    is the limit α → 0, least squares of minimum Σ c_p w_p²; it has no gradient, and asking for one
    raises `SolveError`.

    Parameters
    ----------
    alpha : float or str
        Strength, or how to choose it: "evidence" (marginal likelihood), "gcv" (generalized
        cross-validation [1]_) or "loo" (leave-one-out), all from one SVD of Φ.
    relative : bool
        Measure strengths in units of tr(ΦᵀWΦ)/m over the m atoms. Then doubling Φ, or repeating all
        rows, changes nothing.
    alphas : sequence of float, optional
        Candidates for a chosen strength. By default 1e-12 to 1e3, relative, refined around the best.

    References
    ----------
    .. [1] G. Golub, M. Heath, G. Wahba, "Generalized cross-validation as a method for choosing a
       good ridge parameter", Technometrics 21 (1979), 215–223.

    Examples
    --------
    >>> Phi = torch.tensor([[1.0, 1.0], [2.0, 1.0], [4.0, 1.0]])
    >>> design = Design.stack(Phi[:, :1], Phi[:, 1:])  # an atom and a free constant
    >>> Ridge(0.0).solve(design, 3 * Phi[:, :1] + 5).w[:, 0]
    tensor([3., 5.])
    """

    def __init__(
        self,
        alpha: float | str = "evidence",
        *,
        relative: bool = True,
        alphas: Sequence[float] | None = None,
    ):
        if isinstance(alpha, str):
            if alpha not in CHOOSING:
                raise ValueError(
                    f"unknown `alpha` {alpha!r}. Choose one of {CHOOSING}, or pass a number."
                )
        elif not 0 <= alpha < float("inf"):
            raise ValueError(f"`alpha` must be finite and at least 0, got {alpha}.")
        if alphas is not None and (len(alphas) == 0 or not all(a > 0 for a in alphas)):
            raise ValueError(f"`alphas` must hold at least one number, all positive, got {alphas}.")
        self.alpha = alpha
        self.relative = relative
        self.alphas = alphas

    def __repr__(self) -> str:
        return f"Ridge({self.alpha!r}{'' if self.relative else ', relative=False'})"

    def solve(
        self, design: Design, Y: Tensor, weight: Tensor | None = None, start: Tensor | None = None
    ) -> Solution:
        """Fit Y (n, c); `weight` (n,) counts repetitions of a row. In one step, from any `start`."""
        problem = project(design, Y, weight)
        scale = problem.scale()
        unit = scale if self.relative else torch.ones_like(scale)
        factor: Factor
        if isinstance(self.alpha, str):
            alphas = (
                None if self.alphas is None else [a * float(unit.detach()) for a in self.alphas]
            )
            chosen, factor = choose(problem, self.alpha, alphas)
            alpha = torch.full_like(scale, chosen)
        else:
            alpha = self.alpha * unit
            factor = factorize(problem.Phi.detach(), float(alpha.detach()))
        v = ridge(problem.Phi, problem.Y, alpha, factor)
        w = problem.assemble(v)  # (p, c)
        check_finite("w", w, float(alpha.detach()))
        residual = (problem.Y - problem.Phi @ v).square().sum() / (problem.n * Y.shape[1])
        info = {
            "route": factor.route,
            "jitter": factor.jitter,
            "rank": factor.rank + problem.q,
            "alpha_relative": float((alpha / scale).detach()) if scale > 0 else 0.0,
        }
        condition = torch.full_like(scale, factor.condition)
        to = design.Phi.dtype
        return Solution(w.to(to), alpha.to(to), residual.to(to), condition.to(to), info)

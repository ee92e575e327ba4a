"""Class logits by an inner Newton solve of penalized cross-entropy, J(w) of `softmax.py`."""

import math
from typing import Any

import torch
from torch import Tensor

from greenfold.design import Design
from greenfold.solve import softmax
from greenfold.solve.implicit import Implicit
from greenfold.solve.softmax import Inverse, Problem, centered, inverse, probabilities
from greenfold.solve.solution import (
    NOT_CONVERGED,
    SINGULAR,
    Solution,
    SolveError,
    check,
    check_finite,
    mean_square,
)

SAFEGUARD = 1e-8  # ρ_p/‖Φ_p‖² on null-space columns: separable classes cannot run to infinity


def minimize(
    problem: Problem, start: Tensor, tol: float, max_iter: int
) -> tuple[Tensor, Inverse, int, float]:
    """Newton's method with backtracking; w, the last H⁻¹, iterations and the gradient reached.

    The gradient is measured without units, max_p ‖∂J/∂w_p‖ / (√n ‖Φ_p‖), and driven below `tol`.
    """
    w = centered(start)
    unit = (problem.weight.sum() * (problem.weight @ problem.Phi.square())).sqrt()
    unit = torch.where(unit > 0, unit, torch.ones_like(unit))[:, None]  # (p, 1)
    value = problem.value(w)
    g = centered(problem.gradient(w))  # (p, c)
    size = float((g / unit).abs().max())
    for iteration in range(1, max_iter + 1):
        # Loosely at first, tightly near the optimum: inexact Newton keeps its fast convergence.
        H = inverse(problem, w, tol=min(0.01, math.sqrt(size)))
        step = -H.solve(g)
        slope = (g * step).sum()
        slack = 1e-13 * value.abs()  # near the optimum J no longer resolves the decrease
        t = 1.0
        while (new := problem.value(w + t * step)) > value + 1e-4 * t * slope + slack and t > 1e-12:
            t /= 2
        # Where probabilities saturate the quadratic model is too careful: go on while it pays.
        while t >= 1 and (further := problem.value(w + 2 * t * step)) < new:
            t, new = 2 * t, further
        w, value = w + t * step, new
        g = centered(problem.gradient(w))
        size = float((g / unit).abs().max())
        if size <= tol:
            return w, H, iteration, size
    raise SolveError(NOT_CONVERGED.format(iterations=max_iter, gradient=size, tol=tol))


def penalized_problem(design: Design, Y: Tensor, alpha: Tensor, weight: Tensor | None) -> Problem:
    """J(w) of `softmax.py` for a design, at absolute strength α."""
    Phi, Y = design.Phi.double(), Y.double()
    W = torch.ones_like(Phi[:, 0]) if weight is None else weight.detach().double()
    penalty = design.penalty.detach().double()
    square = W @ Phi.square()  # (p,)
    rho = torch.where(penalty > 0, alpha * penalty, SAFEGUARD * square)
    rho = torch.where(rho > 0, rho, torch.ones_like(rho))  # a column of zeros: w = 0
    return Problem(Phi, Y, W, rho)


def _check(design: Design, Y: Tensor, weight: Tensor | None) -> None:
    check(design, Y, weight)
    total = Y.detach().sum(1)
    outside = bool((Y < 0).any()) or bool((Y > 1).any())
    if outside or (Y.shape[1] > 1 and not torch.allclose(total, torch.ones_like(total))):
        raise ValueError(
            "`Y` must hold class probabilities: one-hot rows (n, c), or one column of 0 and 1. "
            f"Got values from {float(Y.min()):g} to {float(Y.max()):g}, with row sums from "
            f"{float(total.min()):g} to {float(total.max()):g}."
        )


class Logistic:
    """Multinomial or binary logistic regression that leaves the null-space columns alone.

    Minimizes J(w) of `softmax.py` by Newton's method run to convergence: stopping early leaves an
    outer loop chasing a moving inner problem. The whole Hessian is factored up to c·p = 3000
    unknowns (600 for four classes and more); beyond, Newton's equations are solved by preconditioned
    conjugate gradients. `w` is
    differentiable in Φ by the implicit function theorem, with the Hessian at the optimum.

    Null-space columns carry a ridge of 1e-8 ‖Φ_p‖², reported as `info["safeguard"]`, without which
    separable classes would send them to infinity.

    Parameters
    ----------
    alpha : float
        Strength of the penalty ½ α Σ_p c_p ‖w_p‖² on the summed cross-entropy.
    relative : bool
        Measure it in units of tr(ΦᵀWΦ)/m over the m atoms, as in `Ridge`; it then grows with n, like
        the sum it is weighed against.
    tol : float
        Largest gradient at the optimum, per row and per unit column.
    max_iter : int
        Newton steps before giving up with `SolveError`.

    Examples
    --------
    >>> import torch
    >>> from greenfold import Design
    >>> from greenfold.solve import Logistic
    >>> x = torch.linspace(-2, 2, 40, dtype=torch.float64)[:, None]
    >>> Y = torch.cat([x < 0.3, x >= 0.3], dim=1).double()
    >>> design = Design(torch.cat([x, torch.ones_like(x)], 1), torch.tensor([1.0, 0.0]).double())
    >>> Logistic(1e-3).solve(design, Y).w.shape
    torch.Size([2, 2])
    """

    def __init__(
        self,
        alpha: float = 1e-3,
        *,
        relative: bool = True,
        tol: float = 1e-8,
        max_iter: int = 100,
    ):
        if not 0 < alpha < math.inf:
            raise ValueError(f"`alpha` must be finite and positive, got {alpha}.")
        self.alpha = alpha
        self.relative = relative
        self.tol = tol
        self.max_iter = max_iter

    def __repr__(self) -> str:
        return f"Logistic({self.alpha!r}{'' if self.relative else ', relative=False'})"

    def solve(
        self, design: Design, Y: Tensor, weight: Tensor | None = None, start: Tensor | None = None
    ) -> Solution:
        """Fit one-hot Y (n, c), or Y (n, 1) of 0 and 1, from `start` (p, c) or zero."""
        _check(design, Y, weight)
        square = design.Phi.double().square()
        square = square.sum(0) if weight is None else weight.detach().double() @ square
        scale = mean_square(square, design.penalty.detach().double())
        alpha = self.alpha * scale if self.relative else torch.full_like(scale, self.alpha)
        problem = penalized_problem(design, Y, alpha, weight)
        w, H, iterations, gradient = _optimum(problem, start, self.tol, self.max_iter)
        error = problem.Y - probabilities(problem.Phi @ w)
        residual = problem.weight @ error.square().mean(1) / problem.weight.sum()
        info: dict[str, Any] = {
            "route": H.route,
            "jitter": H.jitter,
            "rank": int((problem.Phi.detach() != 0).any(0).sum()),
            "alpha_relative": float((alpha / scale).detach()) if scale > 0 else 0.0,
            "iterations": iterations,
            "gradient": gradient,
            "safeguard": SAFEGUARD if bool((design.penalty == 0).any()) else 0.0,
        }
        condition = torch.full_like(scale, H.condition)
        to = design.Phi.dtype
        return Solution(w.to(to), alpha.to(to), residual.to(to), condition.to(to), info)


def _optimum(
    problem: Problem, start: Tensor | None, tol: float, max_iter: int
) -> tuple[Tensor, Inverse, int, float]:
    """w* (p, c) differentiable in the problem, and how it was found."""
    with torch.no_grad():
        constant = Problem(*(part.detach() for part in problem))
        p, c = problem.Phi.shape[1], problem.Y.shape[1]
        w = constant.Phi.new_zeros(p, c)
        if start is not None:
            if start.shape != w.shape:
                raise ValueError(f"`start` must be (p, c) = ({p}, {c}), got {tuple(start.shape)}.")
            w = start.detach().to(w)
        w, H, iterations, gradient = minimize(constant, w, tol, max_iter)
        check_finite("w", w, float(constant.rho.min()))

    def solve(w_bar: Tensor) -> Tensor:
        return inverse(constant, w).solve(w_bar)

    return Implicit.apply(w, problem.gradient(w), solve), H, iterations, gradient


def laplace_evidence(
    design: Design,
    Y: Tensor,
    log_alpha: Tensor | float,
    weight: Tensor | None = None,
    start: Tensor | None = None,
    tol: float = 1e-8,
) -> Tensor:
    """Negative log marginal likelihood per row in Laplace's approximation.

    Strengths of atoms have the prior w ~ N(0, (αC)⁻¹) and are integrated around the optimum;
    null-space coefficients are set to their optimum, which leaves the Schur complement of their block::

        (J(w*) + ½ log|H| − ½ log|H_NN| − ½ c Σ_r log(α c_r)) / n

    Above c·p = 3000 unknowns both determinants are those of the blocks H_kk of single classes, an upper
    bound (Fischer's inequality) that is as smooth and much cheaper.

    Parameters
    ----------
    design : Design
        Φ (n, p) and its penalty.
    Y : Tensor of shape (n, c)
        Indicators of the classes.
    log_alpha : Tensor or float
        Logarithm of the penalty's strength, absolute.
    weight : Tensor of shape (n,), optional
        How often each row counts.
    start : Tensor of shape (p, c), optional
        Strengths to begin from.
    tol : float
        On the scaled gradient.

    Returns
    -------
    Tensor of shape ()

    Examples
    --------
    >>> import torch
    >>> from greenfold import Design
    >>> from greenfold.solve import laplace_evidence
    >>> x = torch.linspace(-2, 2, 40, dtype=torch.float64)[:, None]
    >>> Y = torch.cat([x < 0, x >= 0], dim=1).double()
    >>> design = Design(torch.cat([x, torch.ones_like(x)], 1), torch.tensor([1.0, 0.0]).double())
    >>> bool(laplace_evidence(design, Y, -3.0) < laplace_evidence(design, Y, 8.0))
    True
    """
    _check(design, Y, weight)
    alpha = torch.as_tensor(log_alpha, dtype=torch.float64, device=design.Phi.device).exp()
    problem = penalized_problem(design, Y, alpha, weight)
    w, *_ = _optimum(problem, start, tol, 100)
    p, c = w.shape
    atom = design.penalty > 0
    if w.numel() <= softmax.LARGEST_HESSIAN:
        blocks = [problem.hessian(w)]  # (e p, e p)
        copies = max(c - 1, 1)  # along 1 prior = posterior
    else:
        blocks, copies = problem.class_blocks(w), c
    null = (~atom).repeat(len(blocks[0]) // p)
    volume = torch.stack([_logdet(H) - _logdet(H[null][:, null]) for H in blocks]).sum()
    prior = copies * problem.rho[atom].log().sum()
    value = problem.value(w.detach()) + 0.5 * (volume - prior)
    return (value / problem.weight.sum()).to(design.Phi.dtype)


def _logdet(A: Tensor) -> Tensor:
    """log|A| of a symmetric positive definite matrix, scaled to unit diagonal first."""
    d = A.detach().diagonal().sqrt()
    L, failed = torch.linalg.cholesky_ex(A / d / d[:, None])
    if failed:
        raise SolveError(SINGULAR.format(p=len(A), alpha=float(d.square().min()), jitter=0.0))
    return 2 * (L.diagonal().log().sum() + d.log().sum())

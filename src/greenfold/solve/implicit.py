"""Gradients through a solve, without differentiating the steps of the solve.

In the symbols of ridge regression, A = ΦᵀΦ + αI and H = ΦA⁻¹::

    F(w*, θ) = 0            w* moves by  dw* = −(∂F/∂w)⁻¹ ∂F/∂θ dθ
    ℓ = log|A|              dℓ = 2⟨H, dΦ⟩ + tr(A⁻¹) dα
    h_n = φ_nᵀ A⁻¹ φ_n      Σ g_n dh_n = 2⟨gH − Φ Hᵀ(gH), dΦ⟩ − Σ g_n ‖H_n‖² dα
    S = ‖Y − Φw‖²           dS = 2⟨r − Φz, dY − dΦ w⟩ − 2⟨r zᵀ, dΦ⟩ + 2⟨z, w⟩ dα,   z = A⁻¹Φᵀr
    R = M − N N⁺M           dR = (I − NN⁺)(dM − dN N⁺M) − (N⁺)ᵀ dNᵀ R
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Implicit(Function):
    """w* as a function of whatever F depends on, where F(w*, θ) = 0.

    Forward passes the solved w* on. Backward sends −(∂F/∂w)⁻¹ w̄ to F, whose own graph (built with w*
    held constant) carries it to Φ, Y, α. For F = Φᵀ(Φw − Y) + αw this is the formula
    z = A⁻¹w̄, Φ̄ = r zᵀ − (Φz) wᵀ, Ȳ = Φz, ᾱ = −⟨z, w⟩.
    """

    @staticmethod
    def forward(ctx: Any, w: Tensor, F: Tensor, solve: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.solve = solve
        return w.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, w_bar: Tensor) -> tuple[None, Tensor, None]:
        return None, -ctx.solve(w_bar), None


class LogDet(Function):
    """log|ΦᵀΦ + αI| from a factor; see the module docstring."""

    @staticmethod
    def forward(ctx: Any, Phi: Tensor, alpha: Tensor, factor: Any) -> Tensor:
        ctx.save_for_backward(Phi, alpha)
        ctx.factor = factor
        return factor.logdet()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        Phi, alpha = ctx.saved_tensors
        H = ctx.factor.hat()  # (n, m)
        trace = (Phi.shape[1] - (H * Phi).sum()) / alpha  # tr A⁻¹ = (m − tr ΦA⁻¹Φᵀ) / α
        return 2 * g * H, g * trace, None


class Leverage(Function):
    """h_n = φ_nᵀ A⁻¹ φ_n given H = ΦA⁻¹; see the module docstring."""

    @staticmethod
    def forward(ctx: Any, Phi: Tensor, alpha: Tensor, H: Tensor) -> Tensor:
        ctx.save_for_backward(Phi, H)
        return (H * Phi).sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        Phi, H = ctx.saved_tensors
        gH = g[:, None] * H  # (n, m)
        Phi_bar = 2 * (gH - torch.linalg.multi_dot([Phi, H.mT, gH]))
        return Phi_bar, -(gH * H).sum(), None


class SquaredResidual(Function):
    """S = ‖Y − Φw‖² for each output (c,), w = A⁻¹ΦᵀY; see the module docstring."""

    @staticmethod
    def forward(ctx: Any, Phi: Tensor, Y: Tensor, alpha: Tensor, factor: Any) -> Tensor:
        w = factor.weights(Y)
        r = Y - Phi @ w
        ctx.save_for_backward(Phi, w, r)
        ctx.factor = factor
        return r.square().sum(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        Phi, w, r = ctx.saved_tensors
        r_bar = 2 * g * r
        z = ctx.factor.solve(Phi.mT @ r_bar)  # (m, c)
        Y_bar = r_bar - Phi @ z
        Phi_bar = -torch.cat([Y_bar, r], 1) @ torch.cat([w, z], 1).mT
        return Phi_bar, Y_bar, (z * w).sum(), None


class Unexplained(Function):
    """R = M − N N⁺M, what the columns of N leave of M at constant rank; see the module docstring."""

    @staticmethod
    def forward(ctx: Any, M: Tensor, N: Tensor, pinv: Tensor) -> Tensor:
        b = pinv @ M
        R = M - N @ b
        R = R - N @ (pinv @ R)  # one refinement: the projection is orthogonal to rounding
        ctx.save_for_backward(N, pinv, b, R)
        return R

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor, Tensor | None, None]:
        N, pinv, b, R = ctx.saved_tensors
        c = pinv @ G
        M_bar = G - N @ c
        N_bar = -(M_bar @ b.mT + R @ c.mT) if ctx.needs_input_grad[1] else None
        return M_bar, N_bar, None

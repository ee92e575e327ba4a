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
        r = torch.addmm(Y, Phi, w, alpha=-1)
        ctx.save_for_backward(Phi, w, r)
        ctx.factor = factor
        return r.square().sum(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        Phi, w, r = ctx.saved_tensors
        r_bar = 2 * g * r
        z = ctx.factor.solve(Phi.mT @ r_bar)  # (m, c)
        Y_bar = torch.addmm(r_bar, Phi, z, alpha=-1)
        Phi_bar = torch.mm(torch.cat([Y_bar, r], 1), torch.cat([w, z], 1).mT.neg())
        return Phi_bar, Y_bar, (z * w).sum(), None


class Unexplained(Function):
    """R = M − N N⁺M for M = Φ_a C^{−1/2} and √W Y: what the columns of N leave, at constant rank.

    Takes Φ and Y as they are and what `Columns` says of them, so that weighing, splitting and projecting
    are one step back. Returns the squares of M's columns too, which have no gradient.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        Phi, Y, columns, pinv = arguments
        atoms, N = columns.split(columns.weighted(Phi))
        found = []
        for M in (atoms, columns.weighted(Y)):
            b = pinv @ M
            R = torch.addmm(M, N, b, alpha=-1)
            R.addmm_(
                N, pinv @ R, alpha=-1
            )  # one refinement: the projection is orthogonal to rounding
            found += [R, b]
        ctx.save_for_backward(N, pinv, *found)
        ctx.columns = columns
        whole = atoms.square().sum(0)
        ctx.mark_non_differentiable(whole)
        ctx.set_materialize_grads(False)
        return found[0], found[2], whole

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad: Tensor | None) -> tuple[Tensor | None, Tensor | None, None, None]:
        N, pinv, *found = ctx.saved_tensors
        N_bar, each = torch.zeros_like(N), []
        for G, R, b in zip(grad[:2], found[::2], found[1::2]):
            if G is None:
                each.append(torch.zeros_like(R))
                continue
            c = pinv @ G
            M_bar = torch.addmm(G, N, c, alpha=-1)
            N_bar.addmm_(M_bar, b.mT, alpha=-1).addmm_(R, c.mT, alpha=-1)
            each.append(M_bar)
        Phi_bar = ctx.columns.joined(each[0], N_bar) if ctx.needs_input_grad[0] else None
        Y_bar = ctx.columns.weighted(each[1]) if ctx.needs_input_grad[1] else None
        return Phi_bar, Y_bar, None, None

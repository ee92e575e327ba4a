"""Fused evaluation of Φ_nr = Σ_k γ_k Π_j I_krj(ξ_nj), without a tensor of n·r·k·d entries.

Two routes. Where log I is quadratic in ξ (Gaussian and point atoms under Gaussian kernels) the sum over
axes is one matrix product and Φ costs one GEMM and one exp. Everything else multiplies factors axis by
axis inside a block of rows, which is computed again in the backward pass.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from greenfold.design import widest
from greenfold.green.quick import Blocks, gaussian

LOG2E = math.log2(math.e)
TILE = 2**18  # entries of a row block of exp(F Wᵀ): 1 MB in float32, so it stays in cache
BLOCK = 2**20  # entries of a row block of one factor


def exp_quadratic(xi: Tensor, A: Tensor, B: Tensor, C: Tensor, log_gamma: Tensor) -> Tensor:
    """Φ_nr = Σ_k exp(log γ_k + Σ_j −½ A_krj ξ_nj² + B_krj ξ_nj + C_krj).

    Parameters
    ----------
    xi : Tensor of shape (n, d)
    A, B, C : float64 tensors of shape (k, r, d)
    log_gamma : float64 tensor of shape (k,)

    Returns
    -------
    Tensor of shape (n, r), in the dtype of `xi`. Float32 input is evaluated in float64 when a width
    is below 1/20 of the coordinates' range, where the expanded square would lose too many digits.
    """
    k, r, d = A.shape
    with torch.no_grad():  # the value does not depend on where the square is expanded
        center = (B / A.clamp_min(1e-300)).mean((0, 1)) * (A.amin((0, 1)) > 0)  # (d,)
    eta = xi.double() - center  # (n, d)
    C = C + B * center - A * center**2 / 2
    B = B - A * center
    constant = C.sum(-1) + log_gamma[:, None]  # (k, r)
    W = torch.cat([-A / 2, B, constant[..., None]], dim=-1).reshape(k * r, 2 * d + 1)
    dtype = xi.dtype
    if dtype != torch.float64 and xi.numel():
        narrow = A.detach().amax((0, 1)).sqrt() * eta.detach().abs().amax(0)  # range / width, (d,)
        dtype = torch.float64 if float(narrow.max()) > 20 else dtype
    Phi: Tensor = _ExpSum.apply(eta.to(dtype), W.to(dtype), k)
    return Phi.to(xi.dtype)


def _features(eta: Tensor) -> Tensor:
    """F = [η², η, 1], shape (n, 2d + 1)."""
    return torch.cat([eta**2, eta, torch.ones_like(eta[:, :1])], dim=1)


class _ExpSum(torch.autograd.Function):
    """(η (n, d), W (k·r, 2d + 1)) → Σ_k exp(F Wᵀ) (n, r) with F = [η², η, 1], a block of rows at a time.

    With T = Ḡ ∘ exp(F Wᵀ) the gradients are F̄ = T W and W̄ = Tᵀ F; exp(F Wᵀ) is computed again rather
    than stored, unless it is a single block.
    """

    @staticmethod
    def forward(ctx: Any, eta: Tensor, W: Tensor, k: int) -> Tensor:
        ctx.k = k
        n, r = len(eta), len(W) // k
        Phi = eta.new_empty(n, r)
        rows = max(1, TILE // max(len(W), 1))
        tile = eta.new_empty(min(rows, n), len(W))
        for i in range(0, n, rows):
            F = _features(eta[i : i + rows])
            E = torch.mm(F, W.T, out=tile[: len(F)]).exp_()
            torch.sum(E.view(-1, k, r), 1, out=Phi[i : i + rows])
        ctx.save_for_backward(eta, W, *([tile] if n <= rows and any(ctx.needs_input_grad) else []))
        return Phi

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (G,) = grad
        eta, W, *kept = ctx.saved_tensors
        k, r, d = ctx.k, len(W) // ctx.k, eta.shape[1]
        if torch.is_grad_enabled():  # second derivatives: the same formula, left to autograd
            F = _features(eta)
            T = (torch.exp(F @ W.T).view(-1, k, r) * G[:, None]).reshape(len(F), -1)
            F_bar = T @ W
            return 2 * eta * F_bar[:, :d] + F_bar[:, d:-1], T.T @ F, None
        eta_bar, W_bar = torch.empty_like(eta), torch.zeros_like(W)
        rows = max(1, TILE // max(len(W), 1))
        tile = eta.new_empty(min(rows, len(eta)), len(W))
        for i in range(0, len(eta), rows):
            block = eta[i : i + rows]
            F = _features(block)
            E = kept[0] if kept else torch.mm(F, W.T, out=tile[: len(F)]).exp_()
            T = tile[: len(F)]
            torch.mul(E.view(-1, k, r), G[i : i + rows, None], out=T.view(-1, k, r))
            F_bar = torch.mm(T, W)
            torch.addcmul(F_bar[:, d:-1], F_bar[:, :d], block, value=2, out=eta_bar[i : i + rows])
            W_bar.T.addmm_(F.T, T)
        return eta_bar, W_bar, None


def exp_radial(
    xi: Tensor,
    mu: Tensor,
    precision: Tensor,
    log_weight: Tensor,
    gate: Tensor | None = None,
    gamma: Tensor | None = None,
) -> Tensor:
    """Φ_nr = Σ_k γ_k exp(log_weight_k − ½ precision_k Σ_j g_j (ξ_nj − μ_rj)²): isotropic kernels.

    All terms share one matrix of distances, so that a term costs its exponentials and nothing in d.

    Parameters
    ----------
    xi, mu : Tensor of shape (n, d), (r, d)
    precision, log_weight : tensors of shape (k,)
    gate : Tensor of shape (d,), optional
        g; ones when omitted.
    gamma : Tensor of shape (k,), optional
        Weights of any sign; ones when omitted.
    """
    own, wide = xi.dtype, widest(xi.device)
    exact = own if mu.dtype == own else wide
    xi, mu = xi.to(exact), mu.to(exact)
    center = mu.detach().mean(0)  # (d,): the value does not depend on where the square is expanded
    dtype = enough(xi.to(own), mu, precision.max().sqrt())
    terms = [v if v is None else v.to(dtype) for v in (precision, log_weight, gate, gamma)]
    if torch.is_grad_enabled() and any(v is not None and v.requires_grad for v in (xi, mu, *terms)):
        Phi: Tensor = _RadialSum.apply(xi, mu, *terms, center, dtype)
        return Phi.to(own)
    return _radial_sum((xi - center).to(dtype), (mu - center).to(dtype), *terms).to(own)


def radial_blocks(
    xi: Tensor, mu: Tensor, precision: Tensor, log_weight: Tensor, gate: Tensor | None
) -> Blocks:
    """The same of a single term, where nothing asks for gradients."""
    root = precision.sqrt() if gate is None else (precision * gate).sqrt()
    return gaussian(xi * root, mu * root, enough(xi, mu, root), float(log_weight.exp()))


def enough(xi: Tensor, mu: Tensor, root: Tensor) -> torch.dtype:
    """ξ's dtype, or float64 where squares of root∘ξ would lose too many digits in it."""
    wide = widest(xi.device)
    if xi.dtype == wide or not xi.numel():
        return xi.dtype
    eta = xi.detach() - mu.detach().mean(0).to(xi.dtype)
    return wide if float((eta * root.detach()).abs().amax()) > 20 else xi.dtype


def _radial_sum(
    eta: Tensor, mu: Tensor, p: Any, c: Any, gate: Tensor | None, gamma: Tensor | None
) -> Tensor:
    """The same where nothing asks for gradients, in one piece."""
    gamma = torch.ones_like(p) if gamma is None else gamma
    if len(p) > 1:
        Q = _distances(eta, mu, gate)
        if Q.numel() * len(p) <= TILE:
            return (gamma @ _terms(Q, -p / 2, c)).view_as(Q)
        Phi = torch.zeros_like(Q)
        for slope, level, weight in zip(-p / 2, c, gamma, strict=True):
            Phi += (slope * Q).add_(level).exp_().mul_(weight)
        return Phi
    # the exponent is c − ½p|η|² − ½p|μ|² + p η·μ, at most c
    Phi = torch.addmm(-p / 2 * _squares(mu, gate).T, eta, (p * _gated(mu, gate)).T)
    return Phi.add_(c - p / 2 * _squares(eta, gate)).clamp_max_(c[0]).exp_().mul_(gamma)


def square_distances(xi: Tensor, mu: Tensor, scale: Tensor) -> Tensor:
    """Σ_j scale_j (ξ_nj − μ_rj)², (n, r), in float64 or, where that is enough, in ξ's dtype."""
    dtype = enough(xi, mu, scale.sqrt())
    center = mu.detach().double().mean(0)  # (d,)
    a, b = ((z.double() - center).to(dtype) for z in (xi, mu))
    scale = scale.to(dtype)
    sums = a.square() @ scale[:, None] + b.square() @ scale
    return torch.addmm(sums, a * scale, b.T, alpha=-2).clamp_min(0)


def _gated(eta: Tensor, gate: Tensor | None) -> Tensor:
    return eta if gate is None else eta * gate


def _squares(eta: Tensor, gate: Tensor | None) -> Tensor:
    """Σ_j g_j η_nj², shape (n, 1): a product, since sums over few columns are slow."""
    gate = eta.new_ones(eta.shape[1]) if gate is None else gate
    return eta.square() @ gate[:, None]


def _distances(eta: Tensor, mu: Tensor, gate: Tensor | None) -> Tensor:
    """Q_nr = Σ_j g_j (η_nj − μ_rj)², shape (n, r)."""
    squares = _squares(eta, gate) + _squares(mu, gate).T
    return torch.addmm(squares, _gated(eta, gate), mu.T, alpha=-2).clamp_min_(0)


class _RadialSum(torch.autograd.Function):
    """(ξ (n, d), μ (r, d), p, c (k,), g (d,), γ (k,)) → Σ_k γ_k E_k (n, r), E_k = exp(c_k − ½ p_k Q).

    With M = Ḡ ∘ ∂Φ/∂Q = −½ Ḡ ∘ Σ_k γ_k p_k E_k the gradients are ξ̄_n = 2g Σ_r M_nr (ξ_n − μ_r), likewise
    μ̄, and ḡ = Σ_nr M_nr (ξ_n − μ_r)²; p̄_k = −½γ_k⟨Ḡ ∘ Q, E_k⟩, c̄_k = γ_k γ̄_k, γ̄_k = ⟨Ḡ, E_k⟩. Terms are
    kept for the latter when they fit in one block of rows and computed again otherwise. The square is
    expanded around a center, which changes no value and has no gradient.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        xi, mu, p, c, gate, gamma, center, dtype = arguments
        eta, at = (xi - center).to(dtype), (mu - center).to(dtype)
        n, k, r = len(eta), len(p), len(at)
        rows = max(1, TILE // max(k * r, 1))
        slopes = -p / 2
        sums = torch.stack(_sums(slopes, gamma))  # (2, k): Φ and ∂Φ/∂Q
        blocks: list[Tensor] = []
        kept: tuple[Tensor, ...] = ()
        for block in eta.split(rows) if n > rows else [eta]:
            Q = _distances(block, at, gate)
            E = _terms(Q, slopes, c)
            blocks.append((sums @ E).view(2, -1, r))
            if n <= rows and _of_terms(ctx):
                kept = Q, E
        both = blocks[0] if len(blocks) == 1 else torch.cat(blocks, 1)
        ctx.save_for_backward(*arguments[:-1], eta, at, both[1], *kept)
        return both[0]

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        (G,) = grad
        xi, mu, p, c, gate, gamma, center, eta, at, slope, *kept = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives: the same formulas, left to autograd
            eta, at = (xi - center).to(eta), (mu - center).to(at)
            Q = _distances(eta, at, gate)
            kept = [Q, _terms(Q, -p / 2, c)]
            slope = (_sums(-p / 2, gamma)[1] @ kept[1]).view_as(Q)
        M = G * slope
        across, down = M.sum(1, keepdim=True), M.sum(0)[:, None]
        toward = (at.T @ M.T).T  # (n, d); so and not M @ μ: long rows are quicker
        xi_bar = _gated(2 * (eta * across - toward), gate).to(xi)
        mu_bar = gate_bar = None
        if ctx.needs_input_grad[1]:
            mu_bar = _gated(2 * (at * down - (eta.T @ M).T), gate).to(mu)
        if ctx.needs_input_grad[4]:
            gate_bar = (eta * (eta * across - 2 * toward)).sum(0) + (at.square() * down).sum(0)
        if not _of_terms(ctx):
            return xi_bar, mu_bar, None, None, gate_bar, None, None, None
        if kept:
            Q, E = kept
        half, whole = torch.zeros_like(p), torch.zeros_like(c)
        rows = max(1, TILE // max(len(p) * len(at), 1)) if not kept else max(len(eta), 1)
        for i in range(0, len(eta), rows):
            if not kept:
                Q = _distances(eta[i : i + rows], at, gate)
                E = _terms(Q, -p / 2, c)
            block = G[i : i + rows]
            if ctx.needs_input_grad[2]:
                half = half - E @ (block * Q).ravel() / 2
            whole = whole + E @ block.ravel()
        if gamma is None:
            return xi_bar, mu_bar, half, whole, gate_bar, None, None, None
        return xi_bar, mu_bar, gamma * half, gamma * whole, gate_bar, whole, None, None


def _sums(slopes: Tensor, gamma: Tensor | None) -> list[Tensor]:
    """Weights (k,) of terms in Φ and in ∂Φ/∂Q."""
    return [torch.ones_like(slopes), slopes] if gamma is None else [gamma, gamma * slopes]


def _of_terms(ctx: Any) -> bool:
    """Do p, c or γ want gradients?"""
    needs = ctx.needs_input_grad
    return bool(needs[2] or needs[3] or needs[5])


def _terms(Q: Tensor, slope: Tensor, c: Tensor) -> Tensor:
    """exp(c_k + slope_k Q), shape (k, n·r), in one block of memory; powers of two are quicker."""
    c, slope = LOG2E * c[:, None], LOG2E * slope[:, None]
    return torch.mul(slope, Q.reshape(1, -1)).add_(c).exp2_()


def sum_of_products(
    xi: Tensor,
    factor: Callable[[Tensor, int], Tensor],
    gamma: Tensor,
    r: int,
    columns: Sequence[int | slice] | None = None,
    block_size: int = BLOCK,
) -> Tensor:
    """Φ_nr = Σ_k γ_k Π_j factor(ξ_nj, j)_kr for factors of any sign, in float64.

    `factor` maps ((n,), j) to (n, k, r), or (n, c) for `columns` that are slices. Multiplying
    axis after axis, autograd accumulates prefix and suffix products: no division, and exact where a
    factor is zero. Blocks of rows are computed again in the backward pass: memory does not grow with n.
    """

    def block(x: Tensor) -> Tensor:
        own = range(x.shape[1]) if columns is None else columns
        product = factor(x[:, own[0]], 0)
        for j in range(1, len(own)):
            product = product * factor(x[:, own[j]], j)
        return torch.einsum("nkr,k->nr", product, gamma)

    rows = max(1, block_size // max(len(gamma) * r, 1))
    blocks = xi.double().split(rows)
    if len(blocks) == 1 or not torch.is_grad_enabled():
        return torch.cat([block(x) for x in blocks]).to(xi.dtype)
    parts = [checkpoint(block, x, use_reentrant=False, preserve_rng_state=False) for x in blocks]
    return torch.cat(parts).to(xi.dtype)

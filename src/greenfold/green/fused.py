"""Φ of Gaussian sources under settled kernels in one step, forward and back: for training loops.

At 64 sources and 256 rows the exponentials of ten terms take a seventh of a millisecond, while fifty
small tensor operations around them take four times as long. Where kernels are the same along all axes,
nothing of them is learned and sources have one width σ, a kernel of variance V_k gives::

    p_k = 1/(σ² + V_k)      c_k = log γ_k + Σ_j (c + log σ + ½ log p_k)      E_k = exp(c_k − ½ p_k Q)

in the squared distance Q. Φ, ∂Φ/∂Q and ∂Φ/∂log σ are sums of the same terms, so that one product has all
three, no term is kept, and the way back has products with (n, r) only. Powers of two are taken, which
need half the time of e^x. `matrix.py` has the general route, which second derivatives go.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import Function

from greenfold.green.atoms import Atoms
from greenfold.green.matrix import LOG2E, TILE, exp_radial

Array = NDArray[np.float64]
LARGEST = 300.0  # |log σ|, of which squares are numbers


def response(xi: Tensor, atoms: Atoms, log_gamma: Tensor, V: Tensor, c: Tensor) -> Tensor | None:
    """Φ (n, r) of Gaussian atoms under kernels (k,); None where the general route has to go."""
    mu, log_sigma = atoms.mu, atoms.log_sigma
    if log_gamma.requires_grad or V.requires_grad or c.requires_grad:
        return None
    if not xi.is_cpu or not xi.dtype == mu.dtype == log_sigma.dtype == V.dtype == torch.float64:
        return None
    if log_sigma.numel() != 1 or not abs(log_sigma.item()) < LARGEST:
        return None
    d = mu.shape[1]
    level = [g + d * own for g, own in zip(log_gamma.tolist(), c.tolist(), strict=True)]
    Phi: Tensor = _OneWidth.apply(xi, mu, log_sigma, V.tolist(), level)
    return Phi


class _OneWidth(Function):
    """(ξ (n, d), μ (r, d), log σ) → Σ_k E_k (n, r).

    With M = Ḡ ∘ ∂Φ/∂Q: ξ̄_n = 2 Σ_r M_nr (ξ_n − μ_r), likewise μ̄; the slope in log σ is ⟨Ḡ, ∂Φ/∂log σ⟩.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        xi, mu, log_sigma, V, level = arguments
        ctx.save_for_backward(xi, mu, log_sigma)
        ctx.kernels = V, level
        (n, d), r = xi.shape, len(mu)
        exponents, weights = _terms(log_sigma.item(), V, level, d)
        a, b = _centered(xi, mu)
        Q1 = np.empty((2, n * r))  # Q and 1
        Q1[1] = 1.0
        Q = Q1[0].reshape(n, r)
        np.matmul(a, _crossed(b).T, out=Q)
        np.maximum(Q, 0.0, out=Q)
        sums = np.empty((4, n * r))
        size = max(1, TILE // len(V))
        for i in range(0, n * r, size):
            E = exponents @ Q1[:, i : i + size]
            torch.from_numpy(E).exp2_()
            np.matmul(weights, E, out=sums[:, i : i + size])
        Phi, slope, of_sigma, of_Q = sums.reshape(4, n, r)
        of_Q *= Q
        of_sigma += of_Q
        ctx.kept = a, b, slope, of_sigma
        return torch.from_numpy(Phi)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # second derivatives
            return *_again(ctx, grad[0]), None, None
        a, b, slope, of_sigma = ctx.kept
        log_sigma = ctx.saved_tensors[2]
        G = grad[0].numpy()
        M = G * slope
        xi_bar, mu_bar = _toward(M, a, b), _toward(M.T, b, a)
        sigma_bar = torch.full_like(log_sigma, float(np.add.reduce(G * of_sigma, None)))
        return torch.from_numpy(xi_bar), torch.from_numpy(mu_bar), sigma_bar, None, None


def _centered(xi: Tensor, mu: Tensor) -> tuple[Array, Array]:
    """Places and sources [η, 1, |η|²], (n, d + 2) and (r, d + 2), seen from the first source.

    Rounding is of squares of distances from there.
    """
    places, sources = xi.detach().numpy(), mu.detach().numpy()
    n, d = places.shape
    both = np.empty((n + len(sources), d + 2))
    eta = both[:, :d]
    np.subtract(places, sources[0], out=eta[:n])
    np.subtract(sources, sources[0], out=eta[n:])
    both[:, d] = 1.0
    np.add.reduce(eta * eta, 1, out=both[:, d + 1])
    return both[:n], both[n:]


def _crossed(b: Array) -> Array:
    """[−2η, |η|², 1] of [η, 1, |η|²]: their product has squared distances."""
    found = b * -2.0
    found[:, -2], found[:, -1] = b[:, -1], 1.0
    return found


def _toward(M: Array, a: Array, b: Array) -> Array:
    """2 Σ_r M_nr (a_n − b_r)."""
    sums = M @ b[:, :-1]  # Σ_r M_nr b_r, and Σ_r M_nr
    found: Array = a[:, :-2] * sums[:, -1:]
    found -= sums[:, :-1]
    found *= 2
    return found


def _terms(log_sigma: float, V: list[float], level: list[float], d: int) -> tuple[Array, Array]:
    """log₂ E_k as sums of Q and 1 (k, 2); Φ, ∂Φ/∂Q and, less Q times the last, ∂Φ/∂log σ, of E (4, k).

    Few numbers, for which a call of NumPy takes longer than a line of Python.
    """
    s2 = math.exp(2 * log_sigma)
    exponents, weights = [], []
    for v, own in zip(V, level, strict=True):
        p = 1 / (s2 + v)
        share = s2 * p
        c = own + d * (log_sigma + math.log(p) / 2)
        exponents.append((-p / 2 * LOG2E, c * LOG2E))
        weights.append((1.0, -p / 2, d * (1 - share), share * p))
    return np.array(exponents), np.array(weights).T


def _again(ctx: Any, G: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients that are functions of their own, by the general route."""
    xi, mu, log_sigma = ctx.saved_tensors
    V, level = (torch.tensor(v, dtype=torch.float64) for v in ctx.kernels)
    own = log_sigma.reshape(())
    wide = torch.exp(2 * own) + V
    Phi = exp_radial(xi, mu, 1 / wide, level + mu.shape[1] * (own - wide.log() / 2))
    needs = ctx.needs_input_grad[:3]
    wanted = [v for v, need in zip((xi, mu, log_sigma), needs, strict=True) if need]
    found = iter(torch.autograd.grad(Phi, wanted, G, create_graph=True))
    return tuple(next(found) if need else None for need in needs)

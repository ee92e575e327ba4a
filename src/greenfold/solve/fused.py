"""log RSS/n of few columns in one step, forward and back: for training loops, where overhead is the cost.

At 64 columns and 256 rows the solve takes a quarter of a millisecond, while a hundred small tensor
operations around it take four times as long. Where rows have no weights, atoms stand in front of at most
one free column and the Gram matrix keeps enough digits, all is a dozen calls of BLAS and LAPACK::

    N⁺ = Nᵀ/|N|²       R = (I − NN⁺)Φ_a     Ỹ = (I − NN⁺)Y     A = RᵀR + αI
    w = A⁻¹RᵀỸ         r = Ỹ − Rw           ℓ = log Σ_c |r_c|² − log nc
    z = A⁻¹Rᵀr̄ = αA⁻¹w̃, w̃ = 2ℓ'w           Ȳ = r̄ − Rz
    Φ̄_a = −Ȳwᵀ − rzᵀ   N̄ = −Φ̄_a(N⁺Φ_a)ᵀ − Ȳ(N⁺Y)ᵀ      ᾱ = ⟨z, w⟩

as Rᵀr = αw, and as r and Rz are orthogonal to N. `objectives.log_mse` has the general route.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.blas import dger
from scipy.linalg.lapack import dpotrf, dpotrs
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from greenfold.design import Design
from greenfold.solve.factor import EPS, SAFE_PIVOT, SMALLEST_FOR_CHOLESKY

Array = NDArray[np.float64]
TINY = float(np.finfo(np.float64).tiny)
MUCH = 1e-4  # of a column's square: if less is left of it, rounding shows


class Fused(NamedTuple):
    """What the step back needs of the step forward."""

    R: Array  # (n, m)
    r: Array  # (n, c)
    w: Array  # (m, c)
    L: Array  # (m, m)  L Lᵀ = A
    b: Array  # (q, m)  N⁺Φ_a
    b_Y: Array  # (q, c)  N⁺Y
    alpha: float
    squares: Array  # (c,)  of r, and no less than what rounding leaves
    counts: NDArray[np.bool_]  # (c,)  is it r's?

    @property
    def value(self) -> float:
        return math.log(self.squares.sum() / self.r.size)

    def back(self, slope: float) -> tuple[Array, Array, float]:
        """Φ̄ (n, p), Ȳ (n, c) and the slope in α."""
        (n, m), q = self.R.shape, len(self.b)
        f = 2 * slope / self.squares.sum() * self.counts  # (c,)
        z = dpotrs(self.L, self.alpha * f * self.w, lower=1)[0]
        Y_bar = f * self.r - self.R @ z
        Phi_bar = np.empty((n, m + q))
        atoms = Phi_bar[:, :m]
        np.matmul(np.concatenate([Y_bar, self.r], 1), -np.concatenate([self.w, z], 1).T, out=atoms)
        if q:
            Phi_bar[:, m:] = -(atoms @ self.b.T) - Y_bar @ self.b_Y.T
        return Phi_bar, Y_bar, float((z * self.w).sum())


@np.errstate(all="ignore")  # what is not finite is left to the general route, which says so
def fused(design: Design, Y: Tensor, alpha: float) -> Fused | None:
    """All of the step forward; None where the general route has to go."""
    Phi, penalty = design
    f64 = torch.float64
    if not (Phi.device.type == "cpu" and Phi.dtype == Y.dtype == f64 and Phi.ndim == Y.ndim == 2):
        return None
    c, columns, target = penalty.tolist(), Phi.detach().numpy(), Y.detach().numpy()
    n, p = columns.shape
    m = c.count(1.0)
    q = p - m
    shapes = len(target) == n >= m > 0 and 0 <= q <= 1 and target.shape[1] > 0
    if not shapes or not alpha > 0 or c != [1.0] * m + [0.0] * q:
        return None
    M = np.concatenate([columns[:, :m], target], 1)  # (n, m + c), in the end R and Ỹ
    null, whole, b = columns[:, m:].ravel(), 0.0, np.zeros((q, M.shape[1]))
    if q:
        whole = float(null @ null)
        if not 0 < whole < math.inf:
            return None
    for _ in range(2):
        if q:
            along = null @ M / whole
            dger(-1.0, along, null, a=M.T, overwrite_a=1)  # in place: Mᵀ is in Fortran's order
            b += along
        G = M.T @ M
        squares = G.diagonal()
        before = squares + whole * (b * b).sum(0)  # of columns with their part along N
        left = (squares / before)[:m].min()
        if not left < MUCH:  # otherwise a second time removes the rounding of the first
            break
    if not left > (EPS * n) ** 2:
        return None
    if not alpha >= SMALLEST_FOR_CHOLESKY * squares[:m].sum() / m:  # or something is not finite
        return None
    A = G[:m, :m].copy()
    A.flat[:: m + 1] += alpha
    d2 = A.diagonal().copy()
    L, failed = dpotrf(A.T, lower=1, overwrite_a=1)
    if failed or not (L.diagonal() ** 2 / d2).min() > SAFE_PIVOT:
        return None
    w = dpotrs(L, G[:m, m:], lower=1)[0]
    R = M[:, :m]
    r = M[:, m:] - R @ w
    square = np.square(r).sum(0)
    if not math.isfinite(square.sum()):
        return None
    least = EPS**2 * before[m:] + TINY
    return Fused(R, r, w, L, b[:, :m], b[:, m:], alpha, np.maximum(square, least), square >= least)


class LogMSE(Function):
    """ℓ (), of Φ (n, p), Y (n, c) and log α, from a `Fused`."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        Phi, ctx.found = arguments[0], arguments[3]
        return Phi.new_full((), ctx.found.value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        Phi_bar, Y_bar, slope = ctx.found.back(float(grad[0]))
        alpha_bar = grad[0].new_tensor(slope * ctx.found.alpha) if ctx.needs_input_grad[2] else None
        return torch.from_numpy(Phi_bar), torch.from_numpy(Y_bar), alpha_bar, None


def log_mse(design: Design, Y: Tensor, log_alpha: Tensor | float) -> Tensor | None:
    """ℓ, differentiable in Φ, Y and log α; None where the general route has to go."""
    learned = False
    if isinstance(log_alpha, Tensor):
        if log_alpha.ndim or not log_alpha.is_floating_point():
            return None
        learned, strength = log_alpha.requires_grad, log_alpha.item()
    else:
        strength = float(log_alpha)
    found = fused(design, Y, math.exp(min(strength, 700.0)))
    if found is None:
        return None
    value: Tensor = LogMSE.apply(design.Phi, Y, log_alpha if learned else None, found)
    return value

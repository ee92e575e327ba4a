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


class Fused(NamedTuple):
    """What the step back needs of the step forward."""

    R: Array  # (n, m)
    r: Array  # (n, c)
    w: Array  # (m, c)
    L: Array  # (m, m)  L Lᵀ = D⁻¹AD⁻¹
    d: Array  # (m,)  the diagonal of D
    b: Array  # (q, m)  N⁺Φ_a
    b_Y: Array  # (q, c)  N⁺Y
    alpha: float
    squares: Array  # (c,)  of r, and no less than what rounding leaves
    counts: NDArray[np.bool_]  # (c,)  is it r's?

    @property
    def value(self) -> float:
        return math.log(self.squares.sum() / self.r.size)

    def solve(self, B: Array) -> Array:
        """A⁻¹B of (m, c)."""
        found: Array = dpotrs(self.L, B / self.d[:, None], lower=1)[0] / self.d[:, None]
        return found

    def back(self, slope: float) -> tuple[Array, Array, float]:
        """Φ̄ (n, p), Ȳ (n, c) and the slope in α."""
        (n, m), q = self.R.shape, len(self.b)
        f = 2 * slope / self.squares.sum() * self.counts  # (c,)
        z = self.solve(self.alpha * f * self.w)
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
    c, columns, target = (M.detach().numpy() for M in (penalty, Phi, Y))
    m = int(np.count_nonzero(c))
    n, p = columns.shape
    shapes = len(c) == p and len(target) == n >= m > 0 and p - m <= 1 and target.shape[1] > 0
    if not shapes or not alpha > 0 or not (c[:m] == 1).all():
        return None
    null = np.ascontiguousarray(columns[:, m:])
    whole = float(null.ravel() @ null.ravel())
    if p > m and not 0 < whole < math.inf:
        return None
    pinv = null.T / (whole or 1.0)  # (q, n)
    R, b = _left(columns[:, :m], null, pinv)
    Yt, b_Y = _left(target, null, pinv)
    A = R.T @ R
    left = A.diagonal().copy()
    if not alpha >= SMALLEST_FOR_CHOLESKY * left.sum() / m:  # or something is not finite
        return None
    if (left <= (EPS * n) ** 2 * (left + whole * np.square(b).sum(0))).any():
        return None
    d = np.sqrt(left + alpha)
    A /= d
    A /= d[:, None]
    A[np.diag_indices(m)] = 1
    L, failed = dpotrf(A, lower=1)
    if failed or not L.diagonal().min() ** 2 > SAFE_PIVOT:
        return None
    w = dpotrs(L, (R.T @ Yt) / d[:, None], lower=1)[0] / d[:, None]
    r = Yt - R @ w
    square = np.square(r).sum(0)
    if not math.isfinite(square.sum()):
        return None
    least = EPS**2 * np.square(target).sum(0) + np.finfo(np.float64).tiny
    squares = np.maximum(square, least)
    return Fused(R, r, w, L, d, b, b_Y, alpha, squares, square >= least)


def _left(M: Array, null: Array, pinv: Array) -> tuple[Array, Array]:
    """M − N N⁺M and N⁺M; twice, as the second time removes the rounding of the first."""
    R = np.array(M, order="C")
    b = pinv @ R
    if len(b):
        for own in (b[0], None):
            row = (pinv @ R)[0] if own is None else own
            dger(-1.0, row, null[:, 0], a=R.T, overwrite_a=1)  # in place: R.T is in Fortran's order
    return R, b


class LogMSE(Function):
    """ℓ (), of Φ (n, p), Y (n, c) and log α, from a `Fused`."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        Phi, ctx.found = arguments[0], arguments[3]
        return Phi.new_tensor(ctx.found.value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        Phi_bar, Y_bar, slope = ctx.found.back(float(grad[0]))
        alpha_bar = grad[0].new_tensor(slope * ctx.found.alpha) if ctx.needs_input_grad[2] else None
        return torch.from_numpy(Phi_bar), torch.from_numpy(Y_bar), alpha_bar, None


def log_mse(design: Design, Y: Tensor, log_alpha: Tensor | float) -> Tensor | None:
    """ℓ, differentiable in Φ, Y and log α; None where the general route has to go."""
    learned = isinstance(log_alpha, Tensor) and log_alpha.requires_grad
    if isinstance(log_alpha, Tensor) and not (
        log_alpha.ndim == 0 and log_alpha.is_floating_point()
    ):
        return None
    found = fused(design, Y, math.exp(min(float(torch.as_tensor(log_alpha).detach()), 700.0)))
    if found is None:
        return None
    value: Tensor = LogMSE.apply(design.Phi, Y, log_alpha if learned else None, found)
    return value

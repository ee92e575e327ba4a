"""The evidence of an exact Gaussian process, given its kernel matrix.

The model is y ~ N(0, s A) with A = K + λ diag(1/w) + 1 1ᵀ, for rows of weight w (1 on average): a row of
weight 3 has a third of the noise, as if it were the mean of three. That copies agree exactly is not taken
as evidence, or a few copies would make λ vanish. The variance s is profiled out, so every row costs
(negative log evidence in nats, up to a constant)::

    L = ½ log s + log|A| / 2n,           s = yᵀ A⁻¹ y / n
    M = dL/dA = (A⁻¹ − α αᵀ / s) / 2n,   α = A⁻¹ y

Several outputs share A; their evidences are averaged, or they share s as well. No s counts as less than a
thousandth of their mean: an output without noise would outvote all others. With M in hand the
gradient in any number θ of the kernel is Σ_ij M_ij dK_ij/dθ: K is differentiated and its factor is not.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy import ndarray
from scipy.linalg import LinAlgError, solve
from scipy.linalg.lapack import dpotrf, dpotrs
from torch import Tensor

from greenfold.solve.criteria import LEAST_SHARE, UNIT, marginal


def covariance(K: ndarray, noise: float | ndarray) -> ndarray:
    """A = K + 1 1ᵀ and the noise λ/w, a number or (n,), on the diagonal."""
    A = K + 1.0
    A[np.diag_indices_from(A)] += noise
    return A


def factor(A: ndarray) -> ndarray:
    """Lower Cholesky factor, in the place of A; LinAlgError where that is not positive definite."""
    # A is symmetric: its transpose is the same matrix in the order of columns that LAPACK wants.
    L, failed = dpotrf(A.T, lower=1, clean=1, overwrite_a=1)
    if failed:
        raise LinAlgError("the covariance of the rows is not positive definite")
    return L


def inverse(L: ndarray) -> ndarray:
    """(L Lᵀ)⁻¹ by PyTorch, which inverts small triangles in half of SciPy's time."""
    full: ndarray = torch.cholesky_inverse(torch.from_numpy(L.T), upper=True).numpy()
    return full


class KernelFit(NamedTuple):
    """What the evidence knows of (K, Y) at one λ."""

    value: float  # L
    L: ndarray  # (n, n) lower Cholesky factor of A
    alpha: ndarray  # (n, c)  A⁻¹ y
    s: ndarray  # (c,)  variance
    vote: ndarray  # (c,)  by how much L rises with each, 2c dL/ds

    def inverse(self) -> ndarray:
        """A⁻¹ (n, n)."""
        return inverse(self.L)

    def slope(self) -> ndarray:
        """M = dL/dA (n, n)."""
        M = self.inverse()
        M -= (self.alpha * (self.vote / len(self.vote))) @ self.alpha.T
        M /= 2 * len(M)
        return M

    def left_out(self, folds: ndarray) -> ndarray:
        """Errors (n, c) of every fold without its rows: (A⁻¹)_own e = (A⁻¹ y)_own."""
        inverse, errors = self.inverse(), np.empty_like(self.alpha)
        for k in range(int(folds.max()) + 1):
            own = np.flatnonzero(folds == k)
            errors[own] = solve(inverse[np.ix_(own, own)], self.alpha[own], assume_a="pos")
        return errors


def kernel_evidence(
    K: ndarray, Y: ndarray, noise: float | ndarray, common: bool = False
) -> KernelFit:
    """Of K (n, n) with ones on its diagonal, Y (n, c) and the noise λ/w, a number or (n,).

    With `common` all outputs have one variance; otherwise each its own, no less than `LEAST_SHARE` says.
    """
    L = factor(covariance(K, noise))
    alpha, _ = dpotrs(L, Y, lower=1)  # backward stable; A⁻¹ y loses the last digits
    s = np.maximum((Y * alpha).mean(0), 1e-300)
    mean = s.mean()
    tied = (s < LEAST_SHARE * mean) | common  # that vote as the mean does
    vote = np.where(tied, 0.0, 1 / s) + tied.mean() / mean
    s = np.full_like(s, mean) if common else np.maximum(s, LEAST_SHARE * mean)
    logdet = 2 * np.log(np.diag(L)).sum()
    value = marginal(torch.from_numpy(len(L) * s), logdet, len(L)) - UNIT
    return KernelFit(float(value), L, alpha, s, vote)


class Evidence(torch.autograd.Function):
    """(K, log λ) → L, for kernels that autograd differentiates; Y and the weights are constants."""

    @staticmethod
    def forward(
        ctx: Any, K: Tensor, log_noise: Tensor, Y: Tensor, weight: Tensor, common: bool
    ) -> Tensor:
        noise = (log_noise.exp() / weight).numpy()
        fit = kernel_evidence(K.numpy(), Y.numpy(), noise, common)
        M = fit.slope()
        ctx.save_for_backward(torch.from_numpy(M))
        ctx.slope = float(np.diag(M) @ noise)
        return K.new_tensor(fit.value)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        (M,) = ctx.saved_tensors
        return grad[0] * M, grad[0] * ctx.slope, None, None, None

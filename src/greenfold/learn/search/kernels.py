"""Kernels of the search, normalized to k(z, z) = 1, and their derivatives."""

import numpy as np
import torch
from numpy import ndarray
from scipy.spatial.distance import cdist


def kernel_matrix(kernel: str, Z: ndarray, Z2: ndarray) -> ndarray:
    """k(z_i, z'_j): e^{−r²/2}, 1/(1 + r²/2) or the product e^{−Σ_j|δ_j|}."""
    if kernel == "laplace":
        K = cdist(Z, Z2, "cityblock")
        return np.exp(np.negative(K, out=K), out=K)
    norms, norms2 = (Z**2).sum(1)[:, None] / 2, (Z2**2).sum(1)[:, None] / 2
    left = np.hstack([Z, norms, np.ones_like(norms)])
    right = np.hstack([Z2, -np.ones_like(norms2), -norms2])
    K = left @ right.T  # −r²/2 (n, n')
    np.minimum(K, 0, out=K)
    if kernel == "gaussian":
        return np.exp(K, out=K)
    return np.reciprocal(np.subtract(1, K, out=K), out=K)


def contract(kernel: str, Z: ndarray, K: ndarray, M: ndarray) -> ndarray:
    """Σ_j M_ij ∂k(z_i, z_j)/∂z_i, shape (n, d)."""
    B = M * K
    if kernel == "laplace":  # −Σ_j B_ij sign(z_i − z_j) is how Σ_ij B_ij |z_i − z'_j| falls with z
        with torch.enable_grad():
            z = torch.from_numpy(np.ascontiguousarray(Z)).requires_grad_()
            # of a number: gradients of a matrix import symbolic algebra first
            total = (torch.cdist(z, z.detach(), p=1.0) * torch.from_numpy(B)).sum()
            return -torch.autograd.grad(total, z)[0].numpy()
    if kernel == "cauchy":
        B *= K
    return B @ Z - B.sum(1)[:, None] * Z

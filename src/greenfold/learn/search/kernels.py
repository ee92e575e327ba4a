"""Kernels of the search, normalised to k(z, z) = 1, and their derivatives."""

import numpy as np
from numpy import ndarray
from scipy.spatial.distance import cdist


def kernel_matrix(kernel: str, Z: ndarray, Z2: ndarray) -> ndarray:
    """k(z_i, z'_j): e^{−r²/2}, 1/(1 + r²/2) or the product e^{−Σ_j|δ_j|}."""
    if kernel == "laplace":
        return np.exp(-cdist(Z, Z2, "cityblock"))
    r2 = (Z**2).sum(1)[:, None] + (Z2**2).sum(1) - 2 * Z @ Z2.T  # (n, n')
    half = np.maximum(r2, 0) / 2
    return np.exp(-half) if kernel == "gaussian" else 1 / (1 + half)


def contract(kernel: str, Z: ndarray, K: ndarray, M: ndarray) -> ndarray:
    """Σ_j M_ij ∂k(z_i, z_j)/∂z_i, shape (n, d)."""
    if kernel == "laplace":
        B = M * K
        return np.stack([-(B * np.sign(z[:, None] - z)).sum(1) for z in Z.T], axis=1)
    B = M * K if kernel == "gaussian" else M * K**2
    return B @ Z - B.sum(1)[:, None] * Z

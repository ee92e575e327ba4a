"""Gaussian kernel ridge with everything left out that should be.

    f(z) = m + Σ_j k(z, z_j) α_j,      α = A⁻¹ (Y − m),      A = K + λ I

Without row i the weights are α − A⁻¹e_i α_i / (A⁻¹)_ii, so predictions at row i, or anywhere else, by a
fit that never saw row i cost no refit.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.neighbors import NearestNeighbors

Array = NDArray[np.float64]

WIDTHS = (1.5, 3.0, 6.0, 12.0)  # in units of the median distance to the eighth neighbor
STRENGTHS = tuple(10.0**-p for p in (10, 8, 6, 5, 4, 3, 2, 1, 0))


def squared_distances(A: Array, B: Array) -> Array:
    r2 = (A**2).sum(1)[:, None] + (B**2).sum(1) - 2 * A @ B.T
    return np.maximum(r2, 0)


@dataclass(frozen=True)
class Spectrum:
    """Eigenvectors of K(Z, Z) at one width."""

    Z: Array
    width: float
    values: Array
    U: Array

    @classmethod
    def of(cls, Z: Array, width: float) -> "Spectrum":
        K = np.exp(-squared_distances(Z, Z) / (2 * width**2))
        values, U = eigh(K, driver="evd")
        return cls(Z, width, np.maximum(values, 0), U)

    def left_out(self, along: Array, strength: float) -> Array:
        """Residuals (N, c) of centered Y at each row by the fit without it; `along` is Uᵀ Y."""
        inverse = 1 / (self.values + strength)
        alpha = self.U @ (inverse[:, None] * along)
        return alpha / (self.U**2 @ inverse)[:, None]

    def strength(self, Y: Array) -> tuple[float, float]:
        """The smallest mean squared left-out residual, and the λ that has it."""
        along = self.U.T @ Y
        scores = [float((self.left_out(along, s) ** 2).mean()) for s in STRENGTHS]
        best = int(np.argmin(scores))
        return scores[best], STRENGTHS[best]


@dataclass(frozen=True)
class KernelRidge:
    Z: Array  # (N, d)
    width: float
    mean: Array  # (c,)
    alpha: Array  # (N, c)
    inverse: Array  # A⁻¹ (N, N)

    @classmethod
    def fit(cls, spectrum: Spectrum, Y: Array) -> "KernelRidge":
        mean = Y.mean(0)
        _, strength = spectrum.strength(Y - mean)
        inverse = (spectrum.U / (spectrum.values + strength)) @ spectrum.U.T
        return cls(spectrum.Z, spectrum.width, mean, inverse @ (Y - mean), inverse)

    def kernel(self, z: Array) -> Array:
        return np.exp(-squared_distances(z, self.Z) / (2 * self.width**2))

    def __call__(self, z: Array) -> Array:
        return self.mean + self.kernel(z) @ self.alpha

    def without(self, z: Array) -> Array:
        """f₋ᵢ(z_i): row i of z by the fit that never saw row i."""
        k = self.kernel(z)
        own = (k * self.inverse).sum(1) / np.diag(self.inverse)
        return self.mean + k @ self.alpha - own[:, None] * self.alpha

    def jacobian(self, z: Array) -> Array:
        """∂f/∂z at each row, (n, c, d)."""
        k = self.kernel(z)
        columns = [
            (k * (self.Z[:, j] - z[:, j][:, None])) @ self.alpha / self.width**2
            for j in range(z.shape[1])
        ]
        return np.stack(columns, axis=2)


def spacing(Z: Array) -> float:
    """Median distance to the eighth neighbor; the spread where many rows coincide."""
    r, _ = NearestNeighbors(n_neighbors=min(8, len(Z) - 1)).fit(Z).kneighbors()
    return float(np.median(r[:, -1])) or float(Z.std()) or 1.0


def best_spectrum(Z: Array, Y: Array, limit: int = 500) -> Spectrum:
    """The width with the smallest left-out error on at most `limit` rows, then all rows at it."""
    step = max(1, -(-len(Z) // limit))
    few, target = Z[::step], Y[::step] - Y[::step].mean(0)
    unit = spacing(few)
    tries = [(Spectrum.of(few, w * unit).strength(target)[0], w) for w in WIDTHS]
    return Spectrum.of(Z, min(tries)[1] * unit)

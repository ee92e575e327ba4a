"""How parameters θ make the matrix W of a chart z = W x, and what prior they have."""

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

TAUS = (0.3, 1.0, 3.0, 10.0)  # prior widths of a free W; the fit itself uses τ = 3


@dataclass(frozen=True)
class Linear:
    """Free W (d, q) on the first q coordinates; θ = W, prior N(0, 3²)."""

    d: int
    q: int
    taus = TAUS
    scale = 3.0

    def W(self, theta: ndarray) -> ndarray:
        return theta.reshape(self.d, self.q)

    def pull(self, theta: ndarray, dW: ndarray) -> ndarray:
        return dW.ravel()

    def deviation(self, theta: ndarray) -> ndarray:
        return theta / self.scale

    def jacobian(self, theta: ndarray, G: ndarray, X: ndarray) -> ndarray:
        return self.scale * (G[:, :, None] * X[:, None, : self.q]).reshape(len(X), -1)


@dataclass(frozen=True)
class Axes:
    """W = diag(e^θ) on q coordinates, or e^θ I when `tied`; prior N(−½ log q − ½, 3)."""

    q: int
    tied: bool = False
    taus = (3.0,)
    scale = np.sqrt(3.0)

    def W(self, theta: ndarray) -> ndarray:
        return np.diag(np.exp(np.broadcast_to(np.clip(theta, -50, 50), self.q)))

    def pull(self, theta: ndarray, dW: ndarray) -> ndarray:
        g = np.diag(dW) * np.exp(np.clip(theta, -50, 50))
        return g.sum(keepdims=True) if self.tied else g

    def deviation(self, theta: ndarray) -> ndarray:
        return (theta + 0.5 * np.log(self.q) + 0.5) / self.scale

    def jacobian(self, theta: ndarray, G: ndarray, X: ndarray) -> ndarray:
        J = self.scale * G * X[:, : self.q] * np.exp(theta)
        return J.sum(1, keepdims=True) if self.tied else J


Chart = Linear | Axes

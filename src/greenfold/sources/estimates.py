"""What was found, few sources or a field of them: both are read, summed and looked at in the same way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from greenfold.green import Gaussian, Transport
from greenfold.green.atoms import Atoms
from greenfold.model import IGL
from greenfold.sources.readings import Readings
from greenfold.sources.responses import columns, mass, source_atoms
from greenfold.sources.sparse import Found, field_and_slopes

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate(ABC):
    """Numbers x with a covariance, of which everything asked for is a function."""

    covariance: Array  # (k, k)
    noise: float  # variance of a reading of weight 1

    @abstractmethod
    def kind_of(self, mu: Tensor) -> Atoms:
        """Sources like those found, at places (m, d)."""

    @abstractmethod
    def read(self, operator: Transport, readings: Readings) -> tuple[Array, Array]:
        """What readings are expected to be (n,), and their slopes (n, k)."""

    @abstractmethod
    def source(self, x: Array) -> tuple[Array, Array]:
        """f at places (n,), and its slopes (n, k)."""

    @abstractmethod
    def total(self) -> tuple[float, Array]:
        """What all sources emit, and its slopes (k,)."""

    def std(self, slopes: Array) -> Array:
        """Standard deviations (n,) of what has these slopes (n, k)."""
        variance = np.einsum("nk,kl,nl->n", slopes, self.covariance, slopes)
        return np.sqrt(np.maximum(variance, 0))


@dataclass(frozen=True)
class Few(Estimate):
    """Places, strengths and physical numbers, in this order."""

    found: Found
    names: list[str]  # of the physical numbers
    width: float | None
    resolution: float

    def kind_of(self, mu: Tensor) -> Atoms:
        return source_atoms(mu, self.width, self.resolution)

    def atoms(self) -> Atoms:
        return self.kind_of(torch.from_numpy(self.found.mu))

    def read(self, operator: Transport, readings: Readings) -> tuple[Array, Array]:
        if not len(self.found.q):
            return np.zeros(len(readings)), np.zeros((len(readings), len(self.names)))
        return field_and_slopes(operator, readings, self.atoms(), self.found, self.names)

    def source(self, x: Array) -> tuple[Array, Array]:
        if self.width is None:
            raise ValueError(
                "point sources have no values: give `width`, the standard deviation of a source, to see "
                "them as a field; `sources_` has places and strengths."
            )
        n, (m, d), s2 = len(x), self.found.mu.shape, self.width**2
        if not m:
            return np.zeros(n), np.zeros((n, len(self.names)))
        delta = x[:, None] - self.found.mu  # (n, m, d)
        shape = np.exp(-np.square(delta).sum(-1) / (2 * s2)) * (2 * np.pi * s2) ** (-d / 2)
        places = (shape * self.found.q)[..., None] * delta / s2
        slopes = [places.reshape(n, -1), shape, np.zeros((n, len(self.names)))]
        return shape @ self.found.q, np.hstack(slopes)

    def total(self) -> tuple[float, Array]:
        m, d = self.found.mu.shape
        slopes = np.zeros(len(self.covariance))
        slopes[m * d : m * (d + 1)] = 1.0
        return float(self.found.q.sum()), slopes


@dataclass(frozen=True)
class Spread(Estimate):
    """Strengths of Gaussians on a grid."""

    model: IGL

    def kind_of(self, mu: Tensor) -> Atoms:
        return Gaussian(mu, float(self.atoms().sigma[0, 0]))

    def atoms(self) -> Gaussian:
        atoms = self.model.atoms()
        assert isinstance(atoms, Gaussian)
        return atoms

    @property
    def w(self) -> Array:
        return self.model.source_weights()[:, 0].numpy()

    def read(self, operator: Transport, readings: Readings) -> tuple[Array, Array]:
        Phi = columns(operator, readings, self.atoms()).numpy()
        return Phi @ self.w, Phi

    def source(self, x: Array) -> tuple[Array, Array]:
        phi = self.atoms()(torch.from_numpy(x)).numpy()
        return phi @ self.w, phi

    def total(self) -> tuple[float, Array]:
        slopes = mass(self.atoms()).numpy()
        return float(slopes @ self.w), slopes

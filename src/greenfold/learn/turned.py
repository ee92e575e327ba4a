"""Directions along which y changes: linear charts from the slopes of their own response.

With u the response of a chart z = W x, the mean M = E ∇u ∇uᵀ says how much u changes along every
direction of x. The chart z = s M^{½} x stretches the directions that matter and drops those that do
not. A response on it is better, and so are its slopes: a few rounds are enough. Means of outer
products of gradients are an old way to reduce dimension; that kernel machines learn features so,
round by round, is due to Radhakrishnan et al., Science 383 (2024), 1461–1467.

The slopes have seen the rows, so what judges such a chart are rows that had no part in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from scipy.linalg import LinAlgError
from torch import Tensor

from greenfold.learn.axes import Radial
from greenfold.learn.candidates import (
    AMPLE,
    FEW,
    Candidate,
    Fit,
    OneScale,
    cauchy,
    exponential,
    few_scales,
    of_size_one,
    size_of,
)
from greenfold.learn.data import Data
from greenfold.learn.fit import scanned
from greenfold.solve.kernel import kernel_evidence

ROUNDS = 3  # charts from the slopes of the one before, at most
MOST = 2000  # rows that slopes are taken at, unless it goes on
SCANNED = 800  # rows that tell λ at the end
NOISE = 1e-2  # λ to begin from: from less, few rows do not find the way back
GAIN = 0.003  # nats of evidence that another has to gain
TOGETHER = 16  # outputs whose slopes are one product of matrices
SMALL = 1e-3  # of the largest scale: a direction along which nothing changes


@dataclass(frozen=True)
class Turned(OneScale):
    """A linear chart from the slopes of its response, at first on the columns' own scales."""

    equal: bool = field(default=False, kw_only=True)  # does it begin from equal scales?

    @property
    def kind(self) -> object:
        return Turned

    @property
    def warm(self) -> bool:
        return False  # its directions would remember those rows

    @property
    def grows(self) -> int:
        return 1

    def among(self, data: Data, judges: Data) -> Candidate:
        """Scales of columns know the classes of all rows, and of few rows that tells.

        What judges and what is judged begin alike, so it is settled for all folds at once.
        """
        few = len(data.head(MOST)) < AMPLE * data.x.shape[1]
        return replace(self, equal=True) if data.judge.common and few else self

    @torch.no_grad()
    def learn(self, data: Data, start: Fit, steps: int) -> Fit:
        """From the scales of columns: directions of another fit have seen other rows. Its own go on."""
        again, D = start.candidate is self, data.x.shape[1]
        data = data if again else data.head(MOST)
        W = start.chart(torch.eye(D).double()) - start.chart(torch.zeros(1, D).double())  # (D, d)
        F = W.mT if again else torch.ones(D).double() if self.equal else W.norm(dim=1)
        few = data.head(FEW)
        best = self.at_scale(of_size_one(F, data), few, NOISE, steps)
        for _ in range(1 if again else ROUNDS):
            F, s = of_size_one(root(slopes(best, data)), data), size_of(best.chart(data.x))
            fit = self.at_scale(F, few, NOISE, steps, s)
            if not fit.evidence < best.evidence - GAIN:
                break
            best = fit
        some = data.head(SCANNED)
        noise = scanned(best.kernel(some.x), some, max(best.noise, NOISE))
        return replace(best, noise=noise, rows=len(data))


@torch.no_grad()
def slopes(fit: Fit, data: Data) -> Tensor:
    """M (D, D): the mean outer product of the gradients of u at the rows, drawn to its diagonal.

    Few rows say little of how columns go together.
    """
    assert isinstance(fit.candidate, OneScale)
    W = fit.chart(torch.eye(data.x.shape[1]).double()).numpy().T  # (d, D)
    z, weight = (data.x.numpy() @ W.T), data.weight.numpy()
    K = fit.kernel(data.x)
    known = kernel_evidence(K, data.Y.numpy(), fit.noise / weight)
    fall = fit.candidate.kernel.fall(K)
    M = np.zeros((len(W), len(W)))
    for a in np.array_split(known.alpha, -(-known.alpha.shape[1] // TOGETHER), axis=1):
        pull = fall @ (a[:, :, None] * z[:, None]).reshape(len(z), -1)
        g = pull.reshape(*a.shape, -1) - (fall @ a)[:, :, None] * z[:, None]  # (n, c, d)
        M += np.einsum("n,nci,ncj->ij", weight / weight.sum(), g, g, optimize=True)
    M = W.T @ M @ W
    n, D = data.x.shape
    share = D / (n + D)
    return torch.from_numpy((1 - share) * M + share * np.diag(np.diag(M)))


def root(M: Tensor) -> Tensor:
    """F (d, D) with FᵀF = M, the largest first, without those along which next to nothing changes."""
    values, vectors = np.linalg.eigh(M.numpy())
    size = np.sqrt(np.maximum(values, 0.0))
    if not 0 < size.max() < np.inf:
        raise LinAlgError("the response has no slopes")
    kept = np.flatnonzero(size > SMALL * size.max())[::-1]
    return torch.from_numpy(size[kept, None] * vectors[:, kept].T)


def some_columns(data: Data) -> bool:
    return data.x.shape[1] > 1 and few_scales(data)


ROUGH = Turned(
    "turned.m12", Radial("exponential"), exponential, rigid=False, eager=True, suits=some_columns
)
TURNED = replace(ROUGH, name="turned.rq", kernel=Radial("cauchy"), operator=cauchy, rougher=ROUGH)

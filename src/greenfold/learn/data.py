"""Rows that models are learned from and judged by."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from greenfold.learn.axes import Pairs
from greenfold.learn.likelihoods import Gaussian, Likelihood
from greenfold.learn.units import Scaling

SAMPLE = 2000  # rows kept for `report`
PARTS = 10  # folds, unless the rows come with their own


@dataclass(frozen=True)
class Data:
    """Rows in random order, every column with unit variance."""

    x: Tensor  # (n, D)
    Y: Tensor  # (n, c), what charts learn from
    weight: Tensor  # (n,), 1 on average
    folds: Tensor  # (n,), numbered from 0; rows of one fold are left out together
    sd: Tensor  # (D,), what the columns were divided by
    spread: Tensor  # (D,), unit of the columns in what the user gave, up to a common one
    origin: Tensor  # (D,), their mean there
    seed: int = 0  # of charts that start at random
    likelihood: Likelihood = field(default_factory=Gaussian)

    def __len__(self) -> int:
        return len(self.x)

    @staticmethod
    def of(
        x: Tensor,
        Y: Tensor,
        weight: Tensor | None = None,
        seed: int = 0,
        likelihood: Likelihood | None = None,
        units: Scaling | None = None,
    ) -> Data:
        """Of rows (n, D) with mean 0, dealt out to folds in turn; `units` are those they came in."""
        sd = x.std(0, correction=0)
        sd = torch.where(sd > 1e-12 * x.abs().amax(0), sd, torch.ones_like(sd))
        weight = torch.ones(len(x), dtype=x.dtype) if weight is None else weight / weight.mean()
        folds = torch.arange(len(x)) % min(PARTS, len(x))
        units = Scaling.none(len(sd)) if units is None else units
        spread, origin = sd * torch.from_numpy(units.scale), torch.from_numpy(units.shift)
        return Data(x / sd, Y, weight, folds, sd, spread, origin, seed, likelihood or Gaussian())

    def take(self, rows: Tensor | slice) -> Data:
        parts = {name: getattr(self, name)[rows] for name in ("x", "Y", "weight", "folds")}
        return replace(self, **parts)

    def nats(self, errors: Tensor) -> float:
        """What errors on these rows cost a row, left out."""
        return self.likelihood.nats(errors.numpy(), self.Y.numpy(), self.weight.numpy())

    def head(self, n: int) -> Data:
        """The first n rows, which are as good as any n."""
        return self if n >= len(self) else self.take(slice(n))

    def without(self, fold: int) -> Data:
        return self.take(self.folds != fold)

    @cached_property
    def pairs(self) -> Pairs:
        """Kept, since candidates share it."""
        return Pairs.of(self.x.numpy())

    @property
    def n_effective(self) -> float:
        """As many rows as would carry the weights if these were equal."""
        return float(self.weight.sum() ** 2 / self.weight.square().sum())


def shuffled(x: np.ndarray, Y: np.ndarray, seed: int) -> np.ndarray:
    """Row numbers in a random order that depends neither on that of the rows nor of the columns."""
    order = np.lexsort(np.hstack([Y, np.sort(x, axis=1)]).T[::-1])
    return order[np.random.default_rng(seed).permutation(len(x))]

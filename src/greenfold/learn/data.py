"""Rows that models are learned from and judged by."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.model_selection import GroupKFold, check_cv
from sklearn.utils import check_consistent_length, column_or_1d
from torch import Tensor

from greenfold.channels import ordered
from greenfold.chart.frames import Squash
from greenfold.learn.axes import Pairs
from greenfold.learn.judges import Judge, Squares
from greenfold.learn.units import Scaling, evenly

SAMPLE = 2000  # rows kept for `report`
PARTS = 10  # folds, unless the rows come with their own


Folds = int | np.ndarray | None  # so many dealt out in turn, or one (n,) for every row


class Rows(NamedTuple):
    """What a fit is given, in the model's numbers."""

    x: Tensor  # (n, D)
    Y: Tensor  # (n, c)
    weight: Tensor | None = None  # (n,), None if all count alike
    folds: Tensor | int = PARTS  # (n,), or so many dealt out in turn

    @staticmethod
    def of(x: Tensor, Y: Tensor, weight: np.ndarray, folds: Folds) -> Rows:
        own = torch.from_numpy(folds) if isinstance(folds, np.ndarray) else folds or PARTS
        return Rows(x, Y, None if (weight == 1).all() else torch.from_numpy(weight), own)

    def take(self, some: Tensor | slice) -> Rows:
        weight = None if self.weight is None else self.weight[some]
        folds = self.folds[some] if isinstance(self.folds, Tensor) else self.folds
        return Rows(self.x[some], self.Y[some], weight, folds)

    @property
    def weights(self) -> Tensor:
        return torch.ones(len(self.x), dtype=torch.float64) if self.weight is None else self.weight

    def own(self, dealt: bool = False) -> Tensor | None:
        """Folds (n,) that were given; their number is dealt out if asked for."""
        if isinstance(self.folds, Tensor):
            return self.folds
        n = len(self.x)
        return (
            torch.from_numpy(np.random.default_rng(n).permutation(n) % self.folds)
            if dealt
            else None
        )

    @property
    def together(self) -> float:
        """How many belong together, on average."""
        folds = self.own()
        return 1.0 if folds is None else len(folds) / len(folds.unique())


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
    judge: Judge = field(default_factory=Squares)
    grouped: bool = False  # do rows of one fold belong together? Then no other split parts them
    ties: np.ndarray = field(default_factory=lambda: np.zeros(0, int))  # (D,), see `categories`
    channels: bool | None = (
        None  # do columns come in an order? None: see whether neighbors are alike
    )
    order: Tensor | None = None  # (D,), that of channels, unless it is the one they are in
    others: Tensor | None = None  # (m, D), rows without labels, which tell of units and neighbors
    shape: tuple[int, int, int] | None = None  # channels, height and width, if rows are pictures
    squash: Squash | None = None  # what x went through, where columns have long tails

    def __len__(self) -> int:
        return len(self.x)

    @staticmethod
    def of(
        x: Tensor,
        Y: Tensor,
        weight: Tensor | None = None,
        seed: int = 0,
        judge: Judge | None = None,
        units: Scaling | None = None,
        folds: Tensor | int = PARTS,
        channels: Any = None,
        others: Tensor | None = None,
    ) -> Data:
        """Of rows (n, D) with mean 0, dealt out to so many folds in turn, or in folds of their own.

        `units` are those they came in, `channels` what is known of their columns, `others` rows (m, D)
        without labels.
        """
        sd = (x if others is None else torch.cat([x, others])).std(0, correction=0)
        sd = torch.where(sd > 1e-12 * x.abs().amax(0), sd, torch.ones_like(sd))
        ties = categories(x.numpy())
        size = torch.from_numpy(np.bincount(ties, sd.square()) / np.bincount(ties)).sqrt()
        sd = torch.where(torch.from_numpy(np.bincount(ties)[ties] > 1), size[ties], sd)
        weight = torch.ones(len(x), dtype=x.dtype) if weight is None else weight / weight.mean()
        grouped = isinstance(folds, Tensor)
        if not isinstance(folds, Tensor):
            folds = torch.arange(len(x)) % min(folds, len(x))
        units = Scaling.none(len(sd)) if units is None else units
        spread, origin = sd * torch.from_numpy(units.scale), torch.from_numpy(units.shift)
        judge = judge or Squares()
        known, order = ordered(channels, len(sd))
        along = None if order is None else torch.from_numpy(order)
        rest = None if others is None else others / sd
        own = (seed, judge, grouped, ties, known, along, rest)
        return Data(x / sd, Y, weight, folds, sd, spread, origin, *own)

    def take(self, rows: Tensor | slice) -> Data:
        parts = {name: getattr(self, name)[rows] for name in ("x", "Y", "weight", "folds")}
        return replace(self, **parts)

    @torch.no_grad()
    def squashed(self, squash: Squash) -> Data:
        """As seen through it."""
        others = None if self.others is None else squash(self.others)
        return replace(self, x=squash(self.x), others=others, squash=squash)

    @property
    def looked_at(self) -> Tensor:
        """Rows (N, D) that tell what X looks like: these, and some of those without labels."""
        if self.others is None:
            return self.x
        some = torch.from_numpy(evenly(len(self.others), SAMPLE))
        return torch.cat([self.x, self.others[some]])

    def nats(self, errors: Tensor) -> float:
        """What errors on these rows cost a row, left out."""
        return self.judge.nats(errors.numpy(), self.Y.numpy(), self.weight.numpy())

    def head(self, n: int) -> Data:
        """The first n rows, which are as good as any n."""
        return self if n >= len(self) else self.take(slice(n))

    def without(self, fold: int) -> Data:
        return self.take(self.folds != fold)

    def coarse(self, k: int) -> Data:
        """The same rows in about k folds."""
        n = int(self.folds.max()) + 1
        folds = self.folds % min(k, n) if self.grouped else torch.arange(len(self)) % k
        return replace(self, folds=folds)

    def first(self, n: int) -> Tensor:
        """Which rows (n,) are the first n, or about as many in whole folds that belong together."""
        if not self.grouped:
            return torch.arange(len(self)) < n
        size = torch.bincount(self.folds).cumsum(0)
        return self.folds <= int((size <= n).sum().clamp(1, len(size) - 1)) - 1

    def shared(self, tied: bool) -> np.ndarray:
        """Groups (D,) of axes with one scale: levels of a category, or all of them."""
        return np.zeros_like(self.ties) if tied else self.ties

    @cached_property
    def pairs(self) -> Pairs:
        """Kept, since candidates share it."""
        return Pairs.of(self.x.numpy())

    def joined(self, tied: bool) -> Pairs:
        """Likewise, of groups of axes."""
        if tied not in self._joined:
            self._joined[tied] = Pairs.joined(self.x.numpy(), self.shared(tied))
        return self._joined[tied]

    @cached_property
    def _joined(self) -> dict[bool, Pairs]:
        return {}

    @property
    def n_effective(self) -> float:
        """As many rows as would carry the weights if these were equal."""
        return float(self.weight.sum() ** 2 / self.weight.square().sum())


def categories(x: np.ndarray) -> np.ndarray:
    """Numbers (D,) of groups: neighboring columns of which every row has exactly one are a group.

    Such are the levels of a category; those that no row has are constant columns among them. They share
    a unit and a scale: one scale for every level would be as many numbers as rows can learn by heart.
    """
    low, high = x.min(0), x.max(0)
    middle = (low + high) / 2
    two = ((x == low) | (x == high)).all(0)
    on = x > middle
    first, j, D = np.arange(x.shape[1]), 0, x.shape[1]  # column that a group begins with
    while j < D:
        count, end = np.zeros(len(x), int), j
        while end < D and two[end] and (count[on[:, end]] == 0).all():
            count += on[:, end]
            end += 1
        if end - j > 1 and (count == 1).all():
            first[j:end] = j
            j = end
        else:
            j += 1
    return np.unique(first, return_inverse=True)[1]


def folds_of(cv: Any, groups: Any, X: np.ndarray, y: Any) -> int | np.ndarray:
    """How rows are left out together: in so many folds in turn, or each (n,) in the fold of its own."""
    n = len(X)
    if groups is not None:
        groups = column_or_1d(groups)
        check_consistent_length(X, groups)
        found = len(np.unique(groups))
        if found < 2:
            raise ValueError(f"`groups` must tell at least 2 groups apart, got {found}.")
        if cv is None or isinstance(cv, int | np.integer):
            cv = GroupKFold(min(int(cv or PARTS), found))
    elif cv is None or isinstance(cv, int | np.integer):
        return PARTS if cv is None else int(cv)
    folds = np.full(n, -1)
    for k, (_, test) in enumerate(check_cv(cv).split(X, y, groups)):
        if (folds[test] >= 0).any():
            raise ValueError("`cv` must leave every row out once: its folds overlap.")
        folds[test] = k
    missing = int((folds < 0).sum())
    if missing or folds.max() < 1:
        raise ValueError(
            f"`cv` must leave every row out once, in at least 2 folds: {missing} of {n} rows are in none "
            f"of its {int(folds.max()) + 1}."
        )
    return folds


def shuffled(x: np.ndarray, Y: np.ndarray, seed: int) -> np.ndarray:
    """Row numbers in a random order that depends neither on that of the rows nor of the columns."""
    order = np.lexsort(np.hstack([Y, np.sort(x, axis=1)]).T[::-1])
    return order[np.random.default_rng(seed).permutation(len(x))]

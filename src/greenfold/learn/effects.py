"""What columns do by themselves, what pairs of them do beyond that, and how much each matters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from greenfold.learn.units import Array

LEAST = 1e-3  # share of a pair that is told of
MARKS = "=_:. ["  # between the name of a category and a level


@dataclass(frozen=True, eq=False)
class Effect:
    """What one column, or two beyond each of them, add to the prediction.

    The columns of a category are one, with a value for every level.
    """

    columns: tuple[str, ...]  # one name, or two
    share: float  # of the variance of the prediction
    grid: tuple[np.ndarray, ...]  # (q,) for each of the columns in its units, or names of levels
    weight: tuple[Array, ...]  # (q,) for each of the columns: share of the rows there
    values: Array  # (q,), or (q, q') for two, in the units of y; their mean is 0
    band: Array | None  # like `values`: values ± band hold the effect with probability 90%
    index: tuple[tuple[int, ...], ...] = ()  # numbers of the columns; several for a category

    def __str__(self) -> str:
        return f"{' × '.join(self.columns)} {self.share:.1%}"


@dataclass(frozen=True, eq=False)
class Effects(Sequence[Effect]):
    """The prediction as a mean plus effects of columns and of pairs, the largest share first.

    `effects["x3"]` and `effects["x0", "x1"]` find one by its names, `effects[0]` by its place.
    """

    all: tuple[Effect, ...]
    mean: float  # of the prediction, in the units of y
    deviation: float  # its standard deviation
    rest: float  # share of what is not listed: weaker pairs, and three columns or more together
    covered: float = 1.0  # weight in a stack of the charts that these are the effects of
    output: str = ""  # which target or class, where there are several, or what of it

    @property
    def mains(self) -> list[Effect]:
        return [effect for effect in self.all if len(effect.columns) == 1]

    @property
    def pairs(self) -> list[Effect]:
        return [effect for effect in self.all if len(effect.columns) == 2]

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[Effect]:
        return iter(self.all)

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, int | slice):
            return self.all[which]
        names = {which} if isinstance(which, str) else set(which)
        for effect in self.all:
            if set(effect.columns) == names:
                return effect
        raise KeyError(f"no effect of {' × '.join(sorted(names))}; there are {self.listed()}")

    def listed(self) -> str:
        return ", ".join(map(str, self.all))

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """A table: names, share of variance, and a bar."""
        shown = [(" × ".join(e.columns), e.share) for e in self.all if e.share >= LEAST / 2]
        shown.append(("everything else", self.rest))
        width = max(len(name) for name, _ in shown)
        head = [f"{self.output}:"] if self.output else []
        lines = [f"{name:<{width}} {v:6.1%} {'█' * round(40 * v)}".rstrip() for name, v in shown]
        if self.covered < 1:
            lines.append(f"of the charts that have effects, {self.covered:.0%} of the weight")
        return head + lines

    def told(self, names: Sequence[str] | None = None) -> list[str]:
        """Every effect that matters in a line of text."""
        own = self if names is None else self.named(names)
        lines = [str(effect) for effect in own if effect.share >= LEAST]
        head = f"{self.output}: " if self.output else ""
        return [f"{head}{line}" for line in [*lines, f"everything else {self.rest:.1%}"]]

    def named(self, names: Sequence[str]) -> Effects:
        """With other names of the columns (D,)."""
        told = []
        for effect in self.all:
            known = [label(columns, names) for columns in effect.index]
            grid = tuple(
                levels if len(columns) > 1 else old
                for columns, (_, levels), old in zip(effect.index, known, effect.grid)
            )
            told.append(replace(effect, columns=tuple(name for name, _ in known), grid=grid))
        return replace(self, all=tuple(told))


def label(columns: Sequence[int], names: Sequence[str]) -> tuple[str, np.ndarray]:
    """What a column is called, or the category of several, with its levels: 'color' of 'color=red', …"""
    own = [str(names[j]) for j in columns]
    if len(own) == 1:
        return own[0], np.array([])
    first = own[0]
    starts = [first[: i + 1] for i, letter in enumerate(first) if letter in MARKS]
    common = [start for start in starts if all(name.startswith(start) for name in own)]
    cut = len(common[-1]) if common else 0
    if cut > 1 and all(len(name) > cut for name in own):
        return first[: cut - 1], np.array([name[cut:].rstrip("]") for name in own])
    return f"{first}–{own[-1]}", np.array(own)

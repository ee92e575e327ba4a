"""Predictions as a mean and effects: of one model, or of several that are averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from greenfold.green.forms import NoForm
from greenfold.learn.effects import LEAST, Effect, Effects
from greenfold.learn.marginals import COLUMNS, Block, Marginals
from greenfold.learn.predictor import Member, Predictor, mixed
from greenfold.learn.products import Products, Rows
from greenfold.learn.units import Array, Scaling, Units, chunks

PAIRS = 10  # that are told of, at most
DRAWS = 8192  # rows of columns that do not depend on each other, for what is beyond pairs
NINETY = 1.6448536269514722  # standard deviations of a Gaussian that hold 90%
HALF = 0.5  # weight that members of a stack must have to speak for it


@dataclass(frozen=True)
class Told:
    """The outputs that effects are told of: u Q + shift, by name."""

    Q: Array  # (c, c')
    shift: Array  # (c',)
    names: list[str]  # (c',), empty text for the target itself

    @staticmethod
    def numbers(units: Units, names: list[str] | None) -> Told:
        """Targets in their units, or what a likelihood has in their place: logarithms, quantiles."""
        y, law = units.y, units.law
        c = len(y.shift) if law is None else law.outputs
        shift, scale = (np.broadcast_to(v, c) for v in y.bent)
        if law is not None:
            known = law.names(names[0] if names else "y")
        elif names is not None and len(names) == c:
            known = names
        else:
            known = [f"y{k}" for k in range(c)]
        plain = c == 1 and y.power == 1 and (law is None or not law.logs)
        if law is None and y.power != 1:
            known = y.names(names or ["y"])
        return Told(np.diag(scale), np.asarray(shift), [""] if plain else known)

    @staticmethod
    def classes(labels: np.ndarray, temperature: float) -> Told:
        """Log-odds of two classes; of more, logits around their mean over the classes."""
        c = len(labels)
        Q = np.array([[-1.0], [1.0]]) if c == 2 else np.eye(c) - 1 / c
        names = [""] if c == 2 else [str(v) for v in labels]
        return Told(Q / temperature, np.zeros(Q.shape[1]), names)


def effects_of(
    predictor: Predictor, marginals: Marginals | None, names: Sequence[str], told: Told
) -> list[Effects]:
    """Of every output that is told of. Raises `AttributeError` with the reason where there are none."""
    if marginals is None:
        raise AttributeError(
            f"effects are not known: the model has more than {COLUMNS} columns, or is of an older file."
        )
    draws = Draws.of(marginals.blocks())
    known, reasons = [], []
    for member in predictor.members:
        try:
            known.append((member.weight, products_of(member, draws)))
        except NoForm as reason:
            reasons.append(str(reason).rstrip("."))
    covered = sum(weight for weight, _ in known) if reasons else 1.0
    if covered < HALF:
        raise AttributeError(
            f"the model has no effects of single columns: {reasons[0]}. `greenfold.plot.loadings` and "
            "the report show its coordinates; chart='axis' with operator='anova' has effects on any data."
        )
    weights = np.array([weight for weight, _ in known]) / covered
    mean = Mean([parts for _, parts in known], weights, told.Q)
    found = decomposed(mean, draws, predictor.units.x, told)
    return [replace(one, covered=covered).named(names) for one in found]


class Draws(NamedTuple):
    """Rows whose columns are spread as in `blocks`, and do not depend on each other."""

    blocks: list[Block]
    x: Tensor  # (n, D)
    places: np.ndarray  # (n, B) nodes they are at

    @staticmethod
    def of(blocks: list[Block]) -> Draws:
        rng, D = np.random.default_rng(0), sum(len(block.columns) for block in blocks)
        x, places = np.zeros((DRAWS, D)), np.zeros((DRAWS, len(blocks)), dtype=np.int64)
        for b, block in enumerate(blocks):  # as evenly over the nodes as they can be
            level = (rng.permutation(DRAWS) + rng.random(DRAWS)) / DRAWS
            at = np.searchsorted(block.weight.cumsum(), level).clip(max=len(block.weight) - 1)
            x[:, block.columns], places[:, b] = block.nodes[at], at
        return Draws(blocks, torch.from_numpy(x), places)


def products_of(member: Member, draws: Draws) -> Products:
    """Of a member, compared with its model."""
    found = Products(member.model, member.posterior, draws.blocks)
    found.check(draws.x)
    return found


class Curve(NamedTuple):
    """An effect at nodes, or pairs of nodes: values and half a band (n, c')."""

    values: Array
    band: Array | None

    def variance(self, weight: Array) -> Array:
        """(c',)."""
        return weight @ np.square(self.values)


@dataclass(frozen=True)
class Mean:
    """Models with effects, averaged."""

    parts: list[Products]
    weights: Array  # (k,)
    Q: Array  # (c, c')

    def of(self, rows: list[Rows]) -> Curve:
        """What all members say, and how sure they are."""
        each = np.stack([p.values(r).numpy() @ self.Q for p, r in zip(self.parts, rows)])
        values = np.tensordot(self.weights, each, 1)
        known = [part.std(own) for part, own in zip(self.parts, rows)]
        std = [v.numpy() @ np.abs(self.Q) for v in known if v is not None]
        if len(std) < len(known):
            return Curve(values, None)
        return Curve(values, NINETY * mixed(self.weights, each, np.stack(std)))

    def base(self) -> Curve:
        return self.of([part.mean() for part in self.parts])

    def main(self, b: int) -> Curve:
        return self.of([part.main(b) for part in self.parts])

    def pair(self, a: int, b: int) -> Curve:
        return self.of([part.pair(a, b) for part in self.parts])

    @torch.no_grad()
    def u(self, x: Tensor) -> Array:
        """(n, c')."""
        each = np.stack([chunks(part.model, x) for part in self.parts])
        return np.tensordot(self.weights, each, 1) @ self.Q

    def variances(self) -> Array:
        """Of all pairs (B, B, c'), about."""
        Q = torch.from_numpy(self.Q)
        coarse = sum(w * part.pairs(Q).numpy() for w, part in zip(self.weights, self.parts))
        return np.einsum("kaibj,kaibj->abk", coarse, coarse)


def decomposed(mean: Mean, draws: Draws, units: Scaling, told: Told) -> list[Effects]:
    """Effects on their grids, and what they leave of u at rows drawn; one of them for each output."""
    blocks = draws.blocks
    base = mean.base().values
    mains = {(b,): mean.main(b) for b in range(len(blocks))}
    alone = np.stack([mains[b,].variance(block.weight) for b, block in enumerate(blocks)])
    pairs = {which: mean.pair(*which) for which in strongest(mean.variances(), alone.sum(0))}
    found, variance, left = mains | pairs, {}, mean.u(draws.x) - base
    for which, curve in found.items():
        weight = reduce(np.multiply.outer, [blocks[b].weight for b in which])
        variance[which] = curve.variance(weight.reshape(-1))
        at = np.ravel_multi_index([draws.places[:, b] for b in which], weight.shape)
        left = left - curve.values[at]
    rest = np.square(left).mean(0)
    total = sum(variance.values()) + rest  # (c',)
    share = {which: v / np.maximum(total, 1e-300) for which, v in variance.items()}
    answer = []
    for k, output in enumerate(told.names):
        order = sorted(found, key=lambda which: -share[which][k])
        listed = [which for which in order if len(which) == 1 or share[which][k] >= LEAST]
        beyond = rest[k] / max(total[k], 1e-300)
        beyond += sum(share[which][k] for which in found if which not in listed)
        effects = [effect(w, found[w], float(share[w][k]), k, blocks, units) for w in listed]
        level, deviation = float(base[0, k] + told.shift[k]), float(np.sqrt(total[k]))
        answer.append(Effects(tuple(effects), level, deviation, float(beyond), output=output))
    return answer


def strongest(variances: Array, alone: Array) -> list[tuple[int, int]]:
    """Pairs that matter most to any output, given the variances of columns by themselves (c',)."""
    B = len(variances)
    pairs = list(combinations(range(B), 2))
    if not pairs:
        return []
    total = alone + sum(variances[pair] for pair in pairs)
    share = [float((variances[pair] / np.maximum(total, 1e-300)).max()) for pair in pairs]
    best = np.argsort(-np.array(share), kind="stable")[:PAIRS]
    return [pairs[i] for i in best if share[i] > LEAST / 4]


def effect(
    which: tuple[int, ...], curve: Curve, share: float, k: int, blocks: list[Block], units: Scaling
) -> Effect:
    """Of one output, in the user's units; its columns go by number still."""
    index = tuple(tuple(blocks[b].columns) for b in which)
    grid = tuple(grid_of(blocks[b], units) for b in which)
    shape = tuple(len(part) for part in grid)
    values = curve.values[:, k].reshape(shape)
    band = None if curve.band is None else curve.band[:, k].reshape(shape)
    weight = tuple(blocks[b].weight for b in which)
    return Effect((), share, grid, weight, values, band, index)


def grid_of(block: Block, units: Scaling) -> Array:
    """Places (q,) of a column; of a category numbers that stand for its levels."""
    if len(block.columns) > 1:
        return np.arange(float(len(block.nodes)))
    j = block.columns[0]
    return np.asarray((block.nodes[:, 0] * units.scale[j] + units.shift[j]) * units.unit)

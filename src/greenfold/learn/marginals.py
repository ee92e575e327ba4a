"""How each column is spread over the rows, by itself: the measure that effects are told under."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from greenfold.learn.data import categories
from greenfold.learn.units import Array, evenly

NODES = 48  # of a column, at most
ROWS = 20_000  # that are looked at
COLUMNS = 100  # at most: effects of more are not looked at one by one


class Block(NamedTuple):
    """A column, or all columns of a category: places, and how often rows are there."""

    columns: list[int]  # (b,)
    nodes: Array  # (q, b), in the model's numbers
    weight: Array  # (q,), of sum 1


@dataclass(frozen=True)
class Marginals:
    """Up to 48 nodes of every column, with the weights of the rows.

    A column of few values has a node at each. Of others half of the nodes are evenly spaced from the
    least value to the largest and half at quantiles, and every row shares its weight among the two nodes
    next to it: means over the nodes are means over the rows, of functions that are linear in between.
    """

    nodes: Array  # (m, D), the last one repeated where a column has less than m
    weight: Array  # (m, D), of sum 1
    ties: np.ndarray  # (D,) numbers of categories, see `categories`

    @staticmethod
    def of(x: Array, weight: Array | None = None) -> Marginals | None:
        """Of rows (n, D) in the model's numbers; None for too many columns."""
        if x.shape[1] > COLUMNS:
            return None
        keep = evenly(len(x), ROWS)
        x, w = x[keep], np.ones(len(keep)) if weight is None else weight[keep]
        ties, found = categories(x), [binned(column, w) for column in x.T]
        m = max(len(nodes) for nodes, _ in found)
        nodes = np.stack([np.pad(v, (0, m - len(v)), mode="edge") for v, _ in found], axis=1)
        return Marginals(
            nodes, np.stack([np.pad(p, (0, m - len(p))) for _, p in found], axis=1), ties
        )

    def blocks(self) -> list[Block]:
        found = []
        for k in range(self.ties.max() + 1):
            columns = np.flatnonzero(self.ties == k)
            if len(columns) == 1:
                nodes, first = np.unique(self.nodes[:, columns[0]], return_index=True)
                found.append(
                    Block(columns.tolist(), nodes[:, None], self.weight[first, columns[0]])
                )
            else:  # one of the columns is on: two nodes each, off and on
                off, on = self.nodes[:2, columns]
                nodes, weight = off + np.diag(on - off), self.weight[1, columns]
                found.append(Block(columns.tolist(), nodes, weight / weight.sum()))
        return found


def binned(values: Array, weight: Array) -> tuple[Array, Array]:
    """Nodes (q,) and weights (q,) of one column."""
    nodes, inverse = np.unique(values, return_inverse=True)
    if len(nodes) <= NODES:
        return nodes, np.bincount(inverse, weight) / weight.sum()
    even = np.linspace(values.min(), values.max(), NODES // 2)
    nodes = np.unique(np.concatenate([even, np.quantile(values, np.linspace(0, 1, NODES // 2))]))
    left = np.clip(np.searchsorted(nodes, values, side="right") - 1, 0, len(nodes) - 2)
    part = (values - nodes[left]) / (nodes[left + 1] - nodes[left])
    total = np.bincount(left, weight * (1 - part), len(nodes))
    total += np.bincount(left + 1, weight * part, len(nodes))
    return nodes, total / weight.sum()

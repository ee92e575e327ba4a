"""Rows without labels: a graph of all rows, whose numbers the evidence of those with labels chooses.

Rows that are many tell what the data look like, and few of them what y is. On the graph of all rows y is
the response of (κ² + L)^s: it changes slowly along the data, whatever lies between them.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import LinAlgError
from torch import Tensor, nn

from greenfold.chart import AxisScales
from greenfold.chart.frames import Scaled
from greenfold.green.graph import Graph, between
from greenfold.green.product import Product
from greenfold.learn.candidates import Candidate, Fit
from greenfold.learn.choice import loss, near
from greenfold.learn.data import Data
from greenfold.learn.fit import judged
from greenfold.learn.units import evenly
from greenfold.solve.kernel import kernel_evidence

NEIGHBORS = (8, 5, 3, 13)  # k, the usual first
WIDTHS = (0.6, 1.7)  # of weights, beside 1
USUAL = 2.0  # nats that the square of log(k/8) and of log width cost
KAPPAS = tuple(
    10 ** np.arange(-2.5, -0.9, 0.25)
)  # more, and neighbors would know nothing of each other
POWERS = (1.0, 2.0)
NOISES = tuple(10.0 ** np.arange(-5, 1.1, 1.0))
MODES = 300  # that functions of few labels are made of
FEWEST, NODES = 10, 3000  # at least and at most
SLOW = 1500  # nodes above which fewer graphs are compared
LABELS = 300  # that the evidence is asked of
JUDGES = 1500  # rows with labels that are nodes and judge
# k, κ, s and λ of classes with one label each, which tell nothing of them:
LONE = (5, 0.03, 2.0, 1e-3)


class Found(NamedTuple):
    """A graph at its best evidence."""

    value: float
    graph: Graph
    kappa: float
    power: float
    noise: float


@dataclass(frozen=True)
class OnGraph(Candidate):
    """The graph of all rows, with and without labels: k, widths, κ and s by evidence."""

    def told(self, fit: Fit) -> str:
        return "graph of all rows"

    def learn(self, data: Data, start: Fit, steps: int) -> Fit:
        return start


ON_GRAPH = OnGraph("graph", refines=False)


def best_graph(rows: Tensor, frames: Sequence[Tensor], data: Data) -> tuple[Found, Tensor]:
    """Among frames s (D,) of the columns, then neighbors, then widths; and the frame.

    The first of the rows (N, D) are those of the data.
    """
    some = data.head(LABELS)
    if lone(data):
        z = rows * frames[-1]
        return Found(0.0, quiet_graph(z, LONE[0]), *LONE[1:]), frames[-1]

    def asked(z: Tensor, apart: np.ndarray, k: int, width: float = 1.0) -> Found:
        graph = quiet_graph(z, min(k, len(z) - 1), width, apart)
        cost = USUAL * (math.log(k / NEIGHBORS[0]) ** 2 + math.log(width) ** 2)
        best = least(at(graph, some, s) for s in POWERS)
        return best._replace(value=best.value + cost / some.Y.numel())

    framed = [(rows * scale, between(rows * scale)) for scale in frames]
    found = [asked(*each, NEIGHBORS[0]) for each in framed]
    first = min(range(len(frames)), key=lambda i: found[i].value)
    own, best = framed[first], found[first]
    if len(rows) > SLOW:
        return least([best, asked(*own, NEIGHBORS[1])]), frames[first]
    best = least([best, *(asked(*own, k) for k in NEIGHBORS[1:])])
    best = least([best, *(asked(*own, best.graph.n_neighbors, w) for w in WIDTHS)])
    return best, frames[first]


def lone(data: Data) -> bool:
    """Has hardly any class a second label? Then no row that is left out can be known, nor judge."""
    return data.judge.common and 2 * len(data.Y.unique(dim=0)) > len(data)


def least(found: Iterable[Found]) -> Found:
    return min(found, key=lambda each: each.value)


def quiet_graph(
    rows: Tensor, k: int, width: float = 1.0, distances: np.ndarray | None = None
) -> Graph:
    """Without a word about its pieces: predictions in those without a label are near the mean."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the graph falls into")
        few = min(MODES, len(rows))
        return Graph.of_rows(rows, k, width, distances=distances, n_modes=few)


def at(graph: Graph, data: Data, power: float) -> Found:
    """κ and λ of the best evidence."""
    psi, lam = graph.psi[: len(data)].numpy(), graph.eigenvalues.numpy()
    Y, weight, common = data.Y.numpy(), data.weight.numpy(), data.judge.common
    low, high = data.judge.log_noise
    best = Found(math.inf, graph, 1.0, power, 1.0)
    for kappa in KAPPAS:
        K = (psi * (kappa**2 + lam) ** -power) @ psi.T
        K = K / np.median(K.diagonal())
        for noise in NOISES:
            if not low <= math.log(noise) <= high:
                continue
            try:
                value = kernel_evidence(K, Y, noise / weight, common).value
            except LinAlgError:
                continue
            if value < best.value:
                best = Found(value, graph, float(kappa), power, noise)
    return best


def graph_fit(data: Data) -> Fit | None:
    """The candidate, learned and judged; None without rows that have no label."""
    if data.others is None:
        return None
    begin, rest, data = time.perf_counter(), data.others, data.head(JUDGES)
    rest = rest[torch.from_numpy(evenly(len(rest), NODES - len(data)))]
    rows = torch.cat([data.x, rest])
    if len(rows) < FEWEST:
        return None
    frames = [torch.ones_like(data.sd), data.spread / data.spread.square().mean().sqrt()]
    if bool((frames[1] - 1).abs().max() < 0.1):
        del frames[1]
    found, scale = best_graph(rows, frames, data)
    operator = Product([found.graph], found.kappa, found.power)
    fit = Fit(ON_GRAPH, Scaled(scale), operator, found.noise, found.value, len(data))
    fit = judged(fit, data, scan=not lone(data))
    return replace(fit, seconds=time.perf_counter() - begin)


def with_graph(data: Data, won: Fit, rivals: list[Fit]) -> tuple[Fit, list[Fit]]:
    """The graph in place of what won a race, unless that is ahead by more than chance."""
    fit = graph_fit(data)
    if fit is None or not math.isfinite(fit.nats):
        return won, rivals
    if lone(data) or loss(fit) <= loss(won) or near(fit, won, data):
        return fit, [won, *rivals]
    return won, [fit, *rivals]


class Eigenmap(nn.Module):
    """z = s_1 ψ_1(x), …, s_d ψ_d(x): the lowest eigenfunctions of a graph of rows, not the constant."""

    def __init__(self, rows: Tensor, n_dims: int, n_neighbors: int = 6):
        super().__init__()
        keep = torch.from_numpy(evenly(len(rows), NODES))
        self.graph = quiet_graph(rows[keep], min(n_neighbors, len(keep) - 1))
        self.axes = AxisScales(n_dims, n_dims**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        psi = self.graph.modes(x)[:, 1 : len(self.axes.log_scale) + 1]
        return self.axes(psi.to(x.dtype))

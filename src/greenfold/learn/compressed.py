"""The same u from fewer sources: what is predicted quickly, and kept in a small file.

A source of m anchors is solved for u itself at many rows, which need no targets. Rows that were not among
them tell how far off it is; m doubles until that is little beside the errors of predictions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from greenfold.chart.start import pivots
from greenfold.green.atoms import Point
from greenfold.learn.fit import escalated
from greenfold.model import IGL, Tied, n_sources
from greenfold.solve.statistics import Statistics

FEWEST = 8  # anchors
LOOKED = 6000  # rows that anchors are chosen from, at most
TELLING = 20_000  # rows that are solved for
CHECKED = 4000  # rows that judge, at most a third
LITTLE = 1e-7  # penalty, of the kernel's own size: nothing is noise here

Far = Callable[[Tensor, Tensor], float]  # (u of fewer, u) → more than 1 if it is too far off


@torch.no_grad()
def compressed(model: IGL, x: Tensor, far: Far) -> IGL | None:
    """With as few sources as are near enough at rows x; none if half are not enough, or few already."""
    half = n_sources(model.sources) // 2
    if half < FEWEST:
        return None
    x = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(len(x)))]
    m = min(CHECKED, len(x) // 3)
    check, rows = x[:m], x[m : m + TELLING]
    if not m:
        raise ValueError(f"compress needs rows to judge by, at least 3, got {len(x)}.")
    wanted, there = model(rows), model(check)
    z = model.chart(rows[:LOOKED])
    G = model.operator.response(z, Point(z), model.gates())
    order = pivots((G + G.T) / 2, LITTLE * float(model.unit()))
    for size in sizes(min(len(order), half)):
        few = fewer(model, rows[order[:size]])
        sums = Statistics()
        sums.update(few.design(rows), wanted, None)
        few.w = escalated(sums, LITTLE * float(few.unit()) * len(rows)).w
        if far(few(check), there) <= 1:
            return few
    return None


def sizes(most: int) -> list[int]:
    """Twice as many every time."""
    doubled = [FEWEST << k for k in range(32) if FEWEST << k < most]
    return [*doubled, most] if most >= FEWEST else []


def fewer(model: IGL, x: Tensor) -> IGL:
    """The same chart and operator, with sources at other rows and nothing solved for."""
    own = IGL(
        model.encoder,
        model.operator,
        Tied(x),
        n_dims=len(model.mean),
        null_space=model.null_space,
        gates=model.gates,
        standardize=model.standardize,
        energy=True,
    ).eval()
    own.mean, own.scale = model.mean, model.scale
    return own

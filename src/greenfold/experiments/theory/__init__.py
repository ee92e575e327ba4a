"""The appendices: every statement of the theory that can be computed, computed.

A part has `measure(config)`, `claims(parts)` and, but for `projection`, `draw(axes, part)`. Everything
is deterministic, so one seed is enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from greenfold.experiments.claims import Claim
from greenfold.experiments.theory import (
    charts,
    found,
    kernels,
    projection,
    ranks,
    rates,
    spectra,
    sums,
)

TITLE = "Theory: the appendices, measured"


@dataclass(frozen=True)
class Config:
    seeds: int = 1
    # exponential sums
    terms: Sequence[int] = tuple(range(2, 33, 2))
    decades: Sequence[int] = (1, 2, 3, 4, 5, 6, 7, 8)
    digits: Sequence[int] = (1, 2, 3, 4, 5, 6, 7, 8)
    accuracy: float = 1e-6
    dimensions: Sequence[int] = (1, 2, 3, 10, 30)
    # kernels, ranks, charts
    n_points: int = 2000
    n_grid: int = 64
    n_rows: int = 800
    candidates: int = 9  # per axis
    sweeps: int = 400  # of alternating least squares
    max_iter: int = 300
    strengths: Sequence[float] = (0.5, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4)
    bends: Sequence[float] = (0, 0.2, 0.4, 0.6)
    sides: Sequence[int] = (4, 6, 8, 10, 14, 20)
    # rates
    largest_frequency: int = 300_000
    n_frequencies: int = 128
    samples: Sequence[int] = (64, 128, 256, 512, 1024, 2048)


FULL = Config()
QUICK = Config(
    terms=(2, 4, 8, 12, 16, 24),
    decades=(1, 2, 3, 4, 5, 6),
    digits=(1, 2, 3, 4, 5, 6),
    n_grid=48,
    n_rows=500,
    largest_frequency=100_000,
    n_frequencies=96,
    samples=(64, 128, 256, 512, 1024),
)
TINY = Config(
    terms=(2, 4, 8),
    decades=(1, 2),
    digits=(1, 2, 3),
    accuracy=1e-3,
    dimensions=(1, 2),
    n_points=200,
    n_grid=16,
    n_rows=150,
    candidates=6,
    sweeps=40,
    max_iter=5,
    strengths=(0.1, 0.01),
    bends=(0, 0.4),
    sides=(4, 8),
    largest_frequency=1000,
    n_frequencies=24,
    samples=(32, 64),
)

PARTS = {
    "sums": sums,
    "kernels": kernels,
    "spectra": spectra,
    "ranks": ranks,
    "found": found,
    "charts": charts,
    "rates": rates,
    "projection": projection,
}
PANELS = {"sums": 2, "kernels": 1, "spectra": 1, "ranks": 2, "found": 1, "charts": 2, "rates": 3}


def run(config: Config, seed: int) -> dict[str, Any]:
    return {name: part.measure(config) for name, part in PARTS.items()}


def claims(config: Config, runs: list[dict[str, Any]]) -> list[Claim]:
    return [
        claim for name, part in PARTS.items() for claim in part.claims([run[name] for run in runs])
    ]


def draw(config: Config, runs: list[dict[str, Any]]) -> Figure:
    with plt.rc_context({"font.size": 8, "axes.titlesize": 9}):
        figure, panels = plt.subplots(3, 4, figsize=(10.2, 7.0), layout="constrained")
        _draw_parts(list(panels.ravel()), runs[0])
        for panel in panels.ravel():
            panel.grid(alpha=0.2)
            panel.set_axisbelow(True)
    return figure


def _draw_parts(axes: list[Axes], run: dict[str, Any]) -> None:
    for name, count in PANELS.items():
        PARTS[name].draw(axes[:count], run[name])
        axes = axes[count:]

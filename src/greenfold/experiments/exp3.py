"""Exp. 3: what a training step costs, encoder and stage 2 apart, against every size it has.

One step on a batch is, in float64 as the estimators train,

    encoder   ξ = Ψ(x), Ψ a 2-layer MLP D → H → H → d, forward, and backward from ∂ℓ/∂ξ to its weights
    stage 2   Φ(ξ) with learned atoms, Gram matrix, solve, ℓ = log‖Y − Φw‖², and backward through all of
              it to ξ, μ and σ

Both are timed in CPU seconds of one thread. Sizes take turns and every time is the least of many, so
that what else runs on the machine touches all sizes alike and hardly touches the result. The parts of
stage 2 are also timed by themselves, forward only: Φ, the Gram matrix and the solve. Every atom has its
own width along every axis, the general case; only the share of a step is also taken with one width for
all, as with the estimators' anchors, where all terms share one matrix of distances.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from greenfold.chart.encoders import MLP
from greenfold.experiments.claims import Claim
from greenfold.green import Gaussian, Polynomial, ScreenedPoisson
from greenfold.model import IGL
from greenfold.solve import Statistics, log_mse

TITLE = "Exp. 3: the cost of a step in D, d, R, N and K"

AXES = ("D", "d", "R", "N", "K")


@dataclass(frozen=True)
class Config:
    seeds: int = 1
    repeats: int = 30
    D: Sequence[int] = (784, 1568, 3136, 6272, 12544, 25088)
    d: Sequence[int] = (2, 4, 8, 16, 32, 64, 128)
    R: Sequence[int] = (16, 32, 64, 128, 256, 512)
    N: Sequence[int] = (64, 128, 256, 512, 1024, 2048)
    K: Sequence[int] = (2, 4, 8, 16, 32, 64)
    n_rows: int = 512  # where d, R and K are swept: large enough to be above Python's own time


FULL = Config()
QUICK = Config(repeats=10)
TINY = Config(repeats=2, D=(64, 128), d=(2, 4), R=(8, 16), N=(64, 128), K=(2, 4), n_rows=128)


@dataclass(frozen=True)
class Sizes:
    """The paper's practical regime."""

    D: int = 784
    H: int = 256
    d: int = 10
    R: int = 64
    K: int = 10
    N: int = 256


def parts(sizes: Sizes, seed: int, one_width: bool = False) -> dict[str, Callable[[], object]]:
    """The pieces of a step as functions to be timed."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, Y = normal(sizes.N, sizes.D), normal(sizes.N, 1)
    encoder = MLP(sizes.D, sizes.d, (sizes.H, sizes.H))
    # widths that grow with √d, as distances do, so that Φ stays of order one
    mu, sigma = normal(sizes.R, sizes.d), torch.tensor(1.5 * sizes.d**0.5, dtype=torch.float64)
    atoms = Gaussian(mu, sigma if one_width else sigma.expand_as(mu), learn=True)
    model = IGL(encoder, ScreenedPoisson(n_terms=sizes.K), atoms, n_dims=sizes.d)
    xi = normal(sizes.N, sizes.d).requires_grad_()
    slope = normal(sizes.N, sizes.d)
    quadratic = Polynomial(2)
    with torch.no_grad():
        design = model.columns(xi)
    sums = Statistics()
    sums.update(design, Y)
    log_alpha = float(np.log(1e-6 * sizes.N))

    def forward() -> object:
        with torch.no_grad():
            return model.columns(xi)

    return {
        "encoder": lambda: encoder(x).backward(slope),
        "stage 2": lambda: log_mse(model.columns(xi), Y, log_alpha).backward(),
        "Φ": forward,
        "Gram": lambda: Statistics().update(design, Y),
        "solve": lambda: sums.solve(1e-6),
        "polynomial": lambda: quadratic(xi.detach()),
    }


def least_times(
    jobs: list[dict[str, Callable[[], object]]], repeats: int
) -> dict[str, list[float]]:
    """Least CPU seconds of every part at every size; sizes take turns."""
    times = {part: [float("inf")] * len(jobs) for part in jobs[0]}
    for _ in range(repeats + 1):  # the first round warms up and cannot be the least
        for i, job in enumerate(jobs):
            for part, call in job.items():
                start = time.process_time()
                call()
                times[part][i] = min(times[part][i], time.process_time() - start)
    return times


def run(config: Config, seed: int) -> dict[str, Any]:
    times = {}
    for axis in AXES:
        base = Sizes() if axis in "DN" else Sizes(N=config.n_rows)
        sizes = [replace(base, **{axis: value}) for value in getattr(config, axis)]
        times[axis] = least_times([parts(s, seed) for s in sizes], config.repeats)
    both = [parts(Sizes(), seed, one_width) for one_width in (True, False)]
    step = least_times(both, 3 * config.repeats)
    shares = [s / (s + min(step["encoder"])) for s in step["stage 2"]]
    return {
        "seconds": times,
        "step_seconds": {part: t[0] for part, t in step.items()},
        "general_seconds": {part: t[1] for part, t in step.items()},
        "floor_seconds": floor_seconds(Sizes(), 3 * config.repeats),
        "share": shares[0],
        "share_general": shares[1],
    }


def slope(sizes: Sequence[int], seconds: ArrayLike) -> float:
    """Of the line through the points on log-log axes."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def straightness(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """R² of c₀ + c₁·size."""
    return float(np.corrcoef(sizes, seconds)[0, 1] ** 2)


def claims(config: Config, runs: list[dict[str, Any]]) -> list[Claim]:
    def slopes(axis: str, part: str) -> list[float]:
        return [slope(getattr(config, axis), run["seconds"][axis][part]) for run in runs]

    def straight(axis: str, part: str) -> list[float]:
        return [straightness(getattr(config, axis), run["seconds"][axis][part]) for run in runs]

    def total(run: dict[str, Any], axis: str) -> list[float]:
        both = zip(run["seconds"][axis]["encoder"], run["seconds"][axis]["stage 2"], strict=True)
        return [a + b for a, b in both]

    whole = [slope(config.D, total(run, "D")) for run in runs]
    shares = [run["share"] for run in runs]
    general = [run["share_general"] for run in runs]
    flat_d, flat_R, flat_D = slopes("d", "encoder"), slopes("R", "encoder"), slopes("D", "stage 2")
    in_D, gram, solve = slopes("D", "encoder"), slopes("R", "Gram"), slopes("R", "solve")
    stage_R, stage_d = slopes("R", "stage 2"), slopes("d", "stage 2")
    largest = [
        max(
            s / (s + e)
            for axis in "DdR"
            for s, e in zip(
                run["seconds"][axis]["stage 2"], run["seconds"][axis]["encoder"], strict=True
            )
        )
        for run in runs
    ]
    counts = [(d + 1) * (d + 2) // 2 for d in config.d]
    poly = [slope(counts, run["seconds"]["d"]["polynomial"]) for run in runs]
    rows = [
        Claim(
            "Exp. 3, figure (A)",
            f"encoder, log-log slope in D from {config.D[0]} to {config.D[-1]}",
            "≈ 1",
            in_D,
            all(0.8 <= s <= 1.15 for s in in_D),
            "The first layer is D·H of the work; the H·H of the second keeps the slope a little below 1.",
            mark=1.15,
        ),
        Claim(
            "Exp. 3, figure (A)",
            "whole step, log-log slope in D",
            "≈ 1",
            whole,
            all(0.8 <= s <= 1.15 for s in whole),
            f"What does not depend on D shows at D = {config.D[0]}; over the three largest sizes the "
            f"slope is {slope(config.D[-3:], total(runs[0], 'D')[-3:]):.2f}.",
        ),
        Claim(
            "Exp. 3, figure (A)",
            "stage 2, slope in D",
            "0",
            flat_D,
            max(map(abs, flat_D)) <= 0.1,
            "It sees the chart only.",
        ),
        Claim(
            "Exp. 3, figure (B)",
            f"encoder, slope in d from {config.d[0]} to {config.d[-1]}",
            "0",
            flat_d,
            max(map(abs, flat_d)) <= 0.1,
            "Only its last layer, H·d, knows d.",
        ),
        Claim(
            "Exp. 3, figure (C)",
            f"encoder, slope in R from {config.R[0]} to {config.R[-1]}",
            "0",
            flat_R,
            max(map(abs, flat_R)) <= 0.1,
            "It has nothing to do with R.",
        ),
    ]
    for axis, place in (("d", "figure (B)"), ("R", "figure (C)"), ("K", "O(KRd)")):
        fit, steep = straight(axis, "Φ"), slopes(axis, "Φ")
        ends = f"from {getattr(config, axis)[0]} to {getattr(config, axis)[-1]}"
        rows += [
            Claim(
                f"Exp. 3, {place}",
                f"Φ, R² of the line c₀ + c₁·{axis} {ends}",
                "linear",
                fit,
                min(fit) >= 0.99,
                "One matrix product and one exponential per row, term and atom.",
                mark=0.99,
                small=False,
            ),
            Claim(
                f"Exp. 3, {place}",
                f"Φ, log-log slope in {axis} {ends}",
                "1",
                steep,
                max(steep) <= 1.15,
                "Below 1 as long as what does not grow (exponentials, Python) still counts.",
                mark=1.15,
            ),
        ]
    in_N = {part: slopes("N", part) for part in ("encoder", "Φ", "stage 2")}
    steepest = [max(run_slopes) for run_slopes in zip(*in_N.values(), strict=True)]
    rows += [
        Claim(
            "Exp. 3, figure (B)",
            "all of stage 2 with its backward pass, slope in d",
            "1",
            stage_d,
            max(stage_d) <= 1.15,
            "Gram matrix and solve do not know d.",
        ),
        Claim(
            "Exp. 3, figure (C)",
            "all of stage 2 with its backward pass, slope in R",
            "1",
            stage_R,
            max(stage_R) <= 1.15,
            "Linear as long as Φ costs more than the Gram matrix, K·d against R; beyond, R² and R³ show.",
        ),
        Claim(
            "Table of complexities",
            "Gram matrix, slope in R (the table has no row for it)",
            "none",
            gram,
            max(gram) <= 2.1,
            "ΦᵀΦ is R² per row, which the total O(DH + KRd) leaves out.",
            change="a term R² per row",
            mark=2.1,
        ),
        Claim(
            "Table of complexities",
            "solve from the Gram matrix, slope in R (no row either)",
            "none",
            solve,
            max(solve) <= 3,
            "A Cholesky factor is R³/3 once per step.",
            change="a term R³ per step",
        ),
        Claim(
            "Table of complexities",
            "steepest slope in the batch size N, of encoder, Φ and stage 2",
            "1: costs are per sample",
            steepest,
            max(steepest) <= 1.15,
            "Rows are independent.",
        ),
        Claim(
            "Table of complexities",
            "polynomial columns of degree 2, slope in their number C(d+2, 2)",
            "1",
            poly,
            max(poly) <= 1.15,
            "Each is one product.",
        ),
        Claim(
            "Exp. 3, text",
            "stage-2 share of a step at K = 10, R = 64, d = 10, D = 784, H = 256, batch 256",
            "negligible",
            shares,
            max(shares) <= 0.15,
            share_reason(runs, "step_seconds"),
            mark=0.15,
        ),
        Claim(
            "Exp. 3, text",
            "the same with a width of its own for every atom and axis",
            "negligible",
            general,
            max(general) <= 0.15,
            share_reason(runs, "general_seconds"),
        ),
        Claim(
            "Exp. 3, figure",
            "largest stage-2 share over the sweeps of D, d and R",
            "a small fraction",
            largest,
            max(largest) <= 0.15,
            f"At {config.n_rows} rows with R or d far beyond the practical regime, stage 2 is the step.",
        ),
    ]
    return rows


def share_reason(runs: list[dict[str, Any]], key: str) -> str:
    """Where stage 2 spends its time, from the runs."""
    ms = {part: 1e3 * seconds for part, seconds in runs[0][key].items()}
    arithmetic = 1e3 * runs[0]["floor_seconds"]
    return (
        f"Of {ms['stage 2']:.1f} ms, Φ forward is {ms['Φ']:.1f}, Gram {ms['Gram']:.1f}, solve "
        f"{ms['solve']:.1f}, backward most of the rest; the encoder takes {ms['encoder']:.1f}. The "
        f"N·K·R exponentials and the Gram product alone are {arithmetic:.1f} ms; much of the rest is "
        "the overhead of small tensors, which a larger batch spreads over more rows."
    )


def floor_seconds(sizes: Sizes, repeats: int) -> float:
    """CPU seconds of what no stage 2 can avoid: N·K·R exponentials and one Gram product."""
    E = torch.rand(sizes.N, sizes.K * sizes.R, dtype=torch.float64)
    Phi = E[:, : sizes.R].contiguous()
    jobs: dict[str, Callable[[], object]] = {"exp": lambda: E.exp(), "gram": lambda: Phi.T @ Phi}
    return sum(t[0] for t in least_times([jobs], repeats).values())


COLORS = {"encoder": "C7", "stage 2": "C3", "Φ": "C0", "Gram": "C2", "solve": "C1"}


def draw(config: Config, runs: list[dict[str, Any]]) -> Figure:
    figure, panels = plt.subplots(2, 3, figsize=(11, 6.4), layout="constrained")
    run = runs[0]
    titles = {
        "D": "(A) ambient dimension D",
        "d": "(B) chart dimension d",
        "R": "(C) rank R",
        "N": "batch size N",
        "K": "terms K of the Green's function",
    }
    for axis, panel in zip(AXES, panels.ravel(), strict=False):
        sizes = getattr(config, axis)
        for part, color in COLORS.items():
            if axis == "D" and part in ("Φ", "Gram", "solve"):
                continue
            ms = 1e3 * np.array(run["seconds"][axis][part])
            panel.loglog(sizes, ms, "o-", ms=4, color=color, label=part)
            panel.annotate(
                f"{slope(sizes, ms):.2f}",
                (sizes[-1], ms[-1]),
                xytext=(6, -3),
                textcoords="offset points",
                color=color,
                fontsize=8,
            )
        panel.set(title=titles[axis], xlabel=f"{axis}   (slopes at the right)", ylabel="CPU ms")
        panel.set_xticks(sizes, [str(v) for v in sizes])
        panel.set_xlim(sizes[0] * 0.85, sizes[-1] * 1.9)
        panel.minorticks_off()
        panel.grid(alpha=0.25)
    figure.legend(
        *panels[0, 1].get_legend_handles_labels(), loc="outside lower left", ncols=5, frameon=False
    )
    _draw_share(panels[1, 2], run)
    return figure


def _draw_share(panel: Axes, run: dict[str, Any]) -> None:
    panel.bar("encoder", 1e3 * run["step_seconds"]["encoder"], color=COLORS["encoder"])
    for name, key in (("stage 2,\none width", "step_seconds"), ("own widths", "general_seconds")):
        ms = {part: 1e3 * seconds for part, seconds in run[key].items()}
        heights = {part: ms[part] for part in ("Φ", "Gram")}
        heights["solve and backward"] = max(ms["stage 2"] - sum(heights.values()), 0.0)
        bottom = 0.0
        for part, height in heights.items():
            panel.bar(name, height, bottom=bottom, color=COLORS.get(part, COLORS["stage 2"]))
            bottom += height
    shares = f"{run['share']:.0%} and {run['share_general']:.0%}"
    panel.set(title=f"one step: stage 2 is {shares}", ylabel="CPU ms")

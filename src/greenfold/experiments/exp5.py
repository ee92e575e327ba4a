"""Exp. 5: a smooth branch beside a neural one on the swiss roll, and which of them keeps the geometry.

The same encoder learns the target sign(sin t), which jumps, under an MLP or under ResIGL: from random
weights as in the paper (by Adam and, further down, by L-BFGS), from Isomap coordinates, and from these
with a pull towards them. A random encoder that is never trained tells what the scores are worth.
"""

from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from greenfold.chart import MLP
from greenfold.chart.start import farthest_points, isomap
from greenfold.datasets import roll, swiss_roll
from greenfold.experiments.claims import Claim
from greenfold.experiments.scores import crossings, knn_r2
from greenfold.green import Heat
from greenfold.learn.trainer import descend, walk
from greenfold.model import IGL, ResIGL, Tied
from greenfold.solve import OBJECTIVES, Ridge

TITLE = "Exp. 5: ResIGL and MLP on the swiss roll, and whether its height survives"


@dataclass(frozen=True)
class Way:
    """How a chart comes about."""

    igl: bool = False  # is there an IGL branch beside the MLP?
    start: bool = False  # from Isomap, not from random weights
    pull: bool = False  # towards Isomap
    adam: bool = False  # by Adam, not by L-BFGS
    train: bool = True


WAYS = {
    "random": Way(train=False),
    "MLP, Adam": Way(adam=True),
    "ResIGL, Adam": Way(igl=True, adam=True),
    "MLP": Way(),
    "ResIGL": Way(igl=True),
    "MLP, start": Way(start=True),
    "ResIGL, start": Way(igl=True, start=True),
    "MLP, pull": Way(start=True, pull=True),
    "ResIGL, pull": Way(igl=True, start=True, pull=True),
}


@dataclass(frozen=True)
class Config:
    seeds: int = 3
    n: int = 1500
    n_test: int = 2000
    n_atoms: int = 64
    hidden: tuple[int, ...] = (32, 32)
    alpha: float = 1e-3
    pull: float = 1.0
    max_iter: int = 300
    epochs: int = 500
    n_lines: int = 7


FULL = Config()
QUICK = Config(seeds=2, n=800, max_iter=150, epochs=300)
TINY = Config(seeds=1, n=150, n_test=200, n_atoms=20, hidden=(8,), max_iter=5, epochs=5)


def run(config: Config, seed: int) -> dict[str, Any]:
    X, t, h = swiss_roll(config.n + config.n_test, seed=seed)
    n, mean, std = config.n, X[: config.n].mean(0), X[: config.n].std(0)
    x, Y = torch.from_numpy((X - mean) / std), torch.from_numpy(np.sign(np.sin(t)))[:, None]
    goal = isomap(x[:n], 2)
    angles = np.linspace(1.5, 4.5, 300) * np.pi
    heights = np.linspace(1, 20, config.n_lines)
    lines = [(roll(angles, np.full_like(angles, v)) - mean) / std for v in heights]
    out: dict[str, Any] = {"picture": {}}
    for name, way in WAYS.items():
        torch.manual_seed(seed)  # all ways from the same weights
        model, chart = learn(config, way, x[:n], Y[:n], goal)
        with torch.no_grad():
            xi = chart(x).numpy()
            drawn = np.array([chart(torch.from_numpy(line)).numpy() for line in lines])
            right = (model(x[n:]) * Y[n:] > 0).double().mean()
            alone = branch_alone(config, model, x, Y, n) if way.igl else None
        out["picture"][name] = (drawn - xi.mean(0)) / xi.std(0)
        out[name] = {
            "height": knn_r2(xi[n:], h[n:]),
            "angle": knn_r2(xi[n:], t[n:]),
            "crossings": crossings(drawn),
            "accuracy": float(right),
            "accuracy_of_igl_alone": alone,
        }
    return out


def learn(
    config: Config, way: Way, x: Tensor, Y: Tensor, goal: Tensor
) -> tuple[nn.Module, nn.Module]:
    """The trained model and its encoder."""
    encoder, head = MLP(x.shape[1], 2, config.hidden), MLP(2, 1, config.hidden)

    def distance() -> Tensor:
        return (encoder(x) - goal).square().mean()

    if way.start:
        descend(encoder, distance, list(encoder.parameters()), max_iter=3 * config.max_iter)
    model: nn.Module = nn.Sequential(encoder, head)
    if way.igl:
        with torch.no_grad():
            anchors = Tied(x[farthest_points(encoder(x), config.n_atoms)])
        igl = IGL(encoder, Heat(), anchors, n_dims=2, standardize=True, energy=True)
        model = ResIGL(igl, head)

    def loss() -> Tensor:
        pull = config.pull * distance() if way.pull else 0.0
        if not isinstance(model, ResIGL):
            return (model(x) - Y).square().mean() + pull
        design, rest = model.split(x, Y)
        return OBJECTIVES["penalized"](design, rest, np.log(strength(config, model.igl))) + pull

    parameters = list(model.parameters())
    if way.adam:
        walk(
            model,
            lambda rows: loss(),
            parameters,
            len(x),
            epochs=config.epochs,
            batch_size=len(x),
            lr=5e-3,
            patience=config.epochs,
        )
    elif way.train:
        descend(model, loss, parameters, max_iter=config.max_iter)
    if isinstance(model, ResIGL):
        model.settle(x).solve(x, Y, Ridge(strength(config, model.igl), relative=False))
    return model, encoder


def strength(config: Config, igl: IGL) -> float:
    """α of the penalty on the energy of the source."""
    return config.alpha * config.n * float(igl.unit())


def branch_alone(config: Config, model: nn.Module, x: Tensor, Y: Tensor, n: int) -> float:
    """Test accuracy of the best source on the same chart without the MLP beside it."""
    assert isinstance(model, ResIGL)
    model.igl.solve(x[:n], Y[:n], Ridge(strength(config, model.igl), relative=False))
    return float((model.igl(x[n:]) * Y[n:] > 0).double().mean())


def claims(config: Config, runs: list[dict[str, Any]]) -> list[Claim]:
    def of(way: str, score: str) -> list[float]:
        return [run[way][score] for run in runs]

    def less(a: list[float], b: list[float]) -> bool:
        return all(x < y for x, y in zip(a, b, strict=True))

    def ratios(a: list[float], b: list[float]) -> list[float]:
        return [x / max(y, 0.1) for x, y in zip(a, b, strict=True)]

    crossed = {name: of(name, "crossings") for name in WAYS}
    middle = {name: float(np.median(values)) for name, values in crossed.items()}
    height = {name: of(name, "height") for name in WAYS}
    kept = {name: float(np.median(values)) for name, values in height.items()}
    pulled, alone = of("ResIGL, pull", "accuracy"), of("ResIGL, pull", "accuracy_of_igl_alone")

    def branch_claims(suffix: str, how: str) -> list[Claim]:
        igl, mlp = "ResIGL" + suffix, "MLP" + suffix
        return [
            Claim(
                "Exp. 5, text",
                f"the IGL branch keeps the geometry, {how}: crossings of ResIGL over those of the MLP",
                "geometric regularizer",
                ratios(crossed[igl], crossed[mlp]),
                less(crossed[igl], crossed[mlp]),
                f"Crossings: {middle[igl]:.1f} and {middle[mlp]:.1f}. They undercount where a chart "
                "falls onto a curve, as the MLP's does.",
            ),
            Claim(
                "Exp. 5, text",
                f"the same by the kNN-R² of the height, ResIGL minus MLP, {how}",
                "geometric regularizer",
                [a - b for a, b in zip(height[igl], height[mlp], strict=True)],
                less(height[mlp], height[igl]),
                f"Height: {kept[igl]:.2f} and {kept[mlp]:.2f}, but {kept['random']:.2f} before "
                "training. A penalty on the source does not act on the chart.",
                small=False,
            ),
        ]

    change = "the chart starts at Isomap coordinates and is pulled towards them"
    return [
        Claim(
            "Exp. 5, figure, left",
            "pure MLP, by Adam: iso-height lines cross (times per pair)",
            "tangled and crossing",
            crossed["MLP, Adam"],
            min(crossed["MLP, Adam"]) > 0.5 and less(crossed["random"], crossed["MLP, Adam"]),
            "The target does not depend on the height, so nothing keeps it. The encoder before "
            f"training crosses {middle['random']:.1f} times.",
            small=False,
        ),
        Claim(
            "Exp. 5, figure, right",
            "ResIGL, by Adam, nothing else: iso-height lines stay apart (crossings per pair)",
            "stratified",
            crossed["ResIGL, Adam"],
            max(crossed["ResIGL, Adam"]) <= 0.5,
            "The source has no use for the height either. kNN-R² of the height: "
            f"{kept['ResIGL, Adam']:.2f}, MLP {kept['MLP, Adam']:.2f}, before training "
            f"{kept['random']:.2f}.",
        ),
        *branch_claims(", Adam", "by Adam"),
        *branch_claims("", "when L-BFGS takes both further down"),
        Claim(
            "Exp. 5, figure, right",
            "ResIGL with a chart pull: crossings per pair of iso-height lines",
            "stratified",
            crossed["ResIGL, pull"],
            max(crossed["ResIGL, pull"]) <= 0.5,
            f"It is the pull that does it: an MLP under the same pull has {middle['MLP, pull']:.2g}.",
            change=change,
            mark=0.5,
        ),
        Claim(
            "Exp. 5, text",
            "ResIGL preserves the topology: kNN-R² of the height",
            "topology-preserving",
            height["ResIGL, pull"],
            min(height["ResIGL, pull"]) >= 0.95,
            f"From the same start without the pull {kept['ResIGL, start']:.2f}; an MLP under the same "
            f"pull {kept['MLP, pull']:.3f}.",
            change=change,
            mark=0.95,
            small=False,
        ),
        Claim(
            "Exp. 5, text",
            "under the same pull the IGL branch keeps more of the geometry: kNN-R² of the angle, "
            "ResIGL minus MLP",
            "geometric regularizer",
            [
                a - b
                for a, b in zip(of("ResIGL, pull", "angle"), of("MLP, pull", "angle"), strict=True)
            ],
            less(of("MLP, pull", "angle"), of("ResIGL, pull", "angle")),
            "Where the target is constant an MLP can let the angle go; columns of a kernel on the "
            "standardized chart leave less to gain from that.",
            change=change,
            small=False,
        ),
        Claim(
            "Exp. 5, text",
            "the MLP residual captures the sharp transitions: test accuracy of ResIGL",
            "not given",
            pulled,
            less(alone, pulled),
            f"On the same chart the IGL branch alone has {np.median(alone):.4f}, the pulled MLP "
            f"{np.median(of('MLP, pull', 'accuracy')):.4f}.",
            change=change,
            mark=0.985,
            small=False,
        ),
    ]


def draw(config: Config, runs: list[dict[str, Any]]) -> Figure:
    run = runs[0]
    figure, axes = plt.subplots(2, 5, figsize=(11, 4.6), layout="constrained")
    columns = [
        (", Adam", "by Adam"),
        ("", "by L-BFGS"),
        (", start", "from Isomap"),
        (", pull", "from Isomap, pulled"),
    ]
    for row, kind in enumerate(("MLP", "ResIGL")):
        for column, (suffix, how) in enumerate(columns):
            name = kind + suffix
            lines(axes[row, column], run, name, f"{kind}, {how}")
    lines(axes[0, 4], run, "random", "not trained")
    scores = axes[1, 4]
    names = list(WAYS)
    for y, name in enumerate(names):
        values = [r[name]["height"] for r in runs]
        scores.plot(values, [y] * len(values), "o", ms=4, color="C1" if WAYS[name].igl else "C0")
    scores.set_title("all seeds", fontsize=9)
    scores.set(xlim=(min(0, *scores.get_xlim()), 1.05))
    scores.set_yticks(range(len(names)), names, fontsize=7)
    scores.set_xlabel("kNN-R² of the height", fontsize=8)
    scores.tick_params(labelsize=7)
    scores.invert_yaxis()
    scores.grid(axis="x", alpha=0.3)
    return figure


def lines(ax: Axes, run: dict[str, Any], name: str, title: str) -> None:
    """Lines of equal height in the chart, from low (dark) to high (light)."""
    drawn = run["picture"][name]
    for line, color in zip(drawn, plt.cm.viridis(np.linspace(0, 0.95, len(drawn)))):
        ax.plot(*line.T, color=color, lw=0.9)
    ax.set_title(title, fontsize=9)
    score = f"{run[name]['crossings']:.2g} crossings, kNN-R²h {run[name]['height']:.2f}"
    ax.set_xlabel(score, fontsize=8)
    ax.set(xticks=[], yticks=[])

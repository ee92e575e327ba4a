"""Exp. 4: sharp, turned boundaries with Gabor, Gaussian and Mexican hat sources, and superposition.

A linear chart and the places, widths and frequencies of the source atoms are learned by evidence, with
the strengths solved for at every step: by Newton's method on cross-entropy, or by least squares as in
the paper. Beside them `IGLClassifier()` as it comes, and tuned peers on the same rows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC
from torch import Tensor

from greenfold.chart import Linear
from greenfold.chart.start import farthest_points
from greenfold.datasets import rotated_shape
from greenfold.estimators import IGLClassifier
from greenfold.experiments.claims import Claim
from greenfold.experiments.peers import HAS_XRFM, tuned_xrfm
from greenfold.green import Atoms, Gabor, Gaussian, Heat, MexicanHat, Operator, Superposition
from greenfold.learn.trainer import Epoch, History, descend
from greenfold.model import IGL
from greenfold.solve import Logistic, Ridge, evidence, laplace_evidence

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

TITLE = "Exp. 4: Gabor wavelets and superposition on turned squares, checkerboards and stripes"

MARKS = {"square": 0.990, "checkerboard": 0.955, "stripes": 0.990}
EXTENT: dict[str, Any] = {"extent": (-1, 1, -1, 1)}  # of the square, for pictures
TIMES = (1e-3, 1e-2, 1e-1)  # of diffusion, that a superposition combines


@dataclass(frozen=True)
class Kind:
    """A source, an operator, and what the strengths are solved for."""

    atoms: type[Atoms]
    superposition: bool = False
    least_squares: bool = False

    def operator(self) -> Operator:
        if self.superposition:
            return Superposition([Heat(t, learn=True) for t in TIMES])
        return Heat(TIMES[1], learn=True)


IGLS = ("Gabor", "Gaussian", "Mexican hat", "superposition")  # by cross-entropy
KINDS = {
    "Gabor": Kind(Gabor),
    "Gaussian": Kind(Gaussian),
    "Mexican hat": Kind(MexicanHat),
    "superposition": Kind(Gabor, superposition=True),
    "Gabor, squares": Kind(Gabor, least_squares=True),
    "Gaussian, squares": Kind(Gaussian, least_squares=True),
}


@dataclass(frozen=True)
class Config:
    seeds: int = 5
    n: int = 1000
    n_test: int = 4000
    n_atoms: int = 112
    max_iter: int = 40
    snapshots: tuple[int, ...] = (1, 10)
    n_grid: int = 120
    peers: tuple[str, ...] = ("SVM", "MLP", "xRFM")  # those that are installed


FULL = Config()
QUICK = Config(seeds=1, n=500, n_atoms=80, max_iter=30)
TINY = Config(
    seeds=1, n=28, n_test=100, n_atoms=8, max_iter=2, snapshots=(1,), n_grid=20, peers=("SVM",)
)


def run(config: Config, seed: int) -> dict[str, Any]:
    out: dict[str, Any] = {"picture": {}}
    for shape in MARKS:
        rng = np.random.default_rng(seed)
        angle = rng.uniform(0, np.pi / 2)
        (X, y), (X_new, y_new) = (
            rotated_shape(shape, n, angle, rng) for n in (config.n, config.n_test)
        )
        accuracy: dict[str, float] = {}
        tilt: dict[str, dict[str, float]] = {}
        picture: dict[str, Any] = {"X": X, "y": y, "loss": {}}
        for name, kind in KINDS.items():
            torch.manual_seed(seed)  # all kinds from the same turn
            shots = config.snapshots if name == "Gabor" else ()
            fit = learn(config, kind, X, y, shots)
            accuracy[name] = float(np.mean((fit.decide(X_new) > 0) == y_new))
            tilt[name] = {
                "start": misaligned(fit.start, angle),
                "end": misaligned(fit.W, angle),
            }
            picture["loss"][name] = fit.history.loss
            if name == "Gabor":
                picture |= {"chart": X @ fit.W.T, "boundaries": fit.boundaries}
            if name == "Mexican hat":
                picture |= {"hats": X @ fit.W.T}
        for name in ("IGLClassifier()", *installed(config)):
            accuracy[name] = float(np.mean(PEERS[name](X, y, seed)(X_new) == y_new))
        out[shape] = {"accuracy": accuracy, "tilt": tilt, "angle": math.degrees(angle)}
        out["picture"][shape] = picture
    return out


# --- the method


@dataclass
class Fit:
    decide: Callable[[Array], Array]  # positive for class 1
    W: Array  # (2, 2), the chart
    start: Array  # (2, 2), before training
    history: History
    boundaries: dict[int, Array]  # by step, decisions on a grid of [−1, 1]²


def sources(kind: Kind, z: Tensor, n_atoms: int) -> Atoms:
    """Atoms spread over the chart, as wide as they are apart; waves of a few periods over the square."""
    mu = z[farthest_points(z, n_atoms)]
    sigma = torch.full_like(mu, float(z.std()) * 3 / math.sqrt(n_atoms))
    if kind.atoms is Gabor:
        return Gabor(mu, sigma, 3 * torch.randn_like(mu), math.pi * torch.rand_like(mu), learn=True)
    return kind.atoms(mu, sigma, learn=True)


def learn(config: Config, kind: Kind, X: Array, y: Labels, shots: tuple[int, ...]) -> Fit:
    x, Y = torch.from_numpy(X), torch.from_numpy(y).double()[:, None]
    encoder = Linear(2, 2)
    start = encoder.weight.detach().numpy().copy()
    with torch.no_grad():
        model = IGL(encoder, kind.operator(), sources(kind, encoder(x), config.n_atoms), n_dims=2)
        log_alpha = model.design(x).Phi.square().mean().log()
    log_alpha.requires_grad_()
    objective = evidence if kind.least_squares else laplace_evidence
    solver = Ridge if kind.least_squares else Logistic

    def alpha() -> Tensor:
        return log_alpha.clamp(-12, 10)

    def decide(points: Array) -> Array:
        with torch.no_grad():
            strength = float(alpha().exp())
            model.solve(x, Y, solver(strength, relative=False))
            u: Array = model(torch.from_numpy(points))[:, 0].numpy()
        return u - 0.5 if kind.least_squares else u

    boundaries = {}

    def snapshot(epoch: Epoch) -> None:
        if epoch.step in shots:
            boundaries[epoch.step] = decide(grid(config.n_grid))

    history = descend(
        model,
        lambda: objective(model.design(x), Y, alpha()),
        [*model.parameters(), log_alpha],
        max_iter=config.max_iter,
        callbacks=[snapshot],
    )
    if shots:
        boundaries[len(history.loss)] = decide(grid(config.n_grid))
    return Fit(decide, encoder.weight.detach().numpy(), start, history, boundaries)


def grid(n: int) -> Array:
    """Points (n², 2) of [−1, 1]²."""
    axis = np.linspace(-1, 1, n)
    return np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)


def misaligned(W: Array, angle: float) -> float:
    """Degrees between the axes of a linear chart and those of the pattern, mod 90: 22.5 by chance."""
    turn = np.degrees(np.arctan2(W[:, 1], W[:, 0]) - angle) % 90
    return float(np.minimum(turn, 90 - turn).mean())


# --- peers: (X, y, seed) → a function that predicts


def default(X: Array, y: Labels, seed: int) -> Callable[[Array], Array]:
    return IGLClassifier(random_state=seed).fit(X, y).predict


def svm(X: Array, y: Labels, seed: int) -> Callable[[Array], Array]:
    choices = {"C": np.logspace(0, 4, 5), "gamma": np.logspace(-0.5, 2, 6)}
    predict: Callable[[Array], Array] = GridSearchCV(SVC(), choices, cv=4).fit(X, y).predict
    return predict


def mlp(X: Array, y: Labels, seed: int) -> Callable[[Array], Array]:
    choices = {"alpha": [1e-3, 1e-1], "activation": ["tanh", "relu"]}
    model = MLPClassifier((64, 64), solver="lbfgs", max_iter=400, random_state=seed)
    predict: Callable[[Array], Array] = GridSearchCV(model, choices, cv=3).fit(X, y).predict
    return predict


def xrfm(X: Array, y: Labels, seed: int) -> Callable[[Array], Array]:
    """Bandwidth and exponent by a quarter of the rows."""
    rows = np.random.default_rng(seed).permutation(len(X))
    grid = [{"bandwidth": b, "exponent": e} for b in (0.1, 0.3, 1.0, 3.0, 10.0) for e in (1.0, 1.4)]

    def errors(u: Array, truth: Array) -> float:
        return float(np.mean((u > 0.5) != (truth > 0.5)))

    values = tuned_xrfm(X, y, rows[len(X) // 4 :], rows[: len(X) // 4], grid, errors)
    return lambda x: (values(x) > 0.5).astype(np.int64)


PEERS = {"IGLClassifier()": default, "SVM": svm, "MLP": mlp, "xRFM": xrfm}


def installed(config: Config) -> list[str]:
    return [name for name in config.peers if name != "xRFM" or HAS_XRFM]


# --- what it means


def claims(config: Config, runs: list[dict[str, Any]]) -> list[Claim]:
    def accuracy(shape: str, name: str) -> list[float]:
        return [run[shape]["accuracy"][name] for run in runs]

    def middle(shape: str, name: str) -> float:
        return float(np.median(accuracy(shape, name)))

    def gain(better: str, other: str) -> list[float]:
        """On every shape of every run."""
        return [
            a - b
            for shape in MARKS
            for a, b in zip(accuracy(shape, better), accuracy(shape, other), strict=True)
        ]

    def clear(gains: list[float]) -> bool:
        """Positive by two standard errors."""
        return float(np.mean(gains)) > 2 * float(np.std(gains)) / math.sqrt(max(len(gains) - 1, 1))

    rows = []
    peers = installed(config)
    for shape, mark in MARKS.items():
        others = ", ".join(f"{name} {middle(shape, name):.3f}" for name in (*IGLS, *peers))
        best = max(IGLS, key=partial(middle, shape))
        rivals = max(middle(shape, name) for name in peers)
        for name, says in ((best, "best of four, "), ("IGLClassifier()", "default, ")):
            rows.append(
                Claim(
                    "Exp. 4, figure",
                    f"sharp, turned boundaries: accuracy on the {shape} ({says}{name})",
                    "sharp by eye",
                    accuracy(shape, name),
                    middle(shape, name) >= mark,
                    f"Medians: {others}. The best peer has {rivals:.3f}.",
                    change="" if name == "Gabor" else f"{name} in place of Gabor",
                    mark=mark,
                    small=False,
                )
            )
        rows.append(
            Claim(
                "Exp. 4, figure",
                f"Gabor wavelets learn sharp, non-axis-aligned boundaries: accuracy on the {shape}",
                "sharp by eye",
                accuracy(shape, "Gabor"),
                middle(shape, "Gabor") >= rivals - 0.005,
                f"Held against the best peer, {rivals:.3f}, less half a percent.",
                change="cross-entropy in place of least squares, which has "
                f"{middle(shape, 'Gabor, squares'):.3f}",
                small=False,
            )
        )
    for suffix, how in (("", "cross-entropy"), (", squares", "least squares, as in the paper")):
        gains = gain("Gabor" + suffix, "Gaussian" + suffix)
        rows.append(
            Claim(
                "Exp. 4, text",
                f"Gabor overcomes the smoothness bias: accuracy above Gaussian's, by {how}",
                "overcome",
                gains,
                clear(gains),
                f"Mean {np.mean(gains):+.4f} ± {np.std(gains) / math.sqrt(len(gains)):.4f} over shapes "
                "and seeds; it has to be positive by two standard errors.",
                small=False,
            )
        )
    gains = gain("Gaussian", "Gaussian, squares")
    rows.append(
        Claim(
            "Exp. 4, text",
            "there is a smoothness bias to overcome: accuracy of Gaussians by cross-entropy above "
            "least squares",
            "smoothness bias",
            gains,
            clear(gains),
            "What asks for a smooth u is the squared loss on a target that jumps: logits may grow "
            "where the boundary is, and a smooth u of large slope is a sharp boundary.",
            change="the loss, not the atoms, makes the difference",
            small=False,
        )
    )
    for name in ("Gabor", "Mexican hat"):
        tilts = {shape: [run[shape]["tilt"][name]["end"] for run in runs] for shape in MARKS}
        each = ", ".join(f"{shape} {np.median(values):.1f}°" for shape, values in tilts.items())
        start = np.median([run[shape]["tilt"][name]["start"] for run in runs for shape in MARKS])
        rows.append(
            Claim(
                "Exp. 4, text",
                f"stage 1 finds coordinates aligned with the pattern, {name}: degrees off, mod 90",
                "aligned",
                [value for values in tilts.values() for value in values],
                max(float(np.median(values)) for values in tilts.values()) <= 10,
                f"Medians: {each}; {start:.0f}° before training, 22.5° by chance.",
                change="" if name == "Gabor" else "hats, which are products and change sign",
            )
        )
    gains = gain("superposition", "Gabor")
    rows.append(
        Claim(
            "Exp. 4 and appendix",
            "superposition adds: accuracy of Gabor under three operators above one",
            "multi-scale kernels overcome limits",
            gains,
            clear(gains),
            f"Mean {np.mean(gains):+.4f}. Atoms that learn their widths have many scales already.",
            small=False,
        )
    )
    return rows


def draw(config: Config, runs: list[dict[str, Any]]) -> Figure:
    run = runs[0]
    n = len(config.snapshots) + 1
    figure, axes = plt.subplots(3, n + 3, figsize=(1.75 * (n + 3), 5.3), layout="constrained")
    for row, (shape, line) in enumerate(zip(MARKS, axes, strict=True)):
        data = run["picture"][shape]
        for name in IGLS:
            line[0].plot(
                range(1, len(data["loss"][name]) + 1), data["loss"][name], lw=1, label=name
            )
        line[0].set_ylabel(shape, fontsize=9)
        line[0].set_yscale("log")
        line[0].tick_params(which="both", labelsize=5)
        for ax, (step, u) in zip(line[1:], data["boundaries"].items(), strict=False):
            u = u.reshape(config.n_grid, config.n_grid)
            ax.contourf(u, levels=[-np.inf, 0, np.inf], colors=["#bcd2e8", "#f4c7a1"], **EXTENT)
            ax.contour(u, levels=[0], colors="k", linewidths=0.7, **EXTENT)
            ax.set_title(f"step {step}" if row == 0 else "", fontsize=8)
        for ax, key, name in (
            (line[n + 1], "chart", "Gabor"),
            (line[n + 2], "hats", "Mexican hat"),
        ):
            ax.scatter(*data[key][:500].T, c=data["y"][:500], s=1.5, cmap="coolwarm")
            tilt = run[shape]["tilt"][name]["end"]
            ax.set_title(
                f"chart, {name}\n{tilt:.1f}° off" if row == 0 else f"{tilt:.1f}° off", fontsize=8
            )
        for ax in line[1:]:
            ax.set(xticks=[], yticks=[])
            ax.set_aspect("equal", adjustable="datalim" if ax in line[n + 1 :] else "box")
            ax.set_box_aspect(1)
        accuracy = run[shape]["accuracy"]["Gabor"]
        line[n].set_xlabel(f"accuracy {accuracy:.3f}", fontsize=8)
    axes[0, 0].set_title("loss", fontsize=8)
    axes[0, 0].legend(fontsize=5.5)
    axes[2, 0].set_xlabel("iteration", fontsize=8)
    return figure

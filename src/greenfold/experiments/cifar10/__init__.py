"""CIFAR-10, a fifth of it: classifiers and autoencoders with and without the head.

Every method has the same small residual network, rows, augmentations and epochs, and as many settings
to be tuned: they are compared after a short training on rows held out, with a seed of its own. The
test rows are scored once, at the end.
"""

from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from joblib import Parallel, delayed
from matplotlib.figure import Figure
from sklearn.manifold import TSNE
from torch import Tensor
from tqdm.auto import tqdm

from greenfold.experiments.cifar10 import judged
from greenfold.experiments.cifar10.measures import measure
from greenfold.experiments.cifar10.networks import AUTOENCODERS, METHODS
from greenfold.experiments.cifar10.training import Setting, Task, codes, train
from greenfold.experiments.claims import Claim
from greenfold.experiments.exp7.training import Checkpoint
from greenfold.experiments.runner import undisturbed
from greenfold.images import CIFAR10_CLASSES, load_cifar10_jpeg

TITLE = "CIFAR-10: the head behind a residual network"
TUNING_SEED = 69_999
RATES = (5e-3, 2e-2)


@dataclass(frozen=True)
class Config:
    seeds: int = 3
    n_train: int = 9000
    n_held_out: int = 1000
    n_test: int = 2000
    epochs: int = 10
    tuning_epochs: int = 2
    batch: int = 128
    width: int = 16
    n_dims: int = 32
    n_atoms: int = 128
    n_shown: int = 1000  # test rows in the figure
    chosen: dict[str, dict[str, float]] = field(default_factory=dict)  # by `prepare`
    folder: str = ""  # for checkpoints


FULL = Config()
QUICK = Config(
    seeds=1, n_train=1500, n_held_out=500, n_test=500, epochs=3, tuning_epochs=1, width=8
)
TINY = Config(
    seeds=1, n_train=200, n_held_out=100, n_test=100, epochs=1, tuning_epochs=1, batch=20, width=4,
    n_dims=8, n_atoms=12, n_shown=60,
)  # fmt: skip


def settings(method: str) -> tuple[Setting, ...]:
    """Two to choose from: the rates."""
    penalty = 0.0 if method in ("cross-entropy", "AE") else 0.003
    weight = 0.1 if method == "AE + two-stage" else 0.0
    return tuple(Setting(rate, penalty, weight) for rate in RATES)


class Data:
    """Pictures in [0, 1] (n, 3, 32, 32) and classes (n,): to train on, tune on, and be judged by."""

    def __init__(self, config: Config, seed: int):
        images, labels = _pictures("train")
        rows = np.random.default_rng(seed).permutation(len(labels))
        n = config.n_train
        own, held = rows[:n], rows[n : n + config.n_held_out]
        self.train, self.held_out = (images[own], labels[own]), (images[held], labels[held])
        images, labels = _pictures("test")
        some = np.random.default_rng(0).permutation(len(labels))[: config.n_test]
        self.test = images[some], labels[some]


@cache
def _pictures(part: str) -> tuple[Tensor, Tensor]:
    images, labels = load_cifar10_jpeg(part)
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    return x.contiguous(), torch.from_numpy(labels).long()


def prepare(config: Config, n_jobs: int = 1, progress: bool = False) -> Config:
    """Choose the setting of every method."""
    _pictures("train")  # what is missing is said here
    trials = [(method, setting) for method in METHODS for setting in settings(method)]
    scores = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(_trial)(config, method, setting) for method, setting in trials
    )
    bar = tqdm(scores, desc="tuning", total=len(trials), unit="trial", disable=not progress)
    best: dict[str, tuple[float, Setting]] = {}
    for (method, setting), score in zip(trials, bar, strict=True):
        if method not in best or score < best[method][0]:
            best[method] = score, setting
    return replace(config, chosen={method: asdict(s) for method, (_, s) in best.items()})


def _trial(config: Config, method: str, setting: Setting) -> float:
    """What should be small, on the rows held out: errors, of an autoencoder times its MSE."""
    task = replace(_task(config, method, setting, TUNING_SEED), epochs=config.tuning_epochs)
    with undisturbed(TUNING_SEED):
        scores = _scores(config, task, tuning=True)
    if method in AUTOENCODERS:
        return float(scores["mse"] * (1 - scores["probe"]))
    return float(1 - scores["accuracy"])


def _task(config: Config, method: str, setting: Setting, seed: int) -> Task:
    sizes = config.epochs, config.batch, config.width, config.n_dims, config.n_atoms
    return Task(method, setting, seed, config.n_train, *sizes)


def _scores(config: Config, task: Task, tuning: bool = False) -> dict[str, Any]:
    """Train, measure, and keep what was measured beside the checkpoint."""
    kept = Checkpoint(config.folder, f"{task.key}-{'tuning' if tuning else 'test'}")
    scores = kept.load()
    if scores is not None:
        return scores
    data = Data(config, task.seed)
    model, history = train(task, *data.train, config.folder)
    scores = measure(model, data.train, data.held_out, data.held_out if tuning else data.test)
    scores["cpu_seconds"] = history["cpu_seconds"]
    if not tuning:
        x, y = (part[: config.n_shown] for part in data.test)
        seen = codes(model, x) * model.roots.detach()
        scores["picture"] = {"codes": seen, "classes": y, "gates": history["gates"]}
    kept.save(scores)
    return scores


def run(config: Config, seed: int) -> dict[str, Any]:
    """Every method at its setting."""
    chosen = {
        m: Setting(**config.chosen[m]) if m in config.chosen else settings(m)[0] for m in METHODS
    }
    scores = {m: _scores(config, _task(config, m, chosen[m], seed)) for m in METHODS}
    shown = {name: score.pop("picture") for name, score in scores.items()}
    cpu_seconds = sum(score["cpu_seconds"] for score in scores.values())  # of the trainings
    return {**scores, "cpu_seconds": cpu_seconds, "picture": shown}


def claims(config: Config, runs: list[dict[str, Any]]) -> list[Claim]:
    return judged.claims(runs)


def tables(config: Config, runs: list[dict[str, Any]]) -> str:
    """Medians over the seeds, what the columns mean, and the settings chosen."""
    parts = []
    for method, setting in config.chosen.items():
        told = {k: v for k, v in setting.items() if v}
        parts.append(f"{method}: {', '.join(f'{k} {v:g}' for k, v in told.items())}")
    chosen = f"Chosen on the rows held out, among {len(RATES)} settings each: {'; '.join(parts)}.\n"
    return "\n".join([judged.table(runs), judged.COLUMNS_MEAN, chosen])


def draw(config: Config, runs: list[dict[str, Any]]) -> Figure:
    """t-SNE of one seed's test rows as the head sees them; below, gates while learning."""
    shown = runs[0]["picture"]
    figure, axes = plt.subplots(
        2, len(METHODS), figsize=(2.3 * len(METHODS), 4.8), layout="constrained"
    )
    for i, method in enumerate(METHODS):
        flat, curve = axes[0, i], axes[1, i]
        seen = np.asarray(shown[method]["codes"])
        perplexity = min(30.0, (len(seen) - 1) / 3)
        places = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(seen)
        dots = flat.scatter(
            *places.T, c=shown[method]["classes"], s=3, cmap="tab10", vmin=0, vmax=9
        )
        flat.set(title=method.replace(", ", ",\n"), xticks=[], yticks=[])
        gates = np.asarray(shown[method]["gates"])  # (epochs, d)
        if method in ("cross-entropy", "AE"):
            curve.axis("off")
            continue
        curve.plot(np.arange(1, len(gates) + 1), gates, lw=0.8)
        curve.set(xlabel="epoch", ylim=(-0.03, 1.03))
        curve.set_title(f"{int((gates[-1] > 0).sum())} of {gates.shape[1]} gates open", fontsize=8)
    axes[1, 1].set_ylabel("gate")
    handles = dots.legend_elements(num=range(10))[0]
    axes[1, 0].legend(handles, CIFAR10_CLASSES, loc="center", ncols=2, fontsize=7, frameon=False)
    return figure

"""Tasks: a chart learned once over many of them, and only the linear stage solved for a new one.

The paper names this as future work: the claims are ours, set before the runs. Families of functions
beside fine-tuning, ridge on a frozen encoder and a Gaussian process; pictures of new classes beside
prototypical networks, ridge and logistic heads on the same encoder.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from greenfold.experiments.claims import Claim
from greenfold.experiments.exp7.training import Checkpoint
from greenfold.experiments.tasks import numbers, pictures

TITLE = "Tasks: charts amortized over many tasks"
SHOTS = (1, 5)


@dataclass(frozen=True)
class Config:
    seeds: int = 2
    n_tasks: int = 400  # to learn from, with `rows` each
    rows: int = 40
    epochs: int = 25
    new_tasks: int = 150
    images: str = "MNIST and Fashion-MNIST"
    per_class: int = 300
    lessons: int = 300  # episodes to learn from
    passes: int = 3
    episodes: int = 600  # of new classes
    folder: str = ""


FULL = Config()
QUICK = Config(
    1,
    n_tasks=150,
    epochs=15,
    new_tasks=50,
    images="digits",
    per_class=150,
    lessons=150,
    episodes=200,
)
TINY = Config(
    1, 20, 30, 2, new_tasks=4, images="digits", per_class=20, lessons=6, passes=1, episodes=5
)


def run(config: Config, seed: int) -> dict[str, Any]:
    parts = {family: partial(functions, config, family, seed) for family in numbers.FAMILIES}
    parts |= {str(shots): partial(few_shot, config, shots, seed) for shots in SHOTS}
    each = [kept(config.folder, f"{seed}-{name}", make) for name, make in parts.items()]
    told = {key: value for part in each for key, value in part.items()}
    return {**told, "cpu_seconds": sum(part["cpu_seconds"] for part in each)}


def kept(folder: str, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was measured and the CPU seconds it took, from a file if it is known already."""
    known = Checkpoint(folder, name)
    found = known.load()
    if found is None:
        start = time.process_time()
        found = make()
        found["cpu_seconds"] = time.process_time() - start
        known.save(found)
    return found


def functions(config: Config, family: str, seed: int) -> dict[str, Any]:
    """Errors (over tasks), seconds of adapting, and coverage of 90% intervals."""
    make, shots = numbers.FAMILIES[family]
    draw = make(np.random.default_rng(seed))
    tasks = [draw(config.rows) for _ in range(config.n_tasks)]
    new = [draw(shots + 100) for _ in range(config.new_tasks)]
    told = (tasks, shots, config.epochs, seed)
    learner = numbers.igl(*told)
    methods = {
        "IGL": learner,
        "fine-tuning": numbers.FineTuned(*told),
        "frozen": numbers.Frozen(*told),
        "GP": numbers.FromScratch(),
    }
    found: dict[str, Any] = {}
    for name, method in methods.items():
        judged = numbers.judged(method, new, shots)
        found[f"{family}, {name}"] = float(np.mean(judged["errors"]))
        found[f"{family}, {name}, median"] = float(np.median(judged["errors"]))
        found[f"{family}, {name}, seconds"] = judged["seconds"]
    found[f"{family}, coverage"] = numbers.coverage(learner, new, shots)
    return found


def few_shot(config: Config, shots: int, seed: int) -> dict[str, Any]:
    """Mean accuracy over episodes of new classes, and half of its 95% interval."""
    data = pictures.load(config.images, config.per_class, seed)
    lesson = pictures.episodes(data.old[1], shots, pictures.QUERIES, config.lessons, seed)
    tests = pictures.episodes(data.new[1], shots, 10, config.episodes, seed + 1)
    passes = config.passes
    found = {
        name: pictures.head_accuracies(
            head, pictures.trained(head, data, lesson, passes, seed), data, tests
        )
        for name, head in pictures.HEADS.items()
    }
    encoder = pictures.classified(data, lesson, passes, seed)
    found["logistic"] = pictures.logistic_accuracies(encoder, data, lesson, tests)
    learner = pictures.igl(data, lesson, shots, passes, seed)
    found["IGL"] = pictures.igl_accuracies(learner, data, tests)
    told = {}
    for name, each in found.items():
        told[f"{shots}-shot, {name}"] = float(np.mean(each))
        told[f"{shots}-shot, {name}, ±"] = 1.96 * float(np.std(each)) / len(each) ** 0.5
    return told


def claims(config: Config, runs: list[dict[str, Any]]) -> list[Claim]:
    def of(key: str) -> list[float]:
        return [run[key] for run in runs]

    def ratio(one: str, other: str) -> list[float]:
        return [a / max(b, 1e-12) for a, b in zip(of(one), of(other), strict=True)]

    def lead(shots: int, other: str) -> list[float]:
        ours = of(f"{shots}-shot, IGL")
        return [100 * (a - b) for a, b in zip(ours, of(f"{shots}-shot, {other}"), strict=True)]

    found = []
    for family in numbers.FAMILIES:
        error = ratio(f"{family}, IGL", f"{family}, fine-tuning")
        spent = ratio(f"{family}, IGL, seconds", f"{family}, fine-tuning, seconds")
        covered = of(f"{family}, coverage")
        found += [
            Claim("outlook", f"{family}: MSE over that of fine-tuning with 10 steps", "≤ 0.5", error,
                  max(error) <= 0.5, "The solve goes to the optimum that gradient steps only approach.",
                  mark=0.5),
            Claim("outlook", f"{family}: time to adapt over that of 10 steps", "≤ 0.05", spent,
                  max(spent) <= 0.05, "Half is the encoder; intervals wait until they are asked for.",
                  mark=0.05),
            Claim("outlook", f"{family}: MSE over that of ridge on a frozen encoder", "< 1",
                  ratio(f"{family}, IGL", f"{family}, frozen"),
                  max(ratio(f"{family}, IGL", f"{family}, frozen")) < 1,
                  "The chart is learned for the solve, not beside it."),
            Claim("outlook", f"{family}: MSE over that of a Gaussian process from scratch", "< 1",
                  ratio(f"{family}, IGL", f"{family}, GP"),
                  max(ratio(f"{family}, IGL", f"{family}, GP")) < 1,
                  "Few rows tell little of what all tasks share."),
            Claim("outlook", f"{family}: coverage of 90% intervals", "0.86 to 0.94", covered,
                  min(covered) >= 0.86 and max(covered) <= 0.94,
                  "Errors at queries of tasks left out say how wide they are.", small=False),
        ]  # fmt: skip
    for shots in SHOTS:
        for other, least in (("prototypes", 1.0), ("ridge", 0.0), ("logistic", 0.0)):
            ahead = lead(shots, other)
            found.append(
                Claim(
                    "outlook",
                    f"{WAY}-way {shots}-shot: points of accuracy ahead of {other}",
                    f"≥ {least:g}",
                    ahead,
                    min(ahead) >= least,
                    WHY[other],
                    mark=least,
                    small=False,
                )
            )
    return found


WAY = pictures.WAY
WHY = {
    "prototypes": "A mean of one or five pictures is all that a prototype knows.",
    "ridge": "Lines are one part of the kernel; what is curved has to pay for itself.",
    "logistic": "Its encoder has learned to tell old classes apart, not to learn new ones.",
}


def tables(config: Config, runs: list[dict[str, Any]]) -> str:
    """Means over seeds: errors and milliseconds, accuracies with the 95% interval of one seed."""

    def mean(key: str) -> float:
        return float(np.mean([run[key] for run in runs]))

    lines = ["| family | method | MSE | median over tasks | ms to adapt |", "|---|---|--:|--:|--:|"]
    for family in numbers.FAMILIES:
        for name in ("IGL", "fine-tuning", "frozen", "GP"):
            key = f"{family}, {name}"
            lines.append(
                f"| {family} | {name} | {mean(key):.3g} | {mean(key + ', median'):.2g} "
                f"| {1e3 * mean(key + ', seconds'):.2g} |"
            )
    lines += ["", f"New classes of {config.images}, {config.episodes} episodes:", ""]
    lines += ["| method | " + " | ".join(f"{k}-shot" for k in SHOTS) + " |", "|---|--:|--:|"]
    for name in ("IGL", "prototypes", "ridge", "logistic"):
        cells = [
            f"{100 * mean(f'{k}-shot, {name}'):.1f} ± {100 * mean(f'{k}-shot, {name}, ±'):.1f}"
            for k in SHOTS
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def draw(config: Config, runs: list[dict[str, Any]]) -> Figure:
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    methods = ("IGL", "fine-tuning", "frozen", "GP")
    for axis, family in zip(axes, numbers.FAMILIES, strict=False):
        for run in runs:
            axis.plot(methods, [run[f"{family}, {name}"] for name in methods], "o-", lw=0.8)
        axis.set(title=family, ylabel="MSE of new tasks", yscale="log")
    heads = ("IGL", "prototypes", "ridge", "logistic")
    for k in SHOTS:
        means = [100 * np.mean([run[f"{k}-shot, {name}"] for run in runs]) for name in heads]
        bars = [100 * runs[0][f"{k}-shot, {name}, ±"] for name in heads]
        axes[2].errorbar(heads, means, bars, fmt="o-", lw=0.8, label=f"{k}-shot")
    axes[2].set(title=f"5-way, {config.images}", ylabel="accuracy (%)")
    axes[2].legend()
    return figure

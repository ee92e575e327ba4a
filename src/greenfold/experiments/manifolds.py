"""Manifolds of higher dimension: spheres, tori and random smooth embeddings with d = 2 … 20.

The paper names this as future work: the claims are ours, set before the runs. Rows lie on

    sphere       x in R^{d+1}, |x| = 1
    torus        x = (cos a_1, sin a_1, …, cos a_d, sin a_d)
    embedding    x = Q z + sines of random combinations of z, z in [−1, 1]^d, x in R^{2d+10}

and the target is three random waves sin(p·ω + φ) of the place p (x on spheres and tori, z of embeddings)
with noise of 0.05 of its standard deviation. Errors are root mean squares at new rows without noise, in
standard deviations. Beside the default: a linear chart with as many coordinates as there are waves,
kernel ridge tuned by folds, xRFM tuned on rows held out where it is installed. `dimension` answers at
the most rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV

from greenfold.dims import dimension
from greenfold.estimators import IGLRegressor
from greenfold.experiments.claims import Claim
from greenfold.experiments.exp3 import slope
from greenfold.experiments.peers import HAS_XRFM, tuned_xrfm
from greenfold.experiments.tasks import kept

Array = NDArray[np.float64]
TITLE = "Manifolds of higher dimension"
WAVES = 3
NOISE = 0.05
TEST = 1000


@dataclass(frozen=True)
class Config:
    seeds: int = 2
    names: Sequence[str] = ("sphere", "torus", "embedding")
    d: Sequence[int] = (2, 5, 10, 20)
    rows: Sequence[int] = (100, 300, 900)
    folder: str = ""


FULL = Config()
QUICK = Config(1, d=(2, 10), rows=(60, 180))
TINY = Config(1, names=("sphere",), d=(2, 3), rows=(30, 60))


def places(name: str, n: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows x (n, D) and places p (n, ·) that the target is a function of."""
    if name == "sphere":
        x = rng.normal(size=(n, d + 1))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        return x, x
    if name == "torus":
        angle = rng.uniform(0, 2 * np.pi, (n, d))
        x = np.stack([np.cos(angle), np.sin(angle)], 2).reshape(n, 2 * d)
        return x, x
    D, z = 2 * d + 10, rng.uniform(-1, 1, (n, d))
    Q, _ = np.linalg.qr(rng.normal(size=(D, d)))
    sines = np.sin(z @ rng.normal(size=(d, D)) + rng.uniform(0, 2 * np.pi, D))
    return z @ Q.T + sines / np.sqrt(D), z


def target(p: Array, rng: np.random.Generator) -> Array:
    """Three waves, each of a direction along which places have a standard deviation of one."""
    omega = np.linalg.qr(rng.normal(size=(p.shape[1], min(WAVES, p.shape[1]))))[0]
    along = p @ omega
    waves = np.sin(
        1.5 * (along - along.mean(0)) / along.std(0) + rng.uniform(0, 6.3, omega.shape[1])
    )
    u = waves.sum(1)
    return (u - u.mean()) / u.std()


def ridge(X: Array, y: Array, seed: int) -> Callable[[Array], Array]:
    unit = 1 / (X.shape[1] * X.var())
    grid = {"alpha": np.logspace(-8, 0, 9), "gamma": unit * np.logspace(-2.5, 1, 8)}
    found: Callable[[Array], Array] = (
        GridSearchCV(KernelRidge(kernel="rbf"), grid, cv=4).fit(X, y).predict
    )
    return found


def xrfm(X: Array, y: Array, seed: int) -> Callable[[Array], Array]:
    """Bandwidth and ridge by a quarter of the rows."""
    order = np.random.default_rng(seed).permutation(len(X))
    grid = [{"bandwidth": b, "reg": r} for b in (1.0, 3.0, 10.0) for r in (1e-4, 1e-2)]
    cut = len(X) // 4
    return tuned_xrfm(
        X, y, order[cut:], order[:cut], grid, lambda u, v: float(np.mean((u - v) ** 2))
    )


def default(X: Array, y: Array, seed: int) -> Callable[[Array], Array]:
    found: Callable[[Array], Array] = IGLRegressor(random_state=seed).fit(X, y).predict
    return found


def linear(X: Array, y: Array, seed: int) -> Callable[[Array], Array]:
    model = IGLRegressor(chart="linear", n_dims=min(WAVES, X.shape[1]), random_state=seed)
    found: Callable[[Array], Array] = model.fit(X, y).predict
    return found


METHODS = {"default": default, "linear chart": linear, "kernel ridge": ridge}
METHODS |= {"xRFM": xrfm} if HAS_XRFM else {}


def cell(config: Config, name: str, d: int, seed: int) -> dict[str, Any]:
    """Errors of all methods against rows, and the dimensions answered at the most rows."""
    rng = np.random.default_rng([seed, d, sorted(("sphere", "torus", "embedding")).index(name)])
    most = max(config.rows)
    X, p = places(name, most + TEST, d, rng)
    u = target(p, rng)
    y = u[:most] + NOISE * rng.normal(size=most)
    found: dict[str, Any] = {
        method: [
            float(np.sqrt(np.mean((fit(X[:n], y[:n], seed)(X[most:]) - u[most:]) ** 2)))
            for n in config.rows
        ]
        for method, fit in METHODS.items()
    }
    found["waves"] = float(min(WAVES, p.shape[1]))  # directions that the target has
    report = dimension(X[:most], y, interval=False, random_state=seed)
    found["intrinsic"] = float(report.intrinsic.value or 0)
    found["task"] = float(report.task.value or 0) if report.task is not None else 0.0
    return found


def run(config: Config, seed: int) -> dict[str, Any]:
    cells = {
        f"{name} {d}": kept(
            config.folder, f"{seed}-{name}-{d}", partial(cell, config, name, d, seed)
        )
        for name in config.names
        for d in config.d
    }
    return {**cells, "cpu_seconds": sum(found["cpu_seconds"] for found in cells.values())}


def claims(config: Config, runs: list[dict[str, Any]]) -> list[Claim]:
    cells = [f"{name} {d}" for name in config.names for d in config.d]
    high = [f"{name} {max(config.d)}" for name in config.names]
    low = [(f"{name} {d}", d) for name in config.names for d in config.d if d <= 5]

    def worst(ours: str, other: str, some: list[str]) -> list[float]:
        return [max(run[key][ours][-1] / run[key][other][-1] for key in some) for run in runs]

    beside = worst("default", "kernel ridge", cells)
    beyond = worst("default", "kernel ridge", high)
    given = worst("default", "linear chart", cells)
    falls = [max(slope(config.rows, run[key]["default"]) for key in cells) for run in runs]
    intrinsic = [max(abs(run[key]["intrinsic"] / d - 1) for key, d in low) for run in runs]
    tasks = [
        float(np.mean([run[key]["task"] == run[key]["waves"] for key in cells])) for run in runs
    ]
    n = max(config.rows)
    found = [
        Claim("outlook", f"default over tuned kernel ridge, {n} rows: largest ratio of errors", "≤ 1",
              beside, max(beside) <= 1, "Folds choose all columns, or few directions.",
              mark=1.0),
        Claim("outlook", f"the same at d = {max(config.d)}", "≤ 0.5", beyond, max(beyond) <= 0.5,
              "Few rows fill three directions, but have to show them first.",
              mark=0.5),
        Claim("outlook", f"default over a linear chart of {WAVES} coordinates, largest ratio", "≤ 1.1",
              given, max(given) <= 1.1, "What is given need not be found."),
        Claim("outlook", "default: log-log slope of the error in rows, the flattest", "≤ −0.5", falls,
              max(falls) <= -0.5, "Errors fall once rows show the directions.",
              mark=-0.5),
        Claim("outlook", "`dimension`, intrinsic, up to d = 5: largest relative error", "≤ 0.2",
              intrinsic, max(intrinsic) <= 0.2, "Neighbors of few rows are far away."),
        Claim("outlook", "`dimension`, task: share of manifolds with the right answer", "≥ 0.8", tasks,
              min(tasks) >= 0.8, "Few rows show no direction that predicts.",
              mark=0.8, small=False),
    ]  # fmt: skip
    if all("xRFM" in run[cells[0]] for run in runs):
        peer = worst("default", "xRFM", cells)
        found.append(
            Claim("outlook", f"default over xRFM, {n} rows: largest ratio of errors", "≤ 1", peer,
                  max(peer) <= 1, "xRFM learns directions, too.",
                  mark=1.0)
        )  # fmt: skip
    return found


def tables(config: Config, runs: list[dict[str, Any]]) -> str:
    """Errors at the most rows and dimensions, means over seeds."""
    names = [m for m in ("default", "linear chart", "kernel ridge", "xRFM") if m in _first(runs)]
    head = ["manifold", "d", *names, "intrinsic", "task"]
    lines = [f"| {' | '.join(head)} |", "|---" + "|--:" * (len(head) - 1) + "|"]
    for name in config.names:
        for d in config.d:
            each = [run[f"{name} {d}"] for run in runs]
            errors = [f"{np.mean([e[m][-1] for e in each]):.3g}" for m in names]
            told = [f"{np.mean([e[k] for e in each]):.3g}" for k in ("intrinsic", "task")]
            lines.append(f"| {' | '.join([name, str(d), *errors, *told])} |")
    return "\n".join([*lines, ""])


def _first(runs: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = next(iter(runs[0].values()))
    return found


def draw(config: Config, runs: list[dict[str, Any]]) -> Figure:
    shape = len(config.names), len(config.d)
    size = 2.6 * shape[1] + 0.6, 2.2 * shape[0] + 0.6
    figure, axes = plt.subplots(
        *shape, figsize=size, layout="constrained", squeeze=False, sharex=True, sharey=True
    )
    methods = [m for m in ("default", "linear chart", "kernel ridge", "xRFM") if m in _first(runs)]
    for i, name in enumerate(config.names):
        for j, d in enumerate(config.d):
            for k, method in enumerate(methods):
                means = np.mean([run[f"{name} {d}"][method] for run in runs], 0)
                axes[i, j].loglog(config.rows, means, "o-", ms=3, lw=1, color=f"C{k}", label=method)
            axes[i, j].axhline(NOISE, color="0.7", lw=0.8)
            axes[i, j].set_title(f"{name}, d = {d}", fontsize=9)
    for axis in axes[-1]:
        axis.set_xticks(config.rows, [str(n) for n in config.rows])
        axis.minorticks_off()
        axis.set_xlabel("rows")
    for axis in axes[:, 0]:
        axis.set_ylabel("error")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False
    )
    return figure

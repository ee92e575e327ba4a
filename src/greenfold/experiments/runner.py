"""Run an experiment over seeds and write what came out: results.json, summary.md, figure.png."""

import json
import math
import platform
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib import import_module
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed
from matplotlib.figure import Figure
from PIL import Image
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from greenfold.experiments import NAMES

FIRST_SEED = 70_000


def reproduce(
    name: str,
    size: str = "quick",
    seeds: int | None = None,
    out: str | Path = "results/reproduce",
    progress: bool = True,
    n_jobs: int = -1,
    dataset: str | None = None,
) -> dict[str, Any]:
    """Run one experiment. Returns what is written to `out`/`name`/results.json.

    What was trained of a long one stays in `out`/`name`/checkpoints: the same call goes on from there.

    Parameters
    ----------
    name : str
        One of `experiments.NAMES`.
    size : 'tiny', 'quick' or 'full'
    seeds : int, optional
        How many; the size's own number by default. They are counted from `FIRST_SEED`.
    n_jobs : int
        Processes over seeds, one thread each; -1 for as many as there are cores.
    dataset : str, optional
        For experiments with a choice of data; its name is then added to the folder's.
    """
    if name not in NAMES:
        raise ValueError(f"unknown experiment {name!r}. Choose one of {', '.join(NAMES)}.")
    if size not in ("tiny", "quick", "full"):
        raise ValueError(f"`size` must be 'tiny', 'quick' or 'full', got {size!r}.")
    if seeds is not None and seeds < 1:
        raise ValueError(f"`seeds` must be at least 1, got {seeds}.")
    module = import_module(f"greenfold.experiments.{name}")
    config = getattr(module, size.upper())
    if dataset is not None:
        if not hasattr(module, "on"):
            raise ValueError(f"{name} has data of its own: leave `dataset` out (got {dataset!r}).")
        config = module.on(config, dataset)
    folder = Path(out) / (name if dataset is None else f"{name}-{dataset}")
    if hasattr(config, "folder"):
        config = replace(config, folder=str(folder / "checkpoints"))
    numbers = range(FIRST_SEED, FIRST_SEED + (seeds or config.seeds))
    wall = time.perf_counter()
    if hasattr(module, "prepare"):
        config = module.prepare(config, n_jobs, progress)
    done = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(_run)(name, config, seed) for seed in numbers
    )
    done = list(tqdm(done, desc=name, total=len(numbers), unit="seed", disable=not progress))
    runs = [run for run, _ in done]
    figure = module.draw(config, runs)
    results = {
        "experiment": name,
        "dataset": dataset,
        "title": module.TITLE,
        "size": size,
        "config": asdict(config),
        "seeds": list(numbers),
        "versions": {p: version(p) for p in ("greenfold", "torch", "numpy", "scikit-learn")},
        "python": platform.python_version(),
        "wall_seconds": time.perf_counter() - wall,
        "cpu_seconds": sum(cpu for _, cpu in done),
        "tables": module.tables(config, runs) if hasattr(module, "tables") else "",
        "claims": [claim.record() for claim in module.claims(config, runs)],
        "runs": [{k: v for k, v in run.items() if k != "picture"} for run in runs],
    }
    folder.mkdir(parents=True, exist_ok=True)
    _save(figure, folder / "figure.png")
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / "summary.md").write_text(summary(results))
    return results


def _save(figure: Figure, path: Path) -> None:
    """As a PNG with a palette: a third of the size, and no difference to the eye."""
    buffer = BytesIO()
    figure.savefig(buffer, dpi=110)
    Image.open(buffer).convert("RGB").quantize(128).save(path, optimize=True)


def _run(name: str, config: Any, seed: int) -> tuple[dict[str, Any], float]:
    """One seed, and its CPU time."""
    module, start = import_module(f"greenfold.experiments.{name}"), time.process_time()
    with undisturbed(seed):
        run = module.run(config, seed)
    # of a run that went on from a checkpoint, what it took in all
    return run, run.get("cpu_seconds", time.process_time() - start)


@contextmanager
def undisturbed(seed: int) -> Iterator[None]:
    """One thread, random numbers of its own, no warnings: a doubtful fit is judged by its result."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings(), threadpool_limits(1), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


def number(value: float) -> str:
    """A few digits: of the distance to 1 just below it, powers of ten where they read better."""
    if 0.99 < value < 1:
        return f"{value:.{1 - math.floor(math.log10(1 - value))}f}"
    if not math.isfinite(value) or value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def summary(results: dict[str, Any]) -> str:
    """The experiment in Markdown: how it was run, its figure, and a row per claim."""
    told = {k: v for k, v in results["config"].items() if k not in ("folder", "chosen")}
    settings = ", ".join(f"{key} {value}" for key, value in told.items())
    n = len(results["seeds"])
    dataset = results.get("dataset")
    other = "" if dataset is None else f" --dataset {dataset}"
    other += "" if results["config"].get("seeds", n) == n else f" --seeds {n}"
    lines = [
        f"## {results['title']}{'' if dataset is None else f', {dataset}'}",
        "",
        f"`greenfold reproduce {results['experiment']} --{results['size']}{other}`: "
        f"{n} seeds from {results['seeds'][0]}, "
        f"{results['cpu_seconds']:.0f} CPU-s. Settings: {settings}.",
        "",
        "![what the paper's figure shows, measured here](figure.png)",
        "",
        *([results["tables"]] if results.get("tables") else []),
        "| paper | claim | its value | ours: median (worst seed) | our mark | verdict | why |",
        "|---|---|---|---|---|---|---|",
    ]
    for claim in results["claims"]:
        sign = "≤" if claim["small"] else "≥"
        mark = ""
        if claim["mark"] is not None:
            mark = f"{sign} {number(claim['mark'])}: {'met' if claim['met'] else '**missed**'}"
        ours = f"{number(claim['median'])} ({number(claim['worst'])})"
        cells = (claim["where"], claim["says"], claim["paper"], ours, mark)
        lines.append(f"| {' | '.join(cells)} | {claim['verdict']} | {claim['why']} |")
    return "\n".join(lines) + "\n"

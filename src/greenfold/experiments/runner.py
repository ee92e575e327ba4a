"""Run an experiment over seeds and write what came out: results.json, summary.md, figure.png."""

import json
import math
import platform
import time
import warnings
from dataclasses import asdict
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
) -> dict[str, Any]:
    """Run one experiment. Returns what is written to `out`/`name`/results.json.

    Parameters
    ----------
    name : str
        One of `experiments.NAMES`.
    size : 'tiny', 'quick' or 'full'
    seeds : int, optional
        How many; the size's own number by default. They are counted from `FIRST_SEED`.
    n_jobs : int
        Processes over seeds, one thread each; -1 for as many as there are cores.
    """
    if name not in NAMES:
        raise ValueError(f"unknown experiment {name!r}. Choose one of {', '.join(NAMES)}.")
    if size not in ("tiny", "quick", "full"):
        raise ValueError(f"`size` must be 'tiny', 'quick' or 'full', got {size!r}.")
    if seeds is not None and seeds < 1:
        raise ValueError(f"`seeds` must be at least 1, got {seeds}.")
    module = import_module(f"greenfold.experiments.{name}")
    config = getattr(module, size.upper())
    numbers = range(FIRST_SEED, FIRST_SEED + (seeds or config.seeds))
    wall = time.perf_counter()
    done = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(_run)(name, config, seed) for seed in numbers
    )
    done = list(tqdm(done, desc=name, total=len(numbers), unit="seed", disable=not progress))
    runs = [run for run, _ in done]
    figure = module.draw(config, runs)
    results = {
        "experiment": name,
        "title": module.TITLE,
        "size": size,
        "config": asdict(config),
        "seeds": list(numbers),
        "versions": {p: version(p) for p in ("greenfold", "torch", "numpy", "scikit-learn")},
        "python": platform.python_version(),
        "wall_seconds": time.perf_counter() - wall,
        "cpu_seconds": sum(cpu for _, cpu in done),
        "claims": [claim.record() for claim in module.claims(config, runs)],
        "runs": [{k: v for k, v in run.items() if k != "picture"} for run in runs],
    }
    folder = Path(out) / name
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
    """One seed in one thread, and its CPU time."""
    module = import_module(f"greenfold.experiments.{name}")
    threads, start = torch.get_num_threads(), time.process_time()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings(), threadpool_limits(1), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")  # a fit that doubts itself is judged by its result here
            torch.manual_seed(seed)
            run = module.run(config, seed)
    finally:
        torch.set_num_threads(threads)
    return run, time.process_time() - start


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
    settings = ", ".join(f"{key} {value}" for key, value in results["config"].items())
    n = len(results["seeds"])
    other = "" if results["config"].get("seeds", n) == n else f" --seeds {n}"
    lines = [
        f"## {results['title']}",
        "",
        f"`greenfold reproduce {results['experiment']} --{results['size']}{other}`: "
        f"{n} seeds from {results['seeds'][0]}, "
        f"{results['cpu_seconds']:.0f} CPU-s. Settings: {settings}.",
        "",
        "![what the paper's figure shows, measured here](figure.png)",
        "",
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

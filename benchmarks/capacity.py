"""What a fit of many rows needs, from costs measured on one core.

    python benchmarks/capacity.py [--rows 1e9] [--columns 1e3]

Measures what a row costs in a solve and in a step, and what two processes on this machine need to add up
their sums; prints tables of times on 8 to 64 nodes, and simulates stragglers and failures. --figure also
draws docs/figures/checkpoints.svg.
"""

import argparse
import math
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.multiprocessing as mp

from greenfold import IGLRegressor, Source, stream
from greenfold.estimators.streaming import Learner
from greenfold.scale.fit import Fit
from greenfold.scale.group import Group

ATOMS = 256
CORES = 32  # of a node, one process each
BANDWIDTH = 1.25e9  # bytes a second between nodes: 10 Gbit/s
LATENCY = 50e-6  # seconds
DISK = 2e9  # bytes a second that a node reads


def cost(columns: int, atoms: int, rows: int = 16384) -> tuple[float, float]:
    """CPU seconds a row: in an exact pass, and in a step of training."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, columns), dtype=np.float32)
    model = IGLRegressor(chart="linear", n_dims=2, random_state=0, source=Source(n_atoms=atoms))
    options = {
        "epochs": 1,
        "steps": 4,
        "batch_size": 4096,
        "sample": 2000,
        "folder": None,
        "every": 9,
    }
    with Group(1) as group:
        fit = Fit(Learner(model), stream((X, X[:, 0])), group, **options)
        fit.refresh()
        start = time.process_time()
        fit.exact()
        exact = time.process_time() - start
        start = time.process_time()
        fit.walk()
        return exact / rows, (time.process_time() - start) / rows


def _reduce(rank: int, port: int, size: int, seconds: mp.SimpleQueue) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    sums = torch.ones(size, dtype=torch.float64)
    torch.distributed.all_reduce(sums)
    start = time.perf_counter()
    for _ in range(20):
        torch.distributed.all_reduce(sums)
    if rank == 0:
        seconds.put((time.perf_counter() - start) / 20)
    torch.distributed.destroy_process_group()


def all_reduce(size: int, port: int = 29731) -> float:
    """Seconds that two processes on this machine need for a sum of that many numbers."""
    seconds = mp.get_context("spawn").SimpleQueue()
    mp.spawn(_reduce, (port, size, seconds), nprocs=2)
    return seconds.get()


def ring(size: int, nodes: int) -> float:
    """Seconds of an all-reduce between nodes: 2(N − 1)/N of the bytes, 2(N − 1) messages."""
    return 2 * (nodes - 1) * (8 * size / nodes / BANDWIDTH + LATENCY)


def slowest(processes: int, spread: float, steps: int = 2000) -> float:
    """Mean over steps of the slowest process, whose times are lognormal with this spread."""
    times = np.random.default_rng(0).lognormal(-(spread**2) / 2, spread, (steps, processes))
    return float(times.max(1).mean())


def failures(interval: float, work: float, mean: float, save: float, restart: float) -> float:
    """Hours to get `work` hours done, by simulation: failures come at random, `mean` hours apart.

    A failure loses what was done since the last checkpoint and costs a restart.
    """
    rng, trials = np.random.default_rng(0), []
    for _ in range(100):
        clock = done = 0.0
        until = rng.exponential(mean)
        while done < work:
            piece = min(interval, work - done)
            if clock + piece + save <= until:
                clock, done = clock + piece + save, done + piece
            else:
                clock = until + restart
                until = clock + rng.exponential(mean)
            if clock > 100 * work:
                return math.inf
        trials.append(clock)
    return float(np.mean(trials))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, default=1e9)
    parser.add_argument("--columns", type=float, default=1e3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--figure", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("CPU microseconds a row, one core\n")
    print(f"{'columns':>8}{'atoms':>7}{'parameters':>12}{'solve':>9}{'step':>9}")
    known = {}
    for columns, atoms in ((100, 64), (100, 256), (int(options.columns), ATOMS)):
        known[columns, atoms] = cost(columns, atoms)
        exact, step = (1e6 * t for t in known[columns, atoms])
        print(f"{columns:>8}{atoms:>7}{2 * columns + 1:>12}{exact:>9.1f}{step:>9.1f}")
    size = ATOMS**2 + 3 * ATOMS
    print(f"\nsums of a solve: {8 * size / 1e6:.2f} MB; all-reduced by two processes here in ")
    print(f"{1e3 * all_reduce(size):.2f} ms")
    exact, step = known[int(options.columns), ATOMS]
    solve_work = options.rows * exact * (options.epochs + 1)
    step_work = options.rows * step * options.epochs
    read = 4 * options.rows * options.columns * (2 * options.epochs + 2)
    print(
        f"\n{options.rows:.0e} rows of {options.columns:.0e} float32 columns, {options.epochs} epochs, "
        f"{CORES} processes a node, 10 Gbit/s, disks of 2 GB/s\n"
    )
    print(f"{'nodes':>6}{'compute h':>11}{'steps':>9}{'sums s':>8}{'of a step':>11}", end="")
    print(f"{'stragglers':>12}{'reading h':>11}{'hours':>8}")
    for nodes in (8, 16, 32, 64):
        processes = nodes * CORES
        compute = (solve_work + step_work) / processes / 3600
        batch = 4096 * processes  # rows of a step
        steps = options.epochs * math.ceil(options.rows / batch)
        talk = ring(size + 2 * int(options.columns), nodes)
        share = talk / (4096 * step)
        wait = slowest(processes, 0.1)
        reading = read / nodes / DISK / 3600
        hours = compute * wait + steps * talk / 3600 + reading
        print(f"{nodes:>6}{compute:>11.2f}{steps:>9}{steps * talk:>8.1f}{share:>10.2%}", end="")
        print(f"{wait:>12.2f}{reading:>11.2f}{hours:>8.2f}")
    print("\nhours for 10 hours of work; a checkpoint takes 1 s, a restart 2 minutes\n")
    intervals = np.array([0.5, 1, 2, 5, 10, 20, 60, 120]) / 60
    means = {"a failure a day": 24.0, "every 2 hours": 2.0, "every 20 minutes": 1 / 3}
    print(f"{'minutes between checkpoints':<28}" + "".join(f"{60 * t:>8.1f}" for t in intervals))
    curves = {}
    for name, mean in means.items():
        curves[name] = [failures(t, 10.0, mean, 1 / 3600, 2 / 60) for t in intervals]
        best = 60 * math.sqrt(2 * mean / 3600)
        print(f"{name:<28}" + "".join(f"{t:>8.2f}" for t in curves[name]), end="")
        print(f"   least at √(2 · save · mean) = {best:.1f} min")
    if options.figure:
        draw(60 * intervals, curves)


def draw(minutes: np.ndarray, curves: dict[str, list[float]]) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
    for (name, hours), style in zip(curves.items(), ("-", "--", ":"), strict=True):
        axes.plot(minutes, hours, style, marker="o", markersize=3, label=name)
    axes.set(
        xscale="log", xlabel="minutes between checkpoints", ylabel="hours for 10 hours of work"
    )
    axes.set_ylim(9.5, 20)
    axes.legend(frameon=False)
    figure.savefig(Path(__file__).parent.parent / "docs/figures/checkpoints.svg")


if __name__ == "__main__":
    main()

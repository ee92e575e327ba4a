"""Ten million rows from disk: memory, the speed of the sums, and the same answer as in memory.

    python benchmarks/stream.py [--rows 10000000] [--folder DIR]
    python benchmarks/stream.py --classes 10 --rows 1000000     the default classifier, by cross-entropy
    python benchmarks/stream.py --sources 2000 --rows 10000000  so many sources, by sums or --route passes

Shards of the last are made as they are read.

Prints a table of measured values beside what is asked for. Times are CPU seconds of one thread, so that
they mean the same on a machine that is busy. MNIST is read from GREENFOLD_DATA, if it is there.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from greenfold import IGLClassifier, IGLRegressor, Source, load_mnist, stream
from greenfold.design import Design
from greenfold.solve import Ridge, Statistics

COLUMNS, ATOMS, SHARD = 100, 256, 1_000_000
CLASS_COLUMNS = 50


def generate(folder: Path, rows: int, classes: int = 0) -> None:
    """float32 shards [x (100 columns), y]: y is a smooth function of two hidden directions, and noise.

    Of classes [x (50 columns), label]: logits are smooth functions of three hidden directions.
    """
    columns, hidden = (CLASS_COLUMNS, 3) if classes else (COLUMNS, 2)
    first = np.random.default_rng(0)
    W = np.linalg.qr(first.normal(size=(columns, hidden)))[0].astype(np.float32)
    B = first.normal(size=(hidden, classes))
    for i, start in enumerate(range(0, rows, SHARD)):
        n = min(SHARD, rows - start)
        shape = (n, columns + 1)
        shard = np.lib.format.open_memmap(folder / f"{i:04d}.npy", "w+", np.float32, shape)
        rng = np.random.default_rng([1, i])
        for a in range(0, n, 100_000):
            X = rng.standard_normal((min(100_000, n - a), columns), dtype=np.float32)
            z = X @ W
            shard[a : a + len(X), :-1] = X
            if classes:
                u = 4 * np.sin(1.5 * z) @ B
                shard[a : a + len(X), -1] = (u + rng.gumbel(size=u.shape)).argmax(1)
            else:
                noise = 0.1 * rng.standard_normal(len(X), dtype=np.float32)
                shard[a : a + len(X), -1] = np.sin(z[:, 0]) * np.cos(z[:, 1]) + noise
        shard.flush()
        del shard


def shards(rows: int):
    """Batches of 50 columns as `generate` has them, made anew at every pass: a shard is its seed."""
    W = np.linalg.qr(np.random.default_rng(0).normal(size=(CLASS_COLUMNS, 2)))[0].astype(np.float32)
    starts = range(0, rows, 10_000)

    def make(shard: int, n_shards: int):
        for start in starts[shard::n_shards]:
            rng, n = np.random.default_rng([2, start]), min(10_000, rows - start)
            X = rng.standard_normal((n, CLASS_COLUMNS), dtype=np.float32)
            z = X @ W
            yield X, np.sin(z[:, 0]) * np.cos(z[:, 1]) + 0.1 * rng.standard_normal(n)

    return make


def sources(rows: int, count: int, route: str) -> None:
    """Stage 2 with so many sources on a chart as it starts: seconds, peak memory."""
    model = IGLRegressor(chart="linear", n_dims=2, random_state=0, source=Source(n_atoms=count))
    idle, start = peak_mb(), time.process_time()
    model.fit_stream(shards(rows), epochs=0, sample=3 * count, blocks=4, route=route)
    seconds, info = time.process_time() - start, model.solver_info_
    show(f"{rows} rows, {count} sources, {info['route']}: peak MB", peak_mb(), "<= 2048")
    show("  idle process, MB", idle)
    show("  CPU-s", seconds)
    show("  passes", info.get("iterations", 1))


def measured(task: str, folder: Path) -> dict[str, float]:
    """A task of this file in a process of its own, and its peak memory."""
    command = [sys.executable, __file__, "--task", task, "--folder", str(folder)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def peak_mb() -> float:
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))


def fit(folder: Path) -> dict[str, float]:
    """One epoch of a hundred steps between two exact solves over all rows."""
    model = IGLRegressor(chart="linear", n_dims=2, random_state=0, source=Source(n_atoms=ATOMS))
    idle, start = peak_mb(), time.process_time()
    model.fit_stream(folder, epochs=1, steps=100)
    seconds = time.process_time() - start
    rows = model.fitted_to_[0]
    return {"idle": idle, "peak": peak_mb(), "seconds": seconds, "rows": rows}


def classify(folder: Path) -> dict[str, float]:
    """The default classifier: a chart found on a sample, its source by cross-entropy on all rows."""
    model = IGLClassifier(random_state=0)
    idle, start, begin = peak_mb(), time.process_time(), time.perf_counter()
    model.fit_stream(folder)
    seconds, wall = time.process_time() - start, time.perf_counter() - begin
    return {
        "idle": idle,
        "peak": peak_mb(),
        "seconds": seconds,
        "wall": wall,
        "rows": model.fitted_to_[0],
        "passes": model.solver_info_["iterations"],
        "atoms": len(model.source_),
    }


def read(folder: Path) -> dict[str, float]:
    start, rows = time.process_time(), 0
    for X, _ in stream(folder).batches(0, 1, 4096):
        rows += len(X)
    return {"seconds": time.process_time() - start, "rows": rows}


def same(folder: Path) -> dict[str, float]:
    """Stage 2 of the first shard, from disk and from memory in the same order of blocks, and by Ridge."""
    path = folder / "0000.npy"
    rows = np.load(path)
    model = IGLRegressor(
        chart="linear", n_dims=2, random_state=0, source=Source(n_atoms=ATOMS, alpha=1e-3)
    )
    disk = model.fit_stream(path, epochs=0).predict(rows[:20_000, :-1])
    memory = model.fit_stream((rows[:, :-1], rows[:, -1]), epochs=0).predict(rows[:20_000, :-1])
    few = rows[:20_000]  # that fit in memory with all their columns Φ
    streamed = model.fit_stream((few[:, :-1], few[:, -1]), epochs=0)
    return {
        "bits": float(np.array_equal(disk, memory)),
        "difference": float(np.abs(disk - memory).max()),
        "against ridge": against_ridge(streamed, few[:, :-1], few[:, -1], 1e-3),
    }


@torch.no_grad()
def against_ridge(model: IGLRegressor, X: np.ndarray, y: np.ndarray, alpha: float) -> float:
    """Largest difference between streamed predictions and those of `Ridge` on all rows at once."""
    design = model.model_.design(model._inside(X))
    solver = Ridge(alpha * float(model.model_.unit()), relative=False)
    u = design.Phi @ solver.solve(design, model._stream_target(y)).w
    return float((u - model.model_(model._inside(X))).abs().max())


def mnist(folder: Path) -> dict[str, float]:
    """60,000 images from shards on disk against the solve in memory, on the same chart."""
    X, y = load_mnist("train")
    X = (X.reshape(len(X), -1) / 255).astype(np.float32)
    part = folder / "mnist"
    part.mkdir()
    for i in range(6):
        rows = slice(i * 10_000, (i + 1) * 10_000)
        np.save(part / f"{i}.npy", np.column_stack([X[rows], y[rows]]).astype(np.float32))
    model = IGLClassifier(
        chart="pca", n_dims=20, loss="least_squares", random_state=0, source=Source(n_atoms=ATOMS)
    )
    model.fit_stream(part, epochs=0)
    return {
        "against ridge": against_ridge(model, X, y.astype(np.float32), model.alpha_),
        "rows": model.fitted_to_[0],
    }


def gram() -> dict[str, float]:
    """GFLOP per CPU second: the best product of two matrices, and sums of float32 columns."""
    torch.set_num_threads(1)
    A = torch.randn(2048, 2048, dtype=torch.float64)
    Phi, Y = torch.randn(4096, ATOMS), torch.randn(4096, 1)
    design, sums = Design(Phi, torch.ones(ATOMS)), Statistics()
    best = {"gemm": 0.0, "gram": 0.0}
    for _ in range(10):  # in turn, so that a busy machine slows both
        start = time.process_time()
        A @ A
        best["gemm"] = max(best["gemm"], 2 * 2048**3 / (time.process_time() - start) / 1e9)
        start = time.process_time()
        for _ in range(32):
            sums.update(design, Y)
        flop = 32 * 2 * 4096 * ATOMS**2
        best["gram"] = max(best["gram"], flop / (time.process_time() - start) / 1e9)
    return best


TASKS = {"fit": fit, "classify": classify, "read": read, "same": same, "mnist": mnist}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="where there is room for 404 bytes a row")
    parser.add_argument("--classes", type=int, default=0, help="of a classifier, measured alone")
    parser.add_argument("--sources", type=int, default=0, help="so many, measured alone")
    parser.add_argument("--route", choices=["auto", "sums", "passes"], default="auto")
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        print(json.dumps(TASKS[options.task](options.folder)))
        return
    if options.sources:
        sources(options.rows, options.sources, options.route)
        return
    if options.classes:
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            generate(Path(name), options.rows, options.classes)
            one = measured("classify", Path(name))
        show(
            f"{one['rows']:.0f} rows of {options.classes} classes, peak MB", one["peak"], "<= 1024"
        )
        show("  idle process, MB", one["idle"])
        show(f"  CPU-s, {one['passes']:.0f} passes with {one['atoms']:.0f} atoms", one["seconds"])
        show("  seconds on the clock", one["wall"])
        return
    speed = gram()
    print(f"{'':44}{'measured':>12}{'asked':>10}")
    show("Gram of 256 columns, part of the GEMM peak", speed["gram"] / speed["gemm"], ">= 0.5")
    show("  float64 GEMM, GFLOP per CPU-s", speed["gemm"])
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        need, free = 404 * options.rows, shutil.disk_usage(folder).free
        if need > 0.8 * free:
            raise SystemExit(f"{folder} has {free / 1e9:.1f} GB free, {need / 1e9:.1f} are needed.")
        generate(folder, options.rows)
        one = measured("read", folder)
        show("reading, GB per CPU-s", 404e-9 * one["rows"] / one["seconds"])
        one = measured("same", folder)
        show("stage 2 from disk has the bits of memory", one["bits"], "1")
        show("  largest difference", one["difference"], "<= 1e-9")
        show("  against Ridge on 20,000 rows", one["against ridge"], "<= 1e-9")
        one = measured("fit", folder)
        show(f"fit of {one['rows']:.0f} rows, peak MB", one["peak"], "<= 1024")
        show("  idle process, MB", one["idle"])
        show("  CPU-s, two solves and 100 steps", one["seconds"])
        try:
            one = measured("mnist", folder)
        except subprocess.CalledProcessError:
            print("MNIST is not there: greenfold data mnist, and GREENFOLD_DATA")
            return
        show(f"MNIST, {one['rows']:.0f} rows, against Ridge", one["against ridge"], "<= 1e-9")


def show(what: str, value: float, asked: str = "") -> None:
    print(f"{what:<50}{value:>12.4g}{asked:>10}", flush=True)


if __name__ == "__main__":
    main()

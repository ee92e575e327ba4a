"""This library beside what users would pick instead, on real tables and known manifolds.

    python benchmarks/compare run [--data DIR] [--n full,200] [--splits 3] [--sets a,b] [--jobs 2] …
    python benchmarks/compare page        docs/benchmarks.md and its figures, from the results
    python benchmarks/compare newest      docs/newest.md, from results with the newest peers
    python benchmarks/compare list        data sets, and methods with what is installed

Every method sees the same rows, standardized the same way, and every peer is tuned by cross-validation
within the same budget. Each run has a process of its own, with one thread; `--jobs` run at a time.
Results are appended to results/benchmarks.jsonl as they come; what is there already is not run again.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean

HERE = Path(__file__).parent
# Before NumPy comes in: one thread for every method. The process that runs are forked from imports
# these files too.
os.environ.update({f"{lib}_NUM_THREADS": "1" for lib in ("OMP", "MKL", "OPENBLAS")})
FOLDERS = [str(HERE), str(HERE.parent)]
sys.path += FOLDERS[1:]
os.environ["PYTHONPATH"] = os.pathsep.join([*FOLDERS, os.environ.get("PYTHONPATH", "")])

import page  # noqa: E402
from cell import Cell, answer  # noqa: E402
from classes import CLASSIFIERS  # noqa: E402
from methods import METHODS, installed  # noqa: E402
from sets import SYNTHETIC, load, real_sets  # noqa: E402

ROOT = HERE.parents[1]
TARGETS = {"number": METHODS, "class": CLASSIFIERS}


def asked(arguments: argparse.Namespace, target: str, n: int | None) -> list[str]:
    """Methods for this target and number of rows that can run here."""
    methods = TARGETS[target]
    names = arguments.methods.split(",") if arguments.methods else methods
    known = [m for m in names if m in methods and installed(methods[m])]
    return [m for m in known if arguments.methods or methods[m].usual(n)]


def cells(arguments: argparse.Namespace) -> list[Cell]:
    """All that is asked for, in an order in which what is done can be read at any time."""
    if arguments.sets:
        sets = {name: load(name, arguments.data) for name in arguments.sets.split(",")}
    else:
        sets = real_sets(arguments.data)
    if arguments.largest:
        sets = {name: data for name, data in sets.items() if data.n_train <= arguments.largest}
    targets = {name: "class" if data.classes else "number" for name, data in sets.items()}
    return [
        Cell(name, n, split, method)
        for split in range(arguments.first, arguments.first + arguments.splits)
        for n in (None if n == "full" else int(n) for n in arguments.n.split(","))
        for name in sorted(sets, key=lambda name: sets[name].n_train)
        if targets[name] in arguments.targets.split(",") and (n is None or n < sets[name].n_train)
        for method in asked(arguments, targets[name], n)
    ]


def measure(cell: Cell, arguments: argparse.Namespace) -> dict:
    """The result of a run in a new process, ended when it takes too long."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["cell"])  # scikit-learn and PyTorch are imported once
    mine, theirs = context.Pipe(duplex=False)
    what = (theirs, cell, arguments.data, arguments.budget, arguments.limit)
    process = context.Process(target=answer, args=what)
    process.start()
    theirs.close()
    try:
        result = mine.recv()
    except EOFError:
        result = {"failed": f"ended, perhaps after {arguments.limit} CPU-seconds"}
    process.join()
    return result


def expected(cell: Cell, done: list[dict], budget: float) -> float:
    """CPU-seconds of a run, by the runs most like it; the budget if there is none."""
    own = [r for r in done if r["method"] == cell.method and "cpu" in r]
    for like in (
        [r for r in own if (r["set"], r["n"]) == (cell.set, cell.n)],
        [r for r in own if (r["n"] is None) == (cell.n is None)],
        own,
    ):
        if like:
            return mean(r["cpu"] for r in like)
    return budget


def version() -> str:
    """The commit that is measured."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def run(arguments: argparse.Namespace) -> None:
    known = dict.fromkeys(m for methods in TARGETS.values() for m in methods)
    unknown = [m for m in (arguments.methods or "").split(",") if m and m not in known]
    if unknown:
        raise SystemExit(f"no method {unknown[0]!r}. Choose from {', '.join(known)}.")
    for m in arguments.methods.split(",") if arguments.methods else known:
        if not any(installed(methods[m]) for methods in TARGETS.values() if m in methods):
            print(f"{m}: not installed")
    path = Path(arguments.results)
    path.parent.mkdir(parents=True, exist_ok=True)
    results = page.read(path)
    done = {Cell(r["set"], r["n"], r["split"], r["method"]) for r in results}
    open_ = [cell for cell in cells(arguments) if cell not in done]
    hours = sum(expected(cell, results, arguments.budget) for cell in open_) / 3600
    print(
        f"{len(open_)} runs, about {hours / arguments.jobs:.1f} hours by what is known of them",
        flush=True,
    )
    begin, lock, count, commit = time.time(), threading.Lock(), 0, version()

    def one(cell: Cell) -> None:
        nonlocal count
        result = measure(cell, arguments)
        with lock, path.open("a") as file:
            file.write(json.dumps({**cell._asdict(), "commit": commit, **result}) + "\n")
            count += 1
            print(
                f"{count:>4} of {len(open_)} {time.time() - begin:7.0f} s  {cell.set:<14} "
                f"{cell.n or 'all':>4} {cell.split} {cell.method:<18} {told(result)}",
                flush=True,
            )

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(one, open_))


def told(result: dict) -> str:
    if "failed" in result:
        return result["failed"]
    score = result.get("rmse", result.get("log_loss"))
    return f"{score:10.4g} {result['cpu']:7.1f} CPU-s"


def listing(arguments: argparse.Namespace) -> None:
    for name, data in real_sets(arguments.data).items():
        what = f"{data.classes} classes" if data.classes else "a number"
        print(f"{name:<16}{data.n_train:>6} training rows × {data.X.shape[1]:<4}{what}")
    print("known:", *SYNTHETIC)
    for target, methods in TARGETS.items():
        for name, method in methods.items():
            print(f"{name:<20}{target:<8}{'' if installed(method) else 'not installed'}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=["run", "page", "newest", "list"])
    parser.add_argument("--data", default=os.environ.get("GREENFOLD_DATA"), help="real tables")
    parser.add_argument("--sets", help="comma-separated; the real ones by default")
    parser.add_argument("--methods", help="comma-separated; the usual ones by default")
    parser.add_argument("--targets", default="number,class", help="what is predicted")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--n", default="full", help="training rows, such as full,100,200")
    parser.add_argument("--largest", type=int, help="leave out tables with more training rows")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="first split")
    parser.add_argument("--budget", type=float, default=10.0, help="CPU-seconds to tune a peer")
    parser.add_argument("--limit", type=int, default=300, help="CPU-seconds after which a run ends")
    parser.add_argument("--results", default=str(ROOT / "results" / "benchmarks.jsonl"))
    parser.add_argument("--docs", default=str(ROOT / "docs"), help="where the page goes")
    arguments = parser.parse_args()
    if arguments.verb == "run":
        run(arguments)
    elif arguments.verb == "list":
        listing(arguments)
    elif arguments.verb == "newest":
        page.write_newest(Path(arguments.results), Path(arguments.docs))
    else:
        page.write(Path(arguments.results), Path(arguments.docs))


if __name__ == "__main__":
    main()

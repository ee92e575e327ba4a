"""This library beside what users would pick instead, on real tables and known manifolds.

    python benchmarks/compare run [--data DIR] [--n full,100,200] [--splits 3] [--sets a,b] …
    python benchmarks/compare page        docs/benchmarks.md and its figures, from the results
    python benchmarks/compare list        data sets, and methods with what is installed

Every method sees the same rows, standardized the same way, and every peer is tuned by cross-validation
within the same budget. Each run has a process of its own. Results are appended to
results/benchmarks.jsonl as they come; what is there already is not run again.
"""

import argparse
import json
import multiprocessing
import os
import time
from pathlib import Path

HERE = Path(__file__).parent
# Before NumPy comes in: one thread for every method. The process that runs are forked from imports
# these files too.
os.environ.update({f"{lib}_NUM_THREADS": "1" for lib in ("OMP", "MKL", "OPENBLAS")})
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])

import page  # noqa: E402
from cell import Cell, answer  # noqa: E402
from methods import METHODS, installed  # noqa: E402
from sets import SYNTHETIC, load, real_names  # noqa: E402

ROOT = HERE.parents[1]


def cells(arguments: argparse.Namespace) -> list[Cell]:
    """All that is asked for, in an order in which what is done can be read at any time."""
    names = arguments.sets.split(",") if arguments.sets else real_names(arguments.data)
    methods = arguments.methods.split(",") if arguments.methods else [*METHODS][:-1]  # but `tune`
    unknown = [m for m in methods if m not in METHODS]
    if unknown:
        raise SystemExit(f"no method {unknown[0]!r}. Choose from {', '.join(METHODS)}.")
    sizes = [None if n == "full" else int(n) for n in arguments.n.split(",")]
    n_train = {}
    for name in names:
        data = load(name, arguments.data)
        n_train[name] = int((~data.test).sum(0).min())
    return [
        Cell(name, n, split, method)
        for split in range(arguments.first, arguments.first + arguments.splits)
        for n in sizes
        for name in sorted(names, key=lambda name: n_train[name])
        for method in methods
        if n is None or n < n_train[name]
    ]


def measure(cell: Cell, arguments: argparse.Namespace) -> dict:
    """The result of a run in a new process, ended when it takes too long."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["cell"])  # scikit-learn and PyTorch are imported once
    mine, theirs = context.Pipe(duplex=False)
    asked = (theirs, cell, arguments.data, arguments.budget, arguments.limit)
    process = context.Process(target=answer, args=asked)
    process.start()
    theirs.close()
    try:
        result = mine.recv()
    except EOFError:
        result = {"failed": f"ended, perhaps after {arguments.limit} CPU-seconds"}
    process.join()
    return result


def run(arguments: argparse.Namespace) -> None:
    path = Path(arguments.results)
    path.parent.mkdir(parents=True, exist_ok=True)
    done = {Cell(r["set"], r["n"], r["split"], r["method"]) for r in page.read(path)}
    wanted = cells(arguments)
    for method in dict.fromkeys(cell.method for cell in wanted):
        if not installed(method):
            print(f"{method}: not installed")
    open_ = [cell for cell in wanted if cell not in done and installed(cell.method)]
    begin = time.time()
    for count, cell in enumerate(open_, 1):
        result = measure(cell, arguments)
        with path.open("a") as file:
            file.write(json.dumps({**cell._asdict(), **result}) + "\n")
        said = result.get("failed") or f"{result['rmse']:10.4g} {result['cpu']:7.1f} CPU-s"
        print(
            f"{count:>4} of {len(open_)} {time.time() - begin:7.0f} s  {cell.set:<12} "
            f"{cell.n or 'all':>4} {cell.split} {cell.method:<14} {said}",
            flush=True,
        )


def listing(arguments: argparse.Namespace) -> None:
    print("real:", *real_names(arguments.data))
    print("known:", *SYNTHETIC)
    for method in METHODS:
        print(f"{method:<16}{'' if installed(method) else 'not installed'}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=["run", "page", "list"])
    parser.add_argument("--data", default=os.environ.get("GREENFOLD_DATA"), help="real tables")
    parser.add_argument("--sets", help="comma-separated; the real ones by default")
    parser.add_argument("--methods", help="comma-separated; by default all but tune")
    parser.add_argument("--n", default="full", help="training rows, such as full,100,200")
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
    else:
        page.write(Path(arguments.results), Path(arguments.docs))


if __name__ == "__main__":
    main()

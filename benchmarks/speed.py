"""How long fits and predictions take, beside what is aimed at, in CPU-seconds of one thread.

    python benchmarks/speed.py [--repeat 3] [--only TEXT]

The least of the repeats counts: other work on the machine only adds. Tables have ten columns, of which
five matter.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch

from greenfold import IGLRegressor, IGLStack


def table(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 10))
    y = np.abs(X[:, 0]) + np.sin(2 * X[:, 1]) * X[:, 2] + 0.3 * X[:, 3] * X[:, 4]
    return X, y + 0.1 * rng.normal(size=n)


def seconds(action: Callable[[], Any], repeat: int) -> float:
    spent = []
    for _ in range(repeat):
        begin = time.process_time()
        action()
        spent.append(time.process_time() - begin)
    return min(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="", help="lines whose name contains this")
    arguments = parser.parse_args()
    repeat = arguments.repeat
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    aims = {("fast", 1000): 3.0, ("fast", 5000): 12.0, ("full", 5000): 30.0}
    cases = list(product(("fast", "normal", "full"), (1000, 5000), (IGLRegressor, IGLStack)))
    print(f"{'':<48}{'aim':>12}{'measured':>12}")
    for effort, n, kind in cases:
        X, y = table(n)
        model, aim = kind(effort=effort, random_state=0), aims.get((effort, n))
        name = f"{kind.__name__}, effort='{effort}', {n} rows"
        if arguments.only not in name:
            continue
        spent = seconds(lambda model=model, X=X, y=y: model.fit(X, y), repeat)
        print(f"{name:<48}{f'≤ {aim:g} s' if aim else '':>12}{spent:>10.1f} s", flush=True)
    X = np.random.default_rng(1).normal(size=(100_000, 8))
    y = np.sin(X[:300, 0]) + X[:300, 1]
    for chart, d in (("linear", 2), ("axis", 8)):
        name = f"predict, rows per CPU-second, d = {d}, R = 150"
        if arguments.only not in name:
            continue
        model = IGLRegressor(chart=chart, n_atoms=150, max_iter=5, random_state=0)
        model.fit(X[:300], y)
        rate = len(X) / seconds(lambda model=model: model.predict(X), repeat)
        print(f"{name:<48}{'≥ 200k':>12}{rate / 1000:>11.0f}k", flush=True)


if __name__ == "__main__":
    main()

"""How often intervals cover, where noise is low and where it is high; and how wide they are.

`IGLRegressor()` and its `predict_interval(X, alpha=0.1)` on fresh seeds and 4,000 new rows each. The
control is one half width for all rows: the quantile of the leave-one-out residuals of the same fit.
Signals take turns from seed to seed. The quiet and the noisy third of the new rows are those by the noise
they were made with. Every fit is kept in results/coverage.json, and a second run goes on from there.

    python benchmarks/coverage.py [--seeds 10] [--only TEXT] [--stack]
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import torch

from greenfold import IGLRegressor, IGLStack

FIRST_SEED, NEW = 60_000, 4000
D = 5


def wave(X):
    """Two smooth terms on the axes; the noise goes along an input that matters."""
    return np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2], X[:, 0]


def plane(X):
    """Two hidden directions; the noise goes along one of them."""
    directions = np.linalg.qr(np.random.default_rng(7).normal(size=(D, 2)))[0]
    a, b = (1.7 * X @ directions).T
    return np.sin(2 * a) * np.cos(1.5 * b), np.tanh(a / 1.5)


def rough(X):
    """Kinks and a jump; the noise goes along an input that does not matter."""
    return np.abs(X[:, 0]) + np.sign(X[:, 1]) * X[:, 2], X[:, 4]


SIGNALS = (wave, plane, rough)
NOISES = {  # standard deviation, for t from −1 to 1
    "even": lambda t: np.full_like(t, 0.3),
    "growing": lambda t: 0.05 + 0.75 * ((t + 1) / 2) ** 2,
    "step": lambda t: np.where(t < 1 / 3, 0.1, 0.6),
    "bump": lambda t: 0.05 + 0.75 * np.exp(-((t / 0.25) ** 2)),
}
# noise, rows, and what coverage is to be: overall, or in both thirds
CASES = [
    *[(noise, n, (0.85, 0.95)) for n in (300, 1000) for noise in ("growing", "step", "bump")],
    ("even", 80, (0.87, 0.94)),
    ("even", 300, None),
    ("even", 1000, None),
]


def problem(noise, n, seed):
    rng = np.random.default_rng([seed, n])
    X = rng.uniform(-1, 1, (n + NEW, D))
    u, t = SIGNALS[seed % len(SIGNALS)](X)
    sd = NOISES[noise](t)
    y = u + sd * rng.normal(size=len(u))
    return (X[:n], y[:n]), (X[n:], y[n:]), sd[n:]


def constant(model, X):
    """The half width that leave-one-out residuals ask for where they are taken for all alike."""
    errors = np.sort(np.abs(model.posterior_.loo_errors[:, 0]))
    k = min(int(np.ceil(0.9 * (len(errors) + 1))), len(errors))
    half, u = model.units_.y.widths(errors[k - 1])[0], model.predict(X)
    return u - half, u + half


def measured(low, high, y, sd):
    inside, (a, b) = (low <= y) & (y <= high), np.quantile(sd, [1 / 3, 2 / 3])
    parts = inside, inside[sd <= a], inside[sd >= b], high - low
    return dict(zip(("all", "quiet", "noisy", "width"), (float(np.mean(p)) for p in parts)))


def run(estimator, noise, n, seed):
    (X, y), (X_new, y_new), sd = problem(noise, n, seed)
    start = time.process_time()
    model = estimator(random_state=0).fit(X, y)
    cpu = time.process_time() - start
    row = {"cpu": cpu, "local": measured(*model.predict_interval(X_new, alpha=0.1), y_new, sd)}
    if hasattr(model, "posterior_"):
        row["constant"] = measured(*constant(model, X_new), y_new, sd)
    return row


def shown(noise, n, goal, rows):
    def mean(kind, what):
        return float(np.mean([row[kind][what] for row in rows]))

    kinds = [kind for kind in ("local", "constant") if kind in rows[0]]
    told = "   ".join(
        f"{kind} {mean(kind, 'all'):.3f} quiet {mean(kind, 'quiet'):.3f} noisy "
        f"{mean(kind, 'noisy'):.3f} width {mean(kind, 'width'):.3f}"
        for kind in kinds
    )
    reached = "  "
    if goal is not None:
        parts = ("all",) if noise == "even" else ("quiet", "noisy")
        reached = "ok" if all(goal[0] <= mean("local", p) <= goal[1] for p in parts) else "NO"
    elif "constant" in kinds:
        ratio = np.mean([row["local"]["width"] / row["constant"]["width"] for row in rows])
        reached = "ok" if ratio <= 1.05 else "NO"
    cpu = np.mean([row["cpu"] for row in rows])
    return f"{noise:<8} {n:>5} {len(rows):>3} {reached}  {told}   {cpu:.1f} CPU-s"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10, help="twice as many for 80 rows")
    parser.add_argument("--only", default="", help="such as 'step 300'")
    parser.add_argument("--stack", action="store_true", help="IGLStack in place of IGLRegressor")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    estimator = IGLStack if arguments.stack else IGLRegressor
    path = Path("results/coverage.json")
    path.parent.mkdir(exist_ok=True)
    done = json.loads(path.read_text()) if path.exists() else {}
    print("noise     rows fits      coverage at 90%, in both thirds, and mean width")
    for noise, n, goal in CASES:
        if arguments.only not in f"{noise} {n}":
            continue
        rows = []
        for seed in range(FIRST_SEED, FIRST_SEED + arguments.seeds * (2 if n < 100 else 1)):
            key = f"{estimator.__name__} {noise} {n} {seed}"
            if key not in done:
                done[key] = run(estimator, noise, n, seed)
                path.write_text(json.dumps(done, indent=1))
            rows.append(done[key])
        print(shown(noise, n, goal, rows), flush=True)


if __name__ == "__main__":
    main()

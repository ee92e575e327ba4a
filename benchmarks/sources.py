"""Sources found from readings: counts, places, intervals and alarms over many random worlds.

    python benchmarks/sources.py [--trials 100] [--only NAME]

Every world has three Gaussian sources of width .03 in the unit box, at least .25 apart and .15 from its
sides, with strengths between .5 and 1.5, κ = 3, and sensors at random places. Noise is relative to the
root mean square of the readings. A trial is right if three sources were found, each within .1 of its own.
Beside it, on the same readings: ridge regression on a grid of such sources with its strength by evidence,
and non-negative least squares on that grid, both with the three highest peaks taken for sources.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from scipy import sparse
from scipy.interpolate import RegularGridInterpolator
from scipy.optimize import linear_sum_assignment, nnls
from scipy.sparse.linalg import splu

from greenfold import SourceFinder
from greenfold.design import Design
from greenfold.green import Interval, Transport
from greenfold.solve import Ridge
from greenfold.sources.sparse import grid_of

WIDTH, M = 0.03, 3
RESULTS = Path("results/sources.json")


def world(seed, d, n, noise, operator):
    """Places, strengths, sensors, readings."""
    rng = np.random.default_rng(seed)
    while True:
        mu = rng.uniform(0.15, 0.85, (M, d))
        if min(np.linalg.norm(mu[i] - mu[j]) for i in range(M) for j in range(i)) > 0.25:
            break
    q, x = rng.uniform(0.5, 1.5, M), rng.uniform(0, 1, (n, d))
    u = SourceFinder(operator, width=WIDTH).simulate(mu, q, x)
    return mu, q, x, u + noise * np.sqrt(np.mean(u**2)) * rng.normal(size=n)


def fitted(operator, x, y, **options):
    """The finder, and the CPU time it took."""
    d = x.shape[1]
    finder = SourceFinder(operator, region=[[0.0] * d, [1.0] * d], width=WIDTH, **options)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        finder.fit(x, y)
    return finder, time.process_time() - start


def matched(mu, found):
    """Distances of true sources to those found, and which of these are theirs."""
    C = np.linalg.norm(mu[:, None] - found[None], axis=-1)
    i, j = linear_sum_assignment(C)
    return C[i, j], i, j


def one(seed, d, n, noise, truth, operator=None, **options):
    mu, q, x, y = world(seed, d, n, noise, truth)
    finder, seconds = fitted(operator or truth, x, y, **options)
    found = np.array([s.position for s in finder.sources_]).reshape(-1, d)
    distance, i, j = matched(mu, found)
    right = len(found) == M and distance.max() < 0.1
    row = {
        "right": bool(right),
        "cpu": seconds,
        "alarm": not finder.check_.fine,
        "z": finder.check_.z,
    }
    row["total"] = abs(finder.total_.value / q.sum() - 1)
    if right:
        bounds = finder.interval(0.9)
        row["position"] = float(np.median(distance))
        row["cover_position"] = inside(mu[i], bounds["position"][j])
        row["cover_strength"] = inside(q[i], bounds["strength"][j])
        row["cover_total"] = inside(q.sum(), bounds["total"])
    if "learn" in options:
        v = np.array([finder.physics_["wind[0]"].value, finder.physics_["wind[1]"].value])
        wind = truth.wind.detach().numpy()
        row["kappa"] = abs(finder.physics_["kappa"].value / float(truth.kappa) - 1)
        row["wind"] = float(np.linalg.norm(v - wind) / np.linalg.norm(wind))
    return row, (mu, q, finder, y)


def inside(value, bounds):
    return float(np.mean((bounds[..., 0] <= value) & (value <= bounds[..., 1])))


def baselines(mu, q, finder, y):
    """Ridge and NNLS on the grid: error of three peaks, of the total, and atoms left."""
    grid = grid_of(finder.region_)
    Phi = finder.responses(grid)
    ridge = Ridge("evidence").solve(
        Design.stack(torch.from_numpy(Phi)), torch.from_numpy(y)[:, None]
    )
    row = {}
    for name, w in (("ridge", ridge.w[:, 0].numpy()), ("nnls", nnls(Phi, y)[0])):
        distance = matched(mu, grid[peaks(grid, w)])[0]
        row[f"{name}_position"] = float(np.median(distance))
        row[f"{name}_total"] = abs(w.sum() / q.sum() - 1)
        row[f"{name}_atoms"] = int((w > 0.01 * w.max()).sum())
    return row


def peaks(grid, w):
    """The three highest places that are no neighbors of a higher one."""
    left, chosen = w.copy(), []
    for _ in range(M):
        best = int(np.argmax(left))
        chosen.append(best)
        left[np.linalg.norm(grid - grid[best], axis=1) < 0.12] = -np.inf
    return chosen


def series(name, trials, compare=False, **options):
    rows = []
    for seed in range(trials):
        row, case = one(seed, **options)
        rows.append(row | (baselines(*case) if compare else {}))
    table = {"name": name, "trials": trials, "right": sum(r["right"] for r in rows)}
    table["alarms"] = sum(r["alarm"] for r in rows)
    for key in sorted(set().union(*rows) - {"right", "alarm", "z"}):
        values = [r[key] for r in rows if key in r]
        table[key] = float((np.mean if key.startswith("cover") else np.median)(values))
    table["cpu_max"] = max(r["cpu"] for r in rows)
    print(
        json.dumps(
            {k: v if not isinstance(v, float) else float(f"{v:.3g}") for k, v in table.items()}
        )
    )
    return table


LINE, FINE = np.linspace(-1, 1, 100)[:, None], np.linspace(-1, 1, 401)[:, None]
TRUTH = np.pi**2 * np.sin(np.pi * FINE[:, 0])  # −u″ of u = sin πx


def textbook(trials):
    """u″ = q between Dirichlet ends, 100 readings: the relative error of q."""
    found = {"name": "textbook"}
    for noise in (0.0, 0.01):
        rows = []
        for seed in range(1 if noise == 0 else trials):
            start = time.process_time()
            line = Transport(0.0, domain=Interval(-1, 1))
            finder = SourceFinder(line, kind="smooth").fit(LINE, sine(noise, seed))
            rows.append((time.process_time() - start, away(finder.source(FINE))))
        cpu, error = np.median(rows, axis=0)
        found |= {f"error_{noise:g}": float(error), f"cpu_{noise:g}": float(cpu)}
        found |= network(noise)
    print(json.dumps(found))
    return found


def sine(noise, seed):
    return np.sin(np.pi * LINE[:, 0]) + noise * np.random.default_rng(seed).normal(size=100)


def away(f):
    return float(np.linalg.norm(f - TRUTH) / np.linalg.norm(TRUTH))


def network(noise, steps=20_000):
    """The same by a physics-informed network, if `deepxde` is there, as in its own example.

    Two heads of three layers of 20, 200 collocation points, Adam at 1e-4, weights 1, 100 and 1000.
    """
    try:
        import deepxde as dde
    except ImportError:
        return {}
    dde.config.set_random_seed(0)
    line = dde.geometry.Interval(-1, 1)

    def equation(x, both):
        return both[:, 1:2] - dde.grad.hessian(both, x, component=0, i=0, j=0)

    ends = dde.icbc.DirichletBC(line, lambda x: 0 * x, lambda _, on: on, component=0)
    read = dde.icbc.PointSetBC(LINE, sine(noise, 0)[:, None], component=0)
    sizes = {"num_domain": 200, "num_boundary": 2, "num_test": 1000}
    problem = dde.data.PDE(line, equation, [ends, read], anchors=LINE, **sizes)
    layers = [1, *[[20, 20]] * 3, 2]
    model = dde.Model(problem, dde.nn.PFNN(layers, "tanh", "Glorot uniform"))
    start = time.process_time()
    model.compile("adam", lr=1e-4, loss_weights=[1, 100, 1000])
    model.train(iterations=steps, display_every=steps)
    seconds = time.process_time() - start
    error = away(-model.predict(FINE)[:, 1])
    return {f"network_error_{noise:g}": error, f"network_cpu_{noise:g}": seconds}


def media(trials, n=100, side=200):
    """D three times as large in half of a box, by finite volumes, and the finder not told of it."""
    middle = (np.arange(side) + 0.5) / side
    D = np.where(middle < 0.5, 1.0, 3.0)  # along x
    across = np.concatenate([[2 * D[0]], 2 / (1 / D[1:] + 1 / D[:-1]), [2 * D[-1]]]) * side**2
    X = sparse.diags([-across[1:-1], across[1:] + across[:-1], -across[1:-1]], [-1, 0, 1])
    two = np.full(side, 2.0)
    two[[0, -1]] = 3.0  # a wall is half a cell away
    Y = sparse.diags([-np.ones(side - 1), two, -np.ones(side - 1)], [-1, 0, 1]) * side**2
    A = sparse.kron(X, sparse.eye(side)) + sparse.kron(sparse.diags(D), Y) + 9 * sparse.eye(side**2)
    solve = splu(sparse.csc_matrix(A)).solve
    alarms, totals = 0, []
    for seed in range(trials):
        mu, q, x, _ = world(seed, 2, n, 0.0, FREE)
        profile = np.exp(-np.square(middle[:, None, None] - mu.T) / (2 * WIDTH**2))  # (side, 2, M)
        f = np.einsum("am,bm,m->ab", profile[:, 0], profile[:, 1], q) / (2 * np.pi * WIDTH**2)
        u = solve(f.ravel()).reshape(side, side)
        y = RegularGridInterpolator((middle, middle), u, bounds_error=False, fill_value=None)(x)
        rng = np.random.default_rng(seed)
        finder, _ = fitted(BOX, x, y + 0.05 * np.sqrt(np.mean(y**2)) * rng.normal(size=n))
        alarms += not finder.check_.fine
        totals.append(finder.total_.value / q.sum() - 1)
    table = {"name": "media", "trials": trials, "alarms": alarms, "total": float(np.median(totals))}
    print(json.dumps(table))
    return table


def sensors(trials):
    """Ten more readings: the deviation of the total after those suggested, and after random ones."""
    before, chosen, random = [], [], []
    for seed in range(trials):
        *_, x, y = world(seed, 2, 40, 0.05, FREE)
        finder, _ = fitted(FREE, x, y)
        candidates = np.random.default_rng(1000 + seed).uniform(0, 1, (300, 2))
        before.append(finder.total_.std)
        chosen.append(finder.suggest(candidates, 10).std[-1])
        random.append(finder.suggest(candidates[:10], 10).std[-1])
    names = ("before", "suggested", "random")
    table = {"name": "ten more"} | {
        n: float(np.median(v)) for n, v in zip(names, (before, chosen, random))
    }
    print(json.dumps(table))
    return table


FREE, WIND = Transport(3.0), Transport(3.0, wind=(4.0, 2.0))
BOX = Transport(3.0, domain=Interval(0, 1))
WINDY_BOX = Transport(3.0, wind=(4.0, 2.0), domain=Interval(0, 1))
GUESS = Transport(2.0, wind=(0.0, 0.0))
BOTH = ("kappa", "wind")
SERIES = {
    "2d_100_5": {"d": 2, "n": 100, "noise": 0.05, "truth": FREE, "compare": True},
    "2d_40_1": {"d": 2, "n": 40, "noise": 0.01, "truth": FREE, "compare": True},
    "2d_40_10": {"d": 2, "n": 40, "noise": 0.10, "truth": FREE, "compare": True},
    "3d_40_5": {"d": 3, "n": 40, "noise": 0.05, "truth": FREE, "compare": True},
    "learned": {
        "d": 2,
        "n": 60,
        "noise": 0.02,
        "truth": WIND,
        "operator": GUESS,
        "learn": ("kappa", "wind"),
    },
    "windy": {"d": 2, "n": 100, "noise": 0.05, "truth": WIND},
    "box_as_free": {"d": 2, "n": 100, "noise": 0.05, "truth": BOX, "operator": FREE},
    "wind_ignored": {"d": 2, "n": 100, "noise": 0.05, "truth": WIND, "operator": FREE},
    "box": {"d": 2, "n": 100, "noise": 0.05, "truth": BOX},
    "windy_box": {"d": 2, "n": 100, "noise": 0.05, "truth": WINDY_BOX},
}
FEWER = {"learned": 30, "box": 10, "windy_box": 10}  # trials at most


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--only", default=None)
    given = parser.parse_args()
    tables = []
    for name, options in SERIES.items():
        if given.only in (None, name):
            tables.append(series(name, min(given.trials, FEWER.get(name, given.trials)), **options))
    if given.only in (None, "textbook"):
        tables.append(textbook(min(given.trials, 20)))
    if given.only in (None, "media"):
        tables.append(media(min(given.trials, 10)))
    if given.only in (None, "sensors"):
        tables.append(sensors(min(given.trials, 20)))
    if given.only is None:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(tables, indent=1))


if __name__ == "__main__":
    main()

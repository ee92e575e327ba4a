"""How often `greenfold.dimension` is right, on fresh seeds: charts, intervals, tasks, peers, real tables.

Thresholds were chosen on seeds 0 to 4 and frozen; the default here is 50,000 and up. CPU time is that of
one thread. Each part replaces its own entry of results/dimension.json. The peers (scikit-dimension) are
compared when installed.

    python benchmarks/dimension.py [--seeds 5] [--first-seed 50000] [--parts chart1000 task ...]
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.preprocessing import StandardScaler

from greenfold import dimension
from greenfold.datasets import hidden_plane
from greenfold.dims.answers import scaled
from greenfold.dims.intrinsic import plateau, scales
from manifolds import ONCE, SETS, curved


def timed(*arguments, **options):
    start = time.process_time()
    report = dimension(*arguments, **options)
    return report, time.process_time() - start


def charts(sets, n, seeds, interval):
    """Chart dimension of each (set, seed): value, interval, sensitivity band, CPU seconds."""
    rows = []
    for name, (make, intrinsic, chart) in sets.items():
        for seed in seeds:
            X = make(n, np.random.default_rng(seed))
            report, seconds = timed(X, interval=False, random_state=seed)
            row = {"set": name, "seed": seed, "n": n, "truth": chart, "value": report.chart.value}
            row |= {"cpu": seconds, "sensitivity": report.chart.sensitivity}
            row |= {"intrinsic": report.intrinsic.value, "estimate": report.intrinsic.estimate}
            row["intrinsic_truth"] = intrinsic
            if interval:
                report, row["cpu_interval"] = timed(X, random_state=seed)
                row |= {"low": report.chart.low, "high": report.chart.high}
                row |= {
                    "low_intrinsic": report.intrinsic.low,
                    "high_intrinsic": report.intrinsic.high,
                }
            rows.append(row)
        mine = [r for r in rows if r["set"] == name]
        spans = [(r["low"], r["high"]) for r in mine] if interval else ""
        print(
            f"{name:<24} N={n} truth {chart}: {[r['value'] for r in mine]} {spans} "
            f"intrinsic {[round(r['estimate'], 2) for r in mine]} "
            f"CPU-s {max(r['cpu'] for r in mine):.1f}"
            + (f", with interval {max(r['cpu_interval'] for r in mine):.0f}" if interval else ""),
            flush=True,
        )
    right = sum(r["value"] == r["truth"] for r in rows)
    print(f"chart dimension right {right}/{len(rows)}", end="")
    print(f", intrinsic {sum(r['intrinsic'] == r['intrinsic_truth'] for r in rows)}/{len(rows)}")
    if interval:
        for low, high, truth in (
            ("low", "high", "truth"),
            ("low_intrinsic", "high_intrinsic", "intrinsic_truth"),
        ):
            known = [r for r in rows if r[low] is not None]
            holds = sum(r[low] <= r[truth] <= r[high] for r in known)
            narrow = sum(r[high] - r[low] <= 1 for r in known)
            print(f"  {low}..{high}: holds {holds}/{len(rows)}, <= 1 wide {narrow}/{len(rows)}")
    return rows


def sheet(n, k, rng, noise=0.1, bend=0.0):
    """A 3-dim sheet in R^20, flat or bent, and a target of the first k coordinates."""
    z = rng.uniform(-1, 1, (n, 3))
    u = np.sin(2 * z[:, 0])
    u = u + np.cos(2.5 * z[:, 1]) if k > 1 else u
    u = u + z[:, 2] * z[:, 0] if k > 2 else u
    return curved(z, 20, rng, bend), u + noise * rng.normal(size=n)


def noise_only(n, rng):
    return rng.normal(size=(n, 10)), rng.normal(size=n)


def plane(n, rng):
    return hidden_plane(n, 10, 0.1, int(rng.integers(2**31 - 1)))[:2]


def tasks(seeds):
    """Task dimension of flat sheets, a nuisance plane, and pure noise."""
    cases = {
        f"flat sheet, {k} of 3": (lambda n, r, k=k: sheet(n, k, r), 1000, k) for k in (1, 2, 3)
    }
    cases["nuisance plane"] = (plane, 1000, 2)
    cases["pure noise N=100"] = (noise_only, 100, 0)
    cases["pure noise N=1000"] = (noise_only, 1000, 0)
    return judge(cases, seeds, "x")


def bent(seeds):
    """Task dimension of bent sheets through their chart, with its interval."""
    cases = {
        f"bent sheet, {k} of 3": (lambda n, r, k=k: sheet(n, k, r, bend=1.0), 1000, k)
        for k in (1, 2, 3)
    }
    return judge(cases, seeds, "chart")


def judge(cases, seeds, through):
    rows = []
    interval = through == "chart"
    for name, (make, n, truth) in cases.items():
        for seed in seeds:
            X, y = make(n, np.random.default_rng(seed))
            options = {"through": through, "random_state": seed}
            report, seconds = timed(X, y, interval=interval, **options)
            a = report.task
            row = {"case": name, "seed": seed, "truth": truth, "value": a.value, "cpu": seconds}
            rows.append(row | {"low": a.low, "high": a.high, "curve": a.curve})
        mine = [r for r in rows if r["case"] == name]
        right = sum(r["value"] == truth for r in mine)
        spans = [(r["low"], r["high"]) for r in mine] if interval else ""
        print(
            f"{name:<22} truth {truth}: {[r['value'] for r in mine]} right {right}/{len(mine)} {spans} "
            f"CPU-s {max(r['cpu'] for r in mine):.1f}",
            flush=True,
        )
    return rows


def paper(seeds):
    """The paper's ways on flat sheets and on noise."""
    rows = []
    for method in ("gates", "knockout", "nested"):
        for k in (0, 1, 2, 3):
            values = []
            for seed in seeds:
                rng = np.random.default_rng(seed)
                X, y = sheet(600, k, rng) if k else noise_only(600, rng)
                X = X + 0.05 * rng.normal(size=X.shape)
                start = time.process_time()
                values.append(
                    dimension(X, y, method=method, interval=False, random_state=seed).task.value
                )
                rows.append({"method": method, "truth": k, "seed": seed, "value": values[-1]})
                rows[-1]["cpu"] = time.process_time() - start
            print(f"{method:<10} truth {k}: {values}", flush=True)
    return rows


def peers(seeds, n=1000):
    """Mean absolute error of the intrinsic dimension, as estimated and rounded."""
    try:
        import skdim
    except ImportError:
        print("scikit-dimension is not installed: peers are not compared")
        return []
    makers = {
        "TwoNN": skdim.id.TwoNN,
        "MLE": skdim.id.MLE,
        "lPCA": skdim.id.lPCA,
        "DANCo": skdim.id.DANCo,
    }
    rows = []
    for name, (make, truth, _) in {**SETS, **ONCE}.items():
        for seed in seeds:
            X = make(n, np.random.default_rng(seed))
            found = {"greenfold": plateau(scales(scaled(X)))}
            for peer, maker in makers.items():
                try:
                    options = {"random_state": seed} if peer == "DANCo" else {}
                    found[peer] = float(maker(**options).fit(X).dimension_)
                except Exception:
                    found[peer] = np.nan
            rows.append({"set": name, "seed": seed, "truth": truth, **found})
        mine = [r for r in rows if r["set"] == name]
        means = {m: np.mean([r[m] for r in mine]) for m in ("greenfold", *makers)}
        print(
            f"{name:<24} truth {truth}: " + "  ".join(f"{m} {v:.2f}" for m, v in means.items()),
            flush=True,
        )
    for m in ("greenfold", *makers):
        gap = np.array([abs(r[m] - r["truth"]) for r in rows])
        rounded = np.array([abs(np.round(r[m]) - r["truth"]) for r in rows])
        means = f"{np.nanmean(gap):.3f}, rounded {np.nanmean(rounded):.3f}"
        print(f"{m:<10} mean absolute error {means}, failed {np.isnan(gap).sum()}")
    return rows


def real():
    """Reports on tables whose dimension nobody knows."""
    rows = []
    for load in (load_digits, load_breast_cancer, load_diabetes, load_wine):
        data = load()
        X = data.data if load is load_digits else StandardScaler().fit_transform(data.data)
        report, seconds = timed(X, data.target, random_state=0)
        print(f"\n{load.__name__[5:]} {X.shape}, {seconds:.0f} CPU-s\n{report}", flush=True)
        for answer in report:
            rows.append({"set": load.__name__[5:], "cpu": seconds, "name": answer.name})
            rows[-1] |= {"value": answer.value, "low": answer.low, "high": answer.high}
            rows[-1]["curve"] = answer.curve
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=50_000)
    parser.add_argument("--parts", nargs="*")
    arguments = parser.parse_args()
    first = arguments.first_seed
    seeds = range(first, first + arguments.seeds)
    parts = {
        "chart1000": lambda: charts(SETS, 1000, seeds, interval=True),
        "chart1500": lambda: charts(SETS, 1500, seeds, interval=False),
        "once": lambda: charts(ONCE, 1000, seeds, interval=True),
        "task": lambda: tasks(range(first, first + 2 * arguments.seeds)),
        "bent": lambda: bent(range(first + 10_000, first + 10_000 + arguments.seeds)),
        "paper": lambda: paper(seeds),
        "peers": lambda: peers(seeds),
        "real": real,
    }
    path = Path("results/dimension.json")
    path.parent.mkdir(exist_ok=True)
    warnings.simplefilter("ignore")
    for part in arguments.parts or parts:
        print(f"\n--- {part}", flush=True)
        rows = parts[part]()
        results = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(results | {part: rows}, indent=1))
    print(f"\nwritten to {path}")


if __name__ == "__main__":
    main()

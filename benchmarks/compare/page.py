"""docs/benchmarks.md and its figures, from the results."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from methods import GP_ROWS, METHODS, MOST_ROWS, MOST_TRIALS, installed
from scipy.stats import friedmanchisquare, studentized_range
from sets import SYNTHETIC

OURS = [name for name, method in METHODS.items() if method.ours]
APART = ["pumadyn32nm"]  # left out of ranks at few rows: 30 of its 32 inputs are noise

# Why a peer is ahead, by set. Sets on which the stack is ahead print nothing.
WHY = {
    "autompg": "About 40 test rows a split, and a different method is first on each: the order is chance "
    "more than merit.",
    "concrete": "With few rows one scale for all inputs predicts as well as learned ones. The stack has "
    "that chart, `iso.l1`, but on held-out rows the learned scales look better than they are, since they "
    "were learned from those rows too, and `iso.l1` gets little weight (`standings_`, `weights_`). To "
    "charge charts for their number of scales did not help over all sets. With 500 rows boosted trees "
    "are ahead, on the one split that was run; with all rows they are not.",
    "diabetes": "Mostly noise: the four best methods are within 3% of one another at every size.",
    "energy": "With 200 rows the best methods are within a few per cent of one another; with all rows, "
    "which tell the rough kernels more, the stack leads.",
    "plane": "A smooth function of hidden directions. The stack's charts are scales of the inputs, with "
    "kernels for tables; `IGLRegressor` looks for the directions.",
    "wine": "One split with 500 rows, and another estimator of this library is first on it.",
    "yacht": "One split with 50 rows, judged by 30.",
}


def read(path: Path) -> list[dict]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- numbers


class Table(NamedTuple):
    """Errors at one number of training rows: method → (set, split) → RMSE, infinite if it failed."""

    n: int | None
    errors: dict[str, dict[tuple[str, int], float]]

    @property
    def sets(self) -> list[str]:
        return sorted({name for cells in self.errors.values() for name, _ in cells})

    def blocks(self, methods: Iterable[str]) -> list[tuple[str, int]]:
        """Sets and splits on which all of these ran."""
        return sorted(set.intersection(*(set(self.errors[m]) for m in methods)))

    def ranked(self) -> list[str]:
        """Methods as they come that ran on at least half of what the busiest one ran on."""
        found = {m: len(cells) for m, cells in self.errors.items() if METHODS[m].ranked}
        return [m for m, count in found.items() if 2 * count >= max(found.values())]

    def mean(self, method: str, name: str, blocks: Iterable[tuple[str, int]]) -> float:
        found = [self.errors[method].get(block, math.nan) for block in blocks if block[0] == name]
        return float(np.mean(found)) if found else math.nan


def tabulate(results: list[dict], real: bool) -> list[Table]:
    """Tables by number of rows, all rows first."""
    tables: dict[int | None, dict] = defaultdict(lambda: defaultdict(dict))
    for r in results:
        if (r["set"] in SYNTHETIC) != real:
            tables[r["n"]][r["method"]][r["set"], r["split"]] = r.get("rmse", math.inf)
    order = sorted(tables, key=lambda n: math.inf if n is None else n, reverse=True)
    found = []
    for n in order:
        named = {m: dict(tables[n][m]) for m in METHODS if m in tables[n]}
        found.append(Table(n, named))
    return found


def without(table: Table, names: list[str]) -> Table:
    kept = {
        m: {block: e for block, e in cells.items() if block[0] not in names}
        for m, cells in table.errors.items()
    }
    return Table(table.n, {m: cells for m, cells in kept.items() if cells})


def ranks(table: Table, methods: list[str], by_split: bool = False) -> dict[str, float]:
    """Mean place over sets, by mean errors of the splits on which all ran; ties share their places.

    With `by_split` every split is a place of its own.
    """
    blocks = table.blocks(methods)
    rounds = [[block] for block in blocks]
    if not by_split:
        names = sorted({name for name, _ in blocks})
        rounds = [[block for block in blocks if block[0] == name] for name in names]
    places = defaultdict(list)
    for group in rounds:
        found = np.array([table.mean(m, group[0][0], group) for m in methods])
        for m, error in zip(methods, found):
            places[m].append(1 + np.sum(found < error) + (np.sum(found == error) - 1) / 2)
    return {m: float(np.mean(places[m])) for m in methods if places[m]}


def critical_difference(k: int, n: int) -> float:
    """Of mean ranks of k methods over n sets at 5% (Nemenyi; Demšar, JMLR 7 (2006), 1–30)."""
    q = studentized_range.ppf(0.95, k, np.inf) / math.sqrt(2)
    return float(q * math.sqrt(k * (k + 1) / (6 * n)))


class Ratio(NamedTuple):
    """Error over that of the best peer of each set, by mean errors."""

    by_set: dict[str, float]
    peers: dict[str, str]

    @property
    def geometric(self) -> float:
        return float(np.exp(np.mean(np.log(list(self.by_set.values())))))


def ratio(table: Table, method: str, methods: list[str]) -> Ratio:
    peers = [m for m in methods if not METHODS[m].ours]
    blocks = table.blocks([method, *peers])
    by_set, best = {}, {}
    for name in sorted({name for name, _ in blocks}):
        best[name] = min(peers, key=lambda m: table.mean(m, name, blocks))
        ours = table.mean(method, name, blocks)
        by_set[name] = ours / max(table.mean(best[name], name, blocks), 1e-300)
    return Ratio(by_set, best)


# --- text


def number(value: float) -> str:
    if not math.isfinite(value):
        return "—" if math.isnan(value) else "failed"
    return f"{value:.3g}"


def rows(header: list[str], lines: Iterable[list[str]]) -> list[str]:
    left = "| " + " | ".join(header) + " |"
    rule = "|:--" + "|--:" * (len(header) - 1) + "|"
    return [left, rule, *("| " + " | ".join(line) + " |" for line in lines), ""]


def title(n: int | None) -> str:
    return "All training rows" if n is None else f"{n} training rows"


def error_section(table: Table, real: bool) -> list[str]:
    methods = table.ranked()
    blocks = table.blocks(methods)
    sets = sorted({name for name, _ in blocks})
    if not sets:
        return []
    splits = len({split for _, split in blocks})
    counted = without(table, APART if real and table.n else [])
    place, split_place = ranks(counted, methods), ranks(counted, methods, by_split=True)
    mean = {(m, s): table.mean(m, s, blocks) for m in table.errors for s in sets}
    best = {s: min(mean[m, s] for m in methods) for s in sets}
    lines = []
    for m in sorted(table.errors, key=lambda m: place.get(m, math.inf)):
        own = [b for b in table.errors[m] if b[0] in sets]
        cells = []
        for s in sets:
            value = mean[m, s] if m in methods else table.mean(m, s, own)
            text = number(value)
            if m not in methods:
                text = f"({text})" if math.isfinite(value) else text
            cells.append(f"**{text}**" if m in methods and value == best[s] else text)
        lines.append([m, *cells, *(f"{p[m]:.2f}" if m in p else "—" for p in (place, split_place))])
    text = [f"### {title(table.n)}", ""]
    text += [
        f"Test RMSE in units of y, mean of {splits} {plural(splits, 'split')}; best first.",
        "",
    ]
    text += rows(["", *sets, "mean rank", "by split"], lines)
    if any(m not in methods for m in table.errors):
        text += ["In brackets, not ranked: other efforts, and what ran on fewer splits.", ""]
    if real and table.n and set(APART) & set(sets):
        text += [f"Ranks leave out {', '.join(APART)}.", ""]
    names = sorted({name for name, _ in counted.blocks(methods)})
    if len(names) > 1 and len(methods) > 2:
        table_of = [[counted.mean(m, s, counted.blocks(methods)) for s in names] for m in methods]
        p = friedmanchisquare(*table_of).pvalue
        text += [
            f"Friedman's test over {len(names)} sets: p = {p:.2g}. Critical difference of mean ranks at "
            f"5%: {critical_difference(len(methods), len(names)):.2f}, with the sets as independent "
            "observations and the splits as not.",
            "",
        ]
    if len(methods) > 1:
        text += [f"![mean ranks](figures/{figure('rank', table.n, real)})", ""]
    return text


def plural(count: int, word: str) -> str:
    return word if count == 1 else word + "s"


def figure(kind: str, n: int | None, real: bool) -> str:
    return f"benchmarks-{kind}-{'real' if real else 'known'}-{n or 'all'}.png"


def cost_section(results: list[dict]) -> list[str]:
    lines = []
    for m in METHODS:
        done = [r for r in results if r["method"] == m and "rmse" in r]
        if not done:
            continue
        large = [r for r in done if r["n"] is None and r["rows"] > 5000]
        usual = [r for r in done if r["n"] is None and r["rows"] <= 5000]
        small = [r for r in done if r["n"] is not None]
        line = [m]
        for part in (small, usual, large):
            line.append(f"{np.mean([r['cpu'] for r in part]):.1f}" if part else "—")
        line.append(f"{max(r['megabytes'] for r in done):.0f}")
        failed = sum(r["method"] == m and "failed" in r for r in results)
        line.append(str(failed) if failed else "")
        lines.append(line)
    header = ["CPU-s per fit", "subsets", "all rows", "over 5000 rows", "peak MB", "failed"]
    return [
        *rows(header, lines),
        "Mean over runs, tuning included; memory is the most that any run took beyond imports and data.",
        "",
        "![error against CPU time](figures/benchmarks-cpu.png)",
        "",
    ]


def coverage(results: list[dict], method: str, n: int | None) -> dict[str, float]:
    """% of the test rows of all splits that lie in their intervals, by real set."""
    inside, total = defaultdict(float), defaultdict(int)
    for r in results:
        if r["method"] == method and r["n"] == n and "coverage" in r and r["set"] not in SYNTHETIC:
            inside[r["set"]] += 100 * r["coverage"] * r["test_rows"]
            total[r["set"]] += r["test_rows"]
    return {name: inside[name] / total[name] for name in total}


def coverage_section(results: list[dict]) -> list[str]:
    covered = [r for r in results if "coverage" in r and r["set"] not in SYNTHETIC]
    sets = sorted({r["set"] for r in covered})
    lines = []
    for m in OURS:
        for n in sorted({r["n"] for r in covered}, key=lambda n: n or 0):
            found = coverage(results, m, n)
            if found:
                shown = [f"{found[s]:.1f}" if s in found else "—" for s in sets]
                mean = np.mean(list(found.values()))
                lines.append([f"{m}, {n or 'all'} rows", *shown, f"{mean:.1f}"])
    if not lines:
        return []
    counts = {s: len({r["split"] for r in covered if r["set"] == s and not r["n"]}) for s in sets}
    told = ", ".join(f"{count} of {s}" for s, count in counts.items())
    return [
        *rows(["% of test rows inside", *sets, "mean"], lines),
        f"Over every split that was run; with all rows, {told}.",
        "",
    ]


def goals(results: list[dict]) -> list[list[str]]:
    """What was aimed at, and what came out."""
    tables = {t.n: t for t in tabulate(results, real=True)}
    lines = []

    def goal(what: str, aim: str, value: float, met: bool) -> None:
        lines.append([what, aim, number(value), "yes" if met else "no"])

    aims = {None: {"IGLRegressor": 2.5, "IGLStack": 2.0}, 200: {}, 100: {}}
    for n in (100, 200):
        aims[n] = {"IGLStack": 1.7}
    for n, limits in aims.items():
        if n not in tables:
            continue
        table = without(tables[n], APART if n else [])
        methods = table.ranked()
        for m, limit in limits.items():
            if m not in methods:
                continue
            # Among peers: our other estimators would compete for the same places.
            others = [p for p in methods if p == m or not METHODS[p].ours]
            for among, words in ((methods, "all methods"), (others, "itself and the peers")):
                place = ranks(table, among).get(m)
                if place is not None:
                    what = f"mean rank of {m} among {words}, {title(n).lower()}"
                    goal(what, f"≤ {limit}", place, place <= limit)
            place = ranks(table, others, by_split=True).get(m)
            if place is not None:
                what = f"the same with every split ranked by itself, {title(n).lower()}"
                goal(what, f"≤ {limit}", place, place <= limit)
    if None in tables:
        for m in ("IGLStack", "IGLStack full"):
            if m in tables[None].errors and len(tables[None].ranked()) > 1:
                r = ratio(tables[None], m, tables[None].ranked())
                if not r.by_set:
                    continue
                worst = max(r.by_set, key=r.by_set.get)
                what = f"RMSE of {m} over the best peer's"
                goal(f"{what}, geometric mean", "≤ 0.95", r.geometric, r.geometric <= 0.95)
                high = r.by_set[worst]
                goal(f"{what}, worst set ({worst})", "≤ 1.10", high, high <= 1.10)
                if APART[0] in r.by_set:
                    value = r.by_set[APART[0]]
                    goal(f"{what}, {APART[0]}", "≤ 1", value, value <= 1)
    found = [r["inputs"] for r in results if r["set"] == APART[0] and not r["n"] and "inputs" in r]
    if found:
        goal(
            f"inputs that matter on {APART[0]}, the most of any run",
            "≤ 5",
            max(found),
            max(found) <= 5,
        )
    for m in OURS:
        by_set = coverage(results, m, None)
        if by_set:
            mean, low = float(np.mean(list(by_set.values()))), min(by_set.values())
            goal(f"coverage of 95% intervals of {m}, mean", "93–97", mean, 93 <= mean <= 97)
            goal(f"coverage of 95% intervals of {m}, worst set", "≥ 90", low, low >= 90)
    for m in ("IGLStack", "IGLStack fast"):
        pairs = public_pairs(results, m)
        if pairs:
            better = float(np.mean([ours["rmse"] < theirs["rmse"] for ours, theirs in pairs]))
            less = float(np.median([theirs["cpu"] / ours["cpu"] for ours, theirs in pairs]))
            what = f"share of {len(pairs)} runs in which {m} beats the public package"
            goal(what, "≥ 0.9", better, better >= 0.9)
            goal(f"CPU of the public package over that of {m}, median", "≥ 20", less, less >= 20)
    return lines


def public_pairs(results: list[dict], method: str) -> list[tuple[dict, dict]]:
    done = {
        (r["set"], r["n"], r["split"], r["method"]): r
        for r in results
        if r["method"] in (method, "public IGL") and "rmse" in r
    }
    return [
        (done[(*key, method)], r)
        for (*key, name), r in done.items()
        if name == "public IGL" and (*key, method) in done
    ]


def losses(results: list[dict]) -> list[str]:
    """Every set and size at which a peer is ahead of the stack."""
    text = []
    for real in (True, False):
        for table in tabulate(results, real):
            methods = table.ranked()
            if "IGLStack" not in methods or len(methods) < 2:
                continue
            r = ratio(table, "IGLStack", methods)
            for name, value in sorted(r.by_set.items(), key=lambda item: -item[1]):
                if value > 1:
                    text.append(
                        f"- {name}, {title(table.n).lower()}: {r.peers[name]} is ahead, the stack has "
                        f"{value:.2f} times its error."
                    )
    named = [name for name in WHY if any(line.startswith(f"- {name},") for line in text)]
    for name in named:
        text += ["", f"**{name}.** {WHY[name]}"]
    return [*(text or ["The stack is ahead on every set."]), ""]


# --- figures


def draw_ranks(path: Path, table: Table, plt) -> None:
    """Mean ranks on a line; methods joined by a bar do not differ at 5%."""
    methods = table.ranked()
    place = ranks(table, methods)
    order = sorted(place, key=place.get)
    k, n = len(order), len({name for name, _ in table.blocks(methods)})
    difference = critical_difference(k, n)
    height = 0.9 + 0.19 * math.ceil(k / 2)
    fig, ax = plt.subplots(figsize=(7.2, height))
    ax.set(xlim=(0.5, k + 0.5), ylim=(-0.2 - 0.19 * math.ceil(k / 2), 0.5))
    ax.axis("off")
    ax.hlines(0, 1, k, color="black", lw=1)
    for tick in range(1, k + 1):
        ax.vlines(tick, 0, 0.06, color="black", lw=0.8)
        ax.text(tick, 0.1, str(tick), ha="center", fontsize=7)
    ax.hlines(0.36, 1, 1 + difference, color="black", lw=1.5)
    ax.text(1, 0.42, f"critical difference {difference:.2f}", fontsize=7)
    for i, m in enumerate(order):
        left = i < math.ceil(k / 2)
        depth = -0.19 * (i + 1 if left else k - i) - 0.08
        color = "#0b6e4f" if METHODS[m].ours else "#444444"
        ax.vlines(place[m], depth, 0, color=color, lw=0.8)
        end = 0.9 if left else k + 0.1
        ax.hlines(depth, min(end, place[m]), max(end, place[m]), color=color, lw=0.8)
        label = f"{m} {place[m]:.2f}"
        ax.text(
            end, depth, label, ha="right" if left else "left", va="center", fontsize=8, color=color
        )
    drawn, level = -1, -0.05
    for i in range(k):
        j = max(j for j in range(k) if place[order[j]] - place[order[i]] <= difference)
        if j > i and j > drawn:
            ax.hlines(level, place[order[i]] - 0.03, place[order[j]] + 0.03, color="#b33", lw=2)
            level, drawn = level - 0.05, j
    fig.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(fig)


def draw_cost(path: Path, results: list[dict], plt) -> None:
    """Error over the least of all methods against CPU time, geometric means over sets."""
    tables = [t for t in tabulate(results, real=True) if t.n in (None, 100, 200)]
    tables = [t for t in tables if len(t.ranked()) > 1 and t.blocks(t.ranked())]
    if not tables:
        return
    fig, axes = plt.subplots(1, len(tables), figsize=(3.6 * len(tables), 3.2), squeeze=False)
    for ax, table in zip(axes[0], tables):
        methods = table.ranked()
        blocks = table.blocks(methods)
        sets = sorted({name for name, _ in blocks})
        best = {s: min(table.mean(m, s, blocks) for m in methods) for s in sets}
        for m in methods:
            logs = [math.log(table.mean(m, s, blocks) / best[s]) for s in sets]
            spent = [r["cpu"] for r in results if r["method"] == m and r["n"] == table.n and "cpu" in r
                     and (r["set"], r["split"]) in blocks]  # fmt: skip
            if not spent or not np.isfinite(logs).all():
                continue
            x, y = np.exp(np.mean(np.log(spent))), np.exp(np.mean(logs))
            color = "#0b6e4f" if METHODS[m].ours else "#444444"
            ax.scatter(x, y, color=color, s=16)
            ax.annotate(
                m, (x, y), textcoords="offset points", xytext=(3, 3), fontsize=6, color=color
            )
        ax.set(xscale="log", title=title(table.n), xlabel="CPU-seconds, tuning included")
        ax.margins(x=0.25)  # room for the names
    axes[0][0].set_ylabel("RMSE / least of all methods")
    fig.tight_layout()
    fig.savefig(path, dpi=110)
    plt.close(fig)


# --- the page


def write(results_path: Path, docs: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = read(results_path)
    if not results:
        raise SystemExit(
            f"no results in {results_path}. Run `python benchmarks/compare run` first."
        )
    figures = docs / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    ran = [m for m in METHODS if any(r["method"] == m for r in results)]
    missing = [m for m in METHODS if m not in ran and m != "tune"]
    budgets = sorted({r["budget"] for r in results if "budget" in r})
    text = [
        "# Side by side with what users would pick instead",
        "",
        "Written by `make bench-page` from what `make bench-compare` measures, or a part of it; see "
        "`python benchmarks/compare --help`. Few rows of many columns (spectra, faces, genes) have a "
        "page of their own: [wide.md](wide.md).",
        "",
        "Every method gets the same rows, with inputs and target standardized on the training rows. "
        f"Every peer tries up to {MOST_TRIALS} settings by 3-fold cross-validation, on at most "
        f"{MOST_ROWS} rows, until {' or '.join(f'{b:g}' for b in budgets)} CPU-seconds are spent "
        "(wall-clock on a quiet core), then fits the best to all rows. The Gaussian process spends them "
        f"on its evidence, from three starts, and sees every row up to {GP_ROWS}. The IGL estimators are "
        "used as they come, without settings; their defaults were settled on splits 3 to 7 of these "
        "tables, which share rows with the others. Each run is one process with one thread; no seed was "
        "chosen: it is the number of the split.",
        "",
    ]
    if "public IGL" in ran:
        text += [
            "Public IGL: the package intrinsic-green-learning as it comes, in its own interpreter.",
            "",
        ]
    if missing:
        names = [m if installed(m) else f"{m} (not installed)" for m in missing]
        text += [f"Not run: {', '.join(names)}.", ""]
    text += ["## What was aimed at", "", *rows(["", "aim", "measured", "met"], goals(results))]
    text += ["## Real tables", ""]
    for table in tabulate(results, real=True):
        text += error_section(table, real=True)
    known = [
        line for table in tabulate(results, real=False) for line in error_section(table, False)
    ]
    if known:
        text += ["## Manifolds whose structure is known", "", *known]
    text += ["## Cost", "", *cost_section(results)]
    covered = coverage_section(results)
    if covered:
        text += ["## Intervals at nominal 95%", "", *covered]
    text += ["## Where it loses and why", "", *losses(results)]
    for real in (True, False):
        for table in tabulate(results, real):
            shown = without(table, APART if real and table.n else [])
            if shown.errors and len(shown.ranked()) > 1 and shown.blocks(shown.ranked()):
                draw_ranks(figures / figure("rank", table.n, real), shown, plt)
    draw_cost(figures / "benchmarks-cpu.png", results, plt)
    (docs / "benchmarks.md").write_text("\n".join(text).rstrip() + "\n")
    print(f"written to {docs / 'benchmarks.md'}")

"""docs/benchmarks.md and its figures, from the results."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from classes import CLASSIFIERS
from methods import GP_ROWS, METHODS, MOST_ROWS, MOST_TRIALS, installed
from scipy.stats import friedmanchisquare, studentized_range
from scores import BINS
from sets import LEAST, MOST, MOST_TEST, SYNTHETIC
from sets import MOST_ROWS as MOST_TRAINING

ALL = {
    **METHODS,
    **CLASSIFIERS,
}  # what has the same name is the same method, for numbers or classes
OURS = [name for name, method in METHODS.items() if method.ours]
APART = ["pumadyn32nm"]  # left out of ranks at few rows: 30 of its 32 inputs are noise

# Why a peer is ahead, by set, and the numbers of rows that it is true of. What is not so prints nothing.
WHY = {
    "autompg": (
        {100, 50},
        "About 40 test rows a split, and a different method is first on each: the order is chance more "
        "than merit.",
    ),
    "concrete": (
        {500, 200, 100, 50},
        "With few rows one scale for all inputs predicts as well as learned ones. The stack has that "
        "chart, `iso.l1`, but on held-out rows the learned scales look better than they are, since they "
        "were learned from those rows too, and `iso.l1` gets little weight (`standings_`, `weights_`). "
        "To charge charts for their number of scales did not help over all sets.",
    ),
    "plane": (
        {200},
        "A smooth function of hidden directions. The stack's charts are scales of the inputs, with "
        "kernels for tables; `IGLRegressor` looks for the directions.",
    ),
}


def read(path: Path) -> list[dict]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- numbers


class Table(NamedTuple):
    """Errors at one number of training rows: method → (set, split) → error, infinite if it failed."""

    n: int | None
    errors: dict[str, dict[tuple[str, int], float]]
    kind: str  # of its sets: real, known or class

    @property
    def sets(self) -> list[str]:
        return sorted({name for cells in self.errors.values() for name, _ in cells})

    def blocks(self, methods: Iterable[str]) -> list[tuple[str, int]]:
        """Sets and splits on which all of these ran."""
        return sorted(set.intersection(*(set(self.errors[m]) for m in methods)))

    def ranked(self) -> list[str]:
        """Methods as they come that ran on at least half of what the busiest one ran on."""
        found = {m: len(cells) for m, cells in self.errors.items() if ALL[m].ranked}
        return [m for m, count in found.items() if 2 * count >= max(found.values())]

    def mean(self, method: str, name: str, blocks: Iterable[tuple[str, int]]) -> float:
        found = [self.errors[method].get(block, math.nan) for block in blocks if block[0] == name]
        return float(np.mean(found)) if found else math.nan


def tabulate(results: list[dict], kind: str, measure: str = "rmse") -> list[Table]:
    """Tables by number of rows, all rows first."""
    tables: dict[int | None, dict] = defaultdict(lambda: defaultdict(dict))
    for r in of_kind(results, kind):
        tables[r["n"]][r["method"]][r["set"], r["split"]] = r.get(measure, math.inf)
    order = sorted(tables, key=lambda n: math.inf if n is None else n, reverse=True)
    return [Table(n, {m: dict(tables[n][m]) for m in ALL if m in tables[n]}, kind) for n in order]


def of_kind(results: list[dict], kind: str) -> list[dict]:
    """Of sets with classes, of known manifolds, or of other real tables."""
    kinds = {r["set"]: "known" if r["set"] in SYNTHETIC else "real" for r in results}
    kinds |= {r["set"]: "class" for r in results if "log_loss" in r}
    return [r for r in results if kinds[r["set"]] == kind]


def without(table: Table, names: list[str]) -> Table:
    kept = {
        m: {block: e for block, e in cells.items() if block[0] not in names}
        for m, cells in table.errors.items()
    }
    return Table(table.n, {m: cells for m, cells in kept.items() if cells}, table.kind)


def counted(table: Table) -> Table:
    """The sets that ranks are of."""
    return without(table, APART if table.n else [])


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
    peers = [m for m in methods if not ALL[m].ours]
    blocks = table.blocks({method, *peers})
    by_set, best = {}, {}
    for name in sorted({name for name, _ in blocks}):
        best[name] = min(peers, key=lambda m: table.mean(m, name, blocks))
        ours = table.mean(method, name, blocks)
        by_set[name] = ours / max(table.mean(best[name], name, blocks), 1e-300)
    return Ratio(by_set, best)


def cost(cpu: Table, method: str, peer: str) -> float:
    """Median over runs of CPU time beside that of a peer."""
    both = cpu.blocks([method, peer])
    found = [cpu.errors[method][b] / cpu.errors[peer][b] for b in both]
    found = [f for f in found if math.isfinite(f)]
    return float(np.median(found)) if found else math.nan


# --- text


def number(value: float, digits: int = 3) -> str:
    if not math.isfinite(value):
        return "—" if math.isnan(value) else "failed"
    return f"{value:.{digits}g}"


def rows(header: list[str], lines: Iterable[list[str]]) -> list[str]:
    left = "| " + " | ".join(header) + " |"
    rule = "|:--" + "|--:" * (len(header) - 1) + "|"
    return [left, rule, *("| " + " | ".join(line) + " |" for line in lines), ""]


def title(n: int | None) -> str:
    return "All training rows" if n is None else f"{n} training rows"


def error_section(table: Table, measured: str, drawn: bool = True) -> list[str]:
    """Errors of every set, places, and how sure the order is; with a picture if one is drawn."""
    methods = table.ranked()
    blocks = table.blocks(methods)
    sets = sorted({name for name, _ in blocks})
    if not sets:
        return []
    splits = len({split for _, split in blocks})
    compared = counted(table)
    place, split_place = ranks(compared, methods), ranks(compared, methods, by_split=True)
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
    text = [
        f"### {title(table.n)}",
        "",
        f"{measured}, mean of {splits} {plural(splits, 'split')}; best first.",
        "",
        *rows(["", *sets, "mean rank", "by split"], lines),
    ]
    if any(m not in methods for m in table.errors):
        text += ["In brackets, not ranked: other efforts, and what ran on fewer splits.", ""]
    if compared.sets != table.sets:
        text += [f"Ranks leave out {', '.join(APART)}.", ""]
    names = sorted({name for name, _ in compared.blocks(methods)})
    if len(names) > 1 and len(methods) > 2:
        table_of = [[compared.mean(m, s, compared.blocks(methods)) for s in names] for m in methods]
        p = friedmanchisquare(*table_of).pvalue
        text += [
            f"Friedman's test over {len(names)} sets: p = {p:.2g}. Critical difference of mean ranks at "
            f"5%: {critical_difference(len(methods), len(names)):.2f}, with the sets as independent "
            "observations and the splits as not.",
            "",
        ]
    if drawn and len(methods) > 1:
        text += [f"![mean ranks](figures/{figure(table)})", ""]
    return text


def plural(count: int, word: str) -> str:
    return word if count == 1 else word + "s"


def figure(table: Table) -> str:
    return f"benchmarks-rank-{table.kind}-{table.n or 'all'}.png"


def cost_section(results: list[dict], picture: str | None = None) -> list[str]:
    lines = []
    for m in ALL:
        done = [r for r in results if r["method"] == m and "cpu" in r]
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
    text = [
        *rows(header, lines),
        "Mean over runs, tuning included; memory is the most that any run took beyond imports and data.",
        "",
    ]
    return text if picture is None else [*text, f"![error against CPU time](figures/{picture})", ""]


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
    tables = {t.n: t for t in tabulate(results, "real")}
    lines = []

    def goal(what: str, aim: str, value: float, met: bool) -> None:
        lines.append([what, aim, number(value), "yes" if met else "no"])

    aims = {None: {"IGLRegressor": 2.5, "IGLStack": 2.0}, 200: {}, 100: {}}
    for n in (100, 200):
        aims[n] = {"IGLStack": 1.7}
    for n, limits in aims.items():
        if n not in tables:
            continue
        table = counted(tables[n])
        methods = table.ranked()
        for m, limit in limits.items():
            if m not in methods:
                continue
            # Among peers: our other estimators would compete for the same places.
            others = [p for p in methods if p == m or not ALL[p].ours]
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
                easiest = min(r.by_set, key=r.by_set.get)
                rest = Ratio({s: v for s, v in r.by_set.items() if s != easiest}, r.peers).geometric
                goal(f"{what}, the same without {easiest}", "≤ 0.95", rest, rest <= 0.95)
                high = r.by_set[worst]
                goal(f"{what}, worst set ({worst})", "≤ 1.10", high, high <= 1.10)
                if "CatBoost" in tables[None].errors:
                    cpu = {t.n: t for t in tabulate(results, "real", "cpu")}[None]
                    spent = cost(cpu, m, "CatBoost")
                    goal(f"CPU of {m} over CatBoost's, median", "≤ 1", spent, spent <= 1)
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


def losses(tables: list[Table], stack: str, measure: str) -> list[str]:
    """Every set and size at which a peer is ahead of the stack."""
    text, why = [], {}
    for table in tables:
        methods = table.ranked()
        if stack not in methods or len(methods) < 2:
            continue
        r = ratio(table, stack, methods)
        for name, value in sorted(r.by_set.items(), key=lambda item: -item[1]):
            if value <= 1:
                continue
            text.append(
                f"- {name}, {title(table.n).lower()}: {r.peers[name]} is ahead, the stack has "
                f"{value:.2f} times its {measure}."
            )
            sizes, reason = WHY.get(name, ((), ""))
            if table.n in sizes:
                why[name] = reason
    for name in sorted(why):
        text += ["", f"**{name}.** {why[name]}"]
    return [*(text or ["The stack is ahead on every set."]), ""]


# --- classes


class Aim(NamedTuple):
    """What a classifier of ours should reach with all training rows."""

    rank: float  # at most, by log-loss
    ratio: float  # of log-loss and the best peer's, geometric mean over sets
    worst: float  # of these ratios
    accuracy_rank: float = 3.0
    calibration: float = 0.01  # more than the best peer's mean ECE


AIMS = {"IGLStackClassifier": Aim(2.0, 0.97, 1.12), "IGLClassifier": Aim(2.8, 1.0, 1.2)}
LETTER = {"accuracy": ("≥", 0.93), "log_loss": ("≤", 0.26)}


class Scores(NamedTuple):
    """Tables of one number of training rows, and CPU-seconds as one, all of the same runs."""

    loss: Table
    error: Table  # 1 − accuracy
    ece: Table
    cpu: Table

    def mean(self, table: Table, method: str) -> float:
        """Over the sets on which all ran."""
        blocks = self.loss.blocks(self.loss.ranked())
        return float(np.mean([table.mean(method, s, blocks) for s in {name for name, _ in blocks}]))


def class_scores(results: list[dict]) -> list[Scores]:
    told = [{**r, "error": 1 - r["accuracy"]} if "accuracy" in r else r for r in results]
    measures = ("log_loss", "error", "ece", "cpu")
    return [Scores(*tables) for tables in zip(*(tabulate(told, "class", m) for m in measures))]


def class_summary(scores: Scores) -> list[str]:
    """One line for a method."""
    methods = scores.loss.ranked()
    if len(methods) < 2 or not scores.loss.blocks(methods):
        return []
    places = [ranks(table, methods) for table in (scores.loss, scores.error, scores.ece)]
    lines = []
    for m in sorted(methods, key=lambda m: places[0][m]):
        r = ratio(scores.loss, m, methods)
        spent = [c for c in scores.cpu.errors[m].values() if math.isfinite(c)]
        lines.append(
            [
                m,
                *(f"{place[m]:.2f}" for place in places),
                f"{r.geometric:.3f}",
                f"{max(r.by_set.values()):.2f}",
                number(1 - scores.mean(scores.error, m), 4),
                number(scores.mean(scores.ece, m)),
                f"{np.median(spent):.1f}" if spent else "—",
            ]
        )
    header = ["", "rank by log-loss", "by accuracy", "by ECE", "log-loss / best peer's", "worst"]
    return [
        *rows([*header, "mean accuracy", "mean ECE", "median CPU-s"], lines),
        "Ranks are means over sets, as are accuracy and ECE. Log-loss is divided by that of the best "
        "peer of each set: the geometric mean over sets, and the worst.",
        "",
    ]


def class_goals(results: list[dict]) -> list[list[str]]:
    """What was aimed at for classes with all training rows, and what came out."""
    full = [scores for scores in class_scores(results) if scores.loss.n is None]
    lines: list[list[str]] = []

    def goal(what: str, limit: float, value: float) -> None:
        lines.append([what, f"≤ {limit:g}", number(value), "yes" if value <= limit else "no"])

    for scores in full:
        methods = scores.loss.ranked()
        peers = [m for m in methods if not ALL[m].ours]
        if not peers or not scores.loss.blocks(methods):
            continue
        for m, aim in AIMS.items():
            if m not in methods:
                continue
            r = ratio(scores.loss, m, methods)
            worst = max(r.by_set, key=r.by_set.get)
            best = min(scores.mean(scores.ece, p) for p in peers)
            for some, words in ((methods, "all methods"), ([m, *peers], "itself and the peers")):
                what, among = f"mean rank of {m} by", f"among {words}"
                goal(f"{what} log-loss {among}", aim.rank, ranks(scores.loss, some)[m])
                goal(f"{what} accuracy {among}", aim.accuracy_rank, ranks(scores.error, some)[m])
            what = f"log-loss of {m} over the best peer's"
            goal(f"{what}, geometric mean", aim.ratio, r.geometric)
            goal(f"{what}, worst set ({worst})", aim.worst, r.by_set[worst])
            more = scores.mean(scores.ece, m) - best
            goal(f"ECE of {m} less the best peer's, means", aim.calibration, more)
            if "CatBoost" in methods:
                goal(f"CPU of {m} over CatBoost's, median", 1.0, cost(scores.cpu, m, "CatBoost"))
    for m in AIMS:
        runs = [r for r in results if (r["set"], r["n"], r["method"]) == ("letter", None, m)]
        for measure, (sign, limit) in LETTER.items():
            found = [r[measure] for r in runs if measure in r]
            if found:
                value = float(np.mean(found))
                met = value >= limit if sign == "≥" else value <= limit
                what = f"{measure.replace('_', '-')} of {m} on letter"
                lines.append([what, f"{sign} {limit:g}", number(value), "yes" if met else "no"])
    return lines


def class_section(results: list[dict]) -> list[str]:
    text = []
    for scores in class_scores(results):
        text += error_section(scores.loss, "Log-loss of test rows")
        text += class_summary(scores)
    if not text:
        return []
    capped = ", ".join(f"of {name} {most}" for name, most in MOST.items())
    return [
        "## Classes",
        "",
        f"Every table at hand with a class to predict, at least {LEAST} training rows and no gaps; a "
        "quarter of the rows is left out, with the same shares of the classes. At most "
        f"{MOST_TRAINING} rows are learned from, {capped}, and at most {MOST_TEST} are judged by. Peers "
        f"are tuned by log-loss. ECE, the calibration error, has {BINS} bins of equal width of the "
        "largest probability, for every method.",
        "",
        *text,
        "### What classes cost",
        "",
        *cost_section(of_kind(results, "class"), "benchmarks-cpu-class.png"),
        "### Where the stack of classifiers loses",
        "",
        *losses(tabulate(results, "class", "log_loss"), "IGLStackClassifier", "log-loss"),
    ]


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
        color = "#0b6e4f" if ALL[m].ours else "#444444"
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


def draw_cost(path: Path, results: list[dict], kind: str, measure: str, plt) -> None:
    """Error over the least of all methods against CPU time, geometric means over sets."""
    tables = [t for t in tabulate(results, kind, measure) if t.n in (None, 100, 200)]
    tables = [t for t in tables if len(t.ranked()) > 1 and t.blocks(t.ranked())]
    if not tables:
        return
    fig, axes = plt.subplots(1, len(tables), figsize=(3.6 * len(tables), 3.2), squeeze=False)
    for ax, table in zip(axes[0], tables):
        methods = table.ranked()
        blocks = table.blocks(methods)
        sets = sorted({name for name, _ in blocks})
        best = {s: min(table.mean(m, s, blocks) for m in methods) for s in sets}
        points = []
        for m in methods:
            logs = [math.log(table.mean(m, s, blocks) / best[s]) for s in sets]
            spent = [r["cpu"] for r in results if r["method"] == m and r["n"] == table.n and "cpu" in r
                     and (r["set"], r["split"]) in blocks]  # fmt: skip
            if not spent or not np.isfinite(logs).all():
                continue
            points.append((np.exp(np.mean(logs)), np.exp(np.mean(np.log(spent))), m))
        tall = max(points)[0] - min(points)[0]
        for y, x, m in points:
            color = "#0b6e4f" if ALL[m].ours else "#444444"
            beside = [other for level, other, _ in points if abs(level - y) < 0.04 * tall]
            if x == max(beside):
                side, align = (4, -2), "left"
            else:  # names of neighbors to the other side, or above
                side, align = ((-4, -2), "right") if x == min(beside) else ((0, 5), "center")
            ax.scatter(x, y, color=color, s=16)
            ax.annotate(
                m, (x, y), side, textcoords="offset points", fontsize=6, color=color, ha=align
            )
        ax.set(xscale="log", title=title(table.n), xlabel="CPU-seconds, tuning included")
        ax.margins(x=0.45)  # room for the names
        low, high = ax.get_xlim()
        ticks = [m * 10.0**e for e in range(-2, 4) for m in (1, 2, 5) if low < m * 10.0**e < high]
        ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
        ax.minorticks_off()
    name = {"rmse": "RMSE", "log_loss": "log-loss"}[measure]
    axes[0][0].set_ylabel(f"{name} / least of all methods")
    fig.tight_layout()
    fig.savefig(path, dpi=110)
    plt.close(fig)


# --- the page

KINDS = {"real": "Real tables", "known": "Manifolds whose structure is known"}

PRETRAINED = (
    "TabPFN (Hollmann et al., Nature 637 (2025), 319–326) and TabICL (Qu et al., ICML 2025) were not "
    "run: they are networks trained beforehand, whose weights are downloaded at first use, and that was "
    "not possible where this was measured. The weights of TabPFN from 2.5 on are for non-commercial use, "
    "after a license is accepted. The authors of TabICL report that its second version is ahead of tuned "
    "XGBoost, CatBoost and LightGBM on about 80% of the data sets of TabArena "
    "([its repository](https://github.com/soda-inria/tabicl)); nothing here says how the two compare "
    "with this library."
)


def head(results: list[dict]) -> list[str]:
    """What was compared, and how."""
    ran = [m for m in ALL if any(r["method"] == m for r in results)]
    missing = [m for m in ALL if m not in ran and m != "tune"]
    budgets = sorted({r["budget"] for r in results if "budget" in r and not ALL[r["method"]].ours})
    commits = sorted({r["commit"] for r in results if "commit" in r})
    text = [
        "# Side by side with what users would pick instead",
        "",
        "Written by `make bench-page` from what `make bench-compare` measures, or a part of it; see "
        "`python benchmarks/compare --help`. Few rows of many columns (spectra, faces, genes) have a "
        "page of their own: [wide.md](wide.md), and so have the newest peers: [newest.md](newest.md).",
        "",
        "Every method gets the same rows, with inputs, and targets that are numbers, standardized on the "
        f"training rows. Every peer tries up to {MOST_TRIALS} settings by 3-fold cross-validation, on at "
        f"most {MOST_ROWS} rows, until {' or '.join(f'{b:g}' for b in budgets)} CPU-seconds are spent "
        "(wall-clock on a quiet core), then fits the best to all rows. The Gaussian process spends them "
        f"on its evidence, from three starts, and sees every row up to {GP_ROWS}. EBM, RealMLP and TabM "
        "are used with their defaults, which are meant to need no tuning, on one CPU. The IGL estimators "
        "are used as they come, without settings; defaults for numbers were settled on splits 3 to 7 of "
        "tables among these, which share rows with the others. Each run is one process with one thread; "
        "no seed was chosen: it is the number of the split.",
        "",
    ]
    if commits:
        text += [f"Measured at {plural(len(commits), 'commit')} {', '.join(commits)}.", ""]
    if "public IGL" in ran:
        text += [
            "Public IGL: the package intrinsic-green-learning as it comes, in its own interpreter.",
            "",
        ]
    if missing:
        names = [m if installed(ALL[m]) else f"{m} (not installed)" for m in missing]
        text += [f"Not run: {', '.join(names)}.", ""]
    return [*text, PRETRAINED, ""]


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
    numbers = of_kind(results, "real") + of_kind(results, "known")
    aims = goals(numbers) + class_goals(results)
    text = head(results)
    text += ["## What was aimed at", "", *rows(["", "aim", "measured", "met"], aims)]
    for kind, name in KINDS.items():
        found = [
            line
            for table in tabulate(numbers, kind)
            for line in error_section(table, "Test RMSE in units of y")
        ]
        if found:
            text += [f"## {name}", "", *found]
    if numbers:
        text += ["## Cost", "", *cost_section(numbers, "benchmarks-cpu.png")]
    covered = coverage_section(results)
    if covered:
        text += ["## Intervals at nominal 95%", "", *covered]
    if numbers:
        tables = [table for kind in KINDS for table in tabulate(numbers, kind)]
        text += ["## Where it loses and why", "", *losses(tables, "IGLStack", "error")]
    text += class_section(results)
    for kind, measure in (("real", "rmse"), ("known", "rmse"), ("class", "log_loss")):
        for table in tabulate(results, kind, measure):
            shown = counted(table)
            if shown.errors and len(shown.ranked()) > 1 and shown.blocks(shown.ranked()):
                draw_ranks(figures / figure(table), shown, plt)
    draw_cost(figures / "benchmarks-cpu.png", results, "real", "rmse", plt)
    draw_cost(figures / "benchmarks-cpu-class.png", results, "class", "log_loss", plt)
    (docs / "benchmarks.md").write_text("\n".join(text).rstrip() + "\n")
    print(f"written to {docs / 'benchmarks.md'}")


def write_newest(results_path: Path, docs: Path) -> None:
    """docs/newest.md: a few peers that take long, on one split, without pictures and aims."""
    results = read(results_path)
    commits = sorted({r["commit"] for r in results if "commit" in r})
    budgets = sorted({r["budget"] for r in results if "budget" in r and not ALL[r["method"]].ours})
    text = [
        "# Beside the newest peers",
        "",
        "Written by `make bench-newest`. RealMLP and TabM (pytabkit) and EBM (interpret) are used with "
        "their defaults, which are meant to need no tuning, on one CPU. They take too long for all "
        "splits of [the other page](benchmarks.md), so this is one split of its tables: a difference of "
        "a few percent on one table may be chance. CatBoost, tuned for "
        f"{' or '.join(f'{b:g}' for b in budgets)} CPU-seconds, is here to compare the two pages by. "
        "TabM has 200 rows only: with 2,000 an epoch takes it 5 seconds. Tables of more than 1,200 rows "
        "have 200 of them only, so that the run ends within an hour or two.",
        "",
        f"Measured at {plural(len(commits), 'commit')} {', '.join(commits)}.",
        "",
    ]
    numbers, classes = of_kind(results, "real"), of_kind(results, "class")
    if numbers:
        text += ["## Numbers", ""]
        for table in tabulate(numbers, "real"):
            text += error_section(table, "Test RMSE in units of y", drawn=False)
            text += beside(table, ["IGLStack", "IGLRegressor"])
        text += ["### What numbers cost", "", *cost_section(numbers)]
    if classes:
        text += ["## Classes", ""]
        for scores in class_scores(classes):
            text += error_section(scores.loss, "Log-loss of test rows", drawn=False)
            text += class_summary(scores)
        text += ["### What classes cost", "", *cost_section(classes)]
    (docs / "newest.md").write_text("\n".join(text).rstrip() + "\n")
    print(f"written to {docs / 'newest.md'}")


def beside(table: Table, ours: list[str]) -> list[str]:
    """The geometric mean over sets of our errors over those of each peer."""
    lines = []
    for peer in (m for m in table.errors if not ALL[m].ours):
        cells = [peer]
        for m in (m for m in ours if m in table.errors):
            blocks = table.blocks([m, peer])
            found = [math.log(table.errors[m][b] / table.errors[peer][b]) for b in blocks]
            cells.append(f"{math.exp(np.mean(found)):.3f}" if found else "—")
        lines.append(cells)
    shown = [m for m in ours if m in table.errors]
    told = "Errors over those of the peer, geometric mean over sets."
    return [*rows(["", *shown], lines), told, ""] if lines and shown else []

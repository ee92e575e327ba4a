"""The page about few rows of many columns, from the lines that `benchmarks/wide.py` measured."""

from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from greenfold import IGLRegressor, plot
from wide import BUDGET, METHODS, Task, installed, tasks

LINEAR = ("Ridge", "Ridge, scaled", "PLS")
OURS = ("IGLRegressor", "IGLStack")
FACES = (0.055, 0.036, 0.085)
AGAIN = "tecator fat, other splits"

Row = dict[str, Any]
Results = dict[str, Row]


def table(header: list[str], rows: Iterable[list[str]]) -> list[str]:
    lines = [header, [":--", *["--:"] * (len(header) - 1)], *rows]
    return [f"| {' | '.join(line)} |" for line in lines] + [""]


def of(results: Results, task: str, method: str) -> list[Row]:
    """Its splits."""
    return [r for r in results.values() if (r.get("task"), r.get("method")) == (task, method)]


def rmse(results: Results, task: str, method: str) -> np.ndarray:
    """(c,), the mean over splits; NaN where nothing was measured."""
    found = [row["rmse"] for row in of(results, task, method)]
    return np.mean(found, 0) if found else np.full(1, np.nan)


def mean_cpu(results: Results, task: str, method: str) -> float:
    found = [row["cpu"] for row in of(results, task, method)]
    return float(np.mean(found)) if found else np.nan


def covered(rows: list[Row]) -> float:
    return sum(r["inside"] for r in rows) / sum(r["judges"] for r in rows)


def number(value: float, digits: str = ".3g") -> str:
    return "" if np.isnan(value) else f"{value:{digits}}"


def geometric(values: list[float]) -> float:
    """NaN unless all are known."""
    return float(np.exp(np.mean(np.log(values))))


class Spectra:
    """What was measured of them, with errors beside the better of Ridge and PLS."""

    def __init__(self, results: Results):
        names = dict.fromkeys(r["task"] for r in results.values() if "task" in r)
        self.results, self.names = results, [n for n in names if n != "faces"]
        self.linear = {
            name: float(np.nanmin([rmse(results, name, m)[0] for m in LINEAR]))
            for name in self.names
        }

    def ratio(self, name: str, method: str) -> float:
        """NaN unless all splits were measured."""
        whole = len(of(self.results, name, method)) == len(of(self.results, name, "Ridge"))
        return float(rmse(self.results, name, method)[0]) / self.linear[name] if whole else np.nan

    def ratios(self, method: str) -> list[float]:
        return [self.ratio(name, method) for name in self.names if name != AGAIN]

    def dims(self) -> list[int]:
        return [r["dims"] for n in self.names for r in of(self.results, n, "IGLRegressor")]


def goals(results: Results, spectra: Spectra) -> Iterable[list[str]]:
    def line(what: str, aim: str, value: float, met: bool, digits: str = ".3f") -> list[str]:
        return [what, aim, f"{value:{digits}}", "yes" if met else "no"]

    for method, worst, mean in (("IGLRegressor", 1.08, 0.87), ("IGLStack", 1.05, 0.82)):
        ratios = spectra.ratios(method)
        top, middle = max(ratios), geometric(ratios)
        told = f"{method}, error beside the better of Ridge and PLS"
        yield line(f"{told}, worst target", f"≤ {worst}", top, top <= worst)
        yield line(f"{told}, geometric mean", f"≤ {mean}", middle, middle <= mean)
    for name in ("tecator fat", AGAIN):
        value = float(rmse(results, name, "IGLRegressor")[0])
        most = max(r["dims"] for r in of(results, name, "IGLRegressor"))
        yield line(f"{name}, RMSE of IGLRegressor", "≤ .50", value, value <= 0.5)
        yield line(f"{name}, coordinates", "≤ 3", most, most <= 3, "d")
    dims = spectra.dims()
    yield line("coordinates on spectra, median", "≤ 4", median(dims), median(dims) <= 4, "g")
    yield line("coordinates on spectra, most", "≤ 10", max(dims), max(dims) <= 10, "d")
    for method in OURS:
        many = {n: of(results, n, method) for n in spectra.names}
        shares = [covered(r) for r in many.values() if sum(x["judges"] for x in r) >= 60]
        for what, value in (("least", min(shares)), ("most", max(shares))):
            told = f"{method}, share inside 90% intervals, {what} of targets with 60 test rows"
            yield line(told, ".85 to .95", value, 0.85 <= value <= 0.95)
    found = of(results, "faces", "IGLRegressor")
    if found:
        middle = np.median([r["rmse"] for r in found], 0)
        for name, value, aim in zip(("light", "pan", "tilt"), middle, FACES, strict=True):
            told = f"faces, {name}, RMSE of IGLRegressor, median of splits"
            yield line(told, f"≤ {aim}", value, value <= aim, ".4f")
        most = max(r["dims"] for r in found)
        yield line("faces, coordinates", "≤ 6", most, most <= 6, "d")
    if "genes" in results:
        row = results["genes"]
        least = min(1.0, row["logistic"] - 0.05)
        right = row["accuracy"]
        yield line("genes (srbct), accuracy", f"≥ {least:.2f}", right, right >= least, ".2f")
        yield line("genes (srbct), coordinates", "≤ 5", row["dims"], row["dims"] <= 5, "d")
    if "applicability" in results:
        row = results["applicability"]
        enough = row["flagged"] >= 7
        told = f"of {row['beyond']} samples with more fat than any training one, flagged"
        yield line(told, "≥ 7", row["flagged"], enough, "d")
        share = row["alarms"] / row["test"]
        yield line("of test samples, flagged", "≤ .10", share, share <= 0.1, ".2f")


def told(row: Row) -> str:
    return row["name"].split(", ")[0].split(" (")[0]


def write(results: Results, data: Path, docs: Path) -> None:
    text = [*page(results), *pictures(data, docs / "figures")]
    (docs / "wide.md").write_text("\n".join(text).rstrip() + "\n")
    print(f"written to {docs / 'wide.md'}")


def page(results: Results) -> list[str]:
    """All but the pictures."""
    spectra = Spectra(results)
    ran = [m for m in METHODS if any(r.get("method") == m for r in results.values())]
    peers = [m for m in ran if m not in (*LINEAR, *OURS)]
    missing = [m if installed(m) else f"{m} (not installed)" for m in METHODS if m not in ran]
    commits = dict.fromkeys(r["commit"] for r in results.values() if r.get("method") in OURS)
    text = [
        "# Few rows of many columns",
        "",
        "Written by `make bench-wide` from what it measures; `benchmarks/wide.py` says how. Splits are "
        "the customary ones of tecator and yarn; of the other spectra, and of tecator's fat once more, "
        "a quarter of the rows is left out three times. Every method gets the same rows. Ridge, PLS, "
        "kernel ridge and CatBoost choose their settings by cross-validation on the training rows, the "
        "Gaussian process its numbers and how many principal components it sees by evidence; xRFM tries "
        f"settings until {BUDGET:g} CPU-seconds are spent, at least one. The IGL estimators are used as "
        "they come. One thread.",
        "",
        f"Measured at commit {', '.join(commits)}."
        + (f" Not run: {', '.join(missing)}." if missing else ""),
        "",
        "## What was aimed at",
        "",
        *table(["", "aim", "measured", "met"], goals(results, spectra)),
        "## Spectra",
        "",
        "Root mean square error on rows left out: of the better of Ridge (columns as they came or "
        "scaled) and PLS, and the ratio of others to it. Below 1 is better; what is empty was not run. "
        "The mean is without tecator's other splits.",
        "",
    ]
    shown = [*peers, *OURS]
    lines = [
        [
            name,
            *(str(of(results, name, "Ridge")[0][k]) for k in ("rows", "columns")),
            f"{spectra.linear[name]:.3g}",
            *(number(spectra.ratio(name, m), ".2f") for m in shown),
        ]
        for name in spectra.names
    ]
    means = [number(geometric(spectra.ratios(m)), ".2f") for m in shown]
    lines.append(["geometric mean", "", "", "", *means])
    text += table(["", "rows", "columns", "Ridge or PLS", *shown], lines)
    text += [
        "Charts of IGLRegressor in the splits, the share of rows left out that lie inside 90% intervals "
        "(with as many rows as judge), and CPU-seconds of a fit, which grow where others use the cores.",
        "",
    ]
    text += table(
        [
            "",
            "chart",
            "coordinates",
            *(f"{m} covers" for m in OURS),
            "rows",
            "PLS s",
            *(f"{m} s" for m in OURS),
        ],
        [charts(results, name) for name in spectra.names],
    )
    return text + faces(results, ran)


def charts(results: Results, name: str) -> list[str]:
    ours = of(results, name, "IGLRegressor")
    return [
        name,
        "; ".join(dict.fromkeys(told(r) for r in ours)),
        ", ".join(str(r["dims"]) for r in ours),
        *(f"{covered(of(results, name, m)):.2f}" for m in OURS),
        str(sum(r["judges"] for r in ours)),
        *(number(mean_cpu(results, name, m), ".1f") for m in ("PLS", *OURS)),
    ]


def faces(results: Results, ran: list[str]) -> list[str]:
    if not of(results, "faces", "IGLRegressor"):
        return []
    lines = []
    for method in ran:
        found = of(results, "faces", method)
        if len(found) == len(of(results, "faces", "Ridge")):
            errors = [number(v, ".4f") for v in np.mean([r["rmse"] for r in found], 0)]
            dims = ", ".join(str(r["dims"]) for r in found) if method == "IGLRegressor" else ""
            lines.append([method, *errors, dims, number(mean_cpu(results, "faces", method), ".1f")])
    return [
        "## Faces",
        "",
        "500 of the 698 Isomap faces (32 by 32 pixels), one fit to light, pan and tilt; root mean "
        "square error on the others, mean of three splits, of what was run on all of them.",
        "",
        *table(["", "light", "pan", "tilt", "coordinates", "CPU-s"], lines),
    ]


def pictures(data: Path, figures: Path) -> list[str]:
    """What coordinates are made of: of tecator's fat over the channels, of faces as pictures."""
    import matplotlib

    matplotlib.use("Agg")
    figures.mkdir(parents=True, exist_ok=True)
    known = {task.name: task for task in tasks(data)}

    def fitted(task: Task) -> IGLRegressor:
        train, _ = task.splits[0]
        Y = task.Y[train]
        return IGLRegressor(random_state=0).fit(task.X[train], Y if Y.shape[1] > 1 else Y[:, 0])

    plot.loadings(fitted(known["tecator fat"])).savefig(figures / "wide-tecator.png", dpi=80)
    shape = np.load(data / "manifolds" / "faces.npz")["shape"]
    model = fitted(known["faces"])
    plot.loadings(model, image_shape=tuple(shape)).savefig(figures / "wide-faces.png", dpi=80)
    return [
        "## What the coordinates are",
        "",
        "![Loadings of the coordinates of tecator's fat over the channels](figures/wide-tecator.png)",
        "",
        "The fat of meat: how each coordinate moves with the channels of a spectrum (`plot.loadings`).",
        "",
        "![Loadings of the coordinates of the faces as pictures](figures/wide-faces.png)",
        "",
        "Faces: the mean slope of each coordinate along the pixels.",
    ]

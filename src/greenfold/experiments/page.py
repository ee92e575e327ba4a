"""docs/reproduction.md from the results.json of every experiment.

python -m greenfold.experiments.page results/reproduce docs

An experiment without results there keeps the section that the page has of it.
"""

import json
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

from greenfold.experiments import NAMES
from greenfold.experiments.runner import summary

FOLDERS = tuple(
    folder
    for name in NAMES
    for folder in (("exp7-mnist", "exp7-fashion") if name == "exp7" else (name,))
)

HEAD = """# Does it do what the paper shows?

Every experiment of "Intrinsic Green's Learning" (A. Quemy), run again with this library: what the paper
claims, its value, ours. Wherever the paper is silent on a setting the choice is ours and stands in the
line above each table. Seeds were fixed before the runs. A claim *holds with a change* when something had
to be done differently, which is then named. Marks are what we ask of ourselves; where one is missed it
says so.

This page is generated: `make reproduction` runs everything and writes it. The line above each table has
settings and CPU-seconds of the run that it is from.
"""


def page(results: Path, docs: Path) -> str:
    """Write `docs`/reproduction.md and its figures; returns the text."""
    target, parts = docs / "reproduction.md", []
    before = sections(target.read_text()) if target.exists() else {}
    for name in FOLDERS:
        path, figure = results / name / "results.json", f"figures/{name}.png"
        if path.exists():
            (docs / "figures").mkdir(parents=True, exist_ok=True)
            shutil.copy(results / name / "figure.png", docs / figure)
            parts.append(
                summary(json.loads(path.read_text())).replace("(figure.png)", f"({figure})")
            )
        elif figure in before:
            parts.append(before[figure])
        else:
            raise FileNotFoundError(
                f"{path} is missing: run `greenfold reproduce {name.replace('-', ' --dataset ')}` first."
            )
    verdicts = Counter(verdict for part in parts for verdict in verdicts_of(part))
    counts = (
        f"Of {verdicts.total()} claims {verdicts['holds']} hold, {verdicts['holds with a change']} hold "
        f"with a change, and {verdicts['not reproduced']} are not reproduced.\n"
    )
    text = "\n".join([HEAD, counts, *parts])
    target.write_text(text)
    return text


def sections(text: str) -> dict[str, str]:
    """Those of a page, by the figure that each of them has."""
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]
    figures = [re.search(r"\((figures/[^)]*\.png)\)", part) for part in parts]
    return {
        figure[1]: part.rstrip() + "\n"
        for figure, part in zip(figures, parts, strict=True)
        if figure
    }


def verdicts_of(section: str) -> list[str]:
    """Of the claims in its last table, without what had to be changed."""
    rows = section.rsplit("| verdict | why |\n", 1)[-1].splitlines()[1:]
    return [row.split(" | ")[-2].split(":")[0] for row in rows if row.startswith("|")]


if __name__ == "__main__":
    page(Path(sys.argv[1]), Path(sys.argv[2]))

"""docs/reproduction.md from the results.json of every experiment.

python -m greenfold.experiments.page results/reproduce docs
"""

import json
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

This page is generated: `make reproduction` runs everything and writes it.
"""


def page(results: Path, docs: Path) -> str:
    """Write `docs`/reproduction.md and its figures; returns the text."""
    parts, verdicts = [], Counter[str]()
    for name in FOLDERS:
        path = results / name / "results.json"
        if not path.exists():
            raise FileNotFoundError(
                f"{path} is missing: run `greenfold reproduce {name.replace('-', ' --dataset ')}` first."
            )
        found = json.loads(path.read_text())
        verdicts.update(claim["verdict"].split(":")[0] for claim in found["claims"])
        (docs / "figures").mkdir(parents=True, exist_ok=True)
        shutil.copy(results / name / "figure.png", docs / "figures" / f"{name}.png")
        parts.append(summary(found).replace("(figure.png)", f"(figures/{name}.png)"))
    counts = (
        f"Of {verdicts.total()} claims {verdicts['holds']} hold, {verdicts['holds with a change']} hold "
        f"with a change, and {verdicts['not reproduced']} are not reproduced.\n"
    )
    text = "\n".join([HEAD, counts, *parts])
    (docs / "reproduction.md").write_text(text)
    return text


if __name__ == "__main__":
    page(Path(sys.argv[1]), Path(sys.argv[2]))

"""Pictures that are kept in the repository: `python docs/pictures.py`, with GREENFOLD_DATA set.

Those of examples on data that is not shipped, and those of the first pages. Run it after a change to
one of these examples.
"""

import runpy
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from greenfold import plot

HERE = Path(__file__).parent
KEPT = {  # figures of an example, in order
    "plot_04_meat": ["meat", "meat_loadings"],
    "plot_05_faces": ["gallery/plot_05_faces"],
    "plot_06_which_inputs": ["gallery/plot_06_which_inputs"],
    "plot_few_labels": ["gallery/plot_few_labels"],
}


def drawn(example: str, paths: list[Path]) -> dict[str, object]:
    """Run an example, save its figures, and return its names."""
    left = list(paths)

    def save() -> None:
        for number in plt.get_fignums():
            if left:
                plt.figure(number).savefig(left.pop(0), dpi=90)
        plt.close("all")

    plt.show = save
    return runpy.run_path(str(HERE.parent / "examples" / f"{example}.py"))


if __name__ == "__main__":
    (HERE / "images" / "gallery").mkdir(exist_ok=True)
    for example, kept in KEPT.items():
        names = drawn(example, [HERE / "images" / f"{name}.png" for name in kept])
        if example == "plot_04_meat":
            model, meat, learn, fat = (names[k] for k in ("model", "meat", "learn", "fat"))
            figure = plot.summary(model, meat.X[learn], fat[learn])
            figure.savefig(HERE / "images" / "meat_summary.png", dpi=80)

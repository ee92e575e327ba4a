"""Install the wheel of a folder into an empty environment and try it: `python tests/wheel.py dist`."""

import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

LARGEST = 2**20  # bytes of the wheel
PINNED = "torch==2.13.0"  # found as it is; a range would look further
CONSTRAINTS = Path(__file__).parent.parent / "constraints.txt"

PLAIN = """
import numpy as np, greenfold
from greenfold.datasets import load_tecator
meat = load_tecator()
model = greenfold.IGLRegressor(effort="fast", random_state=0).fit(meat.X[:80], meat.Y[:80, 1])
assert model.score(meat.X[80:120], meat.Y[80:120, 1]) > 0.9
model.report("page.html")
greenfold.save(model, "m.greenfold")
assert np.array_equal(greenfold.load("m.greenfold").predict(meat.X), model.predict(meat.X))
print(greenfold.__version__, greenfold.__file__)
"""
EXTRAS = (
    PLAIN
    + """
import matplotlib; matplotlib.use("Agg")
from greenfold import plot
from greenfold.learn.callbacks import TensorBoard
plot.loadings(model).savefig("picture.png")
greenfold.export(model, "m.onnx")
TensorBoard("runs")
"""
)


def check(wheel: Path) -> None:
    """Small, and with everything it needs."""
    size, names = wheel.stat().st_size, zipfile.ZipFile(wheel).namelist()
    for needed in ("data/tecator.npz", "data/tecator.txt", "py.typed", "report/page.html"):
        assert f"greenfold/{needed}" in names, f"{needed} is not in the wheel"
    assert not [n for n in names if not n.startswith("greenfold")], "the wheel holds other things"
    assert size <= LARGEST, f"the wheel has {size} bytes, more than {LARGEST}"
    print(f"{wheel.name}: {size / 1e6:.2f} MB, {len(names)} files")


def attempt(wheel: Path, extra: str, script: str) -> None:
    """In an environment and a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(Path(folder) / "venv", with_pip=True)
        bin_ = Path(folder) / "venv" / "bin"
        pip = [bin_ / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        pip += ["-c", CONSTRAINTS]
        subprocess.run([*pip, PINNED], check=True)
        subprocess.run([*pip, f"{wheel}{extra}"], check=True)
        subprocess.run([bin_ / "python", "-c", script], check=True, cwd=folder)
        subprocess.run([bin_ / "greenfold", "info", "m.greenfold"], check=True, cwd=folder)


if __name__ == "__main__":
    (built,) = Path(sys.argv[1]).resolve().glob("*.whl")
    check(built)
    attempt(built, "", PLAIN)
    attempt(built, "[all]", EXTRAS)

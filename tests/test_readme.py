"""What the README shows is what happens."""

import contextlib
import io
import re
import runpy
import sys
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from sklearn.kernel_ridge import KernelRidge

from greenfold import demo

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_examples_run_and_print_what_the_readme_says(tmp_path, monkeypatch):
    """One after the other, in one folder; output is shown in the block right below."""
    monkeypatch.chdir(tmp_path)
    blocks = list(re.finditer(r"```(\w*)\n(.*?)```", README, re.DOTALL))
    names = {}
    for block, below in pairwise(blocks):
        if block[1] == "python":
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                exec(block[2], names)
            adjacent = not README[block.end() : below.start()].strip()
            assert shown.getvalue().split() == (below[2].split() if adjacent else [])


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem
)
def test_an_example_runs_and_draws(path, tmp_path, monkeypatch):
    picture = tmp_path / "picture.png"
    monkeypatch.setattr(sys, "argv", [str(path), str(picture)])
    runpy.run_path(str(path), run_name="__main__")
    plt.close("all")
    assert picture.stat().st_size > 10_000


def test_the_demo_runs_and_draws(tmp_path, capsys, monkeypatch):
    # without the peer's grid search, which takes most of the time
    monkeypatch.setattr(demo, "kernel_ridge", lambda n: KernelRidge(kernel="rbf"))
    demo.main(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
    shown = capsys.readouterr().out
    assert shown.count("tuned kernel ridge") == 3
    assert demo.solve(10, 16) < 1e-10

"""What the README shows is what happens."""

import contextlib
import io
import re
from itertools import pairwise
from pathlib import Path

from sklearn.kernel_ridge import KernelRidge

from greenfold import demo

README = (Path(__file__).parent.parent / "README.md").read_text()


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


def test_the_demo_runs_and_draws(tmp_path, capsys, monkeypatch):
    # without the peer's grid search, which takes most of the time
    monkeypatch.setattr(demo, "kernel_ridge", lambda n: KernelRidge(kernel="rbf"))
    demo.main(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
    shown = capsys.readouterr().out
    assert shown.count("tuned kernel ridge") == 3
    assert demo.solve(10, 16) < 1e-10

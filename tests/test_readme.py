"""What the README shows is what happens."""

import contextlib
import io
import re
from itertools import pairwise
from pathlib import Path

from sklearn.kernel_ridge import KernelRidge

from greenfold import demo

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_example_prints_what_the_readme_says():
    blocks = re.findall(r"```(python)?\n(.*?)```", README, re.DOTALL)
    for (language, code), (_, output) in pairwise(blocks):
        if language == "python":
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                exec(code, {})
            assert shown.getvalue().split() == output.split()


def test_the_demo_runs_and_draws(tmp_path, capsys, monkeypatch):
    # without the peer's grid search, which takes most of the time
    monkeypatch.setattr(demo, "kernel_ridge", lambda n: KernelRidge(kernel="rbf"))
    demo.main(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
    shown = capsys.readouterr().out
    assert shown.count("tuned kernel ridge") == 3
    assert demo.solve(10, 16) < 1e-10

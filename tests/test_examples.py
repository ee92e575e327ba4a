"""Every example runs and draws."""

import os
import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from sklearn.cross_decomposition import PLSRegression

from greenfold import demo

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore:.*may be wrong")
def test_an_example_runs_and_draws(path, tmp_path, monkeypatch):
    text = path.read_text()
    if "GREENFOLD_DATA" in text and "GREENFOLD_DATA" not in os.environ:
        pytest.skip("GREENFOLD_DATA is not set: the data of this example are not shipped")
    drawn = []

    def save():
        for number in plt.get_fignums():
            plt.figure(number).savefig(tmp_path / f"{len(drawn)}.png")
            drawn.append(tmp_path / f"{len(drawn)}.png")
        plt.close("all")

    monkeypatch.setattr(plt, "show", save)
    runpy.run_path(str(path), run_name="__main__")
    assert len(drawn) == text.count("plt.show()")
    assert all(picture.stat().st_size > 10_000 for picture in drawn)


def test_every_example_asks_one_question_in_cells():
    for path in EXAMPLES:
        text = path.read_text()
        start, title, below = text.splitlines()[:3]
        assert (start, below) == ('"""', "=" * len(title)), path.name
        assert text.count("# %%") >= 2, path.name
        assert "plt.show()" in text, path.name


def test_the_demo_tells_its_story_and_draws(tmp_path, capsys, monkeypatch):
    # with five components, which a grid search takes some time to find
    monkeypatch.setattr(demo, "least_squares", lambda: PLSRegression(5))
    demo.main(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
    assert (tmp_path / "report.html").stat().st_size > 50_000
    shown = capsys.readouterr().out
    assert "partial least squares" in shown
    assert "2 coordinates" in shown
    assert demo.solve(10, 16) < 1e-10

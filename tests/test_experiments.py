"""Every experiment runs with a tiny budget and writes what it should; verdicts follow the numbers."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pytest

from greenfold.experiments import NAMES
from greenfold.experiments.claims import Claim
from greenfold.experiments.page import FOLDERS, page
from greenfold.experiments.runner import number, reproduce
from greenfold.experiments.scores import crossings


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduce")


LONG = {"exp1", "exp2", "exp4", "exp7", "theory", "ablation", "tasks", "manifolds"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow) if n in LONG else n
        for n in NAMES
        if n != "cifar10"  # test_cifar10.py has pictures for it
    ],
)
def test_an_experiment_runs(name, folder):
    results = reproduce(name, "tiny", out=folder, progress=False, n_jobs=1)
    plt.close("all")
    written = json.loads((folder / name / "results.json").read_text())
    assert written["claims"] == json.loads(json.dumps(results["claims"]))
    assert written["claims"]
    assert all(claim["why"] for claim in written["claims"])
    assert all(len(claim["values"]) for claim in written["claims"])
    assert (folder / name / "figure.png").stat().st_size > 5000
    table = (folder / name / "summary.md").read_text()
    assert all(claim["says"] in table for claim in written["claims"])


def test_the_page_has_every_claim(tmp_path):
    for name in FOLDERS:
        claim = Claim("here", f"{name} says", "1", [2.0, 3.0], True, "because", mark=2.0)
        results = {"experiment": name, "title": name, "size": "full", "config": {}, "seeds": [1]}
        results |= {"cpu_seconds": 1.0, "claims": [claim.record()]}
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(json.dumps(results))
        (tmp_path / name / "figure.png").write_bytes(b"")
    text = page(tmp_path, tmp_path / "docs")
    assert all(f"{name} says" in text and f"figures/{name}.png" in text for name in FOLDERS)
    assert "**missed**" in text  # the median is 2.5
    assert f"Of {len(FOLDERS)} claims {len(FOLDERS)} hold" in text
    (tmp_path / FOLDERS[0] / "results.json").unlink()
    assert page(tmp_path, tmp_path / "docs") == text  # what is known of it stays
    (tmp_path / "docs" / "reproduction.md").unlink()
    with pytest.raises(FileNotFoundError, match=f"greenfold reproduce {FOLDERS[0]}"):
        page(tmp_path, tmp_path / "docs")


def test_verdicts():
    claim = Claim("", "", "", [1.0, 4.0, 2.0], True, "", mark=2.0)
    assert (claim.median, claim.worst, claim.verdict, claim.met) == (2.0, 4.0, "holds", True)
    claim = Claim("", "", "", [1.0, 4.0], False, "", small=False)
    assert (claim.worst, claim.verdict, claim.met) == (1.0, "not reproduced", None)
    assert Claim("", "", "", [1.0], True, "", change="more").verdict == "holds with a change: more"


@pytest.mark.parametrize(
    ("value", "text"), [(0.5, "0.5"), (3.2e-9, "3.2e-9"), (0.9999912, "0.9999912"), (0.0, "0")]
)
def test_numbers(value, text):
    assert number(value) == text


def test_bad_requests():
    with pytest.raises(ValueError, match="exp6"):
        reproduce("exp9")
    with pytest.raises(ValueError, match="'tiny', 'quick' or 'full'"):
        reproduce("exp6", "huge")
    with pytest.raises(ValueError, match="at least 1"):
        reproduce("exp6", seeds=0)
    with pytest.raises(ValueError, match="leave `dataset` out"):
        reproduce("exp6", dataset="mnist")
    with pytest.raises(ValueError, match="fashion"):
        reproduce("exp7", dataset="letters")


def test_without_its_data_nothing_is_trained(tmp_path, monkeypatch):
    monkeypatch.setenv("GREENFOLD_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("greenfold.images.DEBIAN", tmp_path)
    with pytest.raises(FileNotFoundError, match="greenfold data mnist"):
        reproduce("exp7", "tiny", dataset="mnist", out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_crossings_of_lines():
    s = np.linspace(0, 1, 50)
    flat = np.stack([s, 0 * s + 0.123], 1)
    wave = np.stack([s, np.sin(2 * np.pi * s + 0.5)], 1)  # meets it twice
    assert crossings(np.array([flat, wave])) == 2
    assert crossings(np.array([flat, wave, flat + 5])) == 2 / 3
    assert crossings(np.array([flat, flat + 0.1])) == 0

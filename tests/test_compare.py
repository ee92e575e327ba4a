"""The runner that puts the estimators beside other methods."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

RUNNER = Path(__file__).parent.parent / "benchmarks" / "compare"


def compare(*arguments, **environment):
    return subprocess.run(
        [sys.executable, RUNNER, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    ).stdout


@pytest.mark.slow  # pages are made below, too
def test_results_are_kept_and_make_a_page(tmp_path):
    """A directory of the reader's own, two methods; what is done is not done again."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 2))
    folder = tmp_path / "data" / "mine"
    folder.mkdir(parents=True)
    np.savetxt(folder / "data.csv.gz", np.column_stack([X, X[:, 0] * X[:, 1]]), delimiter=",")
    np.savetxt(folder / "test_mask.csv.gz", np.arange(60) % 3 == 0, delimiter=",")
    results = tmp_path / "results.jsonl"
    task = ["--data", tmp_path / "data", "--results", results, "--budget", 0.2, "--splits", 1]
    task += ["--sets", "mine", "--methods", "KRR rbf,KRR laplacian"]
    assert compare("run", *task).count("CPU-s") == 2
    assert compare("run", *task).count("CPU-s") == 0
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert [(r["set"], r["method"]) for r in rows] == [
        ("mine", "KRR rbf"), ("mine", "KRR laplacian")
    ]  # fmt: skip
    assert all(0 < r["relative"] < 1 and r["cpu"] > 0 and r["trials"] > 1 for r in rows)
    compare("page", "--results", results, "--docs", tmp_path)
    page = (tmp_path / "benchmarks.md").read_text()
    assert "| KRR laplacian |" in page
    assert "public IGL (not installed)" in page
    assert (tmp_path / "figures" / "benchmarks-cpu.png").stat().st_size > 1000


@pytest.mark.slow
def test_methods_are_ranked_by_set_and_by_split(tmp_path):
    """On set `a` one method wins the mean and the other a split; on `b` the other wins both."""
    errors = {
        "KRR rbf": {"a": (1.0, 1.0), "b": (1.0, 1.0)},
        "KRR laplacian": {"a": (0.9, 2.0), "b": (0.5, 0.5)},
    }
    lines = [
        {"set": name, "n": None, "split": k, "method": method, "rmse": rmse, "cpu": 1.0, "megabytes": 1.0,
         "rows": 100, "test_rows": 10, "budget": 1.0}
        for method, sets in errors.items()
        for name, splits in sets.items()
        for k, rmse in enumerate(splits)
    ]  # fmt: skip
    results = tmp_path / "results.jsonl"
    results.write_text("\n".join(json.dumps(line) for line in lines))
    compare("page", "--results", results, "--docs", tmp_path)
    page = (tmp_path / "benchmarks.md").read_text()
    assert "| KRR rbf | **1** | 1 | 1.50 | 1.75 |" in page
    assert "| KRR laplacian | 1.45 | **0.5** | 1.50 | 1.25 |" in page


@pytest.mark.slow
def test_classes_are_run_beside_numbers(tmp_path):
    """Two at a time, from a folder of tables; a table with gaps or few rows is left out."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    label = np.where(X[:, 0] > 0, "yes", "no")
    folder = tmp_path / "data" / "tables"
    folder.mkdir(parents=True)
    lines = [f"{a},{b},{c}" for (a, b), c in zip(X, label)]
    (folder / "few.csv.gz").write_bytes(gzip.compress("\n".join(lines[:100]).encode()))
    (folder / "mine.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    results = tmp_path / "results.jsonl"
    task = ["--data", tmp_path / "data", "--results", results, "--budget", 0.2, "--splits", 1]
    task += [
        "--jobs",
        2,
        "--methods",
        "logistic,ExtraTrees",
        "--targets",
        "class",
        "--n",
        "full,200",
    ]
    assert compare("run", *task).count("CPU-s") == 8  # digits are there, too
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert {r["set"] for r in rows} == {"mine", "digits"}
    assert all(0 < r["log_loss"] < 1 and r["accuracy"] > 0.8 and 0 <= r["ece"] <= 1 for r in rows)
    compare("page", "--results", results, "--docs", tmp_path)
    assert "| logistic |" in (tmp_path / "benchmarks.md").read_text().split("## Classes")[1]
    compare("newest", "--results", results, "--docs", tmp_path)
    written = (tmp_path / "newest.md").read_text()
    assert "| logistic |" in written.split("## Classes")[1]
    assert "figures/" not in written


@pytest.fixture
def runner(monkeypatch):
    """The files of the runner can be imported."""
    for folder in (RUNNER.parent, RUNNER):
        monkeypatch.syspath_prepend(folder)


def test_calibration_error_is_how_far_shares_are_from_probabilities(runner):
    from scores import calibration_error

    P = np.tile([0.75, 0.25], (100, 1))
    right, half = (np.arange(100) >= n for n in (75, 50))
    assert calibration_error(P, right.astype(int)) == pytest.approx(0)
    assert calibration_error(P, half.astype(int)) == pytest.approx(0.25)
    # two bins of 50 rows, one too sure by 0.25 and one not sure enough by 0.4: they do not cancel
    P[50:] = [0.4, 0.6]
    assert calibration_error(P, np.r_[half[25:75], np.ones(50)].astype(int)) == pytest.approx(0.325)


def test_log_loss_is_that_of_scikit_learn(runner):
    """Also when a class was not among the rows of a model, and its probability is 0."""
    from scores import log_loss, probabilities
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss as expected

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), np.repeat([0, 1, 3], 20)
    model = LogisticRegression().fit(X, y)
    P = probabilities(model, X, 4)
    assert log_loss(P, y) == pytest.approx(expected(y, model.predict_proba(X)))
    y[0] = 2
    assert log_loss(P, y) == pytest.approx(expected(y, P, labels=range(4)))


def test_classes_have_the_same_shares_in_every_part(runner):
    from sets import named_classes, split

    X, y = np.arange(2000.0).reshape(1000, 2), np.repeat(["a", "b", "c"], [500, 300, 200])
    data = named_classes("letter", X, y)
    assert data.classes == 3
    for n, size in ((None, 750), (200, 200)):
        rows = split(data, 1, n)
        assert len(rows.y) == size
        assert np.bincount(rows.y) / size == pytest.approx([0.5, 0.3, 0.2], abs=1 / size)
        assert not {*map(tuple, rows.X)} & {*map(tuple, rows.X_test)}
        assert rows.X.std(0) == pytest.approx([1, 1])
        assert (split(data, 1, n).X == rows.X).all()
        assert not (split(data, 2, n).X == rows.X).all()


def test_classifiers_are_ranked_by_log_loss_and_beside_the_best_peer(runner):
    """Two sets; the stack wins one by half and loses the other by a fifth. A failed run is last."""
    import page

    losses = {"IGLStackClassifier": (0.5, 1.2), "logistic": (1.0, 2.0), "SVC": (2.0, 1.0)}
    results = [
        {"set": name, "n": None, "split": 0, "method": m, "log_loss": loss, "accuracy": 1 - loss / 4,
         "ece": loss / 100, "cpu": 1.0, "megabytes": 1.0, "rows": 100, "test_rows": 10, "budget": 1.0}
        for m, found in losses.items()
        for name, loss in zip(("a", "b"), found)
    ]  # fmt: skip
    results += [
        {"set": s, "n": None, "split": 0, "method": "ExtraTrees", "failed": "x"} for s in "ab"
    ]
    text = "\n".join(page.class_section(results))
    assert "| IGLStackClassifier | **0.5** | 1.2 | 1.50 | 1.50 |" in text
    mean = (0.5 * 1.2) ** 0.5
    assert f"| IGLStackClassifier | 1.50 | 1.50 | 1.50 | {mean:.3f} | 1.20 | 0.7875 |" in text
    assert "| ExtraTrees | failed | failed | 4.00 | 4.00 |" in text
    assert "- b, all training rows: SVC is ahead, the stack has 1.20 times its log-loss." in text
    aims = {what: (value, met) for what, _, value, met in page.class_goals(results)}
    what = "log-loss of IGLStackClassifier over the best peer's"
    assert aims[f"{what}, geometric mean"] == (f"{mean:.3g}", "yes")
    assert aims[f"{what}, worst set (b)"] == ("1.2", "no")


# --- few rows of many columns


def wide(folder, *arguments):
    command = [sys.executable, RUNNER.parent / "wide.py", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return done.stdout


@pytest.mark.slow
def test_fits_to_wide_rows_are_kept(tmp_path):
    """What is done is not done again; targets that are missing are left out."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(24, 30)), rng.normal(size=(24, 1))
    Y[:4] = np.nan
    for folder, name in (*(("spectra", n) for n in ("tecator", "corn", "gasoline", "yarn", "diesel")),
                         ("manifolds", "faces")):  # fmt: skip
        (tmp_path / folder).mkdir(exist_ok=True)
        np.savez(tmp_path / folder / f"{name}.npz", X=X, Y=Y, names=np.array(["y"]))
    task = ["--data", tmp_path, "--only", "corn", "--methods", "Ridge", "PLS"]
    assert wide(tmp_path, *task).count("CPU-s") == 6
    assert wide(tmp_path, *task).count("CPU-s") == 0
    rows = [json.loads(line) for line in (tmp_path / "results/wide.jsonl").read_text().splitlines()]
    assert {(r["task"], r["rows"], r["columns"]) for r in rows} == {("corn y", 15, 30)}


def test_errors_are_told_beside_the_better_of_ridge_and_pls(monkeypatch):
    """Of means over splits, not a split at a time."""
    monkeypatch.syspath_prepend(RUNNER.parent)
    import wide_page

    errors = {"Ridge": (1.0, 3.0), "Ridge, scaled": (3.0, 3.0), "PLS": (2.0, 4.0)}
    errors |= {"IGLRegressor": (1.0, 2.0), "IGLStack": (1.0, 1.0)}
    ours = {"inside": 27, "judges": 30, "dims": 2, "name": "linear function (SNV), Affine kernel"}
    rows = {
        f"{task} {k} {method}": {
            "task": task, "split": k, "method": method, "rows": 60, "columns": 700, "commit": "abc",
            "cpu": 1.0, "rmse": [value], **(ours if method.startswith("IGL") else {}),
        }
        for task in ("tecator fat", wide_page.AGAIN)
        for method, values in errors.items()
        for k, value in enumerate(values)
    }  # fmt: skip
    text = "\n".join(wide_page.page(rows))
    assert "| tecator fat | 60 | 700 | 2 | 0.75 | 0.50 |" in text
    assert "| geometric mean |  |  |  | 0.75 | 0.50 |" in text
    assert "| tecator fat | linear function | 2, 2 | 0.90 | 0.90 | 60 | 1.0 | 1.0 | 1.0 |" in text
    assert "kernel ridge" in text.split("Not run:")[1].splitlines()[0]

"""The runner that puts the estimators beside other methods."""

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

"""The commands, their pipes, their errors."""

import fcntl
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from typer.testing import CliRunner

import greenfold
from greenfold import Training, cli, demo, io
from greenfold.rows import Source
from greenfold.table import Table

from .models import X, labels, own, regressor, y

README = Path(__file__).parent.parent / "README.md"
QUICK = ["--chart", "linear", "--max-iter", "2", "--random-state", "0"]


def table(n=60):
    """Numbers with gaps, categories, truth values, dates, an identifier, a constant."""
    day = np.datetime64("2024-01-01") + np.arange(n)
    return pa.table(
        {
            "a": pa.array([None if i % 9 == 0 else v for i, v in enumerate(X[:n, 0])]),
            "b": X[:n, 1],
            "level": pa.array([None if i % 20 == 3 else v for i, v in enumerate(labels[:n])]),
            "flag": pa.array(np.arange(n) % 3 == 0),
            "day": pa.array(day.astype("datetime64[D]")),
            "id": [f"row {i}" for i in range(n)],
            "one": np.ones(n),
            "y": y[:n],
        }
    )


def run(*arguments, code=0, stdin=None):
    result = CliRunner().invoke(cli.app, [str(a) for a in arguments], input=stdin)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table in every format, and a model fitted to it."""
    path = tmp_path_factory.mktemp("cli")
    t = table()
    pa.csv.write_csv(t, path / "data.csv")
    pa.parquet.write_table(t, path / "data.parquet")
    pyarrow.feather.write_feather(t, path / "data.arrow")
    np.save(path / "data.npy", np.column_stack([X, y]))
    np.savez(path / "data.npz", X=X, y=y)
    (path / "data.tsv").write_text((path / "data.csv").read_text().replace(",", "\t"))
    result = run("fit", path / "data.csv", "--target", "y", "--out", path / "m.greenfold", *QUICK)
    (path / "said").write_text(result.stderr)
    return path


def predictions(result):
    return np.array([float(line) for line in result.stdout.splitlines()[1:]])


# --- fit


def test_fit_says_what_it_did_to_the_table(folder):
    said = (folder / "said").read_text()
    assert "note: a: 7 of 60 values missing, filled with the median" in said
    assert "note: level: one-hot, 4 levels, 3 of 60 values missing, a level of their own" in said
    assert "note: id: left out" in said
    assert "note: one: left out, it is always 1" in said
    model = greenfold.load(folder / "m.greenfold")
    names = ["a", "b", "level=(missing)", "level=high", "level=low", "level=middle", "flag", "day"]
    assert model.table.names == names
    assert model.target == "y"


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "arrow", "npy", "npz"])
def test_every_format_is_read_whole_and_in_batches(folder, ending):
    with Source(str(folder / f"data.{ending}")) as source:
        whole = source.table()
    columns = Table.learn(whole).needed
    with Source(str(folder / f"data.{ending}")) as source:
        parts = pa.concat_tables(source.batches(columns))
    assert whole.num_rows == parts.num_rows == 60
    assert parts.column_names == [c.name for c in columns]
    target = {"npy": "x4"}.get(ending, "y")
    assert_allclose(whole.column(target).to_numpy(), y, rtol=1e-15)


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "arrow"])
def test_the_format_of_the_rows_does_not_matter(folder, ending):
    result = run("predict", folder / "m.greenfold", folder / f"data.{ending}")
    model = greenfold.load(folder / "m.greenfold")
    assert_allclose(predictions(result), model.predict(table()), rtol=1e-12)


def test_frames_of_pandas_and_polars_are_tables_too(folder):
    model = greenfold.load(folder / "m.greenfold")
    frame = table().drop_columns(["id", "one"])
    assert_array_equal(model.predict(frame.to_pandas()), model.predict(frame))
    assert_array_equal(model.predict(pl.from_arrow(frame)), model.predict(frame))
    as_category = frame.to_pandas().assign(level=pd.Categorical(frame["level"].to_pandas()))
    assert_array_equal(model.predict(as_category), model.predict(frame))


@pytest.mark.parametrize(
    ("name", "target"), [("data.npy", "-1"), ("data.npy", "x4"), ("data.npz", "y")]
)
def test_columns_of_arrays_go_by_number_and_name(folder, tmp_path, name, target):
    out = tmp_path / "m.greenfold"
    shown = run("fit", folder / name, "-t", target, "-o", out, *QUICK, "--json").stdout
    assert json.loads(shown)["columns"] == 4
    assert_array_equal(greenfold.load(out).estimator.transform(X).shape, (60, 2))


def test_the_task_is_guessed_and_can_be_said(folder, tmp_path):
    data = tmp_path / "d.csv"
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["whole"] = (y > 0).astype(int)
    frame.to_csv(data, index=False)
    out = tmp_path / "m.greenfold"
    options = ["--target", "whole", "--out", out, *QUICK, "--json"]
    guessed = json.loads(run("fit", data, *options).stdout)
    assert guessed["task"] == "classification"
    assert "taken as classes" in guessed["notes"][0]
    said = json.loads(run("fit", data, *options, "--task", "regression").stdout)
    assert said["estimator"] == "IGLRegressor"
    rebuilt = ["--out", out, "--task", "reconstruction", *QUICK, "--columns", "a,b,c"]
    run("fit", data, *rebuilt, "--set", "start=pca", "--set", "n_atoms=10")
    answer = run("predict", out, data)
    assert answer.stdout.splitlines()[0] == '"a","b","c"'


def test_rows_without_a_target_are_left_out(folder, tmp_path):
    data = tmp_path / "d.csv"
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": np.where(X[:, 0] > 0.5, np.nan, y)}).to_csv(data)
    out = tmp_path / "m.greenfold"
    shown = json.loads(run("fit", data, "-t", "y", "-o", out, *QUICK, "--json").stdout)
    assert shown["rows"] == int((X[:, 0] <= 0.5).sum())
    assert "their target is missing" in shown["notes"][0]


@pytest.mark.parametrize("classes", [False, True])
def test_rows_without_a_target_can_tell_how_columns_look(tmp_path, classes):
    data, out = tmp_path / "d.csv", tmp_path / "m.greenfold"
    target = np.where(y > np.median(y), "high", "low") if classes else y
    target = pd.Series(target).where(X[:, 0] <= 0.5)
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": target}).to_csv(data, index=False)
    asked = ("fit", data, "-t", "y", "-o", out, "--unlabeled", "--effort", "fast", "--json")
    shown = json.loads(run(*asked).stdout)
    assert shown["rows"] == len(X)
    assert f"{int((X[:, 0] > 0.5).sum())} rows have no target" in shown["notes"][0]
    assert io.load(out).estimator.n_unlabeled_ == int((X[:, 0] > 0.5).sum())
    assert len(run("predict", out, data).stdout.splitlines()) == len(X) + 1
    refused = run(*asked, "--exposure", "a", code=1)
    assert "--unlabeled goes with none of" in refused.output


# --- predict


def test_counts_are_for_the_exposure_that_is_named(tmp_path):
    data, out = tmp_path / "d.csv", tmp_path / "m.greenfold"
    hours = np.arange(1, 41.0)
    counts = np.random.default_rng(0).poisson(3 * hours)
    table = pd.DataFrame({"a": np.linspace(-1, 1, 40), "hours": hours, "calls": counts})
    table.to_csv(data, index=False)
    run("fit", data, "-t", "calls", "-o", out, "--likelihood", "poisson", "--exposure", "hours")
    one, all_ = run("predict", out, data), run("predict", out, data, "--exposure", "hours")
    np.testing.assert_allclose(predictions(all_), hours * predictions(one), rtol=1e-9)
    assert "an exposure of 1" in one.stderr
    assert "exposure" not in all_.stderr


def test_predict_adds_what_is_asked_for(folder, tmp_path):
    model, data = folder / "m.greenfold", folder / "data.csv"
    lines = run("predict", model, data, "--std", "--interval", "0.8", "--json").stdout.splitlines()
    row = json.loads(lines[0])
    assert list(row) == ["y", "y_std", "y_low", "y_high"]
    assert row["y_low"] < row["y"] < row["y_high"]
    row = json.loads(
        run("predict", model, data, "--applicability", "--json").stdout.splitlines()[0]
    )
    found = greenfold.load(model).applicability(table())
    assert row == {
        "y": row["y"],
        "t2": found.t2[0],
        "q": found.q[0],
        "outside": int(found.outside[0]),
    }
    chart = run("predict", model, data, "--transform", "--out", tmp_path / "xi.npy")
    assert chart.stdout == ""
    assert_allclose(np.load(tmp_path / "xi.npy"), greenfold.load(model).transform(table()))
    for ending, read in (("parquet", pd.read_parquet), ("arrow", pd.read_feather)):
        run("predict", model, data, "--out", tmp_path / f"p.{ending}")
        assert_allclose(read(tmp_path / f"p.{ending}")["y"], greenfold.load(model).predict(table()))


def test_columns_of_quantiles_say_which_they_are(folder, tmp_path):
    model, data = tmp_path / "model.greenfold", folder / "data.csv"
    run("fit", data, "--target", "y", "--quantiles", "0.1,0.5,0.9", "--out", model, *QUICK)
    lines = run("predict", model, data, "--interval", "0.8", "--json").stdout.splitlines()
    row = json.loads(lines[0])
    assert list(row) == ["10% of y", "50% of y", "90% of y", "y_low", "y_high"]
    assert row["10% of y"] == row["y_low"] < row["50% of y"] < row["y_high"] == row["90% of y"]


def test_classes_come_with_probabilities(folder, tmp_path):
    out = tmp_path / "m.greenfold"
    run("fit", folder / "data.csv", "-t", "flag", "-o", out, "--columns", "a,b", *QUICK)
    frame = pd.read_csv(
        pa.BufferReader(run("predict", out, folder / "data.csv", "--proba").stdout_bytes)
    )
    assert list(frame) == ["flag", "flag=False", "flag=True"]
    assert_allclose(frame["flag=False"] + frame["flag=True"], 1)


def test_models_saved_from_python_predict_from_the_command_line(tmp_path):
    greenfold.save(regressor(), tmp_path / "plain.greenfold")
    frame = pd.DataFrame(X, columns=["p", "q", "r", "s"])
    frame.to_csv(tmp_path / "d.csv", index=False)
    result = run("predict", tmp_path / "plain.greenfold", tmp_path / "d.csv")
    assert_allclose(predictions(result), regressor().predict(X), rtol=1e-12)
    named = greenfold.IGLRegressor(chart="axis", random_state=0, training=Training(max_iter=2)).fit(
        frame, y
    )
    greenfold.save(named, tmp_path / "named.greenfold")
    frame[["s", "r", "q", "p"]].to_csv(tmp_path / "other.csv", index=False)
    result = run("predict", tmp_path / "named.greenfold", tmp_path / "other.csv")
    assert_allclose(predictions(result), named.predict(frame), rtol=1e-12)


def test_a_pipe_of_real_processes(folder):
    """fit reads a pipe and writes the model to a pipe; predict does so with rows; head closes it."""
    greenfold_ = f"{sys.executable} -m greenfold"
    script = (
        f"{greenfold_} fit - --target y --out - {' '.join(QUICK)} < data.csv > piped.greenfold "
        f"&& {greenfold_} predict piped.greenfold - < data.csv | head -n 3"
    )
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", script], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "\r" not in done.stderr  # no progress bar in a pipe
    lines = done.stdout.splitlines()
    assert lines[0] == '"y"'
    assert len(lines) == 3
    assert (folder / "piped.greenfold").stat().st_size > 1000


@pytest.mark.slow
def test_a_terminal_shows_progress(folder):
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [
        sys.executable,
        "-m",
        "greenfold",
        "predict",
        "m.greenfold",
        "data.csv",
        "-o",
        "p.csv",
    ]
    subprocess.run(command, cwd=folder, stderr=end, check=True)
    os.close(end)
    assert b" rows" in os.read(terminal, 4096)
    os.close(terminal)


# --- help


COMMANDS = [command.callback.__name__ for command in cli.app.registered_commands]


@pytest.mark.parametrize("arguments", [[], ["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_is_no_error(arguments):
    said = run(*arguments)
    assert said.stdout.startswith("Usage: ")
    assert said.stderr == ""


def test_the_version_is_told():
    told = tomllib.loads((README.parent / "pyproject.toml").read_text())["project"]["version"]
    assert run("--version").stdout == f"greenfold {told}\n"


def test_a_line_of_help_is_a_line():
    """Every command is described without being cut."""
    assert len(COMMANDS) == 11
    assert "..." not in run("--help").stdout.partition("Commands:")[2]


# --- errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["fit", "data.csv", "--target", "z", "--out", "x"],
            "there is no column 'z'; there are 'a', 'b'",
        ),
        (["fit", "data.csv", "--out", "x"], "--target is missing"),
        (["fit", "none.csv", "--target", "y", "--out", "x"], "none.csv: No such file"),
        (["fit", "data.csv", "-t", "y", "-o", "x", "--task", "magic"], "--task must be auto"),
        (["fit", "data.csv", "-t", "level", "-o", "x", "--task", "regression"], "needs numbers"),
        (["fit", "data.csv", "-t", "y", "-o", "x", "--chart", "round"], "got 'round'"),
        (["fit", "data.csv", "-t", "y", "-o", "x", "--set", "n_dim=2"], "no parameter n_dim"),
        (["fit", "data.csv", "-t", "y", "-o", "x", "--estimator", "Heat"], "unknown estimator"),
        (["fit", "empty.csv", "-t", "y", "-o", "x"], "empty.csv: it is empty"),
        (["predict", "data.csv", "data.csv"], "not a greenfold model file"),
        (["predict", "m.greenfold", "other.csv"], "'a', 'b', 'level', 'flag', 'day'. It has 'u'"),
        (["predict", "m.greenfold", "text.csv"], "text.csv: column 'b' holds 'blue' in line 2"),
        (["predict", "m.greenfold", "data.csv", "--proba"], "IGLRegressor has no --proba"),
        (["predict", "m.greenfold", "data.csv", "--interval", "2"], "between 0 and 1"),
        (["info", "none.greenfold"], "none.greenfold: No such file"),
        (["export", "m.greenfold", "--out", "m.txt"], "must end in .onnx"),
        (["report", "m.greenfold", "--image", "8"], "such as 8x8, got '8'"),
        (["report", "m.greenfold", "data.csv", "--target", "z"], "'z'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors_are_one_clear_line(folder, monkeypatch, arguments, words):
    monkeypatch.chdir(folder)
    (folder / "empty.csv").write_text("")
    (folder / "other.csv").write_text("u,v\n1,2\n")
    header = "a,b,level,flag,day\n"
    (folder / "text.csv").write_text(header + "1,blue,low,true,2024-01-01\n")
    result = run(*arguments, code=1)
    *notes, error = result.stderr.splitlines()
    assert words in error
    assert error.startswith("greenfold: ")
    assert all(text.startswith("note: ") for text in notes)
    assert result.stdout == ""
    assert not (folder / "x").exists()


def test_debug_shows_the_trace_and_a_wrong_command_is_two(folder):
    shown = run("fit", "none.csv", "-t", "y", "-o", "x", "--debug", code=1).stderr
    assert "Traceback" in shown
    assert "Traceback" not in run("fit", "none.csv", "-t", "y", "-o", "x", code=1).stderr
    run("fitt", code=2)
    run("predict", folder / "m.greenfold", folder / "data.csv", "--nonsense", code=2)


def test_a_table_that_holds_nothing_or_infinity_is_refused():
    with pytest.raises(ValueError, match="can be learned from"):
        Table.learn(pa.table({"a": [1.0, 1.0], "b": pa.nulls(2)}))
    with pytest.raises(ValueError, match="column 'a' holds infinity in 1 of 2 rows"):
        Table.learn(pa.table({"a": [1.0, np.inf]}))
    with pytest.raises(
        ValueError, match=r"the table lacks columns the model was fitted to: 'a'\. It has"
    ):
        Table.learn(pa.table({"a": [1.0, 2.0]})).encode(pa.table({"b": [1.0]}))


def test_levels_not_seen_before_are_none_of_them_or_among_the_rest():
    levels = [f"v{i % 40}" for i in range(400)] + ["v0"] * 9
    new = pa.table({"c": ["new"], "x": [3.0]})
    learned = Table.learn(pa.table({"c": [v[:2] for v in levels], "x": np.arange(409) / 2}))
    assert_array_equal(learned.encode(new)[0], [0] * 10 + [3])
    many = pa.table({"c": levels, "x": np.arange(409) / 2})
    learned = Table.learn(many)
    assert learned.notes == ["c: one-hot, 31 levels of 40, the rest as one more"]
    assert dict(zip(learned.names, learned.encode(new)[0]))["c=(other)"] == 1
    assert_array_equal(learned.encode(many)[:, :-1].sum(1), 1)  # every row has exactly one


# --- the other commands


def test_info_checks_and_tells(folder):
    shown = run("info", folder / "m.greenfold").stdout
    assert "IGLRegressor" in shown
    assert "level: one-hot" in shown
    assert re.search(r"^target +y$", shown, re.MULTILINE)
    assert re.search(r"^rows +60$", shown, re.MULTILINE)
    assert re.search(
        r"^in use +linear chart, Heat kernel, d = 2: error 0\.\d+ standard", shown, re.M
    )
    header = json.loads(run("info", folder / "m.greenfold", "--json").stdout)
    assert header["features"][2] == {"name": "level", "type": "string"}
    assert len(header["sha256"]) == 64


def test_info_tells_what_fit_told(tmp_path):
    """Score, noise, chart, kernel and rivals of the defaults, and of what Python saved."""
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.assign(y=y).to_csv(tmp_path / "number.csv", index=False)
    frame.assign(y=np.sign(y)).to_csv(tmp_path / "class.csv", index=False)
    for name, task, score in (
        ("number", "auto", "R2 (leave-one-out)"),
        ("class", "classification", "log-loss (rows left out)"),
    ):
        file = tmp_path / f"{name}.greenfold"
        fitted = run(
            "fit", tmp_path / f"{name}.csv", "-t", "y", "-o", file, "--task", task, "--json"
        )
        fitted, known = json.loads(fitted.stdout), json.loads(run("info", file, "--json").stdout)
        told = known["model"]
        assert told.keys() >= {"rows", score, "in use", "sources"}
        assert {name: fitted[name] for name in told} == told
        used = greenfold.load(file).estimator.standings_[0]
        assert told["in use"][0].startswith(f"{used.name}, d = {used.n_dims}: ")
        assert f"{used.name}, d = {used.n_dims}" in run("info", file).stdout
    noisy = regressor().fit(X, y + 3 * np.random.default_rng(0).normal(size=60))
    greenfold.save(noisy, tmp_path / "plain.greenfold")
    told = json.loads(run("info", tmp_path / "plain.greenfold", "--json").stdout)["model"]
    assert 1.5 < told["noise"] < 4.5


def test_info_tells_what_it_can_of_a_module_it_has_not(tmp_path):
    greenfold.save(own(), tmp_path / "own.greenfold")
    said = run("info", tmp_path / "own.greenfold")
    assert "IGLRegressor" in said.stdout
    assert "more is known with the modules 'tests.models.Own' at hand" in said.stderr


def test_export_takes_the_encoded_columns(folder, tmp_path):
    shown = run("export", folder / "m.greenfold", "--out", tmp_path / "m.onnx", "--json").stdout
    model = greenfold.load(folder / "m.greenfold")
    assert json.loads(shown)["columns"] == model.table.names
    rows = model.table.encode(table())
    (got,) = onnxruntime.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"x": rows})
    assert_allclose(got, model.predict(table()), atol=1e-5)


def test_demo_is_the_demo(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(demo, "main", seen.append)
    run("demo", "--out", tmp_path / "p.png")
    assert seen == [tmp_path / "p.png"]


def told(meat):
    """A short story."""
    print("STORY")
    return regressor().fit(meat.X[:40], meat.Y[:40, 1])


def test_demo_goes_on_without_matplotlib_and_says_so_first(monkeypatch, tmp_path):
    def never(*arguments):
        raise AssertionError("nothing to draw with")

    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    monkeypatch.setattr(demo, "picture", never)
    monkeypatch.setattr(demo, "story", told)
    lines = run("demo", "--out", tmp_path / "p.png").stdout.splitlines()
    assert lines[0] == "No picture: that needs matplotlib, pip install 'greenfold[plots]'."
    assert "STORY" in lines
    assert lines[-1].startswith(f"Open {tmp_path / 'report.html'}")


def test_demo_refuses_a_picture_it_cannot_draw_before_the_work(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "story", told)
    said = run("demo", "--out", tmp_path / "p.doc", code=1)
    assert "a picture must end in one of" in said.stderr
    assert "STORY" not in said.stdout


def test_dimension_prints_its_report(folder, monkeypatch):
    seen = {}

    class Report:
        intrinsic = SimpleNamespace(value=2, low=2, high=3)
        chart = SimpleNamespace(value=np.int64(3), low=3, high=4)
        task = None

        def __str__(self):
            return "intrinsic 2 [2, 3]"

    def stub(X, y=None, random_state=None):
        seen.update(X=X, y=y, random_state=random_state)
        return Report()

    monkeypatch.setattr(greenfold.dims, "dimension", stub)
    result = run("dimension", folder / "data.csv", "-t", "y", "--random-state", "3")
    assert "differ in scale" in result.stderr
    assert result.stdout == "intrinsic 2 [2, 3]\n"
    assert (seen["X"].shape, seen["random_state"]) == ((60, 8), 3)
    assert_allclose(seen["y"], y)
    result = run("dimension", folder / "data.csv", "--json", "--scale")
    assert_allclose(seen["X"].std(0), 1)
    assert json.loads(result.stdout)["chart"] == {"value": 3, "low": 3, "high": 4}


def test_report_shows_the_rows_of_a_table_and_their_target(folder, tmp_path):
    page = tmp_path / "report.html"
    result = run("report", folder / "m.greenfold", folder / "data.csv", "--out", page, "--json")
    said = json.loads(result.stdout)
    assert said == {"page": str(page), "bytes": page.stat().st_size, "rows": 60}
    told = json.loads(re.search(r'application/json">(.*?)</script>', page.read_text(), re.S)[1])
    assert told["title"] == "y from 8 columns"
    assert "level=high" in told["rows"]["features"]
    assert told["rows"]["y"]["shape"] == [60, 1]
    assert (
        greenfold.load(folder / "m.greenfold").estimator.data_sha256_ in told["provenance"]["data"]
    )
    assert (
        io.read_header((folder / "m.greenfold").read_bytes())["sha256"]
        in told["provenance"]["model file"]
    )
    run("report", folder / "m.greenfold", "--out", page)  # without rows: those of the sources
    assert '"kind": "anchors"' in page.read_text()


def commands(text):
    """Lines of the text's console blocks that call greenfold."""
    blocks = re.findall(r"```(?:console|sh)?\n(.*?)```", text, re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [re.sub(r"\s+#.*", "", line) for line in lines if "greenfold " in line.split("#")[0]]


@pytest.mark.filterwarnings("ignore")
def test_every_command_of_the_first_pages_runs(tmp_path, monkeypatch):
    """A pipe ends as its last command would, given what the first one reads."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "main", lambda path: None)
    frame = table().to_pandas().drop(columns=["day", "id", "one"])
    frame.to_csv("data.csv", index=False)
    frame.drop(columns="y").to_csv("new.csv", index=False)
    read = np.exp(-4 * np.square(X[:20, :2] - 0.2).sum(1))
    pd.DataFrame({"x": X[:20, 0], "y": X[:20, 1], "c": read}).to_csv("readings.csv", index=False)
    Path("data").mkdir()
    frame.to_parquet("data/part.parquet")
    pages = [README, *(README.parent / "docs" / f"{name}.md" for name in ("start", "howto"))]
    for line in dict.fromkeys(line for page in pages for line in commands(page.read_text())):
        if {"pip", "launch"} & set(line.split()) or "--install-completion" in line:
            continue
        stdin = None
        for stage in line.split("|"):
            words = shlex.split(stage.split(">")[0])
            if words[0] == "cat":
                stdin = Path(words[1]).read_text()
            elif words[0] == "greenfold":
                assert run(*words[1:], stdin=stdin).output


def test_completion_knows_the_commands():
    environment = {
        **os.environ,
        "_GREENFOLD_COMPLETE": "complete_bash",
        "COMP_WORDS": "greenfold pre",
        "COMP_CWORD": "1",
    }
    code = "from greenfold.cli import app; app(prog_name='greenfold')"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == "predict"


# --- memory

MEMORY = """
import sys
from greenfold import cli
from tests.memory import peak, resident
cli.read_model(sys.argv[1])
idle = resident()
try:
    cli.app(["predict", sys.argv[1], sys.argv[2], "--out", sys.argv[3]], prog_name="greenfold")
except SystemExit as end:
    assert not end.code
print(peak() - idle)
"""


def needed(n, tmp_path, ending="csv"):
    """MB over the idle process to predict n rows of a file."""
    greenfold.save(regressor(n_atoms=60), tmp_path / "m.greenfold")
    data = tmp_path / f"d.{ending}"
    block = "".join(f"{a:.9g},{b:.9g},{c:.9g},{d:.9g}\n" for a, b, c, d in X)
    with data.open("w") as file:
        file.write("a,b,c,d\n")
        for _ in range(n // len(X)):
            file.write(block)
    arguments = [str(tmp_path / "m.greenfold"), str(data), str(tmp_path / "out.csv")]
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, *arguments], capture_output=True, text=True, check=True
    )
    with (tmp_path / "out.csv").open() as file:
        assert sum(1 for _ in file) == 1 + n // len(X) * len(X)
    return float(done.stdout)


@pytest.mark.slow
def test_a_table_is_predicted_in_bounded_memory(tmp_path):
    assert needed(60_000, tmp_path) < 100


@pytest.mark.slow
def test_a_million_rows_are_predicted_in_bounded_memory(tmp_path):
    assert needed(1_000_020, tmp_path) < 300


def test_help_needs_no_pytorch():
    """Names are imported when they are asked for, all of them, and nothing else is there."""
    code = (
        "import sys, greenfold, greenfold.cli\n"
        "heavy = {'torch', 'sklearn', 'scipy', 'pyarrow', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert set(greenfold.__all__) <= set(dir(greenfold))\n"
        "assert all(getattr(greenfold, name) is not None for name in greenfold.__all__)\n"
        "assert not hasattr(greenfold, 'nonsense')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

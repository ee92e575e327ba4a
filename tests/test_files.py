"""The law of model files, over whatever a user gets without settings:

    fit → save → load → same bits → info → report → export

in process and through the command line.
"""

import json
import warnings
from functools import cache
from inspect import signature

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_diabetes, load_iris
from typer.testing import CliRunner

import greenfold
from greenfold import (
    IGLAutoencoder,
    IGLClassifier,
    IGLRegressor,
    IGLStack,
    IGLStackClassifier,
    Training,
    cli,
    io,
    tune,
)
from greenfold.frozen import frozen
from greenfold.learn.given import CHARTS
from greenfold.table import Table, TableModel

IRIS, FLOWERS = load_iris(), load_iris().target_names
flowers = IRIS.data[::3]  # (50, 4)
names = FLOWERS[IRIS.target[::3]]
area = flowers[:, 2] * flowers[:, 3]  # smooth: a linear chart wins
patients = load_diabetes().data[:40, [2, 3, 8]]
illness = load_diabetes().target[:40]  # rough: axis scales win

frame = pd.DataFrame(flowers, columns=["length", "width", "petal", "breadth"])
frame["kind"] = names
frame.loc[::7, "width"] = None


def table_model(estimator, target):
    """What `greenfold fit` saves."""
    import pyarrow as pa

    rows = pa.Table.from_pandas(frame.drop(columns=target), preserve_index=False)
    table = Table.learn(rows)
    return TableModel(table, estimator.fit(table.encode(rows), frame[target].to_numpy()), target)


DEFAULTS = {
    "IGLRegressor": lambda: IGLRegressor().fit(flowers, area),
    "IGLRegressor, rough": lambda: IGLRegressor().fit(patients, illness),
    "IGLRegressor, two targets": lambda: IGLRegressor().fit(flowers, np.stack([area, -area], 1)),
    "IGLClassifier": lambda: IGLClassifier().fit(flowers, names),
    "IGLClassifier, two classes": lambda: IGLClassifier().fit(flowers[:, :2], names == "setosa"),
    "IGLStack": lambda: IGLStack().fit(patients, illness),
    "IGLStackClassifier": lambda: IGLStackClassifier().fit(flowers, names),
    "IGLAutoencoder": lambda: IGLAutoencoder().fit(flowers),
    "tune": lambda: tune(flowers, area, budget=1).best,
    "tune, classes": lambda: tune(flowers, names, budget=1).best,
    "TableModel": lambda: table_model(IGLRegressor(), "petal"),
    "TableModel, classes": lambda: table_model(IGLClassifier(), "kind"),
    "a frame": lambda: IGLClassifier().fit(frame[["length", "petal"]], frame["kind"]),
}  # fmt: skip
TARGETS = {IGLRegressor: [area], IGLClassifier: [names], IGLAutoencoder: []}
GIVEN = {
    f"{kind.__name__}, {chart}": lambda kind=kind, chart=chart: kind(
        chart=chart, training=Training(max_iter=5)
    ).fit(flowers, *TARGETS[kind])
    for kind in TARGETS
    for chart in CHARTS
}
METHODS = ("predict", "predict_proba", "decision_function", "predict_interval", "transform")


@cache
def made(name):
    with warnings.catch_warnings():  # that there are few rows
        warnings.simplefilter("ignore")
        return {**DEFAULTS, **GIVEN}[name]()


def rows(model):
    """New ones, as the model takes them."""
    if isinstance(model, TableModel):
        return frame.assign(length=frame["length"] + 0.1)
    if hasattr(model, "feature_names_in_"):
        return frame[list(model.feature_names_in_)] + 0.1
    return {4: flowers, 3: patients, 2: flowers[:, :2]}[model.n_features_in_] + 0.01


def answers(model):
    """Of all methods it has, on new rows."""
    inner, X = getattr(model, "estimator", model), rows(model)
    found = {
        name: getattr(model, name)(X)
        for name in METHODS
        if hasattr(inner, name) and hasattr(model, name)
    }
    if "predict_interval" in found:
        found["return_std"] = model.predict(X, return_std=True)
    if hasattr(model, "inverse_transform"):
        found["inverse_transform"] = model.inverse_transform(found["transform"])
    return found


def test_every_estimator_of_the_library_is_among_the_defaults():
    """Those that need no setting; `SourceFinder`, which wants an operator, has tests of its own."""
    known = {n: getattr(greenfold, n) for n in greenfold.__all__}
    estimators = {n for n, kind in known.items() if hasattr(kind, "fit")}
    wanting = {n for n in estimators if "operator" in required(known[n])}
    assert wanting == {"SourceFinder"}
    assert estimators - wanting <= set(DEFAULTS)


def required(kind):
    parameters = signature(kind).parameters.values()
    return {p.name for p in parameters if p.default is p.empty}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow) if n == "tune, classes" else n
        for n in (*DEFAULTS, *GIVEN)
    ],
)
def test_what_is_fitted_without_settings_lives_in_a_file(name, tmp_path):
    model, path = made(name), tmp_path / "m.greenfold"
    greenfold.save(model, path)
    loaded = greenfold.load(path)
    assert type(loaded) is type(model)
    before, after = answers(model), answers(loaded)
    assert "predict" in before
    for method, values in before.items():
        assert_array_equal(after[method], values, strict=isinstance(values, np.ndarray))
    assert io.to_bytes(loaded) == path.read_bytes()
    inner = getattr(loaded, "estimator", loaded)
    header = io.read_header(path.read_bytes())
    assert header["estimator"] == type(inner).__name__
    assert len(header["features"]) == (4 if inner is not loaded else inner.n_features_in_)
    assert loaded.report(tmp_path / "r.html").stat().st_size > 50_000
    for what in ("predict", "transform"):
        if hasattr(inner, what):
            frozen(inner, what)  # compares itself with the estimator


QUICK = ("IGLRegressor, rough",)  # the command line below exports more


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in DEFAULTS]
)
def test_the_graph_of_what_was_loaded_runs_elsewhere(name, tmp_path):
    model = io.from_bytes(io.to_bytes(made(name)))
    greenfold.export(model, tmp_path / "m.onnx")
    inner, X = getattr(model, "estimator", model), rows(model)
    x = model.table.encode(X) if inner is not model else np.asarray(X)
    got = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x})
    classes = hasattr(inner, "predict_proba")
    wanted = model.predict_proba(X) if classes else model.predict(X)
    assert_allclose(got[0], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    if classes:
        assert_array_equal(inner.classes_[got[1]], model.predict(X))


# --- through the command line


def run(*arguments):
    result = CliRunner().invoke(cli.app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result


FITS = {
    "numbers": ["--target", "petal"],
    "text": ["--target", "kind"],
    "IGLStack": ["--target", "petal", "--columns", "width,breadth", "--estimator", "IGLStack"],
    "reconstruction": ["--task", "reconstruction"],
}
ADDED = {"numbers": ["--std", "--interval", "0.9"], "IGLStack": ["--std"], "text": ["--proba"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    frame.to_csv(path / "data.csv", index=False)
    return path


@pytest.mark.parametrize("task", FITS)
def test_the_same_through_the_command_line(task, folder):
    data, file = folder / "data.csv", folder / f"{task}.greenfold"
    run("fit", data, *FITS[task], "--out", file)
    model = greenfold.load(file)
    wanted = model.predict(frame)

    answer = run("predict", file, data, "--json", *ADDED.get(task, [])).stdout.splitlines()
    got = pd.DataFrame([json.loads(line) for line in answer])
    columns = list(got)[: 1 if wanted.ndim == 1 else wanted.shape[1]]
    assert_array_equal(got[columns].to_numpy().reshape(wanted.shape), wanted)
    if task == "text":
        shown = got[[f"kind={c}" for c in model.estimator.classes_]].to_numpy()
        assert_array_equal(shown, model.predict_proba(frame))

    info = json.loads(run("info", file, "--json").stdout)
    assert info["estimator"] == type(model.estimator).__name__
    assert info["sha256"] == io.read_header(file.read_bytes())["sha256"]

    page, graph = folder / f"{task}.html", folder / f"{task}.onnx"
    run("report", file, data, "--out", page)
    assert page.stat().st_size > 50_000
    assert model.report(page, frame).stat().st_size > 50_000

    run("export", file, "--out", graph)
    got = onnxruntime.InferenceSession(graph).run(None, {"x": model.table.encode(frame)})[0]
    proba = model.predict_proba(frame) if task == "text" else wanted
    digits = 1e-4 if task == "reconstruction" else 1e-5  # large strengths cancel in an exact fit
    assert_allclose(got, proba, rtol=0, atol=digits * np.abs(proba).max())


@pytest.mark.parametrize("name", ["IGLRegressor", "IGLClassifier", "IGLAutoencoder"])
def test_the_command_line_takes_what_python_saved(name, tmp_path):
    model, file, data = made(name), tmp_path / "m.greenfold", tmp_path / "rows.csv"
    greenfold.save(model, file)
    pd.DataFrame(rows(model)).to_csv(data, index=False)
    wanted = model.predict(rows(model))
    answer = run("predict", file, data, "--json").stdout.splitlines()
    got = np.array([list(json.loads(line).values()) for line in answer]).reshape(wanted.shape)
    assert_array_equal(got, wanted)
    assert json.loads(run("info", file, "--json").stdout)["estimator"] == name
    run("report", file, "--out", tmp_path / "r.html")
    run("export", file, "--out", tmp_path / "m.pt2")
    graph = torch.export.load(tmp_path / "m.pt2").module()
    got = graph(torch.from_numpy(rows(model)))
    proba = name == "IGLClassifier"
    wanted, got = (model.predict_proba(rows(model)), got[0]) if proba else (wanted, got)
    assert_allclose(got, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())

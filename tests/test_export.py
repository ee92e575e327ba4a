"""Graphs that run elsewhere, loggers that watch training, and predictions in bounded memory."""

import json
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import greenfold
from greenfold import IGLRegressor
from greenfold.frozen import frozen
from greenfold.green import Interval, Poisson
from greenfold.learn.callbacks import TensorBoard, Track

from .models import KINDS, X, fitted, own, regressor

SOME = np.concatenate([X, X[:37] * 1.1])  # as many rows as no graph was traced with


def answers(model, what):
    if what == "transform":
        return model.transform(SOME)
    return model.predict_proba(SOME) if hasattr(model, "predict_proba") else model.predict(SOME)


def run_onnx(path):
    return onnxruntime.InferenceSession(str(path)).run(None, {"x": SOME})


@pytest.mark.parametrize("what", ["predict", "transform"])
@pytest.mark.parametrize("kind", [*KINDS, "own"])
def test_the_frozen_graph_answers_like_the_estimator(kind, what):
    model = own() if kind == "own" else fitted(kind)
    if not hasattr(model, what):
        with pytest.raises(ValueError, match=f"has no {what}"):
            frozen(model, what)
        return
    got = frozen(model, what)(torch.from_numpy(SOME))
    got = got[0] if isinstance(got, tuple) else got
    wanted = answers(model, what)
    assert_allclose(got, wanted, rtol=0, atol=1e-7 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("search", "predict"),
        ("classes", "predict"),
        pytest.param("conv", "predict", marks=pytest.mark.slow),  # test_pictures.py has them
        ("layers", "transform"),
        ("own", "predict"),
    ],
)
def test_onnxruntime_agrees(kind, what, tmp_path):
    model = own() if kind == "own" else fitted(kind)
    greenfold.export(model, tmp_path / "m.onnx", what)
    wanted = answers(model, what)
    got = run_onnx(tmp_path / "m.onnx")
    assert_allclose(got[0], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    if kind == "classes" and what == "predict":
        assert_array_equal(model.classes_[got[1]], model.predict(SOME))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["predict", "transform"])
@pytest.mark.parametrize("kind", KINDS)
def test_onnxruntime_agrees_on_every_kind(kind, what, tmp_path):
    if hasattr(fitted(kind), what):
        test_onnxruntime_agrees(kind, what, tmp_path)


def test_torch_export_agrees(tmp_path):
    model = fitted("two_targets")
    greenfold.export(model, tmp_path / "m.pt2")
    program = torch.export.load(tmp_path / "m.pt2")
    wanted = model.predict(SOME)
    got = program.module()(torch.from_numpy(SOME))
    assert_allclose(got, wanted, rtol=0, atol=1e-9 * np.abs(wanted).max())


@pytest.mark.parametrize(
    "kind",
    [
        "anova",
        *(
            pytest.param(kind, marks=pytest.mark.slow)
            for kind in ("laplace", "affine", "exponential", "anova_smooth")
        ),
    ],
)
def test_closed_forms_keep_their_digits_in_every_file(kind, tmp_path):
    model = fitted(kind)
    wanted = model.predict(SOME)
    greenfold.export(model, tmp_path / "m.onnx")
    greenfold.export(model, tmp_path / "m.pt2")
    program = torch.export.load(tmp_path / "m.pt2").module()
    for got in (run_onnx(tmp_path / "m.onnx")[0], program(torch.from_numpy(SOME)).numpy()):
        assert_allclose(got, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())


def test_the_graph_says_where_it_comes_from(tmp_path):
    greenfold.export(fitted("classes"), tmp_path / "m.onnx")
    graph = onnx.load(tmp_path / "m.onnx")
    about = json.loads({p.key: p.value for p in graph.metadata_props}["greenfold"])
    assert about["classes"] == ["high", "low", "middle"]
    assert [o.name for o in graph.graph.output] == ["probabilities", "index"]


def test_what_has_no_graph_is_refused(tmp_path):
    boxed = regressor(operator=Poisson(domain=Interval(-9, 9)), max_iter=1, n_atoms=8)
    with pytest.raises(ValueError, match=r"Poisson with Point atoms"):
        greenfold.export(boxed, tmp_path / "m.onnx")
    with pytest.raises(ValueError, match="must end in"):
        greenfold.export(fitted("laplace"), tmp_path / "m.txt")
    with pytest.raises(ValueError, match="`what` must be"):
        greenfold.export(fitted("laplace"), tmp_path / "m.onnx", "fit")
    with pytest.raises(ValueError, match="fitted"):
        greenfold.export(IGLRegressor(), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_a_graph_that_would_be_wrong_is_not_written(tmp_path, monkeypatch):
    model = regressor()
    monkeypatch.setattr(type(model), "predict", lambda self, X: np.full(len(X), 9.0))
    with pytest.raises(ValueError, match="would be off by"):
        greenfold.export(model, tmp_path / "m.onnx")


# --- loggers


def test_anything_that_logs_will_do():
    class Run:  # as of Weights & Biases
        def __init__(self):
            self.seen = {}

        def log(self, data, step=None):
            self.seen[step] = data

    class Client:  # as mlflow's functions
        def __init__(self):
            self.seen = {}

        def log_metric(self, key, value, step=None):
            self.seen.setdefault(step, {})[key] = value

    class Module(Client):
        def log_metrics(self, metrics, step=None):
            self.seen[step] = metrics

    loggers = [Run(), Client(), Module()]
    watch = [Track(logger, every=2, prefix="fit/") for logger in loggers]
    model = regressor(gates="learned", max_iter=6, callbacks=watch)
    losses = model.history_.loss
    for logger in loggers:
        assert list(logger.seen) == list(range(2, len(losses) + 1, 2))
        assert logger.seen[2]["fit/loss"] == losses[1]
        assert 0 <= logger.seen[2]["fit/gate/0"] <= 1
    with pytest.raises(ValueError, match="log_metrics"):
        Track(print)


def test_tensorboard_reads_what_was_logged(tmp_path):
    model = regressor(max_iter=4, callbacks=[TensorBoard(tmp_path / "events")])
    events = EventAccumulator(str(tmp_path / "events")).Reload().Scalars("loss")
    assert [e.step for e in events] == list(range(1, len(model.history_.loss) + 1))
    assert_allclose([e.value for e in events], model.history_.loss, rtol=1e-6)


# --- memory

MEMORY = """
import numpy as np
from tests.memory import peak, resident
from tests.models import regressor
model = regressor(n_atoms=60)
X = np.random.default_rng(0).normal(size=(1_200_000, 4))
model.predict(X[:5000])
before = resident()
model.predict(X)
model.transform(X)
print(peak() - before)
"""


@pytest.mark.slow
def test_prediction_needs_little_more_memory_than_its_rows():
    """1.2 million rows of 4 numbers are 37 MB; their design matrix would be 550 MB."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 120

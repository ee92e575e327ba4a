"""Columns with long tails, and the view of rows in which they have none."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

import greenfold
from greenfold import IGLClassifier, IGLRegressor, IGLStack, IGLStackClassifier
from greenfold.chart import AxisScales, Mixed, Squash
from greenfold.learn.data import Data
from greenfold.learn.fit import outside
from greenfold.learn.race import silent
from greenfold.learn.tails import long_tails, without_tails


def shares(n=150, seed=0, classes=False):
    """Columns of e^{2g}; y depends on g, so that most of it happens close to zero."""
    rng = np.random.default_rng(seed)
    g = rng.normal(size=(n, 4))
    y = np.sin(2 * g[:, 0]) + g[:, 1] + 0.1 * rng.normal(size=n)
    X = np.column_stack([np.exp(2 * g[:, :3]), g[:, 3]])
    return X, (y > 0).astype(int) if classes else y


def data_of(X, y):
    X, y = ((v - v.mean(0)) / v.std(0) for v in (X, y))
    return Data.of(torch.from_numpy(3.0 * X), torch.from_numpy(y)[:, None])


def squash_of(x):
    return Squash.of(x, torch.tensor([True, True, False, False]), 0.25)


def test_a_squash_of_rows_in_other_units_is_the_same():
    x = torch.from_numpy(shares()[0])
    sd = torch.tensor([1.0, 2.0, 3.0, 0.5], dtype=torch.float64)
    squash = squash_of(x / sd)
    assert_allclose(squash.unscaled(sd)(x), squash(x / sd), rtol=1e-12)


def test_a_squash_keeps_order_and_spread_and_leaves_other_columns():
    x = torch.from_numpy(shares()[0])
    z = squash_of(x)(x)
    assert_array_equal(z[:, 2:], x[:, 2:])
    assert_array_equal(z.argsort(0), x.argsort(0))
    assert_allclose(z.std(0), x.std(0), rtol=1e-10)
    assert float(z[:, 0].abs().max()) < 0.5 * float(x[:, 0].abs().max())


@pytest.mark.parametrize("chart", [AxisScales(4, 0.3), Mixed(torch.ones(4)), nn.Identity()])
def test_the_chart_outside_is_that_of_rows_as_they_came(chart):
    X, y = shares()
    rows = torch.from_numpy(X)
    data = Data.of(rows, torch.from_numpy(y)[:, None])
    seen = data.squashed(squash_of(data.x))
    assert_allclose(outside(chart, seen)(rows).detach(), chart(seen.x).detach(), atol=1e-12)


def test_two_values_and_bells_are_no_tails():
    rng = np.random.default_rng(0)
    x = np.column_stack(
        [rng.normal(size=500), np.arange(500) < 3, np.exp(2 * rng.normal(size=500))]
    )
    assert long_tails(torch.from_numpy(x)).tolist() == [False, False, True]


def test_rows_left_out_decide():
    X, y = shares()
    assert without_tails(data_of(X, y), silent).squash is not None
    # the target is the tail itself
    assert without_tails(data_of(X, X[:, 0] + X[:, 1]), silent).squash is None
    # there is no tail
    bells = np.random.default_rng(2).normal(size=X.shape)
    data = data_of(bells, y)
    assert without_tails(data, silent) is data


@pytest.mark.parametrize(
    "cls",
    [
        IGLRegressor,
        IGLClassifier,
        *(pytest.param(cls, marks=pytest.mark.slow) for cls in (IGLStack, IGLStackClassifier)),
    ],
)
def test_defaults_squash_and_go_all_the_way(cls, tmp_path):
    classes = "Classifier" in cls.__name__
    X, y = shares(400, classes=classes)
    model = cls(random_state=0).fit(X[:300], y[:300])
    assert any("squashed" in one.name for one in model.standings_)
    assert isinstance(model.predictor_.members[0].model.encoder[0], Squash)
    score = model.score(X[300:], y[300:])
    assert score > 0.85
    before = model.predict_proba(X) if classes else model.predict(X)
    greenfold.save(model, tmp_path / "m.greenfold")
    again = greenfold.load(tmp_path / "m.greenfold")
    assert_array_equal(again.predict_proba(X) if classes else again.predict(X), before)
    if cls is not IGLStackClassifier:
        assert len(model.effects_) > 0
    if hasattr(model, "applicability"):
        assert model.applicability(X).outside.mean() < 0.2
    model.report(tmp_path / "m.html")
    assert (tmp_path / "m.html").stat().st_size > 1000


@pytest.mark.slow
def test_a_squashed_model_is_exported(tmp_path):
    ort = pytest.importorskip("onnxruntime")
    X, y = shares(150)
    model = IGLRegressor(random_state=0).fit(X, y)
    greenfold.export(model, tmp_path / "m.onnx")
    session = ort.InferenceSession(tmp_path / "m.onnx")
    (u, *_) = session.run(None, {session.get_inputs()[0].name: X})
    wanted = model.predict(X)
    assert_allclose(np.asarray(u).reshape(-1), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())

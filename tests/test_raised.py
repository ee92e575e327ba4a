"""Sources at all rows under a likelihood."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from greenfold import (
    IGLClassifier,
    IGLRegressor,
    IGLStack,
    IGLStackClassifier,
    Source,
    export,
    likelihoods,
    load,
    save,
)
from greenfold.estimators import classifier, stack_classifier
from greenfold.green import Cauchy
from greenfold.green.atoms import Point
from greenfold.learn import raised
from greenfold.likelihoods.classes import Softmax
from greenfold.solve.many import Many, Tiles
from greenfold.solve.shared import Dense, likeliest


def steps(n, seed=0, squares=3):
    """Classes on a board: every row tells of its own surroundings."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    field = np.floor(squares * X[:, :2]).sum(1) % 3
    return X, field, rng


def log_loss(P, y):
    return -np.log(P[np.arange(len(y)), y.astype(int)]).mean()


def middled(f):
    """What is equal for all classes changes no probability."""
    return f - f.mean(1, keepdims=True)


@pytest.mark.parametrize("classes", [2, 3])
def test_rough_steps_end_where_exact_ones_do(classes):
    rng = np.random.default_rng(0)
    z = torch.from_numpy(rng.normal(size=(500, 2)))
    operator = Cauchy(1.0)

    def kernel(a, b):
        return operator.response(a, Point(b))

    label = (np.sin(3 * z[:, 0].numpy()) + 0.3 * rng.normal(size=500) > 0).astype(int)
    label += (classes > 2) * (z[:, 1].numpy() > 0)
    Y, weight = np.eye(classes)[label], rng.uniform(0.5, 2, 500)
    law = Softmax(classes)
    exact = likeliest(Dense(kernel(z, z).numpy()), law, Y, weight, 0.1, tol=1e-12)
    rough = Many(Tiles(kernel, z), 40, loose=0.1)
    near = likeliest(rough, law, Y, weight, 0.1, tol=1e-9)
    assert_allclose(middled(near.f), middled(exact.f), atol=2e-3)
    assert max(one.iterations for one in rough.used) < 30
    assert_allclose(near.f, kernel(z, z).numpy() @ near.a + near.b, atol=1e-3)


def few_anchors(patch):
    """So that there is more to gain at less rows."""
    for module in (classifier, stack_classifier, raised):
        patch.setattr(module, "SKETCH", 300)
        patch.setattr(module, "ANCHORS", 300, raising=False)


@pytest.fixture(scope="module")
def fitted():
    X, field, _ = steps(2600)
    names = np.array(["a", "b", "c"])
    with pytest.MonkeyPatch.context() as patch:
        few_anchors(patch)
        return IGLClassifier(random_state=0, effort="fast").fit(X, names[field.astype(int)])


def test_classes_get_a_source_at_every_row_where_that_pays(fitted, tmp_path):
    X, field, _ = steps(1000, seed=1)
    member = fitted.predictor_.members[0]
    assert member.whole is not None
    assert fitted.solver_info_["anchors"] == 2600
    P = fitted.predict_proba(X)
    with torch.no_grad():
        few = (member.model(fitted._inside(X)) / fitted.temperature_).softmax(1).numpy()
    assert log_loss(P, field) < 0.95 * log_loss(few, field)
    save(fitted, tmp_path / "m.greenfold")
    assert_allclose(load(tmp_path / "m.greenfold").predict_proba(X), P, atol=1e-12)
    fitted.report(tmp_path / "page.html")
    assert "predictions come from all 2600" in (tmp_path / "page.html").read_text()


def test_onnx_has_every_source(fitted, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    export(fitted, tmp_path / "m.onnx")
    X, _, _ = steps(50, seed=3)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    out = session.run(None, {session.get_inputs()[0].name: X})
    assert any(
        np.shape(each) == (50, 3) and np.allclose(each, fitted.predict_proba(X), atol=2e-3)
        for each in out
    )


@pytest.mark.slow
def test_a_stack_of_them(monkeypatch):
    """Beyond what is factored, by conjugate gradients."""
    few_anchors(monkeypatch)
    monkeypatch.setattr(raised, "FACTORED", 1000)
    X, field, _ = steps(2600)
    model = IGLStackClassifier(random_state=0, effort="fast").fit(X, field)
    assert all(member.whole is not None for member in model.predictor_.members)
    assert model.predictor_.weights.sum() == pytest.approx(1)
    new, target, _ = steps(1000, seed=1)
    assert log_loss(model.predict_proba(new), target) < 0.6


@pytest.mark.slow
def test_counts(tmp_path):
    X, field, rng = steps(3000)
    y = rng.poisson(1 + 4 * field)
    model = IGLRegressor(likelihood="poisson", random_state=0, effort="fast").fit(X, y)
    assert model.predictor_.members[0].whole is not None
    new, level, rng = steps(1000, seed=1)
    target = rng.poisson(1 + 4 * level)
    assert model.score(new, target) > 0.5
    low, high = model.predict_interval(new, alpha=0.1)
    assert np.mean((low <= target) & (target <= high)) > 0.88
    save(model, tmp_path / "m.greenfold")
    assert_allclose(load(tmp_path / "m.greenfold").predict(new), model.predict(new), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["student_t", likelihoods.Quantile([0.05, 0.5, 0.95])])
def test_numbers_with_other_noise(law):
    X, field, rng = steps(3000)
    y = field + 0.1 * rng.standard_t(3, size=3000)
    model = IGLStack(likelihood=law, random_state=0, effort="fast").fit(X, y)
    assert all(member.whole is not None for member in model.predictor_.members)
    new, level, rng = steps(1000, seed=1)
    target = level + 0.1 * rng.standard_t(3, size=1000)
    low, high = model.predict_interval(new, alpha=0.1)
    assert 0.85 < np.mean((low <= target) & (target <= high)) < 0.95
    assert model.score(new, target) > 0.3


def test_a_number_of_sources_that_is_asked_for_stays():
    X, field, _ = steps(800)
    model = IGLClassifier(random_state=0, effort="fast", source=Source(n_atoms=50))
    assert model.fit(X, field).predictor_.members[0].whole is None


@pytest.mark.slow
def test_more_rows_than_have_judged_choose_the_scale():
    """A finer board than 500 rows can tell of."""
    X, field, _ = steps(1000)
    model = IGLClassifier(random_state=0, effort="fast").fit(X, field)
    assert model.predictor_.members[0].whole is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raised, "MORE", np.inf)
        before = IGLClassifier(random_state=0, effort="fast").fit(X, field)
    new, target, _ = steps(1000, seed=1)
    losses = [log_loss(each.predict_proba(new), target) for each in (model, before)]
    assert losses[0] < losses[1]

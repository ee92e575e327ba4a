"""Cross-entropy in passes over rows that are not in memory."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from typer.testing import CliRunner

from greenfold import IGLClassifier, Source, cli, io
from greenfold.design import Design
from greenfold.scale import checkpoint, fit
from greenfold.solve import Logistic
from greenfold.solve.newton import penalized_problem
from greenfold.solve.passes import Pass, left_out_of, sums_of
from greenfold.solve.softmax import Problem, centered

rng = np.random.default_rng(0)
N, ROOM = 600, 4000  # the latter keeps some 150 rows in memory
X = rng.normal(size=(N, 4))
LOGITS = 2 * np.sin(2 * X[:, :3]) @ rng.normal(size=(3, 4)) + [0, 0, 0, -2]
NOISE = rng.gumbel(size=LOGITS.shape)
FOUR = np.array(["a", "b", "c", "d"])[(LOGITS + NOISE).argmax(1)]
TWO = (LOGITS + NOISE)[:, :2].argmax(1)
OPTIONS = {"sample": 120, "epochs": 0, "blocks": 3}


def small(**options):
    return IGLClassifier(chart="linear", random_state=0, source=Source(n_atoms=15), **options)


@pytest.fixture(autouse=True)
def little_memory(monkeypatch):
    monkeypatch.setattr(fit, "ROOM", ROOM)


@torch.no_grad()
def in_memory(model, y):
    """Logits (n, c) of the same chart and strength, solved for on all rows at once."""
    design, Y = model.model_.design(model._inside(X)), model._stream_target(y)
    total = Y.sum(0).numpy()
    weight = None if model.class_weight is None else Y.numpy() @ model._class_weights(total)
    weight = None if weight is None else torch.from_numpy(weight / weight.mean())
    solver = Logistic(model.absolute_alpha_, relative=False, tol=1e-11)
    return (design.Phi @ centered(solver.solve(design, Y, weight).w)).numpy()


def logits(model):
    u = model.model_(model._inside(X)).detach().numpy()
    return u - u.mean(1, keepdims=True)


@pytest.mark.parametrize(
    ("y", "class_weight"),
    [(TWO, None), (FOUR, None), (FOUR, "balanced"), (FOUR, {"a": 3.0})],
    ids=["two", "four", "balanced", "weighted"],
)
def test_a_stream_has_the_source_of_all_rows_in_memory(y, class_weight):
    model = small(class_weight=class_weight).fit_stream((X, y), **OPTIONS)
    expected = in_memory(model, y)
    assert_allclose(logits(model), expected, atol=1e-6)
    assert_allclose(model.predict_proba(X), softmax(expected), atol=1e-6)
    assert model.solver_info_["iterations"] <= 20
    assert model.fitted_to_[0] == N
    assert_allclose(model.fitted_to_[1], N)
    if class_weight is not None:  # it acts
        model.class_weight = None
        assert np.abs(in_memory(model, y) - expected).max() > 1e-2


def softmax(u):
    e = np.exp(u - u.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_the_default_classifier_takes_the_strength_of_its_sample():
    model = IGLClassifier(effort="fast", random_state=0, source=Source(n_atoms=15))
    model.fit_stream((X, FOUR), sample=200)
    assert_allclose(logits(model), in_memory(model, FOUR), atol=1e-6)
    assert_allclose(model.predict_proba(X), softmax(logits(model) / model.temperature_), atol=1e-9)
    assert 0.5 < model.temperature_ < 2
    assert model.score(X, FOUR) > 0.5
    assert 0 < model.effective_rank_ < 3 * 15


def problem(c, n=60, p=5, alpha=0.3):
    generator = torch.Generator().manual_seed(0)
    Phi = torch.randn(n, p, generator=generator, dtype=torch.float64)
    Y = torch.eye(c, dtype=torch.float64)[torch.randint(c, (n,), generator=generator)]
    weight = 0.5 + torch.rand(n, generator=generator, dtype=torch.float64)
    design = Design.stack(Phi, torch.ones(n, 1, dtype=torch.float64))
    w = torch.randn(p + 1, c, generator=generator, dtype=torch.float64)
    return penalized_problem(design, Y, torch.tensor(alpha), weight), design, centered(w)


@pytest.mark.parametrize("c", [2, 4])
def test_sums_of_batches_are_value_slope_and_curvature_of_all_rows(c):
    whole, _, w = problem(c)
    zero = torch.zeros_like(whole.rho)

    def gathered(w):
        parts = (Problem(*(t[i : i + 25] for t in whole[:3]), zero) for i in range(0, 60, 25))
        return Pass.of(sum(sums_of(part, w) for part in parts), w).penalized(whole.rho)

    now, h = gathered(w), 1e-6
    assert_allclose(now.value, whole.value(w), rtol=1e-12)
    for k in range(c):
        for j in range(len(w)):
            d = torch.zeros_like(w)
            d[j, k] = h
            slope = (gathered(w + d).value - gathered(w - d).value) / (2 * h)
            assert_allclose(now.gradient[j, k], slope, rtol=1e-6, atol=1e-6)
    H = whole.hessian(w).reshape(c - 1, len(w), c - 1, len(w))  # one block for each contrast
    mean = torch.einsum("apaq->pq", H) / (c - 1)
    assert_allclose(now.curvature, mean, rtol=1e-10)
    assert_array_equal(now.counts, whole.Y.sum(0))


def test_rows_left_out_of_two_classes_are_those_of_a_refit():
    whole, design, _ = problem(2, n=200)
    solver = Logistic(0.3, relative=False, tol=1e-11)
    w = solver.solve(design, whole.Y, whole.weight).w
    zero = torch.zeros_like(whole.rho)
    last = Pass.of(sums_of(whole._replace(rho=zero), w), w).penalized(whole.rho)
    u = left_out_of(last, design, whole.Y, whole.weight, w)
    for i in (0, 7, 50):
        kept = torch.arange(200) != i
        part = Design(design.Phi[kept], design.penalty)
        again = solver.solve(part, whole.Y[kept], whole.weight[kept]).w
        moved = design.Phi[i] @ (again - w)
        assert_allclose(u[i] - design.Phi[i] @ w, moved, rtol=0.1, atol=1e-4)


def test_a_class_that_the_sample_lacks_is_learned_all_the_same():
    rare = FOUR.astype("U4")
    rare[[3, 300, 500]] = "rare"
    for estimator, options in (
        (small(), OPTIONS),
        (IGLClassifier(effort="fast", random_state=0, source=Source(n_atoms=15)), {"sample": 60}),
    ):
        model = estimator.fit_stream((X, rare), **options)
        assert list(model.classes_) == ["a", "b", "c", "d", "rare"]
        assert_allclose(logits(model), in_memory(model, rare), atol=1e-6)
        assert_allclose(model.predict_proba(X)[:, 4].mean(), 3 / N, rtol=0.5)
    alone = np.where(np.arange(N) == 3, "b", "a")
    with pytest.raises(ValueError, match=r"rows of the sample are of the class a.* Raise `sample`"):
        small().fit_stream((X, alone), **OPTIONS | {"sample": 5})
    with pytest.raises(ValueError, match="class weights above 0"):
        small(class_weight={"a": 0.0}).fit_stream((X, FOUR), **OPTIONS)


class Killed(Exception):
    pass


def test_passes_that_were_interrupted_end_with_the_same_bits(tmp_path, monkeypatch):
    options = OPTIONS | {"deterministic": True}
    expected = small().fit_stream((X, FOUR), **options).predict_proba(X)
    save, count = checkpoint.save, [0]

    def counted(state, folder):
        save(state, folder)
        count[0] += 1
        if count[0] in (3, 6):
            raise Killed

    monkeypatch.setattr(checkpoint, "save", counted)
    for _ in range(2):
        with pytest.raises(Killed):
            small().fit_stream((X, FOUR), checkpoint=tmp_path, **options)
    again = small().fit_stream((X, FOUR), checkpoint=tmp_path, **options)
    assert_array_equal(again.predict_proba(X), expected)


def test_rows_that_change_between_passes_are_noticed():
    calls = [0]

    def changing():
        calls[0] += 1
        labels = TWO if calls[0] <= 5 * 3 else 1 - TWO  # one call for each block and pass
        return iter([(X, labels)])

    with pytest.raises(ValueError, match="must give the same rows at every pass"):
        small().fit_stream(changing, **OPTIONS)
    bad = X.copy()
    bad[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN or infinity"):
        small().fit_stream((bad, TWO), **OPTIONS)


def test_files_pages_and_the_command_line_know_the_classifier(tmp_path):
    names = [f"x{j}" for j in range(4)]
    table = pa.table(dict(zip(names, X.T)) | {"y": FOUR})
    pa.parquet.write_table(table, tmp_path / "d.parquet", row_group_size=100)
    out = tmp_path / "m.greenfold"
    words = ["fit", str(tmp_path / "d.parquet"), "--target", "y", "--stream", "--out", str(out)]
    words += ["--chart", "linear", "--set", "n_atoms=15", "--random-state", "0", "--epochs", "0"]
    result = CliRunner().invoke(cli.app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rows"] == N
    source = str(tmp_path / "d.parquet")
    model = small().fit_stream(source, target="y", epochs=0)
    assert model.loss_ == "cross_entropy"
    assert_array_equal(
        io.load(out).predict_proba(table), model.predict_proba(table.drop_columns("y"))
    )
    assert model.report(tmp_path / "page.html").stat().st_size > 1000
    assert "log-loss" in CliRunner().invoke(cli.app, ["info", str(out)]).output

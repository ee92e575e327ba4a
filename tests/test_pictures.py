"""Convolutions that compete for classes of pictures, and the episodes they learn by."""

import warnings

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits
from torch import nn
from torch.autograd import gradcheck

import greenfold
from greenfold import IGLClassifier
from greenfold.chart import Conv
from greenfold.chart.frames import Pixels
from greenfold.green.diffusion import Heat
from greenfold.learn import pictures
from greenfold.learn.episodes import kernels, solved_for
from greenfold.learn.fit import unscaled
from tests.test_cli import run


def some_digits(n=110, classes=3):
    X, y = load_digits(return_X_y=True)
    kept = np.flatnonzero(y < classes)[:n]
    return X[kept], y[kept]


def fitted(X, y, steps=60, **options):
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as few:
        warnings.simplefilter("ignore")
        few.setattr(pictures, "STEPS", steps)
        return IGLClassifier(random_state=0, **options).fit(X, y)


@pytest.fixture(scope="module")
def digits():
    X, y = some_digits(110, 5)
    return fitted(X, y, steps=60), X, y


# --- episodes


@pytest.fixture
def episode():
    torch.manual_seed(0)
    z = torch.randn(9, 3, dtype=torch.float64)
    return *kernels(Heat(0.5), z[:6], z[6:]), torch.randn(6, 2, dtype=torch.float64)


def test_the_inner_solve_is_that_of_the_bordered_system(episode):
    K, C, Y = (part.numpy() for part in episode)
    noise = np.linspace(0.1, 0.6, 6)
    A = np.block([[K + np.diag(noise), np.ones((6, 1))], [np.ones((1, 6)), np.zeros((1, 1))]])
    ab = np.linalg.solve(A, np.vstack([Y, np.zeros((1, 2))]))
    u = solved_for(*episode, torch.from_numpy(noise))
    assert_allclose(u, C @ ab[:6] + ab[6], rtol=1e-10)


def test_gradients_go_through_the_inner_solve(episode):
    """Of charts, targets and noise, against finite differences."""
    z = torch.randn(9, 3, dtype=torch.float64, requires_grad=True)
    Y = episode[2].clone().requires_grad_()
    noise = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)

    def u(z, Y, noise):
        return solved_for(*kernels(Heat(0.5), z[:6], z[6:]), Y, noise)

    assert gradcheck(u, (z, Y, noise))
    with pytest.raises(RuntimeError):  # a solve that is held constant has another gradient
        gradcheck(lambda z: u(z.detach(), Y, noise) + 0 * z.sum(), (z,))


# --- rows that are pictures


def test_squares_whose_neighbors_are_alike_are_pictures():
    X, _ = some_digits()
    x, rng = torch.from_numpy(X), np.random.default_rng(0)
    assert pictures.shape_of(None, x) == (1, 8, 8)
    assert pictures.shape_of(False, x) is None
    assert pictures.shape_of((4, 16), x) == (1, 4, 16)
    assert pictures.shape_of([4, 4, 4], x) == (4, 4, 4)
    assert pictures.shape_of(None, x[:, torch.from_numpy(rng.permutation(64))]) is None
    assert pictures.shape_of(None, x[:, :63]) is None
    walks = torch.from_numpy(rng.normal(size=(100, 64)).cumsum(1))  # as smooth as spectra are
    assert pictures.shape_of(None, walks) is None
    with pytest.raises(ValueError, match="64 numbers in all"):
        pictures.shape_of((8, 9), x)


@pytest.mark.parametrize("shape", [(1, 1, 3), (3, 5, 4), (1, 28, 28), (3, 70, 40), (1, 2, 90)])
def test_convolutions_take_pictures_of_any_size(shape):
    x = torch.randn(4, int(np.prod(shape)), dtype=torch.float64)
    draws = torch.Generator().manual_seed(0)
    assert Conv(shape, 3, pooled=True, generator=draws)(x).shape == (4, 3)


def test_pictures_that_are_moved_by_nothing_stay(monkeypatch):
    for name in ("TURN", "GROW", "SHIFT"):
        monkeypatch.setattr(pictures, name, 0.0)
    x, draws = torch.randn(5, 48), torch.Generator().manual_seed(0)
    torch.testing.assert_close(pictures.moved(x, (1, 6, 8), draws), x, rtol=1e-5, atol=1e-5)


def test_a_chart_of_pixels_is_the_same_in_other_units():
    x, sd = torch.randn(5, 4, dtype=torch.float64), torch.tensor([0.1, 2.0, 5.0, 1.0]).double()
    chart = nn.Sequential(Pixels(torch.rand(4).double(), torch.rand(4).double()), nn.Tanh())
    torch.testing.assert_close(unscaled(chart, sd)(x * sd), chart(x), rtol=1e-12, atol=0)


# --- models of them


def test_few_coordinates_of_convolutions_tell_digits_apart(digits):
    model, X, _ = digits
    assert "convolutions" in model.standings_[0].name
    assert model.transform(X).shape == (len(X), 10)
    assert model.image_shape_ == (1, 8, 8)


def test_files_graphs_and_pages_have_them(digits, tmp_path):
    model, X, _ = digits
    greenfold.save(model, tmp_path / "m.greenfold")
    again = greenfold.load(tmp_path / "m.greenfold")
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    greenfold.export(model, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    p = session.run(None, {session.get_inputs()[0].name: X})[0]
    assert_allclose(p, model.predict_proba(X), atol=1e-6)
    assert '"shape":[8,8]' in model.report(tmp_path / "m.html").read_text().replace(" ", "")
    assert "convolutions" in run("info", tmp_path / "m.greenfold").output
    assert model.loadings_.shape == (10, 64)


def test_rows_are_no_pictures_where_that_is_forbidden():
    X, y = some_digits(60, 2)
    model = fitted(X, y, image_shape=False)
    assert model.image_shape_ is None
    assert not any("convolutions" in s.name for s in model.standings_)


def test_convolutions_do_not_win_where_pictures_tell_nothing():
    """Classes by chance: rows left out have not been seen by the chart that they judge."""
    X, _ = some_digits(60)
    y = np.random.default_rng(0).integers(0, 2, size=len(X))
    model = fitted(X, y, steps=20)
    told = [s.score for s in model.standings_ if "convolutions" in s.name]
    assert all(score > 0.6 for score in told)
    assert model.standings_[0].score > 0.6


def test_a_table_of_pictures_from_the_command_line(tmp_path):
    X, y = some_digits(60, 2)
    rows = np.column_stack([X, y])
    names = ",".join([*(f"p{j}" for j in range(64)), "digit"])
    np.savetxt(tmp_path / "d.csv", rows, delimiter=",", header=names, comments="", fmt="%g")
    with pytest.MonkeyPatch.context() as few:
        few.setattr(pictures, "STEPS", 20)
        out = tmp_path / "m.greenfold"
        options = ["--task", "classification", "--set", "image_shape=[8, 8]"]
        run("fit", tmp_path / "d.csv", "--target", "digit", "--out", out, *options)
    assert greenfold.load(out).estimator.image_shape_ == (1, 8, 8)

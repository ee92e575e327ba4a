"""Curved charts of few rows of many columns: what they are made of, where they win, what they survive."""

import math
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import greenfold
from greenfold import IGLRegressor, dimension
from greenfold.chart import Bent
from greenfold.learn import curved
from greenfold.learn.curved import Curved, bends, steepest
from greenfold.learn.data import Data
from greenfold.learn.principal import View
from greenfold.learn.units import Scaling
from greenfold.learn.wide import looked

D = 120


def bumps(n, seed=0, width=0.035, noise=0.01):
    """A bump at t on D pixels in no order, and two functions of t: a curve that leaves every plane."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(0.1, 0.9, size=n)
    pixels = np.random.default_rng(0).permutation(np.linspace(0, 1, D))
    X = np.exp(-(((pixels - t[:, None]) / width) ** 2) / 2)
    X += noise * rng.normal(size=X.shape)
    return X, np.stack([np.sin(4 * t), np.cos(5 * t)], 1), t


def data_of(X, Y):
    units = Scaling.of_inputs(X, scaled=False)
    Y = (Y - Y.mean(0)) / Y.std(0)
    return Data.of(torch.from_numpy(units.inside(X)), torch.from_numpy(Y), units=units)


@cache
def fitted():
    X, Y, _ = bumps(200)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return IGLRegressor(random_state=0).fit(X, Y)


@cache
def ground(outputs=2):
    X, Y, _ = bumps(60)
    data = data_of(X, Y[:, :outputs])
    _, whole = looked(View(), data)
    return data, *bends(whole, data, [1, 2])


# --- mathematics


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_bent_chart_is_the_functions_it_was_learned_on(outputs):
    """ξ = V φ at the rows, whether lines run along ζ or along all components."""
    data, place, fits = ground(outputs)
    assert bool(place.base.lines) == (outputs == 1)
    for fit in fits:
        assert isinstance(fit.chart, Bent)
        with torch.no_grad():
            assert_allclose(fit.chart(data.x), place.Phi @ fit.numbers.V.T, atol=1e-8)


def test_the_ground_of_rows_does_not_know_what_others_led_to():
    """Of a fold it is the same whatever chart of all rows is left out of it."""
    data, place, _ = ground()
    base, part = place.base, data.take(slice(40))
    low = base.numbers._replace(V=-2.0 * base.numbers.V[::-1])
    one, other = (curved.grown(b, part, place.theta, 5) for b in (base, replace(base, numbers=low)))
    assert np.array_equal(one.Phi, other.Phi)


def test_functions_have_the_centered_kernel_of_the_straight_chart():
    data, place, _ = ground()
    K = place.base.kernel(data.x)
    H = np.eye(len(K)) - 1 / len(K)
    gap = H @ K @ H - place.Phi @ place.Phi.T
    assert np.linalg.eigvalsh(gap).max() <= place.base.noise * (1 + 1e-6)


def test_the_steepest_directions_are_those_of_numeric_slopes():
    _, place, _ = ground()
    p, (g, _, c, _, log_noise) = place.p, place.theta

    def u(z):
        X, new = math.exp(g) * p.z, math.exp(g) * z
        k = np.exp(-((new[:, None] - X) ** 2).sum(2) / 2)
        alpha = p.evidence(
            np.exp(-((X[:, None] - X) ** 2).sum(2) / 2) + math.exp(c) * p.z @ p.z.T, log_noise
        )
        return (k + math.exp(c) * z @ p.z.T) @ (alpha.alpha / np.sqrt(alpha.s))

    h, M = 1e-5, p.z.shape[1]
    slopes = np.stack([(u(p.z + h * e) - u(p.z - h * e)) / (2 * h) for e in np.eye(M)], 2)
    G = np.einsum("nci,ncj->ij", slopes, slopes)
    first = steepest(p, place.theta)[0]
    first = first / np.linalg.norm(first)
    assert first @ G @ first == pytest.approx(np.linalg.eigvalsh(G)[-1], rel=1e-5)


def test_learning_again_without_rows_learns_the_straight_chart_again():
    data, _, fits = ground()
    part = data.take(slice(40))
    again = fits[0].candidate.learn(part, fits[0], 1)
    assert isinstance(again.candidate, Curved)
    assert again.rows == 40
    assert len(again.chart.anchors) == 40


# --- what wins


@pytest.mark.slow
def test_a_curved_task_has_as_few_coordinates_as_vary_along_the_curve():
    """Straight charts need more than three, and do no better on new rows."""
    model, (X, Y, _) = fitted(), bumps(300, seed=1)
    used = model.standings_[0]
    assert "curved" in used.name
    assert used.n_dims <= 2
    straight = [s for s in model.standings_ if "directions" in s.name]
    assert all(s.n_dims > 3 or s.score > used.score for s in straight)
    error = np.sqrt(((model.predict(X) - Y) ** 2).mean(0))
    assert (error < 0.1).all()


@pytest.mark.slow
def test_a_linear_task_stays_linear():
    X, _, _ = bumps(160)
    rng = np.random.default_rng(3)
    Y = X @ rng.normal(size=(D, 2)) + 0.1 * rng.normal(size=(160, 2))
    used = IGLRegressor(random_state=0).fit(X, Y).standings_[0]
    assert "linear function" in used.name


def test_noise_is_not_bent_to():
    """Folds that the chart has not seen tell it from noise."""
    rng = np.random.default_rng(0)
    data = data_of(rng.normal(size=(100, 60)), rng.normal(size=(100, 1)))
    _, whole = looked(View(), data)
    fits = curved.curved(whole, data.coarse(4), [1], lambda f, rows: [f(*row) for row in rows])
    assert all(fit.nats > -0.05 for fit in fits)


# --- laws of every fit


@pytest.mark.slow
def test_a_curved_fit_survives_its_file_and_its_graphs(tmp_path):
    model, (X, _, _) = fitted(), bumps(20, seed=2)
    assert any(isinstance(layer, Bent) for layer in model.chart_.modules())
    greenfold.save(model, tmp_path / "m.greenfold")
    again = greenfold.load(tmp_path / "m.greenfold")
    wanted = model.predict(X)
    assert np.array_equal(again.predict(X), wanted)
    assert np.array_equal(again.transform(X), model.transform(X))
    greenfold.export(model, tmp_path / "m.onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    got = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": X})[0]
    assert_allclose(got, wanted, rtol=0, atol=1e-9 * np.abs(wanted).max())
    assert model.report(tmp_path / "m.html").stat().st_size > 1000
    assert model.loadings_.shape == (model.standings_[0].n_dims, D)


def test_intervals_of_a_curved_fit_cover():
    X, Y, _ = bumps(400, seed=5)
    low, high = fitted().predict_interval(X, alpha=0.1)
    assert 0.8 <= np.mean((low <= Y) & (high >= Y)) <= 0.98


def test_the_dimension_of_a_task_counts_curved_coordinates():
    X, Y, _ = bumps(200)
    report = dimension(X, Y, interval=False, random_state=0)
    assert report.task.value in (1, 2)


def test_what_a_bent_chart_is_not_made_of():
    one = torch.ones(2, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match="`sources` must have shape"):
        Bent(one, one, one[:, :2], one, one[:, 0])

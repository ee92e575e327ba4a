"""Few rows of many columns: gradients, condensed charts, files, and what is called linear."""

import math
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.optimize import approx_fprime
from sklearn.exceptions import ConvergenceWarning
from torch import nn

import greenfold
from greenfold import IGLRegressor, IGLStack
from greenfold.chart.frames import SNV
from greenfold.green import Affine
from greenfold.learn import principal
from greenfold.learn.candidates import Fit
from greenfold.learn.choice import dims, fewest
from greenfold.learn.data import Data
from greenfold.learn.fit import anchored
from greenfold.learn.penalty import Tried
from greenfold.learn.principal import ALL_START, Components, Low, Problem, View, steep
from greenfold.learn.race import one_by_one
from greenfold.learn.units import Scaling
from greenfold.learn.wide import (
    LINES,
    All,
    Few,
    Lines,
    condensed,
    contenders,
    judged_apart,
    race_wide,
)
from greenfold.likelihoods.classes import Softmax
from greenfold.solve import Ridge

D = 120


def spectra(n=40, seed=0, bent=0.0, noise=0.02, thickness=0.0):
    """Mixtures of four bands, of samples that may differ in thickness; y bends along the first."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, D)
    bands = np.exp(-(((t - np.array([[0.2], [0.4], [0.6], [0.8]])) / 0.08) ** 2))
    c = rng.uniform(0, 1, size=(n, 4))
    thick = 1 + thickness * rng.uniform(-1, 1, size=(n, 1))
    offset = thickness * rng.normal(size=(n, 1))  # both are what SNV takes out
    X = thick * (1 + c @ bands) + offset + 1e-3 * rng.normal(size=(n, D))
    y = 3 * c[:, 0] + c[:, 1] + bent * np.sin(5 * c[:, 0]) + noise * rng.normal(size=n)
    return X, y


def data_of(X, y, channels=None):
    units = Scaling.of_inputs(X, scaled=False)
    Y = y.reshape(len(y), -1)
    Y = (Y - Y.mean(0)) / Y.std(0)
    x, Y = torch.from_numpy(units.inside(X)), torch.from_numpy(Y)
    return Data.of(x, Y, units=units, channels=channels)


@cache
def fitted(kind):
    X, y = spectra(60, thickness=0.8) if kind == "thick" else spectra(bent=1.0)
    two = np.column_stack([y, X[:, 30]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if kind == "stack":
            return IGLStack(random_state=0).fit(X, y)
        return IGLRegressor(random_state=0).fit(X, two if kind == "two" else y)


# --- mathematics


@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_of_the_losses_are_numeric_ones(weighted, monkeypatch):
    """Of lines, of all components, and of few directions with lines of their own or of all."""
    X, y = spectra(25, bent=1.0)
    data = data_of(X, np.column_stack([y, X[:, 50]]))
    if weighted:
        data = replace(data, weight=torch.linspace(0.5, 1.5, len(data), dtype=torch.float64))
    components = Components.of(data, View(snv=True, window=9, order=1))
    p = Problem.of(components, data)
    seen = []

    def checked(loss, theta, bounds, steps):
        value, slope = loss(theta)
        numeric = approx_fprime(theta, lambda at: loss(at)[0], 1e-6)
        assert_allclose(slope, numeric, rtol=1e-3, atol=1e-4 * np.abs(numeric).max())
        seen.append(len(theta))
        return theta, value

    monkeypatch.setattr(principal, "descended", checked)
    principal.learn_lines(p, np.array([2.0, 0.3]), 1)
    principal.learn_all(p, ALL_START, 1)
    X5 = 0.5 * p.lines(0.4)[:, :5]
    start = Low(steep(p, ALL_START, 5)[:2], np.linspace(0.5, 1.5, 5), 0.3, -3.0)
    for lines in (None, p.lines(0.2)):
        principal.learn_low(p, X5, lines, start, 1, 1)
    assert seen == [2, 5, 3, 12, 3, 12]


def test_the_charge_for_directions_is_that_of_the_numeric_jacobian():
    """½ log|I + T^½ F T^½| with F = Σ JᵀA⁻¹J/s, J the slope of K α along V at fixed α."""
    X, y = spectra(25, bent=1.0)
    p = Problem.of(Components.of(data_of(X, y), View()), data_of(X, y))
    X4, lin = 0.5 * p.lines(0.4)[:, :4], p.lines(0.2) @ p.lines(0.2).T
    low = Low(steep(p, ALL_START, 4)[:2], np.linspace(0.5, 1.5, 4), -1.0, -3.0)
    for own in (False, True):

        def covariance(V, own=own):
            xi = X4 @ V.T
            k = principal.gaussian(xi)
            return xi, k, k + math.exp(low.c) * (xi @ xi.T if own else lin)

        parts = covariance(low.V)
        fit = p.evidence(parts[2], low.log_noise)
        h, J = 1e-5, []
        for i in range(low.V.size):
            step = np.zeros(low.V.size)
            step[i] = h
            step = step.reshape(low.V.shape)
            up, down = (covariance(low.V + sign * step)[2] for sign in (1, -1))
            J.append((up - down) @ fit.alpha[:, 0] / (2 * h))
        J = np.stack(J, 1)
        A = parts[2] + 1 + math.exp(low.log_noise) * np.eye(len(J))
        root = np.sqrt(np.tile(low.t, 2))
        H = np.eye(8) + root[:, None] * (J.T @ np.linalg.solve(A, J) / fit.s[0]) * root
        charge, known = principal.laplace(p, X4, low, parts, own)
        assert charge == pytest.approx(np.linalg.slogdet(H)[1] / 2, rel=1e-6)
        left = np.diag(np.linalg.inv(H)).reshape(2, 4)
        assert_allclose(known, (1 - left).sum(0), rtol=1e-5)


@pytest.mark.parametrize("view", [View(), View(scaled=True), View(False, True, 9, 2)], ids=str)
def test_components_are_those_of_the_transformed_rows(view):
    from scipy.signal import savgol_filter

    X, y = spectra(thickness=0.3)
    rows = X / X.std(0) if view.scaled else X
    if view.snv:
        rows = (X - X.mean(1, keepdims=True)) / X.std(1, keepdims=True)
    if view.order:
        rows = savgol_filter(rows, view.window, 2, deriv=view.order, axis=1)
    s = np.linalg.svd(rows - rows.mean(0), compute_uv=False)
    data = data_of(X, y)
    components = Components.of(data, view)
    assert_allclose(components.sd / components.sd[0], (s / s[0])[: len(components.sd)], rtol=1e-6)
    z = components.scores(data)
    assert_allclose(z.T @ z / len(z), np.diag(components.sd / components.sd[0]) ** 2, atol=1e-9)


def test_snv_takes_out_offset_and_thickness_of_a_row():
    X = torch.from_numpy(spectra(5)[0])
    frame = SNV(torch.ones(D, dtype=torch.float64), torch.zeros(D, dtype=torch.float64))
    torch.testing.assert_close(frame(3 * X + 2), frame(X))
    assert frame(torch.ones_like(X)).isfinite().all()


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_condensed_chart_is_the_same_function_of_fewer_coordinates(outputs):
    X, y = spectra(30, bent=1.0)
    data = data_of(X, np.column_stack([y, X[:, 50]])[:, :outputs])
    fits = contenders(data, one_by_one)
    for fit in (next(f for f in fits if isinstance(f.candidate, kind)) for kind in (Lines, Few)):
        small = condensed(fit, data)
        if fit.lines:
            assert dims(small, data) < dims(fit, data)
        u = []
        for each in (fit, small):
            model = anchored(each, data.x, 1000)
            with torch.no_grad():
                model.solve(data.x, data.Y, Ridge(each.noise * float(model.unit()), relative=False))
                u.append(model(data.x))
        torch.testing.assert_close(u[1], u[0], rtol=0, atol=0.02)


# --- what wins


def test_a_bent_task_has_few_coordinates_and_a_linear_one_is_called_linear():
    X, y = spectra(60, seed=3)
    line = IGLRegressor(random_state=0).fit(X, y).standings_[0]
    assert "linear function" in line.name
    assert line.n_dims == 1
    bent = fitted("one").standings_[0]
    assert bent.n_dims <= 3
    X, y = spectra(300, seed=9, bent=1.0)
    assert fitted("one").score(X, y) > 0.98


def test_noise_is_called_noise():
    rng = np.random.default_rng(5)
    X, y, new = rng.normal(size=(50, 500)), rng.normal(size=50), rng.normal(size=(100, 500))
    with pytest.warns(ConvergenceWarning, match="may be wrong"):
        model = IGLRegressor(random_state=0).fit(X, y)
    assert model.predict(new).var() <= 0.02 * y.var()


def called_linear(seed, n=60, noise=0.1):
    """Is a linear target in 500 columns of rank 10 a linear function of one coordinate?"""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 10)) @ rng.normal(size=(10, 500)) + 0.1 * rng.normal(size=(n, 500))
    f = X @ rng.normal(size=500)
    y = f / f.std() + noise * rng.normal(size=n)
    used = IGLRegressor(random_state=0).fit(X, y).standings_[0]
    return "linear function" in used.name and used.n_dims == 1


def called_noise(seed):
    """Does a target that 2000 columns know nothing of come with a warning, and a constant prediction?"""
    rng = np.random.default_rng(seed)
    X, y, new = rng.normal(size=(50, 2000)), rng.normal(size=50), rng.normal(size=(100, 2000))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = IGLRegressor(random_state=0).fit(X, y)
    warned = any(issubclass(w.category, ConvergenceWarning) for w in told)
    return warned and model.predict(new).var() <= 0.02 * y.var()


@pytest.mark.slow
@pytest.mark.parametrize("called", [called_linear, called_noise])
def test_lines_are_called_lines_and_noise_is_called_noise(called):
    """Of wide tables, in 18 of 20."""
    assert sum(called(seed) for seed in range(100, 120)) >= 18


def test_a_line_in_other_words_does_not_win_over_a_line():
    """A response that leaves all to the lines beside it has more numbers, and no more to say."""
    assert all(called_linear(seed) for seed in range(2))


def test_no_fold_has_a_say_in_what_is_predicted_there():
    """Other targets of a fold leave predictions for its rows as they are, at the numbers of the whole."""
    X, y = spectra(40, bent=1.0)
    data = data_of(X, y)
    data, own = replace(data, folds=torch.arange(40) % 5), torch.arange(40) % 5 == 2
    few = next(f for f in contenders(data, one_by_one) if isinstance(f.candidate, Few))
    Y = data.Y.clone()
    Y[own] = Y[own].flip(0) + 1.0
    other = replace(data, Y=Y)
    again = few.candidate.learn(other, few, 30)  # a chart that has seen those
    u = [d.Y - judged_apart(f, d).errors for f, d in ((few, data), (again, other))]
    torch.testing.assert_close(u[1][own], u[0][own], rtol=0, atol=1e-9)
    assert not torch.allclose(u[1][~own], u[0][~own], rtol=0, atol=1e-3)


def test_directions_are_judged_by_folds_they_have_not_seen():
    """On noise the folds that the chart has seen would be flattered."""
    rng = np.random.default_rng(0)
    data = data_of(rng.normal(size=(60, 90)), rng.normal(size=60))
    data = replace(data, folds=torch.arange(60) % 5)
    few = [fit for fit in contenders(data, one_by_one) if isinstance(fit.candidate, Few)]
    assert all(judged_apart(fit, data).nats > -0.05 for fit in few)


def test_lines_that_were_joined_are_judged_by_folds_they_have_not_seen():
    """Of noise no likelihood finds classes there. Along slopes of all rows it would."""
    rng = np.random.default_rng(0)
    onehot = np.eye(2)[rng.permutation(np.arange(60) % 2)]
    data = data_of(rng.normal(size=(60, 90)), onehot)
    data = replace(data, folds=torch.arange(60) % 5)
    found = race_wide(data, [], False, one_by_one)
    lines = next(fit for fit in found if isinstance(fit.candidate, Lines))
    lines = condensed(replace(lines.whole, noise=0.1), data)
    assert dims(lines, data) <= 2
    honest, flattered = (
        min(Tried(fit, data, 5, Softmax(2), onehot).loss((i, -2)) for i in (-4, 0, 4))
        for fit in (lines, replace(lines, whole=None))
    )
    assert honest > 0.65 > 0.5 > flattered


def test_the_fewest_coordinates_within_an_error_win():
    X, y = spectra(60, seed=3)
    data = data_of(X, y)
    fits = race_wide(data, [], False, one_by_one)
    assert isinstance(fewest(fits, data).candidate, Lines)
    worse = [
        replace(f, errors=10 * f.errors, nats=f.nats + math.log(10))
        if isinstance(f.candidate, Lines)
        else f
        for f in fits
    ]
    assert not isinstance(fewest(worse, data).candidate, Lines)
    whole = [f for f in fits if isinstance(f.candidate, All)]
    assert fewest(whole, data) is whole[0]


def test_copies_of_a_column_do_not_tell_lines_where_to_go():
    """Columns of a table that were alike to 1e-4 differ in a new row, and one that was constant moves."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    X[:, 4] = X[:, 0] + 1e-4 * rng.normal(size=200)
    X[:, 5] = 3.0
    y = X[:, 0] + X[:, 1] + 3e3 * (X[:, 4] - X[:, 0]) + 0.3 * rng.normal(size=200)
    data = data_of(X, y)
    fit = condensed(LINES.learn(data, Fit(LINES, nn.Identity(), Affine(), 1.0), 40), data)
    model = anchored(fit, data.x, 200)
    model.solve(data.x, data.Y, Ridge(alpha=fit.noise))
    new = data.x[:3].clone()
    before = model(new)
    new[:, 4] += 0.5
    assert (model(new) - before).abs().max() < 1
    new[:, 5] += 1.0
    assert torch.equal(model(new), model(new - torch.eye(6)[5]))
    sure = replace(LINES, components=Components.of(data, LINES.view))  # would go by differences
    other = condensed(sure.learn(data, Fit(sure, nn.Identity(), Affine(), 1.0), 40), data)
    steep, flat = (each.chart.weight.detach().abs().max() for each in (other, fit))
    assert steep > 100 * flat


def test_a_linear_table_of_few_columns_is_a_linear_model():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(120, 12))
    y = X @ rng.normal(size=12) + 4 * rng.normal(size=120)
    model = IGLRegressor(random_state=0).fit(X, y)
    assert "linear function" in model.standings_[0].name
    assert isinstance(model.model_.operator, Affine)
    assert model.transform(X).shape == (120, 1)


# --- laws of every fit


@pytest.mark.parametrize(
    "kind",
    ["one", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("stack", "two", "thick"))],
)
def test_a_wide_fit_survives_its_file_and_its_graphs(kind, tmp_path):
    model, (X, _) = fitted(kind), spectra(20, seed=4)
    if kind == "thick":
        assert any(isinstance(layer, SNV) for layer in model.chart_.modules())
    greenfold.save(model, tmp_path / "m.greenfold")
    again = greenfold.load(tmp_path / "m.greenfold")
    wanted = model.predict(X)
    assert np.array_equal(again.predict(X), wanted)
    for a, b in zip(again.predict_interval(X), model.predict_interval(X), strict=True):
        assert np.array_equal(a, b)
    greenfold.export(model, tmp_path / "m.onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    got = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": X})[0]
    assert_allclose(got, wanted, rtol=0, atol=1e-9 * np.abs(wanted).max())
    assert model.report(tmp_path / "m.html").stat().st_size > 1000


@pytest.mark.parametrize("kind", ["one", "two"])
def test_loadings_are_how_coordinates_move_with_columns(kind):
    model, (X, _) = fitted(kind), spectra(20, seed=4)
    move = 0.1 * np.random.default_rng(0).normal(size=X.shape)
    moved = model.transform(X + move) - model.transform(X)
    assert_allclose(moved, move @ model.loadings_.T, rtol=0, atol=1e-9 * np.abs(moved).max())


def test_loadings_of_a_bent_chart_are_its_mean_slopes():
    model, h, D = fitted("thick"), 1e-5, 120
    rows = model.units_.x.outside(model.model_.sources.x.numpy())
    for j in (0, 57):
        step = h * np.eye(D)[j]
        slope = (model.transform(rows + step) - model.transform(rows - step)).mean(0) / (2 * h)
        assert_allclose(model.loadings_[:, j], slope, rtol=1e-5)


def test_columns_in_other_units_change_nothing():
    X, y = spectra(bent=1.0)
    other = IGLRegressor(random_state=0).fit(8 * X, 4 * y)
    assert_allclose(other.predict(8 * X), 4 * fitted("one").predict(X), rtol=1e-9)


@pytest.mark.parametrize("estimator", [IGLRegressor, IGLStack])
def test_intervals_cover(estimator):
    X, y = spectra(400, seed=11, bent=1.0, noise=0.1)
    model = estimator(random_state=0).fit(X[:60], y[:60])
    low, high = model.predict_interval(X[60:], alpha=0.1)
    assert 0.8 <= np.mean((low <= y[60:]) & (y[60:] <= high)) <= 0.98


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the chart in use:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator", [IGLRegressor, IGLStack])
def test_intervals_of_few_spectra_cover(estimator):
    """Of 40 rows, whose folds have no part in the charts that they judge; bent, or thick and straight."""
    inside = []
    for seed in range(300, 308):
        bent = seed % 2
        X, y = spectra(240, seed=seed, bent=bent, noise=0.1, thickness=0.5 * (1 - bent))
        low, high = (
            estimator(random_state=0).fit(X[:40], y[:40]).predict_interval(X[40:], alpha=0.1)
        )
        inside.append(np.mean((low <= y[40:]) & (y[40:] <= high)))
    assert 0.85 <= np.mean(inside) <= 0.95

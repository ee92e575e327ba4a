"""Intervals cover where noise is low and where it is high, and where rows are few."""

import math
import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import greenfold
from greenfold import IGLRegressor, IGLStack, Training, load, save
from greenfold.learn import units
from greenfold.learn.intervals import Places, Scale, conformal
from tests.nested import nested

ALPHA = 0.1


def table(n, seed, noise, new=2000):
    """A smooth signal, and y with noise of standard deviation noise(t) for t from −1 to 1."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n + new, 3))
    sd = noise(X[:, 1])
    y = np.sin(3 * X[:, 0]) + X[:, 1] + sd * rng.normal(size=n + new)
    return (X[:n], y[:n]), (X[n:], y[n:]), sd[n:]


def even(t):
    return np.full_like(t, 0.3)


def step(t):
    return np.where(t < 1 / 3, 0.1, 0.6)


def growing(t):
    return 0.05 + 0.75 * ((t + 1) / 2) ** 2


def bump(t):
    return 0.05 + 0.75 * np.exp(-((t / 0.25) ** 2))


def quick(**options):
    return IGLRegressor(**nested(chart="axis", max_iter=15, random_state=0, **options))


def inside(model, X, y):
    low, high = model.predict_interval(X, ALPHA)
    return (low <= y) & (y <= high)


def thirds(hits, sd):
    """Coverage in the quiet and in the noisy third."""
    a, b = np.quantile(sd, [1 / 3, 2 / 3])
    return hits[sd <= a].mean(), hits[sd >= b].mean()


def widths(model, X):
    low, high = model.predict_interval(X, ALPHA)
    return high - low


@pytest.fixture(scope="module")
def stepped():
    rows, new, sd = table(300, 0, step)
    return quick().fit(*rows), new, sd


@pytest.mark.parametrize("noise", [growing, step, bump], ids=lambda f: f.__name__)
def test_intervals_cover_where_noise_is_low_and_where_it_is_high(noise):
    """Means over four tables; the control is the one half width that covers 90% of the new rows."""
    local, control = [], []
    for seed in range(4):
        rows, (X, y), sd = table(300, seed, noise)
        model = quick().fit(*rows)
        local.append(thirds(inside(model, X, y), sd))
        errors = np.abs(y - model.predict(X))
        control.append(thirds(errors <= np.quantile(errors, 1 - ALPHA), sd))
    assert np.all(np.abs(np.mean(local, 0) - 0.9) <= 0.05)
    quiet, noisy = np.mean(control, 0)
    assert quiet > 0.97
    assert noisy < 0.87


def test_even_noise_has_even_intervals():
    ratio, spread = [], []
    for seed in range(3):
        rows, (X, y), _ = table(300, seed, even)
        model = quick().fit(*rows)
        wide = widths(model, X)
        ratio.append(wide.mean() / 2 / np.quantile(np.abs(y - model.predict(X)), 1 - ALPHA))
        spread.append(wide.std() / wide.mean())
    assert np.mean(ratio) < 1.05
    assert np.mean(spread) < 0.05


def test_few_rows_are_judged_by_charts_that_did_not_see_them():
    """`refit_source` leaves a row out of the solve, but not out of the chart it is given."""
    folds, seen = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (1080, 6))
        y = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=1080)
        rows, new = (X[:80], y[:80]), (X[80:], y[80:])
        model = IGLRegressor(chart="linear", random_state=0, training=Training(max_iter=30)).fit(
            *rows
        )
        folds.append(inside(model, *new).mean())
        seen.append(inside(model.refit_source(*rows), *new).mean())
    assert 0.87 < np.mean(folds) < 0.95
    assert np.mean(seen) < 0.87


def test_noise_alone_is_covered():
    """Predictions that are nearly constant are no place: left out, each tells its own y."""
    hits = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(1100, 4)), rng.normal(size=1100)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            hits.append(inside(quick().fit(X[:100], y[:100]), X[100:], y[100:]).mean())
    assert 0.86 < np.mean(hits) < 0.95


def test_each_output_has_its_own_scale():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2400, 3))
    sd = np.stack([step(X[:, 1]), step(-X[:, 1])], axis=1)
    Y = np.sin(3 * X[:, :1]) + sd * rng.normal(size=(2400, 2))
    model = quick().fit(X[:400], Y[:400])
    low, high = model.predict_interval(X[400:], ALPHA)
    assert low.shape == high.shape == (2000, 2)
    hits = (low <= Y[400:]) & (Y[400:] <= high)
    for c in range(2):
        assert np.all(np.abs(np.array(thirds(hits[:, c], sd[400:, c])) - 0.9) < 0.08)
    right = X[400:, 1] > 0.5
    wide = high - low
    assert wide[right, 0].mean() > 2 * wide[~right, 0].mean()
    assert wide[right, 1].mean() < 0.7 * wide[~right, 1].mean()


def test_the_unit_of_weights_does_not_matter(stepped):
    model, (X, _), _ = stepped
    rows, _, _ = table(300, 0, step)
    heavy = quick().fit(*rows, sample_weight=np.full(300, 8.0))
    assert_allclose(widths(heavy, X), widths(model, X), rtol=1e-6)


def test_weights_count_rows(stepped):
    """Of the noisy rows a few with much weight widen intervals there as their copies would."""
    _, (X, _), _ = stepped
    (A, b), _, _ = table(200, 3, step)
    count = np.random.default_rng(0).integers(1, 4, 200)
    model = quick().fit(A, b, sample_weight=count)
    again = quick().fit(np.repeat(A, count, axis=0), np.repeat(b, count))
    assert_allclose(widths(again, X), widths(model, X), rtol=1e-6)


def test_a_refitted_a_loaded_and_a_continued_model_know_where_the_noise_is(stepped, tmp_path):
    model, (X, y), sd = stepped
    rows, _, _ = table(300, 5, step)
    save(model, tmp_path / "model.greenfold")
    loaded = load(tmp_path / "model.greenfold")
    assert_array_equal(loaded.predict_interval(X, ALPHA), model.predict_interval(X, ALPHA))
    refitted = model.refit_source(*rows)
    continued = loaded.partial_fit(*rows)
    # Noise that comes with later rows is found in them.
    first, _, _ = table(150, 6, even)
    later = quick().fit(*first).partial_fit(*rows, forget=0.05)
    streamed = quick().set_params(training__max_iter=None).fit_stream(rows, epochs=0)
    for known in (refitted, continued, later, streamed):
        quiet, noisy = thirds(inside(known, X, y), sd)
        assert 0.8 < quiet < 0.985
        assert 0.8 < noisy < 0.985


def test_a_stack_knows_where_the_noise_is():
    local = []
    for seed in range(3):
        rows, (X, y), sd = table(300, seed, step)
        local.append(thirds(inside(IGLStack(effort="fast", random_state=0).fit(*rows), X, y), sd))
    assert np.all(np.abs(np.mean(local, 0) - 0.9) <= 0.06)


# --- the parts


@pytest.mark.parametrize("n", [1, 4, 9, 10, 37, 200])
def test_the_quantile_counts_the_new_row_as_one_more(n):
    scores = np.random.default_rng(n).exponential(size=(n, 2))
    for alpha in (0.05, 0.1, 0.5):
        k = math.ceil((n + 1) * (1 - alpha) - 1e-9)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            q = conformal(scores, alpha)
        assert bool(told) == (k > n)
        assert_array_equal(q, np.sort(scores, axis=0)[min(k, n) - 1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert_array_equal(q, conformal(scores, alpha, np.full(n, 0.3)))


def test_weights_of_the_quantile_are_repetitions():
    rng = np.random.default_rng(0)
    scores, count = rng.exponential(size=(400, 1)), rng.integers(1, 4, 400)
    repeated = np.repeat(scores, count, axis=0)  # the new row is one beside more rows
    found = conformal(scores, 0.1, count.astype(float))
    assert conformal(repeated, 0.1) <= found <= conformal(repeated, 0.095)
    assert_array_equal(conformal(scores, 0.1, np.full(400, 3.0)), conformal(scores, 0.1))


def test_the_scale_of_a_row_left_out_is_that_of_a_fit_without_it():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (200, 2))
    ratio = np.abs(step(x[:, :1]) * rng.normal(size=(200, 1)))
    places, weight = Places.of(x, x, x[:, :0]), np.ones((200, 1))
    scale, left_out = Scale.fitted(places, ratio, weight)
    shift = []
    for i in range(0, 200, 10):
        others = np.arange(200) != i
        without, _ = Scale.fitted(
            Places(*(p[others] for p in places)), ratio[others], weight[others]
        )
        shift.append(
            (
                left_out[i, 0] - scale.log(Places(*(p[[i]] for p in places)))[0, 0],
                without.log(Places(*(p[[i]] for p in places)))[0, 0]
                - scale.log(Places(*(p[[i]] for p in places)))[0, 0],
            )
        )
    estimate, exact = np.array(shift).T
    assert np.corrcoef(estimate, exact)[0, 1] > 0.9
    assert np.abs(estimate - exact).max() < 0.5 * np.abs(exact).max()


def test_even_errors_have_a_constant_scale():
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (300, 4))
    found = []
    for _ in range(20):
        ratio = np.abs(rng.normal(size=(300, 1)))
        scale, _ = Scale.fitted(Places.of(x, x, x[:, :1]), ratio, np.ones((300, 1)))
        found.append(sum(term is not None for term in scale.terms))
    assert np.mean(found) < 0.5


@pytest.mark.parametrize(
    "estimator", [IGLRegressor(random_state=0), IGLStack(random_state=0)], ids=repr
)
def test_predictions_in_chunks_are_those_at_once_with_one_factorization(estimator, monkeypatch):
    """Of values, standard deviations and intervals; what changes the model is seen all the same."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = estimator.fit(X, np.sin(X[:, 0]) + 0.1 * X[:, 1])
    rows = np.random.default_rng(1).normal(size=(70, 3))

    def answers():
        return [*model.predict(rows, return_std=True), *model.predict_interval(rows)]

    factored, jittered = [], greenfold.model.jittered
    monkeypatch.setattr(greenfold.model, "jittered", lambda *a: factored.append(1) or jittered(*a))
    parts = model.predictor_.members
    for member in parts:  # as if it came from a file
        greenfold.model._KEPT.pop(member.model, None)
    at_once = answers()
    monkeypatch.setattr(units, "CHUNK", 16)
    for whole, part in zip(at_once, answers(), strict=True):
        assert_allclose(part, whole, rtol=1e-10)
    assert len(factored) <= len(parts)
    with torch.no_grad():
        for member in parts:
            for p in member.model.encoder.parameters():
                p.mul_(1.5)
    assert not np.allclose(answers()[0], at_once[0])
    assert not np.allclose(answers()[1], at_once[1])

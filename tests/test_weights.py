"""What weights and repeated rows mean: how rows compare, not how many measurements there are."""

import warnings
from functools import cache

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning

from greenfold import (
    IGLAutoencoder,
    IGLClassifier,
    IGLRegressor,
    IGLStack,
    IGLStackClassifier,
    Source,
    tune,
    tuning,
)
from greenfold.green import ScreenedPoisson
from tests.nested import nested

rng = np.random.default_rng(0)
plane = rng.normal(size=(2, 9))


def image_rows(n):
    """Rows that are images of 3 × 3 pixels near a plane, so that every chart can be tried on them."""
    z = rng.normal(size=(n, 2))
    u = np.sin(z[:, 0] + 0.5 * z[:, 1]) + 0.3 * z[:, 1]
    return z @ plane + 0.1 * rng.normal(size=(n, 9)), u + 0.15 * rng.normal(size=n)


X, y = image_rows(60)
X_new, y_new = image_rows(300)
few = rng.uniform(0.2, 3.0, size=len(X))  # weights that are no multiples of each other
labels = np.where(y > 0, "high", "low")

CHARTS = ["axis", "linear", "mlp", "pca", "warp", "conv"]
OBJECTIVES = ["evidence", "loo", "gcv", "penalized", "log_mse"]
QUICK = {"max_iter": 5, "n_atoms": 20, "random_state": 0}


def regressor(**options):
    return IGLRegressor(**nested(**QUICK, **options))


REGRESSORS = {
    "auto": IGLRegressor(random_state=0, effort="fast"),
    "stack": IGLStack(random_state=0, effort="fast"),
    **{chart: regressor(chart=chart) for chart in CHARTS},
    **{name: regressor(chart="linear", objective=name) for name in OBJECTIVES[1:]},
    "adam": regressor(chart="linear", optimizer="adam"),
    "joint": regressor(chart="linear", mode="joint"),
    "strength": regressor(chart="linear", alpha=1e-2),
    "free": regressor(chart="linear", anchors="free", alpha=1e-3),
    "gcv strength": regressor(chart="linear", alpha="gcv"),
    "sparse": regressor(chart="linear", sparsity=0.05),
    "terms": regressor(
        chart="linear", gamma="alternating", operator=ScreenedPoisson(1, n_terms=10)
    ),
    "few rows to a new target": None,  # `refit_source`
}
CLASSIFIERS = {
    "stack of classes": IGLStackClassifier(random_state=0, effort="fast"),
    "auto": IGLClassifier(random_state=0, effort="fast", source=Source(n_atoms=30)),
    **{chart: IGLClassifier(**nested(chart=chart, **QUICK)) for chart in CHARTS},
    "least squares": IGLClassifier(**nested(chart="linear", loss="least_squares", **QUICK)),
    "balanced": IGLClassifier(**nested(chart="linear", class_weight="balanced", **QUICK)),
}


@cache
def on_a_chart():
    return regressor(chart="linear").fit(X, np.cos(y))


def fit(name, *data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if REGRESSORS[name] is None:
            return on_a_chart().refit_source(*data)
        return REGRESSORS[name].fit(*data)


def said(name, *data):
    """Predictions, and which of the new rows the two kinds of 90% intervals cover."""
    model = fit(name, *data)
    u, std = model.predict(X_new, return_std=True)
    low, high = model.predict_interval(X_new, alpha=0.1)
    normal = np.abs(y_new - u) <= norm.ppf(0.95) * std
    return u, normal.mean(), ((low <= y_new) & (y_new <= high)).mean()


def same(first, second):
    """The law: 1% of the spread of y, and three points of coverage."""
    assert np.abs(first[0] - second[0]).max() < 0.01 * y.std()
    assert abs(first[1] - second[1]) < 0.03
    assert abs(first[2] - second[2]) < 0.03


def repeated(k, *arrays):
    return [np.repeat(a, k, axis=0) for a in arrays]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(k, marks=pytest.mark.slow)
        if k in ("terms", "conv", "warp", "pca", "loo", "gcv strength")
        else k
        for k in REGRESSORS
    ],
)
def test_neither_the_unit_of_weights_nor_copies_of_the_table_matter(name):
    once = said(name, X, y)
    assert np.corrcoef(once[0], y_new)[0, 1] > 0.8  # there is something to lose
    same(said(name, X, y, np.full(len(X), 100.0)), once)
    same(said(name, *repeated(7, X, y)), once)
    weighted = said(name, X, y, few)
    same(said(name, X, y, 0.01 * few), weighted)
    same(said(name, *repeated(2, X, y, few)), weighted)


def test_weights_do_matter():
    assert np.abs(said("linear", X, y, few)[0] - said("linear", X, y)[0]).max() > 0.01 * y.std()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(k, marks=pytest.mark.slow)
        if k in ("stack of classes", "warp", "conv", "pca")
        else k
        for k in CLASSIFIERS
    ],
)
def test_classes_know_no_unit_of_weights_and_no_copies_either(name):
    def p(*data):
        return CLASSIFIERS[name].fit(*data).predict_proba(X_new)

    assert np.abs(p(*repeated(7, X, labels)) - p(X, labels)).max() < 0.01
    assert np.abs(p(X, labels, 0.01 * few) - p(X, labels, few)).max() < 0.01


def test_a_chart_of_rows_knows_no_copies():
    once, seven = (
        IGLAutoencoder(**nested(**QUICK)).fit(np.repeat(X, k, 0)).predict(X_new) for k in (1, 7)
    )
    assert np.abs(seven - once).max() < 0.01 * X.std()


def test_rows_added_later_count_in_the_unit_of_the_first():
    first, later = slice(0, 40), slice(40, 60)
    model = regressor(chart="linear").fit(X[first], y[first]).partial_fit(X[later], y[later])
    heavy = regressor(chart="linear").fit(X[first], y[first], np.full(40, 5.0))
    heavy.partial_fit(X[later], y[later], np.full(20, 5.0))
    assert np.abs(heavy.predict(X_new) - model.predict(X_new)).max() < 1e-6


@pytest.mark.parametrize("name", ["linear", "stack"])
def test_a_row_of_weight_three_is_three_rows(name):
    times = np.random.default_rng(2).integers(0, 4, size=len(X))
    weighted = said(name, X, y, times)
    same(said(name, *repeated(times, X, y)), weighted)
    same(said(name, X, y, 0.1 * times), weighted)


@pytest.mark.parametrize("name", ["axis", "linear", "mlp", "stack"])
def test_copies_do_not_hide_the_noise(name):
    """A bootstrap sample tells nearly as much as its rows: that copies agree is no sign of exactness."""
    drawn = rng.integers(0, len(X), size=len(X))
    distinct = np.unique(drawn)
    u, v = (fit(name, X[rows], y[rows]).predict(X_new) for rows in (drawn, distinct))
    assert np.mean((u - y_new) ** 2) < 1.5 * np.mean((v - y_new) ** 2)


def whole_numbers(n, seed):
    """A table where rows coincide: few different x, and y of two values."""
    draw = np.random.default_rng(seed)
    X = draw.integers(0, 6, size=(n, 2)).astype(float)
    chance = 1 / (1 + np.exp(-(2 * np.sin(X[:, 0]) + 0.5 * X[:, 1] - 1)))
    return X, (draw.uniform(size=n) < chance).astype(float)


@pytest.mark.parametrize(
    "estimator",
    [
        regressor(chart="axis"),
        pytest.param(IGLStack(random_state=0, effort="fast"), marks=pytest.mark.slow),
    ],
    ids=repr,
)
def test_rows_that_coincide_by_chance_stay_evidence(estimator):
    """As if a digit far behind the point told them apart; and as if they had been counted."""
    X, y = whole_numbers(400, 0)
    X_new, y_new = whole_numbers(400, 1)
    draw = np.random.default_rng(2)
    apart = X + 1e-6 * draw.normal(size=X.shape), y + 1e-5 * draw.normal(size=len(y))
    distinct, times = np.unique(np.column_stack([X, y]), axis=0, return_counts=True)
    assert len(distinct) < 80

    def said(*data):
        model = estimator.fit(*data)
        low, high = model.predict_interval(X_new, alpha=0.1)
        return model.predict(X_new), ((low <= y_new) & (y_new <= high)).mean()

    u, covered = said(X, y)
    v, covered_apart = said(*apart)
    assert np.abs(u - v).max() < 0.05 * y.std()
    assert abs(covered - covered_apart) < 0.03
    counted, _ = said(distinct[:, :2], distinct[:, 2], 0.02 * times)
    np.testing.assert_array_equal(counted, u)
    seven, _ = said(*repeated(7, X, y))
    np.testing.assert_array_equal(seven, u)


def test_copies_of_a_row_are_in_one_fold(monkeypatch):
    """Otherwise settings that learn rows by heart would win."""
    monkeypatch.setattr(tuning, "REGRESSION", [{"estimator": "IGLRegressor", "chart": "axis"}])
    noise = rng.normal(size=60)
    once, seven = (
        tune(*repeated(k, X[:60], noise), budget="1h", random_state=0).error for k in (1, 7)
    )
    assert seven == once > 0.9

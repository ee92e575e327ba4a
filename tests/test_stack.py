"""The stack of several charts."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from greenfold import IGLRegressor, IGLStack, IGLStackClassifier
from greenfold.learn.candidates import FREE, RIGID
from greenfold.learn.race import CLASS_EFFORTS

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def table(n, seed=0, n_columns=4, noise=0.1):
    """A rough function of two inputs; the other columns do not matter."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, n_columns))
    y = np.abs(X[:, 0]) + np.sin(3 * X[:, 1]) + noise * rng.normal(size=n)
    return X, y


@pytest.fixture(scope="module")
def fitted():
    X, y = table(200)
    return IGLStack(random_state=0).fit(X, y)


# --- the estimator


def test_the_stack_is_a_weighted_mean_no_worse_than_its_worst_member(fitted):
    assert set(fitted.weights_) == set(fitted.models_)
    assert [s.weight for s in fitted.standings_ if s.weight] == sorted(
        fitted.weights_.values(), reverse=True
    )
    weights = np.array(list(fitted.weights_.values()))
    assert (weights > 0).all()
    assert_allclose(weights.sum(), 1)
    X, y = table(500, seed=1)
    with torch.no_grad():
        x = fitted._inside(X)
        each = [fitted.units_.values(m(x).numpy(), "values") for m in fitted.models_.values()]
    assert_allclose(fitted.predict(X), weights @ np.array(each), atol=1e-9)
    errors = [np.mean((u - y) ** 2) for u in each]
    assert np.mean((fitted.predict(X) - y) ** 2) <= max(errors)
    assert fitted.score(X, y) > 0.9
    assert not hasattr(fitted, "chart_")


def test_noise_is_not_explained():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(150, 4)), rng.normal(size=150)
    stack = IGLStack(random_state=0).fit(X, y)
    assert min(standing.score for standing in stack.standings_) > 0.85
    assert np.std(stack.predict(rng.normal(size=(200, 4)))) < 0.5


@pytest.mark.slow
def test_intervals_and_deviations_cover(fitted):
    """On average over tables, as intervals do: a single one is 2% off by its own 200 rows."""
    X, y = table(600, seed=20)
    others = [IGLStack(random_state=0).fit(*table(200, seed)) for seed in range(1, 4)]
    inside = []
    for model in (fitted, *others):
        low, high = model.predict_interval(X, 0.1)
        u, std = model.predict(X, return_std=True)
        inside.append([(low <= y) & (y <= high), np.abs(y - u) < 1.645 * std])
    coverage = np.mean(inside, axis=(0, 2))
    assert (coverage > 0.85).all()
    assert (coverage < 0.97).all()
    with pytest.raises(ValueError, match="alpha"):
        fitted.predict_interval(X, 1.5)


def test_same_seed_same_bits_and_the_global_generators_are_left_alone(fitted):
    X, y = table(200)
    states = np.random.get_state()[1].copy(), torch.random.get_rng_state()  # noqa: NPY002
    again = IGLStack(random_state=0).fit(X, y)
    assert_array_equal(again.predict(X), fitted.predict(X))
    assert_array_equal(np.random.get_state()[1], states[0])  # noqa: NPY002
    assert_array_equal(torch.random.get_rng_state(), states[1])


def test_threads_do_not_change_the_result(fitted):
    X, y = table(200)
    parallel = IGLStack(random_state=0, n_jobs=2).fit(X, y)
    assert_array_equal(parallel.predict(X), fitted.predict(X))


def test_order_of_rows_and_columns_does_not_matter(fitted):
    X, y = table(200)
    rows, columns = np.random.default_rng(3).permutation(200), [2, 0, 3, 1]
    other = IGLStack(random_state=0).fit(X[rows], y[rows])
    assert_array_equal(other.predict(X), fitted.predict(X))
    other = IGLStack(random_state=0).fit(X[:, columns], y)
    assert_allclose(other.predict(X[:, columns]), fitted.predict(X), atol=2e-2)


def test_weights_count_repetitions_and_zero_is_absence():
    X, y = table(60)
    count = np.random.default_rng(0).integers(0, 3, 60)
    weighted = IGLStack(random_state=0).fit(X, y, count)
    repeated = IGLStack(random_state=0).fit(np.repeat(X, count, 0), np.repeat(y, count))
    assert_array_equal(weighted.predict(X), repeated.predict(X))
    plain = IGLStack(random_state=0).fit(X, y)
    assert np.abs(plain.predict(X) - weighted.predict(X)).max() > 1e-6  # they do count


def test_units_do_not_matter(fitted):
    X, y = table(200)
    scaled = IGLStack(random_state=0).fit(X * 2.0**30, y * 2.0**-20)
    assert_allclose(scaled.predict(X * 2.0**30) * 2.0**20, fitted.predict(X), rtol=1e-9)


def test_several_targets():
    X, y = table(80)
    both = IGLStack(random_state=0).fit(X, np.stack([y, -2 * y], axis=1))
    u, std = both.predict(X, return_std=True)
    low, high = both.predict_interval(X)
    assert u.shape == std.shape == low.shape == high.shape == (80, 2)
    assert_allclose(u[:, 1], -2 * u[:, 0], atol=1e-6)


def test_full_effort_tries_charts_with_many_numbers_where_rows_allow():
    X, y = table(60)
    stack = IGLStack(effort="full", random_state=0).fit(X, y)
    assert len(stack.standings_) >= len(RIGID)
    assert not any("MLP" in standing.name for standing in stack.standings_)  # wants 1000 rows
    assert any(candidate.name == "mlp.rq" for candidate in FREE)
    with pytest.raises(ValueError, match="effort"):
        IGLStack(effort="some").fit(X, y)


def test_the_default_regressor_takes_a_rough_kernel_where_it_predicts_better():
    X, y = table(150, noise=0.05)
    X_new, y_new = table(500, seed=5, noise=0.05)
    model = IGLRegressor(random_state=0).fit(X, y)
    assert model.score(X_new, y_new) > 0.95
    assert len(model.transform(X_new)) == 500


def test_a_stack_of_classes_has_the_charts_of_every_effort():
    X, y = table(60, 0)
    labels = y > np.median(y)
    models = [
        IGLStackClassifier(effort=effort, random_state=0).fit(X, labels) for effort in CLASS_EFFORTS
    ]
    for model in models:
        assert model.score(X, labels) > 0.8
        assert sum(model.weights_.values()) == pytest.approx(1)
        assert_allclose(model.predict_proba(X).sum(1), 1)
        each = model.predictor_.each(model.predictor_.inside(X)) / model.temperature_
        p = np.exp(each - each.max(2, keepdims=True))
        p = np.tensordot(model.predictor_.weights, p / p.sum(2, keepdims=True), 1)
        assert_allclose(model.predict_proba(X), p, rtol=1e-10)
    assert len(models[-1].standings_) > len(models[0].standings_)

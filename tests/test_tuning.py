"""`tune`: settings compared within a budget."""

import pickle
import time

import numpy as np
import pytest

from greenfold import tune, tuning
from tests.nested import nested


@pytest.fixture
def cheap(monkeypatch):
    """Few settings, so that no trial waits for an expensive one."""
    monkeypatch.setattr(
        tuning,
        "REGRESSION",
        [
            nested(estimator="IGLRegressor", chart="axis", max_iter=20, n_atoms=40),
            nested(estimator="IGLRegressor", chart="linear", n_dims=1, max_iter=15, n_atoms=30),
        ],
    )


def ridge_function(n, seed=0):
    """A function of one rotated direction of four."""
    X = np.random.default_rng(seed).normal(size=(n, 4))
    return X, np.sin(X @ [1.0, -1.0, 0.5, 0.0])


def test_the_settings_that_fit_win_and_are_fitted_to_all_rows(cheap):
    X, y = ridge_function(200)
    found = tune(X, y, budget="1h", random_state=0)
    assert found.settings["chart"] == "linear"
    assert found.best.score(*ridge_function(200, seed=1)) > 0.9
    assert found.error == min(t.error for t in found.trials if t.rows == 200)
    np.testing.assert_array_equal(found.predict(X), found.best.predict(X))


@pytest.mark.slow
def test_rounds_grow_to_all_rows_and_halve_the_settings(cheap):
    X, y = ridge_function(600)
    found = tune(X, y, budget="1h", random_state=0)
    assert tuning.sizes(600) == [150, 200, 600]
    assert [t.rows for t in found.trials] == [150, 150, 200, 600]


def test_what_does_not_fit_into_the_budget_is_left_out(cheap, monkeypatch):
    """A trial that took a second is not repeated on more rows when half a second is left."""
    real = tuning.trial

    def slow(*arguments):
        time.sleep(1.0)
        return real(*arguments)._replace(seconds=1.0)

    monkeypatch.setattr(tuning, "trial", slow)
    X, y = ridge_function(600)
    found = tune(X, y, budget=1.2, random_state=0)
    assert {t.rows for t in found.trials} == {150}
    assert hasattr(found.best, "model_")


def test_classes_are_compared_by_log_loss():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.where(X[:, 0] + X[:, 1] > 0, "up", "down")
    found = tune(X, y, budget="1s", random_state=0)
    assert found.settings["estimator"] == "IGLClassifier"
    assert found.error < np.log(2)
    assert set(found.predict(X)) == {"up", "down"}


@pytest.mark.parametrize(
    ("y", "task", "classes"),
    [
        (np.arange(40.0) % 2, "auto", False),
        (np.arange(40) % 3, "auto", True),
        (np.arange(40), "auto", False),
        (np.arange(40) % 2 == 0, "auto", True),
        (np.arange(40) % 3, "regression", False),
        (np.arange(40.0) % 2, "classification", True),
    ],
)
def test_whole_numbers_of_few_values_are_classes(y, task, classes):
    assert tuning.labeled(y, task) is classes


@pytest.mark.slow
def test_the_same_seed_gives_the_same_answer_and_it_can_be_pickled(cheap):
    X, y = ridge_function(100)
    first, second = (tune(X, y, budget="1h", random_state=3) for _ in range(2))
    assert [t.error for t in first.trials] == [t.error for t in second.trials]
    again = pickle.loads(pickle.dumps(first))
    np.testing.assert_array_equal(again.predict(X), first.predict(X))
    assert again.table() == str(first)
    assert "IGLRegressor(chart='linear', n_dims=1" in str(first)


def test_settings_that_fail_are_listed_and_lose(cheap):
    tuning.REGRESSION.insert(
        0, {"estimator": "IGLRegressor", "chart": "linear", "operator": "none"}
    )
    X, y = ridge_function(60)
    found = tune(X, y, budget="1h", random_state=0)
    assert found.trials[0].error == np.inf
    assert found.trials[0].failed in str(found)


@pytest.mark.parametrize(
    ("budget", "expected"), [(60, 60), ("60s", 60), (" 1.5 m", 90), ("2min", 120), ("1h", 3600)]
)
def test_budgets_are_seconds_or_text(budget, expected):
    assert tuning.seconds(budget) == expected


@pytest.mark.parametrize("budget", ["soon", "-3s", 0, "5 parsecs", float("nan")])
def test_other_budgets_are_refused(budget):
    with pytest.raises(ValueError, match="`budget` must be a positive number of seconds"):
        tuning.seconds(budget)


def test_too_few_rows_and_unknown_tasks_are_refused():
    with pytest.raises(
        ValueError, match="at least 15 different rows to compare settings on, got 1"
    ):
        tune(np.ones((9, 2)), np.ones(9))
    with pytest.raises(ValueError, match="unknown task 'ranking'"):
        tune(np.ones((20, 2)), np.ones(20), task="ranking")

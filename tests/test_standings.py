"""What is said of the model is said of the model in use."""

import math
import warnings
from copy import copy

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning

import greenfold
from greenfold import (
    IGLAutoencoder,
    IGLClassifier,
    IGLRegressor,
    IGLStack,
    IGLStackClassifier,
    Training,
)
from greenfold.learn.search.charts import Linear
from greenfold.learn.search.evidence import Fit, Rows, optimize, predict
from greenfold.learn.search.forecast import left_out
from greenfold.learn.trainer import History
from tests.models import X, labels, rough, y

FITTED = {
    "searched": lambda: IGLRegressor(random_state=0).fit(X, y),
    "rough": lambda: IGLRegressor(random_state=0).fit(X, rough),
    "constant": lambda: IGLRegressor(random_state=0).fit(X, np.full(60, 3.0)),
    "two targets": lambda: IGLRegressor(random_state=0).fit(X, np.stack([y, rough], axis=1)),
    "given": lambda: IGLRegressor(chart="mlp", random_state=0, training=Training(max_iter=5)).fit(
        X, y
    ),
    "classes": lambda: IGLClassifier(random_state=0).fit(X, labels),
    "given classes": lambda: IGLClassifier(
        chart="linear", random_state=0, training=Training(max_iter=5)
    ).fit(X, labels),
    "indicators": lambda: IGLClassifier(loss="least_squares", random_state=0).fit(X, labels),
    "rebuilt": lambda: IGLAutoencoder(random_state=0, training=Training(max_iter=5)).fit(X),
    "stack of classes": lambda: IGLStackClassifier(random_state=0).fit(X, labels),
    "stack": lambda: IGLStack(effort="fast", random_state=0).fit(X, rough),
    "stream": lambda: IGLRegressor(chart="linear", random_state=0).fit_stream((X, y), epochs=1),
    "searched stream": lambda: IGLRegressor(random_state=0).fit_stream((X, y)),
    "new target": lambda: IGLRegressor(random_state=0).fit(X, y).refit_source(X, rough),
    "tasks": lambda: IGLRegressor(random_state=0, training=Training(max_iter=5)).fit_tasks(
        [(X, y), (X, rough)]
    )[1],
}


@pytest.fixture(scope="module")
def fitted():
    made = {}

    def make(name):
        if name not in made:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                made[name] = FITTED[name]()
        return made[name]

    return make


@pytest.mark.parametrize("name", FITTED)
def test_the_model_in_use_comes_first_then_its_rivals_best_first(fitted, name):
    model = fitted(name)
    used = [s for s in model.standings_ if s.weight]
    assert model.standings_[: len(used)] == used
    assert sum(s.weight for s in used) == pytest.approx(1)
    rivals = [s.score for s in model.standings_[len(used) :]]
    assert rivals == sorted(rivals)
    assert all(s.rows > 0 and s.seconds >= 0 and s.score >= 0 for s in model.standings_)


@pytest.mark.parametrize("name", FITTED)
def test_the_first_is_named_after_the_model(fitted, name):
    model = fitted(name)
    first = model.standings_[0]
    igl = (
        model.model_
        if hasattr(model, "model_")
        else model.models_[max(model.weights_, key=model.weights_.get)]
    )
    assert first.name.endswith(igl.operator.label)
    assert first.n_dims == len(igl.gates())


@pytest.mark.parametrize("name", FITTED)
def test_history_is_a_descent_or_nothing(fitted, name):
    model = fitted(name)
    descended = getattr(model, "chart", "auto") != "auto" or name == "tasks"
    assert isinstance(getattr(model, "history_", None), History if descended else type(None))


def test_what_was_said_before_is_forgotten(fitted):
    model = IGLRegressor(chart="linear", random_state=0, training=Training(max_iter=2)).fit(X, y)
    model.set_params(chart="auto", training=None).fit(X, y)
    assert model.history_ is None
    assert [s[:3] for s in model.standings_] == [s[:3] for s in fitted("searched").standings_]


@pytest.mark.parametrize("name", ["searched", "rough", "given", "rebuilt", "stack"])
def test_standings_go_through_files(fitted, name, tmp_path):
    greenfold.save(fitted(name), tmp_path / "model.greenfold")
    assert greenfold.load(tmp_path / "model.greenfold").standings_ == fitted(name).standings_


def test_joint_training_leaves_no_row_out():
    model = IGLRegressor(
        chart="linear", random_state=0, training=Training(mode="joint", max_iter=3)
    ).fit(X, y)
    assert math.isnan(model.standings_[0].score)


def test_diabetes_is_predicted_on_axis_scales_and_nobody_is_warned_of_a_chart_that_lost():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = IGLRegressor(random_state=0).fit(*load_diabetes(return_X_y=True))
    first = model.standings_[0]
    assert first.name.startswith("axis scales, Anova kernel of order 2")
    assert type(model.chart_).__name__ == "AxisScales"
    assert any("Cauchy" in s.name for s in model.standings_[1:])


@pytest.mark.parametrize("noise", [pytest.param(0.1, marks=pytest.mark.slow), 1.0])
def test_the_score_is_what_new_rows_have(noise):
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (1200, 6))
    y = np.sin(X @ [1.0, 0.5, 0, 0, 0, 0]) + noise * rng.normal(size=1200)
    model = IGLRegressor(random_state=0).fit(X[:200], y[:200])
    error = np.sqrt(np.mean((model.predict(X[200:]) - y[200:]) ** 2)) / y[:200].std()
    assert model.standings_[0].score == pytest.approx(error, rel=0.12)


def test_the_warning_tells_what_is_in_use_how_doubtful_and_what_to_do():
    rng = np.random.default_rng(0)
    with pytest.warns(ConvergenceWarning) as caught:
        model = IGLRegressor(random_state=0).fit(rng.normal(size=(60, 5)), rng.normal(size=60))
    text, first = str(caught[0].message), model.standings_[0]
    assert first.name in text
    assert f"{first.score:.2f} standard deviations" in text
    assert "More rows" in text
    assert caught[0].filename == __file__


def test_rows_left_out_of_the_search_are_left_out_of_the_chart():
    """Against refitting without each row: with the chart held, errors would come out too small."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 6))
    y = np.sin(2 * X[:, :1]) + 0.3 * rng.normal(size=(40, 1))
    rows = Rows(X, y - y.mean(), np.ones(40))
    start = Fit(Linear(1, 6), np.eye(6)[0], np.log(0.1), "gaussian", "")
    fit = optimize(start, rows, 100)

    def without(i):
        keep = np.arange(40) != i
        part = Rows(X[keep], rows.Y[keep], np.ones(39))
        again = optimize(fit, part, 100)
        held = Rows(X[[i]], rows.Y[[i]], np.ones(1))
        return [(rows.Y[[i]] - predict(one, part, held)).item() for one in (again, fit)]

    refitted, kept = np.array([without(i) for i in range(40)]).T
    size = np.sqrt(np.mean(np.square(left_out(fit, rows))))
    assert size == pytest.approx(np.sqrt(np.mean(refitted**2)), rel=0.1)
    assert np.sqrt(np.mean(kept**2)) < 0.9 * size


def test_a_model_from_before_there_were_standings_takes_a_new_target(fitted):
    old = copy(fitted("searched"))
    del old.standings_
    assert len(old.refit_source(X, rough).standings_) == 1

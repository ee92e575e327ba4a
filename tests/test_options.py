"""What a given chart can be trained with: anchors, gates, weights of the sum, starts, optimizers."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from greenfold import Chart, IGLAutoencoder, IGLClassifier, IGLRegressor, Source, Training
from greenfold.chart import MLP
from tests.nested import nested


def slow(options):
    return pytest.param(options, marks=pytest.mark.slow)


def rows(n, seed=0, D=6, noise=0.05):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n + 300, D))
    u = np.sin(1.5 * X[:, 0]) + np.cos(X[:, 1])
    return X[:n], u[:n] + noise * rng.normal(size=n), X[n:], u[n:]


@pytest.mark.parametrize(
    "options",
    [
        {"anchors": "free", "n_atoms": 40},
        {"anchors": "grid", "n_atoms": 49},
        {"gates": "learned"},
        slow({"gamma": "learned", "operator": "screened_poisson"}),
        slow({"gamma": "free", "operator": "screened_poisson", "n_atoms": 30}),
        slow({"gamma": "alternating", "operator": "screened_poisson", "n_atoms": 40}),
        {"start": "pca", "pull": 1e-3},
        {"optimizer": "adam"},
        {"optimizer": "adam", "objective": "gcv"},
        {"mode": "joint"},
        slow({"mode": "joint", "optimizer": "adam", "objective": "log_mse", "max_iter": 400}),
    ],
    ids=repr,
)
def test_every_option_trains(options):
    X, y, X_new, u = rows(200, D=2)
    options = {"max_iter": 30, **options}
    model = IGLRegressor(**nested(chart="linear", random_state=0, **options)).fit(X, y)
    assert model.score(X_new, u) > 0.8
    assert np.isfinite(model.predict(X_new, return_std=True)[1]).all()
    assert len(model.gates_) == 2


def test_restarts_keep_the_best_and_threads_do_not_matter():
    X, y, X_new, _ = rows(120)
    one = IGLRegressor(chart="mlp", random_state=3, training=Training(max_iter=10)).fit(X, y)
    many = IGLRegressor(
        chart="mlp", random_state=3, training=Training(max_iter=10, n_restarts=3)
    ).fit(X, y)
    both = IGLRegressor(
        chart="mlp", n_jobs=2, random_state=3, training=Training(max_iter=10, n_restarts=3)
    ).fit(X, y)
    assert many.history_.loss[-1] <= one.history_.loss[-1]
    assert (many.predict(X_new) == both.predict(X_new)).all()


def test_restarts_train_a_given_module_in_place():
    X, y, *_ = rows(80)
    torch.manual_seed(0)
    encoder = torch.nn.Linear(6, 2, dtype=torch.float64)
    model = IGLRegressor(
        chart=encoder, random_state=0, training=Training(n_restarts=3, max_iter=8)
    ).fit(X, y)
    assert model.chart_ is encoder
    np.testing.assert_array_equal(model.transform(X), model.transform(X))


def test_many_rows_are_trained_in_minibatches():
    """Above 5000 rows Adam takes over, and gets to where L-BFGS gets."""
    X, y, X_new, u = rows(6000, D=4, noise=0.1)
    model = IGLRegressor(
        chart="linear", random_state=0, source=Source(n_atoms=80), training=Training(max_iter=40)
    ).fit(X, y)
    assert model.history_.evaluations == len(model.history_.loss) * 6  # batches of 1024
    assert model.score(X_new, u) > 0.99


def test_rows_can_be_images():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 64))
    y = X.reshape(-1, 8, 8)[:, :4].mean((1, 2))
    model = IGLRegressor(chart="conv", random_state=0, training=Training(max_iter=10)).fit(X, y)
    assert model.transform(X).shape == (60, 2)
    with pytest.raises(ValueError, match="square images, got 63 columns"):
        IGLRegressor(chart="conv").fit(X[:, :63], y)


def test_an_isomap_start_with_a_pull_keeps_what_the_target_does_not_need():
    """The target depends on t alone; without the pull the chart forgets the height."""
    rng = np.random.default_rng(0)
    t, h = 1.3 * np.pi * rng.uniform(size=200), 2 * rng.uniform(size=200)
    X = np.stack([np.cos(t), h, np.sin(t)], 1)

    def height(pull):
        model = IGLRegressor(
            chart=Chart("mlp", start="isomap", pull=pull),
            random_state=0,
            training=Training(max_iter=40),
        )
        xi = model.fit(X, np.sin(3 * t)).transform(X)
        assert model.score(X, np.sin(3 * t)) > 0.99
        nearest = np.argsort(((xi[:, None] - xi) ** 2).sum(2), axis=1)[:, 1:6]
        return np.corrcoef(h[nearest].mean(1), h)[0, 1]

    assert height(10.0) > 0.95
    assert height(0.0) < 0.8


def two_tasks(seed, n):
    """Targets of two directions of ten, each on rows of its own, and a third with twenty rows."""
    rng = np.random.default_rng(seed)
    a, b = np.linalg.qr(rng.normal(size=(10, 2)))[0].T
    draw = lambda m: rng.uniform(-2, 2, (m, 10))  # noqa: E731
    first, second, few, new = draw(n), draw(n), draw(20), draw(500)
    target = lambda X: np.cos(X @ a) + 0.5 * X @ b  # noqa: E731
    tasks = [(first, np.sin(2 * first @ a)), (second, np.sin(1.5 * second @ b))]
    return tasks, (few, target(few)), (new, target(new))


@pytest.mark.slow  # the next one has given charts
def test_one_chart_for_several_tasks_and_a_new_one_from_twenty_rows():
    """Each task shows one direction; only together do they show both that the third needs."""
    tasks, few, new = two_tasks(0, 150)
    fitted = IGLRegressor(random_state=0, training=Training(max_iter=60)).fit_tasks(tasks)
    assert all(model.chart_ is fitted[0].chart_ for model in fitted)
    for model, (X, y) in zip(fitted, tasks, strict=True):
        assert model.score(X, y) > 0.99
    adapted = fitted[0].refit_source(*few).score(*new)
    alone = IGLRegressor(random_state=0).fit(*tasks[0]).refit_source(*few).score(*new)
    with pytest.warns(ConvergenceWarning, match="may be wrong"):
        scratch = IGLRegressor(random_state=0).fit(*few).score(*new)
    assert adapted > 0.9
    assert adapted > max(alone, scratch)


def test_tasks_share_a_given_chart():
    tasks, *_ = two_tasks(1, 100)
    fitted = IGLRegressor(
        chart="linear", n_dims=2, random_state=0, training=Training(max_iter=40)
    ).fit_tasks(tasks)
    again = IGLRegressor(
        chart="linear", n_dims=2, random_state=0, training=Training(max_iter=40)
    ).fit_tasks(tasks)
    assert (fitted[1].predict(tasks[0][0]) == again[1].predict(tasks[0][0])).all()
    with pytest.raises(ValueError, match="at least one pair"):
        IGLRegressor().fit_tasks([])


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_tables_keep_their_column_names(frame):
    X, y, *_ = rows(60, D=3)
    table = frame({name: X[:, i] for i, name in enumerate(["width", "height", "age"])})
    model = IGLRegressor(chart="axis", training=Training(max_iter=5)).fit(table, y)
    assert list(model.feature_names_in_) == ["width", "height", "age"]
    np.testing.assert_array_equal(model.predict(table), model.predict(table))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame({name: X[:, i] for i, name in enumerate(["height", "width", "age"])}))
    named = model.set_output(transform="pandas" if frame is pd.DataFrame else "polars")
    assert list(named.transform(table).columns) == [f"iglregressor{j}" for j in range(3)]


@pytest.mark.parametrize("estimator", [IGLRegressor, IGLClassifier, IGLAutoencoder])
def test_notebooks_show_an_estimator(estimator):
    assert estimator.__name__ in estimator()._repr_html_()
    assert repr(estimator()) == f"{estimator.__name__}()"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"anchors": "fixed"}, "`anchors` must be one of"),
        ({"gates": "soft"}, "`gates` must be one of"),
        ({"chart": "axis", "gates": "learned"}, "the scales are the gates"),
        ({"start": "tsne"}, "`start` must be one of"),
        ({"optimizer": "sgd"}, "`optimizer` must be one of"),
        ({"sparsity": "lasso"}, "`sparsity` must be a number"),
        ({"sparsity": 1.5}, "`sparsity` must be a number"),
        ({"n_restarts": 0}, "`n_restarts` must be a whole number of at least 1"),
        ({"gamma": "learned", "operator": "product_screened"}, "no terms to weigh"),
        ({"chart": "auto", "gates": "learned"}, "gates='learned' needs a given chart"),
        ({"chart": "auto", "sparsity": "importance"}, "needs a given chart"),
        ({"optimizer": "adam", "objective": "loo"}, "needs all rows at once"),
    ],
    ids=repr,
)
def test_options_that_do_not_fit_are_refused(options, words):
    X, y, *_ = rows(30)
    with pytest.raises(ValueError, match=words):
        IGLRegressor(**nested(**{"chart": "linear", **options})).fit(X, y)


@pytest.mark.parametrize("anchors", ["tied", "free", "grid"])
def test_anchors_spread_over_where_a_chart_starts(anchors):
    """Not over where the encoder was before it was fitted to its start."""
    t = np.random.default_rng(0).uniform(0, 3, 200)
    X = np.stack([np.cos(t), np.sin(t), t], 1)
    torch.manual_seed(0)
    options = {"chart": MLP(3, 1), "start": "isomap", "anchors": anchors}
    model = IGLAutoencoder(
        **nested(**options, n_atoms=12, max_iter=20, callbacks=[lambda epoch: True])
    ).fit(X)
    mu, xi = model.model_.atoms().mu.detach().numpy(), model.transform(X)
    apart = np.abs(xi - mu.T).min(1)  # of each row from the next anchor
    assert apart.max() < 0.2 * np.ptp(xi)


@pytest.mark.parametrize("chart", ["axis", "warp"])
def test_axes_of_the_inputs_rebuild_the_inputs(chart):
    """They need no start, and coordinates that are turned would shrink their scales to nothing."""
    rows = load_iris().data[::3]
    model = IGLAutoencoder(
        chart=chart, random_state=0, source=Source(n_atoms=30), training=Training(max_iter=20)
    )
    assert model.fit(rows).score(rows) > 0.99
    with pytest.raises(ValueError, match=r"start='isomap' needs a chart whose axes turn"):
        IGLAutoencoder(chart=Chart(chart, start="isomap")).fit(rows)
    with pytest.raises(ValueError, match=r"start='pca' needs a chart whose axes turn"):
        IGLRegressor(chart=Chart(chart, start="pca")).fit(rows, rows[:, 0])

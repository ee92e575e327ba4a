"""Charts learned over tasks: what `adapt` solves, what it is sure of, and what is refused."""

import warnings
from copy import deepcopy

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

import greenfold
from greenfold import Chart, IGLClassifier, IGLRegressor, Learner, Source, Training, green
from greenfold.chart import MLP
from greenfold.estimators.adapted import OnChart, parts_of
from greenfold.learn.episodes import halves


def wave(rng, n, D=1):
    """A sine of one direction, the same for all tasks; tasks differ in phase and size."""
    x = rng.uniform(-3, 3, (n, D))
    return x, rng.uniform(0.5, 2) * np.sin(x.sum(1) + rng.uniform(0, 6)) + 0.05 * rng.normal(size=n)


def sides(rng, n):
    """Which side of a line through the plane that two of four columns span; names of its own."""
    x, w = rng.normal(size=(n, 4)), rng.normal(size=2)
    return x, np.where(x[:, :2] @ w > 0, "above", "below")


def quiet(learner, tasks):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return learner.fit_tasks(tasks)


@pytest.fixture(scope="module")
def waves():
    rng = np.random.default_rng(0)
    operator = green.Superposition([green.Heat(0.5), green.Affine(level=0.0)], [1.0, 1.0])
    encoder = MLP(1, 3, (32,), generator=torch.Generator().manual_seed(0))
    learner = Learner(IGLRegressor(encoder, operator), n_support=12, epochs=15, random_state=0)
    return quiet(learner, (wave(rng, 30) for _ in range(120))), rng


@pytest.fixture(scope="module")
def classes():
    rng = np.random.default_rng(1)
    model = IGLClassifier(Chart("mlp", hidden=(16,)), n_dims=3, loss="least_squares")
    learner = Learner(model, n_support=20, epochs=12, random_state=0)
    return quiet(learner, [sides(rng, 40) for _ in range(60)]), rng


KERNELS = {
    "heat": green.Heat(0.4, diffusivity=2.0),
    "cauchy": green.Cauchy(0.7, beta=1.5, diffusivity=torch.tensor([1.0, 2.0, 0.5])),
    "affine": green.Affine(slope=torch.tensor([1.0, 0.5, 2.0]), level=0.3),
    "sum": green.Superposition(
        [green.Heat(0.3), green.Cauchy(1.2), green.Affine(level=0.0)], [0.5, 1.5, 2.0]
    ),
    "axes": green.Superposition([green.Heat(0.3), green.Cauchy(1.2)], axes=[[0], [1, 2]]),
    "matern": green.Matern(1.5, 0.8),
}


@pytest.mark.parametrize("name", list(KERNELS))
def test_kernels_by_numpy_are_the_responses_of_the_operator(name):
    L = KERNELS[name]
    chart = OnChart(lambda X: X, L, 0.1)
    generator = torch.Generator().manual_seed(0)
    z, at = (3 + torch.randn(n, 3, dtype=torch.float64, generator=generator) for n in (8, 5))
    origin = torch.zeros(1, 3, dtype=torch.float64)
    with torch.no_grad():
        unit = L.response(origin, green.Point(origin))
        assert (parts_of(L, 3) is None) == (name == "matern")
        for sources in (at, z):
            known = (L.response(z, green.Point(sources)) / unit).numpy()
            assert_allclose(chart.kernel(z, sources), known, rtol=1e-12)
        assert chart.kernel(z[:0], at).shape == (0, 5)


def test_adapting_is_a_fit_with_that_chart(waves):
    """An estimator whose chart is the encoder, untrained, with the same penalty and operator."""
    learner, rng = waves
    X, y = wave(rng, 12)
    units = learner.adapt(X, y).estimator().units_.x
    own = X.std(0)

    class Same(nn.Module):
        """The encoder of the user's numbers, from those in units of these rows."""

        def __init__(self):
            super().__init__()
            self.encoder = deepcopy(learner.chart_).requires_grad_(False)

        def forward(self, x):
            outside = x * torch.from_numpy(own) + torch.from_numpy(X.mean(0))
            return self.encoder(
                (outside / units.unit - torch.from_numpy(units.shift))
                / torch.from_numpy(units.scale)
            )

    other = IGLRegressor(
        Same(),
        deepcopy(learner.operator_).requires_grad_(False),
        source=Source(alpha=learner.noise_),
        training=Training(max_iter=0),
    ).fit(X, y)
    new = rng.uniform(-3, 3, (40, 1))
    assert_allclose(learner.adapt(X, y).predict(new), other.predict(new), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", ["waves", "classes"])
def test_the_estimator_of_a_task_is_the_same_model(kind, request, tmp_path):
    """By another route: columns in the energy norm, instead of the kernel matrix."""
    learner, rng = request.getfixturevalue(kind)
    draw = wave if kind == "waves" else sides
    X, y = draw(rng, 15)
    new, _ = draw(rng, 30)
    one = learner.adapt(X, y)
    other = one.estimator()
    greenfold.save(other, tmp_path / "task.greenfold")
    again = greenfold.load(tmp_path / "task.greenfold")
    assert_allclose(one.transform(new), other.transform(new), rtol=1e-12)
    if kind == "classes":
        for model in (other, again):
            assert_allclose(model.predict_proba(new), one.predict_proba(new), rtol=1e-6)
        assert list(one.predict(new)) == list(other.predict(new))
        return
    for model in (other, again):
        assert_allclose(model.predict(new), one.predict(new), rtol=1e-6, atol=1e-9)
        _, std = one.predict(new, return_std=True)
        assert_allclose(model.predict(new, return_std=True)[1], std, rtol=1e-5)
        assert_allclose(
            model.predict_interval(new, 0.1)[0], one.predict_interval(new, 0.1)[0], rtol=1e-5
        )


def test_intervals_cover_new_tasks(waves):
    """90% of rows of tasks that nobody has seen, within what sixty tasks of a hundred rows can tell."""
    learner, rng = waves
    inside = []
    for _ in range(60):
        X, y = wave(rng, 112)
        low, high = learner.adapt(X[:12], y[:12]).predict_interval(X[12:], alpha=0.1)
        inside.append(np.mean((low <= y[12:]) & (y[12:] <= high)))
    assert 0.84 <= np.mean(inside) <= 0.96


def test_what_tasks_share_is_learned(waves, classes):
    """Few rows predict new tasks better than the same rows alone do."""
    learner, rng = waves
    X, y = wave(rng, 212)
    error = np.mean((learner.adapt(X[:12], y[:12]).predict(X[12:]) - y[12:]) ** 2)
    assert error < 0.1 * y.var()
    assert learner.score_ > 0.9
    learner, rng = classes
    assert learner.score_ > 0.75


def test_given_episodes_and_several_columns():
    rng = np.random.default_rng(2)

    def pair(n):
        X, y = wave(rng, n, 2)
        return X, np.column_stack([y, 2 * y])

    learner = Learner(IGLRegressor("linear", n_dims=1), epochs=3, random_state=0)
    learner.fit_tasks((pair(8), pair(6)) for _ in range(10))
    X, Y = pair(9)
    found = learner.adapt(X, Y)
    assert found.predict(X).shape == (9, 2)
    assert_allclose(found.predict(X)[:, 1], 2 * found.predict(X)[:, 0], rtol=1e-6)
    with pytest.raises(ValueError, match="y has 1 columns, that of the tasks had 2"):
        learner.adapt(X, Y[:, 0])


def test_halves_are_even_over_classes():
    y = torch.tensor([0] * 9 + [1] * 4 + [2] * 7)
    own, rest = halves(y, 6, True, torch.Generator().manual_seed(0))
    assert y[own].bincount().tolist() == [2, 2, 2]
    assert sorted(torch.cat([own, rest]).tolist()) == list(range(20))
    own, rest = halves(y, 50, False, torch.Generator().manual_seed(0))
    assert len(rest) == 1  # something has to judge


def test_the_same_seed_learns_the_same():
    tasks = [wave(np.random.default_rng(k), 12) for k in range(8)]
    learner = Learner(IGLRegressor("mlp", n_dims=1), epochs=2, random_state=3)
    one, other = (
        clone(learner).fit_tasks(tasks).adapt(*tasks[0]).predict(tasks[1][0]) for _ in "ab"
    )
    assert_allclose(one, other, rtol=0)


@pytest.mark.parametrize(
    ("learner", "match"),
    [
        (Learner(nn.Identity()), "must be an IGLRegressor or an IGLClassifier"),
        (Learner(IGLRegressor()), "a chart that is given"),
        (Learner(IGLRegressor("mlp", n_dims="auto")), "give `n_dims` a number"),
        (Learner(IGLClassifier("mlp")), "loss='least_squares'"),
        (Learner(IGLRegressor("mlp", source=Source(alpha=0.1))), "alpha=0.1 would do nothing"),
        (Learner(IGLRegressor("mlp"), epochs=0), "epochs"),
        (Learner(IGLRegressor("mlp"), learning_rate=0.0), "learning_rate"),
    ],
)
def test_what_would_do_nothing_is_refused(learner, match):
    tasks = [wave(np.random.default_rng(k), 9) for k in range(4)]
    with pytest.raises(ValueError, match=match):
        learner.fit_tasks(tasks)


def test_bad_tasks():
    learner = Learner(IGLRegressor("mlp"), epochs=1)
    with pytest.raises(NotFittedError, match="fit_tasks"):
        learner.adapt([[0.0]], [1.0])
    with pytest.raises(ValueError, match="at least 4 tasks, got 0"):
        learner.fit_tasks([])
    with pytest.raises(ValueError, match="must be a pair"):
        learner.fit_tasks([3])


def test_rows_that_are_looked_at_quickly_are_those_that_would_be_checked(waves):
    learner, rng = waves
    X, y = wave(rng, 12)
    known = learner.adapt(X, y).predict(X)
    assert_allclose(learner.adapt(X.tolist(), y).predict(X.tolist()), known, rtol=1e-12)
    far = X.copy()
    far[0, 0] = np.inf
    for bad, reason in (
        (far, "infinity"), (X * np.nan, "NaN"), (X[:0], "0 sample"), (X[:, 0], "1D"),
        (np.hstack([X, X]), "2 features"), (X[:-1], "rows"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=reason):
            learner.adapt(bad, y)

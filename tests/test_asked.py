"""What users say about charts that are found: how many coordinates, which operator; and by which name."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from greenfold import Chart, IGLAutoencoder, IGLClassifier, IGLRegressor, Source, Training, green
from greenfold.chart import Linear
from greenfold.learn.candidates import AXIS_RQ, Searched, allowed, equal_scales, gradients, unit
from greenfold.learn.candidates import Fit as CandidateFit
from greenfold.learn.data import Data, Rows
from greenfold.learn.fit import halfway, solution_of
from greenfold.model import IGL, Tied
from greenfold.solve import Ridge
from greenfold.spec import nested, on_one_level, settings_of

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (90, 5))
y = np.sin(2 * X[:, 0] + X[:, 1]) + X[:, 2] ** 2 + 0.1 * rng.normal(size=90)
labels = np.where(y > np.median(y), "high", "low")


@pytest.mark.parametrize(
    "n_dims",
    [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(5, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("estimator", [IGLRegressor, IGLClassifier])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_so_many_coordinates_whatever_wins(estimator, n_dims):
    model = estimator(n_dims=n_dims, random_state=0)
    model.fit(X, labels if estimator is IGLClassifier else y)
    assert model.transform(X).shape == (90, n_dims)
    assert all(s.n_dims == n_dims for s in model.standings_)


@pytest.mark.parametrize(
    "operator",
    ["matern"]
    + [
        pytest.param(other, marks=pytest.mark.slow)
        for other in ("heat", green.Exponential(2.0), green.Cauchy(1.0))
    ],
    ids=str,
)
@pytest.mark.parametrize("estimator", [IGLRegressor, IGLClassifier])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_operator_is_the_one_asked_for(estimator, operator):
    model = estimator(operator=operator, random_state=0)
    target = labels if estimator is IGLClassifier else y
    kind = green.operators.operator(operator)
    got = model.fit(X, target).model_.operator
    assert type(got) is type(kind)
    for a, b in zip(got.parameters(), kind.parameters(), strict=True):
        assert_allclose(a.detach(), b.detach())
    assert model.score(X, target) > 0.8


@pytest.mark.parametrize("name", ["poisson", "fractional", "harmonic_oscillator"])
def test_operators_that_cannot_compete_say_what_to_do(name):
    with pytest.raises(ValueError, match="needs a given chart, such as chart='linear'"):
        IGLRegressor(operator=name).fit(X, y)


def test_few_rows_get_what_was_asked_for():
    model = IGLRegressor(n_dims=1, operator="matern", random_state=0).fit(X[:12], X[:12, 0])
    assert model.transform(X).shape[1] == 1
    assert isinstance(model.model_.operator, green.Matern)


def test_gradients_are_those_of_the_fit():
    data = Data.of(torch.from_numpy(X), torch.from_numpy(y - y.mean())[:, None])
    fit = AXIS_RQ.learn(data, equal_scales(data), 10)
    K = torch.from_numpy(fit.kernel(data.x))
    A = K + fit.noise * (1 / data.weight).diag()
    alpha = torch.linalg.solve(A, data.Y)

    def u(x):
        z, anchors = fit.chart(x), fit.chart(data.x)
        G = fit.operator.response(z, green.Point(anchors))
        return (G / unit(fit.operator, z.shape[1])) @ alpha

    h, G = 1e-5, torch.zeros(90, 5, dtype=torch.float64)
    for j in range(5):
        step = torch.zeros(5, dtype=torch.float64)
        step[j] = h
        with torch.no_grad():
            G[:, j] = ((u(data.x + step) - u(data.x - step)) / (2 * h))[:, 0]
    assert_allclose(gradients(data, fit).detach(), (G.mT @ G / 90).detach(), rtol=1e-4, atol=1e-6)


def test_the_same_kernel_at_another_scale_is_the_same():
    data = Data.of(torch.from_numpy(X), torch.from_numpy(y)[:, None])
    W = torch.randn(2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = CandidateFit(Searched("linear"), Linear(5, 2, W), green.Heat(0.5), 1e-2)
    same = allowed(found, green.Heat(3.0), None, data)
    assert_allclose(same.kernel(data.x), found.kernel(data.x), atol=1e-5)
    assert allowed(found, green.Matern(1.5, 1.0), None, data) is None
    assert allowed(found, None, 3, data) is None


# --- Chart, Source and Training


def test_a_name_stands_for_a_spec_without_settings():
    one = IGLRegressor("linear", random_state=0, training=Training(max_iter=3)).fit(X, y)
    other = IGLRegressor(Chart("linear"), random_state=0, training=Training(max_iter=3)).fit(X, y)
    assert (one.predict(X) == other.predict(X)).all()


def test_nested_parameters_are_reached_whether_or_not_there_is_a_spec():
    model = IGLRegressor("mlp").set_params(chart__pull=0.5, source__n_atoms=9, training__max_iter=2)
    assert (model.chart.kind, model.chart.pull, model.source.n_atoms) == ("mlp", 0.5, 9)
    again = clone(model).set_params(chart="linear", chart__start="pca")
    assert (again.chart.kind, again.chart.start) == ("linear", "pca")
    assert model.chart.start == "auto"
    with pytest.raises(ValueError, match="Invalid parameter"):
        IGLRegressor().set_params(source__width=3)


@pytest.mark.parametrize("kind", [IGLRegressor, IGLClassifier, IGLAutoencoder])
def test_options_on_one_level_and_back(kind):
    flat = {"chart": "mlp", "pull": 0.5, "start": "pca", "n_atoms": 7, "max_iter": 3}
    model = kind(**nested(flat))
    assert flat.items() <= on_one_level(model).items()
    assert settings_of(model).pull == 0.5
    assert settings_of(IGLRegressor()).chart == "auto"


@pytest.mark.parametrize(("name", "value"), [("source", 3), ("training", "fast"), ("source", {})])
def test_what_is_no_spec_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"`{name}` must be a {name.title()}\(...\) or None"):
        IGLRegressor(**{name: value}).fit(X, y)


def test_widths_and_shapes_are_those_asked_for():
    model = IGLRegressor(Chart("mlp", hidden=(5,)), training=Training(max_iter=1)).fit(X, y)
    assert [p.shape[0] for p in model.chart_.parameters() if p.ndim == 2] == [5, 2]
    images = np.hstack([X, X[:, :1]])
    IGLRegressor(Chart("conv", shape=(1, 2, 3)), training=Training(max_iter=1)).fit(images, y)
    with pytest.raises(ValueError, match="images of shape"):
        IGLRegressor(Chart("conv", shape=(1, 2, 2)), training=Training(max_iter=1)).fit(images, y)


@pytest.mark.parametrize("options", [{"gates": "learned"}, {"start": "pca", "pull": 1.0}])
def test_classes_have_what_numbers_have(options):
    model = IGLClassifier(Chart("mlp", **options), random_state=0, training=Training(n_restarts=2))
    assert model.fit(X, labels).score(X, labels) > 0.8


# --- what random fits found


def test_a_target_that_does_not_vary_has_no_source():
    both = np.stack([np.full(90, 1e4) + 1e-10 * X[:, 0], y], 1)
    model = IGLRegressor("warp", training=Training(mode="joint", max_iter=20)).fit(X, both)
    assert_allclose(model.predict(X)[:, 0], 1e4, rtol=1e-9)


@pytest.mark.parametrize("seed", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (1, 2))])
def test_a_handful_of_rows_does_not_run_away_between_them(seed):
    rows = np.array([[1, 2, 1], [0, 2, 0], [2, 2, 1], [1, 0, 0], [1, 1, 0], [2, 2, 0]])
    model = IGLAutoencoder(random_state=seed).fit(rows)
    between = (rows[:, None] + rows).reshape(-1, 3) / 2
    assert np.abs(model.predict(between)).max() < 100
    with pytest.warns(ConvergenceWarning, match="does not hold"):
        free = IGLAutoencoder(random_state=seed, source=Source(alpha=1e-12)).fit(rows)
    assert free.absolute_alpha_ < 1e-10


def test_a_source_that_runs_away_between_many_rows_is_held():
    """Noise at both ends of a line says nothing of its middle: the penalty grows until u is tame."""
    draws = torch.Generator().manual_seed(0)
    ends = torch.tensor([-1.0, 1.0], dtype=torch.float64).repeat(50)[:, None]
    x = ends + 0.05 * torch.rand(100, 1, generator=draws, dtype=torch.float64)
    Y = torch.randn(100, 1, generator=draws, dtype=torch.float64)
    model = IGL(nn.Identity(), green.Heat(0.5), Tied(x), n_dims=1, energy=True)
    loose = model.solve(x, Y, Ridge(1e-11, relative=False))
    model.w = loose.w
    assert model(halfway(x)).abs().max() > 100
    held = solution_of(model, Rows(x, Y), 1e-11, asked=False)
    model.w = held.w
    assert model(halfway(x)).abs().max() < 30
    assert held.alpha > loose.alpha

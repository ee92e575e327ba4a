"""What an operator sends to zero needs no source: fits have it exactly, whatever the penalty."""

from functools import cache

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from greenfold import (
    Chart,
    IGLAutoencoder,
    IGLClassifier,
    IGLRegressor,
    Source,
    Training,
    load,
    save,
)
from greenfold.frozen import frozen
from greenfold.green import (
    Cosine,
    Fractional,
    Heat,
    Interval,
    Poisson,
    Polynomial,
    Spectral,
    Superposition,
    operator,
)
from greenfold.model import IGL, Tied
from tests.nested import nested

rng = np.random.default_rng(0)
X = rng.normal(size=(50, 2))
D = torch.tensor([1.0, 3.0], dtype=torch.float64)

FREE = {
    "poisson": lambda: "poisson",
    "fractional": lambda: "fractional",
    "along axes": lambda: Poisson(diffusivity=D),
    "sum": lambda: Superposition([Poisson(), Fractional(0.5, diffusivity=D), Heat(0.5)]),
}
BOXES = {
    "periodic": lambda: Poisson(domain=Interval(-4, 4, "periodic")),
    "tube": lambda: Poisson(domain=(Interval(-4, 4, "neumann"), None)),
    "spectral": lambda: Spectral([Cosine(8), Cosine(8)]),
}
OPERATORS = FREE | BOXES


def regressor(case, **options):
    settings = {"chart": nn.Identity(), "operator": OPERATORS[case](), "random_state": 0}
    return IGLRegressor(**nested(**{**settings, "n_atoms": 12, "max_iter": 2, **options}))


@cache
def in_null_space(case):
    """A combination of all columns on the chart, which is the same for every target."""
    model = regressor(case).fit(X, X[:, 0])
    xi = torch.from_numpy(model.transform(X))
    N = operator(OPERATORS[case]()).null_space()(xi)
    return (N @ torch.linspace(1, 2, N.shape[1], dtype=torch.float64)).numpy()


LONG = {"sum", "periodic"}  # the others say the same


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=pytest.mark.slow) if c in LONG else c for c in OPERATORS]
)
def test_what_is_in_the_null_space_is_fitted_exactly(case, tmp_path):
    y = in_null_space(case)
    close = {"rtol": 0, "atol": 1e-8 * np.abs(y).max()}
    settings = [{"alpha": alpha} for alpha in (1e-6, 1e6, "evidence")]
    for options in (*settings, {"anchors": "free", "alpha": 1e6}, {"sparsity": 0.5}):
        model = regressor(case, **options).fit(X, y)
        assert_allclose(model.predict(X), y, err_msg=str(options), **close)
    assert_allclose(model.refit_source(X[:20], y[:20]).predict(X), y, **close)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert (again.predict(X) == model.predict(X)).all()
    more = again.partial_fit(X[:10], y[:10])
    assert_allclose(more.predict(X), y, **close)
    streamed = regressor(case, max_iter=None).fit_stream((X, y), epochs=0)
    assert_allclose(streamed.predict(X), y, rtol=0, atol=1e-6 * np.abs(y).max())


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=pytest.mark.slow) if c in LONG else c for c in FREE]
)
def test_an_exported_graph_has_the_null_space(case):
    y = in_null_space(case) + np.sin(2 * X[:, 0])
    model = regressor(case).fit(X, y)
    far = 5 * X
    assert_allclose(frozen(model)(torch.from_numpy(far)), model.predict(far), rtol=1e-9)


def test_an_operator_with_a_gap_has_a_constant_only():
    y = X[:, 0] + 3
    model = regressor("poisson", operator="heat", alpha=1e6).fit(X, y)
    assert_allclose(model.predict(X), y.mean(), atol=1e-3)


def test_an_autoencoder_on_the_axes_rebuilds_them():
    model = IGLAutoencoder(
        chart=Chart(nn.Identity(), start=None),
        operator="poisson",
        source=Source(n_atoms=9),
        training=Training(max_iter=1),
    )
    assert_allclose(model.fit(X).predict(X), X, atol=1e-8)


@pytest.mark.parametrize("loss", ["cross_entropy", "least_squares"])
def test_classes_on_both_sides_of_a_line(loss):
    """The line runs to infinity where classes are separable, but for the safeguard of the solver."""
    labels = X[:, 0] > X[:, 1]
    model = IGLClassifier(
        chart=nn.Identity(),
        operator="poisson",
        loss=loss,
        source=Source(n_atoms=9),
        training=Training(max_iter=2),
    )
    assert model.fit(X, labels).score(X, labels) > 0.95
    assert np.isfinite(model.predict_log_proba(20 * X)).all()


def test_the_columns_move_with_what_the_operator_learns():
    learned = Poisson(diffusivity=D, learn=True)
    x = torch.from_numpy(X)
    model = IGL(nn.Identity(), learned, Tied(x[:9]), n_dims=2)
    square = model.design(x).Phi[:, -1]
    (slope,) = torch.autograd.grad(square.sum(), [learned.log_diffusivity])
    assert_allclose(slope, -(x.square() / D).sum(0))
    with torch.no_grad():
        learned.log_diffusivity += 1
        assert_allclose(model.design(x).Phi[:, -1], square.detach() / np.e)


def test_columns_that_are_told_are_taken():
    x = torch.from_numpy(X)
    model = IGL(nn.Identity(), Poisson(), Tied(x[:9]), n_dims=2, null_space=Polynomial(2))
    assert model.n_null() == 6
    assert model.design(x).Phi.shape == (50, 9 + 6)


@pytest.mark.parametrize("name", ["poisson", "fractional"])
@pytest.mark.parametrize("n", [2, 3, 4, 6])
@pytest.mark.parametrize("chart", ["linear", "axis", "mlp"])
def test_few_rows_leave_a_constant(name, n, chart):
    """As many rows as columns tell nothing about the source."""
    rows, y = rng.normal(size=(n, 3)), rng.normal(size=n)
    model = IGLRegressor(
        chart=chart, operator=name, random_state=0, training=Training(max_iter=3)
    ).fit(rows, y)
    columns = operator(name).null_space()(torch.zeros(1, len(model.gates_))).shape[1]
    assert model.model_.n_null() == (columns if n > columns else 1)
    assert np.abs(model.predict(rows) - y.mean()).max() <= 2 * np.ptp(y)

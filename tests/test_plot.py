"""Static figures show the model's own numbers."""

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from numpy.testing import assert_allclose

from greenfold import Chart, IGLRegressor, IGLStack, Training, dimension, plot
from greenfold.green import OPERATORS

from .models import X, fitted, labels, regressor, y


@pytest.fixture(autouse=True)
def no_screen():
    before = mpl.get_backend()
    mpl.use("Agg")
    yield
    plt.close("all")
    mpl.use(before)


def test_the_chart_has_the_rows_and_their_colors():
    model = regressor()
    dots = plot.chart(model, X, y).collections[0]
    assert_allclose(dots.get_offsets(), model.transform(X))
    assert_allclose(dots.get_array(), y)
    named = plot.chart(fitted("classes"), X, labels)
    assert [t.get_text() for t in named.get_legend().get_texts()] == ["high", "low", "middle"]


@pytest.mark.parametrize("axes", [(0, 1), (2, 0)])
def test_source_and_response_are_the_models(axes):
    model = regressor(n_dims=3)
    atoms = plot.source(model, X, axes=axes).collections[0]
    mu = model.model_.atoms().mu.detach().numpy()
    assert_allclose(atoms.get_offsets(), mu[:, axes])
    assert_allclose(atoms.get_array(), model.source_[:, 0])
    panel = plot.response(model, X, axes=axes)
    mesh = panel.collections[0]
    x, across = mesh.get_coordinates()[30, 40]  # a corner of cells, between their centers
    place = model.transform(X).mean(0)
    place[list(axes)] = x, across
    cells = mesh.get_array().reshape(121, 121)[29:31, 39:41]
    u = model.model_.decode(torch.from_numpy(place[None])).item() * y.std() + y.mean()
    assert cells.mean() == pytest.approx(u, abs=0.01 * np.ptp(mesh.get_array()))


def test_a_summary_has_three_panels_over_one_region():
    panels = [ax for ax in plot.summary(regressor(), X, y).axes if ax.get_title()]
    assert len(panels) == 3
    assert len({panel.get_xlim() for panel in panels}) == 1


def test_gates_are_bars_or_their_way_through_training():
    bars = plot.gates(regressor()).patches
    assert [bar.get_height() for bar in bars] == [1.0, 1.0]
    model = IGLRegressor(
        chart=Chart("mlp", gates="learned"),
        n_dims=3,
        random_state=0,
        training=Training(objective="penalized", max_iter=15),
    ).fit(X, y)
    model.history_.film.gates[-1] = [0.5, 1.0, 0.0]
    ends = [line.get_ydata()[-1] for line in plot.gates(model).lines]
    assert ends == [0.5, 1.0, 0.0]


def test_greens_functions_of_all_operators_fall_off_from_the_source():
    panels = [ax for ax in plot.greens_functions().axes if ax.get_title()]
    assert {ax.get_title() for ax in panels} == {cls.__name__ for cls in OPERATORS.values()}
    for ax in panels:
        G = ax.lines[0].get_ydata()
        assert_allclose(G, G[::-1], rtol=1e-9)
        assert np.all(np.diff(G[len(G) // 2 :]) < 0)


def test_dimension_draws_a_report_and_refuses_anything_else():
    report = dimension(X[:, :2], interval=False, random_state=0)
    assert len(plot.dimension(report).axes) == 2
    with pytest.raises(ValueError, match="expected a DimensionReport"):
        plot.dimension(regressor())


def test_models_without_such_a_chart_are_refused():
    with pytest.raises(ValueError, match="got IGLStack"):
        plot.chart(IGLStack(), X)
    with pytest.raises(ValueError, match="the chart has 2"):
        plot.response(regressor(), X, axes=(0, 2))

"""Laws of `greenfold.dimension`: exact sampling laws, charts known to tear, targets known to be empty."""

import matplotlib as mpl
import numpy as np
import pytest
import torch

from greenfold import IGLAutoencoder, IGLRegressor, Training, dimension
from greenfold.dims.chart import LIMITS, Judge, Ladder
from greenfold.dims.graph import graph
from greenfold.dims.intrinsic import gride, plateau, scales
from greenfold.dims.paper import Halves, gates, knockout, nested
from greenfold.dims.ridge import KernelRidge, Spectrum
from greenfold.dims.task import enough, task

mpl.use("Agg")


def circle(n, rng):
    t = rng.uniform(0, 2 * np.pi, n)
    return np.stack([np.cos(t), np.sin(t)], 1)


def sphere(n, rng):
    X = rng.normal(size=(n, 3))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def cylinder(n, rng):
    return np.hstack([circle(n, rng), rng.uniform(-1, 1, (n, 1))])


def moons(n, rng):
    t, upper = rng.uniform(0, np.pi, n), np.arange(n) % 2 == 0
    above = np.stack([np.cos(t), np.sin(t)], 1)
    return np.where(upper[:, None], above, [1, 0.5] - above)


def roll(n, rng):
    t = 1.5 * np.pi * (1 + 2 * rng.uniform(size=n))
    return np.stack([t * np.cos(t), 21 * rng.uniform(size=n), t * np.sin(t)], 1)


def sheet(n, k, rng, noise=0.1):
    """A flat 3-dim sheet in R^8 and a target of its first k coordinates."""
    Q, _ = np.linalg.qr(rng.normal(size=(8, 3)))
    z = rng.uniform(-1, 1, (n, 3))
    u = np.sin(2 * z[:, 0]) + (np.cos(2.5 * z[:, 1]) if k > 1 else 0)
    y = (u - u.mean()) / u.std() if k else np.zeros(n)
    return z @ Q.T, y + (noise if k else 1.0) * rng.normal(size=n)


def scaled(X):
    X = X - X.mean(0)
    return X / np.sqrt((X**2).sum(1).mean())


# --- intrinsic


@pytest.mark.parametrize("n", [1, 2, 8])
@pytest.mark.parametrize("d", [1.0, 2.5, 9.0])
def test_most_likely_dimension_of_exact_ratios_is_theirs(n, d):
    """(r_n / r_2n)^d is Beta(n, n): the neighbors inside the last one are uniform in volume."""
    share = np.random.default_rng(0).beta(n, n, 20_000)
    estimate, error = gride(share ** (-1 / d), n)
    assert abs(estimate - d) < 3.5 * error
    assert error < 0.02 * d


def test_curvature_of_the_likelihood_is_its_second_derivative():
    mu = np.random.default_rng(0).beta(4, 4, 500) ** (-1 / 3.0)

    def log_likelihood(d):
        return (np.log(d) + 3 * np.log(mu**d - 1) - (7 * d + 1) * np.log(mu)).sum()

    d, error = gride(mu, 4)
    h = 1e-3
    second = (log_likelihood(d + h) - 2 * log_likelihood(d) + log_likelihood(d - h)) / h**2
    assert error == pytest.approx((-second) ** -0.5, rel=1e-3)


@pytest.mark.parametrize("d", [2, 5, 8])
def test_cubes_and_spheres_are_off_by_less_than_a_tenth(d):
    rng = np.random.default_rng(0)
    ball = rng.normal(size=(1000, d + 1))
    closed = ball / np.linalg.norm(ball, axis=1, keepdims=True)
    for X in (rng.uniform(size=(1000, d)), closed):
        assert plateau(scales(scaled(X))) == pytest.approx(d, rel=0.1)


def test_noise_shows_as_estimates_that_fall_with_distance():
    rng = np.random.default_rng(0)
    X = np.hstack([circle(1000, rng), np.zeros((1000, 3))]) + 0.01 * rng.normal(size=(1000, 5))
    curve = scales(scaled(X))
    assert curve[0].estimate > 2.5
    assert curve[-1].estimate < 1.5


# --- charts


def test_left_out_prediction_is_that_of_a_fit_without_the_row():
    rng = np.random.default_rng(0)
    Z, Y = rng.normal(size=(40, 2)), rng.normal(size=(40, 3))
    fit = KernelRidge.fit(Spectrum.of(Z, 0.7), Y)
    strength = np.diag(np.linalg.inv(fit.inverse) - fit.kernel(Z)).mean()
    z = Z + 0.1 * rng.normal(size=Z.shape)
    for i in (0, 17):
        rest = np.arange(40) != i
        A = fit.kernel(Z)[np.ix_(rest, rest)] + strength * np.eye(39)
        alone = fit.mean + fit.kernel(z[i : i + 1])[:, rest] @ np.linalg.solve(
            A, (Y - fit.mean)[rest]
        )
        np.testing.assert_allclose(fit.without(z)[i], alone[0], rtol=1e-6, atol=1e-8)


def test_jacobian_of_the_decoder_is_its_derivative():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(60, 2))
    fit = KernelRidge.fit(Spectrum.of(Z, 1.0), np.sin(Z @ rng.normal(size=(2, 4))))
    step = 1e-5 * np.eye(2)
    central = [(fit(Z + h) - fit(Z - h)) / 2e-5 for h in step]
    np.testing.assert_allclose(fit.jacobian(Z), np.stack(central, 2), rtol=1e-5, atol=1e-6)


def test_a_cut_hides_from_the_mean_error_but_not_from_the_tear():
    """Coordinates with a cut rebuild a cylinder exactly; a continuous map must tear to follow them."""
    rng = np.random.default_rng(0)
    X = cylinder(800, rng)
    flat = np.stack([np.arctan2(X[:, 1], X[:, 0]), X[:, 2]], 1)
    X = scaled(X)
    judge = Judge(X, graph(X, 8), rng)
    assert judge.trial("sharp", flat, flat).error < 1e-6
    assert judge.encoded("cut", flat).tear(judge.graph) > 2 * LIMITS.tear
    annulus = np.exp(0.4 * flat[:, 1:]) * np.stack([np.cos(flat[:, 0]), np.sin(flat[:, 0])], 1)
    whole = judge.encoded("annulus", annulus)
    assert whole.error < 1e-3
    assert whole.tear(judge.graph) < LIMITS.tear


@pytest.mark.parametrize(
    ("make", "intrinsic", "chart"),
    [
        (circle, 1, 2),
        (moons, 1, 1),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((sphere, 2, 3), (cylinder, 2, 2), (roll, 2, 2))
        ),
    ],
)
def test_a_chart_may_need_more_coordinates_than_the_data(make, intrinsic, chart):
    report = dimension(make(500, np.random.default_rng(1)), interval=False, random_state=0)
    assert (report.intrinsic.value, report.chart.value) == (intrinsic, chart)


@pytest.mark.slow
def test_the_bar_rises_with_the_noise():
    """Noise that no chart of two dimensions can rebuild leaves the chart dimension alone."""
    rng = np.random.default_rng(0)
    X = roll(1000, rng)
    report = dimension(X + 0.3 * rng.normal(size=X.shape), interval=False, random_state=0)
    assert report.chart.value == 2
    assert report.chart.curve[0]["error"] > 1e-3


def test_answers_ignore_rotation_shift_unit_and_repeated_rows():
    rng = np.random.default_rng(0)
    X = circle(300, rng)
    Q, _ = np.linalg.qr(rng.normal(size=(6, 2)))
    plain = dimension(X, interval=False, random_state=0)
    moved = dimension(np.repeat(1e6 * X @ Q.T + 3e6, 2, axis=0), interval=False, random_state=0)
    assert moved.intrinsic.value == plain.intrinsic.value == 1
    assert moved.chart.value == plain.chart.value == 2
    assert moved.intrinsic.estimate == pytest.approx(plain.intrinsic.estimate, rel=1e-6)


def test_charts_beyond_whitney_are_not_tried():
    X = scaled(np.random.default_rng(0).normal(size=(120, 10)))
    assert Ladder(X, 2.0, np.random.default_rng(0)).last == 5


# --- task


@pytest.mark.parametrize("k", [1, 2])
def test_task_needs_as_many_directions_as_the_target_has(k):
    X, y = sheet(200, k, np.random.default_rng(k))
    assert task(X, y[:, None], np.random.default_rng(0))[0] == k


@pytest.mark.parametrize("seed", range(3))
def test_pure_noise_needs_nothing(seed):
    X, y = sheet(100, 0, np.random.default_rng(seed))
    assert task(X, y[:, None], np.random.default_rng(0))[0] == 0


def test_what_a_direction_may_lose_grows_with_the_noise_of_y():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=2000)
    gap = 0.2 * np.sign(rng.normal(size=2000))  # what the second direction would add

    def value(level):
        errors = [gap + gap + level * noise, gap + level * noise, level * noise]
        return enough(np.stack(errors, 1) ** 2)[0]

    assert value(0.1) == 2
    assert value(20.0) == 0


def test_a_copied_row_does_not_predict_its_copy():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)), rng.normal(size=80)
    report = dimension(np.repeat(X, 3, 0), np.repeat(y, 3), interval=False, random_state=0)
    assert report.task.value == 0


# --- the paper's ways


def test_the_scale_of_the_encoder_cannot_undo_a_gate():
    X, y = sheet(200, 2, np.random.default_rng(0))
    fit = Halves(X, y[:, None], np.random.default_rng(0))
    gate = torch.tensor([1.0, 0.3, 0.0], dtype=torch.float64)
    before = float(fit.objective(gate).detach())
    with torch.no_grad():
        fit.model.encoder.weight.mul_(torch.tensor([[1.0], [50.0], [7.0]]))
    assert float(fit.objective(gate).detach()) == pytest.approx(before, rel=1e-9)


def test_a_closed_coordinate_is_as_good_as_absent():
    X, y = sheet(200, 2, np.random.default_rng(0))
    fit = Halves(X, y[:, None], np.random.default_rng(0))
    gate = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)
    before = fit.losses(gate)
    with torch.no_grad():
        fit.model.encoder.weight[2] = torch.randn(8, dtype=torch.float64)
    np.testing.assert_allclose(fit.losses(gate), before, rtol=1e-6)


@pytest.mark.parametrize("method", [pytest.param(gates, marks=pytest.mark.slow), knockout, nested])
@pytest.mark.parametrize("k", [0, 1])
def test_the_papers_ways_are_right_on_a_clean_sheet_and_on_noise(method, k):
    X, y = sheet(240, k, np.random.default_rng(0))
    assert method(X, y[:, None], np.random.default_rng(0))[0] == k


# --- the report


def test_refits_leave_the_value_alone_and_the_interval_holds_it():
    X = circle(200, np.random.default_rng(0))
    quick = dimension(X, interval=False, random_state=3)
    full = dimension(X, random_state=3, n_refits=3)
    assert quick.chart.value == full.chart.value
    assert quick.intrinsic.estimate == full.intrinsic.estimate
    assert quick.chart.low is None
    for answer in full:
        assert answer.low <= answer.value <= answer.high
        assert answer.coverage == 0.9
    assert len(full.chart.refits) == 3


def test_same_seed_same_report():
    X, y = sheet(120, 1, np.random.default_rng(0))
    first, second = (dimension(X, y, interval=False, random_state=0) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("X", [np.random.default_rng(0).normal(size=(30, 3)), np.ones((300, 3))])
def test_too_few_different_rows_cannot_tell(X):
    report = dimension(X, X[:, 0], random_state=0)
    assert [answer.value for answer in report] == [None, None, None]
    assert "cannot tell" in str(report)


def test_ten_points_cannot_tell_and_nan_is_refused():
    X = np.random.default_rng(0).normal(size=(10, 2))
    assert dimension(X).chart.value is None
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        dimension(X)


def test_a_constant_target_needs_nothing():
    X = np.random.default_rng(0).normal(size=(100, 2))
    report = dimension(X, np.full(100, 3.0), interval=False, random_state=0)
    assert report.task.value == 0
    assert "constant" in report.task.note


@pytest.mark.parametrize(
    "wrong", [{"method": "magic"}, {"through": "y"}, {"coverage": 1.5}, {"n_refits": 1}]
)
def test_wrong_arguments_are_named(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        dimension(np.zeros((60, 2)), **wrong)


def test_report_is_a_table_a_text_and_a_plot():
    X, y = sheet(150, 1, np.random.default_rng(0))
    report = dimension(X, y, interval=False, random_state=0)
    assert [row["name"] for row in report.table()] == ["intrinsic", "chart", "task"]
    assert [row["value"] for row in report.table()] == [answer.value for answer in report]
    assert "thresholds" in str(report)  # a sensitivity band is never called an interval
    assert "interval" not in str(report)
    assert len(report.plot().axes) == 3


# --- estimators


def test_estimators_keep_the_report_they_took_their_dimension_from():
    rng = np.random.default_rng(0)
    X, y = sheet(150, 1, rng)
    model = IGLRegressor(
        chart="linear", n_dims="auto", random_state=0, training=Training(max_iter=10)
    ).fit(X, y)
    assert model.dimension_.task.value == len(model.gates_) == 1
    coder = IGLAutoencoder(n_dims="auto", random_state=0, training=Training(max_iter=3)).fit(
        circle(150, rng)
    )
    assert coder.dimension_.chart.value == len(coder.gates_) == 2
    with pytest.raises(ValueError, match="auto"):
        IGLAutoencoder(n_dims="auto").fit(X[:30])

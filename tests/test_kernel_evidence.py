"""The evidence of exact Gaussian processes: one formula, its gradients, and rows left out."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.linalg import LinAlgError
from scipy.optimize import check_grad
from torch.testing import assert_close

from greenfold.chart import AxisScales
from greenfold.green.atoms import Point
from greenfold.learn.axes import Learned, Pairs, Rows, alike, learn_axes, loss_of
from greenfold.learn.candidates import RIGID, Fit, equal_scales, with_lines
from greenfold.learn.data import Data
from greenfold.learn.fit import judged
from greenfold.solve import criteria, kernel
from greenfold.solve.kernel import Evidence, kernel_evidence

ON_AXES = pytest.mark.parametrize("candidate", RIGID, ids=lambda c: c.name)


def table(n: int = 40, D: int = 3, c: int = 2) -> Data:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, D))
    Y = np.stack([np.abs(X[:, 0]) + X[:, 1], np.sin(X[:, 0] * X[:, 1])], 1)[:, :c]
    Y = (Y + 0.1 * rng.normal(size=Y.shape) - Y.mean(0)) / Y.std(0)
    weight = torch.from_numpy(rng.uniform(0.5, 2, n))
    return Data.of(torch.from_numpy(X), torch.from_numpy(Y), weight)


def point(candidate, data):
    """Some scales, shares and noise to look at."""
    D = data.x.shape[1]
    rng = np.random.default_rng(1)
    log_s = rng.normal(-0.5, 0.3, 1 if candidate.tied else D)
    logit = rng.normal(size=D if candidate.kernel.shares else 0)
    return Learned(log_s, logit, -2.0, math.inf, -1.0)


def rows(candidate, data):
    D = data.x.shape[1]
    ties = np.zeros(D, int) if candidate.tied else np.arange(D)
    gram = (data.x @ data.x.mT).numpy() / D
    return Rows(Pairs.of(data.x.numpy()), data.Y.numpy(), data.weight.numpy(), ties, gram)


def test_the_evidence_is_that_of_the_density():
    """−log N(y; 0, sA) at the best s, up to the constant ½(1 + log 2π)."""
    data = table(c=1)
    K = equal_scales(data).kernel(data.x)
    noise = 0.1 / data.weight.numpy()
    fit = kernel_evidence(K, data.Y.numpy(), noise)
    A = torch.from_numpy(K + 1 + np.diag(noise))
    normal = torch.distributions.MultivariateNormal(
        torch.zeros(len(A), dtype=torch.float64), float(fit.s[0]) * A
    )
    density = -float(normal.log_prob(data.Y[:, 0])) / len(A) - 0.5 * (1 + math.log(2 * math.pi))
    assert fit.value == pytest.approx(density, rel=1e-12)


@pytest.mark.parametrize("common", [False, True])
@pytest.mark.parametrize("small", [1.0, 1e-3, 0.0], ids=["alike", "without noise", "constant"])
def test_slopes_of_several_outputs_equal_numeric_ones(small, common):
    data = table()
    K, Y = equal_scales(data).kernel(data.x), data.Y.numpy() * [1.0, small]
    fit = kernel_evidence(K, Y, 0.1, common)
    along = np.random.default_rng(2).normal(size=K.shape)
    along = along @ along.T
    step = 1e-6
    ends = [kernel_evidence(K + t * along, Y, 0.1, common).value for t in (step, -step)]
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx((fit.slope() * along).sum(), rel=1e-5)


def test_an_output_without_noise_does_not_outvote_the_others(monkeypatch):
    """The best noise of two outputs is then that of the noisy one; evidences without end say none."""
    data = table()
    x, y = data.x, data.Y[:, 0].numpy()
    K = equal_scales(data).kernel(x)
    exact = K @ np.linalg.solve(K + 1e-9 * np.eye(len(K)), np.sin(x[:, 1].numpy()))
    grid = np.logspace(-9, 1, 41)

    def best(Y):
        return grid[np.argmin([kernel_evidence(K, Y, noise).value for noise in grid])]

    alone = best(y[:, None])
    assert alone > 1e-3
    assert best(np.stack([y, 1e-4 * exact], 1)) == pytest.approx(alone, rel=0.5)
    assert best(exact[:, None]) < 1e-6  # it is exact
    for module in (criteria, kernel):
        monkeypatch.setattr(module, "LEAST_SHARE", 0.0)
    assert best(np.stack([y, 1e-4 * exact], 1)) < alone / 2


@ON_AXES
def test_gradients_on_pairs_equal_numeric_ones(candidate):
    data = table()
    start = point(candidate, data)
    loss, theta = loss_of(candidate.kernel, rows(candidate, data), start), start.theta
    error = check_grad(lambda t: loss(t)[0], lambda t: loss(t)[1], theta, epsilon=1e-6)
    assert error < 1e-6 * max(1.0, float(np.linalg.norm(loss(theta)[1])))


@pytest.mark.parametrize(
    "candidate", [c for c in RIGID if not c.kernel.shares], ids=lambda c: c.name
)
@pytest.mark.parametrize("tied", [False, True])
def test_axes_of_one_scale_are_joined(candidate, tied):
    """Sums over them say the same, at a fraction of the numbers. Products with shares are no sums."""
    ties = np.array([0, 0, 1, 1, 1, 2])
    data = replace(table(D=len(ties)), ties=ties)
    log_s = np.random.default_rng(1).normal(-0.5, 0.3, 1 if tied else int(ties.max()) + 1)
    start = Learned(log_s, np.zeros(0), -2.0, math.inf, -1.0)
    apart = rows(candidate, data)._replace(ties=data.shared(tied))
    (value, slope), (other, along) = (
        loss_of(candidate.kernel, apart._replace(pairs=pairs), start)(start.theta)
        for pairs in (data.pairs, data.joined(tied))
    )
    assert value == pytest.approx(other, rel=1e-12)
    np.testing.assert_allclose(slope, along, rtol=1e-9, atol=1e-12)
    assert len(data.joined(tied).size) < len(data.pairs.size)


@ON_AXES
def test_a_kernel_on_pairs_is_its_operators_greens_function(candidate):
    data = table()
    at = point(candidate, data)
    D = data.x.shape[1]
    p = 1 / (1 + np.exp(-at.logit))
    pairs = Pairs.of(data.x.numpy())
    s = np.broadcast_to(at.s, (D,))
    k = candidate.kernel.value(pairs, s, p)
    k += np.exp(at.log_c) * rows(candidate, data).gram[np.triu_indices(len(data), 1)]
    chart = AxisScales(D, torch.from_numpy(at.s), tied=candidate.tied)
    operator = with_lines(candidate.operator(torch.from_numpy(p)), s, at.log_c)
    K = Fit(candidate, chart, operator, 1.0).kernel(data.x)
    np.testing.assert_allclose(k, K[np.triu_indices(len(K), 1)], rtol=1e-10, atol=1e-12)


@ON_AXES
def test_numbers_that_run_away_stay_where_an_operator_takes_them(candidate):
    data, at = table(), point(candidate, table())
    far = at._replace(log_s=at.log_s - 60, logit=at.logit + 60)
    end = learn_axes(candidate.kernel, rows(candidate, data), far, 2)
    candidate.operator(torch.from_numpy(1 / (1 + np.exp(-end.logit))))  # refuses shares of 0 and 1
    assert np.isfinite(end.loss)
    assert np.abs(end.log_s).max() <= 30


def test_a_few_columns_that_matter_do_not_move_the_others():
    """The price of one scale far away is its own: those that are alike are not drawn after it."""
    near = np.array([-0.1, 0.0, 0.0, 0.1, 0.05])
    _, slopes = alike(np.append(near, 4.0))
    _, alone = alike(near)
    np.testing.assert_allclose(slopes[:-1], alone, atol=0.1 * np.abs(alone).max())


@pytest.mark.parametrize("common", [False, True])
def test_autograd_sees_the_same_slope(common):
    data = table()
    z = data.x.clone().requires_grad_()
    log_noise = torch.tensor(-2.0, dtype=torch.float64, requires_grad=True)

    def value(z, log_noise):
        K = equal_scales(data).operator.response(z, Point(z))
        return Evidence.apply(K, log_noise, data.Y, data.weight, common)

    assert torch.autograd.gradcheck(value, (z, log_noise), atol=1e-7)


@ON_AXES
def test_learning_lowers_the_evidence_and_goes_on_where_it_was(candidate):
    data = table(80)
    start = equal_scales(data)
    few = candidate.learn(data, start, 2)
    more = candidate.learn(data, few, 10)
    assert more.evidence < few.evidence
    again = candidate.learn(data, more, 0)
    assert_close(again.chart.log_scale, more.chart.log_scale)


def test_rows_left_out_are_refitted_without_their_fold():
    data = table(30)
    fit = judged(equal_scales(data), data)
    K, noise, folds = fit.kernel(data.x), fit.noise / data.weight.numpy(), data.folds.numpy()
    for fold in range(3):
        own, rest = folds == fold, folds != fold
        known = kernel_evidence(K[np.ix_(rest, rest)], data.Y.numpy()[rest], noise[rest])
        expected = data.Y.numpy()[own] - (K[np.ix_(own, rest)] + 1) @ known.alpha
        np.testing.assert_allclose(fit.errors.numpy()[own], expected, rtol=1e-8, atol=1e-10)


def test_a_singular_covariance_is_refused_and_a_fit_survives_it():
    x = torch.zeros(20, 2, dtype=torch.float64)
    data = Data.of(x, torch.randn(20, 1, dtype=torch.float64))
    with pytest.raises(LinAlgError):
        kernel_evidence(np.ones((20, 20)), data.Y.numpy(), 0.0)
    fit = judged(Fit(RIGID[0], AxisScales(2), RIGID[0].operator(None), 1e-30), data)
    assert math.isfinite(fit.nats)
    assert fit.noise > 1e-20
    known = kernel_evidence(np.eye(20), data.Y.numpy(), 1.0)
    assert known.left_out(data.folds.numpy()).shape == (20, 1)

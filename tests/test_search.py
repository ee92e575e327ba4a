"""The search for a linear chart: evidence, its gradients, weights, and what it doubts."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.optimize import approx_fprime
from sklearn.exceptions import ConvergenceWarning

from greenfold import IGLRegressor
from greenfold.learn.search import search
from greenfold.learn.search.charts import Axes, Linear
from greenfold.learn.search.evidence import Fit, Rows, loss, optimize
from greenfold.learn.search.forecast import forecast
from greenfold.learn.search.kernels import contract, kernel_matrix
from greenfold.learn.search.starts import distinct, linear
from greenfold.solve.kernel import kernel_evidence

KERNELS = ["gaussian", "cauchy", "laplace"]
CHARTS = [Linear(2, 3), Axes(3), Axes(3, tied=True)]


def rows(n=20, q=3, outputs=1, seed=0):
    rng = np.random.default_rng(seed)
    weight = rng.uniform(0.3, 3, n)
    return Rows(rng.normal(size=(n, q)), rng.normal(size=(n, outputs)), weight / weight.mean())


@pytest.mark.parametrize("kernel", KERNELS)
def test_contraction_is_the_derivative_of_the_kernel(kernel):
    rng = np.random.default_rng(0)
    Z, M = rng.normal(size=(6, 2)), rng.normal(size=(6, 6))

    def value(z):
        """Σ_ij M_ij k(z_i, z_j), where only the first argument moves."""
        return (M * kernel_matrix(kernel, z.reshape(6, 2), Z)).sum()

    numeric = approx_fprime(Z.ravel(), value, 1e-6).reshape(6, 2)
    if kernel == "laplace":  # k is not smooth at z_i = z_j, where its derivative counts as 0
        np.fill_diagonal(M, 0)
        numeric = approx_fprime(Z.ravel(), value, 1e-6).reshape(6, 2)
    exact = contract(kernel, Z, kernel_matrix(kernel, Z, Z), M)
    np.testing.assert_allclose(exact, numeric, atol=1e-4)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("chart", CHARTS, ids=repr)
def test_gradient_of_the_weighted_evidence(kernel, chart):
    data = rows(outputs=2)
    size = {True: 1, False: 3}.get(getattr(chart, "tied", None), 6)
    params = np.append(np.random.default_rng(1).normal(size=size) / 2, np.log(0.1))
    fit = Fit(chart, params[:-1], params[-1], kernel, "")
    _, gradient = loss(params, fit, data)
    numeric = approx_fprime(params, lambda p: loss(p, fit, data)[0], 1e-6)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=2e-5)


def test_weights_are_repetitions_to_the_evidence():
    """Of n rows, one of weight 2 costs yᵀA⁻¹y what the row costs when it is there twice."""
    data = rows(8)
    twice = np.append(np.arange(8), 3)
    weight = np.ones(8)
    weight[3] = 2
    K = kernel_matrix("gaussian", data.X, data.X)
    alpha = kernel_evidence(K, data.Y, 0.1 / weight).alpha
    repeated = kernel_evidence(K[np.ix_(twice, twice)], data.Y[twice], 0.1).alpha
    np.testing.assert_allclose((data.Y * alpha).sum(), (data.Y[twice] * repeated).sum())


@pytest.mark.slow  # test_weights.py has the law for the estimators
def test_search_trusts_heavy_rows():
    """Half of the rows are noise; known by their weight, they do not hide the direction."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (160, 6))
    direction = np.linalg.qr(rng.normal(size=(6, 1)))[0][:, 0]
    y = np.sin(1.5 * X @ direction)
    y[80:] = rng.normal(size=80)
    weight = np.r_[np.ones(80), np.full(80, 1e-4)]

    def cosine(w):
        W = search(X, y, np.random.default_rng(0), weight=w)[0].W
        return np.linalg.norm(W @ direction) / np.linalg.norm(W)

    assert cosine(weight) > 0.9999
    assert cosine(None) < cosine(weight)


@pytest.mark.slow  # test_weights.py has the law for the estimators
def test_a_weight_of_two_is_nearly_a_row_twice():
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (120, 4))
    y = np.sin(X[:, 0] + X[:, 1]) + 0.2 * rng.normal(size=120)
    weight = rng.integers(1, 4, 120)
    again = np.repeat(np.arange(120), weight)
    weighted = IGLRegressor(random_state=0).fit(X, y, weight)
    repeated = IGLRegressor(random_state=0).fit(X[again], y[again])
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X))


def test_forecast_knows_that_the_chart_has_seen_the_rows():
    """A direction fitted to noise explains it with the chart held fixed, not with the chart free."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 12)), rng.normal(size=40)
    data = Rows(X, ((y - y.mean()) / y.std())[:, None], np.ones(40))
    start = np.linalg.lstsq(X, y, rcond=None)[0]
    fit = optimize(linear(start[None] / np.linalg.norm(start), ""), data, 50)
    told = forecast(fit, data, rival=0.0)
    assert told.free > 1.5 * told.fixed


def plane(n, hidden, target, noise=0.0, seed=0):
    """Two of the hidden coordinates matter, in R^30."""
    rng = np.random.default_rng(seed)
    z = rng.uniform(-2, 2, (n, hidden))
    y = target(z[:, 0], z[:, 1]) + noise * rng.normal(size=n)
    return z @ np.linalg.qr(rng.normal(size=(30, hidden)))[0].T, y


def smooth(a, b):
    return np.sin(2 * a) * np.cos(1.5 * b) + 0.5 * np.sin(a + b)


FAILED = {
    "a step in 10 dimensions": (100, 10, lambda a, b: np.sign(a + 0.5 * b)),
    "too few rows": (60, 20, smooth),
    "too few rows on the plane": (20, 2, smooth),
}
HONEST = {
    "no noise": (100, 10, smooth),
    "noise": (200, 10, smooth, 0.1),
    "as much noise as signal": (200, 2, smooth, 0.6),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", FAILED)
def test_a_failed_search_is_announced(case):
    with pytest.warns(ConvergenceWarning, match="the chart in use .* may be wrong: .* More rows"):
        IGLRegressor(random_state=0).fit(*plane(*FAILED[case]))


@pytest.mark.parametrize("case", HONEST)
def test_noise_is_no_failure(case):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        IGLRegressor(random_state=0).fit(*plane(*HONEST[case]))


def test_distinct_frequencies_are_the_first_that_differ_from_those_before():
    rng = np.random.default_rng(0)
    omega, sd = 0.4 * rng.normal(size=(300, 3)), np.array([1.0, 0.5, 2.0])
    chosen = distinct(omega, sd, 12)
    assert_array_equal(distinct(omega, sd, 5), chosen[:5])

    def apart(w, others):
        return all(np.linalg.norm((w + s * v) * sd) > 0.5 for v in others for s in (-1, 1))

    expected = []
    for w in omega:
        if apart(w, expected):
            expected.append(w)
    assert_array_equal(chosen, expected[:12])
    assert_array_equal(distinct(omega, sd, 300), expected)  # all there are


@pytest.mark.parametrize("effort", ["fast", "normal"])
def test_a_plane_is_found_with_little_effort_too(effort):
    rng = np.random.default_rng(3)
    P = np.linalg.qr(rng.normal(size=(12, 2)))[0]
    X = rng.uniform(-2, 2, (150, 12))
    z = X @ P
    y = np.sin(1.5 * z[:, 0]) + z[:, 1] ** 2 / 3
    W = search(X, y, np.random.default_rng(0), effort)[0].W
    assert len(W) == 2
    assert np.linalg.svd(W @ (np.eye(12) - P @ P.T))[1].max() < 1e-3 * np.linalg.svd(W)[1].min()

"""What must not change a prediction: units, offsets, the order of rows and columns, threads."""

import warnings
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from greenfold import IGLRegressor
from tests.nested import nested


def noisy(seed, D=8):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(450, D)) * np.linspace(1, 2, D)
    u = np.sin(X[:, 0] + 0.5 * X[:, 1]) + 0.3 * X[:, 2]
    return X[:150], u[:150] + 0.2 * rng.normal(size=150), X[150:], u[150:]


def error(X, y, X_new, u):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = IGLRegressor(random_state=0).fit(X, y)
    return np.sqrt(np.mean((model.predict(X_new) - u) ** 2))


@cache
def usual(seed):
    return error(*noisy(seed))


order = np.random.default_rng(7).permutation(150)
columns = np.random.default_rng(8).permutation(8)
CHANGES = {
    "X + 1e6": lambda X, y, Z, u: (X + 1e6, y, Z + 1e6, u, 1.0),
    "X * 1e9": lambda X, y, Z, u: (X * 1e9, y, Z * 1e9, u, 1.0),
    "y + 1e4": lambda X, y, Z, u: (X, y + 1e4, Z, u + 1e4, 1.0),
    "y * 1e-6": lambda X, y, Z, u: (X, y * 1e-6, Z, u * 1e-6, 1e-6),
    "rows permuted": lambda X, y, Z, u: (X[order], y[order], Z, u, 1.0),
    "columns permuted": lambda X, y, Z, u: (X[:, columns], y, Z[:, columns], u, 1.0),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_error_stays_within_five_percent(change, seed):
    data = noisy(seed)
    *changed, unit = CHANGES[change](*data)
    assert error(*changed) / unit == pytest.approx(usual(seed), rel=0.05)


@pytest.mark.slow  # test_state.py has fits in threads
def test_threads_do_not_matter():
    X, y, X_new, _ = noisy(2)
    before = torch.get_num_threads()
    predictions = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        with threadpool_limits(threads):
            predictions.append(IGLRegressor(random_state=0).fit(X, y).predict(X_new))
    torch.set_num_threads(before)
    np.testing.assert_allclose(predictions[1], predictions[0], rtol=1e-6, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"chart": "mlp", "max_iter": 20}], ids=repr)
def test_twenty_fits_with_one_seed_are_the_same_bits(options):
    X, y, X_new, _ = noisy(3)
    fits = [
        IGLRegressor(**nested(random_state=0, **options)).fit(X, y).predict(X_new)
        for _ in range(20)
    ]
    assert all((fit == fits[0]).all() for fit in fits)

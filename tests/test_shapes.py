"""Tables of odd shapes end in the right answer, or in an error that says what is wrong."""

import numpy as np
import pytest

from greenfold import IGLRegressor, IGLStack


def subjects(n, seed, m=42):
    """Rows of m persons: who, age, sex, time and three useless columns; y is exact, a line for each."""
    rng = np.random.default_rng(seed)
    age, sex = rng.uniform(40, 80, m).round(), rng.integers(0, 2, m)
    level, slope = 10 * rng.normal(size=m) + 30, 0.02 * rng.normal(size=m)
    who, time = rng.integers(0, m, n), rng.uniform(0, 200, n)
    X = np.column_stack([who, age[who], sex[who], time, rng.lognormal(size=(n, 3))])
    return X, level[who] + slope[who] * time


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator", [IGLStack, IGLRegressor])
def test_noise_free_columns_that_tell_rows_apart_are_fitted(estimator):
    """Scales grow until the kernel's rounding errors exceed the noise: then the noise is raised."""
    X, y = subjects(400, seed=1)
    model = estimator(random_state=0).fit(X[:200], y[:200])
    assert model.score(X[:200], y[:200]) > 0.99
    assert model.score(X[200:], y[200:]) > 0.5


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_a_stack_of_few_rows_passes_near_them(n):
    rng = np.random.default_rng(n)
    X, y = rng.normal(size=(n, 3)), rng.normal(size=n)
    model = IGLStack(effort="fast", random_state=0).fit(X, y)
    assert np.isfinite([standing.score for standing in model.standings_]).all()
    assert np.abs(model.predict(X) - y.mean()).max() <= 2 * np.ptp(y)
    assert np.abs(model.predict(100 + X) - y.mean()).max() <= 2 * np.ptp(y)

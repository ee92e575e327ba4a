"""The same predictions from fewer sources."""

import numpy as np
import pytest

from greenfold import IGLAutoencoder, IGLClassifier, IGLRegressor, IGLStack, load, save
from greenfold.cli.about import about


def smooth(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    u = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2]
    return X, u, u + 0.2 * rng.normal(size=n)


@pytest.mark.parametrize("kind", [IGLRegressor, IGLStack])
def test_numbers_are_the_same_to_a_share_of_the_error(kind, tmp_path):
    X, _, y = smooth(600)
    model = kind(random_state=0, effort="fast").fit(X, y)
    small = model.compress(tolerance=0.03)
    new, _, target = smooth(2000, seed=1)
    before, after = (np.sqrt(np.mean((m.predict(new) - target) ** 2)) for m in (model, small))
    assert abs(after / before - 1) < 0.045
    assert min(np.divide(about(small)["sources"], about(model)["sources"])) <= 0.5
    np.testing.assert_allclose(
        small.predict_interval(new)[1] - small.predict(new),
        model.predict_interval(new)[1] - model.predict(new),
        rtol=1e-3,
    )
    save(small, tmp_path / "m.greenfold")
    assert np.array_equal(load(tmp_path / "m.greenfold").predict(new), small.predict(new))
    small.report(tmp_path / "page.html")


def test_classes_by_their_probabilities():
    X, u, y = smooth(600)
    label = np.sin(6 * X[:, 0]) > X[:, 1] + 2 * (y - u)
    model = IGLClassifier(random_state=0, effort="fast").fit(X, label)
    small = model.compress(smooth(3000, seed=2)[0], tolerance=0.01)
    assert about(small)["sources"][0] <= about(model)["sources"][0] // 2
    P, Q = (m.predict_proba(smooth(1000, seed=1)[0]) for m in (model, small))
    assert np.sum(P * np.log(P / Q), 1).mean() < 0.01 * model.standings_[0].score


def test_what_needs_all_its_sources_says_so():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 1))
    y = np.sign(np.sin(40 * X[:, 0])) + 0.001 * rng.normal(size=300)
    model = IGLRegressor(random_state=0, effort="fast").fit(X, y)
    with pytest.warns(UserWarning, match="sources are needed"):
        same = model.compress(tolerance=1e-9)
    assert np.array_equal(same.predict(X), model.predict(X))


def test_what_cannot_be_compressed_is_refused():
    X, _, y = smooth(100)
    counts = IGLRegressor(likelihood="poisson", random_state=0, effort="fast").fit(X, y**2 // 1)
    with pytest.raises(ValueError, match="likelihood='gaussian'"):
        counts.compress()
    model = IGLRegressor(random_state=0, effort="fast").fit(X, y)
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.compress(tolerance=0)
    assert not hasattr(IGLAutoencoder(), "compress")


def test_a_linear_function_has_no_source_too_many():
    X, _, _ = smooth(100)
    model = IGLRegressor(random_state=0, effort="fast").fit(X, X @ [1.0, 2.0, 3.0])
    with pytest.warns(UserWarning, match="few already"):
        same = model.compress()
    assert np.array_equal(same.predict(X), model.predict(X))

"""A second instrument whose rows are scaled and shifted copies of the first one's."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import greenfold
from greenfold import IGLRegressor, Source, Training
from greenfold.learn.units import Scaling
from tests.test_wide import D, spectra

t = np.linspace(-1, 1, D)
SECOND = {
    "shifted": (1.0, 0.3 + 0.1 * t),
    "scaled and shifted": (1.2, 0.2 - 0.3 * t**2),
    "by channel": (1 + 0.05 * t, 0.1 * t),
}


@pytest.fixture(scope="module")
def first():
    X, y = spectra(80, bent=0.5)
    short = Training(max_iter=30)
    return IGLRegressor("linear", n_dims=2, source=Source(n_atoms=40), training=short).fit(X, y)


def rms(model, X, y):
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


@pytest.mark.parametrize("kind", SECOND)
def test_few_standards_correct_a_second_instrument(first, kind):
    slope, offset = SECOND[kind]
    standards, known = spectra(8, seed=1, bent=0.5)
    new, y = spectra(300, seed=2, bent=0.5)
    usual, before = rms(first, new, y), first.predict(new)
    other = first.transfer(slope * standards + offset, known)
    assert rms(first, slope * new + offset, y) > 5 * usual
    assert rms(other, slope * new + offset, y) < 2.5 * usual
    low, high = other.predict_interval(slope * new + offset, 0.1)
    assert ((low <= y) & (y <= high)).mean() > 0.75
    assert_array_equal(first.predict(new), before)
    assert other.model_ is first.model_


def test_what_needs_no_correction_gets_none(first):
    standards, known = spectra(6, seed=1, bent=0.5)
    other = first.transfer(standards, known)
    new, y = spectra(300, seed=2, bent=0.5)
    assert rms(other, new, y) < 1.1 * rms(first, new, y)


def test_intervals_widen_where_standards_err(first):
    standards, known = spectra(10, seed=1, bent=0.5)
    wrong = known + np.tile([1.0, -1.0], 5)  # no slope or offset makes up for that
    widths = [
        np.ptp(first.transfer(standards, y).predict_interval(standards, 0.1), axis=0).mean()
        for y in (known, wrong)
    ]
    assert widths[1] > 5 * widths[0]


def test_a_corrected_scaling_is_slope_and_offset_inside():
    rng = np.random.default_rng(0)
    scaling = Scaling(4.0, rng.normal(size=3), np.array([1.0, 2.0, 0.5]))
    X, offset = rng.normal(size=(5, 3)), rng.normal(size=3)
    other = scaling.corrected(1.3, offset)
    assert_allclose(other.inside(X), 1.3 * scaling.inside(X) + offset)
    assert_allclose(other.outside(other.inside(X)), X)


def test_files_keep_it_and_the_source_can_be_solved_for_again(first, tmp_path):
    slope, offset = SECOND["scaled and shifted"]
    X, y = spectra(30, seed=1, bent=0.5)
    X = slope * X + offset
    other = first.transfer(X[:8], y[:8])
    greenfold.save(other, tmp_path / "m.greenfold")
    assert_array_equal(greenfold.load(tmp_path / "m.greenfold").predict(X), other.predict(X))
    assert_allclose(
        other.loadings_, first.loadings_ * other.loadings_[0, 0] / first.loadings_[0, 0]
    )
    again = other.refit_source(X, y)
    assert np.isfinite(again.predict(X)).all()
    assert again.units_.x is other.units_.x


def test_what_cannot_be_transferred_is_refused(first):
    X, y = spectra(8, seed=1)
    with pytest.raises(ValueError, match="y has 2 columns, that of the first instrument 1"):
        first.transfer(X, np.column_stack([y, y]))
    free = IGLRegressor(
        "linear", source=Source("free", n_atoms=5), training=Training(max_iter=1)
    ).fit(X, y)
    with pytest.raises(ValueError, match="transfer needs sources that are tied"):
        free.transfer(X, y)

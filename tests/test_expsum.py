"""Exponential sums: the optimum is certified by its alternations, not believed."""

import numpy as np
import pytest

from greenfold.green import minimax, terms_for
from greenfold.green.expsum import FLOOR, remez, tables, tabulated_ratio

# Relative minimax errors of x^{-s} on [1, R], two printed digits, K = 4, 8, 12, 16, 24, 32; None is
# below what float64 resolves. Computed independently of this library.
PUBLISHED = {
    (1.0, 1e2): [1.0e-2, 2.0e-5, 3.3e-8, 5.3e-11, None, None],
    (1.0, 1e4): [1.6e-1, 5.3e-3, 1.6e-4, 4.3e-6, 3.1e-9, None],
    (1.0, 1e6): [4.5e-1, 4.5e-2, 4.1e-3, 3.5e-4, 2.4e-6, 1.5e-8],
    (0.25, 1e2): [1.3e-3, 1.5e-6, 1.8e-9, None, None, None],
    (0.25, 1e4): [2.6e-2, 5.3e-4, 1.2e-5, 2.6e-7, 1.4e-10, None],
    (0.25, 1e6): [9.0e-2, 5.7e-3, 3.8e-4, 2.6e-5, 1.3e-7, 6.8e-10],
    (0.5, 1e2): [3.4e-3, 4.6e-6, 6.4e-9, 8.8e-12, None, None],
    (0.5, 1e4): [6.3e-2, 1.5e-3, 3.7e-5, 8.8e-7, 5.1e-10, None],
    (0.5, 1e6): [2.0e-1, 1.5e-2, 1.1e-3, 8.3e-5, 4.6e-7, 2.6e-9],
    (1.5, 1e2): [2.1e-2, 5.5e-5, 1.1e-7, 2.0e-10, None, None],
    (1.5, 1e4): [2.8e-1, 1.2e-2, 4.4e-4, 1.4e-5, 1.2e-8, 9.1e-12],
    (1.5, 1e6): [6.5e-1, 9.0e-2, 9.8e-3, 9.6e-4, 7.9e-6, 5.8e-8],
    (2.0, 1e2): [3.7e-2, 1.3e-4, 3.0e-7, 6.2e-10, None, None],
    (2.0, 1e4): [4.0e-1, 2.3e-2, 9.6e-4, 3.5e-5, 3.6e-8, 3.2e-11],
    (2.0, 1e6): [8.0e-1, 1.5e-1, 1.9e-2, 2.1e-3, 2.1e-5, 1.8e-7],
}
TERMS = [4, 8, 12, 16, 24, 32]


def relative_error(a, gamma, power, x):
    return 1 - x**power * (gamma * np.exp(-a * x[:, None])).sum(1)


def alternations(a, gamma, power, high):
    """Heights of the error between its sign changes on [1, high]."""
    x = np.exp(np.linspace(0, np.log(high), 200_000))
    e = relative_error(a, gamma, power, x)
    pieces = np.split(e, np.flatnonzero(np.sign(e[1:]) != np.sign(e[:-1])) + 1)
    heights = np.array([np.abs(piece).max() for piece in pieces])
    return heights[heights > 1e-14]  # where the error crosses zero rounding changes its sign again


@pytest.mark.parametrize("ratio", [1e2, 1e4, 1e6])
@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(
    "n_terms", [k if k < 24 else pytest.param(k, marks=pytest.mark.slow) for k in TERMS]
)
def test_the_error_alternates_2k_plus_1_times_at_one_level(power, ratio, n_terms):
    """De la Vallée-Poussin: levels within 2% put the error within 2% of the best possible."""
    a, gamma, error = minimax(n_terms, ratio, power)
    a, gamma = a.numpy(), gamma.numpy()
    assert (a > 0).all()
    assert (gamma > 0).all()
    if error <= FLOOR:
        return  # the sum is the best one for a longer range: its alternations are not all in this one
    levels = alternations(a, gamma, power, ratio)
    assert len(levels) == 2 * n_terms + 1
    assert levels.max() <= 1.02 * levels.min()
    np.testing.assert_allclose(levels.max(), error, rtol=5e-3)


QUICK = {(1.0, 1e4)}  # the others take longer and say the same


@pytest.mark.parametrize(
    ("power", "ratio"),
    [at if at in QUICK else pytest.param(*at, marks=pytest.mark.slow) for at in PUBLISHED],
)
def test_errors_agree_with_the_published_table(power, ratio):
    for n_terms, printed in zip(TERMS, PUBLISHED[power, ratio], strict=True):
        error = minimax(n_terms, ratio, power).error
        if printed is None:
            assert error <= FLOOR
        else:  # half a unit of the second digit, and 2% for the level of the alternations there
            unit = 10 ** (np.floor(np.log10(printed)) - 1)
            assert abs(error - printed) <= 0.5 * unit + 0.02 * printed, (n_terms, error, printed)


@pytest.mark.parametrize(
    "n_terms",
    [
        k if k in (1, 2, 5, 13) else pytest.param(k, marks=pytest.mark.slow)
        for k in (1, 2, 3, 5, 7, 13, 20)
    ],
)
@pytest.mark.parametrize("power", [0.25, 0.7, 1.0, 1.9])
@pytest.mark.parametrize("ratio", [1.0, 1.5, 30.0, 3e5])
def test_the_reported_error_is_the_error(n_terms, power, ratio):
    a, gamma, error = minimax(n_terms, ratio, power)
    x = np.exp(np.linspace(0, np.log(ratio), 5001))
    measured = np.abs(relative_error(a.numpy(), gamma.numpy(), power, x)).max()
    assert measured <= error * (1 + 2e-3) + 1e-15


def test_more_terms_never_hurt():
    errors = [minimax(k, 1e4).error for k in range(1, 17)]
    assert (np.diff(errors) < 0).all()


@pytest.mark.parametrize(("power", "n_terms"), [(0.5, 8), (1.0, 16), (2.0, 12)])
def test_shipped_tables_are_what_the_routine_computes(power, n_terms):
    for row in (0, 13, 40):
        ratio = 2.0 ** ((row + 1) / 2)
        a, gamma, error = remez(n_terms, ratio, power)
        entry = tables()[power, n_terms][row]
        np.testing.assert_allclose(entry[-1], error, rtol=2e-3, atol=FLOOR)
        if error > 1e-9:
            np.testing.assert_allclose(entry[:n_terms], a, rtol=1e-4)
            np.testing.assert_allclose(entry[n_terms:-1], gamma, rtol=1e-4)


@pytest.mark.parametrize(("power", "n_terms"), tables())
def test_shipped_sums_have_the_error_they_state(power, n_terms):
    """Numbers are stored with the digits that they need: fewer where the sum itself is rough."""
    for row, entry in enumerate(tables()[power, n_terms]):
        x = np.exp(np.linspace(0, np.log(2) * (row + 1) / 2, 801))
        off = relative_error(entry[:n_terms], entry[n_terms:-1], power, x)
        assert np.abs(off).max() <= entry[-1] * (1 + 2e-3) + 1e-15


def test_tabulated_ratios_cover_what_is_asked():
    for ratio in np.exp(np.linspace(0.4, 20, 300)):
        covered = tabulated_ratio(ratio)
        assert ratio * (1 - 1e-8) <= covered <= 1.4143 * ratio


@pytest.mark.parametrize("power", [0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize(
    ("error", "ratio"),
    [(1e-2, 1e2), (1e-4, 1e4), (1e-6, 1e3), pytest.param(1e-9, 1e5, marks=pytest.mark.slow)],
)
def test_terms_for_reaches_the_error(power, error, ratio):
    assert minimax(terms_for(error, ratio, power), ratio, power).error <= error


def test_terms_for_above_power_one_is_the_smallest_from_the_rule_on():
    n_terms = terms_for(1e-5, 1e4, 2.0)
    assert minimax(n_terms - 1, 1e4, 2.0).error > 1e-5
    assert n_terms > terms_for(1e-5, 1e4, 1.0)  # where the rule for s ≤ 1 would stop short


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: minimax(8, 0.5), "`ratio` must be finite and at least 1, got 0.5"),
        (lambda: minimax(8, float("nan")), "`ratio`"),
        (lambda: minimax(8, 100.0, 3.0), r"`power` must lie in \[0.25, 2.0\], got 3.0"),
        (lambda: minimax(8, 100.0, 0.1), "`power`"),
        (lambda: minimax(0, 100.0), "`n_terms` must be a whole number from 1 to 64, got 0"),
        (lambda: minimax(2.5, 100.0), "`n_terms`"),
        (lambda: minimax(3, 1e12, 2.0), "Use more terms"),
        (lambda: terms_for(1e-14, 100.0), "`error`"),
        (lambda: terms_for(1e-3, 0.0), "`ratio`"),
        (lambda: terms_for(1e-3, 100.0, 0.1), "`power`"),
        (lambda: terms_for(1e-3, 100.0, float("nan")), "`power`"),
        (lambda: terms_for(1e-11, 1e30), "more than 64 terms"),
    ],
)
def test_bad_requests_are_explained(call, words):
    with pytest.raises(ValueError, match=words):
        call()

"""Sources found from readings: right ones, error bars that hold, alarms, and what is refused."""

import copy
import pickle
import runpy
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from greenfold import SourceFinder, load, save
from greenfold.green import Interval, Poisson, ScreenedPoisson, Transport
from greenfold.sources import Average, Flux, uncertainty
from greenfold.sources.readings import Readings
from greenfold.sources.uncertainty import gains, moran

UNIT = [[0.0, 0.0], [1.0, 1.0]]
AIR = Transport(3.0, wind=(2.0, 1.0))
PLACES = np.array([[0.25, 0.3], [0.7, 0.75], [0.3, 0.7]])
STRENGTHS = np.array([1.2, 0.9, 0.6])


def readings(seed, n=40, noise=0.02, operator=AIR, places=PLACES, strengths=STRENGTHS, width=0.03):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 1, (n, places.shape[1]))
    u = SourceFinder(operator, width=width).simulate(places, strengths, x)
    return x, u + noise * np.sqrt(np.mean(u**2)) * rng.normal(size=n)


def fit(seed=0, operator=AIR, **options):
    made = {k: options.pop(k) for k in ("n", "noise") if k in options}
    width = options.pop("width", 0.03)
    x, y = readings(seed, **made)
    return SourceFinder(operator, region=UNIT, width=width, **options).fit(x, y)


@pytest.fixture(scope="module")
def found():
    return fit()


# --- few sources


def test_without_noise_sources_are_where_they_are():
    finder = fit(noise=0.0)
    assert len(finder.sources_) == 3
    for source, place, strength in zip(finder.sources_, PLACES, STRENGTHS):
        assert_allclose(source.position, place, atol=1e-4)
        assert_allclose(source.strength, strength, rtol=1e-3)
    assert_allclose(finder.total_.value, STRENGTHS.sum(), rtol=1e-3)
    assert finder.check_.fine


def test_with_noise_they_are_within_their_error_bars():
    z, right = [], 0
    for seed in range(4):
        finder = fit(seed)
        right += len(finder.sources_) == 3
        if len(finder.sources_) == 3:
            order = [
                int(np.argmin(np.linalg.norm(PLACES - s.position, axis=1))) for s in finder.sources_
            ]
            for s, i in zip(finder.sources_, order):
                z += [
                    *((s.position - PLACES[i]) / s.position_std),
                    (s.strength - STRENGTHS[i]) / s.strength_std,
                ]
            z.append((finder.total_.value - STRENGTHS.sum()) / finder.total_.std)
    assert right >= 3
    assert 0.7 < np.sqrt(np.mean(np.square(z))) < 1.4


@pytest.mark.slow
def test_points_are_found_as_points():
    right = 0
    for seed in range(4):
        finder = SourceFinder(AIR, region=UNIT).fit(*readings(seed, width=None))
        places = np.array([s.position for s in finder.sources_])
        right += places.shape == (3, 2) and np.abs(places - PLACES).max() < 0.03
    assert right >= 3


def test_a_point_has_a_place_and_no_values():
    x, y = readings(0, n=20, places=PLACES[:1], strengths=STRENGTHS[:1], width=None)
    finder = SourceFinder(AIR, region=UNIT).fit(x, y)
    assert_allclose(np.array([s.position for s in finder.sources_]), PLACES[:1], atol=0.02)
    with pytest.raises(ValueError, match="point sources have no values: give `width`"):
        finder.source([[0.5, 0.5]])


@pytest.mark.slow
def test_covariance_is_that_of_refitted_worlds():
    """Deviations over fresh noise at the same sensors, against those that one fit states."""
    rng = np.random.default_rng(5)
    x, u = readings(5, noise=0.0)
    values, stated = [], []
    for _ in range(12):
        finder = SourceFinder(AIR, region=UNIT, width=0.03).fit(x, u + 0.005 * rng.normal(size=40))
        assert len(finder.sources_) == 3
        values.append([finder.total_.value, *finder.sources_[0].position])
        stated.append([finder.total_.std, *finder.sources_[0].position_std])
    ratio = np.std(values, axis=0, ddof=1) / np.median(stated, axis=0)
    assert ((ratio > 0.5) & (ratio < 1.7)).all()


def test_noise_alone_has_no_sources():
    x = np.random.default_rng(0).uniform(0, 1, (40, 2))
    finder = SourceFinder(AIR, region=UNIT, width=0.03).fit(
        x, np.random.default_rng(1).normal(size=40)
    )
    assert finder.sources_ == []
    assert finder.total_ == (0.0, 0.0)
    assert_array_equal(finder.predict(x), np.zeros(40))
    assert finder.noise_ == pytest.approx(1.0, rel=0.3)
    with pytest.raises(ValueError, match="no source was found"):
        finder.suggest(x)
    assert len(SourceFinder(AIR, width=0.03).fit(x, np.zeros(40)).sources_) == 0


def test_order_units_and_signs_do_not_matter(found):
    x, y = readings(0)
    shuffled = np.random.default_rng(0).permutation(len(y))
    for other, factor in (
        (SourceFinder(AIR, UNIT, width=0.03).fit(x[shuffled], y[shuffled]), 1),
        (SourceFinder(AIR, UNIT, width=0.03).fit(x, 1e6 * y), 1e6),
        (SourceFinder(AIR, UNIT, sign="negative", width=0.03).fit(x, -y), -1),
    ):
        for a, b in zip(found.sources_, other.sources_, strict=True):
            assert_allclose(b.position, a.position, atol=1e-5)
            assert_allclose(b.strength, factor * a.strength, rtol=1e-3)
            assert_allclose(b.strength_std, abs(factor) * a.strength_std, rtol=1e-3)


def test_sources_of_any_sign():
    x, y = readings(2, n=60, strengths=np.array([1.2, -0.9, 0.6]))
    finder = SourceFinder(AIR, UNIT, sign="any", width=0.03).fit(x, y)
    assert_allclose([s.strength for s in finder.sources_], [1.2, -0.9, 0.6], atol=0.2)


def test_a_weight_of_two_is_a_reading_taken_twice():
    x, y = readings(3)
    twice = np.arange(40) < 15
    weighed = SourceFinder(AIR, UNIT, width=0.03).fit(x, y, sample_weight=1.0 + twice)
    doubled = SourceFinder(AIR, UNIT, width=0.03).fit(
        np.vstack([x, x[twice]]), np.append(y, y[twice])
    )
    for a, b in zip(weighed.sources_, doubled.sources_, strict=True):
        assert_allclose(a.position, b.position, atol=1e-4)
    noisy = y.copy()
    noisy[:5] += 3.0
    off = SourceFinder(AIR, UNIT, width=0.03).fit(
        x, noisy, sample_weight=np.where(np.arange(40) < 5, 1e-9, 1)
    )
    assert_allclose(off.sources_[0].position, PLACES[0], atol=0.02)


def test_averages_and_fluxes_are_read_like_values():
    rng = np.random.default_rng(4)
    low = rng.uniform(0, 0.8, (25, 2))
    where = [Average(a, a + 0.2) for a in low]
    where += [Flux(p, int(i % 2)) for i, p in enumerate(rng.uniform(0, 1, (20, 2)))]
    where += list(rng.uniform(0, 1, (10, 2)))
    u = SourceFinder(AIR, width=0.03).simulate(PLACES, STRENGTHS, where)
    kind = np.repeat([0, 1, 2], [25, 20, 10])
    std = 0.01 * np.array([np.sqrt(np.mean(u[kind == k] ** 2)) for k in range(3)])[kind]
    finder = SourceFinder(AIR, UNIT, width=0.03)
    finder.fit(where, u + std * rng.normal(size=55), sample_weight=std**-2)
    assert_allclose(np.array([s.position for s in finder.sources_]), PLACES, atol=0.02)
    read, std = finder.predict(where, return_std=True)
    assert_allclose(read, u, atol=0.05 * np.abs(u).max())
    assert (std > 0).all()


def test_in_a_box():
    box = Transport(2.0, wind=(3.0, 0.0), domain=(Interval(0, 1), Interval(0, 1, "neumann")))
    x, y = readings(0, n=25, operator=box, places=PLACES[:1], strengths=STRENGTHS[:1])
    finder = SourceFinder(box, width=0.03, max_sources=2).fit(x, y)
    assert_array_equal(finder.region_, UNIT)
    with pytest.raises(ValueError, match="1 of 1 readings lie outside the walls"):
        finder.predict([[0.5, 1.1]])
    assert_allclose(np.array([s.position for s in finder.sources_]), PLACES[:1], atol=0.02)


def test_in_space():
    places = np.array([[0.3, 0.4, 0.5], [0.7, 0.6, 0.3]])
    space = Transport(3.0)
    x, y = readings(0, n=40, operator=space, places=places, strengths=STRENGTHS[:2])
    finder = SourceFinder(space, width=0.03).fit(x, y)
    assert_allclose(np.array([s.position for s in finder.sources_]), places, atol=0.04)


@pytest.mark.parametrize(
    "operator",
    [
        Transport(1.0, wind=(1.0, 0.5), release="instant", time=0.02),
        Transport(0.0, release="switched_on", time=0.1),
        Transport(1.0, wind=(2.0, 0.0), diffusivity=torch.tensor([[1.0, 0.3], [0.3, 0.5]])),
    ],
    ids=["instant", "switched on", "matrix"],
)
def test_releases_in_time_and_turned_axes(operator):
    x, y = readings(0, operator=operator, places=PLACES[:2], strengths=STRENGTHS[:2])
    finder = SourceFinder(operator, UNIT, width=0.03, max_sources=3).fit(x, y)
    assert_allclose(np.array([s.position for s in finder.sources_]), PLACES[:2], atol=0.03)


# --- physical numbers


def test_wind_and_decay_are_learned_beside_sources():
    finder = fit(1, operator=Transport(2.0), n=60, learn=("kappa", "wind"))
    assert len(finder.sources_) == 3
    truth = {"kappa": 3.0, "wind[0]": 2.0, "wind[1]": 1.0}
    assert finder.physics_.keys() == truth.keys()
    for name, value in truth.items():
        known = finder.physics_[name]
        assert abs(known.value - value) < 4 * known.std
        assert known.std < 0.2
    assert float(finder.operator_.kappa) == finder.physics_["kappa"].value
    assert float(finder.operator.kappa) == 2.0  # what was given stays


def test_diffusivity_is_learned_where_the_wind_is_known():
    start = Transport(3.0, wind=(2.0, 1.0), diffusivity=0.7)
    finder = fit(1, operator=start, n=60, learn="diffusivity")
    assert abs(finder.physics_["diffusivity"].value - 1.0) < 4 * finder.physics_["diffusivity"].std


# --- fields


def test_a_field_of_sources_and_its_error_bars():
    """Fields of bumps on a grid, of random strength: f and u within their deviations."""
    L, width = Transport(1.0, wind=(2.0, 0.0), domain=Interval(0, 1)), 0.2
    lines = np.linspace(0.1, 0.9, 5)
    bumps = np.stack(np.meshgrid(lines, lines), -1).reshape(-1, 2)
    z, errors = [], []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        x, q = rng.uniform(0, 1, (50, 2)), rng.normal(size=25)
        u = SourceFinder(L, width=width).simulate(bumps, q, x)
        finder = SourceFinder(L, kind="smooth").fit(x, u + 0.01 * u.std() * rng.normal(size=50))
        places = finder.places(100)
        shape = np.exp(-np.square(places[:, None] - bumps).sum(-1) / (2 * width**2))
        truth = shape @ q / (2 * np.pi * width**2)
        f, std = finder.source(places, return_std=True)
        z += [*((f - truth) / std)]
        errors.append(np.linalg.norm(f - truth) / np.linalg.norm(truth))
        mean, spread = finder.predict(x, return_std=True)
        assert np.mean(np.abs(mean - u) < 2 * spread) > 0.8
    assert np.median(errors) < 0.5
    assert 0.75 < np.mean(np.abs(z) < 1.645) < 0.99
    assert finder.check_.fine
    assert not hasattr(finder, "sources_")
    assert finder.suggest(places, 3, "field").indices.shape == (3,)


def test_the_textbook_case():
    """u″ = q from 100 readings of u = sin πx between Dirichlet ends."""
    x, fine = np.linspace(-1, 1, 102)[1:-1, None], np.linspace(-1, 1, 401)[:, None]
    truth = np.pi**2 * np.sin(np.pi * fine[:, 0])
    line = Transport(0.0, domain=Interval(-1, 1))

    def error(y):
        f = SourceFinder(line, kind="smooth").fit(x, y).source(fine)
        return np.linalg.norm(f - truth) / np.linalg.norm(truth)

    u = np.sin(np.pi * x[:, 0])
    assert error(u) < 2e-4
    noisy = [error(u + 0.01 * np.random.default_rng(s).normal(size=100)) for s in range(5)]
    assert np.median(noisy) < 2e-2


# --- doubts


@pytest.mark.filterwarnings("ignore:. of . sources lie on the edge")
def test_residuals_of_a_wrong_model_are_alike():
    with pytest.warns(UserWarning, match="residuals of neighbors are alike"):
        finder = fit(operator=Transport(3.0, wind=(-2.0, -1.0)), n=80, noise=0.05)
    assert not finder.check_.fine
    assert fit(n=80, noise=0.05).check_.fine


def test_the_measure_of_likeness_is_standard_for_noise(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (60, 2))
    Q = np.linalg.qr(rng.normal(size=(60, 9)))[0]
    for Z in (Q, Q * np.sqrt(np.linspace(0.1, 1, 9))):  # fitted, and shrunk
        for most in (60, 40):
            monkeypatch.setattr(uncertainty, "MOST", most)
            noise = rng.normal(size=(400, 60))
            z = [moran(x, e - Z @ (Z.T @ e), Z).z for e in noise]
            assert abs(np.mean(z)) < 0.15
            assert np.std(z) == pytest.approx(1.0, abs=0.12)
            wave = np.sin(5 * x[:, 0])
            assert moran(x, wave - Z @ (Z.T @ wave), Z).z > 4


@pytest.mark.filterwarnings("ignore:residuals of neighbors")
def test_sources_on_the_edge_are_announced():
    x, y = readings(0)
    with pytest.warns(UserWarning, match="on the edge of `region`"):
        SourceFinder(AIR, region=[[0.35, 0.35], [1.0, 1.0]], width=0.03).fit(x, y)


# --- the next reading


def test_gains_are_those_of_refactoring():
    rng = np.random.default_rng(0)
    J, new, c = rng.normal(size=(30, 7)), rng.normal(size=(5, 7)), rng.normal(size=(2, 7))
    noise, S = 0.3, 0.3 * np.linalg.inv(J.T @ J)
    for j, gain in zip(new, gains(S, noise, new, c)):
        after = noise * np.linalg.inv(J.T @ J + np.outer(j, j))
        exact = np.trace(c @ (S - after) @ c.T)
        assert abs(gain / exact - 1) < 1e-12


@pytest.mark.parametrize("target", ["total", "sources", "field"])
def test_suggestions_do_better_than_chance(found, target):
    candidates = np.random.default_rng(1).uniform(0, 1, (200, 2))
    best = found.suggest(candidates, 5, target)
    others = [found.suggest(candidates[i : i + 5], 5, target).std[-1] for i in range(0, 200, 5)]
    assert best.std[-1] < min(others)
    assert (np.diff(best.std) <= 1e-12).all()


def test_the_stated_deviation_comes_true(found):
    """The total after reading what was suggested, against the suggestion's word."""
    x, y = readings(0)
    candidates = np.random.default_rng(1).uniform(0, 1, (200, 2))
    plan = found.suggest(candidates, 10)
    more = candidates[plan.indices]
    u = SourceFinder(AIR, width=0.03).simulate(PLACES, STRENGTHS, more)
    u = u + found.noise_ * np.random.default_rng(2).normal(size=10)
    after = SourceFinder(AIR, UNIT, width=0.03).fit(np.vstack([x, more]), np.append(y, u))
    assert after.total_.std == pytest.approx(plan.std[-1], rel=0.5)
    assert after.total_.std < found.total_.std


# --- an estimator like others


def test_saved_pickled_and_copied(found, tmp_path):
    where = [[0.5, 0.5], Average([0.1, 0.1], [0.3, 0.4]), Flux([0.2, 0.6], 1)]
    smooth = SourceFinder(AIR, UNIT, kind="smooth", width=0.25).fit(*readings(0, n=20))
    for finder in (found, smooth):
        save(finder, tmp_path / "sources.greenfold")
        for again in (
            load(tmp_path / "sources.greenfold"),
            pickle.loads(pickle.dumps(finder)),
            copy.deepcopy(finder),
        ):
            for a, b in zip(
                finder.predict(where, return_std=True), again.predict(where, return_std=True)
            ):
                assert_array_equal(a, b)
            assert_array_equal(again.covariance_, finder.covariance_)
            assert again.check_ == finder.check_


def test_cloned_and_scored(found):
    other = clone(found)
    assert not hasattr(other, "sources_")
    assert other.get_params().keys() == found.get_params().keys()
    assert other.operator is not found.operator
    assert found.score(*readings(0)) > 0.9
    assert "width=0.03" in repr(found)


@pytest.mark.slow
def test_readings_left_out_are_predicted():
    scores = cross_val_score(SourceFinder(AIR, UNIT, width=0.03), *readings(0, n=60), cv=3)
    assert (scores > 0.9).all()


def test_a_fit_repeats_itself_and_leaves_the_operator(found):
    x, y = readings(0)
    operator = copy.deepcopy(AIR)
    again = SourceFinder(operator, UNIT, width=0.03).fit(x, y)
    assert_array_equal(again.covariance_, found.covariance_)
    assert operator.extent == AIR.extent
    assert all(torch.equal(a, b) for a, b in zip(operator.parameters(), AIR.parameters()))


def test_intervals_are_students(found):
    bounds = found.interval(0.9)
    assert bounds["position"].shape == (3, 2, 2)
    assert bounds["strength"].shape == (3, 2)
    half = np.diff(bounds["total"])[0] / 2 / found.total_.std
    assert half == pytest.approx(1.6955, abs=2e-3)  # t of 40 − 9 degrees
    assert np.diff(found.interval(0.5)["total"])[0] < np.diff(bounds["total"])[0]


def test_responses_are_columns_of_unit_sources(found):
    places = np.array([[0.2, 0.3], [0.6, 0.6]])
    one = found.responses(places)
    alone = SourceFinder(AIR, width=0.03).simulate(places, [1.0, 0.0], found.readings_.middle)
    assert_allclose(one[:, 0], alone, rtol=1e-5)


def test_figures(found, tmp_path):
    field = SourceFinder(AIR, UNIT, kind="smooth", width=0.25).fit(*readings(0, n=20))
    for finder in (found, field):
        finder.plot().savefig(tmp_path / "figure.png")
        assert (tmp_path / "figure.png").stat().st_size > 10_000
    line = SourceFinder(Transport(2.0), width=0.05)
    x = np.linspace(0, 1, 20)[:, None]
    line.fit(x, line.simulate([[0.4]], [1.0], x)).plot()
    with pytest.raises(ValueError, match="the page is a map of 2 or 3 coordinates"):
        line.report(tmp_path / "page.html")
    with pytest.raises(ValueError, match="`axes` must be 1 for kind='sparse', got 2"):
        found.plot(plt.subplots(1, 2)[1])
    plt.close("all")


# --- refusals


X, Y = readings(0)
BOXED = Transport(1.0, domain=Interval(0, 1))


def nan(y):
    return np.where(np.arange(len(y)) == 3, np.nan, y)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: SourceFinder(BOXED).fit(X + 0.5, Y), "readings lie outside the walls .* units"),
        (lambda: SourceFinder(BOXED, region=[[0, 0], [2, 1]]).fit(X, Y), "inside the walls"),
        (
            lambda: SourceFinder(AIR).fit(X, nan(Y)),
            "`readings` must be finite, got NaN .* in 1 of 40",
        ),
        (
            lambda: SourceFinder(AIR).fit(np.where(X > 0.9, np.inf, X), Y),
            "`positions` must be finite",
        ),
        (lambda: SourceFinder(AIR).fit(X, Y[:5]), r"`readings` must have shape \(40,\)"),
        (lambda: SourceFinder(AIR).fit(np.ones((9, 4)), np.ones(9)), "places have 1 to 3"),
        (lambda: SourceFinder(AIR).fit(X[:, 0], Y), r"must have shape \(n, d\)"),
        (lambda: SourceFinder(AIR).fit(X[:3], Y[:3]), "one source has 3 unknowns .* at least 4"),
        (
            lambda: SourceFinder(AIR, learn=("kappa", "wind")).fit(X[:6], Y[:6]),
            "`learn` adds 3, and there are 6 readings; at least 7",
        ),
        (lambda: SourceFinder(AIR, learn=("speed",)).fit(X, Y), "`learn` takes"),
        (
            lambda: SourceFinder(AIR, kind="smooth", learn="kappa").fit(X, Y),
            "cannot be told beside",
        ),
        (lambda: SourceFinder(AIR, kind="smooth", sign="positive").fit(X, Y), "may have any sign"),
        (
            lambda: SourceFinder(AIR, learn=("kappa", "wind", "diffusivity")).fit(X, Y),
            "tells κ²/D, v/D and strength/D, not D itself",
        ),
        (
            lambda: SourceFinder(Transport(2.0), learn=("kappa", "diffusivity")).fit(X, Y),
            "not D itself",
        ),
        (lambda: SourceFinder(Transport(0.0, wind=1.0), learn="kappa").fit(X, Y), "first guess"),
        (
            lambda: SourceFinder(
                Transport(1.0, domain=Interval(0, 1, "neumann")), learn="wind"
            ).fit(X, Y),
            "there is none to learn",
        ),
        (lambda: SourceFinder(AIR, kind="dense").fit(X, Y), "`kind` must be"),
        (lambda: SourceFinder(AIR, sign="both").fit(X, Y), "`sign` must be one of"),
        (lambda: SourceFinder(AIR, width=0.0).fit(X, Y), "`width` must be positive"),
        (lambda: SourceFinder(AIR, max_sources=0).fit(X, Y), "`max_sources`"),
        (lambda: SourceFinder(AIR, region=[[0, 0]]).fit(X, Y), "`region` must be finite of shape"),
        (lambda: SourceFinder(AIR, region=[[1, 1], [0, 0]]).fit(X, Y), "low < high"),
        (lambda: SourceFinder(ScreenedPoisson()).fit(X, Y), r"must be a green.Transport.*a mesh"),
        (lambda: SourceFinder(Poisson()).fit(X, Y), r"are Transport\(kappa\)"),
        (lambda: SourceFinder("transport").fit(X, Y), "must be a green.Transport, got str"),
        (lambda: SourceFinder(AIR, kind="smooth", width=1e-3).fit(X, Y), "more than 900 of them"),
        (lambda: SourceFinder(AIR).fit(X, Y, -np.ones(40)), "Negative values in"),
        (lambda: SourceFinder(AIR).predict(X), "not fitted"),
        (lambda: Readings.of([Average([0, 0], [1, -1])]), "low ≤ high"),
        (lambda: Readings.of([Average([0, 0], [1, 1, 1])]), "differ in length"),
        (lambda: Readings.of([Flux([0, 0], 2)]), "an axis from 0 to 1, got 2"),
        (lambda: Readings.of([[0.0], Flux([0, 0], 1)]), "different numbers of coordinates"),
        (lambda: Interval(0, 1, "open"), "unknown boundary 'open'"),
    ],
)
def test_errors_say_what_to_do(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f: f.predict(X[:, :1]), "have 1 coordinates, expected 2"),
        (lambda f: f.suggest(X, 1, "all"), "`target` must be one of"),
        (lambda f: f.suggest(X, 0), "`n` must be at least 1"),
        (lambda f: f.interval(1.5), "`level`"),
        (lambda f: f.simulate(PLACES, [1.0], X), r"`strengths` must have shape \(3,\)"),
        (lambda f: f.report("x.html", names=["a"]), "`names` must have 2 entries"),
    ],
)
def test_questions_to_a_fit_are_checked(found, call, words):
    with pytest.raises(ValueError, match=words):
        call(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "n", "noise", "least"), [(2, 100, 0.05, 0.95), (2, 40, 0.01, 0.95), (3, 40, 0.05, 0.75)]
)
def test_counts_and_cover_in_random_worlds(d, n, noise, least):
    """Forty worlds of `make bench-sources`."""
    path = Path(__file__).parent.parent / "benchmarks" / "sources.py"
    bench = runpy.run_path(str(path), run_name="bench")
    one, FREE = bench["one"], bench["FREE"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = [one(seed, d, n, noise, FREE)[0] for seed in range(500, 540)]
    assert np.mean([r["right"] for r in rows]) >= least
    for name in ("cover_position", "cover_strength", "cover_total"):
        assert 0.8 < np.mean([r[name] for r in rows if name in r]) < 0.99
    assert sum(r["alarm"] for r in rows) <= 2

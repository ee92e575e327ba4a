"""The race: what competes, how it is judged, and who wins."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from greenfold import IGLRegressor, IGLStack
from greenfold.chart import AxisScales, Linear, Mixed, Warp
from greenfold.learn.candidates import (
    AXIS_RQ,
    CLASSES,
    FREE,
    KERNELS,
    OPENING,
    RIGID,
    Fit,
    Searched,
    cauchy,
    equal_scales,
)
from greenfold.learn.choice import average, best, difference, loss
from greenfold.learn.data import PARTS, Data, categories
from greenfold.learn.fit import anchored, judged, refined, solved, unscaled
from greenfold.learn.judges import Indicators
from greenfold.learn.race import EFFORTS, Race, Schedule, one_by_one, race, silent
from greenfold.learn.search.evidence import Rows, optimize
from greenfold.learn.search.starts import linear
from greenfold.learn.searched import explained, on_axes, scales_columns, searched, verified
from greenfold.learn.turned import TURNED
from greenfold.learn.wide import LINES, wide
from greenfold.solve import SolveError

BY_NAME = {candidate.name: candidate for candidate in (*RIGID, *FREE, TURNED)}
USUAL = next(candidate for candidate in RIGID if candidate.usual)


def rough(n, seed=0, weighted=False):
    """A rough function of two inputs; the other two do not matter."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 4))
    y = np.abs(X[:, 0]) + np.sin(3 * X[:, 1]) + 0.1 * rng.normal(size=n)
    weight = torch.from_numpy(rng.uniform(0.5, 1.5, n)) if weighted else None
    Y = torch.from_numpy((y - y.mean()) / y.std())[:, None]
    return Data.of(torch.from_numpy(X - X.mean(0)), Y, weight)


def small(*names, rows=(60, 60, 60), judges=60, refine=0):
    pool = tuple(BY_NAME[name] for name in names)
    return Schedule(pool, rows, (8, 5, 5), judges, refine, 100)


def fit_of(candidate, nats, price=0.0):
    return Fit(
        candidate,
        AxisScales(2),
        candidate.operator(torch.full((2,), 0.5)),
        1.0,
        nats=nats,
        price=price,
    )


# --- candidates


@pytest.mark.parametrize("candidate", FREE, ids=lambda c: c.name)
def test_every_free_candidate_improves_its_evidence_and_leaves_its_start_alone(candidate):
    data = rough(60)
    start = AXIS_RQ.learn(data, equal_scales(data), 10)
    before = start.chart.log_scale.detach().clone()
    once = candidate.learn(data, start, 1)
    more = candidate.learn(data, once, 10)
    assert more.evidence < once.evidence
    assert_array_equal(start.chart.log_scale.detach(), before)


@pytest.mark.parametrize("kind", [IGLRegressor, IGLStack])
def test_a_target_without_noise_leaves_the_other_as_it_is(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = np.sin(X[:, 0]) + 0.25 * X[:, 1] ** 2 + 0.3 * rng.normal(size=600)
    Y, n = np.stack([y, X[:, 0]], 1), 150
    alone = kind(random_state=0, effort="fast").fit(X[:n], y[:n])
    both = kind(random_state=0, effort="fast").fit(X[:n], Y[:n])
    u = both.predict(X[n:])
    error = ((u[:, 0] - y[n:]) ** 2).mean()
    assert error < 1.1 * ((alone.predict(X[n:]) - y[n:]) ** 2).mean()
    assert ((u[:, 1] - X[n:, 0]) ** 2).mean() < 1e-3
    assert_allclose(both.predict(X[n : n + 1]), u[:1], atol=1e-9)


def test_axis_scales_close_the_inputs_that_do_not_matter():
    data = rough(200)
    start = AXIS_RQ.learn(data, equal_scales(data), 25)
    s = AXIS_RQ.learn(data, start, 30).chart.scale.detach()
    assert float(s[:2].min()) > 4 * float(s[2:].max())


@pytest.mark.parametrize("factor", [3.0, 1 / 3])
@pytest.mark.parametrize("name", ["axis.l1", "axis.rq", "anova.l1", "iso.l1"])
def test_refined_scales_do_better_on_rows_held_out(name, factor):
    """From scales that are wrong by a factor, and all by one number."""
    data = rough(150, weighted=True)
    right = BY_NAME[name].learn(data, AXIS_RQ.learn(data, equal_scales(data), 15), 15)
    chart = AxisScales(4, right.chart.scale.detach() * factor, tied=name == "iso.l1")
    wrong = replace(right, chart=chart)
    before = chart.log_scale.detach().clone()
    fit = refined(wrong, data, 16)
    assert fit.nats < judged(wrong, data).nats
    assert_allclose(judged(fit, data).nats, fit.nats, rtol=1e-9)
    moved = (fit.chart.log_scale - before).detach()
    assert_allclose(moved, moved.mean(), atol=1e-12)
    assert_array_equal(wrong.chart.log_scale.detach(), before)


@pytest.mark.parametrize(
    "chart",
    [
        lambda s: AxisScales(4, s),
        lambda s: AxisScales(4, s.mean(), tied=True),
        lambda s: Linear(4, 2, torch.randn(2, 4, dtype=torch.float64)),
        Mixed,
        lambda s: Warp(4, scale=s),
    ],
)
def test_a_chart_of_scaled_inputs_is_a_chart_of_the_inputs(chart):
    x, sd = torch.randn(9, 4, dtype=torch.float64), torch.tensor([1.0, 2.0, 3e-3, 1e4]).double()
    encoder = chart(torch.tensor([0.5, 1.0, 2.0, 0.1], dtype=torch.float64))
    with torch.no_grad():
        for p in encoder.parameters():
            p += 0.1
        assert_allclose(unscaled(encoder, sd)(x * sd), encoder(x), rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_source_on_anchors_is_that_of_the_kernel_where_every_row_is_one(weighted):
    """Left-out errors of the exact kernel are those of the model that is then solved for."""
    data = rough(60, weighted=weighted)
    fit = judged(AXIS_RQ.learn(data, equal_scales(data), 15), data, scan=True)
    model = anchored(
        replace(fit, noise=1e-9), data.x, 60
    )  # so little noise that all rows are anchors
    weight = data.weight if weighted else None
    solution = solved(model, data.x, data.Y, weight, fit.noise)
    with torch.no_grad():
        design = model.design(data.x)
        K = torch.from_numpy(fit.kernel(data.x))
    noise = float(solution.alpha) / float(model.unit())
    A = K + (noise / data.weight).diag()
    ones = torch.ones(60, 1, dtype=torch.float64)
    inverse = torch.linalg.inv(A)
    mean = (ones.T @ inverse @ data.Y) / (ones.T @ inverse @ ones)  # free, as in the model
    u = mean + K @ inverse @ (data.Y - mean)
    assert_allclose(design.Phi @ solution.w, u, atol=1e-5)


# --- who wins


@pytest.mark.parametrize(
    ("rival", "price", "n", "wins"),
    [
        (0.99, 0.0, 100, False),  # ahead by 1%, and chance is 2.5%
        (0.96, 0.0, 100, True),
        (0.99, 0.0, 10_000, True),
        (0.90, 0.5 * np.log(4 / 3), 100, False),  # many numbers learned from the rows that judge
        (0.80, 0.5 * np.log(4 / 3), 100, True),
    ],
)
def test_the_usual_candidate_wins_unless_another_is_ahead_by_more_than_chance(
    rival, price, n, wins
):
    usual, other = fit_of(USUAL, 0.0), fit_of(AXIS_RQ, np.log(rival), price)
    assert (best([usual, other], blank(n)) is other) == wins
    assert (best([other, usual], blank(n)) is other) == wins


def blank(n):
    rows = torch.arange(2.0 * n, dtype=torch.float64).reshape(n, 2) - n + 0.5
    return Data.of(rows, rows[:, :1] / rows[:, 0].std())


@pytest.mark.parametrize(("gap", "wins"), [(0.5, True), (1.5, False)])
def test_a_linear_function_is_in_use_unless_it_is_behind_by_a_standard_error(gap, wins):
    """Errors e of the leader and of lines, whose squares differ by noise and by a mean of known size."""
    data, rng = blank(200), np.random.default_rng(0)
    e, more = rng.normal(size=200), rng.normal(size=200)
    square = e**2 + 1
    rest = more - more.mean()
    other = square * np.exp(0.8 * rest / rest.std())  # a standard error is more than chance
    one = (square * 200 / square.sum())[:, None]
    other = other[:, None] / other.sum() * 200
    _, error = difference(*(judged_by(AXIS_RQ, np.sqrt(v), data) for v in (other, one)), data)
    lines = judged_by(LINES, np.sqrt(other * np.exp(2 * gap * error)), data)
    leader = judged_by(AXIS_RQ, np.sqrt(one), data)
    assert (best([leader, lines], data) is lines) == wins


def judged_by(candidate, errors, data):
    fit = Fit(
        candidate, AxisScales(2), AXIS_RQ.operator(None), 1.0, errors=torch.from_numpy(errors)
    )
    return replace(fit, nats=data.nats(fit.errors))


def test_a_chart_that_learned_few_rows_by_heart_is_found_out():
    """Noise in 30 columns: folds the search has not seen tell, folds of the source alone do not."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 30)), rng.normal(size=60)
    Y = torch.from_numpy((y - y.mean()) / y.std())[:, None]
    data = Data.of(torch.from_numpy(X - X.mean(0)), Y)
    begin = linear(0.3 * rng.normal(size=(2, 30)), "pursuit")
    learned = optimize(begin, Rows(data.x.numpy(), Y.numpy(), np.ones(60)), 200)
    chart = Linear(30, 2, torch.from_numpy(learned.W))
    found = Fit(
        Searched("by heart"), chart, KERNELS["gaussian"](), float(np.exp(learned.log_noise))
    )
    flattered = replace(judged(found, data), price=0.5 * np.log(4 / 3))  # a number a row
    (honest,) = verified([flattered], data, rng)
    assert flattered.nats < -0.3
    assert honest.nats > -0.05


def test_a_chart_that_is_found_without_some_rows_stays_as_it_was():
    """One direction of six: the first fold that the search has not seen is enough to tell."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (100, 6))
    y = np.sin(2 * X[:, :2].sum(1)) + 0.1 * rng.normal(size=100)
    Y = torch.from_numpy((y - y.mean()) / y.std())[:, None]
    data = Data.of(torch.from_numpy(X - X.mean(0)), Y)
    found = judged(searched(data, rng, "fast")[0], data)
    found = replace(found, price=0.5 * np.log(4 / 3))
    (kept,) = verified([found], data, rng)
    assert found.nats < -1
    assert (kept.nats, kept.price) == (found.nats, found.price)
    assert kept.errors is found.errors


def test_columns_that_matter_a_little_are_found_among_many():
    """Two of twenty columns matter much and two a little; the others do not."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(500, 20))
    y = np.sin(1.5 * X[:, 0]) * (1 + 0.4 * X[:, 2]) + 0.5 * X[:, 1] ** 2 * (1 + 0.4 * X[:, 3])
    Y = torch.from_numpy((y - y.mean()) / y.std())[:, None]
    data = Data.of(torch.from_numpy(X - X.mean(0)), Y)
    fits, _ = race(data, small("axis.rq", rows=(300, 500, 500), judges=500))
    scale = fits[0].chart.scale.detach()
    assert scale[:4].min() > 5 * scale[4:].max()


def test_axis_scales_of_the_search_do_not_race_twice():
    fit = Fit(
        Searched("ard"), Linear(4, 4, torch.eye(4, dtype=torch.float64)), KERNELS["cauchy"](), 0.1
    )
    assert scales_columns(fit)
    turned = torch.ones(4, 4, dtype=torch.float64)
    assert not scales_columns(replace(fit, chart=Linear(4, 4, turned)))
    fits, out = race(rough(80), small("axis.rq"), [replace(fit, nats=0.0)])
    assert [each.candidate.name for each in fits] == ["axis.rq"]
    assert [each.candidate.name for each in out] == ["ard"]


def test_renaming_candidates_changes_nothing():
    data = rough(80)
    schedule = EFFORTS["normal"]
    fits, _ = race(data, schedule)
    again, _ = race(
        data,
        replace(
            schedule,
            pool=tuple(replace(c, name="?") if c is not AXIS_RQ else c for c in schedule.pool),
        ),
    )
    assert [fit.nats for fit in fits] == [fit.nats for fit in again]


def test_weights_add_up_and_what_rows_cannot_tell_apart_shares_equally():
    same = average([fit_of(AXIS_RQ, -1.0) for _ in range(3)], 50)
    assert_allclose([w for w, _ in same], 1 / 3)
    good, bad = fit_of(AXIS_RQ, np.log(0.1)), fit_of(USUAL, 0.0)
    assert [fit for _, fit in average([bad, good], 4000)] == [good]
    for n in (4, 100, 2500):
        share = average([fit_of(AXIS_RQ, 0.0), fit_of(USUAL, np.log(1.05))], n)[0][0]
        assert_allclose(share, 1 / (1 + 1.05 ** -np.sqrt(n)), rtol=1e-12) if share < 0.97 else None


def test_a_race_of_one_is_that_candidates_fit():
    data = rough(60)
    fits, out = race(data, small("axis.rq"))
    assert len(fits) == 1
    assert not out
    equal = equal_scales(data)
    starts = equal, OPENING.learn(data, equal, 25)
    learned = min((AXIS_RQ.learn(data, at, 25) for at in starts), key=lambda fit: fit.evidence)
    alone = judged(learned, data, scan=True)
    assert_allclose(fits[0].nats, alone.nats, rtol=1e-6)
    assert average(fits, 60) == [(1.0, best(fits, data))]


def test_a_candidate_that_fails_is_out_and_the_others_go_on():
    class Broken(type(AXIS_RQ)):
        def learn(self, data, start, steps):
            raise SolveError("no")

    broken = Broken("broken", AXIS_RQ.kernel, AXIS_RQ.operator)
    schedule = replace(small("axis.rq", "axis.l1"), pool=(AXIS_RQ, broken, BY_NAME["axis.l1"]))
    fits, out = race(rough(60), schedule)
    assert {fit.candidate.name for fit in fits + out} == {"axis.rq", "axis.l1"}


@pytest.mark.parametrize("name", ["warp.l1", "full.rq", "turned.rq"])
def test_a_chart_with_many_numbers_is_judged_by_folds_it_has_not_seen(name):
    """A target moves neither what is predicted for its row nor the chart that does so."""
    data, schedule = rough(90), small(name, judges=90, rows=(90, 90, 90))
    found = []
    for change in (0.0, 10.0):
        Y = data.Y.clone()
        Y[0] += change  # a row of fold 0
        run = Race(replace(data, Y=Y), schedule, silent, one_by_one)
        run.start = AXIS_RQ.learn(data, equal_scales(data), 15)
        fit = run.unseen(BY_NAME[name], [])
        found.append(
            (Y - fit.errors, *(torch.from_numpy(part.kernel(data.x)) for part in fit.parts))
        )
    assert len(found[0]) == 6  # five charts
    assert_allclose(found[0][1], found[1][1], atol=1e-8)
    assert_allclose(found[0][0][::PARTS], found[1][0][::PARTS], atol=1e-8)  # left out with it
    for one, other in zip(found[0][2:], found[1][2:], strict=True):
        assert float((one - other).abs().max()) > 1e-3


def test_fewer_rows_learn_but_the_same_rows_judge():
    data = rough(400)
    schedule = small("axis.rq", "axis.l1", rows=(50, 100, 200), judges=300)
    fits, _ = race(data, schedule)
    assert all(len(fit.errors) == 300 for fit in fits)
    assert max(fit.rows for fit in fits) <= 200


def test_a_plane_that_is_explained_is_not_challenged():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(150, 6)))
    z = x @ torch.from_numpy(np.linalg.qr(rng.normal(size=(6, 2)))[0])
    y = torch.sin(2 * z[:, :1]) * z[:, 1:]
    data = Data.of(x - x.mean(0), (y - y.mean()) / y.std())
    assert explained(searched(data, np.random.default_rng(0), "normal")[0])
    noise = Data.of(x - x.mean(0), torch.from_numpy(rng.normal(size=(150, 1))))
    assert not explained(searched(noise, np.random.default_rng(0), "fast")[0])


def test_folds_are_dealt_out_evenly():
    counts = torch.bincount(rough(103).folds)
    assert len(counts) == PARTS
    assert int(counts.max() - counts.min()) <= 1
    assert loss(fit_of(AXIS_RQ, 1.0, 0.5)) == 1.5


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("estimator", "n"),
    [
        (IGLRegressor, 60),
        pytest.param(IGLRegressor, 30, marks=pytest.mark.slow),
        pytest.param(IGLStack, 60, marks=pytest.mark.slow),
    ],
)
def test_evidence_that_rows_left_out_contradict_is_not_believed(estimator, n):
    """A column that is zero but for one row is explained without noise, by a line; so λ vanishes."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (n + 100, n // 2))
    y = np.stack([rng.normal(size=n), np.arange(n) == 0], axis=1)
    model = estimator(random_state=0).fit(X[:n], y)
    assert np.abs(model.predict(X[n:])).max() < 2 * np.abs(y).max()
    assert model.standings_[0].score < 2


def test_the_race_begins_from_scales_that_the_search_found_too():
    """Where equal scales lead to a worse place, they decide; what they say is what the search said."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(150, 6)))
    y = torch.sin(6 * x[:, :1])
    data = Data.of(x - x.mean(0), (y - y.mean()) / y.std())
    W = torch.zeros(1, 6, dtype=torch.float64)
    W[0, 0] = 3.0
    found = Fit(Searched("axes"), Linear(6, 1, W), cauchy(), 1e-4)
    scales = on_axes(found)
    assert_allclose(scales.kernel(data.x), found.kernel(data.x), atol=1e-3)
    alone, told = (
        Race(data, EFFORTS["normal"], silent, one_by_one, each) for each in ((), [scales])
    )
    for one in (alone, told):
        one.begin()
    assert told.start.evidence <= alone.start.evidence
    assert told.start.chart.scale[0] > 10 * told.start.chart.scale[1:].max()


# --- categories


def one_hot(n=80, seed=0):
    """A number, four levels, a number of two values, two levels: columns and their groups."""
    rng = np.random.default_rng(seed)
    four, two = np.eye(4)[rng.integers(0, 4, n)], np.eye(2)[rng.integers(0, 2, n)]
    number, coin = rng.normal(size=(n, 1)), rng.integers(0, 2, (n, 1)) * 3.0
    return np.hstack([number, four, coin, two]), [0, 1, 1, 1, 1, 2, 3, 3]


def test_columns_of_which_every_row_has_one_are_a_category():
    X, groups = one_hot()
    assert categories(X).tolist() == groups
    assert categories(5 - 2 * X).tolist() != groups  # of which every row has all but one
    kept = X[X[:, 2] == 0]  # no row has the second level
    assert categories(kept).tolist() == groups
    X[0, 1:5] = 0  # a row without a level
    assert categories(X).tolist() == [0, 1, 2, 3, 4, 5, 6, 6]


def test_many_levels_of_few_categories_are_not_many_columns():
    rng = np.random.default_rng(0)
    levels = np.hstack([np.eye(5)[rng.integers(0, 5, 90)] for _ in range(20)])
    y = torch.from_numpy(rng.normal(size=(90, 1)))
    others = rng.normal(size=levels.shape)
    told = [wide(Data.of(torch.from_numpy(X - X.mean(0)), y)) for X in (levels, others)]
    assert told == [False, True]


def test_levels_of_a_category_share_a_unit_and_a_scale():
    X, _ = one_hot()
    y = torch.from_numpy(X[:, 1] - X[:, 3] + 0.1 * X[:, 0])[:, None]
    data = Data.of(torch.from_numpy(X - X.mean(0)), (y - y.mean()) / y.std())
    fit = AXIS_RQ.learn(data, equal_scales(data), 15)
    scale, unit = fit.chart.scale.detach().numpy(), data.sd.numpy()
    for part in (scale, unit):
        assert len(np.unique(part[1:5])) == len(np.unique(part[6:])) == 1
    assert len(np.unique(scale.round(9))) == 4
    z = unscaled(fit.chart, data.sd)(torch.from_numpy(X)).detach()
    apart = torch.cdist(z[:, 1:5], z[:, 1:5])
    assert_allclose(apart[apart > 0].std(), 0, atol=1e-9)  # any two levels are as far apart


def test_the_mean_is_in_use_where_nothing_predicts_better():
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(80, 3)), rng.normal(size=80)
    with pytest.warns(ConvergenceWarning, match="better than their mean"):
        model = IGLRegressor(random_state=0).fit(X, y)
    assert_allclose(model.predict(X), y.mean(), atol=1e-6)


def test_levels_share_scales_and_are_not_whitened():
    """A table of 60 categories of 5 levels has 60 scales; numbers have one each, up to 200 of them."""
    rng = np.random.default_rng(0)
    levels = np.eye(5)[rng.integers(0, 5, (80, 60))].reshape(80, 300)
    numbers = rng.normal(size=(80, 201))
    Y = torch.from_numpy(rng.normal(size=(80, 2)))
    by_name = {candidate.name: candidate for candidate in CLASSES}
    for x, axes, white in (
        (levels, True, False),
        (numbers, False, False),
        (numbers[:, :9], True, True),
    ):
        data = Data.of(torch.from_numpy(x), Y)
        assert by_name["axis.l1"].suits(data) == axes
        assert by_name["white.rq"].suits(data) == white


def test_principal_axes_that_judge_rows_are_of_other_rows():
    """Axes of all rows hold what is particular to each: these would be nearer than new rows are."""
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(150, 240)))
    onehot = np.eye(2)[(X[:, 0] + X[:, 1] > 0).int()]
    shares = onehot.mean(0)
    data = Data.of(X, torch.from_numpy(onehot - shares), None, 0, Indicators(shares))
    pool = tuple(c for c in CLASSES if c.name == "iso.rq")
    (fit,), _ = race(data, replace(EFFORTS["normal"], pool=pool))
    folds = data.coarse(len(fit.parts)).folds
    for k, part in enumerate(fit.parts):
        others = data.x[folds != k]
        span = torch.linalg.svd(others - others.mean(0), full_matrices=False).Vh[:-1]
        for chart, inside in ((part.chart, True), (fit.chart, False)):
            W = chart.weight.detach()
            left = torch.linalg.norm(W - W @ span.mT @ span) / torch.linalg.norm(W)
            assert (left < 1e-9) == inside

"""Rungs for tabular data, and the stack of them."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from greenfold import IGLRegressor, IGLStack
from greenfold.chart import AxisScales, Mixed, Warp
from greenfold.estimators.stack import combine
from greenfold.green import Anova, Exponential, Point
from greenfold.learn import contest as contests
from greenfold.learn.contest import USUAL, Budget, Task, contest, paid, unscaled, winner
from greenfold.learn.rungs import (
    KERNELS,
    RUNGS,
    blocks,
    evidence,
    learn,
    refined,
    short_fit,
    solve,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def table(n, seed=0, n_columns=4, noise=0.1):
    """A rough function of two inputs; the other columns do not matter."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, n_columns))
    y = np.abs(X[:, 0]) + np.sin(3 * X[:, 1]) + noise * rng.normal(size=n)
    return X, y


def tensors(n, seed=0):
    X, y = table(n, seed)
    return torch.from_numpy(X / X.std(0)), torch.from_numpy((y - y.mean()) / y.std())[:, None]


def unequal(n):
    """Weights."""
    return torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.5


@pytest.fixture(scope="module")
def fitted():
    X, y = table(200)
    return IGLStack(random_state=0).fit(X, y)


# --- rungs


SHARES = [0.2, 0.5, 0.7, 0.9]
OPERATORS = {
    "laplace": KERNELS["laplace"],
    "cauchy": KERNELS["cauchy"],
    "exponential": lambda: Exponential(1.2),
    "anova": lambda: Anova(SHARES, learn=True),
    "anova_smooth": lambda: Anova(SHARES, order=2, learn=True),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_evidence_is_that_of_a_gaussian_process(name):
    """The value against the density of the normal law, the gradient against differences."""
    operator = OPERATORS[name]()
    x, Y = tensors(12)
    weight = unequal(12)
    log_noise = torch.tensor(-1.0, dtype=torch.float64, requires_grad=True)
    z = (0.7 * x).requires_grad_()
    value = evidence(operator, z, Y, weight, log_noise)
    with torch.no_grad():
        K = operator.response(z, Point(z))
        A = K / K[0, 0] + 1 + (log_noise.exp() / weight).diag()
    s = float((Y.T @ torch.linalg.solve(A, Y))[0, 0]) / 12
    law = torch.distributions.MultivariateNormal(torch.zeros(12, dtype=torch.float64), s * A)
    constant = 6 * (1 + np.log(2 * np.pi))
    assert_allclose(value.item(), -law.log_prob(Y[:, 0]).item() - constant, rtol=1e-6)
    learned = [p for p in operator.parameters() if p.requires_grad and p.ndim]  # logit p (d,)
    dz, dnoise, *dshare = torch.autograd.grad(value, [z, log_noise, *learned])
    step = 1e-5

    def at(z, log_noise):
        with torch.no_grad():
            return evidence(operator, z, Y, weight, log_noise).item()

    z, log_noise = z.detach(), log_noise.detach()
    difference = at(z, log_noise + step) - at(z, log_noise - step)
    assert_allclose(dnoise.item(), difference / (2 * step), rtol=1e-4)
    for i, j in ((0, 0), (5, 1), (11, 3)):
        move = torch.zeros_like(z)
        move[i, j] = step
        difference = at(z + move, log_noise) - at(z - move, log_noise)
        assert_allclose(dz[i, j].item(), difference / (2 * step), rtol=1e-4, atol=1e-7)
    assert len(dshare) == name.startswith("anova")
    for p, slope in zip(learned, dshare, strict=True):
        for j in range(4):
            p.data[j] += step
            up = at(z, log_noise)
            p.data[j] -= 2 * step
            down = at(z, log_noise)
            p.data[j] += step
            assert_allclose(slope[j].item(), (up - down) / (2 * step), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", list(RUNGS))
def test_every_rung_improves_its_evidence_and_leaves_its_start_alone(name):
    x, Y = tensors(60)
    start = short_fit(x, Y)
    before = [p.detach().clone() for p in start.encoder.parameters()]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        once = learn(name, start, blocks(x, Y, None, 60, 60), 1)
        more = learn(name, once, blocks(x, Y, None, 60, 60), 10)
    assert more.evidence < once.evidence
    for p, value in zip(start.encoder.parameters(), before, strict=True):
        assert_array_equal(p.detach(), value)


def test_axis_scales_close_the_inputs_that_do_not_matter():
    x, Y = tensors(200)
    s = learn("ard.l1", short_fit(x, Y), blocks(x, Y, None, 200, 200)).encoder.scale.detach()
    assert float(s[:2].min()) > 4 * float(s[2:].max())


def test_blocks_deal_out_every_row_once():
    x = torch.arange(103.0, dtype=torch.float64)[:, None]
    parts = blocks(x, x, None, 1000, 20)
    assert len(parts) == 6
    assert_array_equal(np.sort(np.concatenate([p[0][:, 0] for p in parts])), x[:, 0])
    assert sum(len(p[0]) for p in blocks(x, x, None, 50, 20)) == 50


@pytest.mark.parametrize("scan", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["ard.l1", "ard.m12", "anova.m32"])
def test_errors_without_a_fold_are_those_of_a_solve_without_it(name, weighted, scan):
    x, Y = tensors(90)
    folds = torch.arange(90) % 3
    weight = unequal(90) if weighted else None
    fit = learn(name, short_fit(x, Y, weight), blocks(x, Y, weight, 90, 90), 5)
    solved = solve(fit, x, Y, weight, folds, 1500, scan)
    alpha, rest = float(solved.solution.alpha), folds != 1
    if not scan:
        assert_allclose(alpha, fit.noise * float(solved.model.unit()))
    design = solved.model.design(x)
    Phi = design.Phi[rest].detach()
    weighed = Phi.T if weight is None else Phi.T * weight[rest]
    w = torch.linalg.solve(weighed @ Phi + alpha * design.penalty.diag(), weighed @ Y[rest])
    assert_allclose(solved.errors[~rest], (Y - design.Phi @ w)[~rest].detach(), atol=1e-7)


def criterion(fit, start, x, Y, weight, folds):
    """What `refined` makes small: held-out errors of a GP solved without each fold, and the priors."""
    errors = torch.empty_like(Y)
    with torch.no_grad():
        z = fit.encoder(x)
        K = fit.operator.response(z, Point(z))
        A = K / K[0, 0] + 1 + (fit.noise / weight + 1e-10).diag()
        for k in range(int(folds.max()) + 1):
            own, rest = folds == k, folds != k
            known = torch.linalg.solve(A[rest][:, rest], Y[rest])
            errors[own] = Y[own] - A[own][:, rest] @ known
        log_c = float((fit.encoder.log_scale - start.encoder.log_scale).mean())
    mean_square = float((weight @ errors.square()).mean() / weight.sum())
    step = np.log(fit.noise / start.noise)
    return len(x) / 2 * np.log(mean_square) + 2 * log_c**2 + step**2 / 2


@pytest.mark.parametrize("factor", [3.0, 1 / 3])
@pytest.mark.parametrize("name", ["ard.l1", "ard.m12", "ard.rq", "anova.l1", "iso.l1"])
def test_refined_scales_do_better_on_rows_held_out(name, factor):
    """From scales that are wrong by a factor."""
    x, Y = tensors(150)
    folds, weight = torch.arange(150) % 10, unequal(150)
    wrong = learn(name, short_fit(x, Y), blocks(x, Y, None, 150, 150), 20)
    with torch.no_grad():
        wrong.encoder.log_scale.add_(np.log(factor))
    before = wrong.encoder.log_scale.detach().clone()
    data = x, Y, weight, folds
    fit = refined(wrong, *data)
    assert criterion(fit, wrong, *data) <= criterion(wrong, wrong, *data)
    was, now = (solve(f, *data, 1500, scan=False).errors.square()[:, 0] for f in (wrong, fit))
    assert weight @ now <= weight @ was
    moved = (fit.encoder.log_scale - before).detach()
    assert_allclose(moved, moved.mean(), atol=1e-12)  # all scales by one number
    assert_array_equal(wrong.encoder.log_scale.detach(), before)  # the start is left alone


@pytest.mark.parametrize("chart", [lambda s: AxisScales(4, s), Mixed, lambda s: Warp(4, scale=s)])
def test_a_chart_of_scaled_inputs_is_a_chart_of_the_inputs(chart):
    x, sd = torch.randn(9, 4, dtype=torch.float64), torch.tensor([1.0, 2.0, 3e-3, 1e4]).double()
    encoder = chart(torch.tensor([0.5, 1.0, 2.0, 0.1], dtype=torch.float64))
    with torch.no_grad():
        for p in encoder.parameters():
            p += 0.1
        assert_allclose(unscaled(encoder, sd)(x * sd), encoder(x), rtol=1e-12)


# --- one winner


@pytest.mark.parametrize(
    ("others", "n", "expected"),
    [
        ({"ard.l1": 0.99}, 100, USUAL),  # ahead by 1%, and chance is 2.5%
        ({"ard.l1": 0.96}, 100, "ard.l1"),
        ({"ard.l1": 0.99}, 10_000, "ard.l1"),
        ({"search": paid(0.90, 200, 100)}, 100, USUAL),  # 200 numbers fitted to 100 rows
        ({"search": paid(0.90, 1, 100)}, 100, "search"),
        ({"search": paid(0.80, 200, 100)}, 100, "search"),
        ({"search": paid(0.96, 200, 10_000)}, 10_000, "search"),
    ],
)
def test_the_usual_rung_wins_unless_another_is_ahead_by_more_than_chance(others, n, expected):
    assert winner({USUAL: 1.0, "search": 1.2, "iso.l1": 1.1} | others, n) == expected


def test_without_the_usual_rung_the_searched_chart_is_to_be_beaten():
    assert winner({"search": 1.0, "ard.rq": 1.02}, 400) == "search"
    assert winner({"search": 1.0, "ard.rq": 0.98}, 400) == "ard.rq"


# --- contests


def task(n, budget, weight=None, seed=0):
    x, Y = tensors(n, seed)
    return Task(x, Y, weight, torch.arange(n) % 3, budget, seed=0)


def test_of_many_rows_those_judge_that_no_chart_has_seen():
    budget = Budget((), rows=60, block=60, max_iter=5, anchors=60, refine=0)
    assert_array_equal(task(1089, budget).judged, torch.arange(1089))  # too few to set some apart
    assert_array_equal(task(1090, budget).judged, torch.arange(90, 1090))


@pytest.mark.parametrize("name", ["ard.rq", "warp.l1", "full.rq"])
def test_charts_do_not_depend_on_the_rows_they_are_judged_by(name):
    budget = Budget((name,), rows=60, block=60, max_iter=10, anchors=60, refine=0)
    one, other = task(1090, budget), task(1090, budget)
    other.Y[other.judged] = other.Y[other.judged].flip(0)
    models = [contest(each, budget.rungs).solved[name].model for each in (one, other)]
    assert_array_equal(models[0].sources.x, models[1].sources.x)
    assert_array_equal(*(model.encoder(one.x).detach() for model in models))
    assert not torch.equal(models[0].w, models[1].w)


def test_every_heat_has_rows_to_judge_by_and_none_of_those_that_judge_its_winners():
    assert contests.HEAT.seen + contests.ENOUGH <= contests.FEW
    for budget in contests.BUDGETS.values():
        if len(budget.rungs) > contests.FINAL:
            assert budget.seen >= contests.FEW


@pytest.mark.parametrize("weighted", [False, True])
def test_a_heat_leaves_the_best_rungs_and_tells_of_the_others(monkeypatch, weighted):
    for name, value in {"FEW": 300, "ENOUGH": 150, "FINAL": 2}.items():
        monkeypatch.setattr(contests, name, value)
    monkeypatch.setattr(contests, "HEAT", Budget((), 100, 100, 10, 100, 0))
    budget = Budget(("ard.l1", "ard.rq", "iso.l1", "full.l1"), 200, 200, 10, 100, 0)
    many = task(500, budget, unequal(500) if weighted else None)
    outcome = contest(many, budget.rungs)
    assert set(outcome.sizes) == set(budget.rungs)
    assert 1 <= len(outcome.errors) <= 2
    assert "iso.l1" not in outcome.errors  # half of the inputs do not matter
    for name, e in outcome.errors.items():
        assert e.shape == (300, 1)
        assert name in outcome.finish(many, [name])
        assert outcome.sizes[name] < min(
            outcome.sizes[n] for n in budget.rungs if n not in outcome.errors
        )


# --- weights


def test_weights_add_up_and_find_the_better_rung():
    rng = np.random.default_rng(0)
    good, bad = (torch.from_numpy(rng.normal(size=(4000, 1)) * size) for size in (0.1, 1.0))
    weights = combine({"good": good, "bad": bad}, None)
    assert_allclose(sum(weights.values()), 1)
    assert weights["good"] > 0.9


def test_rungs_with_the_same_errors_share_equally():
    e = torch.randn(50, 1, dtype=torch.float64)
    assert_allclose(list(combine({"a": e, "b": e, "c": e}, None).values()), 1 / 3, atol=1e-3)


def test_the_same_errors_on_more_rows_say_more():
    a, b = torch.ones(1, 1).double(), 1.05 * torch.ones(1, 1).double()
    counts = np.array([4, 100, 2500])
    share = [combine({"a": a.repeat(n, 1), "b": b.repeat(n, 1)}, None)["a"] for n in counts]
    assert_allclose(share, 1 / (1 + 1.05 ** -np.sqrt(counts)))
    weight = torch.ones(2500).double()
    weight[100:] = 1e-9  # rows that hardly count
    few = combine({"a": a.repeat(2500, 1), "b": b.repeat(2500, 1)}, weight)["a"]
    assert_allclose(few, share[1], rtol=1e-6)


# --- the estimator


def test_the_stack_is_a_weighted_mean_no_worse_than_its_worst_rung(fitted):
    assert set(fitted.weights_) == set(fitted.rungs_)
    assert set(fitted.weights_) <= set(fitted.cv_errors_)
    weights = np.array(list(fitted.weights_.values()))
    assert (weights > 0).all()
    assert_allclose(weights.sum(), 1)
    X, y = table(500, seed=1)
    with torch.no_grad():
        x = fitted._inside(X)
        each = [fitted._outside(m(x).numpy(), "values") for m in fitted.rungs_.values()]
    assert_allclose(fitted.predict(X), weights @ np.array(each), atol=1e-9)
    errors = [np.mean((u - y) ** 2) for u in each]
    assert np.mean((fitted.predict(X) - y) ** 2) <= max(errors)
    assert fitted.score(X, y) > 0.9
    assert not hasattr(fitted, "chart_")


def test_noise_is_not_explained():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(150, 4)), rng.normal(size=150)
    stack = IGLStack(random_state=0).fit(X, y)
    assert min(stack.cv_errors_.values()) > 0.85
    assert np.std(stack.predict(rng.normal(size=(200, 4)))) < 0.5


def test_intervals_and_deviations_cover(fitted):
    """On average over tables, as intervals do: a single one is 2% off by its own 200 rows."""
    X, y = table(600, seed=20)
    others = [IGLStack(random_state=0).fit(*table(200, seed)) for seed in range(1, 6)]
    inside = []
    for model in (fitted, *others):
        low, high = model.predict_interval(X, 0.1)
        u, std = model.predict(X, return_std=True)
        inside.append([(low <= y) & (y <= high), np.abs(y - u) < 1.645 * std])
    coverage = np.mean(inside, axis=(0, 2))
    assert (coverage > 0.85).all()
    assert (coverage < 0.97).all()
    with pytest.raises(ValueError, match="alpha"):
        fitted.predict_interval(X, 1.5)


def test_same_seed_same_bits_and_the_global_generators_are_left_alone(fitted):
    X, y = table(200)
    states = np.random.get_state()[1].copy(), torch.random.get_rng_state()  # noqa: NPY002
    again = IGLStack(random_state=0).fit(X, y)
    assert_array_equal(again.predict(X), fitted.predict(X))
    assert_array_equal(np.random.get_state()[1], states[0])  # noqa: NPY002
    assert_array_equal(torch.random.get_rng_state(), states[1])


@pytest.mark.slow
def test_processes_do_not_change_the_result(fitted):
    X, y = table(200)
    parallel = IGLStack(random_state=0, n_jobs=2).fit(X, y)
    assert_array_equal(parallel.predict(X), fitted.predict(X))


def test_order_of_rows_and_columns_does_not_matter(fitted):
    X, y = table(200)
    rows, columns = np.random.default_rng(3).permutation(200), [2, 0, 3, 1]
    other = IGLStack(random_state=0).fit(X[rows], y[rows])
    assert_array_equal(other.predict(X), fitted.predict(X))
    other = IGLStack(random_state=0).fit(X[:, columns], y)
    assert_allclose(other.predict(X[:, columns]), fitted.predict(X), atol=2e-2)


def test_weights_count_repetitions_and_zero_is_absence():
    X, y = table(60)
    count = np.random.default_rng(0).integers(0, 3, 60)
    weighted = IGLStack(random_state=0).fit(X, y, count)
    repeated = IGLStack(random_state=0).fit(np.repeat(X, count, 0), np.repeat(y, count))
    assert_array_equal(weighted.predict(X), repeated.predict(X))
    plain = IGLStack(random_state=0).fit(X, y)
    assert np.abs(plain.predict(X) - weighted.predict(X)).max() > 1e-6  # they do count


def test_units_do_not_matter(fitted):
    X, y = table(200)
    scaled = IGLStack(random_state=0).fit(X * 2.0**30, y * 2.0**-20)
    assert_allclose(scaled.predict(X * 2.0**30) * 2.0**20, fitted.predict(X), rtol=1e-9)


def test_several_targets():
    X, y = table(80)
    both = IGLStack(random_state=0).fit(X, np.stack([y, -2 * y], axis=1))
    u, std = both.predict(X, return_std=True)
    low, high = both.predict_interval(X)
    assert u.shape == std.shape == low.shape == high.shape == (80, 2)
    assert_allclose(u[:, 1], -2 * u[:, 0], atol=1e-6)


def test_full_effort_tries_every_rung_that_suits():
    X, y = table(60)
    stack = IGLStack(effort="full", random_state=0).fit(X, y)
    assert set(RUNGS) - {"mlp.rq"} <= set(stack.cv_errors_)
    assert "mlp.rq" not in stack.cv_errors_  # wants 1000 rows
    with pytest.raises(ValueError, match="effort"):
        IGLStack(effort="some").fit(X, y)


def test_the_default_regressor_takes_a_rung_where_it_predicts_better():
    X, y = table(150, noise=0.05)
    X_new, y_new = table(500, seed=5, noise=0.05)
    model = IGLRegressor(random_state=0).fit(X, y)
    assert model.score(X_new, y_new) > 0.95
    assert len(model.transform(X_new)) == 500

"""Sources at every one of many rows: conjugate gradients against factors, and what grows by them."""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.linalg import cho_factor, cho_solve

import greenfold.learn.grown as growth
from greenfold import IGLRegressor, IGLStack, green, load, save
from greenfold.cli.about import about
from greenfold.green.atoms import Point
from greenfold.learn.candidates import AXIS_RQ, RIGID, Fit
from greenfold.learn.choice import least_squares
from greenfold.learn.data import Data
from greenfold.learn.grown import Step, Tried, decided, rivals, together
from greenfold.likelihoods.classes import Softmax
from greenfold.likelihoods.counts import Poisson
from greenfold.solve import SolveError
from greenfold.solve.many import Many, Tiles
from greenfold.solve.shared import Dense, likeliest

KERNELS = {
    "heat": green.Heat(0.5),
    "cauchy": green.Cauchy(1.0),
    "exponential": green.Exponential(1.0),
    "laplace": green.ProductScreened(0.5),
    "anova": green.Anova(0.5, order=2),
    "with lines": green.Superposition(
        [green.Cauchy(1.0), green.Affine(0.3, level=0.0)], [1.0, 1.0], learn=False
    ),
}


def points(n=600, d=3, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d)))


def system(operator, z, dtype=torch.float32, m=100, **options):
    def kernel(a, b):
        return operator.response(a, Point(b)).detach()

    budget = options.pop("budget", 1e9)
    return Many(Tiles(kernel, z, dtype, budget), m, **options)


def dense(operator, z, d, Y, N):
    """a and b by factors."""
    K = operator.response(z, Point(z)).detach().numpy()
    c = cho_factor((K + K.T) / 2 + np.diag(d))
    U, V = cho_solve(c, N), cho_solve(c, Y)
    b = np.linalg.solve(N.T @ U, N.T @ V)
    return K, V - U @ b, b


def compared(operator, n, noise, dtype, tol):
    """The largest error of u at rows and between them, over the size of u."""
    z, rng = points(n), np.random.default_rng(1)
    x = z.numpy()
    Y = np.stack([np.sin(2 * x[:, 0]), x[:, 1] * x[:, 2]], 1) + 0.1 * rng.normal(size=(n, 2))
    d, N = noise / rng.uniform(0.5, 2, n), np.hstack([np.ones((n, 1)), x])
    K, a, b = dense(operator, z, d, Y, N)
    many = system(operator, z, dtype, m=n // 6, tol=tol)
    a_, b_ = many.solve(d, Y, N)
    new = points(200, seed=2)
    k = operator.response(new, Point(z)).detach().numpy()
    M = np.hstack([np.ones((200, 1)), new.numpy()])
    u = k @ a + M @ b
    there = np.abs(k @ a_ + M @ b_ - u).max() / np.abs(u).max()
    here = np.abs(K @ (a_ - a) + N @ (b_ - b)).max() / np.abs(Y).max()
    return max(here, there), many.used[-1]


SMOOTH = {
    "heat",
    "anova",
    "with lines",
}  # with little noise as long as "cauchy", which says the same


@pytest.mark.parametrize(
    ("name", "noise"),
    [
        pytest.param(name, noise, marks=pytest.mark.slow)
        if name in SMOOTH and noise < 1e-3
        else (name, noise)
        for name in KERNELS
        for noise in (1e-6, 1e-3, 1.0)
    ],
)
def test_conjugate_gradients_are_the_factor_s_answer(name, noise):
    """With weights, two outputs and free columns; in float64, and in float32 where that is enough."""
    error, spent = compared(KERNELS[name], 250, noise, torch.float64, 1e-9)
    assert error < 1e-6
    assert spent.dtype == torch.float64
    error, _ = compared(KERNELS[name], 250, noise, torch.float32, 1e-6)
    assert error < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("noise", [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0])
@pytest.mark.parametrize("name", ["cauchy", "exponential"])
def test_at_three_thousand_rows(name, noise):
    """A smooth kernel at λ = 1e-6 leaves a residual of 3e-7, which is rounding: the answer is as good."""
    error, spent = compared(KERNELS[name], 3000, noise, torch.float64, 1e-8)
    assert error < 1e-6
    assert spent.residual < (1e-6 if (name, noise) == ("cauchy", 1e-6) else 2.1e-8)
    assert compared(KERNELS[name], 3000, noise, torch.float32, 1e-6)[0] < 1e-4


def test_rounding_is_no_excuse_for_a_bad_answer():
    """What float64 reaches is accepted; what is left of a solve that was cut short is not."""
    operator, tol = KERNELS["cauchy"], 1e-13
    error, spent = compared(operator, 250, 1e-6, torch.float64, tol)
    assert 2 * tol < spent.residual < 1e-6
    assert error < 1e-6
    z, Y, N = points(250), np.sin(2 * points(250)[:, :1].numpy()), np.ones((250, 1))
    short = system(operator, z, torch.float64, m=40, tol=tol, max_iter=3, largest=40)
    with pytest.raises(SolveError, match="in float64"):
        short.solve(np.full(250, 1e-6), Y, N)


def test_rounding_is_noticed_and_mended():
    """Tiles in float32 are off by more than a residual of 1e-9: what is left is solved for again."""
    error, spent = compared(KERNELS["cauchy"], 250, 1e-3, torch.float32, 1e-9)
    assert spent.residual < 2e-9
    assert error < 1e-6
    error, spent = compared(KERNELS["cauchy"], 250, 1e-6, torch.float32, 1e-9)
    assert spent.dtype == torch.float64  # which follows where that is in vain
    assert error < 1e-6


def test_what_does_not_converge_is_an_error():
    z = points()
    many = system(KERNELS["laplace"], z, m=5, tol=1e-12, max_iter=2, largest=5)
    with pytest.raises(SolveError, match=r"stopped after .* steps with a residual of"):
        many.solve(np.full(600, 1e-6), np.sin(5 * z[:, :1].numpy()), np.ones((600, 1)))


def test_the_residual_bounds_the_error():
    """‖D^{−½} δu‖ ≤ ‖D^{−½} r‖, at any tolerance."""
    z, noise = points(), 1e-2
    Y, N, d = np.sin(3 * z[:, :1].numpy()), np.ones((600, 1)), np.full(600, noise)
    K, a, b = dense(KERNELS["exponential"], z, d, Y, N)
    for tol in (0.1, 1e-2, 1e-4):
        many = system(KERNELS["exponential"], z, torch.float64, tol=tol)
        a_, b_ = many.solve(d, Y, N)
        r = np.linalg.norm(Y - K @ a_ - d[:, None] * a_ - N @ b_)
        assert r <= 2.1 * tol * np.linalg.norm(Y)
        assert np.linalg.norm(K @ (a_ - a) + N @ (b_ - b)) <= 1.01 * r


def test_tiles_that_memory_does_not_hold_are_made_anew():
    z = points(2500)
    a = np.random.default_rng(0).normal(size=(2500, 2))
    kept, anew = (system(KERNELS["cauchy"], z, m=10, budget=size).tiles for size in (1e9, 0))
    assert np.array_equal(kept.times(a), anew.times(a))
    assert kept.megabytes > 10
    assert anew.megabytes == 0
    K = KERNELS["cauchy"].response(z, Point(z)).detach().numpy()
    assert_allclose(kept.times(a), K @ a, atol=1e-3)
    assert_allclose(kept.at(torch.arange(5), a), (K @ a)[:5], rtol=1e-10)


@pytest.mark.parametrize("law", [Softmax(3), Poisson()])
def test_likelihoods_go_the_same_way(law):
    """Newton's steps outside, conjugate gradients inside: the optimum is that of factors."""
    z, rng = points(400), np.random.default_rng(0)
    if isinstance(law, Poisson):
        Y = law.columns(rng.poisson(np.exp(np.sin(z[:, 0].numpy()))), None)
    else:
        Y = np.eye(3)[np.digitize(z[:, 0].numpy() + 0.3 * rng.normal(size=400), [-0.4, 0.4])]
    Y, weight, operator = Y.astype(float), np.ones(400), KERNELS["cauchy"]
    K = operator.response(z, Point(z)).detach().numpy()
    ends = [
        likeliest(one, law, Y, weight, 0.5, tol=1e-12)
        for one in (Dense(K), system(operator, z, torch.float64, m=60, tol=1e-9))
    ]
    assert_allclose(ends[0].f, ends[1].f, atol=1e-5)


# --- what grows


def rough(n, seed=0):
    """Steps in two inputs: every row tells of its own surroundings."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    y = np.floor(3 * X[:, :2]).sum(1) % 3 + X[:, 2] + 0.05 * rng.normal(size=n)
    return X, y


@pytest.fixture(scope="module")
def fitted():
    X, y = rough(2500)
    return IGLRegressor(random_state=0, effort="fast").fit(X, y)


def test_every_row_becomes_a_source_where_that_pays(fitted, tmp_path):
    X, y = rough(1000, seed=1)
    member = fitted.predictor_.members[0]
    assert fitted.solver_info_["route"] == "conjugate gradients"
    assert fitted.solver_info_["anchors"] == 2500 == about(fitted)["sources"][0]
    u, sketch = fitted.predict(X), member.model(fitted._inside(X)).detach()
    few = fitted.units_.y.outside(sketch.numpy())[:, 0]
    assert np.mean((u - y) ** 2) < 0.9 * np.mean((few - y) ** 2)  # fewer would not do
    low, high = fitted.predict_interval(X, alpha=0.1)
    assert 0.86 < np.mean((low <= y) & (y <= high)) < 0.94
    _, std = fitted.predict(X, return_std=True)
    assert 0.8 < np.sqrt(np.mean((u - y) ** 2 / std**2)) < 1.25
    save(fitted, tmp_path / "m.greenfold")
    again = load(tmp_path / "m.greenfold")
    assert np.array_equal(again.predict(X), u)
    assert_allclose(again.predict_interval(X)[0], fitted.predict_interval(X)[0], atol=1e-9)


def test_it_is_told_of_and_brought_up_to_date(fitted, tmp_path):
    X, y = rough(300, seed=2)
    fitted.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "conjugate gradients" in page
    assert "predictions come from all 2500" in page
    assert fitted.transform(X).shape == (300, len(fitted.gates_))
    with pytest.warns(UserWarning, match="a source at every one of 2500 rows"):
        more = load_copy(fitted, tmp_path).partial_fit(X, y)
    assert more.predictor_.members[0].whole is None
    assert np.isfinite(more.predict(X)).all()
    assert np.isfinite(fitted.refit_source(X, y).predict(X)).all()


def load_copy(model, folder):
    save(model, folder / "copy.greenfold")
    return load(folder / "copy.greenfold")


def test_onnx_has_every_source(fitted, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    from greenfold import export

    export(fitted, tmp_path / "m.onnx")
    X, _ = rough(50, seed=3)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    out = session.run(None, {session.get_inputs()[0].name: X})[0]
    assert_allclose(np.ravel(out), fitted.predict(X), atol=2e-3)


def test_nothing_grows_where_anchors_are_enough():
    """Smooth, with noise: half of the anchors do as well."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2500, 4))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.5 * rng.normal(size=2500)
    model = IGLRegressor(random_state=0, effort="fast").fit(X, y)
    assert model.predictor_.members[0].whole is None


def test_a_stack_weighs_them_by_rows_held_out():
    X, y = rough(2500)
    weight = np.random.default_rng(0).uniform(0.5, 2, 2500)
    model = IGLStack(random_state=0, effort="fast").fit(X, y, sample_weight=weight)
    assert model.predictor_.members[0].whole is not None
    assert sum(m.weight for m in model.predictor_.members) == pytest.approx(1)
    new, target = rough(1000, seed=1)
    assert model.score(new, target) > 0.3
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 5000, 1))
    weights = least_squares(np.stack([a, 2 * b, a + b]))
    assert_allclose(weights, [0.8, 0.2, 0.0], atol=0.03)


def test_rows_of_a_group_do_not_judge_each_other(monkeypatch):
    seen = []
    real = growth.Field.tried

    def tried(self, system, fit, n, start=None):
        seen.append((set(self.data.folds[:n].tolist()), set(self.held.folds.tolist())))
        return real(self, system, fit, n, start)

    monkeypatch.setattr(growth.Field, "tried", tried)
    monkeypatch.setattr(growth, "LEAST", 1000)
    X, y = rough(1200)
    groups = np.arange(1200) % 40
    IGLRegressor(random_state=0, effort="fast").fit(X, y, groups=groups)
    assert seen
    assert all(not learned & judged for learned, judged in seen)


def test_errors_of_rows_held_out_are_not_those_of_the_solve():
    """Ones far smaller than expected ask for a solve that goes on: then they are those of factors."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.uniform(-1, 1, (1000, 2)))
    data = Data.of(x, torch.sin(3 * x[:, :1]) * x[:, 1:])
    fit = Fit(RIGID[0], torch.nn.Identity(), KERNELS["cauchy"], 1e-4, nats=0.0)
    field = growth.Field(data, 800, 20)
    with torch.no_grad():
        K = KERNELS["cauchy"].response(data.x, Point(data.x)).numpy()
    Y, one = data.Y.numpy(), np.ones((800, 1))
    _, a, b = dense(KERNELS["cauchy"], data.x[:800], np.full(800, 1e-4), Y[:800], one)
    exact = Y[800:] - K[800:, :800] @ a - b
    tried = field.tried(field.system(fit, 800), fit, 800)
    assert tried.nats < -4
    assert_allclose(tried.errors.numpy(), exact, atol=0.2 * exact.std())
    rough = growth.Field.solved(field, field.system(fit, 800), fit, 800)  # the negative control
    left = Y[800:] - K[800:, :800] @ rough[0] - rough[1]
    assert np.abs(left - exact).max() > exact.std()


def test_rows_beyond_memory_become_sources_too(fitted, monkeypatch):
    """K is made anew where it is not kept, and only where errors fall fast enough to pay for that."""
    X, y = rough(2500)
    plain = {"random_state": 0, "effort": "fast"}
    monkeypatch.setattr(growth, "FIRST", 800)
    monkeypatch.setattr(growth, "budget", lambda: 3e6)  # of 1,200 rows
    assert growth.most_rows() < 1300
    anew = IGLRegressor(**plain).fit(X, y)
    assert anew.solver_info_["anchors"] == 2500
    assert anew.solver_info_["megabytes"] <= 3
    new, target = rough(1000, seed=1)
    errors = [np.mean((one.predict(new) - target) ** 2) for one in (fitted, anew)]
    assert errors[1] < 1.05 * errors[0]
    monkeypatch.setattr(growth, "DEAR", 10.0)
    fewer = IGLRegressor(**plain).fit(X, y)
    assert fewer.solver_info_.get("anchors", 0) < 2000  # those in memory and the rows that judged


@pytest.mark.parametrize(("alike", "kept"), [(1.0, 1), (0.0, 2)])
def test_kinds_grow_together_only_where_their_mean_pays(alike, kept):
    """Errors of two that are the same gain nothing by their mean; those that are apart do."""
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(2, 400, 1))
    data = Data.of(torch.from_numpy(rng.normal(size=(400, 2))), torch.from_numpy(one))
    both = [torch.from_numpy(0.5 * e) for e in (one, alike * one + (1 - alike) * other)]
    fit = Fit(RIGID[0], torch.nn.Identity(), green.Cauchy(), 1.0)
    tried = [Tried(fit, 400, one, one[:1], e, data.nats(e), {}) for e in both]
    assert len(together(sorted(tried, key=lambda t: t.nats), data)) == kept


def judged(candidate, errors, data):
    fit = Fit(candidate, torch.nn.Identity(), green.Cauchy(), 1.0)
    return Tried(fit, 400, errors.numpy(), errors[:1].numpy(), errors, data.nats(errors), {})


@pytest.mark.parametrize(("behind", "wins"), [(-0.1, True), (0.01, True), (0.3, False)])
def test_a_kernel_of_distances_wins_unless_rows_held_out_tell_another_from_it(behind, wins):
    """It predicts several times as fast as a product over axes, and is no worse than by chance."""
    rng = np.random.default_rng(0)
    data = Data.of(*(torch.from_numpy(rng.normal(size=(400, d))) for d in (2, 1)))
    shared, own, other = (torch.from_numpy(rng.normal(size=(400, 1))) for _ in range(3))
    product = judged(RIGID[0], shared + 0.2 * own, data)
    distances = judged(AXIS_RQ, (1 + behind) * (shared + 0.2 * other), data)
    tried = sorted([product, distances], key=lambda one: one.nats)
    steps = [Step(one, one) for one in tried]
    assert decided(steps, data).after is (distances if wins else product)
    assert (len(rivals([product, product, distances])) == 2) == wins
    nothing = distances._replace(nats=math.inf)  # without a solution
    assert decided([Step(product, product), Step(distances, nothing)], data).after is product


@pytest.mark.parametrize("few", ["few", "many"])
def test_what_is_best_with_few_rows_does_not_decide(few, monkeypatch):
    """Of two rivals the one goes on that does better with four times as many rows."""
    rng = np.random.default_rng(0)
    data = Data.of(*(torch.from_numpy(rng.normal(size=(400, d))) for d in (2, 1)))
    noise = torch.from_numpy(rng.normal(size=(200, 1)))
    size = {"few": {200: 0.9, 100: 1.0}, "many": {200: 0.4, 100: 1.1}}[few]
    field = growth.Field(data, 200, 10)

    def tried(fit, n, most):
        scale = size[n] if fit.candidate is RIGID[0] else {200: 0.6, 100: 1.05}[n]
        return judged(fit.candidate, scale * noise, field.held)._replace(n=n)

    monkeypatch.setattr(growth.Field, "best_noise", lambda self, *given: tried(*given))
    both = [judged(c, noise, field.held).fit for c in (RIGID[0], AXIS_RQ)]
    both = sorted([tried(fit, 100, 1) for fit in both], key=lambda one: one.nats)
    best = growth.raised(both, field, lambda *told: None)
    assert best.fit.candidate is (AXIS_RQ if few == "few" else RIGID[0])
    assert best.n == 200
    assert best.rate > 0

"""Cross-entropy with one factor for all classes, and what is chosen by it."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.special import log_softmax, softmax

from greenfold import IGLClassifier, IGLStackClassifier, load, save
from greenfold.chart import AxisScales
from greenfold.design import Design
from greenfold.learn.candidates import CLASSES, Fit, cauchy, equal_scales
from greenfold.learn.data import Data
from greenfold.learn.judges import Indicators
from greenfold.learn.penalty import Judges, Tried, Tuned, preferred
from greenfold.learn.race import CLASS_EFFORTS, race
from greenfold.likelihoods.classes import Corners, Softmax, averaged, temperature
from greenfold.report.stacked import heaviest
from greenfold.solve import Logistic, SolveError, left_out
from greenfold.solve import cross_entropy as entropy
from greenfold.solve.likely import Likely
from greenfold.solve.shared import Dense, Thin, likeliest


def problem(n=60, c=3, seed=0):
    """A design of 8 penalized columns and a constant, one-hot classes with noise, weights."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=n), np.linspace(-0.6, 0.6, c - 1))
    Phi = np.cos(X @ rng.normal(size=(2, 8)) + rng.uniform(0, 6, 8))
    return X, Phi, np.eye(c)[y], rng.uniform(0.5, 2, n)


@pytest.mark.parametrize("c", [2, 3, 7])
@pytest.mark.parametrize("alpha", [1.0, 1e-2])
def test_the_optimum_is_that_of_newton(c, alpha):
    _, Phi, Y, weight = problem(80, c)
    Phi, Y, weight = map(torch.from_numpy, (Phi, Y, weight))
    design = Design(
        torch.cat([Phi, torch.ones(80, 1).double()], 1), torch.tensor([1.0] * 7 + [3.0, 0.0])
    )
    newton = Logistic(alpha, relative=False).solve(design, Y, weight)
    shared = Likely(Softmax(c), alpha, tol=1e-7).solve(design, Y, weight)
    assert_allclose(shared.w, newton.w, rtol=1e-4, atol=1e-4)
    assert_allclose(shared.residual, newton.residual, rtol=1e-5)
    rank = left_out(design, Y, newton, entropy, weight).rank
    assert shared.info["degrees"] == pytest.approx(rank, rel=1e-3 if c == 2 else 0.4)


@pytest.mark.parametrize("c", [2, 4])
def test_rows_and_columns_lead_to_the_same(c):
    """K itself, or its thin factor: also with other free columns than a constant, and from a start."""
    X, Phi, Y, weight = problem(60, c)
    N = np.hstack([np.ones((60, 1)), X])
    ends = [
        likeliest(system, Softmax(c), Y, weight, 0.3, N, tol=1e-15)
        for system in (Dense(Phi @ Phi.T), Thin(Phi))
    ]
    assert_allclose(ends[0].f, ends[1].f, atol=1e-6)
    P = softmax(ends[0].f, axis=1)
    assert_allclose(0.3 * ends[0].a, weight[:, None] * (Y - P), atol=1e-6)  # where J is flat
    assert_allclose(N.T @ ends[0].a, 0, atol=1e-8)
    again = likeliest(
        Thin(Phi), Softmax(c), Y, weight, 0.3, N, start=(ends[0].a, ends[0].b), tol=1e-12
    )
    assert again.iterations == 0


def test_what_does_not_converge_says_so():
    _, Phi, Y, weight = problem(60, 4)
    with pytest.raises(SolveError, match="after 3 iterations"):
        likeliest(Thin(Phi), Softmax(4), Y, weight, 1e-6, tol=1e-14, max_iter=3)


def data_of(X, Y, k=3):
    shares = Y.mean(0)
    x = torch.from_numpy(X)
    return Data.of(x, torch.from_numpy(Y - shares), judge=Indicators(shares), folds=k)


def test_folds_are_left_out_as_refits_leave_them():
    X, _, Y, _ = problem(45)
    data = data_of(X, Y)
    fit = Fit(equal_scales(data).candidate, AxisScales(2, 0.7), cauchy(), 1e-2)
    tried = Tried(fit, data, 3, Softmax(Y.shape[1]), Y)
    told = tried.f((2, -1))
    K = fit.kernel(data.x, 2.0)
    for k in range(3):
        out, kept = data.folds.numpy() == k, data.folds.numpy() != k
        L = np.linalg.cholesky(K[np.ix_(kept, kept)] + 1e-12 * np.eye(kept.sum()))
        design = Design.stack(torch.from_numpy(L), torch.ones(int(kept.sum()), 1).double())
        w = Logistic(10**-0.5, relative=False).solve(design, torch.from_numpy(Y[kept])).w.numpy()
        f = K[np.ix_(out, kept)] @ np.linalg.solve(L.T, w[:-1]) + w[-1]
        assert_allclose(log_softmax(told[out], 1), log_softmax(f, 1), atol=0.02)


def test_charts_with_many_numbers_are_judged_by_folds_they_have_not_seen():
    """Noise in ten columns: a chart learned from all rows would tell some of it apart."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 10)), np.eye(2)[rng.integers(0, 2, 60)]
    data = data_of(X, Y, 5)
    fits, out = race(data, CLASS_EFFORTS["normal"])
    free = [fit for fit in fits + out if not fit.candidate.rigid]
    assert free
    for fit in free:
        assert len(fit.parts) == 5
        moved = [np.abs(part.kernel(data.x) - fit.kernel(data.x)).max() for part in fit.parts]
        assert min(moved) > 1e-8  # none is the chart of all rows
        assert (
            Tried(fit, data, 3, Softmax(Y.shape[1]), Y).loss((0, 0)) > 0.6
        )  # and nobody is deceived


def test_a_frame_is_refitted_at_the_scale_it_has():
    X, _, Y, _ = problem(50)
    data = data_of(X @ np.array([[1.0, 0.9], [0.0, 0.4]]), Y)
    white = next(candidate for candidate in CLASSES if candidate.name == "white.rq")
    fit = white.learn(data.head(30), equal_scales(data), 5)
    again = white.refit(fit, data)
    with torch.no_grad():
        size = [(f.chart(data.x) - f.chart(data.x).mean(0)).square().sum() for f in (fit, again)]
    assert float(size[0]) == pytest.approx(float(size[1]))
    assert not torch.allclose(fit.chart.weight, again.chart.weight)


def test_a_mean_of_probabilities_has_one_temperature():
    rng = np.random.default_rng(0)
    u, weight, shares = rng.normal(size=(2, 500, 3)), np.ones(500), np.array([0.3, 0.7])
    p = np.tensordot(shares, softmax(u, axis=2), 1)
    assert_allclose(averaged(u, shares), np.log(p), rtol=1e-12)
    y = (p.cumsum(1) < rng.uniform(size=(500, 1))).sum(1)
    assert temperature(4 * u, np.eye(3)[y], weight, shares) == pytest.approx(4, rel=0.4)
    far = np.array([[[0.0, 2000.0]], [[0.0, 1900.0]]])
    assert_allclose(averaged(far, np.array([0.5, 0.5]))[0, 0], -1900 + np.log(0.5))


@pytest.mark.parametrize("kind", [IGLClassifier, IGLStackClassifier])
def test_few_rows_of_many_columns_have_few_coordinates(kind):
    """Three classes along two of 300 columns' directions."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    place = np.array([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])[y] + 0.3 * rng.normal(size=(60, 2))
    X = place @ rng.normal(size=(2, 300)) + 0.5 * rng.normal(size=(60, 300))
    model = kind(random_state=0).fit(X[:45], y[:45])
    assert model.score(X[45:], y[45:]) == 1
    models = getattr(model, "models_", {"": getattr(model, "model_", None)})
    assert min(len(one.mean) for one in models.values()) <= 3


def test_classes_that_a_fold_holds_alone_have_logits_without_it():
    """As likely together as one row more than were seen; the others as if there were no such classes."""
    X, _, Y, _ = problem(40, 3)
    alone = np.zeros((40, 2))
    alone[0, 0] = alone[5, 1] = 1.0  # both in fold 0
    Y[[0, 5]] = 0
    data = data_of(X, np.hstack([Y, alone]), 5)
    fit = Fit(CLASSES[3], AxisScales(2), cauchy(), 0.1)
    own = data.folds.numpy() == 0
    logits = Tried(fit, data, 5, Softmax(5), np.hstack([Y, alone])).f((0, 0))[own]
    P = softmax(logits, axis=1)
    assert_allclose(P[:, 3:].sum(1), 1 / ((~own).sum() + 3), rtol=1e-6)
    K, rest = fit.kernel(data.x), np.flatnonzero(~own)
    end = likeliest(
        Dense(K[np.ix_(rest, rest)]), Softmax(3), Y[rest], np.ones(len(rest)), 1.0, tol=1e-5
    )
    assert_allclose(logits[:, :3], K[np.ix_(own, ~own)] @ end.a + end.b, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("sharpness", [1.0, 7.0])
def test_corners_are_least_squares_in_one_step(sharpness):
    _, Phi, Y, weight = problem(60, 4)
    end = likeliest(Thin(Phi), Corners(4, sharpness=sharpness), Y, weight, 0.3)
    A, w = np.hstack([Phi, np.ones((60, 1))]), weight[:, None]
    ridge = np.linalg.solve(A.T @ (w * A) + 0.3 * np.diag([1.0] * 8 + [0.0]), A.T @ (w * Y))
    assert end.iterations == 1
    assert_allclose(end.f, sharpness * A @ ridge, atol=1e-8)


def test_corners_have_the_same_probabilities_in_any_unit():
    """A temperature on corners at 1, or none on corners that are as far out as it says."""
    _, Phi, Y, weight = problem(60, 4)
    one = likeliest(Thin(Phi), Corners(4), Y, weight, 0.3)
    law = Corners(4).fitted(one.f, Y, weight)
    found = Tuned(None, 0.3, one.f, law)
    assert found.settled.law.temperature == 1.0
    far = likeliest(Thin(Phi), found.settled.law, Y, weight, 0.3)
    assert_allclose(far.f, one.f / law.temperature, atol=1e-8)
    assert_allclose(found.settled.f, far.f, atol=1e-8)
    told = [each.law.losses(each.f, Y, weight) for each in (found, found.settled)]
    assert_allclose(*told, atol=1e-8)
    same = Tuned(None, 0.3, one.f, Softmax(4, 1.2))
    assert same.settled.law is same.law


@pytest.mark.parametrize(("gain", "taken"), [(0.5, True), (0.01, False), (-0.5, False)])
def test_a_rival_takes_a_chart_over_where_rows_can_tell(gain, taken):
    X, _, Y, _ = problem(80, 3)
    data, rng = data_of(X, Y), np.random.default_rng(0)
    f = 0.5 * rng.normal(size=Y.shape)
    other = f + gain * Y + 0.3 * rng.normal(size=Y.shape)
    by, fair = Judges(data, Softmax(3), Y), np.ones(80, dtype=bool)
    one, rival = Tuned(None, 1.0, f, Softmax(3)), Tuned(None, 1.0, other, Softmax(3))
    assert (preferred(one, rival, by, fair) is rival) == taken


@pytest.fixture(scope="module")
def many():
    """Fourteen classes around points of a plane, which noise mixes."""
    rng = np.random.default_rng(0)
    y = np.arange(420) % 14
    return 3 * rng.normal(size=(14, 2))[y] + rng.normal(size=(420, 2)), y


def test_many_classes_are_solved_for_by_least_squares(many, tmp_path):
    X, y = many
    model = IGLClassifier(effort="fast", random_state=0).fit(X[:210], y[:210])
    assert model.loss_ == "least_squares"
    asked = IGLClassifier(effort="fast", loss="cross_entropy", random_state=0).fit(X[:210], y[:210])
    assert asked.loss_ == "cross_entropy"
    assert asked.temperature_ > 3 * model.temperature_
    costs = [-log_softmax(m.decision_function(X[210:]), axis=1)[np.arange(210), y[210:]].mean()
             for m in (model, asked)]  # fmt: skip
    assert costs[0] < 1.1 * costs[1] < 1.1 * np.log(14)
    save(model, tmp_path / "m.greenfold")
    again = load(tmp_path / "m.greenfold")
    assert again.loss_ == "least_squares"
    assert (again.predict_proba(X) == model.predict_proba(X)).all()


def test_the_page_of_a_stack_has_the_corners_that_it_solves_for(many):
    """The page sends classes to corners at 1: other logits and another temperature, the same classes."""
    X, y = many
    stack = IGLStackClassifier(effort="fast", random_state=0).fit(X[:210], y[:210])
    one = stack.predictor_.heaviest
    assert one.sharpness > 1
    shown, x = heaviest(stack), torch.from_numpy(stack.units_.x.inside(X))
    assert shown.loss_ == "least_squares"
    same = stack.predictor_.alone().log_proba(x)
    assert_allclose(shown.predictor_.log_proba(x), same, atol=1e-9)
    onehot = torch.from_numpy(np.eye(14)[y[:210]])
    by = Likely(Corners(14), one.alpha, 1e-8)
    at_one = shown.model_.solve(x[:210], onehot, by)
    assert_allclose(at_one.w, shown.model_.w, atol=1e-6)

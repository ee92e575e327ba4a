"""Probabilities that mean what they say: leave-one-out, calibration, and what names leave alone."""

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from greenfold import IGLClassifier
from greenfold.design import Design
from greenfold.learn.judges import Indicators
from greenfold.likelihoods.classes import temperature
from greenfold.solve import Logistic, cross_entropy, left_out
from greenfold.solve import softmax as softmax_module
from tests.nested import nested

QUICK = {"chart": "linear", "n_atoms": 20, "max_iter": 3, "random_state": 0}


def problem(n, c, seed=0):
    """Rows, one-hot classes with noise, and a design of 8 penalized columns and a constant."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=n), np.linspace(-0.6, 0.6, c - 1))
    Phi = torch.from_numpy(np.cos(X @ rng.normal(size=(2, 8)) + rng.uniform(0, 6, 8)))
    Y = torch.from_numpy(np.eye(c)[y])
    return X, y, Design.stack(Phi, Phi.new_ones(n, 1)), Y


def left_out_losses(design, Y, weight, alpha):
    """Log-loss of each row by a fit without it."""
    losses = []
    for i in range(len(Y)):
        kept = weight.clone()
        kept[i] = 0
        w = Logistic(alpha, relative=False).solve(design, Y, kept).w
        losses.append(float(-(Y[i] * (design.Phi[i] @ w).log_softmax(0)).sum()))
    return np.array(losses)


@pytest.mark.parametrize("c", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_leave_one_out_agrees_with_refits(c, weighted):
    _, _, design, Y = problem(60, c)
    weight = (
        torch.linspace(0.5, 2, 60, dtype=torch.float64) if weighted else torch.ones(60).double()
    )
    solution = Logistic(1.0, relative=False).solve(design, Y, weight)
    u = left_out(design, Y, solution, cross_entropy, weight).u
    closed = -(Y * u.log_softmax(1)).sum(1).numpy()
    exact = left_out_losses(design, Y, weight, 1.0)
    fitted = -(Y * (design.Phi @ solution.w).log_softmax(1)).sum(1).numpy()
    error, moved = np.abs(closed - exact).mean(), np.abs(fitted - exact).mean()
    assert error < 0.1 * moved  # what the fit itself misses
    assert closed.mean() == pytest.approx(exact.mean(), rel=0.03)


def test_leave_one_out_of_one_logit_is_that_of_two_classes():
    """One logit at strength α and two at 2α are the same model."""
    _, _, design, Y = problem(60, 2)
    one = Logistic(0.2, relative=False).solve(design, Y[:, 1:])
    two = Logistic(0.4, relative=False).solve(design, Y)
    u = left_out(design, Y[:, 1:], one, cross_entropy)
    v = left_out(design, Y, two, cross_entropy)
    torch.testing.assert_close(u.u[:, 0], v.u[:, 1] - v.u[:, 0], rtol=1e-4, atol=1e-5)
    assert u.rank == pytest.approx(v.rank, rel=1e-4)


def test_degrees_of_freedom_run_from_none_to_all():
    _, _, design, Y = problem(80, 4)
    ranks = []
    for alpha in (1e6, 1.0, 1e-9):
        solution = Logistic(alpha, relative=False).solve(design, Y)
        ranks.append(left_out(design, Y, solution, cross_entropy).rank)
    assert ranks[0] == pytest.approx(0, abs=1e-3)
    assert 0 < ranks[1] < ranks[2]
    assert ranks[2] == pytest.approx(3 * 8, rel=1e-3)


def test_class_by_class_leave_one_out_is_close(monkeypatch):
    _, _, design, Y = problem(80, 4)
    solution = Logistic(0.3, relative=False).solve(design, Y)
    whole = left_out(design, Y, solution, cross_entropy)
    monkeypatch.setattr(softmax_module, "LARGEST_HESSIAN", 1)
    single = left_out(design, Y, solution, cross_entropy)
    fitted, a, b = (
        float(-(Y * u.log_softmax(1)).sum(1).mean())
        for u in (design.Phi @ solution.w, whole.u, single.u)
    )
    assert a < b < a + 0.5 * (a - fitted)  # on the safe side


def bumps(n, rng):
    """Classes drawn from known probabilities."""
    X = rng.uniform(-2, 2, (n, 2))
    u = np.stack([2 * np.sin(2 * X[:, 0]), 2 * X[:, 1], np.zeros(n)], 1)
    P = softmax(u, axis=1)
    y = (P.cumsum(1) < rng.uniform(size=(n, 1))).sum(1)
    return X, y, P


def test_log_loss_comes_close_to_the_entropy():
    """The classes are drawn from known probabilities, so nothing can do better than their entropy."""
    rng = np.random.default_rng(0)
    X, y, _ = bumps(400, rng)
    X_new, _, P = bumps(3000, rng)
    model = IGLClassifier(random_state=0).fit(X, y)
    p = model.predict_proba(X_new)
    np.testing.assert_allclose(p.sum(1), 1)
    entropy = -(P * np.log(P)).sum(1).mean()
    expected = -(P * np.log(p)).sum(1).mean()  # over all labels the rows might have had
    assert entropy < expected < entropy + 0.05
    assert model.standings_[0].score == pytest.approx(expected, abs=0.06)  # and it knows


def test_least_squares_needs_its_temperature():
    """A softmax of the indicators is no probability; at the temperature of left-out rows it is one."""
    rng = np.random.default_rng(1)
    (X, y, _), (X_new, _, P) = bumps(400, rng), bumps(3000, rng)
    model = IGLClassifier(loss="least_squares", effort="fast", random_state=0).fit(X, y)
    p = model.predict_proba(X_new)
    raw = softmax(model.decision_function(X_new) * model.temperature_, axis=1)
    entropy = -(P * np.log(P)).sum(1).mean()
    calibrated, uncalibrated = (-(P * np.log(q)).sum(1).mean() for q in (p, raw))
    assert calibrated < entropy + 0.05
    assert uncalibrated > entropy + 0.15
    assert raw.max(1).mean() < 0.6 < P.max(1).mean()


def test_temperature_recovers_what_logits_were_multiplied_by():
    rng = np.random.default_rng(0)
    u = 3 * rng.normal(size=20_000)
    y = rng.uniform(size=20_000) < expit(u)
    logits = 5 * np.stack([0 * u, u], 1)
    assert temperature(logits, np.eye(2)[y.astype(int)], np.ones(20_000)) == pytest.approx(
        5, rel=0.05
    )


def test_temperature_does_not_take_separated_classes_for_certain():
    """Without an error in 20 rows, the next one may still have about one in 20."""
    Y = np.eye(2)[np.arange(20) % 2]
    T = temperature(Y, Y, np.ones(20))
    assert 0.03 < softmax([0, 1 / T])[0] < 0.15


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(90, 3))
    return X, np.digitize(X[:, 0] - X[:, 1] + 0.3 * rng.normal(size=90), [-0.8, 0.8])


@pytest.fixture(scope="module")
def islands():
    """Three classes far apart: the isotropic chart explains them and no search is needed."""
    rng = np.random.default_rng(4)
    y = np.arange(90) % 3
    return rng.normal(size=(90, 3)) + 3 * np.eye(3)[y], y


@pytest.mark.parametrize(
    "settings", [{"n_atoms": 40, "random_state": 0}, QUICK], ids=["auto", "linear"]
)
def test_names_and_order_of_classes_and_rows_do_not_matter(islands, settings):
    X, y = islands
    names = np.array(["lemon", "apple", "melon"])
    model = IGLClassifier(**nested(**settings)).fit(X, y)
    p = model.predict_proba(X)
    order = np.random.default_rng(0).permutation(len(X))
    named = IGLClassifier(**nested(**settings)).fit(X[order], names[y][order])
    assert list(named.classes_) == ["apple", "lemon", "melon"]
    np.testing.assert_allclose(named.predict_proba(X)[:, [1, 0, 2]], p, rtol=1e-3, atol=1e-4)
    again = IGLClassifier(**nested(**settings)).fit(X[order], y[order])
    assert (again.predict_proba(X) == p).all()  # the same bits


def test_a_stripe_is_found_by_the_search():
    """One direction across four axes decides: charts along the axes miss it, the searched ones do not."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (270, 4))
    y = (np.sin(3 * X @ [1, 1, -1, 1]) > 0).astype(int)
    model = IGLClassifier(random_state=0).fit(X, y)
    first, *rest = model.standings_
    assert first.name.startswith("linear chart")
    assert first.n_dims <= 2
    assert first.score < 0.7 * min(rival.score for rival in rest if rival.n_dims == 4)


def test_errors_of_rows_left_out_cost_their_log_loss():
    rng = np.random.default_rng(0)
    onehot, shares = np.eye(3)[rng.integers(0, 3, 200)], np.full(3, 1 / 3)
    Y, noise = onehot - shares, Indicators(shares)
    far = noise.nats(Y, Y, np.ones(200))  # u = 0: nothing is known
    assert far == pytest.approx(np.log(3), rel=1e-6)
    near = noise.nats(0.3 * Y + 0.1 * rng.normal(size=Y.shape), Y, np.ones(200))
    assert near < 0.1 * far
    assert noise.losses(np.full_like(Y, np.nan), Y, np.ones(200)).min() == np.inf


def test_weights_count_rows_and_balance_classes(blobs):
    X, y = blobs
    y = (y == 2).astype(int)
    times = 1 + np.arange(len(y)) % 3
    weighted = IGLClassifier(**nested(**QUICK)).fit(X, y, times)
    repeated = IGLClassifier(**nested(**QUICK)).fit(np.repeat(X, times, 0), np.repeat(y, times))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-10)
    balanced = IGLClassifier(**nested(class_weight="balanced", **QUICK)).fit(X, y)
    factors = {k: len(y) / (2 * (y == k).sum()) for k in (0, 1)}
    given = IGLClassifier(**nested(class_weight=factors, **QUICK)).fit(X, y)
    by_hand = IGLClassifier(**nested(**QUICK)).fit(X, y, np.array([factors[k] for k in y]))
    np.testing.assert_allclose(balanced.predict_proba(X), by_hand.predict_proba(X), atol=1e-10)
    np.testing.assert_allclose(given.predict_proba(X), by_hand.predict_proba(X), atol=1e-10)
    plain = IGLClassifier(**nested(**QUICK)).fit(X, y)
    assert balanced.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean() + 0.02
    with pytest.raises(ValueError, match="class_weight"):
        IGLClassifier(class_weight="even").fit(X, y)


@pytest.mark.parametrize("chart", ["linear", "axis", "warp", "mlp", "pca"])
@pytest.mark.parametrize("loss", ["cross_entropy", "least_squares"])
def test_a_given_chart_learns(blobs, chart, loss):
    X, y = blobs
    seen = []
    settings = {**QUICK, "chart": chart, "loss": loss, "max_iter": 8, "callbacks": [seen.append]}
    model = IGLClassifier(**nested(**settings)).fit(X, y)
    assert model.history_.loss[-1] < model.history_.loss[0]
    assert len(seen) == len(model.history_.loss)
    assert model.score(X, y) > 0.7
    share = np.bincount(y) / len(y)
    assert log_loss(y, model.predict_proba(X)) < -(share * np.log(share)).sum()
    assert model.effective_rank_ > 0
    assert model.alpha_ > 0
    assert model.gates_.shape == (model.transform(X).shape[1],)
    assert model.chart_ is model.model_.encoder


def test_what_it_answers_fits_together(blobs, capsys):
    X, y = blobs
    model = IGLClassifier(**nested(verbose=1, **QUICK)).fit(X, y)
    assert "chart" in capsys.readouterr().err
    p = model.predict_proba(X)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), p)
    np.testing.assert_allclose(softmax(model.decision_function(X), axis=1), p)
    assert (model.classes_[p.argmax(1)] == model.predict(X)).all()
    two = IGLClassifier(**nested(**QUICK)).fit(X, y > 0)
    np.testing.assert_allclose(expit(two.decision_function(X)), two.predict_proba(X)[:, 1])
    assert np.isfinite(two.predict_log_proba(1e3 * X)).all()


def test_scikit_learn_tools_take_it():
    X, y = load_iris(return_X_y=True)
    base = IGLClassifier(**nested(**QUICK))
    pipeline = make_pipeline(StandardScaler(), base)
    grid = GridSearchCV(pipeline, {"iglclassifier__n_dims": [1, 2]}, cv=3, scoring="neg_log_loss")
    assert grid.fit(X, y).best_score_ > -0.25
    binary = (y == 1).astype(int)
    assert cross_val_score(base, X, binary, cv=3, scoring="roc_auc").mean() > 0.95
    platt = CalibratedClassifierCV(base, cv=3).fit(X, y)
    assert platt.score(X, y) > 0.9

"""Rows that belong together are left out together, wherever rows judge."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.model_selection import GroupKFold, KFold, TimeSeriesSplit

from greenfold import IGLClassifier, IGLRegressor, IGLStack, Training
from greenfold.chart import AxisScales
from greenfold.green import Heat
from greenfold.learn.data import Data, folds_of
from greenfold.learn.posterior import Posterior
from greenfold.model import IGL, Tied
from greenfold.solve import Logistic, Ridge, cross_entropy, left_out, squares

f64 = torch.float64


def problem(n=40, D=2, c=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, D, dtype=f64, generator=generator)
    Y = torch.stack([torch.sin(x[:, 0] + k) for k in range(c)], 1)
    Y = Y + 0.3 * torch.randn(n, c, dtype=f64, generator=generator)
    weight = 0.5 + torch.rand(n, dtype=f64, generator=generator)
    model = IGL(AxisScales(D), Heat(0.5), Tied(x[:12]), n_dims=D, energy=True).eval()
    return model, x, Y, weight, torch.arange(n) % 7


@torch.no_grad()
def test_errors_of_folds_are_those_of_refits():
    model, x, Y, weight, folds = problem()
    solution = model.solve(x, Y, Ridge(0.3, relative=False), weight)
    told = Posterior.of(model, x, Y, solution, weight, folds=folds)
    design = model.design(x)
    left = left_out(design, Y, solution, squares, weight, folds).u
    for k in range(7):
        out, kept = folds == k, folds != k
        model.solve(x[kept], Y[kept], Ridge(0.3, relative=False), weight[kept])
        u = model(x[out])
        assert_allclose(told.loo_errors[out], Y[out] - u, rtol=1e-8, atol=1e-10)
        assert_allclose(left[out], u, rtol=1e-8, atol=1e-10)
        part = Posterior.of(model, x[kept], Y[kept], model.solve(x[kept], Y[kept],
            Ridge(0.3, relative=False), weight[kept]), weight[kept])  # fmt: skip
        ratio = told.loo_std[out] / part.std(model, x[out]).numpy()
        assert_allclose(ratio / ratio[0], 1, rtol=1e-8)  # up to σ, which is that of all rows


@torch.no_grad()
def test_folds_of_one_are_rows():
    model, x, Y, weight, _ = problem()
    solution = model.solve(x, Y, Ridge(0.3, relative=False), weight)
    alone = Posterior.of(model, x, Y, solution, weight)
    told = Posterior.of(model, x, Y, solution, weight, folds=torch.arange(len(x)))
    assert_allclose(told.loo_errors, alone.loo_errors, rtol=1e-9)
    assert_allclose(told.loo_std, alone.loo_std, rtol=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
@torch.no_grad()
def test_logits_of_folds_are_near_those_of_refits(classes, monkeypatch):
    model, x, Y, weight, folds = problem(n=60, c=classes)
    onehot = torch.eye(classes, dtype=f64)[Y.argmax(1)]
    design = model.design(x)
    solver = Logistic(1.0, relative=False)
    solution = solver.solve(design, onehot, weight)
    known = (design, onehot, solution, cross_entropy, weight)
    rows = left_out(*known, torch.arange(60))
    assert_allclose(rows.u, left_out(*known).u, rtol=1e-8, atol=1e-9)
    told = left_out(*known, folds).u
    monkeypatch.setattr("greenfold.solve.softmax.LARGEST_HESSIAN", 1)
    single = left_out(*known, folds).u
    moved, missed, coarse = [], [], []
    for k in range(7):
        out, kept = folds == k, folds != k
        model.solve(x[kept], onehot[kept], solver, weight[kept])
        u = model(x[out])
        full = design.Phi[out] @ solution.w
        moved.append((full - u).log_softmax(1))
        missed.append((told[out].log_softmax(1) - u.log_softmax(1)).abs().mean())
        coarse.append((single[out].log_softmax(1) - u.log_softmax(1)).abs().mean())
        moved[-1] = (full.log_softmax(1) - u.log_softmax(1)).abs().mean()
    assert sum(missed) < 0.25 * sum(moved)
    assert sum(coarse) < sum(moved)


def clinics(n=30, each=5, seed=0):
    """Several rows of every one of n places; the place is in the columns, and says nothing of others."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n), each)
    place = rng.normal(size=(n, 3))[groups]
    X = np.hstack([place, rng.normal(size=(n * each, 1))]) + 1e-3 * rng.normal(size=(n * each, 4))
    return X, rng.normal(size=n)[groups] + 0.1 * rng.normal(size=n * each), groups


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "make",
    [
        lambda: IGLRegressor(random_state=0),
        lambda: IGLStack(random_state=0),
        lambda: IGLRegressor("axis", random_state=0, training=Training(max_iter=20)),
    ],
    ids=["default", "stack", "given"],
)
def test_rows_of_one_group_do_not_judge_each_other(make):
    X, y, groups = clinics()
    alone, together = make().fit(X, y), make().fit(X, y, groups=groups)
    assert alone.standings_[0].score < 0.7  # it knows the place
    assert together.standings_[0].score > 0.9  # and nothing of a new one
    new, target, _ = clinics(200, 1, seed=1)

    def covered(model):
        low, high = model.predict_interval(new, 0.1)
        return np.mean((low <= target) & (target <= high))

    assert covered(together) > 0.7  # of 30 places one learns so much
    assert covered(together) > covered(alone) - 0.05


def test_classes_of_one_group_do_not_judge_each_other():
    X, y, groups = clinics()
    labels = y > 0
    alone = IGLClassifier(random_state=0).fit(X, labels)
    together = IGLClassifier(random_state=0).fit(X, labels, groups=groups)
    assert together.standings_[0].score > alone.standings_[0].score
    new, target, _ = clinics(200, 1, seed=1)

    def loss(model):
        p = model.predict_proba(new)[np.arange(200), (target > 0).astype(int)]
        return -np.log(p).mean()

    assert loss(together) < loss(alone)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_order_of_rows_is_no_matter():
    X, y, groups = clinics(15, 4)
    order = np.random.default_rng(0).permutation(len(X))
    one = IGLRegressor(random_state=0, effort="fast").fit(X, y, groups=groups)
    other = IGLRegressor(random_state=0, effort="fast").fit(
        X[order], y[order], groups=groups[order]
    )
    assert_allclose(one.predict(X), other.predict(X), rtol=1e-6, atol=1e-8)


def test_no_split_parts_a_fold():
    folds = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    data = Data.of(torch.randn(10, 2, dtype=f64), torch.randn(10, 1, dtype=f64), folds=folds)
    for rows in (data.coarse(3).folds, data.first(5)):
        assert all(len(rows[folds == k].unique()) == 1 for k in range(5))
    assert 0 < int(data.first(5).sum()) < 10


def test_folds_are_those_asked_for():
    X, groups = np.arange(12.0)[:, None], np.repeat([5, 7, 9], 4)
    assert folds_of(None, None, X, None) == 10
    assert folds_of(4, None, X, None) == 4
    found = folds_of(None, groups, X, None)
    assert len(set(zip(found, groups))) == 3
    assert (folds_of(KFold(3), None, X, None) == np.repeat([0, 1, 2], 4)).all()
    assert set(folds_of(GroupKFold(2), groups, X, None)) == {0, 1}
    pairs = [(np.arange(6), np.arange(6, 12)), (np.arange(6, 12), np.arange(6))]
    assert (folds_of(pairs, None, X, None) == np.repeat([1, 0], 6)).all()


@pytest.mark.parametrize(
    ("cv", "groups", "words"),
    [
        (TimeSeriesSplit(3), None, "every row out once"),
        ([(np.arange(6), np.arange(12))], None, "at least 2 folds"),
        ([(np.arange(6), np.arange(12)), (np.arange(6), np.arange(6))], None, "overlap"),
        (None, np.zeros(12), "at least 2 groups"),
        (None, np.zeros(5), "inconsistent numbers of samples"),
        (1, None, "`cv` must be"),
        ("many", None, "`cv` must be"),
    ],
)
def test_what_is_no_way_to_leave_rows_out_is_refused(cv, groups, words):
    X = np.random.default_rng(0).normal(size=(12, 2))
    with pytest.raises(ValueError, match=words):
        IGLRegressor(cv=cv).fit(X, X[:, 0], groups=groups)

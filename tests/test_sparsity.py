"""Strengths that are exactly zero: the group lasso, importances, and what an estimator keeps."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import MultiTaskLasso

from greenfold import IGLRegressor, Source, Training
from greenfold.design import Design
from greenfold.green import Heat, Point
from greenfold.solve import GroupLasso, Ridge, RunningSums, evidence, gcv, log_mse, penalized
from tests.nested import nested

f64 = torch.float64


def smooth_columns(n=150, r=40, seed=0):
    """Heavily dependent columns, as kernels give them, a constant, and two outputs."""
    x = torch.rand(n, 2, dtype=f64, generator=torch.Generator().manual_seed(seed)) * 4 - 2
    Phi = Heat(0.5).response(x, Point(x[:r]))
    Y = torch.stack([torch.sin(2 * x[:, 0]) * torch.cos(x[:, 1]) + 3, x[:, 0]], 1)
    return Design.stack(Phi, torch.ones(n, 1, dtype=f64)), Y


@pytest.mark.parametrize("strength", [0.9, 0.1, 0.01])
@pytest.mark.parametrize("outputs", [1, 2])
def test_group_lasso_agrees_with_scikit_learn(strength, outputs):
    design, Y = smooth_columns()
    Y = Y[:, :outputs]
    solution = GroupLasso(strength, alpha=0.0).solve(design, Y)
    lam = solution.info["strength"]
    peer = MultiTaskLasso(alpha=lam / len(Y), tol=1e-12, max_iter=200_000)
    peer.fit(design.Phi[:, :-1].numpy(), Y.numpy())
    assert set(np.flatnonzero(peer.coef_.any(0))) == set(
        solution.w[:-1].any(1).nonzero()[:, 0].tolist()
    )
    torch.testing.assert_close(solution.w[:-1], torch.tensor(peer.coef_.T), rtol=0, atol=3e-3)


@pytest.mark.parametrize("columns", [1, 4])
def test_group_lasso_satisfies_the_conditions_of_its_minimum(columns):
    """Φᵀr = λ w_r/‖w_r‖ where an atom is kept, ‖Φᵀr‖ ≤ λ where it is zero, nothing for constants."""
    design, Y = smooth_columns()
    solution = GroupLasso(0.05, n_columns=columns, alpha=0.0).solve(design, Y)
    lam, w = solution.info["strength"], solution.w
    g = (design.Phi.T @ (Y - design.Phi @ w)).detach()
    assert float(g[-1].abs().max()) < 1e-9
    w, g = (part[:-1].reshape(columns, -1, 2) for part in (w, g))
    norm = w.square().sum((0, 2)).sqrt()
    kept = norm > 0
    assert 0 < int(kept.sum()) < len(kept)
    assert float(g[:, ~kept].square().sum((0, 2)).sqrt().max()) <= lam * (1 + 1e-6)
    direction = lam * w[:, kept] / norm[kept, None]
    torch.testing.assert_close(g[:, kept], direction, rtol=0, atol=1e-6 * lam)


def test_the_largest_strength_removes_every_atom_and_a_smaller_one_does_not():
    design, Y = smooth_columns()
    gone = GroupLasso(1.0).solve(design, Y)
    assert gone.info["active"] == 0
    torch.testing.assert_close(gone.w[-1], Y.mean(0))
    assert GroupLasso(0.99).solve(design, Y).info["active"] > 0


@pytest.mark.slow
def test_gradient_of_the_lasso_loss_is_that_of_its_minimum():
    design, Y = smooth_columns(n=40, r=8)
    lasso = GroupLasso(0.3, relative=False, tol=1e-13)
    Phi = design.Phi[:, :-1].clone().requires_grad_()

    def loss(Phi):
        return lasso.loss(Design.stack(Phi, torch.ones(40, 1, dtype=f64)), Y)

    assert torch.autograd.gradcheck(loss, Phi, eps=1e-5, atol=1e-6)


def test_an_unfinished_lasso_says_so():
    design, Y = smooth_columns()
    with pytest.warns(ConvergenceWarning, match="duality gap"):
        GroupLasso(1e-3, max_iter=3).solve(design, Y)
    with pytest.raises(ValueError, match="`strength`"):
        GroupLasso(1.5)


@pytest.mark.parametrize("objective", [evidence, gcv, penalized, log_mse])
def test_objectives_from_sums_are_those_from_rows(objective):
    design, Y = smooth_columns()
    name, alpha = objective.__name__, torch.tensor(-4.0, dtype=f64)
    weight = torch.rand(150, dtype=f64, generator=torch.Generator().manual_seed(1)) + 0.5
    for w in (None, weight):
        n = 150.0 if w is None else float(w.sum())
        running = RunningSums(n, decay=0.0).objective(name, design, Y, alpha, w)
        torch.testing.assert_close(running, objective(design, Y, alpha, w), rtol=1e-8, atol=0)


def test_running_sums_of_equal_batches_are_the_sums():
    design, Y = smooth_columns()
    sums, alpha = RunningSums(150.0), torch.tensor(-4.0, dtype=f64)
    values = [float(sums.objective("evidence", design, Y, alpha)) for _ in range(3)]
    np.testing.assert_allclose(values, float(evidence(design, Y, alpha)), rtol=1e-9)
    with pytest.raises(ValueError, match="needs all rows at once"):
        sums.objective("loo", design, Y, alpha)


# --- estimators


def plane(n, seed=0, D=6, noise=0.05):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n + 300, D))
    u = np.sin(1.5 * X[:, 0]) + np.cos(X[:, 1])
    return X[:n], u[:n] + noise * rng.normal(size=n), X[n:], u[n:]


@pytest.mark.parametrize(("chart", "sparsity"), [("auto", 4e-3), ("axis", 3e-3)])
def test_a_sparse_source_keeps_few_atoms_and_most_of_the_accuracy(chart, sparsity):
    X, y, X_new, u = plane(200)
    options = {"chart": chart, "random_state": 0, **({} if chart == "auto" else {"max_iter": 30})}
    full = IGLRegressor(**nested(**options)).fit(X, y)
    sparse = IGLRegressor(**nested(sparsity=sparsity, **options)).fit(X, y)
    assert len(sparse.source_) == sparse.effective_rank_ < 0.5 * len(full.source_)
    assert (sparse.source_ != 0).all()
    assert sparse.score(X_new, u) > 0.97


def test_stronger_penalties_keep_fewer_atoms():
    X, y, *_ = plane(150)
    ranks = [
        IGLRegressor(chart="axis", source=Source(sparsity=s), training=Training(max_iter=20))
        .fit(X, y)
        .effective_rank_
        for s in (0.003, 0.03, 0.3)
    ]
    assert ranks[0] > ranks[1] > ranks[2] >= 1


def test_a_chart_can_descend_the_lasso_itself():
    X, y, X_new, u = plane(150)
    model = IGLRegressor(
        chart="axis",
        source=Source(sparsity=0.02, n_atoms=60),
        training=Training(objective="penalized", max_iter=25),
    ).fit(X, y)
    assert model.history_.loss[-1] < model.history_.loss[0]
    assert model.score(X_new, u) > 0.9


def test_importance_fades_atoms_that_are_not_needed():
    X, y, X_new, u = plane(150)
    model = IGLRegressor(
        chart="axis",
        source=Source(sparsity="importance", n_atoms=60),
        training=Training(max_iter=60),
    ).fit(X, y)
    assert model.effective_rank_ < 60
    assert model.score(X_new, u) > 0.9
    rho = model.model_.rho.detach().numpy()
    assert rho.min() < 0.3 < rho.max()


def test_ridge_is_what_remains_of_the_lasso_as_it_weakens():
    design, Y = smooth_columns(r=12)
    weak = GroupLasso(1e-7, alpha=1e-3, tol=1e-12).solve(design, Y).w
    torch.testing.assert_close(weak, Ridge(1e-3).solve(design, Y).w, rtol=0, atol=1e-3)

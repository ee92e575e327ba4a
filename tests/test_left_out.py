"""Rows left out in closed form are what refits without them say, whatever solves."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from greenfold.design import Design
from greenfold.solve import Logistic, Ridge, Solution, cross_entropy, left_out, squares
from greenfold.solve.kernel import kernel_evidence
from greenfold.solve.left_out import TIGHT, Quadratic, _without
from tests.test_projection import classes, f64, randn

N, FOLDS = 40, {"rows": None, "folds": torch.arange(40) % 7, "unequal": torch.arange(40) // 17}


def problem(m=6, q=2):
    penalty = torch.cat([torch.linspace(0.5, 2, m), torch.zeros(q)]).double()
    return Design(randn(N, m + q), penalty), randn(N, seed=5).square() + 0.3


def parts(folds):
    """Every fold, and the other rows."""
    folds = torch.arange(N) if folds is None else folds
    return [(folds == k, folds != k) for k in folds.unique()]


@pytest.mark.parametrize("folds", FOLDS)
@pytest.mark.parametrize("shape", [(6, 2), (60, 1), (6, 0)])
def test_least_squares_without_a_fold_is_the_refit(folds, shape):
    design, weight = problem(*shape)
    Y, ridge = randn(N, 3, seed=1), Ridge(0.4, relative=False)
    left = left_out(design, Y, ridge.solve(design, Y, weight), squares, weight, FOLDS[folds])
    fit = Quadratic.of(design, Y, weight, 0.4)
    errors, variance = fit.leave(FOLDS[folds])
    assert_close(left.u, Y - errors, rtol=1e-8, atol=1e-8)
    for own, rest in parts(FOLDS[folds]):
        part = Design(design.Phi[rest], design.penalty)
        w = ridge.solve(part, Y[rest], weight[rest]).w
        assert_close(left.u[own], design.Phi[own] @ w, rtol=1e-8, atol=1e-8)
        F = Quadratic.of(part, Y[rest], weight[rest], 0.4).F
        half = torch.linalg.solve_triangular(F, design.Phi[own].T, upper=False)
        assert_close(variance[own], half.square().sum(0), rtol=1e-8, atol=1e-8)
    hat = design.Phi @ ridge.solve(design, torch.eye(N, dtype=f64), weight).w
    assert left.rank == pytest.approx(3 * (float(hat.trace()) - shape[1]), rel=1e-8)


@pytest.mark.parametrize("folds", FOLDS)
def test_a_kernel_without_a_fold_is_the_refit(folds):
    x, Y, noise = randn(N, 2), randn(N, 2, seed=1).numpy(), 0.2 / (1 + np.arange(N) % 3)
    K = torch.exp(-torch.cdist(x, x).square() / 2).numpy()
    given = torch.arange(N) if FOLDS[folds] is None else FOLDS[folds]
    errors = kernel_evidence(K, Y, noise).left_out(given.numpy())
    for own, rest in parts(FOLDS[folds]):
        o, r = own.numpy(), rest.numpy()
        alpha = kernel_evidence(K[np.ix_(r, r)], Y[r], noise[r]).alpha
        np.testing.assert_allclose(
            errors[o], Y[o] - (K[np.ix_(o, r)] + 1) @ alpha, rtol=1e-7, atol=1e-9
        )


@pytest.mark.parametrize("folds", FOLDS)
@pytest.mark.parametrize("c", [1, 2, 4])
def test_cross_entropy_without_a_fold_is_one_newton_step_of_the_rest(c, folds):
    """By a loop over folds with the whole Hessian in w; for single rows nearly the refit, too."""
    design, weight = problem(4, 1)
    Y, alpha, solver = classes(N, c), 2.0, Logistic(2.0, relative=False, tol=1e-12)
    solution = solver.solve(design, Y, weight)
    left = left_out(design, Y, solution, cross_entropy, weight, FOLDS[folds])
    rho = alpha * design.penalty
    rho[-1] = 1e-8 * (weight @ design.Phi[:, -1].square())  # keeps constants finite

    for own, rest in parts(FOLDS[folds]):

        def J(w, rest=rest):
            u = design.Phi[rest] @ w.reshape(-1, c)
            log_p = (
                torch.cat([u, 0 * u], 1).log_softmax(1) if c == 1 else u.log_softmax(1)
            )  # one logit is the first of two
            target = torch.cat([Y, 1 - Y], 1) if c == 1 else Y
            fit = -(weight[rest, None] * target[rest] * log_p).sum()
            return fit + (rho @ w.reshape(-1, c).square()).sum() / 2

        w = solution.w.reshape(-1)
        H = torch.autograd.functional.hessian(J, w)
        g = torch.autograd.functional.jacobian(J, w)
        newton = (w - torch.linalg.pinv(H) @ g).reshape(-1, c)
        assert_close(left.u[own], design.Phi[own] @ newton, rtol=1e-6, atol=1e-6)
        if folds == "rows":
            exact = (
                design.Phi[own]
                @ solver.solve(
                    Design(design.Phi[rest], design.penalty), Y[rest], weight[rest], solution.w
                ).w
            )
            moved = (design.Phi[own] @ solution.w - exact).abs().max()
            assert (left.u[own] - exact).abs().max() < 0.3 * moved + 1e-3


@torch.no_grad()
def test_a_fit_through_its_rows_is_left_with_a_little_more_noise():
    """With as many atoms as rows and no noise, r/(1 − h) is 0/0; refits say what it should be."""
    x = torch.linspace(0, 1, 12, dtype=f64)[:, None]
    Phi = torch.linalg.cholesky(torch.exp(-torch.cdist(x, x).square() / 0.02))
    Y, one = torch.sin(6 * x), torch.ones(12, dtype=f64)
    fit = Quadratic.of(Design.stack(Phi), Y, one, 1e-18)
    assert float(fit.leverage.max()) == 1 - TIGHT
    errors, variance = fit.resolved().leave()
    solution = Solution(fit.w, torch.tensor(1e-18, dtype=f64), *(torch.zeros(()),) * 2, {})
    assert_close(left_out(Design.stack(Phi), Y, solution, squares).u, Y - errors)
    K = Phi @ Phi.T
    for i in range(12):
        rest = torch.arange(12) != i
        exact = Y[i] - K[i, rest] @ torch.linalg.solve(K[rest][:, rest], Y[rest])
        assert_close(errors[i], exact, rtol=1e-3, atol=1e-4)
    assert bool((variance > 0).all())


@pytest.mark.parametrize("m", [1, 3])
def test_directions_that_only_their_rows_know_do_not_overflow(m):
    """V₋ = 1/(1 − R²) for V = 1, up to what rounding leaves of 1 − R²."""
    V, g = torch.eye(m, dtype=f64), torch.ones(m, 1, dtype=f64)
    for square, expected in ((0.5, 2.0), (1 - 1e-12, 1 + 1 / TIGHT)):
        step, variance = _without(V, square**0.5 * V, square * V, g)
        assert_close(step, expected * g, rtol=1e-6, atol=0)
        assert_close(variance, expected * g[:, 0], rtol=1e-6, atol=0)

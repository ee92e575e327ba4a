"""The solved strengths satisfy their equations, and the criteria equal their definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn import linear_model
from torch.testing import assert_close

from greenfold.design import Design
from greenfold.solve import (
    OBJECTIVES,
    Logistic,
    Ridge,
    SolveError,
    Statistics,
    evidence,
    gcv,
    laplace_evidence,
    loo,
    penalized,
    softmax,
)
from tests.cases import SOLVERS

f64 = torch.float64
SHAPES = [(30, 6, 0), (30, 6, 3), (8, 12, 0), (8, 12, 2), (7, 7, 1)]  # rows, atoms, null columns
CHOSEN = ["evidence", "gcv", "loo"]


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=f64, generator=torch.Generator().manual_seed(seed))


def problem(n: int, m: int, q: int, c: int = 2) -> tuple[Design, torch.Tensor]:
    """Random columns in random order, with penalties that are not all one."""
    penalty = torch.cat([randn(m, seed=3).square() + 0.5, torch.zeros(q, dtype=f64)])
    order = torch.randperm(m + q, generator=torch.Generator().manual_seed(4))
    return Design(randn(n, m + q), penalty[order]), randn(n, c, seed=1)


def hilbert_like(n: int = 200, r: int = 40) -> torch.Tensor:
    """Wide Gaussians on a line: condition number above 1e15."""
    x, mu = torch.linspace(0, 1, n, dtype=f64), torch.linspace(0, 1, r, dtype=f64)
    return torch.exp(-0.5 * ((x[:, None] - mu) / 0.3).square())


def svd_prediction(Phi: torch.Tensor, Y: torch.Tensor, alpha: float) -> torch.Tensor:
    U, S, _ = np.linalg.svd(Phi.numpy(), full_matrices=False)
    keep = S**2 / (S**2 + alpha) if alpha else 1e-14 * S[0] < S
    return torch.tensor((U * keep) @ (U.T @ Y.numpy()))


# Ridge ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("alpha", [1e-13, 1e-6, 0.3, "evidence", "loo"])
def test_normal_equations_hold(shape, alpha):
    """Φᵀ W (Φw − Y) + α c w = 0."""
    design, Y = problem(*shape)
    weight = randn(len(Y), seed=5).square() + 0.1
    w, alpha_used, *_ = Ridge(alpha).solve(design, Y, weight)
    gradient = design.Phi.T @ (weight[:, None] * (design.Phi @ w - Y))
    gradient += alpha_used * design.penalty[:, None] * w
    assert gradient.abs().max() < 1e-10


@pytest.mark.parametrize(("n", "p"), [(30, 6), (8, 12), (9, 9)])
def test_zero_strength_is_least_squares_of_minimum_norm(n, p):
    Phi, Y = randn(n, p), randn(n, 2, seed=1)
    w = Ridge(0.0).solve(Design.stack(Phi), Y).w
    assert_close(w, torch.tensor(np.linalg.lstsq(Phi.numpy(), Y.numpy(), rcond=None)[0]))


@pytest.mark.parametrize("shape", [(8, 12, 2), (8, 12, 0)])
def test_zero_strength_is_the_limit_of_small_strengths(shape):
    design, Y = problem(*shape)
    assert_close(
        Ridge(0.0).solve(design, Y).w, Ridge(1e-9).solve(design, Y).w, rtol=1e-6, atol=1e-6
    )


def test_infinite_strength_leaves_the_fit_of_the_null_space():
    design, Y = problem(30, 6, 3)
    w, null = Ridge(1e12).solve(design, Y).w, design.penalty == 0
    b = np.linalg.lstsq(design.Phi[:, null].numpy(), Y.numpy(), rcond=None)[0]
    assert w[~null].abs().max() < 1e-10
    assert_close(w[null], torch.tensor(b), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("alpha", [0.0, 1e-12, 1e-3, 1.0, 1e6, 1e100])
@pytest.mark.parametrize("n", [50, 3])
def test_null_space_is_never_shrunk(alpha, n):
    Phi = torch.cat([1e-3 * randn(n, 5), torch.ones(n, 1, dtype=f64)], dim=1)
    design = Design(Phi, penalty=torch.tensor([1.0] * 5 + [0.0]))
    w = Ridge(alpha).solve(design, torch.full((n, 1), 7.0, dtype=f64)).w
    assert_close(w[-1], torch.tensor([7.0], dtype=f64), rtol=1e-10, atol=0)


def test_agrees_with_scikit_learn():
    Phi, Y = randn(40, 7), randn(40, 3, seed=1)
    design = Design.stack(Phi, torch.ones(40, 1, dtype=f64))
    weight = randn(40, seed=5).square()
    w = Ridge(0.7, relative=False).solve(design, Y, weight).w
    peer = linear_model.Ridge(alpha=0.7).fit(Phi.numpy(), Y.numpy(), sample_weight=weight.numpy())
    assert_close(w[:-1].T, torch.tensor(peer.coef_))
    assert_close(w[-1], torch.tensor(peer.intercept_))


@pytest.mark.parametrize("alpha", [1e-13, 0.1, "evidence", "gcv"])
def test_weights_are_repeated_rows(alpha):
    design, Y = problem(12, 5, 2)
    weight = torch.tensor([0, 1, 2, 3] * 3)
    once = Ridge(alpha).solve(design, Y, weight)
    rows = torch.repeat_interleave(torch.arange(12), weight)
    repeated = Ridge(alpha).solve(Design(design.Phi[rows], design.penalty), Y[rows])
    assert_close(once.w, repeated.w)
    assert_close(once.alpha, repeated.alpha)
    assert_close(once.residual, repeated.residual)


@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_are_solved_one_by_one(shape):
    design, Y = problem(*shape, c=3)
    one_by_one = [Ridge(0.1).solve(design, y[:, None]).w for y in Y.T]
    assert_close(Ridge(0.1).solve(design, Y).w, torch.cat(one_by_one, dim=1))


@pytest.mark.parametrize("name", CHOSEN)
@settings(max_examples=15, deadline=None)
@given(k=st.integers(-20, 20), j=st.integers(-20, 20))
def test_chosen_strength_has_no_units(name, k, j):
    """Φ 2^k and Y 2^j give the same prediction."""
    design, Y = problem(30, 6, 3)
    u = design.Phi @ Ridge(name).solve(design, Y).w
    scaled = Design(design.Phi * 2.0**k, design.penalty)
    assert_close(scaled.Phi @ Ridge(name).solve(scaled, Y * 2.0**j).w, u * 2.0**j)


def test_order_of_columns_does_not_matter():
    design, Y = problem(30, 6, 3)
    order = torch.arange(8, -1, -1)
    w = Ridge(0.1).solve(Design(design.Phi[:, order], design.penalty[order]), Y).w
    assert_close(w, Ridge(0.1).solve(design, Y).w[order])


# The ladder -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alpha", "route", "error"),
    [
        (1e-4, "cholesky", 1e-11),
        (1e-8, "cholesky", 1e-7),
        (1e-12, "qr", 1e-9),
        (1e-16, "qr", 1e-7),
        (0.0, "svd", 1e-9),
    ],
)
def test_ill_conditioned_prediction_agrees_with_svd(alpha, route, error):
    Phi = hilbert_like()
    Y = torch.sin(7 * torch.linspace(0, 1, 200, dtype=f64))[:, None]
    solution = Ridge(alpha).solve(Design.stack(Phi), Y)
    assert solution.info["route"] == route
    reference = svd_prediction(Phi, Y, float(solution.alpha))
    assert (Phi @ solution.w - reference).abs().max() < error


def test_condition_is_that_of_the_equilibrated_penalized_system():
    Phi = hilbert_like() * torch.logspace(-3, 3, 40, dtype=f64)
    for alpha in (1e-4, 1e-6, 1e-12):
        solution = Ridge(alpha).solve(Design.stack(Phi), Phi[:, :1])
        A = Phi.T @ Phi + solution.alpha * torch.eye(40, dtype=f64)
        d = A.diagonal().sqrt()
        stacked = torch.cat([Phi, solution.alpha.sqrt() * torch.eye(40, dtype=f64)]) / d
        assert_close(solution.condition, torch.linalg.cond(stacked) ** 2, rtol=0.2, atol=0)


def test_columns_of_any_scale_are_kept_and_zero_columns_are_dropped():
    Phi = randn(30, 5)
    Phi[:, 1] *= 1e-9
    Phi[:, 3] = 0
    solution = Ridge(0.0).solve(
        Design.stack(Phi[:, :3], Phi[:, 3:]), Phi @ torch.ones(5, 1).to(f64)
    )
    expected = torch.tensor([[1.0], [1.0], [1.0], [0.0], [1.0]], dtype=f64)
    assert_close(solution.w, expected, rtol=1e-6, atol=1e-6)
    assert solution.info["rank"] == 4


def test_dependent_null_columns_share_their_coefficient():
    one = torch.ones(20, 1, dtype=f64)
    Phi, Y = randn(20, 3), randn(20, 1, seed=1)
    once = Ridge(0.1).solve(Design.stack(Phi, one), Y)
    twice = Ridge(0.1).solve(Design.stack(Phi, torch.cat([one, 3 * one], 1)), Y)
    assert_close(twice.w[:3], once.w[:3])
    assert_close(twice.w[3] + 3 * twice.w[4], once.w[3])
    assert twice.info["rank"] == once.info["rank"] == 4


def test_an_atom_inside_the_null_space_gets_nothing():
    x = torch.linspace(0, 1, 20, dtype=f64)[:, None]
    design = Design.stack(torch.cat([2 * x + 1, x**2], 1), torch.cat([x**0, x], 1))
    for alpha in (0.0, 1e-12, 0.1):
        w = Ridge(alpha).solve(design, 5 * x - 2).w
        assert_close(
            w, torch.tensor([[0.0], [0.0], [-2.0], [5.0]], dtype=f64), rtol=1e-9, atol=1e-9
        )


def test_float32_design_is_solved_in_float64():
    Phi = hilbert_like().float()
    Y = Phi @ torch.ones(40, 1)
    solution = Ridge(1e-8).solve(Design.stack(Phi), Y)
    assert solution.w.dtype == solution.residual.dtype == torch.float32
    assert solution.residual.sqrt() < 1e-5


# Choosing the strength --------------------------------------------------------------------------


def refitted(design: Design, Y: torch.Tensor, alpha: float, weight: torch.Tensor) -> float:
    """Leave every row out in turn."""
    total = 0.0
    for i in range(len(Y)):
        rows = torch.arange(len(Y)) != i
        rest = Design(design.Phi[rows], design.penalty)
        w = Ridge(alpha, relative=False).solve(rest, Y[rows], weight[rows]).w
        total += weight[i] * (Y[i] - design.Phi[i] @ w).square().mean()
    return total / weight.sum()


@pytest.mark.parametrize("shape", SHAPES)
def test_leave_one_out_equals_refitting(shape):
    design, Y = problem(*shape)
    weight = randn(len(Y), seed=5).square() + 0.1
    for alpha in (1e-2, 1.0):
        value = loo(design, Y, math.log(alpha), weight)
        assert_close(value, refitted(design, Y, alpha, weight), rtol=1e-8, atol=0)


@pytest.mark.parametrize("shape", SHAPES)
def test_gcv_equals_its_definition_from_the_hat_matrix(shape):
    design, Y = problem(*shape)
    n = len(Y)
    # The fit of unit vectors is the hat matrix, column by column.
    solve = Ridge(0.3, relative=False).solve
    hat = design.Phi @ solve(design, torch.eye(n, dtype=f64)).w
    residual = Y - hat @ Y
    expected = residual.square().sum(0).mean() / n / (1 - hat.trace() / n) ** 2
    assert_close(gcv(design, Y, math.log(0.3)), expected)


@pytest.mark.parametrize(("n", "m"), [(12, 4), (6, 9)])
def test_evidence_is_a_multivariate_normal_density(n, m):
    """y ~ N(0, σ²(ΦC⁻¹Φᵀ/α + I)) with σ² at its maximum."""
    design, Y = problem(n, m, 0)
    alpha = 0.37
    K = (design.Phi / design.penalty) @ design.Phi.T / alpha + torch.eye(n, dtype=f64)
    total = 0.0
    for y in Y.T:
        variance = y @ torch.linalg.solve(K, y) / n
        total += multivariate_normal.logpdf(y.numpy(), cov=(variance * K).numpy())
    assert float(evidence(design, Y, math.log(alpha))) == pytest.approx(-total / (2 * n), rel=1e-10)


def test_evidence_with_null_columns_is_that_of_orthonormal_contrasts():
    design, Y = problem(15, 5, 3)
    null = design.penalty == 0
    Q = torch.linalg.qr(design.Phi[:, null], mode="complete").Q[:, 3:]  # (15, 12)
    contrasts = Design(Q.T @ design.Phi[:, ~null], design.penalty[~null])
    assert_close(15 * evidence(design, Y, -1.0), 12 * evidence(contrasts, Q.T @ Y, -1.0))


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_basis_of_the_null_space_does_not_matter(name):
    design, Y = problem(15, 5, 3)
    null = design.penalty == 0
    Phi = design.Phi.clone()
    Phi[:, null] = Phi[:, null] @ (randn(3, 3, seed=7) + 3 * torch.eye(3, dtype=f64))
    objective = OBJECTIVES[name]
    assert_close(objective(design, Y, -1.0), objective(Design(Phi, design.penalty), Y, -1.0))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", CHOSEN)
def test_chosen_strength_minimizes_the_objective_of_its_name(name, shape):
    design, Y = problem(*shape)
    Y = Y + 2 * design.Phi[:, :2]
    solution, objective = Ridge(name).solve(design, Y), OBJECTIVES[name]
    best = objective(design, Y, solution.alpha.log())
    relative = torch.logspace(-6, 3, 91, dtype=f64)
    alphas = relative * solution.alpha / solution.info["alpha_relative"]
    others = torch.stack([objective(design, Y, alpha.log()) for alpha in alphas])
    assert best <= others.min() + 1e-9 * others.min().abs()


def test_candidates_are_the_only_choices():
    design, Y = problem(30, 6, 3)
    alphas = [1e-3, 1e-1]
    assert Ridge("gcv", alphas=alphas).solve(design, Y).info["alpha_relative"] == pytest.approx(0.1)


@pytest.mark.parametrize("name", CHOSEN)
def test_a_constant_target_gives_a_finite_answer(name):
    design = Design.stack(randn(20, 30), torch.ones(20, 1, dtype=f64))
    Y = torch.full((20, 1), 3.0, dtype=f64)
    solution = Ridge(name).solve(design, Y)
    assert_close(design.Phi @ solution.w, Y)
    assert all(bool(f(design, Y, 0.0).isfinite()) for f in OBJECTIVES.values())


# Statistics -------------------------------------------------------------------------------------


def test_streamed_and_merged_sums_give_the_solution_of_all_rows():
    design, Y = problem(40, 6, 2)
    weight = randn(40, seed=5).square()
    streams = Statistics(), Statistics()
    for i, rows in enumerate(torch.arange(40).split(7)):
        batch = Design(design.Phi[rows], design.penalty)
        streams[i % 2].update(batch, Y[rows], weight[rows])
    streamed, whole = streams[0].merge(streams[1]).solve(0.1), Ridge(0.1).solve(design, Y, weight)
    for name in ("w", "alpha", "residual"):
        assert_close(getattr(streamed, name), getattr(whole, name))


def test_sums_of_many_columns_are_the_products_of_all_with_all():
    design, Y = problem(50, 600, 2)
    weight = randn(50, seed=5).square()
    statistics = Statistics()
    for rows in torch.arange(50).split(20):
        batch = Design(design.Phi[rows], design.penalty)
        statistics.update(batch, Y[rows], weight[rows])
    assert_close(statistics.gram, design.Phi.mT @ (weight[:, None] * design.Phi))
    assert_close(statistics.cross, design.Phi.mT @ (weight[:, None] * Y))


def test_forgetting_is_a_weight_that_decays_with_age():
    design, Y = problem(30, 5, 1)
    statistics = Statistics(decay=0.5)
    for rows in torch.arange(30).split(10):
        statistics.update(Design(design.Phi[rows], design.penalty), Y[rows])
    weight = torch.tensor([0.25, 0.5, 1.0], dtype=f64).repeat_interleave(10)
    assert_close(statistics.solve(0.1).w, Ridge(0.1).solve(design, Y, weight).w)


def test_sums_that_cannot_be_factored_ask_for_a_larger_alpha():
    statistics = Statistics()
    statistics.update(Design.stack(hilbert_like()), hilbert_like()[:, :1])
    statistics.gram[0, 1] = statistics.gram[1, 0] = 2 * statistics.gram.diagonal().max()
    with pytest.raises(SolveError, match=r"singular[\s\S]*raise it to 1e-10"):
        statistics.solve(0.0)


# Logistic ---------------------------------------------------------------------------------------


def classes(n: int, c: int, seed: int = 2) -> torch.Tensor:
    y = torch.randint(0, c, (n,), generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.one_hot(y, c).to(f64)


@pytest.mark.parametrize("largest", [3000, 1], ids=["newton", "newton-cg"])
@pytest.mark.parametrize("c", [1, 3])
def test_newton_agrees_with_scikit_learn(c, largest, monkeypatch):
    monkeypatch.setattr(softmax, "LARGEST_HESSIAN", largest)
    Phi, Y = randn(80, 6), classes(80, max(c, 2))
    y = Y.argmax(1).numpy()
    weight = randn(80, seed=5).square() + 0.1
    solver = Logistic(0.5, relative=False)
    solution = solver.solve(Design.stack(Phi), Y[:, -1:] if c == 1 else Y, weight)
    peer = linear_model.LogisticRegression(C=2.0, fit_intercept=False, tol=1e-11, max_iter=10_000)
    peer.fit(Phi.numpy(), y, sample_weight=weight.numpy())
    assert_close(solution.w.T, torch.tensor(peer.coef_), rtol=1e-5, atol=1e-6)
    assert solution.info["gradient"] < 1e-8
    assert solution.info["route"] == ("newton" if largest > 1 else "newton-cg")


def test_one_logit_is_two_symmetric_ones_at_twice_the_strength():
    design, Y = Design.stack(randn(40, 5), torch.ones(40, 1, dtype=f64)), classes(40, 2)
    two = Logistic(0.2).solve(design, Y).w
    one = Logistic(0.1).solve(design, Y[:, 1:]).w
    assert_close(two[:, 1:] - two[:, :1], one, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("alpha", [1e-6, 1e-2, 1.0])
@pytest.mark.parametrize("c", [5, 40])
def test_newton_with_many_classes_reaches_the_optimum(alpha, c, monkeypatch):
    """The gradient of J vanishes, whichever preconditioner it takes, and J is that of the whole Hessian.

    J is curved at least as its penalty, so w is determined to |∇J| / α: by a weak one hardly.
    """
    design, Y = Design.stack(randn(80, 12), torch.ones(80, 1)), classes(80, c)
    Y[:c] = torch.eye(c)
    solver = Logistic(alpha, relative=False)
    monkeypatch.setattr(softmax, "MANY_CLASSES", 1)
    found = solver.solve(design, Y)
    P = (design.Phi @ found.w).softmax(1)
    slope = design.Phi.mT @ (P - Y) + alpha * design.penalty[:, None] * found.w
    assert found.info["route"] == "newton-cg"
    assert slope[:-1].abs().max() < 1e-7 * 80
    monkeypatch.setattr(softmax, "MANY_CLASSES", 3000)
    whole = solver.solve(design, Y)
    assert whole.info["route"] == "newton"

    def J(w):
        fit = -((design.Phi @ w).log_softmax(1) * Y).sum()
        return fit + alpha / 2 * (design.penalty[:, None] * w.square()).sum()

    assert_close(J(found.w), J(whole.w), rtol=1e-5, atol=1e-5)
    if alpha >= 1e-2:
        assert_close(design.Phi @ found.w, design.Phi @ whole.w, rtol=1e-4, atol=1e-4)


def test_newton_leaves_the_null_space_alone():
    """A free constant reproduces the class frequencies, however strong the penalty."""
    Y = classes(50, 3)
    design = Design.stack(randn(50, 4), torch.ones(50, 1, dtype=f64))
    P = (design.Phi @ Logistic(1e6).solve(design, Y).w).softmax(1)
    assert_close(P.mean(0), Y.mean(0), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("c", [1, 2])
def test_separable_classes_stay_finite_and_correct(c):
    x = torch.linspace(-1, 1, 40, dtype=f64)[:, None]
    Y = torch.cat([x < 0, x >= 0], 1).to(f64)[:, 2 - c :]
    design = Design.stack(1e-3 * randn(40, 2), torch.cat([x**0, x], 1))
    solution = Logistic(1e-6).solve(design, Y)
    u = design.Phi @ solution.w
    assert bool(((u[:, -1:] - (u[:, :1] if c == 2 else 0) > 0) == (x >= 0)).all())
    assert solution.info["safeguard"] == 1e-8
    assert solution.w.abs().max() < 1e6


def test_a_warm_start_needs_one_step():
    design, Y = Design.stack(randn(60, 5)), classes(60, 3)
    cold = Logistic(0.1).solve(design, Y)
    warm = Logistic(0.1).solve(design, Y, start=cold.w)
    assert warm.info["iterations"] == 1 < cold.info["iterations"]
    assert_close(warm.w, cold.w, rtol=1e-6, atol=1e-7)


def test_laplace_evidence_is_exact_in_one_dimension_of_many_rows():
    """Against quadrature over the single strength of a binary model."""
    Phi = randn(60, 1)
    Y = (Phi + randn(60, 1, seed=1) > 0).to(f64)
    alpha = 0.5
    w = torch.linspace(-5, 15, 20001, dtype=f64)
    u = Phi * w  # (60, 20001)
    log_p = (Y * u - torch.nn.functional.softplus(u)).sum(0) - 0.5 * alpha * w**2
    integral = torch.logsumexp(log_p, 0) + math.log(20 / 20000)
    expected = -(integral + 0.5 * math.log(alpha / (2 * math.pi))) / 60
    value = laplace_evidence(Design.stack(Phi), Y, math.log(alpha))
    assert_close(value, expected, rtol=3e-3, atol=0)


# Failures ---------------------------------------------------------------------------------------


every_solver = pytest.mark.parametrize("solver", SOLVERS, ids=repr)


@every_solver
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_columns_are_counted_and_explained(solver, bad):
    Phi = randn(10, 4)
    Phi[2, 1] = Phi[3, 2] = bad
    with pytest.raises(SolveError, match=r"2 of its 4 columns[\s\S]*\(a\)[\s\S]*\(b\)[\s\S]*\(c\)"):
        solver.solve(Design.stack(Phi), classes(10, 2))


@every_solver
def test_wrong_shapes_are_named(solver):
    design, Y = Design.stack(randn(10, 3)), classes(10, 2)
    with pytest.raises(ValueError, match=r"pass `Y\[:, None\]`"):
        solver.solve(design, Y[:, 0])
    with pytest.raises(ValueError, match=r"n = 10"):
        solver.solve(design, Y[:9])
    with pytest.raises(ValueError, match=r"`weight` must have shape \(10,\)"):
        solver.solve(design, Y, torch.ones(9))
    with pytest.raises(ValueError, match="non-negative"):
        solver.solve(design, Y, torch.linspace(-1, 1, 10))
    with pytest.raises(ValueError, match="`penalty`"):
        solver.solve(Design(design.Phi, torch.ones(2)), Y)


@every_solver
def test_every_solver_counts_rows_and_starts_where_it_is_told(solver):
    """Weights are repetitions, and the answer is the same from anywhere."""
    design, Y = problem(40, 5, 2)
    Y = classes(40, 2)
    weight = torch.tensor([0, 1, 2, 3] * 10)
    rows = torch.repeat_interleave(torch.arange(40), weight)
    once = solver.solve(design, Y, weight)
    repeated = solver.solve(Design(design.Phi[rows], design.penalty), Y[rows])
    assert_close(once.w, repeated.w, rtol=1e-6, atol=1e-6)
    assert_close(once.residual, repeated.residual, rtol=1e-6, atol=1e-6)
    for start in (once.w, once.w + 0.1 * randn(*once.w.shape)):
        again = solver.solve(design, Y, weight, start)
        assert_close(again.w, once.w, rtol=1e-6, atol=1e-6)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="evidence"):
        Ridge("aic")
    with pytest.raises(ValueError, match="`alpha`"):
        Ridge(-1.0)
    with pytest.raises(ValueError, match="`alpha`"):
        Logistic(0.0)
    with pytest.raises(ValueError, match="class probabilities"):
        Logistic().solve(Design.stack(randn(5, 2)), randn(5, 3))
    with pytest.raises(ValueError, match="`update`"):
        Statistics().solve(1e-8)


def test_a_strength_cannot_be_chosen_from_as_many_rows_as_null_columns():
    design, Y = problem(3, 4, 3)
    with pytest.raises(SolveError, match="3 rows"):
        Ridge("gcv").solve(design, Y)
    with pytest.raises(SolveError, match="lower its polynomial degree"):
        evidence(design, Y, 0.0)


def test_overflow_is_an_error_and_not_a_number():
    design = Design.stack(1e200 * randn(10, 3))
    for solver in (Ridge(1e-3), Ridge("evidence")):
        with pytest.raises(SolveError, match="rescale"):
            solver.solve(design, randn(10, 1))
    assert bool(penalized(Design.stack(1e100 * randn(10, 3)), randn(10, 1), 0.0).isfinite())


def test_too_few_newton_steps_is_an_error():
    with pytest.raises(SolveError, match="`max_iter` is too small"):
        Logistic(1e-6, max_iter=2).solve(Design.stack(randn(30, 3)), classes(30, 3))

"""Gradients of the reduced problem, with the strengths solved for, against finite differences."""

import pytest
import torch
from torch.testing import assert_close

from greenfold.design import Design
from greenfold.solve import (
    OBJECTIVES,
    Logistic,
    Ridge,
    SolveError,
    laplace_evidence,
    softmax,
)

f64 = torch.float64
SHAPES = [(9, 4, 0), (9, 4, 2), (5, 7, 0), (5, 7, 2)]  # rows, atoms, null columns


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=f64, generator=torch.Generator().manual_seed(seed))


def columns(n: int, m: int, q: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Φ (n, m + q), null columns in the middle, and a penalty that is not all one."""
    penalty = randn(m, seed=3).square() + 0.5
    return randn(n, m + q), torch.cat([penalty[:2], penalty.new_zeros(q), penalty[2:]])


def classes(n: int, c: int) -> torch.Tensor:
    """One-hot rows, or a single column of 0 and 1 when c = 1."""
    Y = torch.nn.functional.one_hot((torch.arange(n) * 7 + 3) % max(c, 2), max(c, 2)).to(f64)
    return Y[:, -1:] if c == 1 else Y


def assert_gradient(f, *arguments: torch.Tensor, step: float = 1e-5, rtol: float = 1e-5) -> None:
    """Autograd agrees with central differences along random directions, in every argument."""
    leaves = [x.clone().requires_grad_() for x in arguments]
    gradients = torch.autograd.grad(f(*leaves), leaves)
    for i, gradient in enumerate(gradients):
        for seed in range(3):
            direction = randn(*arguments[i].shape, seed=10 + seed)
            ahead, behind = list(arguments), list(arguments)
            ahead[i], behind[i] = arguments[i] + step * direction, arguments[i] - step * direction
            slope = (f(*ahead) - f(*behind)) / (2 * step)
            assert_close((gradient * direction).sum(), slope, rtol=rtol, atol=rtol * 0.01)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_gradient_of_objective(name, shape, weighted):
    Phi, penalty = columns(*shape)
    Y, log_alpha = randn(len(Phi), 2, seed=1), torch.tensor(-0.7, dtype=f64)
    weight = randn(len(Phi), seed=5).square() + 0.3 if weighted else None

    def f(Phi, Y, log_alpha):
        return OBJECTIVES[name](Design(Phi, penalty), Y, log_alpha, weight)

    assert_gradient(f, Phi, Y, log_alpha)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("alpha", [0.3, 1e-11])
def test_gradient_of_strengths(alpha, shape, relative):
    Phi, penalty = columns(*shape)
    if alpha < 1e-3 and shape[0] < shape[1]:
        alpha = 1e-6  # interpolation: finite differences lose the rest
    Y, direction = randn(len(Phi), 2, seed=1), randn(Phi.shape[1], 2, seed=2)
    weight = randn(len(Phi), seed=5).square() + 0.3

    def f(Phi, Y):
        solution = Ridge(alpha, relative=relative).solve(Design(Phi, penalty), Y, weight)
        return (solution.w * direction).sum() + solution.residual

    assert_gradient(f, Phi, Y, rtol=1e-4)


def test_gradient_at_a_chosen_strength_is_that_of_the_same_fixed_strength():
    Phi, penalty = columns(9, 4, 2)
    Y = Phi[:, :1] + randn(9, 1, seed=1)
    gradients = []
    alpha = float(Ridge("gcv").solve(Design(Phi, penalty), Y).alpha)
    for solver in (Ridge("gcv"), Ridge(alpha, relative=False)):
        leaf = Phi.clone().requires_grad_()
        gradients += torch.autograd.grad(solver.solve(Design(leaf, penalty), Y).w.sum(), leaf)
    assert_close(*gradients)


def test_gradient_reaches_a_column_that_is_zero():
    Phi, penalty = columns(9, 4, 2)
    Phi[:, 0] = 0
    Y = randn(9, 2, seed=1)
    assert_gradient(lambda Phi: Ridge(0.3).solve(Design(Phi, penalty), Y).w.sum(), Phi)
    assert_gradient(lambda Phi: OBJECTIVES["evidence"](Design(Phi, penalty), Y, -0.5), Phi)


def test_envelope_shortcut_is_exact_for_the_penalized_residual_and_wrong_for_the_bare_one():
    Phi, penalty = columns(9, 4, 2)
    Y, leaf = randn(9, 1, seed=1), Phi.clone().requires_grad_()
    design = Design(leaf, penalty)
    w, alpha, *_ = Ridge(0.3, relative=False).solve(design, Y)
    shortcut = (leaf @ w.detach() - Y).square().sum() / 9
    (envelope,) = torch.autograd.grad(shortcut, leaf)
    (penalized,) = torch.autograd.grad(OBJECTIVES["penalized"](design, Y, alpha.log()), leaf)
    (bare,) = torch.autograd.grad((leaf @ w - Y).square().sum() / 9, leaf)
    assert_close(envelope, penalized, rtol=1e-10, atol=1e-12)
    assert (envelope - bare).norm() > 0.01 * bare.norm()


def test_minimum_norm_has_a_value_and_no_gradient():
    Phi = randn(4, 7).requires_grad_()
    solution = Ridge(0.0).solve(Design.stack(Phi), randn(4, 1, seed=1))
    assert solution.residual < 1e-20
    with pytest.raises(SolveError, match="rank 4 of 7"):
        solution.w.sum().backward()


def test_float32_gradients_are_those_of_float64():
    Phi, penalty = columns(9, 4, 2)
    Y, gradients = randn(9, 2, seed=1), []
    for dtype in (f64, torch.float32):
        leaf = Phi.to(dtype).requires_grad_()
        design = Design(leaf, penalty.to(dtype))
        gradients += torch.autograd.grad(OBJECTIVES["evidence"](design, Y.to(dtype), -0.5), leaf)
    assert gradients[1].dtype == torch.float32
    assert_close(gradients[1].double(), gradients[0], rtol=1e-5, atol=1e-6)


# Newton -----------------------------------------------------------------------------------------

both_routes = pytest.mark.parametrize("largest", [3000, 1], ids=["newton", "newton-cg"])


@both_routes
@pytest.mark.parametrize("q", [0, 2])
@pytest.mark.parametrize("c", [1, 3])
def test_gradient_of_newton_strengths(c, q, largest, monkeypatch):
    monkeypatch.setattr(softmax, "LARGEST_HESSIAN", largest)
    Phi, penalty = columns(12, 3, q)
    Y, weight = classes(12, c), randn(12, seed=5).square() + 0.3
    direction = randn(3 + q, c, seed=2)

    def f(Phi):
        w = Logistic(0.1, tol=1e-13).solve(Design(Phi, penalty), Y, weight).w
        return (w * direction).sum()

    assert_gradient(f, Phi)


def test_newton_strengths_pass_gradcheck():
    Phi, penalty = columns(8, 3, 0)
    Y = classes(8, 3)
    solver = Logistic(0.1, relative=False, tol=1e-13)
    f = lambda Phi: solver.solve(Design(Phi, penalty), Y).w  # noqa: E731
    assert torch.autograd.gradcheck(f, Phi.requires_grad_(), atol=1e-6)


@both_routes
@pytest.mark.parametrize("q", [0, 2])
@pytest.mark.parametrize("c", [1, 3])
def test_gradient_of_the_evidence_of_classes(c, q, largest, monkeypatch):
    monkeypatch.setattr(softmax, "LARGEST_HESSIAN", largest)
    Phi, penalty = columns(12, 3, q)
    Y, weight = classes(12, c), randn(12, seed=5).square() + 0.3
    log_alpha = torch.tensor(-0.5, dtype=f64)
    assert_gradient(
        lambda Phi, log_alpha: laplace_evidence(Design(Phi, penalty), Y, log_alpha, weight),
        *(Phi, log_alpha),
        rtol=1e-4,
    )

"""Every factor makes the summary of the dense equations, so that every criterion is one formula."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from greenfold.design import Design
from greenfold.solve import OBJECTIVES, SolveError, Statistics, fused
from greenfold.solve.criteria import CRITERIA, STREAMED, UNIT, evidence, marginal, scan
from greenfold.solve.factor import Dual, Primal, _qr, cholesky, svd
from greenfold.solve.kernel import kernel_evidence
from greenfold.solve.objectives import Factored
from greenfold.solve.projected import project
from greenfold.solve.streamed import Sums
from greenfold.solve.strength import Spectrum
from tests.test_projection import SHAPES, assert_gradient, columns, f64, randn


def primal(Phi, alpha):
    m = Phi.shape[1]
    return Primal(Phi, cholesky(Phi.mT @ Phi + alpha * torch.eye(m, dtype=f64)), m)


def dual(Phi, alpha):
    n = len(Phi)
    return Dual(Phi, cholesky(Phi @ Phi.mT + alpha * torch.eye(n, dtype=f64)), n, alpha)


def qr(Phi, alpha):
    return _qr(Phi, Phi.square().sum(0), alpha)


def factored(make):
    def summary(design, Y, log_alpha, weight):
        problem, alpha = project(design, Y, weight), torch.as_tensor(log_alpha, dtype=f64).exp()
        factor = make(problem.Phi.detach(), float(alpha.detach()))
        return Factored(problem.n, problem.q, problem.least(), problem, alpha, factor)

    return summary


def spectrum(design, Y, log_alpha, weight):
    return Spectrum.of(project(design, Y, weight)).at(math.exp(log_alpha))


def streamed(design, Y, log_alpha, weight):
    G = design.Phi.mT @ (weight[:, None] * design.Phi)
    b, yy = design.Phi.mT @ (weight[:, None] * Y), weight @ Y.square()
    alpha = torch.as_tensor(log_alpha, dtype=f64).exp()
    return Sums.of(G, b, yy, design.penalty, alpha, float(weight.sum()))


def statistics(design, Y, log_alpha, weight):
    sums = Statistics()
    for rows in torch.arange(len(Y)).split(4):
        sums.update(Design(design.Phi[rows], design.penalty), Y[rows], weight[rows])
    alpha = torch.tensor(log_alpha, dtype=f64).exp()
    known = (sums.gram, sums.cross, sums.square.diagonal(), sums.penalty)
    return Sums.of(*known, alpha, sums.n)


DIFFERENTIABLE = {
    **{f.__name__: factored(f) for f in (primal, dual, qr, svd)},
    "streamed": streamed,
}
SUMMARIES = {**DIFFERENTIABLE, "spectrum": spectrum, "statistics": statistics}


def problem(shape):
    Phi, penalty = columns(*shape)
    return Design(Phi, penalty), randn(len(Phi), 2, seed=1), randn(len(Phi), seed=5).square() + 0.3


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", SUMMARIES)
def test_a_summary_is_that_of_the_dense_equations(name, shape):
    design, Y, weight = problem(shape)
    alpha, root = 0.4, weight.sqrt()[:, None]
    Phi, target, free = root * design.Phi, root * Y, design.penalty == 0
    inverse = torch.linalg.inv(Phi.mT @ Phi + (alpha * design.penalty).diag())
    hat, w = Phi @ inverse @ Phi.mT, inverse @ Phi.mT @ target
    r = target - Phi @ w
    contrasts = torch.linalg.qr(Phi[:, free], mode="complete").Q[:, int(free.sum()) :]
    B = contrasts.mT @ Phi[:, ~free]
    K = B / design.penalty[~free] @ B.mT / alpha
    expected = {
        "n": weight.sum(),
        "q": free.sum().double(),
        "S": r.square().sum(0) + alpha * design.penalty @ w.square(),
        "rss": r.square().sum(0),
        "logdet": torch.logdet(K + torch.eye(len(K), dtype=f64)),
        "dof": hat.trace(),
    }
    found = SUMMARIES[name](design, Y, math.log(alpha), weight)
    for part, value in expected.items():
        assert_close(torch.as_tensor(getattr(found, part), dtype=f64), value, rtol=1e-9, atol=1e-9)
    if name in ("streamed", "statistics"):
        with pytest.raises(ValueError, match="all rows at once"):
            found.left()
    else:
        assert_close(found.left(), (r, hat.diagonal()), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES[1::2])
@pytest.mark.parametrize(
    ("name", "criterion"),
    [(s, c) for s in DIFFERENTIABLE for c in (STREAMED if s == "streamed" else CRITERIA)],
)
def test_gradients_of_criteria_are_numeric_ones(name, criterion, shape):
    design, Y, weight = problem(shape)

    def value(Phi, Y, log_alpha):
        found = DIFFERENTIABLE[name](Design(Phi, design.penalty), Y, log_alpha, weight)
        return CRITERIA[criterion](found)

    assert_gradient(value, design.Phi, Y, torch.tensor(-0.7, dtype=f64))


@pytest.mark.parametrize("c", [1, 2])
def test_the_evidence_of_a_kernel_is_that_of_its_factor_and_a_constant(c):
    """Φ = [chol K, 1] with penalty 1 on the constant, at α = λ."""
    x, noise = randn(20, 2), 0.3
    K = torch.exp(-torch.cdist(x, x).square() / 2)
    Y = randn(20, c, seed=1)
    Phi = torch.cat([torch.linalg.cholesky(K + 1e-13 * torch.eye(20)), torch.ones(20, 1)], 1)
    known = kernel_evidence(K.numpy(), Y.numpy(), noise)
    assert known.value + UNIT == pytest.approx(
        float(OBJECTIVES["evidence"](Design.stack(Phi), Y, math.log(noise))), rel=1e-10
    )


def test_as_many_rows_as_free_columns_have_no_evidence():
    design, Y, weight = problem((3, 4, 3))
    with pytest.raises(SolveError, match="do not exceed the 3"):
        evidence(streamed(design, Y, 0.0, weight / weight.sum() * 3))
    assert marginal(torch.ones(1), 0.0, 4.0, 3).isfinite()


def test_a_scan_finds_the_minimum():
    found = scan(lambda t: (t - 1.3) ** 2, -3.0, 4.0, 1e-6)
    assert math.log(found) == pytest.approx(1.3, abs=1e-4)
    np.testing.assert_allclose(scan(lambda t: t, -3.0, 4.0, 1e-6), math.exp(-3), rtol=1e-4)


@pytest.mark.parametrize("q", [0, 1])
@pytest.mark.parametrize("c", [1, 3])
def test_the_fused_route_has_values_and_gradients_of_the_general_one(q, c):
    generator = torch.Generator().manual_seed(q)
    Phi = torch.randn(40, 12 + q, dtype=f64, generator=generator).requires_grad_()
    Y = torch.randn(40, c, dtype=f64, generator=generator).requires_grad_()
    log_alpha = torch.tensor(-3.0, dtype=f64, requires_grad=True)
    penalty = torch.cat([torch.ones(12, dtype=f64), torch.zeros(q, dtype=f64)])
    design, inputs = Design(Phi, penalty), (Phi, Y, log_alpha)
    quick = fused.log_mse(design, Y, log_alpha)
    slow = CRITERIA["log_mse"](Factored.of(design, Y, log_alpha))
    assert quick is not None
    assert abs((quick - slow).item()) < 1e-12
    found, known = (torch.autograd.grad(value, inputs) for value in (quick, slow))
    for a, b in zip(found, known, strict=True):
        assert_close(a, b, rtol=1e-11, atol=1e-13)

    def value(*inputs):
        return fused.log_mse(Design(inputs[0], penalty), *inputs[1:])

    assert torch.autograd.gradcheck(value, inputs)


def test_the_fused_route_leaves_what_needs_care_to_the_general_one():
    generator = torch.Generator().manual_seed(0)
    Phi, Y = (torch.randn(30, k, dtype=f64, generator=generator) for k in (5, 1))
    ones, one = torch.ones(5, dtype=f64), torch.ones(30, 1, dtype=f64)
    assert fused.log_mse(Design(Phi, ones), Y, 0.0) is not None
    for bad in (
        (Design(Phi, 2 * ones), Y, 0.0),  # a penalty of its own
        (Design(Phi[:4], ones), Y[:4], 0.0),  # fewer rows than columns
        (Design(Phi.float(), ones), Y, 0.0),
        (Design(Phi, ones), Y, -60.0),  # QR keeps more digits
        (Design(Phi * torch.nan, ones), Y, 0.0),
        (Design(Phi, ones), Y * torch.inf, 0.0),
        (Design.stack(torch.cat([Phi, 3 * one], 1), one), Y, 0.0),  # an atom in the span of N
        (Design(torch.cat([one, Phi], 1), torch.cat([ones.new_zeros(1), ones])), Y, 0.0),  # order
        (Design.stack(Phi, torch.cat([one, Phi[:, :1] ** 2], 1)), Y, 0.0),  # two free columns
    ):
        assert fused.log_mse(*bad) is None

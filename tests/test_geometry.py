"""Charts with known metrics: separable where theory says so, and not where it says not."""

import math

import pytest
import torch

from greenfold.green import GaussHermite, geometry
from greenfold.green.geometry import (
    LaplaceBeltrami,
    chart_report,
    encoder_metric,
    metric,
    minus_laplacian,
    mixed_derivatives,
    separability_defect,
    tangent_basis,
    unfolding_ranks,
    volume,
)

f64 = torch.float64


def polar(z):
    r, t = z.T
    return torch.stack([r * torch.cos(t), r * torch.sin(t)], 1)


def spherical(z):
    r, t, p = z.T
    return torch.stack([r * t.sin() * p.cos(), r * t.sin() * p.sin(), r * t.cos()], 1)


def cylindrical(z):
    r, t, h = z.T
    return torch.stack([r * t.cos(), r * t.sin(), h], 1)


def elliptic(z):
    u, v = z.T
    return torch.stack([u.cosh() * v.cos(), u.sinh() * v.sin()], 1)


BOUNDS = {
    polar: [[0.5, 2.0], [0.0, 3.0]],
    spherical: [[0.5, 2.0], [0.3, 2.5], [0.0, 3.0]],
    cylindrical: [[0.5, 2.0], [0.0, 3.0], [-1.0, 1.0]],
    elliptic: [[0.1, 1.2], [0.2, 2.8]],
}
VOLUMES = {
    polar: lambda z: z[:, 0],
    spherical: lambda z: z[:, 0] ** 2 * z[:, 1].sin(),
    cylindrical: lambda z: z[:, 0],
    elliptic: lambda z: z[:, 0].sinh() ** 2 + z[:, 1].sin() ** 2,
}
CHARTS = pytest.mark.parametrize("chart", list(BOUNDS), ids=lambda f: f.__name__)


def sample(chart, n=40):
    bounds = torch.tensor(BOUNDS[chart], dtype=f64)
    unit = torch.rand(n, len(bounds), dtype=f64, generator=torch.Generator().manual_seed(0))
    return bounds[:, 0] + (bounds[:, 1] - bounds[:, 0]) * unit


@CHARTS
def test_volume_elements(chart):
    xi = sample(chart)
    torch.testing.assert_close(volume(metric(chart, xi)), VOLUMES[chart](xi))


@CHARTS
def test_only_elliptic_coordinates_are_not_separable(chart):
    defect = separability_defect(lambda z: volume(metric(chart, z)), torch.tensor(BOUNDS[chart]))
    if chart is elliptic:
        assert defect > 0.03
    else:
        assert defect < 1e-12


def test_defect_of_a_sum_in_two_dimensions_is_the_singular_value_tail():
    """Best rank-one fit of a matrix: Eckart–Young."""

    def f(z):
        return torch.exp(-z[:, 0]) * torch.cos(z[:, 1]) + 0.3 * z[:, 0] * z[:, 1] ** 2

    bounds = torch.tensor([[0.0, 2.0], [0.0, 1.0]])
    F = geometry._on_grid(f, bounds, 24)
    s = torch.linalg.svdvals(F)
    assert separability_defect(f, bounds) == pytest.approx(float(s[1:].norm() / s.norm()), rel=1e-9)


def test_metric_from_the_encoder_equals_metric_from_the_decoder():
    """D = T(JT)⁻¹ on the manifold, though the encoder bends along normals; JJᵀ is not its inverse."""

    def roll(z):
        t, h = z.T
        return torch.stack([t * t.cos(), h, t * t.sin()], 1)

    def encoder(x):
        radius = (x[:, 0] ** 2 + x[:, 2] ** 2).sqrt()
        angle = torch.atan2(x[:, 2], x[:, 0])
        off = radius - angle  # zero on the manifold, for t in (0, π): a slope along the normal
        return torch.stack([angle + 0.5 * off, x[:, 1]], 1)

    generator = torch.Generator().manual_seed(0)
    xi = torch.rand(20, 2, dtype=f64, generator=generator) * 2 + 0.5
    x = roll(xi)
    T = torch.linalg.qr(geometry._jacobian(roll, xi)).Q
    g = metric(roll, xi)
    torch.testing.assert_close(encoder(x), xi)
    torch.testing.assert_close(encoder_metric(encoder, x, T), g)
    J = geometry._jacobian(encoder, x)
    assert float((torch.linalg.inv(J @ J.mT) - g).norm() / g.norm()) > 0.05


def test_tangent_bases_of_a_dense_sphere():
    X = torch.randn(3000, 3, dtype=f64, generator=torch.Generator().manual_seed(0))
    X = X / X.norm(dim=1, keepdim=True)
    T = tangent_basis(X, 2)
    normal = torch.einsum("nd,ndk->nk", X, T)
    assert float(normal.abs().quantile(0.95)) < 0.1
    torch.testing.assert_close(T.mT @ T, torch.eye(2, dtype=f64).expand(3000, 2, 2))


@CHARTS
def test_laplace_beltrami_is_the_flat_laplacian_in_other_coordinates(chart):
    xi = sample(chart)
    x = chart(xi)

    def u(z):
        x = chart(z)
        return x[:, 0] ** 3 * x[:, 1] + torch.sin(x[:, -1])

    flat = -6 * x[:, 0] * x[:, 1] + torch.sin(x[:, -1])
    L = LaplaceBeltrami(chart, torch.tensor(BOUNDS[chart]))
    torch.testing.assert_close(L(u, xi), flat, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(L.separable(u, xi) + L.coupling(u, xi), flat, rtol=1e-9, atol=1e-9)


def test_coupling_vanishes_where_the_operator_is_separable():
    """A stretched flat chart has constant coefficients; a sheared one has a cross term; polar couples."""

    def u(z):
        return torch.sin(z[:, 0]) * torch.exp(z[:, 1])

    box = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    stretched = LaplaceBeltrami(lambda z: z * torch.tensor([2.0, 0.5], dtype=f64), box)
    assert stretched.coupling_ratio(u) < 1e-12
    shear = torch.tensor([[1.0, 0.6], [0.0, 1.0]], dtype=f64)
    assert LaplaceBeltrami(lambda z: z @ shear, box).coupling_ratio(u) > 0.05
    L = LaplaceBeltrami(polar, torch.tensor(BOUNDS[polar]))
    assert L.coupling_ratio(u) > 0.05
    # polar: the only coupled coefficient is 1/r² on ∂_θ², whose average over r is 1/(r₀r₁)
    xi = sample(polar)
    exact = -(1 / xi[:, 0] ** 2 - 1.0) * u(xi)
    torch.testing.assert_close(L.coupling(u, xi), exact, rtol=1e-7, atol=1e-7)


def test_differentiation_is_rank_friendly():
    """−Δ of a rank-R source is a source of R·d atoms, exactly, and its numerical rank obeys the bound."""
    atoms = GaussHermite(torch.tensor([[0.2, -0.3, 0.1], [-0.5, 0.4, 0.6]], dtype=f64), 0.7, 0)
    w = torch.tensor([1.0, -0.8], dtype=f64)
    more, v = minus_laplacian(atoms, w)
    assert len(v) == 2 * 3
    xi = torch.randn(30, 3, dtype=f64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (g,) = torch.autograd.grad((atoms(xi) @ w).sum(), xi, create_graph=True)
    second = sum(
        torch.autograd.grad(g[:, j].sum(), xi, retain_graph=True)[0][:, j] for j in range(3)
    )
    torch.testing.assert_close(more(xi.detach()) @ v, -second)
    bounds = torch.tensor([[-2.0, 2.0]] * 3)
    before = unfolding_ranks(lambda z: atoms(z) @ w, bounds)
    after = unfolding_ranks(lambda z: more(z) @ v, bounds)
    assert before == [2, 2, 2]
    assert all(2 <= rank <= 6 for rank in after)


def test_mixed_derivatives_of_a_product_and_of_a_radial_function():
    bounds = torch.tensor([[0.0, math.pi], [0.0, math.pi]])
    table = mixed_derivatives(
        lambda z: torch.sin(2 * z[:, 0]) * torch.sin(z[:, 1]), bounds, order=2
    )
    exact = torch.tensor([[1.0, 1, 1], [2, 2, 2], [4, 4, 4]], dtype=f64)
    torch.testing.assert_close(table, exact, rtol=2e-2, atol=0)
    unit = torch.tensor([[-1.0, 1.0], [-1.0, 1.0]])

    def radial(z):
        return torch.exp(-8 * (z**2).sum(1).sqrt().clamp_min(0.05))

    def separable(z):
        return torch.exp(-8 * (z[:, 0] ** 2 + 0.0025).sqrt())

    assert mixed_derivatives(radial, unit)[1, 1] > 5 * mixed_derivatives(separable, unit)[1, 1]


def test_chart_report_reads_well():
    def u(z):
        return torch.sin(z[:, 0] + 0.5 * z[:, 1])

    report = chart_report(elliptic, torch.tensor(BOUNDS[elliptic]), u)
    assert report.volume_ranks == [2, 2]
    assert "multiplies the source's rank by 2" in str(report)
    assert "L_coup u is" in str(report)
    assert chart_report(polar, torch.tensor(BOUNDS[polar])).volume_ranks == [1, 1]


def test_curves_and_single_precision_networks_are_charts_too():
    bounds = torch.tensor([[0.2, 2.0]])
    curve = chart_report(lambda z: torch.cat([z, z**2], 1), bounds, lambda z: torch.sin(z[:, 0]))
    assert curve.defect == 0
    assert curve.volume_ranks == [1]
    network = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5))
    report = chart_report(
        network, torch.tensor([[0.0, 1.0], [0.0, 1.0]]), lambda z: torch.sin(z[:, 0])
    )
    assert 0 <= report.defect < 1
    assert next(network.parameters()).dtype == torch.float32


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: LaplaceBeltrami(
                lambda z: z[:, :1] * torch.ones(1, 3), torch.tensor([[0.0, 1.0]] * 2)
            ).coupling_ratio(lambda z: z[:, 0] ** 2),
            "the chart is singular",
        ),
        (lambda: separability_defect(lambda z: z[:, 0], torch.tensor([[1.0, 0.0]])), "`bounds`"),
        (
            lambda: separability_defect(lambda z: z[:, 0], torch.tensor([[0.0, 1.0]] * 8)),
            "Lower `n_grid` to 6",
        ),
        (
            lambda: separability_defect(lambda z: 0 * z[:, 0], torch.tensor([[0.0, 1.0]])),
            "vanishes",
        ),
        (
            lambda: unfolding_ranks(lambda z: 0 / z[:, 0] / 0, torch.tensor([[0.0, 1.0]])),
            "not finite",
        ),
        (
            lambda: mixed_derivatives(lambda z: z[:, 0], torch.tensor([[0.0, 1.0]] * 13)),
            "at most 4096",
        ),
        (lambda: tangent_basis(torch.randn(5, 2), 3), "tangent directions"),
        (
            lambda: encoder_metric(lambda x: 0 * x[:, :1], torch.randn(3, 2), torch.randn(3, 2, 1)),
            "not a chart",
        ),
    ],
)
def test_bad_input_is_explained(call, words):
    with pytest.raises(ValueError, match=words):
        call()

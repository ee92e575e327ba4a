"""The fused design matrix equals the definition, written as four loops."""

import math
from itertools import combinations_with_replacement

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from greenfold import Design
from greenfold.green import (
    Gaussian,
    Heat,
    Matern,
    Point,
    Poisson,
    Polynomial,
    ScreenedPoisson,
    fused,
    matrix,
)
from greenfold.green.atoms import ATOMS
from greenfold.green.integrals import GAUSSIAN
from tests import cases

f64 = torch.float64


def four_loops(L, xi, atoms):
    """Φ_nr = Σ_k γ_k Π_j I_krj(ξ_nj), one number at a time."""
    mixture = L.mixture(atoms, None)
    integral = GAUSSIAN[atoms.name]
    n, r, k, d = len(xi), len(atoms.mu), len(mixture.log_gamma), xi.shape[1]
    Phi = torch.zeros(n, r, dtype=f64)
    for a in range(n):
        for b in range(r):
            for c in range(k):
                log_product = float(mixture.log_gamma[c])
                sign = 1.0
                for j in range(d):
                    S, shift, V, P, height = (float(m[c, j]) for m in mixture[1:])
                    shape = [p[b] for p in atoms.parameters_of(j)]
                    x = float(xi[a, j])
                    at, v = (torch.tensor(t, dtype=f64) for t in (S * x + shift, V))
                    I = float(integral(at, v, *shape))
                    sign *= math.copysign(1, I)
                    log_product += math.log(abs(I)) if I else -math.inf
                    log_product += height - P * x**2 / 2
                Phi[a, b] += sign * math.exp(log_product)
    return Phi


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(
        ["gaussian", "gabor", "mexican_hat", "gauss_hermite", "box", "hat", "point"]
    ),
    operator=st.sampled_from(
        ["poisson", "screened_poisson", "harmonic", "heat", "cauchy", "matern"]
    ),
    n=st.integers(1, 4),
    r=st.integers(1, 3),
    offset=st.floats(-3, 3),
    seed=st.integers(0, 2**31),
)
def test_fused_equals_four_loops(name, operator, n, r, offset, seed):
    atoms = cases.atoms(name, r=r)
    xi = torch.randn(n, 3, dtype=f64, generator=torch.Generator().manual_seed(seed)) + offset
    L = cases.OPERATORS[operator][0]([0, 1, 2])
    exact = four_loops(L, xi, atoms)
    scale = exact.abs().max() + 1e-300
    torch.testing.assert_close(L.response(xi, atoms) / scale, exact / scale, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["gaussian", "gabor"])
def test_blocks_of_rows_do_not_matter(name, monkeypatch):
    xi = torch.randn(301, 3, dtype=f64, generator=torch.Generator().manual_seed(0))
    atoms, L = cases.atoms(name), ScreenedPoisson()
    whole = [xi.clone().requires_grad_() for _ in range(2)]
    a = L.response(whole[0], atoms)
    a.square().sum().backward()
    monkeypatch.setattr(matrix, "TILE", 500)
    monkeypatch.setattr(matrix, "BLOCK", 500)
    b = L.response(whole[1], atoms)
    b.square().sum().backward()
    torch.testing.assert_close(a, b, rtol=1e-13, atol=0)
    torch.testing.assert_close(whole[0].grad, whole[1].grad, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(
    "name", ["gaussian", "point", "gabor", pytest.param("hat", marks=pytest.mark.slow)]
)
def test_first_and_second_derivatives(name, monkeypatch):
    """gradcheck through blocks, and second derivatives, which PDE residuals need."""
    monkeypatch.setattr(matrix, "TILE", 48)  # two blocks of rows
    monkeypatch.setattr(matrix, "BLOCK", 48)
    mu = cases.positions(2, 2).requires_grad_()
    sigma = cases.widths(2, 2).requires_grad_()
    xi = torch.randn(3, 2, dtype=f64, generator=torch.Generator().manual_seed(2)).requires_grad_()

    def response(xi, mu, sigma):
        atoms = Point(mu, 0.3) if name == "point" else type(cases.atoms(name))(mu, sigma)
        return ScreenedPoisson(1.1, n_terms=12).response(xi, atoms)

    inputs = (xi, mu, sigma) if name != "point" else (xi, mu, sigma.detach())
    assert torch.autograd.gradcheck(response, inputs)
    assert torch.autograd.gradgradcheck(response, inputs)


ISOTROPIC = {
    "screened": ScreenedPoisson(1.5, n_terms=16, learn=True),
    "poisson": Poisson(n_terms=16),
    "heat": Heat(0.3, learn=True),
    "matern": Matern(1.5, 0.8, n_terms=16, learn=True),
}


@pytest.mark.parametrize("kind", [Gaussian, Point])
@pytest.mark.parametrize("name", list(ISOTROPIC))
def test_one_width_for_all_axes_changes_the_route_only(name, kind, monkeypatch):
    """Distances shared by all terms give what a product per axis gives, gradients included."""
    L = ISOTROPIC[name]
    generator = torch.Generator().manual_seed(0)
    xi, mu = (torch.randn(n, 3, dtype=f64, generator=generator) for n in (7, 4))
    G = torch.randn(7, 4, dtype=f64, generator=generator)
    found = []
    for shape, tile in (((4, 3), matrix.TILE), ((), matrix.TILE), ((), 64)):
        monkeypatch.setattr(matrix, "TILE", tile)
        at = xi.clone().requires_grad_()
        atoms = kind(mu, torch.full(shape, 0.6, dtype=f64), learn=True)
        Phi = L.response(at, atoms, torch.ones(3, dtype=f64))
        leaves = [at, atoms.mu, *(p for p in L.parameters() if p.requires_grad)]
        gradients = list(torch.autograd.grad((Phi * G).sum(), leaves, retain_graph=True))
        if kind is Gaussian:
            gradients.append(torch.autograd.grad((Phi * G).sum(), atoms.log_sigma)[0].sum())
        found.append([Phi.detach(), *gradients])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


SETTLED = {
    "screened": ScreenedPoisson(1.5, n_terms=10),
    "poisson": Poisson(n_terms=16),
    "heat": Heat(0.3),
    "matern": Matern(1.5, 0.8, n_terms=16),
}


@pytest.mark.parametrize("tile", [matrix.TILE, 64])
@pytest.mark.parametrize("name", list(SETTLED))
def test_one_step_has_values_and_gradients_of_the_general_route(name, tile, monkeypatch):
    """Under kernels that are not learned, far from the origin and in several tiles."""
    monkeypatch.setattr(fused, "TILE", tile)
    generator = torch.Generator().manual_seed(0)
    xi, mu = (5 + torch.randn(n, 3, dtype=f64, generator=generator) for n in (9, 4))
    G = torch.randn(9, 4, dtype=f64, generator=generator)
    found = []
    for quick in (fused.response, lambda *told: None):
        monkeypatch.setattr(fused, "response", quick)
        at, atoms = xi.clone().requires_grad_(), Gaussian(mu, 0.6, learn=True)
        Phi = SETTLED[name].response(at, atoms)
        assert ("OneWidth" in Phi.grad_fn.name()) == (quick.__name__ == "response")
        leaves = at, atoms.mu, atoms.log_sigma
        found.append([Phi, *torch.autograd.grad(Phi, leaves, G)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", list(ATOMS))
def test_the_top_of_the_band_is_that_of_all_axes(name):
    atoms = cases.atoms(name)
    every = torch.ones(atoms.n_dims, dtype=torch.bool)
    assert atoms.top() == pytest.approx(float(atoms.band(every).max()), rel=1e-14)


def test_derivatives_of_the_one_step():
    generator = torch.Generator().manual_seed(1)
    xi, mu = (torch.randn(n, 2, dtype=f64, generator=generator).requires_grad_() for n in (4, 3))
    kernels = [torch.rand(3, dtype=f64, generator=generator) for _ in range(3)]

    def response(xi, mu, sigma):
        return fused.response(xi, Gaussian(mu, sigma), *kernels)

    for sigma in (torch.tensor(0.7, dtype=f64), torch.tensor([[1.3]], dtype=f64)):
        inputs = xi, mu, sigma.requires_grad_()
        assert torch.autograd.gradcheck(response, inputs)
        assert torch.autograd.gradgradcheck(response, inputs)


def test_the_one_step_leaves_the_rest_to_the_general_route():
    places, one = torch.zeros(2, 1, dtype=f64), torch.ones(1, dtype=f64)
    at = Gaussian(places, 0.5)
    assert fused.response(places, at, one, one, one) is not None
    learned = one.clone().requires_grad_()
    for bad in (
        (places.float(), at, one, one, one),
        (places, Gaussian(places.float(), 0.5), one, one, one),
        (places, Gaussian(places, torch.ones_like(places)), one, one, one),  # own widths
        (places, at, one, learned, one),
        (places, Gaussian(places, 1e200), one, one, one),
    ):
        assert fused.response(*bad) is None
    assert SETTLED["heat"].response(places[:0].requires_grad_(), at).shape == (0, 2)


@pytest.mark.parametrize("tile", [matrix.TILE, 8])
def test_derivatives_of_the_shared_distances(tile, monkeypatch):
    monkeypatch.setattr(matrix, "TILE", tile)
    generator = torch.Generator().manual_seed(1)
    xi, mu = (torch.randn(n, 2, dtype=f64, generator=generator).requires_grad_() for n in (4, 3))
    p, c, g = (torch.rand(2, dtype=f64, generator=generator).requires_grad_() for _ in range(3))
    gamma = torch.tensor([0.8, -0.3], dtype=f64, requires_grad=True)
    for inputs in ((xi, mu, p, c), (xi, mu, p, c, g, gamma)):
        assert torch.autograd.gradcheck(matrix.exp_radial, inputs)
        assert torch.autograd.gradgradcheck(matrix.exp_radial, inputs)


def test_permutations_of_rows_atoms_and_axes():
    atoms, L = cases.atoms("gaussian"), ScreenedPoisson(n_terms=8)
    xi = torch.randn(6, 3, dtype=f64, generator=torch.Generator().manual_seed(1))
    Phi = L.response(xi, atoms)
    p = [2, 0, 1]
    torch.testing.assert_close(L.response(xi[[5, 3, 1, 0, 2, 4]], atoms), Phi[[5, 3, 1, 0, 2, 4]])
    torch.testing.assert_close(L.response(xi, Gaussian(atoms.mu[p], atoms.sigma[p])), Phi[:, p])
    torch.testing.assert_close(
        L.response(xi[:, p], Gaussian(atoms.mu[:, p], atoms.sigma[:, p])), Phi
    )


@pytest.mark.parametrize("width", [1.0, 0.1, 0.01])
def test_float32_is_good_to_its_digits_even_off_center_and_narrow(width):
    """Centring, and float64 where a width is below 1/20 of the range."""
    generator = torch.Generator().manual_seed(0)
    xi = 3 + torch.rand(200, 3, generator=generator)
    atoms = Gaussian(3 + torch.rand(20, 3, generator=generator).double(), width)
    L = ScreenedPoisson(1.0, n_terms=16)
    single, double = L.response(xi, atoms).double(), L.response(xi.double(), atoms)
    keep = double > 1e-30
    assert (single[keep].log() - double[keep].log()).abs().max() < 2e-4


def test_many_axes_neither_underflow_nor_overflow():
    """The sum over axes is taken in the logarithm: 256 axes are no trouble in float32."""
    xi = torch.randn(50, 256, generator=torch.Generator().manual_seed(0))
    atoms = Gaussian(xi[:5].double(), 4.0)
    Phi = ScreenedPoisson(1.0, n_terms=8).response(xi, atoms)
    assert torch.isfinite(Phi).all()
    assert (Phi > 0).all()


def test_null_space_columns_are_all_monomials():
    xi = torch.randn(50, 3, dtype=f64, generator=torch.Generator().manual_seed(0))
    for degree in (0, 1, 2, 3):
        axes = [each for k in range(degree + 1) for each in combinations_with_replacement("012", k)]
        beta = torch.tensor([[each.count(j) for j in "012"] for each in axes])  # exponents (q, d)
        assert len(beta) == math.comb(3 + degree, degree)
        torch.testing.assert_close(Polynomial(degree)(xi), (xi[:, None] ** beta).prod(-1))
    assert Polynomial(-1)(xi).shape == (50, 0)


def test_the_squared_column_follows_the_diffusivity():
    xi = torch.randn(20, 3, dtype=f64, generator=torch.Generator().manual_seed(0))
    null = Poisson(diffusivity=cases.D).null_space()(xi)
    assert null.shape == (20, 5)
    torch.testing.assert_close(null[:, -1], (xi**2 / cases.D).sum(1))
    closed = Poisson().null_space()(xi, torch.tensor([1.0, 0.0, 1.0], dtype=f64))
    assert (closed[:, 2] == 0).all()
    torch.testing.assert_close(closed[:, -1], xi[:, 0] ** 2 + xi[:, 2] ** 2)


def test_design_carries_what_may_be_shrunk():
    Phi, null = torch.randn(7, 4), torch.randn(7, 2)
    design = Design.stack(Phi, null)
    assert design.Phi.shape == (7, 6)
    assert design.penalty.tolist() == [1, 1, 1, 1, 0, 0]
    assert Design.stack(Phi).penalty.tolist() == [1, 1, 1, 1]


def test_what_is_kept_of_an_operator_follows_its_parameters_and_the_sources():
    generator = torch.Generator().manual_seed(2)
    xi, mu = (torch.randn(n, 3, dtype=f64, generator=generator) for n in (5, 4))
    L = ScreenedPoisson(kappa=1.3, n_terms=12)
    for kappa, sigma, d in (
        (1.3, 0.5, 3),
        (1.3, 0.1, 3),
        (0.6, 0.1, 3),
        (0.6, 0.1, 2),
        (1.3, 0.5, 3),
    ):
        with torch.no_grad():
            L.log_kappa.fill_(math.log(kappa))
        at = Gaussian(mu[:, :d], sigma)
        fresh = ScreenedPoisson(kappa=kappa, n_terms=12).response(xi[:, :d], at)
        torch.testing.assert_close(L.response(xi[:, :d], at), fresh, rtol=1e-12, atol=0)

"""Eigenbases: orthonormal, eigenfunctions of the operator they are said to belong to, exact sums."""

import math

import mpmath as mp
import pytest
import torch

from greenfold.green import (
    BASES,
    Box,
    Chebyshev,
    Cosine,
    Fourier,
    Gaussian,
    Hat,
    Hermite,
    Laguerre,
    LaguerrePolynomial,
    Legendre,
    Modes,
    Oscillatory,
    Point,
    Sine,
    Spectral,
)

f64 = torch.float64


def derivative(f, x):
    return torch.autograd.grad(f.sum(), x, create_graph=True)[0]


def minus_second(u, x):
    return -derivative(derivative(u, x), x)


# the operator of each basis, written as a differential expression
OPERATORS = {
    "sine": (Sine(9, -0.5, 1.5), (-0.4, 1.4), minus_second),
    "cosine": (Cosine(9, -0.5, 1.5), (-0.4, 1.4), minus_second),
    "fourier": (Fourier(9, -0.5, 1.5), (-0.4, 1.4), minus_second),
    "hermite": (Hermite(9, 1.3), (-3, 3), lambda u, x: minus_second(u, x) + 1.3**2 * x**2 * u),
    "legendre": (
        Legendre(9),
        (-0.9, 0.9),
        lambda u, x: -derivative((1 - x**2) * derivative(u, x), x),
    ),
    "laguerre": (
        Laguerre(9),
        (0.1, 9),
        lambda u, x: -derivative(x * derivative(u, x), x) + x * u / 4,
    ),
    "laguerre_polynomial": (
        LaguerrePolynomial(9),
        (0.1, 9),
        lambda u, x: x * minus_second(u, x) - (1 - x) * derivative(u, x),
    ),
    "chebyshev": (
        Chebyshev(9),
        (-0.9, 0.9),
        lambda u, x: -((1 - x**2).sqrt()) * derivative((1 - x**2).sqrt() * derivative(u, x), x),
    ),
}


def test_every_basis_is_tested():
    assert set(OPERATORS) == set(BASES)


@pytest.mark.parametrize("name", OPERATORS)
def test_functions_are_eigenfunctions_of_their_operator(name):
    basis, (low, high), operator = OPERATORS[name]
    x = torch.linspace(low, high, 23, dtype=f64).requires_grad_()
    for m in range(basis.n_modes):
        phi = basis(x)[:, m]
        scale = float(basis.eigenvalues[m].abs() + 1) * float(phi.detach().abs().max())
        error = operator(phi, x) - basis.eigenvalues[m] * phi
        assert float(error.detach().abs().max()) < 1e-9 * scale


@pytest.mark.parametrize("name", OPERATORS)
def test_functions_are_orthonormal_in_their_weight(name):
    basis = OPERATORS[name][0]
    nodes, weights = basis.quadrature(200)
    B = basis(nodes)
    torch.testing.assert_close(
        B.T @ (weights[:, None] * B), torch.eye(9, dtype=f64), rtol=0, atol=1e-11
    )


@pytest.mark.parametrize("name", OPERATORS)
def test_projection_gives_back_combinations(name):
    basis = OPERATORS[name][0]
    c = torch.linspace(-1, 1, 9, dtype=f64)
    torch.testing.assert_close(basis.project(lambda x: basis(x) @ c), c, rtol=0, atol=1e-11)


@pytest.mark.parametrize("n", [3, 60, 400, 2000])
def test_high_hermite_functions_survive(n):
    """Where e^{−x²/2} underflows the normalized recurrence needs its log scale."""
    x = torch.tensor([0.3, math.sqrt(n), math.sqrt(2 * n)], dtype=f64)
    h = Hermite(n + 1)(x)[:, n]
    with mp.workdps(60):
        for value, t in zip(h.tolist(), x.tolist(), strict=True):
            t = mp.mpf(t)
            previous, current = mp.mpf(0), mp.pi ** mp.mpf(-0.25) * mp.exp(-(t**2) / 2)
            for m in range(n):
                following = mp.sqrt(mp.mpf(2) / (m + 1)) * t * current
                previous, current = current, following - mp.sqrt(mp.mpf(m) / (m + 1)) * previous
            assert abs(value - current) < 1e-12


def test_one_axis_zero_modes_stay():
    """λ = 0 on one axis only is a mode like any other: u = cos(πx) has −Δu = π²u."""
    coefficients = torch.zeros(1, 8, dtype=f64)
    first, constant = coefficients.clone(), coefficients.clone()
    first[0, 1], constant[0, 0] = 1, 1
    xi = torch.rand(20, 2, dtype=f64, generator=torch.Generator().manual_seed(0))
    operator = Spectral([Cosine(8), Cosine(8)], n_terms=24)
    u = operator.response(xi, Modes([first, constant]))[:, 0]
    exact = math.sqrt(2) * torch.cos(math.pi * xi[:, 0]) / math.pi**2
    torch.testing.assert_close(u, exact, rtol=1e-6, atol=1e-8)
    # and the pure zero mode is dropped, leaving the constant to the null space
    nothing = operator.response(xi, Modes([constant, constant]))
    assert float(nothing.abs().max()) < 1e-10
    assert operator.null_space()(xi).shape == (20, 1)
    assert Spectral([Sine(8), Cosine(8)]).null_space() is None


def test_boxes_and_hats_are_projected_exactly():
    """Jumps and kinks are integrated piece by piece: against closed-form sine coefficients."""
    a, b = 0.17, 0.63
    mu, h = torch.tensor([[(a + b) / 2]], dtype=f64), (b - a) / 2
    k = torch.arange(1, 61, dtype=f64) * math.pi
    operator = Spectral([Sine(60)])
    box = operator.project(Box(mu, h)).coefficients[0][0]
    exact = math.sqrt(2) * (torch.cos(k * a) - torch.cos(k * b)) / k
    torch.testing.assert_close(box, exact, rtol=0, atol=1e-11)
    hat = operator.project(Hat(mu, h)).coefficients[0][0]
    exact = math.sqrt(2) * torch.sin(k * mu[0]) * 2 * (1 - torch.cos(k * h)) / (k**2 * h)
    torch.testing.assert_close(hat, exact, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", OPERATORS)
def test_a_jump_costs_no_accuracy_in_any_basis(name):
    basis, (low, high), _ = OPERATORS[name]
    middle = low + 0.37 * (high - low)
    left = basis.project(lambda x: (x < middle).double() * torch.exp(-(x**2)), [middle])
    right = basis.project(lambda x: (x >= middle).double() * torch.exp(-(x**2)), [middle])
    whole = basis.project(lambda x: torch.exp(-(x**2)), [middle])
    torch.testing.assert_close(left + right, whole, rtol=0, atol=1e-9)


@pytest.mark.parametrize("basis", [Sine(8), Hermite(16), Fourier(9)], ids=repr)
def test_narrow_atoms_are_not_overlooked(basis):
    """A bell of width 1e-4 acts like a point of its mass."""
    mu = torch.tensor([[0.3], [0.55]], dtype=f64)
    narrow = Spectral([basis], shift=1.0).project(Gaussian(mu, 1e-4)).coefficients[0]
    points = Spectral([basis], shift=1.0).project(Point(mu)).coefficients[0]
    torch.testing.assert_close(narrow / (1e-4 * math.sqrt(2 * math.pi)), points, rtol=0, atol=2e-5)


def test_high_laguerre_functions_are_orthonormal():
    for basis in (Laguerre(400), LaguerrePolynomial(150)):
        nodes, weights = basis.quadrature(2 * basis.n_modes)
        B = basis(nodes) * weights.sqrt()[:, None]
        gap = B.T @ B - torch.eye(basis.n_modes, dtype=f64)
        assert float(gap.abs().max()) < 1e-9


def test_chebyshev_slopes_are_finite_at_the_ends():
    x = torch.tensor([-1.0, 1.0], dtype=f64, requires_grad=True)
    (slope,) = torch.autograd.grad(Chebyshev(6)(x)[:, 5].sum(), x)
    torch.testing.assert_close(slope, torch.full((2,), 25 * math.sqrt(2 / math.pi), dtype=f64))


def test_a_learned_shift_stays_positive():
    operator = Spectral([Cosine(16)], shift=0.1, learn=True)
    (parameter,) = operator.parameters()
    parameter.data -= 50
    assert float(operator.shift.detach()) > 0


def test_what_cannot_be_integrated_is_refused():
    with pytest.raises(ValueError, match="does not converge"):
        Sine(8).project(lambda x: (x < 0.3183).double())


@pytest.mark.parametrize("wavenumber", [1.0, 5.0, 12.3, 30.0])
@pytest.mark.parametrize("d", [1, 2])
def test_oscillatory_operator_against_the_explicit_sum(wavenumber, d):
    """1/(λ − k²) mode by mode is the truth; the exponential sum carries only what is above 2k²."""
    basis = Sine(40)
    sources = Gaussian(torch.full((2, d), 0.4, dtype=f64) + torch.tensor([[0.0], [0.2]]), 0.1)
    operator = Oscillatory([basis] * d, wavenumber, n_terms=24)
    xi = torch.rand(30, d, dtype=f64, generator=torch.Generator().manual_seed(0))
    modes = operator.project(sources)
    lam = basis.eigenvalues
    if d == 1:
        exact = basis(xi[:, 0]) @ (modes.coefficients[0] / (lam - wavenumber**2)).T
    else:
        symbol = 1 / (lam[:, None] + lam - wavenumber**2)
        exact = torch.einsum(
            "na,nb,ra,rb,ab->nr", basis(xi[:, 0]), basis(xi[:, 1]), *modes.coefficients, symbol
        )
    u = operator.response(xi, sources)
    assert float((u - exact).norm() / exact.norm()) < 1e-7


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Oscillatory(), "has no positive exponential sum in free space. Pass `bases`"),
        (lambda: Oscillatory([Sine(8)], math.pi), "no inverse at resonance"),
        (lambda: Oscillatory([Sine(8)], -1.0), "`wavenumber` must be positive"),
        (lambda: Oscillatory([Legendre(8)], 1.0), "must be Sine, Cosine or Fourier"),
        (lambda: Oscillatory([Sine(400)] * 3, 900.0), "modes below 2k²"),
        (
            lambda: Oscillatory([Sine(8)], 1.0).response(
                torch.rand(2, 1), Gaussian(torch.zeros(1, 1)), torch.tensor([0.5])
            ),
            "no gates",
        ),
        (lambda: Spectral([Sine(8)], shift=-1.0), "For −Δ − k² use `Oscillatory`"),
        (lambda: Spectral([Cosine(8)], learn=True), "a shift of 0 cannot be learned"),
        (lambda: Spectral(Sine(8)), "`bases` must be a sequence"),
        (lambda: Oscillatory(Sine(8), 1.0), "must be Sine, Cosine or Fourier"),
        (lambda: LaguerrePolynomial(200), "at most 150"),
        (
            lambda: Spectral([Legendre(8)]).response(
                torch.ones(1, 1) * 2, Gaussian(torch.zeros(1, 1))
            ),
            "axis 0 leaves the domain",
        ),
        (
            lambda: Spectral([Sine(8)]).response(torch.rand(2, 1), Modes([torch.zeros(1, 5)])),
            "axis 0 has 5 coefficients but its basis has 8 modes",
        ),
        (lambda: Spectral([]), "`bases` must be a sequence of Basis"),
        (lambda: Spectral([Sine(8)], power=9.0), "`power`"),
        (lambda: Sine(0), "`n_modes`"),
        (lambda: Sine(4, 1.0, 0.0), "low < high"),
        (lambda: Hermite(4, -1.0), "`omega`"),
        (lambda: Modes([torch.zeros(3)]), "`coefficients` must be"),
        (
            lambda: Spectral([Sine(8)]).response(torch.rand(2, 2), Gaussian(torch.zeros(1, 2))),
            "the atoms have 2 axes but the operator has 1 bases",
        ),
    ],
)
def test_bad_input_is_explained(call, words):
    with pytest.raises(ValueError, match=words):
        call()

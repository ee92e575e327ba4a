"""Laws of every operator: gates, gradients, decay, symmetry, superposition, and errors that help."""

import math
from itertools import pairwise, product

import pytest
import torch

from greenfold import green
from greenfold.green import (
    Affine,
    Anova,
    Cauchy,
    Exponential,
    Fractional,
    Gaussian,
    HarmonicOscillator,
    Heat,
    Interval,
    Matern,
    Point,
    Poisson,
    ProductScreened,
    ScreenedPoisson,
    Superposition,
    pointwise,
)
from greenfold.green.base import NoForm
from greenfold.model import IGL, Tied
from greenfold.solve import Ridge
from tests import cases

f64 = torch.float64


def inside(n, d, seed=7):
    """Points of the unit box, where every domain and basis in `cases` is at home."""
    return torch.rand(n, d, dtype=f64, generator=torch.Generator().manual_seed(seed)) * 0.9 + 0.05


# --- gates


@pytest.mark.parametrize(("operator", "atoms"), cases.PAIRS)
def test_an_open_gate_changes_nothing_and_a_closed_one_removes_the_axis(operator, atoms):
    make, sources = cases.OPERATORS[operator][0], cases.atoms(atoms)
    xi = inside(6, 3)
    full = make([0, 1, 2]).response(xi, sources)
    opened = make([0, 1, 2]).response(xi, sources, torch.ones(3))
    torch.testing.assert_close(opened, full, rtol=1e-13, atol=0)
    for keep in ([0, 2], [1, 2], [0]):
        gate = torch.zeros(3, dtype=f64)
        gate[keep] = 1
        closed = make([0, 1, 2]).response(xi, sources, gate)
        without = make(keep).response(xi[:, keep], cases.axes(sources, keep))
        torch.testing.assert_close(closed, without, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("atoms", cases.ALL)
def test_a_gate_moves_monotonically_from_one_to_the_integral(atoms):
    """One axis, one term: the response is the factor itself."""
    sources, xi = cases.atoms(atoms, r=4, d=1), inside(9, 1)
    levels = [
        Heat(0.3).response(xi, sources, torch.tensor([g]))
        for g in torch.linspace(0, 1, 11).tolist()
    ]
    torch.testing.assert_close(levels[0], torch.ones_like(levels[0]), rtol=0, atol=0)
    direction = torch.sign(levels[-1] - levels[0])
    for a, b in pairwise(levels):
        assert ((b - a) * direction >= -1e-15).all()


@pytest.mark.parametrize(("operator", "atoms"), cases.PAIRS)
def test_gradients_reach_coordinates_and_gates(operator, atoms):
    make, sources = cases.OPERATORS[operator][0], cases.atoms(atoms, r=2)
    L = make([0, 1, 2])
    xi = inside(2, 3).requires_grad_()
    gate = torch.tensor([0.9, 0.5, 0.7], dtype=f64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: L.response(x, sources), (xi,), atol=1e-6, rtol=1e-4)
    assert torch.autograd.gradcheck(
        lambda g: L.response(xi.detach(), sources, g), (gate,), atol=1e-6, rtol=1e-4
    )


@pytest.mark.parametrize(("operator", "atoms"), cases.PAIRS)
def test_a_closed_gate_has_a_slope(operator, atoms):
    """So that learning can open it again."""
    make, sources = cases.OPERATORS[operator][0], cases.atoms(atoms, r=2)
    gate = torch.tensor([1.0, 0.0, 1.0], dtype=f64, requires_grad=True)
    make([0, 1, 2]).response(inside(3, 3), sources, gate).sum().backward()
    assert gate.grad.isfinite().all()
    assert gate.grad[1] != 0


# --- learned parameters


LEARNED = [
    lambda: ScreenedPoisson(1.3, diffusivity=cases.D, learn=True),
    lambda: HarmonicOscillator(cases.D, diffusivity=0.8, learn=True),
    lambda: Poisson(diffusivity=cases.D, learn=True),
    lambda: Cauchy(0.8, learn=True),
    lambda: Heat(0.2, diffusivity=cases.D, learn=True),
    lambda: Matern(1.5, 0.7, learn=True),
]
POINTWISE = [
    lambda: Exponential(cases.D, learn=True),
    lambda: Affine(cases.D, learn=True),
    lambda: Anova(cases.P, cases.D, learn=True),
    lambda: Anova(cases.P, cases.D, order=2, learn=True),
]


@pytest.mark.parametrize(
    ("make", "name"),
    [(make, name) for make in LEARNED for name in ("gaussian", "gabor", "hat")]
    + [(make, "point") for make in POINTWISE],
)
def test_gradients_reach_physical_parameters(make, name):
    """Through the scaling of the exponential sum, against central differences."""
    L, sources, xi = make(), cases.atoms(name), inside(4, 3)
    L.response(xi, sources).sum().backward()
    for parameter in L.parameters():
        gradient = parameter.grad.clone()
        flat, h = parameter.data.view(-1), 1e-5
        for i in range(flat.numel()):
            start = float(flat[i])
            flat[i] = start + h
            up = float(L.response(xi, sources).sum().detach())
            flat[i] = start - h
            down = float(L.response(xi, sources).sum().detach())
            flat[i] = start
            torch.testing.assert_close(
                float(gradient.view(-1)[i]), (up - down) / (2 * h), rtol=1e-5, atol=1e-8
            )


def test_product_screened_and_superposition_learn():
    xi = inside(5, 3)
    L = Superposition([ProductScreened(cases.D, learn=True), Heat(0.3)])
    L.response(xi, cases.atoms("gaussian")).sum().backward()
    assert L.gamma.grad.abs().min() > 0
    assert L.operators[0].log_kappa.grad.abs().min() > 0


def test_gradients_flow_to_the_tensors_atoms_were_made_from():
    base = cases.positions(4, 2).requires_grad_()
    width = torch.tensor(0.3, dtype=f64, requires_grad=True)
    ScreenedPoisson().response(inside(5, 2), Gaussian(2 * base, width)).sum().backward()
    assert base.grad.abs().min() > 0
    assert width.grad.abs() > 0


def test_learned_atoms_are_parameters():
    atoms = green.Gabor(cases.positions(4, 2), 0.3, learn=True)
    assert {n for n, _ in atoms.named_parameters()} == {"mu", "log_sigma", "omega", "theta"}
    assert not list(green.Gabor(cases.positions(4, 2), 0.3).parameters())


# --- what a Green's function looks like


@pytest.mark.parametrize(
    "L",
    [
        ScreenedPoisson(1.2, n_terms=16),
        Poisson(n_terms=16),
        HarmonicOscillator(0.8),
        Cauchy(0.7),
        Heat(0.4),
        Matern(2.5, 0.6),
        ProductScreened(1.4),
        Exponential(cases.D),
        Affine(cases.D),
        Anova(cases.P, cases.D),
        Anova(cases.P, cases.D, order=2),
        ScreenedPoisson(1.0, domain=Interval(0, 1, "neumann")),
    ],
    ids=lambda L: type(L).__name__,
)
def test_green_is_symmetric(L):
    x, y = inside(7, 3, seed=1), inside(5, 3, seed=2)
    torch.testing.assert_close(
        L.response(x, Point(y)), L.response(y, Point(x)).T, rtol=1e-9, atol=0
    )


def along_axis(r, d):
    xi = torch.zeros(len(r), d, dtype=f64)
    xi[:, 0] = r
    return xi


def test_point_source_of_screened_poisson_in_3d_is_yukawa():
    r = torch.linspace(0.3, 3.0, 50, dtype=f64)
    green_ = ScreenedPoisson(1.5, n_terms=24).response(along_axis(r, 3), Point(torch.zeros(1, 3)))[
        :, 0
    ]
    torch.testing.assert_close(green_, torch.exp(-1.5 * r) / (4 * math.pi * r), rtol=1e-6, atol=0)


def slopes(L, r, d):
    """Local decay rates −d log u / d log r and −d log u / dr of a point source's response."""
    u = L.response(along_axis(r, d), Point(torch.zeros(1, d, dtype=f64)))[:, 0]
    log_u = u.log()
    return -(log_u.diff() / r.log().diff()), -(log_u.diff() / r.diff())


def test_each_operator_decays_as_its_theory_says():
    r = torch.linspace(0.5, 3, 40, dtype=f64)
    # Poisson in 3D: 1/r.  Fractional: r^{2s − d}.  Cauchy: r^{−2} far out.
    power, _ = slopes(Poisson(n_terms=32, extent=60.0), r, 3)
    torch.testing.assert_close(power, torch.ones_like(power), rtol=3e-2, atol=0)
    power, _ = slopes(Fractional(0.75, n_terms=32, extent=60.0), r, 3)
    torch.testing.assert_close(power, torch.full_like(power, 1.5), rtol=3e-2, atol=0)
    power, _ = slopes(Cauchy(0.1, n_terms=16), torch.linspace(3, 8, 20, dtype=f64), 2)
    torch.testing.assert_close(power, torch.full_like(power, 2.0), rtol=1e-2, atol=0)
    # Screened: exponential, rate κ in one dimension exactly.
    _, rate = slopes(ScreenedPoisson(1.5, n_terms=24), r, 1)
    torch.testing.assert_close(rate, torch.full_like(rate, 1.5), rtol=1e-5, atol=0)
    _, rate = slopes(ProductScreened(1.5), r, 1)
    torch.testing.assert_close(rate, torch.full_like(rate, 1.5), rtol=1e-12, atol=0)
    _, rate = slopes(Exponential(1.5), r, 3)
    torch.testing.assert_close(rate, torch.full_like(rate, 1.5), rtol=1e-12, atol=0)
    # Oscillator: Gaussian, so the rate grows like ωr.
    far = torch.linspace(4, 6, 20, dtype=f64)
    _, rate = slopes(HarmonicOscillator(1.0, n_terms=24), far, 1)
    middle = (far[1:] + far[:-1]) / 2
    torch.testing.assert_close(rate, middle, rtol=6e-2, atol=0)
    # Heat: e^{−r²/4t} exactly.
    _, rate = slopes(Heat(0.3), r, 2)
    torch.testing.assert_close(rate, (r[1:] + r[:-1]) / 2 / 0.6, rtol=1e-10, atol=0)


def test_cauchy_point_response_is_the_rational_quadratic_kernel():
    xi = inside(20, 4) * 8
    for beta in (0.5, 1.0, 2.0):
        kernel = Cauchy(0.9, beta=beta, extent=16.0).response(
            xi, Point(torch.zeros(1, 4, dtype=f64))
        )[:, 0]
        exact = (1 + (xi**2).sum(1) / (2 * beta * 0.9**2)) ** -beta
        torch.testing.assert_close(kernel, exact, rtol=1e-4, atol=0)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_matern_point_response_is_the_matern_kernel(d):
    r = torch.linspace(0.0, 3.0, 40, dtype=f64)
    t = math.sqrt(3) * r / 0.8
    kernel = Matern(1.5, 0.8, n_terms=24).response(along_axis(r, d), Point(torch.zeros(1, d)))[:, 0]
    torch.testing.assert_close(kernel, (1 + t) * torch.exp(-t), rtol=0, atol=2e-4)


def test_product_screened_is_the_product_laplace_kernel():
    x, mu = inside(6, 3), inside(4, 3, seed=3)
    exact = torch.exp(-(cases.D * (x[:, None] - mu).abs()).sum(-1)) / (2 * cases.D).prod()
    torch.testing.assert_close(ProductScreened(cases.D).response(x, Point(mu)), exact)


# --- Green's functions without a sum


def test_exponential_is_e_to_the_minus_kappa_r():
    x, mu = inside(6, 3), inside(4, 3, seed=3)
    exact = torch.exp(-(cases.D * (x[:, None] - mu)).norm(dim=-1))
    torch.testing.assert_close(
        Exponential(cases.D).response(x, Point(mu)), exact, rtol=1e-13, atol=0
    )


@pytest.mark.parametrize("d", [1, 10, 300])
def test_exponential_has_its_cusp(d):
    """1 at a source, with no slope there, and off by |δ| beside it."""
    mu = torch.randn(40, d, dtype=f64, generator=torch.Generator().manual_seed(0)) + 5
    xi, one = mu.clone().requires_grad_(), torch.ones(40, dtype=f64)
    there = Exponential(2.0).response(xi, Point(mu)).diagonal()
    torch.testing.assert_close(there, one, rtol=0, atol=0)
    (slope,) = torch.autograd.grad(there.sum(), xi)
    torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=0)
    beside = Exponential(2.0).response(mu + 1e-4 / math.sqrt(d), Point(mu)).diagonal()
    torch.testing.assert_close((1 - beside) / 2e-4, one, rtol=2e-4, atol=0)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_exponential_is_matern_one_half_away_from_the_cusp(d):
    r, origin = torch.linspace(0.1, 3.0, 40, dtype=f64), Point(torch.zeros(1, d, dtype=f64))
    sum_of_gaussians = Matern(0.5, 0.8, n_terms=24).response(along_axis(r, d), origin)
    exact = Exponential(1 / 0.8).response(along_axis(r, d), origin)
    torch.testing.assert_close(sum_of_gaussians, exact, rtol=0, atol=1e-6)


def one_axis(t, order):
    return torch.exp(-t) if order == 1 else (1 + t) * torch.exp(-t)


@pytest.mark.parametrize("order", [1, 2])
def test_anova_is_a_sum_over_sets_of_axes(order):
    x, mu = inside(6, 3), inside(4, 3, seed=3)
    k = one_axis(cases.D * (x[:, None] - mu).abs(), order)  # (n, r, d)
    exact = torch.zeros(6, 4, dtype=f64)
    for chosen in product([False, True], repeat=3):
        on = torch.tensor(chosen)
        weight = torch.where(on, cases.P, 1 - cases.P).prod()  # Π_{j∈S} p_j Π_{j∉S} (1 − p_j)
        exact += weight * k[..., on].prod(-1)
    Phi = Anova(cases.P, cases.D, order=order).response(x, Point(mu))
    torch.testing.assert_close(Phi, exact, rtol=1e-13, atol=0)


def test_anova_of_full_shares_is_product_screened():
    x, mu = inside(6, 3), Point(inside(4, 3, seed=3))
    product_screened = (2 * cases.D).prod() * ProductScreened(cases.D).response(x, mu)
    gaps = [
        float((Anova(1 - rest, cases.D).response(x, mu) - product_screened).abs().max())
        for rest in (1e-2, 1e-4, 1e-12)
    ]
    assert gaps[0] > 50 * gaps[1]  # in proportion to what is left
    assert gaps[2] < 1e-11


@pytest.mark.parametrize("order", [1, 2])
def test_anova_is_additive_where_shares_are_small(order):
    """1 + Σ_j p_j (k_j − 1) up to products of two shares."""
    x, mu = inside(6, 3), inside(4, 3, seed=3)
    k = one_axis((x[:, None] - mu).abs(), order)
    Phi = Anova(1e-5, order=order).response(x, Point(mu))
    torch.testing.assert_close(Phi, 1 + 1e-5 * (k - 1).sum(-1), rtol=0, atol=1e-9)


class Response(torch.nn.Module):
    def __init__(self, operator):
        super().__init__()
        self.operator = operator

    def forward(self, xi, mu, gate):
        return self.operator.response(xi, Point(mu), gate)


@pytest.mark.parametrize("make", POINTWISE)
def test_first_and_second_derivatives_of_pointwise_operators(make, monkeypatch):
    """Through blocks of rows, with respect to points, sources, gates and parameters."""
    monkeypatch.setattr(pointwise, "TILE", 4)
    module, gate = Response(make()), torch.tensor([0.9, 0.5, 0.7], dtype=f64)
    parameters = dict(module.named_parameters())

    def response(xi, mu, gate, *values):
        given = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(module, given, (xi, mu, gate))

    inputs = (inside(3, 3), cases.positions(2, 3), gate, *parameters.values())
    inputs = tuple(v.detach().requires_grad_() for v in inputs)
    assert torch.autograd.gradcheck(response, inputs)
    assert torch.autograd.gradgradcheck(response, inputs)


@pytest.mark.parametrize(
    ("L", "powers"),
    [
        (Exponential(1.3), 1),
        (Anova(1 - 1e-13, 1.3), 1),
        (Anova(1 - 1e-13, 1.3, order=2), 2),
    ],
)
def test_on_a_line_the_equation_holds_away_from_the_source(L, powers):
    """(κ² − ∂²)^m G = 0, by differences of fourth order."""
    h, x = 1e-2, torch.linspace(0.5, 3.0, 251, dtype=f64)
    G = L.response(x[:, None], Point(torch.zeros(1, 1, dtype=f64)))[:, 0]
    stencil = torch.tensor([-1, 16, -30, 16, -1], dtype=f64) / (12 * h**2)
    for _ in range(powers):
        before = G
        G = 1.3**2 * G[2:-2] - G.unfold(0, 5, 1) @ stencil
    assert float(G.abs().max()) < 1e-6 * float(before.abs().max())


def test_superposition_adds_inverses():
    xi, atoms = inside(6, 3), cases.atoms("hat")
    a, b = ScreenedPoisson(1.0), Heat(0.2)
    both = Superposition([a, b], [0.5, -2.0]).response(xi, atoms)
    torch.testing.assert_close(both, 0.5 * a.response(xi, atoms) - 2 * b.response(xi, atoms))
    assert Superposition([a, Poisson()]).null_space().degree == 1
    assert Superposition([a, b]).null_space() is None


def test_a_member_of_a_superposition_acts_on_its_axes_alone():
    """Heat along two axes beside a line along the third, each as if it had no others."""
    xi, mu = inside(6, 3), cases.positions(4, 3)
    both = Superposition([Heat(0.2), Affine(0.7)], [0.5, 2.0], axes=[[0, 2], [1]])
    heat = Heat(0.2).response(xi[:, [0, 2]], Point(mu[:, [0, 2]]))
    line = Affine(0.7).response(xi[:, [1]], Point(mu[:, [1]]))
    torch.testing.assert_close(both.response(xi, Point(mu)), 0.5 * heat + 2 * line)
    closed = both.response(xi, Point(mu), torch.tensor([1.0, 0.0, 1.0]))
    torch.testing.assert_close(closed, 0.5 * heat + 2)


def test_a_point_rises_by_its_lines():
    """k(ξ, ξ) − k(0, 0), which the variance of a new row is made of."""
    xi, gate, origin = (
        inside(5, 3),
        torch.tensor([1.0, 0.0, 0.6], dtype=f64),
        torch.zeros(1, 3).double(),
    )
    both = Superposition([Heat(0.2), Affine(cases.D)], [0.5, 2.0], axes=[None, [0, 2]])
    for L, g in product([Affine(cases.D), both, Heat(0.2), Exponential()], [None, gate]):
        there = L.response(xi, Point(xi), g).diagonal() - L.response(origin, Point(origin), g)[0, 0]
        torch.testing.assert_close(L.rise(xi, g), there, rtol=1e-9, atol=1e-12)


def test_affine_is_ridge_regression_on_the_coordinates():
    """The energy of its source is that of the slopes: b·ξ with a penalty Σ_j (b_j/s_j)²."""
    x = inside(30, 3, seed=3)
    Y = (x @ torch.tensor([1.0, -2.0, 0.5]).double() + 0.3 * torch.sin(9 * x[:, 0]))[:, None]
    model = IGL(torch.nn.Identity(), Affine(cases.D, level=0.0), Tied(x[:3]), n_dims=3, energy=True)
    model.eval().solve(x, Y, Ridge(0.1, relative=False))
    one = torch.ones(len(x), 1, dtype=f64)
    N, C = torch.cat([x, one], 1), torch.diag(torch.cat([0.1 / cases.D**2, torch.zeros(1)]))
    b = torch.linalg.solve(N.T @ N + C, N.T @ Y)
    torch.testing.assert_close(model(x), N @ b, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("make", "weight"),
    [
        (lambda D: ScreenedPoisson(1.3, diffusivity=D, n_terms=24), 1.0),
        (lambda D: ScreenedPoisson(1.3, power=0.5, diffusivity=D, n_terms=24), 1.0),
        (lambda D: Heat(0.3, diffusivity=D), 1.0),
        # kernels that are given as functions of distance are not divided by the volume √(ΠD)
        (lambda D: Matern(2.5, 0.7, diffusivity=D, n_terms=24), float(cases.D.prod().sqrt())),
        (lambda D: Cauchy(0.7, diffusivity=D, n_terms=24), float(cases.D.prod().sqrt())),
    ],
)
def test_diffusivity_is_a_change_of_coordinates(make, weight):
    """(κ² − Σ D_j ∂_j²) on ξ is (κ² − Δ) on ξ_j/√D_j."""
    xi, atoms, root = inside(6, 3), cases.atoms("gaussian"), cases.D.sqrt()
    scaled = Gaussian(atoms.mu / root, atoms.sigma / root)
    direct = make(cases.D).response(xi, atoms)
    torch.testing.assert_close(
        direct, weight * make(1.0).response(xi / root, scaled), rtol=1e-8, atol=0
    )


def test_poisson_diffusivity_is_a_change_of_coordinates_up_to_its_null_space():
    xi, atoms, root = inside(40, 3), cases.atoms("gaussian"), cases.D.sqrt()
    scaled = Gaussian(atoms.mu / root, atoms.sigma / root)
    L = Poisson(diffusivity=cases.D, n_terms=24)
    gap = L.response(xi, atoms) - Poisson(n_terms=24).response(xi / root, scaled)
    null = L.null_space()(xi)
    rest = gap - null @ torch.linalg.lstsq(null, gap).solution
    assert float(rest.norm() / L.response(xi, atoms).norm()) < 1e-9


@pytest.mark.parametrize("boundary", ["dirichlet", "neumann", "periodic"])
def test_intervals_can_be_moved_and_stretched(boundary):
    """[low, high] is [0, 1] after y = (x − low)/length; lengths scale the Laplacian by length²."""
    low, length = -0.7, 2.5
    xi, atoms = inside(6, 2), cases.atoms("gaussian", d=2)
    moved = Gaussian(low + length * atoms.mu, length * atoms.sigma)
    here = Poisson(domain=Interval(0, 1, boundary), n_terms=24).response(xi, atoms)
    there = Poisson(domain=Interval(low, low + length, boundary), n_terms=24)
    torch.testing.assert_close(
        there.response(low + length * xi, moved), length**2 * here, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("boundary", ["dirichlet", "neumann", "periodic"])
@pytest.mark.parametrize("time", [0.01, 1.0])
def test_responses_go_on_outside_an_interval_as_their_images_do(boundary, time):
    L, atoms = (
        Heat(time, domain=Interval(0, 1, boundary)),
        Gaussian(torch.tensor([[0.3]]).double(), 0.1),
    )
    x = torch.tensor([[0.4], [0.9]], dtype=f64)
    period = 1 if boundary == "periodic" else 2
    for k in (1, -3, 10):
        torch.testing.assert_close(
            L.response(x + k * period, atoms), L.response(x, atoms), rtol=1e-9, atol=1e-14
        )
    if boundary != "periodic":
        sign = -1 if boundary == "dirichlet" else 1
        torch.testing.assert_close(L.response(-x, atoms), sign * L.response(x, atoms))


def test_the_oscillator_inverts_its_equation_with_any_axes():
    """Σ_j D_j(−∂_j² + ω_j²ξ_j²) u = f, by autograd."""
    omega, D = torch.tensor([0.6, 1.5, 1.1]).double(), cases.D
    atoms, xi = cases.atoms("gabor"), inside(30, 3).requires_grad_()
    L = HarmonicOscillator(omega, diffusivity=D, n_terms=32)
    u = L.response(xi, atoms).sum(1)
    (gradient,) = torch.autograd.grad(u.sum(), xi, create_graph=True)
    second = [
        torch.autograd.grad(gradient[:, j].sum(), xi, retain_graph=True)[0][:, j] for j in range(3)
    ]
    left = sum(D[j] * (omega[j] ** 2 * xi[:, j] ** 2 * u - second[j]) for j in range(3)).detach()
    right = atoms(xi.detach()).sum(1)
    assert float((left - right).norm() / right.norm()) < 1e-7


@pytest.mark.parametrize("power", [0.5, 1.5, 2.0])
def test_powers_of_the_oscillator_and_of_the_spectral_form(power):
    """Against the mode sum with the true λ^{−s}."""
    basis, atoms = green.Hermite(120), Gaussian(torch.tensor([[0.5, -0.3]]).double(), 0.6)
    xi = inside(20, 2) * 2 - 1
    spectral = green.Spectral([basis, basis], power=power, n_terms=32)
    c = spectral.project(atoms).coefficients
    lam = basis.eigenvalues[:, None] + basis.eigenvalues
    exact = torch.einsum("na,nb,ra,rb,ab->nr", basis(xi[:, 0]), basis(xi[:, 1]), *c, lam**-power)
    for L in (spectral, HarmonicOscillator(1.0, power=power, n_terms=32)):
        torch.testing.assert_close(L.response(xi, atoms), exact, rtol=1e-7, atol=1e-9)


GATED = [
    Poisson(domain=(Interval(0, 1), Interval(0, 1, "neumann"))),
    Poisson(domain=(Interval(0, 1), None)),
    Poisson(domain=(Interval(0, 3), Interval(0, 1, "periodic"))),
    Poisson(),
    green.Spectral([green.Sine(16), green.Cosine(16)]),
    HarmonicOscillator(),
    Matern(1.5, 0.7),
    Cauchy(),
    ProductScreened(),
    Exponential(),
    Affine(),
    Anova(),
]


@pytest.mark.parametrize("L", GATED, ids=lambda L: type(L).__name__)
def test_responses_are_continuous_where_a_gate_closes(L):
    mu, xi = torch.tensor([[0.3, 0.4]]).double(), inside(5, 2)
    atoms = Point(mu) if L.accepts == (Point,) else Gaussian(mu, 0.2)
    levels = [
        L.response(xi, atoms, torch.tensor([g, 1.0]).double()) for g in (0.0, 1e-9, 1e-4, 0.5, 1.0)
    ]
    size = max(float(level.abs().max()) for level in (levels[0], levels[-1]))
    # No blow-up like 1/g. Half-open Dirichlet axes do overshoot: their factor lets the constant in.
    assert all(float(level.abs().max()) < 30 * size for level in levels)
    torch.testing.assert_close(levels[1], levels[0], rtol=0, atol=2e-4 * size)


def test_the_null_space_follows_the_gates_and_the_domain():
    mixed = Poisson(domain=(Interval(0, 1), Interval(0, 1, "neumann")))
    assert mixed.null_space() is None
    assert mixed.null_space(torch.tensor([0.0, 1.0])).degree == 0
    tube = Poisson(domain=(Interval(0, 1, "periodic"), None)).null_space()
    xi = torch.tensor([[0.2, 0.5]])
    torch.testing.assert_close(
        tube(xi), torch.tensor([[1, 0.5, 0.25]])
    )  # nothing in the periodic axis
    both = Superposition([Poisson(), Poisson(diffusivity=cases.D)]).null_space()
    assert both(inside(4, 3)).shape == (4, 1 + 3 + 2)


def test_a_hopeless_sum_is_announced():
    with pytest.warns(
        UserWarning, match="4 exponentials invert a spectrum of ratio .* Raise `n_terms`"
    ):
        ScreenedPoisson(0.1, n_terms=4).response(MU, Gaussian(MU, 0.05))


@pytest.mark.parametrize("kind", [green.Box, green.Hat])
def test_cutting_the_spectrum_of_a_jump_or_kink_costs_less_than_1e6(kind):
    """In one dimension the screened operator has a closed form that needs no exponential sum."""
    x, atoms = (
        torch.linspace(-3, 3, 200, dtype=f64)[:, None],
        kind(torch.zeros(1, 1, dtype=f64), 0.5),
    )
    exact = ProductScreened(1.0).response(x, atoms)
    error = ScreenedPoisson(1.0).response(x, atoms) - exact
    assert float(error.norm() / exact.norm()) < 1e-6


@pytest.mark.parametrize("d", [1, 3, 10])
def test_the_cusp_of_matern_one_half_is_within_two_percent(d):
    origin = torch.zeros(1, d, dtype=f64)
    assert abs(float(Matern(0.5, 1.0).response(origin, Point(origin))) - 1) < 0.02


def test_heat_is_a_semigroup():
    xi, atoms = inside(6, 2), cases.atoms("gaussian", d=2)
    wider = Gaussian(atoms.mu, (atoms.sigma**2 + 2 * 0.2).sqrt())
    height = (atoms.sigma / wider.sigma).prod(1)
    once = Heat(0.5).response(xi, atoms)
    torch.testing.assert_close(once, height * Heat(0.3).response(xi, wider))


def test_dtypes_follow_the_coordinates():
    for dtype in (torch.float32, f64):
        xi = inside(5, 3).to(dtype)
        for name in ("gaussian", "box", "point"):
            assert ScreenedPoisson().response(xi, cases.atoms(name)).dtype == dtype


def test_empty_and_single_inputs():
    atoms = cases.atoms("gaussian", d=2)
    assert ScreenedPoisson().response(torch.empty(0, 2), atoms).shape == (0, 3)
    assert ScreenedPoisson().response(torch.zeros(1, 2), atoms).shape == (1, 3)
    assert ScreenedPoisson().response(torch.empty(0, 2), cases.atoms("box", d=2)).shape == (0, 3)


def test_state_is_saved_and_moved():
    L, other = ScreenedPoisson(2.5), ScreenedPoisson(1.0)
    other.load_state_dict(L.state_dict())
    assert float(other.kappa) == pytest.approx(2.5, rel=1e-15)


# --- errors


NAN = torch.tensor([[float("nan"), 0.0]])
MU = torch.zeros(2, 2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ScreenedPoisson().response(NAN, Gaussian(MU)), "NaN or infinity in 1 of 1 rows"),
        (
            lambda: ScreenedPoisson().response(torch.zeros(3, 4), Gaussian(MU)),
            r"`mu` of shape \(r, 4\)",
        ),
        (lambda: ScreenedPoisson().response(torch.zeros(4), Gaussian(MU)), r"shape \(n, d\)"),
        (lambda: ScreenedPoisson().response([[0.0, 0.0]], Gaussian(MU)), "floating-point tensor"),
        (
            lambda: Gaussian(MU, 0.0),
            "`sigma` must be positive and finite, got a smallest value of 0",
        ),
        (lambda: Gaussian(MU, -1.0), "`sigma` must be positive"),
        (lambda: Gaussian(MU, float("nan")), "`sigma` must be positive"),
        (lambda: Gaussian(MU, torch.ones(3)), "does not broadcast"),
        (lambda: Gaussian(torch.zeros(2)), r"`mu` must have shape \(r, d\)"),
        (lambda: Gaussian(NAN), "`mu` must be finite, got 1 bad"),
        (lambda: green.Gabor(MU, 1.0, float("inf")), "`omega` must be finite"),
        (lambda: green.GaussHermite(MU, 1.0, -1), "`order` must hold whole numbers"),
        (lambda: ScreenedPoisson(-1.0), "`kappa` must be positive and finite, a number, got -1"),
        (lambda: ScreenedPoisson(torch.ones(2)), "`kappa` must be positive and finite, a number"),
        (lambda: ScreenedPoisson(power=3.0), r"`power` must lie in \[0.25, 2.0\], got 3"),
        (lambda: Fractional(0.1), "`power`"),
        (lambda: HarmonicOscillator(power=2.5), "`power`"),
        (lambda: Cauchy(beta=5.0), "`beta`"),
        (lambda: Cauchy(extent=0.0), "`extent`"),
        (lambda: Poisson(extent=-1.0), "`extent`"),
        (lambda: Matern(nu=0.1), "`nu`"),
        (lambda: ScreenedPoisson().response(MU, MU), "sources must be Atoms"),
        (lambda: ScreenedPoisson().response(MU, green.Modes([MU, MU])), "sources must be Atoms"),
        (lambda: Gaussian(torch.zeros(0, 2)), "holds no atoms"),
        (lambda: green.GaussHermite(MU, 1.0, 1.5), "`order` must hold whole numbers"),
        (lambda: Poisson(domain=(0, 1)), "`domain` must hold Interval"),
        (lambda: Superposition([Heat()], [float("nan")]), "one finite weight"),
        (lambda: Superposition(["laplace"]), "unknown operator 'laplace'"),
        (lambda: Matern(length=0.0), "`length`"),
        (lambda: Heat(0.0), "`time`"),
        (lambda: ScreenedPoisson(diffusivity=-1.0), "`diffusivity`"),
        (
            lambda: ScreenedPoisson(diffusivity=torch.ones(3)).response(
                torch.zeros(1, 2), Gaussian(MU)
            ),
            "`diffusivity` has 3 entries but the chart has 2 axes",
        ),
        (lambda: Interval(1.0, 0.0), "low < high"),
        (lambda: Interval(0.0, 1.0, "robin"), "unknown boundary 'robin'. Choose one of"),
        (
            lambda: green.operator("laplace"),
            "unknown operator 'laplace'. Choose one of .*'poisson'",
        ),
        (
            lambda: ProductScreened().response(torch.zeros(1, 2), green.Gabor(MU)),
            "no closed form for Gabor atoms under the exponential kernel",
        ),
        (
            lambda: Poisson(domain=Interval(0, 1)).response(torch.zeros(1, 2), green.Hat(MU)),
            "no closed form for Hat atoms under an interval's heat kernel",
        ),
        (
            lambda: Poisson(domain=[Interval(0, 1)]).response(torch.zeros(1, 2), Gaussian(MU)),
            "`domain` has 1 entries but the chart has 2 axes",
        ),
        (lambda: Exponential(0.0), "`kappa` must be positive and finite, a number or one per axis"),
        (lambda: Affine(0.0), "`slope` must be positive and finite, a number or one per axis"),
        (lambda: Affine(level=-1.0), "`level` must be a number that is not negative, got -1"),
        (lambda: Affine().response(MU, Gaussian(MU)), "sources must be Point"),
        (lambda: Superposition([Heat()], axes=[]), "`axes` must have a list or None for each of 1"),
        (lambda: Superposition([Poisson()], axes=[[0]]), "Poisson has a null space on all axes"),
        (
            lambda: Superposition([Heat()], axes=[[2]]).response(MU, Point(MU)),
            "`axes` names axis 2, but the chart has 2",
        ),
        (lambda: Anova(0.0), "`share` must lie between 0 and 1, a number or one per axis, got 0"),
        (lambda: Anova(torch.tensor([0.5, 1.0])), "`share` must lie between 0 and 1"),
        (lambda: Anova(float("nan")), "`share` must lie between 0 and 1"),
        (lambda: Anova(torch.full((2, 2), 0.5)), "`share` must lie between 0 and 1"),
        (lambda: Anova(order=3), "`order` must be 1 or 2, got 3"),
        (
            lambda: Anova(torch.full((3,), 0.5)).response(MU, Point(MU)),
            "`share` has 3 entries but the chart has 2 axes",
        ),
        (
            lambda: Exponential().response(MU, Gaussian(MU)),
            r"sources must be Point, such as Point\(mu\), got",
        ),
        (lambda: Anova().response(MU, green.Hat(MU)), "sources must be Point"),
        (
            lambda: Superposition([Heat(), Exponential()]).response(MU, Gaussian(MU)),
            "sources must be Point",
        ),
        (lambda: Superposition([]), "`operators` is empty"),
        (lambda: Superposition([Heat()], [1.0, 2.0]), "one finite weight for each of 1 operators"),
        (
            lambda: ScreenedPoisson().response(MU, Gaussian(MU), torch.ones(3)),
            r"`gate` must have shape \(2,\)",
        ),
        (
            lambda: ScreenedPoisson().response(MU, Gaussian(MU), 2 * torch.ones(2)),
            r"values in \[0, 1\]",
        ),
        (lambda: ScreenedPoisson(n_terms=0).response(MU, Gaussian(MU)), "`n_terms`"),
        (lambda: Point(MU)(MU), "a point source has no values"),
        (lambda: green.Polynomial(-2), "`degree`"),
    ],
)
def test_bad_input_is_explained(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_operators_by_name():
    for name in green.OPERATORS:
        assert isinstance(green.operator(name), green.Operator)
    L = Heat()
    assert green.operator(L) is L


# --- what operators say of themselves

BOUNDED = ("dirichlet", "neumann", "periodic", "mixed_domain", "walled", "wind_around", "spectral")


def has_form(name, kind):
    """In free space: Gaussians stay Gaussians, and points show the Green's function."""
    return name not in BOUNDED and (
        kind == "point" or (kind == "gaussian" and name != "product_screened")
    )


@pytest.mark.parametrize("gate", [None, [0.6, 0.0, 1.0]])
@pytest.mark.parametrize(("name", "kind"), cases.PAIRS)
def test_forms_are_the_response(name, kind, gate):
    """They need no operator any more: columns for every term and source, whose sum it is."""
    L, atoms = cases.OPERATORS[name][0]([0, 1, 2]), cases.atoms(kind)
    gate = None if gate is None else torch.tensor(gate, dtype=cases.f64)
    if not has_form(name, kind):
        with pytest.raises(
            NoForm,
            match=f"{type(L).__name__} with {type(atoms).__name__} atoms|Heat|SquaredExponential",
        ):
            L.forms(atoms, gate)
        return
    xi = cases.positions(9, 3, seed=4)
    with torch.no_grad():
        total = sum(
            form.weight * form(xi).reshape(9, form.n_terms, 3).sum(1)
            for form in L.forms(atoms, gate)
        )
        torch.testing.assert_close(total, L.response(xi, atoms, gate), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["cauchy", "screened_poisson", "harmonic"])
def test_forms_have_the_terms_that_are_weighed(name):
    L, atoms = cases.OPERATORS[name][0]([0, 1, 2]), cases.atoms("point")
    xi = cases.positions(9, 3, seed=4)
    (form,) = L.forms(atoms, terms=True)
    with torch.no_grad():
        each = form(xi).reshape(9, form.n_terms, 3).movedim(1, 0)
        torch.testing.assert_close(each, L.terms(xi, atoms), rtol=1e-10, atol=1e-14)


def test_an_operator_of_the_users_own_is_not_taken_for_the_one_it_derives_from():
    class Doubled(green.Heat):
        def _response(self, xi, atoms, gate):
            return 2 * super()._response(xi, atoms, gate)

    class Slower(green.Heat):
        def times(self, atoms, gate):
            return 2 * self.time[None], torch.zeros(1, dtype=cases.f64)

    atoms, xi = cases.atoms("point"), cases.positions(9, 3, seed=4)
    with pytest.raises(NoForm, match="Doubled with Point atoms"):
        Doubled().forms(atoms)
    (form,) = Slower().forms(atoms)  # from the kernels it has
    torch.testing.assert_close(form(xi), Slower().response(xi, atoms))
    for cls in (Doubled, Slower):
        with pytest.raises(NoForm, match=f"{cls.__name__} is not evaluated in the page"):
            cls().described(atoms)

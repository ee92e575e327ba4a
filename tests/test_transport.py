"""Laws of transport: finite differences, plumes in closed form, releases in time, averages and fluxes."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.linalg import solve_sylvester
from scipy.special import k0e

from greenfold import green
from greenfold.green import Box, Gaussian, Interval, Point, ScreenedPoisson, Transport
from greenfold.green.expsum import best_sum
from greenfold.green.times import log_times
from greenfold.sources import Average, Flux
from greenfold.sources.readings import Readings
from greenfold.sources.responses import columns, responses

f64 = torch.float64
DIRICHLET, NEUMANN, PERIODIC = (Interval(0, 1, b) for b in ("dirichlet", "neumann", "periodic"))


def tensor(*values):
    return torch.tensor(values, dtype=f64)


# --- finite differences


def stencil(n, D, v, boundary, shift):
    """Places and the matrix of −D∂² + v∂ + shift on [0, 1], of second order."""
    h = 1 / n
    x = {"dirichlet": np.arange(1, n), "neumann": np.arange(n + 1), "periodic": np.arange(n)}
    x = x[boundary] * h
    m = len(x)
    A = np.diag(np.full(m, 2 * D / h**2 + shift))
    up, down = -D / h**2 + v / (2 * h), -D / h**2 - v / (2 * h)
    A += np.diag(np.full(m - 1, up), 1) + np.diag(np.full(m - 1, down), -1)
    if boundary == "neumann":
        A[0, 1] = A[-1, -2] = -2 * D / h**2
    if boundary == "periodic":
        A[0, -1], A[-1, 0] = down, up
    return x, A


def extrapolated(D, v, sides, kappa, f):
    """u at PLACES², by Richardson from four grids."""
    found = []
    for n in (32, 64, 128, 256):
        (x, A), (y, B) = (stencil(n, D[j], v[j], sides[j].boundary, kappa**2 / 2) for j in range(2))
        U = solve_sylvester(A, B.T, f(x, y))
        at = [[int(np.argmin(abs(line - p))) for p in PLACES] for line in (x, y)]
        found.append(U[np.ix_(*at)])
    for power in (4, 16, 64):
        found = [(power * b - a) / (power - 1) for a, b in pairwise(found)]
    return found[0]


PLACES = np.arange(2, 31, 4) / 32
GRID = torch.tensor(np.stack(np.meshgrid(PLACES, PLACES, indexing="ij"), -1).reshape(-1, 2))


@pytest.mark.parametrize("mu", [(0.4, 0.55), (0.1, 0.05)])  # the second is cut by walls
@pytest.mark.parametrize(
    ("sides", "wind"),
    [
        ((DIRICHLET, DIRICHLET), (10.0, 5.0)),
        ((DIRICHLET, DIRICHLET), (50.0, -20.0)),
        ((DIRICHLET, NEUMANN), (30.0, 0.0)),
        ((PERIODIC, DIRICHLET), (10.0, 5.0)),
        ((PERIODIC, NEUMANN), (20.0, 0.0)),
    ],
)
def test_boxes_agree_with_extrapolated_finite_differences(sides, wind, mu):
    D, kappa, sigma = (1.0, 0.7), 2.0, 0.12
    turns = (-1, 0, 1) if sides[0] is PERIODIC else (0,)

    def f(x, y):
        across = sum(np.exp(-((x - mu[0] + m) ** 2) / (2 * sigma**2)) for m in turns)
        return across[:, None] * np.exp(-((y - mu[1]) ** 2) / (2 * sigma**2))

    L = Transport(kappa, wind=wind, diffusivity=tensor(*D), domain=sides)
    u = L.response(GRID, Gaussian(tensor(mu), sigma))[:, 0].detach().reshape(8, 8).numpy()
    exact = extrapolated(D, wind, sides, kappa, f)
    assert np.abs(u - exact).max() < 2e-6 * np.abs(exact).max()
    still = ScreenedPoisson(kappa, diffusivity=tensor(*D), domain=sides)  # without wind: far off
    other = still.response(GRID, Gaussian(tensor(mu), sigma))[:, 0].detach().reshape(8, 8).numpy()
    assert np.abs(other - exact).max() > 0.1 * np.abs(exact).max()


@pytest.mark.parametrize("sides", [(DIRICHLET, None), (PERIODIC, DIRICHLET), (None, NEUMANN)])
def test_box_sources_are_sums_of_narrow_gaussians(sides):
    """∫ over the box of the response to points, by Gauss–Legendre."""
    wind = (4.0, 0.0) if sides[1] is NEUMANN else (4.0, 3.0)
    L = Transport(1.5, wind=wind, domain=sides, extent=2.0)
    xi = tensor([0.9, 0.8], [0.3, 0.9], [0.85, 0.2])  # outside the box
    x, w = np.polynomial.legendre.leggauss(16)
    nodes = np.stack(np.meshgrid(0.4 + 0.2 * x, 0.45 + 0.2 * x), -1).reshape(-1, 2)
    weights = torch.tensor(np.outer(w, w).ravel() * 0.2**2)
    exact = L.response(xi, Point(torch.tensor(nodes), 0.02)) @ weights
    found = L.response(xi, Box(tensor([0.4, 0.45]), 0.2))[:, 0]
    torch.testing.assert_close(found, exact, rtol=3e-6, atol=0)


# --- plumes


def plume(x, kappa, v=1.0, D=1.0):
    """Of a point in the plane, at (x, y)."""
    b, r = v / (2 * D), x.norm(dim=1).numpy()
    lam = math.sqrt(b**2 + kappa**2 / D)
    return np.exp(b * x[:, 0].numpy() - lam * r) * k0e(lam * r) / (2 * math.pi * D)


def downstream(P, first=0.05):
    r = torch.linspace(first * P, P, 60, dtype=f64)
    return torch.stack([r, torch.zeros_like(r)], 1)


def test_twenty_four_exponentials_make_a_plume_to_1e9():
    L = Transport(0.3, wind=(1.0, 0.0), extent=10.0)
    source, x = Point(torch.zeros(1, 2, dtype=f64), 0.5), downstream(10, 0.2)
    assert len(L.times(source, None)[0]) == 24
    u = L.response(x, source)[:, 0].detach().numpy()
    assert np.abs(u / plume(x, 0.3) - 1).max() < 1e-9


@pytest.mark.parametrize("error", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("P", [3, 10, 30, 100, 300, 1000])
def test_plumes_have_the_error_that_is_stated(P, error):
    L = Transport(0.0, wind=(1.0, 0.0), extent=float(P), error=error)
    source, x = Point(torch.zeros(1, 2, dtype=f64), 0.05), downstream(P)
    u = L.response(x, source)[:, 0].detach().numpy()
    assert np.abs(u / plume(x, 0.0) - 1).max() < error
    across = torch.stack([x[:, 0] * 0.8, x[:, 0] * 0.6], 1)  # where the plume is not
    v = L.response(across, source)[:, 0].detach().numpy()
    assert np.abs(v - plume(across, 0.0)).max() < error * u.max()


def test_best_sums_lose_a_plume_far_downstream():
    """Which is why there are times: the same source and places, by 24 exponentials."""
    low, high = tensor(0.25)[0], 0.25 + 1 / 0.05**2
    a, gamma, _ = best_sum(24, float(high / low), 1.0)
    a, gamma, x = a / low, gamma / low, downstream(300)
    shifted = (x[:, None, 0] - a) ** 2 / (4 * a)
    u = (gamma / (4 * math.pi * a) * torch.exp(-shifted)).sum(1).numpy()
    assert np.abs(u / plume(x, 0.0) - 1).max() > 0.1


def test_decay_and_distance_are_as_in_the_plane():
    L = Transport(0.7, wind=(2.0, -1.0), diffusivity=0.5, extent=6.0)
    x = torch.rand(40, 2, dtype=f64, generator=torch.Generator().manual_seed(0)) * 4 - 2
    wind, b = tensor(2.0, -1.0), tensor(2.0, -1.0) / 1.0
    lam, r = math.sqrt(float(b @ b) + 0.7**2 / 0.5), x.norm(dim=1).numpy()
    exact = np.exp((x @ wind).numpy() - lam * r) * k0e(lam * r) / (2 * math.pi * 0.5)
    u = L.response(x, Point(torch.zeros(1, 2, dtype=f64), 0.01))[:, 0].detach().numpy()
    np.testing.assert_allclose(u, exact, rtol=2e-6, atol=1e-6 * exact.max())


def test_a_matrix_of_diffusivities_turns_and_stretches_the_plume():
    D = tensor([1.2, 0.5], [0.5, 0.7])
    wind, inverse = tensor(2.0, -1.0), torch.linalg.inv(D)
    L = Transport(0.7, wind=wind, diffusivity=D, extent=6.0)
    x = torch.rand(40, 2, dtype=f64, generator=torch.Generator().manual_seed(0)) * 4 - 2
    lam = math.sqrt(0.7**2 + float(wind @ inverse @ wind) / 4)
    r = torch.einsum("ni,ij,nj->n", x, inverse, x).sqrt().numpy()
    det = math.sqrt(float(torch.linalg.det(D)))
    exact = np.exp((x @ inverse @ wind / 2).numpy() - lam * r) * k0e(lam * r) / (2 * math.pi * det)
    u = L.response(x, Point(torch.zeros(1, 2, dtype=f64), 0.01))[:, 0].detach().numpy()
    np.testing.assert_allclose(u, exact, rtol=2e-6, atol=1e-6 * exact.max())
    flux = columns(L, Readings.of([Flux(row.tolist(), 1) for row in x]), Point(tensor([0.0, 0.0])))
    along = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(L.response(along, Point(tensor([0.0, 0.0]))).sum(), along)
    expected = wind[1] * torch.tensor(u) - slope @ D[1]
    torch.testing.assert_close(flux[:, 0], expected, rtol=1e-4, atol=1e-6)


def test_without_wind_it_is_screened_poisson_and_against_it_the_roles_change():
    x, mu = torch.rand(7, 3, dtype=f64), torch.rand(5, 3, dtype=f64)
    still = Transport(1.5, extent=2.0, error=1e-9)
    screened = ScreenedPoisson(1.5, n_terms=32)
    torch.testing.assert_close(
        still.response(x, Gaussian(mu, 0.2)),
        screened.response(x, Gaussian(mu, 0.2)),
        rtol=1e-7,
        atol=0,
    )
    for sides in (None, (DIRICHLET, None, PERIODIC)):
        there, back = (
            Transport(1.5, wind=tensor(3.0, -1.0, 2.0) * s, domain=sides, extent=2.0)
            for s in (1, -1)
        )
        a, b = there.response(x, Point(mu)), back.response(mu, Point(x)).T
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


# --- releases in time


def heat(x, a, v, D, kappa):
    d = len(x)
    square = sum((xj - vj * a) ** 2 for xj, vj in zip(x, v))
    return (4 * math.pi * D * a) ** (-d / 2) * math.exp(-square / (4 * D * a) - kappa**2 * a)


@pytest.mark.parametrize(("d", "tolerance"), [(1, 1e-12), (2, 1e-9), (3, 1e-12)])
def test_a_release_that_was_switched_on(d, tolerance):
    """Closed forms on a line and in space, times in the plane; against adaptive quadrature."""
    v, D, kappa = [1.5, -0.7, 0.4][:d], 0.6, 0.8
    L = Transport(kappa, wind=v, diffusivity=D, release="switched_on", time=0.9, error=1e-10)
    source = Point(torch.zeros(1, d, dtype=f64), 0.01)
    for x in ([0.7, 0.4, -0.2], [-1.0, 0.5, 0.3], [2.5, -1.0, 0.5]):
        exact, _ = quad(lambda a, x=x: heat(x[:d], a, v, D, kappa), 0, 0.9, epsabs=0, epsrel=1e-13)
        u = float(L.response(tensor(x[:d]), source).detach())
        assert abs(u / exact - 1) < tolerance


def test_closed_forms_hold_far_out_where_factors_would_overflow():
    L = Transport(1.0, wind=(40.0, 0.0, 0.0), release="switched_on", time=0.5)
    x = [30.0, 1.0, 0.0]
    exact, _ = quad(
        lambda a: heat(x, a, (40, 0, 0), 1.0, 1.0),
        0,
        0.5,
        epsabs=0,
        epsrel=1e-12,
        points=[0.45, 0.49],
    )
    u = float(L.response(tensor(x), Point(torch.zeros(1, 3, dtype=f64))).detach())
    assert abs(u / exact - 1) < 1e-9


def test_in_the_end_it_is_steady_and_an_instant_is_its_rate():
    g = torch.Generator().manual_seed(0)
    x = torch.rand(6, 3, dtype=f64, generator=g)
    source = Point(torch.rand(2, 3, dtype=f64, generator=g) + 0.5, 0.01)
    options = {"kappa": 1.0, "wind": (2.0, 0.0, -1.0), "extent": 3.0}
    steady = Transport(**options, error=1e-9).response(x, source)
    late = Transport(**options, release="switched_on", time=30.0).response(x, source)
    torch.testing.assert_close(late, steady, rtol=1e-8, atol=0)
    after, before = (
        Transport(**options, release="switched_on", time=t).response(x, source)
        for t in (0.3 + 1e-4, 0.3 - 1e-4)
    )
    rate = Transport(**options, release="instant", time=0.3).response(x, source)
    torch.testing.assert_close((after - before) / 2e-4, rate, rtol=1e-5, atol=1e-9)


# --- averages and fluxes


SCENES = {
    "free": None,
    "walls": (DIRICHLET, NEUMANN),
    "around": (PERIODIC, None),
}


def scene(name, kind):
    L = Transport(
        1.5,
        wind=(4.3, 0.0),
        diffusivity=tensor(1.0, 0.6),
        domain=SCENES[name],
        extent=2.0,
        error=1e-8,
    )
    mu = tensor([0.3, 0.7], [0.55, 0.2], [0.9, 0.5])
    return L, (Point(mu, 0.03) if kind == "point" else Gaussian(mu, 0.05))


@pytest.mark.parametrize("kind", ["point", "gaussian"])
@pytest.mark.parametrize("name", SCENES)
def test_averages_over_boxes_are_integrals(name, kind):
    L, atoms = scene(name, kind)
    low, high = np.array([0.1, 0.25]), np.array([0.25, 0.6])
    x, w = np.polynomial.legendre.leggauss(40)
    lines = [(low[j] + high[j]) / 2 + (high[j] - low[j]) / 2 * x for j in range(2)]
    places = torch.tensor(np.stack(np.meshgrid(*lines, indexing="ij"), -1).reshape(-1, 2))
    exact = torch.tensor(np.outer(w, w).ravel() / 4) @ L.response(places, atoms).detach()
    found = columns(L, Readings.of([Average(low, high)]), atoms)[0]
    torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-14)
    across = Average([0.4, low[1]], [0.4, high[1]])  # along a line
    on_line = torch.tensor(np.stack([np.full(40, 0.4), lines[1]], 1))
    exact = torch.tensor(w / 2) @ L.response(on_line, atoms).detach()
    torch.testing.assert_close(
        columns(L, Readings.of([across]), atoms)[0], exact, rtol=1e-10, atol=1e-14
    )


@pytest.mark.parametrize("kind", ["point", "gaussian"])
@pytest.mark.parametrize("name", SCENES)
def test_fluxes_are_what_the_wind_carries_less_the_gradient(name, kind):
    L, atoms = scene(name, kind)
    place = [0.42, 0.33]
    for axis in range(2):
        x = tensor(place).requires_grad_()
        found = columns(L, Readings.of([Flux(place, axis)]), atoms)[0]
        for r in range(3):
            u = L.response(x, atoms)[0, r]
            (slope,) = torch.autograd.grad(u, x)
            exact = L.velocity(2)[axis] * u - L.diffusivity[axis] * slope[0, axis]
            assert abs(float(found[r]) / float(exact.detach()) - 1) < 1e-8


def test_what_is_emitted_flows_out_or_decays():
    """∮ flux + κ² ∫u = strength of the source inside: fluxes at nodes of the sides, one average."""
    L = Transport(1.2, wind=(3.0, -1.0), diffusivity=0.8, extent=2.0, error=1e-10)
    atoms = Point(tensor([0.5, 0.4], [1.7, 0.4]), 0.01)  # inside, and outside
    x, w = np.polynomial.legendre.leggauss(48)
    total = 1.2**2 * columns(L, Readings.of([Average([0, 0], [1, 1])]), atoms)[0]
    for axis in range(2):
        for side, sign in ((0.0, -1), (1.0, 1)):
            places = np.full((48, 2), side)
            places[:, 1 - axis] = (1 + x) / 2
            readings = Readings.of([Flux(place, axis) for place in places])
            total = total + sign * torch.tensor(w / 2) @ columns(L, readings, atoms)
    torch.testing.assert_close(total, tensor(1.0, 0.0), rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("free", "point"),
        ("free", "gaussian"),
        ("around", "gaussian"),
        ("walls", "point"),
        pytest.param("walls", "gaussian", marks=pytest.mark.slow),
    ],
)
def test_slopes_of_readings_are_differences(name, kind):
    L, atoms = scene(name, kind)
    readings = Readings.of([Average([0.1, 0.25], [0.25, 0.6]), Flux([0.42, 0.33], 0), [0.2, 0.9]])
    found = responses(L, readings, atoms, ("mu", "kappa", "wind", "diffusivity"))
    h = 1e-5

    def close(slope, change):
        up, down = (change(s * h) for s in (1, -1))
        exact = (up - down) / (2 * h)
        assert float((slope - exact).abs().max()) < 1e-5 * float(exact.abs().max())

    def moved(j):
        def change(step):
            mu = atoms.mu.clone()
            mu[:, j] += step
            return columns(L, readings, Point(mu, 0.03) if kind == "point" else Gaussian(mu, 0.05))

        return change

    def physical(parameter, j):
        def change(step):
            with torch.no_grad():
                parameter.view(-1)[j] += step
                value = columns(L, readings, atoms)
                parameter.view(-1)[j] -= step
            return value

        return change

    for j in range(2):
        close(found.mu[..., j], moved(j))
        D = float(L.diffusivity[j].detach())
        close(found.diffusivity[..., j] * D, physical(L.log_diffusivity, j))
    close(found.kappa, physical(L.kappa, 0))
    close(found.wind[..., 0], physical(L.wind, 0))


# --- learning


@pytest.mark.parametrize("domain", [None, (DIRICHLET, NEUMANN, None)])
@pytest.mark.parametrize("size", [1.3, 23.0])  # exponentials, and times
def test_gradients_reach_wind_decay_and_diffusivity(size, domain):
    L = Transport(
        1.3, wind=(size, 0.0, -0.6), diffusivity=0.8, domain=domain, extent=2.0, learn=True
    )
    atoms, xi = Gaussian(torch.rand(2, 3, dtype=f64), 0.2), torch.rand(4, 3, dtype=f64)
    L.response(xi, atoms).sum().backward()
    for parameter in L.parameters():
        gradient, flat = parameter.grad.clone().view(-1), parameter.data.view(-1)
        for i in range(len(flat)):
            start, values = float(flat[i]), []
            for step in (1e-5, -1e-5):
                flat[i] = start + step
                values.append(float(L.response(xi, atoms).sum().detach()))
            flat[i] = start
            exact = (values[0] - values[1]) / 2e-5
            assert abs(float(gradient[i]) - exact) < 1e-4 * max(abs(exact), 1e-2)


def test_a_learned_wind_stays_zero_across_neumann_sides():
    L = Transport(1.0, wind=(1.0, 0.0), domain=(DIRICHLET, NEUMANN), learn=True)
    with torch.no_grad():
        L.wind += 3.0
    assert L.velocity(2).tolist() == [4.0, 0.0]


def test_times_integrate_what_they_are_for():
    """∫ e^{−a} da, and an arrival at a = 1 that is .04 wide."""
    a, log_weight = log_times(1e-6, 40.0, 0.0, 1e-9)
    assert abs(float((log_weight.exp() * torch.exp(-a)).sum()) - 1) < 1e-9
    a, log_weight = log_times(1e-6, 40.0, 1250.0, 1e-9)
    arrival = torch.exp(-1250 * (a - 1) ** 2 / (4 * a)) / (4 * math.pi * a / 1250).sqrt()
    assert abs(float((log_weight.exp() * arrival).sum()) - 1) < 1e-9


def test_places_beyond_the_extent_are_announced():
    L, source = Transport(0.0, wind=(1.0, 0.0), extent=5.0), Point(torch.zeros(1, 2, dtype=f64))
    with pytest.warns(UserWarning, match="up to 60 away .* beyond `extent`=5: .* Raise `extent`"):
        L.response(tensor([60.0, 0.0]), source)
    L.response(tensor([4.0, 1.0]), source)


# --- errors


SOURCE = Gaussian(torch.zeros(1, 2, dtype=f64), 0.1)
XI = torch.zeros(1, 2, dtype=f64)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Transport(-1.0), "`kappa` must be a number, finite and not negative, got -1"),
        (lambda: Transport(float("nan")), "`kappa`"),
        (lambda: Transport(wind=float("inf")), "`wind` must be finite"),
        (lambda: Transport(wind=torch.ones(2, 2)), "`wind` must be finite, a number or one per"),
        (lambda: Transport(diffusivity=0.0), "`diffusivity` must be positive"),
        (lambda: Transport(diffusivity=tensor([1.0, 2.0], [2.0, 1.0])), "positive definite"),
        (
            lambda: Transport(diffusivity=torch.eye(2), domain=(DIRICHLET, None)),
            "a box does not turn with them",
        ),
        (lambda: Transport(wind=(0.0, 1.0), domain=(None, NEUMANN)), "at 1 across a Neumann side"),
        (lambda: Transport(wind=2.0, domain=NEUMANN), "across a Neumann side, .* Robin"),
        (lambda: Transport(wind=(1.0, 2.0), domain=(None, None, None)), "`wind` has 2 entries"),
        (lambda: Transport(release="puff"), "unknown release 'puff'. Choose one of"),
        (lambda: Transport(release="instant"), "needs the `time` since then"),
        (lambda: Transport(release="switched_on", time=-1.0), "`time` since then, positive"),
        (lambda: Transport(time=1.0), "a steady release has no `time`"),
        (lambda: Transport(error=1.0), "`error` must lie in"),
        (lambda: Transport(extent=0.0), "`extent`"),
        (lambda: Transport(0.0).response(XI, SOURCE), "nothing is ever steady"),
        (lambda: Transport(0.0, wind=1.0, domain=PERIODIC).response(XI, SOURCE), "ever steady"),
        (lambda: Transport(wind=(1.0, 2.0, 3.0)).response(XI, SOURCE), "`wind` has 3 entries"),
        (
            lambda: Transport(domain=DIRICHLET).response(XI, green.Hat(XI, 0.1)),
            "between walls must be Gaussian, Point or Box",
        ),
        (
            lambda: Transport(diffusivity=torch.eye(2)).response(XI, green.Box(XI, 0.1)),
            "Point or Gaussian where D is a matrix",
        ),
        (
            lambda: Transport(diffusivity=torch.eye(2)).response(
                XI, Gaussian(XI, tensor(1.0, 2.0))
            ),
            "as wide along every axis",
        ),
        (
            lambda: Transport(diffusivity=torch.eye(2)).response(XI, SOURCE, tensor(1.0, 0.5)),
            "no axis can be closed",
        ),
        (
            lambda: Transport(0.0, wind=(1e4, 0.0), extent=1e4, error=1e-12).response(XI, SOURCE),
            "takes .* times, more than 1024",
        ),
        (
            lambda: columns(
                Transport(diffusivity=torch.eye(2)), Readings.of([Average([0, 0], [1, 1])]), SOURCE
            ),
            "boxes turn",
        ),
    ],
)
def test_errors_say_what_to_do(call, words):
    with pytest.raises(ValueError, match=words):
        call()

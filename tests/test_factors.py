"""Laws of products: the direct sums they must equal, gates, gradients, symmetry, and errors that help."""

import contextlib
import io
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import eval_legendre

import greenfold
from greenfold import IGLClassifier, IGLRegressor, Source, Training
from greenfold.chart import MLP
from greenfold.green import (
    Bounded,
    Bumps,
    Circle,
    Gaussian,
    Graph,
    Interval,
    Line,
    Point,
    Product,
    ScreenedPoisson,
    Sphere,
)
from greenfold.green.graph import STEEP
from greenfold.green.integrals import exponential_gaussian
from greenfold.model import IGL, Tied
from greenfold.solve import Ridge
from tests import cases

f64 = torch.float64
KAPPA = 1.3


def ids(names):
    return "_".join(names)


def bumps(names, r, seed=3, low=0.3):
    g = torch.Generator().manual_seed(seed)
    sigma = low + 0.2 * torch.rand(r, len(names), dtype=f64, generator=g)
    return Bumps(cases.places(names, r, seed), sigma)


def rms(a, b):
    """Of a − b, over that of b."""
    return float((a - b).square().mean().sqrt() / b.square().mean().sqrt())


# --- what the response must be


def line_green(lam, t, s, sigma, D):
    """(λ + κ² − D∂²)⁻¹ of N(s, σ²) at t, in closed form."""
    kappa = torch.as_tensor(((lam + KAPPA**2) / D) ** 0.5, dtype=f64)
    mass = sigma * math.sqrt(2 * math.pi) * D
    return exponential_gaussian(t[:, None], kappa, s, torch.tensor(sigma, dtype=f64)) / mass


def zonal(x, mu, degree):
    return torch.from_numpy(eval_legendre(degree, (x @ mu.T).clamp(-1, 1).numpy()))


def degrees(sigma):
    """l, l(l+1) and the coefficients of a bump on the sphere."""
    for n in range(math.ceil(12 / sigma)):
        lam = n * (n + 1)
        yield n, lam, (2 * n + 1) / (4 * math.pi) * math.exp(-lam * sigma**2 / 2)


def legendre_sum(x, mu, sigma):
    """On sphere × line with D = (1, ½)."""
    return sum(
        c * zonal(x[:, :3], mu[:, :3], n) * line_green(lam, x[:, 3], mu[:, 3], sigma, 0.5)
        for n, lam, c in degrees(sigma)
    )


@pytest.mark.parametrize(("n_terms", "most"), [(8, 1.2e-4), (16, 3e-9)])
def test_sphere_times_line_is_the_legendre_sum(n_terms, most):
    x, mu = cases.places(["sphere", "line"], 60, 1), cases.places(["sphere", "line"], 7)
    L = Product([Sphere(), Line(diffusivity=0.5)], KAPPA, n_terms=n_terms)
    assert rms(L.response(x, Bumps(mu, 0.3)), legendre_sum(x, mu, 0.3)) < most


def test_a_product_of_green_functions_is_another_operator():
    x, mu = cases.places(["sphere", "line"], 60, 1), cases.places(["sphere", "line"], 7)
    parts = [Product([f], KAPPA) for f in (Sphere(), Line(diffusivity=0.5))]
    own = [slice(3), slice(3, 4)]
    one, two = (L.response(x[:, c], Bumps(mu[:, c], 0.3)) for L, c in zip(parts, own))
    true, other = legendre_sum(x, mu, 0.3), one * two
    other = other * (other * true).sum() / other.square().sum()  # with the best factor granted
    assert rms(other, true) > 0.05


def test_sphere_times_line_times_graph_is_the_direct_sum():
    names, sigma = ["sphere", "line", "graph"], 0.3
    x, mu = cases.places(names, 40, 1), cases.places(names, 5)
    graph = cases.FACTORS["graph"][0]()
    psi, direct = graph.modes, torch.zeros(40, 5, dtype=f64)
    for m, lam in enumerate(graph.eigenvalues.tolist()):
        pair = psi(x[:, 4:])[:, m, None] * psi(mu[:, 4:])[:, m] * math.exp(-lam * sigma**2 / 2)
        for n, own, c in degrees(sigma):
            line = line_green(0.7 * own + 3 * lam, x[:, 3], mu[:, 3], sigma, 0.5)
            direct += c * pair * zonal(x[:, :3], mu[:, :3], n) * line
    assert rms(cases.product(names).response(x, Bumps(mu, sigma)), direct) < 1e-7


def test_graph_times_circle_is_the_double_sum():
    names, sigma = ["graph", "circle"], 0.3
    x, mu = cases.places(names, 50, 1), cases.places(names, 6)
    graph, direct = cases.FACTORS["graph"][0](), torch.zeros(50, 6, dtype=f64)
    apart = 2 * math.pi * (x[:, 1, None] - mu[:, 1])
    for m, lam in enumerate(graph.eigenvalues.tolist()):
        pair = graph.modes(x)[:, m, None] * graph.modes(mu)[:, m]
        for n in range(40):
            wave, turn = (1 if n == 0 else 2) * torch.cos(n * apart), (2 * math.pi * n) ** 2
            heat = math.exp(-(lam + turn) * sigma**2 / 2)
            direct += heat / (KAPPA**2 + 3 * lam + 0.2 * turn) * pair * wave
    got = cases.product(names, n_terms=24).response(x, Bumps(mu, sigma))
    assert rms(got, direct) < 1e-10


def test_lines_alone_are_screened_poisson():
    mu, sigma = cases.positions(4, 2), torch.tensor([0.3, 0.4], dtype=f64)
    x, D = cases.positions(9, 2, 5), torch.tensor([0.7, 1.6], dtype=f64)
    known = ScreenedPoisson(KAPPA, diffusivity=D, n_terms=24).response(x, Gaussian(mu, sigma))
    got = Product([Line(0.7), Line(1.6)], KAPPA, n_terms=24).response(x, Bumps(mu, sigma))
    assert rms(got * 2 * math.pi * sigma.prod(), known) < 1e-9


@pytest.mark.parametrize("boundary", ["dirichlet", "neumann", "periodic"])
@pytest.mark.parametrize("sigma", [0.2, 0.002])  # by waves, by images
def test_intervals_are_those_of_a_box(boundary, sigma):
    mu, side = cases.positions(4, 1), Interval(0, 1, boundary)
    x = torch.cat([cases.positions(9, 1, 5), mu + sigma])
    known = ScreenedPoisson(KAPPA, domain=side, n_terms=32).response(x, Gaussian(mu, sigma))
    got = Product([side], KAPPA, n_terms=32).response(x, Bumps(mu, sigma))
    assert rms(got * math.sqrt(2 * math.pi) * sigma, known) < 1e-6


def test_a_circle_has_no_seam():
    L, mu = Product([Circle(24.0)]), torch.tensor([[23.5]], dtype=f64)
    x = torch.tensor([[0.5], [24.5], [22.5]], dtype=f64)
    one, same, mirrored = L.response(x, Bumps(mu, 0.3))[:, 0]
    torch.testing.assert_close(one, same)
    torch.testing.assert_close(one, mirrored)


@pytest.mark.parametrize("sigma", [1.0, 0.3, 0.1, 0.03, 0.01])
def test_the_spline_of_the_zonal_series_errs_by_less_than_1e_9(sigma):
    """At poles, next to the source, and everywhere."""
    g = torch.Generator().manual_seed(0)
    mu = cases.on_sphere(3, g)
    near = torch.nn.functional.normalize(mu[:1] + sigma * torch.randn(50, 3, generator=g), dim=1)
    x = torch.cat([mu, -mu, near, cases.on_sphere(50, g)])
    series = sum(c * zonal(x, mu, n) for n, _, c in degrees(sigma))
    got = Sphere().heat(mu, torch.full((1, 3), sigma**2 / 2, dtype=f64))(x)[:, 0]
    assert float((got - series).abs().max() / series.max()) < 1e-9


def test_each_bump_has_its_own_width():
    names = ["sphere", "line"]
    sources, x = bumps(names, 4), cases.places(names, 6, 1)
    L = cases.product(names, n_terms=24)
    apart = [L.response(x, Bumps(sources.mu[r : r + 1], sources.sigma[r])) for r in range(4)]
    assert rms(L.response(x, sources), torch.cat(apart, dim=1)) < 1e-8


@pytest.mark.parametrize("power", [0.5, 1.5, 3.0])
def test_a_power_is_that_of_the_inverse(power):
    x, mu, sigma = cases.places(["graph"], 12, 1), cases.places(["graph"], 3), 0.5
    graph = cases.FACTORS["graph"][0]()
    lam = graph.eigenvalues
    true = (KAPPA**2 + 3 * lam) ** -power * torch.exp(-lam * sigma**2 / 2)
    got = cases.product(["graph"], power=power).response(x, Bumps(mu, sigma))
    assert rms(got, graph.modes(x) * true @ graph.modes(mu).T) < 1e-8


# --- laws of all products


@pytest.mark.parametrize("names", cases.PRODUCTS, ids=ids)
def test_an_open_gate_changes_nothing_and_a_closed_one_removes_the_factor(names):
    L, sources, x = cases.product(names), bumps(names, 3), cases.places(names, 6, 1)
    full = L.response(x, sources)
    torch.testing.assert_close(L.response(x, sources, torch.ones(len(names))), full)
    for keep in range(len(names) if len(names) > 1 else 0):
        rest = [j for j in range(len(names)) if j != keep]
        gate = torch.ones(len(names), dtype=f64)
        gate[keep] = 0
        columns = [c for j in rest for c in range(*L.parts[j].indices(L.columns))]
        without = Product([L.members()[j] for j in rest], KAPPA)
        left = Bumps(sources.mu[:, columns], sources.sigma[:, rest])
        torch.testing.assert_close(
            L.response(x, sources, gate), without.response(x[:, columns], left), rtol=1e-10, atol=0
        )


@pytest.mark.parametrize("names", cases.PRODUCTS, ids=ids)
def test_green_is_symmetric_and_positive_definite(names):
    x, y = cases.places(names, 8, 1), cases.places(names, 5, 2)
    L = cases.product(names)
    for kind, sigma in ((Bumps, 0.3), (Point, 0.05)):
        one, other = L.response(x, kind(y, sigma)), L.response(y, kind(x, sigma)).T
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9 * float(one.max()))
        G = L.response(x, kind(x, sigma))
        values = torch.linalg.eigvalsh((G + G.T) / 2)
        assert float(values[0]) > -1e-9 * float(values[-1])  # what splines round off
    origin, sources = L.origin(L.columns)[None], Point(x, 0.05)
    own = L.response(x, sources).diagonal() - L.response(origin, Point(origin, 0.05))[0, 0]
    found = L.rise(x, None, sources)
    torch.testing.assert_close(found, own, rtol=1e-7, atol=1e-7 * float(own.abs().max() + 1))


@pytest.mark.parametrize("names", cases.PRODUCTS, ids=ids)
def test_gradients_reach_places_gates_and_sources(names):
    L, sources, x = cases.product(names, n_terms=8), bumps(names, 2), cases.places(names, 3, 1)
    discrete = "graph" in names or "rows" in names  # nodes do not move
    gate = torch.full((len(names),), 0.6, dtype=f64, requires_grad=True)
    sigma = sources.sigma.clone().requires_grad_()
    x, mu = (v.requires_grad_(not discrete) for v in (x, sources.mu))
    inputs = (x, mu, sigma, gate)
    check = torch.autograd.gradcheck
    assert check(lambda x, m, s, g: L.response(x, Bumps(m, s), g), inputs, atol=1e-6, rtol=1e-4)
    closed = torch.zeros(len(names), dtype=f64, requires_grad=True)
    L.response(x.detach(), sources, closed).sum().backward()
    assert (closed.grad.isfinite() & (closed.grad != 0)).all()


@pytest.mark.parametrize("names", [["sphere", "line"], ["rows", "dirichlet", "neumann"]], ids=ids)
def test_gradients_reach_physical_parameters(names):
    L, sources, x = cases.product(names, learn=True), bumps(names, 3), cases.places(names, 4, 1)
    L.requires_grad_().response(x, sources).sum().backward()
    for p in L.parameters():
        start, h, both = p.detach().clone(), 1e-5, []
        for sign in (1, -1):
            p.data = start + sign * h
            both.append(float(L.response(x, sources).sum().detach()))
        p.data = start
        assert float(p.grad) == pytest.approx((both[0] - both[1]) / (2 * h), rel=1e-5)


def test_rows_in_blocks_and_in_float32_are_the_same():
    names = ["sphere", "line"]
    x, sources = cases.places(names, 3000, 1), bumps(names, 40)
    L = cases.product(names)
    whole = L.response(x, sources)
    assert rms(L.response(x.float(), sources).double(), whole) < 1e-5
    assert rms(L.response(x[-5:], sources), whole[-5:]) < 1e-14


# --- graphs


def test_eigenfunctions_of_a_graph_are_those_of_its_walk():
    W = cases._ring()
    graph, S = Graph(W), W.sum(1)
    psi = graph.psi
    torch.testing.assert_close(psi[:, 0].abs(), torch.ones(12, dtype=f64))
    torch.testing.assert_close(W / S[:, None] @ psi, psi * (1 - graph.eigenvalues))
    torch.testing.assert_close(psi.T @ (S[:, None] / S.sum() * psi), torch.eye(12, dtype=f64))


def arc(n, noise, seed=0):
    g = np.random.default_rng(seed)
    t = 3 * (np.arange(n) + g.uniform(size=n)) / n
    return t, np.c_[np.cos(t), np.sin(t)] + noise * g.normal(size=(n, 2))


def test_distances_and_rows_make_one_graph():
    _, X = arc(60, 0.01)
    apart = np.linalg.norm(X[:, None] - X, axis=2)
    one, other = Graph.of_rows(X, 6, 0.8), Graph.of_distances(apart, 6, 0.8)
    torch.testing.assert_close(one.eigenvalues, other.eigenvalues)
    x, nodes = torch.from_numpy(X[:9]), torch.arange(9, dtype=f64)[:, None]
    K = [Product([f]).response(z, Bumps(z, 0.3)) for f, z in ((one, x), (other, nodes))]
    torch.testing.assert_close(*K)


def test_new_rows_lie_between_their_neighbors_and_steep_modes_are_left_out():
    t, X = arc(400, 0.0)
    graph = Graph.of_rows(X, 8)
    middle = (t[100:300:10] + t[101:301:10]) / 2
    new = torch.from_numpy(np.c_[np.cos(middle), np.sin(middle)])
    between = (graph.psi[100:300:10] + graph.psi[101:301:10]) / 2
    psi = graph.modes(new)
    assert rms(psi[:, :6], between[:, :6]) < 0.02
    steep = graph.eigenvalues >= STEEP
    assert bool((psi[:, steep] == 0).all())
    # what dividing by 1 − λ would have made of them
    worst = (1 / (1 - graph.eigenvalues[steep])).abs().max()
    assert float(worst) > 20


def test_large_graphs_have_their_lowest_modes(monkeypatch):
    from greenfold.green import graph

    _, X = arc(300, 0.05)
    whole = Graph.of_rows(X, 8)
    monkeypatch.setattr(graph, "ALL", 100)
    monkeypatch.setattr(graph, "MODES", 20)
    some = Graph.of_rows(X, 8)
    torch.testing.assert_close(some.eigenvalues, whole.eigenvalues[:20], rtol=1e-8, atol=1e-10)
    x = torch.from_numpy(X[:5])
    assert (
        rms(some.modes(x) @ some.modes(x).T, whole.modes(x)[:, :20] @ whole.modes(x)[:, :20].T)
        < 1e-6
    )


# --- models


def world(n=120, seed=0):
    """Temperature-like values on sphere × year."""
    g = np.random.default_rng(seed)
    P = g.normal(size=(n, 3))
    P /= np.linalg.norm(P, axis=1, keepdims=True)
    t = g.uniform(0, 1, n)
    return np.c_[P, t], 3 * P[:, 2] ** 2 + P[:, 2] * np.cos(2 * np.pi * t)


def globe(**options):
    return Product([Sphere(), Circle(1.0, diffusivity=0.05)], 1.0, 2.0, **options)


def test_a_product_works_in_an_igl_with_bumps_tied_to_rows():
    X, y = (torch.from_numpy(v) for v in world())
    tied = Tied(X, Bumps, 0.2)
    model = IGL(torch.nn.Identity(), globe(), tied, n_dims=4, energy=True)
    model.solve(X, y[:, None], Ridge(1e-8))
    fresh, truth = (torch.from_numpy(v) for v in world(seed=1))
    assert rms(model(fresh)[:, 0], truth) < 0.25
    assert len(model.gates()) == 2


def test_estimators_take_columns_as_they_are(tmp_path):
    X, y = world(200)
    model = IGLRegressor(operator=globe(), random_state=0).fit(X, y)
    fresh, truth = world(100, 1)
    assert model.score(fresh, truth) > 0.95
    assert model.explained_.shape == (2,)
    assert model.explained_[0] > model.explained_[1] > 0.02
    np.testing.assert_array_equal(model.transform(X[:3]), X[:3])
    _, std = model.predict(fresh, return_std=True)
    assert np.isfinite(std).all()
    greenfold.save(model, tmp_path / "globe.igl")
    again = greenfold.load(tmp_path / "globe.igl")
    np.testing.assert_array_equal(again.predict(fresh), model.predict(fresh))
    labels = IGLClassifier(operator=globe(), random_state=0).fit(X, y > 1)
    assert labels.score(fresh, truth > 1) > 0.9


def test_what_a_product_learns_helps():
    X, y = world(100)
    shifted = Product([Sphere(learn=True), Circle(1.0, 5.0, learn=True)], 5.0, 2.0, learn=True)
    still, steps = Product([Sphere(), Circle(1.0, 5.0)], 5.0, 2.0), Training(max_iter=8)
    fits = [
        IGLRegressor(operator=L, training=steps, source=Source(n_atoms=60)).fit(X, y)
        for L in (still, shifted)
    ]
    fresh, truth = world(100, 1)
    assert fits[1].score(fresh, truth) > fits[0].score(fresh, truth) + 0.02


def test_a_learned_chart_stands_beside_known_factors():
    class Beside(torch.nn.Module):
        """The circle as it is, and one coordinate of the other columns."""

        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.rest = MLP(3, 1, [8])

        def forward(self, x):
            return torch.cat([x[:, :1], self.rest(x[:, 1:])], dim=1)

    g = np.random.default_rng(0)
    X = np.c_[g.uniform(0, 24, 150), g.normal(size=(150, 3))]
    y = np.cos(X[:, 0] * np.pi / 12) + np.sin(X[:, 1] - X[:, 2])
    L = Product([Circle(24.0, 10.0), Line()], 1.0, 1.5)
    few = {"training": Training(max_iter=8), "source": Source(n_atoms=50)}
    model = IGLRegressor(Beside(), L, **few, random_state=0)
    model.fit(X[:100], y[:100])
    assert model.score(X[100:], y[100:]) > 0.8


def test_a_graph_on_rows_of_an_estimator(tmp_path):
    t, X = arc(150, 0.02)
    y = np.sin(3 * t)
    L = Product([Graph.of_rows(X, 8)], 0.1, 1.0)
    model = IGLRegressor(operator=L, random_state=0).fit(X[::5], y[::5])
    assert model.score(X, y) > 0.97
    u, fresh = arc(50, 0.02, 1)
    assert model.score(fresh, np.sin(3 * u)) > 0.9
    greenfold.save(model, tmp_path / "graph.igl")
    np.testing.assert_array_equal(
        greenfold.load(tmp_path / "graph.igl").predict(X), model.predict(X)
    )


# --- errors that help


GOOD = cases.places(["sphere", "line"], 3)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: Product([Sphere(), Line()]).response(2 * GOOD, Bumps(GOOD)),
            "length 2.*Sphere.at",
        ),
        (lambda: Product([Sphere(), Line()]).response(GOOD, Bumps(0 * GOOD)), "`mu`.*unit sphere"),
        (lambda: Product([Sphere(), Line(), Line()]).response(GOOD, Bumps(GOOD)), "3 for Sphere"),
        (lambda: Product([Sphere(), Line()]).response(GOOD, Bumps(GOOD, [1.0, 1, 1])), "2 factors"),
        (lambda: Product([Sphere(), Line()]).response(GOOD, Bumps(GOOD), torch.ones(4)), r"\(2,\)"),
        (lambda: Product([Sphere(), Line()]).response(GOOD, Gaussian(GOOD)), "Bumps or Point"),
        (lambda: Product([]), "such as"),
        (lambda: Product(Sphere()), "such as"),
        (lambda: Product(["sphere"]), "Graph or Interval"),
        (lambda: Product([Line()], kappa=0.0), "kappa"),
        (lambda: Product([Line()], power=9.0), "power"),
        (lambda: Product([Line(diffusivity=-1)]), "diffusivity"),
        (lambda: Circle(0.0), "period"),
        (lambda: Bounded((0, 1)), "Interval"),
        (lambda: Bumps(GOOD, torch.ones(2, 2)), "3 bumps"),
        (lambda: Graph(-torch.ones(3, 3)), "of_distances"),
        (lambda: Graph([[0, 1], [2, 0]]), "symmetric"),
        (lambda: Graph(torch.ones(2, 3)), r"\(N, N\)"),
        (lambda: Graph([[0, 1, 0], [1, 0, 0], [0, 0, 0]]), r"no neighbor.*\[2\]"),
        (lambda: Graph([[0, float("nan")], [float("nan"), 0]]), "finite"),
        (lambda: Graph(torch.ones(3, 3), n_modes=4), "n_modes"),
        (lambda: Graph.of_rows(torch.zeros(4, 2), 4), "n_neighbors"),
        (lambda: Graph.of_rows(torch.rand(9, 2), 4, width=0), "width"),
        (lambda: Graph.of_rows([[math.inf, 0.0]]), "finite"),
        (lambda: Graph.of_distances(-torch.ones(3, 3)), "at least 0"),
        (
            lambda: Product([Graph(torch.ones(3, 3))]).response(
                GOOD[:, :1] + 7, Bumps(GOOD[:, :1])
            ),
            "numbers of nodes",
        ),
        (lambda: IGLRegressor(operator=globe()).fit(GOOD[:, :2], [0, 1, 2]), "3 for Sphere"),
        (lambda: IGLRegressor("linear", globe(), 2).fit(*world(20)), "3 for Sphere"),
        (lambda: IGLRegressor(operator=globe(), n_dims=2).fit(*world(20)), "n_dims"),
        (lambda: IGLRegressor(operator=globe(), effort="full").fit(*world(20)), "effort"),
        (
            lambda: IGLRegressor(operator=globe(), training=Training(n_restarts=2)).fit(*world(20)),
            "n_restarts",
        ),
        (lambda: IGLRegressor(operator=globe()).fit(*world(20)).report("x.html"), "places"),
    ],
)
def test_messages_say_what_to_do(call, words):
    with pytest.raises(ValueError, match=f"(?s){words}"):
        call()


def test_components_of_a_graph_are_named():
    W = torch.zeros(7, 7)
    W[:3, :3] = W[3:, 3:] = 1
    with pytest.warns(
        UserWarning, match="2 components: 4 nodes with 3, 4, 5, …; 3 nodes with 0, 1, 2"
    ):
        graph = Graph(W)
    assert graph.components.tolist() == [0] * 3 + [1] * 4
    nodes = torch.arange(7, dtype=f64)[:, None]
    K = Product([graph]).response(nodes, Bumps(nodes, 0.1))
    assert float(K[:3, 3:].abs().max()) < 1e-12 * float(K.max())


def test_rows_that_are_the_same_make_a_graph():
    X = torch.cat(
        [torch.zeros(6, 2), torch.rand(20, 2, generator=torch.Generator().manual_seed(0))]
    )
    assert bool(Graph.of_rows(X, 3).psi.isfinite().all())


@pytest.mark.slow
def test_the_page_shows_what_happens():
    page = (Path(__file__).parent.parent / "docs" / "factors.md").read_text()
    names, shown = {}, ""
    for kind, text in re.findall(r"```(\w*)\n(.*?)```", page, re.DOTALL):
        if kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(text, names)
            shown = out.getvalue()
        else:
            assert shown.split() == text.split()

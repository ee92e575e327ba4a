"""One instance of each member of a family; the laws run over these lists."""

import math

import torch

from greenfold import green
from greenfold.solve import GroupLasso, Logistic, Ridge, Solver

f64 = torch.float64


def positions(r: int, d: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(r, d, dtype=f64, generator=torch.Generator().manual_seed(seed)) * 0.8 + 0.1


def widths(r: int, d: int, seed: int = 1) -> torch.Tensor:
    return torch.rand(r, d, dtype=f64, generator=torch.Generator().manual_seed(seed)) * 0.4 + 0.2


def atoms(name: str, r: int = 3, d: int = 3) -> green.Atoms:
    mu, sigma = positions(r, d), widths(r, d)
    if name == "point":
        return green.Point(mu)
    if name == "gabor":
        return green.Gabor(mu, sigma, omega=2 + mu, theta=sigma)
    if name == "gauss_hermite":
        return green.GaussHermite(mu, sigma, order=torch.arange(r * d).reshape(r, d) % 4)
    return green.ATOMS[name](mu, sigma)


def axes(sources: green.Atoms, index: list[int]) -> green.Atoms:
    """The same atoms on some of their axes only."""
    mu, sigma = sources.mu[:, index], sources.sigma[:, index]
    if isinstance(sources, green.Point):
        return green.Point(mu)
    if isinstance(sources, green.Gabor):
        return green.Gabor(mu, sigma, sources.omega[:, index], sources.theta[:, index])
    if isinstance(sources, green.GaussHermite):
        return green.GaussHermite(mu, sigma, sources.order[:, index])
    return type(sources)(mu, sigma)


def matern(n_open: int) -> green.Operator:
    """Matérn 3/2 in three dimensions with n_open axes left: the power stays, so ν grows by half each."""
    kappa, nu = math.sqrt(3) / 0.7, 1.5 + (3 - n_open) / 2
    if n_open == 3:
        return green.Matern(1.5, 0.7)
    scale = math.gamma(nu) / math.gamma(1.5) * kappa ** (3 - 2 * nu)
    return green.Superposition([green.Matern(nu, math.sqrt(2 * nu) / kappa)], [scale])


# name: a function of the axes in use, so that laws can drop some; and the atoms it has integrals for
ALL = sorted(green.ATOMS)
D = torch.tensor([0.7, 1.0, 1.6], dtype=f64)
P = torch.tensor([0.3, 0.8, 0.5], dtype=f64)
V = torch.tensor([1.5, -0.6, 0.0], dtype=f64)
WALLED = ["box", "gaussian", "point"]
OPERATORS = {
    "poisson": (lambda j: green.Poisson(diffusivity=D[j]), ALL),
    "screened_poisson": (lambda j: green.ScreenedPoisson(1.3, diffusivity=D[j]), ALL),
    "screened_half": (lambda j: green.ScreenedPoisson(1.3, power=0.5), ALL),
    "fractional": (lambda j: green.Fractional(0.75), ALL),
    "harmonic": (lambda j: green.HarmonicOscillator(D[j]), ALL),
    "heat": (lambda j: green.Heat(0.3, diffusivity=D[j]), ALL),
    "squared_exponential": (lambda j: green.SquaredExponential(0.8, diffusivity=D[j]), ALL),
    "cauchy": (lambda j: green.Cauchy(0.8, diffusivity=D[j]), ALL),
    "matern": (lambda j: matern(len(j)), ALL),
    "product_screened": (
        lambda j: green.ProductScreened(D[j]),
        ["box", "gaussian", "hat", "mexican_hat", "point"],
    ),
    # known by their Green's function alone: a source of finite width would be an integral over it
    "exponential": (lambda j: green.Exponential(D[j]), ["point"]),
    "anova": (lambda j: green.Anova(P[j], D[j]), ["point"]),
    "anova_smooth": (lambda j: green.Anova(P[j], D[j], order=2), ["point"]),
    "affine": (lambda j: green.Affine(D[j], level=0.6), ["point"]),
    "affine_beside_heat": (
        lambda j: green.Superposition(
            [green.Heat(0.2), green.Affine(D[j], level=0.0)],
            [1.0, 0.4],
            axes=[[i for i, axis in enumerate(j) if axis < 2], None],
        ),
        ["point"],
    ),
    "dirichlet": (lambda j: green.Poisson(domain=green.Interval(0, 1)), ["gaussian", "point"]),
    "neumann": (
        lambda j: green.Poisson(domain=green.Interval(0, 1, "neumann"), diffusivity=D[j]),
        ["gaussian", "point"],
    ),
    "periodic": (
        lambda j: green.ScreenedPoisson(2.0, domain=green.Interval(0, 1, "periodic")),
        ["gaussian", "point"],
    ),
    "mixed_domain": (
        lambda j: green.ScreenedPoisson(
            1.0,
            domain=[(green.Interval(0, 1), None, green.Interval(0, 1, "neumann"))[i] for i in j],
        ),
        ["gaussian", "point"],
    ),
    "spectral": (
        lambda j: green.Spectral(
            [(green.Sine(24), green.Cosine(24), green.Legendre(24))[i] for i in j]
        ),
        ALL,
    ),
    "transport": (lambda j: green.Transport(1.3, wind=V[j], diffusivity=D[j], extent=3.0), ALL),
    "plume": (lambda j: green.Transport(1.3, wind=40 * V[j], extent=3.0), ["gaussian", "point"]),
    "walled": (
        lambda j: green.Transport(
            1.0,
            wind=V[j],
            diffusivity=D[j],
            domain=[(green.Interval(0, 1), None, green.Interval(0, 1, "neumann"))[i] for i in j],
        ),
        WALLED,
    ),
    "wind_around": (
        lambda j: green.Transport(2.0, wind=V[j], domain=green.Interval(0, 1, "periodic")),
        ["gaussian", "point"],
    ),
    "switched_on": (
        lambda j: green.Transport(1.3, wind=V[j], release="switched_on", time=0.3, error=1e-10),
        ["box", "gaussian"],
    ),
    "instant": (lambda j: green.Transport(1.3, wind=V[j], release="instant", time=0.3), WALLED),
    "several_lengths": (
        lambda j: green.Superposition(
            [green.SquaredExponential(0.4), green.SquaredExponential(1.1)], [0.7, -0.2]
        ),
        ALL,
    ),
    "superposition": (
        lambda j: green.Superposition([green.Heat(0.2), green.ScreenedPoisson(2.0)], [0.3, 1.0]),
        ALL,
    ),
}
PAIRS = [(o, a) for o, (_, supported) in OPERATORS.items() for a in supported]

# Factors of products, one of each kind: made, and its places (n, c) from a generator.


def _ring(n: int = 12) -> torch.Tensor:
    """Weights of a ring of nodes with a chord."""
    i = torch.arange(n)
    W = torch.zeros(n, n, dtype=f64)
    W[i, (i + 1) % n] = 1 + 0.5 * torch.cos(i.double())
    W[0, n // 2] = 0.3
    return W + W.T


def on_sphere(n: int, g: torch.Generator) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(n, 3, dtype=f64, generator=g), dim=1)


def _uniform(n: int, g: torch.Generator) -> torch.Tensor:
    return torch.rand(n, 1, dtype=f64, generator=g) * 0.9 + 0.05


_ROWS = torch.randn(14, 2, dtype=f64, generator=torch.Generator().manual_seed(5))
FACTORS = {
    "line": (lambda: green.Line(0.5), _uniform),
    "circle": (lambda: green.Circle(1.0, 0.2), _uniform),
    "dirichlet": (lambda: green.Interval(0, 1), _uniform),
    "neumann": (lambda: green.Bounded(green.Interval(0, 1, "neumann"), 0.3), _uniform),
    "sphere": (lambda: green.Sphere(0.7), on_sphere),
    "graph": (
        lambda: green.Graph(_ring(), diffusivity=3.0),
        lambda n, g: torch.randint(12, (n, 1), generator=g).to(f64),
    ),
    "rows": (
        lambda: green.Graph.of_rows(_ROWS, 5),
        lambda n, g: _ROWS[torch.randperm(len(_ROWS), generator=g)[:n]],
    ),
}
PRODUCTS = [
    *([name] for name in FACTORS),
    ["sphere", "line"],
    ["graph", "circle"],
    ["sphere", "line", "graph"],
    ["rows", "dirichlet", "neumann"],
]


def product(names: list[str], **options: object) -> green.Product:
    return green.Product([FACTORS[name][0]() for name in names], **{"kappa": 1.3, **options})


def places(names: list[str], n: int, seed: int = 0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.cat([FACTORS[name][1](n, g) for name in names], dim=1)


SOLVERS: list[Solver] = [
    Ridge(1e-3),
    Ridge("evidence"),
    Ridge(0.0),
    Logistic(),
    GroupLasso(0.1, tol=1e-12),
]

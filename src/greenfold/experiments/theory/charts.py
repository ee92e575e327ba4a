"""Charts: what their metric costs in rank, and what is free to choose about them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from greenfold.chart.encoders import MLP
from greenfold.design import Design
from greenfold.experiments.claims import Claim
from greenfold.experiments.theory.ranks import rank
from greenfold.green import Gaussian, ScreenedPoisson
from greenfold.green.geometry import (
    LaplaceBeltrami,
    encoder_metric,
    metric,
    separability_defect,
    volume,
)
from greenfold.solve import Ridge

f64 = torch.float64
Map = Callable[[Tensor], Tensor]


def cartesian(z: Tensor) -> Tensor:
    return z


def polar(z: Tensor) -> Tensor:
    r, t = z.T
    return torch.stack([r * t.cos(), r * t.sin()], 1)


def spherical(z: Tensor) -> Tensor:
    r, t, p = z.T
    return torch.stack([r * t.sin() * p.cos(), r * t.sin() * p.sin(), r * t.cos()], 1)


def cylindrical(z: Tensor) -> Tensor:
    r, t, h = z.T
    return torch.stack([r * t.cos(), r * t.sin(), h], 1)


def elliptic(z: Tensor) -> Tensor:
    u, v = z.T
    return torch.stack([u.cosh() * v.cos(), u.sinh() * v.sin()], 1)


CHARTS: dict[str, tuple[Map, list[list[float]]]] = {
    "Cartesian": (cartesian, [[0.0, 1.0], [0.0, 1.0]]),
    "polar": (polar, [[0.5, 2.0], [0.0, 3.0]]),
    "spherical": (spherical, [[0.5, 2.0], [0.3, 2.5], [0.0, 3.0]]),
    "cylindrical": (cylindrical, [[0.5, 2.0], [0.0, 3.0], [-1.0, 1.0]]),
    "elliptic": (elliptic, [[0.1, 1.2], [0.2, 2.8]]),
}


def measure(config: Any) -> dict[str, Any]:
    return {
        **_separability(config.n_grid // 2),
        **_metric_from_encoder(),
        **_compensation(config.n_grid // 2),
        **_resolvent(),
        **_gauge(config),
    }


def root(chart: Map) -> Map:
    """√|g|."""
    return lambda z: volume(metric(chart, z))


def _separability(n: int) -> dict[str, Any]:
    defects = {
        name: separability_defect(root(c), torch.tensor(b), n) for name, (c, b) in CHARTS.items()
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        decoder = MLP(2, 10, (32,))
        for layer in decoder:
            if isinstance(layer, torch.nn.Linear):
                torch.nn.init.normal_(layer.weight, std=1.0)
    square = torch.tensor([[-1.0, 1.0], [-1.0, 1.0]], dtype=f64)
    defects["learned"] = separability_defect(root(decoder), square, n)
    classical = [defects[k] for k in ("Cartesian", "polar", "spherical", "cylindrical")]
    return {
        "defects": defects,
        "classical": max(classical),
        **{key: defects[key] for key in ("elliptic", "learned")},
    }


def _metric_from_encoder() -> dict[str, float]:
    """A roll in R³ with an encoder that bends off the surface: JJᵀ, (JJᵀ)⁻¹ and the metric."""

    def roll(z: Tensor) -> Tensor:
        t, h = z.T
        return torch.stack([t * t.cos(), h, t * t.sin()], 1)

    def encoder(x: Tensor) -> Tensor:
        radius = (x[:, 0] ** 2 + x[:, 2] ** 2).sqrt()
        angle = torch.atan2(x[:, 2], x[:, 0])
        return torch.stack([angle + 0.5 * (radius - angle), x[:, 1]], 1)

    generator = torch.Generator().manual_seed(0)
    xi = 0.5 + 2 * torch.rand(60, 2, dtype=f64, generator=generator)
    x = roll(xi)
    J = torch.func.vmap(torch.func.jacfwd(lambda p: encoder(p[None])[0]))(x)
    D = torch.func.vmap(torch.func.jacfwd(lambda p: roll(p[None])[0]))(xi)
    g = metric(roll, xi)

    def off(h: Tensor) -> float:
        return float((h - g).norm() / g.norm())

    return {
        "jacobian_product": off(J @ J.mT),
        "its_inverse": off(torch.linalg.inv(J @ J.mT)),
        "with_tangents": off(encoder_metric(encoder, x, torch.linalg.qr(D).Q)),
    }


def _compensation(n: int) -> dict[str, Any]:
    """Ranks of f̃√|g| and of L_coup u* on elliptic and polar charts."""

    def source(z: Tensor) -> Tensor:  # rank 3
        a, b = z.T
        return a.sin() * b.cos() + a**2 * torch.exp(-b) + torch.cos(3 * a) * b**3

    def u(z: Tensor) -> Tensor:  # rank 1
        return torch.sin(1.5 * z[:, 0]) * torch.exp(0.5 * z[:, 1])

    def times(f: Map, g: Map) -> Map:
        return lambda z: f(z) * g(z)

    def reciprocal(f: Map) -> Map:
        return lambda z: 1 / f(z)

    rows: dict[str, dict[str, int]] = {}
    for name in ("polar", "elliptic"):
        chart, bounds = CHARTS[name]
        box = torch.tensor(bounds, dtype=f64)
        L = LaplaceBeltrami(chart, box)
        functions: dict[str, Map] = {
            "√|g|": root(chart),
            "f̃": source,
            "f̃√|g|": times(source, root(chart)),
            "L u*": partial(L, u),
            "L u* √|g|": times(partial(L, u), root(chart)),
            "L_coup u*": partial(L.coupling, u),
            "L_sep u*": partial(L.separable, u),
            "√|g|/√|g|": times(reciprocal(root(chart)), root(chart)),
        }
        rows[name] = {key: rank(f, box, n) for key, f in functions.items()}
    both = rows.values()
    return {
        "compensation": rows,
        "multiplicative": max(r["f̃√|g|"] / (r["f̃"] * r["√|g|"]) for r in both),
        "additive": max(r["L_sep u*"] / (r["L u* √|g|"] + r["L_coup u*"]) for r in both),
        "additive_plain": max(r["L_sep u*"] / (r["L u*"] + r["L_coup u*"]) for r in both),
        "barrier": max(r["√|g|/√|g|"] for r in both),
        "coupling_rank": max(r["L_coup u*"] for r in both),
    }


def _resolvent(n: int = 24) -> dict[str, float]:
    """G̃ = (L_sep + L_coup)⁻¹ for −∂_r² − a(r)∂_t² by differences, L_sep with a averaged."""
    t = np.linspace(0, 1, n + 2)[1:-1]
    second = (n + 1) ** 2 * (2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1))
    a = 1 / (0.5 + t) ** 2
    L = np.kron(second, np.eye(n)) + np.kron(np.diag(a), second)
    sep = np.kron(second, np.eye(n)) + a.mean() * np.kron(np.eye(n), second)
    coup, G = L - sep, np.linalg.inv(sep)
    true, one = np.linalg.inv(L), np.eye(n * n)

    def off(M: np.ndarray) -> float:
        return float(np.linalg.norm(M - true) / np.linalg.norm(true))

    return {
        "resolvent_paper": off(G @ np.linalg.inv(one + G @ coup)),
        "resolvent": off(G @ np.linalg.inv(one + coup @ G)),
    }


# --- gauge freedom


def _bend(x: Tensor, strength: float) -> Tensor:
    """A diffeomorphism of the plane that mixes its axes, the identity at strength 0."""
    a = x[:, 0] + strength * torch.sin(1.5 * x[:, 1])
    return torch.stack([a, x[:, 1] + strength * torch.sin(1.5 * a)], 1)


def _gauge(config: Any) -> dict[str, Any]:
    """u with a known source of few atoms; charts bent more and more, the source refitted in each."""
    generator = torch.Generator().manual_seed(5)

    def uniform(n: int) -> Tensor:
        return 3 * torch.rand(n, 2, dtype=f64, generator=generator) - 1.5

    operator = ScreenedPoisson(1.0, n_terms=16)
    hidden = Gaussian(uniform(6), 0.4)
    x, w = uniform(2 * config.n_rows), torch.randn(6, dtype=f64, generator=generator)
    u = (operator.response(x, hidden) @ w)[:, None]
    n = config.n_rows
    fits: dict[str, list[float]] = {}
    for strength in config.bends:
        xi = _bend(x, strength)
        low, high = xi.amin(0), xi.amax(0)
        errors = []
        for side in config.sides:
            line = torch.linspace(0, 1, side, dtype=f64)
            grid = low + (high - low) * torch.cartesian_prod(line, line)
            atoms = Gaussian(grid, 1.5 * (high - low) / side)
            Phi = operator.response(xi, atoms)
            v = Ridge(1e-10).solve(Design.stack(Phi[:n]), u[:n]).w
            errors.append(float((Phi[n:] @ v - u[n:]).norm() / u[n:].norm()))
        fits[f"{strength:g}"] = errors

    def atoms_for(errors: list[float], wanted: float = 0.01) -> float:
        enough = [
            side**2 for side, error in zip(config.sides, errors, strict=True) if error <= wanted
        ]
        return float(enough[0] if enough else config.sides[-1] ** 2)

    return {
        "gauge": fits,
        "gauge_sides": list(config.sides),
        "gauge_error": max(errors[-1] for errors in fits.values()),
        "gauge_cost": max(map(atoms_for, fits.values())) / atoms_for(fits["0"]),
        "gauge_literal": _literal(),
    }


def _literal(n: int = 2000) -> float:
    """∫G(ξ, ζ)f̂(ζ)dζ with the source carried over to a stretched line and G left as it is."""
    x = np.linspace(-8, 8, n)
    h = x[1] - x[0]
    f = np.exp(-2 * (x - 0.3) ** 2)
    y = x + 0.6 * np.sin(1.5 * x)  # the new coordinate of every point, increasing
    before = np.exp(-np.abs(x[:, None] - x)) @ f * h / 2
    after = np.exp(-np.abs(y[:, None] - y)) @ f * h / 2  # f dx is carried along
    return float(np.linalg.norm(after - before) / np.linalg.norm(before))


def claims(parts: list[dict[str, Any]]) -> list[Claim]:
    def of(key: str) -> list[float]:
        return [float(part[key]) for part in parts]

    rows = parts[0]["compensation"]["elliptic"]
    return [
        Claim(
            "App. Stäckel, table",
            "distance of √det g from a product: Cartesian, polar, spherical, cylindrical (largest)",
            "0",
            of("classical"),
            max(of("classical")) <= 1e-10,
            "1, r, r² sin θ, r.",
        ),
        Claim(
            "App. Stäckel",
            "the same for elliptic coordinates, a Stäckel system",
            "0: all classical systems share this",
            of("elliptic"),
            max(of("elliptic")) <= 1e-10,
            "√det g = sinh²u + sin²v is a sum, of rank 2.",
        ),
        Claim(
            "App. Stäckel, table",
            "the same for a random network as decoder",
            "> 0 generically",
            of("learned"),
            min(of("learned")) > 0.01,
            "Nothing makes it a product.",
            small=False,
        ),
        Claim(
            "App. Stäckel",
            "g_ij = Σ_k ∂_kΨ_i ∂_kΨ_j against the metric of a rolled sheet",
            "equal",
            of("jacobian_product"),
            max(of("jacobian_product")) <= 1e-6,
            f"JJᵀ is an inverse metric, and only if Ψ is constant along normals (here still off by "
            f"{max(of('its_inverse')):.0%} after inversion); with tangent spaces T, D = T(JT)⁻¹ "
            f"gives it to {max(of('with_tangents')):.0e}.",
        ),
        Claim(
            "App. separability barrier",
            "rank of f̃√det g in elliptic coordinates for f̃ = 1/√det g",
            "> 1 for any fixed f̃",
            of("barrier"),
            min(of("barrier")) > 1,
            "A source can undo a volume element that mixes coordinates, and one of rank 2 only doubles "
            "the terms; what holds is the multiplicative bound below.",
        ),
        Claim(
            "App. double compensation",
            "rank(f̃√det g) over rank(f̃)·rank(√det g), largest of polar and elliptic",
            "≤ 1",
            of("multiplicative"),
            max(of("multiplicative")) <= 1,
            f"Elliptic: {rows['f̃']} × {rows['√|g|']} ≥ {rows['f̃√|g|']}.",
        ),
        Claim(
            "App. double compensation",
            "rank(L_sep u*) over rank(f√det g) + rank(L_coup u*), largest of polar and elliptic",
            "≤ 1",
            of("additive"),
            max(of("additive")) <= 1,
            f"Elliptic: {rows['L_sep u*']} ≤ {rows['L u* √|g|']} + {rows['L_coup u*']}; the correction "
            "alone has a larger rank than the compensated source, so the bound is loose.",
        ),
        Claim(
            "App. double compensation",
            "G̃ = G_sep(I + G_sep L_coup)⁻¹ against (L_sep + L_coup)⁻¹",
            "equal",
            of("resolvent_paper"),
            max(of("resolvent")) <= 1e-10 and max(of("resolvent_paper")) > 1e-3,
            f"The factors do not commute; with L_coup G_sep it is exact to {max(of('resolvent')):.0e}.",
            change="G_sep(I + L_coup G_sep)⁻¹",
        ),
        Claim(
            "App. gauge",
            "change of ∫G f̂ when the source is carried to a stretched line and G is kept",
            "0: invariant",
            of("gauge_literal"),
            max(of("gauge_literal")) <= 1e-3,
            "G must be carried over as well; with G fixed it is another function.",
        ),
        Claim(
            "App. gauge",
            "held-out error of the same u, its source refitted in the most bent chart, most atoms",
            "any diffeomorphic chart",
            of("gauge_error"),
            max(of("gauge_error")) <= 0.01,
            f"The source absorbs the chart at a price: {max(of('gauge_cost')):.0f} times the atoms for "
            "an error of 1%.",
            change="more atoms",
        ),
    ]


def draw(axes: list[Axes], part: dict[str, Any]) -> None:
    first, second = axes
    defects = {k: max(v, 1e-16) for k, v in part["defects"].items()}
    colors = ["C3" if v > 1e-8 else "C0" for v in defects.values()]
    first.bar(list(defects), list(defects.values()), color=colors)
    first.set(yscale="log", title="distance of √|g| from a product", ylim=(1e-16, 1))
    first.tick_params(axis="x", labelsize=7, rotation=30)
    atoms = [side**2 for side in part["gauge_sides"]]
    for strength, errors in part["gauge"].items():
        second.loglog(atoms, errors, "o-", ms=3, label=f"bent by {strength}")
    second.set(title="one u, refitted in bent charts", xlabel="atoms", ylabel="held-out error")
    second.set_xticks(atoms, [str(count) for count in atoms])
    second.minorticks_off()
    second.legend(fontsize=6.5)

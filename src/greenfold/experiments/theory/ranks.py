"""How many separable terms functions need, and in which coordinates."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from greenfold.experiments.claims import Claim
from greenfold.green import GaussHermite
from greenfold.green.geometry import (
    minus_laplacian,
    mixed_derivatives,
    separability_defect,
    unfolding_ranks,
)

f64 = torch.float64
Field = Callable[[Tensor], Tensor]

BOX = torch.tensor([[-1.5, 1.5], [-1.5, 1.5]], dtype=f64)
DISK = torch.tensor([[0.01, 1.5], [0.0, 2 * math.pi]], dtype=f64)

RADIAL: dict[str, Callable[[Tensor], Tensor]] = {
    "e^{−r²}": lambda r: torch.exp(-(r**2)),
    "e^{−r}": lambda r: torch.exp(-r),
    "cos 4r": lambda r: torch.cos(4 * r),
    "1/(1+4r²)": lambda r: 1 / (1 + 4 * r**2),
}
TARGETS: dict[str, Field] = {
    "additive": lambda x: torch.sin(2 * x[:, 0]) + x[:, 1] ** 3 - 0.5,
    "product": lambda x: x[:, 0] * x[:, 1],
    "XOR": lambda x: torch.sign(x[:, 0]) * torch.sign(x[:, 1]),
    "radial": lambda x: torch.exp(-x.norm(dim=1)),
}


def measure(config: Any) -> dict[str, Any]:
    return {
        **_coordinates(config.n_grid),
        **_targets(config.n_grid, config.sweeps),
        **_differentiated(),
        **_mixed(),
    }


def rank(f: Field, bounds: Tensor, n_grid: int, tol: float = 1e-6) -> int:
    return max(unfolding_ranks(f, bounds, n_grid, tol))


def _coordinates(n: int) -> dict[str, Any]:
    """One target in two coordinate systems."""

    def of_plane(f: Callable[[Tensor], Tensor]) -> Field:
        return lambda x: f(x.norm(dim=1))

    def of_polar(f: Callable[[Tensor], Tensor]) -> Field:
        return lambda z: f(z[:, 0])

    cartesian = {name: rank(of_plane(f), BOX, n) for name, f in RADIAL.items()}
    polar = {name: rank(of_polar(f), DISK, n) for name, f in RADIAL.items()}

    def ridge(angle: float) -> int:
        """sin(3s) e^{t/2} with s, t turned by an angle."""
        c, s = math.cos(angle), math.sin(angle)

        def f(x: Tensor) -> Tensor:
            a, b = c * x[:, 0] + s * x[:, 1], -s * x[:, 0] + c * x[:, 1]
            return torch.sin(3 * a) * torch.exp(-4 * b**2)

        return rank(f, BOX, n)

    angles = np.linspace(0, 45, 7)
    return {
        "cartesian": cartesian,
        "polar": polar,
        "gaussian_cartesian": cartesian["e^{−r²}"],
        "other_cartesian": min(v for k, v in cartesian.items() if k != "e^{−r²}"),
        "polar_rank": max(polar.values()),
        "angles": angles.tolist(),
        "turned": [ridge(math.radians(a)) for a in angles],
    }


# --- targets of the remark on additive models


def _targets(n: int, sweeps: int) -> dict[str, Any]:
    ranks = {name: rank(f, BOX, n) for name, f in TARGETS.items()}
    tails = {}
    for name, f in TARGETS.items():
        F = _values(f, n)
        s = np.linalg.svd(F, compute_uv=False)
        tails[name] = (np.sqrt(np.cumsum(s[::-1] ** 2)[::-1]) / np.linalg.norm(s))[:16].tolist()
    d = 4

    def additive(x: Tensor) -> Tensor:
        return torch.sin(2 * x).sum(1)

    cube = torch.tensor([[-1.5, 1.5]] * d, dtype=f64)
    fits = {m: _separable_fit(additive, d, m, sweeps) for m in range(1, d + 1)}
    return {
        "ranks": ranks,
        "tails": tails,
        "additive_defect": separability_defect(TARGETS["additive"], BOX, n),
        "additive_unfolding": max(unfolding_ranks(additive, cube, 8)),
        "additive_fits": fits,
        "additive_exact": min((m for m, (error, _) in fits.items() if error < 1e-8), default=d + 1),
    }


def _values(f: Field, n: int) -> np.ndarray:
    t = torch.linspace(-1.5, 1.5, n, dtype=f64)
    return f(torch.cartesian_prod(t, t)).reshape(n, n).numpy()


def _separable_fit(f: Field, d: int, m: int, sweeps: int, n: int = 8) -> tuple[float, float]:
    """Error of m separable terms by alternating least squares, and how much larger its terms are
    than the function: they cancel without bound where the best fit does not exist."""
    t = torch.linspace(-1.5, 1.5, n, dtype=f64)
    F = f(torch.cartesian_prod(*[t] * d)).reshape((n,) * d).numpy()
    generator = np.random.default_rng(0)
    best = (math.inf, 0.0)
    for _ in range(3):
        factors = [generator.standard_normal((n, m)) for _ in range(d)]
        for _ in range(sweeps):
            for j in range(d):
                others = [factors[i] for i in range(d) if i != j]
                Z = others[0]
                for V in others[1:]:
                    Z = (Z[:, None] * V).reshape(-1, m)  # rows in C order
                M = np.moveaxis(F, j, 0).reshape(n, -1)
                factors[j] = np.linalg.lstsq(Z, M.T, rcond=1e-14)[0].T
        Z = factors[1]
        for V in factors[2:]:
            Z = (Z[:, None] * V).reshape(-1, m)
        error = float(np.linalg.norm(F.reshape(n, -1) - factors[0] @ Z.T) / np.linalg.norm(F))
        size = float(np.linalg.norm(factors[0], axis=0).max() * np.linalg.norm(Z, axis=0).max())
        if error < best[0]:
            best = (error, size / float(np.linalg.norm(F)))
    return best


# --- derivatives


def _differentiated() -> dict[str, Any]:
    """Numerical rank of a source of rank R, and of −Δ of it, against R·d."""

    def combined(atoms: GaussHermite, w: Tensor) -> Field:
        return lambda z: atoms(z) @ w

    before, after, bound = [], [], []
    for d, R in ((2, 2), (2, 4), (3, 2), (3, 3)):
        generator = torch.Generator().manual_seed(d * R)
        atoms = GaussHermite(2 * torch.rand(R, d, dtype=f64, generator=generator) - 1, 0.6, 0)
        w = torch.ones(R, dtype=f64)
        more, v = minus_laplacian(atoms, w)
        box = torch.tensor([[-2.5, 2.5]] * d, dtype=f64)
        before.append(rank(combined(atoms, w), box, 20, 1e-10))
        after.append(rank(combined(more, v), box, 20, 1e-10))
        bound.append(R * d)
    return {
        "before": before,
        "after": after,
        "over_bound": max(a / b for a, b in zip(after, bound, strict=True)),
        "growth": max(a / b for a, b in zip(after, before, strict=True)),
    }


def _mixed() -> dict[str, Any]:
    """sup |∂₁∂₂u| of radial functions: bounded for e^{−r²}, growing as a kink at 0 is sharpened."""
    unit = torch.tensor([[-1.0, 1.0], [-1.0, 1.0]], dtype=f64)

    def corner(f: Field) -> float:
        return float(mixed_derivatives(f, unit, 1, 2048)[1, 1])

    return {
        "mixed_gaussian": corner(lambda x: torch.exp(-(x**2).sum(1))),
        "mixed_product": corner(lambda x: torch.sin(x).prod(1)),
        "mixed_kink": corner(lambda x: torch.exp(-((x**2).sum(1) + 1e-4).sqrt())),
    }


def claims(parts: list[dict[str, Any]]) -> list[Claim]:
    def of(key: str) -> list[float]:
        return [float(part[key]) for part in parts]

    ranks = parts[0]["ranks"]
    fits = parts[0]["additive_fits"]
    needless = [float(max(part["ranks"]["product"], part["ranks"]["XOR"])) for part in parts]
    radial = [float(part["ranks"]["radial"]) for part in parts]
    turned = [float(part["turned"][-1]) for part in parts]
    return [
        Claim(
            "App. low-rank, coordinates",
            "terms of e^{−r²} and other radial functions in polar coordinates, at 1e-6",
            "1",
            of("polar_rank"),
            max(of("polar_rank")) == 1,
            "A function of one coordinate.",
        ),
        Claim(
            "App. low-rank, coordinates",
            "terms of e^{−r²} in Cartesian coordinates",
            "many",
            of("gaussian_cartesian"),
            min(of("gaussian_cartesian")) > 2,
            "e^{−x²}e^{−y²}: the one radial function, up to scale, that is a product.",
        ),
        Claim(
            "App. low-rank, coordinates",
            "fewest terms of e^{−r}, cos 4r and 1/(1+4r²) in Cartesian coordinates, at 1e-6",
            "many",
            of("other_cartesian"),
            min(of("other_cartesian")) > 2,
            "What is said of e^{−r²} is true of them.",
            change="another radial function",
            small=False,
        ),
        Claim(
            "App. low-rank, coordinate search",
            "terms of a product after its axes are turned by 45° (1 before)",
            "rank depends on coordinates",
            turned,
            min(turned) > 1,
            "Which is what an encoder can undo.",
            small=False,
        ),
        Claim(
            "Related work, GAMs",
            "terms of sin 2x + y³ − ½",
            "1: additive models are the case K = 1",
            [float(part["ranks"]["additive"]) for part in parts],
            max(part["ranks"]["additive"] for part in parts) == 1,
            f"A term is a product; one misses {max(of('additive_defect')):.0%}. A sum of univariate "
            "functions takes two in the plane.",
        ),
        Claim(
            "Related work, GAMs",
            "terms that write Σ_j sin 2x_j in four dimensions exactly",
            "1",
            of("additive_exact"),
            max(of("additive_exact")) == 1,
            f"d of them. Two come within {fits[2][0]:.0e} and three within {fits[3][0]:.0e}, by terms "
            "that cancel and grow without bound (border rank 2).",
        ),
        Claim(
            "Related work, GAMs",
            "terms of the product xy and of XOR, sign(x) sign(y)",
            "> 1",
            needless,
            min(needless) > 1,
            "Both are products, hence rank 1.",
        ),
        Claim(
            "Related work, GAMs",
            f"terms of the radial e^{{−r}} at 1e-6 (additive: {ranks['additive']})",
            "> 1",
            radial,
            min(radial) > 1,
            "A kink at the origin that no product has.",
            small=False,
        ),
        Claim(
            "App. low-rank, mixed derivatives",
            "sup of ∂₁∂₂u for the radial e^{−r²} over that of sin x sin y",
            "radial functions do not have mixed smoothness",
            [a / b for a, b in zip(of("mixed_gaussian"), of("mixed_product"), strict=True)],
            min(of("mixed_gaussian")) > 3 * max(of("mixed_product")),
            "A smooth radial function has all of it; one with a kink at 0 does not "
            f"({max(of('mixed_kink')):.0f} for e^{{−r}} rounded at 0.01, and growing as it sharpens).",
        ),
        Claim(
            "App. low-rank, differentiation",
            "rank of L f̂ over R·d, largest of four sources",
            "≤ 1",
            of("over_bound"),
            max(of("over_bound")) <= 1,
            "One term per axis and source.",
        ),
        Claim(
            "App. low-rank, differentiation",
            "rank of L f̂ over rank of f̂",
            "differentiation preserves rank",
            of("growth"),
            max(of("growth")) <= 1,
            "At most d times as many; unfoldings, a lower bound, already show twice as many.",
        ),
    ]


def draw(axes: list[Axes], part: dict[str, Any]) -> None:
    first, second = axes
    names = list(part["cartesian"])
    place = np.arange(len(names))
    first.bar(place - 0.2, list(part["cartesian"].values()), 0.4, label="Cartesian")
    first.bar(place + 0.2, list(part["polar"].values()), 0.4, label="polar")
    top = 1.3 * max(part["cartesian"].values())
    first.set(title="rank of radial targets at 1e-6", ylabel="rank", ylim=(0, top))
    first.set_xticks(place, names, fontsize=7)
    first.legend(fontsize=6.5)
    for (name, tail), style in zip(part["tails"].items(), ("o-", "o-", "s--", "o-"), strict=True):
        second.semilogy(np.arange(len(tail)), np.maximum(tail, 1e-16), style, ms=3, label=name)
    second.set(title="error of R separable terms", xlabel="R", ylim=(1e-9, 2))
    second.legend(fontsize=6.5)

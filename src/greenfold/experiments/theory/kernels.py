"""Green's functions: products of one-dimensional ones, which they are not, and sums of products."""

import math
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from greenfold.experiments.claims import Claim
from greenfold.green import (
    Gaussian,
    Interval,
    Modes,
    Point,
    Poisson,
    ProductScreened,
    ScreenedPoisson,
    Sine,
    Spectral,
)

f64 = torch.float64


def relative(u: Tensor, exact: Tensor) -> float:
    return float((u - exact).norm() / exact.norm())


def best_multiple(u: Tensor, exact: Tensor) -> float:
    """Relative error with the best factor granted."""
    return relative(u * (u @ exact) / (u @ u), exact)


def measure(config: Any) -> dict[str, Any]:
    n = config.n_points
    generator = torch.Generator().manual_seed(0)
    found: dict[str, Any] = {}
    for d in (2, 3):
        xi = torch.randn(n, d, dtype=f64, generator=generator)
        r = xi.norm(dim=1)
        exact = torch.special.modified_bessel_k0(r) if d == 2 else torch.exp(-r) / r
        kappas = np.linspace(0.3, 4, 38)
        point = Point(torch.zeros(1, d, dtype=f64))
        wrong = [best_multiple(ProductScreened(k).response(xi, point)[:, 0], exact) for k in kappas]
        right = ScreenedPoisson(1.0, n_terms=24).response(xi, point)[:, 0]
        found[f"product_{d}d"] = min(wrong)
        found[f"sum_{d}d"] = best_multiple(right, exact)
    # the Dirichlet square: a point source, and a source with a known answer
    basis = Sine(120)
    xi = torch.rand(n, 2, dtype=f64, generator=generator)
    B = [basis(xi[:, j]) * basis(torch.tensor([0.4], dtype=f64))[0] for j in range(2)]
    lam = basis.eigenvalues
    true = torch.einsum("na,ab,nb->n", B[0], 1 / (lam[:, None] + lam), B[1])
    found["product_square"] = best_multiple((B[0] @ (1 / lam)) * (B[1] @ (1 / lam)), true)
    s = torch.linalg.svdvals(1 / (lam[:, None] + lam))
    found["spectral_rank"] = int((s > 1e-6 * s[0]).sum())
    q = torch.tensor([1.0, 0, 0, 1], dtype=f64)
    p = q * Sine(4).eigenvalues
    source = Modes([torch.stack([p, q]), torch.stack([q, p])])  # L u for the u below
    phi, inverse = [Sine(4)(xi[:, j]) for j in range(2)], 1 / lam[:4]
    exact, wrong_u = (phi[0] @ q) * (phi[1] @ q), torch.zeros(n, dtype=f64)
    for a, b in zip(*source.coefficients, strict=True):
        wrong_u = wrong_u + (phi[0] @ (a * inverse)) * (phi[1] @ (b * inverse))
    found["compensated_product"] = best_multiple(wrong_u, exact)
    found["compensated"] = relative(
        Spectral([Sine(4)] * 2, n_terms=16).response(xi, source).sum(1), exact
    )
    # space against spectrum: image sums and eigenfunctions
    wide = Gaussian(torch.tensor([[0.5, 0.45]], dtype=f64), 0.06)
    images = Poisson(domain=Interval(0.0, 1.0, "dirichlet"), n_terms=24).response(xi, wide)
    modes = Spectral([Sine(80)] * 2, n_terms=24).response(xi, wide)
    found["two_forms"] = relative(modes[:, 0], images[:, 0])
    # the picture: a point source and its impostor along the diagonal and an axis
    t = torch.linspace(0.05, 3, 60, dtype=f64)
    found["profile"] = {
        "r": t.tolist(),
        "true": torch.special.modified_bessel_k0(t).tolist(),
        "axis": torch.exp(-t).tolist(),
        "diagonal": torch.exp(-math.sqrt(2) * t).tolist(),
    }
    return found


def claims(parts: list[dict[str, Any]]) -> list[Claim]:
    def of(key: str) -> list[float]:
        return [float(part[key]) for part in parts]

    products = [part["product_2d"] for part in parts]
    return [
        Claim(
            "App. double compensation",
            "error of Π_j G_j (best decay and factor) for a point source of 1 − Δ, d = 2",
            "0: G_sep = Π_j G_j by construction",
            products,
            max(products) <= 0.01,
            f"It inverts Π_j L_j, not Σ_j L_j; d = 3: {max(of('product_3d')):.0%}, Dirichlet square: "
            f"{max(of('product_square')):.0%}. A sum of 24 products is within {max(of('sum_2d')):.0e}.",
        ),
        Claim(
            "App. double compensation",
            "f̂ = L_sep u*, then G_sep f̂ against u* on the square, K = 16",
            "u* exactly",
            of("compensated"),
            max(of("compensated")) <= 1e-9,
            f"One product of 1/λ gives {max(of('compensated_product')):.0%} error from that source.",
            change="G_sep is a sum of K products",
        ),
        Claim(
            "App. spectral, barrier",
            "separable terms in 1/(λ_m + λ_n) at 1e-6 on the square",
            "> 1: additive eigenvalues block factorization",
            of("spectral_rank"),
            min(of("spectral_rank")) > 1,
            "And not many more are needed than the exponential sum has.",
            small=False,
        ),
        Claim(
            "App. spectral",
            "difference of the spatial and the spectral form on the square, K = 24",
            "equivalent",
            of("two_forms"),
            max(of("two_forms")) <= 1e-6,
            "Both use the same heat times.",
        ),
    ]


def draw(axes: list[Axes], part: dict[str, Any]) -> None:
    (panel,) = axes
    profile = {key: np.array(value) for key, value in part["profile"].items()}
    scale = profile["true"][20] / profile["axis"][20]
    panel.semilogy(profile["r"], profile["true"], "k", label="Green's function of 1 − Δ")
    panel.semilogy(profile["r"], scale * profile["axis"], "C3", label="Π G_j along an axis")
    panel.semilogy(profile["r"], scale * profile["diagonal"], "C3--", label="Π G_j on the diagonal")
    panel.set(title="a product of 1D Green's functions", xlabel="r", ylabel="G, d = 2")
    panel.legend(fontsize=6.5)

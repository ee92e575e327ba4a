"""Spectra, eigenfunctions, null spaces and decay of the operators in the paper's tables."""

import math
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from scipy.linalg import eigh_tridiagonal
from torch import Tensor
from torch.autograd.functional import hessian

from greenfold.design import Design
from greenfold.experiments.claims import Claim
from greenfold.experiments.theory.kernels import relative
from greenfold.green import (
    Fractional,
    Gaussian,
    HarmonicOscillator,
    Hermite,
    Poisson,
    Polynomial,
    ScreenedPoisson,
    Sine,
)
from greenfold.solve import Ridge

f64 = torch.float64


def measure(config: Any) -> dict[str, Any]:
    return {**_spectra(), **_null_spaces(), **_decay()}


# --- spectra and eigenfunctions of −d² + x²


def _oscillator(n: int = 4001, extent: float = 20.0) -> tuple[np.ndarray, float, np.ndarray]:
    """Grid, spacing and lowest eigenvalues of −d² + x² by differences, without the library."""
    x = np.linspace(-extent, extent, n)
    h = x[1] - x[0]
    lowest = eigh_tridiagonal(
        2 / h**2 + x**2, np.full(n - 1, -1 / h**2), select="i", select_range=(0, 3)
    )[0]
    return x, h, lowest


def _residual(u: np.ndarray, x: np.ndarray, h: float) -> float:
    """min over λ of ‖Lu − λu‖/‖Lu‖: zero for an eigenfunction, λ the Rayleigh quotient."""
    Lu = -(u[2:] - 2 * u[1:-1] + u[:-2]) / h**2 + (x**2 * u)[1:-1]
    u = u[1:-1]
    return float(np.linalg.norm(Lu - (Lu @ u) / (u @ u) * u) / np.linalg.norm(Lu))


def _spectra() -> dict[str, Any]:
    x, h, lowest = _oscillator()
    widths = np.linspace(0.05, 3, 60)
    gabor = {}
    for omega in (1.0, 2.0, 4.0):
        gabor[str(omega)] = min(
            _residual(np.exp(-a * x**2) * np.cos(omega * x + phase), x, h)
            for a in widths
            for phase in (0.0, -math.pi / 2)
        )
    hermite = Hermite(8)(torch.from_numpy(x)).numpy()
    return {
        "oscillator_bottom": float(lowest[0]),  # per dimension: eigenvalues add
        "oscillator_spacing": float(lowest[1] - lowest[0]),
        "gabor": gabor,
        "gabor_best": min(gabor.values()),
        "hermite": max(_residual(hermite[:, m], x, h) for m in range(8)),
        # −d² + 4 on a line of length 1000, in units of 4
        "helmholtz_bottom": 1 + float(Sine(1, 0.0, 1e3).eigenvalues.min()) / 4,
    }


# --- null spaces


def _null_spaces() -> dict[str, Any]:
    """−Δ and κ² − Δ applied to what the paper calls their null spaces."""

    def laplacian(u: Any, x: Tensor) -> Tensor:
        return torch.stack([hessian(u, p).diagonal().sum() for p in x])

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 2, dtype=f64, generator=generator)
    harmonic = [
        lambda p: p[0],
        lambda p: p[0] * p[1],
        lambda p: p[0] ** 2 - p[1] ** 2,
        lambda p: p[0] ** 3 - 3 * p[0] * p[1] ** 2,
    ]
    left = max(float(laplacian(u, x).abs().max()) for u in harmonic)
    kappa2 = 1.0
    waves = []
    for k in np.linspace(0, 3, 7):

        def wave(p: Tensor, k: float = float(k)) -> Tensor:
            return torch.cos(k * p[0])

        u = torch.stack([wave(p) for p in x])
        waves.append(float((kappa2 * u - laplacian(wave, x)).norm() / u.norm() / kappa2))
    k = 2.0
    u = torch.cos(k * x[:, 0])
    oscillatory = (-laplacian(lambda p: torch.cos(k * p[0]), x) - k**2 * u).norm() / (
        k**2 * u.norm()
    )
    counts = [
        Polynomial(p)(torch.zeros(1, d, dtype=f64)).shape[1] - math.comb(d + p, p)
        for d in (1, 2, 3, 5, 10)
        for p in (0, 1, 2)
    ]
    return {
        "harmonic": left,
        "plane_waves": min(waves),
        "plane_waves_oscillatory": float(oscillatory),
        "polynomials": float(max(map(abs, counts))),
        "trend": {n * n: _trend(n) for n in (2, 3, 4, 6, 8, 10)},
        "helmholtz_null": float(ScreenedPoisson(1.0).null_space() is not None),
        "oscillator_null": float(HarmonicOscillator(1.0).null_space() is not None),
    }


def _trend(n_grid: int) -> float:
    """How well u = ξ₁ on [−1, 1]² is fitted by Poisson responses of n² sources, without its column."""
    line = torch.linspace(-1, 1, n_grid, dtype=f64)
    atoms = Gaussian(torch.cartesian_prod(line, line), 2 / n_grid)
    generator = torch.Generator().manual_seed(1)
    xi = 2 * torch.rand(600, 2, dtype=f64, generator=generator) - 1
    Phi = Poisson(n_terms=24).response(xi, atoms)
    w = Ridge(1e-12).solve(Design.stack(Phi[:300]), xi[:300, :1]).w
    return relative(Phi[300:] @ w, xi[300:, :1])


# --- decay


def _decay() -> dict[str, float]:
    """How fast responses fall with distance: exponents of the table of operators."""
    r = torch.linspace(2, 5, 13, dtype=f64)

    def response(operator: Any, d: int, r: Tensor) -> Tensor:
        xi = torch.zeros(len(r), d, dtype=f64)
        xi[:, 0] = r
        narrow = Gaussian(torch.zeros(1, d, dtype=f64), 0.3)
        u: Tensor = operator.response(xi, narrow)[:, 0]
        return u

    def slope(x: Tensor, u: Tensor) -> float:
        return float(np.polyfit(x.numpy(), u.log().numpy(), 1)[0])

    far = {"n_terms": 32, "extent": 200.0}
    zero = torch.zeros(1, dtype=f64)
    # in one dimension the Laplacian's potential falls without end: how fast does it leave its peak?
    drop = response(Poisson(**far), 1, zero) - response(Poisson(**far), 1, r)

    def divergence(s: float) -> float:
        """Exponent, in the horizon T, of the potential at its center, d = 2."""
        near, further = (
            float(response(Fractional(s, n_terms=32, extent=e), 2, zero)) for e in (20.0, 200.0)
        )
        return math.log(further / near) / math.log(100)

    return {
        "decay_poisson": slope(r.log(), response(Poisson(**far), 3, r)),
        "growth_poisson_1d": slope(r.log(), drop),
        "decay_fractional": slope(r.log(), response(Fractional(0.5, **far), 3, r)),
        "decay_screened": slope(r, r * response(ScreenedPoisson(1.0, n_terms=32), 3, r)),
        "decay_oscillator": slope(r**2, response(HarmonicOscillator(1.0, n_terms=32), 3, r)),
        "divergence_below": divergence(0.5),
        "divergence_above": divergence(1.5),
    }


def claims(parts: list[dict[str, Any]]) -> list[Claim]:
    def of(key: str) -> list[float]:
        return [float(part[key]) for part in parts]

    trend = [min(part["trend"].values()) for part in parts]
    return [
        Claim(
            "App. expressivity, spectral",
            "bottom of the spectrum of −Δ + x², over d",
            "λ ≥ d/2",
            of("oscillator_bottom"),
            all(abs(v - 1) < 1e-3 for v in of("oscillator_bottom")),
            "Each axis has 1, 3, 5, …; d/2 belongs to half that operator.",
            change="λ ≥ d",
            small=False,
        ),
        Claim(
            "App. expressivity",
            "min_λ ‖Lφ − λφ‖/‖Lφ‖ of Gabor atoms under −Δ + x², best width, phase and ω in {1, 2, 4}",
            "0: they are eigenfunctions",
            of("gabor_best"),
            max(of("gabor_best")) <= 0.01,
            f"Eigenfunctions are Hermite functions ({max(of('hermite')):.0e} by differences); Gabor "
            "atoms are coherent states.",
        ),
        Claim(
            "App. expressivity, spectral",
            "bottom of the spectrum of −Δ + μ², over μ²",
            "λ ≥ μ²",
            of("helmholtz_bottom"),
            all(1 <= v < 1.001 for v in of("helmholtz_bottom")),
            "−Δ ≥ 0.",
        ),
        Claim(
            "Sec. 3.2, complete solution",
            "least ‖(−Δ + μ²)u‖/μ²‖u‖ over plane waves u",
            "0: plane waves are its null space",
            of("plane_waves"),
            max(of("plane_waves")) <= 0.01,
            "L e^{ikx} = (k² + μ²)e^{ikx}, never zero; plane waves belong to −Δ − k². The paper's own "
            "table says the null space is trivial.",
        ),
        Claim(
            "App. expressivity, null spaces",
            "largest Δu of harmonic polynomials up to degree 3",
            "0",
            of("harmonic"),
            max(of("harmonic")) <= 1e-10,
            "By definition.",
        ),
        Claim(
            "Sec. 3.2, complete solution",
            "null-space columns the operators with a spectral gap ask for",
            "none",
            [a + b for a, b in zip(of("helmholtz_null"), of("oscillator_null"), strict=True)],
            max(of("helmholtz_null") + of("oscillator_null")) == 0,
            "λmin > 0.",
        ),
        Claim(
            "Sec. 3.2, complete solution",
            "u = ξ₁ by Poisson responses alone: error with 100 sources, where one column is exact",
            "needs high rank",
            trend,
            min(trend) >= 1e-3,
            "A harmonic function has no source inside the region.",
        ),
        Claim(
            "Sec. 3.2, complete solution",
            "polynomial columns minus C(d+p, p), largest over d ≤ 10, p ≤ 2",
            "0",
            of("polynomials"),
            max(of("polynomials")) == 0,
            "Counted.",
        ),
        Claim(
            "App. expressivity, table",
            "power of r in the Laplacian's response, d = 3",
            "polynomial decay",
            of("decay_poisson"),
            all(abs(v + 1) < 0.05 for v in of("decay_poisson")),
            "1/r.",
        ),
        Claim(
            "App. expressivity",
            "power of the distance with which the Laplacian's G leaves its peak in one dimension",
            "decays slowly",
            of("growth_poisson_1d"),
            max(of("growth_poisson_1d")) < 0,
            "Distance and log distance grow; decay begins in three dimensions.",
        ),
        Claim(
            "App. expressivity, table",
            "rate of the response of −Δ + μ² in units of μ (d = 3, times r)",
            "e^{−μr}",
            of("decay_screened"),
            all(abs(v + 1) < 0.01 for v in of("decay_screened")),
            "With the factor 1/r of three dimensions.",
        ),
        Claim(
            "App. expressivity, table",
            "slope of the logarithm of the oscillator's response in r²",
            "Gaussian",
            of("decay_oscillator"),
            all(-0.7 < v < -0.45 for v in of("decay_oscillator")),
            "e^{−r²/2} and a power of r.",
        ),
        Claim(
            "App. expressivity, table",
            "power of r in the response of (−Δ)^½, d = 3",
            "power law",
            of("decay_fractional"),
            all(abs(v + 2) < 0.1 for v in of("decay_fractional")),
            "r^{2s−d}.",
        ),
        Claim(
            "App. expressivity, table",
            "power of the horizon T in the potential of (−Δ)^s, d = 2, s = 1½ (s = ½ converges)",
            "s < d/2",
            of("divergence_above"),
            min(of("divergence_above")) > 0.3 and max(of("divergence_below")) < 0.05,
            "T^{s−d/2}: above d/2 the constant diverges and must be fitted.",
        ),
    ]


def draw(axes: list[Axes], part: dict[str, Any]) -> None:
    (panel,) = axes
    bars = {f"ω = {float(k):g}": v for k, v in part["gabor"].items()}
    bars["Hermite"] = part["hermite"]
    panel.bar(list(bars), list(bars.values()), color=["C3", "C3", "C3", "C0"])
    panel.set(
        yscale="log", title="Gabor atoms under −Δ + x²", ylabel="‖Lφ − λφ‖/‖Lφ‖", ylim=(1e-5, 1)
    )

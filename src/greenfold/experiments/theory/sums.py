"""Exponential sums: how many terms K an accuracy ε takes, and what else K depends on."""

import math
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from scipy.special import exp1

from greenfold.experiments.claims import Claim
from greenfold.green import GaussHermite, Gaussian, Poisson, ScreenedPoisson, minimax, terms_for
from greenfold.green.expsum import FLOOR
from greenfold.green.geometry import minus_laplacian

# the operators by their power s: Poisson, screened Poisson, oscillator and Cauchy are s = 1
POWERS = {0.5: "s = ½: (−Δ)^½, 1/r", 1.0: "s = 1: most operators", 2.0: "s = 2: (κ²−Δ)²"}
RATIO = 1e4


def measure(config: Any) -> dict[str, Any]:
    terms = list(config.terms)
    errors = {s: [minimax(K, RATIO, s).error for K in terms] for s in POWERS}
    ratios = [10.0**e for e in config.decades]
    by_ratio = [_terms_for(config.accuracy, R) for R in ratios]
    epsilons = [10.0**-e for e in config.digits]
    return {
        "terms": terms,
        "accuracy": config.accuracy,
        "errors": {str(s): e for s, e in errors.items()},
        "linear": {str(s): _straight(terms, e) for s, e in errors.items()},
        "bound": max(e / _bound(K, RATIO) for K, e in zip(terms, errors[1.0], strict=True)),
        "ratios": ratios,
        "by_ratio": by_ratio,
        "linear_in_log_ratio": _r2(np.log(ratios), by_ratio),
        "epsilons": epsilons,
        "unbounded": (unbounded := [_terms_for(e, 1 / e) for e in epsilons]),
        "unbounded_power": float(
            np.polyfit(np.log(np.log(16 / np.array(epsilons))), np.log(unbounded), 1)[0]
        ),
        "one_over_r": _terms_for(config.accuracy, 1e6, 0.5),
        "by_dimension": [_manufactured(d) for d in config.dimensions],
        "epsilon": minimax(12, 1024.0).error,
        **_horizon(),
    }


def _terms_for(epsilon: float, ratio: float, power: float = 1.0) -> int:
    """The least K whose best sum is within ε, by bisection below the rule of `terms_for`."""
    low, high = 0, terms_for(epsilon, ratio, power)
    while high - low > 1:
        middle = (low + high) // 2
        if _error(middle, ratio, power) <= epsilon:
            high = middle
        else:
            low = middle
    return high


def _error(K: int, ratio: float, power: float) -> float:
    try:
        return minimax(K, ratio, power).error
    except ValueError:  # close to 100%
        return 1.0


def _bound(K: float, ratio: float) -> float:
    """Braess and Hackbusch."""
    return 16 * math.exp(-(math.pi**2) * K / math.log(8 * ratio))


def _straight(K: list[int], errors: list[float]) -> float:
    """R² of K = c₀ + c₁ log 1/ε above the floor of float64."""
    keep = [(k, -math.log(e)) for k, e in zip(K, errors, strict=True) if e > 3 * FLOOR]
    return _r2(np.array([x for _, x in keep]), [k for k, _ in keep])


def _r2(x: Any, y: Any) -> float:
    return round(float(np.corrcoef(x, y)[0, 1] ** 2), 12)


def _manufactured(d: int) -> float:
    """Relative error of (1 − Δ)⁻¹ at K = 12 on a problem whose solution, a Gaussian, is known."""
    atoms = GaussHermite(torch.zeros(1, d, dtype=torch.float64), 0.5, 0)
    more, v = minus_laplacian(atoms, torch.ones(1, dtype=torch.float64))
    generator = torch.Generator().manual_seed(0)
    xi = 0.5 * torch.randn(400, d, dtype=torch.float64, generator=generator)
    operator = ScreenedPoisson(1.0, n_terms=12)
    u = operator.response(xi, atoms)[:, 0] + operator.response(xi, more) @ v
    exact = torch.exp(-2 * (xi**2).sum(1))
    return float((u - exact).norm() / exact.norm())


def _horizon() -> dict[str, float]:
    """Error of the Poisson response of a charge in 2D beside columns of the null space."""
    generator = torch.Generator().manual_seed(0)
    xi = 4 * torch.rand(400, 2, dtype=torch.float64, generator=generator) - 2
    operator = Poisson(n_terms=24, extent=8.0)
    charge = Gaussian(torch.zeros(1, 2, dtype=torch.float64), 0.5)
    u = operator.response(xi, charge)[:, 0]
    t = 2 * (xi**2).sum(1)  # r²/2σ²
    exact = -0.125 * (torch.from_numpy(exp1(t.numpy())) + t.log())
    one = torch.ones_like(xi[:, :1])
    affine = torch.cat([one, xi], 1)
    full = torch.cat([affine, (xi**2).sum(1, keepdim=True)], 1)
    return {
        "raw": _misfit(u, exact, one[:, :0]),
        "affine": _misfit(u, exact, affine),
        "quadratic": _misfit(u, exact, full),
    }


def _misfit(u: torch.Tensor, exact: torch.Tensor, columns: torch.Tensor) -> float:
    rest = exact - u
    if columns.shape[1]:
        rest = rest - columns @ torch.linalg.lstsq(columns, rest[:, None]).solution[:, 0]
    return float(rest.norm() / exact.norm())


def claims(parts: list[dict[str, Any]]) -> list[Claim]:
    def of(key: str) -> list[float]:
        return [float(part[key]) for part in parts]

    accuracy = f"{parts[0]['accuracy']:.0e}".replace("e-0", "e-")
    linear = [min(part["linear"].values()) for part in parts]
    growth = [part["by_ratio"][-1] / part["by_ratio"][0] for part in parts]
    dims = [max(part["by_dimension"]) / part["epsilon"] for part in parts]
    return [
        Claim(
            "App. low-rank",
            "K against log 1/ε is a straight line for every operator (R² on a spectral ratio of 1e4)",
            "K = O(log 1/ε)",
            linear,
            min(linear) >= 0.99,
            "For a bounded spectral ratio the best sum converges geometrically.",
            small=False,
        ),
        Claim(
            "App. low-rank",
            "largest error of the best sums over Braess and Hackbusch's 16 e^{−π²K/log 8R}",
            "≤ 1",
            of("bound"),
            max(of("bound")) <= 1,
            "K = log(16/ε) log(8R)/π² is enough, with about two terms to spare.",
        ),
        Claim(
            "App. low-rank",
            "error of (1 − Δ)⁻¹ at K = 12, over the sum's own ε, largest over dimensions up to 30",
            "K independent of d",
            dims,
            max(dims) <= 1,
            "The error of the sum bounds the error of the inverse in every dimension.",
        ),
        Claim(
            "App. low-rank",
            f"K for ε = {accuracy}: factor between the narrowest and the widest spectrum (λmin fixed)",
            "1: λmin bounded below is enough",
            growth,
            max(growth) <= 1.2,
            "K grows with log(λmax/λmin); a bounded λmin alone does not bound it.",
        ),
        Claim(
            "App. low-rank",
            "p in K ~ log(1/ε)^p for an absolute error ε on [1, ∞)",
            "1",
            of("unbounded_power"),
            max(of("unbounded_power")) <= 1.2,
            "There the range that matters grows as 1/ε, and K as log²(1/ε)/2π².",
        ),
        Claim(
            "App. low-rank, spectral",
            f"K for ε = {accuracy} against log(λmax/λmin) is a straight line (R²)",
            "K = O(log 1/ε · log λmax/λmin)",
            of("linear_in_log_ratio"),
            min(of("linear_in_log_ratio")) >= 0.99,
            "The best sum is a log-uniform quadrature inside.",
            small=False,
        ),
        Claim(
            "App. low-rank",
            f"Gaussians in 1/r ≈ Σ γ e^{{−αr²}} to {accuracy} over three decades of r",
            "few",
            of("one_over_r"),
            max(of("one_over_r")) <= 30,
            "The same sums with x = r², s = ½.",
        ),
        Claim(
            "App. low-rank; eq. of the complete solution",
            "Poisson in 2D, error left beside affine columns",
            "augmentation of degree 1 handles the near-null modes",
            of("affine"),
            max(of("quadratic")) <= 1e-8,
            "The far end of the sum is a constant plus ξ·ξ/T: one ξ·ξ column removes the rest, down to "
            f"{max(of('quadratic')):.0e}; without columns the error is {max(of('raw')):.1f}.",
            change="one column ξ·ξ beside the affine ones",
        ),
    ]


def draw(axes: list[Axes], part: dict[str, Any]) -> None:
    first, second = axes
    for s, errors in part["errors"].items():
        first.semilogy(part["terms"], errors, "o-", ms=3, label=POWERS[float(s)])
    K = np.array(part["terms"])
    bound = [_bound(k, RATIO) for k in K]
    first.semilogy(K, bound, "k:", label="16 exp(−π²K/log 8R)")
    first.set(title="terms against error, λmax/λmin = 1e4", xlabel="K", ylabel="ε")
    first.set_ylim(1e-13, 10)
    first.legend(fontsize=6.5)
    second.plot(
        part["ratios"],
        part["by_ratio"],
        "o-",
        ms=4,
        label=f"relative ε = {part['accuracy']:g} on [1, R]",
    )
    second.plot(
        1 / np.array(part["epsilons"]),
        part["unbounded"],
        "s-",
        ms=4,
        label="absolute ε = 1/R, [1, ∞)",
    )
    second.set(xscale="log", title="terms against λmax/λmin", xlabel="R", ylabel="K")
    second.legend(fontsize=6.5)

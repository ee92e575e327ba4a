"""One-dimensional integrals of a source atom against a kernel, in closed form.

Three families of kernels appear, and one dictionary for each at the foot of the file says which atoms
have a closed form under it:

* a Gaussian density N(z; y, v), the heat kernel of the free line (v = 2a), of the harmonic oscillator
  and of every mixture of Gaussians;
* the heat kernel of an interval with Dirichlet, Neumann or periodic ends, as an image sum;
* the exponential e^{−κ|y−z|}/2κ, the Green's function of κ² − ∂².

All functions broadcast, are differentiable in every argument, and keep their relative accuracy in the
tails: no difference of large numbers, no overflow in a branch that is not taken.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

_NODES, _WEIGHTS = (torch.from_numpy(v) for v in np.polynomial.legendre.leggauss(16))

# --- Gaussian kernel: ∫ N(z; y, v) φ(z) dz, with δ = y − μ and s² = σ² + v


def gaussian(y: Tensor, v: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
    """φ(z) = e^{−(z−μ)²/2σ²}."""
    s2 = sigma**2 + v
    return sigma * s2.rsqrt() * torch.exp(-((y - mu) ** 2) / (2 * s2))


def point(y: Tensor, v: Tensor, mu: Tensor) -> Tensor:
    """φ(z) = δ(z − μ)."""
    return (2 * math.pi * v).rsqrt() * torch.exp(-((y - mu) ** 2) / (2 * v))


def gabor(y: Tensor, v: Tensor, mu: Tensor, sigma: Tensor, omega: Tensor, theta: Tensor) -> Tensor:
    """φ(z) = e^{−(z−μ)²/2σ²} cos(ω(z−μ) + θ)."""
    s2 = sigma**2 + v
    shrink = sigma**2 / s2
    return (
        sigma
        * s2.rsqrt()
        * torch.exp(-((y - mu) ** 2) / (2 * s2) - omega**2 * shrink * v / 2)
        * torch.cos(omega * shrink * (y - mu) + theta)
    )


def gauss_hermite(y: Tensor, v: Tensor, mu: Tensor, sigma: Tensor, order: Tensor) -> Tensor:
    """φ(z) = He_n((z−μ)/σ) e^{−(z−μ)²/2σ²}, a derivative of a Gaussian: it commutes with the kernel."""
    s = (sigma**2 + v).sqrt()
    t = (y - mu) / s
    return (sigma / s) ** (order + 1) * hermite_polynomial(t, order) * torch.exp(-(t**2) / 2)


def hermite_polynomial(t: Tensor, order: Tensor) -> Tensor:
    """Probabilists' He_n(t), elementwise for an integer tensor `order`."""
    previous, current = torch.zeros_like(t), torch.ones_like(t)
    value = torch.where(order == 0, current, previous)
    for n in range(int(order.max())):
        previous, current = current, t * current - n * previous
        value = torch.where(order == n + 1, current, value)
    return value


def mexican_hat(y: Tensor, v: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
    """φ(z) = (1 − (z−μ)²/σ²) e^{−(z−μ)²/2σ²}."""
    s2 = sigma**2 + v
    delta2 = (y - mu) ** 2
    return (sigma**2 / s2) ** 1.5 * (1 - delta2 / s2) * torch.exp(-delta2 / (2 * s2))


def box(y: Tensor, v: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
    """φ(z) = 1 for |z − μ| ≤ σ, else 0."""
    root = (2 * v).sqrt()
    distance = (y - mu).abs()  # by symmetry the nearer end is at distance − σ
    p, q = (distance - sigma) / root, (distance + sigma) / root
    near = (torch.erf(q) - torch.erf(p)) / 2
    far = (torch.erfc(p) - torch.erfc(q)) / 2
    # Both differences cancel where the kernel is flat over the box; quadrature is exact there.
    narrow = _legendre(lambda z: torch.exp(-((distance - z) ** 2) / (2 * v)), -sigma, sigma)
    narrow = narrow * (2 * math.pi * v).rsqrt()
    flat = (sigma < 0.5 * v.sqrt()) & (sigma * distance < 8 * v)
    return torch.where(flat, narrow, torch.where(p > 0.3, far, near))


def hat(y: Tensor, v: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
    """φ(z) = max(0, 1 − |z − μ|/σ)."""
    delta = y - mu

    def tau(t: Tensor) -> Tensor:
        """∫ N(z; t, v) |z| dz = |t| + 2 τ(t)."""
        z = t.abs() * (2 * v).rsqrt()
        bracket = 1 - math.sqrt(math.pi) * z * torch.special.erfcx(z)
        return (v / (2 * math.pi)).sqrt() * torch.exp(-(z**2)) * bracket

    def tent(z: Tensor) -> Tensor:
        return (1 - z.abs() / sigma).clamp_min(0)

    wide = tent(delta) + (tau(delta + sigma) - 2 * tau(delta) + tau(delta - sigma)) / sigma

    # The second difference cancels where the kernel is flat over the hat; quadrature is exact there.
    def weighted(z: Tensor) -> Tensor:
        return tent(z) * torch.exp(-((delta - z) ** 2) / (2 * v))

    zero = torch.zeros_like(sigma)
    narrow = _legendre(weighted, -sigma, zero) + _legendre(weighted, zero, sigma)
    narrow = narrow * (2 * math.pi * v).rsqrt()
    flat = (sigma < 2.5 * v.sqrt()) & (sigma * delta.abs() < 8 * v)
    return torch.where(flat, narrow, wide)


def _legendre(f: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """∫ f over [low, high] by 16 Gauss–Legendre nodes, one at a time to keep memory flat."""
    middle, half = (low + high) / 2, (high - low) / 2
    terms = (
        w * f(middle + half * x) for x, w in zip(_NODES.tolist(), _WEIGHTS.tolist(), strict=True)
    )
    return half * sum(terms)


# --- heat kernel of an interval [0, length]


def interval_gaussian(
    y: Tensor, v: Tensor, mu: Tensor, sigma: Tensor, length: Tensor, boundary: str
) -> Tensor:
    """Gaussian continued over the ends: oddly (Dirichlet), evenly (Neumann) or periodically."""
    mass = sigma * math.sqrt(2 * math.pi)
    return mass * _interval_heat(y, mu, sigma**2 + v, length, boundary)


def interval_point(y: Tensor, v: Tensor, mu: Tensor, length: Tensor, boundary: str) -> Tensor:
    """The interval's heat kernel itself."""
    return _interval_heat(y, mu, v, length, boundary)


def _interval_heat(y: Tensor, mu: Tensor, s2: Tensor, length: Tensor, boundary: str) -> Tensor:
    """Heat kernel at 2a = s²: images while s < length/2, eigenfunctions beyond; both to rounding.

    Outside the interval the kernel goes on as its images do, with period `length` or twice that.
    """
    switch = length**2 / 4
    turn = length if boundary == "periodic" else 2 * length
    y = y - turn * torch.floor((y / turn).detach())
    mu = mu - turn * torch.floor((mu / turn).detach())
    short = torch.minimum(s2, switch)
    sign = {"dirichlet": -1.0, "neumann": 1.0, "periodic": 0.0}[boundary]
    period = length if boundary == "periodic" else 2 * length
    images = torch.zeros_like(y - mu + s2)
    for m in range(-6, 7) if boundary == "periodic" else range(-3, 4):
        images = images + torch.exp(-((y - mu - m * period) ** 2) / (2 * short))
        if sign:
            images = images + sign * torch.exp(-((y + mu - m * period) ** 2) / (2 * short))
    images = images * (2 * math.pi * short).rsqrt()

    long = torch.maximum(s2, switch)
    wave = (2 if boundary == "periodic" else 1) * math.pi / length
    modes = torch.zeros_like(images)
    for n in range(1, 8):
        if boundary == "periodic":
            shape = torch.cos(n * wave * (y - mu))
        elif boundary == "neumann":
            shape = torch.cos(n * wave * y) * torch.cos(n * wave * mu)
        else:
            shape = torch.sin(n * wave * y) * torch.sin(n * wave * mu)
        modes = modes + shape * torch.exp(-long * (n * wave) ** 2 / 2)
    modes = 2 * modes if boundary == "dirichlet" else 1 + 2 * modes
    return torch.where(s2 < switch, images, modes / length)


# --- exponential kernel: ∫ e^{−κ|y−z|}/(2κ) φ(z) dz


def exponential_point(y: Tensor, kappa: Tensor, mu: Tensor) -> Tensor:
    return torch.exp(-kappa * (y - mu).abs()) / (2 * kappa)


def exponential_gaussian(y: Tensor, kappa: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
    delta = y - mu

    def m(delta: Tensor) -> Tensor:
        z = (kappa * sigma**2 - delta) / (math.sqrt(2) * sigma)
        # Each branch sees only arguments at which it is finite; autograd visits both.
        tail = torch.exp(-(delta**2) / (2 * sigma**2)) * torch.special.erfcx(z.clamp_min(0))
        inside = torch.exp((kappa * (kappa * sigma**2 / 2 - delta)).clamp_max(0)) * torch.erfc(z)
        return torch.where(z >= 0, tail, inside)

    return sigma * math.sqrt(math.pi / 2) / (2 * kappa) * (m(delta) + m(-delta))


def exponential_mexican_hat(y: Tensor, kappa: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
    """−σ²∂² of the Gaussian: (κ²−∂²)⁻¹(−∂²) = 1 − κ²(κ²−∂²)⁻¹. Loses (κσ)² of the 16 digits."""
    smooth = kappa**2 * exponential_gaussian(y, kappa, mu, sigma)
    return sigma**2 * (torch.exp(-((y - mu) ** 2) / (2 * sigma**2)) - smooth)


def exponential_box(y: Tensor, kappa: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
    distance = (y - mu).abs()
    near, far = kappa * (distance - sigma), kappa * (distance + sigma)
    outside = -torch.exp(-near.clamp_min(0)) * torch.expm1(-2 * kappa * sigma)
    inside = -torch.expm1(near.clamp_max(0)) - torch.expm1(-far)
    return torch.where(distance < sigma, inside, outside) / (2 * kappa**2)


def exponential_hat(y: Tensor, kappa: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
    distance = (y - mu).abs()
    t, w = kappa * distance, kappa * sigma
    outside = torch.exp(-(t - w).clamp_min(0)) * torch.expm1(-w) ** 2
    inside = _excess((w - t).clamp_min(0)) + _excess(w + t) - 2 * _excess(t)
    return torch.where(distance < sigma, inside, outside) / (2 * kappa**3 * sigma)


def _excess(x: Tensor) -> Tensor:
    """e^{−x} − 1 + x without cancellation at small x."""
    small = x.clamp_max(0.5)
    series = torch.zeros_like(x)
    for n in range(16, 1, -1):  # x²/2! − x³/3! + …
        series = (1 - series) * small / n
    series = series * small
    return torch.where(x < 0.5, series, torch.expm1(-x) + x)


Integral = Callable[..., Tensor]

GAUSSIAN: dict[str, Integral] = {
    "gaussian": gaussian,
    "point": point,
    "gabor": gabor,
    "gauss_hermite": gauss_hermite,
    "mexican_hat": mexican_hat,
    "box": box,
    "hat": hat,
}
INTERVAL: dict[str, Integral] = {"gaussian": interval_gaussian, "point": interval_point}
EXPONENTIAL: dict[str, Integral] = {
    "point": exponential_point,
    "gaussian": exponential_gaussian,
    "mexican_hat": exponential_mexican_hat,
    "box": exponential_box,
    "hat": exponential_hat,
}

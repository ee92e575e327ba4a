"""Closed-form integrals against 40-digit quadrature of the integral itself."""

import math
from functools import partial

import mpmath as mp
import numpy as np
import pytest
import torch

from greenfold.green import integrals
from greenfold.green.operators import HarmonicOscillator
from tests import cases

f64 = torch.float64
SETS = pytest.mark.parametrize(
    "sets", [range(3), pytest.param(range(3, 25), marks=pytest.mark.slow)], ids=["few", "many"]
)

SHAPES = {  # what each atom needs beside its position
    "gaussian": ["sigma"],
    "point": [],
    "gabor": ["sigma", "omega", "theta"],
    "gauss_hermite": ["sigma", "order"],
    "mexican_hat": ["sigma"],
    "box": ["sigma"],
    "hat": ["sigma"],
}


def draw(name, seed):
    """A random parameter set over decades: widths 1e-2 … 10, variances 1e-4 … 1e2."""
    rng = np.random.default_rng(seed)
    p = {
        "sigma": 10 ** rng.uniform(-2, 1),
        "omega": rng.uniform(0, 3) * 10 ** rng.uniform(-1, 0.5),
        "theta": rng.uniform(-3, 3),
        "order": int(rng.integers(0, 6)),
    }
    v = 10 ** rng.uniform(-4, 2)
    mu = rng.normal()
    if name in ("box", "hat"):  # inside and outside the support, as far as six kernel widths
        y = mu + rng.uniform(-1, 1) * (p["sigma"] + 6 * math.sqrt(v))
    else:
        y = mu + rng.uniform(-6, 6) * math.hypot(p["sigma"], math.sqrt(v))
    return y, v, mu, [p[k] for k in SHAPES[name]]


def mp_profile(name, z, mu, shape):
    t = z - mu
    if name in ("box", "hat"):
        inside = abs(t) <= shape[0]
        return (1 if name == "box" else 1 - abs(t) / shape[0]) if inside else mp.mpf(0)
    sigma = shape[0]
    envelope = mp.exp(-(t**2) / (2 * sigma**2))
    if name == "gabor":
        return envelope * mp.cos(shape[1] * t + shape[2])
    if name == "mexican_hat":
        return envelope * (1 - t**2 / sigma**2)
    if name == "gauss_hermite":  # He_n from the physicists' polynomial
        n = shape[1]
        return envelope * mp.hermite(n, t / sigma / mp.sqrt(2)) * mp.mpf(2) ** (-mp.mpf(n) / 2)
    return envelope


def breakpoints(name, y, v, mu, shape):
    """Where the integrand lives: around the kernel, the atom, and between."""
    if name in ("box", "hat"):
        low, high = mu - shape[0], mu + shape[0]
        inner = [y + k * mp.sqrt(v) for k in (-14, -8, -4, -2, -1, 0, 1, 2, 4, 8, 14)] + [mu]
        inner += [low + k * v / (abs(y - low) + mp.sqrt(v)) for k in (1, 4, 12, 40)]
        inner += [high - k * v / (abs(y - high) + mp.sqrt(v)) for k in (1, 4, 12, 40)]
        return [low, *sorted(p for p in inner if low < p < high), high]
    s2 = shape[0] ** 2 + v
    middle = (shape[0] ** 2 * y + v * mu) / s2
    width = mp.sqrt(shape[0] ** 2 * v / s2)
    return [middle + k * width for k in (-16, -8, -4, -2, 0, 2, 4, 8, 16)]


def heat_kernel(y, z, v):
    return mp.exp(-((y - z) ** 2) / (2 * v)) / mp.sqrt(2 * mp.pi * v)


def reference(name, y, v, mu, shape, kernel):
    y, v, mu = mp.mpf(y), mp.mpf(v), mp.mpf(mu)
    shape = [mp.mpf(p) if not isinstance(p, int) else p for p in shape]
    points = breakpoints(name, y, v, mu, shape)
    # mpmath's tolerance is absolute: normalize the integrand to order one first
    scale = max(abs(kernel(y, z) * mp_profile(name, z, mu, shape)) for z in points)
    return scale * mp.quad(lambda z: kernel(y, z) * mp_profile(name, z, mu, shape) / scale, points)


def evaluate(f, y, second, mu, shape):
    tensors = [torch.tensor(p) if isinstance(p, int) else torch.tensor(p, dtype=f64) for p in shape]
    return float(f(*(torch.tensor(t, dtype=f64) for t in (y, second, mu)), *tensors))


@SETS
@pytest.mark.parametrize("name", [n for n in SHAPES if n != "point"])
def test_gaussian_kernel_integrals(name, sets):
    tolerance = 5e-12 if name == "box" else 1e-12
    with mp.workdps(40):
        for seed in sets:
            y, v, mu, shape = draw(name, seed)
            kernel = partial(heat_kernel, v=mp.mpf(v))
            exact = reference(name, y, v, mu, shape, kernel)
            got = evaluate(integrals.GAUSSIAN[name], y, v, mu, shape)
            size = abs(exact)
            if name in ("gabor", "mexican_hat", "gauss_hermite"):  # these cross zero
                size = max(size, reference("gaussian", y, v, mu, shape[:1], kernel))
            assert abs(got - exact) <= tolerance * size, (seed, y, v, mu, shape, got, exact)


def exponential_integrand(name, y, kappa, mu, sigma, z):
    return mp.exp(-kappa * abs(y - z)) / (2 * kappa) * mp_profile(name, z, mu, [sigma])


@SETS
@pytest.mark.parametrize("name", ["gaussian", "mexican_hat", "box", "hat"])
def test_exponential_kernel_integrals(name, sets):
    with mp.workdps(40):
        for seed in sets:
            rng = np.random.default_rng(seed + 1000)
            sigma, kappa = 10 ** rng.uniform(-2, 1), 10 ** rng.uniform(-1, 1)
            mu = rng.normal()
            y = mu + rng.uniform(-5, 5) * (sigma + 1 / kappa)
            edge = sigma if name in ("box", "hat") else 14 * sigma
            low, high = mu - edge, mu + edge
            inner = [mu, y, *(mu + k * sigma for k in (-6, -3, -1, 1, 3, 6))]
            inner += [y + k / kappa for k in (-20, -5, -1, 1, 5, 20)]
            grid = [low, *sorted(p for p in inner if low < p < high), high]
            f = partial(exponential_integrand, name, y, mp.mpf(kappa), mp.mpf(mu), mp.mpf(sigma))
            exact = mp.quad(f, grid)
            got = evaluate(integrals.EXPONENTIAL[name], y, kappa, mu, [sigma])
            size = abs(exact)
            if name == "mexican_hat":  # relative to the envelope, less the digits (κσ)² takes
                envelope = evaluate(integrals.EXPONENTIAL["gaussian"], y, kappa, mu, [sigma])
                size = max(size, envelope) * (1 + (kappa * sigma) ** 2)
            assert abs(got - exact) <= 1e-12 * size, (seed, y, kappa, mu, sigma, got, exact)


@SETS
def test_mehler_kernel_integral_of_a_gaussian(sets):
    """The harmonic oscillator's heat kernel, written out, against what the operator uses."""
    with mp.workdps(40):
        for seed in sets:
            rng = np.random.default_rng(seed)
            omega, sigma = 10 ** rng.uniform(-1, 1), 10 ** rng.uniform(-2, 1)
            t = 10 ** rng.uniform(-4, 2) / omega
            mu, x = rng.normal(size=2)
            w, T, s = mp.mpf(omega), mp.mpf(t), mp.mpf(sigma)
            sinh, coth = mp.sinh(2 * w * T), mp.coth(2 * w * T)
            # the exponent of kernel × Gaussian is quadratic in z: integrate it in closed form
            A = w * coth / 2 + 1 / (2 * s**2)
            B = w * x / sinh + mu / s**2
            C = -w * coth * x**2 / 2 - mp.mpf(mu) ** 2 / (2 * s**2)
            exact = (
                mp.sqrt(w / (2 * mp.pi * sinh)) * mp.sqrt(mp.pi / A) * mp.exp(B**2 / (4 * A) + C)
            )
            tanh, log_cosh = mp.tanh(2 * w * T), mp.log(mp.cosh(2 * w * T))
            S, V, P, c = mp.exp(-log_cosh), tanh / w, w * tanh, -log_cosh / 2
            got = math.exp(float(c - P * x**2 / 2)) * evaluate(
                integrals.gaussian, float(S * x), float(V), mu, [sigma]
            )
            if exact > 1e-280:
                assert abs(got - exact) <= 1e-12 * exact, (seed, got, exact)


def test_the_oscillator_uses_that_kernel():
    operator = HarmonicOscillator(1.7, n_terms=8)
    mixture = operator.mixture(cases.atoms("gaussian", 1, 1), None)
    # N(z; Sx, V) e^{c − Px²/2} = Mehler's kernel, so S, V, P, c obey these for one common time
    torch.testing.assert_close(mixture.P / 1.7, mixture.V * 1.7, rtol=1e-14, atol=0)
    torch.testing.assert_close(mixture.S**2 + (mixture.V * 1.7) ** 2, torch.ones_like(mixture.S))
    torch.testing.assert_close(2 * mixture.c, mixture.S.log(), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("boundary", ["dirichlet", "neumann", "periodic"])
def test_interval_kernels_agree_with_their_series(boundary):
    """Images and eigenfunctions are used on different sides of a switch; both are the 40-term series."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        length = 10 ** rng.uniform(-1, 1)
        y, mu = rng.uniform(0, length, 2)
        sigma, v = length * 10 ** rng.uniform(-1.3, 0.5), (length * 10 ** rng.uniform(-2, 0.7)) ** 2
        s2, c = sigma**2 + v, sigma * math.sqrt(2 * math.pi)
        n = np.arange(1, 400)
        k = n * math.pi / length * (2 if boundary == "periodic" else 1)
        decay = np.exp(-s2 * k**2 / 2)
        if boundary == "dirichlet":
            exact = 2 * c / length * np.sum(np.sin(k * y) * np.sin(k * mu) * decay)
        elif boundary == "neumann":
            exact = c / length * (1 + 2 * np.sum(np.cos(k * y) * np.cos(k * mu) * decay))
        else:
            exact = c / length * (1 + 2 * np.sum(np.cos(k * (y - mu)) * decay))
        got = float(
            integrals.interval_gaussian(
                *(torch.tensor(t, dtype=f64) for t in (y, v, mu, sigma, length)), boundary
            )
        )
        peak = sigma / math.sqrt(s2) + c / length
        assert abs(got - exact) < 1e-13 * peak


def tensors(*values):
    return [torch.tensor(v, dtype=f64, requires_grad=True) for v in values]


@pytest.mark.parametrize("name", list(integrals.GAUSSIAN))
@pytest.mark.parametrize("v", [0.01, 0.5, 30.0])
def test_gradients_of_gaussian_kernel_integrals(name, v):
    y = torch.linspace(-2.05, 2.1, 9, dtype=f64).requires_grad_()
    shape = {"sigma": 0.6, "omega": 1.7, "theta": 0.3}
    rest = tensors(*(shape[k] for k in SHAPES[name] if k != "order"))
    order = [torch.arange(9)] if "order" in SHAPES[name] else []
    f = integrals.GAUSSIAN[name]
    assert torch.autograd.gradcheck(lambda y, *a: f(y, *a, *order), (y, *tensors(v, 0.2), *rest))


@pytest.mark.parametrize("name", list(integrals.EXPONENTIAL))
@pytest.mark.parametrize("kappa", [0.1, 1.0, 9.0])
def test_gradients_of_exponential_kernel_integrals(name, kappa):
    y = torch.linspace(-2.05, 2.1, 9, dtype=f64).requires_grad_()
    rest = tensors(*([0.6] if name != "point" else []))
    assert torch.autograd.gradcheck(integrals.EXPONENTIAL[name], (y, *tensors(kappa, 0.2), *rest))


@pytest.mark.parametrize("boundary", ["dirichlet", "neumann", "periodic"])
@pytest.mark.parametrize("v", [0.01, 2.0])
def test_gradients_of_interval_integrals(boundary, v):
    y = torch.linspace(0.05, 1.3, 7, dtype=f64).requires_grad_()
    length = torch.tensor(1.4, dtype=f64)
    for name, rest in (("gaussian", [0.3]), ("point", [])):
        f = integrals.INTERVAL[name]
        inputs = (y, *tensors(v, 0.5, *rest))
        assert torch.autograd.gradcheck(
            lambda *a, f=f: f(*a, length=length, boundary=boundary), inputs
        )


def test_tails_keep_their_digits():
    """Values down to 1e-280 against 40-digit closed forms."""
    rng = np.random.default_rng(3)
    with mp.workdps(40):
        for _ in range(300):
            sigma, v = 10 ** rng.uniform(-2, 1), 10 ** rng.uniform(-4, 2)
            y = math.sqrt(sigma**2 + v) * rng.uniform(0, 35)
            exact = (
                sigma
                / mp.sqrt(mp.mpf(sigma) ** 2 + v)
                * mp.exp(-(mp.mpf(y) ** 2) / (2 * (mp.mpf(sigma) ** 2 + v)))
            )
            got = evaluate(integrals.gaussian, y, v, 0.0, [sigma])
            assert abs(got - exact) <= 1e-12 * exact
            # the exponential kernel far out: e^{−κδ} times a constant
            kappa = 10 ** rng.uniform(-1, 1)
            y = rng.uniform(0, 600) / kappa
            z = [(mp.mpf(kappa) * sigma**2 - d) / (mp.sqrt(2) * sigma) for d in (y, -mp.mpf(y))]
            e = [mp.exp(kappa * (mp.mpf(kappa) * sigma**2 / 2 - d)) for d in (y, -mp.mpf(y))]
            m = sum(a * mp.erfc(b) for a, b in zip(e, z, strict=True))
            exact = sigma * mp.sqrt(mp.pi / 2) / (2 * mp.mpf(kappa)) * m
            got = evaluate(integrals.exponential_gaussian, y, kappa, 0.0, [sigma])
            if exact > 1e-280:
                assert abs(got - exact) <= 1e-12 * exact, (y, kappa, sigma)

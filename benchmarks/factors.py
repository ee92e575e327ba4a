"""Green's functions on a sphere and on sphere × circle, beside `geometric_kernels` in the same run.

The truth is a direct sum over eigenfunctions. On the sphere alone both are given the same spectrum,
e^{−λσ²/2}/(κ² + λ). On sphere × circle the peer sums over the lowest joint eigenvalues, as many as it is
given, or multiplies a kernel of each factor. Errors are root mean squares over that of the truth, CPU
seconds those of one thread, evaluated twice so that what is set up once does not count. Results go to
results/factors.json.

    python benchmarks/factors.py [--rows 2000]        (pip install geometric_kernels for the peer)
"""

import argparse
import json
import logging
import math
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from scipy.special import eval_legendre

from greenfold.green import Bumps, Circle, Product, Sphere

KAPPA, ANCHORS = 1.3, 200
SIGMA, WIDE = (
    0.1,
    0.3,
)  # of bumps; polynomials of the peer overflow at the degrees that the first needs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2000)
    n = parser.parse_args().rows
    torch.set_num_threads(1)
    x, mu = places(n, 1), places(ANCHORS, 2)
    found = {f"sphere, σ = {sigma}": sphere(x, mu, sigma) for sigma in (SIGMA, WIDE)}
    found[f"sphere × circle, σ = {SIGMA}"] = joint(x, mu)
    for title, rows in found.items():
        print(f"\n{title}, {n} × {ANCHORS} pairs")
        for name, (error, seconds) in rows.items():
            print(f"  {name:44s} error {error:8.1e}   {seconds:7.3f} CPU-s")
    Path("results").mkdir(exist_ok=True)
    Path("results/factors.json").write_text(json.dumps(found, indent=1, ensure_ascii=False))


def places(n: int, seed: int) -> torch.Tensor:
    g = np.random.default_rng(seed)
    P = g.normal(size=(n, 3))
    P /= np.linalg.norm(P, axis=1, keepdims=True)
    return torch.from_numpy(np.c_[P, g.uniform(0, 2 * np.pi, n)])


def sphere(x: torch.Tensor, mu: torch.Tensor, sigma: float) -> dict[str, tuple[float, float]]:
    t = (x[:, :3] @ mu[:, :3].T).clamp(-1, 1).numpy()
    true = sum(c / (KAPPA**2 + lam) * eval_legendre(n, t) for n, lam, c in degrees(sigma))
    rows = {}
    for K in (8, 16):
        L = Product([Sphere()], KAPPA, n_terms=K)
        name = f"Product([Sphere()]), K = {K}"
        rows[name] = timed(lambda L=L: L.response(x[:, :3], Bumps(mu[:, :3], sigma)), true)
    peer = geometric_kernels()
    if peer is not None and sigma == WIDE:
        from geometric_kernels.spaces import Hypersphere

        count = len(degrees(sigma))
        space = Hypersphere(2)
        phi = space.get_eigenfunctions(count)
        lam = torch.from_numpy(np.array(space.get_eigenvalues(count), dtype=float))
        w = torch.exp(-lam * sigma**2 / 2) / (KAPPA**2 + lam) / (4 * math.pi)  # its area is one

        def own():
            return phi.weighted_outerproduct(w, x[:, :3].contiguous(), mu[:, :3].contiguous())

        rows[f"{peer}, {count} levels"] = timed(own, true)
    return rows


def joint(x: torch.Tensor, mu: torch.Tensor) -> dict[str, tuple[float, float]]:
    t = (x[:, :3] @ mu[:, :3].T).clamp(-1, 1).numpy()
    apart = (x[:, 3, None] - mu[:, 3]).numpy()
    k = np.arange(len(degrees(SIGMA)))
    wave = np.exp(-(k**2) * SIGMA**2 / 2) * np.where(k == 0, 1, 2) / (2 * math.pi)
    true = 0.0
    for n, lam, c in degrees(SIGMA):  # the sum over waves in closed form would be another route
        turned = sum(v / (KAPPA**2 + lam + m**2) * np.cos(m * apart) for m, v in zip(k, wave))
        true = true + c * eval_legendre(n, t) * turned
    rows = {}
    for K in (8, 16, 24):
        L = Product([Sphere(), Circle()], KAPPA, n_terms=K)
        rows[f"Product([Sphere(), Circle()]), K = {K}"] = timed(
            lambda L=L: L.response(x, Bumps(mu, SIGMA)), true
        )
    alone = [Product([f], KAPPA, n_terms=16) for f in (Sphere(), Circle())]
    cut = [slice(3), slice(3, 4)]

    def multiplied():
        one, two = (
            L.response(x[:, c], Bumps(mu[:, c], SIGMA)) for L, c in zip(alone, cut, strict=True)
        )
        return one * two

    rows["a product of two Green's functions"] = timed(multiplied, true, free=True)
    peer = geometric_kernels()
    for levels in (100, 400) if peer is not None else ():
        rows[f"{peer}, {levels} joint levels"] = timed(joint_peer(x, mu, levels), true)
    return rows


def joint_peer(x: torch.Tensor, mu: torch.Tensor, levels: int):
    """The sum over the lowest joint levels."""
    from geometric_kernels.spaces import Circle as PeerCircle
    from geometric_kernels.spaces import Hypersphere, ProductDiscreteSpectrumSpace

    each = math.ceil(2 * math.sqrt(levels))
    space = ProductDiscreteSpectrumSpace(
        Hypersphere(2), PeerCircle(), num_levels=levels, num_levels_per_space=each
    )
    phi = space.get_eigenfunctions(levels)
    lam = torch.from_numpy(np.array(space.get_eigenvalues(levels), dtype=float))
    area = 8 * math.pi**2  # its own is one
    w = torch.exp(-lam * SIGMA**2 / 2) / (KAPPA**2 + lam) / area
    return lambda: phi.weighted_outerproduct(w, x, mu)


def degrees(sigma: float) -> list[tuple[int, int, float]]:
    """l, l(l+1), and the coefficients of a bump."""
    made = []
    for n in range(math.ceil(9.5 / sigma)):
        lam = n * (n + 1)
        made.append((n, lam, (2 * n + 1) / (4 * math.pi) * math.exp(-lam * sigma**2 / 2)))
    return made


def timed(make, true, free: bool = False) -> tuple[float, float]:
    """Error, with the best factor granted if `free`, and CPU seconds of the second call."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make()
        begin = time.process_time()
        made = np.asarray(make())
        spent = time.process_time() - begin
    made = made * (made * true).sum() / np.square(made).sum() if free else made
    return float(np.sqrt(np.square(made - true).mean() / np.square(true).mean())), spent


def geometric_kernels() -> str | None:
    """Its name and version; None, with a word, where it is not installed."""
    logging.disable(logging.INFO)
    try:
        import geometric_kernels.torch  # noqa: F401
    except ImportError:
        print(
            "geometric_kernels is not installed: its rows are left out (pip install geometric_kernels)"
        )
        return None
    from importlib.metadata import version

    return f"geometric_kernels {version('geometric_kernels')}"


if __name__ == "__main__":
    main()

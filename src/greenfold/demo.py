"""What `make demo` runs: invert an operator in 3 and 10 dimensions, and look at one source."""

import time
from pathlib import Path

import torch
from torch import Tensor

from greenfold.green import GaussHermite, Gaussian, ScreenedPoisson
from greenfold.green.geometry import minus_laplacian

KAPPA, SIGMA = 1.0, 0.5


def manufactured(n_dims: int) -> tuple[GaussHermite, Tensor]:
    """A source f = (κ² − Δ)u of rank d + 1 whose solution is known: u(ξ) = e^{−|ξ|²/2σ²}."""
    u = GaussHermite(torch.zeros(1, n_dims, dtype=torch.float64), SIGMA)
    one = torch.ones(1, dtype=torch.float64)
    rest, w = minus_laplacian(u, one)
    order = torch.cat([u.order, rest.order])
    atoms = GaussHermite(torch.zeros(n_dims + 1, n_dims, dtype=torch.float64), SIGMA, order)
    return atoms, torch.cat([KAPPA**2 * one, w])


def solve(n_dims: int, n_terms: int) -> tuple[float, float]:
    """Relative error against the exact solution at 2,000 points, and seconds."""
    atoms, w = manufactured(n_dims)
    generator = torch.Generator().manual_seed(0)
    xi = SIGMA * torch.randn(2000, n_dims, dtype=torch.float64, generator=generator)
    start = time.perf_counter()
    u = ScreenedPoisson(KAPPA, n_terms=n_terms).response(xi, atoms) @ w
    seconds = time.perf_counter() - start
    exact = torch.exp(-xi.square().sum(1) / (2 * SIGMA**2))
    return float((u - exact).norm() / exact.norm()), seconds


def picture(path: Path) -> None:
    """A source of six atoms and the operator's response, on a plane through three dimensions."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    mu = torch.tensor(
        [
            [-1.2, 0.8, 0],
            [0.9, 1.1, 0],
            [0.1, -0.2, 0],
            [1.3, -0.9, 0],
            [-1.0, -1.2, 0],
            [0.2, 1.6, 0],
        ]
    ).double()
    w = torch.tensor([1.0, -0.8, 0.9, 0.7, -1.0, 0.5]).double()
    atoms = Gaussian(mu, 0.3)
    axis = torch.linspace(-2.2, 2.2, 161, dtype=torch.float64)
    plane = torch.cartesian_prod(axis, axis, torch.zeros(1, dtype=torch.float64))
    f = (atoms(plane) @ w).reshape(161, 161).numpy()
    u = (ScreenedPoisson(KAPPA).response(plane, atoms) @ w).reshape(161, 161).numpy()

    figure, panels = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for panel, field, title in zip(
        panels, (f, u), ("source  f̂(ζ)", "response  u = (κ² − Δ)⁻¹ f̂"), strict=True
    ):
        top = abs(field).max()
        mesh = panel.pcolormesh(
            axis.numpy(), axis.numpy(), field.T, cmap="RdBu_r", vmin=-top, vmax=top, rasterized=True
        )
        panel.scatter(mu[:, 0], mu[:, 1], s=12, c="black", marker="+")
        panel.set(title=title, xlabel="ξ₁", ylabel="ξ₂", aspect="equal")
        figure.colorbar(mesh, ax=panel, shrink=0.85)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(path: Path = Path("demo/source_and_response.png")) -> None:
    print(
        f"Solve (κ² − Δ)u = f in d dimensions, κ = {KAPPA:g}, f of rank d + 1, nothing learned.\n"
    )
    print("   d   terms   relative error   seconds for 2000 points")
    for n_dims in (3, 10):
        for n_terms in (8, 16, 24):
            error, seconds = solve(n_dims, n_terms)
            print(f"  {n_dims:>2}   {n_terms:>5}   {error:14.1e}   {seconds:7.3f}")
    picture(path)
    print(f"\nA source and its response in three dimensions: {path}")


if __name__ == "__main__":
    main()

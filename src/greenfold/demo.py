"""What `make demo` runs: the fat of meat from its spectrum, from the data to a page to play with."""

import textwrap
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cross_decomposition import PLSRegression
from sklearn.model_selection import GridSearchCV
from threadpoolctl import threadpool_limits
from torch import Tensor

from greenfold.datasets import Spectra, load_tecator
from greenfold.estimators import IGLRegressor
from greenfold.green import GaussHermite, ScreenedPoisson
from greenfold.green.geometry import minus_laplacian

Array = NDArray[np.float64]


def least_squares() -> Any:
    """Partial least squares, the usual tool, with as many components as cross-validation likes best."""
    return GridSearchCV(PLSRegression(), {"n_components": range(1, 30)}, cv=10)


def off(model: Any, X: Array, y: Array) -> float:
    """Root mean square error."""
    return float(np.sqrt(np.mean((np.ravel(model.predict(X)) - y) ** 2)))


def say(text: str) -> None:
    print(textwrap.fill(text, 96))


def story(meat: Spectra) -> IGLRegressor:
    """Fit, compare, doubt, explain."""
    fat = meat.Y[:, meat.names.index("fat")]
    learn, test, beyond = (meat.split == k for k in range(3))
    X, y, X_new, y_new = meat.X[learn], fat[learn], meat.X[test], fat[test]
    say(
        f"An instrument shines light through meat and records {X.shape[1]} wavelengths. How much fat "
        f"is in it? A laboratory has measured {len(X)} samples to learn from and {len(X_new)} to test on."
    )
    start = time.process_time()
    model = IGLRegressor(channels=meat.wavelengths, random_state=0).fit(X, y)
    seconds = time.process_time() - start
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = off(least_squares().fit(X, y), X_new, y_new)
    print(f"\n  IGLRegressor()         off by {off(model, X_new, y_new):.2f} % of fat", end="")
    print(f"   {len(model.gates_)} coordinates, {seconds:.0f} CPU-s, no settings")
    print(f"  partial least squares  off by {peer:.2f} % of fat   components by cross-validation\n")
    say("What competed, with errors at rows left out in standard deviations of the fat:")
    for standing in model.standings_[:4]:
        print(f"  {standing.score:.3f}  {standing.n_dims:>3} coordinates  {standing.name}")
    low, high = model.predict_interval(X_new, alpha=0.1)
    inside = np.mean((low <= y_new) & (y_new <= high))
    strange = model.applicability(meat.X[beyond]).outside.sum()
    print()
    say(
        f"How sure is it? Intervals of 90% are {np.mean(high - low):.1f} % of fat wide and hold "
        f"{inside:.0%} of the test samples. Of {beyond.sum()} samples with more fat or protein than it "
        f"has seen, it flags {strange} whose spectra are unlike the others."
    )
    at = meat.wavelengths[np.abs(model.loadings_).argmax(1)]
    places = " and ".join(f"{v:.0f} nm" for v in at)
    print()
    say(
        f"What are the coordinates? Weighted sums of the spectrum's curvature, strongest at {places}. "
        f"Without the first, R² at rows left out falls by {model.explained_[0]:.2f}."
    )
    return model


def can_draw(path: Path) -> bool:
    """Whether a picture can be drawn; said, and places and endings checked, before the work."""
    if find_spec("matplotlib") is None:
        print("No picture: that needs matplotlib, pip install 'greenfold[plots]'.\n")
        return False
    from matplotlib.figure import Figure

    endings = sorted(Figure().canvas.get_supported_filetypes())
    if path.suffix[1:] not in endings:
        raise ValueError(f"a picture must end in one of {', '.join(endings)}, got {str(path)!r}.")
    path.parent.mkdir(parents=True, exist_ok=True)
    return True


def picture(path: Path, model: IGLRegressor, X: Array, y: Array) -> None:
    """Chart, source and response of a fitted model."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from greenfold import plot

    figure = plot.summary(model, X, y)
    figure.savefig(path, dpi=100)
    plt.close(figure)


KAPPA, SIGMA = 1.0, 0.5


def manufactured(n_dims: int) -> tuple[GaussHermite, Tensor]:
    """A source f = (κ² − Δ)u of rank d + 1 whose solution is known: u(ξ) = e^{−|ξ|²/2σ²}."""
    u = GaussHermite(torch.zeros(1, n_dims, dtype=torch.float64), SIGMA)
    one = torch.ones(1, dtype=torch.float64)
    rest, w = minus_laplacian(u, one)
    order = torch.cat([u.order, rest.order])
    atoms = GaussHermite(torch.zeros(n_dims + 1, n_dims, dtype=torch.float64), SIGMA, order)
    return atoms, torch.cat([KAPPA**2 * one, w])


def solve(n_dims: int, n_terms: int) -> float:
    """Relative error against the exact solution at 2,000 points."""
    atoms, w = manufactured(n_dims)
    generator = torch.Generator().manual_seed(0)
    xi = SIGMA * torch.randn(2000, n_dims, dtype=torch.float64, generator=generator)
    u = ScreenedPoisson(KAPPA, n_terms=n_terms).response(xi, atoms) @ w
    exact = torch.exp(-xi.square().sum(1) / (2 * SIGMA**2))
    return float((u - exact).norm() / exact.norm())


def main(path: Path = Path("demo/chart_source_response.png")) -> None:
    drawn = can_draw(path)
    meat = load_tecator()
    with threadpool_limits(1):  # small matrices: threads would only wait for each other
        model = story(meat)
        page = path.with_name("report.html")
        page.parent.mkdir(parents=True, exist_ok=True)
        learn, fat = meat.split == 0, meat.Y[:, 1]
        model.report(page, meat.X[~learn], fat[~learn])
        if drawn:
            picture(path, model, meat.X[learn], fat[learn])
    print(
        "\nUnderneath, an equation is inverted: (κ² − Δ)u = f in d dimensions, off the exact u by"
    )
    for n_dims in (3, 10):
        errors = ", ".join(f"{solve(n_dims, k):.0e} with {k} terms" for k in (8, 16, 24))
        print(f"  d = {n_dims:>2}: {errors}")
    print(f"\nOpen {page}: close a coordinate, drag a source, solve again.")
    if drawn:
        print(f"Chart, source and response as a picture: {path}")


if __name__ == "__main__":
    main()

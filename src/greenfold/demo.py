"""What `make demo` runs: fit a hidden plane and a real table, and invert an operator exactly."""

import textwrap
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits
from torch import Tensor

from greenfold.datasets import hidden_plane
from greenfold.estimators import IGLRegressor
from greenfold.green import GaussHermite, ScreenedPoisson
from greenfold.green.geometry import minus_laplacian

Array = NDArray[np.float64]


def kernel_ridge(n: int) -> Any:
    """The same rows through scikit-learn's kernel ridge, its width and strength tuned by 5-fold CV."""
    grid = {
        "kernelridge__gamma": np.logspace(-3.5, 0, 8),
        "kernelridge__alpha": np.logspace(-6, 0, 5),
    }
    pipeline = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf"))
    return GridSearchCV(pipeline, grid, cv=min(5, n), scoring="neg_mean_squared_error")


def compare(name: str, X: Array, y: Array) -> IGLRegressor:
    """Fit both on two thirds of the rows and print how they do on the rest."""
    X, X_new, y, y_new = train_test_split(X, y, test_size=1 / 3, random_state=0)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        start = time.process_time()
        model = IGLRegressor(random_state=0).fit(X, y)
        seconds = time.process_time() - start
    low, high = model.predict_interval(X_new)
    inside = np.mean((low <= y_new) & (y_new <= high))
    with warnings.catch_warnings():  # of the nearly singular systems some grid points have
        warnings.simplefilter("ignore")
        start = time.process_time()
        peer = kernel_ridge(len(X)).fit(X - X.mean(0), y - y.mean())
        peer_seconds = time.process_time() - start
        peer_score = r2_score(y_new, peer.predict(X_new - X.mean(0)) + y.mean())
    used = model.standings_[0]
    print(f"{name}: {len(X)} rows of {X.shape[1]} columns")
    print(
        f"  IGLRegressor()       R² {model.score(X_new, y_new):.4f}   {seconds:5.1f} CPU-s, no settings"
    )
    print(
        f"  tuned kernel ridge   R² {peer_score:.4f}   {peer_seconds:5.1f} CPU-s, 40 settings tried"
    )
    print(
        f"  95% intervals are {np.mean(high - low):.3g} wide and hold {inside:.0%} of the new rows"
    )
    print(
        f"  in use: {used.name}, d = {used.n_dims}; it errs by {used.score:.2f} standard deviations of y "
        f"at rows left out; {len(model.standings_) - 1} others competed"
    )
    for note in notes:
        print(
            textwrap.fill(f"note: {note.message}", 96, initial_indent="  ", subsequent_indent="  ")
        )
    print()
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
    with threadpool_limits(1):  # small matrices: threads would only wait for each other
        X, y, _ = hidden_plane(300, 2, noise=0.1)
        compare("A plane in R^100, noise 0.1", X, y)
        X, y, _ = hidden_plane(450, 10, noise=0.1)
        buried = compare("The same target, its two directions buried among ten", X, y)
        if drawn:
            picture(path, buried, X, y)
        compare("Diabetes progression", *load_diabetes(return_X_y=True))
    print(
        "Underneath: (κ² − Δ)u = f, inverted with a source of rank d + 1. Error against the exact u"
    )
    for n_dims in (3, 10):
        errors = ", ".join(f"{solve(n_dims, k):.0e} with {k} terms" for k in (8, 16, 24))
        print(f"  d = {n_dims:>2}: {errors}")
    if drawn:
        print(f"\nChart, source and response of the buried plane: {path}")


if __name__ == "__main__":
    main()

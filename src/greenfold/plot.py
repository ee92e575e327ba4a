"""Figures for papers, with matplotlib: chart, source, response, loadings, effects, dimension, and others.

Every function draws on axes that are given or makes a figure, and returns what it drew on. The page to
play with is `model.report("report.html")`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from greenfold.dims import DimensionReport
from greenfold.estimators import IGLRegressor
from greenfold.estimators.base import Base
from greenfold.green import OPERATORS, Operator, Point
from greenfold.green import operator as operator_by_name
from greenfold.learn.effects import LEAST, Effect, Effects
from greenfold.learn.trainer import History
from greenfold.report import coordinates

Array = NDArray[np.float64]
Plane = tuple[int, int]

SIDE = 121  # points along each side of a field


def chart(model: Any, X: Any, color: Any = None, *, axes: Plane = (0, 1), ax: Any = None) -> Any:
    """Rows on two coordinates of the chart.

    Parameters
    ----------
    model : estimator
        Fitted.
    X : array-like of shape (n, D)
        Rows to show.
    color : array-like of shape (n,), optional
        Numbers, or labels.
    axes : (int, int)
        Which two coordinates.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from greenfold import IGLRegressor, plot
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> model = IGLRegressor("axis", operator="heat", random_state=0).fit(X, X[:, 0] * X[:, 1])
    >>> ax = plot.chart(model, X, color=X[:, 0])
    """
    xi = _coordinates(model, X, axes)
    ax = _axes(ax)
    color = None if color is None else np.asarray(color)
    if color is not None and color.dtype.kind not in "fiu":
        for label in np.unique(color):
            ax.plot(*xi[color == label].T, "o", ms=4, label=str(label))
        ax.legend()
    else:
        dots = ax.scatter(*xi.T, c=color, s=14, cmap="viridis")
        if color is not None:
            ax.figure.colorbar(dots, ax=ax, shrink=0.9)
    return _labeled(ax, "chart  ξ = Ψ(x)", axes)


def source(model: Any, X: Any, *, output: int = 0, axes: Plane = (0, 1), ax: Any = None) -> Any:
    """Where the source atoms sit and how strong they are, over the region of the rows.

    Parameters
    ----------
    model : estimator
        Fitted.
    X : array-like of shape (n, D)
        Rows to show.
    output : int
        Which target or class.
    axes : (int, int)
        Which two coordinates.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from greenfold import IGLRegressor, plot
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> model = IGLRegressor("axis", operator="heat", random_state=0).fit(X, X[:, 0] * X[:, 1])
    >>> ax = plot.source(model, X)
    """
    low, high = _box(_coordinates(model, X, axes))
    ax = _axes(ax)
    with torch.no_grad():
        mu = model.model_.atoms().mu.numpy()[:, axes]
    w = model.source_[:, output].reshape(-1, len(mu)).sum(0)  # over terms with weights of their own
    top = np.abs(w).max() or 1.0
    size = 8 + 60 * np.abs(w) / top
    marks = ax.scatter(
        *mu.T, c=w, cmap="RdBu_r", s=size, vmin=-top, vmax=top, edgecolors="0.6", linewidths=0.4
    )
    ax.figure.colorbar(marks, ax=ax, shrink=0.9)
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    return _labeled(ax, "source  f̂ = Σ w_r φ_r", axes)


@torch.no_grad()
def response(model: Any, X: Any, *, output: int = 0, axes: Plane = (0, 1), ax: Any = None) -> Any:
    """u on a plane of the chart, other coordinates at the mean of the rows.

    In the units of y for a regressor, logits for a classifier, the model's own for an autoencoder.

    Parameters
    ----------
    model : estimator
        Fitted.
    X : array-like of shape (n, D)
        Rows to show.
    output : int
        Which target or class.
    axes : (int, int)
        Which two coordinates.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from greenfold import IGLRegressor, plot
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> model = IGLRegressor("axis", operator="heat", random_state=0).fit(X, X[:, 0] * X[:, 1])
    >>> ax = plot.response(model, X)
    """
    low, high = _box(_coordinates(model, X, axes))
    ax = _axes(ax)
    lines = [np.linspace(low[i], high[i], SIDE) for i in range(2)]
    points = np.tile(model.transform(X).mean(0), (SIDE**2, 1))
    points[:, axes] = np.stack(np.meshgrid(*lines), axis=-1).reshape(-1, 2)
    u = model.model_.decode(torch.from_numpy(points))[:, output].reshape(SIDE, SIDE).numpy()
    if isinstance(model, IGLRegressor):
        y = model.units_.y
        u = (u * y.scale[output] + y.shift[output]) * y.unit
    mesh = ax.pcolormesh(*lines, u, cmap="viridis", rasterized=True)
    ax.contour(*lines, u, 8, colors="white", linewidths=0.5, alpha=0.5)
    ax.figure.colorbar(mesh, ax=ax, shrink=0.9)
    return _labeled(ax, "response  u = L⁻¹f̂", axes)


def summary(model: Any, X: Any, color: Any = None, *, axes: Plane = (0, 1)) -> Any:
    """Chart, source and response side by side.

    Parameters
    ----------
    model : estimator
        Fitted.
    X : array-like of shape (n, D)
        Rows to show.
    color : array-like of shape (n,), optional
        Of the rows on the chart.
    axes : (int, int)
        Which two coordinates.

    Returns
    -------
    Figure

    Examples
    --------
    >>> import numpy as np
    >>> from greenfold import IGLRegressor, plot
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> model = IGLRegressor("axis", operator="heat", random_state=0).fit(X, X[:, 0] * X[:, 1])
    >>> figure = plot.summary(model, X, X[:, 0])
    """
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(12.5, 3.9), layout="constrained")
    chart(model, X, color, axes=axes, ax=panels[0])
    source(model, X, axes=axes, ax=panels[1])
    response(model, X, axes=axes, ax=panels[2])
    for panel in panels:
        panel.set(xlim=panels[1].get_xlim(), ylim=panels[1].get_ylim())
    return figure


def gates(model: Any, *, ax: Any = None) -> Any:
    """How far each coordinate is open, and on the way there where training was filmed.

    Parameters
    ----------
    model : estimator
        Fitted.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from greenfold import IGLRegressor, plot
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> model = IGLRegressor("axis", operator="heat", random_state=0).fit(X, X[:, 0] * X[:, 1])
    >>> ax = plot.gates(model)
    """
    check_is_fitted(model)
    ax = _axes(ax)
    history = getattr(model, "history_", None)
    film = history.film if isinstance(history, History) else None
    if film is not None and len(film.steps) > 1 and np.ptp(film.gates) > 0:
        for j, opened in enumerate(np.transpose(film.gates)):
            ax.plot(film.steps, opened, label=f"ξ{j + 1}")
        ax.set(xlabel="step", ylabel="gate", ylim=(-0.03, 1.03), title="gates")
        ax.legend()
        return ax
    ax.bar(np.arange(1, len(model.gates_) + 1), model.gates_)
    ax.set(xlabel="coordinate", ylabel="gate", ylim=(0, 1.05), title="gates")
    return ax


def loadings(
    model: Any,
    *,
    names: Sequence[str] | None = None,
    image_shape: tuple[int, int] | None = None,
    most: int = 6,
) -> Any:
    """What coordinates are made of, one panel each, those that explain most first.

    Curves over the positions of channels; or, each column by its own standard deviation, pictures if rows
    are images of `image_shape`, and bars for the columns (by their `names`) that move it most.

    Parameters
    ----------
    model : estimator
        Fitted.
    names : sequence of str, optional
        Of the columns.
    image_shape : (int, int), optional
        Height and width of rows that are pictures.
    most : int
        How many coordinates.

    Returns
    -------
    Figure

    Examples
    --------
    >>> import numpy as np
    >>> from greenfold import IGLRegressor, plot
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> model = IGLRegressor("axis", operator="heat", random_state=0).fit(X, X[:, 0] * X[:, 1])
    >>> figure = plot.loadings(model, names=["left", "right"])
    """
    import matplotlib.pyplot as plt

    _check(model)
    found = coordinates.shown(model, names, most)
    if found is None:
        raise ValueError(
            f"the chart has {len(model.gates_)} coordinates, too many to look at each of them."
        )
    D, k = found.loadings.shape[1], len(found.which)
    if image_shape is not None and int(np.prod(image_shape)) != D:
        raise ValueError(f"`image_shape` {tuple(image_shape)} does not have {D} pixels.")
    known = getattr(model, "encoded_names_", None) or [f"x{j}" for j in range(D)]
    columns = list(known if names is None else names)
    curves = image_shape is None and found.positions is not None
    size = (6.5, 1.9 * k) if curves else (3.2 * k, 3.0)
    shape = (k, 1) if curves else (1, k)
    figure, panels = plt.subplots(
        *shape, figsize=size, sharex=curves, squeeze=False, layout="constrained"
    )
    for i, panel in enumerate(panels.flat):
        explained = "" if found.explained is None else f", explains {found.explained[i]:.3f} of R²"
        panel.set_title(f"$\\xi_{{{found.which[i] + 1}}}${explained}", fontsize="medium")
        if image_shape is not None:
            picture = found.sizes[i].reshape(image_shape)
            top = np.abs(picture).max() or 1.0
            panel.imshow(picture, cmap="RdBu_r", vmin=-top, vmax=top)
            panel.set_axis_off()
        elif found.positions is not None:
            order = np.argsort(found.positions)
            panel.axhline(0, color="0.7", lw=0.8)
            panel.plot(found.positions[order], found.loadings[i][order])
            panel.set_ylabel("loading")
        else:
            best = coordinates.largest(found.sizes[i])[::-1]
            panel.barh([str(columns[j]) for j in best], found.sizes[i][best])
            panel.axvline(0, color="0.7", lw=0.8)
    if curves:
        panels[-1, 0].set_xlabel("channel")
    return figure


def effects(model: Any, *, output: int = 0, most: int = 8) -> Any:
    """What columns do, and pairs beyond them, those of the largest share first; returns the Figure.

    Curves have a band that holds them with probability 90% and, below, where the rows are. All share one
    scale, and so do the maps of pairs.

    Parameters
    ----------
    model : estimator or Effects
        With `effects_`, or these themselves.
    output : int
        Which target, or class, where there are several.
    most : int
        How many effects are drawn.

    Returns
    -------
    Figure

    Examples
    --------
    >>> import numpy as np
    >>> from greenfold import IGLRegressor, plot
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> model = IGLRegressor("axis", operator="heat", random_state=0).fit(X, X[:, 0] * X[:, 1])
    >>> figure = plot.effects(model)
    """
    import matplotlib.pyplot as plt

    found = model if isinstance(model, Effects) else model.effects_
    found = found[output] if isinstance(found, list) else found
    shown = [effect for effect in found if effect.share >= LEAST][:most] or list(found[:1])
    across = 3 if len(shown) in (5, 6, 9) else min(4, len(shown))
    down = -(-len(shown) // across)
    size = (3.1 * across, 2.7 * down)
    figure, panels = plt.subplots(down, across, figsize=size, squeeze=False, layout="constrained")
    curves = [e for e in shown if len(e.columns) == 1]
    ends = [e.values + s * (0 if e.band is None else e.band) for e in curves for s in (-1, 1)]
    low, high = (float(f([f(v) for v in ends])) for f in (np.min, np.max)) if ends else (0.0, 1.0)
    room = (high - low) or 1.0
    top = max([float(np.abs(e.values).max()) for e in shown if len(e.columns) == 2] or [1.0])
    mesh = None
    for i, (effect, panel) in enumerate(zip(shown, panels.flat)):
        panel.set_title(f"{' × '.join(effect.columns)}   {effect.share:.1%}", fontsize="medium")
        panel.set_xlabel(effect.columns[0])
        if len(effect.columns) == 1:
            _curve(panel, effect, low - 0.22 * room, high + 0.06 * room)
            panel.set_ylabel("" if i % across else "effect")
        else:
            mesh = _map(panel, effect, top or 1.0)
    if mesh is not None:
        figure.colorbar(mesh, ax=panels[:, -1].tolist(), shrink=0.7, label="effect of a pair")
    for panel in panels.flat[len(shown) :]:
        panel.set_axis_off()
    return figure


def _curve(panel: Any, effect: Effect, low: float, high: float) -> None:
    """One column: its effect, the band, and at the bottom where the rows are."""
    (x,), (weight,), y = effect.grid, effect.weight, effect.values
    levels = x.dtype.kind == "U"
    at = np.arange(len(x)) if levels else x
    panel.axhline(0, color="0.75", lw=0.8)
    if levels:
        panel.errorbar(at, y, effect.band, fmt="o", ms=5, capsize=3, color="C0")
        panel.set_xticks(at, [str(v) for v in x])
        panel.bar(at, 0.14 * (high - low) * weight / weight.max(), 0.6, low, color="0.85")
        panel.margins(x=0.15)
    else:
        if effect.band is not None:
            panel.fill_between(at, y - effect.band, y + effect.band, color="C0", alpha=0.22, lw=0)
        panel.plot(at, y, "C0", lw=1.8, marker="o" if len(x) <= 10 else None, ms=4)
        edges = np.linspace(x[0], x[-1], 25)
        rows = np.diff(np.interp(edges, x, np.cumsum(weight) - weight / 2))
        tall = low + 0.14 * (high - low) * rows / (rows.max() or 1.0)
        panel.stairs(tall, edges, baseline=low, fill=True, color="0.85")
        panel.margins(x=0)
    panel.set_ylim(low, high)


def _map(panel: Any, effect: Effect, top: float) -> Any:
    """Two columns: what they do together beyond each of them."""
    at = [np.arange(len(v)) if v.dtype.kind == "U" else v for v in effect.grid]
    shading = "gouraud" if all(len(v) > 10 for v in at) else "nearest"
    style = {"cmap": "RdBu_r", "vmin": -top, "vmax": top, "rasterized": True}
    mesh = panel.pcolormesh(*at, effect.values.T, shading=shading, **style)
    for axis, grid in zip((panel.xaxis, panel.yaxis), effect.grid):
        if grid.dtype.kind == "U":
            axis.set_ticks(np.arange(len(grid)), [str(v) for v in grid])
    panel.set_ylabel(effect.columns[1])
    return mesh


def dimension(report: DimensionReport | Any) -> Any:
    """The curves behind a `DimensionReport`.

    Parameters
    ----------
    report : DimensionReport or estimator
        Or an estimator with `dimension_`.

    Returns
    -------
    Figure

    Examples
    --------
    >>> import numpy as np
    >>> from greenfold import dimension, plot
    >>> t = np.random.default_rng(0).uniform(0, 2 * np.pi, 120)
    >>> figure = plot.dimension(dimension(np.c_[np.cos(t), np.sin(t)], random_state=0))
    """
    report = getattr(report, "dimension_", report)
    if not isinstance(report, DimensionReport):
        raise ValueError(
            f"expected a DimensionReport or an estimator fitted with n_dims='auto', got "
            f"{type(report).__name__}: greenfold.dimension(X, y) makes one."
        )
    return report.plot()


def greens_functions(
    operators: Sequence[str | Operator] | None = None, *, n_dims: int = 2, reach: float = 3.0
) -> Any:
    """Response of each operator to a point source at the origin, along the first axis.

    Each is divided by its value at 0.1, so that shapes can be compared.

    Parameters
    ----------
    operators : sequence of str or Operator, optional
        All of `OPERATORS` by default.
    n_dims : int
        Of the space.
    reach : float
        How far from the source.

    Returns
    -------
    Figure

    Examples
    --------
    >>> from greenfold import plot
    >>> figure = plot.greens_functions(["heat", "matern"])
    """
    import matplotlib.pyplot as plt

    chosen = sorted(set(OPERATORS) - {"helmholtz"}) if operators is None else operators
    columns = min(4, len(chosen))
    rows = -(-len(chosen) // columns)
    figure, panels = plt.subplots(
        rows, columns, figsize=(3 * columns, 2.4 * rows), squeeze=False, layout="constrained"
    )
    x = torch.linspace(-reach, reach, 301, dtype=torch.float64)
    points = torch.zeros(len(x) + 1, n_dims, dtype=torch.float64)
    points[:-1, 0], points[-1, 0] = x, 0.1
    origin = Point(torch.zeros(1, n_dims, dtype=torch.float64))
    for panel, name in zip(panels.flat, chosen, strict=False):
        made = operator_by_name(name)
        with torch.no_grad():
            G = made.response(points, origin)[:, 0]
        panel.plot(x, G[:-1] / G[-1])
        panel.set(
            title=type(made).__name__, xlabel="ξ₁", ylim=(min(0, float(G.min() / G[-1])), 2.5)
        )
    for panel in panels.flat[len(chosen) :]:
        panel.set_axis_off()
    return figure


def _coordinates(model: Any, X: Any, axes: Plane) -> Array:
    """Two columns of ξ."""
    _check(model)
    xi = model.transform(X)
    if xi.shape[1] < 2 or max(axes) >= xi.shape[1]:
        raise ValueError(
            f"`axes` {tuple(axes)} name two coordinates, and the chart has {xi.shape[1]}."
        )
    return xi[:, axes]


def _check(model: Any) -> None:
    if not isinstance(model, Base):
        raise ValueError(
            f"expected an IGLRegressor, IGLClassifier or IGLAutoencoder, got {type(model).__name__}."
        )
    check_is_fitted(model)


def _box(xi: Array) -> tuple[Array, Array]:
    margin = 0.05 * np.ptp(xi, axis=0)
    return xi.min(0) - margin, xi.max(0) + margin


def _axes(ax: Any) -> Any:
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1] if ax is None else ax


def _labeled(ax: Any, title: str, axes: Plane) -> Any:
    ax.set(title=title, xlabel=f"$\\xi_{{{axes[0] + 1}}}$", ylabel=f"$\\xi_{{{axes[1] + 1}}}$")
    return ax

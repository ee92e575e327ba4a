"""Maps with matplotlib: u with readings, sources and their 90% ellipses, and f of a field."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

Array = NDArray[np.float64]

SIDE = 81


def draw(finder: Any, axes: Any = None) -> Any:
    """On the axes given (two of them for a field), or on a figure of its own; returns the Figure."""
    import matplotlib.pyplot as plt

    d, smooth = finder.n_features_in_, finder.kind == "smooth"
    if d > 3:
        raise ValueError(f"a map has 1 to 3 coordinates, the readings have {d}.")
    if axes is None:
        size = (5.6 * (1 + smooth), 4.4)
        _, axes = plt.subplots(1, 1 + smooth, figsize=size, layout="constrained", squeeze=False)
    panels = np.ravel(axes)
    if len(panels) != 1 + smooth:
        raise ValueError(
            f"`axes` must be {1 + smooth} for kind={finder.kind!r}, got {len(panels)}."
        )
    names = [("u, what is read", finder.predict), ("f, what is emitted", finder.source)]
    for panel, (title, function) in zip(panels, names):
        (_line if d == 1 else _map)(finder, panel, function)
        panel.set_title(title)
    return panels[0].figure


def _line(finder: Any, panel: Any, function: Any) -> None:
    low, high = _view(finder)
    x = np.linspace(low[0], high[0], 4 * SIDE)
    value, std = function(x[:, None], return_std=True)
    panel.fill_between(x, value - 1.645 * std, value + 1.645 * std, alpha=0.25, lw=0)
    panel.plot(x, value)
    if function == finder.predict:
        panel.plot(finder.readings_.middle[:, 0], finder.y_, "o", ms=3, color="0.3")
        for source in getattr(finder, "sources_", []):
            panel.axvline(source.position[0], color="C1", lw=1)
    panel.set_xlabel("x")


def _map(finder: Any, panel: Any, function: Any) -> None:
    from matplotlib.patches import Ellipse

    low, high = _view(finder)
    lines = [np.linspace(low[j], high[j], SIDE) for j in range(2)]
    places = np.stack(np.meshgrid(*lines), -1).reshape(-1, 2)
    sources = getattr(finder, "sources_", [])
    if finder.n_features_in_ == 3:
        z = sources[0].position[2] if sources else finder.region_[:, 2].mean()
        places = np.column_stack([places, np.full(len(places), z)])
        panel.set_xlabel(f"x, at z = {z:.3g}")
    else:
        panel.set_xlabel("x")
    panel.set_ylabel("y")
    value = function(places).reshape(SIDE, SIDE)
    mesh = panel.pcolormesh(*lines, value, cmap="viridis", rasterized=True)
    panel.figure.colorbar(mesh, ax=panel, shrink=0.9)
    where = finder.readings_.middle
    read = finder.y_ if function == finder.predict and finder.readings_.places else "0.8"
    panel.scatter(
        where[:, 0], where[:, 1], c=read, s=16, edgecolors="white", linewidths=0.6, norm=mesh.norm
        if not isinstance(read, str) else None,
    )  # fmt: skip
    d = finder.n_features_in_
    for i, source in enumerate(sources):
        C = finder.covariance_[i * d : i * d + 2, i * d : i * d + 2]
        width, height, angle = ellipse(C, 0.9)
        place = source.position[:2]
        panel.add_patch(Ellipse(place, width, height, angle=angle, fill=False, color="C1", lw=1.6))
        panel.plot(*place, "+", color="C1", ms=7)
        panel.annotate(str(i + 1), place, (6, 5), textcoords="offset points", color="C1")


def ellipse(covariance: Array, level: float) -> tuple[float, float, float]:
    """Width, height and angle (degrees) of what holds a normal vector of the plane with that chance."""
    values, vectors = np.linalg.eigh(covariance)
    width, height = 2 * np.sqrt(chi2.ppf(level, 2) * np.maximum(values[::-1], 0))
    return float(width), float(height), float(np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1])))


def _view(finder: Any) -> tuple[Array, Array]:
    where = finder.readings_
    low = np.minimum(finder.region_[0], where.low.min(0))
    return low, np.maximum(finder.region_[1], where.high.max(0))

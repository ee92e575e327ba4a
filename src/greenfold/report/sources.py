"""The page of a `SourceFinder`: the map, the sources on it, and a hypothetical one to drag.

The page needs no operator: it is told what every reading would be for a source of strength 1 at places of
a grid, and solves for the strength.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from greenfold.provenance import versions
from greenfold.report.pack import filled, packed

Array = NDArray[np.float64]

NUMBERS = 400_000  # of the table of responses
SIDE = 61  # of the maps
SCRIPTS = ("draw.js", "sources.js")


def write(finder: Any, path: str | os.PathLike[str], names: list[str] | None = None) -> Path:
    """Write the page; see `SourceFinder.report`."""
    path = Path(path)
    path.write_text(
        filled("sources.html", content(finder, names), scripts=SCRIPTS), encoding="utf-8"
    )
    return path


def content(finder: Any, names: list[str] | None) -> dict[str, Any]:
    """Everything the page shows, ready for JSON."""
    d, n = finder.n_features_in_, len(finder.y_)
    if d not in (2, 3):
        raise ValueError(
            f"the page is a map of 2 or 3 coordinates, and the readings have {d}; `plot()` draws one."
        )
    names = _names(finder, names)
    plane = _plane(finder)
    lines = [np.linspace(low, high, SIDE) for low, high in _view(finder).T]
    places = _on_plane(lines, plane)
    u, std = finder.predict(places, return_std=True)
    side = int(min(51, max(9, np.sqrt(NUMBERS / n))))
    coarse = [np.linspace(low, high, side + 2)[1:-1] for low, high in finder.region_.T[:2]]
    columns = finder.responses(_on_plane(coarse, plane))  # (n, g)
    where = finder.readings_
    return {
        "title": _title(finder, n),
        "names": names,
        "plane": None if plane is None else {"name": names[2], "at": float(plane)},
        "kind": finder.kind,
        "sign": (finder.sign or "positive") if finder.kind == "sparse" else "any",
        "map": {"x": lines[0].tolist(), "y": lines[1].tolist(), "u": packed(u, "f4"),
                "std": packed(std, "f4"), "f": _source(finder, places)},
        "grid": {"x": coarse[0].tolist(), "y": coarse[1].tolist(), "columns": packed(columns.T, "f4")},
        "readings": {"x": packed(where.middle[:, :2]), "half": packed(where.half[:, :2]),
                     "axis": where.axis.tolist(), "y": packed(finder.y_),
                     "expected": packed(finder.predict(where)), "weight": packed(finder.weight_)},
        "sources": _sources(finder),
        "facts": _facts(finder),
        "check": finder.check_._asdict(),
        "provenance": {"operator": _operator(finder), "versions": ", ".join(
            f"{name} {number}" for name, number in versions().items())},
    }  # fmt: skip


def _names(finder: Any, names: list[str] | None) -> list[str]:
    d = finder.n_features_in_
    if names is None:
        return ["x", "y", "z"][:d]
    if len(names) != d:
        raise ValueError(f"`names` must have {d} entries, got {names}.")
    return [str(name) for name in names]


def _plane(finder: Any) -> float | None:
    """The third coordinate of what is shown: that of the strongest source."""
    if finder.n_features_in_ == 2:
        return None
    sources = getattr(finder, "sources_", [])
    return float(sources[0].position[2] if sources else finder.region_[:, 2].mean())


def _view(finder: Any) -> Array:
    """(2, 2): region and readings, but nothing outside of walls."""
    where = finder.readings_
    low = np.minimum(finder.region_[0], where.low.min(0))
    high = np.maximum(finder.region_[1], where.high.max(0))
    return np.array([low, high])[:, :2]


def _on_plane(lines: list[Array], plane: float | None) -> Array:
    """Places (ny·nx, d), row after row."""
    x, y = np.meshgrid(*lines)
    parts = [x.ravel(), y.ravel()]
    return np.stack(parts if plane is None else [*parts, np.full(x.size, plane)], axis=1)


def _source(finder: Any, places: Array) -> dict[str, Any] | None:
    if finder.kind == "sparse":
        return None
    f, std = finder.source(places, return_std=True)
    return {"f": packed(f, "f4"), "std": packed(std, "f4")}


def _sources(finder: Any) -> list[dict[str, Any]]:
    found, d = getattr(finder, "sources_", []), finder.n_features_in_
    q = finder.interval(0.9)
    return [
        {
            "position": source.position.tolist(),
            "strength": source.strength,
            "position_std": source.position_std.tolist(),
            "strength_std": source.strength_std,
            "strength_90": q["strength"][i].tolist(),
            "covariance": finder.covariance_[i * d : i * d + 2, i * d : i * d + 2].tolist(),
        }
        for i, source in enumerate(found)
    ]


def _facts(finder: Any) -> list[list[str]]:
    total = finder.total_
    rows = [["total", f"{total.value:.4g} ± {total.std:.2g}"]]
    rows += [[name, f"{v.value:.4g} ± {v.std:.2g}"] for name, v in finder.physics_.items()]
    return [
        *rows,
        ["noise of a reading", f"{finder.noise_:.3g}"],
        ["readings", str(len(finder.y_))],
    ]


def _title(finder: Any, n: int) -> str:
    if finder.kind == "smooth":
        return f"A field of sources from {n} readings"
    m = len(finder.sources_)
    return f"{m} source{'' if m == 1 else 's'} from {n} readings"


def _operator(finder: Any) -> str:
    L = finder.operator_
    numbers = {
        "kappa": L.kappa.item(), "wind": L.wind.tolist(), "diffusivity": L.diffusivity.tolist(),
    }  # fmt: skip
    text = ", ".join(f"{name} {_short(value)}" for name, value in numbers.items())
    walls = [side for side in L.sides(finder.n_features_in_) if side is not None]
    where = "; ".join(f"{s.boundary} from {s.low:g} to {s.high:g}" for s in walls) or "free space"
    return f"{text}; {L.release.replace('_', ' ')}; {where}"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "(" + ", ".join(map(_short, value)) + ")"
    return f"{value:.4g}"

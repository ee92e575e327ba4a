"""One page to look at a fitted model: chart, source, response, all of it computed in the page.

    content.py   what the page is told, as JSON; story.py: how the model came about; stacked.py: of stacks
    coordinates.py  what coordinates explain and are made of, for figures and text too
    operator.py  the operator as numbers that green.js can evaluate, or why it cannot
    page.html    the page, with page.css and, in the order they are read:
    green.js     the mathematics: kernels, gates, fields
    solve.js     strengths from rows
    worker.js    solving without making the page wait
    draw.js      pictures on a canvas
    state.js     the model as it stands
    panels.js    chart, response, source, Green's function
    story.js     coordinates, predicted against true, training, dimension, provenance
    effects.js   what columns do, and pairs beyond them
    page.js      controls, pointers and keys
    sources.py   the page of a `SourceFinder`, with sources.html and sources.js

The page is one file without any request: style, scripts and data are put into the HTML.
"""

import os
from pathlib import Path
from typing import Any

from greenfold.report import sources
from greenfold.report.content import content
from greenfold.report.pack import filled

MATHEMATICS = ("green.js", "solve.js")  # apart from the rest: the worker runs them too
SCRIPTS = ("worker.js", "draw.js", "state.js", "panels.js", "story.js", "effects.js", "page.js")


def write(
    model: Any,
    path: str | os.PathLike[str],
    X: Any = None,
    y: Any = None,
    *,
    names: list[str] | None = None,
    target: str | None = None,
    image_shape: tuple[int, ...] | bool | None = None,
    provenance: dict[str, str] | None = None,
) -> Path:
    """Write the page of an estimator; see `IGLRegressor.report`."""
    if hasattr(model, "readings_"):
        if X is not None or y is not None:
            raise ValueError("the page of a SourceFinder shows the readings it has: give no rows.")
        return sources.write(model, path, names)
    told = content(model, X, y, names, target, image_shape, provenance or {})
    path = Path(path)
    path.write_text(page(told), encoding="utf-8")
    return path


def page(told: dict[str, Any]) -> str:
    """The whole page, with what it is told put inside."""
    return filled("page.html", told, mathematics=MATHEMATICS, scripts=SCRIPTS)

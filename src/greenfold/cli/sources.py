"""`sources`: where readings come from."""

from typing import Annotated, Any

import typer

from greenfold.cli.shell import Data, Json, app, note, numbers_of, show, working
from greenfold.output import check_out, write_whole

Numbers = "numbers, with commas"


@app.command()
def sources(
    data: Data,
    reading: Annotated[str, typer.Option("--reading", "-r", help="Column that was read.")],
    x: Annotated[str, typer.Option(help="Column of the first coordinate.")],
    y: Annotated[str | None, typer.Option(help="Of the second.")] = None,
    z: Annotated[str | None, typer.Option(help="Of the third.")] = None,
    kappa: Annotated[float, typer.Option(help="Decay: κ² per time.")] = 0.0,
    wind: Annotated[str, typer.Option(help=f"Of every coordinate: {Numbers}.")] = "0",
    diffusivity: Annotated[str, typer.Option(help=f"One for all, or {Numbers}.")] = "1",
    walls: Annotated[
        str | None, typer.Option(help="Low and high of every coordinate: 0,1,0,1; free if empty.")
    ] = None,
    boundary: Annotated[
        str, typer.Option(help="dirichlet, neumann or periodic: one for all walls, or with commas.")
    ] = "dirichlet",
    release: Annotated[str, typer.Option(help="steady, switched_on or instant.")] = "steady",
    time: Annotated[float | None, typer.Option(help="Since the release began.")] = None,
    region: Annotated[
        str | None, typer.Option(help="Where sources may be: low and high of every coordinate.")
    ] = None,
    kind: Annotated[str, typer.Option(help="sparse or smooth.")] = "sparse",
    sign: Annotated[str | None, typer.Option(help="positive, negative or any.")] = None,
    width: Annotated[float | None, typer.Option(help="Of a source; points if not given.")] = None,
    learn: Annotated[
        str, typer.Option(help="kappa, wind, diffusivity: what to learn, with commas.")
    ] = "",
    weight: Annotated[
        str | None, typer.Option(help="Column: one over the variance of a reading.")
    ] = None,
    max_sources: Annotated[int, typer.Option(help="Of sparse ones, at most.")] = 10,
    more: Annotated[int, typer.Option(help="How many places to read next to suggest.")] = 0,
    out: Annotated[str | None, typer.Option("--out", "-o", help="Model file to write.")] = None,
    page: Annotated[str | None, typer.Option("--report", help="Page to write.")] = None,
    as_json: Json = False,
) -> None:
    """Find sources of what sensors read: how many, where, how strong."""
    from greenfold.green import Transport
    from greenfold.sources import SourceFinder

    names = [name for name in (x, y, z) if name is not None]
    if z is not None and y is None:
        raise ValueError("--z needs --y.")
    for path in (out, page):
        if path is not None:
            check_out(path, data)
    X, c, given = _readings(data, names, reading, weight)
    d = len(names)
    operator = Transport(
        kappa, wind=_listed(wind, "wind", d), diffusivity=_listed(diffusivity, "diffusivity", d),
        domain=_domain(walls, boundary, d), release=release, time=time,
    )  # fmt: skip
    corners = None if region is None else _corners(region, "region", d)
    learned = tuple(name.strip() for name in learn.split(",") if name.strip())
    finder = SourceFinder(operator, corners, kind, sign, width, learned, max_sources)
    with working("looking for sources"):
        finder.fit(X, c, given)
    values = told(finder, names, as_json)
    if more:
        values["read next"] = _next(finder, more, as_json)
    _write(finder, names, reading, out, page)
    show(values, as_json)


def told(finder: Any, names: list[str], as_json: bool = False) -> dict[str, Any]:
    """What was found, in lines or in numbers."""
    found = getattr(finder, "sources_", [])
    if as_json:
        listed: list[Any] = [
            {"position": s.position.tolist(), "position_std": s.position_std.tolist(),
             "strength": s.strength, "strength_std": s.strength_std} for s in found
        ]  # fmt: skip
        numbers: dict[str, Any] = {
            "total": finder.total_._asdict(),
            "physics": {name: v._asdict() for name, v in finder.physics_.items()},
            "check": finder.check_._asdict(),
        }
        return {"readings": len(finder.y_), "sources": listed, **numbers, "noise": finder.noise_}
    listed = []
    for s in found:
        places = zip(names, s.position, s.position_std)
        where = ", ".join(f"{name} {v:.4g} ± {sd:.2g}" for name, v, sd in places)
        listed.append(f"{s.strength:.4g} ± {s.strength_std:.2g} at {where}")
    none = "a field" if finder.kind == "smooth" else "none: readings are no more than noise"
    physics = {name: f"{v.value:.4g} ± {v.std:.2g}" for name, v in finder.physics_.items()}
    return {
        "readings": len(finder.y_),
        "sources": listed or [none],
        "total": f"{finder.total_.value:.4g} ± {finder.total_.std:.2g}",
        **physics,
        "noise": finder.noise_,
        "check": f"{finder.check_.meaning} (z = {finder.check_.z:.1f})",
    }


def _readings(
    data: str, names: list[str], reading: str, weight: str | None
) -> tuple[Any, Any, Any]:
    """Places (n, d), what was read there and its weight, of rows that have all of them."""
    import numpy as np

    from greenfold.rows import Source, column_name, known_rows

    with Source(data) as source:
        table = source.table()
    for text in source.notes:
        note(text)
    columns = [column_name(table.column_names, name) for name in (*names, reading)]
    _, values = table, table.column(columns[-1])
    table, values, lost = known_rows(table, values)
    if lost:
        note(f"{lost} rows left out, their reading is missing")
    options = [*("xyz"[: len(names)]), "reading"]
    found = [numbers_of(table, option, name) for option, name in zip(options, columns)]
    given = None if weight is None else numbers_of(table, "weight", weight)
    return np.stack(found[:-1], axis=1), found[-1], given


def _listed(text: str, option: str, d: int) -> list[float] | float:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--{option} takes {Numbers}, got {text!r}.") from None
    if len(values) not in (1, d):
        raise ValueError(f"--{option} takes 1 or {d} numbers, one per coordinate, got {text!r}.")
    return values[0] if len(values) == 1 else values


def _corners(text: str, option: str, d: int) -> list[list[float]]:
    """Lower and upper corner of low,high,low,high…"""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != 2 * d:
        raise ValueError(
            f"--{option} takes low and high of every coordinate, {2 * d} {Numbers}, got {text!r}."
        )
    return [values[::2], values[1::2]]


def _domain(walls: str | None, boundary: str, d: int) -> Any:
    from greenfold.green import Interval

    if walls is None:
        if boundary != "dirichlet":
            raise ValueError("--boundary says what walls are like: give --walls with it.")
        return None
    low, high = _corners(walls, "walls", d)
    kinds = [kind.strip() for kind in boundary.split(",")]
    if len(kinds) not in (1, d):
        raise ValueError(f"--boundary takes 1 or {d} kinds, one per coordinate, got {boundary!r}.")
    kinds = kinds * d if len(kinds) == 1 else kinds
    return [Interval(*ends) for ends in zip(low, high, kinds)]


def _next(finder: Any, n: int, as_json: bool) -> list[Any]:
    """Places to read next, of a grid over the region."""
    candidates = finder.places(900)
    found = finder.suggest(candidates, n)
    rows = [(candidates[i].tolist(), float(sd)) for i, sd in zip(found.indices, found.std)]
    if as_json:
        return [{"position": place, "total_std": sd} for place, sd in rows]
    return [f"{', '.join(f'{v:.4g}' for v in p)}: total then ± {sd:.2g}" for p, sd in rows]


def _write(finder: Any, names: list[str], reading: str, out: str | None, page: str | None) -> None:
    from greenfold.io import to_bytes
    from greenfold.table import Table, TableModel

    if out is not None:
        write_whole(out, to_bytes(TableModel(Table.plain(names), finder, reading)))
    if page is not None:
        finder.report(page, names=names)

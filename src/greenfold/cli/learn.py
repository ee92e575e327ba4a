"""`fit` and `dimension`: what learns from a table."""

import json
import os
import sys
import time
from typing import Annotated, Any

import numpy as np
import typer

import greenfold
from greenfold import io
from greenfold.cli.shell import Data, Json, Seed, app, note, show, working
from greenfold.table import Table, TableModel


@app.command()
def fit(
    data: Data,
    out: Annotated[str, typer.Option("--out", "-o", help="Model file to write; - for a pipe.")],
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="Column to predict, by name or number.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Columns to predict from, with commas; all others by default."),
    ] = None,
    task: Annotated[
        str, typer.Option(help="auto, regression, classification or reconstruction (no target).")
    ] = "auto",
    estimator: Annotated[
        str | None, typer.Option(help="Class of greenfold to fit; the task's own by default.")
    ] = None,
    chart: Annotated[str | None, typer.Option(help="Kind of chart, such as mlp.")] = None,
    n_dims: Annotated[int | None, typer.Option(help="Chart dimension.")] = None,
    operator: Annotated[str | None, typer.Option(help="Operator by name, such as poisson.")] = None,
    effort: Annotated[str | None, typer.Option(help="fast, normal or full.")] = None,
    max_iter: Annotated[int | None, typer.Option(help="Iterations for a given chart.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other parameter of the estimator, as name=value."),
    ] = None,
    random_state: Seed = None,
    as_json: Json = False,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream", help="Read a block at a time: parquet, arrow, npy; folders, patterns."
        ),
    ] = False,
    epochs: Annotated[int, typer.Option(help="With --stream: passes of training.")] = 3,
    steps: Annotated[int | None, typer.Option(help="With --stream: steps in an epoch.")] = None,
    batch_size: Annotated[int, typer.Option(help="With --stream: rows of a step.")] = 4096,
    blocks: Annotated[int, typer.Option(help="With --stream: most processes to share it.")] = 16,
    checkpoint: Annotated[
        str | None, typer.Option(help="With --stream: folder to go on from after a stop.")
    ] = None,
    every: Annotated[int, typer.Option(help="With --stream: steps between checkpoints.")] = 100,
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="With --stream: any number of processes, same bits."),
    ] = False,
    first_decides: Annotated[
        bool, typer.Option("--first-decides", help="With --stream: for mixed machines.")
    ] = False,
) -> None:
    """Fit a model to a table and write it to a file."""
    from greenfold.rows import Source

    given = {
        "chart": chart, "n_dims": n_dims, "operator": operator, "effort": effort,
        "max_iter": max_iter, "random_state": random_state,
    }  # fmt: skip
    params = {k: v for k, v in given.items() if v is not None} | _settings(settings or [])
    if stream:
        options = {
            "epochs": epochs, "steps": steps, "batch_size": batch_size, "blocks": blocks,
            "checkpoint": checkpoint, "every": every, "deterministic": deterministic,
            "first_decides": first_decides,
        }  # fmt: skip
        names = None if columns is None else [name.strip() for name in columns.split(",")]
        _fit_stream(data, out, target, names, task, estimator, params, options, as_json)
        return
    table = _columns(Source(data).table(), columns, target)
    frame, y, task, notes = _target(table, target, task)
    encoder = Table.learn(frame)
    model = _estimator(estimator or TASKS[task], params)
    X = encoder.encode(frame)
    start = time.perf_counter()
    with working("fitting", model):
        model.fit(X, y)
    seconds = time.perf_counter() - start
    name = None if target is None else (set(table.column_names) - set(frame.column_names)).pop()
    _write(TableModel(encoder, model, name), out)
    values: dict[str, Any] = {
        "model": out, "estimator": type(model).__name__, "task": task, "target": name,
        "rows": len(X), "columns": X.shape[1], "coordinates": _n_coordinates(model),
        **_score(model, X, y), "seconds": round(seconds, 2), "notes": notes + encoder.notes,
    }  # fmt: skip
    _show(values, out, as_json)


def _write(model: TableModel, out: str) -> None:
    content = io.to_bytes(model)
    if out == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        io.write_whole(out, content)


def _show(values: dict[str, Any], out: str, as_json: bool) -> None:
    if not as_json:
        for text in values.pop("notes"):
            note(text)
    show({k: v for k, v in values.items() if v is not None}, as_json, err=out == "-")


def _fit_stream(
    data: str,
    out: str,
    target: str | None,
    columns: list[str] | None,
    task: str,
    estimator: str | None,
    params: dict[str, Any],
    options: dict[str, Any],
    as_json: bool,
) -> None:
    """`fit --stream`, in one process or in each of those that were launched together."""
    if target is None or task not in ("auto", "regression", "classification"):
        raise ValueError("--stream needs a --target, and the task regression or classification.")
    rows = greenfold.stream(data, target=target, columns=columns)
    if task == "auto":
        task = "classification" if rows.has_labels else "regression"
    if task == "classification":
        params = {"loss": "least_squares"} | params
    model = _estimator(estimator or TASKS[task], params)
    if not hasattr(model, "fit_stream"):
        raise ValueError(f"{type(model).__name__} cannot be fitted to a stream.")
    start = time.perf_counter()
    with working("fitting", model):
        model.fit_stream(rows, **options)
    if int(os.environ.get("RANK", "0")):  # the first process has it all
        return
    assert rows.table is not None
    _write(TableModel(rows.table, model, rows.target_name), out)
    X, Y, _ = model._sample
    y = model.classes_[Y.argmax(1)] if task == "classification" else Y
    values: dict[str, Any] = {
        "model": out, "estimator": type(model).__name__, "task": task, "target": rows.target_name,
        "rows": model._fitted_to[0], "columns": X.shape[1], "coordinates": _n_coordinates(model),
        **_score(model, X, y), "seconds": round(time.perf_counter() - start, 2),
        "notes": rows.table.notes,
    }  # fmt: skip
    _show(values, out, as_json)


TASKS = {
    "regression": "IGLRegressor",
    "classification": "IGLClassifier",
    "reconstruction": "IGLAutoencoder",
}


def _columns(table: Any, columns: str | None, target: str | None) -> Any:
    if columns is None:
        return table
    names = [name.strip() for name in columns.split(",")]
    unknown = [name for name in names if name not in table.column_names]
    if unknown:
        raise ValueError(f"there are no columns {unknown}; there are {table.column_names}.")
    keep = names if target is None or target in names else [*names, target]
    if target is not None and target not in table.column_names:
        raise ValueError(f"with --columns, --target goes by name; {target!r} is no column.")
    return table.select(keep)


def _target(table: Any, target: str | None, task: str) -> tuple[Any, Any, str, list[str]]:
    """Columns to learn from, y, the task, and what there is to say about them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from greenfold.rows import known_rows, target_column
    from greenfold.table import is_text

    if task not in ("auto", *TASKS):
        raise ValueError(f"--task must be auto, {', '.join(TASKS)}, got {task!r}.")
    if target is None:
        if task != "reconstruction":
            raise ValueError("--target is missing: which column is to be predicted?")
        return table, None, task, []
    if task == "reconstruction":
        raise ValueError("--task reconstruction rebuilds the columns and takes no --target.")
    frame, values = target_column(table, target)
    frame, values, lost = known_rows(frame, values)
    notes = [f"{lost} rows left out, their target is missing"] if lost else []
    if not len(values):
        raise ValueError("no row has a target.")
    labels = is_text(values.type) or pa.types.is_boolean(values.type)
    if task == "auto":
        few = pa.types.is_integer(values.type) and 10 * len(pc.unique(values)) <= len(values)
        few = few and len(pc.unique(values)) <= 10
        task = "classification" if labels or few else "regression"
        if few:
            notes.append(
                f"{target} holds {len(pc.unique(values))} different whole numbers, taken as classes; "
                "--task regression for numbers"
            )
    if task == "regression" and is_text(values.type):
        raise ValueError(f"--task regression needs numbers, and {target} holds text.")
    if pa.types.is_dictionary(values.type):
        values = pc.cast(values, values.type.value_type)
    y = values.to_numpy()
    return frame, y.astype(np.float64) if task == "regression" else y, task, notes


def _settings(pairs: list[str]) -> dict[str, Any]:
    values = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ValueError(f"--set takes name=value, got {pair!r}.")
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


def _estimator(name: str, params: dict[str, Any]) -> Any:
    cls = getattr(greenfold, name, None)
    if name not in greenfold.__all__ or not hasattr(cls, "fit"):
        known = [n for n in greenfold.__all__ if hasattr(getattr(greenfold, n), "fit")]
        raise ValueError(f"unknown estimator {name!r}; there are {', '.join(known)}.")
    assert cls is not None
    model = cls()
    unknown = sorted(set(params) - set(model.get_params()))
    if unknown:
        raise ValueError(
            f"{name} has no parameter {', '.join(unknown)}; it has {', '.join(model.get_params())}."
        )
    return model.set_params(**params)


def _n_coordinates(model: Any) -> int | None:
    return len(model.gates_) if hasattr(model, "gates_") else None


def _score(model: Any, X: Any, y: Any) -> dict[str, float]:
    known = getattr(getattr(model, "_posterior", None), "loo_r2", None)
    if known is not None:
        return {"R2 (leave-one-out)": float(known)}
    what = "accuracy" if hasattr(model, "classes_") else "R2"
    return {f"{what} (on these rows)": float(model.score(X, y))}


@app.command()
def dimension(
    data: Data,
    target: Annotated[str | None, typer.Option("--target", "-t", help="Column to predict.")] = None,
    columns: Annotated[str | None, typer.Option(help="Columns to look at, with commas.")] = None,
    scale: Annotated[
        bool, typer.Option("--scale", help="Divide every column by its standard deviation first.")
    ] = False,
    random_state: Seed = None,
    as_json: Json = False,
) -> None:
    """How many coordinates the data have, a chart needs, and the target uses."""
    from greenfold.rows import Source

    table = _columns(Source(data).table(), columns, target)
    task = "reconstruction" if target is None else "auto"
    frame, y, _, notes = _target(table, target, task)
    encoder = Table.learn(frame)
    X = encoder.encode(frame)
    spread = X.std(0)
    if scale:
        X = X / spread
    elif spread.max() > 10 * spread.min():
        ratio = spread.max() / spread.min()
        notes.append(
            f"columns differ in scale by a factor of {ratio:.3g}; --scale makes them equal"
        )
    with working("counting"):
        report = greenfold.dimension(X, y, random_state=random_state)
    for text in notes + encoder.notes:
        note(text)
    if not as_json:
        typer.echo(str(report))
        return
    parts = {name: getattr(report, name, None) for name in ("intrinsic", "chart", "task")}
    values = {
        name: {end: _number(getattr(part, end)) for end in ("value", "low", "high")}
        for name, part in parts.items()
        if part is not None
    }
    show(values, True)


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value

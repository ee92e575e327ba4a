"""`fit` and `dimension`: what learns from a table."""

import json
import os
import sys
import time
import warnings
from typing import TYPE_CHECKING, Annotated, Any

import typer

from greenfold.cli.shell import Data, Json, Seed, app, note, numbers_of, show, working
from greenfold.output import check_out, write_whole

if TYPE_CHECKING:
    from greenfold.table import TableModel

Drop = Annotated[str | None, typer.Option(help="Columns to leave out, with commas.")]


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
    drop: Drop = None,
    task: Annotated[
        str, typer.Option(help="auto, regression, classification or reconstruction (no target).")
    ] = "auto",
    estimator: Annotated[
        str | None, typer.Option(help="Class of greenfold to fit; the task's own by default.")
    ] = None,
    chart: Annotated[str | None, typer.Option(help="Kind of chart, such as mlp.")] = None,
    n_dims: Annotated[int | None, typer.Option(help="Chart dimension.")] = None,
    operator: Annotated[str | None, typer.Option(help="Operator by name, such as poisson.")] = None,
    likelihood: Annotated[
        str | None,
        typer.Option(help="gaussian, poisson, negative_binomial, student_t or lognormal."),
    ] = None,
    quantiles: Annotated[
        str | None, typer.Option(help="Quantiles to predict, with commas, such as 0.05,0.5,0.95.")
    ] = None,
    exposure: Annotated[str | None, typer.Option(help="Column that counts are counted in.")] = None,
    censored: Annotated[
        str | None,
        typer.Option(help="Column of 0 and 1: 1 where the target is only known to be larger."),
    ] = None,
    unlabeled: Annotated[
        bool,
        typer.Option(
            "--unlabeled", help="Learn from rows without a target, too: how columns look."
        ),
    ] = False,
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
    from greenfold.cli.target import TASKS, problem
    from greenfold.estimators.labels import UnlabeledWarning
    from greenfold.table import Table, TableModel

    given = {
        "chart": chart, "n_dims": n_dims, "operator": operator, "effort": effort,
        "max_iter": max_iter, "random_state": random_state,
        "likelihood": _likelihood(likelihood, quantiles),
    }  # fmt: skip
    params = {k: v for k, v in given.items() if v is not None} | _settings(settings or [])
    check_out(out, data)
    task = "regression" if task == "auto" and (likelihood or quantiles) else task
    if unlabeled and (stream or exposure or censored):
        raise ValueError("--unlabeled goes with none of --stream, --exposure and --censored.")
    if stream:
        if exposure or censored:
            raise ValueError("--stream has no --exposure or --censored: fit rows in memory.")
        options = {
            "epochs": epochs, "steps": steps, "batch_size": batch_size, "blocks": blocks,
            "checkpoint": checkpoint, "every": every, "deterministic": deterministic,
            "first_decides": first_decides,
        }  # fmt: skip
        _fit_stream(data, out, target, columns, drop, task, estimator, params, options, as_json)
        return
    table, target, notes = _read(data, target, columns, drop)
    frame, y, task, said, known = problem(table, target, task, unlabeled)
    frame, told = _beside(frame, exposure=exposure, censored=censored)
    # pictures keep pixels that never change
    encoder = Table.learn(frame, strict=bool(params.get("image_shape")))
    channels, seen = _channels(encoder.names, estimator or TASKS[task], params)
    model = _estimator(estimator or TASKS[task], params | channels)
    X = encoder.encode(frame)
    notes = [*notes, *said, *encoder.notes, *seen]
    for text in notes:
        note(text)
    start = time.perf_counter()
    with working("fitting", model), warnings.catch_warnings():
        warnings.simplefilter("ignore", UnlabeledWarning)  # a note says so
        model.fit(X, y, **told)
    seconds = time.perf_counter() - start
    _write(TableModel(encoder, model, target), out)
    values = _result(
        model,
        task,
        target,
        out,
        X[:known],
        y if known is None else y[:known],
        len(X),
        encoder.names,
    )
    _show(values | {"seconds": round(seconds, 2), "notes": notes}, out, as_json)


def _read(
    data: str, target: str | None, columns: str | None, drop: str | None
) -> tuple[Any, str | None, list[str]]:
    """The columns asked for with the target, the target by its name, and notes about the file."""
    from greenfold.rows import Source, column_name

    with Source(data) as source:
        target = None if target is None else column_name(source.names, target)
        names = _chosen(source.names, columns, drop, target)
        return source.table().select(names), target, source.notes


def _chosen(
    names: list[str], columns: str | None, drop: str | None, target: str | None
) -> list[str]:
    """Names of the columns to use, the target among them."""
    wanted = names if columns is None else _split(columns)
    without = [] if drop is None else _split(drop)
    unknown = [name for name in [*wanted, *without] if name not in names]
    if unknown:
        from greenfold.table import listed

        raise ValueError(f"there are no columns {listed(unknown)}; there are {listed(names)}.")
    kept = [name for name in dict.fromkeys(wanted) if name not in without and name != target]
    if not kept:
        raise ValueError(f"there is no column to learn from besides the target {target!r}.")
    return kept if target is None else [*kept, target]


def _split(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _write(model: "TableModel", out: str) -> None:
    from greenfold.io import to_bytes

    content = to_bytes(model)
    if out == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        write_whole(out, content)


def _show(values: dict[str, Any], out: str, as_json: bool) -> None:
    if not as_json:
        del values["notes"]  # told already
    show({k: v for k, v in values.items() if v is not None}, as_json, err=out == "-")


def _fit_stream(
    data: str,
    out: str,
    target: str | None,
    columns: str | None,
    drop: str | None,
    task: str,
    estimator: str | None,
    params: dict[str, Any],
    options: dict[str, Any],
    as_json: bool,
) -> None:
    """`fit --stream`, in one process or in each of those that were launched together."""
    from greenfold.cli.target import TASKS, refuse_names
    from greenfold.scale.files import Tables
    from greenfold.scale.streams import stream
    from greenfold.table import TableModel, is_text

    if target is None or task not in ("auto", "regression", "classification"):
        raise ValueError("--stream needs a --target, and the task regression or classification.")
    rows = stream(data, target=target)
    first = int(os.environ.get("RANK", "0")) == 0
    if isinstance(rows, Tables):
        names = [*rows.columns, rows.target]
        rows.columns = _chosen(names, columns, drop, rows.target)[:-1]
    elif columns is not None or drop is not None:
        raise ValueError("--columns and --drop need columns with names: parquet or arrow files.")
    if task == "auto":
        task = "classification" if rows.has_labels else "regression"
        beginning = next(rows.parts(0, 1, None, 0)) if rows.has_labels else None
        if beginning is not None and is_text(beginning.column(rows.target_name).type):
            refuse_names(beginning.column(rows.target_name), str(rows.target_name))
    model = _estimator(estimator or TASKS[task], params)
    if not hasattr(model, "fit_stream"):
        raise ValueError(f"{type(model).__name__} cannot be fitted to a stream.")
    learn = rows.learn

    def learn_and_tell(sample: Any) -> None:
        learn(sample)
        for text in rows.table.notes if rows.table is not None and first else []:
            note(text)

    rows.learn = learn_and_tell  # type: ignore[method-assign]
    start = time.perf_counter()
    with working("fitting", model):
        model.fit_stream(rows, **options)
    if not first:  # which has it all
        return
    assert rows.table is not None
    model = TableModel.of(model).estimator
    _write(TableModel(rows.table, model, rows.target_name), out)
    X, Y, _ = model.sample_
    y = model.classes_[Y.argmax(1)] if task == "classification" else Y
    known = rows.table.names, model.fitted_to_[0]
    values = _result(model, task, rows.target_name, out, X, y, known[1], known[0])
    seconds = time.perf_counter() - start
    _show(values | {"seconds": round(seconds, 2), "notes": rows.table.notes}, out, as_json)


def _likelihood(name: str | None, quantiles: str | None) -> Any:
    """What is asked for by name or by levels."""
    if quantiles is None:
        return name
    if name is not None:
        raise ValueError("--likelihood and --quantiles are two answers to one question: give one.")
    from greenfold.likelihoods import Quantile

    try:
        return Quantile([float(level) for level in _split(quantiles)])
    except ValueError as error:
        raise ValueError(f"--quantiles {quantiles} cannot be used: {error}") from error


def _beside(frame: Any, **columns: str | None) -> tuple[Any, dict[str, Any]]:
    """Columns to learn from, and those that say something else of a row, as numbers."""
    from greenfold.rows import column_name

    told = {}
    for name, column in columns.items():
        if column is None:
            continue
        column = column_name(frame.column_names, column)
        told[name] = numbers_of(frame, name, column)
        frame = frame.drop_columns([column])
    return frame, told


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


def _channels(
    names: list[str], estimator: str, params: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Positions of columns whose names are numbers in an order, for estimators that ask; and a note."""
    from greenfold import estimators
    from greenfold.channels import positions_in, some_positions
    from greenfold.estimators.options import defaults_on_one_level

    cls = getattr(estimators, estimator, None)
    asks = cls is not None and "channels" in defaults_on_one_level(cls)
    free = params.get("chart", "auto") == params.get("operator", "auto") == "auto"
    if not asks or not free or "channels" in params:
        return {}, []
    at = positions_in(names)
    if at is not None:
        return {"channels": at.tolist()}, [
            f"{names[0]} … {names[-1]}: {len(names)} columns named by numbers, taken as channels in "
            "this order (--set channels=false if they are not)"
        ]
    some = some_positions(names)
    if not some:
        return {}, []
    others = [name for name in names if name not in set(some)]
    return {}, [
        f"{some[0]} … {some[-1]}: {len(some)} columns are named by numbers; without the other "
        f"{len(others)} (--drop {','.join(others[:3])}{',…' if len(others) > 3 else ''}) they are taken "
        "as channels"
    ]


def _estimator(name: str, params: dict[str, Any]) -> Any:
    from greenfold import estimators
    from greenfold.estimators.options import defaults_on_one_level
    from greenfold.spec import nested

    if name not in estimators.__all__:
        there = ", ".join(estimators.__all__)
        raise ValueError(f"unknown estimator {name!r}; there are {there}.")
    cls = getattr(estimators, name)
    known = sorted(defaults_on_one_level(cls))
    unknown = sorted(set(params) - set(known))
    if unknown:
        raise ValueError(
            f"{name} has no parameter {', '.join(unknown)}; it has {', '.join(known)}."
        )
    return cls(**nested(params))


def _result(
    model: Any, task: str, target: str | None, out: str, X: Any, y: Any, rows: int, names: list[str]
) -> dict[str, Any]:
    """What was fitted to what, and how well."""
    from greenfold.cli.about import about, score

    told = about(model, names) | {"rows": rows, "columns": X.shape[1]}
    if not score(model) or task == "classification":
        what = "accuracy" if task == "classification" else "R2"
        told[f"{what} (on these rows)"] = float(model.score(X, y))
    order = ("rows", "columns", "coordinates")
    first = {"model": out, "estimator": type(model).__name__, "task": task, "target": target}
    return first | {k: told.pop(k) for k in order if k in told} | told


@app.command()
def dimension(
    data: Data,
    target: Annotated[str | None, typer.Option("--target", "-t", help="Column to predict.")] = None,
    columns: Annotated[str | None, typer.Option(help="Columns to look at, with commas.")] = None,
    drop: Drop = None,
    scale: Annotated[
        bool, typer.Option("--scale", help="Divide every column by its standard deviation first.")
    ] = False,
    random_state: Seed = None,
    as_json: Json = False,
) -> None:
    """Count coordinates: of the data, of a chart, of the target."""
    from greenfold.cli.target import problem
    from greenfold.dims import dimension as count
    from greenfold.table import Table

    table, target, notes = _read(data, target, columns, drop)
    frame, y, _, said, _ = problem(table, target, "reconstruction" if target is None else "auto")
    encoder = Table.learn(frame)
    X = encoder.encode(frame)
    notes += said + encoder.notes
    spread = X.std(0)
    if scale:
        X = X / spread
    elif spread.max() > 10 * spread.min():
        ratio = spread.max() / spread.min()
        notes.append(
            f"columns differ in scale by a factor of {ratio:.3g}; --scale makes them equal"
        )
    for text in notes:
        note(text)
    with working("counting"):
        report = count(X, y, random_state=random_state)
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
    return value.item() if hasattr(value, "item") else value

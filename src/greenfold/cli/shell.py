"""What all commands share: the application, errors in one line, notes, results, bars, model files."""

import contextlib
import json
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from tqdm import tqdm
from typer.core import TyperGroup

from greenfold.scale.launch import stop_launcher
from greenfold.version import __version__

if TYPE_CHECKING:
    from greenfold.table import Column, TableModel

EXPECTED = (ValueError, TypeError, OSError, ImportError, RuntimeError, MemoryError)


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
            except (typer.Exit, typer.Abort):  # RuntimeErrors, but the end of a command
                raise
            except BrokenPipeError:  # the reader of a pipe has had enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise typer.Exit(0) from None
            except EXPECTED as error:
                if self.debug:
                    traceback.print_exc()
                typer.echo(f"greenfold: {_one_line(error)}", err=True)
                stop_launcher(error)
                raise typer.Exit(1) from None


app = typer.Typer(
    name="greenfold",
    cls=Commands,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Supervised learning on a learned chart, by inverting linear operators.",
    epilog="--debug, anywhere, shows the trace of an error.",
)


@app.callback(invoke_without_command=True)
def main(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"greenfold {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if "Connection closed by peer" in str(error):
        return "another process of the group has ended, so this one does too."
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


@contextlib.contextmanager
def working(what: str, model: Any = None) -> Iterator[None]:
    """What a fit tells of its rounds or iterations, and a clock: on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    if model is not None:
        model.set_params(verbose=1)
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
        if model is not None:
            model.set_params(verbose=0)


def read_model(path: str, module: Any = ()) -> "TableModel":
    """A model with a table; those saved from Python take their columns by name or in order."""
    from greenfold.io import from_bytes
    from greenfold.table import TableModel

    content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    model = from_bytes(content, module)
    if isinstance(model, TableModel):
        return model
    if not hasattr(model, "predict"):
        raise ValueError(f"{path} holds a {type(model).__name__}, which has no predict.")
    return TableModel.of(model)


def columns_for(fitted: "TableModel", names: list[str], where: str) -> "list[Column]":
    """Columns to read for a model from a table with these; estimators fitted to arrays take them all."""
    from greenfold.table import Table, listed

    if not fitted.table.columns:
        n = fitted.estimator.n_features_in_
        if len(names) != n:
            raise ValueError(
                f"the model was fitted to an array and takes {n} columns in order; {where} has "
                f"{len(names)}: {listed(names)}."
            )
        fitted.table = Table.plain(names)
    fitted.table.check(names, where)
    return fitted.table.needed


def numbers_of(table: Any, option: str, column: str) -> Any:
    """A column that says something of every row beside X and y, as numbers (n,)."""
    values = table.column(column)
    if values.null_count:
        raise ValueError(f"--{option} {column} has {values.null_count} missing values.")
    try:
        return values.to_numpy().astype(float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"--{option} {column} must hold numbers: {error}.") from error


def encode(fitted: "TableModel", batch: Any) -> Any:
    import numpy as np

    from greenfold.table import listed

    X = fitted.table.encode(batch)
    if np.isnan(X).any():
        lost = [name for name, x in zip(fitted.table.names, X.T, strict=True) if np.isnan(x).any()]
        raise ValueError(
            f"values are missing in {listed(lost)}, and the model was fitted without a "
            "table that says what to put there."
        )
    return X

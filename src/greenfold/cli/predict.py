"""`predict`: rows in, rows out."""

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from tqdm import tqdm

from greenfold.cli.shell import (
    Data,
    Json,
    Model,
    app,
    columns_for,
    encode,
    note,
    numbers_of,
    read_model,
)
from greenfold.output import check_out

if TYPE_CHECKING:
    from greenfold.table import TableModel


@app.command()
def predict(
    model: Model,
    data: Data,
    out: Annotated[str, typer.Option("--out", "-o", help="File to write; standard output.")] = "-",
    exposure: Annotated[
        str | None, typer.Option(help="Column that counts are counted in; 1 unless given.")
    ] = None,
    std: Annotated[bool, typer.Option("--std", help="Add standard deviations.")] = False,
    interval: Annotated[
        float | None, typer.Option(help="Add ends that cover with this probability, such as 0.9.")
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Add probabilities of the classes.")
    ] = False,
    applicability: Annotated[
        bool, typer.Option("--applicability", help="Add how far rows lie from those learned from.")
    ] = False,
    transform: Annotated[
        bool, typer.Option("--transform", help="Chart coordinates in place of predictions.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Predict every row of a table, a few thousand rows at a time."""
    from greenfold.rows import Source, column_name
    from greenfold.sink import Sink
    from greenfold.table import Column

    if model == "-" and data == "-":
        raise ValueError("model and data cannot both come from the pipe.")
    if interval is not None and not 0 < interval < 1:
        raise ValueError(f"--interval must lie between 0 and 1, got {interval}.")
    check_out(out, data, model)
    fitted = read_model(model)
    wishes = Wishes(std, interval, proba, applicability, transform)
    wishes.check(fitted.estimator)
    with Source(data) as source:
        columns = columns_for(fitted, source.names, source.name)
        if exposure is not None:
            exposure = column_name(source.names, exposure)
            columns = [*columns, Column(exposure, "double")]
        elif getattr(law_of(fitted.estimator), "beside", None) == "exposure":
            note("counts are for an exposure of 1; --exposure names the column that has others")
        for text in source.notes:
            note(text)
        bar = tqdm(unit=" rows", disable=not sys.stderr.isatty(), leave=False)
        n_rows = 0
        with (
            bar,
            contextlib.closing(source.batches(columns)) as batches,
            Sink(out, as_json) as sink,
        ):
            for batch in batches:
                if batch.num_rows:
                    told = (
                        {}
                        if exposure is None
                        else {"exposure": numbers_of(batch, "exposure", exposure)}
                    )
                    sink.write(_answers(fitted, encode(fitted, batch), wishes, told))
                    bar.update(batch.num_rows)
                    n_rows += batch.num_rows
            if not n_rows:
                raise ValueError(f"{source.name} has no rows.")


def law_of(model: Any) -> Any:
    """The likelihood that it was fitted under, if it knows of any."""
    return getattr(getattr(model, "units_", None), "law", None)


class Wishes(NamedTuple):
    """What is asked for beside predictions, or in place of them."""

    std: bool
    interval: float | None
    proba: bool
    applicability: bool
    transform: bool

    def check(self, model: Any) -> None:
        """Refuse what the estimator cannot answer."""
        asked = [name for name, value in self._asdict().items() if value]
        for name in asked:
            if not hasattr(model, METHODS[name]):
                raise ValueError(f"{type(model).__name__} has no --{name}.")
        if self.transform and len(asked) > 1:
            raise ValueError("--transform gives coordinates only; ask for the rest without it.")


METHODS = {  # that answer them
    "std": "predict_interval",
    "interval": "predict_interval",
    "proba": "predict_proba",
    "applicability": "applicability",
    "transform": "transform",
}


def _answers(fitted: "TableModel", X: Any, wishes: Wishes, told: dict[str, Any]) -> dict[str, Any]:
    model, name = fitted.estimator, fitted.target or "prediction"
    if wishes.transform:
        return {f"xi{j}": v for j, v in enumerate(model.transform(X).T)}
    if wishes.std:
        y, spread = model.predict(X, return_std=True, **told)
    else:
        y, spread = model.predict(X, **told), None
    names, law = None, law_of(model)
    if law is not None:
        names = law.names(name)
    elif hasattr(model, "inverse_transform"):
        names = fitted.table.names
    columns = _named(name, y, names)
    if spread is not None:
        columns |= _named(f"{name}_std", spread)
    if wishes.interval is not None:
        low, high = model.predict_interval(X, 1 - wishes.interval, **told)
        columns |= _named(f"{name}_low", low) | _named(f"{name}_high", high)
    if wishes.proba:
        p = model.predict_proba(X)
        columns |= {f"{name}={c}": p[:, i] for i, c in enumerate(model.classes_)}
    if wishes.applicability:
        found = model.applicability(X)
        columns |= {"t2": found.t2, "q": found.q, "outside": found.outside.astype(int)}
    return columns


def _named(name: str, values: Any, names: list[str] | None = None) -> dict[str, Any]:
    if values.ndim == 1:
        return {name: values}
    names = names or [f"{name}{j}" for j in range(values.shape[1])]
    return dict(zip(names, values.T, strict=True))

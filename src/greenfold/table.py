"""Tables into numbers: categories one-hot, missing values filled, and a note of everything done.

    frame  ──Table.encode──▶  X (n, p)  ──estimator──▶  y

A `Table` learns its columns once, from the rows fitted to, and repeats itself on every later row. It is
kept in the model file beside the estimator.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

Array = NDArray[np.float64]

MAX_LEVELS = 32  # of a category; those seen least are encoded as none of them
MISSING = "(missing)"


@dataclass
class Column:
    """One column of the table, and what becomes of it."""

    name: str
    type: str  # Arrow's name: "double", "bool", "string", "timestamp[s]", …
    fill: float = 0.0  # in place of a missing number: the median
    levels: list[str] | None = None  # of a category, one indicator each
    used: bool = True

    def encoded(self) -> list[str]:
        """Names of the columns of X it becomes."""
        if not self.used:
            return []
        return [self.name] if self.levels is None else [f"{self.name}={v}" for v in self.levels]


@dataclass
class Table:
    """Columns by name, in order, with their encoding."""

    columns: list[Column]
    notes: list[str] = field(default_factory=list)

    @staticmethod
    def learn(frame: Any) -> "Table":
        """From the rows to be fitted to: any Arrow-compatible table (pyarrow, pandas, polars)."""
        data = to_arrow(frame)
        table = Table([])
        for name in data.column_names:
            column, notes = _learn(name, data.column(name))
            table.columns.append(column)
            table.notes += notes
        if not any(c.used for c in table.columns):
            raise ValueError(f"none of the columns {data.column_names} can be learned from.")
        return table

    @staticmethod
    def plain(names: list[str]) -> "Table":
        """Numbers as they are: for estimators fitted to arrays."""
        return Table([Column(name, "double", fill=float("nan")) for name in names])

    @property
    def names(self) -> list[str]:
        """Of the columns of X."""
        return [name for column in self.columns for name in column.encoded()]

    @property
    def needed(self) -> list[Column]:
        return [column for column in self.columns if column.used]

    def encode(self, frame: Any) -> Array:
        """X (n, p)."""
        data = to_arrow(frame)
        missing = [c.name for c in self.needed if c.name not in data.column_names]
        if missing:
            raise ValueError(
                f"the table lacks the columns {missing} the model was fitted to; it has "
                f"{data.column_names}."
            )
        X = np.empty((data.num_rows, len(self.names)))
        j = 0
        for column in self.needed:
            values = data.column(column.name)
            if column.levels is None:
                x = _numbers(values, column.name)
                X[:, j] = np.where(np.isnan(x), column.fill, x)
                j += 1
            else:
                codes = _codes(values, column.levels)
                X[:, j : j + len(column.levels)] = codes[:, None] == np.arange(len(column.levels))
                j += len(column.levels)
        return X


@dataclass
class TableModel:
    """A fitted estimator together with the table it was fitted to: takes rows by column name."""

    table: Table
    estimator: Any
    target: str | None = None

    def predict(self, frame: Any, **options: Any) -> Any:
        return self.estimator.predict(self.table.encode(frame), **options)

    def predict_proba(self, frame: Any) -> Array:
        return self.estimator.predict_proba(self.table.encode(frame))

    def predict_interval(self, frame: Any, alpha: float = 0.05) -> tuple[Array, Array]:
        return self.estimator.predict_interval(self.table.encode(frame), alpha)

    def transform(self, frame: Any) -> Array:
        return self.estimator.transform(self.table.encode(frame))

    def report(self, path: Any, frame: Any = None, y: Any = None, **options: Any) -> Path:
        """One page to look at the model; see `IGLRegressor.report`."""
        from greenfold.report import write

        X = None if frame is None else self.table.encode(frame)
        told = {"names": self.table.names or None, "target": self.target, **options}
        return write(self.estimator, path, X, y, **told)


def to_arrow(frame: Any) -> "pa.Table":
    """pyarrow's own, or whatever speaks its protocol."""
    import pyarrow as pa

    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if hasattr(frame, "__arrow_c_stream__"):
        return pa.table(frame)
    raise ValueError(
        f"expected a table with named columns (pyarrow, pandas, polars), got {type(frame).__name__}."
    )


def _learn(name: str, values: Any) -> tuple[Column, list[str]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    n, n_missing = len(values), values.null_count
    kind = values.type
    if pa.types.is_null(kind):
        return Column(name, "string", used=False), [f"{name}: left out, it is empty"]
    if not is_text(kind):
        x = _numbers(values, name)
        known = x[~np.isnan(x)]
        if not len(known):
            return Column(name, str(kind), used=False), [f"{name}: left out, it is empty"]
        if np.ptp(known) == 0:
            note = f"{name}: left out, it is always {known[0]:g}"
            return Column(name, _arrow_name(kind), used=False), [note]
        fill = float(np.median(known))
        gaps = n - len(known)
        note = f"{name}: {gaps} of {n} values missing, filled with the median {fill:g}"
        return Column(name, _arrow_name(kind), fill), [note] if gaps else []
    text = pc.cast(values, pa.string())
    counts = {
        v: c
        for v, c in zip(*(a.to_pylist() for a in pc.value_counts(text).flatten()), strict=True)
        if v is not None
    }
    if n_missing:
        counts[MISSING] = counts.get(MISSING, 0) + n_missing
    if len(counts) == 1:
        level = next(iter(counts))
        return Column(name, "string", used=False), [f"{name}: left out, it is always {level!r}"]
    if len(counts) > MAX_LEVELS and max(counts.values()) == 1:
        note = f"{name}: left out, no two rows share a value (an identifier?)"
        return Column(name, "string", used=False), [note]
    ranked = sorted(counts, key=lambda v: (-counts[v], v))[:MAX_LEVELS]
    levels = sorted(ranked)
    note = f"{name}: one-hot, {len(levels)} levels"
    if len(counts) > len(levels):
        note += f" of {len(counts)}, the rest as none of them"
    if n_missing:
        note += f", {n_missing} of {n} values missing, a level of their own"
    return Column(name, "string", levels=levels), [note]


def is_text(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in tests)


def _arrow_name(kind: Any) -> str:
    import pyarrow as pa

    if pa.types.is_temporal(kind) or pa.types.is_boolean(kind):
        return str(kind)
    return "double"


def _numbers(values: Any, name: str) -> Array:
    """float64 with NaN where missing; days for times."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = pc.cast(values, kind.value_type), kind.value_type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        values = pc.cast(pc.cast(values, pa.timestamp("us")), pa.int64())
        return np.asarray(pc.cast(values, pa.float64()).to_numpy(zero_copy_only=False)) / 86400e6
    try:
        x = pc.cast(values, pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"column {name!r} of type {kind} is not numbers: {error}") from None
    x = x.to_numpy(zero_copy_only=False) if isinstance(x, pa.Array) else x.to_numpy()
    x = np.asarray(x, dtype=np.float64)
    bad = int(np.isinf(x).sum())
    if bad:
        raise ValueError(f"column {name!r} holds infinity in {bad} of {len(x)} rows.")
    return x


def _codes(values: Any, levels: list[str]) -> NDArray[np.int64]:
    """Index of each value among the levels, −1 for none of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.fill_null(pc.cast(values, pa.string()), MISSING)
    codes = pc.fill_null(pc.index_in(text, value_set=pa.array(levels, pa.string())), -1)
    return np.asarray(codes.to_numpy(), dtype=np.int64)

"""Tables into numbers: categories one-hot, missing values filled, and a note of everything done.

    frame  ──Table.encode──▶  X (n, p)  ──estimator──▶  y

A `Table` learns its columns once, from the rows fitted to, and repeats itself on every later row.
Estimators that were fitted to a table have one, `table_`, and take rows as they are. On the command line
it is beside the estimator, in a `TableModel`.
"""

import re
from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

Array = NDArray[np.float64]

MAX_LEVELS = 32  # of a category; those seen least are one level together
MOST_TEXTS = 1000  # different ones in a column that an estimator takes for a category
MANY = 10  # different numbers, from which on they are not taken as names of something
STRAYS = 3  # different texts among numbers, up to which they are taken as missing
MISSING = "(missing)"
OTHER = "(other)"
NULLS = [
    blank + text
    for blank in ("", " ")
    for text in ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None", "?")
]
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
TIMES = {  # Arrow's names of times begin so, and become days
    "date": "a date, used as days since 1970",
    "timestamp": "a time, used as days since 1970",
    "time": "a time of day, used as its part of a day",
    "duration": "a duration, used as days",
}


@dataclass
class Column:
    """One column of the table, and what becomes of it."""

    name: str
    type: str  # Arrow's name: "double", "bool", "string", "timestamp[s]", …
    fill: float = 0.0  # in place of a missing number: the median
    levels: list[str] | None = None  # of a category, one indicator each
    used: bool = True
    strays: tuple[str, ...] = ()  # texts among its numbers that stand for a missing one

    def encoded(self) -> list[str]:
        """Names of the columns of X it becomes."""
        if not self.used:
            return []
        return [self.name] if self.levels is None else [f"{self.name}={v}" for v in self.levels]

    def encode(self, values: Any) -> Array:
        """Columns (n, k) of X."""
        if self.levels is not None:
            return _codes(values, self.levels)[:, None] == np.arange(len(self.levels))
        x = numbers(values, self)
        return np.where(np.isnan(x), self.fill, x)[:, None]


@dataclass
class Table:
    """Columns by name, in order, with their encoding."""

    columns: list[Column]
    notes: list[str] = field(default_factory=list)

    @staticmethod
    def learn(frame: Any, weight: Array | None = None, strict: bool = False) -> "Table":
        """From the rows to be fitted to: any Arrow-compatible table (pyarrow, pandas, polars).

        Rows count by their `weight` (n,). Where nobody reads the notes, `strict` keeps columns of numbers
        that are always the same, as an array has them, and refuses dates, identifiers and what is no
        number and no text.
        """
        data = to_arrow(frame)
        if not data.num_columns:
            raise ValueError("there is no column to learn from.")
        if weight is not None and (weight > 0).any():
            data, weight = data.filter(weight > 0), weight[weight > 0]
        table = Table([])
        for name in data.column_names:
            column, notes = _learn(name, data.column(name), weight, strict)
            table.columns.append(column)
            table.notes += notes
        if not any(c.used for c in table.columns):
            reasons = "; ".join(table.notes[:5]) + ("; …" if len(table.notes) > 5 else "")
            raise ValueError(f"none of the columns can be learned from. {reasons}.")
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

    @property
    def as_it_is(self) -> bool:
        """Is X the table itself, but for gaps?"""
        plain = [c.used and c.type in ("double", "bool") and not c.strays for c in self.columns]
        return all(plain)

    def filled(self, X: Array) -> Array:
        """Numbers (n, p) of such a table, with medians in the gaps."""
        gaps = np.isnan(X)
        return np.where(gaps, [column.fill for column in self.columns], X) if gaps.any() else X

    def encode(self, frame: Any) -> Array:
        """X (n, p)."""
        data = to_arrow(frame)
        self.check(data.column_names)
        X = np.empty((data.num_rows, len(self.names)))
        j = 0
        for column in self.needed:
            part = column.encode(data.column(column.name))
            X[:, j : j + part.shape[1]] = part
            j += part.shape[1]
        return X

    def check(self, names: Sequence[str], where: str = "the table") -> None:
        """All columns needed must be there; more of them do not matter."""
        missing = [c.name for c in self.needed if c.name not in names]
        if missing:
            raise ValueError(
                f"{where} lacks columns the model was fitted to: {listed(missing, len(missing))}. It has "
                f"{listed(names)}."
            )


@dataclass
class TableModel:
    """A fitted estimator together with the table it was fitted to: takes rows by column name."""

    table: Table
    estimator: Any
    target: str | None = None

    @staticmethod
    def of(estimator: Any) -> "TableModel":
        """An estimator that has a table, as the two; one that has none takes numbers as they are."""
        inner = copy(estimator)
        names = [str(name) for name in vars(inner).pop("feature_names_in_", [])]
        table = vars(inner).pop("table_", None)
        if table is None:
            return TableModel(Table.plain(names), inner)
        inner.n_features_in_ = len(table.names)
        return TableModel(table, inner)

    def predict(self, frame: Any, **options: Any) -> Any:
        return self.estimator.predict(self.table.encode(frame), **options)

    def predict_proba(self, frame: Any) -> Array:
        return self.estimator.predict_proba(self.table.encode(frame))

    def predict_interval(self, frame: Any, alpha: float = 0.05) -> tuple[Array, Array]:
        return self.estimator.predict_interval(self.table.encode(frame), alpha)

    def applicability(self, frame: Any, alpha: float = 0.05) -> Any:
        return self.estimator.applicability(self.table.encode(frame), alpha)

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

    if isinstance(frame, pa.RecordBatch):
        frame = pa.Table.from_batches([frame])
    elif not isinstance(frame, pa.Table):
        if not hasattr(frame, "__arrow_c_stream__"):
            raise ValueError(
                "expected a table with named columns (pyarrow, pandas, polars), got "
                f"{type(frame).__name__}."
            )
        names = [str(name) for name in getattr(frame, "columns", ())]
        refuse_twins(names)
        try:
            frame = pa.table(frame)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ValueError(
                f"a column holds values of several kinds ({'; '.join(map(str, error.args))}). Make them "
                "all numbers or all text."
            ) from error
        frame = frame.select(range(len(names) or frame.num_columns))  # pandas adds its index
    refuse_twins(frame.column_names)
    return frame.cast(pa.schema([field.with_type(_held(field.type)) for field in frame.schema]))


def _held(kind: Any) -> Any:
    """The type, with text as most of Arrow's functions take it: polars has views of it."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _held(kind.value_type), kind.ordered)
    return pa.string() if pa.types.is_string_view(kind) else kind


def is_table(X: Any) -> bool:
    """Does it have columns with names and types? A series has values of one type."""
    return hasattr(X, "__arrow_c_stream__") and hasattr(X, "columns")


def joined(frames: Sequence[Any]) -> "pa.Table":
    """The rows of all of them."""
    import pyarrow as pa

    return pa.concat_tables(map(to_arrow, frames), promote_options="permissive")


def refuse_twins(names: Sequence[str], where: str = "the table") -> None:
    """Columns go by name, so no two may have the same."""
    twins = [name for name, count in Counter(names).items() if count > 1]
    if twins:
        raise ValueError(
            f"{where} has several columns by the name {listed(twins, len(twins))}; give every column a "
            "name of its own."
        )


def listed(names: Sequence[str], most: int = 12) -> str:
    """Names for people to read, so that blanks in them are seen."""
    return ", ".join(map(repr, names[:most])) + (", …" if len(names) > most else "")


def _learn(name: str, values: Any, weight: Array | None, strict: bool) -> tuple[Column, list[str]]:
    import pyarrow as pa

    kind = values.type
    if pa.types.is_dictionary(kind) and not pa.types.is_null(kind.value_type):
        return _learn_text(name, _decoded(values), weight, strict)
    if pa.types.is_null(kind) or len(values) == values.null_count:
        return Column(name, "string", used=False), [f"{name}: left out, it is empty"]
    if is_text(kind):
        strays = stray_texts(values)
        if strays:
            return _learn_numbers(Column(name, "string", strays=strays), values, weight, strict)
        return _learn_text(name, values, weight, strict)
    time = time_kind(str(kind))
    if strict and time:
        raise ValueError(
            f"column {name!r} holds {TIMES[time].partition(',')[0]} ({kind}), and estimators take "
            "numbers and categories. Put in its place what matters of it, such as days since a day, the "
            "month or the hour, or leave the column out."
        )
    if not _is_number(kind):
        if strict:
            raise ValueError(
                f"column {name!r} holds {kind}, which is neither numbers nor text. Leave it out, or "
                "put numbers in its place."
            )
        note = f"{name}: left out, {kind} is neither numbers nor text"
        return Column(name, str(kind), used=False), [note]
    return _learn_numbers(Column(name, _arrow_name(kind)), values, weight, strict)


def _learn_numbers(
    column: Column, values: Any, weight: Array | None, strict: bool
) -> tuple[Column, list[str]]:
    name, x = column.name, numbers(values, column)
    there = ~np.isnan(x)
    known = x[there]
    if not len(known):
        column.used = False
        return column, [f"{name}: left out, it is empty"]
    if np.ptp(known) == 0 and not strict:
        column.used = False
        return column, [f"{name}: left out, it is always {known[0]:g}"]
    column.fill = _median(known, None if weight is None else weight[there])
    notes = [f"{name}: {TIMES[kind]}" for kind in [time_kind(column.type)] if kind]
    alone = len(x) > MAX_LEVELS and len(values.unique()) == len(x) == len(known)
    if alone and not notes and (x % 1 == 0).all():
        notes.append(
            f"{name}: every row has a whole number of its own, used as a number (an identifier?)"
        )
    gaps = len(x) - len(known)
    if gaps:
        strays = f" ({listed(column.strays)} taken as such)" if column.strays else ""
        notes.append(
            f"{name}: {gaps} of {len(x)} values missing{strays}, filled with the median {column.fill:g}"
        )
    return column, notes


def _median(x: Array, weight: Array | None) -> float:
    """Rows count by their weights; of an even number it is the mean of the two in the middle."""
    if weight is None:
        return float(np.median(x))
    order = np.argsort(x, kind="stable")
    sums = np.cumsum(weight[order])
    middle = [np.searchsorted(sums, sums[-1] / 2, side) for side in ("left", "right")]
    return float(np.mean(x[order][middle]))


def _learn_text(
    name: str, values: Any, weight: Array | None, strict: bool
) -> tuple[Column, list[str]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    n, n_missing = len(values), values.null_count
    counts = value_counts(pc.cast(values, pa.string()))
    if n_missing:
        counts[MISSING] = counts.get(MISSING, 0) + n_missing
    example = max(counts, key=len)
    if len(counts) == 1:
        return Column(name, "string", used=False), [f"{name}: left out, it is always {example!r}"]
    alone = len(counts) > MAX_LEVELS and max(counts.values()) == 1
    if strict and (alone or len(counts) > MOST_TEXTS):
        raise ValueError(
            f"column {name!r} holds {len(counts)} different texts in {n} rows, such as {example!r}. If "
            "they are names of rows, leave the column out; if they are categories, join them into fewer; "
            "if they are numbers, make them numbers."
        )
    if alone:
        note = f"{name}: left out, no two rows share a text, such as {example!r} (an identifier?)"
        return Column(name, "string", used=False), [note]
    total = np.bincount(_codes(values, list(counts)), weight)  # of the rows of each
    ranked = sorted(zip(-total, counts))
    levels = sorted(v for _, v in ranked)
    note = f"{name}: one-hot, {len(levels)} levels"
    if len(counts) > MAX_LEVELS:
        levels = sorted({OTHER, *(v for _, v in ranked[: MAX_LEVELS - 1])})
        note = f"{name}: one-hot, {MAX_LEVELS - 1} levels of {len(counts)}, the rest as one more"
    if len(counts) > MANY and all(_is_written_number(v) for v in counts if v != MISSING):
        note += ", all of them numbers written as text"
    if n_missing:
        note += f", {n_missing} of {n} values missing, a level of their own"
    return Column(name, "string", levels=levels), [note]


def value_counts(text: Any) -> dict[str, int]:
    """How often each known value of a column of text occurs."""
    import pyarrow.compute as pc

    pairs = zip(*(part.to_pylist() for part in pc.value_counts(text).flatten()), strict=True)
    return {value: count for value, count in pairs if value is not None}


def stray_texts(values: Any) -> tuple[str, ...]:
    """The few texts in a column that otherwise holds many different numbers; else none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    counts = value_counts(pc.cast(values, pa.string()))
    strays = [value for value in counts if not _is_written_number(value)]
    few = 0 < len(strays) <= STRAYS and len(counts) - len(strays) > MANY
    return tuple(sorted(strays)) if few else ()


def _is_written_number(text: str) -> bool:
    return NUMBER.fullmatch(text.strip()) is not None


def is_text(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in tests)


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    tests = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(test(kind) for test in tests) or time_kind(str(kind)) is not None


def _arrow_name(kind: Any) -> str:
    import pyarrow as pa

    return str(kind) if time_kind(str(kind)) or pa.types.is_boolean(kind) else "double"


def time_kind(type_name: str) -> str | None:
    """Which of TIMES a type is."""
    found = re.match(r"(date|timestamp|time|duration)\d*\[", type_name)
    return found[1] if found else None


def numbers(values: Any, column: Column) -> Array:
    """float64 with NaN where missing; days for times."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = _decoded(values)
    if is_text(values.type):
        values = _written(values, column)
    kind, time = values.type, time_kind(str(values.type))
    day = 1.0
    if time:
        unit = {"date": pa.timestamp("us"), "time": pa.time64("us"), "duration": pa.duration("us")}
        wanted = unit.get(time, pa.timestamp("us", getattr(kind, "tz", None)))
        values = pc.cast(pc.cast(values, wanted, safe=False), pa.int64())
        day = 86400e6  # μs
    try:
        x = pc.cast(values, pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(f"column {column.name!r} must hold numbers, got {kind}.") from None
    x = x.to_numpy(zero_copy_only=False) if isinstance(x, pa.Array) else x.to_numpy()
    x = np.asarray(x, dtype=np.float64) / day
    bad = int(np.isinf(x).sum())
    if bad:
        raise ValueError(
            f"column {column.name!r} holds infinity in {bad} of {len(x)} rows. Empty cells "
            "would be filled; infinity is refused."
        )
    return x


def _written(text: Any, column: Column) -> Any:
    """Numbers, or times if the column has them, from text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = pa.array([*NULLS, *column.strays], pa.string())
    text = pc.cast(text, pa.string())
    text = pc.if_else(pc.is_in(text, value_set=missing), pa.scalar(None, pa.string()), text)
    text = pc.utf8_trim_whitespace(text)
    time = time_kind(column.type)
    if time == "time":
        text = pc.binary_join_element_wise("1970-01-01", text, " ")
    kinds = [pa.timestamp("us"), pa.timestamp("us", "UTC")] if time else [pa.float64()]
    for kind in kinds:  # with a time zone, and without
        try:
            return pc.cast(text, kind)
        except pa.ArrowInvalid as error:
            found = re.search(r"Failed to parse string: '(.*?)' as a scalar", str(error), re.DOTALL)
            value = found[1] if found else str(error)
    raise ValueError(
        f"column {column.name!r} holds {value!r}, and the model was fitted to "
        f"{'times' if time else 'numbers'} there."
    )


def _decoded(values: Any) -> Any:
    """Of a dictionary its values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    dictionary = pa.types.is_dictionary(values.type)
    return pc.cast(values, values.type.value_type) if dictionary else values


def _codes(values: Any, levels: list[str]) -> NDArray[np.int64]:
    """Index of each value among the levels; of others that of `OTHER`, or −1 if there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.fill_null(pc.cast(_decoded(values), pa.string()), MISSING)
    found = pc.index_in(text, value_set=pa.array(levels, pa.string()))
    rest = levels.index(OTHER) if OTHER in levels else -1
    return np.asarray(pc.fill_null(found, rest).to_numpy(), dtype=np.int64)

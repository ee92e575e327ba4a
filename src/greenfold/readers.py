"""One reader per format: names of the columns, all rows at once, or some columns a batch at a time."""

import io
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from greenfold.dialect import Dialect
from greenfold.table import NULLS, Column

BLOCK = 1 << 20  # bytes of a csv read at a time
BATCH = 8192  # rows of the other formats

NOT_A_VALUE = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+)\S*: invalid value '(.*)'",
    re.DOTALL,
)
NOT_IN_LINE = re.compile(
    r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+): (.*)", re.DOTALL
)
NOT_UTF8 = "past its beginning it is not UTF-8 text; save it as UTF-8 first."


class Reader(ABC):
    """A file whose format is known."""

    names: list[str]
    notes: Sequence[str] = ()  # what there is to say about the file before its rows are used

    @abstractmethod
    def __init__(self, file: IO[bytes], start: bytes):
        """`start` are its first bytes, which the file still has."""

    @abstractmethod
    def table(self, known: Sequence[Column] = ()) -> pa.Table:
        """All columns and rows; types that are not in the file are those of the columns known."""

    @abstractmethod
    def batches(self, columns: Sequence[Column]) -> Iterator[pa.Table]:
        """Those columns, of which the file has every one."""


class Csv(Reader):
    """Lines of text. Types are told from all rows, or given: from the first rows they may be wrong."""

    def __init__(self, file: IO[bytes], start: bytes):
        self.file = file
        self.dialect = Dialect.of(start, whole=len(start) < BLOCK)
        self.names, self.notes = self.dialect.names, self.dialect.notes

    def table(self, known: Sequence[Column] = ()) -> pa.Table:
        if not self.dialect.has_rows:
            return pa.table({name: pa.nulls(0) for name in self.names})
        try:
            table = pa.csv.read_csv(self.file, **self._options(known))
        except pa.ArrowInvalid as error:
            raise self._reworded(error) from error
        if any(pa.types.is_binary(kind) for kind in table.schema.types):
            raise ValueError(NOT_UTF8)
        return table

    def batches(self, columns: Sequence[Column]) -> Iterator[pa.Table]:
        if not self.dialect.has_rows:
            return
        options = self._options(columns, include_columns=[c.name for c in columns])
        try:
            for batch in pa.csv.open_csv(self.file, **options):
                yield pa.Table.from_batches([batch])
        except pa.ArrowInvalid as error:
            raise self._reworded(error) from error

    def _options(self, columns: Sequence[Column], **convert: Any) -> dict[str, Any]:
        types = {"bool": pa.bool_(), "double": pa.float64()}  # all else `Table` reads from text
        convert["column_types"] = dict.fromkeys(self.dialect.text, pa.string()) | {
            c.name: types.get(c.type, pa.string()) for c in columns
        }
        convert |= {"null_values": NULLS, "strings_can_be_null": True}
        header = sum(map(len, self.names))
        return {
            "read_options": pa.csv.ReadOptions(
                use_threads=False,
                block_size=max(BLOCK, 64 * header),  # at least some rows, of any width
                encoding=self.dialect.encoding,
                column_names=self.names,
                skip_rows_after_names=self.dialect.skip,
            ),
            "parse_options": pa.csv.ParseOptions(
                delimiter=self.dialect.delimiter, newlines_in_values=True
            ),
            "convert_options": pa.csv.ConvertOptions(decimal_point=self.dialect.decimal, **convert),
        }

    def _reworded(self, error: pa.ArrowInvalid) -> ValueError:
        """pyarrow's error in our words, with the name of the column."""
        text = str(error)
        if "invalid UTF8" in text:
            return ValueError(NOT_UTF8)
        found = NOT_IN_LINE.search(text)
        if found:
            line, expected, got, cells = found.groups()
            where = f"line {line}" if line else "a line"
            return ValueError(f"{where} has {got} cells in place of {expected}: {cells[:80]}")
        found = NOT_A_VALUE.search(text)
        if found is None:
            return ValueError(text.splitlines()[0])
        column, line, kind, value = found.groups()
        expected = {"bool": "true or false"}.get(kind, "numbers")
        where = f" in line {line}" if line else ""
        return ValueError(
            f"column {self.names[int(column)]!r} holds {value!r}{where}, and the model was fitted to "
            f"{expected} there."
        )


class Parquet(Reader):
    def __init__(self, file: IO[bytes], start: bytes):
        self.reader = pa.parquet.ParquetFile(file, pre_buffer=False)
        self.names = list(self.reader.schema_arrow.names)

    def table(self, known: Sequence[Column] = ()) -> pa.Table:
        return self.reader.read()

    def batches(self, columns: Sequence[Column]) -> Iterator[pa.Table]:
        names = [c.name for c in columns]
        for batch in self.reader.iter_batches(BATCH, columns=names, use_threads=False):
            yield pa.Table.from_batches([batch])


class Arrow(Reader):
    """Files, feather among them, and streams."""

    def __init__(self, file: IO[bytes], start: bytes):
        self.is_file = start.startswith(b"ARROW1")
        self.reader = pa.ipc.open_file(file) if self.is_file else pa.ipc.open_stream(file)
        self.names = list(self.reader.schema.names)

    def table(self, known: Sequence[Column] = ()) -> pa.Table:
        return self.reader.read_all()

    def batches(self, columns: Sequence[Column]) -> Iterator[pa.Table]:
        names = [c.name for c in columns]
        read, n = self.reader, getattr(self.reader, "num_record_batches", 0)
        for batch in (read.get_batch(i) for i in range(n)) if self.is_file else read:
            yield pa.Table.from_batches([batch]).select(names)


class Arrays(Reader):
    """Arrays of equal length: of a .npy one by the name x, of a .npz all by their own."""

    def __init__(self, file: IO[bytes], start: bytes):
        self.arrays = self._load(file)
        shapes = {k: v.shape for k, v in self.arrays.items()}
        lengths = {shape[:1] for shape in shapes.values()}
        if len(lengths) != 1 or any(len(s) not in (1, 2) for s in shapes.values()):
            raise ValueError(
                f"it must hold arrays of shape (n, D) or (n,), with one n, got {shapes}."
            )
        for name, values in self.arrays.items():
            if values.dtype.kind not in "biufUM":
                raise ValueError(f"{name} holds {values.dtype}, which is neither numbers nor text.")
        self.n_rows = next(iter(shapes.values()))[0]
        self.names = [name for k, v in self.arrays.items() for name in _names(k, v)]

    def _load(self, file: IO[bytes]) -> dict[str, Any]:
        try:
            loaded = np.load(file, allow_pickle=False)
            return {"x": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
        except ValueError as error:
            raise ValueError(f"it holds no arrays of numbers ({error}).") from error

    def table(self, known: Sequence[Column] = (), rows: slice = slice(None)) -> pa.Table:
        """Columns x0, x1, … of a matrix x; a vector keeps its name."""
        columns = []
        for values in self.arrays.values():
            part = np.asarray(values[rows])
            columns += [part] if part.ndim == 1 else [np.ascontiguousarray(c) for c in part.T]
        return pa.table([pa.array(c) for c in columns], names=self.names)

    def batches(self, columns: Sequence[Column]) -> Iterator[pa.Table]:
        for i in range(0, self.n_rows, BATCH):
            yield self.table(rows=slice(i, i + BATCH)).select([c.name for c in columns])


class Npy(Arrays):
    """One matrix, left on the disk where it can be."""

    def _load(self, file: IO[bytes]) -> dict[str, Any]:
        if isinstance(file, io.BytesIO):
            return super()._load(file)
        try:
            return {"x": np.load(file.name, mmap_mode="r", allow_pickle=False)}
        except ValueError:
            return super()._load(file)


def _names(name: str, values: Any) -> list[str]:
    return [name] if values.ndim == 1 else [f"{name}{j}" for j in range(values.shape[1])]


READERS: dict[str, type[Reader]] = {
    "csv": Csv, "parquet": Parquet, "arrow": Arrow, "npy": Npy, "npz": Arrays
}  # fmt: skip

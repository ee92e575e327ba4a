"""Rows from files and pipes, whole or in batches, and results back to them.

Formats: csv and tsv, parquet, arrow (files and streams, feather), npy, npz. A file says its format by
its ending, a pipe by its first bytes.
"""

import io
import json
import os
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from greenfold.table import Column

BLOCK = 1 << 20  # bytes of a CSV read at a time
BATCH = 8192  # rows of the other formats
NULLS = ["", "NA", "N/A", "#N/A", "NaN", "nan", "NULL", "null", "None", "?"]
ENDINGS = {
    ".csv": "csv",
    ".txt": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".npy": "npy",
    ".npz": "npz",
}
BEGINNINGS = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
}


class Source:
    """A file, or `-` for what is piped in."""

    def __init__(self, path: str):
        self.path = path
        self.file: IO[bytes] = _stdin() if path == "-" else open(path, "rb")  # noqa: SIM115
        try:
            self._recognize()
        except ValueError:
            self.close()
            raise

    def close(self) -> None:
        if self.path != "-":
            self.file.close()

    def _recognize(self) -> None:
        path, start = self.path, self._peek()
        ending = Path(path).suffix.lower()
        found = [kind for mark, kind in BEGINNINGS.items() if start.startswith(mark)]
        if path != "-" and ending not in ENDINGS and not found:
            raise ValueError(f"{path} ends in none of {sorted(ENDINGS)}.")
        self.format = found[0] if found else ENDINGS.get(ending, "csv")
        if self.format != "csv" and path != "-" and ENDINGS.get(ending, self.format) != self.format:
            raise ValueError(f"{path} is called {ending} but holds {self.format}.")
        if not start:
            raise ValueError(f"{'standard input' if path == '-' else path} is empty.")
        self.delimiter = _delimiter(start)
        if path == "-" and self.format in ("parquet", "npy", "npz"):  # these jump about
            self.file = io.BytesIO(self.file.read())

    def _peek(self) -> bytes:
        assert isinstance(self.file, io.BufferedReader)
        return self.file.peek(1 << 16)[: 1 << 16]

    def table(self, columns: Sequence[Column] | None = None) -> pa.Table:
        """All rows at once; the file is then closed."""
        try:
            if self.format == "csv":
                return pa.csv.read_csv(self.file, **self._csv(columns))
            if self.format == "parquet":
                return pa.parquet.read_table(self.file)
            if self.format == "arrow":
                return pa.Table.from_batches(list(self._arrow()))
            return _from_arrays(self._arrays())
        except (pa.ArrowException, KeyError) as error:
            raise ValueError(f"{self.path}: {_first_line(error)}") from error
        finally:
            self.close()

    def batches(self, columns: Sequence[Column] | None = None) -> Generator[pa.Table, None, None]:
        """Rows a few thousand at a time, those columns only if given."""
        names = None if columns is None else [c.name for c in columns]
        try:
            if self.format == "csv":
                yield from map(_table, pa.csv.open_csv(self.file, **self._csv(columns)))
            elif self.format == "parquet":
                file = pa.parquet.ParquetFile(self.file, pre_buffer=False)
                known = (
                    None if names is None else [n for n in names if n in file.schema_arrow.names]
                )
                batches = file.iter_batches(BATCH, columns=known, use_threads=False)
                yield from map(_table, batches)
            elif self.format == "arrow":
                yield from map(_table, self._arrow())
            else:
                arrays = self._arrays()
                for i in range(0, len(next(iter(arrays.values()))), BATCH):
                    yield _from_arrays({k: v[i : i + BATCH] for k, v in arrays.items()})
        except (pa.ArrowException, KeyError) as error:
            raise ValueError(f"{self.path}: {_first_line(error)}") from error
        finally:
            self.close()

    def _csv(self, columns: Sequence[Column] | None) -> dict[str, Any]:
        convert: dict[str, Any] = {"null_values": NULLS, "strings_can_be_null": True}
        if columns is not None:
            convert["include_columns"] = [c.name for c in columns]
            convert["column_types"] = {c.name: pa.type_for_alias(_alias(c.type)) for c in columns}
        return {
            "read_options": pa.csv.ReadOptions(use_threads=False, block_size=BLOCK),
            "parse_options": pa.csv.ParseOptions(delimiter=self.delimiter),
            "convert_options": pa.csv.ConvertOptions(**convert),
        }

    def _arrow(self) -> Iterator[pa.RecordBatch]:
        if self._peek_magic() == b"ARROW1":
            source = io.BytesIO(self.file.read()) if self.path == "-" else self.file
            reader = pa.ipc.open_file(source)
            yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            yield from pa.ipc.open_stream(self.file)

    def _peek_magic(self) -> bytes:
        return self._peek()[:6]

    def _arrays(self) -> dict[str, Any]:
        """Arrays of equal length: of a .npy one by the name x, of a .npz all by their own."""
        whole = self.path == "-" or self.format == "npz"
        source = self.file if whole else self.path
        try:
            loaded = np.load(source, mmap_mode=None if whole else "r", allow_pickle=False)
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from error
        if self.format == "npz":
            with loaded:
                arrays = dict(loaded)
        else:
            arrays = {"x": loaded}
        lengths = {k: len(v) if v.ndim else 0 for k, v in arrays.items()}
        if not lengths or len(set(lengths.values())) > 1 or not max(lengths.values()):
            raise ValueError(f"{self.path} must hold arrays with one length, got {lengths}.")
        for name, values in arrays.items():
            if values.ndim > 2:
                raise ValueError(
                    f"{self.path}: {name} has shape {values.shape}, not (n, D) or (n,)."
                )
        return arrays


def _stdin() -> IO[bytes]:
    stream = sys.stdin.buffer
    return stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)  # type: ignore[type-var]


def _delimiter(start: bytes) -> str:
    """The one of , ; and tab that the first line has most of."""
    line = start.split(b"\n", 1)[0]
    return max(",;\t", key=lambda c: line.count(c.encode()))


def _alias(name: str) -> str:
    return name if name in ("bool", "string") or "[" in name else "double"


def _first_line(error: Exception) -> str:
    return str(error.args[0] if error.args else error).splitlines()[0]


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def _from_arrays(arrays: dict[str, Any]) -> pa.Table:
    """Columns x0, x1, … of a matrix x; a vector keeps its name."""
    columns = {}
    for name, values in arrays.items():
        if values.ndim == 1:
            columns[name] = pa.array(np.asarray(values))
        else:
            for j in range(values.shape[1]):
                columns[f"{name}{j}"] = pa.array(np.ascontiguousarray(values[:, j]))
    return pa.table(columns)


class Sink:
    """Where results go: a file by its ending, or standard output as CSV or, on request, JSON lines."""

    def __init__(self, path: str, as_json: bool = False):
        ending = Path(path).suffix.lower()
        self.format = "json" if as_json else "csv" if path == "-" else ENDINGS.get(ending, "")
        if ending in (".json", ".jsonl") and path != "-":
            self.format = "json"
        if self.format not in ("csv", "json", "parquet", "arrow", "npy"):
            raise ValueError(f"{path} must end in .csv, .json, .parquet, .arrow or .npy.")
        self.path = path
        self.file: IO[bytes] | None = None
        self.writer: Any = None
        self.kept: list[Any] = []

    def __enter__(self) -> "Sink":
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        """What was begun appears under its name when it is whole, and not at all after an error."""
        if self.file is None:
            return
        if kind is None:
            self._finish(self.file)
        if self.path != "-":
            self.file.close()
            if kind is None:
                os.replace(self._unfinished, self.path)
            else:
                os.unlink(self._unfinished)

    @property
    def _unfinished(self) -> str:
        return f"{self.path}.part"

    def write(self, columns: dict[str, Any]) -> None:
        """A batch of results, columns by name."""
        if self.file is None:
            self.file = sys.stdout.buffer if self.path == "-" else open(self._unfinished, "wb")  # noqa: SIM115
        table = pa.table({k: pa.array(np.asarray(v)) for k, v in columns.items()})
        if self.format == "npy":
            self.kept.append(np.stack([c.to_numpy() for c in table.columns], axis=1))
        elif self.format == "json":
            lines = (
                json.dumps(_finite(row), ensure_ascii=False) + "\n" for row in table.to_pylist()
            )
            self.file.write("".join(lines).encode())
        else:
            if self.writer is None:
                make = {
                    "csv": pa.csv.CSVWriter,
                    "parquet": pa.parquet.ParquetWriter,
                    "arrow": pa.ipc.new_file,
                }[self.format]
                self.writer = make(self.file, table.schema)
            self.writer.write_table(table)
        if self.path == "-":
            self.file.flush()

    def _finish(self, file: IO[bytes]) -> None:
        if self.writer is not None:
            self.writer.close()
        if self.kept:
            values = np.concatenate(self.kept)
            np.save(file, values[:, 0] if values.shape[1] == 1 else values)
        file.flush()


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    return {k: v if v == v else None for k, v in row.items()}


def target_column(table: pa.Table, name: str) -> tuple[pa.Table, pa.ChunkedArray]:
    """The table without its target, and the target; a whole number counts columns, −1 is the last."""
    names = table.column_names
    if name not in names:
        try:
            name = names[int(name)]
        except (ValueError, IndexError):
            shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
            raise ValueError(f"there is no column {name!r}; there are {shown}.") from None
    return table.drop_columns([name]), table.column(name)


def known_rows(table: pa.Table, target: pa.ChunkedArray) -> tuple[pa.Table, pa.ChunkedArray, int]:
    """Rows whose target is known, and how many were not."""
    valid = pc.is_valid(target)
    if pa.types.is_floating(target.type):
        valid = pc.and_(valid, pc.fill_null(pc.invert(pc.is_nan(target)), False))
    lost = len(target) - int(pc.sum(valid).as_py() or 0)
    return (table.filter(valid), target.filter(valid), lost) if lost else (table, target, 0)

"""Rows from files and pipes, whole or in batches.

Formats: csv and tsv, parquet, arrow (files and streams, feather), npy, npz, any of them also compressed
by gzip, bzip2 or xz. A file says its format by its ending, a pipe by its first bytes.
"""

import bz2
import contextlib
import gzip
import io
import lzma
import os
import sys
import zipfile
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

from greenfold.readers import BLOCK, READERS, Reader
from greenfold.table import Column, listed, refuse_twins

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
PACKED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
BROKEN = (
    ValueError, KeyError, EOFError, OSError, pa.ArrowException, lzma.LZMAError, zipfile.BadZipFile
)  # fmt: skip


class Source:
    """A file, or `-` for what is piped in: its columns by name, and its rows."""

    def __init__(self, path: str):
        self.path = path
        self.name = "standard input" if path == "-" else path
        if os.path.isdir(path):
            raise ValueError(f"{path} is a folder; name a file in it.")
        self.file: IO[bytes] = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115
        try:
            with self._errors():
                self.reader = self._recognize()
            refuse_twins(self.reader.names, self.name)
        except BaseException:
            self.close()
            raise
        self.names: list[str] = self.reader.names
        self.notes = [f"{self.name}: {text}" for text in self.reader.notes]

    def __enter__(self) -> "Source":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        if self.path != "-":
            self.file.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except BROKEN as error:
            first = str(error.args[0]) if error.args else type(error).__name__
            what = getattr(error, "strerror", None) or first.splitlines()[0]
            raise ValueError(f"{self.name}: {what}") from error

    def _recognize(self) -> Reader:
        piped = self.path == "-" or not Path(self.path).is_file()
        suffixes = [] if piped else [suffix.lower() for suffix in Path(self.path).suffixes]
        seekable = self.file.seekable()
        start, file = _begin(self.file, seekable)
        for mark, unpack in PACKED.items():
            if start.startswith(mark):
                start, file = _begin(unpack(file), seekable)
                suffixes = suffixes[:-1]  # .csv.gz is a .csv
        ending = suffixes[-1] if suffixes else ""
        found = next((kind for mark, kind in BEGINNINGS.items() if start.startswith(mark)), None)
        if not piped and ending not in ENDINGS and found in (None, "npz"):
            raise ValueError(
                f"its name ends in none of {', '.join(ENDINGS)} (.gz, .bz2 and .xz may follow). A "
                "spreadsheet can be saved as csv."
            )
        kind = found or ENDINGS.get(ending, "csv")
        if kind != ENDINGS.get(ending, kind):
            raise ValueError(f"it is called {ending} but holds {kind}.")
        if not start:
            raise ValueError("it is empty.")
        if kind != "csv" and file is not self.file and not start.startswith(b"\xff\xff\xff\xff"):
            file = io.BytesIO(file.read())  # all but csv and arrow's streams jump about
        return READERS[kind](file, start)

    def table(self, known: Sequence[Column] = ()) -> pa.Table:
        """All rows at once, the columns that are known with the types they have."""
        with self._errors():
            table = self.reader.table(known)
        if not table.num_rows:
            raise ValueError(f"{self.name} has columns {listed(self.names)}, but no rows.")
        return table

    def batches(self, columns: Sequence[Column]) -> Generator[pa.Table, None, None]:
        """Those columns only, a few thousand rows at a time."""
        with self._errors():
            yield from self.reader.batches(columns)


class _Rejoined(io.RawIOBase):
    """A pipe again, after its beginning was read."""

    def __init__(self, start: bytes, rest: IO[bytes]):
        self.start, self.rest = io.BytesIO(start), rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.start.read(len(buffer)) or self.rest.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _begin(file: IO[bytes], seekable: bool) -> tuple[bytes, IO[bytes]]:
    """The beginning, a line at least, and the file with it still to be read."""
    place = file.tell() if seekable else None
    start = file.read(BLOCK)
    while b"\n" not in start[-BLOCK:] and (more := file.read(BLOCK)):
        start += more
    if place is None:
        return start, io.BufferedReader(_Rejoined(start, file))
    file.seek(place)
    return start, file


def target_column(table: pa.Table, name: str) -> tuple[pa.Table, pa.ChunkedArray]:
    """The table without its target, and the target; a whole number counts columns, −1 is the last."""
    name = column_name(table.column_names, name)
    return table.drop_columns([name]), table.column(name)


def column_name(names: list[str], name: Any) -> str:
    """The column that goes by this name or number; None is the last."""
    if name in names:
        return str(name)
    with contextlib.suppress(ValueError, IndexError):
        return names[-1 if name is None else int(name)]
    alone = len(names) == 1 and " " in names[0].strip()
    hint = " Are its cells parted by blanks? Only , ; | and tabs are understood." if alone else ""
    raise ValueError(f"there is no column {name!r}; there are {listed(names)}.{hint}")


def is_known(target: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which rows have a target."""
    valid = pc.is_valid(target)
    if not pa.types.is_floating(target.type):
        return valid
    return pc.and_(valid, pc.fill_null(pc.invert(pc.is_nan(target)), False))


def known_rows(table: pa.Table, target: pa.ChunkedArray) -> tuple[pa.Table, pa.ChunkedArray, int]:
    """Rows whose target is known, and how many were not."""
    valid = is_known(target)
    lost = len(target) - int(pc.sum(valid).as_py() or 0)
    return (table.filter(valid), target.filter(valid), lost) if lost else (table, target, 0)

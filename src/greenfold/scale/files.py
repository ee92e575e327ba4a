"""Streams from files: .npy matrices, parquet row groups, Arrow record batches."""

import glob
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from greenfold.rows import ENDINGS, column_name, known_rows, target_column
from greenfold.scale.blocks import PIECE, Batch, Pieces, n_rows, ranges
from greenfold.table import Table, is_text, refuse_twins

CORRUPT = """\
{path}: {what} cannot be read ({error}). Nothing that was learned so far is lost: restore the file and \
run the same command again.\
"""


class Npy(Pieces):
    """Matrices in .npy files of equal columns, a piece in memory at a time; one column is the target."""

    def __init__(self, paths: Sequence[Path], target: Any):
        self.pieces: list[tuple[Path, int, int]] = []  # file, first byte, rows
        kinds = {}
        for path in paths:
            offset, shape, dtype = _npy_header(path)
            kinds[path] = (shape[1:], dtype)
            row = dtype.itemsize * math.prod(shape[1:])
            self.pieces += [
                (path, offset + row * start, size) for start, size in zip(*ranges(shape[0]))
            ]
        _one_kind(kinds)
        (width,), self.dtype = next(iter(kinds.values()))
        self.sizes = [size for _, _, size in self.pieces]
        self.names = [f"x{j}" for j in range(width)]
        self.target_name = column_name(self.names, target)
        self.target = self.names.index(self.target_name)
        self.inputs = np.delete(np.arange(width), self.target)
        last = self.target == width - 1
        self.columns = slice(0, -1) if last else self.inputs  # of which a view is cheaper

    def read(self, piece: int) -> Iterator[Batch]:
        path, offset, size = self.pieces[piece]
        rows = np.empty((size, len(self.names)), dtype=self.dtype)
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            view, got = memoryview(rows.data).cast("B"), 0
            while got < rows.nbytes:
                n = file.readinto(view[got:])
                if not n:
                    raise ValueError(
                        CORRUPT.format(path=path, what=f"byte {offset}", error="the file ends")
                    )
                got += n
        yield rows[:, self.columns], rows[:, self.target]

    def learn(self, sample: Batch) -> None:
        self.table = Table.plain([self.names[j] for j in self.inputs])

    def describe(self) -> dict[str, str]:
        columns = {"target": self.target_name or "", "columns": str(len(self.names))}
        return {**super().describe(), **columns, **_files(path for path, *_ in self.pieces)}


class Tables(Pieces):
    """Parquet row groups and Arrow record batches, columns by name."""

    def __init__(self, paths: Sequence[Path], target: Any, columns: Sequence[str] | None = None):
        self.pieces: list[tuple[Path, int]] = []
        self.sizes, schemas = [], {}
        for path in paths:
            try:
                schemas[path], sizes = _groups(path)
            except (pa.ArrowException, OSError) as error:
                if isinstance(error, FileNotFoundError):
                    raise
                raise ValueError(
                    CORRUPT.format(path=path, what="the table", error=_first_line(error))
                ) from error
            self.pieces += [(path, i) for i in range(len(sizes))]
            self.sizes += sizes
        _one_kind({path: tuple(schema.names) for path, schema in schemas.items()})
        self.schema = _common(schemas)
        names = list(self.schema.names)
        refuse_twins(names, str(paths[0]))
        self.target = self.target_name = column_name(names, target)
        kind = self.schema.field(self.target).type
        self.has_labels = is_text(kind) or pa.types.is_boolean(kind)
        unknown = [name for name in columns or [] if name not in names]
        if unknown:
            raise ValueError(f"there are no columns {unknown}; there are {names}.")
        self.columns = [n for n in (columns or names) if n != self.target]

    def read(self, piece: int) -> Iterator[Batch]:
        path, group = self.pieces[piece]
        names = [*self.columns, self.target]
        types = pa.schema([(name, self.schema.field(name).type) for name in names])
        try:
            if kind_of(path) == "parquet":  # without pre-buffering a group is never whole in memory
                with pa.parquet.ParquetFile(
                    path, pre_buffer=False, page_checksum_verification=True
                ) as file:
                    for batch in file.iter_batches(
                        PIECE, row_groups=[group], columns=names, use_threads=False
                    ):
                        yield pa.Table.from_batches([batch]).select(names).cast(types)
            else:
                with pa.OSFile(str(path)) as file:
                    batch = pa.ipc.open_file(file).get_batch(group)
                    yield pa.Table.from_batches([batch]).select(names).cast(types)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(
                CORRUPT.format(path=path, what=f"group {group}", error=_first_line(error))
            ) from error

    def learn(self, sample: Batch) -> None:
        frame, _ = self._known(sample)
        if not len(frame):
            raise ValueError(
                f"the target {self.target!r} is missing in all {n_rows(sample)} rows looked at."
            )
        self.table = Table.learn(frame)

    def describe(self) -> dict[str, str]:
        columns = {"target": self.target, "columns": ", ".join(self.columns)}
        return {**super().describe(), **columns, **_files(path for path, *_ in self.pieces)}

    def labels(self, batch: Batch) -> Any:
        return self._known(batch)[1]

    def encode(self, batch: Batch) -> tuple[Any, Any]:
        assert self.table is not None
        frame, y = self._known(batch)
        return self.table.encode(frame), y

    def _known(self, batch: Batch) -> tuple[Any, Any]:
        """Rows whose target is known, and their targets."""
        frame, values, _ = known_rows(*target_column(batch, self.target))
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        return frame, values.to_numpy()


def find(source: Any) -> list[Path]:
    """Files in alphabetical order: of a directory those with an ending we know."""
    names = source if isinstance(source, list | tuple) else [source]
    paths: list[Path] = []
    for name in names:
        path = Path(name)
        if path.is_dir():
            found = [p for p in sorted(path.iterdir()) if p.suffix.lower() in ENDINGS]
        elif glob.has_magic(str(name)):
            found = [Path(p) for p in sorted(glob.glob(str(name), recursive=True))]
        else:
            found = [path]
        if not found:
            raise ValueError(f"{name}: there are no files to stream.")
        paths += found
    missing = [str(p) for p in paths if not p.exists()]
    if missing:
        raise FileNotFoundError(2, "this shard is missing", missing[0])
    return paths


def _files(paths: Iterable[Path]) -> dict[str, str]:
    """Size and time of every file."""
    stats = {path.absolute(): path.stat() for path in dict.fromkeys(paths)}
    return {
        f"file {path}": f"{s.st_size} bytes of {datetime.fromtimestamp(s.st_mtime_ns / 1e9, UTC)}"
        for path, s in stats.items()
    }


def kind_of(path: Path) -> str:
    kind = ENDINGS.get(path.suffix.lower())
    if kind is None:
        raise ValueError(f"{path} ends in none of {sorted(ENDINGS)}.")
    return kind


def _groups(path: Path) -> tuple[pa.Schema, list[int]]:
    """Schema, and rows of every row group or record batch."""
    if kind_of(path) == "parquet":
        with pa.parquet.ParquetFile(path) as file:
            meta = file.metadata
            return file.schema_arrow, [
                meta.row_group(i).num_rows for i in range(meta.num_row_groups)
            ]
    with pa.memory_map(str(path)) as file:  # touches the lengths only
        reader = pa.ipc.open_file(file)
        sizes = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
        return reader.schema, sizes


def _npy_header(path: Path) -> tuple[int, tuple[int, ...], np.dtype]:
    with open(path, "rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            header = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
            shape, fortran, dtype = header(file)
        except (ValueError, AttributeError) as error:
            raise ValueError(CORRUPT.format(path=path, what="the header", error=error)) from error
        offset = file.tell()
    if len(shape) != 2 or fortran or dtype.kind not in "fiu":
        raise ValueError(
            f"{path} must hold numbers of shape (n, D) in C order, got {dtype} of shape {shape}"
            f"{' in Fortran order' if fortran else ''}. Save np.ascontiguousarray of it."
        )
    if shape[1] < 2:
        raise ValueError(
            f"{path} must have two columns or more, the target and what it is predicted from, got shape "
            f"{shape}."
        )
    held = (path.stat().st_size - offset) // (dtype.itemsize * shape[1])
    if held < shape[0]:
        short = f"its header promises {shape[0]} rows, it holds {held}"
        raise ValueError(CORRUPT.format(path=path, what="the matrix", error=short))
    return offset, shape, dtype


def _one_kind(kinds: dict[Path, Any]) -> None:
    (first, expected), *rest = kinds.items()
    for path, kind in rest:
        if kind != expected:
            raise ValueError(
                f"{path} has columns {_short(kind)}, {first} has {_short(expected)}; all files of a "
                "stream must have the same."
            )


def _common(schemas: dict[Path, pa.Schema]) -> pa.Schema:
    """Types that all files can be read as: what is missing in a whole file has no type there."""
    first, *rest = schemas.items()
    common = first[1]
    for path, schema in rest:
        try:
            common = pa.unify_schemas([common, schema], promote_options="permissive")
        except pa.ArrowException as error:
            raise ValueError(
                f"{path} has columns of other types than {first[0]}: {_first_line(error)}."
            ) from error
    return common


def _short(kind: Any) -> str:
    text = str(kind)
    return text if len(text) < 200 else f"{text[:200]}…"


def _first_line(error: Exception) -> str:
    return str(error.args[0] if error.args else error).splitlines()[0]

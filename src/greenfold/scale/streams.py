"""Rows that need not fit in memory, as often and in whatever order they are asked for.

    stream(source)  ──batches(block, n_blocks)──▶  raw batches  ──encode──▶  X (n, D), y (n,) or (n, c)

A stream is divided into *blocks*, always the same rows in the same block whoever reads it: what is summed
block by block, and the blocks in order, does not depend on how many processes share the work.
"""

import glob
import inspect
import math
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from greenfold.rows import ENDINGS, known_rows, target_column
from greenfold.table import Table, is_text

PIECE = 4096  # rows read at a time, at most
PIECES = 256  # of what can be read anywhere, at least, so that every block has its share
Batch = Any  # a pyarrow Table, or a pair of arrays X and y

CORRUPT = """\
{path}: {what} cannot be read ({error}). Nothing that was learned so far is lost: restore the file and \
run the same command again.\
"""


class Stream(ABC):
    """Rows in blocks; see `stream` for how to make one."""

    table: Table | None = None  # how named columns become numbers, learned from a sample
    target_name: str | None = None
    has_labels = False  # is the target text, or true and false?

    @abstractmethod
    def parts(self, block: int, n_blocks: int, order: Any, skip: int) -> Iterator[Batch]:
        """Batches of any size; `order` shuffles what it can, `skip` rows are left out at the start."""

    @abstractmethod
    def describe(self) -> str:
        """What the rows are, to be compared with that of another day."""

    def batches(
        self, block: int, n_blocks: int, size: int, order: Any = None, skip: int = 0
    ) -> Iterator[Batch]:
        """Batches of exactly `size` rows but for the last."""
        held: list[Batch] = []
        count = 0
        for part in self.parts(block, n_blocks, order, skip):
            while count + n_rows(part) >= size:
                head, part = _split(part, size - count)
                yield concat([*held, head])
                held, count = [], 0
            if n_rows(part):
                held.append(part)
                count += n_rows(part)
        if held:
            yield concat(held)

    def learn(self, sample: Batch) -> None:  # noqa: B027 (arrays need none)
        """How to encode, from a sample of raw rows."""

    def labels(self, batch: Batch) -> Any:
        """The different targets of a raw batch."""
        return np.unique(batch[1])

    def encode(self, batch: Batch) -> tuple[Any, Any]:
        """X (n, D) and y."""
        X, y = batch
        bad = int((~np.isfinite(X)).any(1).sum())
        if y.dtype.kind == "f":
            bad += int((~np.isfinite(y)).reshape(len(y), -1).any(1).sum())
        if bad:
            raise ValueError(
                f"{bad} rows of a batch of {len(X)} hold NaN or infinity, and arrays have no way to fill "
                "them. Clean the rows, or stream a table (parquet, arrow), whose gaps are filled."
            )
        return X, y


def n_rows(batch: Batch) -> int:
    return batch.num_rows if isinstance(batch, pa.Table) else len(batch[0])


def take(batch: Batch, index: Any) -> Batch:
    """A copy of those rows."""
    if isinstance(batch, pa.Table):
        return batch.take(pa.array(index))
    return batch[0][index], batch[1][index]


def concat(batches: Sequence[Batch]) -> Batch:
    """One batch, of its own memory."""
    if isinstance(batches[0], pa.Table):
        return pa.concat_tables(batches)
    X, y = zip(*batches, strict=True)
    return np.concatenate(X), np.concatenate(y)


def _split(batch: Batch, n: int) -> tuple[Batch, Batch]:
    if isinstance(batch, pa.Table):
        return batch.slice(0, n), batch.slice(n)
    return (batch[0][:n], batch[1][:n]), (batch[0][n:], batch[1][n:])


class Pieces(Stream):
    """What can be read piece by piece in any order: shards, row groups, ranges of rows."""

    sizes: list[int]  # rows of each piece

    @abstractmethod
    def read(self, piece: int) -> Iterator[Batch]: ...

    def blocks(self, n_blocks: int) -> list[list[int]]:
        """The pieces of each block, each piece to the block with the fewest rows so far."""
        blocks: list[list[int]] = [[] for _ in range(n_blocks)]
        rows = np.zeros(n_blocks, dtype=np.int64)
        for piece, size in enumerate(self.sizes):
            least = int(rows.argmin())
            blocks[least].append(piece)
            rows[least] += size
        return blocks

    def parts(self, block: int, n_blocks: int, order: Any, skip: int) -> Iterator[Batch]:
        pieces = self.blocks(n_blocks)[block]
        if order is not None:
            pieces = [pieces[i] for i in np.random.default_rng(order).permutation(len(pieces))]
        for piece in pieces:
            if skip >= self.sizes[piece]:
                skip -= self.sizes[piece]
                continue
            for part in self.read(piece):
                n = n_rows(part)
                if skip < n:
                    yield _split(part, skip)[1]
                skip = max(skip - n, 0)

    def describe(self) -> str:
        return f"{type(self).__name__} of {sum(self.sizes)} rows in {len(self.sizes)} pieces"


class Arrays(Pieces):
    """A pair of arrays: NumPy, memory maps, torch tensors, anything with slices."""

    def __init__(self, X: Any, y: Any):
        if len(X) != len(y) or not len(X):
            raise ValueError(
                f"a stream of arrays takes X and y of one length, got {len(X)} and {len(y)} rows."
            )
        self.X, self.y = X, y
        self.starts, self.sizes = _ranges(len(X))

    def read(self, piece: int) -> Iterator[Batch]:
        rows = slice(self.starts[piece], self.starts[piece] + self.sizes[piece])
        X, y = np.asarray(self.X[rows]), np.asarray(self.y[rows])
        yield _matrix(X), y
        _let_go(self.X)


class Rows(Pieces):
    """A torch Dataset of pairs (x, y)."""

    def __init__(self, dataset: Any):
        self.dataset = dataset
        self.starts, self.sizes = _ranges(len(dataset))

    def read(self, piece: int) -> Iterator[Batch]:
        pairs = [self.dataset[self.starts[piece] + i] for i in range(self.sizes[piece])]
        X = np.stack([np.asarray(x) for x, _ in pairs])
        yield _matrix(X), np.asarray([np.asarray(y) for _, y in pairs])


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
                (path, offset + row * start, size) for start, size in zip(*_ranges(shape[0]))
            ]
        _one_kind(kinds)
        (width,), self.dtype = next(iter(kinds.values()))
        self.sizes = [size for _, _, size in self.pieces]
        self.names = [f"x{j}" for j in range(width)]
        self.target = _column(target, self.names)
        self.target_name = self.names[self.target]
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
        schema = next(iter(schemas.values()))
        names = list(schema.names)
        self.target = self.target_name = names[_column(target, names)]
        kind = schema.field(self.target).type
        self.has_labels = is_text(kind) or pa.types.is_boolean(kind)
        unknown = [name for name in columns or [] if name not in names]
        if unknown:
            raise ValueError(f"there are no columns {unknown}; there are {names}.")
        self.columns = [n for n in (columns or names) if n != self.target]

    def read(self, piece: int) -> Iterator[Batch]:
        path, group = self.pieces[piece]
        names = [*self.columns, self.target]
        try:
            if _format(path) == "parquet":  # without pre-buffering a group is never whole in memory
                with pa.parquet.ParquetFile(
                    path, pre_buffer=False, page_checksum_verification=True
                ) as file:
                    for batch in file.iter_batches(
                        PIECE, row_groups=[group], columns=names, use_threads=False
                    ):
                        yield pa.Table.from_batches([batch])
            else:
                with pa.OSFile(str(path)) as file:
                    batch = pa.ipc.open_file(file).get_batch(group)
                    yield pa.Table.from_batches([batch]).select(names)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(
                CORRUPT.format(path=path, what=f"group {group}", error=_first_line(error))
            ) from error

    def learn(self, sample: Batch) -> None:
        self.table = Table.learn(self._known(sample)[0])

    def labels(self, batch: Batch) -> Any:
        return np.unique(self._known(batch)[1])

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


class Iterators(Stream):
    """Batches from a function that begins anew at every call: `make()`, or `make(shard, n_shards)`."""

    def __init__(self, make: Callable[..., Iterator[Any]]):
        self.make = make
        self.sharded = len(inspect.signature(make).parameters) >= 2

    def parts(self, block: int, n_blocks: int, order: Any, skip: int) -> Iterator[Batch]:
        batches = self.make(block, n_blocks) if self.sharded else self.make()
        for i, (X, y) in enumerate(batches):
            if not self.sharded and i % n_blocks != block:  # dealt out in turn
                continue
            X, y = np.asarray(X), np.asarray(y)
            if X.ndim == 1:  # a single row
                X, y = X[None], y[None]
            if skip < len(X):
                yield _matrix(X[skip:]), y[skip:]
            skip = max(skip - len(X), 0)

    def describe(self) -> str:
        return "an iterator"


def stream(source: Any, *, target: Any = None, columns: Sequence[str] | None = None) -> Stream:
    """Rows to fit to that need not fit in memory.

    Parameters
    ----------
    source : str, path, list of them, (X, y), Dataset or callable
        Files by name, directory or pattern such as "data/*.parquet": parquet, arrow or npy, all of one
        kind and with the same columns. A pair of arrays, memory maps or tensors. A torch Dataset of pairs
        (x, y). Or a function that returns an iterator over batches (X, y) and is called once for every
        pass; with two arguments, `make(shard, n_shards)`, it is asked for single shards.
    target : str or int, optional
        Column to predict, of files; −1, the last, by default.
    columns : sequence of str, optional
        Columns to predict from, of tables; all others by default.

    Examples
    --------
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> rows = stream((X, X.sum(1)))
    >>> [len(x) for block in range(2) for x, y in rows.batches(block, 2, size=4)]
    [4, 2]
    """
    if isinstance(source, Stream):
        return source
    if isinstance(source, tuple) and len(source) == 2 and hasattr(source[0], "shape"):
        return Arrays(*source)
    if isinstance(source, TensorDataset) and len(source.tensors) == 2:
        return Arrays(*source.tensors)
    if isinstance(source, IterableDataset):
        return Iterators(lambda: iter(source))
    if isinstance(source, Dataset):
        return Rows(source)
    if callable(source):
        return Iterators(source)
    if not isinstance(source, str | os.PathLike | list | tuple):
        raise ValueError(
            f"cannot stream from a {type(source).__name__}. Give files, a pair (X, y), a torch Dataset, "
            "or a function that returns an iterator over batches."
        )
    paths = _files(source)
    kinds = sorted({_format(path) for path in paths})
    if len(kinds) > 1:
        raise ValueError(f"the files are {' and '.join(kinds)}; give those of one kind.")
    if kinds == ["npy"]:
        return Npy(paths, target)
    if kinds[0] in ("parquet", "arrow"):
        return Tables(paths, target, columns)
    raise ValueError(
        f"{paths[0]}: {kinds[0]} files cannot be streamed. Convert them to parquet, arrow or npy."
    )


def _files(source: Any) -> list[Path]:
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


def _format(path: Path) -> str:
    kind = ENDINGS.get(path.suffix.lower())
    if kind is None:
        raise ValueError(f"{path} ends in none of {sorted(ENDINGS)}.")
    return kind


def _ranges(n: int) -> tuple[list[int], list[int]]:
    """First rows and sizes of the pieces of n rows."""
    size = max(1, min(PIECE, n // PIECES))
    starts = list(range(0, n, size))
    return starts, [min(size, n - start) for start in starts]


def _groups(path: Path) -> tuple[pa.Schema, list[int]]:
    """Schema, and rows of every row group or record batch."""
    if _format(path) == "parquet":
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


def _short(kind: Any) -> str:
    text = str(kind)
    return text if len(text) < 200 else f"{text[:200]}…"


def _column(target: Any, names: list[str]) -> int:
    """Position of the target: a name, or a number that counts columns."""
    target = -1 if target is None else target
    if target in names:
        return names.index(target)
    try:
        return range(len(names))[int(target)]
    except (ValueError, IndexError):
        shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
        raise ValueError(f"there is no column {target!r}; there are {shown}.") from None


def _matrix(X: Any) -> Any:
    return X.reshape(len(X), -1)


def _let_go(array: Any) -> None:
    """Pages of a shared memory map that were read need not stay in this process."""
    pages = getattr(array, "_mmap", None)
    if pages is not None and array.mode in ("r", "r+") and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)


def _first_line(error: Exception) -> str:
    return str(error.args[0] if error.args else error).splitlines()[0]

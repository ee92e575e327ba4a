"""Streams of arrays, Datasets and iterators, and how to make any stream."""

import inspect
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from greenfold.scale.blocks import Batch, Pieces, Stream, ranges
from greenfold.scale.files import Npy, Tables, find, kind_of


class Arrays(Pieces):
    """A pair of arrays: NumPy, memory maps, torch tensors, anything with slices."""

    def __init__(self, X: Any, y: Any):
        if len(X) != len(y) or not len(X):
            raise ValueError(
                f"a stream of arrays takes X and y of one length, got {len(X)} and {len(y)} rows."
            )
        if np.asarray(X[:1]).dtype.kind == "O":
            raise ValueError(
                "a pair (X, y) to stream from must hold numbers, and X has columns of other kinds. "
                "Tables in memory are for `fit`, which takes them as they are; streams take parquet and "
                "arrow files."
            )
        self.X, self.y = X, y
        self.starts, self.sizes = ranges(len(X))

    def read(self, piece: int) -> Iterator[Batch]:
        rows = slice(self.starts[piece], self.starts[piece] + self.sizes[piece])
        X, y = np.asarray(self.X[rows]), np.asarray(self.y[rows])
        yield _matrix(X), y
        _let_go(self.X)

    def describe(self) -> dict[str, str]:
        shapes = {"X": str(tuple(self.X.shape)), "y": str(tuple(np.shape(self.y)))}
        return {**super().describe(), **shapes}


class Rows(Pieces):
    """A torch Dataset of pairs (x, y)."""

    def __init__(self, dataset: Any):
        self.dataset = dataset
        self.starts, self.sizes = ranges(len(dataset))

    def read(self, piece: int) -> Iterator[Batch]:
        pairs = [self.dataset[self.starts[piece] + i] for i in range(self.sizes[piece])]
        X = np.stack([np.asarray(x) for x, _ in pairs])
        yield _matrix(X), np.asarray([np.asarray(y) for _, y in pairs])


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

    def describe(self) -> dict[str, str]:
        return {"rows": "an iterator"}


def stream(source: Any, *, target: Any = None, columns: Sequence[str] | None = None) -> Stream:
    """Rows to fit to that need not fit in memory.

    Parameters
    ----------
    source : str, path, list of them, (X, y), Dataset or callable
        Files by name, directory or pattern such as `data/*.parquet`: parquet, arrow or npy, all of one
        kind and with the same columns. A pair of arrays, memory maps or tensors. A torch Dataset of pairs
        (x, y). Or a function that returns an iterator over batches (X, y) and is called once for every
        pass; with two arguments, `make(shard, n_shards)`, it is asked for single shards.
    target : str or int, optional
        Column to predict, of files; −1, the last, by default.
    columns : sequence of str, optional
        Columns to predict from, of tables; all others by default.

    Returns
    -------
    Stream

    Examples
    --------
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> rows = stream((X, X.sum(1)))
    >>> [len(x) for block in range(2) for x, y in rows.batches(block, 2, size=4)]
    [3, 3]
    """
    files = isinstance(source, str | os.PathLike | list) or (
        isinstance(source, tuple) and not any(hasattr(part, "shape") for part in source)
    )
    if not files and (target is not None or columns is not None):
        raise ValueError(
            f"`target` and `columns` name columns of files; a {type(source).__name__} comes with its own."
        )
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
    paths = find(source)
    kinds = sorted({kind_of(path) for path in paths})
    if len(kinds) > 1:
        raise ValueError(f"the files are {' and '.join(kinds)}; give those of one kind.")
    if kinds == ["npy"]:
        if columns is not None:
            raise ValueError(
                f"{paths[0]}: `columns` needs names, and the columns of npy files have none."
            )
        return Npy(paths, target)
    if kinds[0] in ("parquet", "arrow"):
        return Tables(paths, target, columns)
    raise ValueError(
        f"{paths[0]}: {kinds[0]} files cannot be streamed. Convert them to parquet, arrow or npy."
    )


def _matrix(X: Any) -> Any:
    return X.reshape(len(X), -1)


def _let_go(array: Any) -> None:
    """Pages of a shared memory map that were read need not stay in this process."""
    pages = getattr(array, "_mmap", None)
    if pages is not None and array.mode in ("r", "r+") and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)

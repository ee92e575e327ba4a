"""What a stream is: rows in blocks, as often and in whatever order they are asked for.

    batches(block, n_blocks)  ──▶  raw batches  ──encode──▶  X (n, D), y (n,) or (n, c)

Always the same rows are in the same block, whoever reads it: what is summed block by block, and over the
blocks in order, does not depend on how many processes share the work.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from greenfold.table import Table

PIECE = 4096  # rows read at a time, at most
PIECES = 256  # of what can be read anywhere, at least, so that every block has its share
Batch = Any  # a pyarrow Table, or a pair of arrays X and y


class Stream(ABC):
    """Rows in blocks; see `stream` for how to make one."""

    table: Table | None = None  # how named columns become numbers, learned from a sample
    target_name: str | None = None
    has_labels = False  # is the target text, or true and false?

    @abstractmethod
    def parts(self, block: int, n_blocks: int, order: Any, skip: int) -> Iterator[Batch]:
        """Batches of any size; `order` shuffles what it can, `skip` rows are left out at the start."""

    @abstractmethod
    def describe(self) -> dict[str, str]:
        """What the rows are, fact by fact, to be compared with those of another day."""

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
        """The targets of a raw batch that are known."""
        return batch[1]

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

    def describe(self) -> dict[str, str]:
        return {"rows": f"{sum(self.sizes)} in {len(self.sizes)} pieces"}


def ranges(n: int) -> tuple[list[int], list[int]]:
    """First rows and sizes of the pieces of n rows."""
    size = max(1, min(PIECE, n // PIECES))
    starts = list(range(0, n, size))
    return starts, [min(size, n - start) for start in starts]

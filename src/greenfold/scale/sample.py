"""One pass over all rows, and the random sample that a fit begins with."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from greenfold.scale.blocks import Batch, Stream, concat, n_rows, take
from greenfold.scale.group import Group

CHUNK = 4096  # rows of a batch: enough for a product ΦᵀΦ to be fast


def all_batches(stream: Stream, group: Group) -> Iterator[tuple[int, Batch]]:
    """Every batch of this process's blocks with its block, in step with the other processes."""
    n = group.n_blocks
    pairs = ((b, batch) for b in group.blocks for batch in stream.batches(b, n, CHUNK))
    return group.paced(pairs)


def summed(stream: Stream, group: Group, size: int, add: Callable[[Batch, Tensor], None]) -> Tensor:
    """What `add` adds to a vector (size,) for every batch, over all rows; there are three such."""
    total = torch.zeros(size, dtype=torch.float64)
    slot = torch.zeros_like(total) if group.ordered else total
    for blocks, own in group.rounds:
        batches = () if own is None else stream.batches(own, group.n_blocks, CHUNK)
        for batch in group.paced(batches):
            add(batch, slot)
        if group.ordered:
            group.add(total, slot, blocks)
            slot.zero_()
    return total if group.ordered else group.sum({0: total})


class Labels(NamedTuple):
    """Classes in order, and how many rows each has."""

    values: Any  # (c,)
    counts: Any  # (c,)

    @staticmethod
    def joined(parts: Sequence["Labels"]) -> "Labels":
        values, at = np.unique(np.concatenate([part.values for part in parts]), return_inverse=True)
        counts = np.bincount(at, np.concatenate([part.counts for part in parts]))
        return Labels(values, counts.astype(np.int64))


def draw(
    stream: Stream, group: Group, size: int, seed: int, labeled: bool = False
) -> tuple[Batch, list[int], Labels | None]:
    """A random sample of raw rows in random order, the rows of each block, and all labels.

    Every row draws a key, and the lowest keys win: the same sample however blocks are shared out.
    """
    counts = dict.fromkeys(group.blocks, 0)
    generators = {b: np.random.default_rng([seed, b]) for b in counts}
    labels: list[Labels] = []
    keys, kept, limit = np.empty(0), [], np.inf
    for block, batch in all_batches(stream, group):
        drawn = generators[block].random(n_rows(batch))
        counts[block] += len(drawn)
        low = np.flatnonzero(drawn < limit)
        if len(low):
            keys = np.concatenate([keys, drawn[low]])
            kept.append(take(batch, low))
        if len(keys) > 2 * size:
            keys, kept, limit = _lowest(keys, kept, size)
        if labeled:
            found = Labels(*np.unique(stream.labels(batch), return_counts=True))
            labels = [Labels.joined([*labels, found])]
    keys, kept, _ = _lowest(keys, kept, size)
    everywhere = np.sort(np.concatenate(group.gather(keys)))[:size]
    own = np.flatnonzero(np.isin(keys, everywhere))
    winners = group.gather((keys[own], take(kept[0], own) if kept else None))
    winners = [(k, rows) for k, rows in winners if rows is not None]
    if not winners:
        raise ValueError("the stream has no rows.")
    order = np.argsort(np.concatenate([k for k, _ in winners]))
    known = [part for parts in group.gather(labels) for part in parts]
    by_block = {b: n for part in group.gather(counts) for b, n in part.items()}
    return (
        take(concat([rows for _, rows in winners]), order),
        [by_block[b] for b in range(group.n_blocks)],
        Labels.joined(known) if known else None,
    )


def _lowest(keys: Any, kept: list[Batch], size: int) -> tuple[Any, list[Batch], float]:
    """The rows with the `size` lowest keys, and the highest key among them once there are so many."""
    if not kept:
        return keys, kept, np.inf
    low = np.argsort(keys)[:size]
    return keys[low], [take(concat(kept), low)], keys[low[-1]] if len(low) == size else np.inf

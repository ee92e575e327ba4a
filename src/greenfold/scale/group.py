"""The processes that fit together, through `torch.distributed` on gloo.

    Σ over all rows  =  Σ over blocks, in the order of the blocks        (`ordered`)
                     =  Σ over processes of the sum over their blocks     (otherwise)

The first gives the same bits for any number of processes; the second differs by rounding and sends less.
Every launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT will do: torchrun, Slurm, Ray
Train, Spark's TorchDistributor. Without them, and without a group that exists, there is one process.
"""

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")

BEAT = 16  # batches between two signs of life


class Group:
    """One process among `world`, each with its own blocks of rows.

    Parameters
    ----------
    n_blocks : int
        Parts of the rows, shared out among the processes.
    ordered : bool
        Sum over blocks in their order.
    first_decides : bool
        Take every result of the first process, for machines whose arithmetic differs.
    timeout : float
        Seconds to wait for the others. A process that died is noticed at once on the same machine and
        after this long elsewhere; signs of life during a pass keep it independent of the number of rows.
    """

    def __init__(
        self,
        n_blocks: int,
        *,
        ordered: bool = False,
        first_decides: bool = False,
        timeout: float = 60,
    ):
        self.own = False
        self.handle: Any = None
        wait = timedelta(seconds=timeout)
        exists, launched = dist.is_initialized(), int(os.environ.get("WORLD_SIZE", "1"))
        world = dist.get_world_size() if exists else launched
        if world > n_blocks:
            raise ValueError(
                f"{n_blocks} blocks of rows are too few for {world} processes; use blocks={world} or "
                "more, or fewer processes."
            )
        if not exists and launched > 1:
            dist.init_process_group("gloo", timeout=wait)
            self.own = True
            if "TORCHELASTIC_RUN_ID" in os.environ:
                _end_with(os.getppid())
        if dist.is_initialized():
            self.rank, self.world = dist.get_rank(), dist.get_world_size()
            if dist.get_backend() != "gloo":  # sums are on the CPU, in float64
                self.handle = dist.new_group(backend="gloo", timeout=wait)
        else:
            self.rank, self.world = 0, 1
        self.ordered, self.first_decides = ordered, first_decides
        self.n_blocks = n_blocks

    def close(self) -> None:
        if self.own:
            dist.destroy_process_group()
        self.own = False

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @property
    def blocks(self) -> list[int]:
        """Of this process."""
        return [b for b in range(self.n_blocks) if b % self.world == self.rank]

    def sum(self, slots: dict[int, Tensor]) -> Tensor:
        """Sum over all blocks of equal float64 vectors, of which this process has its own."""
        total = torch.zeros_like(next(iter(slots.values())))
        if not self.ordered:
            for slot in slots.values():
                total += slot
            if self.world > 1:
                dist.all_reduce(total, group=self.handle)
            return total
        for block in range(self.n_blocks):
            owner = block % self.world
            slot = slots[block] if owner == self.rank else torch.empty_like(total)
            if self.world > 1:
                dist.broadcast(slot, owner, group=self.handle)
            total += slot
        return total

    @property
    def rounds(self) -> Iterator[tuple[range, int | None]]:
        """Blocks in order, one for each process at a time, and which of them is this one's, if any."""
        for first in range(0, self.n_blocks, self.world):
            now = range(first, min(first + self.world, self.n_blocks))
            yield now, first + self.rank if first + self.rank in now else None

    def add(self, total: Tensor, slot: Tensor, blocks: range) -> None:
        """The sums of blocks of one round, in their order; `slot` is this process's own."""
        for owner in range(len(blocks)):
            part = slot if owner == self.rank else torch.empty_like(slot)
            if self.world > 1:
                dist.broadcast(part, owner, group=self.handle)
            total += part

    def agree(self, values: Tensor) -> Tensor:
        """The values of the first process if it decides, each one's own otherwise."""
        if self.first_decides and self.world > 1:
            dist.broadcast(values, 0, group=self.handle)
        return values

    def share(self, value: T) -> T:
        """The value of the first process."""
        if self.world == 1:
            return value
        box = [value if self.rank == 0 else None]
        dist.broadcast_object_list(box, 0, group=self.handle)
        return box[0]  # type: ignore[return-value]

    def gather(self, value: T) -> list[T]:
        """The values of all processes."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value, group=self.handle)
        return values

    def paced(self, batches: Iterable[T]) -> Iterator[T]:
        """The batches, with signs of life between them, until all processes are through with theirs."""
        for i, batch in enumerate(batches):
            yield batch
            if i % BEAT == BEAT - 1:
                self._all_done(False)
        while not self._all_done(True):
            pass

    def _all_done(self, done: bool) -> bool:
        if self.world == 1:
            return done
        count = torch.tensor(float(done))
        dist.all_reduce(count, group=self.handle)
        return int(count) == self.world


def _end_with(parent: int) -> None:
    """End this process when its launcher is gone, lest it go on beside the next one."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        print(
            "greenfold: the launcher is gone, so this process ends too. Run the same command again to go "
            "on from the last checkpoint.",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

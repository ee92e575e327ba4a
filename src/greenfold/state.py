"""What fits share with the rest of the process: generators, threads. Each leaves them as they were.

Randomness enters through `random_state` and travels as generators of its own, so that fits in several
threads neither disturb each other nor anybody's `torch.manual_seed` or `np.random.seed`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from threading import Lock
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode


def seed_of(random_state: Any) -> int:
    """A seed below 2³¹ from what users give; None is a new one every time."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**31 - 1))
    return int(check_random_state(random_state).randint(2**31 - 1))


# --- modules that draw in training, such as dropout, know only torch's own generator

_swap = Lock()


class _Draws(TorchDispatchMode):
    """Operations that draw, in this thread, take their numbers from `generator`."""

    def __init__(self, generator: torch.Generator):
        super().__init__()
        self.generator, self.seen = generator, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        self.seen = True
        with _swap:
            outside = torch.get_rng_state()
            torch.set_rng_state(self.generator.get_state())
            try:
                return func(*args, **(kwargs or {}))
            finally:
                self.generator.set_state(torch.get_rng_state())
                torch.set_rng_state(outside)


@contextmanager
def own_draws(module: Any, x: Tensor, generator: torch.Generator) -> Iterator[None]:
    """Within, what a user's module draws comes from `generator`; x (n, D) are rows to try it on."""
    if not isinstance(module, nn.Module):
        yield
        return
    tried = deepcopy(module).train()  # layers such as batch normalization change when they are used
    with torch.no_grad(), _Draws(torch.Generator()) as draws:
        tried(x[:2])
    if not draws.seen:  # watching every operation has its price
        yield
        return
    with _Draws(generator):
        yield


# --- threads


class _Blas:
    """The limit on BLAS is one for all threads: the first to come sets it, the last to go lifts it."""

    lock, users = Lock(), 0
    limit: Any = None


@contextmanager
def one_thread() -> Iterator[None]:
    """Linear algebra on one thread within: matrices of a few hundred rows, where threads only wait."""
    with _Blas.lock:
        if not _Blas.users:
            _Blas.limit = threadpool_limits(1, "blas")
        _Blas.users += 1
    try:
        with threadpool_limits(1, "openmp"):  # which every thread has its own of
            yield
    finally:
        with _Blas.lock:
            _Blas.users -= 1
            if not _Blas.users:
                _Blas.limit.restore_original_limits()

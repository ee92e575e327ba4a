"""Several processes on this machine, as a launcher would start them."""

import multiprocessing
import os
import pickle
import socket
import traceback

import torch

TIMEOUT = 120


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def together(world, job, folder):
    """What `job(rank)` returns in each of `world` processes; an exception of theirs is returned too."""
    port = free_port()
    context = multiprocessing.get_context("fork")  # greenfold is imported already
    workers = [
        context.Process(target=_work, args=(rank, world, port, job, folder))
        for rank in range(world)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(TIMEOUT)
    late = [worker for worker in workers if worker.is_alive()]
    for worker in late:
        worker.kill()
    assert not late, f"{len(late)} of {world} processes hang"
    return [pickle.loads((folder / f"{world}-{rank}").read_bytes()) for rank in range(world)]


def _work(rank, world, port, job, folder):
    os.environ |= {
        "RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }  # fmt: skip
    torch.set_num_threads(1)
    try:
        answer = job(rank)
    except Exception as error:
        traceback.print_exc()
        answer = error
    (folder / f"{world}-{rank}").write_bytes(pickle.dumps(answer))
    os._exit(0)  # nothing of pytest's is to run here

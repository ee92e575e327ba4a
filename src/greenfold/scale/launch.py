"""Several processes for one command, through torchrun, with the settings that restart on gloo."""

import os
import signal
from collections.abc import Sequence

FAILED = """\
the processes failed {times} and were not started again; what went wrong is above. Nothing is lost: with \
a checkpoint folder the same command goes on from there.\
"""


def launch(
    arguments: Sequence[str],
    *,
    nproc: int,
    nnodes: str = "1",
    endpoint: str | None = None,
    max_restarts: int = 10,
    run_id: str = "greenfold",
) -> None:
    """Run `greenfold arguments…` in `nproc` processes on each of `nnodes` machines.

    A process that dies takes the others down and all are started again, up to `max_restarts` times; they
    go on from their last checkpoint. With more than one machine run the same on each of them, with
    `endpoint` the host:port of one.
    """
    if nnodes != "1" and endpoint is None:
        raise ValueError(f"{nnodes} machines meet at --endpoint host:port, which is missing.")
    # With the store of the rendezvous shared with the workers, a restart waits for keys of the dead.
    os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main

    meeting = ["--standalone"]
    if endpoint is not None:
        meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", run_id]
    options = ["--nnodes", nnodes, "--nproc-per-node", str(nproc), *meeting]
    options += ["--max-restarts", str(max_restarts), "-m", "greenfold", *arguments]
    try:
        main(options)
    except ChildFailedError as error:
        raise RuntimeError(FAILED.format(times=f"{max_restarts + 1} times")) from error
    except SignalException as error:
        if error.sigval == signal.SIGTERM:
            raise RuntimeError(FAILED.format(times="in a way that would repeat itself")) from error
        raise KeyboardInterrupt from error


def stop_launcher(error: BaseException) -> None:
    """Starting again does not mend wrong input: tell torchrun, if it is our parent, to give up."""
    if "TORCHELASTIC_RUN_ID" in os.environ and isinstance(
        error, ValueError | FileNotFoundError | ImportError
    ):
        os.kill(os.getppid(), signal.SIGTERM)

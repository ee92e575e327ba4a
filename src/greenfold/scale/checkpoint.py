"""Checkpoints: model files of a fit on its way, each whole or absent, the last two of them.

folder/step-00000200.greenfold    folder/step-00000300.greenfold
"""

import errno
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from greenfold import io

KEPT = 2

FULL = """\
the disk of {folder} is full, so the checkpoint of step {step} was not written. {older} Training goes \
on; make room, and the next checkpoint will be written.\
"""

SHOWN = 5  # differences that are told

OTHER = """\
{folder} holds the checkpoints of another fit: {facts}. Give another folder, or remove this one to begin \
anew.\
"""

RESTORED = """\
 If a file was only restored, give it its time again (`touch -d`).\
"""


@dataclass
class State:
    """Everything a streamed fit goes on from."""

    key: dict[str, str]  # facts about data and settings
    sha256: str  # of the rows of the sample
    seed: int
    estimator: Any  # with its units
    table: Any  # of named columns
    model: Any  # IGL
    sample: Any  # (x, target) the fit began with
    n: int  # rows in all, also without a target
    steps: int  # in an epoch
    log_alpha: Tensor
    counts: list[int] = field(default_factory=list)  # rows of each class
    factor: Tensor | None = None  # (c,) on the weights of rows, by class
    optimizer: dict[str, Any] = field(default_factory=dict)
    running: list[Tensor] = field(default_factory=list)  # sums of the latest batches
    best: list[Tensor] = field(default_factory=list)  # parameters with the lowest exact loss
    best_sums: Tensor | None = None
    losses: list[float] = field(default_factory=list)  # exact, after each epoch
    rollbacks: int = 0
    epoch: int = 0
    step: int = 0  # in the epoch
    points: list[Tensor] = field(default_factory=list)  # of a descent in passes, and how many
    passes: int = 0


def save(state: State, folder: Path) -> None:
    """Write the state beside the previous one, and remove older ones. A full disk is survived."""
    step = state.epoch * (state.steps + 1) + state.step + state.passes
    folder.mkdir(parents=True, exist_ok=True)
    try:
        io.write_whole(folder / f"step-{step:08d}.greenfold", io.to_bytes(state, (State,)))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        kept = _files(folder)
        older = f"{kept[-1].name} is kept." if kept else "There is none before it."
        warnings.warn(FULL.format(folder=folder, step=step, older=older), stacklevel=3)
        return
    for path in _files(folder)[:-KEPT]:
        path.unlink()


def load(folder: Path, key: dict[str, str], module: Any = ()) -> State | None:
    """The newest state that is whole, or None. Files of another fit are refused."""
    for path in folder.glob(".step-*"):  # of a process that was killed while it wrote
        path.unlink()
    for path in reversed(_files(folder)):
        try:
            content = path.read_bytes()
            own = module if io.read_header(content)["modules"] else ()
            state = io.from_bytes(content, own, (State,))
        except ValueError as error:
            text = f"{path} is damaged ({error}) and left alone; an older one is used."
            warnings.warn(text, stacklevel=3)
            continue
        if not isinstance(state, State) or not isinstance(state.key, dict):
            raise ValueError(OTHER.format(folder=folder, facts="greenfold was another version"))
        compare(folder, state.key, key)
        return state
    return None


def compare(folder: Path, old: dict[str, str], new: dict[str, str]) -> None:
    """Refuse to go on with other data or settings, and say what differs."""
    names = [n for n in dict.fromkeys([*old, *new]) if old.get(n) != new.get(n)]
    if not names:
        return
    facts = [f"{n} was {old.get(n, 'not there')}, is {new.get(n, 'not there')}" for n in names]
    more = [f"and {len(facts) - SHOWN} more"] if len(facts) > SHOWN else []
    text = OTHER.format(folder=folder, facts="; ".join(facts[:SHOWN] + more))
    same = all(n.startswith("file ") and n in old and n in new for n in names)
    raise ValueError(text + RESTORED if same else text)


def _files(folder: Path) -> list[Path]:
    """Checkpoints from old to new."""
    found = folder.glob("step-*.greenfold") if folder.is_dir() else []
    return sorted(path for path in found if re.fullmatch(r"step-\d+", path.stem))

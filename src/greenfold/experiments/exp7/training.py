"""One training of one method: resumable, the same bits whether it was interrupted or not."""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR

from greenfold.experiments.exp7.networks import Autoencoder, decoder, rebuilt_loss
from greenfold.output import write_whole

THRESHOLD = 0.15  # gates below this share of the largest are cut
CUT = 0.7  # of the training, when they are; their penalty ends there


@dataclass(frozen=True)
class Setting:
    """What is tuned.

    Parameters
    ----------
    weight : float
        Of what the method adds to the loss of the reconstruction.
    penalty : float
        On the gates, relative to `weight`.
    temperature : float
        Of the contrastive loss.
    rate : float
        Largest learning rate of the cycle.
    """

    weight: float = 0.0
    penalty: float = 0.0
    temperature: float = 0.1
    rate: float = 1e-2


@dataclass(frozen=True)
class Task:
    """A training: everything its result depends on."""

    method: str
    setting: Setting
    dataset: str
    seed: int
    n_train: int
    n_classes: int
    n_dims: int
    n_atoms: int
    epochs: int
    batch: int

    @property
    def key(self) -> str:
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Checkpoint:
    """The state of a training in a file that is always whole; none if there is no folder."""

    def __init__(self, folder: str, name: str):
        self.path = Path(folder) / f"{name}.pt" if folder else None

    def load(self) -> dict[str, Any] | None:
        if self.path is None or not self.path.exists():
            return None
        return torch.load(self.path, weights_only=True)

    def save(self, state: dict[str, Any]) -> None:
        if self.path is None:
            return
        content = BytesIO()
        torch.save(state, content)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, content.getvalue())


def train(
    task: Task, x: Tensor, y: Tensor, folder: str = "", tick: Callable[[str], None] | None = None
) -> tuple[Autoencoder, dict[str, Any]]:
    """The trained network in evaluation mode, and its history: gates after each epoch, CPU seconds.

    `tick` is called after each epoch, also for those a checkpoint has.
    """
    torch.manual_seed(task.seed)
    model = Autoencoder(task.method, x.shape[-1], task.n_dims, task.n_classes, task.n_atoms)
    per_epoch = len(x) // task.batch
    n_steps = per_epoch * task.epochs
    optimizer = torch.optim.Adam(model.parameters(), task.setting.rate, betas=(0.9, 0.99))
    schedule = OneCycleLR(optimizer, task.setting.rate, total_steps=n_steps, pct_start=0.2)
    parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "schedule": schedule}
    history: dict[str, Any] = {"gates": [], "cpu_seconds": 0.0}
    checkpoint = Checkpoint(folder, task.key)
    state = checkpoint.load()
    if state is not None:
        for name, part in parts.items():
            part.load_state_dict(state[name])
        history = state["history"]
    for epoch in range(task.epochs):
        if epoch >= len(history["gates"]):
            start = time.process_time()
            _epoch(model, optimizer, schedule, task, x, y, epoch * per_epoch, n_steps)
            history["cpu_seconds"] += time.process_time() - start
            history["gates"].append((model.roots.detach() ** 2).tolist())
            states = {name: part.state_dict() for name, part in parts.items()}
            checkpoint.save({**states, "history": history})
        if tick is not None:
            tick(task.method)
    return model.eval(), history


def _epoch(
    model: Autoencoder,
    optimizer: torch.optim.Optimizer,
    schedule: OneCycleLR,
    task: Task,
    x: Tensor,
    y: Tensor,
    step: int,
    n_steps: int,
) -> None:
    """Rows in an order, and noise, that depend on the seed and the step alone."""
    model.train()
    torch.manual_seed(task.seed * 1_000_003 + step)
    order = torch.randperm(len(x))
    cut = int(CUT * n_steps)
    for i in range(len(x) // task.batch):
        rows = order[i * task.batch : (i + 1) * task.batch]
        rebuilt, added = model.losses(moved(x[rows]), y[rows], task.setting.temperature)
        loss = rebuilt + task.setting.weight * added
        if model.head is not None and step < cut:
            ramp = min(1.0, step / (0.3 * n_steps))
            loss = loss + task.setting.weight * task.setting.penalty * ramp * model.head.gate_norm()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        step += 1
        if model.head is not None and step == cut:
            model.head.prune(THRESHOLD)


def moved(x: Tensor) -> Tensor:
    """Pictures (n, 1, s, s) moved by at most a pixel, all alike."""
    side = x.shape[-1]
    i, j = torch.randint(3, (2,)).tolist()
    return nn.functional.pad(x, (1, 1, 1, 1))[:, :, i : i + side, j : j + side]


def refit_decoder(
    h: Tensor, x: Tensor, epochs: int, seed: int, batch: int, rate: float = 1e-2
) -> nn.Module:
    """A new decoder for codes h (n, d) that stay as they are."""
    torch.manual_seed(seed)
    model = decoder(x.shape[-1], h.shape[1])
    n_steps = epochs * (len(x) // batch)
    optimizer = torch.optim.Adam(model.parameters(), rate, betas=(0.9, 0.99))
    schedule = OneCycleLR(optimizer, rate, total_steps=n_steps, pct_start=0.2)
    for _ in range(epochs):
        order = torch.randperm(len(x))
        for i in range(len(x) // batch):
            rows = order[i * batch : (i + 1) * batch]
            loss = rebuilt_loss(model(h[rows]), x[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()

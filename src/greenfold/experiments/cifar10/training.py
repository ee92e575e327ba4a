"""One training of one method: resumable, the same bits whether it was interrupted or not."""

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import OneCycleLR

from greenfold.experiments.cifar10.networks import Network
from greenfold.experiments.exp7.training import CUT, THRESHOLD, Checkpoint

RECIPE = 1  # raised when trainings of before no longer count


@dataclass(frozen=True)
class Setting:
    """What is tuned.

    Parameters
    ----------
    rate : float
        Largest learning rate of the cycle.
    penalty : float
        On the gates of a head.
    weight : float
        Of the head beside a decoder.
    """

    rate: float = 1e-2
    penalty: float = 0.0
    weight: float = 0.0


@dataclass(frozen=True)
class Task:
    """A training: everything its result depends on."""

    method: str
    setting: Setting
    seed: int
    n_train: int
    epochs: int
    batch: int
    width: int
    n_dims: int
    n_atoms: int

    @property
    def key(self) -> str:
        text = json.dumps([RECIPE, asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def train(task: Task, x: Tensor, y: Tensor, folder: str = "") -> tuple[Network, dict[str, Any]]:
    """The trained network in evaluation mode; gates after each epoch and CPU seconds of the training."""
    torch.manual_seed(task.seed)
    model = Network(task.method, task.width, task.n_dims, task.n_atoms)
    per_epoch = len(x) // task.batch
    n_steps = per_epoch * task.epochs
    rate = task.setting.rate
    optimizer = torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.99), weight_decay=1e-2)
    schedule = OneCycleLR(optimizer, rate, total_steps=n_steps, pct_start=0.25)
    parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "schedule": schedule}
    history: dict[str, Any] = {"gates": [], "cpu_seconds": 0.0}
    checkpoint = Checkpoint(folder, task.key)
    state = checkpoint.load()
    if state is not None:
        for name, part in parts.items():
            part.load_state_dict(state[name])
        history = state["history"]
    for epoch in range(len(history["gates"]), task.epochs):
        start = time.process_time()
        _epoch(model, optimizer, schedule, task, x, y, epoch * per_epoch, n_steps)
        history["cpu_seconds"] += time.process_time() - start
        history["gates"].append((model.roots.detach() ** 2).tolist())
        states = {name: part.state_dict() for name, part in parts.items()}
        checkpoint.save({**states, "history": history})
    model.eval()
    if model.head is not None and model.head.mode == "two-stage":
        h = codes(model, x)
        start = time.process_time()
        model.head.solve([(h, y)])
        history["cpu_seconds"] += time.process_time() - start
    return model, history


def _epoch(
    model: Network,
    optimizer: torch.optim.Optimizer,
    schedule: OneCycleLR,
    task: Task,
    x: Tensor,
    y: Tensor,
    step: int,
    n_steps: int,
) -> None:
    """Rows in an order, and moved in ways, that depend on the seed and the step alone."""
    model.train()
    torch.manual_seed(task.seed * 1_000_003 + step)
    order, cut = torch.randperm(len(x)), int(CUT * n_steps)
    setting = task.setting
    for i in range(len(x) // task.batch):
        rows = order[i * task.batch : (i + 1) * task.batch]
        loss = model.loss(moved(x[rows]), y[rows], setting.weight)
        if model.head is not None and step < cut:
            ramp = min(1.0, step / (0.3 * n_steps))
            scale = setting.weight if model.decoder is not None else 1.0
            loss = loss + scale * setting.penalty * ramp * model.head.gate_norm()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        step += 1
        if model.head is not None and step == cut:
            model.head.prune(THRESHOLD)


def moved(x: Tensor, most: int = 4) -> Tensor:
    """Pictures (n, 3, s, s) moved by at most that many pixels and mirrored or not, each by itself."""
    n, channels, side, _ = x.shape
    padded = torch.nn.functional.pad(x, (most,) * 4, mode="reflect")
    along = torch.arange(side)
    down, right = (torch.randint(2 * most + 1, (n, 1)) + along for _ in range(2))  # (n, s)
    mirrored = torch.rand(n, 1) < 0.5
    right = torch.where(mirrored, right.flip(1), right)
    i = torch.arange(n)[:, None, None, None]
    c = torch.arange(channels)[None, :, None, None]
    return padded[i, c, down[:, None, :, None], right[:, None, None, :]]


@torch.no_grad()
def codes(model: Network, x: Tensor) -> Tensor:
    return torch.cat([model(part) for part in x.split(1000)])

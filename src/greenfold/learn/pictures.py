"""Charts of pictures: convolutions, learned by episodes in which some rows solve and others judge.

Every step draws rows, moves each picture a little, and halves them. The source is solved for on one half
in closed form (`episodes.solved_for`), the other half says what it costs, and the gradient goes through
the solve to the convolutions: what they learn is a chart on which few rows predict others, not one that
fits them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from greenfold.chart import AxisScales, Conv
from greenfold.chart.frames import Pixels
from greenfold.green.operators import Cauchy
from greenfold.learn.candidates import Candidate, Fit
from greenfold.learn.data import Data
from greenfold.learn.episodes import kernels, solved_for
from greenfold.learn.trainer import walk

ROWS = 50  # below which nothing tells whether they are pictures
BATCH = 192
STEPS = 200  # minibatches
LR = 3e-3
TURN, GROW, SHIFT = 0.15, 0.15, 0.1  # at most: radians, share of the size, halves of the side
SIDE = 8  # of the smallest square that columns may be
ALIKE = 0.25  # correlation of pixels next to each other, at least
FURTHER = 0.15  # and by how much it is above that of pixels half a line apart


def are_pictures(data: Data) -> bool:
    return data.shape is not None


@dataclass(frozen=True)
class Pictures(Candidate):
    """A few coordinates of convolutions."""

    n_dims: int
    rigid: bool = field(default=False, kw_only=True)
    eager: bool = field(default=True, kw_only=True)

    def told(self, fit: Fit) -> str:
        return "convolutions"

    def learn(self, data: Data, start: Fit, steps: int) -> Fit:
        """From the start every time: convolutions remember rows that they were learned from."""
        assert data.shape is not None
        draws, n = torch.Generator().manual_seed(data.seed), len(data)
        size = data.spread.square().mean().sqrt()
        pixels = Pixels(data.spread / size, (data.origin - data.origin.mean()) / size)
        conv = Conv(data.shape, self.n_dims, pooled=True, generator=draws).float()
        images = pixels(data.x).float()
        log_noise, log_t = (torch.tensor(v, requires_grad=True) for v in (math.log(0.1), 1.5))
        operator, label = Cauchy(1.0), (data.Y - data.Y.amin(0)).argmax(1)

        def loss(batch: Tensor) -> Tensor:
            z = conv(moved(images[batch], conv.shape, draws)).double()
            K, C = kernels(operator, *z.split(-(-len(z) // 2)))
            own, rest = batch[: len(K)], batch[len(K) :]
            u = log_t.exp() * solved_for(K, C, data.Y[own], log_noise.exp())
            w = data.weight[rest]
            return w @ F.cross_entropy(u, label[rest], reduction="none") / w.sum()

        batches = max(1, round(n / BATCH))
        epochs = -(-STEPS // batches)
        history = walk(
            conv,
            loss,
            [*conv.parameters(), log_noise, log_t],
            n,
            epochs=epochs,
            batch_size=-(-n // batches),
            lr=LR,
            patience=epochs,
            generator=draws,
        )
        chart = nn.Sequential(pixels, conv.double(), AxisScales(self.n_dims, tied=True))
        noise = float(log_noise.detach().exp())
        return Fit(self, chart.requires_grad_(False), operator, noise, history.loss[-1], n)


PICTURES = Pictures("conv.rq", 10, suits=are_pictures)


def moved(images: Tensor, shape: tuple[int, ...], draws: torch.Generator) -> Tensor:
    """Every picture (n, D) turned, grown and shifted a little."""
    r = 2 * torch.rand(4, len(images), generator=draws) - 1
    turn, size = TURN * r[0], 1 + GROW * r[1]
    cos, sin = size * turn.cos(), size * turn.sin()
    lines = torch.stack([cos, -sin, SHIFT * r[2], sin, cos, SHIFT * r[3]], 1).reshape(-1, 2, 3)
    grid = F.affine_grid(lines, [len(images), *shape], align_corners=False)
    pixels = images.reshape(-1, *shape)
    return F.grid_sample(pixels, grid, padding_mode="border", align_corners=False).flatten(1)


def shape_of(asked: object, x: Tensor) -> tuple[int, int, int] | None:
    """Channels, height and width of the pictures that rows (n, D) are said to be, or seem to be.

    Columns are a square where pixels next to each other on a line, and on the next one, are alike, and
    those half a line apart are not: along a spectrum these would be the more alike ones.
    """
    if asked is False:
        return None
    n, D = x.shape
    if asked is not None:
        shape = tuple(int(size) for size in asked)  # type: ignore[attr-defined]
        shape = (1, *shape) if len(shape) == 2 else shape
        if math.prod(shape) != D:
            raise ValueError(
                f"`image_shape` must be (height, width), or (channels, height, width), with {D} numbers "
                f"in all, one for each column of X; got {asked}, which has {math.prod(shape)}."
            )
        return shape  # type: ignore[return-value]
    side = math.isqrt(D)
    if side < SIDE or side**2 != D or n < ROWS:
        return None
    next_, below, half = (alike(x.numpy(), lag, side) for lag in (1, side, side // 2))
    return (1, side, side) if min(next_, below) > max(ALIKE, half + FURTHER) else None


def alike(x: np.ndarray, lag: int, side: int) -> float:
    """The median correlation of columns so far apart, not over the end of a line where they are next."""
    z = x - x.mean(0)
    sd = z.std(0)
    j = np.arange(x.shape[1] - lag)
    varies = sd > 1e-9 * max(float(sd.max()), 1e-300)
    j = j[varies[j] & varies[j + lag] & ((lag > 1) | (j % side < side - 1))]
    found = (z[:, j] * z[:, j + lag]).mean(0) / (sd[j] * sd[j + lag])
    return float(np.median(found)) if len(j) else 0.0

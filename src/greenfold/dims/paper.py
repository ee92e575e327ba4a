"""The paper's ways to a dimension, on `IGL` with a linear chart: gates, knockout, nested prefixes.

All start from d_max standardized coordinates z = W x, tied anchors and one fixed kernel, train by
evidence on one half of the rows, and solve for the source again before the other half is predicted; the
smallest d that loses no more than `greenfold.dims.task` allows is the answer. Since z has unit variances
and the kernel's width is fixed and common, neither W nor a width can undo what a gate does.

They start where principal components do, so a target that hides in directions of small variance, or
among many, can be missed by all three; `method="directions"` searches for it.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from greenfold.chart import Linear
from greenfold.chart.start import farthest_points, pca
from greenfold.dims.task import Loss, enough
from greenfold.green.diffusion import Heat
from greenfold.learn.trainer import descend
from greenfold.model import IGL, Tied
from greenfold.solve import OBJECTIVES, Ridge

Array = NDArray[np.float64]

MAX_DIMS, MAX_ROWS, ANCHORS = 6, 300, 80


class Halves:
    """The model on one half of the rows, judged on the other."""

    def __init__(self, X: Array, Y: Array, rng: Generator):
        rows = torch.from_numpy(rng.permutation(len(X)))
        train, test = rows.tensor_split(2)
        train = train[:MAX_ROWS]
        x, target = torch.from_numpy(X), torch.from_numpy(Y)
        x = (x - x[train].mean(0)) / x[train].std(0, correction=0).max().clamp_min(1e-300)
        shift = target[train].mean(0)
        self.x, self.Y = x[train], target[train] - shift
        self.x_new, self.Y_new = x[test], target[test] - shift
        rank = int(torch.linalg.matrix_rank(self.x, rtol=1e-7))
        self.d = max(1, min(MAX_DIMS, rank))
        anchors = Tied(self.x[farthest_points(self.x, ANCHORS)])
        encoder = Linear(x.shape[1], self.d, pca(self.x, self.d))
        self.model = IGL(
            encoder, Heat(0.5), anchors, n_dims=self.d, standardize=True, energy=True
        ).train()
        self.log_alpha = torch.tensor(math.log(1e-2), dtype=torch.float64, requires_grad=True)

    def objective(self, gate: Tensor) -> Tensor:
        design = self.model.design(self.x, gate)
        return OBJECTIVES["evidence"](design, self.Y, self.log_alpha.clamp(-18, 10), None)

    def train(self, loss: Callable[[], Tensor], steps: int) -> None:
        descend(
            self.model, loss, [*self.model.encoder.parameters(), self.log_alpha], max_iter=steps
        )

    def align(self) -> None:
        """Turn the coordinates into the directions along which u changes, most first."""
        encoder = self.model.encoder
        assert isinstance(encoder, Linear)
        gate = torch.ones(self.d, dtype=torch.float64)
        with torch.no_grad():
            w = Ridge("evidence").solve(self.model.design(self.x, gate), self.Y).w
            xi = self.model.chart(self.x)
        xi.requires_grad_()
        u = self.model.columns(xi, gate).Phi @ w
        G = torch.cat([torch.autograd.grad(c.sum(), xi, retain_graph=True)[0] for c in u.T])
        _, V = torch.linalg.eigh(G.T @ G)
        with torch.no_grad():
            encoder.weight.copy_(V.flip(1).T @ (encoder.weight / self.model.scale[:, None]))

    def losses(self, gate: Tensor) -> Array:
        """Squared errors (n',) on the other half, with the source solved for on this one."""
        if not gate.any():
            return self.Y_new.square().mean(1).numpy()
        with torch.no_grad():
            solver = Ridge("evidence")
            w = solver.solve(self.model.design(self.x, gate), self.Y).w  # stores the chart's units
            self.model.eval()
            u = self.model.design(self.x_new, gate).Phi @ w
            self.model.train()
            return (u - self.Y_new).square().mean(1).numpy()

    def answer(self, losses: dict[int, Array]) -> tuple[int, list[Loss]]:
        """From the losses at some numbers of coordinates; those not visited take the next lower one."""
        columns = [losses[0]]
        for d in range(1, self.d + 1):
            columns.append(losses.get(d, columns[-1]))
        return enough(np.stack(columns, 1))


def gates(X: Array, Y: Array, rng: Generator) -> tuple[int, list[Loss]]:
    """Learned gates with a group penalty, closed to exact zeros by its proximal step.

        minimize  evidence(W, g) + μ Σ_j g_j,      g_j ← min(1, max(0, g_j − η (∂_j + μ)))

    μ grows from where it closes nothing to where it closes all, each path point warm from the last.
    The coordinates are first turned into those of the gradient outer product, as a penalty on gates
    cannot turn them. Each coordinate is a group: its gate multiplies all that the kernel sees of it.

    Fails with noise in x: gates that help a little stay open, or all close at once, so the answer is
    too high more often than right. Use it to screen.
    """
    fit = Halves(X, Y, rng)
    g = torch.ones(fit.d, dtype=torch.float64)
    fit.train(lambda: fit.objective(g), 60)
    fit.align()
    losses = {0: fit.losses(0 * g), fit.d: fit.losses(g)}
    parameters = [*fit.model.encoder.parameters(), fit.log_alpha]
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    mu, eta = 2e-3, 0.1
    while g.any() and mu < 10:
        for _ in range(20):
            gate = g.clone().requires_grad_()
            optimizer.zero_grad()
            fit.objective(gate).backward()
            assert gate.grad is not None
            g = (g - eta * (gate.grad.clamp(-1, 1) + mu)).clamp(0, 1)
            if not g.any():
                break
            optimizer.step()
        n_open = int((g > 0).sum())
        if n_open:
            here = fit.losses(g)
            if n_open not in losses or here.mean() < losses[n_open].mean():
                losses[n_open] = here
        mu *= 1.5
    return fit.answer(losses)


def knockout(X: Array, Y: Array, rng: Generator) -> tuple[int, list[Loss]]:
    """Close the coordinate that is missed least, refit what is left, and so on down to none.

    Greedy: fails when two coordinates carry the same thing and a third nothing (any of the two looks
    dispensable), and when the full fit is poor to begin with, as then no coordinate is missed.
    """
    fit = Halves(X, Y, rng)
    g = torch.ones(fit.d, dtype=torch.float64)
    fit.train(lambda: fit.objective(g), 60)
    fit.align()
    losses = {0: fit.losses(0 * g), fit.d: fit.losses(g)}
    while g.sum() > 1:
        tries = []
        for j in torch.nonzero(g)[:, 0].tolist():
            closed = g.clone()
            closed[j] = 0
            with torch.no_grad():
                tries.append((float(fit.objective(closed)), j))
        g[min(tries)[1]] = 0
        fit.train(partial(fit.objective, g), 30)
        losses[int(g.sum())] = fit.losses(g)
    return fit.answer(losses)


def nested(X: Array, Y: Array, rng: Generator) -> tuple[int, list[Loss]]:
    """Train all prefixes of the coordinates at once, then read the error of each prefix.

        minimize  Σ_d evidence(W, (1, …, 1, 0, …, 0)) / d_max        nested dropout [1]_, its expectation

    Fails when no order suits all prefixes: the best single direction need not be among the best two,
    so short prefixes are a compromise and the curve bends late, one or two dimensions too high.

    References
    ----------
    .. [1] O. Rippel, M. Gelbart, R. Adams, "Learning ordered representations with nested dropout",
       ICML 2014.
    """
    fit = Halves(X, Y, rng)
    prefixes = torch.ones(fit.d, fit.d, dtype=torch.float64).tril()
    fit.train(lambda: torch.stack([fit.objective(g) for g in prefixes]).mean(), 60)
    losses = {0: fit.losses(0 * prefixes[0])}
    losses |= {d: fit.losses(g) for d, g in enumerate(prefixes, start=1)}
    return fit.answer(losses)

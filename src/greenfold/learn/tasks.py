"""One chart for several targets, each with rows of its own."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from greenfold.chart import Linear
from greenfold.chart.start import farthest_points
from greenfold.design import Design
from greenfold.green.diffusion import Heat
from greenfold.learn.data import Rows
from greenfold.learn.given import Given
from greenfold.learn.search import search
from greenfold.learn.trainer import History, descend
from greenfold.learn.units import Array, power_of_two
from greenfold.model import IGL, Tied
from greenfold.solve import OBJECTIVES, loo
from greenfold.spec import Settings
from greenfold.state import one_thread, own_draws

ATOMS = 150


def standardized(Y: Array) -> Tensor:
    """Targets (n, c) of mean 0 and variance 1, where they vary."""
    Y = Y / power_of_two(Y)
    sd = Y.std(0)
    return torch.from_numpy((Y - Y.mean(0)) / np.where(sd > 0, sd, 1.0))


def shared_chart(x: Tensor, parts: list[Rows], s: Settings, seed: int) -> tuple[IGL, History]:
    """That of the kind given, or a linear one, trained on all tasks; x are the different rows of all."""
    given, generator = Given(s), torch.Generator().manual_seed(seed)
    with own_draws(s.chart, x, generator):
        if s.given:
            given.d = int(s.n_dims or 2)
            model = given.start(x, s.n_atoms or ATOMS, generator)
        else:
            models = linear_charts(x, parts, s, seed)
            trials = [together(given, model, parts, 10) for model in models]
            model = models[int(np.argmin([score for score, _ in trials]))]
        _, history = together(given, model, parts, s.iterations)
        model.settle(torch.cat([part.x for part in parts]))
    return model, history


def linear_charts(x: Tensor, parts: list[Rows], s: Settings, seed: int) -> list[IGL]:
    """Of every dimension in the span of those found for the single tasks."""
    found = []
    for part in parts:
        rng, weight = np.random.default_rng(seed), part.weights.numpy()
        with one_thread():
            found.append(search(part.x.numpy(), part.Y.numpy(), rng, s.effort, weight)[0].W)
    _, sizes, Vt = np.linalg.svd(np.concatenate(found), full_matrices=False)
    models = []
    for d in range(1, max(1, int((sizes > 0.05 * sizes[0]).sum())) + 1):
        W = torch.from_numpy(sizes[:d, None] * Vt[:d])
        rows = farthest_points(x @ W.T, s.n_atoms or ATOMS)
        encoder = Linear(W.shape[1], d, W)
        models.append(IGL(encoder, Heat(0.5), Tied(x[rows]), n_dims=d, energy=True).train())
    return models


def together(given: Given, model: IGL, parts: list[Rows], steps: int) -> tuple[float, History]:
    """Descend the sum over tasks. The score is the mean log leave-one-out error, where errors
    below a hundredth of the target's spread count as that, so that no task drowns another.
    """
    x, sizes = torch.cat([part.x for part in parts]), [len(part.x) for part in parts]
    start = math.log(1e-2 * given.unit_strength(model, x))
    log_alphas = torch.full((len(sizes),), start, dtype=x.dtype, requires_grad=True)

    def mean(objective: Callable[..., Tensor]) -> Tensor:
        Phi, penalty = model.design(x)
        each = zip(Phi.split(sizes), parts, log_alphas.clamp(-30, 10), strict=True)
        values = [
            len(P) * objective(Design(P, penalty), part.Y, log_alpha, part.weight)
            for P, part, log_alpha in each
        ]
        return torch.stack(values).sum() / len(x)

    history = descend(
        model,
        lambda: mean(OBJECTIVES[given.s.objective]),
        [*model.parameters(), log_alphas],
        max_iter=steps,
        callbacks=given.watchers(steps),
    )
    with torch.no_grad():
        score = mean(lambda *problem: (loo(*problem) + 1e-4).log())
    return float(score), history

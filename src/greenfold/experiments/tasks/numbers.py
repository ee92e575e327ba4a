"""Families of functions: a chart learned over many of them, beside other ways to learn from few rows."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from torch import Tensor, nn

from greenfold.chart import MLP
from greenfold.estimators import IGLRegressor, Learner
from greenfold.green.operators import Cauchy, Superposition
from greenfold.green.pointwise import Affine

Array = NDArray[np.float64]
Task = tuple[Array, Array]
Predict = Callable[[Array], Array]
Draw = Callable[[int], Task]
WIDTHS = (64, 64)
FEATURES = 8
HIDDEN = 20  # columns that hide a plane
RATES = (0.01, 0.03)  # of the inner steps of fine-tuning
STEPS = (5, 10)  # of fine-tuning: in training, and for a new task
PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)


def sinusoids(rng: np.random.Generator) -> Draw:
    """y = A sin(x + φ), A in [0.1, 5], φ in [0, π], x in [−5, 5]."""

    def draw(n: int) -> Task:
        size, phase = rng.uniform(0.1, 5), rng.uniform(0, np.pi)
        x = rng.uniform(-5, 5, (n, 1))
        return x, size * np.sin(x[:, 0] + phase)

    return draw


def planes(rng: np.random.Generator) -> Draw:
    """Three random waves on one hidden plane of R^20, the same for all tasks, and noise of 0.05."""
    W = np.linalg.qr(rng.normal(size=(HIDDEN, 2)))[0]

    def draw(n: int) -> Task:
        waves, phase, size = rng.normal(size=(2, 3)), rng.uniform(0, 6.3, 3), rng.normal(size=3)
        x = rng.normal(size=(n, HIDDEN))
        return x, np.sin(x @ W @ waves + phase) @ size + 0.05 * rng.normal(size=n)

    return draw


FAMILIES = {"sinusoids": (sinusoids, 10), "hidden planes": (planes, 20)}  # with rows of a new task


def lines_beside() -> Superposition:
    """A heavy-tailed kernel and lines, how much of each is learned."""
    return Superposition([Cauchy(1.0), Affine(level=0.0)], [1.0, 1.0])


def igl(tasks: list[Task], shots: int, epochs: int, seed: int) -> Learner:
    generator = torch.Generator().manual_seed(seed)
    encoder = MLP(tasks[0][0].shape[1], FEATURES, WIDTHS, generator=generator)
    model = IGLRegressor(encoder, lines_beside())
    return Learner(model, n_support=shots, epochs=epochs, random_state=seed).fit_tasks(tasks)


# --- fine-tuning


def layers(D: int) -> list[Tensor]:
    sizes = (D, *WIDTHS, 1)
    parts: list[Tensor] = []
    for a, b in pairwise(sizes):
        layer = nn.Linear(a, b)
        parts += [layer.weight.detach().T.clone(), layer.bias.detach().clone()]
    return parts


def forward(parts: list[Tensor], x: Tensor) -> Tensor:
    """(…, n): a network for all tasks, or one for each along the first axis."""
    for i in range(0, len(parts), 2):
        bias = parts[i + 1]
        x = x @ parts[i] + (bias[:, None] if bias.ndim == 2 else bias)
        x = x if i == len(parts) - 2 else x.relu()
    return x[..., 0]


def tuned(
    parts: list[Tensor], x: Tensor, y: Tensor, rate: float, steps: int, graph: bool
) -> list[Tensor]:
    """After so many steps down the mean square on the support, of every task by itself."""
    for _ in range(steps):
        loss = (forward(parts, x) - y).square().mean(-1).sum()
        slopes = torch.autograd.grad(loss, parts, create_graph=graph)
        parts = [p - rate * g for p, g in zip(parts, slopes, strict=True)]
    return parts


class FineTuned:
    """A start from which a few steps lead to any task, learned through these steps (MAML)."""

    def __init__(self, tasks: list[Task], shots: int, epochs: int, seed: int):
        torch.manual_seed(seed)
        judges = tasks[::5]
        rest = [task for i, task in enumerate(tasks) if i % 5]
        found = [(self._learn(rest, shots, epochs, rate, seed), rate) for rate in RATES]
        scores = []
        for parts, rate in found:
            self.parts, self.rate = parts, rate
            scores.append(np.mean([error(self, task, shots) for task in judges]))
        self.parts, self.rate = found[int(np.argmin(scores))]

    @staticmethod
    def _learn(tasks: list[Task], shots: int, epochs: int, rate: float, seed: int) -> list[Tensor]:
        X, Y = (torch.from_numpy(np.stack(part)).float() for part in zip(*tasks, strict=True))
        start = [p.requires_grad_() for p in layers(X.shape[2])]
        adam = torch.optim.Adam(start, lr=1e-3)
        draws = torch.Generator().manual_seed(seed)
        for _ in range(epochs):
            for batch in torch.randperm(len(X), generator=draws).split(8):
                order = torch.rand(len(batch), X.shape[1], generator=draws).argsort(1)
                x = X[batch].gather(1, order[..., None].expand_as(X[batch]))
                y = Y[batch].gather(1, order)
                each = [p.expand(len(batch), *p.shape) for p in start]
                own = tuned(each, x[:, :shots], y[:, :shots], rate, STEPS[0], graph=True)
                loss = (forward(own, x[:, shots:]) - y[:, shots:]).square().mean()
                adam.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(start, 10.0)
                adam.step()
        return [p.detach() for p in start]

    def adapt(self, X: Array, y: Array) -> Predict:
        x, target = torch.from_numpy(X).float(), torch.from_numpy(y).float()
        parts = [p.clone().requires_grad_() for p in self.parts]
        own = tuned(parts, x, target, self.rate, STEPS[1], graph=False)

        @torch.no_grad()
        def predict(X: Array) -> Array:
            return forward(own, torch.from_numpy(X).float()).double().numpy()

        return predict


# --- ridge on a frozen encoder


class Frozen:
    """Features learned together with a linear function of them for every task; ridge for new ones."""

    def __init__(self, tasks: list[Task], shots: int, epochs: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        judges = tasks[::5]
        rest = [task for i, task in enumerate(tasks) if i % 5]
        X, Y = (torch.from_numpy(np.stack(part)) for part in zip(*rest, strict=True))
        self.encoder = MLP(X.shape[2], FEATURES, WIDTHS, generator=generator)
        heads = torch.zeros(len(X), FEATURES + 1, dtype=torch.float64, requires_grad=True)
        adam = torch.optim.Adam([*self.encoder.parameters(), heads], lr=1e-2)
        steps = torch.optim.lr_scheduler.CosineAnnealingLR(adam, epochs)
        for _ in range(epochs):
            for batch in torch.randperm(len(X), generator=generator).split(8):
                z = self.encoder(X[batch].flatten(0, 1)).reshape(len(batch), -1, FEATURES)
                u = (z @ heads[batch][:, :-1, None])[..., 0] + heads[batch][:, -1:]
                loss = (u - Y[batch]).square().mean()
                adam.zero_grad()
                loss.backward()
                adam.step()
            steps.step()
        self.penalty = min(PENALTIES, key=lambda p: self._score(p, judges, shots))

    def _score(self, penalty: float, tasks: list[Task], shots: int) -> float:
        self.penalty = penalty
        return float(np.mean([error(self, task, shots) for task in tasks]))

    @torch.no_grad()
    def adapt(self, X: Array, y: Array) -> Predict:
        z = self.encoder(torch.from_numpy(X)).numpy()
        mean = z.mean(0)
        A = (z - mean).T @ (z - mean) + self.penalty * np.eye(FEATURES)
        w, b = np.linalg.solve(A, (z - mean).T @ (y - y.mean())), y.mean()

        @torch.no_grad()
        def predict(X: Array) -> Array:
            found: Array = (self.encoder(torch.from_numpy(X)).numpy() - mean) @ w + b
            return found

        return predict


class FromScratch:
    """A Gaussian process that knows nothing of other tasks."""

    def adapt(self, X: Array, y: Array) -> Predict:
        kernel = ConstantKernel() * RBF(1.0, (1e-2, 1e2)) + WhiteKernel(1e-3, (1e-8, 1.0))
        model = GaussianProcessRegressor(
            kernel, normalize_y=True, n_restarts_optimizer=2, random_state=0
        )
        found: Predict = model.fit(X, y).predict
        return found


def error(method: Any, task: Task, shots: int) -> float:
    """Mean square at the rows after the first `shots`, which it adapts to."""
    X, y = task
    return float(np.mean((method.adapt(X[:shots], y[:shots])(X[shots:]) - y[shots:]) ** 2))


def judged(method: Any, tasks: list[Task], shots: int) -> dict[str, Any]:
    """Errors of every task, and the CPU seconds of adapting to one, by itself: the median."""
    errors, spent = [], []
    for X, y in tasks:
        begin = time.process_time()
        predict = method.adapt(X[:shots], y[:shots])
        spent.append(time.process_time() - begin)
        predict = predict if callable(predict) else predict.predict
        errors.append(float(np.mean((predict(X[shots:]) - y[shots:]) ** 2)))
    return {"errors": errors, "seconds": float(np.median(spent))}


def coverage(learner: Learner, tasks: list[Task], shots: int) -> float:
    """Share of new rows inside 90% intervals."""
    inside = []
    for X, y in tasks:
        low, high = learner.adapt(X[:shots], y[:shots]).predict_interval(X[shots:], alpha=0.1)
        inside.append(np.mean((low <= y[shots:]) & (y[shots:] <= high)))
    return float(np.mean(inside))

"""Stage 1: descend a reduced objective whose inner problem is solved to optimality at every step.

    ℓ(θ) = objective(Φ_θ, w*(θ), Y)        variable projection [1]_

`descend` is full-batch L-BFGS, `walk` is Adam on minibatches; joint training is the same with w among
the parameters. Both keep the best parameters seen, step back from values that are not finite, and call
plain functions of `Epoch` along the way.

References
----------
.. [1] G. Golub, V. Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems
   whose variables separate", SIAM J. Numer. Anal. 10 (1973), 413–432.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from greenfold.green.base import trying
from greenfold.solve import SolveError

Loss = Callable[[], Tensor]


@dataclass
class Epoch:
    """What a callback sees. Return True to stop.

    Attributes
    ----------
    step : int
        From 1 on.
    loss : float
        The objective.
    model : nn.Module
        As it is.
    seconds : float
        Since the start.

    Examples
    --------
    >>> from greenfold import Training
    >>> def stop_early(epoch):  # a callback is a function of an Epoch
    ...     return epoch.seconds > 10
    >>> training = Training(callbacks=[stop_early])
    """

    step: int
    loss: float
    model: nn.Module
    seconds: float


Callback = Callable[[Epoch], Any]


@dataclass
class History:
    """How training went."""

    loss: list[float] = field(default_factory=list)  # the best so far, after each step
    seconds: list[float] = field(default_factory=list)
    evaluations: int = 0  # of the loss with its gradient
    rollbacks: int = 0  # steps that were not finite
    stopped: str = ""  # why it ended
    film: Any = None  # `callbacks.Film`, of an estimator that was not loaded from a file


class _Stop(Exception):
    pass


class _Watch:
    """Bookkeeping common to both optimizers: best parameters, history, callbacks."""

    def __init__(
        self, model: nn.Module, parameters: Sequence[Tensor], callbacks: Iterable[Callback]
    ):
        self.model, self.parameters, self.callbacks = model, parameters, list(callbacks)
        self.history, self.start = History(), time.perf_counter()
        self.best = np.inf
        self.kept = [p.detach().clone() for p in parameters]

    def see(self, loss: float) -> None:
        self.history.evaluations += 1
        if loss < self.best:
            self.best = loss
            self.kept = [p.detach().clone() for p in self.parameters]

    def step(self) -> None:
        seconds = time.perf_counter() - self.start
        self.history.loss.append(self.best)
        self.history.seconds.append(seconds)
        epoch = Epoch(len(self.history.loss), self.best, self.model, seconds)
        answers = [callback(epoch) for callback in self.callbacks]  # all of them see the step
        if True in answers:
            raise _Stop

    @torch.no_grad()
    def restore(self) -> History:
        for parameter, value in zip(self.parameters, self.kept, strict=True):
            parameter.copy_(value)
        return self.history


def descend(
    model: nn.Module,
    loss: Loss,
    parameters: Sequence[Tensor],
    *,
    max_iter: int = 100,
    tol: float = 1e-9,
    callbacks: Iterable[Callback] = (),
) -> History:
    """Full-batch L-BFGS with 20 corrections; leaves the best parameters in place."""
    parameters = [p for p in parameters if p.requires_grad]
    watch = _Watch(model, parameters, callbacks)
    if not parameters:
        watch.see(float(loss().detach()))
        return watch.restore()

    def value_and_gradient(theta: np.ndarray) -> tuple[float, np.ndarray]:
        _unflatten(theta, parameters)
        try:
            value = loss()
            gradients = torch.autograd.grad(value, parameters, allow_unused=True)
            flat = _flatten(
                [p if g is None else g for p, g in zip(parameters, gradients, strict=True)],
                [g is None for g in gradients],
            )
            number = float(value.detach())
        except ValueError:  # of the solve, or such as atoms that became too narrow to project
            if not np.isfinite(watch.best):
                raise  # at the start: it says why
            number, flat = np.nan, theta
        if not (np.isfinite(number) and np.isfinite(flat).all()):
            if not np.isfinite(watch.best):
                raise SolveError(
                    "the loss is not finite at the start. Check the inputs, and the widths and scales "
                    "the chart starts from."
                )
            watch.history.rollbacks += 1  # a wall that slopes back to the best point
            back = theta - _flatten(watch.kept)
            return watch.best + 1.0 + float(back @ back), 2 * back
        watch.see(number)
        return number, flat

    def after(_: np.ndarray) -> None:
        watch.step()

    options = {"maxiter": max_iter, "maxcor": 20, "ftol": tol, "gtol": 1e-9}
    before = trying.set(True)
    try:
        result = minimize(
            value_and_gradient,
            _flatten(parameters),
            jac=True,
            method="L-BFGS-B",
            callback=after,
            options=options,
        )
        watch.history.stopped = str(result.message)
    except _Stop:
        watch.history.stopped = "a callback"
    finally:
        trying.reset(before)
    return watch.restore()


def _flatten(tensors: Sequence[Tensor], zero: Sequence[bool] | None = None) -> np.ndarray:
    parts = [t.detach().double().reshape(-1) for t in tensors]
    if zero is not None:
        parts = [torch.zeros_like(t) if z else t for t, z in zip(parts, zero, strict=True)]
    return torch.cat(parts).numpy().copy()


@torch.no_grad()
def _unflatten(theta: np.ndarray, parameters: Sequence[Tensor]) -> None:
    i = 0
    for parameter in parameters:
        n = parameter.numel()
        parameter.copy_(torch.from_numpy(theta[i : i + n]).view_as(parameter))
        i += n


def walk(
    model: nn.Module,
    batch_loss: Callable[[Tensor], Tensor],
    parameters: Sequence[Tensor],
    n_rows: int,
    *,
    epochs: int = 50,
    batch_size: int = 1024,
    lr: float = 3e-3,
    patience: int = 10,
    generator: torch.Generator | None = None,
    callbacks: Iterable[Callback] = (),
) -> History:
    """Adam over shuffled minibatches with a cosine schedule; `batch_loss` maps row indices to a loss.

    Stops when the mean loss of an epoch has not improved for `patience` epochs.
    """
    parameters = [p for p in parameters if p.requires_grad]
    watch = _Watch(model, parameters, callbacks)
    optimizer = torch.optim.Adam(parameters, lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(epochs, 1))
    stale = 0
    try:
        for _ in range(epochs):
            total, count = 0.0, 0
            for rows in torch.randperm(n_rows, generator=generator).split(batch_size):
                optimizer.zero_grad()
                try:
                    loss = batch_loss(rows)
                    loss.backward()
                    finite = bool(loss.isfinite()) and all(
                        bool(p.grad.isfinite().all()) for p in parameters if p.grad is not None
                    )
                except SolveError:
                    finite = False
                except ValueError:
                    if not np.isfinite(watch.best):
                        raise  # in the first epoch: it says why
                    finite = False
                watch.history.evaluations += 1
                if not finite:
                    watch.history.rollbacks += 1
                    watch.restore()
                    continue
                optimizer.step()
                total, count = total + float(loss.detach()) * len(rows), count + len(rows)
            schedule.step()
            mean = total / count if count else np.inf
            stale = 0 if mean < watch.best - 1e-6 * abs(watch.best) else stale + 1
            watch.see(mean)
            watch.history.evaluations -= 1
            watch.step()
            if stale > patience:
                watch.history.stopped = "no progress"
                break
    except _Stop:
        watch.history.stopped = "a callback"
    return watch.restore()

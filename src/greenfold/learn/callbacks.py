"""What watches training: plain callables of `Epoch`, for the `callbacks` of the estimators.

They see every iteration of a chart that is given (`chart='mlp'`, …); the search that `chart='auto'` runs
has no iterations to show.
"""

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from tqdm.auto import tqdm

from greenfold.learn.trainer import Epoch


@runtime_checkable
class LogsMetrics(Protocol):
    """mlflow (the module itself), Lightning's loggers."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> Any: ...


@runtime_checkable
class Logs(Protocol):
    """A run of Weights & Biases."""

    def log(self, data: dict[str, float], step: int | None = None) -> Any: ...


@runtime_checkable
class LogsMetric(Protocol):
    """One number at a time: mlflow, Comet, Neptune's older clients."""

    def log_metric(self, key: str, value: float, step: int | None = None) -> Any: ...


def metrics(epoch: Epoch) -> dict[str, float]:
    """What there is to tell of an iteration: loss, seconds, and the gates where they are learned."""
    values = {"loss": float(epoch.loss), "seconds": float(epoch.seconds)}
    gates = getattr(getattr(epoch.model, "gates", None), "value", None)
    if isinstance(gates, Tensor) and gates.requires_grad:
        opened = gates.detach().clamp(0, 1).tolist()
        values |= {f"gate/{j}": g for j, g in enumerate(opened)}
    return values


class Track:
    """Send loss, seconds and gates to a logger: anything with `log_metrics`, `log` or `log_metric`.

    Parameters
    ----------
    logger : object
        A Weights & Biases run, the mlflow module, a Lightning logger, or your own.
    every : int
        Iterations between two reports.
    prefix : str
        Put before every name.

    Examples
    --------
    >>> class Printer:
    ...     def log(self, data, step=None):
    ...         print(step, sorted(data))
    >>> Track(Printer())(Epoch(step=3, loss=0.5, model=None, seconds=0.1))
    3 ['loss', 'seconds']
    """

    def __init__(self, logger: LogsMetrics | Logs | LogsMetric, every: int = 1, prefix: str = ""):
        if not isinstance(logger, LogsMetrics | Logs | LogsMetric):
            raise ValueError(
                f"`logger` must have log_metrics(dict, step=), log(dict, step=) or log_metric(name, "
                f"value, step=), got {type(logger).__name__}."
            )
        if every < 1:
            raise ValueError(f"`every` must be at least 1, got {every}.")
        self.logger, self.every, self.prefix = logger, every, prefix

    def __call__(self, epoch: Epoch) -> None:
        if epoch.step % self.every:
            return
        values = {f"{self.prefix}{name}": value for name, value in metrics(epoch).items()}
        if isinstance(self.logger, LogsMetrics):
            self.logger.log_metrics(values, step=epoch.step)
        elif isinstance(self.logger, Logs):
            self.logger.log(values, step=epoch.step)
        else:
            for name, value in values.items():
                self.logger.log_metric(name, value, step=epoch.step)


class Film:
    """Pictures of the chart while it is trained: at most 24, evenly spread over what there is so far.

    Parameters
    ----------
    x : Tensor of shape (n, D)
        Rows to follow.

    Attributes
    ----------
    steps : list of int
    frames : list of ndarray of shape (n, d)
        ξ of the rows after each of the steps.
    gates : list of list of float

    Examples
    --------
    >>> import torch
    >>> from greenfold import IGLRegressor, Training
    >>> from greenfold.learn.callbacks import Film
    >>> film = Film(torch.zeros(5, 3, dtype=torch.float64))
    >>> training = Training(max_iter=10, callbacks=[film])
    """

    MOST = 24

    def __init__(self, x: Tensor):
        self.x, self.every = x, 1
        self.steps: list[int] = []
        self.frames: list[Any] = []
        self.gates: list[list[float]] = []

    @property
    def n_rows(self) -> int:
        return len(self.x)

    @torch.no_grad()
    def __call__(self, epoch: Epoch) -> None:
        if epoch.step % self.every:
            return
        model: Any = epoch.model
        self.steps.append(epoch.step)
        self.frames.append(model.chart(self.x).double().cpu().numpy())
        self.gates.append(model.gates().tolist())
        if len(self.steps) > self.MOST:  # every other one from now on
            self.every *= 2
            self.steps, self.frames = self.steps[1::2], self.frames[1::2]
            self.gates = self.gates[1::2]


class TensorBoard:
    """Write the same numbers as events for TensorBoard (`pip install tensorboard`).

    Parameters
    ----------
    folder : str
        Where the event files go; made at the first iteration.
    every : int
        Iterations between events.

    Examples
    --------
    >>> from greenfold import Training
    >>> from greenfold.learn.callbacks import TensorBoard
    >>> training = Training(callbacks=[TensorBoard("runs")])
    """

    def __init__(self, folder: str, every: int = 1):
        self.folder, self.every = str(folder), every
        self.writer: Any = None

    def __call__(self, epoch: Epoch) -> None:
        if epoch.step % self.every:
            return
        if self.writer is None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise ImportError(
                    f"TensorBoard events need the tensorboard package: {error}"
                ) from error
            self.writer = SummaryWriter(self.folder)
        for name, value in metrics(epoch).items():
            self.writer.add_scalar(name, value, epoch.step)
        self.writer.flush()


class Progress:
    """A bar on the terminal, one tick per iteration.

    Parameters
    ----------
    total : int
        Iterations.

    Examples
    --------
    >>> from greenfold import Training
    >>> from greenfold.learn.callbacks import Progress
    >>> training = Training(max_iter=50, callbacks=[Progress(50)])
    """

    def __init__(self, total: int):
        self.bar = tqdm(total=total, desc="chart", leave=False)

    def __call__(self, epoch: Epoch) -> None:
        self.bar.update()
        self.bar.set_postfix(loss=f"{epoch.loss:.4g}")

"""What was found: three answers, each with its interval and the curve behind it."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]

QUESTIONS = {
    "intrinsic": "coordinates the data has locally",
    "chart": "coordinates one chart needs to rebuild the data without tears",
    "task": "directions needed to predict y",
}
AXES = {
    "intrinsic": ("distance", "estimate", "distance to neighbors", "dimension"),
    "chart": ("d", "error", "chart dimension", "left-out error"),
    "task": ("d", "error", "directions", "left-out error"),
}


@dataclass(frozen=True)
class Answer:
    """One dimension, or why it cannot be told.

    Attributes
    ----------
    name : 'intrinsic', 'chart' or 'task'
    value : int or None
        None means that it cannot be told; `note` says why.
    low, high : int or None
        Ends of the interval over refits; None without refits.
    coverage : float or None
        What the interval aims at: the probability that it holds what the same procedure would answer
        on another sample of the same size. It knows nothing of a bias that all samples share.
    sensitivity : (int or None, int or None) or None
        Answers with laxer and with stricter thresholds on the same rows. Not a confidence interval.
    estimate : float or None
        The value before rounding, where there is one.
    curve : list of dict
        What the value was read from, one row per scale or dimension.
    refits : list
        Answers of the refits.
    note : str

    Examples
    --------
    >>> from greenfold.dims import Answer
    >>> print(Answer("chart", 2, low=2, high=3).value)
    2
    >>> import numpy as np
    >>> from greenfold import dimension
    >>> report = dimension(np.random.default_rng(0).normal(size=(60, 2)), random_state=0)
    >>> axes = report.intrinsic.plot()
    """

    name: str
    value: int | None
    low: int | None = None
    high: int | None = None
    coverage: float | None = None
    sensitivity: tuple[int | None, int | None] | None = None
    estimate: float | None = None
    curve: list[Row] = field(default_factory=list)
    refits: list[Any] = field(default_factory=list)
    note: str = ""

    def __str__(self) -> str:
        if self.value is None:
            text = f"cannot tell: {self.note}"
        else:
            text = str(self.value)
            if self.estimate is not None:
                text += f" (estimate {self.estimate:.2f})"
            if self.low is not None:
                text += f", {self.coverage:.0%} interval {self.low} to {self.high}"
            if self.sensitivity is not None:
                low, high = ("none" if end is None else str(end) for end in self.sensitivity)
                text += f"; with laxer or stricter thresholds {low} or {high}"
            if self.note:
                text += f"; {self.note}"
        head = f"{self.name:<10}"
        return textwrap.fill(text, 96, initial_indent=head, subsequent_indent=" " * len(head))

    def plot(self, ax: Any = None) -> Any:
        """The curve, with the value marked; returns the axes.

        Parameters
        ----------
        ax : Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        Axes
        """
        import matplotlib.pyplot as plt

        ax = plt.subplots()[1] if ax is None else ax
        x, y, x_label, y_label = AXES[self.name]
        ax.plot([row[x] for row in self.curve], [row[y] for row in self.curve], "o-")
        ax.set(xlabel=x_label, ylabel=y_label, title=f"{self.name}: {self.value}")
        if self.name == "intrinsic":
            ax.set_xscale("log")
            if self.estimate is not None:
                ax.axhline(self.estimate, color="0.6", lw=1)
            return ax
        if self.curve and min(row[y] for row in self.curve) > 0:
            ax.set_yscale("log")
        if self.low is not None and self.high is not None:
            ax.axvspan(self.low - 0.1, self.high + 0.1, color="0.9", zorder=0)
        if self.value is not None:
            ax.axvline(self.value, color="0.6", lw=1)
        return ax


@dataclass(frozen=True)
class DimensionReport:
    """Three answers to three questions; see `greenfold.dimension`. Prints as text.

    Attributes
    ----------
    intrinsic, chart, task : Answer
        How many coordinates the data have locally, one chart of them needs, and y needs; task is None
        without y.
    n_rows, n_columns : int
        Of the data, copies counted once.

    Examples
    --------
    >>> import numpy as np
    >>> from greenfold import dimension
    >>> t = np.random.default_rng(0).uniform(0, 2 * np.pi, 200)
    >>> report = dimension(np.c_[np.cos(t), np.sin(t)], random_state=0)
    >>> report.intrinsic.value, report.chart.value
    (1, 2)
    >>> len(report.table())  # one row for each answer
    2
    >>> figure = report.plot()
    """

    intrinsic: Answer
    chart: Answer
    task: Answer | None
    n_rows: int
    n_columns: int

    def __iter__(self) -> Iterator[Answer]:
        return (a for a in (self.intrinsic, self.chart, self.task) if a is not None)

    def table(self) -> list[Row]:
        """One row per answer; `pandas.DataFrame(report.table())` is a frame."""
        return [
            {
                "name": a.name,
                "question": QUESTIONS[a.name],
                "value": a.value,
                "low": a.low,
                "high": a.high,
                "coverage": a.coverage,
                "sensitivity": a.sensitivity,
                "note": a.note,
            }
            for a in self
        ]

    def __str__(self) -> str:
        head = f"dimension of {self.n_rows} distinct rows in {self.n_columns} columns"
        return "\n".join([head, *map(str, self)])

    def plot(self, ax: Any = None) -> Any:
        """One panel per answer, on `ax` (a sequence of axes) or on a new figure; returns the figure.

        Parameters
        ----------
        ax : sequence of Axes, optional
            One for each answer.

        Returns
        -------
        Figure
        """
        import matplotlib.pyplot as plt

        answers = list(self)
        if ax is None:
            _, ax = plt.subplots(1, len(answers), figsize=(4 * len(answers), 3.2), squeeze=False)
            ax = ax[0]
        for answer, panel in zip(answers, ax):
            answer.plot(panel)
        figure = ax[0].figure
        figure.tight_layout()
        return figure

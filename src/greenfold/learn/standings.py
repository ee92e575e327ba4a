"""What competed for the prediction, and how each did on rows it was not solved with."""

from collections.abc import Iterable
from typing import NamedTuple

from torch import nn

from greenfold.chart import (
    MLP,
    SNV,
    AxisScales,
    Bent,
    Conv,
    Linear,
    Mixed,
    PCAResidual,
    Squash,
    Warp,
)
from greenfold.green.base import Operator

CHARTS: dict[type[nn.Module], str] = {
    AxisScales: "axis scales",
    Bent: "linear chart bent by responses",
    Conv: "convolutions",
    Linear: "linear chart",
    MLP: "MLP",
    Mixed: "mixed axis scales",
    PCAResidual: "linear chart bent by an MLP",
    Warp: "warped axis scales",
    nn.Identity: "columns as they are",
}

SEARCHED = {  # by the way they are found; all others are just linear
    "ard": "axis scales",
    "constant": "constant",
    "isotropic": "isotropic chart",
    "pca": "principal components",
    "standardized": "isotropic chart of standardized columns",
}


class Standing(NamedTuple):
    """A chart with its kernel, and how it did. Lists of them have the model in use first."""

    name: str  # chart and kernel, for people to read
    score: float  # error on rows left out of the solve; NaN if none were
    rows: int  # by which it was judged
    seconds: float  # of wall-clock time it took
    n_dims: int  # coordinates of the chart
    weight: float = 0.0  # share in the prediction: 1 for the only model in use, 0 for a rival

    def __str__(self) -> str:
        used = "" if self.weight in (0, 1) else f", weight {self.weight:.2f}"
        return (
            f"{self.name}, d = {self.n_dims}: error {self.score:.4g} on {self.rows} rows left out, "
            f"{self.seconds:.2f} s{used}"
        )


def named(chart: str, operator: Operator) -> str:
    """Such as 'axis scales, Anova kernel of order 2'."""
    return f"{chart}, {operator.label}"


FRAMES: dict[type[nn.Module], str] = {SNV: " of rows after SNV", Squash: " of squashed columns"}


def parted(encoder: nn.Module) -> tuple[nn.Module, str]:
    """A chart without the fixed layer before it, and what is said of that."""
    if isinstance(encoder, nn.Sequential) and len(encoder) == 2 and type(encoder[0]) in FRAMES:
        return encoder[1], FRAMES[type(encoder[0])]
    return encoder, ""


def chart_name(encoder: nn.Module) -> str:
    """A module of the user's goes by the name of its class."""
    encoder, frame = parted(encoder)
    return own_name(encoder) + frame


def on_columns(encoder: nn.Module) -> bool:
    """Is every coordinate a column of its own?"""
    return isinstance(parted(encoder)[0], AxisScales | Warp)


def own_name(encoder: nn.Module) -> str:
    if isinstance(encoder, AxisScales) and encoder.log_scale.numel() == 1:
        return "one scale"
    return CHARTS.get(type(encoder), type(encoder).__name__)


def searched_chart(name: str) -> str:
    return SEARCHED.get(name, "linear chart")


def ranked(standings: Iterable[Standing]) -> list[Standing]:
    """By weight, then by error: what is in use first, then its rivals, the best first."""
    return sorted(standings, key=lambda s: (-s.weight, s.score != s.score, s.score))

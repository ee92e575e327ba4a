"""Charts: x → ξ."""

from greenfold.chart.encoders import MLP, AxisScales, Bent, Conv, Linear, Mixed, PCAResidual, Warp
from greenfold.chart.frames import SNV, Squash
from greenfold.chart.gates import Gates

__all__ = [
    "MLP",
    "SNV",
    "AxisScales",
    "Bent",
    "Conv",
    "Gates",
    "Linear",
    "Mixed",
    "PCAResidual",
    "Squash",
    "Warp",
]

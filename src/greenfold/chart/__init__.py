"""Charts: x → ξ."""

from greenfold.chart.encoders import MLP, AxisScales, Conv, Linear, Mixed, PCAResidual, Warp
from greenfold.chart.frames import SNV
from greenfold.chart.gates import Gates

__all__ = ["MLP", "SNV", "AxisScales", "Conv", "Gates", "Linear", "Mixed", "PCAResidual", "Warp"]

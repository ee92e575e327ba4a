"""Charts: x → ξ."""

from greenfold.chart.encoders import MLP, AxisScales, Conv, Linear, PCAResidual, Warp
from greenfold.chart.gates import Gates

__all__ = ["MLP", "AxisScales", "Conv", "Gates", "Linear", "PCAResidual", "Warp"]

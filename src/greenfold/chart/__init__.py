"""Charts: x → ξ."""

from greenfold.chart.encoders import MLP, AxisScales, Conv, Linear, Mixed, PCAResidual, Warp
from greenfold.chart.gates import Gates

__all__ = ["MLP", "AxisScales", "Conv", "Gates", "Linear", "Mixed", "PCAResidual", "Warp"]

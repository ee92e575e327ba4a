"""Intrinsic Green's learning: a chart, a source, and the operator that turns one into the target."""

from greenfold import green
from greenfold.design import Design
from greenfold.dims import DimensionReport, dimension
from greenfold.estimators import IGLAutoencoder, IGLClassifier, IGLRegressor, IGLStack
from greenfold.green import *  # noqa: F403
from greenfold.model import IGL, Tied

__version__ = "0.1.0"
__all__ = [
    "IGL",
    "Design",
    "DimensionReport",
    "IGLAutoencoder",
    "IGLClassifier",
    "IGLRegressor",
    "IGLStack",
    "Tied",
    "__version__",
    "dimension",
    "green",
    *green.__all__,
]

"""Intrinsic Green's learning: a chart, a source, and the operator that turns one into the target."""

from greenfold import green
from greenfold.design import Design
from greenfold.dims import DimensionReport, dimension
from greenfold.estimators import IGLAutoencoder, IGLClassifier, IGLRegressor, IGLStack
from greenfold.frozen import export
from greenfold.green import *  # noqa: F403
from greenfold.head import IGLHead
from greenfold.images import load_fashion_mnist, load_mnist
from greenfold.io import load, save
from greenfold.model import IGL, ResIGL, Tied
from greenfold.scale import stream
from greenfold.tuning import Tuned, tune

__version__ = "0.1.0"
__all__ = [
    "IGL",
    "Design",
    "DimensionReport",
    "IGLAutoencoder",
    "IGLClassifier",
    "IGLHead",
    "IGLRegressor",
    "IGLStack",
    "ResIGL",
    "Tied",
    "Tuned",
    "__version__",
    "dimension",
    "export",
    "green",
    "load",
    "load_fashion_mnist",
    "load_mnist",
    "save",
    "stream",
    "tune",
    *green.__all__,
]

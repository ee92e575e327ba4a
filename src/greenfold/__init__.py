"""Intrinsic Green's learning: a chart, a source, and the operator that turns one into the target.

Names are imported when they are asked for: the command line answers `--help` without PyTorch.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from greenfold.version import __version__ as __version__

if TYPE_CHECKING:
    from greenfold import green as green
    from greenfold.design import Design as Design
    from greenfold.dims import DimensionReport as DimensionReport
    from greenfold.dims import dimension as dimension
    from greenfold.estimators import IGLAutoencoder as IGLAutoencoder
    from greenfold.estimators import IGLClassifier as IGLClassifier
    from greenfold.estimators import IGLRegressor as IGLRegressor
    from greenfold.estimators import IGLStack as IGLStack
    from greenfold.estimators import IGLStackClassifier as IGLStackClassifier
    from greenfold.estimators import Learner as Learner
    from greenfold.frozen import export as export
    from greenfold.head import IGLHead as IGLHead
    from greenfold.images import load_fashion_mnist as load_fashion_mnist
    from greenfold.images import load_mnist as load_mnist
    from greenfold.io import load as load
    from greenfold.io import save as save
    from greenfold.model import IGL as IGL
    from greenfold.model import ResIGL as ResIGL
    from greenfold.model import Tied as Tied
    from greenfold.scale import stream as stream
    from greenfold.sources import SourceFinder as SourceFinder
    from greenfold.spec import Chart as Chart
    from greenfold.spec import Source as Source
    from greenfold.spec import Training as Training
    from greenfold.tuning import Tuned as Tuned
    from greenfold.tuning import tune as tune

WHERE = {
    "design": "Design",
    "dims": "DimensionReport dimension",
    "estimators": "IGLAutoencoder IGLClassifier IGLRegressor IGLStack IGLStackClassifier Learner",
    "frozen": "export",
    "head": "IGLHead",
    "images": "load_fashion_mnist load_mnist",
    "io": "load save",
    "model": "IGL ResIGL Tied",
    "scale": "stream",
    "sources": "SourceFinder",
    "spec": "Chart Source Training",
    "tuning": "Tuned tune",
}
MODULE = {name: module for module, names in WHERE.items() for name in names.split()}
__all__ = sorted([*MODULE, "__version__", "green"])


def __getattr__(name: str) -> Any:
    """A name of the library, or a module."""
    if name in MODULE:
        value = getattr(import_module(f"greenfold.{MODULE[name]}"), name)
    elif not name.startswith("_") and find_spec(f"greenfold.{name}") is not None:
        value = import_module(f"greenfold.{name}")
    else:
        raise AttributeError(f"module 'greenfold' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

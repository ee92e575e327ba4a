"""Which classes a model file may hold, and the names they go by: `module:Class`.

A class that moves to another file, or is renamed, leaves its old name in `MOVED`; files that were written
before then stay readable.
"""

from dataclasses import dataclass, is_dataclass
from functools import cache
from importlib import import_module

from sklearn.base import BaseEstimator
from torch import nn

LAYERS: dict[str, type[nn.Module]] = {
    f"nn.{cls.__name__}": cls
    for cls in (
        nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.BatchNorm1d,
        nn.BatchNorm2d, nn.Conv1d, nn.Conv2d, nn.Dropout, nn.ELU, nn.Flatten, nn.GELU, nn.GroupNorm,
        nn.Identity, nn.LayerNorm, nn.LeakyReLU, nn.Linear, nn.MaxPool1d, nn.MaxPool2d, nn.ModuleDict,
        nn.ModuleList, nn.ParameterList, nn.RMSNorm, nn.ReLU, nn.Sequential, nn.SiLU, nn.Sigmoid,
        nn.Softmax, nn.Softplus, nn.Tanh, nn.Unflatten,
    )
}  # fmt: skip

# Format 1 had names without a module. Where the classes were when format 2 began:
FORMAT_1 = {
    "greenfold.chart.encoders": "AxisScales Conv Linear MLP Mixed PCAResidual Warp",
    "greenfold.chart.gates": "Gates",
    "greenfold.dims.report": "Answer DimensionReport",
    "greenfold.estimators.autoencoder": "IGLAutoencoder",
    "greenfold.estimators.classifier": "IGLClassifier",
    "greenfold.estimators.regressor": "IGLRegressor",
    "greenfold.estimators.stack": "IGLStack",
    "greenfold.green.atoms": "Box Gabor GaussHermite Gaussian Hat MexicanHat Point",
    "greenfold.green.bases": (
        "Chebyshev Cosine Fourier Hermite Laguerre LaguerrePolynomial Legendre Sine"
    ),
    "greenfold.green.diffusion": "Fractional Heat Interval Matern Poisson ScreenedPoisson",
    "greenfold.green.expsum": "ExponentialSum",
    "greenfold.green.null_space": "Polynomial",
    "greenfold.green.operators": "Cauchy HarmonicOscillator ProductScreened Superposition",
    "greenfold.green.pointwise": "Anova Exponential",
    "greenfold.green.spectral": "Modes Oscillatory Spectral",
    "greenfold.head": "IGLHead",
    "greenfold.learn.posterior": "Posterior",
    "greenfold.learn.search.forecast": "Forecast",
    "greenfold.learn.search.ladder": "Candidate Frame",
    "greenfold.learn.trainer": "History",
    "greenfold.model": "IGL ResIGL Tied",
    "greenfold.solve.solution": "Solution",
    "greenfold.solve.statistics": "Statistics",
    "greenfold.table": "Column Table TableModel",
}


@dataclass
class Gone:
    """A record of a class that is no more, with what it held; nothing asks for it."""


# old name: the next one; add a line when a class moves, and never take one away
MOVED: dict[str, str] = {
    name: f"{module}:{name}" for module, names in FORMAT_1.items() for name in names.split()
} | {
    "greenfold.learn.select:Trial": "greenfold.io.names:Gone",
}


# Where classes of files are today; nothing else is imported on account of one.
MODULES = (
    "greenfold.spec",
    *FORMAT_1,
    "greenfold.chart.frames",
    "greenfold.design",
    "greenfold.estimators.stack_classifier",
    "greenfold.green.base",
    "greenfold.green.transport",
    "greenfold.green.factors",
    "greenfold.green.graph",
    "greenfold.green.product",
    "greenfold.io.names",
    "greenfold.learn.applicability",
    "greenfold.learn.graphs",
    "greenfold.learn.intervals",
    "greenfold.learn.marginals",
    "greenfold.learn.nearby",
    "greenfold.learn.predictor",
    "greenfold.learn.standings",
    "greenfold.learn.units",
    "greenfold.likelihoods.counts",
    "greenfold.likelihoods.located",
    "greenfold.likelihoods.ordinal",
    "greenfold.likelihoods.quantiles",
    "greenfold.scale.checkpoint",
    "greenfold.solve.running",
    "greenfold.sources.estimates",
    "greenfold.sources.finder",
    "greenfold.sources.readings",
    "greenfold.sources.sparse",
    "greenfold.sources.uncertainty",
)


@cache
def known_classes() -> dict[str, type]:
    """By name: modules, estimators and records of greenfold, and plain layers of torch."""
    known: dict[str, type] = dict(LAYERS)
    for name in MODULES:
        for cls in vars(import_module(name)).values():
            if isinstance(cls, type) and cls.__module__ == name and _may_be_held(cls):
                add(known, cls)
    return known


def add(known: dict[str, type], cls: type) -> None:
    """A name has one class."""
    name = name_of(cls)
    if name in MOVED or known.setdefault(name, cls) is not cls:
        raise TypeError(f"two classes are called {name} in model files: rename one of them.")


def name_of(cls: type) -> str:
    if LAYERS.get(f"nn.{cls.__name__}") is cls:
        return f"nn.{cls.__name__}"
    return f"{cls.__module__}:{cls.__qualname__}"


def present(name: str) -> str:
    """The name of today."""
    while name in MOVED:
        name = MOVED[name]
    return name


def is_record(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def _may_be_held(cls: type) -> bool:
    return issubclass(cls, nn.Module | BaseEstimator) or is_dataclass(cls) or is_record(cls)

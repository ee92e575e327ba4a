"""Operators, sources and their responses: (ξ, atoms) → Φ."""

from greenfold.green.atoms import (
    ATOMS,
    Atoms,
    Box,
    Gabor,
    GaussHermite,
    Gaussian,
    Hat,
    MexicanHat,
    Point,
)
from greenfold.green.base import Operator
from greenfold.green.bases import (
    BASES,
    Basis,
    Chebyshev,
    Cosine,
    Fourier,
    Hermite,
    Laguerre,
    LaguerrePolynomial,
    Legendre,
    Sine,
)
from greenfold.green.diffusion import (
    Fractional,
    Heat,
    Interval,
    Matern,
    Poisson,
    ScreenedPoisson,
    SquaredExponential,
)
from greenfold.green.expsum import ExponentialSum, minimax, terms_for
from greenfold.green.factors import Bounded, Circle, Factor, Line, Sphere
from greenfold.green.graph import Graph
from greenfold.green.null_space import Polynomial
from greenfold.green.operators import (
    OPERATORS,
    Cauchy,
    HarmonicOscillator,
    ProductScreened,
    Superposition,
    operator,
)
from greenfold.green.pointwise import Affine, Anova, Exponential
from greenfold.green.product import Bumps, Product
from greenfold.green.spectral import Modes, Oscillatory, Spectral
from greenfold.green.transport import Transport

__all__ = [
    "ATOMS",
    "BASES",
    "OPERATORS",
    "Affine",
    "Anova",
    "Atoms",
    "Basis",
    "Bounded",
    "Box",
    "Bumps",
    "Cauchy",
    "Chebyshev",
    "Circle",
    "Cosine",
    "Exponential",
    "ExponentialSum",
    "Factor",
    "Fourier",
    "Fractional",
    "Gabor",
    "GaussHermite",
    "Gaussian",
    "Graph",
    "HarmonicOscillator",
    "Hat",
    "Heat",
    "Hermite",
    "Interval",
    "Laguerre",
    "LaguerrePolynomial",
    "Legendre",
    "Line",
    "Matern",
    "MexicanHat",
    "Modes",
    "Operator",
    "Oscillatory",
    "Point",
    "Poisson",
    "Polynomial",
    "Product",
    "ProductScreened",
    "ScreenedPoisson",
    "Sine",
    "Spectral",
    "Sphere",
    "SquaredExponential",
    "Superposition",
    "Transport",
    "minimax",
    "operator",
    "terms_for",
]

"""Intrinsic Green's learning: a chart, a source, and the operator that turns one into the target."""

from greenfold import green
from greenfold.design import Design
from greenfold.green import *  # noqa: F403

__version__ = "0.1.0"
__all__ = ["Design", "__version__", "green", *green.__all__]

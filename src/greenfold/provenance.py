"""Where a model comes from, for people to read: versions of libraries, parameters of its constructor."""

import math
import platform
import re
from typing import Any

import numpy as np
import scipy
import sklearn
import torch
from sklearn.base import BaseEstimator

from greenfold.spec import on_one_level
from greenfold.version import __version__

LONG = 20  # values that are written out
LEFT_OUT = ("callbacks", "_metadata_request")  # that the caller hangs on an estimator


def versions() -> dict[str, str]:
    """Of the libraries at work."""
    return {
        "greenfold": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def params_of(model: Any) -> dict[str, Any]:
    """Constructor parameters of an estimator, also behind a table, as plain values."""
    inner = getattr(model, "estimator", model)
    if not isinstance(inner, BaseEstimator):
        return {}
    params = on_one_level(inner)
    return {name: shown(value) for name, value in params.items() if name not in LEFT_OUT}


def shown(value: Any) -> Any:
    """A plain value: itself, or how it is printed."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, list | tuple | np.ndarray) and len(value) > LONG:
        return f"{len(value)} values, {shown(value[0])} … {shown(value[-1])}"
    return re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(value))

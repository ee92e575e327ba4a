"""Arrays as text."""

import base64
from typing import Any

import numpy as np


def packed(values: Any, kind: str = "f8") -> dict[str, Any]:
    """An array as base64, with its shape."""
    values = np.asarray(values)
    data = np.ascontiguousarray(values, dtype=f"<{kind}" if kind != "u1" else "u1")
    return {kind: base64.b64encode(data.tobytes()).decode(), "shape": list(values.shape)}

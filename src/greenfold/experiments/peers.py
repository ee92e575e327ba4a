"""xRFM, the peer that tunes itself on rows held out, where it is installed."""

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

HAS_XRFM = find_spec("xrfm") is not None
Array = NDArray[Any]


def tuned_xrfm(
    X: Array,
    y: Array,
    inside: Array,
    outside: Array,
    settings: Iterable[dict[str, float]],
    loss: Callable[[Array, Array], float],
) -> Callable[[Array], Array]:
    """Values (n,) from the setting with the least loss on rows `outside`, which also stop its iterations.

    A setting has a `bandwidth` and may have an `exponent` and a ridge, `reg`.
    """
    from xrfm import xRFM

    rows, target = X.astype(np.float32), y.astype(np.float32)[:, None]
    best, kept = np.inf, None
    for setting in settings:
        exponent, reg = setting.get("exponent", 1.0), setting.get("reg", 1e-3)
        parameters = {
            "model": {"kernel": "l2_high_dim", "exponent": exponent, "diag": False}
            | {"bandwidth": setting["bandwidth"], "bandwidth_mode": "constant"},
            "fit": {"reg": reg, "iters": 5, "return_best_params": True, "verbose": False},
        }
        model = xRFM(parameters, device="cpu", tuning_metric="mse", verbose=False)
        model.fit(rows[inside], target[inside], rows[outside], target[outside])
        found = loss(model.predict(rows[outside])[:, 0], target[outside, 0])
        if found < best:
            best, kept = found, model
    assert kept is not None
    chosen = kept
    return lambda x: np.asarray(chosen.predict(x.astype(np.float32))[:, 0], dtype=np.float64)

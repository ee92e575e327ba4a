"""State of estimators from files of before, under the names and in the objects of today."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from greenfold.learn.intervals import Constant
from greenfold.learn.units import Scaling, Units
from greenfold.spec import SPECS, nested

RENAMED = {
    "_absolute_alpha": "absolute_alpha_",
    "_fitted_to": "fitted_to_",
    "_intervals": "intervals_",
    "_posterior": "posterior_",
    "_posteriors": "posteriors_",
    "_y_names": "target_names_",
}
SCALINGS = {f"_{axis}_{part}" for axis in "xy" for part in ("unit", "shift", "scale")}


# options that estimators had before `Chart`, `Source` and `Training`
BEFORE = frozenset(
    [
        "start",
        "pull",
        "gates",
        "anchors",
        "atoms",
        "n_atoms",
        "alpha",
        "gamma",
        "sparsity",
        "objective",
        "mode",
        "optimizer",
        "max_iter",
        "n_restarts",
        "callbacks",
    ]
)


def of_today(cls: type, state: dict[str, Any]) -> dict[str, Any]:
    """What the estimator's attributes would be if it were fitted now; other classes are as they were."""
    if not issubclass(cls, BaseEstimator) or cls in SPECS.values():
        return state
    if BEFORE & set(state):
        state = nested(state)
    if "_x_unit" not in state:
        return state
    old = {RENAMED.get(name, name): value for name, value in state.items()}
    x, y = (
        Scaling(*(old[f"_{axis}_{part}"] for part in ("unit", "shift", "scale"))) for axis in "xy"
    )
    if "classes_" in old:
        y = Scaling.none(len(old["classes_"]))
    elif hasattr(cls, "inverse_transform"):  # what it computes are the inputs
        y = x
    old["units_"] = Units(x, y, bool(old.pop("_flat", False)))
    errors = old.pop("_errors", getattr(old.get("posterior_"), "loo_errors", None))
    if old.get("intervals_") is None and errors is not None:  # from before there was a local scale
        old["intervals_"] = Constant(np.asarray(errors))
    return {name: value for name, value in old.items() if name not in SCALINGS}

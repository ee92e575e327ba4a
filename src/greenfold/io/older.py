"""State of estimators from files of before, under the names and in the objects of today."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from greenfold.learn.intervals import Constant
from greenfold.learn.predictor import Member, Predictor
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
# what a predictor is made of, or tells
PARTS = (
    *("units_", "model_", "models_", "weights_", "posterior_", "posteriors_", "intervals_"),
    *("absolute_alpha_", "alphas_", "temperature_", "chart_", "gates_", "source_"),
)
SCALINGS = {f"_{axis}_{part}" for axis in "xy" for part in ("unit", "shift", "scale")}


# options that estimators had before `Chart`, `Source` and `Training`
BEFORE = {
    "start", "pull", "gates", "anchors", "atoms", "n_atoms", "alpha", "gamma", "sparsity", "objective",
    "mode", "optimizer", "max_iter", "n_restarts", "callbacks",
}  # fmt: skip


def of_today(cls: type, state: dict[str, Any]) -> dict[str, Any]:
    """What the estimator's attributes would be if it were fitted now; other classes are as they were."""
    if not issubclass(cls, BaseEstimator) or cls in SPECS.values():
        return state
    if BEFORE & set(state):
        state = nested(state)
    if "_x_unit" in state:
        state = in_objects(cls, state)
    return gathered(state) if "units_" in state else state


def in_objects(cls: type, state: dict[str, Any]) -> dict[str, Any]:
    """With units and intervals, which were numbers of their own."""
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


def gathered(state: dict[str, Any]) -> dict[str, Any]:
    """With `predictor_` in place of its parts."""
    old: Any = {name: state.get(name) for name in PARTS}
    models = old["models_"] or ({} if old["model_"] is None else {"": old["model_"]})
    weights, alphas = old["weights_"] or {"": 1.0}, old["alphas_"] or {}
    posteriors = old["posteriors_"] or {"": old["posterior_"]}
    members = []
    for name, model in models.items():
        posterior = posteriors.get(name)
        alpha = alphas.get(name, getattr(posterior, "alpha", old["absolute_alpha_"]))
        members.append(Member(weights[name], model, posterior, alpha, name))
    T = old["temperature_"]
    known = (tuple(members), old["intervals_"], 1.0 if T is None else T)
    predictor = Predictor(old["units_"], *known)
    rest = {name: value for name, value in state.items() if name not in PARTS}
    return {**rest, "predictor_": predictor}

"""A stack, of which the page shows the chart that weighs most."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import r2_score

from greenfold.estimators import IGLRegressor, IGLStack

Array = NDArray[Any]


def heaviest(stack: IGLStack) -> IGLRegressor:
    """The chart that weighs most, as a model of its own: units and rows are those of the stack."""
    name = max(stack.weights_, key=lambda name: stack.weights_[name])
    one, igl, posterior = IGLRegressor(), stack.models_[name], stack._posteriors[name]
    one.__dict__.update({k: v for k, v in vars(stack).items() if k not in stack.get_params()})
    one.model_, one.chart_, one._posterior = igl, igl.encoder, posterior
    one._intervals = None  # those of the stack are not this chart's
    one.gates_ = igl.gates().detach().numpy()
    one.alpha_ = posterior.alpha / float(igl.unit())
    one.solver_info_ = {}
    return one


def told_of(stack: IGLStack, rows: Array, Y: Array | None, weight: Array) -> dict[str, Any]:
    """How many charts are averaged, what this one weighs, and R² of all together on the rows shown."""
    score = None
    if Y is not None:
        u = np.asarray(stack._predict(rows)).reshape(Y.shape) / stack._y_unit
        y = Y * stack._y_scale + stack._y_shift
        score = float(r2_score(y, u, sample_weight=weight))
    return {"n": len(stack.weights_), "weight": max(stack.weights_.values()), "score": score}

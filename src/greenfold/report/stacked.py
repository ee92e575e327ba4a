"""A stack, of which the page shows the chart that weighs most."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import r2_score

Array = NDArray[Any]


def heaviest(stack: Any) -> SimpleNamespace:
    """The chart that weighs most, as a fit of its own: units and rows are those of the stack."""
    predictor = stack.predictor_.alone()
    igl, alpha = predictor.heaviest.model, predictor.heaviest.alpha
    own = {
        "predictor_": predictor,
        "units_": predictor.units,
        "model_": igl,
        "chart_": igl.encoder,
        "gates_": igl.gates().detach().numpy(),
        "alpha_": alpha / float(igl.unit()),
        "loss": "cross_entropy",
        "solver_info_": {},
    }
    return SimpleNamespace(**vars(stack) | own)


def told_of(stack: Any, rows: Array, Y: Array | None, weight: Array) -> dict[str, Any]:
    """How many charts are averaged, what this one weighs, and the score of all on the rows shown."""
    score, predictor = None, stack.predictor_
    if Y is not None and hasattr(stack, "classes_"):
        right = predictor.log_proba(predictor.inside(rows)).argmax(1) == Y.argmax(1)
        score = float(np.average(right, weights=weight))
    elif Y is not None:
        y, u = (stack.units_.y.outside(v) for v in (Y, predictor.u(predictor.inside(rows))))
        score = float(r2_score(y, u, sample_weight=weight))
    return {"n": len(stack.weights_), "weight": max(stack.weights_.values()), "score": score}

"""A stack, of which the page shows the chart that weighs most."""

from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import r2_score

from greenfold.learn.predictor import Predictor

Array = NDArray[Any]


def heaviest(stack: Any) -> SimpleNamespace:
    """The chart that weighs most, as a fit of its own: units and rows are those of the stack."""
    predictor = stack.predictor_.alone()
    sharpness = predictor.heaviest.sharpness
    if sharpness:  # the page sends classes to corners at 1
        predictor = in_units_of(predictor, sharpness)
    igl, alpha = predictor.heaviest.model, predictor.heaviest.alpha
    own = {
        "predictor_": predictor,
        "units_": predictor.units,
        "model_": igl,
        "chart_": igl.encoder,
        "gates_": igl.gates().detach().numpy(),
        "alpha_": alpha / float(igl.unit()),
        "loss_": "least_squares" if sharpness else "cross_entropy",
        "solver_info_": {},
    }
    return SimpleNamespace(**vars(stack) | own)


@torch.no_grad()
def in_units_of(predictor: Predictor, unit: float) -> Predictor:
    """The same probabilities from logits in another unit."""
    igl = deepcopy(predictor.heaviest.model)
    assert igl.w is not None
    igl.w = igl.w / unit
    member = predictor.heaviest._replace(model=igl, whole=None)
    return replace(predictor, members=(member,), temperature=predictor.temperature / unit)


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

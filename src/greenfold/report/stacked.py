"""A stack, of which the page shows the chart that weighs most."""

from types import SimpleNamespace
from typing import Any

from numpy.typing import NDArray
from sklearn.metrics import r2_score

Array = NDArray[Any]


def heaviest(stack: Any) -> SimpleNamespace:
    """The chart that weighs most, as a fit of its own: units and rows are those of the stack."""
    predictor = stack.predictor_.alone()
    _, igl, posterior = predictor.heaviest
    own = {
        "predictor_": predictor,
        "model_": igl,
        "chart_": igl.encoder,
        "posterior_": posterior,
        "gates_": igl.gates().detach().numpy(),
        "alpha_": posterior.alpha / float(igl.unit()),
        "solver_info_": {},
    }
    return SimpleNamespace(**vars(stack) | own)


def told_of(stack: Any, rows: Array, Y: Array | None, weight: Array) -> dict[str, Any]:
    """How many charts are averaged, what this one weighs, and R² of all together on the rows shown."""
    score, predictor = None, stack.predictor_
    if Y is not None:
        y, u = (stack.units_.y.outside(v) for v in (Y, predictor.u(predictor.inside(rows))))
        score = float(r2_score(y, u, sample_weight=weight))
    return {"n": len(stack.weights_), "weight": max(stack.weights_.values()), "score": score}

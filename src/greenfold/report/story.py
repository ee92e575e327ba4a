"""How the model came about and how sure it is: intervals, training, dimension, provenance."""

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from greenfold.chart.start import pca
from greenfold.dims.report import AXES, QUESTIONS
from greenfold.learn.trainer import History
from greenfold.learn.units import evenly
from greenfold.model import IGL, n_sources
from greenfold.provenance import params_of, versions
from greenfold.report.pack import packed

Array = NDArray[Any]

LEVELS = (0.5, 0.8, 0.9, 0.95)
FILM_NUMBERS = 150_000  # float32


def intervals(model: Any, rows: Array, outputs: list[int]) -> dict[str, Any] | None:
    """Conformal intervals: half widths are a quantile (levels, c) times the row's unit (n, c)."""
    predictor = model.predictor_
    posterior = predictor.heaviest.posterior
    if posterior is None or predictor.intervals is None:
        return None
    with warnings.catch_warnings():  # few rows: the page shows the coverage
        warnings.simplefilter("ignore")
        quantile = [predictor.intervals.quantile(1 - v)[outputs].tolist() for v in LEVELS]
    x = predictor.inside(rows)
    unit = predictor.error_unit(x, predictor.each(x))[:, outputs]
    told = {"levels": list(LEVELS), "quantile": quantile, "unit": packed(unit, "f4")}
    return {**told, "loo_r2": float(posterior.loo_r2)}


OBJECTIVES = {
    "evidence": "negative log evidence per row",
    "loo": "mean squared leave-one-out residual",
    "gcv": "generalized cross-validation",
    "penalized": "penalized squared residual",
    "log_mse": "log mean squared residual",
}


def history(model: Any, rows: Array, xi: Array, whole: bool) -> dict[str, Any]:
    """Steps and pictures of a descent, or what competed. `whole`: all rows kept by `fit` are shown."""
    history = getattr(model, "history_", None)
    told: dict[str, Any] = {}
    if isinstance(history, History):
        objective = getattr(model, "objective", "evidence")
        told = {
            "label": OBJECTIVES.get(objective, objective),
            "loss": [float(v) for v in history.loss],
            "seconds": [float(v) for v in history.seconds],
            "stopped": history.stopped,
        }
        film = getattr(history, "film", None)
        if film is not None and film.frames and whole:
            kept = evenly(len(film.steps), max(2, FILM_NUMBERS // film.frames[0].size)).tolist()
            told["film"] = {
                "rows": evenly(len(rows), film.n_rows).tolist(),
                "steps": [film.steps[i] for i in kept],
                "charts": packed(np.stack([film.frames[i] for i in kept]), "f4"),
                "gates": [film.gates[i] for i in kept],
            }
    else:
        known = [s for s in getattr(model, "standings_", []) if np.isfinite(s.score)]
        told["candidates"] = [
            {"name": s.name, "d": s.n_dims, "value": s.score, "weight": s.weight}
            for s in known[:12]
        ]
        told["label"] = (
            "log-loss" if hasattr(model, "classes_") else "error, in standard deviations,"
        )
    if "film" not in told:
        told["morph"] = packed(_from_components(model.units_.x.inside(rows), xi), "f4")
    return told


def _from_components(x: Array, xi: Array) -> Array:
    """Principal components of the rows, turned and scaled to lie as close to ξ as they can."""
    d = min(xi.shape[1], *x.shape)
    x = x - x.mean(0)
    z = np.zeros_like(xi)
    z[:, :d] = x @ pca(torch.from_numpy(x), d).numpy().T
    z /= np.where(z.std(0) > 0, z.std(0), 1.0)
    centered = xi - xi.mean(0)
    U, _, Vt = np.linalg.svd(z.T @ centered)
    return np.asarray(z @ U @ Vt * np.sqrt(centered.var(0).mean()) + xi.mean(0))


def dimension(model: Any) -> list[dict[str, Any]] | None:
    report = getattr(model, "dimension_", None)
    if report is None:
        return None
    told = []
    for answer in report:
        x, y, x_label, y_label = AXES[answer.name]
        told.append(
            {
                "name": answer.name,
                "question": QUESTIONS[answer.name],
                "text": str(answer).removeprefix(answer.name).strip(),
                "value": answer.value,
                "low": answer.low,
                "high": answer.high,
                "estimate": answer.estimate,
                "labels": [x_label, y_label],
                "log": [answer.name == "intrinsic", answer.name != "intrinsic"],
                "curve": [[float(row[x]), float(row[y])] for row in answer.curve],
            }
        )
    return told


def provenance(model: Any, estimator: Any, igl: IGL, extra: dict[str, str]) -> dict[str, Any]:
    """Where the model comes from, by name, as text; `estimator` is what the user fitted."""
    sha, fitted = getattr(model, "data_sha256_", None), getattr(model, "fitted_to_", None)
    params, solver = params_of(estimator), model.solver_info_
    used = model.predictor_.heaviest.predicts
    sketch = f"a sketch of {n_sources(igl.sources)} sources; predictions come from all "
    shown = {} if used is igl else {"this page": f"{sketch}{n_sources(used.sources)}"}
    return {
        **extra,
        **shown,
        "data": f"SHA-256 {sha}" if sha else "not recorded",
        "rows fitted to": f"{fitted[0]}, copies joined" if fitted else "not recorded",
        "columns": str(model.n_features_in_),
        "seed": str(params.get("random_state")),
        "parameters": ", ".join(f"{k}={v!r}" for k, v in params.items()),
        "operator": " ".join(str(igl.operator).split()),
        "strength α": f"{model.alpha_:.6g}",
        "solver": ", ".join(f"{k.replace('_', ' ')} {_short(v)}" for k, v in solver.items())
        or "not recorded",
        "versions": ", ".join(f"{k} {v}" for k, v in versions().items()),
    }


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

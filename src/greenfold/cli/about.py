"""What a fitted model is, in a few lines: for `fit` when it is done, and for `info` at any time."""

from typing import Any

import numpy as np

from greenfold.learn.standings import Standing, chart_name, named

RIVALS = 3  # that are told of


def about(model: Any, names: list[str] | None = None) -> dict[str, Any]:
    """Of an estimator or a module, what it has of: rows, score, noise, charts and kernels, rivals.

    `names` are those of the columns, if it does not know them.
    """
    if hasattr(model, "readings_"):
        from greenfold.cli.sources import told as sources

        return sources(model, names or [f"x{j}" for j in range(model.n_features_in_)])
    standings = getattr(model, "standings_", [])
    parts = _parts(model)
    rivals = [_line(s, model) for s in standings if not s.weight]
    if len(rivals) > RIVALS:
        rivals[RIVALS:] = [f"and {len(rivals) - RIVALS} more"]
    told = {
        "rows": model.fitted_to_[0] if hasattr(model, "fitted_to_") else None,
        "coordinates": len(model.gates_) if hasattr(model, "gates_") else None,
        **score(model),
        "noise": _noise(model),
        "in use": [_line(s, model) for s in standings if s.weight]
        or [named(chart_name(part.encoder), part.operator) for part in parts],
        "coordinate": _coordinates(model, names),
        "effects": _effects(model, names),
        "sources": [len(part.source_weights()) for part in _predicting(model, parts)],
        "rivals": rivals,
    }
    return {name: value for name, value in told.items() if value is not None and value != []}


def score(model: Any) -> dict[str, float]:
    """How well rows are predicted that were left out."""
    law = _law(model)
    known = getattr(getattr(model, "posterior_", None), "loo_r2", None)
    if known is not None and law is None:
        return {"R2 (leave-one-out)": float(known)}
    used = next(iter(getattr(model, "standings_", [])), None)
    if used is None or not np.isfinite(used.score):
        return {}
    if law is not None:
        return {"nats (rows left out)": used.score}
    if hasattr(model, "classes_"):
        return {"log-loss (rows left out)": used.score}
    return {"R2 (rows left out)": 1 - used.score**2}


def _parts(model: Any) -> list[Any]:
    """The paths x → u in use: one, or those that a stack averages."""
    if hasattr(model, "models_"):
        return list(model.models_.values())
    inner = getattr(model, "model_", model)
    return [inner] if hasattr(inner, "operator") and hasattr(inner, "encoder") else []


def _predicting(model: Any, parts: list[Any]) -> list[Any]:
    """What predictions come from: of many rows, models with a source at each."""
    members = getattr(getattr(model, "predictor_", None), "members", ())
    return [part for part in [member.predicts for member in members] or parts if part.w is not None]


def _coordinates(model: Any, names: list[str] | None) -> list[str]:
    """What each is."""
    if not hasattr(model, "explained_") or not hasattr(model, "model_"):
        return []
    from greenfold.report.coordinates import lines

    return lines(model, model.encoded_names_ if names is None else names)


def _effects(model: Any, names: list[str] | None) -> list[str]:
    """Shares of columns and pairs in the prediction, where the model has them."""
    found = getattr(model, "effects_", [])
    return [
        line for one in (found if isinstance(found, list) else [found]) for line in one.told(names)
    ]


def _noise(model: Any) -> float | list[float] | None:
    """Standard deviation of the noise, in units of y."""
    posterior, law = getattr(model, "posterior_", None), _law(model)
    if posterior is None or (law is not None and not law.conformal):
        return None
    if model.units_.y.power != 1:  # it grows with y
        return None
    noise = model.units_.y.widths(np.sqrt(posterior.noise.numpy()))
    return float(noise[0]) if len(noise) == 1 else [float(v) for v in noise]


def _law(model: Any) -> Any:
    """The likelihood, if it is not that of normal noise."""
    return getattr(getattr(model, "units_", None), "law", None)


def _line(s: Standing, model: Any) -> str:
    unit = "log-loss {:.4g}" if hasattr(model, "classes_") else "error {:.4g} standard deviations"
    unit = "{:.4g} nats" if _law(model) is not None and s.weight > 0 else unit
    error = unit.format(s.score) if np.isfinite(s.score) else "error unknown"
    share = "" if s.weight in (0, 1) else f", weight {s.weight:.2f}"
    return f"{s.name}, d = {s.n_dims}: {error} at {s.rows} rows left out{share}"

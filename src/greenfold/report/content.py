"""What the page is told about a fitted model: rows on the chart, the model's numbers, how it came about.

Everything is in the model's own units, with `shift` and `scale` to those of y. Arrays are base64 of
little-endian numbers: float64 wherever the page computes with them.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from greenfold.chart import AxisScales, Warp
from greenfold.estimators.base import Base, evenly
from greenfold.green.atoms import Gaussian, Point
from greenfold.green.null_space import Polynomial
from greenfold.model import IGL, Tied
from greenfold.report import story
from greenfold.report.operator import NotLive, describe, reaches
from greenfold.report.pack import packed

Array = NDArray[Any]

# What is embedded, at most: together less than 5 MB as base64.
NUMBERS = 120_000  # float64 of rows
MOST_ROWS = 2000
MODEL_NUMBERS = 150_000  # float64 of anchors and strengths
OUTPUTS = 24
SHOWN_FEATURES = 12
PIXELS = 700_000
SIDE = 72  # of the fields that are computed here


def content(
    model: Any,
    X: Any,
    y: Any,
    names: list[str] | None,
    target: str | None,
    image_shape: Sequence[int] | None,
    provenance: dict[str, str],
) -> dict[str, Any]:
    """Everything the page shows, ready for JSON."""
    if not isinstance(model, Base):
        raise ValueError(
            f"a report shows one chart and the source on it; {type(model).__name__} has no such chart. "
            "Fit an IGLRegressor, IGLClassifier or IGLAutoencoder."
        )
    check_is_fitted(model)
    rows, Y, weight, kind = _rows(model, X, y)
    xi = model.transform(rows)
    igl = model.model_
    c = igl._solved().shape[1]
    outputs = list(range(min(c, OUTPUTS)))
    most = min(MOST_ROWS, max(100, NUMBERS // (xi.shape[1] + len(outputs) + 2)))
    if image_shape is not None:
        most = min(most, PIXELS // int(np.prod(image_shape)))
    known, keep = len(rows), evenly(len(rows), most)
    fitted = getattr(model, "_fitted_to", (known, float(weight.sum())))  # rows, and their weight
    rows, xi, weight = rows[keep], xi[keep], weight[keep]
    Y = None if Y is None else Y[keep]
    feature_names = _feature_names(model, names)
    told: dict[str, Any] = {
        "title": _title(model, target),
        "estimator": type(model).__name__,
        "task": _task(model),
        "rows": {
            "kind": kind,
            "shown": len(rows),
            "known": fitted[0] if kind == "fitted" else known,
            "share": float(weight.sum() / fitted[1]),  # of what α was chosen for
            "xi": packed(xi),
            "u": None,
            "y": None if Y is None else packed(Y[:, outputs]),
            "weight": packed(weight),
            "std": _std(model, rows),
            **_features(rows, xi, feature_names, image_shape),
        },
        "chart": {
            "gates": model.gates_.tolist(),
            "order": np.argsort(-xi.std(0) * model.gates_, kind="stable").tolist(),
            "encoder": type(model.chart_).__name__,
            "names": feature_names if isinstance(model.chart_, AxisScales | Warp) else None,
        },
        "outputs": _outputs(model, outputs, feature_names, target),
        "model": _model(model, igl, outputs, xi),
        "intervals": story.intervals(model, outputs),
        "history": story.history(model, rows, xi, kind == "fitted" and len(rows) == known),
        "dimension": story.dimension(model),
        "provenance": story.provenance(model, igl, provenance),
    }
    if not told["model"]["live"]:
        told["rows"]["u"] = packed(model._raw(rows)[:, outputs])
    return told


# --- rows


def _sample_of(model: Any) -> tuple[Array, Array | None, Array]:
    """Rows kept by `fit`; of a model from a file, the rows that its sources are tied to."""
    sample = getattr(model, "_sample", None)
    if sample is not None:
        return sample
    sources = model.model_.sources
    if not isinstance(sources, Tied):
        raise ValueError(
            "the model came from a file, which holds no rows to show: give some, report(path, X, y)."
        )
    x = sources.x.cpu().double().numpy()
    rows = (x * model._x_scale + model._x_shift) * model._x_unit
    return rows, None, np.ones(len(rows))


def _rows(model: Any, X: Any, y: Any) -> tuple[Array, Array | None, Array, str]:
    """Rows (n, D), targets (n, c) in the model's units or None, weights, and where they come from."""
    if X is None:
        if y is not None:
            raise ValueError("`y` was given without `X`: give the rows it belongs to.")
        rows, Y, weight = _sample_of(model)
        kind = "anchors" if getattr(model, "_sample", None) is None else "fitted"
        return rows, _inside(model, rows, Y), weight, kind
    rows = validate_data(model, X, reset=False, dtype=np.float64)
    Y = None
    if y is not None and len(np.asarray(y)) != len(rows):
        raise ValueError(f"X has {len(rows)} rows and y has {len(np.asarray(y))}.")
    if y is not None and hasattr(model, "classes_"):
        y = np.asarray(y)
        unknown = sorted({str(v) for v in y[~np.isin(y, model.classes_)]})
        if unknown:
            raise ValueError(
                f"`y` holds classes the model was not fitted to: {', '.join(unknown[:5])}."
            )
        Y = (y[:, None] == model.classes_).astype(np.float64)
    elif y is not None:
        Y = np.asarray(y, dtype=np.float64).reshape(len(rows), -1)
    return rows, _inside(model, rows, Y), np.ones(len(rows)), "given"


def _inside(model: Any, rows: Array, Y: Array | None) -> Array | None:
    """Targets in the model's units."""
    if _task(model) == "reconstruction":
        return np.asarray(model._inside(rows).cpu().numpy())
    if Y is None or _task(model) == "classification":
        return Y
    return np.asarray((Y / model._y_unit - model._y_shift) / model._y_scale)


def _std(model: Any, rows: Array) -> dict[str, Any] | None:
    """Standard deviations (n, c) of new observations, in the units of y, where they are known."""
    if not hasattr(model, "_posterior"):
        return None
    _, std = model.predict(rows, return_std=True)
    return packed(std.reshape(len(rows), -1)[:, :OUTPUTS], "f4")


def _features(
    rows: Array, xi: Array, names: list[str], image_shape: Sequence[int] | None
) -> dict[str, Any]:
    """The columns a tooltip shows, those that go along with the chart most; images as bytes."""
    spread = rows.std(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        z = (rows - rows.mean(0)) / spread
        t = (xi - xi.mean(0)) / xi.std(0)
        along = np.nan_to_num(np.square(z.T @ t / len(rows))) @ np.square(xi.std(0))
    best = np.sort(np.argsort(-along, kind="stable")[:SHOWN_FEATURES])
    told: dict[str, Any] = {
        "features": [names[j] for j in best],
        "n_features": rows.shape[1],
        "values": packed(rows[:, best], "f4"),
    }
    if image_shape is not None:
        shape = tuple(int(s) for s in image_shape)
        if len(shape) != 2 or int(np.prod(shape)) != rows.shape[1]:
            raise ValueError(
                f"`image_shape` must be (height, width) with {rows.shape[1]} pixels, one for each "
                f"column, got {shape}."
            )
        low, high = rows.min(), rows.max()
        bytes_ = np.round(255 * (rows - low) / (high - low or 1.0))
        told["images"] = {"shape": list(shape), "pixels": packed(bytes_, "u1")}
    return told


# --- the model


def _task(model: Any) -> str:
    if hasattr(model, "classes_"):
        return "classification"
    return "reconstruction" if hasattr(model, "inverse_transform") else "regression"


def _title(model: Any, target: str | None) -> str:
    if _task(model) == "reconstruction":
        return f"{model.n_features_in_} columns, rebuilt"
    return f"{target or 'y'} from {model.n_features_in_} column{'s'[: model.n_features_in_ > 1]}"


def _feature_names(model: Any, names: list[str] | None) -> list[str]:
    if names is not None and len(names) != model.n_features_in_:
        raise ValueError(f"{len(names)} names for {model.n_features_in_} columns.")
    known = getattr(model, "feature_names_in_", None) if names is None else names
    return [f"x{j}" for j in range(model.n_features_in_)] if known is None else [*map(str, known)]


def _outputs(
    model: Any, outputs: list[int], features: list[str], target: str | None
) -> dict[str, Any]:
    """Names of the columns of u, and how to turn them into the units of y: shift + scale·u."""
    task = _task(model)
    if task == "classification":
        names = [str(v) for v in model.classes_]
        shift, scale = np.zeros(len(names)), np.ones(len(names))
    elif task == "reconstruction":
        names = features
        shift, scale = model._x_shift * model._x_unit, model._x_scale * model._x_unit
    else:
        shift, scale = model._y_shift * model._y_unit, model._y_scale * model._y_unit
        y = target or "y"
        names = [y] if len(shift) == 1 else [f"{y}{j}" for j in range(len(shift))]
    return {
        "names": [names[j] for j in outputs],
        "known": len(names),
        "shift": shift[outputs].tolist(),
        "scale": scale[outputs].tolist(),
        "temperature": float(getattr(model, "temperature_", 1.0)),
    }


@torch.no_grad()
def _model(model: Any, igl: IGL, outputs: list[int], xi: Array) -> dict[str, Any]:
    """Numbers from which the page computes u, or fields that were computed here, and why."""
    atoms = igl.atoms()
    told: dict[str, Any] = {
        "name": type(igl.operator).__name__,
        "n_atoms": len(atoms.mu),
        "atoms": type(atoms).__name__.lower(),
        "live": False,
        "mu": None,
        "w": None,
        "constant": None,
    }
    one_width = bool((atoms.sigma == atoms.sigma[0, 0]).all())
    small = len(atoms.mu) * ((2 - one_width) * atoms.n_dims + len(outputs)) <= MODEL_NUMBERS
    if small and type(atoms) in (Point, Gaussian):
        told |= {
            "mu": packed(atoms.mu),
            "sigma": float(atoms.sigma[0, 0]) if one_width else packed(atoms.sigma),
            "w": packed(igl.source_weights()[:, outputs]),
        }
    null = igl.null_space
    try:
        if type(null) is not Polynomial or null.degree != 0 or null.squared:
            raise NotLive("only a constant beside the response is evaluated in the page")
        if not small:
            raise NotLive(f"{len(atoms.mu)} sources in {atoms.n_dims} dimensions are too many")
        told["members"] = describe(igl.operator, atoms, igl.gamma == "fixed")
    except NotLive as reason:
        return told | {"why": str(reason), "fields": _fields(model, igl, outputs, xi)}
    cross = _task(model) == "classification" and model.loss == "cross_entropy"
    used = igl.raw_rho.requires_grad
    return told | {
        "live": True,
        "reaches": reaches(atoms.n_dims),
        "constant": igl._solved()[-1, outputs].tolist(),
        "gamma": igl.gamma,
        "factors": igl.factors.tolist() if igl.gamma in ("learned", "alternating") else None,
        "rho": igl.rho.tolist() if used else None,
        "energy": igl.energy,
        "alpha": _alpha(model, igl),
        "loss": "cross_entropy" if cross else "squares",
    }


def _alpha(model: Any, igl: IGL) -> float:
    """The strength of the last solve, absolute: of what multiplies wᵀGw or wᵀw."""
    posterior = getattr(model, "_posterior", None)
    return float(model.alpha_ * igl.unit()) if posterior is None else float(posterior.alpha)


def _fields(model: Any, igl: IGL, outputs: list[int], xi: Array) -> list[dict[str, Any]]:
    """u, and the response to one source at the mean, on planes of the coordinates that vary most."""
    if xi.shape[1] == 1:
        raise ValueError(
            "a chart of one coordinate has no plane to show, and the page cannot evaluate "
            f"{type(igl.operator).__name__}: draw it with `greenfold.plot.response`."
        )
    order = np.argsort(-xi.std(0) * model.gates_, kind="stable")
    low, high = bounds(xi)
    atoms, fields, mean = igl.atoms(), [], torch.from_numpy(xi.mean(0, keepdims=True))
    probe = (
        type(atoms)(mean, float(atoms.sigma[0, 0])) if type(atoms) in (Point, Gaussian) else None
    )
    for a, b in combinations(sorted(order[:4].tolist()), 2):
        points = np.tile(xi.mean(0), (SIDE * SIDE, 1))
        grid = np.meshgrid(np.linspace(low[a], high[a], SIDE), np.linspace(low[b], high[b], SIDE))
        points[:, a], points[:, b] = grid[0].ravel(), grid[1].ravel()
        zeta = torch.from_numpy(points)
        if igl.operator.box is not None:  # points beyond its walls count as on them
            zeta = zeta.clamp(*igl.operator.box)
        u = igl.decode(zeta)[:, outputs[:4]]
        told = {"axes": [a, b], "u": packed(u, "f4")}
        if probe is not None:
            green = igl.operator.response(zeta, probe, igl.gates())
            told["green"] = packed(green / igl.operator.response(mean, probe, igl.gates()), "f4")
        fields.append(told)
    return fields


def bounds(xi: Array) -> tuple[Array, Array]:
    """The box shown (d,), (d,): the rows with a tenth of their range around."""
    low, high = xi.min(0), xi.max(0)
    margin = 0.08 * np.where(high > low, high - low, 1.0)
    return low - margin, high + margin

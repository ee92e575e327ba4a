"""What the page is told about a fitted model: rows on the chart, the model's numbers, how it came about.

Everything is in the model's own units, with `shift` and `scale` to those of y. Arrays are base64 of
little-endian numbers: float64 wherever the page computes with them.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from greenfold.green.atoms import Gaussian, Point
from greenfold.green.base import NoForm
from greenfold.learn.standings import chart_name, on_columns
from greenfold.learn.units import evenly, names_of
from greenfold.model import IGL, Tied
from greenfold.report import coordinates, effects, stacked, story
from greenfold.report.operator import beside, describe, reaches
from greenfold.report.pack import packed
from greenfold.solve.likely import working

Array = NDArray[Any]

# What is embedded, at most: together less than 5 MB as base64, 6 MB with rows given and rows fitted to.
NUMBERS = 120_000  # float64 of rows
MOST_ROWS = 2000
MODEL_NUMBERS = 150_000  # float64 of anchors and strengths
OUTPUTS = 100  # of classes all
SHOWN_FEATURES = 12
PIXELS = 700_000
SMALLEST = 5  # pixels along the side of a picture that is guessed
SIDE = 72  # of the fields that are computed here


def content(
    model: Any,
    X: Any,
    y: Any,
    names: list[str] | None,
    target: str | None,
    image_shape: Sequence[int] | bool | None,
    provenance: dict[str, str],
) -> dict[str, Any]:
    """Everything the page shows, ready for JSON."""
    if not hasattr(type(model), "units_"):
        raise ValueError(
            f"a report shows a chart and the source on it; {type(model).__name__} has no such chart. "
            "Fit an IGLRegressor, IGLClassifier, IGLAutoencoder or a stack."
        )
    check_is_fitted(model)
    estimator, stack = model, model if hasattr(model, "models_") else None
    if stack is not None:
        model = stacked.heaviest(stack)
    predictor = model.predictor_
    if model.model_.operator.rooted:
        raise ValueError(
            f"a report draws planes of a chart; places of a {model.model_.operator.label} lie on none. "
            "Draw predictions at places of your own, as examples/plot_sphere.py does."
        )
    X = None if X is None else estimator.encode(X)
    rows, Y, weight, kind = _rows(model, X, y)
    image_shape = _image_shape(estimator, image_shape, rows)
    known = model.fitted_to_[0] if kind == "fitted" else len(rows)
    igl = model.model_
    outputs, first = _shown_outputs(model, Y)
    most = min(MOST_ROWS, max(100, NUMBERS // (len(model.gates_) + len(outputs) + 2)))
    pictures = most if image_shape is None else max(1, PIXELS // rows.shape[1])
    keep = evenly(len(rows), min(most, pictures))
    whole = kind == "fitted" and len(keep) == len(rows)  # all rows kept by `fit` are shown
    rows, weight = rows[keep], weight[keep]
    Y = None if Y is None else Y[keep]
    xi = predictor.xi(predictor.inside(rows))
    feature_names = _feature_names(rows.shape[1], names or estimator.encoded_names_)
    y_names = [target] if target else getattr(model, "target_names_", None) or names_of(y)
    told: dict[str, Any] = {
        "title": _title(model, y_names),
        "estimator": type(estimator).__name__,
        "stack": None if stack is None else stacked.told_of(stack, rows, Y, weight),
        "task": _task(model),
        "rows": {
            "kind": kind,
            "shown": len(rows),
            "known": known,
            "xi": packed(xi),
            "u": None,
            "y": None if Y is None else packed(Y[:, outputs]),
            "weight": packed(weight),
            "std": _std(model, rows, outputs),
            **_features(rows, xi, feature_names, image_shape),
        },
        "chart": {
            "gates": model.gates_.tolist(),
            "order": np.argsort(-xi.std(0) * model.gates_, kind="stable").tolist(),
            "encoder": chart_name(model.chart_),
            "names": feature_names if on_columns(model.chart_) else None,
        },
        "coordinates": coordinates.told(model, feature_names, image_shape),
        "effects": effects.told(estimator, feature_names, outputs),
        "fitted": _fitted(model, outputs, most, weight if kind == "fitted" else None),
        "outputs": {**_outputs(model, outputs, feature_names, y_names), "first": first},
        "model": _model(model, igl, outputs, first, xi),
        "intervals": story.intervals(model, rows, outputs),
        "history": story.history(model, rows, xi, whole),
        "dimension": story.dimension(model),
        "provenance": story.provenance(model, estimator, igl, provenance),
    }
    if not told["model"]["live"]:
        told["rows"]["u"] = packed(predictor.u(predictor.inside(rows))[:, outputs])
    return told


# --- rows


def _sample_of(model: Any) -> tuple[Array, Array | None, Array]:
    """Rows kept by `fit`; of a model from a file, the rows that its sources are tied to."""
    sample = getattr(model, "sample_", None)
    if sample is not None:
        return sample
    sources = model.model_.sources
    if not isinstance(sources, Tied):
        raise ValueError(
            "the model came from a file, which holds no rows to show: give some, report(path, X, y)."
        )
    x = sources.x.cpu().double().numpy()
    rows = model.units_.x.outside(x)
    return rows, None, np.ones(len(rows))


def _rows(model: Any, X: Any, y: Any) -> tuple[Array, Array | None, Array, str]:
    """Rows (n, D), targets (n, c) in the model's units or None, weights, and where they come from."""
    if X is None:
        if y is not None:
            raise ValueError("`y` was given without `X`: give the rows it belongs to.")
        rows, Y, weight = _sample_of(model)
        kind = "anchors" if getattr(model, "sample_", None) is None else "fitted"
        return rows, *_targets(model, rows, Y, weight), kind
    rows, Y = np.asarray(X), None
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
        if model.units_.law is not None:  # in an order
            Y = Y.argmax(1)[:, None].astype(np.float64)
    elif y is not None and _task(model) == "regression":
        Y = np.asarray(y, dtype=np.float64).reshape(len(rows), -1)
        c, law = len(model.units_.y.shift), model.units_.law
        if Y.shape[1] != c or not np.isfinite(Y).all():
            raise ValueError(
                f"`y` must be numbers, {c} for each row, as in the fit; got "
                f"{Y.shape[1]}, of which {int((~np.isfinite(Y)).sum())} are missing or infinite."
            )
        Y = Y if law is None else law.columns(Y[:, 0], None)
    return rows, *_targets(model, rows, Y, np.ones(len(rows))), "given"


def _fitted(
    model: Any, outputs: list[int], most: int, shown: Array | None
) -> dict[str, Any] | None:
    """Rows fitted to, which the page solves on: as many of those kept by `fit` as have room.

    `shown` are the weights of the rows shown where those are rows fitted to, to be solved on themselves.
    None for a model from a file, which holds no rows.
    """
    if getattr(model, "sample_", None) is None:
        return None
    known, total = model.fitted_to_  # rows, and their weight
    told: dict[str, Any] = {"xi": None, "y": None, "weight": None}
    if shown is None:
        X, Y, shown = (part[evenly(len(part), most)] for part in model.sample_)
        target, shown = _targets(model, X, Y, shown)
        assert target is not None
        told = {
            "xi": packed(model.predictor_.xi(model.predictor_.inside(X))),
            "y": packed(target[:, outputs]),
            "weight": packed(shown),
        }
    share = float(shown.sum() / total)  # of what α was chosen for
    return {"n": len(shown), "known": known, "share": share, **told}


def _targets(model: Any, rows: Array, Y: Array | None, weight: Array) -> tuple[Array | None, Array]:
    """Targets in the model's units, and weights.

    Under a likelihood these are working targets: least squares on them has its optimum where that has.
    """
    Y, units = rows if _task(model) == "reconstruction" else Y, model.units_
    if Y is None or units.law is None:
        return None if Y is None else units.y.inside(Y), weight
    u = model.predictor_.u(model.predictor_.inside(rows))
    return working(units.law, u, units.target(Y), weight)


def _std(model: Any, rows: Array, outputs: list[int]) -> dict[str, Any] | None:
    """Standard deviations (n, c) of new observations, in the units of y, where they are known."""
    predictor = model.predictor_
    if predictor.heaviest.posterior is None:
        return None
    x = predictor.inside(rows)
    std = predictor.std(x, predictor.each(x))
    if model.units_.law is not None:  # of u itself
        std = np.sqrt(np.maximum(std**2 - model.units_.law.noise, 0))
    std = std * _units(model)[1]  # of what the page shows
    return packed(std.reshape(len(rows), -1)[:, outputs], "f4")


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
        low, high = rows.min(), rows.max()
        bytes_ = np.round(255 * (rows - low) / (high - low or 1.0))
        told["images"] = {"shape": list(image_shape), "pixels": packed(bytes_, "u1")}
    return told


def _image_shape(
    model: Any, shape: Sequence[int] | bool | None, rows: Array
) -> tuple[int, ...] | None:
    """As given, or as the model has it, or a square where rows look like pictures; False for none."""
    if isinstance(shape, bool):
        return None
    if shape is None:
        known = getattr(model, "image_shape_", None)
        if known is not None:
            return tuple(known[1:]) if known[0] == 1 else None
        named = model.encoded_names_ is not None or getattr(model, "channels_", None) is not None
        return None if named else _square(rows)
    shape = tuple(int(s) for s in shape)
    if len(shape) != 2 or int(np.prod(shape)) != model.n_features_in_:
        raise ValueError(
            f"`image_shape` must be (height, width) with {model.n_features_in_} pixels, one for each "
            f"column, got {shape}."
        )
    return shape


def _square(rows: Array) -> tuple[int, int] | None:
    """Are rows pictures? Then pixels are alike side by side, and a row below more than half a row on."""
    side = math.isqrt(rows.shape[1])
    if side**2 != rows.shape[1] or side < SMALLEST or len(rows) < 20:
        return None
    spread = rows.std(0)
    z = (rows - rows.mean(0)) / np.where(spread > 0, spread, 1)

    def alike(lag: int) -> float:
        both = (spread[lag:] > 0) & (spread[:-lag] > 0)
        return float((z[:, lag:] * z[:, :-lag]).mean(0)[both].mean()) if both.any() else 0.0

    picture = alike(1) > 0.2 and alike(side) > alike(side // 2) + 0.1
    return (side, side) if picture else None


# --- the model


def _task(model: Any) -> str:
    if hasattr(model, "classes_") and model.units_.law is None:
        return "classification"
    return "reconstruction" if hasattr(model, "inverse_transform") else "regression"


def _title(model: Any, y_names: list[str] | None) -> str:
    if _task(model) == "reconstruction":
        return f"{model.n_features_in_} columns, rebuilt"
    names = y_names or ["y"]
    y = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{y} from {model.n_features_in_} column{'s'[: model.n_features_in_ > 1]}"


def _feature_names(D: int, names: list[str] | None) -> list[str]:
    if names is not None and len(names) != D:
        raise ValueError(f"{len(names)} names for {D} columns.")
    return [f"x{j}" for j in range(D)] if names is None else [*map(str, names)]


def _units(model: Any) -> tuple[Array, Array]:
    """Shift and scale (c,) that turn columns of u into the units of y: shift + scale·u."""
    y, law = model.units_.y, model.units_.law
    each = np.ones(1 if law is None else law.outputs)
    shift, scale = y.bent  # of skewed targets the page shows T(y)
    return shift * each, scale * each


def _shown_outputs(model: Any, Y: Array | None) -> tuple[list[int], int]:
    """The outputs that vary most, and the position among them of the one to show first."""
    spread = _units(model)[1] * (1.0 if Y is None else Y.std(0))  # (c,), in their units
    if _task(model) == "classification":  # one class is told from all others
        return list(range(len(spread))), 0
    shown = np.sort(np.argsort(-spread, kind="stable")[:OUTPUTS])
    # targets come in the order they were given; of columns to rebuild some are constant
    first = int(spread[shown].argmax()) if _task(model) == "reconstruction" else 0
    return shown.tolist(), first


def _outputs(
    model: Any, outputs: list[int], features: list[str], y_names: list[str] | None
) -> dict[str, Any]:
    """Names of the columns of u, and their units."""
    task = _task(model)
    shift, scale = _units(model)
    c = len(scale)
    if task == "classification":
        names = [str(v) for v in model.classes_]
    elif task == "reconstruction":
        names = features
    elif y_names is not None and len(y_names) == c:
        names = y_names
    else:
        y = y_names[0] if y_names else "y"
        names = [y] if c == 1 else [f"{y}{j}" for j in range(c)]
    units = model.units_
    if task == "regression" and units.law is not None:
        names = units.law.names(names[0] if c == 1 else y)
    else:
        names = units.y.names(names)
    return {
        "names": [names[j] for j in outputs],
        "known": c,
        "shift": shift[outputs].tolist(),
        "scale": scale[outputs].tolist(),
        "temperature": model.predictor_.temperature,
    }


@torch.no_grad()
def _model(model: Any, igl: IGL, outputs: list[int], first: int, xi: Array) -> dict[str, Any]:
    """Numbers from which the page computes u, or fields that were computed here, and why."""
    atoms = igl.atoms()
    told: dict[str, Any] = {
        "name": type(igl.operator).__name__,
        "n_atoms": len(atoms.mu),
        "atoms": type(atoms).__name__.lower(),
        "live": False,
        "mu": None,
        "w": None,
        "trend": None,
    }
    one_width = bool((atoms.sigma == atoms.sigma[0, 0]).all())
    small = len(atoms.mu) * ((2 - one_width) * atoms.n_dims + len(outputs)) <= MODEL_NUMBERS
    if small and type(atoms) in (Point, Gaussian):
        told |= {
            "mu": packed(atoms.mu),
            "sigma": float(atoms.sigma[0, 0]) if one_width else packed(atoms.sigma),
            "w": packed(igl.source_weights()[:, outputs]),
        }
    try:
        null = beside(igl.null(), atoms.n_dims)
        if not small:
            raise NoForm(f"{len(atoms.mu)} sources in {atoms.n_dims} dimensions are too many")
        told["members"] = describe(igl.operator, atoms, igl.gamma != "fixed")
    except NoForm as reason:
        return told | {"why": str(reason), "fields": _fields(model, igl, outputs, first, xi)}
    cross = _task(model) == "classification" and model.loss_ == "cross_entropy"
    used = igl.raw_rho.requires_grad
    return told | {
        "live": True,
        "reaches": reaches(atoms.n_dims),
        "null": null,
        "trend": packed(igl.trend()[:, outputs]),
        "gamma": igl.gamma,
        "factors": igl.factors.tolist() if igl.gamma in ("learned", "alternating") else None,
        "rho": igl.rho.tolist() if used else None,
        "energy": igl.energy,
        "alpha": _alpha(model, igl),
        "loss": "cross_entropy" if cross else "squares",
    }


def _alpha(model: Any, igl: IGL) -> float:
    """The strength of the last solve, absolute: of what multiplies wᵀGw or wᵀw."""
    known = model.predictor_.heaviest.alpha  # older files have none, and the energy norm
    return float(model.alpha_ * igl.unit()) if known is None else known


def _fields(
    model: Any, igl: IGL, outputs: list[int], first: int, xi: Array
) -> list[dict[str, Any]]:
    """u, and the response to one source at the mean, on planes of the coordinates that vary most."""
    few = [first, *(k for k in range(len(outputs)) if k != first)][:4]
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
        u = igl.decode(zeta)[:, [outputs[k] for k in few]]
        told = {"axes": [a, b], "outputs": few, "u": packed(u, "f4")}
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

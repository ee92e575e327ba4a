"""Fitted estimators as fixed graphs, for ONNX and `torch.export`.

Once fitted, operator, atoms and source are constants, and the whole path is a handful of products and
exponentials::

    u(x) = Σ_kr exp(−½ A_kr·ξ² + B_kr·ξ + C_kr) w_kr + null space,     ξ = Ψ(x)

in float64 throughout, in the user's own units at both ends.
"""

import copy
import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier
from torch import Tensor, nn

from greenfold.green.forms import Form
from greenfold.learn.units import Units
from greenfold.likelihoods.ordinal import Ordinal
from greenfold.model import IGL
from greenfold.output import write_whole
from greenfold.provenance import versions
from greenfold.table import TableModel

WHAT = ("predict", "transform")


def export(estimator: Any, path: str | os.PathLike[str], what: str = "predict") -> Path:
    """Write a fitted estimator as a graph that runs without greenfold.

    Parameters
    ----------
    estimator : fitted estimator
        One that was fitted to a table with text or categories is exported from its encoded
        columns on: `encoded_names_`, in this order, which `encode` makes and the graph's metadata lists.
    path : str or path
        Ends in `.onnx`, for ONNX runtimes (needs the `export` extra), or in `.pt2`, for
        `torch.export.load`.
    what : 'predict' or 'transform'
        Values of the target (for a classifier: probabilities, and the index of the class among
        `classes_`), or chart coordinates. Rows come in as float64, any number of them.

    Returns
    -------
    Path
        Of the file.

    Examples
    --------
    >>> import os
    >>> import numpy as np
    >>> from greenfold import IGLRegressor, export
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> model = IGLRegressor("axis", operator="heat", random_state=0).fit(X, X[:, 0])
    >>> path = export(model, "model.onnx")
    >>> os.remove("model.onnx")
    """
    path = Path(path)
    if path.suffix not in (".onnx", ".pt2"):
        raise ValueError(f"`path` must end in .onnx or .pt2, got {str(path)!r}.")
    estimator, features = _inner(estimator)
    if path.suffix == ".pt2":
        buffer = BytesIO()
        with _quiet():
            torch.export.save(_program(estimator, frozen(estimator, what)), buffer)
        write_whole(path, buffer.getvalue())
        return path
    about = {"class": type(estimator).__name__, "what": what, "versions": versions()}
    if is_classifier(estimator):
        about["classes"] = estimator.classes_.tolist()
    if features:
        about["features"] = features
    content = _onnx(estimator, frozen(estimator, what), about)
    if not _runs(content):
        content = _onnx(estimator, frozen(estimator, what, single=True), about)
    write_whole(path, content)
    return path


def _program(estimator: Any, module: "Frozen") -> Any:
    """For any number of rows."""
    x = torch.from_numpy(_some_rows(estimator))
    rows = {"x": {0: torch.export.Dim("n")}}
    return torch.export.export(module, (x,), dynamic_shapes=rows, strict=False)


def _onnx(estimator: Any, module: "Frozen", about: dict[str, Any]) -> bytes:
    try:
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"ONNX files need the `export` extra: pip install 'greenfold[export]' ({error})."
        ) from error
    with _quiet():
        program = _program(estimator, module)
        graph: Any = torch.onnx.export(
            program, dynamo=True, verbose=False, input_names=["x"], output_names=module.outputs
        )
    graph.model.metadata_props["greenfold"] = json.dumps(about)
    return graph.model_proto.SerializeToString()


def _runs(content: bytes) -> bool:
    """Whether the runtime has everything in the graph for float64."""
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as Lacks

    try:
        onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    except Lacks:
        return False
    return True


def frozen(estimator: Any, what: str = "predict", single: bool = False) -> "Frozen":
    """The estimator as a module without branches, checked against the estimator itself.

    `single` evaluates the encoder in float32: ONNX runtimes have no other convolutions, for instance.
    """
    if what not in WHAT:
        raise ValueError(f"`what` must be one of {WHAT}, got {what!r}.")
    if not hasattr(estimator, "predictor_"):
        raise ValueError(
            f"{type(estimator).__name__} cannot be exported: only fitted estimators of greenfold can."
        )
    if not hasattr(estimator, what):
        raise ValueError(f"{type(estimator).__name__} has no {what}.")
    with torch.no_grad():
        module = Frozen(estimator, what, single).eval().requires_grad_(False)
        X = _some_rows(estimator)
        got = module(torch.from_numpy(X))
    inner = TableModel.of(estimator).estimator  # takes numbers without names
    if what == "transform":
        wanted = inner.transform(X)
    elif is_classifier(inner):
        wanted, got = inner.predict_proba(X), got[0]
    else:
        wanted = inner.predict(X)
    error = np.abs(got.numpy() - wanted).max() / max(np.abs(wanted).max(), 1e-300)
    # Very many sources are summed in float32 by the estimator, not by the graph.
    many = any(member.whole is not None for member in inner.predictor_.members)
    if not error <= (1e-4 if many else 1e-5):
        raise ValueError(
            f"the exported graph would be off by {error:.1e} of the largest value; this "
            f"{type(estimator).__name__} does something a fixed graph does not express."
        )
    return module


class Frozen(nn.Module):
    """x (n, D) in the user's units → predictions or coordinates, in theirs."""

    unit: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, estimator: Any, what: str, single: bool):
        super().__init__()
        for name in "unit", "shift", "scale":
            value = getattr(estimator.units_.x, name)
            self.register_buffer(name, torch.as_tensor(value).double())
        members = estimator.predictor_.members
        # as tensors: runtimes take plain numbers for float32
        weights = [torch.tensor(member.weight, dtype=torch.float64) for member in members]
        self.weights = nn.ParameterList(weights)
        self.paths = nn.ModuleList([OnePath(member.predicts, what, single) for member in members])
        self.each: nn.Module = nn.Identity()
        self.head: nn.Module = nn.Identity()
        self.outputs = ["xi"]
        if what == "predict":
            self.each, self.head, self.outputs = _heads(estimator)

    def forward(self, x: Tensor) -> Any:
        x = (x / self.unit - self.shift) / self.scale
        parts = [w * self.each(path(x)) for w, path in zip(self.weights, self.paths, strict=True)]
        return self.head(torch.stack(parts).sum(0) if len(parts) > 1 else parts[0])


class OnePath(nn.Module):
    """x in internal units → ξ (n, d) or u (n, c) of one model."""

    mean: Tensor
    spread: Tensor

    def __init__(self, model: IGL, what: str, single: bool):
        super().__init__()
        encoder = copy.deepcopy(model.encoder).eval()
        self.encoder = Single(encoder) if single else encoder
        self.register_buffer("mean", model.mean.clone())
        self.register_buffer("spread", model.scale.clone())
        self.field = Field(model) if what == "predict" else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.field((self.encoder(x) - self.mean) / self.spread)


class Single(nn.Module):
    """A module evaluated in float32."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module.float()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.module(x.float())
        return y.double()


class Field(nn.Module):
    """u (n, c) at chart coordinates ξ (n, d)."""

    gate: Tensor
    trend: Tensor

    def __init__(self, model: IGL):
        super().__init__()
        gate, atoms = model.gates(), model.atoms()
        w = model.source_weights()
        if model.gamma == "free":  # a weight for each term and atom
            w = w.reshape(len(model.factors), len(atoms.mu), -1)
        elif model.gamma != "fixed":
            w = model.factors[:, None, None] * w
        forms = model.operator.forms(atoms, gate, terms=model.gamma != "fixed")
        self.parts = nn.ModuleList([Weighted(form, w, len(atoms.mu)) for form in forms])
        self.register_buffer("gate", gate.clone())
        self.null_space = copy.deepcopy(model.null())
        self.register_buffer("trend", model.trend().clone())

    def forward(self, xi: Tensor) -> Tensor:
        u = self.null_space(xi, self.gate) @ self.trend
        for part in self.parts:
            u = u + part(xi)
        return u


class Weighted(nn.Module):
    """Columns (n, k·r) of a form, contracted with source weights (r, c), or (k, r, c) term by term."""

    w: Tensor

    def __init__(self, form: Form, w: Tensor, r: int):
        super().__init__()
        self.form = form
        every = (form.weight * w).expand(form.n_terms, r, w.shape[-1])
        self.register_buffer("w", every.reshape(form.n_terms * r, -1).clone())

    def forward(self, xi: Tensor) -> Tensor:
        return self.form(xi) @ self.w


class Values(nn.Module):
    """(u · scale + shift) · unit, flat for a single target."""

    unit: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, units: Units):
        super().__init__()
        self.power = units.y.power
        for name in "unit", "shift", "scale":
            self.register_buffer(name, torch.as_tensor(getattr(units.y, name)).double())
        self.flat, self.law = units.flat, units.law

    def forward(self, u: Tensor) -> Tensor:
        y = u * self.scale + self.shift
        if self.power != 1:  # skewed targets
            y = y.exp() if self.power == 0 else y.clamp_min(0).square()
        y = y * self.unit
        if self.law is not None and self.law.logs:
            y = y.exp()
        if self.law is not None and self.law.outputs > 1:  # quantiles that cross are put in order
            y = y.topk(self.law.outputs, dim=1, largest=False).values
        return y[:, 0] if self.flat and y.shape[1] == 1 else y


class Probabilities(nn.Module):
    """Of classes (n, c), from logits."""

    temperature: Tensor

    def __init__(self, temperature: float):
        super().__init__()
        self.register_buffer("temperature", torch.tensor(temperature, dtype=torch.float64))

    def forward(self, u: Tensor) -> Tensor:
        return torch.softmax(u / self.temperature, dim=1)


class InOrder(nn.Module):
    """Probabilities (n, c) of classes in an order, from η (n, 1), and the index of the largest (n,)."""

    thresholds: Tensor

    def __init__(self, law: Ordinal):
        super().__init__()
        self.register_buffer("thresholds", torch.tensor(law.thresholds, dtype=torch.float64))

    def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
        below = torch.sigmoid(self.thresholds - u)
        ends = torch.ones_like(u)
        P = torch.cat([below, ends], 1) - torch.cat([0 * ends, below], 1)
        return P, P.argmax(1)


class MostProbable(nn.Module):
    """Probabilities (n, c) and the index of the largest (n,)."""

    def forward(self, p: Tensor) -> tuple[Tensor, Tensor]:
        return p, p.argmax(1)


def _heads(estimator: Any) -> tuple[nn.Module, nn.Module, list[str]]:
    """What becomes of u of every path, and of their mean."""
    if is_classifier(estimator):
        if isinstance(estimator.units_.law, Ordinal):
            return nn.Identity(), InOrder(estimator.units_.law), ["probabilities", "index"]
        probabilities = Probabilities(estimator.predictor_.temperature)
        return probabilities, MostProbable(), ["probabilities", "index"]
    rebuilt = hasattr(estimator, "inverse_transform")  # the rows themselves
    return nn.Identity(), Values(estimator.units_), ["x_rebuilt" if rebuilt else "y"]


def _inner(estimator: Any) -> tuple[Any, list[str]]:
    """The estimator behind a table, and the names of the columns it takes."""
    table = getattr(estimator, "table", None)
    if table is not None:
        return estimator.estimator, table.names
    return estimator, getattr(estimator, "encoded_names_", None) or []


def _some_rows(estimator: Any, n: int = 16) -> Any:
    """Rows like those fitted to."""
    units = estimator.units_.x
    return units.outside(np.random.default_rng(0).normal(size=(n, len(units.shift))))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporters' remarks about packages they could use."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)

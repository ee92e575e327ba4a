"""Model files: one safetensors file whose header says in JSON what the tensors are.

    model.greenfold = tensors + {sha256, format, class, params, features, preprocessing, versions, state}

Nothing is pickled and nothing in a file is executed: `state` is a tree of plain values, tensors by name
and objects of the classes in `known_classes()`, restored without calling their constructors. The SHA-256
covers header and tensors, so a file that was altered or cut short is refused before it is read further.
"""

import hashlib
import inspect
import json
import math
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import scipy
import sklearn
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from sklearn.base import BaseEstimator
from torch import Tensor, nn

FORMAT = 1  # raise it when files of before need a step in MIGRATIONS

Header = dict[str, Any]

# format: what turns a header of that format into one of the next
MIGRATIONS: dict[int, Callable[[Header], Header]] = {}

LAYERS: dict[str, type[nn.Module]] = {
    f"nn.{cls.__name__}": cls
    for cls in (
        nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.BatchNorm1d,
        nn.BatchNorm2d, nn.Conv1d, nn.Conv2d, nn.Dropout, nn.ELU, nn.Flatten, nn.GELU, nn.GroupNorm,
        nn.Identity, nn.LayerNorm, nn.LeakyReLU, nn.Linear, nn.MaxPool1d, nn.MaxPool2d, nn.ModuleDict,
        nn.ModuleList, nn.ParameterList, nn.RMSNorm, nn.ReLU, nn.Sequential, nn.SiLU, nn.Sigmoid,
        nn.Softmax, nn.Softplus, nn.Tanh, nn.Unflatten,
    )
}  # fmt: skip

# what scikit-learn and the caller hang on an estimator that is no part of the model
LEFT_OUT = ("callbacks", "_metadata_request")
PASSING = (
    "_metadata_request",
    "_sample",
    "film",
)  # rows for `report` and the like: not worth a word
MODULE_OWN = frozenset(vars(nn.Module())) - {"training", "_non_persistent_buffers_set"}


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write an estimator or module to one file, which appears whole or not at all.

    Parameters
    ----------
    model : estimator or nn.Module
        Anything of greenfold's, fitted or not. A chart that is a module of your own is kept by its
        weights; `load` then wants the module itself. `callbacks` are left out.
    path : str or path
        Usually ends in `.greenfold`.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from greenfold import IGLRegressor, load
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> model = IGLRegressor(random_state=0).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/model.greenfold")
    ...     again = load(f"{folder}/model.greenfold")
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    write_whole(path, to_bytes(model))


def load(path: str | os.PathLike[str], module: nn.Module | Sequence[nn.Module] = ()) -> Any:
    """What `save` wrote, with bitwise equal predictions.

    Parameters
    ----------
    path : str or path
    module : nn.Module or sequence of nn.Module
        Only for files with modules of your own, in the order the error message lists them: the same
        architecture, whose weights are then restored in place.

    Raises
    ------
    ValueError
        If the file is no model, was altered, or needs another version of greenfold.
    """
    return from_bytes(Path(path).read_bytes(), module)


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write to a temporary file beside `path`, flush it to the disk, and rename."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    if os.name != "posix":
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name too
    finally:
        os.close(folder)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def to_bytes(model: Any) -> bytes:
    """The content of a model file."""
    if not isinstance(model, nn.Module) and _name_of(type(model)) is None:
        raise ValueError(
            f"a model file holds an estimator or module of greenfold, got {type(model).__name__}. Of a "
            "pipeline, save the greenfold step and keep the other steps your own way."
        )
    writer = _Writer()
    state = writer.encode(model, type(model).__name__)
    header: Header = {
        "format": FORMAT,
        "class": type(model).__name__,
        "estimator": type(getattr(model, "estimator", model)).__name__,
        "params": _params(model),
        "features": _features(model),
        "preprocessing": list(getattr(getattr(model, "table", None), "notes", [])),
        "versions": versions(),
        "left_out": writer.left_out,
        "modules": writer.own,
        "state": state,
    }
    text = json.dumps(header, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return save_tensors(writer.tensors, {"greenfold": _sign(text, writer.tensors)})


def from_bytes(data: bytes, module: nn.Module | Sequence[nn.Module] = ()) -> Any:
    """`load` from the content of a file."""
    header, tensors = _checked(data)
    own = [module] if isinstance(module, nn.Module) else list(module)
    if len(own) != len(header["modules"]):
        listed = ", ".join(repr(name) for name in header["modules"]) or "none"
        raise ValueError(
            f"the file was saved with {len(header['modules'])} modules of the user's own ({listed}), "
            f"whose code it does not hold, and `module` gives {len(own)}. Pass load(path, module=...) "
            "with the same architecture, a list for several; the weights come from the file."
        )
    reader = _Reader(tensors, own, header)
    try:
        return reader.decode(header["state"])
    except INCONSISTENT as error:
        raise ValueError(f"the model file is not consistent: {error}") from error


INCONSISTENT = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError)


def read_header(data: bytes) -> Header:
    """The header of a file whose checksum is right, without its `state`."""
    header, _ = _checked(data)
    return {key: value for key, value in header.items() if key != "state"}


def versions() -> dict[str, str]:
    """Of the libraries a file was written with."""
    from greenfold import __version__

    return {
        "greenfold": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


# --- header


SIGNATURE = len('{"sha256":"",') + 64


def _sign(text: str, tensors: dict[str, Tensor]) -> str:
    """The header with the SHA-256 of itself, to the letter, and of the tensors as its first entry."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"\0{name} {value.dtype} {list(value.shape)} ".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return f'{{"sha256":"{digest.hexdigest()}",{text[1:]}'


def _checked(data: bytes) -> tuple[Header, dict[str, Tensor]]:
    """Header in the present format and tensors, or ValueError."""
    try:
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + size].decode())["__metadata__"]
        text = metadata["greenfold"]
        header = json.loads(text)
        tensors = load_tensors(data)
        altered = _sign("{" + text[SIGNATURE:], tensors) != text
    except (ValueError, LookupError, TypeError, RecursionError, SafetensorError) as error:
        raise ValueError(
            f"this is not a greenfold model file, or it was cut short or altered ({error})."
        ) from error
    if not isinstance(header, dict) or type(header.get("format")) is not int:
        raise ValueError("the model file has no format number: it was not written by `save`.")
    written = header.get("versions")
    by = written.get("greenfold", "?") if isinstance(written, dict) else "?"
    if header["format"] > FORMAT:
        raise ValueError(
            f"the model file has format {header['format']}, written by greenfold {by}; this version "
            f"reads up to format {FORMAT}. Load it with greenfold {by} or newer."
        )
    if altered:
        raise ValueError(
            "the model file was altered: its SHA-256 is not the one it was saved with."
        )
    while header["format"] < FORMAT:
        if header["format"] not in MIGRATIONS:
            raise ValueError(
                f"the model file has format {header['format']}, which this version no longer reads. Load "
                f"it with greenfold {by} and save it from a version in between."
            )
        header = {**MIGRATIONS[header["format"]](header), "format": header["format"] + 1}
    if not isinstance(header.get("modules"), list) or "state" not in header:
        raise ValueError("the model file is not consistent: its header lacks `modules` or `state`.")
    return header, tensors


def _params(model: Any) -> dict[str, Any]:
    """Constructor parameters for people to read; the state has them exactly."""
    inner = getattr(model, "estimator", model)
    if not isinstance(inner, BaseEstimator):
        return {}
    params = inner.get_params(deep=False)
    return {name: _shown(value) for name, value in params.items() if name not in LEFT_OUT}


def _shown(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    return re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(value))


def _features(model: Any) -> list[dict[str, str]]:
    table = getattr(model, "table", None)
    if table is not None:
        return [{"name": c.name, "type": c.type} for c in table.columns]
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        names = [f"x{i}" for i in range(getattr(model, "n_features_in_", 0))]
    return [{"name": str(name), "type": "double"} for name in names]


# --- classes


def known_classes() -> dict[str, type]:
    """What a file may hold: modules, estimators and records of greenfold, and plain layers of torch.

    Names are without their module, so that a class may move to another file.
    """
    import greenfold.table  # noqa: F401 (its records belong to the list)

    modules = [m for name, m in sorted(sys.modules.items()) if name.startswith("greenfold.")]
    found = {
        v for m in modules for v in list(vars(m).values()) if isinstance(v, type) and _is_ours(v)
    }
    # where a record has the name of a module, the module has it
    ranked = sorted(found, key=lambda cls: (issubclass(cls, nn.Module), cls.__module__))
    return {**{cls.__name__: cls for cls in ranked}, **LAYERS}


def _is_ours(cls: type) -> bool:
    if not cls.__module__.startswith("greenfold."):
        return False
    return issubclass(cls, nn.Module | BaseEstimator) or is_dataclass(cls) or _is_record(cls)


def _is_record(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def _name_of(cls: type) -> str | None:
    """The name a class goes by in files; None if it has none."""
    name = f"nn.{cls.__name__}" if cls.__module__.startswith("torch.nn.") else cls.__name__
    return name if known_classes().get(name) is cls else None


# --- values to JSON and back


class _Writer:
    """A tree of plain values, and the tensors it names. What is shared is written once."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.own: list[str] = []  # modules of the user's
        self.left_out: list[str] = []
        self.seen: dict[int, tuple[Any, dict[str, Any]]] = {}
        self.n_objects = 0
        self.names: dict[type, str | None] = {}

    def encode(self, value: Any, where: str) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if type(value) is list:
            return [self.encode(v, f"{where}[{i}]") for i, v in enumerate(value)]
        if type(value) in (tuple, set, frozenset, torch.Size):
            kind = "tuple" if isinstance(value, tuple) else "set"
            values = value if kind == "tuple" else sorted(value)
            return {kind: [self.encode(v, f"{where}[{i}]") for i, v in enumerate(values)]}
        if isinstance(value, dict):
            return {"dict": self.pairs(value, where)}
        if isinstance(value, type):
            return {"class": self.name(value, where)}
        if isinstance(value, np.generic):
            return {"scalar": self.encode(np.asarray(value), where)}
        if id(value) in self.seen:
            return self.seen[id(value)][1]
        node = self.encode_new(value, where)
        kind = next(iter(node))
        self.seen[id(value)] = (value, {"ref": node["id"]} if "id" in node else node)
        assert kind in NODES
        return node

    def encode_new(self, value: Any, where: str) -> dict[str, Any]:
        if isinstance(value, Tensor):
            return self.tensor(value)
        if isinstance(value, np.ndarray):
            return self.array(value, where)
        if isinstance(value, np.random.RandomState):
            return {"random_state": self.encode(value.get_state(legacy=False), where)}
        self.n_objects += 1
        head = {"id": self.n_objects}
        name = self.name(type(value), where, isinstance(value, nn.Module))
        if name is None:  # a module whose code we do not have
            self.own.append(f"{type(value).__module__}.{type(value).__qualname__}")
            weights = {k: v for k, v in value.state_dict().items() if isinstance(v, Tensor)}
            pairs = [[k, self.tensor(v)] for k, v in weights.items()]
            return {"own": len(self.own) - 1, **head, "mode": value.training, "state": pairs}
        if _is_record(type(value)):
            return {"record": name, **head, "fields": self.encode(list(value), where)}
        if not isinstance(value, nn.Module):
            state = self.keep(vars(value), where)
            return {"object": name, **head, "state": self.pairs(state, where)}
        if value._forward_hooks or value._forward_pre_hooks:
            raise ValueError(
                f"{where} has hooks, which a model file cannot hold: remove them first."
            )
        state = {k: v for k, v in vars(value).items() if k not in MODULE_OWN}
        return {
            "module": name,
            **head,
            "state": self.pairs(self.keep(state, where), where),
            "parameters": self.pairs(value._parameters, where),
            "buffers": self.pairs(value._buffers, where),
            "modules": self.pairs(value._modules, where),
        }

    def keep(self, state: dict[str, Any], where: str) -> dict[str, Any]:
        out = [k for k in LEFT_OUT if state.get(k) is not None]
        self.left_out += [f"{where}.{name}" for name in out]
        return {k: None if k in out else v for k, v in state.items() if k not in PASSING}

    def pairs(self, items: dict[Any, Any], where: str) -> list[list[Any]]:
        return [[self.encode(k, where), self.encode(v, f"{where}.{k}")] for k, v in items.items()]

    def name(self, cls: type, where: str, own: bool = False) -> str | None:
        if cls not in self.names:
            self.names[cls] = _name_of(cls)
        if self.names[cls] is None and not own:
            raise ValueError(
                f"{where} is a {cls.__module__}.{cls.__qualname__}, which a model file cannot hold: it "
                "keeps numbers, text, arrays, and the classes of greenfold."
            )
        return self.names[cls]

    def tensor(self, value: Tensor) -> dict[str, Any]:
        node = self.store("tensor", value.detach().cpu())
        if isinstance(value, nn.Parameter):
            node["learned"] = value.requires_grad
        return node

    def array(self, value: Any, where: str) -> dict[str, Any]:
        if value.dtype.kind in "OU":  # text, or a mixture
            items = [self.encode(v, where) for v in value.ravel().tolist()]
            return {"items": items, "dtype": value.dtype.str, "shape": list(value.shape)}
        try:
            content = torch.from_numpy(value.astype(value.dtype.newbyteorder("="), copy=False))
        except TypeError:
            raise ValueError(
                f"{where} is an array of {value.dtype}, which a model file cannot hold."
            ) from None
        return self.store("array", content)

    def store(self, kind: str, value: Tensor) -> dict[str, Any]:
        name, order = f"t{len(self.tensors)}", _order(value)
        self.tensors[name] = value.permute(order).clone(memory_format=torch.contiguous_format)
        return {kind: name} if order == sorted(order) else {kind: name, "order": order}


class _Reader:
    """The way back. Every node has one tag, and a tag has one method."""

    def __init__(self, tensors: dict[str, Tensor], own: list[nn.Module], header: Header):
        self.tensors, self.own, self.header = tensors, own, header
        self.classes = known_classes()
        self.objects: dict[int, Any] = {}
        self.made: dict[tuple[str, str], Any] = {}  # tensors by kind and name

    def decode(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.decode(v) for v in node]
        if not isinstance(node, dict):
            return node
        tag = next(iter(node), None)
        if tag not in NODES:
            self.wrong(f"unknown entry {tag!r}")
        return getattr(self, f"_{tag}")(node)

    def wrong(self, what: str) -> NoReturn:
        raise ValueError(f"the model file is not consistent: {what}.")

    def pairs(self, node: Any) -> dict[Any, Any]:
        return {self.decode(k): self.decode(v) for k, v in node}

    def attributes(self, node: Any, cls: type) -> dict[str, Any]:
        """State for `vars`; names that would hide a method are refused."""
        state = self.pairs(node)
        for name in state:
            if not isinstance(name, str) or name.startswith("__"):
                self.wrong(f"{name!r} is no attribute")
            if callable(inspect.getattr_static(cls, name, None)):
                self.wrong(f"{name!r} is a method of {cls.__name__}")
        return state

    def cls(self, name: Any) -> type:
        if name not in self.classes:
            by = self.header.get("versions", {}).get("greenfold", "?")
            raise ValueError(
                f"the model file holds a {name!r}, which this version of greenfold does not have. It was "
                f"written by greenfold {by}."
            )
        return self.classes[name]

    def _float(self, node: Any) -> float:
        if node["float"] not in ("nan", "inf", "-inf"):
            self.wrong(f"{node['float']!r} is no number")
        return float(node["float"])

    def _tuple(self, node: Any) -> tuple:
        return tuple(self.decode(node["tuple"]))

    def _set(self, node: Any) -> set:
        return set(self.decode(node["set"]))

    def _dict(self, node: Any) -> dict:
        return self.pairs(node["dict"])

    def _class(self, node: Any) -> type:
        return self.cls(node["class"])

    def _scalar(self, node: Any) -> Any:
        return self.decode(node["scalar"])[()]

    def _ref(self, node: Any) -> Any:
        return self.objects[node["ref"]]

    def _random_state(self, node: Any) -> Any:
        state = np.random.RandomState()
        state.set_state(self.decode(node["random_state"]))
        return state

    def _tensor(self, node: Any) -> Tensor:
        key = ("tensor", node["tensor"])
        if key not in self.made:
            value = self.tensors[node["tensor"]].clone()  # aligned in memory, as torch's own are
            value = value.permute(_inverse(node.get("order"), value.ndim))
            if "learned" in node:
                value = nn.Parameter(value, requires_grad=bool(node["learned"]))
            self.made[key] = value
        return self.made[key]

    def _array(self, node: Any) -> Any:
        key = ("array", node["array"])
        if key not in self.made:
            value = self.tensors[node["array"]].numpy().copy()
            self.made[key] = value.transpose(_inverse(node.get("order"), value.ndim))
        return self.made[key]

    def _items(self, node: Any) -> Any:
        dtype = np.dtype(node["dtype"])
        if dtype.kind not in "OU":
            self.wrong(f"{dtype} is no type for text")
        values = np.empty(len(node["items"]), dtype=dtype)
        for i, item in enumerate(self.decode(node["items"])):
            values[i] = item
        return values.reshape(node["shape"])

    def _record(self, node: Any) -> Any:
        cls = self.cls(node["record"])
        if not _is_record(cls):
            self.wrong(f"{cls.__name__} is no record")
        made = self.objects[node["id"]] = cls._make(self.decode(node["fields"]))  # type: ignore[attr-defined]
        return made

    def _object(self, node: Any) -> Any:
        cls = self.cls(node["object"])
        if issubclass(cls, nn.Module | tuple):
            self.wrong(f"{cls.__name__} is no plain object")
        made = self.objects[node["id"]] = cls.__new__(cls)
        if issubclass(cls, BaseEstimator):  # parameters newer than the file
            for name, parameter in inspect.signature(cls).parameters.items():
                if parameter.default is not parameter.empty:
                    vars(made)[name] = parameter.default
        vars(made).update(self.attributes(node["state"], cls))
        return made

    def _module(self, node: Any) -> nn.Module:
        cls = self.cls(node["module"])
        if not issubclass(cls, nn.Module):
            self.wrong(f"{cls.__name__} is no module")
        made = self.objects[node["id"]] = cls.__new__(cls)
        nn.Module.__init__(made)
        vars(made).update(self.attributes(node["state"], cls))
        for kind, wanted in (
            ("parameters", nn.Parameter),
            ("buffers", Tensor),
            ("modules", nn.Module),
        ):
            members = self.pairs(node[kind])
            for name, value in members.items():
                if not isinstance(name, str) or not isinstance(value, wanted | None):
                    self.wrong(f"{name!r} of {cls.__name__} is not what it should be")
            getattr(made, f"_{kind}").update(members)
        return made

    def _own(self, node: Any) -> nn.Module:
        module = self.objects[node["id"]] = self.own[node["own"]]
        state = {name: self.decode(value) for name, value in node["state"]}
        learned = {name: p.requires_grad for name, p in module.named_parameters()}
        try:
            module.load_state_dict(state, assign=True)
        except RuntimeError as error:
            raise ValueError(
                f"`module` {type(module).__name__} does not fit the weights in the file, which were "
                f"saved from {self.header['modules'][node['own']]}: {error}"
            ) from error
        for name, p in module.named_parameters():
            p.requires_grad_(learned.get(name, True))
        return module.train(bool(node["mode"]))


NODES = frozenset(
    name.removeprefix("_")
    for name in vars(_Reader)
    if name.startswith("_") and not name.startswith("__")
)


def _order(value: Tensor) -> list[int]:
    """Axes from the slowest to the fastest: a transposed matrix stays so, and its products their bits."""
    axes = range(value.ndim)
    return list(axes) if value.is_contiguous() else sorted(axes, key=lambda i: -value.stride()[i])


def _inverse(order: list[int] | None, n: int) -> list[int]:
    if order is None:
        return list(range(n))
    return [order.index(i) for i in range(n)]

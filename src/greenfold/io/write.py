"""Values to JSON: a tree of plain values, and the tensors it names."""

import math
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from greenfold.io.names import is_record, known_classes, name_of
from greenfold.provenance import LEFT_OUT

PASSING = (
    "_metadata_request",
    "_effects",
    "sample_",
    "film",
)  # for `report` and its like: not worth a word
MODULE_OWN = frozenset(vars(nn.Module())) - {"training", "_non_persistent_buffers_set"}

KEYS = str | bool | int | float | np.bool_ | np.integer | np.floating | None
MOST_NUMBERS = 10_000  # among the keys of all dictionaries and sets of a file


class Writer:
    """A tree of plain values, and the tensors it names. What is shared is written once."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.own: list[str] = []  # modules of the user's
        self.left_out: list[str] = []
        self.seen: dict[int, tuple[Any, dict[str, Any]]] = {}
        self.n_objects = 0
        self.n_numbers = 0
        self.known = known_classes()

    def encode(self, value: Any, where: str) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if type(value) is list:
            return [self.encode(v, f"{where}[{i}]") for i, v in enumerate(value)]
        if type(value) in (tuple, torch.Size):
            return {"tuple": [self.encode(v, f"{where}[{i}]") for i, v in enumerate(value)]}
        if type(value) in (set, frozenset):
            members = sorted(value, key=lambda v: (type(v).__name__, v))
            return {"set": [self.key(v, where) for v in members]}
        if isinstance(value, dict):
            return {"dict": self.pairs(value, where)}
        if isinstance(value, type):
            return {"class": self.name(value, where)}
        if isinstance(value, np.generic):
            return {"scalar": self.encode(np.asarray(value), where)}
        if id(value) in self.seen:
            return self.seen[id(value)][1]
        node = self.encode_new(value, where)
        self.seen[id(value)] = (value, {"ref": node["id"]} if "id" in node else node)
        return node

    def encode_new(self, value: Any, where: str) -> dict[str, Any]:
        if isinstance(value, Tensor):
            return self.tensor(value, where)
        if isinstance(value, np.ndarray):
            return self.array(value, where)
        if isinstance(value, np.random.RandomState):
            state: Any = value.get_state(legacy=False)
            if state["bit_generator"] != "MT19937":
                raise ValueError(
                    f"{where} draws from {state['bit_generator']}, which a model file cannot hold: give "
                    "a number or a RandomState of its own kind."
                )
            return {"random_state": self.encode(state, where)}
        self.n_objects += 1
        head = {"id": self.n_objects}
        name = self.name(type(value), where, isinstance(value, nn.Module))
        if name is None:  # a module whose code we do not have
            self.own.append(f"{type(value).__module__}.{type(value).__qualname__}")
            weights = {k: v for k, v in value.state_dict().items() if isinstance(v, Tensor)}
            pairs = [[k, self.tensor(v, where)] for k, v in weights.items()]
            return {"own": len(self.own) - 1, **head, "mode": value.training, "state": pairs}
        if is_record(type(value)):
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
        return [[self.key(k, where), self.encode(v, f"{where}.{k}")] for k, v in items.items()]

    def key(self, value: Any, where: str) -> Any:
        """Of a dictionary or set: what is hashed without being looked into."""
        self.n_numbers += not isinstance(value, str)
        if not isinstance(value, KEYS) or self.n_numbers > MOST_NUMBERS:
            raise ValueError(
                f"{where} has the key {value!r}, which a model file cannot hold: keys are text, or "
                f"numbers, and no more than {MOST_NUMBERS} of these."
            )
        return self.encode(value, where)

    def name(self, cls: type, where: str, own: bool = False) -> str | None:
        if self.known.get(name_of(cls)) is cls:
            return name_of(cls)
        if own:
            return None
        raise ValueError(
            f"{where} is a {cls.__module__}.{cls.__qualname__}, which a model file cannot hold: it "
            "keeps numbers, text, arrays, and the classes of greenfold."
        )

    def tensor(self, value: Tensor, where: str) -> dict[str, Any]:
        node = self.store("tensor", value.detach().cpu(), where)
        if isinstance(value, nn.Parameter):
            node["learned"] = value.requires_grad
        return node

    def array(self, value: Any, where: str) -> dict[str, Any]:
        if value.dtype.kind == "O":
            items = [self.encode(v, where) for v in value.ravel().tolist()]
            return {"items": items, "shape": list(value.shape)}
        if value.dtype.kind == "U":  # by the numbers of its letters (…, width)
            text = np.array(value, dtype=f"<U{max(value.dtype.itemsize // 4, 1)}", order="C")
            letters = text[..., None].view(np.int32)
            return self.store("text", torch.from_numpy(letters), where)
        # a copy, its axes as they were
        native = value.astype(value.dtype.newbyteorder("="), order="K")
        try:
            return self.store("array", torch.from_numpy(native), where)
        except TypeError:
            self.refuse(value.dtype, where)

    def store(self, kind: str, value: Tensor, where: str) -> dict[str, Any]:
        if value.dtype == torch.complex128:  # safetensors has no name for it
            self.refuse(value.dtype, where)
        name, order = f"t{len(self.tensors)}", _order(value)
        self.tensors[name] = value.permute(order).clone(memory_format=torch.contiguous_format)
        return {kind: name} if order == sorted(order) else {kind: name, "order": order}

    def refuse(self, dtype: Any, where: str) -> NoReturn:
        raise ValueError(f"{where} is an array of {dtype}, which a model file cannot hold.")


def _order(value: Tensor) -> list[int]:
    """Axes from the slowest to the fastest: a transposed matrix stays so, and its products their bits."""
    axes = range(value.ndim)
    return list(axes) if value.is_contiguous() else sorted(axes, key=lambda i: -value.stride()[i])

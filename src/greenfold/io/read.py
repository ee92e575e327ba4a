"""JSON to values, from files that anybody may have written.

What a file can do here is choose numbers and text, and name classes of `known_classes`. It cannot call
anything, set a name that a class or a library has a use for, build what contains itself, or have anything
hashed but text and a few numbers. Time and memory are proportional to the size of the file.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, cached_property
from typing import Any, NoReturn

import numpy as np
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from greenfold.io.names import is_record, known_classes, present
from greenfold.io.older import of_today
from greenfold.io.write import KEYS, MODULE_OWN, MOST_NUMBERS

MOST_AXES = 32
LARGEST_KEY = 2**61 - 1  # whole numbers below are their own hash
MOST_TEXT = 64  # bytes of a text array for each of the file, in format 1


class Refused(ValueError):
    """With a message for people."""


class Reader:
    """The way back. Every node has one tag, and a tag has one method."""

    def __init__(
        self,
        tensors: dict[str, Tensor],
        own: list[nn.Module],
        own_names: list[str],
        written_by: str,
        size: int,
    ):
        self.tensors, self.own, self.own_names = tensors, own, own_names
        self.written_by, self.size = written_by, size
        self.classes = known_classes()
        self.objects: dict[str, Any] = {}  # that are complete, by number
        self.made: dict[tuple[str, str], Any] = {}  # tensors by kind and name
        self.filled: set[int] = set()  # modules of the user's that have their weights
        self.n_numbers = 0

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
        raise Refused(f"the model file is not consistent: {what}.")

    def finish(self, node: Any, made: Any) -> Any:
        if type(node["id"]) is not int:
            self.wrong(f"{node['id']!r} is no number of an object")
        # Numbers are text here: that is hashed with a seed, so nobody can choose what collides.
        if self.objects.setdefault(str(node["id"]), made) is not made:
            self.wrong(f"two objects have the number {node['id']}")
        return made

    def key(self, node: Any) -> Any:
        """Of a dictionary or set. Neither hashing it nor finding it among others may take long."""
        value = self.decode(node)
        self.n_numbers += not isinstance(value, str)
        if not isinstance(value, KEYS) or self.n_numbers > MOST_NUMBERS:
            self.wrong(f"a {type(value).__name__} is among the keys, or too many numbers are")
        if isinstance(value, int | np.integer) and abs(int(value)) >= LARGEST_KEY:
            self.wrong(f"{value} is too large for a key")
        return value

    def pairs(self, node: Any) -> dict[Any, Any]:
        return {self.key(k): self.decode(v) for k, v in node}

    def attributes(self, node: Any, cls: type) -> dict[str, Any]:
        """State for `vars`, by names that mean nothing yet."""
        state = of_today(cls, self.pairs(node))
        taken = reserved(cls)
        for name in state:
            if not isinstance(name, str) or name in taken or name.startswith("__"):
                self.wrong(f"{name!r} is no attribute of a {cls.__name__}, or is a method of it")
        return state

    def cls(self, name: Any) -> type:
        found = self.classes.get(present(name))
        if found is None:
            raise Refused(
                f"the model file holds a {name!r}, which this version of greenfold does not have. It was "
                f"written by greenfold {self.written_by}."
            )
        return found

    def _float(self, node: Any) -> float:
        if node["float"] not in ("nan", "inf", "-inf"):
            self.wrong(f"{node['float']!r} is no number")
        return float(node["float"])

    def _tuple(self, node: Any) -> tuple:
        return tuple(self.decode(v) for v in node["tuple"])

    def _set(self, node: Any) -> set:
        return {self.key(v) for v in node["set"]}

    def _dict(self, node: Any) -> dict:
        return self.pairs(node["dict"])

    def _class(self, node: Any) -> type:
        return self.cls(node["class"])

    def _scalar(self, node: Any) -> Any:
        value = self.decode(node["scalar"])
        if not isinstance(value, np.ndarray) or value.ndim:
            self.wrong("a scalar is no single number")
        return value[()]

    def _ref(self, node: Any) -> Any:
        return self.objects[str(node["ref"])]

    def _random_state(self, node: Any) -> np.random.RandomState:
        given = self.decode(node["random_state"])
        key, position = (given["state"][name] for name in ("key", "pos"))
        # numpy takes any position, and then reads memory that is not its own
        valid = type(position) is int and 0 <= position <= 624
        if key.dtype != np.uint32 or key.shape != (624,) or not valid:
            self.wrong("a random state is not one of the Mersenne twister")
        state = np.random.RandomState(0)
        state.set_state(("MT19937", key, position, given["has_gauss"] == 1, given["gauss"]))
        return state

    def _tensor(self, node: Any) -> Tensor:
        def made(value: Tensor) -> Tensor:
            value = value.clone()  # aligned in memory, as torch's own are
            value = value.permute(self.order(node, value.ndim))
            if "learned" in node:
                return nn.Parameter(value, requires_grad=bool(node["learned"]))
            return value

        return self.stored("tensor", node, made)

    def _array(self, node: Any) -> Any:
        def made(value: Tensor) -> Any:
            return value.numpy().copy().transpose(self.order(node, value.ndim))

        return self.stored("array", node, made)

    def _text(self, node: Any) -> Any:
        def made(value: Tensor) -> Any:
            letters = value.numpy().copy()  # (…, width)
            if letters.dtype != np.int32 or not ((letters >= 0) & (letters < 0x110000)).all():
                self.wrong("an array of text holds what is no letter")
            return letters.view(f"<U{letters.shape[-1]}")[..., 0]

        return self.stored("text", node, made)

    def stored(self, kind: str, node: Any, made: Callable[[Tensor], Any]) -> Any:
        """What becomes of a tensor; when it is named again it is the same object."""
        key = (kind, node[kind])
        if key not in self.made:
            value = self.tensors[node[kind]]
            if value.ndim > MOST_AXES or not all(map(self.is_size, value.shape)):
                self.wrong(f"{node[kind]} has an impossible shape")
            self.made[key] = made(value)
        return self.made[key]

    def is_size(self, n: Any) -> bool:
        return type(n) is int and 0 <= n <= self.size

    def order(self, node: Any, n: int) -> list[int]:
        """Inverse of the order that the axes were written in."""
        given = node.get("order", range(n))
        if len(given) != n or sorted(given) != list(range(n)):
            self.wrong(f"{given} is no order of {n} axes")
        return [given.index(i) for i in range(n)]

    def _items(self, node: Any) -> Any:
        """An array of objects; in format 1 also of text."""
        items, shape, dtype = self.decode(node["items"]), node["shape"], node.get("dtype", "|O")
        if len(shape) > MOST_AXES or not all(map(self.is_size, shape)):
            self.wrong("an array has an impossible shape")
        values = np.empty(len(items), dtype=object)
        values[:] = [None] * len(items)
        for i, item in enumerate(items):
            values[i] = item
        if dtype != "|O":
            width = re.fullmatch("[<>]U([0-9]{1,9})", dtype)
            if width is None or len(items) * int(width[1]) * 4 > MOST_TEXT * self.size:
                self.wrong(f"{dtype} is no type for text, or larger than the text")
            values = values.astype(dtype)
        return values.reshape(shape)

    def _record(self, node: Any) -> Any:
        cls: Any = self.cls(node["record"])
        if not is_record(cls):
            self.wrong(f"{cls.__name__} is no record")
        values = self.decode(node["fields"])
        newer = [cls._field_defaults[name] for name in cls._fields[len(values) :]]
        return self.finish(node, cls._make(values + newer))

    def _object(self, node: Any) -> Any:
        cls: Any = self.cls(node["object"])
        if issubclass(cls, nn.Module | tuple):
            self.wrong(f"{cls.__name__} is no plain object")
        made = cls.__new__(cls)
        state = self.attributes(node["state"], cls)
        defaults, wanted = newer(cls)
        missing = sorted(wanted - set(state))
        if missing:
            self.wrong(f"a {cls.__name__} lacks {missing}")
        vars(made).update({name: make() for name, make in defaults.items() if name not in state})
        vars(made).update(state)
        return self.finish(node, made)

    def _module(self, node: Any) -> nn.Module:
        cls = self.cls(node["module"])
        if not issubclass(cls, nn.Module):
            self.wrong(f"{cls.__name__} is no module")
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        vars(made).update(self.attributes(node["state"], cls))
        lasting = made._non_persistent_buffers_set
        if type(made.training) is not bool or type(lasting) is not set:
            self.wrong(f"`training` or `_non_persistent_buffers_set` of {cls.__name__}")
        for kind, wanted in (
            ("parameters", nn.Parameter),
            ("buffers", Tensor),
            ("modules", nn.Module),
        ):
            members = self.attributes(node[kind], cls)
            for name, value in members.items():
                if not isinstance(value, wanted | None):
                    self.wrong(f"{name!r} of {cls.__name__} is not what it should be")
            getattr(made, f"_{kind}").update(members)
        return self.finish(node, made)

    def _own(self, node: Any) -> nn.Module:
        i = node["own"]
        if type(i) is not int or not 0 <= i < len(self.own) or i in self.filled:
            self.wrong("a module of the user's own is there twice, or not at all")
        self.filled.add(i)
        module = self.own[i]
        state = self.pairs(node["state"])
        learned = {name: p.requires_grad for name, p in module.named_parameters()}
        try:
            module.load_state_dict(state, assign=True)
        except RuntimeError as error:
            raise Refused(
                f"`module` {type(module).__name__} does not fit the weights in the file, which were "
                f"saved from {self.own_names[i]}: {error}"
            ) from error
        for name, p in module.named_parameters():
            p.requires_grad_(learned.get(name, True))
        return self.finish(node, module.train(bool(node["mode"])))


NODES = frozenset(
    name.removeprefix("_")
    for name in vars(Reader)
    if name.startswith("_") and not name.startswith("__")
)


@cache
def reserved(cls: type) -> frozenset[str]:
    """Names that state may not set: methods and properties, and all that other libraries have."""
    names = set(MODULE_OWN) if issubclass(cls, nn.Module) else set()
    for base in cls.__mro__:
        ours = base.__module__.startswith("greenfold.")
        for name, value in vars(base).items():
            computed = hasattr(value, "__get__") and not isinstance(value, cached_property)
            if not ours or callable(value) or computed:
                names.add(name)
    return frozenset(names)


@cache
def newer(cls: type) -> tuple[dict[str, Any], frozenset[str]]:
    """What makes settings and fields that are newer than the file; the names that it must have."""
    if issubclass(cls, BaseEstimator):
        given = {name: p.default for name, p in inspect.signature(cls).parameters.items()}
        plain = {name: value for name, value in given.items() if value is not inspect._empty}
        return {name: lambda value=value: value for name, value in plain.items()}, frozenset()
    if not is_dataclass(cls):
        return {}, frozenset()
    makers: dict[str, Any] = {}
    for field in fields(cls):
        if field.default is not MISSING:
            makers[field.name] = lambda value=field.default: value
        elif field.default_factory is not MISSING:
            makers[field.name] = field.default_factory
    return makers, frozenset(field.name for field in fields(cls)) - set(makers)

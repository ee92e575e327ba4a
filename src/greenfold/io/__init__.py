"""Model files: one safetensors file whose header says in JSON what the tensors are.

    model.greenfold = tensors + {sha256, format, class, params, features, preprocessing, versions, state}

Nothing is pickled and nothing in a file is executed: `state` is a tree of plain values, tensors by name
and objects of the classes in `known_classes()`, restored without calling their constructors. The SHA-256
covers header and tensors, so a file that was altered or cut short is refused before it is read further.
It is no signature: anybody can write a file with a right one, and what such a file can do is little
(`read.py`).
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from greenfold.io.names import known_classes, name_of
from greenfold.io.read import Reader, Refused
from greenfold.io.write import Writer
from greenfold.output import write_whole as write_whole
from greenfold.provenance import params_of, shown, versions
from greenfold.table import Table, TableModel

FORMAT = 2  # raise it when files of before need a step in MIGRATIONS

Header = dict[str, Any]

# format: what turns a header of that format into one of the next
MIGRATIONS: dict[int, Callable[[Header], Header]] = {
    1: lambda header: header,  # classes had names without their module: `names.MOVED` has them
}

MODELS = (BaseEstimator, nn.Module, TableModel)  # what files are for


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

    A file may come from anybody: nothing in it is executed, and reading it takes time in proportion to
    its size, and memory of no more than 64 times its size. What it predicts is another matter.

    Parameters
    ----------
    path : str or path
    module : nn.Module or sequence of nn.Module
        Only for files with modules of your own, in the order the error message lists them: the same
        architecture, whose weights are then restored in place.

    Raises
    ------
    ValueError
        If the file is no model, was altered, or needs another version of greenfold; there is no other
        error on account of what is in a file.

    Returns
    -------
    estimator

    Examples
    --------
    >>> import os
    >>> import numpy as np
    >>> from greenfold import IGLRegressor, load, save
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> model = IGLRegressor("axis", operator="heat", random_state=0).fit(X, X[:, 0])
    >>> save(model, "model.greenfold")
    >>> bool((load("model.greenfold").predict(X) == model.predict(X)).all())
    True
    >>> os.remove("model.greenfold")
    """
    return from_bytes(Path(path).read_bytes(), module)


def to_bytes(model: Any, kinds: tuple[type, ...] = MODELS) -> bytes:
    """The content of a model file; `kinds` are those it may be for."""
    ours = isinstance(model, nn.Module) or name_of(type(model)) in known_classes()
    if not ours or not isinstance(model, kinds):
        raise ValueError(
            f"a model file holds an estimator or module of greenfold, got {type(model).__name__}. Of a "
            "pipeline, save the greenfold step and keep the other steps your own way; of what `tune` "
            "returns, save `best`."
        )
    writer = Writer()
    state = writer.encode(model, type(model).__name__)
    header: Header = {
        "format": FORMAT,
        "class": type(model).__name__,
        "estimator": type(getattr(model, "estimator", model)).__name__,
        "params": params_of(model),
        "features": _features(model),
        "standings": _standings(model),
        "preprocessing": list(getattr(_table(model), "notes", [])),
        "versions": versions(),
        "left_out": writer.left_out,
        "modules": writer.own,
        "state": state,
    }
    text = json.dumps(header, allow_nan=False, separators=(",", ":"))
    return save_tensors(writer.tensors, {"greenfold": _sign(text, writer.tensors)})


def from_bytes(
    data: bytes,
    module: nn.Module | Sequence[nn.Module] = (),
    kinds: tuple[type, ...] = MODELS,
) -> Any:
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
    reader = Reader(tensors, own, header["modules"], _written_by(header), len(data))
    try:
        model = reader.decode(header["state"])
    except (Refused, MemoryError):
        raise
    except Exception as error:  # whatever a file makes Python, numpy or torch say
        raise ValueError(f"the model file is not consistent: {error}") from error
    if not isinstance(model, kinds):
        raise ValueError(
            f"the model file holds a {type(model).__name__}, which is no estimator or module."
        )
    if isinstance(model, TableModel) and not (
        isinstance(model.table, Table) and isinstance(model.estimator, BaseEstimator)
    ):
        raise ValueError("the model file is not consistent: it lacks a table or an estimator.")
    if not isinstance(_table(model), Table | None):
        raise ValueError("the model file is not consistent: its table is none.")
    return model


def read_header(data: bytes) -> Header:
    """The header of a file whose checksum is right, without its `state`."""
    header, _ = _checked(data)
    return {key: value for key, value in header.items() if key != "state"}


# --- header


SIGNATURE = len('{"sha256":"",') + 64

# an example of each entry for people; lists may have any length
EXAMPLE: Header = {
    "class": "", "estimator": "", "params": {}, "features": [{"name": "", "type": ""}],
    "preprocessing": [""], "versions": {}, "left_out": [""], "modules": [""],
    "standings": [{"name": "", "rows": 0, "n_dims": 0, "weight": 0.0}],
}  # fmt: skip


def _sign(text: str, tensors: dict[str, Tensor]) -> str:
    """The header with the SHA-256 of itself, to the letter, and of the tensors as its first entry."""
    return f'{{"sha256":"{_digest(text[1:], tensors)}",{text[1:]}'


def _digest(rest: str, tensors: dict[str, Tensor]) -> str:
    """Of the header after its first letter, and of the tensors."""
    digest = hashlib.sha256(b"{" + rest.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"\0{name} {value.dtype} {list(value.shape)} ".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _checked(data: bytes) -> tuple[Header, dict[str, Tensor]]:
    """Header in the present format and tensors, or ValueError."""
    try:
        size = int.from_bytes(data[:8], "little")
        text = _parsed(data[8 : 8 + size].decode())["__metadata__"]["greenfold"]
        header = _parsed(text)
        tensors = load_tensors(data)
        digest = _digest(text[SIGNATURE:], tensors)
    except MemoryError:
        raise
    except Exception as error:  # whatever a file makes Python, safetensors or torch say
        raise ValueError(
            f"this is not a greenfold model file, or it was cut short or altered ({error})."
        ) from error
    if not isinstance(header, dict) or type(header.get("format")) is not int:
        raise ValueError("the model file has no format number: it was not written by `save`.")
    by = _written_by(header)
    if header["format"] > FORMAT:
        raise ValueError(
            f"the model file has format {header['format']}, written by greenfold {by}; this version "
            f"reads up to format {FORMAT}. Load it with greenfold {by} or newer."
        )
    if not text.startswith(f'{{"sha256":"{digest}",'):
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
    header.setdefault("standings", [])  # the first files of format 2 have none
    if "state" not in header or not _like(header, EXAMPLE):
        raise ValueError(
            f"the model file is not consistent: its header lacks one of {['state', *EXAMPLE]}, or has it "
            "in another form."
        )
    return {**header, "sha256": digest}, tensors


def _parsed(text: str) -> Any:
    return json.loads(text, parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _like(value: Any, example: Any) -> bool:
    """The same types, and at least the same entries."""
    if type(value) is not type(example):
        return False
    if isinstance(example, list):
        return all(_like(v, example[0]) for v in value)
    if isinstance(example, dict):
        return all(_like(value.get(name), v) for name, v in example.items())
    return True


def _written_by(header: Header) -> str:
    """The version, if it looks like one."""
    versions = header.get("versions")
    by = versions.get("greenfold") if isinstance(versions, dict) else None
    return by if isinstance(by, str) and re.fullmatch(r"[\w.+-]{1,40}", by) else "?"


def _standings(model: Any) -> list[dict[str, Any]]:
    """What competed, the model in use first, for people to read."""
    found = getattr(getattr(model, "estimator", model), "standings_", [])
    return [{k: shown(v) for k, v in each._asdict().items()} for each in found]


def _table(model: Any) -> Table | None:
    """How columns become numbers: of a `TableModel`, or of an estimator that was fitted to a table."""
    return getattr(model, "table", None) or getattr(model, "table_", None)


def _features(model: Any) -> list[dict[str, str]]:
    table = _table(model)
    if table is not None:
        return [{"name": c.name, "type": c.type} for c in table.columns]
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        names = [f"x{i}" for i in range(getattr(model, "n_features_in_", 0))]
    return [{"name": str(name), "type": "double"} for name in names]

"""Every public name says what it takes, what it gives, and shows it in an example that runs.

`make docs` and `make test-all` run the examples. Members of a family may leave to its first class what
all of them share.
"""

import inspect
import re

import pytest

from tests.public import MODULES, public

NAMES = [(module, name) for module in MODULES for name in public(module)]
SKLEARN = ("get_metadata_routing", "get_params", "set_params", "set_output")


def section(doc, title):
    """The lines below a heading of numpydoc."""
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", doc, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def named(doc):
    """What "Parameters" and "Attributes" speak of."""
    lines = (section(doc, "Parameters") + section(doc, "Attributes")).splitlines()
    heads = [line.split(" : ")[0] for line in lines if line and not line.startswith(" ")]
    return {name.strip("*") for head in heads for name in re.split(r",\s*", head.strip())}


def parameters(function):
    try:
        found = inspect.signature(function).parameters.values()
    except ValueError:  # of C
        return []
    return [p.name for p in found if p.name not in ("self", "cls") and not p.name.startswith("_")]


def gives(function):
    """Does it return something that is worth a word?"""
    told = getattr(function, "__annotations__", {}).get("return", None)
    return told not in (None, "None", type(None))


def own_methods(cls):
    """Public methods that greenfold defines, by name."""
    found = {}
    for name, _ in inspect.getmembers(cls):
        raw = inspect.getattr_static(cls, name)
        function = raw.__func__ if isinstance(raw, classmethod | staticmethod) else raw
        if name.startswith("_") or not inspect.isfunction(function) or name in SKLEARN:
            continue
        if function.__module__.startswith("greenfold"):
            found[name] = function
    return found


def docs_of(cls, name):
    """Docstrings of a method in a class and those it derives from, joined."""
    inside = [vars(base).get(name) for base in cls.__mro__]
    return "\n\n".join(inspect.cleandoc(f.__doc__) for f in inside if getattr(f, "__doc__", None))


def wanting(module, name):
    """What a name leaves unsaid."""
    value = public(module)[name]
    doc, missing = inspect.getdoc(value) or "", []
    if ">>>" not in doc:
        missing.append("no example")
    if inspect.isclass(value):
        family = [
            inspect.cleandoc(b.__doc__) for b in value.__mro__ if b.__doc__ and b is not object
        ]
        said = set().union(*map(named, family))
        said |= {p for p in parameters(value.__init__) if f"`{p}`" in doc}
    else:
        said = named(doc)
        if gives(value) and "Returns\n---" not in doc:
            missing.append("no returns")
    unsaid = [p for p in parameters(value) if p not in said and p not in ("args", "kwargs")]
    return missing + [f"parameter {p}" for p in unsaid]


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[f"{m}.{n}" for m, n in NAMES])
def test_a_public_name_says_what_it_takes_and_shows_it(module, name):
    assert wanting(module, name) == []


def examples(cls):
    """Lines of code in the docstrings of a class, of those it derives from, and of its methods."""
    docs = [base.__doc__ or "" for base in cls.__mro__ if base.__module__.startswith("greenfold")]
    docs += [docs_of(cls, name) for name in own_methods(cls)]
    lines = [line.strip() for doc in docs for line in doc.splitlines()]
    return "\n".join(line for line in lines if line.startswith((">>>", "...")))


def unshown(cls):
    """Methods that no example calls; `forward` and `extra_repr` are called by PyTorch."""
    code = examples(cls)
    names = [name for name in own_methods(cls) if name not in ("forward", "extra_repr")]
    return [name for name in names if f".{name}(" not in code]


CLASSES = [(m, n) for m, n in NAMES if inspect.isclass(public(m)[n])]


@pytest.mark.parametrize(("module", "name"), CLASSES, ids=[f"{m}.{n}" for m, n in CLASSES])
def test_an_example_calls_every_public_method(module, name):
    assert unshown(public(module)[name]) == []


def test_a_method_without_an_example_is_seen():
    class Mute(public("greenfold.green")["Heat"]):
        def hum(self):
            """Nothing to see."""

    Mute.hum.__module__ = "greenfold.green"
    assert unshown(Mute) == ["hum"]


@pytest.mark.parametrize(("module", "name"), CLASSES, ids=[f"{m}.{n}" for m, n in CLASSES])
def test_public_methods_say_what_they_take_and_give(module, name):
    """Those of building blocks, which users seldom call, in a line with shapes; others in sections."""
    cls, missing = public(module)[name], []
    for method, function in own_methods(cls).items():
        doc = docs_of(cls, method)
        if module != "greenfold":
            continue
        said = named(doc) | set(re.findall(r"`(\w+)`", doc))
        missing += [f"{method}: parameter {p}" for p in parameters(function) if p not in said]
        if gives(function) and "Returns\n---" not in doc and parameters(function):
            missing.append(f"{method}: no returns")
    assert missing == []

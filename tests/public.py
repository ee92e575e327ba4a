"""The public names: what users import, and the reference lists."""

import inspect
from importlib import import_module

MODULES = (
    "greenfold",
    "greenfold.plot",
    "greenfold.datasets",
    "greenfold.likelihoods",
    "greenfold.green",
    "greenfold.chart",
    "greenfold.solve",
    "greenfold.sources",
    "greenfold.learn.callbacks",
    "greenfold.dims",
)
ALSO = {"greenfold.learn.callbacks": ["Epoch"]}  # what a callback is given
ELSEWHERE = ("LogsMetrics", "Logs", "LogsMetric", "metrics")  # what callbacks are made of


def public(module: str) -> dict[str, object]:
    """Classes and functions of a module, each where it is listed first."""
    loaded = import_module(module)
    names = getattr(loaded, "__all__", None)
    if names is None:
        names = [n for n, v in vars(loaded).items() if getattr(v, "__module__", "") == module]
        names += ALSO.get(module, [])
    before = [m for m in MODULES[: MODULES.index(module)] if hasattr(import_module(m), "__all__")]
    known = {name for m in before if m == "greenfold" for name in import_module(m).__all__}
    found = {}
    for name in names:
        value = getattr(loaded, name)
        here = inspect.isclass(value) or inspect.isfunction(value)
        if here and not name.startswith("_") and name not in ELSEWHERE:
            if module.startswith("greenfold.") and name in known and _same(name, value):
                continue
            found[name] = value
    return found


def _same(name: str, value: object) -> bool:
    return getattr(import_module("greenfold"), name) is value

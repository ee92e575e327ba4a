"""Options as data: what each takes, and what it needs in order to act.

A value that is wrong is refused, and so is one that would do nothing: a setting that is silently ignored
looks like one that did not help.
"""

import math
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from numbers import Integral, Number, Real
from typing import Any, NamedTuple


class Need(NamedTuple):
    """What must hold for an option to act."""

    holds: Callable[[Any], bool]  # of the other options, as attributes
    words: str  # "alpha=0.1 needs …"


class Option(NamedTuple):
    """What an option takes, and what it needs unless it has its default."""

    takes: Callable[[Any], bool]
    words: str  # "`alpha` must be …"
    needs: tuple[Need, ...] = ()

    def needing(self, *needs: Need) -> "Option":
        return self._replace(needs=needs)


Table = Mapping[str, Option]


def refuse(
    table: Table, values: Mapping[str, Any], defaults: Mapping[str, Any], settings: Any
) -> None:
    """Raise ValueError for the first value that is wrong or would do nothing.

    Parameters
    ----------
    table : mapping of str to Option
    values, defaults : mappings of str to values
        All options; those without a default always act.
    settings : object
        Has what the needs look at.
    """
    for name, value in values.items():
        option = table[name]
        if not option.takes(value):
            raise ValueError(f"`{name}` must be {option.words}, got {value!r}.")
    for name, value in values.items():
        if name not in defaults or same(value, defaults[name]):
            continue
        for need in table[name].needs:
            if not need.holds(settings):
                raise ValueError(f"{name}={value!r} needs {need.words}.")


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Of its arguments, or of a constructor's."""
    parameters = signature(function).parameters
    return {k: p.default for k, p in parameters.items() if p.default is not Parameter.empty}


def same(value: Any, default: Any) -> bool:
    """Equal as settings are."""
    plain = isinstance(value, str | Number) and isinstance(default, str | Number)
    return value is default or (plain and value == default)


# --- what options take


def one_of(*choices: Any) -> Option:
    """Only these."""
    return Option(lambda value: _among(value, choices), f"one of {choices}")


def integer(least: int, *others: Any) -> Option:
    words = f"a whole number of at least {least}"
    return Option(lambda v: _among(v, others) or is_integer(v, least), _or(words, others))


def number(least: float = 0.0, *others: Any, below: float = math.inf, zero: bool = True) -> Option:
    """Finite, from `least` (itself only if `zero`) to below `below`."""

    def takes(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, Real):
            return _among(value, others)
        size = float(value)
        return (least <= size if zero else least < size) and size < below

    words = f"a number {'of at least' if zero else 'above'} {least:g}"
    words += f" and below {below:g}" if math.isfinite(below) else ", and finite"
    return Option(takes, _or(words, others))


def flag() -> Option:
    return Option(lambda value: isinstance(value, bool), "True or False")


def is_integer(value: Any, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def _among(value: Any, choices: tuple[Any, ...]) -> bool:
    return any(same(value, choice) for choice in choices)


def _or(words: str, others: tuple[Any, ...]) -> str:
    return " or ".join([words, *map(repr, others)])

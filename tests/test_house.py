"""Laws of the house: imports point down, and what is private stays where it is."""

import ast

import pytest

import greenfold
from tests import house

MODULES = house.trees()


def test_imports_make_no_cycle():
    assert house.cycles(house.imports(MODULES)) == []


def test_no_module_imports_the_top_package():
    """It imports all others when asked, so that whoever imports it is in a cycle."""
    graph = house.imports(MODULES)
    above = [name for name, found in graph.items() if house.TOP in found]
    assert [name for name in above if name != f"{house.TOP}.__main__"] == []


def test_nothing_below_knows_the_experiments():
    graph = house.imports(MODULES)
    inside = f"{house.TOP}.experiments"
    edge = (inside, f"{house.TOP}.cli", f"{house.TOP}.demo")
    found = {a: b for a, bs in graph.items() for b in bs if b.startswith(inside)}
    assert [name for name in found if not name.startswith(edge)] == []


def test_public_names_are_few():
    assert len(house.public_names(MODULES)) <= 26
    assert set(house.public_names(MODULES)) >= set(greenfold.__all__) - {"__version__"}


ESTIMATORS = f"{house.TOP}.estimators"


def trespasses(modules):
    """Reads of what is private to estimators, by modules that are none."""
    inside = {name: tree for name, tree in modules.items() if name.startswith(ESTIMATORS)}
    private = set().union(*map(house.private_names, inside.values()))
    return [
        f"{name}:{line} {attribute}"
        for name, tree in modules.items()
        if name not in inside
        for line, attribute in house.private_reads(tree)
        if attribute in private - house.private_names(tree)
    ]


def test_what_is_private_to_estimators_is_read_by_none_else():
    assert trespasses(MODULES) == []


@pytest.mark.parametrize(
    "line", ["model._s", "self.estimator._sums.n", 'getattr(model, "_own_units", None)', "m._s = 3"]
)
def test_a_trespass_is_seen(line):
    both = {name: MODULES[name] for name in MODULES if name.startswith(ESTIMATORS)}
    found = trespasses({**both, f"{house.TOP}.elsewhere": ast.parse(line)})
    assert len(found) == 1, found


CYCLE = {
    "a": "from b import x",
    "b": "def f():\n    import c",
    "c": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import d\nelse:\n    import a",
    "d": "import a",
}


@pytest.mark.parametrize("cut", [None, "a", "b", "c"])
def test_a_cycle_is_seen_inside_functions_but_not_for_type_checkers(cut):
    modules = {name: ast.parse("" if name == cut else text) for name, text in CYCLE.items()}
    assert house.cycles(house.imports(modules)) == ([["a", "b", "c"]] if cut is None else [])

"""Facts about the package, read from its source: lines, public names, import cycles, private reads.

`python tests/house.py` prints them; `test_house.py` holds them to laws.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
TOP = "greenfold"


def trees() -> dict[str, ast.Module]:
    """Every module by its name."""
    found = {}
    for path in sorted((SOURCE / TOP).rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def executed(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes, also inside functions, but those for type checkers."""
    yield tree
    for_checkers = isinstance(tree, ast.If) and "TYPE_CHECKING" in ast.unparse(tree.test)
    children = tree.orelse if for_checkers else ast.iter_child_nodes(tree)
    for child in children:
        yield from executed(child)


def imports(modules: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Which module imports which; a module may import the packages it is in."""
    graph: dict[str, set[str]] = {}
    for name, tree in modules.items():
        found = set()
        for node in executed(tree):
            if isinstance(node, ast.ImportFrom):
                if node.module is None or node.level:
                    raise ValueError(f"{name} has a relative import")
                whole = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {part if part in modules else node.module for part in whole}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        graph[name] = {f for f in found if f in modules and f != name}
    return graph


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that reach each other, largest first."""
    below = {
        name: {b for b in found if not name.startswith(f"{b}.")} for name, found in graph.items()
    }
    reached = {name: _reached(name, below) for name in below}
    groups = {
        frozenset(b for b in reached[a] if a in reached[b]) for a in reached if a in reached[a]
    }
    return sorted((sorted(group) for group in groups), key=len, reverse=True)


def _reached(start: str, graph: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    ahead = set(graph[start])
    while ahead:
        name = ahead.pop()
        seen.add(name)
        ahead |= graph[name] - seen
    return seen


def public_names(modules: dict[str, ast.Module]) -> list[str]:
    """What `from greenfold import …` is for: the names the top package tells type checkers of."""
    names = set()
    for node in ast.walk(modules[TOP]):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(TOP):
            names |= {alias.asname or alias.name for alias in node.names}
    return sorted(name for name in names if not name.startswith("_"))


def private_names(tree: ast.AST) -> set[str]:
    """Names with one underscore that classes define: methods, and attributes of theirs or of `self`."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for child in node.body:
                targets = (
                    [child] if isinstance(child, ast.AnnAssign) else getattr(child, "targets", [])
                )
                found |= {getattr(getattr(t, "target", t), "id", "") for t in targets}
                found.add(getattr(child, "name", ""))
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
            found.add(node.attr)
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def private_reads(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of every private attribute of another object, also by `getattr` and its like."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            if ast.unparse(node.value) not in ("self", "cls", "super()"):
                yield node.lineno, node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("attr"):
            for argument in node.args[1:2]:
                name = getattr(argument, "value", None)
                if isinstance(name, str) and name.startswith("_"):
                    yield node.lineno, name


def lines() -> int:
    """Of Python without the experiments."""
    files = [p for p in (SOURCE / TOP).rglob("*.py") if "experiments" not in p.parts]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


if __name__ == "__main__":
    modules = trees()
    loops = cycles(imports(modules))
    print(
        f"house: {lines()} lines without experiments, {len(public_names(modules))} public names, "
        f"{len(loops)} import cycles"
    )

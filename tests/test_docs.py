"""What the pages show is what happens, and nothing they point at is missing."""

import ast
import contextlib
import io
import re
import shlex
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.main import get_command

import greenfold
from greenfold.cli import app
from tests.public import MODULES, public

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "greenfold"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN = [page for page in PAGES if "```python" in page.read_text()]
QUICK = ("README", "tables")


def blocks(text):
    return list(re.finditer(r"```(\S*)\n(.*?)```", text, re.DOTALL))


# --- code


def spectra():
    """What docs/calibration.md takes as given."""
    meat = greenfold.datasets.load_tecator()
    X, y = meat.X[:40], meat.Y[:40, 1]
    given = {"wavelengths": meat.wavelengths, "X": X, "y": y, "X_new": meat.X[40:60]}
    return {**given, "X_standards": 1.01 * X[:8], "y_standards": y[:8]}


def calls():
    """What docs/likelihoods.md takes as given."""
    rng = np.random.default_rng(0)
    X, hours = rng.normal(size=(60, 2)), rng.uniform(1, 3, 60)
    y = rng.poisson(hours * np.exp(0.5 * X[:, 0])).astype(float)
    given = {"X": X, "y": y, "hours": hours, "X_new": X[:5], "new_hours": hours[:5]}
    return {**given, "time": np.exp(X[:, 1]), "still_running": X[:, 0] > 1}


GIVEN = {"calibration": spectra, "likelihoods": calls}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[] if page.stem in QUICK else pytest.mark.slow, id=page.stem)
        for page in RUN
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_code_runs_and_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    """Blocks one after the other, in one folder; output is shown in the block right below."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    text = page.read_text()
    names = GIVEN.get(page.stem, dict)()
    found = [*blocks(text), None]
    for block, below in pairwise(found):
        if block[1] != "python":
            continue
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            exec(compile(block[2], f"{page.name}", "exec"), names)
        adjacent = below is not None and not text[block.end() : below.start()].strip()
        assert shown.getvalue().split() == (below[2].split() if adjacent and not below[1] else [])


# --- commands


def commands(text):
    """Lines of console blocks and of blocks without a language, joined where they go on."""
    inside = "\n".join(block[2] for block in blocks(text) if block[1] in ("", "console"))
    lines = inside.replace("\\\n", " ").splitlines()
    return [line.split("  #")[0].strip() for line in lines]


def understood(words):
    """The command line takes these words, or raises."""
    group = get_command(app)
    command = group.get_command(typer.Context(group), words[0])
    assert command is not None, f"there is no command {words[0]}"
    own, rest = words[1:], []
    if "--" in own:
        own, rest = own[: own.index("--")], own[own.index("--") + 1 :]
    command.make_context(words[0], [*own, *rest[:1]])
    if rest:
        understood(rest)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_are_understood(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    made = re.findall(r"`make ([\w-]+)", page.read_text())
    for line in commands(page.read_text()):
        for stage in line.split("|"):
            words = shlex.split(
                stage.split(">")[0].replace("$(", "").replace(")", ""), comments=True
            )
            if "greenfold" in words[:2] and "import" not in words:
                words = words[words.index("greenfold") + 1 :]
                left_out = ["data.csv", "--target", "y", "--out", "m.greenfold"]
                at = words.index("…") if "…" in words else len(words)
                understood(words[:at] + (left_out + words[at + 1 :] if at < len(words) else []))
            elif words[:1] == ["make"]:
                made.append(words[1])
    assert {name for name in made if not name.endswith("-")} <= targets


# --- links


def links(text):
    """Of Markdown, outside of code."""
    text = re.sub(r"```.*?```|`[^`\n]*`|^    .*$", "", text, flags=re.DOTALL | re.MULTILINE)
    return [found.split()[0] for found in re.findall(r"(?<!\\)\]\(([^)]+)\)", text)]


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")) + PAGES[2:], ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for link in links(page.read_text()):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        end = page.parent / link.split("#")[0]
        assert link.startswith("#") or end.exists(), f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_are_named_exist(page):
    """Such as `examples/plot_head.py` or `tests/test_house.py`."""
    named = re.findall(
        r"\b(?:examples|tests|benchmarks|docs)/[\w/]+\.(?:py|md|png)\b", page.read_text()
    )
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_live_pages_that_are_linked_are_written():
    made = re.findall(r"^def (\w+)\(path", (ROOT / "docs" / "live.py").read_text(), re.MULTILINE)
    linked = {name for page in PAGES for name in re.findall(r"live-(\w+)\.html", page.read_text())}
    assert linked == set(made)


# --- troubleshooting


def words(text):
    return " ".join(re.sub(r"[`*]", "", text).split()).strip(" .,:;()")


def literal(node, constants):
    """Pieces of a message that do not depend on numbers."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.split(r"\{[^}]*\}", node.value)
    if isinstance(node, ast.JoinedStr):
        parts = [v for v in node.values if isinstance(v, ast.Constant)]
        return [str(v.value) for v in parts]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return literal(node.func.value, constants)  # "…".format(…)
    if isinstance(node, ast.Name) and node.id in constants:
        return literal(constants[node.id], constants)
    return []


def messages(wanted):
    """Where, and the pieces of the message of every call that is `wanted`."""
    for path in sorted(SOURCE.rglob("*.py")):
        if "experiments" in path.parts:
            continue
        tree = ast.parse(path.read_text())
        assigned = [n for n in ast.walk(tree) if isinstance(n, ast.Assign)]
        constants = {getattr(n.targets[0], "id", ""): n.value for n in assigned}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and wanted(ast.unparse(node.func)) and node.args:
                pieces = [words(piece) for piece in literal(node.args[0], constants)]
                yield (
                    f"{path.relative_to(SOURCE)}:{node.lineno}",
                    [p for p in pieces if len(p) > 14],
                )


def test_every_warning_is_explained():
    page = words((ROOT / "docs" / "troubleshooting.md").read_text())
    found = list(messages(lambda name: name in ("warnings.warn", "warn")))
    assert len(found) >= 15
    missing = {
        where: pieces for where, pieces in found if not any(piece[:40] in page for piece in pieces)
    }
    assert missing == {}


def test_every_class_of_error_and_warning_is_explained():
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    names = [
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).endswith(("Error", "Warning")) for base in node.bases)
    ]
    assert [name for name in names if f"`{name}`" not in page] == []


def test_a_message_that_is_not_explained_is_seen():
    (call,) = ast.parse('warnings.warn(f"{n} rows of another kind were seen")').body
    pieces = literal(call.value.args[0], {})
    assert pieces == [" rows of another kind were seen"]
    assert words(pieces[0]) not in words((ROOT / "docs" / "troubleshooting.md").read_text())


# --- reference


def test_every_public_name_has_a_page_in_the_reference():
    """One entry for each, below the module that it is imported from."""
    text = (ROOT / "docs" / "reference.md").read_text()
    listed = set()
    for part in text.split(".. currentmodule:: ")[1:]:
        module, *lines = part.split("```")[0].splitlines()
        listed |= {f"{module}.{line.strip()}" for line in lines if re.fullmatch(r"   \w+", line)}
    expected = {f"{module}.{name}" for module in MODULES for name in public(module)}
    assert listed == expected

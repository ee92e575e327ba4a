"""Sources on the command line and on their page: what is told is what Python has."""

import base64
import contextlib
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from typer.testing import CliRunner

from greenfold import SourceFinder, cli, load
from greenfold.green import Transport
from greenfold.report import write
from greenfold.sources import Average, Flux

from .browser import launch, opened, settle

AIR = Transport(3.0, wind=(4.0, 2.0))
PLACES, STRENGTHS = np.array([[0.25, 0.3], [0.7, 0.75]]), np.array([1.2, 0.9])


def data(n=30):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (n, 2))
    u = SourceFinder(AIR, width=0.05).simulate(PLACES, STRENGTHS, x)
    return x, u + 0.02 * u.std() * rng.normal(size=n)


@pytest.fixture(scope="module")
def found():
    return SourceFinder(AIR, [[0, 0], [1, 1]], width=0.05).fit(*data())


@pytest.fixture
def table(tmp_path):
    x, y = data()
    rows = np.column_stack([x, y, np.arange(30) % 3 + 1.0])
    path = tmp_path / "readings.csv"
    np.savetxt(path, rows, delimiter=",", header="east,north,c,w", comments="")
    return path


def run(*arguments, code=0):
    result = CliRunner().invoke(cli.app, ["sources", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


COLUMNS = ("--x", "east", "--y", "north", "--reading", "c")
PHYSICS = ("--wind", "4,2", "--kappa", "3", "--width", ".05", "--region", "0,1,0,1")


# --- command line


def test_the_command_finds_what_python_finds(found, table, tmp_path):
    out, page = tmp_path / "m.greenfold", tmp_path / "p.html"
    said = run(table, *COLUMNS, *PHYSICS, "--json", "--more", 2, "-o", out, "--report", page).stdout
    told = json.loads(said)
    assert told["readings"] == 30
    assert len(told["sources"]) == len(found.sources_)
    for row, source in zip(told["sources"], found.sources_):
        assert_allclose(row["position"], source.position, rtol=1e-9)
        assert_allclose(row["strength_std"], source.strength_std, rtol=1e-6)
    assert_allclose(told["total"]["value"], found.total_.value, rtol=1e-9)
    assert told["check"]["fine"]
    assert len(told["read next"]) == 2
    assert page.stat().st_size > 50_000
    assert_allclose(load(out).estimator.predict(PLACES), found.predict(PLACES), rtol=1e-9)
    lines = CliRunner().invoke(cli.app, ["info", str(out)]).stdout
    assert re.search(r"sources +1\.\d+ ± 0\.\d+ at east 0\.2\d+ ± ", lines)
    rows = CliRunner().invoke(cli.app, ["predict", str(out), str(table)]).stdout.splitlines()
    assert len(rows) == 31
    page.unlink()
    CliRunner().invoke(cli.app, ["report", str(out), "-o", str(page)])
    assert page.stat().st_size > 50_000


def test_the_command_in_words_with_weights_walls_and_learned_numbers(table):
    said = run(
        table, *COLUMNS, "--kappa", 2, "--learn", "kappa", "--walls", "-4,5,-4,5", "--weight", "w",
        "--wind", "4,2", "--width", ".05", "--region", "0,1,0,1", "--max-sources", 2,
    ).stdout  # fmt: skip
    assert re.search(r"^kappa +(2\.9|3)\S* ± ", said, re.MULTILINE)
    assert re.search(r"^check +residuals of neighbors", said, re.MULTILINE)


def test_a_field_and_missing_readings(table, tmp_path):
    with open(table, "a") as file:
        file.write("0.5,0.5,,1\n")
    result = run(
        table, *COLUMNS, "--wind", "4,2", "--kappa", 3, "--kind", "smooth", "--width", ".2"
    )
    assert "1 rows left out, their reading is missing" in result.stderr
    assert "sources   a field" in result.stdout


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--wind", "4,2,1"], "--wind takes 1 or 2 numbers"),
        (["--wind", "strong"], "--wind takes numbers, with commas"),
        (["--walls", "0,1"], "--walls takes low and high of every coordinate, 4 numbers"),
        (["--walls", "0,1,0,1", "--boundary", "glass"], "unknown boundary 'glass'"),
        (["--walls", "0,.5,0,1", "--kappa", "1"], "outside the walls"),
        (["--boundary", "neumann"], "give --walls with it"),
        (["--kappa", "-1"], "`kappa` must be a number, finite and not negative"),
        (["--kappa", "1", "--learn", "speed"], "`learn` takes"),
        (["--release", "instant"], "needs the `time`"),
        (["--region", "1,0,1,0", "--kappa", "1"], "low < high"),
        ([], "nothing is ever steady"),
        (["--out", "nowhere/m.greenfold"], "there is no folder"),
    ],
)
def test_errors_in_one_line(table, more, words):
    assert words in run(table, *COLUMNS, *more, code=1).stderr


def test_a_column_that_is_not_there(table):
    words = run(table, "--x", "west", "--reading", "c", "--kappa", 1, code=1).stderr
    assert "there is no column 'west'" in words


def test_the_example_of_the_docs_prints_what_they_say():
    text = (Path(__file__).parent.parent / "docs" / "sources.md").read_text()
    code, output = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", text, re.DOTALL).groups()
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(code, {})
    assert shown.getvalue().split() == output.split()


# --- the page


@pytest.fixture(scope="module")
def browser():
    driver, started = launch()
    yield started
    started.close()
    driver.stop()


def told(path):
    data = re.search(r'application/json">(.*?)</script>', path.read_text(), re.DOTALL)
    return json.loads(data[1])


def unpacked(array):
    kind = next(iter(array))
    return np.frombuffer(base64.b64decode(array[kind]), f"<{kind}").reshape(array["shape"])


def test_the_page_is_told_what_was_found(found, tmp_path):
    page = told(found.report(tmp_path / "page.html", names=["east", "north </script>"]))
    assert page["names"] == ["east", "north </script>"]
    assert page["title"] == "2 sources from 30 readings"
    x, y = page["map"]["x"], page["map"]["y"]
    u = unpacked(page["map"]["u"]).reshape(len(y), len(x))
    assert_allclose(u[7, 20], found.predict([[x[20], y[7]]])[0], rtol=1e-6)
    grid, columns = page["grid"], unpacked(page["grid"]["columns"])
    place = 3 * len(grid["x"]) + 11
    there = found.responses([[grid["x"][11], grid["y"][3]]])[:, 0]
    assert_allclose(columns[place], there, rtol=1e-5)
    with pytest.raises(ValueError, match="give no rows"):
        write(found, tmp_path / "page.html", PLACES)


def misfit(finder, place, rest):
    c = finder.responses([place])[:, 0]
    q = max(rest @ c / (c @ c), 0.0)
    return q, float(np.sqrt(np.mean((rest - q * c) ** 2)))


def test_a_hypothetical_source_has_pythons_misfit_where_it_is_dragged(browser, found, tmp_path):
    path = found.report(tmp_path / "page.html")
    with opened(browser, path) as page:

        def state():
            settle(page)
            return page.evaluate("hypothesis()")

        def agrees(rest):
            now = state()
            q, rms = misfit(found, [now["x"], now["y"]], rest)
            assert_allclose([now["q"], now["rms"]], [q, rms], rtol=1e-4, atol=1e-7)
            return now

        first = agrees(found.y_)
        landscape = page.evaluate("Array.from(landscape)")
        assert first["rms"] == pytest.approx(10 ** min(landscape), rel=1e-9)
        box = page.locator("#misfit").bounding_box()
        page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
        page.mouse.down()
        page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 0.2 * box["height"], steps=4)
        page.mouse.up()
        there = agrees(found.y_)
        assert there["x"] > 0.7
        assert there["y"] > 0.7
        page.focus("#misfit")
        page.keyboard.press("ArrowLeft")
        left = agrees(found.y_)
        assert left["x"] < there["x"]
        page.select_option("#how", "beside")
        agrees(found.y_ - found.predict(found.readings_))
        page.evaluate("$('strength').value = 0; $('strength').dispatchEvent(new Event('input'))")
        alone = state()
        rest = found.y_ - found.predict(found.readings_)
        assert_allclose([alone["q"], alone["rms"]], [0, np.sqrt(np.mean(rest**2))], rtol=1e-9)
        page.click("#best")
        page.click("#theme")
        agrees(rest)
        assert "times that of what was found" in page.inner_text("#compared")
        assert page.inner_text("#sources").count("±") == 2 * 3


def test_pages_of_fields_of_other_readings_and_of_space(browser, tmp_path):
    x, y = data(15)
    field = SourceFinder(AIR, [[0, 0], [1, 1]], kind="smooth", width=0.2).fit(x, y)
    where = [Average([0.1, 0.1], [0.3, 0.2]), Flux([0.5, 0.5], 0), *x]
    u = SourceFinder(AIR, width=0.05).simulate(PLACES, STRENGTHS, where)
    other = SourceFinder(AIR, width=0.05, max_sources=2).fit(where, u)
    space = SourceFinder(Transport(3.0), width=0.05, max_sources=1)
    z = np.random.default_rng(0).uniform(0, 1, (20, 3))
    space.fit(z, space.simulate([[0.3, 0.4, 0.6]], [1.0], z))
    for finder in (field, other, space):
        path = finder.report(tmp_path / "page.html")
        with opened(browser, path, viewport={"width": 390, "height": 800}) as page:
            for name in page.eval_on_selector_all(
                "#shown option", "all => all.map((o) => o.value)"
            ):
                page.select_option("#shown", name)
                settle(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390

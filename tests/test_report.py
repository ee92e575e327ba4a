"""The page of a model: what it computes is what Python computes."""

import base64
import json
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss, r2_score

import greenfold.report
from greenfold import Chart, IGLAutoencoder, IGLClassifier, IGLRegressor, Source, Training
from greenfold.datasets import hidden_plane
from greenfold.green import Interval, Point, ScreenedPoisson, operator
from greenfold.report.content import _square
from greenfold.solve import Logistic, Ridge
from tests.nested import nested

from .browser import launch, opened, settle
from .models import QUICK, X, fitted, labels, regressor, rough, y


@cache
def default():
    """The default on rows in which it finds two directions of twenty."""
    X, y, _ = hidden_plane(100, 3, noise=0.1, D=20)
    return IGLRegressor(random_state=0).fit(X, y)


@cache
def digits():
    images, digit = load_digits(return_X_y=True)
    few = np.flatnonzero(digit < 3)[:90]
    return IGLClassifier(random_state=0).fit(images[few], digit[few])


@cache
def pictures():
    """The same rows on a given chart."""
    images, digit = load_digits(return_X_y=True)
    few = np.flatnonzero(digit < 3)[:90]
    return IGLClassifier(**nested(**QUICK)).fit(images[few], digit[few])


@cache
def plain():
    return regressor()


@cache
def on_a_box():
    operator = ScreenedPoisson(1.0, domain=Interval(-4, 4, "neumann"))
    return regressor(operator=operator, chart="pca")


FITTED = ("two_targets", "laplace", "learned_gamma", "free_gamma", "importance", "superposition")
FITTED += (
    "sparse",
    "classes",
    "rows",
    "exponential",
    "anova",
    "anova_smooth",
    "affine",
    "affine_beside_heat",
)  # of `tests/models.py`
NAMES = ("poisson", "screened_poisson", "fractional", "harmonic_oscillator", "cauchy")
LIVE = {
    "default": default,
    "digits": digits,
    **{name: lambda name=name: regressor(operator=name) for name in NAMES},
    **{
        f"{name} free": lambda name=name: regressor(operator=name, anchors="free", n_atoms=12)
        for name in (*NAMES, "matern")
    },
    **{kind: lambda kind=kind: fitted(kind) for kind in FITTED},
}


# as long as the others: kinds of sources with operators that others have, operators scaled below
LONG = {"digits", "sparse", "rows", "anova", "affine"}
LONG |= {f"{name} free" for name in NAMES if name != "screened_poisson"}


@pytest.fixture(scope="module")
def browser():
    driver, started = launch()
    yield started
    started.close()
    driver.stop()


@pytest.fixture
def show(browser, tmp_path):
    """Opens the page of a model."""

    def show(model, *rows, **options):
        wide = {key: options.pop(key) for key in ("viewport", "color_scheme") if key in options}
        return opened(browser, model.report(tmp_path / "report.html", *rows, **options), **wide)

    return show


PAGE = (Path(greenfold.report.__file__).parent / "page.html").read_text()


def told(path):
    """What a page is told."""
    data = re.search(r'application/json">(.*?)</script>', path.read_text(), re.DOTALL)
    return json.loads(data[1])


def unpacked(array):
    kind = next(iter(array))
    return np.frombuffer(base64.b64decode(array[kind]), f"<{kind}").reshape(array["shape"])


# --- in Python


@torch.no_grad()
def u_of(model, xi, gate=None, w=None):
    """The response at points of the chart to the source as it is, (n, c)."""
    igl, xi = model.model_, torch.as_tensor(xi)
    gate = igl.gates() if gate is None else torch.as_tensor(gate)
    Phi = igl.respond(xi, igl.atoms(), gate)
    rho = igl.rho if igl.raw_rho.requires_grad else 1  # source units have it already
    w = igl.source_weights() if w is None else torch.as_tensor(w)
    trend = igl.null()(xi, gate) @ igl.trend()
    return ((Phi / rho) @ w + trend).numpy()


def r2(model, y, u):
    """Of a response in the model's units."""
    return r2_score(y, model.units_.y.outside(u))


@torch.no_grad()
def solved(model, X, Y, gate, solver, at):
    """The response at some rows to a source solved for on others, with this gate."""
    on, there = (model.model_.design(model._inside(x), torch.as_tensor(gate)) for x in (X, at))
    return (there.Phi @ solver.solve(on, torch.as_tensor(Y)).w).numpy()


# --- laws, in the browser


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=pytest.mark.slow) if c in LONG else c for c in LIVE]
)
def test_the_response_in_the_page_is_that_of_python(case, show):
    model = LIVE[case]()
    with show(model) as page:
        assert page.evaluate("greenfold.model.live")
        shown, d = page.evaluate("greenfold.told.rows"), len(model.gates_)
        rows = unpacked(shown["xi"])
        points = np.random.default_rng(0).uniform(rows.min(0), rows.max(0), (200, d))
        closed, half = model.gates_.copy(), 0.4 * model.gates_
        closed[0], half[0] = 0, 0.7
        for gate in (model.gates_, closed, half):
            page.evaluate("g => g.forEach((v, j) => greenfold.setGate(j, v))", gate.tolist())
            u = np.reshape(page.evaluate("x => greenfold.u(x)", points.ravel().tolist()), (200, -1))
            exact = u_of(model, points, gate)
            assert_allclose(u, exact, rtol=0, atol=1e-8 * np.abs(exact).max())
    if case == "default":
        assert_allclose(u_of(model, points), model.model_.decode(torch.from_numpy(points)).detach())


FIELD = """([a, b]) => {
  const { model } = greenfold, n = 9, d = model.d, at = Array(d).fill(0.1);
  const line = Float64Array.from({ length: n }, (_, i) => i / 3 - 1.2);
  const points = [];
  for (const y of line)
    for (const x of line) points.push(...at.map((v, j) => (j === a ? x : j === b ? y : v)));
  const u = greenfold.u(points).filter((_, i) => i % model.c === 0);
  return [Array.from(model.fields(a, b, line, line, at, 0).u), u];
}"""


@pytest.mark.parametrize(
    "case",
    [
        "default",
        "poisson",
        "laplace",
        "anova",
        "matern free",
        *(
            pytest.param(case, marks=pytest.mark.slow)
            for case in ("cauchy", "harmonic_oscillator", "exponential")
        ),
    ],
)
def test_the_field_on_a_plane_is_the_response_at_its_points(case, show):
    model = LIVE[case]()
    with show(model) as page:
        for axes in ([0, 1], [1, 0]):
            field, u = page.evaluate(FIELD, axes)
            assert_allclose(field, u, rtol=0, atol=1e-10 * np.abs(u).max())


def test_a_source_is_solved_for_on_rows_fitted_to_and_scored_on_rows_given(show):
    seen, new, gate = slice(0, 40), slice(40, 60), [0.0, 1.0]
    model = IGLRegressor(**nested(**QUICK, operator="screened_poisson")).fit(X[seen], y[seen])
    with show(model, X[new], y[new]) as page:
        assert page.inner_text("#score") == f"{model.score(X[new], y[new]):.3f}"
        assert page.inner_text("#fit-score").startswith("on the 20 rows given · as fitted")
        page.click("#gates button:nth-child(1)")
        settle(page)
        assert page.get_attribute("#gates button:nth-child(1)", "aria-pressed") == "false"
        kept = r2(model, y[new], u_of(model, model.transform(X[new]), gate))
        assert page.evaluate("greenfold.score()") == pytest.approx(kept, abs=1e-8)
        assert page.inner_text("#score") == f"{kept:.3f}"
        page.click("#solve")
        page.wait_for_selector("#message:has-text('Solved')")
        says = "Solved on the 40 rows fitted to; the score is of the 20 rows given."
        assert page.inner_text("#message") == says
        Y = model.units_.y.inside(y)[:, None]
        solver = Ridge(model.posterior_.alpha, relative=False)
        again = r2(model, y[new], solved(model, X[seen], Y[seen], gate, solver, X[new]))
        assert page.evaluate("greenfold.score()") == pytest.approx(again, abs=1e-6)
        leaked = r2(model, y[new], solved(model, X[new], Y[new], gate, solver, X[new]))
        assert abs(again - kept) > 0.01
        assert leaked > again + 0.05  # what a solve on the rows given would show
        page.click("#reset")
        settle(page)
        assert page.inner_text("#score") == f"{model.score(X[new], y[new]):.3f}"
        assert page.inner_text("#message") == ""


@pytest.mark.slow
def test_a_source_solved_for_with_nothing_changed_is_the_one_fitted(show):
    weighted = IGLRegressor(**nested(**QUICK)).fit(X, y, sample_weight=1 + np.arange(60) % 3)
    kinds = ("two_targets", "importance", "free_gamma", "classes", "rows")
    flipped = (y > 0) ^ (np.arange(60) % 5 == 0)  # no line runs to infinity
    sides = IGLClassifier(**nested(**QUICK, operator="poisson", anchors="free")).fit(X, flipped)
    trends = [LIVE["poisson"](), LIVE["fractional free"](), sides]
    for model in (default(), weighted, *trends, *map(fitted, kinds)):
        some = model is weighted or hasattr(model, "classes_")  # else those fitted to are shown
        with show(model, *([model.sample_[0][:7]] if some else [])) as page:
            before = page.evaluate("Array.from(greenfold.model.u)")
            page.evaluate("greenfold.resolve()")
            assert page.inner_text("#message").startswith("Solved on the")
            after = page.evaluate("Array.from(greenfold.model.u)")
            assert_allclose(after, before, atol=1e-6 * np.ptp(before))


def test_of_many_rows_the_page_solves_on_those_it_holds_and_says_so(show):
    rng = np.random.default_rng(0)
    many = rng.normal(size=(2600, 3))
    model = IGLRegressor(**nested(**QUICK)).fit(
        many, np.sin(many[:, 0]) + 0.1 * rng.normal(size=2600)
    )
    with show(model, many[:50], np.sin(many[:50, 0])) as page:
        page.evaluate("greenfold.resolve()")
        assert "Solved on 2000 of the 2600 rows fitted to; the score is" in page.inner_text(
            "#message"
        )
        assert "not quite that of the fit" in page.inner_text("#message")
        assert page.evaluate("greenfold.score()") == pytest.approx(
            page.evaluate("greenfold.model.fitScore"), abs=0.01
        )


@cache
def long_to_solve():
    """A model whose source takes seconds to solve for in the page."""
    rng = np.random.default_rng(0)
    many = rng.normal(size=(1500, 3))
    options = {**QUICK, "n_atoms": 700, "max_iter": 1, "alpha": 1e-3}
    return IGLRegressor(**nested(**options)).fit(many, np.sin(many[:, 0]))


ANSWERS = """async () => {
  const bar = document.getElementById("progress"), gaps = [], shares = [];
  let last = performance.now(), running = true;
  const look = () => {
    if (!running) return;
    const now = performance.now();
    gaps.push(now - last);
    if (!bar.hidden) shares.push(bar.value);
    last = now;
    setTimeout(look, 5);
  };
  look();
  const promise = greenfold.resolve().then(() => { running = false; });
  const label = document.getElementById("solve").textContent;
  await promise;
  return { gaps, shares, label, hidden: bar.hidden };
}"""


@pytest.mark.slow
def test_the_page_answers_while_it_solves_and_shows_how_far_it_is(show):
    with show(long_to_solve()) as page:
        seen = page.evaluate(ANSWERS)
        assert len(seen["gaps"]) > 20
        assert np.median(seen["gaps"]) < 200  # ms
        assert max(seen["gaps"]) < 0.5 * sum(seen["gaps"])  # not one long silence
        assert seen["label"] == "Cancel"
        assert seen["hidden"]
        assert np.all(np.diff(seen["shares"]) >= 0)
        assert len(set(seen["shares"])) > 5
        assert seen["shares"][-1] > 0.5


def test_a_solve_can_be_canceled_and_a_change_cancels_it(show):
    with show(long_to_solve()) as page:
        before = page.evaluate("Array.from(greenfold.model.now.w)")
        page.click("#solve")
        page.wait_for_selector("#progress")
        page.click("#solve:has-text('Cancel')")
        assert page.inner_text("#message") == "The solve was canceled."
        assert page.inner_text("#solve") == "Re-solve the source"
        page.click("#solve")
        page.click("#gates button:nth-child(1)")
        settle(page)
        assert page.inner_text("#message") == "The solve was canceled."
        assert page.is_hidden("#progress")
        assert page.evaluate("Array.from(greenfold.model.now.w)") == before


BESIDE = """async () => {
  const { model } = greenfold, d = model.d, at = Array(d).fill(0.1);
  const line = Float64Array.from({ length: 100 }, (_, i) => i / 40 - 1.2);
  const far = (u, v) => Math.max(...u.map((x, i) => Math.abs(x - v[i])));
  const waiting = () => "waiting" in document.documentElement.dataset;
  const field = () => model.fields(0, 1, line, line, at, 0).u;
  const before = Array.from(model.u);
  greenfold.setScale(1.5);
  const asked = waiting(), first = field();
  await greenfold.settled();
  const points = [];
  for (const y of line)
    for (const x of line) points.push(...at.map((v, j) => (j === 0 ? x : j === 1 ? y : v)));
  const rows = greenfold.u(Array.from(model.xi)), plane = greenfold.u(points);
  field();
  await greenfold.settled();
  return {
    asked, first: first === null, moved: far(before, rows), waiting: waiting(),
    rows: far(Array.from(model.u), rows), plane: far(Array.from(field()), plane),
  };
}"""


@pytest.mark.parametrize("worker", ["there", "none"])
def test_what_takes_longer_than_a_frame_is_computed_beside_the_page(worker, show):
    """In a worker, or in the page where none can be started; the numbers are those of the page."""
    with show(long_to_solve()) as page:
        page.evaluate("greenfold.settled()")
        if worker == "none":
            page.evaluate("window.Worker = undefined")
        seen = page.evaluate(BESIDE)
    assert seen["moved"] > 0.1
    assert seen["rows"] < 1e-10
    assert seen["plane"] < 1e-10
    assert not seen["waiting"]
    if worker == "there":
        assert seen["asked"]
        assert seen["first"]  # there is no such field yet


def test_without_the_rows_fitted_to_nothing_is_solved_for_and_the_page_says_why(show, tmp_path):
    greenfold.save(plain(), tmp_path / "m.greenfold")
    model = greenfold.load(tmp_path / "m.greenfold")
    for rows in ((), (X,), (X, y)):
        with show(model, *rows) as page:
            assert page.is_disabled("#solve")
            assert "Re-solving is off: the model came from a file" in page.inner_text("#live-note")


def test_classes_score_as_in_python_also_after_solving(show):
    model = IGLClassifier(chart="linear", random_state=0, training=Training(max_iter=3)).fit(
        X, labels
    )
    onehot = (labels[:, None] == model.classes_).astype(float)
    gate = [1.0, 0.0]
    with show(model, X, labels) as page:
        assert page.evaluate("greenfold.score()") == pytest.approx(model.score(X, labels))
        loss = log_loss(labels, model.predict_proba(X))
        assert page.evaluate("greenfold.model.logLoss()") == pytest.approx(loss, rel=1e-8)
        page.evaluate("greenfold.setGate(1, 0)")
        page.evaluate("greenfold.resolve()")
        alpha = model.alpha_ * float(model.model_.unit())
        u = torch.from_numpy(solved(model, X, onehot, gate, Logistic(alpha, relative=False), X))
        again = log_loss(labels, u.softmax(1).numpy())
        assert page.evaluate("greenfold.model.logLoss()") == pytest.approx(again, rel=1e-5)


@pytest.mark.parametrize("name", ["screened_poisson", "exponential", "anova"])
def test_the_operator_scaled_in_the_page_is_that_operator(name, show):
    model = regressor(operator=name)
    with show(model) as page:
        page.fill("#scale", "50")
        settle(page)
        factor = page.evaluate("greenfold.model.now.factor")
        assert factor == pytest.approx(2.0)
        points = np.random.default_rng(0).normal(size=(50, 2))
        u = page.evaluate("x => greenfold.u(x)", points.ravel().tolist())
    igl = model.model_
    with torch.no_grad():
        scaled = operator(name, kappa=factor)
        Phi = scaled.response(torch.from_numpy(points), igl.atoms())
        exact = (Phi @ igl.source_weights() + igl.w[-1])[:, 0].numpy()
    assert_allclose(u, exact, rtol=0, atol=1e-10 * np.abs(exact).max())


def test_a_strength_changed_in_the_page_changes_the_score_as_in_python(show):
    model = plain()
    w = model.source_.copy()
    w[4] += 0.3 * 2 * np.abs(w).max()
    with show(model, X, y) as page:
        page.fill("#which", "5")
        page.press("#which", "Enter")
        page.fill("#strength", "30")
        settle(page)
        expected = r2(model, y, u_of(model, model.transform(X), w=w))
        assert page.evaluate("greenfold.score()") == pytest.approx(expected, abs=1e-8)


def test_a_point_source_can_be_dragged_and_its_response_is_the_operators(show):
    model = fitted("laplace")
    with show(model, X, y) as page:
        page.locator("#g").scroll_into_view_if_needed()
        box = page.locator("#g").bounding_box()
        picture = "document.getElementById('g').toDataURL()"
        before = page.evaluate(picture)
        page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
        page.mouse.down()
        page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"], steps=3)
        page.mouse.up()
        settle(page)
        assert page.evaluate(picture) != before
        place = page.evaluate("greenfold.model.now.probe.at")
        unchanged = page.evaluate("greenfold.score()")
        points = np.random.default_rng(1).normal(size=(20, 2))
        plain = np.array(page.evaluate("x => greenfold.u(x)", points.ravel().tolist()))
        page.fill("#height", "50")  # now it is added: 1.5 at its own place
        settle(page)
        added = np.array(page.evaluate("x => greenfold.u(x)", points.ravel().tolist())) - plain
        source = Point(torch.tensor([place], dtype=torch.float64))
        with torch.no_grad():
            G = model.model_.operator.response(torch.from_numpy(np.vstack([points, place])), source)
        assert_allclose(added, 1.5 * (G[:-1] / G[-1])[:, 0].numpy(), atol=1e-12)
        assert page.evaluate("greenfold.score()") < unchanged - 0.01
        page.focus("#g")
        page.press("#g", "ArrowRight")
        settle(page)
        moved = page.evaluate("greenfold.model.now.probe.at")
        assert moved[0] > place[0]
        assert moved[1] == pytest.approx(place[1])


def test_the_story_is_of_the_model_in_use_and_its_rivals(show):
    model = default()
    with show(model) as page:
        rows = page.eval_on_selector_all("#candidates li", "v => v.map((e) => e.textContent)")
        known = [s for s in model.standings_ if np.isfinite(s.score)]
        assert len(rows) == min(12, len(known))
        assert rows[0].startswith(f"{known[0].name}, d = {known[0].n_dims}")
        assert page.locator("#candidates .used").count() == 1
        assert "the one in use comes first" in page.inner_text("#loss-cap")


@pytest.mark.parametrize("kind", ["curve", "image", "bars"])
def test_the_page_shows_what_coordinates_explain_and_are_made_of(kind, show):
    model = default()
    D = model.n_features_in_
    options = {
        "curve": {"names": [f"{850 + 2 * j} nm" for j in range(D)]},
        "image": {"image_shape": (4, D // 4)},
        "bars": {},
    }[kind]
    inked = """id => {
      const canvas = document.getElementById(id), {width, height} = canvas;
      const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
      return [width, height, new Set(new Uint32Array(pixels.buffer)).size];
    }"""
    order = np.argsort(-model.explained_, kind="stable")
    with show(model, **options) as page:
        captions = page.eval_on_selector_all(
            "#loadings figcaption", "v => v.map((e) => e.textContent)"
        )
        assert [text.split("explains ")[1] for text in captions] == [
            f"{v:.3f} of R²" for v in model.explained_[order[:6]]
        ]
        if kind == "bars":
            sizes = model.loadings_ * model.units_.x.outside(model.model_.sources.x.numpy()).std(0)
            best = int(np.abs(sizes[order[0]]).argmax())
            assert page.inner_text("#loadings li").startswith(f"x{best}")
            return
        width, height, colors = page.evaluate(inked, f"loading-{order[0]}")
        assert colors > 3
        if kind == "image":
            assert (height, width) == (4, D // 4)


def test_the_page_draws_what_columns_do(show):
    model = regressor(chart="axis", operator="anova", n_dims=None)
    names = ["north", "east", "up", "time"]
    found = model.effects_.named(names)
    drawn = """() => [...document.querySelectorAll("#effect-figures canvas")].map((canvas) => {
      const {width, height} = canvas, ctx = canvas.getContext("2d");
      return new Set(new Uint32Array(ctx.getImageData(0, 0, width, height).data.buffer)).size;
    })"""
    with show(model, names=names) as page:
        rows = page.eval_on_selector_all("#shares li", "v => v.map((e) => e.textContent)")
        titles = page.eval_on_selector_all("#effect-figures b", "v => v.map((e) => e.textContent)")
        colors = page.evaluate(drawn)
    first = f"{' × '.join(found[0].columns)}{100 * found[0].share:.1f}%"
    assert rows[0] == first
    assert rows[-1] == f"everything else{100 * found.rest:.1f}%"
    assert titles == [" × ".join(e.columns) for e in found[: len(titles)]]
    assert any("×" in title for title in titles)
    assert min(colors) > 3
    with show(plain()) as page:  # a chart that mixes columns
        assert page.is_hidden("#effects")


def test_everything_can_be_reached_and_has_a_name(show):
    nameless = """[...document.querySelectorAll("button, select, input, canvas")]
      .filter((e) => !(e.labels?.length || e.getAttribute("aria-label") || e.textContent.trim()))
      .map((e) => e.id)"""
    with show(default()) as page:
        assert page.evaluate(nameless) == []
        reached = set()
        for _ in range(40):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.id"))
        assert {"theme", "solve", "chart", "u", "f", "g", "a", "scale", "which", "scrub"} <= reached
        page.focus("#chart")
        page.press("#chart", "ArrowRight")
        settle(page)
        assert page.is_visible("#tip")
        assert "predicted" in page.inner_text("#tip")


def test_the_first_reader_is_told_what_the_words_mean(show):
    with show(default()) as page:
        words = page.eval_on_selector_all(
            "#words div", "v => v.map((e) => e.innerText.split(/\\n/))"
        )
    assert [name for name, _ in words] == ["Chart", "Source", "Response", "Gate"]
    assert all(1 <= text.count(".") <= 2 for _, text in words)


def test_a_closed_gate_shows_the_score_before_and_after_solving_again(show):
    """As fitted, with the strengths left alone, solved again; and nothing is kept of the trial."""
    model = default()
    with show(model) as page:
        fitted, now, kept = page.evaluate(
            "() => { greenfold.setGate(1, 0); const { now } = greenfold.model; "
            "return [greenfold.model.fitScore, greenfold.score(), [...now.w]]; }"
        )
        page.locator("#gate-score", has_text="solved again").wait_for()
        told = page.inner_text("#gate-score")
        assert page.evaluate("[...greenfold.model.now.w]") == kept
        assert page.evaluate("greenfold.score()") == now
        page.evaluate("greenfold.resolve()")
        again = page.evaluate("greenfold.score()")
        numbers = [float(v) for v in re.findall(r"-?\d+\.?\d*", told.split("R²")[1])]
        assert numbers == pytest.approx([fitted, now, again], abs=6e-4, rel=6e-3)
        assert now < again < fitted
        page.evaluate("greenfold.reset()")
        settle(page)
        assert page.inner_text("#gate-score") == ""


def test_solving_again_is_possible_while_a_gate_is_judged(show):
    """The button takes the place of the trial, it does not end it."""
    with show(default()) as page:
        page.evaluate(
            "() => { greenfold.setGate(1, 0); document.getElementById('solve').click(); }"
        )
        page.locator("#message", has_text="Solved on").wait_for()


def test_bars_start_at_zero_and_go_both_ways(show):
    boxes = """[...document.querySelectorAll("#loadings li")].map((row) => {
      const bar = row.querySelector("i").getBoundingClientRect(), own = row.getBoundingClientRect();
      const zero = own.left + own.width / 2, value = Number(row.querySelector("output").textContent);
      return [value, bar.left - zero, bar.right - zero];
    })"""
    with show(default()) as page:
        rows = page.evaluate(boxes)
    assert {value > 0 for value, _, _ in rows} == {True, False}
    for value, left, right in rows:
        start, end = (left, right) if value > 0 else (right, left)
        assert start == pytest.approx(0, abs=1)
        assert end * value > 0


def test_dragging_computes_the_field_of_the_sources_once(show):
    """While the point source moves only its own response is new, whatever the number of sources."""
    count = """() => {
      const { plane } = Green, { probe } = greenfold.model.now;
      const sizes = [];
      Green.plane = (kernel, ...rest) => { sizes.push(kernel.p); return plane(kernel, ...rest); };
      return new Promise((done) => {
        greenfold.moveProbe(probe.at[0] + 0.1, probe.at[1]);
        requestAnimationFrame(() => setTimeout(() => { Green.plane = plane; done(sizes); }, 50));
      });
    }"""
    with show(default()) as page:
        sizes = page.evaluate(count)
        own = page.evaluate("greenfold.model.now.w.length")
    assert sizes
    assert max(sizes) < own


def test_square_pictures_are_seen(tmp_path):
    images, _ = load_digits(return_X_y=True)
    model = pictures()
    assert told(model.report(tmp_path / "a.html"))["rows"]["images"]["shape"] == [8, 8]
    assert "images" not in told(model.report(tmp_path / "b.html", image_shape=False))["rows"]
    mixed = np.random.default_rng(0).permutation(64)
    assert _square(images[:100]) == (8, 8)
    assert _square(images[:100][:, mixed]) is None
    waves = np.cumsum(np.random.default_rng(0).normal(size=(50, 100)), axis=1)  # channels
    assert _square(waves) is None


def test_on_a_phone_controls_stand_beside_what_they_change(show):
    """From top to bottom: the chart, its view and gates, the response with operator and point source."""
    phone = {"viewport": {"width": 360, "height": 760}}
    names = ["#chart", "#a", "#gates", "#u", "#scale", "#height", "#g", "#f", "#strength"]
    with show(default(), **phone) as page:
        tops = [page.locator(name).bounding_box()["y"] for name in names]
    assert tops == sorted(tops)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_theme_and_a_phone(scheme, show):
    phone = {"viewport": {"width": 360, "height": 760}, "color_scheme": scheme}
    with show(pictures(), image_shape=(8, 8), **phone) as page:
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.click("#theme")
        assert page.evaluate("document.documentElement.dataset.theme") != scheme
        page.evaluate("document.getElementById('chart').focus()")
        page.press("#chart", "ArrowDown")
        assert page.locator("#tip canvas").count() == 1  # the image


@pytest.mark.slow
def test_all_that_can_be_chosen_is_drawn_without_errors(show):
    for model in (digits(), fitted("two_targets"), on_a_box()):
        with show(model) as page:
            for menu in ("color", "a", "b", "output", "at", "level"):
                if page.is_visible(f"#{menu}"):
                    options = page.eval_on_selector_all(
                        f"#{menu} option", "v => v.map(o => o.value)"
                    )
                    for value in options[:3]:
                        page.select_option(f"#{menu}", value)
                        settle(page)
            page.fill("#scrub", "0")


def test_what_the_page_cannot_compute_it_shows_and_says_so(show):
    model = on_a_box()
    with show(model, X, y) as page:
        assert "an operator on a box is not evaluated" in page.inner_text("#live-note")
        assert page.is_disabled("#solve")
        assert page.evaluate("document.querySelector('.edits').disabled")
        assert page.inner_text("#score") == f"{model.score(X, y):.3f}"
        field = page.evaluate("greenfold.told.model.fields[0]")
    xi = model.transform(X)
    u = unpacked(field["u"])[:, 0].reshape(72, 72)
    corner = xi.min(0) - 0.08 * np.ptp(xi, axis=0)
    assert u[0, 0] == pytest.approx(
        model.model_.decode(torch.from_numpy(corner[None])).item(), abs=1e-6
    )


HOSTILE = [
    "<!--<script>",
    "</script><script>window.broken = 1</script>",
    "<img src=x onerror='window.broken = 1'>",
    "\u2028\u2029 \ud800 \x00 ]]> /*data*/ &lt; \"'`${1}\\",
]


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_names_from_the_data_are_shown_and_nothing_else(task, show):
    model = plain() if task == "regression" else fitted_to_hostile_classes()
    with show(model, names=HOSTILE) as page:
        assert page.evaluate("greenfold.told.rows.features") == HOSTILE
        assert not page.evaluate("'broken' in window")
        assert page.locator("script, img").count() == len(re.findall("<script", PAGE))
        page.focus("#chart")
        page.press("#chart", "ArrowRight")
        settle(page)
        if task == "regression":
            shown = page.eval_on_selector_all("#tip dt", "v => v.map((e) => e.textContent)")
            assert shown[-4:] == HOSTILE
        else:
            shown = page.eval_on_selector_all(".class", "v => v.map((e) => e.textContent)")
            assert shown == [f"● {name}" for name in sorted(HOSTILE[:3])]


def fitted_to_hostile_classes():
    classes = np.array(HOSTILE[:3])[np.arange(60) % 3]
    return IGLClassifier(
        chart="linear", random_state=0, source=Source(n_atoms=20), training=Training(max_iter=1)
    ).fit(X, classes)


def test_a_stack_is_shown_by_its_heaviest_chart_and_the_page_says_so(show, tmp_path):
    stack = fitted("rough_stack")
    assert len(stack.weights_) > 1
    heavy, share = max(stack.weights_.items(), key=lambda item: item[1])
    igl, rows = stack.models_[heavy], torch.from_numpy(stack._inside(X).numpy())
    with show(stack, X, rough) as page:
        u = igl(rows).detach().numpy()
        assert_allclose(page.evaluate("Array.from(greenfold.model.u)"), u[:, 0], atol=1e-8)
        score = f"{r2(stack, rough, u):.3f}"
        assert page.inner_text("#score") == score
        note = page.inner_text("#live-note")
        assert f"averages {len(stack.weights_)} charts" in note
        assert f"weighs most, {100 * share:.0f}%" in note
        assert f"All together have R² {stack.score(X, rough):.3f} on the same rows" in note
        assert page.inner_text("#facts").startswith("IGLStack")
        used = page.eval_on_selector_all("#candidates li", "v => v.map((e) => e.className)")
        assert used[: len(stack.weights_)] == ["used"] * len(stack.weights_)
        assert f", weighs {100 * share:.0f}%" in page.inner_text("#candidates li:first-child")
        assert "effort='normal'" in page.inner_text("#provenance")
        page.evaluate("greenfold.resolve()")
        assert page.inner_text("#score") == score  # nothing was changed
    greenfold.save(stack, tmp_path / "m.greenfold")
    page = told(greenfold.load(tmp_path / "m.greenfold").report(tmp_path / "report.html"))
    assert page["rows"]["kind"] == "anchors"


# --- without a browser


class Tags(HTMLParser):
    """Tags that are open, and where the page would load something from."""

    VOID = ("meta", "link", "input", "br")

    def __init__(self):
        super().__init__()
        self.open, self.loads, self.ids = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        self.ids += [value for name, value in attributes if name == "id"]
        self.loads += [
            v for k, v in attributes if k in ("src", "href") and not v.startswith(("#", "data:"))
        ]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_one_whole_file_that_loads_nothing(tmp_path):
    path = default().report(tmp_path / "report.html")
    text, tags = path.read_text(), Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.loads == []
    assert len(tags.ids) == len(set(tags.ids))
    assert set(re.findall(r'\$\("([\w-]+)"\)', text)) <= set(tags.ids)
    assert "default-src 'none'" in text
    assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttpRequest", text)


def test_the_page_is_told_what_the_model_is(tmp_path):
    model = default()
    page = told(model.report(tmp_path / "report.html"))
    rows, _, _ = model.sample_
    assert_allclose(unpacked(page["rows"]["xi"]), model.transform(rows))
    assert_allclose(unpacked(page["model"]["w"]), model.source_)
    assert page["provenance"]["data"] == f"SHA-256 {model.data_sha256_}"
    assert page["provenance"]["seed"] == "0"
    assert page["history"]["candidates"][0]["name"] == model.standings_[0].name
    half = page["intervals"]["quantile"][3][0] * unpacked(page["intervals"]["unit"])[:, 0]
    low, high = model.predict_interval(rows, alpha=0.05)
    assert_allclose(high - low, 2 * half * page["outputs"]["scale"][0], rtol=1e-6)


def test_the_hash_is_that_of_the_rows_in_any_order():
    first, second = (
        plain(),
        IGLRegressor(chart="linear", training=Training(max_iter=1)).fit(X[::-1], y[::-1]),
    )
    other = IGLRegressor(chart="linear", training=Training(max_iter=1)).fit(X, y + 1e-9)
    assert first.data_sha256_ == second.data_sha256_ != other.data_sha256_


def test_training_is_filmed_evenly():
    model = IGLRegressor(
        chart=Chart("mlp", gates="learned"), random_state=0, training=Training(max_iter=60)
    ).fit(X, y)
    film = model.history_.film
    assert 12 <= len(film.steps) <= film.MOST
    assert len(set(np.diff(film.steps))) == 1
    assert film.frames[0].shape == (60, 2)
    first, last = (
        np.square(film.frames[i] - model.transform(model.sample_[0])).mean() for i in (0, -1)
    )
    assert last < 0.1 * first


def test_a_large_page_stays_below_five_megabytes(tmp_path):
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(1300, 400))
    model = IGLRegressor(
        chart="linear",
        n_dims=100,
        source=Source(n_atoms=400, alpha=1e-3),
        training=Training(max_iter=1),
    )
    path = model.fit(wide, wide[:, :2]).report(tmp_path / "report.html", image_shape=(20, 20))
    assert 1.5e6 < path.stat().st_size < 5e6
    page = told(path)
    assert (page["rows"]["known"], page["rows"]["shown"]) == (1300, 1153)
    path = model.report(path, wide, wide[:, :2], image_shape=(20, 20))
    assert path.stat().st_size < 6e6
    assert told(path)["fitted"]["n"] == 1153


def test_rows_that_came_later_count_among_those_fitted_to(tmp_path):
    for model, target in (
        (IGLRegressor(**nested(**QUICK)), y),
        (IGLClassifier(**nested(**QUICK, loss="least_squares")), labels),
    ):
        model.fit(X[:30], target[:30]).partial_fit(X[30:], target[30:])
        fitted = told(model.report(tmp_path / "report.html"))["fitted"]
        assert (fitted["n"], fitted["known"], fitted["share"]) == (30, 60, 0.5)


def test_a_model_from_a_file_shows_its_anchors_or_the_rows_given(tmp_path):
    greenfold.save(plain(), tmp_path / "m.greenfold")
    model = greenfold.load(tmp_path / "m.greenfold")
    assert not hasattr(model, "sample_")
    alone = told(model.report(tmp_path / "a.html"))
    assert alone["rows"]["kind"] == "anchors"
    assert alone["rows"]["shown"] == 20
    assert alone["rows"]["y"] is None
    given = told(model.report(tmp_path / "b.html", X, y))
    assert_allclose(unpacked(given["rows"]["y"])[:, 0] * y.std() + y.mean(), y)
    assert given["provenance"]["data"] == f"SHA-256 {model.data_sha256_}"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda path: greenfold.IGLStack().report(path), "IGLStack instance is not fitted yet"),
        (lambda path: greenfold.report.write(X, path), "ndarray has no such chart. Fit"),
        (lambda path: plain().report(path, y=y), "without `X`"),
        (lambda path: plain().report(path, X, y[:5]), "X has 60 rows and y has 5"),
        (lambda path: plain().report(path, X, np.c_[y, y]), "1 for each row, as in the fit; got 2"),
        (lambda path: plain().report(path, X, y * np.nan), "60 are missing or infinite"),
        (lambda path: plain().report(path, image_shape=(3, 3)), "with 4 pixels"),
        (lambda path: plain().report(path, image_shape=(0, 4)), "with 4 pixels"),
        (lambda path: plain().report(path, names=["a"]), "1 names for 4 columns"),
        (lambda path: fitted("classes").report(path, X, ["none"] * 60), "not fitted to: none"),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_said(call, words, tmp_path):
    with pytest.raises(ValueError, match=re.escape(words)):
        call(tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_an_autoencoder_is_shown_by_what_it_rebuilds_that_varies_most_first(tmp_path):
    pixels = np.hstack([np.zeros((60, 1)), X, np.full((60, 1), 3.0)]) * [1, 1, 1, 9, 1, 1]
    model = IGLAutoencoder(
        2, chart=Chart("pca", start="pca"), random_state=0, training=Training(max_iter=3)
    ).fit(pixels)
    for rows in ((), (pixels[:30],), (pixels[:30], labels[:30])):  # y is ignored, as in `fit`
        page = told(model.report(tmp_path / "report.html", *rows))
        assert page["outputs"]["names"] == [f"x{j}" for j in range(6)]
        assert page["outputs"]["first"] == 3
        shown = rows[0] if rows else model.sample_[0]
        assert_allclose(unpacked(page["rows"]["y"]), model._inside(shown).numpy())


def test_of_many_columns_those_that_vary_most_are_shown_and_of_classes_all(tmp_path, show):
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(60, 130)) * np.where(np.arange(130) < 110, 1, 5)
    model = IGLAutoencoder(
        2, chart=Chart("pca", start="pca"), random_state=0, training=Training(max_iter=1)
    ).fit(wide)
    page = told(model.report(tmp_path / "report.html"))
    assert page["outputs"]["known"] == 130
    assert len(page["outputs"]["names"]) == 100
    assert set(page["outputs"]["names"]) >= {f"x{j}" for j in range(110, 130)}
    classes = np.arange(60) % 30
    many = IGLClassifier(
        chart="pca", random_state=0, source=Source(n_atoms=20), training=Training(max_iter=1)
    ).fit(X, classes)
    with show(many, X, classes) as page:
        assert page.evaluate("greenfold.score()") == pytest.approx(many.score(X, classes))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tables_are_called_by_their_names_without_a_warning(library, tmp_path):
    frames = pytest.importorskip(library)
    columns = {name: X[:, j] for j, name in enumerate("abcd")}
    table, series = frames.DataFrame(columns), frames.Series(y).rename("size")
    path = tmp_path / "report.html"
    model = IGLRegressor(**nested(**QUICK)).fit(table, series)
    for rows in ((), (table, series), (table, y)):
        page = told(model.report(path, *rows))
        assert page["title"] == "size from 4 columns"
        assert page["outputs"]["names"] == ["size"]
        assert page["rows"]["features"] == list("abcd")
    assert (
        told(IGLRegressor(**nested(**QUICK)).fit(X, y).report(path, X, series))["title"][:4]
        == "size"
    )
    assert (
        told(IGLRegressor(**nested(**QUICK)).fit(X, y).report(path))["title"] == "y from 4 columns"
    )
    classifier = IGLClassifier(**nested(**QUICK)).fit(table, frames.Series(labels).rename("kind"))
    assert told(classifier.report(path))["title"] == "kind from 4 columns"
    two = frames.DataFrame({"left": y, "right": -y})
    page = told(IGLRegressor(**nested(**QUICK)).fit(table, two).report(path))
    assert (page["title"], page["outputs"]["names"]) == (
        "left, right from 4 columns",
        ["left", "right"],
    )
    told(
        IGLAutoencoder(2, chart=Chart("pca", start="pca"), training=Training(max_iter=1))
        .fit(table)
        .report(path)
    )
    one, other = IGLRegressor(**nested(**QUICK)).fit_tasks([(table, series), (table, two)])
    assert told(one.report(path))["outputs"]["names"] == ["size"]
    assert told(other.report(path))["outputs"]["names"] == ["left", "right"]
    assert told(one.refit_source(table, two).report(path))["title"][:4] == "left"
    file = tmp_path / "m.greenfold"
    greenfold.save(model, file)
    assert told(greenfold.load(file).report(path))["title"] == "size from 4 columns"

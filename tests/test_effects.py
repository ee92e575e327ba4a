"""Effects of columns and pairs: against sums over every row that columns could make, and samples."""

import re
from functools import cache, reduce
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_friedman1

from greenfold import IGL, IGLClassifier, IGLRegressor, IGLStackClassifier, Tied, load, plot, save
from greenfold.chart import AxisScales, Linear, Warp
from greenfold.cli.about import about
from greenfold.green import (
    Affine,
    Anova,
    Cauchy,
    Exponential,
    Heat,
    Interval,
    Matern,
    Point,
    Poisson,
    ProductScreened,
    ScreenedPoisson,
    Superposition,
)
from greenfold.green.base import NoForm
from greenfold.learn.decomposed import Told, effects_of
from greenfold.learn.effects import label
from greenfold.learn.marginals import Marginals, binned
from greenfold.learn.posterior import Posterior
from greenfold.learn.predictor import Member, Predictor
from greenfold.learn.units import Scaling, Units
from greenfold.report.effects import told
from greenfold.solve import Ridge
from tests.nested import nested

from .cases import OPERATORS, positions
from .models import regressor

f64 = torch.float64
LEVELS = (5, 4, 6)  # values of three columns
MODELS = {
    "anova": lambda: Anova([0.7, 0.4, 0.9], 1.3),
    "anova_smooth": lambda: Anova(0.6, [1.5, 0.5, 1.0], order=2),
    "product": lambda: ProductScreened([1.0, 0.5, 2.0]),
    "heat": lambda: Heat(0.4),
    "matern": lambda: Matern(1.5, 2.0),
    "cauchy": lambda: Cauchy(1.2),
    "exponential": lambda: Exponential(0.8),
    "lines": lambda: Superposition([Anova(0.5), Affine(0.7, level=0.3)], [1.0, 0.4]),
    "some_axes": lambda: Superposition([Heat(0.5), Cauchy(1.0)], axes=[[0, 2], None]),
    "null_space": Poisson,
}  # fmt: skip


def rows(n=40, seed=0):
    """Columns of a few values, and not independent of each other."""
    rng = np.random.default_rng(seed)
    at = rng.random((n, 1)) * 0.6 + 0.4 * rng.random((n, 3))
    return np.floor(at * LEVELS) / 2 - 0.7


def model_of(operator, encoder=None, x=None, c=1, sources=12, **options):
    x = torch.from_numpy(rows() if x is None else x)
    encoder = (
        AxisScales(x.shape[1], torch.linspace(0.5, 1.0, x.shape[1])) if encoder is None else encoder
    )
    d = encoder(x).shape[1]
    model = IGL(encoder, operator, Tied(x[:sources]), n_dims=d, energy=True, **options).eval()
    p = model.design(x).Phi.shape[1]
    model.w = torch.randn(p, c, dtype=f64, generator=torch.Generator().manual_seed(3))
    return model


def effects(*members, x=None, c=1, names=("a", "b", "c")):
    x = rows() if x is None else x
    units = Units(Scaling(2.0, np.full(x.shape[1], 0.5), np.full(x.shape[1], 3.0)), Scaling.none(c))
    told = Told(2 * np.eye(c), np.full(c, 10.0), ["" for _ in range(c)])
    found = effects_of(Predictor(units, members), Marginals.of(x), names, told)
    return found[0] if c == 1 else found


@torch.no_grad()
def enumerated(f, levels, weights):
    """Mean, effects and variances of f over all combinations of levels [(q, b)], by summing them."""
    B, shape = len(levels), [len(v) for v in levels]
    at = np.indices(shape).reshape(B, -1)
    x = np.hstack([levels[b][at[b]] for b in range(B)])
    u = f(torch.from_numpy(x)).numpy()[:, 0].reshape(shape)
    p = reduce(np.multiply.outer, weights)

    def kept(which, values):
        for b in reversed(range(B)):
            if b not in which:
                values = np.moveaxis(values, b, -1) @ weights[b]
        return values

    mean = kept((), u)
    mains = [kept((b,), u) - mean for b in range(B)]
    pairs = {
        (a, b): kept((a, b), u) - mean - mains[a][:, None] - mains[b]
        for a, b in combinations(range(B), 2)
    }
    return mean, mains, pairs, float((p * (u - mean) ** 2).sum())


def check(found, mean, mains, pairs, variance, names="abc", atol=1e-9):
    assert found.mean == pytest.approx(10 + 2 * mean, abs=atol)
    assert found.deviation == pytest.approx(2 * variance**0.5, rel=0.01)
    for b, values in enumerate(mains):
        assert_allclose(found[names[b]].values, 2 * values, atol=atol)
    for (a, b), values in pairs.items():
        share = sum_of_squares(values, found, names[a], names[b]) / variance
        if share > 2e-3:
            one = found[names[a], names[b]]
            order = one.columns == (names[a], names[b])
            assert_allclose(one.values if order else one.values.T, 2 * values, atol=atol)
            assert one.share == pytest.approx(share, rel=0.02)


def sum_of_squares(values, found, a, b):
    return float(found[a].weight[0] @ values**2 @ found[b].weight[0])


def levels_of(x):
    found = [np.unique(v, return_counts=True) for v in x.T]
    return [v[:, None] for v, _ in found], [count / len(x) for _, count in found]


@pytest.mark.parametrize("name", MODELS)
def test_effects_are_those_of_all_rows_that_columns_could_make(name):
    model = model_of(MODELS[name]())
    levels, weights = levels_of(rows())
    close = {"cauchy": 1e-6, "some_axes": 1e-6, "exponential": 2e-3}.get(name, 1e-9)
    check(effects(Member(1.0, model)), *enumerated(model, levels, weights), atol=close)


@pytest.mark.parametrize("gate", [[1.0, 0.0, 1.0], [0.5, 1.0, 0.3]])
def test_gates_and_bent_columns_have_effects(gate):
    warp = Warp(3)
    torch.nn.init.normal_(warp.amplitude, generator=torch.Generator().manual_seed(0))
    model = model_of(Anova(0.6, order=2), torch.nn.Sequential(AxisScales(3, 0.7), warp))
    model.gates.value.data = torch.tensor(gate, dtype=f64)
    check(effects(Member(1.0, model)), *enumerated(model, *levels_of(rows())))


@pytest.mark.parametrize(
    "operator", [Affine(0.8), Superposition([Heat(0.5), Affine(0.8)], axes=[[0], [1]])]
)
def test_what_is_linear_may_mix_columns(operator):
    """One coordinate is the first column, the other made of all.

    With more sources than such a kernel has columns, strengths of 1e7 would leave no digits to compare.
    """
    turned = Linear(3, 2, torch.tensor([[0.9, 0.0, 0.0], [0.3, -0.5, 0.4]], dtype=f64))
    model = model_of(operator, turned, sources=5)
    found = effects(Member(1.0, model))
    check(found, *enumerated(model, *levels_of(rows())))
    assert found.pairs == []
    assert found.rest < 1e-12


@pytest.mark.parametrize("gamma", ["learned", "free"])
def test_weights_of_terms_are_in_the_effects(gamma):
    x = torch.from_numpy(rows())
    model = IGL(AxisScales(3), Cauchy(1.0, n_terms=6), Tied(x[:5]), n_dims=3, gamma=gamma).eval()
    with torch.no_grad():
        model.factors.copy_(torch.linspace(0.5, 2, 6))
    p = model.design(x).Phi.shape[1]
    model.w = torch.randn(p, 1, dtype=f64, generator=torch.Generator().manual_seed(1))
    check(effects(Member(1.0, model)), *enumerated(model, *levels_of(rows())))


def test_mean_and_effects_of_two_columns_are_the_whole_function():
    x = rows()[:, :2]
    model = model_of(MODELS["lines"](), x=x)
    found = effects(Member(1.0, model), x=x, names="ab")
    pair = found["a", "b"]
    a, b = (found[name] for name in pair.columns)
    assert found.rest < 1e-15
    whole = found.mean + a.values[:, None] + b.values + pair.values
    at = np.stack(np.meshgrid(*(e.grid[0] for e in (a, b)), indexing="ij"), -1).reshape(-1, 2)
    at = (at / 2.0 - 0.5) / 3.0
    at = at if pair.columns == ("a", "b") else at[:, ::-1].copy()
    with torch.no_grad():
        u = model(torch.from_numpy(at))[:, 0].numpy()
    assert_allclose(whole.reshape(-1), 10 + 2 * u, atol=1e-9)
    assert sum(e.share for e in found) == pytest.approx(1)


def test_a_category_is_one_with_a_value_for_each_level():
    rng = np.random.default_rng(1)
    x = np.hstack(
        [np.eye(3)[rng.choice(3, 60, p=[0.5, 0.3, 0.2])], rng.integers(0, 4, (60, 1)) / 2]
    )
    model = model_of(Anova(0.6), x=x)
    counts, (values, n) = x[:, :3].mean(0), np.unique(x[:, 3], return_counts=True)
    expected = enumerated(model, [np.eye(3), values[:, None]], [counts, n / 60])
    names = ["color=red", "color=blue", "color=dark red", "size"]
    found = effects(Member(1.0, model), x=x, names=names)
    check(found, *expected, names=["color", "size"])
    assert found["color"].grid[0].tolist() == ["red", "blue", "dark red"]
    assert label([1, 2], ["x0", "x1", "x2"])[0] == "x1–x2"
    assert label([0, 1], ["on_a", "on_b"])[0] == "on"


def test_bands_are_those_of_strengths_drawn_from_the_posterior():
    x = torch.from_numpy(rows())
    model = model_of(Anova(0.6))
    Y = x[:, :1].sin() + 0.3 * torch.randn(
        len(x), 1, dtype=f64, generator=torch.Generator().manual_seed(0)
    )
    with torch.no_grad():
        solution = model.solve(x, Y, Ridge(1e-2))
        posterior = Posterior.of(model, x, Y, solution, None)
        found = effects(Member(1.0, model, posterior))
        draws = torch.randn(
            len(solution.w), 300, dtype=f64, generator=torch.Generator().manual_seed(1)
        )
        L = posterior.lower
        moved = torch.linalg.solve_triangular(L.T, draws, upper=True) * posterior.noise.sqrt()
        model.w = solution.w + moved
    drawn = effects(Member(1.0, model), c=300)
    for name in ("a", "b"):
        std = np.std([one[name].values for one in drawn], axis=0)
        assert_allclose(found[name].band, 1.645 * std, rtol=0.15)
    both = [
        one["a", "b"]
        for one in drawn
        if len(one.pairs) and "ab" in ["".join(e.columns) for e in one.pairs]
    ]
    std = np.std([one.values for one in both], axis=0)
    assert len(both) > 290
    assert_allclose(found["a", "b"].band, 1.645 * std, rtol=0.25)


def test_a_stack_is_the_sum_of_its_members_or_of_those_that_have_effects():
    one, two = model_of(Anova(0.6)), model_of(Cauchy(1.0))
    levels, weights = levels_of(rows())
    expected = enumerated(lambda x: 0.7 * one(x) + 0.3 * two(x), levels, weights)
    check(effects(Member(0.7, one), Member(0.3, two)), *expected, atol=1e-6)
    turned = model_of(Heat(0.5), Linear(3, 3, torch.full((3, 3), 0.4) + torch.eye(3)))
    part = effects(Member(0.7, one), Member(0.3, turned))
    check(part, *enumerated(one, levels, weights))
    assert part.covered == 0.7
    assert "70% of the weight" in str(part)
    with pytest.raises(AttributeError, match=r"coordinate 1 .* 3 columns.*chart='axis'"):
        effects(Member(0.4, one), Member(0.6, turned))


@pytest.mark.parametrize("name", OPERATORS)
def test_forms_are_products_or_sums_of_what_axes_bring(name):
    make = OPERATORS[name][0]
    sources = Point(positions(4, 3))
    xi = 2 * positions(7, 3, seed=5) - 1
    gate = torch.tensor([1.0, 0.5, 1.0], dtype=f64)
    with torch.no_grad():
        try:
            made = make([0, 1, 2])
            forms = made.forms(sources, gate, terms=True)
            parts = [[form.along(xi[:, j], j) for j in range(3)] for form in forms]
        except (NoForm, ValueError):
            return
        for form, axes in zip(forms, parts):
            whole = sum(axes) + form.level if form.additive else axes[0] * axes[1] * axes[2]
            assert_allclose(whole, form(xi), rtol=1e-9, atol=1e-12)
        total = sum(f.weight * f(xi).reshape(7, f.n_terms, 4).sum(1) for f in forms)
        assert_allclose(total, made.response(xi, sources, gate), rtol=1e-4, atol=1e-4)


def test_nodes_keep_the_mean_of_a_column_and_share_rows_among_them():
    values = np.random.default_rng(0).standard_t(3, 500)
    weight = np.random.default_rng(1).random(500)
    nodes, p = binned(values, weight)
    assert len(nodes) <= 48
    assert (nodes[0], nodes[-1]) == (values.min(), values.max())
    assert p.sum() == pytest.approx(1)
    mean = weight @ values / weight.sum()
    assert p @ nodes == pytest.approx(mean)
    assert p @ nodes**2 == pytest.approx(weight @ values**2 / weight.sum(), rel=0.02)
    assert Marginals.of(np.zeros((3, 101))) is None


# --- of fitted estimators


def truth():
    """Shares in 10 sin(π x₀x₁) + 20 (x₂ − ½)² + 10 x₃ + 5 x₄ of uniform columns, by quadrature."""
    at, w = np.polynomial.legendre.leggauss(60)
    at, w = (at + 1) / 2, w / 2
    G = 10 * np.sin(np.pi * np.outer(at, at))
    mean = w @ G @ w
    one = G @ w - mean
    both = G - mean - one[:, None] - one
    variances = {"x0": w @ one**2, "x1": w @ one**2, "x0 × x1": w @ both**2 @ w}
    variances |= {"x2": 400 / 180, "x3": 100 / 12, "x4": 25 / 12}
    return {name: v / sum(variances.values()) for name, v in variances.items()}


@cache
def friedman(n, seed):
    X, y = make_friedman1(n, noise=1.0, random_state=seed)
    return IGLRegressor(random_state=0).fit(X, y), X, y


@pytest.mark.parametrize(
    ("n", "seed"),
    [(300, 0), *(pytest.param(1000, seed, marks=pytest.mark.slow) for seed in range(2))],
)
def test_the_default_finds_the_shares_of_a_known_function(n, seed):
    found = friedman(n, seed)[0].effects_
    shares = {" × ".join(sorted(e.columns)): e.share for e in found}
    assert found.pairs[0].columns == ("x0", "x1")
    for name, share in truth().items():
        assert shares.pop(name) == pytest.approx(share, abs=0.03), name
    assert max(shares.values()) < 0.01  # columns and pairs that do nothing
    assert found.rest < 0.01
    assert sum(e.share for e in found) + found.rest == pytest.approx(1)
    assert [e.share for e in found] == sorted((e.share for e in found), reverse=True)


def test_the_docs_show_the_shares_of_their_example():
    text = (Path(__file__).parent.parent / "docs" / "effects.md").read_text()
    table = re.findall(r"^(\S.*?) +([\d.]+)% ?█*$", text.split("```")[3], re.MULTILINE)
    told = [line.rsplit(" ", 1) for line in friedman(300, 0)[0].effects_.told()]
    assert [name for name, _ in table] == [name for name, _ in told]
    for (_, shown), (_, share) in zip(table, told):
        assert float(shown) == pytest.approx(float(share.rstrip("%")), abs=0.5)


def test_a_sum_of_functions_of_single_columns_has_no_pairs():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(200, 4))
    y = np.sin(5 * X[:, 0]) + 2 * X[:, 1] ** 2 + X[:, 2] + 0.1 * rng.normal(size=200)
    found = IGLRegressor(random_state=0).fit(X, y).effects_
    assert sum(e.share for e in found.pairs) + found.rest < 0.01
    curve = found["x0"]
    expected = np.sin(5 * curve.grid[0])
    expected -= curve.weight[0] @ expected
    assert np.mean(np.abs(curve.values - expected) < curve.band) > 0.6
    assert np.abs(curve.values - expected).max() < 0.1


def test_effects_are_of_the_model_in_use_and_of_its_file(tmp_path):
    model, X, y = friedman(300, 0)
    found = model.effects_
    assert model.effects_ is found  # not computed again
    save(model, tmp_path / "m.greenfold")
    again = load(tmp_path / "m.greenfold").effects_
    for one, other in zip(found, again, strict=True):
        assert (one.columns, one.share) == (other.columns, other.share)
        assert_array_equal(one.values, other.values)
        assert_array_equal(one.band, other.band)
    moved = load(tmp_path / "m.greenfold").partial_fit(X, y + 20 * X[:, 5]).effects_
    assert moved["x5"].share > 0.1 > found["x5"].share
    assert found["x5"].grid[0][-1] == pytest.approx(X[:, 5].max())
    assert "x0 × x1" in str(found)
    with pytest.raises(KeyError, match="no effect of x7 × x8"):
        found["x7", "x8"]


def test_logits_of_classes_have_effects():
    X = np.random.default_rng(0).integers(0, 5, (80, 2)) / 2
    frame = pd.DataFrame(X, columns=["left", "right"])
    options = {"chart": "axis", "operator": "anova", "max_iter": 3, "random_state": 0}
    model = IGLClassifier(**nested(**options)).fit(frame, (X[:, 0] > 1) != (X[:, 1] > 1))
    found = model.effects_
    one, two = found["left"], found["right"]
    pair = found["left", "right"]
    assert one.band is None
    pair = pair.values if pair.columns == ("left", "right") else pair.values.T
    whole = found.mean + one.values[:, None] + two.values + pair
    at = np.stack(np.meshgrid(one.grid[0], two.grid[0], indexing="ij"), -1).reshape(-1, 2)
    rows = pd.DataFrame(at, columns=["left", "right"])
    assert_allclose(whole.reshape(-1), model.decision_function(rows), atol=1e-8)
    three = IGLClassifier(**nested(**options)).fit(X, np.floor(X[:, 0])).effects_
    assert [each.output for each in three] == ["0.0", "1.0", "2.0"]


def test_counts_have_effects_on_the_logarithm_of_their_mean():
    X = np.random.default_rng(0).integers(0, 4, (120, 2)) / 2
    y = np.random.default_rng(1).poisson(np.exp(X[:, 0]))
    options = {"chart": "axis", "operator": "anova", "max_iter": 3, "random_state": 0}
    model = IGLRegressor(**nested(**options), likelihood="poisson").fit(
        X, pd.Series(y, name="calls")
    )
    found = model.effects_
    assert found.output == "log calls"
    assert found["x0"].share > 0.8
    one, two = found["x0"], found["x1"]
    with_pair = [
        np.zeros((4, 4)),
        *(e.values if e.columns[0] == "x0" else e.values.T for e in found.pairs),
    ]
    whole = found.mean + one.values[:, None] + two.values + with_pair[-1]
    at = np.stack(np.meshgrid(one.grid[0], two.grid[0], indexing="ij"), -1).reshape(-1, 2)
    assert_allclose(np.exp(whole.reshape(-1)), model.predict(at), rtol=0.05)
    assert (one.band > 0).all()


def test_what_has_no_effects_says_why():
    model = regressor()
    assert not hasattr(model, "effects_")
    with pytest.raises(
        AttributeError, match=r"linear chart\) is made of 4 columns.*operator='anova'"
    ):
        model.effects_  # noqa: B018
    box = model_of(ScreenedPoisson(1.0, domain=Interval(-4, 4, "neumann")))
    with pytest.raises(AttributeError, match="has no graph"):
        effects(Member(1.0, box))
    stack, member = IGLStackClassifier(), Member(0.5, model.model_)
    stack.predictor_ = Predictor(model.units_, (member, member))
    with pytest.raises(AttributeError, match="averages probabilities"):
        stack.effects_  # noqa: B018
    del model.marginals_
    with pytest.raises(AttributeError, match="older file"):
        model.effects_  # noqa: B018


def test_a_constant_has_effects_of_nothing():
    X = np.random.default_rng(0).normal(size=(30, 2))
    found = IGLRegressor("axis", random_state=0).fit(X, np.full(30, 3.0)).effects_
    assert [e.share for e in found] == [0, 0]
    assert found.mean == pytest.approx(3)


# --- where they are shown


def test_a_figure_has_curves_with_bands_and_maps():
    found = friedman(300, 0)[0].effects_
    figure = plot.effects(friedman(300, 0)[0], most=6)
    panels = [panel for panel in figure.axes if panel.get_title()]
    assert [panel.get_title().split("   ")[0] for panel in panels] == [
        " × ".join(e.columns) for e in found[:6]
    ]
    first, effect = panels[0], found[0]
    assert_allclose(first.lines[1].get_xydata(), np.stack([effect.grid[0], effect.values], 1))
    edge = first.collections[0].get_paths()[0].vertices[:, 1]
    assert edge.max() == pytest.approx((effect.values + effect.band).max())
    pair = next(p for p in panels if "×" in p.get_title())
    assert_allclose(
        pair.collections[0].get_array().reshape(-1), found.pairs[0].values.T.reshape(-1)
    )
    plt.close(figure)


def test_the_page_and_the_command_line_are_told(tmp_path):
    model = friedman(300, 0)[0]
    names = [f"c{j}" for j in range(10)]
    page = told(model, names, [0])[0]
    found = model.effects_.named(names)
    assert page["shares"][0] == [found[0].columns[0], found[0].share]
    assert page["shares"][-1] == ["everything else", found.rest]
    assert [e["columns"] for e in page["effects"]] == [list(e.columns) for e in found[:6]]
    assert about(model, names)["effects"][0] == f"c3 {found[0].share:.1%}"
    assert told(regressor(), names[:4], [0]) is None
    assert "effects" not in about(regressor())

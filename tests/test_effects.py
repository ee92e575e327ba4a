"""Effects of columns and pairs: against sums over every row that columns could make, and samples."""

from functools import reduce
from itertools import combinations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from greenfold import IGL, Tied
from greenfold.chart import AxisScales, Linear, Warp
from greenfold.green import Anova, Heat, Matern, Point, Poisson, ProductScreened, Superposition
from greenfold.green.base import NoForm
from greenfold.green.operators import Cauchy
from greenfold.green.pointwise import Affine, Exponential
from greenfold.learn.decomposed import Told, effects_of
from greenfold.learn.effects import label
from greenfold.learn.marginals import Marginals, binned
from greenfold.learn.posterior import Posterior
from greenfold.learn.predictor import Member, Predictor
from greenfold.learn.units import Scaling, Units
from greenfold.solve import Ridge

from .cases import OPERATORS, positions

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


def model_of(operator, encoder=None, x=None, c=1, **options):
    x = torch.from_numpy(rows() if x is None else x)
    encoder = (
        AxisScales(x.shape[1], torch.linspace(0.5, 1.0, x.shape[1])) if encoder is None else encoder
    )
    d = encoder(x).shape[1]
    model = IGL(encoder, operator, Tied(x[:12]), n_dims=d, energy=True, **options).eval()
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
        L = posterior.factor
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

"""Kernels in float32 are those in float64 to what is stated, and predictions know where not."""

import numpy as np
import pytest
import torch
from torch import nn

import greenfold.green.quick as quick
import greenfold.model as model
from greenfold import IGL, Tied, green
from greenfold.green.atoms import Point
from greenfold.green.quick import OFF, city, distances, felt, interactions, runs, squares

KERNELS = {
    "heat": green.Heat(0.5),
    "cauchy": green.Cauchy(1.0),
    "rational": green.Cauchy(1.0, beta=0.5),
    "exponential": green.Exponential(0.7),
    "laplace": green.ProductScreened(torch.tensor([0.5, 1.0, 0.2]).double()),
    "anova": green.Anova(torch.tensor([0.5, 0.999, 0.1]).double(), 0.8),
    "anova of order 2": green.Anova(0.5, order=2),
    "with lines": green.Superposition(
        [green.Exponential(0.7), green.Affine(0.3, level=0.0)], [1.0, 1.0], learn=False
    ),
}


def places(n, d=3, seed=0, size=1.0):
    return size * torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d)))


def pairs(case):
    """Points (n, d) and (r, d) of float32 numbers, some of them equal or next to each other."""
    size = {"usual": 1.0, "wide": 12.0, "narrow": 1e-3, "far": 1.0, "outlier": 1.0}[case]
    a, b = places(300, seed=1, size=size), places(200, seed=2, size=size)
    a[:50] = b[:50]
    a[50:60] = b[50:60] + 1e-3 * size
    if case == "far":
        a, b = a + 50, b + 50
    if case == "outlier":
        a[0] = b[0] = 300.0
    return a.float().double(), b.float().double()


@pytest.mark.parametrize("case", ["usual", "wide", "narrow", "far", "outlier"])
def test_distances_are_off_by_no_more_than_is_stated(case):
    a, b = pairs(case)
    exact = (a[:, None] - b).square().sum(-1).sqrt()
    sums = (a[:, None] - b).abs().sum(-1)
    for dtype, off in OFF.items():
        epsilon = torch.finfo(dtype).eps
        r = distances(a, b, dtype).whole()
        assert ((r - exact).abs() <= off + 4 * epsilon * exact).all()
        assert (r[exact == 0] == 0).all()
        r = city(a, b, dtype).whole()
        assert (r - sums).abs().max() <= 8 * epsilon * a.abs().sum(1).max()


@pytest.mark.parametrize("levels", [0, 7, 12, 15])
def test_columns_of_two_values_are_as_far_apart_as_others(levels):
    """With a value that no source has, a constant column, and equal rows."""
    a, b = places(40, 15, seed=1), places(30, 15, seed=2)
    for z in (a, b):
        z[:, :levels] = (z[:, :levels] > 0.5) * torch.linspace(0.1, 3, 15)[:levels].double() + 2
    a[:, 0] = b[:, 0] = 1.0
    a[13, 1], a[:10] = 7.0, b[:10]
    exact = (a[:, None] - b).abs().sum(-1)
    for dtype, off in ((torch.float64, 1e-14), (torch.float32, 1e-6)):
        apart = city(a, b, dtype).whole().double()
        assert (apart - exact).abs().max() <= off * exact.max()
    if levels == 15:  # nothing cancels
        assert not apart.diagonal()[:10].any()


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "with lines"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernels_of_points_far_from_each_other_are_numbers(name, dtype):
    """Squares of 1e9 leave no digits of 1 + r²: what is no number there ended a race."""
    x = places(60, size=1e9).to(dtype)
    x[30:] = x[:30]
    at = torch.zeros(1, 3, dtype=dtype)
    with torch.no_grad():
        K, top = KERNELS[name].response(x, Point(x)), KERNELS[name].response(at, Point(at))
    assert K.min() >= 0
    assert (K / top).max() <= 1 + 1e-6


def test_a_product_of_matrices_alone_would_not_do():
    """The negative control: between equal points it is off by more."""
    a = places(300)
    left, right = (z.float() for z in squares(a, a))
    assert (left @ right).clamp_min(0).sqrt().diagonal().max() > 10 * OFF[torch.float32]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("case", ["usual", "wide", "narrow", "outlier"])
def test_products_of_axes_are_those_in_float64(case, order):
    a, b = pairs(case)
    share = torch.tensor([0.5, 0.999, 0.0], dtype=torch.float64)
    delta = (a[:, None] - b).abs()
    k = torch.exp(-delta) * (1 if order == 1 else 1 + delta)
    exact = (1 - share + share * k).prod(-1)
    for dtype, off in ((torch.float32, 2e-6), (torch.float64, 1e-14)):
        assert (interactions(a, b, dtype, share, order).whole() - exact).abs().max() < off


def test_many_axes_of_large_shares_neither_overflow_nor_vanish():
    """Π (1 − p) is 1e-60, which float32 does not have; the product of factors at distance 0 is 1."""
    a = places(40, d=60, size=1e-2)
    k = torch.exp(-(a[:, None] - a).abs())
    exact = (0.1 + 0.9 * k).prod(-1)
    share = torch.full((60,), 0.9, dtype=torch.float64)
    assert (interactions(a, a, torch.float32, share, 1).whole() - exact).abs().max() < 1e-5


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("size", [0.5, 5.0, 50.0])
def test_axes_whose_exponentials_leave_float32_together_are_taken_in_turn(size, order):
    """Thirty axes: e^{Σ(x + y)} over all of them is a number in one run, in several, or in none."""
    a, b = (places(40, d=30, seed=seed, size=size) for seed in (1, 2))
    a[:10] = b[:10] + 1e-3
    share = torch.linspace(0.05, 0.95, 30).double()
    delta = (a[:, None] - b).abs()
    exact = (1 - share + share * torch.exp(-delta) * (1 if order == 1 else 1 + delta)).prod(-1)
    for dtype, off in ((torch.float32, 5e-6), (torch.float64, 1e-13)):
        blocks = interactions(a, b, dtype, share, order)
        near, far = runs(blocks.rows[0], blocks.sources[0])
        assert {0.5: len(near) == 1, 5.0: len(near) > 1, 50.0: len(far) > 20}[size]
        assert sorted([*far, *(j for run in near for j in run)]) == [*range(30)]
        assert (blocks.whole() - exact).abs().max() < off * max(size, 1)  # places are rounded


@pytest.mark.parametrize("order", [1, 2])
def test_axes_along_which_no_two_points_differ_are_left_out(order):
    """What they would change is below rounding, all of them together; those that tell more stay."""
    a, b = places(60, d=12, seed=1), places(50, d=12, seed=2)
    share = torch.full((12,), 0.3, dtype=torch.float64)
    tiny = {torch.float32: 1e-9, torch.float64: 1e-18} if order == 1 else {torch.float32: 3e-5}
    for dtype, size in tiny.items():
        near = torch.cat([torch.full((9,), size), torch.full((3,), 0.5)]).double()
        x, y = a * near, b * near
        assert set(felt(x, y, share, order, dtype).tolist()) == {9, 10, 11}
        assert len(felt(1e4 * x, 1e4 * y, share, order, dtype)) == 12  # the negative control
        delta = (x[:, None] - y).abs()
        exact = (1 - share + share * torch.exp(-delta) * (1 if order == 1 else 1 + delta)).prod(-1)
        off = (interactions(x, y, dtype, share, order).whole() - exact).abs().max()
        assert off < 4 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", OFF)
@pytest.mark.parametrize("name", KERNELS)
@torch.no_grad()
def test_sums_by_blocks_are_those_over_all_of_the_kernel(name, dtype, monkeypatch):
    """With blocks of 7 by 5, which do not divide the rows, an outlier in one, and no rows at all."""
    operator, (a, b) = KERNELS[name], pairs("outlier")
    a, b, w = a.to(dtype), Point(b.to(dtype)), places(200, seed=6)
    gate = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64)
    Phi = operator.response(a, b, gate)
    monkeypatch.setattr(quick, "WIDE", 5)
    monkeypatch.setattr(quick, "BLOCK", 35 * dtype.itemsize)
    size = 2 * OFF[dtype] * Phi.abs().max()
    assert (operator.response(a, b, gate) - Phi).abs().max() <= size
    u = operator.spread(a, b, gate, w)
    assert u.dtype == torch.float64
    assert (u - Phi.double() @ w).abs().max() <= size * w.abs().sum(0).max()
    assert operator.spread(a[:0], b, gate, w).shape == (0, 3)


@pytest.mark.parametrize("name", KERNELS)
def test_with_and_without_slopes_the_kernel_is_the_same(name):
    a, b = pairs("usual")
    gate = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64)
    slow = KERNELS[name].response(a, Point(b), gate).detach()
    with torch.no_grad():
        torch.testing.assert_close(
            KERNELS[name].response(a, Point(b), gate), slow, rtol=1e-9, atol=1e-9
        )


def anchored(operator, n=2500, w=None, outputs=2):
    z = places(n)
    one = IGL(nn.Identity(), operator, Tied(z), n_dims=3, standardize=False).eval()
    rng = np.random.default_rng(3)
    drawn = torch.from_numpy(rng.normal(size=(n + one.n_null(), outputs)))
    one.w = drawn if w is None else w
    return one


@pytest.mark.parametrize("name", KERNELS)
@torch.no_grad()
def test_predictions_in_float32_are_those_in_float64(name):
    """At rows of the model and at others."""
    one = anchored(KERNELS[name])
    x = torch.cat([one.sources.x[:100], places(100, seed=4)])
    u = one.columns(one.chart(x)).Phi @ one.w
    assert (one(x) - u).abs().max() <= 1e-4 * u.std(0).min()
    assert model._READY[one].atoms.mu.dtype == torch.float32


@torch.no_grad()
def test_strengths_that_cancel_are_summed_in_float64():
    """A pair of sources next to each other with strengths ±1e7 is a dipole."""
    operator, n = KERNELS["cauchy"], 2500
    z, w = places(n), torch.zeros(n + 1, 1, dtype=torch.float64)
    z[1] = z[0] + 1e-7
    w[0], w[1], w[2:] = 1e7, -1e7, 1e-3
    one = IGL(nn.Identity(), operator, Tied(z), n_dims=3, standardize=False).eval()
    one.w, x = w, places(50, seed=5)
    u = operator.response(x, Point(z)) @ w[:n] + w[n:]
    assert (one(x) - u).abs().max() < 1e-6 * u.abs().max()
    assert model._READY[one].atoms.mu.dtype == torch.float64
    one.w = torch.ones_like(w)
    one(x)
    assert model._READY[one].atoms.mu.dtype == torch.float32  # other strengths are looked at anew


@torch.no_grad()
def test_strengths_that_change_in_place_are_noticed():
    z = places(20)
    one = IGL(nn.Identity(), KERNELS["heat"], Tied(z), n_dims=3, energy=True).eval()
    one.w, x = places(20 + one.n_null(), d=1, seed=7), places(5, seed=8)
    u = one(x)
    one.w.mul_(2)
    torch.testing.assert_close(one(x), 2 * u)

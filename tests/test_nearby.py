"""How sure a model of very many sources is: a sketch and rows nearby are the posterior of all."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import spearmanr
from torch import nn

from greenfold import IGL, Tied, green
from greenfold.green.atoms import Point
from greenfold.learn.posterior import Posterior, packed
from greenfold.solve.statistics import Statistics

KERNELS = {
    "exponential": green.Exponential(2.0),
    "laplace": green.ProductScreened(1.5),
    "with lines": green.Superposition(
        [green.Anova(0.8, 2.0), green.Affine(0.3, level=0.0)], [1.0, 1.0], learn=False
    ),
}
NOISE, N, HELD, NEW = 0.02, 800, 100, 150


def sketch(operator, x, m=120):
    return IGL(
        nn.Identity(), operator, Tied(x[:m]), n_dims=3, standardize=False, energy=True
    ).eval()


def dense(operator, x, new, alpha, weight):
    """Variances of u by factors of all rows, in units of the noise."""
    A = operator.response(x, Point(x)).numpy() + alpha * np.diag(1 / weight)
    k = operator.response(new, Point(x)).numpy()
    own = np.array([float(operator.response(one[None], Point(one[None]))) for one in new])
    return (own - (k * cho_solve(cho_factor(A), k.T).T).sum(1)) / alpha


def weights(kind, x):
    """One for all, or far more for the rows of one half."""
    heavy = np.where(x[:, 0] > 0, 10.0, 0.1) if kind == "uneven" else np.ones(len(x))
    return heavy / heavy.mean()


@pytest.mark.parametrize("kind", ["even", "uneven"])
@pytest.mark.parametrize("name", KERNELS)
@torch.no_grad()
def test_a_sketch_and_rows_nearby_are_the_posterior_of_all_rows(name, kind):
    """They rank places alike, and are as large. Without the rows nearby they are not: rows are rough."""
    operator, rng = KERNELS[name], np.random.default_rng(0)
    x, new = (torch.from_numpy(rng.normal(size=(n, 3))) for n in (N, NEW))
    model = sketch(operator, x)
    alpha = NOISE * float(model.unit())
    held = x[-HELD:]
    w = weights(kind, x.numpy())
    exact = dense(operator, x[:-HELD], held, alpha, w[:-HELD])
    errors = torch.from_numpy(np.sqrt(NOISE * (1 / w[-HELD:] + exact))[:, None])  # on average
    sums, weight = Statistics(), torch.from_numpy(w)
    sums.update(model.design(x[:500]), x[:500, :1], weight[:500])
    one = Posterior.sketched(model, sums, x, weight, alpha, errors, errors)
    assert one.noise[0] == pytest.approx(NOISE, rel=0.1)
    exact = 1 + dense(operator, x, new, alpha, w)
    told = (one.std(model, new)[:, 0].square() / NOISE).numpy()
    alone = (replace(one, nearby=None).std(model, new)[:, 0].square() / NOISE).numpy()
    assert spearmanr(told, exact)[0] > 0.97 > spearmanr(alone, exact)[0]
    assert np.mean(told / exact) == pytest.approx(1, abs=0.1)
    assert np.mean(alone / exact) > 1.3
    again = model.design(new).Phi
    F = torch.linalg.cholesky(torch.eye(5).double() + 0.1)
    assert torch.allclose(
        replace(one, factor=packed(F)).lower, F
    )  # the factor is kept as a triangle
    assert one.spread(again).shape == (NEW,)

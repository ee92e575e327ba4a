"""Charts from the slopes of their own response."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.linalg import LinAlgError

from greenfold import IGLClassifier
from greenfold.chart import AxisScales
from greenfold.learn.axes import Radial
from greenfold.learn.candidates import cauchy, equal_scales, exponential, heat
from greenfold.learn.choice import loss
from greenfold.learn.data import Data
from greenfold.learn.judges import Indicators
from greenfold.learn.race import EFFORTS, Race, one_by_one, race, silent
from greenfold.learn.turned import TURNED, Turned, root, slopes
from greenfold.solve.kernel import kernel_evidence

KERNELS = {"cauchy": cauchy, "exponential": exponential, "heat": heat}


def plane(n, D, seed=0, noise=0.1, outputs=1):
    """Waves along two hidden directions (2, D) of D columns."""
    rng = np.random.default_rng(seed)
    X, W = rng.normal(size=(n, D)), np.linalg.qr(rng.normal(size=(D, 2)))[0]
    z = X @ W
    waves = [np.sin(2 * z[:, 0] + k) + np.cos(1.5 * z[:, 1] + 0.5) for k in range(outputs)]
    Y = np.stack(waves, 1) + noise * rng.normal(size=(n, outputs))
    return X, Y, W.T


def data_of(X, Y, weight=None):
    Y = torch.from_numpy((Y - Y.mean(0)) / Y.std(0))
    return Data.of(torch.from_numpy(X - X.mean(0)), Y, weight)


def test_slopes_of_many_outputs_are_sums_of_those_of_each():
    X, Y, _ = plane(40, 3, outputs=37)
    data = data_of(X, Y)
    fit = replace(TURNED.learn(data, equal_scales(data), 3), noise=0.1)
    each = [slopes(fit, replace(data, Y=data.Y[:, k : k + 1])) for k in range(37)]
    assert_allclose(slopes(fit, data), torch.stack(each).sum(0), rtol=1e-12)


@pytest.mark.parametrize(("n", "free"), [(60, True), (100, False)])
def test_directions_of_few_rows_of_classes_do_not_begin_from_scales_of_all_rows(n, free):
    """Scales that saw the rows of a fold flatter what is judged by it; those of many rows know little."""
    X, Y, _ = plane(n, 3)
    onehot = np.hstack([Y > 0, Y <= 0]).astype(float)
    shares = onehot.mean(0)
    rows = torch.from_numpy(X), torch.from_numpy(onehot - shares)
    data = Data.of(*rows, None, 0, Indicators(shares))
    equal = equal_scales(data)
    other = replace(equal, chart=AxisScales(3, torch.tensor([2.0, 0.1, 0.5]).double()))
    candidate = TURNED.among(data, data)
    for part in (data, data.without(0)):  # charts that judge begin as the one that is used
        first, second = (candidate.learn(part, start, 3).chart.weight for start in (equal, other))
        assert torch.equal(first, second) == free


@pytest.mark.parametrize("profile", KERNELS)
def test_slopes_are_those_of_finite_differences(profile):
    X, Y, _ = plane(40, 3, outputs=2)
    data = data_of(X, Y, torch.linspace(0.5, 1.5, 40).double())
    made = Turned("any", Radial(profile), KERNELS[profile], rigid=False)
    fit = made.learn(data, equal_scales(data), 3)
    known = kernel_evidence(fit.kernel(data.x), data.Y.numpy(), fit.noise / data.weight.numpy())

    def u(x):
        """Two outputs at rows of the data, with sources at all of them."""
        return (fit.kernel(torch.cat([x, data.x]))[: len(x), len(x) :]) @ known.alpha

    M, step = torch.zeros(3, 3).double(), 1e-5
    for i, weight in enumerate(data.weight / data.weight.sum()):
        moved = data.x[i] + step * torch.cat([torch.eye(3), -torch.eye(3)]).double()
        # a cusp has no slope at its own row: leave that source out, as it is even
        values = (
            u(moved) - fit.kernel(torch.cat([moved, data.x[i : i + 1]]))[:6, 6:] * known.alpha[i]
        )
        g = torch.from_numpy(values[:3] - values[3:]) / (2 * step)  # (3, 2)
        M += weight * g @ g.mT
    share = 3 / 43
    assert_allclose(slopes(fit, data), (1 - share) * M + share * M.diag().diag(), rtol=1e-5)


def test_a_root_has_the_largest_direction_first_and_no_empty_ones():
    A = torch.randn(6, 2, generator=torch.Generator().manual_seed(0)).double()
    F = root(A @ A.mT)
    assert F.shape == (2, 6)
    assert_allclose(F.mT @ F, A @ A.mT, atol=1e-12)
    assert F[0].norm() > F[1].norm()


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_a_response_without_slopes_has_no_directions(value):
    """And the race goes on without it."""
    with pytest.raises(LinAlgError):
        root(torch.full((3, 3), value).double())


def test_hidden_directions_are_found():
    X, Y, W = plane(500, 12)
    data = data_of(X, Y)
    fit = TURNED.learn(data, equal_scales(data), 15)
    found = torch.linalg.svd(fit.chart.weight.detach()[:2] / data.sd, full_matrices=False)[2]
    assert float(torch.linalg.svdvals(found @ torch.from_numpy(W).mT).min()) > 0.95


def test_the_default_finds_a_plane_that_classes_lie_on():
    X, Y, _ = plane(1400, 10, noise=0.3)
    y = Y[:, 0] > 0
    model = IGLClassifier(random_state=0).fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) > 0.8  # 0.72 on all columns alike
    assert "linear chart" in model.standings_[0].name


def test_a_turned_table_is_learned_along_its_directions():
    """Columns that are mixed hide what each of them does; scales of columns see nothing of it."""
    X, Y, _ = plane(400, 8)
    fits, _ = race(data_of(X, Y), EFFORTS["normal"])
    assert fits[0].candidate is TURNED
    assert loss(fits[0]) < loss(fits[1]) - 0.2


def test_noise_has_no_directions():
    """What was seen flatters; rows that had no part in the chart do not."""
    rng = np.random.default_rng(0)
    data = data_of(rng.normal(size=(200, 8)), rng.normal(size=(200, 1)))
    run = Race(data, EFFORTS["normal"], silent, one_by_one)
    run.start = equal_scales(data)
    fit = run.unseen(TURNED, [])
    assert fit is not None
    assert run.judged(TURNED.learn(data, run.start, 15), data).nats < fit.nats
    assert fit.nats > -0.02


def test_one_column_is_not_turned():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    assert not TURNED.suits(data_of(X, np.sin(X)))

"""Least squares over streams by conjugate gradients: the answer of sums, in any number of processes."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from greenfold import IGLRegressor
from greenfold.scale import checkpoint, fit
from greenfold.solve import SolveError, repeated
from tests.nested import nested

from .worlds import together

rng = np.random.default_rng(0)
N = 1500
X = rng.normal(size=(N, 3))
y = np.sin(2 * X[:, 0] + X[:, 1]) + 0.05 * rng.normal(size=N)
ONCE = {"epochs": 0, "sample": 300}

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)


def model(**options):
    known = {"chart": "linear", "n_dims": 2, "n_atoms": 120, "alpha": 1e-2, "random_state": 0}
    return IGLRegressor(**nested(**known | options))


def streamed(target=y, **options):
    return model().fit_stream((X, target), **ONCE | options)


@pytest.mark.parametrize("target", [y, np.stack([y, 1000 * X[:, 2]], 1)], ids=["one", "two"])
def test_passes_are_the_answer_of_sums(target):
    """With every column of targets as near as the others."""
    one, other = streamed(target, route="passes"), streamed(target, route="sums")
    info = one.solver_info_
    assert info["route"] == "passes"
    assert info["residual"] <= 1e-6
    assert 2 < info["iterations"] < 60
    off = np.abs(one.predict(X) - other.predict(X)).max(0) / target.std(0)
    assert (off < 2e-5).all()
    assert one.fitted_to_ == other.fitted_to_
    assert_allclose(one.posterior_.noise, other.posterior_.noise, rtol=1e-4)
    low, high = one.predict_interval(X)
    covered = (low <= target) & (target <= high)
    assert 0.8 < covered.mean() < 0.99


def test_a_sample_alone_is_another_answer():
    """The negative control: passes do something."""
    few = model().fit_stream((X[:300], y[:300]), **ONCE)
    assert np.abs(few.predict(X) - streamed(route="passes").predict(X)).max() > 1e-3


def test_very_many_sources_go_in_passes_by_themselves(monkeypatch):
    monkeypatch.setattr(fit, "MANY", 100)
    assert streamed().solver_info_["route"] == "passes"
    assert streamed(route="sums").solver_info_["route"] == "cholesky"


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_same_bits_in_one_process_and_several(world, tmp_path):
    def run(rank=0):
        return streamed(route="passes", deterministic=True).predict(X)

    alone = run()
    for one in together(world, run, tmp_path):
        assert_array_equal(one, alone)


def test_a_fit_that_was_interrupted_ends_with_the_same_bits(tmp_path, monkeypatch):
    options = {"route": "passes", "deterministic": True}
    expected = streamed(**options).predict(X)
    save, count = checkpoint.save, [0]

    class Killed(Exception):
        pass

    def counted(state, folder):
        save(state, folder)
        count[0] += 1
        if count[0] == 3:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", counted)
        with pytest.raises(Killed):
            streamed(checkpoint=tmp_path, **options)
    passes = []
    real = fit.Fit._pass
    monkeypatch.setattr(fit.Fit, "_pass", lambda *a: (passes.append(1), real(*a))[1])
    again = streamed(checkpoint=tmp_path, **options)
    assert_array_equal(again.predict(X), expected)
    assert len(passes) == again.solver_info_["iterations"] - 3


def test_what_does_not_converge_is_an_error(monkeypatch):
    monkeypatch.setattr(repeated, "PASSES", 3)
    with pytest.raises(SolveError, match="after 3 passes"):
        streamed(route="passes")


def test_it_is_refused_where_it_cannot_be():
    with pytest.raises(ValueError, match="not trained"):
        model().fit_stream((X, y), route="passes", epochs=2, sample=300)
    free = model(atoms="gaussian", anchors="free")
    with pytest.raises(ValueError, match="sources at points"):
        free.fit_stream((X, y), route="passes", **ONCE)


@torch.no_grad()
def test_a_pass_is_what_sums_say():
    """ΦᵀWΦ v and ΦᵀWY."""
    from greenfold import stream
    from greenfold.estimators.streaming import Learner
    from greenfold.scale.group import Group

    options = {"epochs": 0, "steps": None, "batch_size": 4096, "sample": 300, "folder": None}
    with Group(4) as group:
        one = fit.Fit(Learner(model()), stream((X, y)), group, every=1, **options)
        sums = one.exact()
        v = torch.from_numpy(rng.normal(size=(len(one.penalty), 1)))
        known, scale = one._pass(v, torch.float64), float((sums.gram @ v).abs().max())
        assert_allclose(known.product, sums.gram @ v, atol=1e-9 * scale)
        assert_allclose(known.cross, sums.cross, atol=1e-9 * float(sums.cross.abs().max()))
        assert (known.n, known.rows) == (sums.n, sums.rows)
        assert_allclose(known.square, sums.square)

"""One fit in several processes."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
import torch.distributed as dist
from numpy.testing import assert_allclose, assert_array_equal

from greenfold import IGLClassifier, IGLRegressor, Source
from greenfold.scale import fit as streamed
from greenfold.scale.group import Group
from greenfold.solve import passes
from tests.nested import nested

from .worlds import together

rng = np.random.default_rng(0)
X = rng.normal(size=(2000, 5))
y = np.sin(X[:, 0] + X[:, 1]) + 0.05 * rng.normal(size=2000)
SHORT = {"batch_size": 512, "epochs": 2, "sample": 400}

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)


def model(**options):
    return IGLRegressor(
        **nested(**{"chart": "mlp", "n_dims": 2, "n_atoms": 30, "random_state": 0} | options)
    )


def results(fitted):
    values, _ = fitted.predictor_.predict(X[:50])
    return fitted.model_.w.numpy(), np.array(fitted.history_.loss), values


def fit(source=(X, y), estimator=None, **options):
    return results((estimator or model()).fit_stream(source, **SHORT | options))


def test_deterministic_fits_have_the_same_bits_in_1_2_and_4_processes(tmp_path):
    alone = fit(deterministic=True)
    for world in (2, 4):
        for one in together(world, lambda rank: fit(deterministic=True), tmp_path):
            for a, b in zip(one, alone, strict=True):
                assert_array_equal(a, b)


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_other_fits_agree_to_rounding(world, tmp_path):
    alone = fit()
    for one in together(world, lambda rank: fit(), tmp_path):
        for a, b in zip(one, alone, strict=True):
            assert_allclose(a, b, rtol=1e-6, atol=1e-6 * np.abs(b).max())


def shards(folder, sizes, group=10_000):
    start = 0
    for i, n in enumerate(sizes):
        rows = slice(start, start + n)
        table = {f"x{j}": X[rows, j] for j in range(5)} | {"y": y[rows]}
        pa.parquet.write_table(pa.table(table), folder / f"{i}.parquet", row_group_size=group)
        start += n
    return str(folder / "*.parquet")


@pytest.mark.slow
def test_uneven_shards_and_a_group_that_exists_already(tmp_path):
    source = shards(tmp_path, [700, 3, 90, 1207])

    def job(rank):
        dist.init_process_group("gloo")
        answer = fit(source, deterministic=True)
        assert dist.is_initialized()  # it is not ours to end
        return answer

    alone = fit(source, deterministic=True)
    for one in together(3, job, tmp_path):
        for a, b in zip(one, alone, strict=True):
            assert_array_equal(a, b)


def test_a_process_without_rows_says_so_and_changes_nothing(tmp_path):
    source = shards(tmp_path, [900, 800])

    def job(rank):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            answer = fit(source, deterministic=True)
        return answer, [str(w.message) for w in said if "has no rows" in str(w.message)]

    alone = fit(source, deterministic=True)
    answers = together(3, job, tmp_path)
    assert [len(said) for _, said in answers] == [0, 0, 1]
    for one, _ in answers:
        for a, b in zip(one, alone, strict=True):
            assert_array_equal(a, b)


@pytest.mark.parametrize("decides", [True, False])
def test_the_first_process_can_decide_where_arithmetic_differs(tmp_path, decides):
    exact = torch.optim.Adam.step

    def job(rank):
        def step(self):  # on the second machine numbers come out a little larger
            exact(self)
            for p in self.param_groups[0]["params"]:
                p.data += 1e-6 * rank

        torch.optim.Adam.step = step
        return fit(first_decides=decides)

    first, second = together(2, job, tmp_path)
    assert np.array_equal(first[2], second[2]) == decides


@pytest.mark.parametrize(
    ("loss", "world"),
    [
        ("least_squares", 2),
        ("cross_entropy", 2),
        pytest.param("cross_entropy", 4, marks=pytest.mark.slow),
    ],
)
def test_classes_of_other_shards_are_known(tmp_path, monkeypatch, loss, world):
    labels = np.where(np.arange(2000) < 1900, np.where(y > 0, "a", "b"), "c")
    estimator = IGLClassifier(chart="linear", loss=loss, random_state=0, source=Source(n_atoms=15))
    monkeypatch.setattr(streamed, "ROOM", 10_000)  # 435 rows stay in memory

    def job(rank):
        fitted = estimator.fit_stream((X, labels), **SHORT, deterministic=True)
        return fitted.classes_, fitted.predict_proba(X[:50])

    alone = job(0)
    assert list(alone[0]) == ["a", "b", "c"]
    for classes, p in together(world, job, tmp_path):
        assert_array_equal(classes, alone[0])
        assert_array_equal(p, alone[1])


def test_the_first_process_can_decide_about_passes_too(tmp_path, monkeypatch):
    exact = passes.centered
    monkeypatch.setattr(streamed, "ROOM", 10_000)

    def job(rank):
        passes.centered = lambda w: exact(w) * (1 + 1e-9 * rank)  # another machine
        model = IGLClassifier(chart="linear", random_state=0, source=Source(n_atoms=15))
        fitted = model.fit_stream(
            (X, np.sign(y).astype(int)), sample=300, epochs=0, first_decides=True
        )
        return fitted.predict_proba(X[:50])

    first, second = together(2, job, tmp_path)
    assert_array_equal(first, second)


def test_more_processes_than_blocks_are_refused(tmp_path):
    for answer in together(3, lambda rank: fit(blocks=2), tmp_path):
        assert isinstance(answer, ValueError)
        assert "2 blocks of rows are too few for 3 processes" in str(answer)


def test_what_is_wrong_with_the_data_is_said_by_every_process(tmp_path):
    bad = X.copy()
    bad[1000, 3] = np.nan  # in a block of one of them
    answers = together(2, lambda rank: fit((bad, y), timeout=5), tmp_path)
    assert all(isinstance(answer, Exception) for answer in answers)
    assert any("NaN or infinity" in str(answer) for answer in answers)


def test_one_process_needs_no_group():
    with Group(4) as group:
        assert (group.rank, group.world, group.blocks) == (0, 1, [0, 1, 2, 3])
        total = group.sum({b: torch.full((2,), float(b)) for b in group.blocks})
        assert total.tolist() == [6.0, 6.0]
        assert not dist.is_initialized()

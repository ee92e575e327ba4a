"""Streams: every row once, whatever they are read from; exact sums; fits that are interrupted."""

import errno
import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch.utils.data import Dataset, IterableDataset, TensorDataset
from typer.testing import CliRunner

from greenfold import IGLClassifier, IGLRegressor, Source, cli, io, stream
from greenfold.design import Design
from greenfold.estimators.streaming import Learner
from greenfold.learn.posterior import Posterior
from greenfold.learn.predictor import Member
from greenfold.scale import checkpoint, fit
from greenfold.scale.blocks import n_rows
from greenfold.scale.group import Group
from greenfold.scale.sample import draw
from greenfold.solve import OBJECTIVES, Ridge, Statistics
from tests.nested import nested

from .memory import peak, resident

rng = np.random.default_rng(0)
N = 700
X = rng.normal(size=(N, 4)).astype(np.float32)
y = (np.sin(X[:, 0] + X[:, 1]) + 0.05 * rng.normal(size=N)).astype(np.float32)
SHORT = {"batch_size": 128, "epochs": 2, "sample": 300}


class Pairs(Dataset):
    def __len__(self):
        return N

    def __getitem__(self, i):
        return torch.from_numpy(X[i]), float(y[i])


class Flow(IterableDataset):
    def __iter__(self):
        return zip(X, y, strict=True)


def table(rows=slice(None)):
    return pa.table({f"x{j}": X[rows, j] for j in range(4)} | {"y": y[rows]})


def parts(n=50):
    return [(X[i : i + n], y[i : i + n]) for i in range(0, N, n)]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The same rows in every form."""
    folder = tmp_path_factory.mktemp("streams")
    for kind in ("parquet", "arrow", "npy"):
        (folder / kind).mkdir()
    for i, rows in enumerate((slice(0, 100), slice(100, 650), slice(650, N))):
        pa.parquet.write_table(table(rows), folder / f"parquet/{i}.parquet", row_group_size=60)
        pyarrow.feather.write_feather(table(rows), folder / f"arrow/{i}.arrow", chunksize=60)
        np.save(folder / f"npy/{i}.npy", np.column_stack([X[rows], y[rows]]))
    np.save(folder / "X.npy", X)
    return {
        "a folder of parquet": str(folder / "parquet"),
        "a pattern of parquet": str(folder / "parquet/*.parquet"),
        "a list of arrow": sorted((folder / "arrow").iterdir()),
        "npy": folder / "npy",
        "arrays": (X, y),
        "a memory map": (np.load(folder / "X.npy", mmap_mode="r"), y),
        "tensors": (torch.from_numpy(X), torch.from_numpy(y)),
        "tensor dataset": TensorDataset(torch.from_numpy(X), torch.from_numpy(y)),
        "dataset": Pairs(),
        "iterable dataset": Flow(),
        "function": lambda: iter(parts()),
        "function of shards": lambda shard, n: iter(parts()[shard::n]),
    }


KINDS = [
    "a folder of parquet", "a pattern of parquet", "a list of arrow", "npy", "arrays", "a memory map",
    "tensors", "tensor dataset", "dataset", "iterable dataset", "function", "function of shards",
]  # fmt: skip


def collect(rows, n_blocks, size, order=None, skip=0):
    """[X, y] of all blocks, and the sizes of the batches of each."""
    read, sizes = [], []
    for block in range(n_blocks):
        batches = list(rows.batches(block, n_blocks, size, order=order, skip=skip))
        sizes.append([n_rows(batch) for batch in batches])
        if batches and rows.table is None and isinstance(batches[0], pa.Table):
            rows.learn(pa.concat_tables(batches))
        encoded = [rows.encode(batch) for batch in batches]
        read += [np.column_stack([a, b]) for a, b in encoded]
    return np.concatenate(read) if read else np.empty((0, 5)), sizes


def in_order(rows):
    return rows[np.lexsort(rows.T)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_blocks", [1, 3])
def test_every_row_is_read_once_in_batches_of_the_size_asked_for(sources, kind, n_blocks):
    everything = in_order(np.column_stack([X, y]).astype(np.float64))
    for order in (None, [5, 7]):
        read, sizes = collect(stream(sources[kind]), n_blocks, 64, order)
        assert_array_equal(in_order(read), everything)
        assert all(set(of_block[:-1]) <= {64} for of_block in sizes)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_skipped_are_the_first(sources, kind):
    whole, _ = collect(stream(sources[kind]), 1, 64, order=[1])
    rest, _ = collect(stream(sources[kind]), 1, 64, order=[1], skip=213)
    assert_array_equal(rest, whole[213:])


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_can_be_read_in_turn(sources, kind):
    rows = stream(sources[kind])
    rows.learn(next(rows.batches(0, 1, N)))
    apart = [list(map(rows.encode, rows.batches(b, 2, 7))) for b in range(2)]
    for first, second in zip(rows.batches(0, 2, 7), rows.batches(1, 2, 7), strict=False):
        for one, batches in zip((first, second), apart, strict=True):
            for a, b in zip(rows.encode(one), batches.pop(0), strict=True):
                assert_array_equal(a, b)


def test_order_shuffles_pieces(sources):
    first, _ = collect(stream(sources["npy"]), 1, 64, order=[1])
    second, _ = collect(stream(sources["npy"]), 1, 64, order=[2])
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, collect(stream(sources["npy"]), 1, 64)[0])


def test_reading_takes_no_more_memory_than_a_few_pieces(tmp_path):
    rows = np.lib.format.open_memmap(tmp_path / "big.npy", "w+", np.float32, (300_000, 100))
    rows[:] = 1  # 120 MB
    rows.flush()
    del rows
    mapped = np.load(tmp_path / "big.npy", mmap_mode="r")
    for source in (tmp_path / "big.npy", (mapped, mapped[:, 0])):
        before = resident()
        count = sum(n_rows(batch) for batch in stream(source).batches(0, 1, 4096))
        assert count == 300_000
        assert peak() - before < 30


# --- sums


def test_strength_from_sums_is_that_from_rows():
    Phi = torch.from_numpy(rng.normal(size=(200, 12)))
    design = Design.stack(Phi, torch.ones(200, 1))
    Y = torch.sin(Phi[:, :2] + Phi[:, 2:4]) + 3
    sums = Statistics()
    for part, target in zip(Phi.split(30), Y.split(30), strict=True):
        sums.update(Design.stack(part, torch.ones(len(part), 1)), target)
    for criterion in ("evidence", "gcv"):
        a, b = sums.solve(criterion), Ridge(criterion).solve(design, Y)
        assert_allclose(float(a.alpha), float(b.alpha), rtol=1e-3)
        assert_allclose(a.w, b.w, rtol=1e-3, atol=1e-6)
    with pytest.raises(ValueError, match="'evidence' or 'gcv'"):
        sums.solve("loo")
    again = Statistics.from_flat(sums.flat(), sums.penalty, 2)
    assert_array_equal(again.solve(1e-3).w, sums.solve(1e-3).w)


def small(**options):
    return IGLRegressor(
        **nested(**{"chart": "linear", "n_dims": 2, "n_atoms": 25, "random_state": 0} | options)
    )


@pytest.mark.parametrize("chart", [pytest.param("auto", marks=pytest.mark.slow), "linear", "mlp"])
def test_stage_2_is_the_solve_on_all_rows_in_memory(chart):
    model = small(chart=chart, n_dims=None if chart == "auto" else 2, alpha=1e-4)
    model.fit_stream((X, y), **({} if chart == "auto" else SHORT))
    x, target = model._inside(X), model._stream_target(y)
    with torch.no_grad():
        design = model.model_.design(x)
    energy = float(model.model_.unit())
    w = Ridge(1e-4 * energy, relative=False).solve(design, target).w
    expected = model.units_.values((design.Phi @ w).numpy(), "predictions")
    assert_allclose(model.predict(X), expected, atol=1e-9)


def test_streams_of_equal_blocks_give_equal_bits(sources):
    once = SHORT | {"epochs": 1}
    alone = small(chart="mlp").fit_stream((X, y), **once)
    for kind in ("a memory map", "dataset"):
        again = small(chart="mlp").fit_stream(sources[kind], **once)
        assert_array_equal(again.predict(X), alone.predict(X))


@pytest.mark.parametrize(
    ("kind", "target", "own"),
    [(IGLRegressor, y, {}), (IGLClassifier, y > 0.5, {"class_weight": "balanced"})],
    ids=["numbers", "weighted classes"],
)
def test_the_gradient_of_a_step_is_that_of_the_objective_on_all_rows(kind, target, own):
    """A step with all rows in it, after a refresh: the running sums keep a tenth of the gradient."""
    model = kind("mlp", n_dims=2, source=Source(n_atoms=25), random_state=0, **own)
    options = {
        "epochs": 1,
        "steps": 1,
        "batch_size": 16 * N,
        "sample": N,
        "folder": None,
        "every": 9,
    }
    with Group(16) as group:
        one = fit.Fit(Learner(model), stream((X, target)), group, **options)
        one.refresh()
        x, Y = model._inside(X), model._stream_target(target)
        counts = Y.sum(0)
        weight = (Y @ (N / 2 / counts)) if own else None
        one.model.mean, one.model.scale = fit.placement(one.model.encoder(one.placing), None)
        value = OBJECTIVES["evidence"](one.model.design(x), Y, one.state.log_alpha, weight)
        expected = torch.autograd.grad(value, [*one.parameters, one.state.log_alpha])
        one.walk()
    for p, g in zip(one.parameters, expected[:-1], strict=True):
        assert_allclose(p.grad, 0.1 * g, rtol=1e-6, atol=1e-9)
    assert_allclose(one.state.log_alpha.grad, expected[-1], rtol=1e-6)


@pytest.mark.slow
def test_training_lowers_the_exact_loss():
    z = np.random.default_rng(1).normal(size=(4000, 8))
    target = np.tanh(z[:, 0] + z[:, 1]) + 0.05 * z[:, 2]
    model = small(n_dims=1).fit_stream((z, target), batch_size=256, epochs=6)
    assert model.history_.loss[-1] < model.history_.loss[0] - 0.5
    assert model.score(z, target) > 0.9


def test_the_sample_is_random_and_without_repetition():
    chosen = np.zeros(N)
    for seed in range(40):
        with Group(4) as group:
            (rows, _), counts, _ = draw(stream((np.arange(N)[:, None], y)), group, 100, seed)
        assert len(np.unique(rows)) == 100
        assert sum(counts) == N
        chosen[rows[:, 0]] += 1
    for half in (chosen[: N // 2], chosen[::2]):  # of 4000 draws half, give or take
        assert abs(half.sum() - 2000) < 150


def test_tables_bring_their_names_and_gaps(tmp_path):
    frame = table()
    gaps = [None if i % 7 == 0 else float(v) for i, v in enumerate(X[:, 0])]
    unknown = [None if i % 10 == 0 else float(v) for i, v in enumerate(y)]
    frame = frame.set_column(0, "x0", pa.array(gaps)).set_column(4, "y", pa.array(unknown))
    frame = frame.append_column("kind", pa.array(np.where(X[:, 2] > 0, "up", "down")))
    pa.parquet.write_table(frame, tmp_path / "t.parquet", row_group_size=100)
    rows = stream(tmp_path / "t.parquet", target="y")
    model = small().fit_stream(rows, **SHORT)
    assert rows.table.names == ["x0", "x1", "x2", "x3", "kind=down", "kind=up"]
    assert model.fitted_to_[0] == N - N // 10
    frame = frame.drop_columns(["y"])
    assert list(model.feature_names_in_) == frame.column_names
    found = model.predict(frame)
    one = pa.Table.from_pylist(frame.slice(5, 1).to_pylist(), frame.schema)
    assert_allclose(model.predict(one), found[5:6], rtol=1e-12)
    assert_array_equal(io.from_bytes(io.to_bytes(model)).predict(frame), found)


def test_the_command_line_streams(tmp_path):
    pa.parquet.write_table(table(slice(0, 400)), tmp_path / "0.parquet", row_group_size=50)
    pa.parquet.write_table(table(slice(400, N)), tmp_path / "1.parquet", row_group_size=50)
    out = tmp_path / "m.greenfold"
    words = ["fit", str(tmp_path / "*.parquet"), "--target", "y", "--stream", "--out", str(out)]
    words += ["--chart", "linear", "--set", "n_atoms=25", "--random-state", "0", "--epochs", "1"]
    result = CliRunner().invoke(cli.app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rows"] == N
    model = small().fit_stream(str(tmp_path / "*.parquet"), target="y", epochs=1)
    assert_array_equal(io.load(out).predict(table()), model.predict(table().drop_columns(["y"])))
    result = CliRunner().invoke(cli.app, [*words[:4], "--task", "reconstruction", *words[4:]])
    assert result.exit_code == 1
    assert "the task regression or classification" in result.stderr


# --- rows that come later


def test_partial_fit_is_stage_2_on_all_rows():
    first, later = slice(0, 500), slice(500, N)
    model = small(alpha=1e-3).fit(X[first], y[first])
    both = small(alpha=1e-3).fit(X[first], y[first])
    model.partial_fit(X[later], y[later])
    with torch.no_grad():
        x, Y = both._inside(X), both._stream_target(y)
        solution = both.model_.solve(x, Y, Ridge(1e-3 * float(both.model_.unit()), relative=False))
        posterior = Posterior.of(both.model_, x, Y, solution, None)
        members = (Member(1.0, both.model_, posterior),)
        both.predictor_ = replace(both.predictor_, members=members)
    assert_allclose(model.predict(X), both.predict(X), atol=1e-9)
    assert_allclose(model.predict(X, True)[1], both.predict(X, True)[1], rtol=1e-7)
    assert_allclose(model.effective_rank_, both.posterior_.rank, rtol=1e-9)
    assert model.fitted_to_ == (N, N)


@pytest.mark.parametrize("forget", [1.0, 0.3])
def test_rows_are_forgotten_as_if_their_weights_were_less(forget):
    first, later = slice(0, 500), slice(500, N)
    weight = np.where(np.arange(N) < 500, forget, 1.0)
    for estimator in (
        small(),
        IGLClassifier(chart="linear", loss="least_squares", source=Source(n_atoms=25)),
    ):
        target = y if isinstance(estimator, IGLRegressor) else np.where(y > 0, "up", "down")
        estimator.set_params(random_state=0).fit(X[first], target[first])
        estimator.partial_fit(X[later], target[later], forget=forget)
        with torch.no_grad():
            sums = Statistics()
            sums.update(
                estimator.model_.design(estimator._inside(X)),
                estimator._stream_target(target),
                torch.from_numpy(weight),
            )
            expected = estimator._solve_sums(estimator.model_, sums)
        assert_allclose(estimator.model_.w, expected.w, rtol=1e-6, atol=1e-6)


def test_partial_fit_goes_on_from_a_file_and_from_a_stream(tmp_path):
    model = small().fit_stream((X[:500], y[:500]), **SHORT)
    io.save(model, tmp_path / "m.greenfold")
    again = io.load(tmp_path / "m.greenfold")
    assert_array_equal(again.predict(X), model.predict(X))
    for one in (model, again):
        one.partial_fit(X[500:], y[500:])
    assert_array_equal(again.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="`forget` must be above 0"):
        model.partial_fit(X, y, forget=0)


def test_a_classifier_adds_rows_of_known_classes_only():
    labels = np.where(y > 0, "up", "down")
    model = IGLClassifier(
        chart="linear", loss="least_squares", random_state=0, source=Source(n_atoms=25)
    )
    with pytest.raises(ValueError, match="none of \\['side'\\]"):
        model.partial_fit(X, labels, classes=["up", "down", "side"])
    model.partial_fit(X, labels, classes=["up", "down"])
    with pytest.raises(ValueError, match="the classes \\['side'\\] are new"):
        model.partial_fit(X, np.full(N, "side"))
    assert not hasattr(IGLClassifier(), "partial_fit")  # Newton's method needs the rows


# --- fits that are interrupted


class Killed(Exception):
    pass


def stops_after(n, monkeypatch):
    """The n-th checkpoint is the last thing that happens."""
    save, count = checkpoint.save, [0]

    def counted(state, folder):
        save(state, folder)
        count[0] += 1
        if count[0] == n:
            raise Killed

    monkeypatch.setattr(checkpoint, "save", counted)


OPTIONS = SHORT | {"deterministic": True}


def test_a_fit_that_was_interrupted_anywhere_ends_with_the_same_bits(tmp_path, monkeypatch):
    expected = small(chart="mlp").fit_stream((X, y), **OPTIONS).predict(X)
    for n in (1, 4):
        folder = tmp_path / str(n)
        with monkeypatch.context() as patch:
            stops_after(n, patch)
            with pytest.raises(Killed):
                small(chart="mlp").fit_stream((X, y), checkpoint=folder, every=2, **OPTIONS)
        again = small(chart="mlp").fit_stream((X, y), checkpoint=folder, every=2, **OPTIONS)
        assert_array_equal(again.predict(X), expected)
        assert len(list(folder.iterdir())) == 2


def test_a_table_with_gaps_goes_on_too(tmp_path, monkeypatch):
    unknown = [None if i % 10 == 0 else float(v) for i, v in enumerate(y)]
    frame = table().set_column(4, "y", pa.array(unknown))
    pa.parquet.write_table(frame, tmp_path / "t.parquet", row_group_size=50)
    folder, source = tmp_path / "run", tmp_path / "t.parquet"
    rows = frame.drop_columns(["y"])
    expected = small().fit_stream(source, **OPTIONS).predict(rows)
    with monkeypatch.context() as patch:
        stops_after(2, patch)
        with pytest.raises(Killed):
            small().fit_stream(source, checkpoint=folder, every=2, **OPTIONS)
    again = small().fit_stream(source, checkpoint=folder, every=2, **OPTIONS)
    assert_array_equal(again.predict(rows), expected)


def test_a_chart_of_ones_own_goes_on_too(tmp_path, monkeypatch):
    def own():
        torch.manual_seed(0)
        chart = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Tanh()).double()
        return small(chart=chart, n_dims=None)

    expected = own().fit_stream((X, y), **OPTIONS).predict(X)
    with monkeypatch.context() as patch:
        stops_after(3, patch)
        with pytest.raises(Killed):
            own().fit_stream((X, y), checkpoint=tmp_path, every=2, **OPTIONS)
    again = own().fit_stream((X, y), checkpoint=tmp_path, every=2, **OPTIONS)
    assert again.chart_ is again.chart
    assert_array_equal(again.predict(X), expected)


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    expected = small().fit_stream((X, y), checkpoint=tmp_path, every=2, **OPTIONS).predict(X)
    newest = max(tmp_path.iterdir())
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    (tmp_path / ".step-00000001.greenfold.half").write_bytes(b"written halfway")
    with pytest.warns(UserWarning, match="is damaged .* an older one is used"):
        again = small().fit_stream((X, y), checkpoint=tmp_path, every=2, **OPTIONS)
    assert_array_equal(again.predict(X), expected)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Of a fit that has ended."""
    folder = tmp_path_factory.mktemp("checkpoints")
    small().fit_stream((X, y), checkpoint=folder, **OPTIONS)
    return folder


@pytest.mark.parametrize(
    ("other", "source", "options", "told"),
    [
        (small(n_atoms=20), (X, y), {}, "n_atoms was 25, is 20"),
        (small(random_state=1), (X, y), {}, "random_state was 0, is 1"),
        (small(), (X, y), {"epochs": 5}, "epochs was 2, is 5"),
        (small(), (X, y), {"sample": 99}, "sample was 300, is 99"),
        (small(), (X[:600], y[:600]), {}, f"rows was {N} in"),
        (small(), (X, -y), {}, "a sample of them was SHA-256"),
        (small(), (X[:, ::-1], y), {}, "a sample of them was SHA-256"),
        (small(), lambda: iter([(X, y)]), {}, "is an iterator"),
    ],
)
def test_checkpoints_of_another_fit_are_refused(
    checkpoints, tmp_path, other, source, options, told
):
    """What differs is said, and the estimator stays as it was."""
    shutil.copytree(checkpoints, tmp_path, dirs_exist_ok=True)
    with pytest.raises(ValueError, match=f"another fit: .*{told}.* Give another folder"):
        other.fit_stream(source, checkpoint=tmp_path, **OPTIONS | options)
    assert not hasattr(other, "model_")
    assert not hasattr(other, "units_")


def test_an_iterator_over_other_rows_is_refused_too(tmp_path):
    small().fit_stream(lambda: iter([(X, y)]), checkpoint=tmp_path, **OPTIONS)
    with pytest.raises(ValueError, match="another fit: a sample of them was"):
        small().fit_stream(lambda: iter([(X, y**2)]), checkpoint=tmp_path, **OPTIONS)
    with pytest.raises(ValueError, match=f"another fit: rows was {N}, is 650"):
        small().fit_stream(lambda: iter([(X[:650], y[:650])]), checkpoint=tmp_path, **OPTIONS)


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_checkpoints_of_other_files_are_refused(tmp_path, kind):
    """Another file, another target, other columns, new content; a file restored with its time is none."""
    path, run = tmp_path / f"a.{kind}", tmp_path / "run"

    def write(at, rows):
        if kind == "npy":
            np.save(at, rows)
        else:
            pa.parquet.write_table(pa.table({f"x{j}": c for j, c in enumerate(rows.T)}), at)

    rows = np.column_stack([X, y])
    write(path, rows)
    first = small().fit_stream(path, checkpoint=run, **OPTIONS).source_
    time = path.stat().st_mtime_ns

    def refused(told, source=path, **options):
        with pytest.raises(ValueError, match=f"another fit: .*{told}"):
            small().fit_stream(source, checkpoint=run, **OPTIONS, **options)

    refused("target was x4, is x0", target="x0")
    if kind == "parquet":
        columns = stream(path, columns=["x0", "x1"])
        refused("columns was x0, x1, x2, x3, is x0, x1", columns)
    write(tmp_path / f"b.{kind}", rows)
    refused(f"b.{kind} was not there", tmp_path / f"b.{kind}")
    write(path, rows[::-1])
    refused(r"a.* bytes of .* give it its time again")
    os.utime(path, ns=(time, time))
    refused("a sample of them was SHA-256")
    write(path, rows)
    os.utime(path, ns=(time, time))
    again = small().fit_stream(path, checkpoint=run, **OPTIONS)
    assert_array_equal(again.source_, first)


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    expected = small().fit_stream((X, y), **OPTIONS).predict(X)
    write, count = io.write_whole, [0]

    def full(path, data):
        count[0] += 1
        if count[0] > 2:
            with open(path.parent / f".{path.name}", "wb") as half:
                half.write(data[:100])
            os.unlink(half.name)
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, data)

    monkeypatch.setattr(io, "write_whole", full)
    with pytest.warns(UserWarning, match="full, so the checkpoint of step .* is kept"):
        model = small().fit_stream((X, y), checkpoint=tmp_path, every=2, **OPTIONS)
    assert_array_equal(model.predict(X), expected)
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.undo()
    again = small().fit_stream(
        (X, y), checkpoint=tmp_path, every=2, **OPTIONS
    )  # goes on from the second
    assert_array_equal(again.predict(X), expected)


# --- what can be wrong


def refused(source, match, **options):
    with pytest.raises((ValueError, OSError), match=match):
        small().fit_stream(source, **SHORT | options)


def test_shards_that_are_missing_or_corrupt_are_named(tmp_path):
    np.save(tmp_path / "0.npy", np.column_stack([X, y]))
    refused(tmp_path / "1.npy", "this shard is missing")
    refused(str(tmp_path / "*.parquet"), "no files to stream")
    content = (tmp_path / "0.npy").read_bytes()
    (tmp_path / "0.npy").write_bytes(content[:-100])
    refused(tmp_path / "0.npy", "promises 700 rows, it holds 695.* run the same command again")
    (tmp_path / "0.npy").write_bytes(b"nothing")
    refused(tmp_path / "0.npy", "0.npy: the header cannot be read")
    for i in (0, 1):
        pa.parquet.write_table(table(), tmp_path / f"{i}.parquet", write_page_checksum=True)
    content = bytearray((tmp_path / "1.parquet").read_bytes())
    content[500] ^= 1  # in a page; the footer is whole
    (tmp_path / "1.parquet").write_bytes(content)
    refused(str(tmp_path / "*.parquet"), "1.parquet: group 0 cannot be read")
    (tmp_path / "1.parquet").write_bytes(content[:500])
    refused(str(tmp_path / "*.parquet"), "1.parquet: the table cannot be read")


def test_what_cannot_be_streamed_is_refused(tmp_path):
    pa.parquet.write_table(table(), tmp_path / "0.parquet")
    pa.parquet.write_table(table().drop_columns(["x1"]), tmp_path / "1.parquet")
    refused(tmp_path, "1.parquet has columns .* must have the same")
    refused(tmp_path / "0.parquet", "there is no column 'z'", target="z")
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    refused(tmp_path / "a.csv", "csv files cannot be streamed")
    bad = X.copy()
    bad[3, 1] = np.nan
    refused((bad, y), "NaN or infinity")
    used_up = iter(parts())
    refused(lambda: used_up, "must give the same rows at every pass")
    refused((X, y[:5]), "one length")
    refused((X, y), "`epochs` must be a whole number of at least 0", epochs=-1)
    for model, match in (
        (small(objective="loo"), "needs all rows at once"),
        (small(alpha="loo"), "alpha='loo' needs all rows"),
        (small(mode="joint"), "mode='joint' needs all rows"),
        (small(optimizer="lbfgs"), "fitted by Adam"),
    ):
        with pytest.raises(ValueError, match=match):
            model.fit_stream((X, y))

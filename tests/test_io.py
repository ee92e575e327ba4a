"""Model files: what comes back is what was saved, and nothing else comes in."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.torch import save as save_tensors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import greenfold
from greenfold import IGLRegressor, Source, Training, io
from greenfold.frozen import frozen
from greenfold.green import Heat, Sine, Spectral
from greenfold.io import names
from greenfold.io.older import of_today
from greenfold.spec import on_one_level
from greenfold.table import Table, TableModel

from . import cases, hostile
from .hostile import opened, planted, scrambled, signed
from .models import KINDS, Own, X, fitted, labels, own, regressor, y

GOLDEN = Path(__file__).parent / "data"


def again(model):
    return io.from_bytes(io.to_bytes(model))


def assert_same(a, b):
    """Every answer of two estimators has the same bits."""
    new = X[:40] + 0.05
    assert_array_equal(a.predict(new), b.predict(new), strict=True)
    if hasattr(a, "transform"):
        assert_array_equal(a.transform(new), b.transform(new), strict=True)
    if hasattr(a, "predict_proba"):
        assert_array_equal(a.predict_proba(new), b.predict_proba(new), strict=True)
        assert_array_equal(a.decision_function(new), b.decision_function(new), strict=True)
    if hasattr(a, "predict_interval"):
        assert_array_equal(a.predict(new, return_std=True), b.predict(new, return_std=True))
        assert_array_equal(a.predict_interval(new, 0.2), b.predict_interval(new, 0.2))
    if hasattr(a, "refit_source"):
        target = np.cos(new[:, 0])
        refitted = [e.refit_source(new, target).predict(X) for e in (a, b)]
        assert_array_equal(*refitted, strict=True)


def assert_settings(a, b):
    others = on_one_level(b)
    for name, value in on_one_level(a).items():
        other = others[name]
        assert type(other) is type(value)
        if value is None or isinstance(value, int | float | str):
            assert other == value


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_loaded_answers_with_the_same_bits(kind):
    model = fitted(kind)
    content = io.to_bytes(model)
    loaded = io.from_bytes(content)
    assert_same(model, loaded)
    assert type(loaded) is type(model)
    assert_settings(model, loaded)
    if hasattr(model, "chart_"):
        assert loaded.chart_ is loaded.model_.encoder  # what was one object still is
    assert io.to_bytes(loaded) == content


@pytest.mark.parametrize("name", cases.OPERATORS)
def test_operators_and_sources_come_back_by_themselves(name):
    make, supported = cases.OPERATORS[name]
    operator, xi = make([0, 1, 2]), cases.positions(5, 3, seed=4)
    for kind in supported:
        atoms = cases.atoms(kind)
        response = again(operator).response(xi, again(atoms))
        assert torch.equal(response, operator.response(xi, atoms))


def test_the_members_of_a_stack_keep_their_operators():
    members = fitted("rough_stack").models_
    assert len(members) > 1
    for name, model in again(fitted("rough_stack")).models_.items():
        saved, loaded = members[name].operator, model.operator
        assert type(loaded) is type(saved)
        assert getattr(loaded, "order", None) == getattr(saved, "order", None)
        for p, q in zip(loaded.parameters(), saved.parameters(), strict=True):
            assert torch.equal(p, q)
            assert p.requires_grad == q.requires_grad


def test_an_estimator_that_is_not_fitted_keeps_its_settings():
    model = again(IGLRegressor(operator=Heat(0.3), n_dims=3, source=Source(sparsity=0.1)))
    assert model.n_dims == 3
    assert float(model.operator.time) == pytest.approx(0.3)
    assert not hasattr(model, "model_")


def test_settings_newer_than_the_file_take_their_default():
    content = io.to_bytes(IGLRegressor(n_dims=3))
    header, tensors = opened(content)
    header["state"]["state"] = [p for p in header["state"]["state"] if p[0] != "effort"]
    model = io.from_bytes(signed(header, tensors))
    assert (model.effort, model.n_dims) == ("normal", 3)


def test_callbacks_are_left_out_and_the_header_says_so(tmp_path):
    model = regressor(callbacks=[lambda epoch: None])
    greenfold.save(model, tmp_path / "m.greenfold")
    header = io.read_header((tmp_path / "m.greenfold").read_bytes())
    assert header["left_out"] == ["IGLRegressor.training.callbacks"]
    assert greenfold.load(tmp_path / "m.greenfold").training.callbacks is None


def test_the_header_tells_what_the_file_is():
    frame = pa.table({"a": X[:, 0], "kind": labels})
    table = Table.learn(frame)
    model = TableModel(
        table,
        IGLRegressor(chart="axis", training=Training(max_iter=2)).fit(table.encode(frame), y),
        "y",
    )
    header = io.read_header(io.to_bytes(model))
    assert (header["format"], header["class"], header["estimator"]) == (
        2,
        "TableModel",
        "IGLRegressor",
    )
    assert header["params"]["chart"] == "axis"
    assert header["features"] == [
        {"name": "a", "type": "double"},
        {"name": "kind", "type": "string"},
    ]
    assert header["preprocessing"] == ["kind: one-hot, 3 levels"]
    assert set(header["versions"]) >= {"greenfold", "torch", "numpy", "scikit-learn"}
    assert_array_equal(again(model).predict(frame), model.predict(frame))


@pytest.mark.parametrize(
    "value",
    [
        np.array([["a", "longer"], ["ü", "\U0001f600"]]),
        np.array(["short", "longest"])[:1],
        np.array([], dtype="<U7"),
        np.array("alone"),
        np.array(["a", 1, None, 2.5], dtype=object),
        np.arange(6.0).reshape(2, 3).T,
        np.arange(6)[::-2],
        np.broadcast_to(np.arange(3.0), (2, 3)),
        np.arange(3, dtype=">i4"),
        np.zeros((5, 0)),
        np.array([True, False]),
    ],
    ids=lambda v: f"{v.dtype} {v.shape}",
)
def test_arrays_come_back_as_they_were(value):
    model = IGLRegressor()
    model.extra_ = value
    loaded = again(model).extra_
    assert_array_equal(loaded, value)
    assert loaded.shape == value.shape
    assert loaded.dtype == value.dtype.newbyteorder("=")


def test_plain_values_come_back_as_they_were():
    values = [
        {"a": 1, 2: "b", None: (1, (2,)), 1.5: [float("-inf")], True: {1, "a", 2.5, None}},
        np.float32(1.5), np.int64(7), np.str_("x"), "\ud800", 10**50, -0.0, torch.zeros(2, 0),
    ]  # fmt: skip
    model = IGLRegressor()
    model.extra_ = values
    for old, new in zip(values, again(model).extra_, strict=True):
        assert type(new) is type(old)
        assert repr(new) == repr(old) or new == old


@pytest.mark.parametrize(
    "value",
    [
        {(1, 2): 3}, dict.fromkeys(range(20_000)), np.zeros(2, dtype=complex), np.array([b"a"]),
        np.array(["2024-01-01"], dtype="M8[D]"), np.random.RandomState(np.random.PCG64(0)),
        np.random.default_rng(0), print, 1j,
    ],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_what_no_file_can_hold_is_refused_when_it_is_saved(value):
    model = IGLRegressor()
    model.extra_ = value
    with pytest.raises(ValueError, match=r"IGLRegressor\.extra_ .* which a model file cannot hold"):
        io.to_bytes(model)


# --- modules of the user's own


def test_a_module_of_ones_own_is_restored_by_its_weights(tmp_path):
    model = own()
    greenfold.save(model, tmp_path / "m.greenfold")
    with pytest.raises(ValueError, match=r"tests\.models\.Own.*module=") as error:
        greenfold.load(tmp_path / "m.greenfold")
    assert "architecture" in str(error.value)
    given = Own().float()  # other weights, another type
    loaded = greenfold.load(tmp_path / "m.greenfold", module=given)
    assert loaded.chart_ is given
    assert_same(model, loaded)


def test_a_module_that_does_not_fit_is_refused():
    content = io.to_bytes(own())
    with pytest.raises(ValueError, match=r"(?s)does not fit.*size mismatch"):
        io.from_bytes(content, Own(width=3))
    with pytest.raises(ValueError, match="gives 2"):
        io.from_bytes(content, [Own(), Own()])


def test_what_cannot_be_saved_is_named():
    with pytest.raises(ValueError, match="greenfold step"):
        io.to_bytes(make_pipeline(StandardScaler(), IGLRegressor()))
    model = IGLRegressor(operator=Heat())
    model.operator.extra = lambda: None
    with pytest.raises(ValueError, match=r"IGLRegressor\.operator\.extra is a .*function"):
        io.to_bytes(model)


# --- versions


@pytest.mark.parametrize("number", range(1, io.FORMAT + 1))
def test_files_of_every_format_load(number, tmp_path):
    """The golden files were written when their format was new, and are never written again."""
    path = GOLDEN / f"format_{number}.greenfold"
    assert path.stat().st_size < 100_000
    model = greenfold.load(path)
    expected = json.loads((GOLDEN / f"format_{number}.json").read_text())
    frame = pa.table({k: pa.array(v) for k, v in expected.pop("rows").items()})
    for name, values in expected.items():
        if name == "std":
            assert_allclose(model.predict(frame, return_std=True)[1], values, rtol=1e-7)
        elif isinstance(values[0], str):
            assert_array_equal(getattr(model, name)(frame), values)
        else:
            assert_allclose(getattr(model, name)(frame), values, rtol=1e-9)
    assert model.report(tmp_path / "report.html").exists()
    assert frozen(model.estimator)(torch.from_numpy(model.table.encode(frame))) is not None


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_kept_apart_becomes_the_predictor(kind):
    """Files of format 2 held the parts of `predictor_` as attributes of their own."""
    model = fitted(kind)
    known, rest = model.predictor_, {k: v for k, v in vars(model).items() if k != "predictor_"}
    parts = {"units_": known.units, "temperature_": known.temperature}
    if known.intervals is not None:
        parts["intervals_"] = known.intervals
    if hasattr(model, "models_"):
        parts |= {"models_": model.models_, "weights_": model.weights_}
        parts["posteriors_"] = {m.name: m.posterior for m in known.members if m.posterior}
        parts["alphas_"] = {m.name: m.alpha for m in known.members if not m.posterior}
    else:
        (one,) = known.members
        parts |= {"model_": one.model, "chart_": model.chart_, "gates_": model.gates_}
        parts |= {"source_": model.source_, "absolute_alpha_": one.alpha}
        parts |= {"posterior_": one.posterior} if one.posterior else {}
    before = type(model).__new__(type(model))
    vars(before).update(of_today(type(model), rest | parts))
    assert_same(model, before)
    assert [m.alpha for m in before.predictor_.members] == [m.alpha for m in known.members]
    assert vars(before).keys() == vars(model).keys()


def test_a_migration_takes_an_old_file_to_the_present(monkeypatch):
    old = io.FORMAT
    content = (GOLDEN / f"format_{old}.greenfold").read_bytes()

    def rename(header):
        text = json.dumps(header["state"]).replace(":TableModel", ":Renamed")
        return {**header, "state": json.loads(text)}

    monkeypatch.setattr(io, "FORMAT", old + 1)
    with pytest.raises(ValueError, match=r"which .* no longer reads.*greenfold 0\.1\.0"):
        io.from_bytes(content)
    monkeypatch.setitem(io.MIGRATIONS, old, rename)
    with pytest.raises(
        ValueError, match=r":Renamed', which this version .* written by greenfold 0\.1\.0"
    ):
        io.from_bytes(content)
    monkeypatch.setitem(io.MIGRATIONS, old, lambda header: header)
    assert isinstance(io.from_bytes(content), TableModel)


def test_a_class_that_moved_is_found_by_its_old_names(monkeypatch):
    content = io.to_bytes(Heat(0.3))
    header, tensors = opened(content)
    header["state"]["module"] = "greenfold.before:Warmth"
    old = signed(header, tensors)
    with pytest.raises(ValueError, match=r"'greenfold\.before:Warmth', which this version"):
        io.from_bytes(old)
    monkeypatch.setitem(names.MOVED, "greenfold.before:Warmth", "greenfold.between:Heat")
    monkeypatch.setitem(names.MOVED, "greenfold.between:Heat", names.name_of(Heat))
    assert io.to_bytes(io.from_bytes(old)) == content


def test_a_file_of_a_later_format_says_which_version_is_needed():
    header, tensors = opened(io.to_bytes(fitted("laplace")))
    header["format"], header["versions"]["greenfold"] = 99, "9.9.0"
    with pytest.raises(ValueError, match=r"format 99, written by greenfold 9\.9\.0"):
        io.from_bytes(signed(header, tensors))


ALL_CLASSES = """
import importlib, json, pkgutil, sys, greenfold
from greenfold import io
GRAPHS = ("greenfold.experiments", "greenfold.frozen", "greenfold.green.forms")  # are no models
first = sorted(io.known_classes())
for module in pkgutil.walk_packages(greenfold.__path__, "greenfold."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
io.known_classes.cache_clear()
models = {
    io.name_of(cls)
    for name, module in sys.modules.items()
    if name.startswith("greenfold.") and not name.startswith(GRAPHS)
    for cls in vars(module).values()
    if isinstance(cls, type) and cls.__module__ == name and issubclass(cls, io.MODELS)
}
print(json.dumps([first, sorted(models), sorted(io.known_classes())]))
"""


def test_the_classes_of_files_are_the_same_whatever_is_imported():
    """All that a file can be for are among them, and a name of before leads to one of today."""
    done = subprocess.run([sys.executable, "-c", ALL_CLASSES], capture_output=True, check=True)
    first, models, every = json.loads(done.stdout)
    assert first == every
    assert {"greenfold.estimators.stack:IGLStack", "greenfold.head:IGLHead", "nn.Linear"} <= set(
        first
    )
    hidden = {m for m in models if m.startswith("greenfold.estimators.") and ":IGL" not in m}
    assert set(models) - hidden <= set(first)
    for old in names.MOVED:
        assert names.present(old) in every
        assert old not in every


def test_a_second_class_of_the_same_name_is_refused():
    other = type("IGL", (torch.nn.Module,), {"__module__": "greenfold.model"})
    with pytest.raises(TypeError, match=r"two classes are called greenfold\.model:IGL"):
        names.add(names.known_classes(), other)


# --- damage and malice


def mutated(content, rng):
    """Bytes changed, cut, repeated, inserted or swapped; now and then with another header length."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        i, j = sorted(rng.integers(0, len(data), 2).tolist())
        kind = int(rng.integers(6))
        if kind == 0:
            data[i] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            data[i:j] = b""
        elif kind == 2:
            data[i:i] = data[i : min(j, i + 64)]
        elif kind == 3:
            data[i : i + 8] = rng.bytes(8)
        elif kind == 4:
            data = data[: max(i, 9)]
        else:
            data[:8] = int(rng.integers(0, 2**62 if rng.random() < 0.5 else len(data))).to_bytes(
                8, "little"
            )
        if len(data) < 9:
            break
    return bytes(data)


def refused(content, n, seed):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        data = mutated(content, rng)
        if data != content:
            with pytest.raises(ValueError, match="model file"):
                io.from_bytes(data)


def test_a_header_in_other_letters_is_refused_even_if_it_means_the_same():
    content = io.to_bytes(IGLRegressor(source=Source(alpha=1e-7)))
    assert content.count(b"1e-07") == 2  # for people, and for the reader
    with pytest.raises(ValueError, match="altered"):
        io.from_bytes(content.replace(b"1e-07", b"1E-07"))


def test_a_thousand_altered_files_are_refused_with_a_value_error():
    refused(io.to_bytes(fitted("laplace")), 1000, seed=0)


@pytest.mark.slow
def test_ten_thousand_altered_files_are_refused_with_a_value_error():
    for seed, kind in enumerate(("search", "two_targets", "classes", "rows")):
        refused(io.to_bytes(fitted(kind)), 2500, seed=seed + 1)


def test_files_with_a_right_checksum_and_wrong_content_load_data_or_are_refused():
    """Whoever can sign a file can choose its numbers, but not run anything or raise anything else."""
    header, tensors = opened(io.to_bytes(fitted("two_targets")))
    rng, loaded = np.random.default_rng(0), 0
    ours = ("greenfold.", "torch.nn.", "builtins", "numpy")
    for _ in range(200):
        try:
            content = signed(scrambled(header, rng), tensors)
        except (ValueError, RecursionError):
            continue  # a tree that contains itself
        try:
            model = io.from_bytes(content)
        except ValueError:
            continue
        loaded += 1
        assert type(model).__module__.startswith(ours)
    assert 0 < loaded < 200


def test_a_file_cannot_replace_a_method_or_name_other_classes():
    header, tensors = opened(io.to_bytes(Heat()))
    state = header["state"]["state"]
    for name in ("forward", "__class__", "_check", "time", "_forward_hooks", "_compiled_call_impl"):
        header["state"]["state"] = [*state, [name, {"class": "nn.Tanh"}]]
        with pytest.raises(ValueError, match=r"is no attribute of a Heat, or is a method"):
            io.from_bytes(signed(header, tensors))
    header["state"]["state"] = [*state, ["kind", {"class": "subprocess.Popen"}]]
    with pytest.raises(ValueError, match=r"subprocess\.Popen"):
        io.from_bytes(signed(header, tensors))


def test_every_name_that_torch_keeps_in_a_module_is_refused():
    header, tensors = opened(io.to_bytes(Heat()))
    kept = {"training", "_non_persistent_buffers_set"}
    for name in (set(vars(torch.nn.Module())) | set(dir(torch.nn.Module))) - kept:
        for part in ("state", "modules"):
            bad = json.loads(json.dumps(header))
            bad["state"][part].append([name, None])
            with pytest.raises(ValueError, match="is no attribute"):
                io.from_bytes(signed(bad, tensors))


def test_only_estimators_and_modules_are_loaded():
    """A record of ours, a list, a number or the state of a streamed fit is none."""
    with pytest.raises(ValueError, match="save `best`"):
        io.to_bytes(greenfold.Tuned(best=fitted("laplace"), settings={}, error=0.0, trials=[]))
    header, tensors = opened(io.to_bytes(IGLRegressor()))
    column = hostile.record(7, "greenfold.table:Column", name="a", type="double")
    model = hostile.record(8, "greenfold.table:TableModel", table=column, estimator=5)
    for state in (column, [1], 5, None, {"dict": []}, {"class": "nn.Tanh"}, {"set": []}, model):
        with pytest.raises(ValueError, match=r"is no estimator or module|lacks a table"):
            io.from_bytes(signed({**header, "state": state}, tensors))


def test_the_checksum_shown_is_that_of_the_content():
    """A second entry of the same name does not stand in for it."""
    content = io.to_bytes(Heat())
    header, tensors = opened(content)
    true = header.pop("sha256")
    text = json.dumps(header)[:-1] + ',"sha256":"' + "0" * 64 + '"}'
    other = io.read_header(hostile.signed_text(text, tensors))
    assert io.read_header(content)["sha256"] == true
    assert other["sha256"] not in (true, "0" * 64)


def test_a_header_of_other_types_is_refused():
    header, tensors = opened(io.to_bytes(IGLRegressor()))
    for name in header:
        if name not in ("sha256", "state"):
            for value in (None, 5, [5], {"a": [5]}, [{"name": 5, "type": "double"}]):
                if name in ("params", "versions") and isinstance(value, dict):
                    continue
                with pytest.raises(ValueError, match="model file"):
                    io.read_header(signed({**header, name: value}, tensors))


ATTACKS = {
    "deep references": (hostile.deep_references, "among the keys"),
    "wide text": (hostile.wide_text, "no type for text|impossible shape|not consistent"),
    "colliding keys": (hostile.colliding, "too large for a key|among the keys"),
    "nesting": (hostile.nested, "recursion|scalar is no"),
    "random state": (hostile.random_state, "Mersenne twister|not consistent"),
    "module internals": (hostile.internals, "is no attribute|not what it should be|`training`"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_for_what_it_is(attack):
    """Planted in a file that loads without it; some draws are harmless, and load."""
    make, reason = ATTACKS[attack]
    header, tensors = opened(io.to_bytes(IGLRegressor()))
    harmless = planted(header, tensors, lambda rng, number: {"set": ["a"]}, None, 0)
    assert io.from_bytes(harmless).extra_ == {"a"}
    rng, said = np.random.default_rng(0), []
    for _ in range(30):
        content = planted(header, tensors, make, rng, where=0)
        start = time.process_time()
        try:
            io.from_bytes(content)
        except ValueError as error:
            said.append(str(error))
        assert time.process_time() - start < 5
    assert len(said) >= 5
    assert [text for text in said if not re.search(reason, text)] == []


GROWTH = """
import json
from tests import hostile
print(json.dumps({str(node): hostile.growth(node) for node in hostile.smallest()}))
"""


@pytest.mark.slow
def test_a_file_takes_no_more_memory_than_is_said():
    """Half a megabyte of whatever is longest in memory for its length in the file."""
    said = re.search(r"no more than (\d+) times its size", greenfold.load.__doc__)
    done = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    grown = json.loads(done.stdout)
    assert 10 < max(grown.values()) < int(said[1]), grown


CONFINED = """
from tests import hostile
table = hostile.main(seed=1, count=150)
print(max(row["seconds"] for row in table.values()))
"""


@pytest.mark.slow
def test_hostile_files_neither_hang_nor_fill_the_memory():
    """`tests/test_fuzz.py` has ten thousand of them."""
    done = subprocess.run([sys.executable, "-c", CONFINED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 5


def test_what_is_no_model_file_is_refused(tmp_path):
    for content in (b"", b"hello", b"\0" * 100, save_tensors({"a": torch.zeros(2)})):
        with pytest.raises(ValueError, match="model file"):
            io.from_bytes(content)
    with pytest.raises(FileNotFoundError):
        greenfold.load(tmp_path / "none.greenfold")


# --- writing


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m.greenfold"
    greenfold.save(Heat(0.1), path)
    before = path.read_bytes()

    def full(_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        greenfold.save(Heat(0.9), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.greenfold"]


@pytest.mark.slow
def test_a_process_killed_while_saving_leaves_a_whole_file(tmp_path):
    path = tmp_path / "m.greenfold"
    code = (
        "import sys, greenfold, torch; model = greenfold.green.MexicanHat(torch.randn(60000, 8))\n"
        "print('ready', flush=True)\n"
        "while True: greenfold.save(model, sys.argv[1])"
    )
    for i in range(8):
        process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.15 + 0.037 * i)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert len(greenfold.load(path).mu) == 60000


def test_spectral_operators_are_kept_with_their_bases():
    operator = again(Spectral([Sine(8), Sine(8)], shift=1.0))
    assert len(operator.bases) == 2
    assert float(operator.shift) == pytest.approx(1.0)

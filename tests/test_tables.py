"""Tables as they are: what estimators make of categories and missing values, law by law."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

from greenfold import (
    IGLAutoencoder,
    IGLClassifier,
    IGLRegressor,
    IGLStack,
    IGLStackClassifier,
    Source,
    Training,
    cli,
    io,
)
from greenfold.frozen import export, frozen
from greenfold.learn.data import categories
from greenfold.table import MAX_LEVELS, Table
from tests.test_cli import run

N = 80
rng = np.random.default_rng(0)
numbers = rng.normal(size=(N, 3))
kinds = rng.choice(["a", "b", "c"], N)
y = np.sin(numbers[:, 0]) + (kinds == "a") + 0.05 * rng.normal(size=N)


def frame(n=N, index=0):
    """Numbers with gaps, a category with gaps, text, truth values, and an index that is no column."""
    gaps = np.where(np.arange(N) % 6 == 0, np.nan, numbers[:, 1])
    some = pd.Series(kinds).where(np.arange(N) % 13 != 5)
    columns = {"x": numbers[:, 0], "gaps": gaps, "kind": some.astype("category")}
    columns |= {"text": np.where(numbers[:, 2] > 0, "up", "down"), "flag": kinds == "b"}
    return pd.DataFrame(columns)[:n].set_index(pd.Index(np.arange(n)[::-1] + index, name="row"))


NAMES = [
    "x", "gaps", "kind=(missing)", "kind=a", "kind=b", "kind=c", "text=down", "text=up", "flag"
]  # fmt: skip


def quick(cls=IGLRegressor, **options):
    return cls(
        chart="linear",
        source=Source(n_atoms=15),
        training=Training(max_iter=2),
        random_state=0,
        **options,
    )


@pytest.fixture(scope="module")
def default():
    return IGLRegressor(random_state=0).fit(frame(), y)


@pytest.fixture(scope="module")
def model():
    return quick().fit(frame(), y)


# --- what a table becomes


def by_hand(table):
    """The encoding, column by column, by pandas alone."""
    gaps = table["gaps"]
    columns = [table["x"], gaps.fillna(np.nanmedian(frame()["gaps"]))]
    kind = table["kind"].astype(object)
    columns += [kind.isna(), *(kind == v for v in "abc")]
    columns += [table["text"] == "down", table["text"] == "up", table["flag"]]
    return np.column_stack(columns).astype(float)


def test_a_table_is_what_its_columns_are_by_hand(default):
    X = by_hand(frame())
    assert default.encoded_names_ == NAMES
    assert default.n_features_in_ == 5
    assert list(default.feature_names_in_) == list(frame().columns)
    assert_array_equal(default.encode(frame()), X)
    plain = IGLRegressor(random_state=0).fit(X, y)
    assert_array_equal(plain.predict(X), default.predict(frame()))
    assert default.loadings_.shape == (len(default.gates_), len(NAMES))
    assert default.score(frame(), y) > 0.9


@pytest.mark.parametrize("make", [pl.from_pandas, pa.Table.from_pandas], ids=["polars", "pyarrow"])
def test_every_library_of_tables_gives_the_same_bits(model, make):
    other = make(frame().reset_index(drop=True))
    assert_array_equal(quick().fit(other, y).predict(other), model.predict(frame()))


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", object])
def test_numbers_without_gaps_are_the_array_they_are(dtype):
    X = np.round(3 * numbers)
    X[:, 2] = 1.0  # as an array has them, columns that are always the same stay
    table = pd.DataFrame(X, columns=["a", "b", "c"]).astype(dtype)
    X = table.to_numpy(dtype=np.float64)
    one, other = quick().fit(X, y), quick().fit(table, y)
    assert_array_equal(one.predict(X), other.predict(table))
    assert_array_equal(one.loadings_, other.loadings_)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        assert_array_equal(other.predict(X), one.predict(X))


def test_gaps_that_come_later_are_filled_with_the_median():
    table = pd.DataFrame(numbers, columns=["a", "b", "c"])
    model = quick().fit(table, y)
    filled = table.fillna(0).assign(b=np.median(numbers[:, 1]))
    for make in (pd.DataFrame, pl.from_pandas, pa.Table.from_pandas):
        gone = make(table.assign(b=np.nan))
        assert_array_equal(model.predict(gone), model.predict(filled))
    with pytest.raises(ValueError, match="infinity"):
        model.predict(table.assign(b=np.inf))
    assert_array_equal(table, numbers)  # nothing is written into what was given


def test_levels_that_come_later_are_none_of_those_known(model):
    new = frame().assign(kind="new", text=None)
    assert_array_equal(model.encode(new)[:, 2:8], 0)
    assert np.isfinite(model.predict(new)).all()


def test_a_category_of_numbers_is_a_category():
    table = pd.DataFrame({"code": pd.Categorical(np.arange(N) % 3), "x": numbers[:, 0]})
    model = quick().fit(table, y)
    assert model.encoded_names_ == ["code=0", "code=1", "code=2", "x"]
    assert_array_equal(model.predict(table), model.predict(table.assign(code=np.arange(N) % 3)))


def test_arrays_with_gaps_are_refused_as_ever():
    X = np.where(rng.random((N, 3)) < 0.1, np.nan, numbers)
    with pytest.raises(ValueError, match=r"Input X contains NaN.*Give a table"):
        quick().fit(X, y)
    with pytest.raises(ValueError, match=r"Input X contains NaN.*fit it to a table"):
        quick().fit(numbers, y).predict(X)
    tags = get_tags(IGLRegressor()).input_tags  # which tell of arrays
    assert not tags.allow_nan
    assert not tags.categorical


# --- categories share a scale


@pytest.mark.parametrize("n_levels", [3, MAX_LEVELS, MAX_LEVELS + 9])
def test_levels_are_found_to_be_one_category(n_levels):
    """Also with missing values, with rare levels, and beside other columns of two values."""
    rng, n = np.random.default_rng(n_levels), 600
    level = np.array([f"v{i}" for i in rng.integers(0, n_levels, n)], dtype=object)
    level[rng.random(n) < 0.1] = None
    x = np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n))
    flag = pa.array(np.isnan(x))
    table = pa.table({"x": pa.array(x), "flag": flag, "level": pa.array(level), "z": flag})
    learned = Table.learn(table, strict=True)
    X = learned.encode(table)
    k = min(n_levels + 1, MAX_LEVELS)
    assert len(learned.names) == k + 3
    assert_array_equal(categories(X - X.mean(0)), [0, 1, *([2] * k), 3])


# --- weights


def test_rows_without_weight_are_absent_and_weight_two_is_twice():
    table = frame()
    table.loc[table.index[:3], "text"] = "rare"
    weight = np.tile([1.0, 2.0], N // 2)
    weight[:3] = 0
    rows = np.repeat(np.arange(N), weight.astype(int))
    once = Table.learn(table, weight, strict=True)
    twice = Table.learn(table.iloc[rows], strict=True)
    assert once.columns == twice.columns
    assert "text=rare" not in once.names
    one = quick().fit(table, y, sample_weight=weight)
    other = quick().fit(table.iloc[rows], y[rows])
    assert_allclose(one.predict(table), other.predict(table), rtol=1e-6)


# --- scikit-learn's contract


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="gaps"), "seen at fit time, yet now missing:\n- gaps"),
        (lambda t: t.rename(columns={"x": "z"}), "unseen at fit time:\n- z"),
        (lambda t: t[t.columns[::-1]], "must be in the same order"),
        (
            lambda t: t.assign(x="a word"),
            "column 'x' holds 'a word', and the model was fitted to num",
        ),
        (lambda t: t.assign(x=np.inf), "column 'x' holds infinity in 80 of 80 rows"),
        (lambda t: t[:0], "Found array with 0 sample"),
    ],
)
def test_other_columns_are_refused(model, change, message):
    with pytest.raises(ValueError, match=message):
        model.predict(change(frame()))


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_an_array_is_refused_where_columns_have_to_be_encoded(model):
    with pytest.raises(
        ValueError, match="X is a ndarray, and the model was fitted to a table with"
    ):
        model.predict(numbers)
    assert model.fit(numbers, y).table_ is None  # a new fit forgets
    model.fit(frame(), y)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            pd.date_range("2024-01-01", periods=N),
            r"'new' holds a time \(timestamp.*month or the hour",
        ),
        (
            [f"row {i}" for i in range(N)],
            "'new' holds 80 different texts in 80 rows.*leave the col",
        ),
        ([[1, 2]] * N, "'new' holds list<.*neither numbers nor text"),
        ([1, "b"] * (N // 2), "a column holds values of several kinds .*column new"),
    ],
    ids=["time", "names", "lists", "mixed"],
)
def test_what_is_no_category_is_refused_with_advice(column, message):
    with pytest.raises(ValueError, match=message):
        quick().fit(frame().assign(new=column), y)


def test_too_many_levels_are_refused():
    many = pa.table({"c": [f"v{i // 2}" for i in range(2002)]})
    with pytest.raises(ValueError, match="1001 different texts in 2002 rows"):
        Table.learn(many, strict=True)


def test_pipelines_and_searches_take_tables():
    one = quick()
    assert np.isfinite(cross_val_score(one, frame(), y, cv=3, error_score="raise")).all()
    first = make_column_transformer(
        (StandardScaler(), ["x"]), remainder="passthrough", verbose_feature_names_out=False
    ).set_output(transform="pandas")
    search = GridSearchCV(
        make_pipeline(first, one), {"iglregressor__source__n_atoms": [5, 15]}, cv=2
    ).fit(frame(), y)
    last = search.best_estimator_[-1]
    assert list(last.feature_names_in_) == ["x", "gaps", "kind", "text", "flag"]
    assert search.predict(frame()).shape == (N,)
    assert clone(last).table_ is None


def test_coordinates_are_a_table_with_the_rows_of_the_one_given(model):
    found = clone(model).set_output(transform="pandas").fit(frame(), y).transform(frame())
    assert_array_equal(found.index, frame().index)
    assert list(found.columns) == [f"iglregressor{k}" for k in range(found.shape[1])]
    assert_allclose(found.to_numpy(), model.transform(frame()))


# --- every method, and what is written


def test_every_method_of_a_regressor_takes_a_table(model):
    t, X = frame(), by_hand(frame())
    plain = quick().fit(X, y)
    assert_array_equal(model.predict(t, return_std=True)[1], plain.predict(X, return_std=True)[1])
    assert_array_equal(model.predict_interval(t), plain.predict_interval(X))
    assert_array_equal(model.applicability(t).t2, plain.applicability(X).t2)
    assert_array_equal(model.refit_source(t, -y).predict(t), plain.refit_source(X, -y).predict(X))
    assert_array_equal(
        model.transfer(t[:10], y[:10]).predict(t), plain.transfer(X[:10], y[:10]).predict(X)
    )
    later, known = quick().partial_fit(t, y), quick().fit(X, y)
    assert_array_equal(
        later.partial_fit(t[:9], y[:9]).predict(t), known.partial_fit(X[:9], y[:9]).predict(X)
    )


def test_tasks_share_what_a_table_becomes():
    a, b = frame()[frame()["flag"]], frame()[~frame()["flag"]]
    fitted = quick().fit_tasks([(a, y[: len(a)]), (b, y[: len(b)])])
    assert fitted[0].encoded_names_ == fitted[1].encoded_names_ == NAMES
    assert fitted[1].predict(frame()).shape == (N,)


@pytest.mark.parametrize("cls", [IGLClassifier, IGLStackClassifier, IGLStack, IGLAutoencoder])
def test_every_estimator_takes_a_table(cls, tmp_path):
    t, X = frame(), by_hand(frame())
    stack = cls in (IGLStack, IGLStackClassifier)
    made = cls(effort="fast", random_state=0) if stack else quick(cls)
    target = {IGLAutoencoder: None, IGLStack: y}.get(cls, kinds)
    one, plain = clone(made).fit(t, target), made.fit(X, target)
    assert_array_equal(one.predict(t), plain.predict(X))
    if hasattr(one, "predict_proba"):
        assert_array_equal(one.predict_proba(t), plain.predict_proba(X))
        assert_array_equal(one.decision_function(t), plain.decision_function(X))
    assert one.score(t, target) == plain.score(X, target)
    again = io.from_bytes(io.to_bytes(one))
    assert_array_equal(again.predict(t), one.predict(t))
    page = one.report(tmp_path / "page.html", t, target).read_text()
    assert "kind=(missing)" in page


def test_files_and_graphs_know_the_columns(default, tmp_path):
    path = tmp_path / "m.greenfold"
    io.save(default, path)
    header = io.read_header(path.read_bytes())
    assert [f["name"] for f in header["features"]] == list(frame().columns)
    assert any("gaps: 14 of 80 values missing" in note for note in header["preprocessing"])
    again = io.load(path)
    assert_array_equal(again.predict(frame()), default.predict(frame()))
    got = frozen(again)(torch.from_numpy(again.encode(frame())))
    assert_allclose(got.numpy(), default.predict(frame()), rtol=1e-6)


def test_a_stream_of_a_table_in_memory_is_refused_with_advice():
    with pytest.raises(ValueError, match=r"must hold numbers.*are for `fit`"):
        IGLRegressor().fit_stream((frame(), y))


@pytest.mark.slow
def test_graphs_list_the_columns_they_take(model, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(export(model, tmp_path / "m.onnx"))
    told = session.get_modelmeta().custom_metadata_map["greenfold"]
    assert json.loads(told)["features"] == NAMES
    got = session.run(None, {"x": model.encode(frame())})[0]
    assert_allclose(got, model.predict(frame()), rtol=1e-6)


def test_the_command_line_takes_what_was_fitted_in_python(default, tmp_path):
    path, data = tmp_path / "m.greenfold", tmp_path / "d.csv"
    io.save(default, path)
    frame()[::-1].assign(more=1).to_csv(data, index=False)
    said = run("predict", path, data).stdout.splitlines()
    assert_allclose([float(v) for v in said[1:]], default.predict(frame())[::-1], rtol=1e-9)
    assert "gaps: 14 of 80 values missing" in run("info", path).stdout
    page = tmp_path / "page.html"
    run("report", path, data, "--out", page)
    assert "text=down" in page.read_text()
    assert cli.read_model(str(path)).estimator.n_features_in_ == len(NAMES)

"""Tables as people have them: every file is read right, or refused in words that say what to do."""

import gzip
import os
import stat
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import greenfold
from greenfold import Training, readers
from greenfold.rows import Source
from greenfold.table import Table

from .models import X, labels, y
from .test_cli import QUICK, predictions, run

N = len(X)


def frame(**more):
    return pd.DataFrame(X, columns=list("abcd")).assign(**more, y=y)


def fit(path, *options, code=0, target="y"):
    """What is said, and the model file beside the data."""
    out = path.with_suffix(".greenfold")
    quick = QUICK if "--stream" not in options else QUICK[:2]  # which is trained for epochs
    result = run("fit", path, "-t", target, "-o", out, *quick, *options, code=code)
    return result, out


def read(path):
    with Source(str(path)) as source:
        return source.table()


# --- how a csv file is written


def euro(table, path, delimiter=";"):
    table.to_csv(path, index=False, sep=delimiter, decimal=",")
    return path


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_decimal_commas_are_numbers(tmp_path, delimiter):
    frame().to_csv(tmp_path / "point.csv", index=False)
    _, model = fit(tmp_path / "point.csv")
    said, own = fit(euro(frame(), tmp_path / "comma.csv", delimiter))
    assert "comma.csv: decimal commas: " in said.stderr
    there = run("predict", model, tmp_path / "point.csv")
    assert_array_equal(
        predictions(run("predict", model, tmp_path / "comma.csv")), predictions(there)
    )
    assert_array_equal(predictions(run("predict", own, tmp_path / "point.csv")), predictions(there))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a;y\n1,5;2\n2,25;3\n", [1.5, 2.25]),
        ("a;y\n1,250;2\n2,500;3\n", [1.25, 2.5]),  # where ; parts cells, the comma is taken
        ("a\ty\n1,250\t2\n2,500\t3\n", ["1,250", "2,500"]),  # elsewhere it may part thousands
        ("a\ty\n1,250\t2.5\n2,5\t3\n", ["1,250", "2,5"]),  # a point is a point
        ('a,y\n"1,5",2\n"2,5",3\n', ["1,5", "2,5"]),
        ("a;y\nred, blue;2\ngreen;3\n", ["red, blue", "green"]),
    ],
)
def test_a_comma_is_decimal_only_where_it_must_be(tmp_path, text, values):
    (tmp_path / "d.csv").write_text(text)
    assert read(tmp_path / "d.csv").column("a").to_pylist() == values


@pytest.mark.parametrize(
    "text",
    [
        "length, cm;y\n1;2\n3;4\n",
        '"a;b";y\n1;2\n',
        "a|y\n1|2\n",
        "a\ty\n1\t2\n",
        "\n\n a ; y \n1;2\n",
    ],
)
def test_the_delimiter_is_the_one_that_parts_every_line(tmp_path, text):
    (tmp_path / "d.txt").write_text(text)
    table = read(tmp_path / "d.txt")
    assert table.num_columns == 2
    assert table.column_names[1] == "y"


@pytest.mark.parametrize(
    ("encoding", "note"),
    [("utf-8", ""), ("utf-8-sig", ""), ("utf-16", ""), ("latin-1", "read as Windows-1252")],
)
def test_encodings_are_told_from_the_file(tmp_path, encoding, note):
    names = np.where(labels == "low", "Müller", "Peña")
    frame(größe=names).to_csv(tmp_path / "d.csv", index=False, encoding=encoding)
    said, model = fit(tmp_path / "d.csv")
    assert note in said.stderr
    assert {"größe=Müller", "größe=Peña"} <= set(greenfold.load(model).table.names)
    run("predict", model, tmp_path / "d.csv")


def test_latin_text_far_into_a_file_is_refused_with_advice(tmp_path):
    data = tmp_path / "d.csv"
    rows = b"a,b,y\n" + b"1.5,low,2.5\n" * 100_000
    data.write_bytes(rows + "1.5,Peña,2\n".encode("latin-1"))
    said, _ = fit(data, code=1)
    assert "it is not UTF-8 text; save it as UTF-8 first" in said.stderr


@pytest.mark.parametrize("pack", ["gz", "bz2", "xz"])
def test_compressed_tables_are_unpacked(tmp_path, pack):
    frame().to_csv(tmp_path / "d.csv", index=False)
    frame().to_csv(tmp_path / f"p.csv.{pack}", index=False)
    frame().to_parquet(tmp_path / "d.parquet")
    content = gzip.compress((tmp_path / "d.parquet").read_bytes())
    (tmp_path / "d.parquet.gz").write_bytes(content)
    _, model = fit(tmp_path / "d.csv")
    expected = predictions(run("predict", model, tmp_path / "d.csv"))
    for path in (tmp_path / f"p.csv.{pack}", tmp_path / "d.parquet.gz"):
        assert_allclose(predictions(run("predict", model, path)), expected, rtol=1e-12)
    piped = run("predict", model, "-", stdin=(tmp_path / f"p.csv.{pack}").read_bytes())
    assert_allclose(predictions(piped), expected, rtol=1e-12)
    (tmp_path / "cut.csv.gz").write_bytes(content[:200])
    assert "cut.csv.gz: " in run("predict", model, tmp_path / "cut.csv.gz", code=1).stderr


def test_rows_are_read_from_a_named_pipe(tmp_path):
    frame().to_csv(tmp_path / "d.csv", index=False)
    _, model = fit(tmp_path / "d.csv")
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(
        target=lambda: (tmp_path / "pipe").write_bytes((tmp_path / "d.csv").read_bytes())
    )
    writer.start()
    got = predictions(run("predict", model, tmp_path / "pipe"))
    writer.join()
    assert_array_equal(got, predictions(run("predict", model, tmp_path / "d.csv")))


# --- columns


def test_columns_by_one_name_are_refused_by_it(tmp_path):
    frame().rename(columns={"b": "a", "d": "c"}).to_csv(tmp_path / "d.csv", index=False)
    table = pa.table([X[:, 0], X[:, 1], y], names=["a", "a", "y"])
    pa.parquet.write_table(table, tmp_path / "d.parquet")
    for ending, names in (("csv", "'a', 'c'"), ("parquet", "'a'")):
        said, _ = fit(tmp_path / f"d.{ending}", code=1)
        assert f"has several columns by the name {names}; give every column" in said.stderr
        assert said.stderr.count("\n") == 1
    for twins in (table, frame().rename(columns={"b": "a"})):
        with pytest.raises(ValueError, match="several columns by the name 'a'"):
            Table.learn(twins)
    with pytest.raises(ValueError, match="several columns by the name 'a'"):
        greenfold.stream(tmp_path / "d.parquet", target="y")


def test_all_columns_that_are_missing_are_named(tmp_path):
    frame().to_csv(tmp_path / "d.csv", index=False)
    _, model = fit(tmp_path / "d.csv")
    frame()[["b", "y"]].to_csv(tmp_path / "few.csv", index=False)
    frame()[["b", "y"]].to_parquet(tmp_path / "few.parquet")
    for ending in ("csv", "parquet"):
        said = run("predict", model, tmp_path / f"few.{ending}", code=1).stderr
        assert "lacks columns the model was fitted to: 'a', 'c', 'd'. It has 'b', 'y'." in said
    said = run("report", model, tmp_path / "few.csv", "-o", tmp_path / "r.html", code=1).stderr
    assert "'a', 'c', 'd'" in said


def test_names_are_without_blanks_and_columns_without_names_are_counted(tmp_path):
    text = frame().to_csv(index=False)
    (tmp_path / "d.csv").write_text(
        "".join(f"{line.replace(',', ' , ')},\n" for line in text.split())
    )
    said, model = fit(tmp_path / "d.csv")
    assert greenfold.load(model).table.names == list("abcd")
    assert "note: unnamed5: left out, it is empty" in said.stderr
    frame().to_csv(tmp_path / "index.csv")  # as pandas writes it unless told otherwise
    said, model = fit(tmp_path / "index.csv")
    assert "note: unnamed0: every row has a whole number of its own" in said.stderr
    said, model = fit(tmp_path / "index.csv", "--drop", "unnamed0, d")
    assert greenfold.load(model).table.names == list("abc")


def test_whole_numbers_and_times_are_used_with_a_word(tmp_path):
    day = pd.Timestamp("2024-03-01")
    times = {
        "id": np.arange(5000, 5000 + N),
        "day": [(day + pd.Timedelta(days=i)).date() for i in range(N)],
        "moment": pd.date_range(day, periods=N, freq="h"),
    }
    frame(**times).to_csv(tmp_path / "d.csv", index=False)
    said, _ = fit(tmp_path / "d.csv")
    assert "note: id: every row has a whole number of its own" in said.stderr
    assert "note: day: a date, used as days since 1970" in said.stderr
    assert "note: moment: a time, used as days since 1970" in said.stderr
    said, _ = fit(tmp_path / "d.csv", "--drop", "id,day,moment")
    assert said.stderr == ""


def test_notes_come_before_the_work(tmp_path, monkeypatch):
    inner = greenfold.IGLRegressor.fit

    def loud(self, *rows):
        sys.stderr.write("WORK\n")
        return inner(self, *rows)

    monkeypatch.setattr(greenfold.IGLRegressor, "fit", loud)
    monkeypatch.setattr(greenfold.dims, "dimension", lambda *a, **k: sys.stderr.write("WORK\n"))
    euro(frame(id=range(N)), tmp_path / "d.csv")
    for said in (fit(tmp_path / "d.csv")[0], run("dimension", tmp_path / "d.csv", "-t", "y")):
        notes, _, after = said.stderr.partition("WORK\n")
        assert "decimal commas" in notes
        assert "note: id: every row" in notes
        assert "note" not in after


def test_notes_about_a_stream_come_before_the_work(tmp_path, monkeypatch):
    inner = greenfold.IGLRegressor._begin_stream

    def loud(self, *rows):
        sys.stderr.write("WORK\n")
        return inner(self, *rows)

    monkeypatch.setattr(greenfold.IGLRegressor, "_begin_stream", loud)
    frame(flat=1.0).to_parquet(tmp_path / "d.parquet")
    said, model = fit(tmp_path / "d.parquet", "--stream", "--epochs", "0", "--drop", "d")
    assert "flat: left out, it is always 1" in said.stderr.partition("WORK\n")[0]
    assert greenfold.load(model).table.names == list("abc")
    np.save(tmp_path / "d.npy", X)
    said, _ = fit(tmp_path / "d.npy", "--stream", "--drop", "x1", target="-1", code=1)
    assert "--columns and --drop need columns with names" in said.stderr


ZONES = ["UTC", "Europe/Berlin", "America/St_Johns"]


@pytest.mark.parametrize("zone", ZONES)
def test_time_zones_fit_and_predict(tmp_path, zone):
    """The same moments, in whatever zone and file, are the same numbers; an hour later is not."""
    when = pd.Series(pd.date_range("2024-03-01", periods=N, freq="7h", tz="UTC"))
    for name, moments in (
        ("here", when.dt.tz_convert(zone)),
        ("there", when.dt.tz_convert("Asia/Tokyo")),
        ("late", when + pd.Timedelta("1h")),
        ("fine", when + pd.Timedelta("1ns")),
    ):
        frame(when=moments).to_parquet(tmp_path / f"{name}.parquet")
        frame(when=moments).to_csv(tmp_path / f"{name}.csv", index=False)
    for ending in ("csv", "parquet"):
        _, model = fit(tmp_path / f"here.{ending}")
        expected = predictions(run("predict", model, tmp_path / f"here.{ending}"))
        for name in ("here.csv", "here.parquet", "there.csv", "there.parquet", "fine.parquet"):
            got = predictions(run("predict", model, tmp_path / name))
            assert_allclose(got, expected, rtol=1e-9)
        late = predictions(run("predict", model, tmp_path / f"late.{ending}"))
        assert np.abs(late - expected).max() > 1e-6


def test_times_of_day_and_durations_are_days(tmp_path):
    noon = [pd.Timestamp(f"2024-01-01 {h % 24:02d}:{h % 60:02d}").time() for h in range(N)]
    table = pa.table({"t": pa.array(noon), "d": pa.array(pd.to_timedelta(np.arange(N), unit="h"))})
    learned = Table.learn(table)
    assert_allclose(learned.encode(table)[13], [(13 + 13 / 60) / 24, 13 / 24])
    as_text = table.set_column(0, "t", pa.array([str(t) for t in noon]))
    assert_allclose(learned.encode(as_text), learned.encode(table))


def test_columns_that_are_no_numbers_are_left_out_with_a_note():
    learned = Table.learn(pa.table({"a": X[:, 0], "list": [[1, 2]] * N, "blob": [b"x"] * N}))
    assert learned.names == ["a"]
    assert any("list: left out, list<" in note for note in learned.notes)


# --- a stray text among numbers


@pytest.mark.parametrize("stray", ["?", " ?", "-", "n.a.", "unknown", "NA"])
def test_a_stray_text_among_numbers_is_a_missing_number(tmp_path, stray):
    """One cell that holds no number changes that cell, not the column."""
    dirty = frame().astype({"a": str})
    dirty.loc[5, "a"] = stray
    dirty.to_csv(tmp_path / "dirty.csv", index=False)
    dirty.to_parquet(tmp_path / "dirty.parquet")
    frame(a=np.where(np.arange(N) == 5, np.nan, X[:, 0])).to_csv(tmp_path / "gap.csv", index=False)
    _, model = fit(tmp_path / "gap.csv")
    expected = predictions(run("predict", model, tmp_path / "gap.csv"))
    for ending in ("csv", "parquet"):
        said, own = fit(tmp_path / f"dirty.{ending}")
        assert "note: a: 1 of 60 values missing" in said.stderr
        assert greenfold.load(own).table.names == list("abcd")
        for name in ("dirty.csv", "dirty.parquet", "gap.csv"):
            assert_allclose(predictions(run("predict", own, tmp_path / name)), expected, rtol=1e-12)
    other = dirty.assign(a=dirty["a"].replace(stray, "a lot"))
    other.to_csv(tmp_path / "other.csv", index=False)
    said = run("predict", own, tmp_path / "other.csv", code=1).stderr
    assert "column 'a' holds 'a lot', and the model was fitted to numbers there" in said


def test_a_stray_text_in_the_target_is_a_missing_target(tmp_path):
    dirty = frame().astype({"y": str})
    dirty.loc[[5, 9], "y"] = "-"
    dirty.to_csv(tmp_path / "d.csv", index=False)
    said, model = fit(tmp_path / "d.csv")
    assert "note: y: '-' taken as missing" in said.stderr
    assert "note: 2 rows left out, their target is missing" in said.stderr
    run("report", model, tmp_path / "d.csv", "-o", tmp_path / "r.html")


@pytest.mark.parametrize(
    "values",
    [["1", "2", "3", "A"], ["low", "high"], [f"{i}" for i in range(20)], ["1a", "2b", "3c"]],
    ids=lambda values: values[-1],
)
def test_categories_stay_categories(values):
    column = pa.array([values[i % len(values)] for i in range(N)])
    learned = Table.learn(pa.table({"c": column, "x": X[:, 0]}))
    assert learned.names == [*(f"c={v}" for v in sorted(values)), "x"]


# --- targets


def test_texts_that_name_rows_are_refused_before_the_work(tmp_path, monkeypatch):
    def never(self, *rows):
        raise AssertionError("this was to be refused")

    monkeypatch.setattr(greenfold.IGLClassifier, "fit", never)
    names = [f"row {i}" for i in range(N - 4)] + ["twin"] * 4
    frame().assign(y=names).to_csv(tmp_path / "d.csv", index=False)
    frame().assign(y=names).to_parquet(tmp_path / "d.parquet")
    for path, options in ((tmp_path / "d.csv", []), (tmp_path / "d.parquet", ["--stream"])):
        said, _ = fit(path, *options, code=1)
        assert "y holds text, and 56 of 60 rows have one of their own" in said.stderr
        assert "--task classification" in said.stderr
    with pytest.raises(AssertionError):
        fit(tmp_path / "d.csv", "--task", "classification")


def test_few_rows_of_each_class_are_classes(tmp_path):
    frame().assign(y=[f"class {i // 10}" for i in range(N)]).to_csv(tmp_path / "d.csv", index=False)
    said, _ = fit(tmp_path / "d.csv", "--json")
    assert '"task": "classification"' in said.stdout


def test_times_and_constants_can_be_predicted_with_a_word(tmp_path):
    when = pd.date_range("2024-01-01", periods=N, freq="D", tz="UTC")
    frame().assign(y=when).to_csv(tmp_path / "t.csv", index=False)
    said, model = fit(tmp_path / "t.csv")
    assert "note: y: a time, used as days since 1970" in said.stderr
    days = predictions(run("predict", model, tmp_path / "t.csv"))
    assert 19000 < days.min() < days.max() < 20500
    frame().assign(y=3).to_csv(tmp_path / "c.csv", index=False)
    said, _ = fit(tmp_path / "c.csv", "--task", "regression")
    assert "note: y is always 3: there is nothing to learn" in said.stderr


# --- types that the first rows do not show


def test_a_model_from_python_predicts_numbers_that_begin_whole(tmp_path):
    """Types are the model's, whatever the first megabyte of a csv file looks like."""
    model = greenfold.IGLRegressor(chart="axis", random_state=0, training=Training(max_iter=2))
    path = tmp_path / "m.greenfold"
    greenfold.save(model.fit(X[:, :2], y), path)
    n = 300_000  # of four bytes each
    (tmp_path / "d.csv").write_text("p,q\n" + "1,2\n" * n + "1.5,2.5\n\n")
    got = predictions(run("predict", path, tmp_path / "d.csv"))
    assert len(got) == n + 1
    assert_allclose(got[[0, n]], model.predict([[1, 2], [1.5, 2.5]]), rtol=1e-12)
    (tmp_path / "bad.csv").write_text("p,q\n" + "1,2\n" * n + "1.5,blue\n")
    said = run("predict", path, tmp_path / "bad.csv", code=1).stderr
    assert "bad.csv: column 'q' holds 'blue'" in said
    (tmp_path / "three.csv").write_text("p,q,r\n1,2,3\n")
    said = run("predict", path, tmp_path / "three.csv", code=1).stderr
    assert "takes 2 columns in order; " in said
    assert "three.csv has 3: 'p', 'q', 'r'" in said


def test_lines_in_quotes_may_cross_blocks(tmp_path):
    text = '"two\n' + "words " * 10 + '\nand more"'
    rows = f"1.5,{text},2\n2.5,short,3\n" * 20_000
    (tmp_path / "d.csv").write_text("a,t,y\n" + rows)
    table = read(tmp_path / "d.csv")
    assert table.num_rows == 40_000
    assert len(table.column("t").unique()) == 2


# --- files that will not do


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("d.csv", b"", "it is empty"),
        ("d.csv", b"\n\n\n", "nothing but empty lines"),
        ("d.csv", b"a,b,y\n", "has columns 'a', 'b', 'y', but no rows"),
        ("d.csv", b"y\n1\n2\n", "no column to learn from besides the target 'y'"),
        ("d.csv", b"a,b,y\n1,2,3\n", "a: left out, it is always 1; b: left out, it is always 2"),
        ("d.csv", b"a,b,y\n1,2,3\n1,2\n4,5,6\n", "line 3 has 2 cells in place of 3: 1,2"),
        ("d.csv", b"a b y\n1 2 3\n", "Only , ; | and tabs are understood"),
        ("d.csv", bytes(range(256)) * 9, "binary data, not text"),
        ("d.csv", b"a,y\n\x81\xfe\xff,2\n", "save it as UTF-8 first"),
        ("d.csv", b"a,y\n1,\n2,\n", "no row has a value of y, the target"),
        ("d.csv", b"a,y\n1,2\ninf,3\n4,5\n", "column 'a' holds infinity in 1 of 3 rows"),
        ("d.json", b"{}", "ends in none of .csv"),
        ("d.xlsx", b"PK\x03\x04 sheet", "A spreadsheet can be saved as csv"),
        ("d.npz", b"PK\x03\x04 no zip", "d.npz: "),
        ("d.parquet", b"PAR1 cut short", "d.parquet: "),
        ("d.arrow", b"ARROW1 cut short", "d.arrow: "),
        ("d.npy", b"\x93NUMPY cut short", "d.npy: "),
        ("d.csv", b"PAR1,y\n1,2\n", "is called .csv but holds parquet"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_files_that_will_not_do_are_refused_in_one_line(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    said, out = fit(tmp_path / name, code=1)
    assert words in said.stderr
    assert said.stderr.count("\n") == 1
    assert not out.exists()


def test_arrays_of_odd_shapes_are_refused(tmp_path):
    for array in (np.array(3.0), np.zeros((3, 3, 3)), np.array(["a", 1], dtype=object)):
        np.save(tmp_path / "d.npy", array)
        said, _ = fit(tmp_path / "d.npy", code=1)
        assert "d.npy: it " in said.stderr
    np.savez(tmp_path / "d.npz", x=np.zeros((3, 2)), x0=np.zeros(3))
    said, _ = fit(tmp_path / "d.npz", code=1)
    assert "several columns by the name 'x0'" in said.stderr


def test_a_first_line_of_numbers_is_doubted(tmp_path):
    frame().to_csv(tmp_path / "d.csv", index=False, header=False)
    said, _ = fit(tmp_path / "d.csv", target="-1", code=1)  # it begins with 0.1,0.1,0.1
    assert "its first line holds numbers; put the names of the columns above" in said.stderr
    frame()[5:].to_csv(tmp_path / "d.csv", index=False, header=False)
    said, _ = fit(tmp_path / "d.csv", target="-1")
    assert "its first line is taken as the names of the columns, but holds numbers" in said.stderr


# --- where results go


@pytest.fixture
def fitted(tmp_path):
    frame().to_csv(tmp_path / "d.csv", index=False)
    return fit(tmp_path / "d.csv")[1], tmp_path / "d.csv"


def test_a_link_stays_and_what_it_points_to_is_replaced(fitted, tmp_path):
    model, data = fitted
    (tmp_path / "far").mkdir()
    for name in ("p.csv", "m.greenfold"):
        (tmp_path / "far" / name).write_text("old")
        (tmp_path / "far" / name).chmod(0o640)
        (tmp_path / name).symlink_to(f"far/{name}")
    run("predict", model, data, "-o", tmp_path / "p.csv")
    run("fit", data, "-t", "y", "-o", tmp_path / "m.greenfold", *QUICK)
    assert len((tmp_path / "far" / "p.csv").read_text().splitlines()) == N + 1
    greenfold.load(tmp_path / "far" / "m.greenfold")
    for name in ("p.csv", "m.greenfold"):
        assert (tmp_path / name).is_symlink()
        assert stat.S_IMODE((tmp_path / "far" / name).stat().st_mode) == 0o640
    assert sorted(p.name for p in (tmp_path / "far").iterdir()) == ["m.greenfold", "p.csv"]


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow", "npy", "json"])
def test_a_named_pipe_is_written_into(fitted, tmp_path, ending):
    model, data = fitted
    pipe = tmp_path / f"p.{ending}"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    run("predict", model, data, "-o", pipe)
    reader.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    run("predict", model, data, "-o", tmp_path / f"file.{ending}")
    assert got == [(tmp_path / f"file.{ending}").read_bytes()]


def test_a_model_goes_into_a_pipe_or_a_device(fitted, tmp_path):
    _, data = fitted
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    run("fit", data, "-t", "y", "-o", tmp_path / "pipe", *QUICK)
    reader.join()
    (tmp_path / "got.greenfold").write_bytes(got[0])
    greenfold.load(tmp_path / "got.greenfold")
    before = os.stat("/dev/null")
    run("fit", data, "-t", "y", "-o", "/dev/null", *QUICK)
    assert os.stat("/dev/null").st_rdev == before.st_rdev


@pytest.mark.slow
def test_standard_output_by_its_name_keeps_what_it_has(fitted, tmp_path):
    model, data = fitted
    command = (
        f"(echo first; {sys.executable} -m greenfold predict {model} {data} -o /dev/stdout) > all"
    )
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    lines = (tmp_path / "all").read_text().splitlines()
    assert lines[:2] == ["first", '"y"']
    assert len(lines) == N + 2


def test_files_of_the_users_beside_the_result_stay(fitted, tmp_path):
    model, data = fitted
    (tmp_path / "p.csv.part").write_text("mine")
    (tmp_path / "bad.csv").write_text("a,b,c,d\n1,2,3,blue\n")
    run("predict", model, data, "-o", tmp_path / "p.csv")
    run("predict", model, tmp_path / "bad.csv", "-o", tmp_path / "p.csv", code=1)
    assert (tmp_path / "p.csv.part").read_text() == "mine"
    assert len((tmp_path / "p.csv").read_text().splitlines()) == N + 1
    assert not [p.name for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_what_cannot_be_written_is_refused_before_the_work(fitted, tmp_path, monkeypatch):
    def never(*rows, **options):
        raise AssertionError("this was to be refused")

    model, data = fitted
    monkeypatch.setattr(greenfold.IGLRegressor, "fit", never)
    monkeypatch.setattr(greenfold.IGLRegressor, "predict", never)
    monkeypatch.setattr(greenfold.frozen, "export", never)
    for out, words in (
        (tmp_path / "none" / "x.csv", "there is no folder"),
        (tmp_path, "is a folder; name a file in it"),
        (data, "would replace what is read"),
    ):
        assert words in run("fit", data, "-t", "y", "-o", out, code=1).stderr
        assert words in run("predict", model, data, "-o", out, code=1).stderr
        if out != data:
            assert words in run("export", model, "-o", out, code=1).stderr
            assert words in run("report", model, data, "-o", out, code=1).stderr
    assert data.read_text().startswith("a,b,c,d,y\n")


# --- any csv file at all

CELLS = st.sampled_from(
    [
        "1",
        "2.5",
        "-3e4",
        "1,5",
        "1.234,5",
        "",
        "?",
        "NA",
        "true",
        "False",
        "low",
        "high",
        "Peña",
        "-",
        "2024-01-01",
        "2024-01-01 10:00:00",
        "2024-01-01T10:00:00+01:00",
        "12:30",
        '"a, b"',
        '"x\ny"',
        *["inf", "1e400", "0x1", " 0XfF", " 7", "99999999999999999999", "\u200b"],
    ]
)
QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}


@st.composite
def csv_files(draw):
    """Columns that begin with one kind of cell and may go on with another."""
    n, p = draw(st.integers(1, 60)), draw(st.integers(1, 4))
    columns = []
    for _ in range(p):
        kinds = draw(st.lists(CELLS, min_size=1, max_size=3))
        change = draw(st.integers(0, n))
        later = draw(st.lists(CELLS, min_size=1, max_size=3))
        columns.append(
            [(kinds if i < change else later)[i % len(later) % len(kinds)] for i in range(n)]
        )
    names = draw(
        st.lists(st.sampled_from(["a", "b", "c", "d", "é", "", " a", "1"]), min_size=p, max_size=p)
    )
    delimiter = draw(st.sampled_from(",;\t"))
    lines = [delimiter.join(row) for row in [names, *zip(*columns)]]
    return "\n".join(lines).encode(
        draw(st.sampled_from(["utf-8", "utf-8", "latin-1", "utf-16"])), "ignore"
    )


@given(csv_files())
@settings(max_examples=300, derandomize=True, **QUIET)
def test_a_csv_file_is_the_same_rows_whole_and_in_batches(tmp_path_factory, content):
    """Types are learned once: blocks that look otherwise encode alike, or the file is refused."""
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(content)
    block, readers.BLOCK = readers.BLOCK, 256
    try:
        try:
            whole = read(path)
            learned = Table.learn(whole)
        except ValueError:
            return
        with Source(str(path)) as source:
            parts = [learned.encode(part) for part in source.batches(learned.needed)]
        assert_array_equal(np.concatenate(parts), learned.encode(whole))
    finally:
        readers.BLOCK = block

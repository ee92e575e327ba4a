"""Columns in an order: said, seen, or taken from their names."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import greenfold
from greenfold import IGLClassifier, IGLRegressor, IGLStack
from greenfold.channels import positions_in
from greenfold.cli.learn import _channels
from greenfold.learn.principal import Components, View, channels, views
from greenfold.learn.race import one_by_one
from greenfold.learn.wide import race_wide
from tests.test_cli import run
from tests.test_wide import D, data_of, spectra

wavelengths = np.linspace(850, 1050, D)


def fitted(X, y, kind=IGLRegressor, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(random_state=0, **options).fit(X, y)


def test_positions_undo_any_order_of_the_columns():
    """The race on shuffled columns with their positions is the one on columns in order."""
    X, y = spectra(24, thickness=0.8)
    mixed = np.random.default_rng(0).permutation(D)
    one = race_wide(data_of(X, y, wavelengths), [], False, one_by_one)
    other = race_wide(data_of(X[:, mixed], y, wavelengths[mixed]), [], False, one_by_one)
    assert {str(a.candidate.view) for a in one} == {str(b.candidate.view) for b in other}
    rigid = [{f.candidate.name: f for f in fits if f.candidate.rigid} for fits in (one, other)]
    assert rigid[0]
    for name, fit in rigid[0].items():  # few directions end a little elsewhere with each rounding
        assert_allclose(rigid[1][name].errors, fit.errors, rtol=1e-3, atol=1e-3)
    X, y = spectra()
    assert channels(data_of(X, y))
    assert not channels(data_of(X[:, mixed], y))  # nothing else says that these were channels


@pytest.mark.slow
def test_classes_of_spectra_see_channels_too():
    """Two kinds of a sample that differ in shape, among samples of any thickness."""
    X, _ = spectra(60, thickness=0.8)
    rng = np.random.default_rng(1)
    kind = rng.integers(0, 2, size=60)
    X = X + 0.3 * kind[:, None] * np.sin(np.linspace(0, 12, D)) * np.abs(X).mean(1, keepdims=True)
    quick = {"kind": IGLClassifier, "effort": "fast"}
    model, other = (fitted(X, kind, channels=said, **quick) for said in (wavelengths, False))
    names = [{s.name for s in m.standings_} for m in (model, other)]
    assert any("derivative" in name or "SNV" in name for name in names[0])
    assert not any("derivative" in name or "SNV" in name for name in names[1])
    assert_array_equal(model.channels_, wavelengths)
    assert other.channels_ is None


def test_a_filter_along_positions_is_the_filter_of_ordered_columns():
    X, y = spectra()
    mixed = np.random.default_rng(0).permutation(D)
    view = View(snv=True, window=9, order=2)
    one = Components.of(data_of(X, y), view)
    other = Components.of(data_of(X[:, mixed], y, wavelengths[mixed]), view)
    assert_allclose(np.abs(other.P[:5].numpy()), np.abs(one.P[:5].numpy()[:, mixed]), atol=1e-9)


def test_true_and_false_are_believed():
    X, y = spectra()
    noise = np.random.default_rng(0).normal(size=X.shape)
    for rows, seen in ((X, True), (noise, False)):
        assert channels(data_of(rows, y)) is seen
        for said in (True, False):
            data = data_of(rows, y, said)
            assert channels(data) is said
            assert (len(views(data)) > 2) is said


@pytest.mark.parametrize("kind", [IGLRegressor, IGLStack])
def test_few_columns_may_be_channels_and_files_keep_them(kind, tmp_path):
    X, y = spectra(60)
    X, at = X[:, ::8], wavelengths[::8]
    model = fitted(X, y, kind, channels=at)
    assert any("principal components" in s.name or "linear" in s.name for s in model.standings_)
    greenfold.save(model, tmp_path / "m.greenfold")
    again = greenfold.load(tmp_path / "m.greenfold")
    assert_array_equal(again.predict(X), model.predict(X))
    assert_array_equal(again.channels_, at)
    assert_array_equal(again.channels, at)
    assert_array_equal(clone(model).get_params()["channels"], at)


@pytest.mark.slow
def test_a_search_reaches_them():
    X, y = spectra(30)
    usual = IGLRegressor(random_state=0, effort="fast")
    search = GridSearchCV(usual, {"channels": [wavelengths]}, cv=2, refit=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = search.fit(X, y)
    assert np.isfinite(found.cv_results_["mean_test_score"]).all()


def test_what_would_not_act_is_refused():
    X, y = spectra()
    for options, words in (
        ({"channels": wavelengths[1:]}, f"{D} columns, and it has {D - 1}"),
        ({"channels": True, "chart": "linear"}, "needs chart='auto'"),
        ({"channels": True, "operator": "heat"}, "needs operator='auto'"),
    ):
        with pytest.raises(ValueError, match=words):
            IGLRegressor(**options).fit(X, y)
    with pytest.raises(ValueError, match="channels=True needs a single task"):
        IGLRegressor(channels=True).fit_tasks([(X, y)])


@pytest.mark.parametrize(
    ("pattern", "known"),
    [("{:g}", True), ("{:.1f} nm", True), ("wl_{:g}", True), ("X{:g}", True), ("{:g} cm-1", True),
     ("[{:g}]", False), ("band {:g} of 4", False)],
)  # fmt: skip
def test_names_tell_positions(pattern, known):
    at = np.arange(850, 1050, 2.0)
    for values in (at, at[::-1]):
        found = positions_in([pattern.format(v) for v in values])
        if known:
            assert_array_equal(found, values)
        else:
            assert found is None


def test_numbered_columns_are_no_spectrum():
    assert positions_in([f"{i}" for i in range(50)]) is None
    assert positions_in([f"x{i + 1}" for i in range(50)]) is None
    assert positions_in(["850", "860", "840", *map(str, range(900, 920))]) is None
    assert positions_in(["850", "860"]) is None
    assert positions_in([*map(str, range(850, 900)), "fat"]) is None
    assert positions_in(None) is None


# --- the command line


def test_headers_that_are_wavelengths_are_channels(tmp_path):
    X, y = spectra(40)
    names = [f"{v:.1f} nm" for v in np.arange(850, 910, 2.0)]
    frame = pd.DataFrame(X[:, ::4], columns=names)
    frame.assign(fat=y).to_csv(tmp_path / "s.csv", index=False)
    file, page = tmp_path / "m.greenfold", tmp_path / "r.html"
    quick = ["-t", "fat", "-o", file, "--effort", "fast", "--random-state", "0"]
    said = run("fit", tmp_path / "s.csv", *quick).stderr
    assert "850.0 nm … 908.0 nm: 30 columns named by numbers, taken as channels" in said
    model = greenfold.load(file).estimator
    assert_array_equal(model.channels_, np.arange(850, 910, 2.0))
    run("report", file, tmp_path / "s.csv", "-o", page)
    told = json.loads(page.read_text().split('type="application/json">')[1].split("</script>")[0])
    assert {part["kind"] for part in told["coordinates"]} == {"curve"}
    assert "explains" in run("info", file).stdout
    assert "channels='30 values, 850.0 … 908.0'" in run("info", file).stdout


def test_other_columns_beside_wavelengths_are_told():
    names = [*(f"{v:g}" for v in np.arange(850, 910, 2.0)), "protein", "water"]
    options, notes = _channels(names, "IGLRegressor", {})
    assert options == {}
    assert "30 columns are named by numbers; without the other 2 (--drop protein,water)" in notes[0]
    assert _channels(names[:-2], "IGLRegressor", {})[0]["channels"][0] == 850
    for given in ({"chart": "linear"}, {"operator": "heat"}, {"channels": True}):
        assert _channels(names[:-2], "IGLRegressor", given) == ({}, [])
    assert _channels(names[:-2], "IGLAutoencoder", {}) == ({}, [])
    assert _channels(["a", "b"], "IGLRegressor", {}) == ({}, [])

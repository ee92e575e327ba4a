"""Rows without labels: they are counted, they help, and they are never taken for anything else."""

import warnings

import numpy as np
import pandas as pd
import pytest

import greenfold
from greenfold import IGLClassifier, IGLRegressor, IGLStack, IGLStackClassifier, Source, Training
from greenfold.estimators.labels import UnlabeledWarning, labeled_classes, labeled_numbers

FAST = {"effort": "fast", "random_state": 0}


def spiral(n=240, seed=0):
    """Four turns of a curve in 12 columns, and a wave along it."""
    g = np.random.default_rng(seed)
    t = (np.arange(n) + g.uniform(size=n)) / n
    angle, turn = 8 * np.pi * t, np.linalg.qr(g.normal(size=(12, 12)))[0]
    flat = np.c_[(1 + angle)[:, None] * np.c_[np.cos(angle), np.sin(angle)], np.zeros((n, 10))]
    return flat @ turn + 0.02 * g.normal(size=(n, 12)), np.sin(2 * np.pi * t)


def rings(n=100, seed=0):
    """One inside another; classes 1 and −1."""
    g = np.random.default_rng(seed)
    angle, y = g.uniform(0, 2 * np.pi, 2 * n), np.repeat([1, -1], n)
    radius = np.where(y == 1, 1.0, 2.0)
    X = radius[:, None] * np.c_[np.cos(angle), np.sin(angle)] + 0.05 * g.normal(size=(2 * n, 2))
    return X, y


def partly(y, keep):
    some = np.full(len(y), np.nan)
    some[keep] = y[keep]
    return some


def test_rows_without_labels_are_counted_and_help(tmp_path):
    X, y = spiral()
    keep = np.arange(3, 240, 12)
    with pytest.warns(UnlabeledWarning, match="220 of 240 rows have no label"):
        model = IGLRegressor(**FAST).fit(X, partly(y, keep))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it knows that it does not know
        alone = IGLRegressor(**FAST).fit(X[keep], y[keep])
    assert (model.n_unlabeled_, alone.n_unlabeled_) == (220, 0)
    assert "graph of all rows" in model.standings_[0].name
    assert 1 - model.score(X, y) < (1 - alone.score(X, y)) / 3
    np.testing.assert_allclose(model.units_.x.shift * model.units_.x.unit, X.mean(0))
    u, std = model.predict(X, return_std=True)
    assert np.isfinite(u).all()
    assert (std > 0).all()
    greenfold.save(model, tmp_path / "m.greenfold")
    np.testing.assert_array_equal(greenfold.load(tmp_path / "m.greenfold").predict(X), u)


def test_new_rows_are_known_by_their_neighbors():
    X, y = spiral(300)
    new = np.arange(0, 300, 3)
    old = np.setdiff1d(np.arange(300), new)
    with pytest.warns(UnlabeledWarning):
        model = IGLRegressor(**FAST).fit(X[old], partly(y[old], np.arange(2, 200, 10)))
    assert "graph" in model.standings_[0].name
    assert model.score(X[new], y[new]) > 0.95


def test_a_graph_does_not_win_where_neighbors_tell_nothing():
    g = np.random.default_rng(0)
    X = g.normal(size=(300, 12))
    y = X @ g.normal(size=12)
    with pytest.warns(UnlabeledWarning):
        model = IGLRegressor(**FAST).fit(X, partly(y, np.arange(0, 300, 5)))
    assert "graph" not in model.standings_[0].name
    assert any("graph" in s.name for s in model.standings_[1:])
    assert model.score(X, y) > 0.99


@pytest.mark.filterwarnings("ignore::greenfold.estimators.labels.UnlabeledWarning")
def test_marks_of_missing_labels_are_the_same():
    X, y = rings()
    keep = np.r_[0:100:20, 100:200:20]
    fits = []
    for mark, empty, unlabeled in ((np.nan, float, None), (None, object, None), (-7, int, -7)):
        labels = np.full(len(y), mark, dtype=empty)
        labels[keep] = y[keep]
        fits.append(IGLClassifier(**FAST).fit(X, labels, unlabeled=unlabeled))
    for model in fits:
        assert sorted(model.classes_.tolist()) == [-1, 1]
        assert model.n_unlabeled_ == 190
        np.testing.assert_array_equal(model.predict_proba(X), fits[0].predict_proba(X))
    assert fits[0].score(X, y) > 0.97


def test_minus_one_is_a_class_unless_told():
    X, y = rings()
    assert labeled_classes(y) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert IGLClassifier(**FAST).fit(X, y).n_unlabeled_ == 0
    with pytest.warns(UnlabeledWarning, match="100 of 200"):
        assert labeled_classes(y, -1).sum() == 100


def test_one_label_of_each_class_is_enough_where_classes_lie_apart():
    X, y = rings()
    labels = np.array([None] * len(y), dtype=object)
    labels[[0, 150]] = ["inner", "outer"]
    with pytest.warns(UnlabeledWarning):
        model = IGLClassifier(**FAST).fit(X, labels)
    names = np.where(y == 1, "inner", "outer")
    assert model.score(X, names) > 0.97
    P = model.predict_proba(X)
    assert np.median(P.max(1)) > 0.8


@pytest.mark.filterwarnings("ignore::greenfold.estimators.labels.UnlabeledWarning")
def test_stacks_average_the_graph_with_others():
    X, y = spiral()
    keep = np.arange(3, 240, 12)
    model = IGLStack(**FAST).fit(X, partly(y, keep))
    assert "graph" in model.models_
    assert model.score(X, y) > IGLStack(**FAST).fit(X[keep], y[keep]).score(X, y) + 0.2
    X, y = rings()
    model = IGLStackClassifier(**FAST).fit(X, partly(y, np.arange(0, 200, 10)))
    assert "graph" in model.models_
    assert model.score(X, y) > 0.95


@pytest.mark.filterwarnings("ignore::greenfold.estimators.labels.UnlabeledWarning")
def test_tables_weights_groups_and_other_likelihoods_see_their_own_rows():
    X, y = spiral()
    keep = np.arange(3, 240, 6)
    table = pd.DataFrame(X[:, :4], columns=list("abcd"))
    table["kind"] = np.where(np.arange(240) % 3, "round", "square")
    weight, groups = 1 + np.arange(240) % 2, np.arange(240) // 12
    given = pd.Series(partly(y, keep), name="target")
    model = IGLRegressor(**FAST).fit(table, given, sample_weight=weight, groups=groups)
    assert model.target_names_ == ["target"]
    assert model.n_unlabeled_ == 200
    assert model.score(table, y) > 0.8
    counts = partly(np.round(np.exp(1 + y)), keep)
    model = IGLRegressor(likelihood="poisson", **FAST).fit(X, counts)
    assert model.n_unlabeled_ == 200
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.filterwarnings("ignore::greenfold.estimators.labels.UnlabeledWarning")
def test_an_eigenmap_sees_all_rows():
    X, y = spiral()
    few = {"training": Training(max_iter=20), "source": Source(n_atoms=40), "random_state": 0}
    keep = np.arange(3, 240, 12)
    model = IGLRegressor("eigenmap", **few).fit(X, partly(y, keep))
    assert model.chart_.graph.psi.shape[0] == 240
    assert model.transform(X).shape == (240, 5)
    linear = IGLRegressor("linear", n_dims=5, **few).fit(X[keep], y[keep])
    assert 1 - model.score(X, y) < (1 - linear.score(X, y)) / 2
    two = IGLRegressor("eigenmap", n_dims=2, **few).fit(X, y)
    assert two.transform(X).shape == (240, 2)
    with pytest.raises(ValueError, match="gates"):
        IGLRegressor(greenfold.Chart("eigenmap", gates="learned")).fit(X, y)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda X: IGLRegressor().fit(X, np.full(9, np.nan)), "all 9 rows.*IGLAutoencoder"),
        (lambda X: IGLClassifier().fit(X, [None] * 9), "all 9 rows"),
        (lambda X: labeled_numbers([[0.0, np.nan], [1.0, 2.0]]), "row 0.*one by one"),
        (lambda X: IGLRegressor().fit(X, np.r_[np.nan, np.arange(9.0)]), "9 rows and y has 10"),
    ],
)
@pytest.mark.filterwarnings("ignore::greenfold.estimators.labels.UnlabeledWarning")
def test_messages_say_what_to_do(call, words):
    X = np.random.default_rng(0).normal(size=(9, 2))
    with pytest.raises(ValueError, match=f"(?s){words}"):
        call(X)

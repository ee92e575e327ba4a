"""What the source of a given chart is made of: every kind of atom, from fit to file and report."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from greenfold import IGLAutoencoder, IGLClassifier, IGLRegressor, export, load, save
from greenfold.green import Box, Gabor, Gaussian, Hat, MexicanHat, Point, Sine, Spectral
from tests.nested import nested

KINDS = {
    "point": Point,
    "gaussian": Gaussian,
    "gabor": Gabor,
    "mexican_hat": MexicanHat,
    "box": Box,
    "hat": Hat,
}
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1]
labels = np.where(y > 0, "up", "down")
QUICK = {"chart": "linear", "n_dims": 2, "n_atoms": 16, "max_iter": 3, "random_state": 0}


def fit(estimator, **options):
    return estimator(**nested(**{**QUICK, **options})).fit(
        X, labels if estimator is IGLClassifier else y
    )


@pytest.mark.parametrize(
    ("anchors", "estimator"),
    [
        ("free", IGLRegressor),
        ("free", IGLClassifier),
        ("free", IGLAutoencoder),
        ("grid", IGLRegressor),
        pytest.param("grid", IGLClassifier, marks=pytest.mark.slow),
        pytest.param("grid", IGLAutoencoder, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", KINDS)
def test_a_source_of_every_kind_goes_from_fit_to_file_and_report(
    name, anchors, estimator, tmp_path
):
    model = fit(estimator, anchors=anchors, atoms=name)
    assert type(model.model_.sources) is KINDS[name]
    assert not model.model_.energy
    assert model.score(X, labels if estimator is IGLClassifier else y) > 0.5
    by_class = fit(estimator, anchors=anchors, atoms=KINDS[name])
    assert (by_class.predict(X) == model.predict(X)).all()
    assert clone(by_class).source.atoms is KINDS[name]
    save(by_class, tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.source.atoms is KINDS[name]
    assert (again.predict(X) == model.predict(X)).all()
    model.report(tmp_path / "report.html")
    if KINDS[name] in (Point, Gaussian):
        export(model, tmp_path / "model.pt2")
    else:
        with pytest.raises(
            ValueError, match=f"{KINDS[name].__name__} atoms has no graph to export"
        ):
            export(model, tmp_path / "model.pt2")


def test_places_and_widths_are_learned_where_anchors_are_free():
    for estimator in (IGLRegressor, IGLClassifier, IGLAutoencoder):
        start, end = (fit(estimator, anchors="free", atoms="gabor", max_iter=n) for n in (0, 4))
        for name in Gabor.shapes:
            one, other = (getattr(m.model_.sources, name) for m in (start, end))
            assert not torch.equal(one, other), (estimator, name)


@pytest.mark.parametrize("name", ["gabor", "hat", "point"])
def test_pruning_keeps_the_kind(name):
    model = fit(IGLRegressor, anchors="free", atoms=name, sparsity=0.3)
    sources = model.model_.sources
    assert type(sources) is KINDS[name]
    assert len(sources.mu) == len(model.source_) < 16


def test_streams_and_tasks_take_the_kind():
    model = IGLRegressor(
        **nested(**{**QUICK, "max_iter": None}, anchors="free", atoms="mexican_hat")
    )
    assert type(model.fit_stream((X, y), epochs=1).model_.sources) is MexicanHat
    several = IGLRegressor(**nested(**QUICK, anchors="free", atoms="gabor")).fit_tasks(
        [(X, y), (X, y**2)]
    )
    assert all(type(one.model_.sources) is Gabor for one in several)


def test_the_spectral_form_takes_every_kind():
    operator = Spectral([Sine(12), Sine(12)])
    model = fit(IGLRegressor, anchors="grid", atoms="gabor", operator=operator, max_iter=1)
    assert np.isfinite(model.predict(X)).all()

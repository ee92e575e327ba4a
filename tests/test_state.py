"""What a fit leaves alone: other fits, the estimators it came from, the generators of the process."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info
from torch import nn

from greenfold import IGLAutoencoder, IGLClassifier, IGLRegressor, IGLStack, Source, Training
from greenfold.green import Cauchy, ScreenedPoisson
from tests.nested import nested

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (80, 3))
y = np.sin(1.5 * X[:, 0]) + 0.3 * X[:, 1] + 0.05 * rng.normal(size=80)
other = np.cos(2 * X[:, 0]) - X[:, 2]

OPTIONS = [
    {"chart": "auto"},
    {"chart": "axis"},
    {"chart": "warp"},
    {"chart": "mlp"},
    {"chart": "pca", "start": "pca", "pull": 0.1},
    {"anchors": "free"},
    {"anchors": "grid", "n_atoms": 16},
    {"gates": "learned"},
    {"gamma": "learned", "operator": ScreenedPoisson(1.0, n_terms=10)},
    {"gamma": "free", "operator": ScreenedPoisson(1.0, n_terms=10)},
    {"gamma": "alternating", "operator": ScreenedPoisson(1.0, n_terms=10)},
    pytest.param(
        {"gamma": "alternating", "operator": Cauchy(1.0, n_terms=10), "anchors": "free"},
        marks=pytest.mark.slow,
    ),
    {"sparsity": 0.1},
    {"sparsity": "importance"},
    {"mode": "joint"},
]


def fitted(**options):
    settings = {"chart": "linear", "n_atoms": 20, "max_iter": 5, "random_state": 0, **options}
    if settings["chart"] == "auto":
        settings = {"random_state": 0}
    return IGLRegressor(**nested(**settings)).fit(X, y)


def content(model):
    """The numbers of a fitted model, and what it says."""
    tensors = {k: v.clone() for k, v in model.model_.state_dict().items()}
    return {**tensors, "w": model.model_.w.clone(), "u": torch.from_numpy(model.predict(X))}


@pytest.mark.parametrize("options", OPTIONS, ids=repr)
def test_a_new_target_on_the_same_chart_leaves_the_first_one_alone(options):
    model = fitted(**options)
    before = content(model)
    second = model.refit_source(X, other)
    if options.get("mode") != "joint":
        second.partial_fit(X[:10], -other[:10])
    after = content(model)
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert second.chart_ is model.chart_
    assert np.abs(second.predict(X) - model.predict(X)).max() > 0.5  # it did learn another


def test_weights_that_take_turns_with_the_source_are_not_trained_jointly():
    model = IGLRegressor(
        chart="linear",
        operator="screened_poisson",
        source=Source(gamma="alternating"),
        training=Training(mode="joint"),
    )
    with pytest.raises(ValueError, match=r"gamma='alternating' needs mode='two-stage'"):
        model.fit(X, y)


class Noisy(nn.Module):
    """A user's chart that draws in training, by a layer and by itself."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Dropout(0.2), nn.Linear(6, 2))
        self.double()

    def forward(self, x):
        z = self.layers(x)
        return z + 0.01 * torch.randn_like(z) if self.training else z


torch.manual_seed(0)
noisy = Noisy()
many = rng.uniform(-1, 1, (260, 3)) * [1, 1, 0.1]  # enough rows for an iterative Isomap
QUICK = {"n_atoms": 15, "max_iter": 3}


def quick(estimator, seed, **options):
    return estimator(**nested(random_state=seed, **{**QUICK, **options}))


FITS = {
    "default": lambda seed: IGLRegressor(random_state=seed).fit(X, y),
    "stack": lambda seed: IGLStack(random_state=seed, effort="fast").fit(X, y),
    "classes": lambda seed: IGLClassifier(random_state=seed, effort="fast").fit(X, y > 0),
    "mlp": lambda seed: quick(IGLRegressor, seed, chart="mlp").fit(X, y),
    "adam": lambda seed: quick(IGLRegressor, seed, chart="pca", optimizer="adam").fit(X, y),
    "restarts": lambda seed: quick(IGLRegressor, seed, chart="mlp", n_restarts=3, n_jobs=2).fit(X, y),
    "conv classes": lambda seed: quick(IGLClassifier, seed, chart="conv").fit(
        np.hstack([X, X[:, :1]]), y > 0
    ),
    "tasks": lambda seed: quick(IGLRegressor, seed, chart="mlp").fit_tasks(
        [(X, y), (X, other)]
    )[1],
    "dropout": lambda seed: quick(IGLRegressor, seed, chart=deepcopy(noisy), optimizer="adam").fit(X, y),
    "dropout in classes": lambda seed: quick(IGLClassifier, seed, chart=deepcopy(noisy)).fit(X, y > 0),
    "dropout twice": lambda seed: quick(
        IGLRegressor, seed, chart=deepcopy(noisy), n_restarts=2, n_jobs=2
    ).fit(X, y),
    "isomap": lambda seed: quick(IGLAutoencoder, seed).fit(many),
    "dimension": lambda seed: quick(IGLRegressor, seed, chart="linear", n_dims="auto").fit(
        X[:60], y[:60]
    ),
    "stream": lambda seed: IGLRegressor(
        chart="mlp", random_state=seed, source=Source(n_atoms=15)
    ).fit_stream((X, y), epochs=1, blocks=2),
    "stream with dropout": lambda seed: IGLRegressor(
        chart=deepcopy(noisy), random_state=seed, source=Source(n_atoms=15)
    ).fit_stream((X, y), epochs=1, blocks=2),
}  # fmt: skip


def answer(model):
    rows = {3: X, 4: np.hstack([X, X[:, :1]])}[model.n_features_in_]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n == "dropout twice" else n for n in FITS]
)
def test_a_fit_neither_disturbs_nor_follows_the_generators_of_the_process(name):
    answers = []
    for outside in (1, 2):
        torch.manual_seed(outside)
        np.random.seed(outside)  # noqa: NPY002
        before = torch.get_rng_state(), str(np.random.get_state())  # noqa: NPY002
        answers.append(answer(FITS[name](0)))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert str(np.random.get_state()) == before[1]  # noqa: NPY002
    np.testing.assert_array_equal(*answers)


def test_without_a_seed_every_fit_is_another_and_leaves_the_generators_alone():
    before = torch.get_rng_state(), str(np.random.get_state())  # noqa: NPY002
    first, second = (answer(FITS["mlp"](None)) for _ in range(2))
    assert (first != second).any()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert str(np.random.get_state()) == before[1]  # noqa: NPY002


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fits_in_threads_are_the_bits_of_fits_one_by_one():
    """Each follows its `random_state`, whatever the others do meanwhile."""
    names = ["mlp", "adam", "stack", "conv classes", "dropout", "dropout in classes"]
    jobs = [("default", 0), *((name, seed) for name in names for seed in (0, 1))]
    alone = [answer(FITS[name](seed)) for name, seed in jobs]
    filters, limits = list(warnings.filters), threadpool_info()
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda job: FITS[job[0]](job[1]), jobs))
    assert warnings.filters == filters
    assert [pool["num_threads"] for pool in threadpool_info()] == [
        pool["num_threads"] for pool in limits
    ]
    for one, other in zip(alone, map(answer, together), strict=True):
        np.testing.assert_array_equal(one, other)

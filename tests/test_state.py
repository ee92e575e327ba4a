"""What a fit leaves alone: other fits, the estimators it came from, the generators of the process."""

import numpy as np
import pytest
import torch

from greenfold import IGLRegressor

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
    {"gamma": "learned", "operator": "screened_poisson"},
    {"gamma": "free", "operator": "screened_poisson"},
    {"gamma": "alternating", "operator": "screened_poisson"},
    {"gamma": "alternating", "operator": "cauchy", "anchors": "free"},
    {"sparsity": 0.1},
    {"sparsity": "importance"},
    {"mode": "joint"},
]


def fitted(**options):
    settings = {"chart": "linear", "n_atoms": 20, "max_iter": 5, "random_state": 0, **options}
    if settings["chart"] == "auto":
        settings = {"random_state": 0}
    return IGLRegressor(**settings).fit(X, y)


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
        chart="linear", mode="joint", gamma="alternating", operator="screened_poisson"
    )
    with pytest.raises(ValueError, match=r"gamma='alternating' .* mode='joint'"):
        model.fit(X, y)

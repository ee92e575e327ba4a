"""Small fitted models, one of each kind, made once."""

from functools import cache

import numpy as np
import torch
from torch import nn

import greenfold
from greenfold import Chart, IGLAutoencoder, IGLClassifier, IGLRegressor, Source, Training
from greenfold.green import Affine, Anova, Heat, ScreenedPoisson, Superposition
from tests.nested import nested

_i = np.arange(60)[:, None]
X = np.sin(_i * np.sqrt([2.0, 3.0, 5.0, 7.0])) + 0.1 * np.cos(_i)
y = np.sin(X[:, 0] + X[:, 1]) + 0.2 * X[:, 2]
rough = np.abs(X[:, 0]) + np.sign(X[:, 1]) + 0.3 * np.cos(99 * X[:, 2])
labels = np.where(y > 0.3, "high", np.where(y > -0.3, "middle", "low"))


class Own(nn.Module):
    """A chart whose code is not greenfold's."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.first = nn.Linear(4, width, dtype=torch.float64)
        self.last = nn.Linear(width, 2, dtype=torch.float64)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


def _own() -> IGLRegressor:
    torch.manual_seed(0)
    return IGLRegressor(chart=Own(), random_state=0, training=Training(max_iter=3)).fit(X, y)


def _layers() -> IGLRegressor:
    torch.manual_seed(0)
    chart = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 2)).double()
    return IGLRegressor(chart=chart, random_state=0, training=Training(max_iter=3)).fit(X, y)


def _conv() -> IGLRegressor:
    return IGLRegressor(
        chart="conv", random_state=0, source=Source(n_atoms=20), training=Training(max_iter=3)
    ).fit(X, y)


QUICK = {"chart": "linear", "max_iter": 3, "n_atoms": 20, "random_state": 0}


def regressor(**options) -> IGLRegressor:
    return IGLRegressor(**nested(**{**QUICK, **options})).fit(X, y)


KINDS = {
    "search": lambda: IGLRegressor(random_state=0).fit(X, y),
    "two_targets": lambda: IGLRegressor(
        Chart("mlp", gates="learned"),
        random_state=np.random.RandomState(7),
        training=Training(max_iter=3),
    ).fit(X, np.stack([y, y**2], axis=1)),
    "laplace": lambda: regressor(operator="product_screened", alpha=1e-3),
    "exponential": lambda: regressor(operator="exponential", alpha=1e-3),
    "anova": lambda: regressor(operator=Anova([0.7, 0.4]), alpha=1e-3),
    "anova_smooth": lambda: regressor(
        operator=Anova(0.6, [1.5, 0.5], order=2, learn=True), gates="learned", alpha=1e-3
    ),
    "learned_gamma": lambda: regressor(operator=ScreenedPoisson(1.0, n_terms=12), gamma="learned"),
    "free_gamma": lambda: regressor(operator="cauchy", gamma="free", anchors="free", n_atoms=8),
    "importance": lambda: regressor(sparsity="importance", start="isomap"),
    "sparse": lambda: regressor(sparsity=0.1, chart="warp", anchors="grid", n_atoms=16),
    "joint": lambda: regressor(mode="joint", chart="pca"),
    "superposition": lambda: regressor(operator=Superposition([Heat(0.5), ScreenedPoisson(2.0)])),
    "affine": lambda: regressor(operator=Affine(), alpha=1e-2),
    "affine_beside_heat": lambda: regressor(
        operator=Superposition([Heat(0.5), Affine(2.0, level=0.0)], axes=[[0], [1]])
    ),
    "conv": _conv,
    "layers": _layers,
    "classes": lambda: IGLClassifier(**nested(**QUICK)).fit(X, labels),
    "least_squares": lambda: IGLClassifier(**nested(**QUICK, loss="least_squares")).fit(X, y > 0),
    "rows": lambda: IGLAutoencoder(**nested(**{**QUICK, "chart": "pca"}, start="pca")).fit(X),
}  # fmt: skip


if hasattr(greenfold, "IGLStack"):
    KINDS["stack"] = lambda: greenfold.IGLStack(random_state=0).fit(X, y)
    KINDS["class_stack"] = lambda: greenfold.IGLStackClassifier(random_state=0).fit(X, labels)
    KINDS["rough_stack"] = lambda: greenfold.IGLStack(random_state=0).fit(X, rough)


@cache
def fitted(kind: str):
    return KINDS[kind]()


@cache
def own() -> IGLRegressor:
    return _own()

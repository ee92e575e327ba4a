"""What users may say about a chart, its source and its training; each reads like what it describes.

`chart="mlp"` means `Chart("mlp")`, and None means `Source()` or `Training()`. They are scikit-learn
parameters: `clone` copies them, and a search reaches `chart__pull` and `source__n_atoms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from sklearn.base import BaseEstimator
from torch import nn

from greenfold.green.atoms import Atoms
from greenfold.green.base import Operator
from greenfold.learn.trainer import Callback
from greenfold.options import defaults_of, same


class Chart(BaseEstimator):
    """How x becomes ξ, for a chart whose kind is given.

    Parameters
    ----------
    kind : 'auto', 'axis', 'linear', 'warp', 'eigenmap', 'mlp', 'pca', 'conv' or nn.Module
        'auto' finds one, and has no other parameters. 'eigenmap' are the lowest eigenfunctions of a graph
        of all rows, those without labels too, and scales of them. A module maps (n, D) to (n, d) in
        float64 and is trained in place.
    start : 'auto', 'pca', 'isomap' or None
        Coordinates that the chart is fitted to before training. Isomap unrolls what is rolled up; 'auto'
        is that where the data are rebuilt by a chart that can turn its axes, and None elsewhere.
    pull : float
        Weight of the squared distance to that start, kept during training.
    gates : 'open' or 'learned'
        Learn how far each coordinate is open, between 0 and 1.
    hidden : sequence of int, optional
        Widths of the hidden layers of 'mlp' and of the residual of 'pca'; (64, 64) by default.
    shape : (int, int, int), optional
        Channels, height and width of the images that rows are, for 'conv'; by default one square.

    Examples
    --------
    >>> from greenfold import IGLRegressor
    >>> IGLRegressor(Chart("mlp", pull=0.1, start="isomap")).get_params()["chart__pull"]
    0.1
    """

    def __init__(
        self,
        kind: str | nn.Module,
        *,
        start: str | None = "auto",
        pull: float = 0.0,
        gates: str = "open",
        hidden: Sequence[int] | None = None,
        shape: tuple[int, int, int] | None = None,
    ):
        self.kind = kind
        self.start = start
        self.pull = pull
        self.gates = gates
        self.hidden = hidden
        self.shape = shape


class Source(BaseEstimator):
    """What the source is made of, and how it is solved for.

    Parameters
    ----------
    anchors : 'tied', 'free' or 'grid'
        Where the atoms of a given chart's source sit: at images of rows, so that they move with the
        chart; anywhere, with positions and widths learned; or on a fixed grid (for few dimensions).
    atoms : 'auto', 'point', 'gaussian', 'gabor', 'mexican_hat', 'box', 'hat' or such a class
        What that source is made of. 'auto' is points at tied anchors and Gaussians elsewhere, about as
        wide as they are apart. Kinds with a width need anchors='free' or 'grid', and an operator whose
        response to them is known.
    n_atoms : int, optional
        How many at most. By default as many rows as the kernel needs, up to 1500 (for classes 1000, or
        4000 over their number), or 150 while a given chart is trained.
    alpha : float, 'evidence', 'gcv' or 'loo'
        Strength of the energy penalty in the final solve: a number, or how to choose it.
    gamma : 'fixed', 'learned', 'free' or 'alternating'
        Weights of the operator's exponential sum; see `IGL`. Other than 'fixed' u no longer solves the
        operator's equation.
    sparsity : float or 'importance'
        A number from 0 to 1 is the strength of a group lasso as a fraction of what removes every atom:
        atoms with exactly zero strength are dropped and the others solved for again. With
        objective='penalized' a given chart descends the lasso itself. 'importance' learns a factor
        ρ_r for every atom with a given chart.

    Examples
    --------
    >>> from greenfold import IGLRegressor, Source
    >>> model = IGLRegressor("linear", n_dims=2, source=Source("free", atoms="gabor", n_atoms=30))
    >>> model.get_params()["source__n_atoms"]
    30
    """

    def __init__(
        self,
        anchors: str = "tied",
        *,
        atoms: str | type[Atoms] = "auto",
        n_atoms: int | None = None,
        alpha: float | str = "evidence",
        gamma: str = "fixed",
        sparsity: float | str = 0.0,
    ):
        self.anchors = anchors
        self.atoms = atoms
        self.n_atoms = n_atoms
        self.alpha = alpha
        self.gamma = gamma
        self.sparsity = sparsity


class Training(BaseEstimator):
    """How a given chart is trained.

    Parameters
    ----------
    objective : 'evidence', 'loo', 'gcv', 'penalized' or 'log_mse'
        What it descends, with the source solved for at every step.
    mode : 'two-stage' or 'joint'
        Two-stage solves for the source inside every step; joint training, for comparison, moves chart
        and source together down the mean squared residual.
    optimizer : 'auto', 'lbfgs' or 'adam'
        L-BFGS on all rows, or Adam on minibatches with running sums of the Gram matrix; automatic above
        5000 rows.
    max_iter : int, optional
        Iterations, or epochs for Adam: 100 by default, for classes 20.
    n_restarts : int
        Starts of the chart; the best by the objective is kept.
    callbacks : iterable of callables, optional
        Functions of `Epoch`, called after each iteration.

    Examples
    --------
    >>> from greenfold import IGLRegressor, Training
    >>> model = IGLRegressor("mlp", n_dims=2, training=Training("loo", max_iter=50))
    >>> model.get_params()["training__max_iter"]
    50
    """

    def __init__(
        self,
        objective: str = "evidence",
        *,
        mode: str = "two-stage",
        optimizer: str = "auto",
        max_iter: int | None = None,
        n_restarts: int = 1,
        callbacks: Iterable[Callback] | None = None,
    ):
        self.objective = objective
        self.mode = mode
        self.optimizer = optimizer
        self.max_iter = max_iter
        self.n_restarts = n_restarts
        self.callbacks = callbacks


SPECS: dict[str, type[BaseEstimator]] = {"chart": Chart, "source": Source, "training": Training}


def nested(options: dict[str, Any]) -> dict[str, Any]:
    """Arguments of an estimator from options on one level."""
    rest = dict(options)
    for name, spec in SPECS.items():
        own = {k: rest.pop(k) for k in defaults_of(spec) if k in rest and k != "kind"}
        if any(not same(value, defaults_of(spec)[k]) for k, value in own.items()):
            rest[name] = Chart(rest.get(name, "auto"), **own) if spec is Chart else spec(**own)
    return rest


class Settings(SimpleNamespace):
    """All options of an estimator in one place, those that it does not have at their default.

    `chart` is the kind of chart; of `Chart`, `Source` and `Training` every parameter stands for itself.
    """

    operator: Any = "auto"
    n_dims: Any = None
    loss = "auto"
    likelihood: Any = "gaussian"
    effort = "normal"
    channels: Any = None
    image_shape: Any = False
    cv: Any = None
    n_jobs: int | None = None
    verbose = 0
    classifies = False
    rebuilds = False

    @property
    def given(self) -> bool:
        """Is the kind of chart given, rather than searched for?"""
        return isinstance(self.chart, nn.Module) or self.chart != "auto" or self.rooted

    @property
    def rooted(self) -> bool:
        """Are columns places for the operator? Then there is nothing to search for."""
        return isinstance(self.operator, Operator) and self.operator.rooted

    @property
    def as_given(self) -> bool:
        """Does the chart see the user's own numbers?"""
        return self.rooted and (isinstance(self.chart, nn.Module) or self.chart == "auto")

    @property
    def iterations(self) -> int:
        if self.max_iter is not None:
            return int(self.max_iter)
        return 20 if self.classifies else 100


def on_one_level(estimator: Any) -> dict[str, Any]:
    """Its parameters, with those of `Chart`, `Source` and `Training` in place of them."""
    own: dict[str, Any] = {}
    for name, value in estimator.get_params(deep=False).items():
        if name not in SPECS:
            own[name] = value
            continue
        more = spec_of(value, name).get_params(deep=False)
        own |= {"chart" if k == "kind" else k: v for k, v in more.items()}
    return own


def settings_of(estimator: Any) -> Settings:
    """All options of an estimator."""
    defaults = {k: v for spec in SPECS.values() for k, v in defaults_of(spec).items()}
    kind = {
        "classifies": hasattr(estimator, "predict_proba"),
        "rebuilds": hasattr(estimator, "inverse_transform"),
    }
    return Settings(**{"chart": "auto", **defaults, **on_one_level(estimator), **kind})


def spec_of(value: Any, name: str) -> Any:
    """The `Chart`, `Source` or `Training` that is meant."""
    spec = SPECS[name]
    if isinstance(value, spec):
        return value
    if spec is Chart:
        return Chart(value)
    if value is None:
        return spec()
    raise ValueError(f"`{name}` must be a {spec.__name__}(...) or None, got {value!r}.")

"""A stack of charts for classes."""

from typing import Any

import torch

from greenfold.estimators.base import Stacked
from greenfold.estimators.classes import ANCHORS, Classes, laws, solver
from greenfold.estimators.options import check
from greenfold.learn.data import Rows
from greenfold.learn.found import CHARTS, tuned_charts
from greenfold.learn.predictor import Predictor
from greenfold.learn.raised import SKETCH, stacked
from greenfold.learn.units import Array
from greenfold.likelihoods.classes import NEAR, temperature
from greenfold.state import one_thread, seed_of


class IGLStackClassifier(Classes, Stacked):
    """Up to three charts for classes, their probabilities averaged with weights from rows left out.

    For tables where no single chart is right. The charts are the best of those that compete in
    `IGLClassifier`, each with a scale, a penalty and sources of its own; the less log-loss they have at
    rows left out the more they weigh, and all have one temperature. Each is solved for by cross-entropy
    or by least squares, as with `IGLClassifier(loss='auto')`. There is no one `chart_`: use
    `IGLClassifier` for that.

    Parameters
    ----------
    class_weight : dict, 'balanced' or None
        Factors on the weights of rows by class; 'balanced' gives every class the same total.
    effort : 'fast', 'normal' or 'full'
        See `IGLClassifier`.
    image_shape : (height, width) or (channels, height, width), optional
        See `IGLClassifier`.
    channels, cv, n_jobs, random_state, verbose
        See `IGLRegressor`.

    Attributes
    ----------
    classes_ : ndarray
    models_ : dict of str to IGL
        The models that are averaged, in internal units.
    weights_ : dict of str to float
    temperature_ : float
        What the logits of every chart are divided by before their probabilities are averaged.
    standings_ : list of Standing
        What competed: the charts that are averaged, by their `weight`, then the others, the best first.
        See `IGLClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(80, 2))
    >>> y = np.where((X**2).sum(1) < 1, "in", "out")
    >>> model = IGLStackClassifier(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9), model.predict_proba(X).shape
    (True, (80, 2))
    >>> model.decision_function(X).shape, model.predict_log_proba(X).shape
    ((80,), (80, 2))
    """

    def __init__(
        self,
        *,
        class_weight: dict[Any, float] | str | None = None,
        effort: str = "normal",
        channels: Any = None,
        image_shape: Any = None,
        cv: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.class_weight = class_weight
        self.effort = effort
        self.channels = channels
        self.image_shape = image_shape
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        groups: Any = None,
        *,
        unlabeled: Any = None,
    ) -> "IGLStackClassifier":
        """Learn the charts, and the weights of their probabilities.

        Parameters
        ----------
        X : array-like of shape (n, D)
        y : array-like of shape (n,)
            Labels, numbers or strings.
        sample_weight, groups
            See `IGLRegressor.fit`.
        unlabeled
            See `IGLClassifier.fit`.

        Returns
        -------
        IGLStackClassifier
            Itself.
        """
        check(self)
        X, Y, weight, folds = self._labeled(X, y, sample_weight, groups, unlabeled)
        x = self._inputs(X)
        self._remember(X, Y, weight)
        rows = Rows.of(x, torch.from_numpy(Y), weight, folds)
        with one_thread():
            raced = self._race(rows, seed_of(self.random_state), self._take_others())
            law, rival = laws(self._s.loss, len(self.classes_))
            charts, by = tuned_charts(raced, self._s, law, CHARTS, rival)
            charts = [one.settled for one in charts]  # logits of all have one unit
            stack, members = stacked(charts, by, raced, self._s, ANCHORS), []
            with torch.no_grad():
                for k, one in enumerate(stack.charts):
                    whole = stack.raised and stack.raised[k].model
                    most = SKETCH if whole else ANCHORS
                    model, alpha = raced.model(one.fit, one.alpha, most)
                    x, target = raced.rows[:2]
                    model.solve(x, target, solver(one.law, alpha), raced.rows.weights)
                    members.append(stack.member(k, model, alpha))
        T = temperature(stack.f, stack.Y, stack.weight, stack.share, near=NEAR)
        self.predictor_ = Predictor(self.units_, tuple(members), temperature=T)
        self.standings_ = raced.standings(
            [(float(w), one.fit) for w, one in zip(stack.share, stack.charts)]
        )
        return self

    def decision_function(self, X: Any) -> Array:
        """Log-odds for two classes, logarithms of the probabilities (n, c) for more.

        Parameters
        ----------
        X : array-like of shape (n, D), or table
            Rows.

        Returns
        -------
        ndarray of shape (n,) or (n, c)
        """
        p = self.predict_log_proba(X)
        return p[:, 1] - p[:, 0] if len(self.classes_) == 2 else p

"""Classification on a learned chart."""

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor, nn

from greenfold.design import Design
from greenfold.estimators.classes import ANCHORS, Classes, laws, log_loss, n_anchors, solver
from greenfold.estimators.options import check
from greenfold.estimators.streaming import Streaming, check_forget
from greenfold.green.base import Operator
from greenfold.learn.applicability import Domain
from greenfold.learn.data import Rows
from greenfold.learn.found import tuned_charts, won_by_graph
from greenfold.learn.given import Given
from greenfold.learn.graphs import lone
from greenfold.learn.penalty import fewest
from greenfold.learn.posterior import Posterior
from greenfold.learn.raised import SKETCH, Raised, raised
from greenfold.learn.units import Array
from greenfold.learn.wide import wide
from greenfold.likelihoods.classes import NEAR, Softmax, temperature
from greenfold.likelihoods.ordinal import Ordinal
from greenfold.model import IGL
from greenfold.solve import (
    Logistic,
    Ridge,
    Solution,
    Solver,
    Statistics,
    cross_entropy,
    evidence,
    laplace_evidence,
    left_out,
    squares,
)
from greenfold.solve.criteria import scan
from greenfold.solve.likely import Likely
from greenfold.solve.passes import Pass, left_out_of
from greenfold.spec import Chart, Source, Training
from greenfold.state import one_thread, seed_of

LEAST_SQUARES = 1000  # anchors, of which streams keep the sums
MANY = 12  # classes above which least squares stands in for cross-entropy while a given chart is trained


def _least_squares(classifier: "IGLClassifier") -> bool:
    """Newton's method on cross-entropy needs the rows; least squares only their sums."""
    return classifier.loss == "least_squares"


class IGLClassifier(Classes, Streaming):
    """Classification on a learned chart, with probabilities that mean what they say.

    Without settings, charts and kernels compete by the log-loss of rows left out, on class indicators:
    frames in the units of the data and standardized, and, unless these leave less than 5% of the class
    entropy, frames whitened within classes and axis scales; where four fifths of it are left, linear
    charts found by pursuit too. Of few rows with many columns, lines and few directions of principal
    components compete, and the fewest coordinates win that these cannot tell from the best. Scale and
    penalty of the best three are chosen by the cross-entropy of folds that neither sources nor charts
    have seen; the sources of the best, at up to 3000 rows, are solved for with one factor for all
    classes. Give `chart` to train one kind of chart instead, by the Laplace approximation of the evidence
    of the classes. Rows that do not fit in memory go to `fit_stream`, with either loss.

    Parameters
    ----------
    chart, operator, n_dims
        See `IGLRegressor`.
    loss : 'auto', 'cross_entropy', 'ordinal' or 'least_squares'
        What the source is solved for. Least squares on class indicators gives no probabilities of its
        own: theirs are a softmax at the temperature that suits left-out rows best. 'auto' means
        cross-entropy, but where charts compete least squares for more than twelve classes, and for more
        than two where rows left out prefer it (`loss_`). For classes in an order, that of `classes_`,
        'ordinal' learns one function and the thresholds between them.
    class_weight : dict, 'balanced' or None
        Factors on the weights of rows by class; 'balanced' gives every class the same total.
    effort : 'fast', 'normal' or 'full'
        'fast' has no axis scales; 'full' has mixed and warped axes too, and searches wider.
    source : Source, optional
        What the source is made of; its penalty is chosen by rows left out.
    image_shape : (height, width) or (channels, height, width), optional
        Are rows pictures? Then convolutions compete, with ten coordinates, learned by episodes: some rows
        solve, others judge. By default rows are pictures where their columns are a square whose
        neighbors are alike; False forbids it.
    channels, training, cv, n_jobs, random_state, verbose
        See `IGLRegressor`.

    Attributes
    ----------
    classes_ : ndarray
    model_, chart_, gates_, source_, solver_info_
        See `IGLRegressor`.
    loadings_, explained_
        See `IGLRegressor`; R² is that of class indicators, by least squares.
    effects_ : Effects
        Of the log-odds of two classes; of more a list, one for each class. See `IGLRegressor`.
    image_shape_ : tuple of int or None
        Channels, height and width, if rows were taken as pictures.
    n_unlabeled_ : int
        Rows without a label.
    alpha_ : float
        Strength of the energy penalty.
    effective_rank_ : float
        Degrees of freedom the sources use, all classes together.
    standings_ : list of Standing
        See `IGLRegressor`; the score is the mean log-loss at rows left out, for those not in use that of
        class indicators.
    history_ : History or None
        The descent of a given chart; None with chart='auto'.
    loss_ : 'cross_entropy', 'ordinal' or 'least_squares'
        What the source was solved for.
    temperature_ : float
        What logits are divided by: where rows left out have the least log-loss. 1 for cross-entropy on a
        given chart.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(80, 2))
    >>> y = np.where((X**2).sum(1) < 1, "in", "out")
    >>> model = IGLClassifier(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9), model.predict_proba(X).shape
    (True, (80, 2))
    >>> model.decision_function(X).shape, model.predict_log_proba(X).shape  # log-odds; logarithms
    ((80,), (80, 2))
    >>> len(model.transform(X)), model.applicability(X).outside.shape
    (80, (80,))
    """

    def __init__(
        self,
        chart: str | nn.Module | Chart = "auto",
        operator: str | Operator = "auto",
        n_dims: int | str | None = None,
        *,
        loss: str = "auto",
        class_weight: dict[Any, float] | str | None = None,
        effort: str = "normal",
        channels: Any = None,
        image_shape: Any = None,
        source: Source | None = None,
        training: Training | None = None,
        cv: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.chart = chart
        self.operator = operator
        self.n_dims = n_dims
        self.loss = loss
        self.class_weight = class_weight
        self.effort = effort
        self.channels = channels
        self.image_shape = image_shape
        self.source = source
        self.training = training
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
    ) -> "IGLClassifier":
        """Find the chart and solve for the source of every class.

        Parameters
        ----------
        X : array-like of shape (n, D)
        y : array-like of shape (n,)
            Labels, numbers or strings. Rows with None or NaN have no label: they tell what X looks like,
            and a graph of all rows competes.
        sample_weight, groups
            See `IGLRegressor.fit`.
        unlabeled : label, optional
            Another mark of rows without a label, such as -1.

        Returns
        -------
        IGLClassifier
            Itself.
        """
        check(self)
        X, Y, weight, folds = self._labeled(X, y, sample_weight, groups, unlabeled)
        x = self._inputs(X)
        self._remember(X, Y, weight)
        rows, others = Rows.of(x, torch.from_numpy(Y), weight, folds), self._take_others()
        if self.loss == "ordinal":
            index = rows.Y.argmax(1, keepdim=True).double()
            self._inputs(X, 1)
            self._remember(X, index.numpy(), weight)
            law = Ordinal(len(self.classes_))
            self._learn_likely(rows._replace(Y=index), seed_of(self.random_state), law)
            return self
        _, target, w, _ = rows
        seed, begin = seed_of(self.random_state), time.perf_counter()
        s, found = self._s, list[Raised]()
        if s.given:
            draws = torch.Generator().manual_seed(seed)
            model, by = self._learn_chart(rows, draws, others)
        else:
            with one_thread():
                model, by, found = self._choose(rows, seed, others)
        self._settle(model, rows)
        with one_thread(), torch.no_grad():
            solution = model.solve(x, target, by, w)
            self._store(model, solution)
            own = rows.own(dealt=s.given and self.cv is not None)
            self.domain_ = Domain.of(model, x, own)
            if isinstance(by, Likely):  # folds have judged it
                self.effective_rank_ = solution.info["degrees"]
                member = self._member._replace(sharpness=by.law.sharpness)
                self.predictor_ = replace(self.predictor_, members=(member,))
                self._store_whole(found)
                return self
            logits = self._finish(rows, solution, own)
        if s.given:
            error = log_loss(logits / self.temperature_, target, w)
            self._alone(error, len(x), time.perf_counter() - begin)
        return self

    @property
    def loss_(self) -> str:
        if self.loss in ("ordinal", "least_squares"):
            return self.loss
        return "least_squares" if self._member.sharpness else "cross_entropy"

    def _choose(
        self, rows: Rows, seed: int, others: Tensor | None
    ) -> tuple[IGL, Solver, list[Raised]]:
        """The chart that predicts left-out rows best, and what solves for its source.

        With a source at every row, where that predicts them better; the model is then its sketch.
        """
        raced, s = won_by_graph(self._race(rows, seed, others)), self._s
        self.history_, found = None, list[Raised]()
        law, rival = laws(self.loss, len(self.classes_))
        if self.loss == "least_squares":
            first = raced.fits[0]
            alpha, most = first.noise, n_anchors(LEAST_SQUARES, rows.Y.shape[1], None)
        elif others is not None and lone(raced.data):
            first, most, law = raced.fits[0], ANCHORS, Softmax(len(self.classes_))
            alpha = first.noise
        else:
            kept = len(raced.fits) if wide(raced.data) else 1
            best = fewest(*tuned_charts(raced, s, law, kept, rival))
            found, most = raised([best], raced, s, ANCHORS), ANCHORS
            for more in found:
                best, most = more.chart, ANCHORS if more.model is None else SKETCH
            first, alpha = best.fit, best.alpha
            assert isinstance(best.law, Softmax)
            law = best.law
            self.predictor_ = replace(self.predictor_, temperature=law.temperature)
        self.standings_ = raced.standings([(1.0, first)])
        model, alpha = raced.model(first, alpha, s.n_atoms or most)
        if self.loss == "least_squares":
            return model, Ridge(alpha, relative=False), found
        return model, solver(law, alpha), found

    def _learn_chart(
        self, rows: Rows, generator: torch.Generator, others: Tensor | None = None
    ) -> tuple[IGL, Solver]:
        """Stage 1 for a given chart, with the source solved for at every step; what does so at last."""
        x, Y, weight, _ = rows
        alone = self.loss == "least_squares"
        many = not alone and Y.shape[1] > MANY  # least squares stands in
        objective = evidence if many or alone else laplace_evidence
        given = Given(self._s, objective, others)
        atoms = n_anchors(200, Y.shape[1], self._s.n_atoms)
        model, self.history_, alpha = given.train(rows, atoms, generator)
        self._keep_dimension(given)
        self.n_iter_ = max(1, len(self.history_.loss))
        if many:
            with torch.no_grad():
                alpha = strength(model.design(x), Y, weight, given.unit_strength(model, x))
        return model, Ridge(alpha, relative=False) if alone else Logistic(alpha, relative=False)

    def _finish(self, rows: Rows, solution: Solution, folds: Tensor | None) -> Tensor:
        """Degrees of freedom, and for least squares the temperature; logits of rows left out.

        Of charts that compete with cross-entropy these are known: their folds judged them.
        """
        Y, weight, design = rows.Y, rows.weight, self.model_.design(rows.x)
        loss = squares if self.loss == "least_squares" else cross_entropy
        left = left_out(design, Y, solution, loss, weight, folds)
        self.effective_rank_ = left.rank
        if self.loss != "least_squares":
            return left.u
        self._sums = Statistics()  # for `partial_fit`
        self._sums.update(design, Y, weight)
        T = temperature(left.u.numpy(), Y.numpy(), rows.weights.numpy())
        self.predictor_ = replace(self.predictor_, temperature=T)
        return left.u

    @available_if(_least_squares)  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        forget: float = 1.0,
    ) -> "IGLClassifier":
        """Add rows: the source is solved for again, exactly, as if all rows were there; the chart stays.

        With loss='least_squares'. The first call of all is `fit`, and needs rows of every class.

        Parameters
        ----------
        X : array-like of shape (n, D)
        y : array-like of shape (n,)
        classes : array-like, optional
            All classes there are; checked in the first call.
        sample_weight : array-like of shape (n,), optional
        forget : float
            What rows of before count from now on; 1 forgets nothing.
        """
        check_forget(forget)
        if not hasattr(self, "model_"):
            missing = sorted(set(classes if classes is not None else []) - set(y))
            if missing:
                raise ValueError(
                    f"the first rows must be of every class, and there are none of {missing}."
                )
            return self.fit(X, y, sample_weight)
        X, y, weight = self._new_rows(X, y, sample_weight)
        with torch.no_grad():
            x, target = self._inside(X), self._stream_target(y)
            self._sums.decay = forget
            self._sums.update(self.model_.design(x), target, weight)
            solution = self._solve_sums(self.model_, self._sums)
            self.model_.w = solution.w
            self._finish_stream(self.model_, self._sums, solution, Rows(x, target))
        self.fitted_to_ = (self._sums.rows, self._sums.n)
        self.__dict__.pop("data_sha256_", None)
        return self

    def _begin_stream(self, X: Array, y: Any, labels: Any) -> tuple[Tensor, Tensor]:
        """Classes from all rows, units from a sample."""
        X, y = self._validated(X, y, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_ = labels.values
        if len(self.classes_) < 2:
            raise ValueError(f"a classifier needs two classes, got one class: {self.classes_}.")
        target = self._stream_target(y)
        if int((target.sum(0) > 0).sum()) < 2:
            raise ValueError(
                f"all {len(y)} rows of the sample are of the class {y[0]}, of {len(self.classes_)} "
                "classes that there are. Raise `sample`."
            )
        return self._inputs(X), target

    def _stream_factor(self, labels: Any) -> Tensor | None:
        """Such that the mean weight of all rows is 1."""
        if self.class_weight is None:
            return None
        factor = self._class_weights(labels.counts.astype(np.float64))
        if not (factor > 0).all():
            raise ValueError(
                "streams need class weights above 0: leave out the rows of a class that is not to count. "
                f"Got {dict(zip(self.classes_.tolist(), factor.tolist()))}."
            )
        return torch.from_numpy(factor * (labels.counts.sum() / (labels.counts @ factor)))

    def _stream_strength(self, model: IGL, rows: Rows) -> float:
        """That of the sample, absolute: all rows have the same prior of the source."""
        alpha = None if self._s.given else self.absolute_alpha_
        if alpha is not None:
            return alpha
        Y = rows.Y[:, rows.Y.sum(0) > 0]  # classes that it has
        unit = Given(self._s).unit_strength(model, rows.x)
        return strength(model.design(rows.x), Y, rows.weight, unit)

    def _stream_target(self, y: Any) -> Tensor:
        index = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        unknown = np.unique(np.asarray(y)[self.classes_[index] != y])
        if len(unknown):
            raise ValueError(
                f"the classes {unknown} are new; those of the first rows were {self.classes_}."
            )
        return torch.from_numpy(np.eye(len(self.classes_))[index])

    def _finish_stream(
        self, model: IGL, sums: Statistics | Pass, solution: Solution, rows: Rows
    ) -> float:
        """Degrees of freedom on all rows; temperature and log-loss on those at hand, each left out."""
        x, target, weight, _ = rows
        known = target.numpy(), rows.weights.numpy()
        if isinstance(sums, Pass):
            logits = left_out_of(sums, model.design(x), target, rows.weights, solution.w)
            self.effective_rank_ = solution.info["degrees"]
            T = 1.0 if self._s.given else temperature(logits.numpy(), *known, near=NEAR)
        else:
            self._sums = sums
            posterior = Posterior.from_sums(model, sums, solution, x, target, weight)
            logits = target - torch.from_numpy(posterior.loo_errors)
            self.effective_rank_ = posterior.rank
            T = temperature(logits.numpy(), *known)
        self.predictor_ = replace(self.predictor_, temperature=T)
        self._store(model, solution)
        self._keep_sample(x, target.numpy())
        return log_loss(logits / self.temperature_, target, weight)

    def decision_function(self, X: Any) -> Array:
        """Log-odds for two classes, logits (n, c) for more; of classes in an order η (n,).

        Parameters
        ----------
        X : array-like of shape (n, D), or table
            Rows.

        Returns
        -------
        ndarray of shape (n,) or (n, c)
        """
        X = self.encode(X)
        u = self.predictor_.u(self._inside(X)) / self.temperature_
        if u.shape[1] == 1:  # of classes in an order, the one function
            return u[:, 0]
        return u[:, 1] - u[:, 0] if len(self.classes_) == 2 else u


@torch.no_grad()
def strength(design: Design, Y: Tensor, weight: Tensor | None, unit: float) -> float:
    """α of the best Laplace evidence of the classes, on a chart as it is."""

    def loss(log_alpha: float) -> float:
        return float(laplace_evidence(design, Y, log_alpha, weight, tol=1e-5))

    return scan(loss, math.log(1e-4 * unit), math.log(10 * unit), 0.5)

"""How targets are distributed around what a model computes: counts, quantiles, outliers, times.

A model computes η(x) (n, c). A likelihood says what a target costs there, −log p(y | η) in nats, with its
slope and its curvature in η, so that one solver and one way to judge rows left out serve all of them::

    poisson             y ~ Poisson(e^η · exposure)
    negative_binomial   the same with variance μ + μ²/r; r from rows left out
    student_t           y = η + s ε, ε of few degrees of freedom: outliers hardly count; s likewise
    lognormal           log y = η + σ ε, ε normal, y known or known to be larger; σ likewise
    Quantile(levels)    P(y < η_k) = level_k

Charts compete on working targets, which are nearly normal; scale, penalty and source of the best are
those of the likelihood itself.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit, gammaln, log_ndtr, logsumexp, ndtri
from scipy.stats import nbinom, norm, poisson

Array = NDArray[np.float64]

WIDEST = 30.0  # |log μ| beyond which exponentials say nothing more


class Terms(NamedTuple):
    """Of −log p in nats, at one η for every row."""

    value: Array  # (n,), up to what η does not change
    slope: Array  # (n, c)
    curvature: Array  # (n,), what a step may rely on: positive


class Likelihood(ABC):
    """What targets Y (n, k) mean. The first column is in the units of η; others say more of a row."""

    outputs: int = 1  # c
    beside: ClassVar[str | None] = None  # what `fit` may be told of every row beside y
    scaled: ClassVar[bool] = True  # is η in units of y, or a number of its own?
    settles: ClassVar[bool] = False  # has it numbers of its own that a solve depends on?

    @property
    def contrasts(self) -> int:
        """Functions that are free."""
        return self.outputs

    def columns(self, y: Array, beside: Array | None) -> Array:
        """Y (n, k) from y (n,) and what else is known."""
        return y[:, None]

    def inside(self, Y: Array, shift: float, scale: float) -> Array:
        """With the first column as the model sees it."""
        return np.hstack([(Y[:, :1] - shift) / scale, Y[:, 1:]]) if self.scaled else Y

    def working(self, Y: Array) -> tuple[Array, Array]:
        """What charts learn from by least squares (n, 1), and how much of it rows tell (n,)."""
        return near_most(Y[:, :1]), np.ones(len(Y))

    @abstractmethod
    def start(self, Y: Array, weight: Array) -> Array:
        """The best constant (c,), or nearly."""

    @abstractmethod
    def at(self, f: Array, Y: Array) -> Terms:
        """Of rows with η = f (n, c)."""

    def fitted(self, f: Array, Y: Array, weight: Array) -> Likelihood:
        """With its own numbers where rows left out, at which f was predicted, are likeliest."""
        return self

    def losses(self, f: Array, Y: Array, weight: Array) -> Array:
        """What rows cost (n,), in nats."""
        value = self.at(f, Y).value
        return np.where(np.isfinite(value), value, np.inf)

    def tried(self, f: Array, Y: Array, weight: Array) -> Array:
        """The same while scale and penalty are chosen."""
        return self.fitted(f, Y, weight).losses(f, Y, weight)

    def pays(self, loss: float) -> float:
        """Nats per row that another scale or penalty has to gain."""
        return 2e-3

    def twice(self, loss: float) -> float:
        """What it costs to err twice as much."""
        return loss + math.log(2)

    def apart(self, Y: Array) -> tuple[Likelihood, Array, Callable[[Array], Array]]:
        """Without outputs that these rows say nothing of, and what completes those that are left."""
        return self, Y, lambda f: f

    def response(self, eta: Array) -> Array:
        """What is predicted, in the units of y."""
        return eta

    @abstractmethod
    def ends(self, eta: Array, variance: Array, alpha: float) -> tuple[Array, Array]:
        """Between which a new y lies with probability 1 − alpha; η is known up to a variance (n, 1)."""

    def score(self, eta: Array, Y: Array, weight: Array) -> float:
        """Share of the deviance that is explained: 1 for all, 0 for the best constant."""
        null = np.broadcast_to(self.start(Y, weight), eta.shape)
        best = self.at(self.saturated(Y), Y).value
        left, all_ = (float(weight @ (self.at(f, Y).value - best)) for f in (eta, null))
        return 1 - left / all_ if all_ > 0 else float(left <= 0)

    @abstractmethod
    def saturated(self, Y: Array) -> Array:
        """η (n, c) at which every row is likeliest."""


def near_most(Y: Array) -> Array:
    """Outliers at three quartile distances from the middle half."""
    low, high = np.quantile(Y, [0.25, 0.75], axis=0)
    far = 3 * np.where(high > low, high - low, np.inf)
    return np.clip(Y, low - far, high + far)


def refuse(bad: NDArray[np.bool_], words: str, y: Array) -> None:
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"{words}, and {int(bad.sum())} of {len(y)} rows are not: row {first} has {y[first]:g}."
        )


# --- classes


@dataclass(frozen=True)
class Softmax(Likelihood):
    """One-hot Y (n, c); probabilities are softmax(η/T), T from rows left out."""

    classes: int
    temperature: float = 1.0

    scaled: ClassVar[bool] = False

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return self.classes

    @property
    def contrasts(self) -> int:
        return self.classes - 1

    def start(self, Y: Array, weight: Array) -> Array:
        shares = np.log(np.maximum(weight @ Y / weight.sum(), 1e-3))
        return np.asarray(shares - shares.mean())

    def at(self, f: Array, Y: Array) -> Terms:
        """The curvature is the mean over the contrasts of the classes."""
        top = f.max(1)
        P = np.exp(f - top[:, None])
        size = P.sum(1)
        P /= size[:, None]
        value = np.log(size) + top - np.einsum("nc,nc->n", Y, f)
        mean = (1 - np.einsum("nc,nc->n", P, P)) / max(self.classes - 1, 1)
        P -= Y
        return Terms(value, P, mean)

    def apart(self, Y: Array) -> tuple[Likelihood, Array, Callable[[Array], Array]]:
        """Without classes that no row has: their logits would fall without end.

        All of them together are as likely as one row more.
        """
        there = Y.sum(0) > 0
        if there.all():
            return super().apart(Y)
        rare = math.log((len(Y) + 2) * (~there).sum())

        def complete(f: Array) -> Array:
            whole = np.tile(logsumexp(f, axis=1, keepdims=True) - rare, len(there))
            whole[:, there] = f
            return whole

        return Softmax(int(there.sum())), Y[:, there], complete

    def tried(self, f: Array, Y: Array, weight: Array) -> Array:
        """Before a temperature, with one error more than was seen."""
        return super().losses(f, succeeded(Y, weight), weight)

    def fitted(self, f: Array, Y: Array, weight: Array) -> Likelihood:
        T = temperature(f, Y, weight, near=NEAR) if np.isfinite(f).all() else 1.0
        return Softmax(self.classes, T)

    def losses(self, f: Array, Y: Array, weight: Array) -> Array:
        return super().losses(f / self.temperature, Y, weight)

    def pays(self, loss: float) -> float:
        return 5e-3 * loss

    def twice(self, loss: float) -> float:
        return 2 * loss

    def ends(self, eta: Array, variance: Array, alpha: float) -> tuple[Array, Array]:
        raise NotImplementedError("classes have no intervals")

    def saturated(self, Y: Array) -> Array:
        return WIDEST * Y


def averaged(u: Array, shares: Array) -> Array:
    """Logarithms (n, c) of the mean, with weights (k,), of the probabilities of logits u (k, n, c)."""
    u = u - u.max(2, keepdims=True)
    size = np.exp(u)
    total = size.sum(2, keepdims=True)
    if len(u) == 1:
        return (u - np.log(total))[0]
    # where probabilities underflow, that of the chart that gives most
    u -= np.log(total)
    top = u.max(0)
    return top + np.log(np.tensordot(shares, np.exp(u - top), 1))


ALONE = np.ones(1)


def succeeded(Y: Array, weight: Array) -> Array:
    """One-hot Y with one error more than was seen, shared among the classes a row does not have.

    By this rule of succession rows told apart without an error do not make the next one certain.
    """
    c = Y.shape[1]
    return Y + (1 - c * Y) / ((weight.sum() + 2) * (c - 1))


NEAR = 0.25  # log T of logits that were solved for by cross-entropy: these mean what they say


def temperature(
    u: Array, Y: Array, weight: Array, shares: Array = ALONE, near: float = math.inf
) -> float:
    """T > 0 for which softmax(u/T) has the least log-loss on one-hot Y; for u (k, n, c) their mean.

    Where T should be near 1, log T ~ N(0, near²).
    """
    Y = succeeded(Y, weight)
    u = u.reshape(-1, *Y.shape)

    def loss(log_t: float) -> float:
        logits = averaged(u / np.exp(log_t), shares)
        return 0.5 * (log_t / near) ** 2 - float(weight @ (Y * logits).sum(1))

    options = {"xatol": 1e-3}
    found = minimize_scalar(loss, bounds=(-7.0, 7.0), method="bounded", options=options)
    return float(np.exp(found.x))


# --- counts


class Counts(Likelihood):
    """Whole numbers with the mean μ = e^η · exposure. Y holds them and log exposure."""

    beside: ClassVar[str | None] = "exposure"
    scaled: ClassVar[bool] = False

    def columns(self, y: Array, beside: Array | None) -> Array:
        refuse((y < 0) | (y != np.round(y)), "counts must be whole numbers of at least 0", y)
        if not y.any():
            raise ValueError("all counts are 0: there is nothing to learn from.")
        exposure = np.ones(len(y)) if beside is None else beside
        refuse(~((exposure > 0) & np.isfinite(exposure)), "`exposure` must be positive", exposure)
        return np.column_stack([y, np.log(exposure)])

    def working(self, Y: Array) -> tuple[Array, Array]:
        """Square roots, whose variance hardly depends on the mean, of counts per exposure."""
        y, exposure = Y[:, 0], np.exp(Y[:, 1])
        root = (np.sqrt(y) + np.sqrt(y + 1)) / 2 / np.sqrt(exposure)
        return root[:, None], exposure / exposure.mean()

    def start(self, Y: Array, weight: Array) -> Array:
        rate = (weight @ Y[:, 0]) / (weight @ np.exp(Y[:, 1]))
        return np.log(np.maximum([rate], math.exp(-WIDEST)))

    def mean(self, f: Array, Y: Array) -> Array:
        """μ (n,)."""
        return np.exp(np.clip(f[:, 0] + Y[:, 1], -WIDEST, WIDEST))

    def response(self, eta: Array) -> Array:
        return np.exp(np.minimum(eta, 700.0))

    def saturated(self, Y: Array) -> Array:
        return np.log(np.maximum(Y[:, :1], math.exp(-WIDEST))) - Y[:, 1:]

    @property
    @abstractmethod
    def dispersion(self) -> float:
        """1/r: the variance is μ + μ²/r."""

    def ends(self, eta: Array, variance: Array, alpha: float) -> tuple[Array, Array]:
        """An uncertain η makes counts vary more: μ is then as good as gamma distributed."""
        mu = self.response(eta)
        extra = self.dispersion + np.expm1(np.minimum(variance, 5.0))
        r = 1 / np.maximum(extra, 1e-9)
        near = extra < 1e-8
        low, high = (
            np.where(near, poisson.ppf(q, mu), nbinom.ppf(q, r, r / (r + mu)))
            for q in (alpha / 2, 1 - alpha / 2)
        )
        return low, high


@dataclass(frozen=True)
class Poisson(Counts):
    """Counts whose variance is their mean."""

    @property
    def dispersion(self) -> float:
        return 0.0

    def at(self, f: Array, Y: Array) -> Terms:
        y, mu = Y[:, 0], self.mean(f, Y)
        value = mu - y * (f[:, 0] + Y[:, 1]) + gammaln(y + 1)
        return Terms(value, (mu - y)[:, None], mu)


@dataclass(frozen=True)
class NegativeBinomial(Counts):
    """Counts that vary more than that: variance μ + μ²/r.

    Parameters
    ----------
    r : float, optional
        Found from rows left out unless it is given.
    """

    r: float | None = None
    known: float = 1.0  # what was found

    settles: ClassVar[bool] = True

    @property
    def size(self) -> float:
        return self.known if self.r is None else self.r

    @property
    def dispersion(self) -> float:
        return 1 / self.size

    def at(self, f: Array, Y: Array) -> Terms:
        """With the curvature that is expected: the observed one vanishes far below y."""
        y, mu, r = Y[:, 0], self.mean(f, Y), self.size
        total = np.log(r + mu)
        value = gammaln(r) - gammaln(y + r) + gammaln(y + 1)
        value += (y + r) * total - r * math.log(r) - y * (f[:, 0] + Y[:, 1])
        return Terms(value, (r * (mu - y) / (r + mu))[:, None], r * mu / (r + mu))

    def fitted(self, f: Array, Y: Array, weight: Array) -> Likelihood:
        if self.r is not None or not np.isfinite(f).all():
            return self

        def loss(log_r: float) -> float:
            value = replace(self, known=math.exp(log_r)).at(f, Y).value
            # one row more, of a variance that is twice the mean's
            return float(weight @ value) + 0.5 * (log_r / 4) ** 2

        found = minimize_scalar(loss, bounds=(-7.0, 14.0), method="bounded")
        return replace(self, known=math.exp(float(found.x)))


# --- numbers around a location


class Located(Likelihood):
    """Numbers around η, at a distance that rows left out tell."""

    spread: float  # in units of y's standard deviation

    settles: ClassVar[bool] = True

    def at_spread(self, spread: float) -> Located:
        return replace(self, spread=spread)  # type: ignore[type-var]

    def fitted(self, f: Array, Y: Array, weight: Array) -> Likelihood:
        if not np.isfinite(f).all():
            return self

        def loss(log_s: float) -> float:
            law = self.at_spread(math.exp(log_s))
            return float(weight @ law.at(f, Y).value) + 0.5 * (log_s / 6) ** 2

        found = minimize_scalar(loss, bounds=(-16.0, 4.0), method="bounded")
        return self.at_spread(math.exp(float(found.x)))

    def start(self, Y: Array, weight: Array) -> Array:
        order = np.argsort(Y[:, 0])
        share = np.cumsum(weight[order]) / weight.sum()
        return Y[order[np.searchsorted(share, 0.5)], :1]

    def saturated(self, Y: Array) -> Array:
        return Y[:, :1]


@dataclass(frozen=True)
class StudentT(Located):
    """Numbers with outliers, which hardly count: noise of few degrees of freedom.

    Parameters
    ----------
    df : float
        Degrees of freedom. Noise is nearly normal above 30; 1 is the heaviest that is useful.
    """

    df: float = 4.0
    spread: float = 0.5

    def at(self, f: Array, Y: Array) -> Terms:
        """With the curvature of the parabola that lies above: steps cannot go up."""
        e = (f - Y[:, :1]) / self.spread
        known = (self.df + 1) / (self.df + e**2) / self.spread
        value = (self.df + 1) / 2 * np.log1p(e**2 / self.df) + math.log(self.spread)
        return Terms(value[:, 0], known * e, known[:, 0] / self.spread)

    def ends(self, eta: Array, variance: Array, alpha: float) -> tuple[Array, Array]:
        raise NotImplementedError("its intervals are those of rows left out")

    def score(self, eta: Array, Y: Array, weight: Array) -> float:
        """Share of the absolute deviation from the median that is explained: outliers hardly count."""
        left = float(weight @ np.abs(Y[:, :1] - eta).mean(1))
        all_ = float(weight @ np.abs(Y[:, 0] - self.start(Y, weight)))
        return 1 - left / all_ if all_ > 0 else float(left <= 0)


@dataclass(frozen=True)
class LogNormal(Located):
    """Times and other positive numbers, some of them only known to be larger (right-censored).

    Y holds log y and 1 where it is censored.
    """

    spread: float = 0.5

    beside: ClassVar[str | None] = "censored"

    def columns(self, y: Array, beside: Array | None) -> Array:
        refuse(~(y > 0), "times must be positive", y)
        censored = np.zeros(len(y)) if beside is None else beside
        refuse((censored != 0) & (censored != 1), "`censored` must hold 0 and 1", censored)
        if (censored == 1).all():
            raise ValueError("every row is censored: there is nothing to learn from.")
        return np.column_stack([np.log(y), censored])

    def working(self, Y: Array) -> tuple[Array, Array]:
        """Censored rows at what is expected of them, as if all had one distribution."""
        y, censored = Y.T
        m, s = float(y[censored == 0].mean()), float(y.std()) or 1.0
        for _ in range(50):  # expectation and maximization
            z = (y - m) / s
            hazard = np.exp(norm.logpdf(z) - log_ndtr(-z))
            first = np.where(censored == 1, m + s * hazard, y)
            second = np.where(censored == 1, s**2 * (1 + z * hazard - hazard**2), 0.0)
            m = float(first.mean())
            s = math.sqrt(max(float(((first - m) ** 2 + second).mean()), 1e-300))
        return first[:, None], 1.0 - 0.5 * censored

    def at(self, f: Array, Y: Array) -> Terms:
        y, censored = Y[:, 0], Y[:, 1] == 1
        z = (y - f[:, 0]) / self.spread
        hazard = np.exp(norm.logpdf(z) - log_ndtr(-z))
        value = np.where(censored, -log_ndtr(-z), z**2 / 2 + math.log(self.spread) + HALF)
        slope = np.where(censored, -hazard, -z) / self.spread
        bend = np.where(censored, hazard * (hazard - z), 1.0) / self.spread**2
        return Terms(value, slope[:, None], np.maximum(bend, 1e-12))

    def response(self, eta: Array) -> Array:
        """The median."""
        return np.exp(np.minimum(eta, 700.0))

    def ends(self, eta: Array, variance: Array, alpha: float) -> tuple[Array, Array]:
        half = -float(ndtri(alpha / 2)) * np.sqrt(variance)
        return self.response(eta - half), self.response(eta + half)

    def score(self, eta: Array, Y: Array, weight: Array) -> float:
        """Harrell's concordance: the share of comparable pairs in the right order."""
        return concordance(eta[:, 0], Y[:, 0], Y[:, 1] == 0)


HALF = 0.5 * math.log(2 * math.pi)


def concordance(eta: Array, y: Array, known: NDArray[np.bool_]) -> float:
    """Of pairs of which the earlier time is known, those with η in the same order; ties count half."""
    right = total = 0.0
    for i in np.flatnonzero(known):
        later = (y > y[i]) | ((y == y[i]) & ~known)
        total += later.sum()
        right += (eta[later] > eta[i]).sum() + 0.5 * (eta[later] == eta[i]).sum()
    return float(right / total) if total else math.nan


# --- quantiles

CORNER = 0.1  # of the mean distance of errors, that corners are rounded off over


@dataclass(frozen=True, init=False)
class Quantile(Likelihood):
    """Several quantiles at once, which do not cross.

    Below η_k lies a share of y that is its level. A row costs its distance from η_k, times the level
    above and the rest below; the corner is rounded off over a tenth of the distance of left-out errors.
    At the end every quantile is moved such that as many left-out rows lie below it as should, and
    quantiles that would cross are put in order.

    Parameters
    ----------
    levels : sequence of float
        Between 0 and 1.
    """

    levels: tuple[float, ...]
    width: float = 0.05
    shift: tuple[float, ...] = ()

    settles: ClassVar[bool] = True

    def __init__(
        self, levels: Sequence[float] | float, width: float = 0.05, shift: Sequence[float] = ()
    ):
        given = tuple(np.atleast_1d(np.asarray(levels, dtype=float)).tolist())
        if not given or not all(0 < level < 1 for level in given):
            raise ValueError(f"levels must lie between 0 and 1, got {levels!r}.")
        if len(set(given)) < len(given):
            raise ValueError(f"levels must differ, got {levels!r}.")
        object.__setattr__(self, "levels", tuple(sorted(given)))
        object.__setattr__(self, "width", float(width))
        object.__setattr__(self, "shift", tuple(shift))

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return len(self.levels)

    def start(self, Y: Array, weight: Array) -> Array:
        order = np.argsort(Y[:, 0])
        share = np.cumsum(weight[order]) / weight.sum()
        return Y[order[np.searchsorted(share, self.levels).clip(max=len(order) - 1)], 0]

    def at(self, f: Array, Y: Array) -> Terms:
        """With the curvature of the parabola that lies above, in the mean over the levels."""
        e = (Y[:, :1] - f) / self.width
        value = self.width * (np.array(self.levels) * e + np.logaddexp(0.0, -e))
        slope = expit(-e) - np.array(self.levels)
        size = np.maximum(np.abs(e), 1e-6)
        bend = np.tanh(size / 2) / (2 * size) / self.width
        return Terms(value.sum(1), slope, bend.mean(1))

    def losses(self, f: Array, Y: Array, weight: Array) -> Array:
        """Pinball, summed over the levels, as nats of the likelihood whose scale suits all rows best."""
        each = pinball(f, Y[:, :1], np.array(self.levels)).sum(1)
        mean = float(weight @ each / weight.sum())
        if not math.isfinite(mean):
            return np.full(len(f), np.inf)
        mean = max(mean, 1e-300)
        return self.outputs * (each / mean - 1 + math.log(mean))

    def fitted(self, f: Array, Y: Array, weight: Array) -> Likelihood:
        """Moved to where as many rows lie below each as should, corners as wide as errors allow."""
        if not np.isfinite(f).all():
            return self
        middle = f[:, np.abs(np.array(self.levels) - 0.5).argmin()]
        width = CORNER * float(weight @ np.abs(Y[:, 0] - middle) / weight.sum())
        e = Y[:, :1] - f
        shift = [quantile_of(e[:, k], level, weight) for k, level in enumerate(self.levels)]
        return Quantile(self.levels, max(width, 1e-6), shift)

    def response(self, eta: Array) -> Array:
        return np.sort(eta, axis=1)

    def ends(self, eta: Array, variance: Array, alpha: float) -> tuple[Array, Array]:
        """Two of the quantiles."""
        where = [np.isclose(self.levels, level) for level in (alpha / 2, 1 - alpha / 2)]
        if not all(found.any() for found in where):
            raise ValueError(
                f"an interval of {1 - alpha:g} lies between the quantiles {alpha / 2:g} and "
                f"{1 - alpha / 2:g}, and those learned are {list(self.levels)}: learn these too, or "
                "ask for another alpha."
            )
        low, high = (eta[:, found] for found in where)
        return low, high

    def score(self, eta: Array, Y: Array, weight: Array) -> float:
        """Share of the pinball loss of the best constants that is explained, all levels together."""
        level = np.array(self.levels)
        left, all_ = (
            float(weight @ pinball(f, Y[:, :1], level).sum(1))
            for f in (eta, self.start(Y, weight)[None])
        )
        return 1 - left / all_ if all_ > 0 else float(left <= 0)

    def saturated(self, Y: Array) -> Array:
        return np.repeat(Y[:, :1], self.outputs, axis=1)


def pinball(f: Array, y: Array, level: Array) -> Array:
    return np.maximum(level * (y - f), (level - 1) * (y - f))


def quantile_of(values: Array, level: float, weight: Array) -> float:
    """The quantile of values (n,) with weights; one row more lies beyond every end."""
    order = np.argsort(values)
    share = np.cumsum(weight[order]) / weight.sum()
    n = len(values)
    outward = level + (2 * level - 1) / n / 2 if n else level
    return float(values[order[np.searchsorted(share, min(max(outward, 0.0), 1.0)).clip(max=n - 1)]])

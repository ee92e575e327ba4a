"""Intervals that know where the noise is: errors of rows left out, in units of a learned local scale.

A row left out has the error e_i and, under the posterior, the standard deviation v_i. What e_i/v_i
leaves, noise that is larger in some places, is a sum of smooth functions of the chart coordinates
together, of every input and of the prediction::

    E|e|/v = s(x),    log s(x) = m + Σ_g ψ_g(x) β_g,    β_g ~ N(0, ρ_g φ)

It is fitted by scoring: |e|/(v s) − 1 has mean 0 and the same variance φ everywhere, so each step is a
ridge regression of z = log s + |e|/(v s) − 1. The ρ_g are where the evidence of z is largest [1]_, under
a prior ∝ 1/ρ_g in log ρ_g: a function that does not pay for itself vanishes, and noise that is the same
everywhere has a constant scale. The interval is u ± q v s, with q the quantile of |e_i|/(v_i s_i) over
rows that are left out of s as well: conformal, so it covers whatever the noise is like.

References
----------
.. [1] D. MacKay, "Bayesian interpolation", Neural Computation 4 (1992), 415–447.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ROWS = 2000  # that judge, at most
KNOTS = (8, 60)  # of a function of one coordinate, and of all chart coordinates together
AXES = 20  # inputs, or outputs, up to which each is looked at by itself
EXPLAINED = 0.1  # share of y's variance below which predictions are nowhere in particular
STEPS = 60
FAR = 6.0  # a row's error counts as at most this many times the scale more
GONE = 1e-6  # ρ below which a function has vanished


class Places(NamedTuple):
    """Where rows lie."""

    xi: Array  # (n, d) chart coordinates
    x: Array  # (n, D) inputs, none if they are more than `AXES`
    u: Array  # (n, c) predictions, likewise

    @staticmethod
    def of(xi: Array, x: Array, u: Array) -> Places:
        return Places(xi, *(part[:, : part.shape[1] * (part.shape[1] <= AXES)] for part in (x, u)))

    def blocks(self) -> list[Array]:
        """Coordinates that errors may depend on: all of the chart's together, others one by one."""
        return [self.xi, *self.x.T[:, :, None], *self.u.T[:, :, None]]


@dataclass(frozen=True)
class Term:
    """Columns ψ (n, k) that span smooth functions of a block of coordinates, 0 on average."""

    shift: Array  # (d,)
    unit: float
    knots: Array  # (m, d)
    whiten: Array  # (m, k)
    mean: Array  # (k,)

    @staticmethod
    def of(block: Array) -> Term:
        shift = block.mean(0)
        unit = math.sqrt(float(np.square(block - shift).mean())) or 1.0
        if block.shape[1] == 1:
            levels = (np.arange(KNOTS[0]) + 0.5) / KNOTS[0]
            knots = np.unique(np.quantile((block[:, 0] - shift) / unit, levels))[:, None]
        else:
            knots = (block[:: -(-len(block) // KNOTS[1])] - shift) / unit
        values, vectors = np.linalg.eigh(_matern(knots, knots))
        kept = values > 1e-6 * values[-1]
        term = Term(shift, unit, knots, vectors[:, kept] / np.sqrt(values[kept]), np.zeros(1))
        return Term(shift, unit, knots, term.whiten, term(block).mean(0))

    def __call__(self, block: Array) -> Array:
        return _matern((block - self.shift) / self.unit, self.knots) @ self.whiten - self.mean


@dataclass(frozen=True)
class Scale:
    """log s = m + Σ_g ψ_g β_g for every output."""

    terms: list[Term | None]  # for each block of `Places`; None where it does not matter
    beta: Array  # (p, c)
    level: Array  # (c,) m

    def log(self, places: Places) -> Array:
        """(n, c)."""
        columns = [
            term(block)
            for term, block in zip(self.terms, places.blocks(), strict=True)
            if term is not None
        ]
        if not columns:
            return np.broadcast_to(self.level, (len(places.xi), len(self.level)))
        return self.level + np.hstack(columns) @ self.beta

    @staticmethod
    def fitted(places: Places, ratio: Array, weight: Array) -> tuple[Scale, Array]:
        """From |e|/v (n, c) with weights (n, c); and log s (n, c) at the same rows, each left out."""
        terms = [Term.of(block) for block in places.blocks()]
        parts = [term(block) for term, block in zip(terms, places.blocks(), strict=True)]
        group = np.repeat(np.arange(len(parts)), [part.shape[1] for part in parts])
        P = np.hstack(parts)
        fits = [_scores(P, group, r, w) for r, w in zip(ratio.T, weight.T, strict=True)]
        level, beta = np.array([m for m, _, _ in fits]), np.stack([b for _, b, _ in fits], axis=1)
        matters = [bool(beta[group == g].any()) for g in range(len(terms))]
        used = [term if kept else None for term, kept in zip(terms, matters, strict=True)]
        scale = Scale(used, beta[np.array(matters)[group]], level)
        return scale, np.stack([left for _, _, left in fits], axis=1)


def _matern(a: Array, b: Array) -> Array:
    """(1 + √3 δ) e^{−√3 δ}, with δ the distance."""
    square = np.square(a).sum(1)[:, None] + np.square(b).sum(1) - 2 * a @ b.T
    r = np.sqrt(3 * np.maximum(square, 0))
    return (1 + r) * np.exp(-r)


def _scores(
    P: Array, group: NDArray[np.int64], ratio: Array, weight: Array
) -> tuple[float, Array, Array]:
    """m, β (p,) and the left-out values (n,) of log s, by scoring."""
    n, beta, m = float(weight.sum()), np.zeros(P.shape[1]), 0.0
    usual = float(np.median(ratio)) or float(ratio.mean())
    if usual <= 0:  # no errors, no noise to place
        return m, beta, np.zeros(len(P))
    log_s = np.full(len(P), math.log(usual))
    P, center = P - weight @ P / n, weight @ P / n
    rho = np.full(int(group.max()) + 1, 0.5 / (int(group.max()) + 1))
    A = P.T @ (weight[:, None] * P)
    for _ in range(STEPS):
        z = log_s + np.minimum(ratio * np.exp(-log_s) - 1, FAR)
        m = float(weight @ z) / n
        on = rho[group] > GONE
        Q, prior = P[:, on], 1 / rho[group[on]]
        inverse = np.linalg.inv(A[np.ix_(on, on)] + np.diag(prior))
        b = inverse @ (Q.T @ (weight * (z - m)))
        before, log_s = log_s, m + Q @ b
        phi = float(weight @ np.square(z - log_s) + prior @ b**2) / max(n - 1, 1)
        size = np.bincount(group[on], b**2 / phi, len(rho))
        free = np.bincount(group[on], 1 - np.diag(inverse) * prior, len(rho))
        rho = np.where(rho > GONE, size / (free + 2), 0.0)
        if np.abs(log_s - before).max() < 1e-3:
            break
    beta[on] = b
    h = weight * (1 / n + ((Q @ inverse) * Q).sum(1))
    return m - float(center @ beta), beta, z - (z - log_s) / (1 - h)


@dataclass(frozen=True)
class Intervals:
    """Rows left out: where they lie, how far off they were, and the scale learned from them."""

    places: Places
    errors: Array  # (n, c)
    std: Array  # (n, c) v, under the posterior
    noise: Array  # (n, c) the share of noise in v²
    weight: Array  # (n,)
    scale: Scale
    scores: Array  # (n, c) |e|/(v s), with s left out too

    @staticmethod
    def of(
        places: Places,
        errors: Array,
        std: Array,
        noise: Array,
        weight: Array | None = None,
        together: float = 1.0,
    ) -> Intervals:
        """From errors and predictions that left their rows out, so many `together` as belong together.

        A row tells as much of the noise as there is of it in its error. Of a fit through its rows, where
        the error of a row knows its neighbors' y, that is nothing. Rows that belong together tell of
        the noise in one place: as much as one row does.
        """
        w = np.ones(len(errors)) if weight is None else weight
        ratio = np.abs(errors) / np.where(std > 0, std, 1.0)
        trust = (w / w.mean())[:, None] * np.maximum(noise, 1e-6) / together
        scale, left_out = Scale.fitted(_told(places, errors), ratio, trust)
        return Intervals(places, errors, std, noise, w, scale, ratio * np.exp(-left_out))

    def extended(
        self,
        places: Places,
        errors: Array,
        std: Array,
        noise: Array,
        weight: Array | None,
        forget: float,
    ) -> Intervals:
        """With new rows behind those of before, which count `forget` times; the newest judge."""
        w = np.ones(len(errors)) if weight is None else weight
        old = (*self.places, self.errors, self.std, self.noise, forget * self.weight)
        new = (*places, errors, std, noise, w)
        xi, x, u, e, v, share, w = (
            np.concatenate(pair)[-ROWS:] for pair in zip(old, new, strict=True)
        )
        return Intervals.of(Places(xi, x, u), e, v, share, w)

    def unit(self, places: Places, std: Array) -> Array:
        """v s (n, c) at new rows, in which half widths are the quantile of the scores."""
        return std * np.exp(self.scale.log(places))

    def quantile(self, alpha: float) -> Array:
        """(c,)."""
        return conformal(self.scores, alpha, self.weight)


@dataclass(frozen=True)
class Constant:
    """The like of `Intervals` with a unit that is the same everywhere."""

    errors: Array  # (n, c) of rows left out

    def extended(self, places: Places, errors: Array, *rest: object) -> Constant:
        return Constant(np.concatenate([self.errors, errors]))

    def unit(self, places: Places, std: Array) -> Array:
        return np.ones_like(std)

    def quantile(self, alpha: float) -> Array:
        return conformal(self.errors, alpha)


@dataclass(frozen=True)
class OfTasks:
    """The like of `Intervals` from rows of other tasks: |e|/v with v the posterior's deviation there."""

    scores: Array  # (n, c)

    @property
    def errors(self) -> Array:
        """None of its own rows were left out."""
        return np.zeros((0, self.scores.shape[1]))

    def extended(self, *rest: object) -> OfTasks:
        return self

    def unit(self, places: Places, std: Array) -> Array:
        return std

    def quantile(self, alpha: float) -> Array:
        return conformal(self.scores, alpha)


def noise_share(noise: Array, std: Array) -> Array:
    """Of a noise with variances (c,) in the variance of errors with standard deviations (n, c)."""
    return np.minimum(np.divide(noise, std**2, out=np.ones_like(std), where=std > 0), 1.0)


def _told(places: Places, errors: Array) -> Places:
    """Without predictions that explain nothing: leaving a row out moves them more than x does."""
    if not places.u.shape[1]:
        return places
    explained = 1 - np.square(errors).mean(0) / np.maximum((places.u + errors).var(0), 1e-300)
    return places._replace(u=np.where(explained > EXPLAINED, places.u, 0.0))


def conformal(scores: Array, alpha: float, weight: Array | None = None) -> Array:
    """The quantile (c,) of held-out |scores| (n, c) that covers a new row with probability 1 − alpha.

    The new row is one more. Of rows with weights as many count as would carry them if they were equal.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"`alpha` must lie between 0 and 1, got {alpha}.")
    scores, w = np.abs(scores), np.ones(len(scores)) if weight is None else weight
    n = float(w.sum() ** 2 / np.square(w).sum())
    share = (1 - alpha) * (n + 1) / n
    if share > 1 + 1e-12:
        warnings.warn(
            f"{math.floor(n + 1e-9)} rows cannot tell a {1 - alpha:.0%} interval; the largest residual "
            "is used.",
            stacklevel=5,
        )
    order = np.argsort(scores, axis=0, kind="stable")
    reached = np.cumsum(w[order], axis=0) / w.sum()  # (n, c)
    k = np.minimum((reached < share - 1e-12).sum(0), len(scores) - 1)
    return np.take_along_axis(scores, np.take_along_axis(order, k[None], 0), 0)[0]

"""Curved charts of few rows of many columns: coordinates that are themselves responses.

Where few linear coordinates predict clearly worse than many, what varies may still be few, along curves.
A linear chart ζ of more coordinates than anybody looks at has a kernel, whose principal components on the
rows are the functions φ that it tells apart::

    H K H = Φ Φᵀ,      ξ = V φ(x),      A = 1 1ᵀ + e^c ξ ξᵀ + k(ξ) + e^λ I

With H the centering, φ(x) = Tᵀ(K(x, rows) − mean), so ξ is linear in x plus responses to sources V Tᵀ at
the rows (`chart.Bent`), and V ~ N(0, t) is a prior of smooth coordinates. V is learned as few directions
of principal components are, from those along which a smooth function of φ is steepest, and scored by the
same evidence with Laplace's charge. Folds that neither ζ nor φ nor V has seen judge it.

As many coordinates as y has columns are always enough, as the predictions on ζ are such; the question is
whether fewer are, and whether they are fewer than straight ones.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from scipy.linalg import LinAlgError
from torch import nn

from greenfold.chart import Bent, Linear
from greenfold.learn.candidates import Candidate, Fit
from greenfold.learn.choice import dims, fewest
from greenfold.learn.data import Data
from greenfold.learn.fit import judged, scanned
from greenfold.learn.principal import Low, Problem, View, gaussian, learn_all, learn_low
from greenfold.learn.wide import (
    FOLDS,
    JUDGES,
    LEARN,
    STEPS,
    All,
    Few,
    WideFit,
    beside,
    price,
    race_wide,
    score,
)
from greenfold.state import one_thread

ROWS = 150  # from which curves can be told from chance
LOOKED_AT = 3  # linear coordinates up to which nobody needs curved ones
ROOM = 10  # coordinates of the linear chart that is bent
FUNCTIONS = 250  # that it tells apart
NEAR = 0.1  # nats of score behind the best that rows left out may still make up for
MOST = 5.0  # c: beyond, ξ ξᵀ only trades its size for that of V
START = np.array([0.0, 0.0, 0.5, 0.0, -5.0])  # of a smooth function of φ


@dataclass(frozen=True)
class Ground:
    """A linear chart on some rows, the functions it tells apart there, and their steepest directions."""

    base: WideFit
    p: Problem
    Phi: ndarray  # (n, M)  φ at the rows
    T: ndarray  # (n, M)
    mean: ndarray  # (M,)
    theta: ndarray  # numbers of a smooth function of φ
    steep: ndarray  # (M, M)

    @staticmethod
    def of(base: WideFit, data: Data, theta: ndarray, steps: int) -> Ground:
        K = base.kernel(data.x)
        middle = K.mean(0)
        values, U = np.linalg.eigh(K - middle - middle[:, None] + middle.mean())
        values, U = values[::-1], U[:, ::-1]
        M = int(np.clip((values > base.noise).sum(), 1, FUNCTIONS))  # noise hides the others
        root = np.sqrt(np.maximum(values[:M], 1e-300))
        Phi, T = U[:, :M] * root, U[:, :M] / root
        size = math.sqrt(float((Phi**2).sum(1).mean()))
        Y, weight = data.Y.numpy(), data.weight.numpy()
        p = Problem(Phi / size, np.zeros(M), Y, weight, data.judge)
        theta, _ = learn_all(p, theta, steps)
        return Ground(base, p, Phi, T, T.T @ middle, theta, steepest(p, theta) / size)

    def learn(self, d: int) -> tuple[Low, float]:
        """V (d, M) from the steepest directions, and its score."""
        c, log_noise = float(self.theta[2]), float(self.theta[4])
        start = Low(self.steep[:d], np.ones(len(self.mean)), c, log_noise)
        return learn_low(self.p, self.Phi, None, start, 1, STEPS, most=MOST)

    @torch.no_grad()
    def chart(self, V: ndarray, data: Data) -> nn.Module:
        """ξ = V φ(x) of the rows that it was learned from, and of any other."""
        whole = self.base.chart
        inner = whole if isinstance(whole, Linear) else whole[-1]  # type: ignore[index]
        assert isinstance(inner, Linear)
        W, d = inner.weight, len(inner.weight) - self.base.lines
        zeta = whole(data.x)
        slope = math.exp(self.base.numbers.c / 2)
        L, lines = (zeta[:, d:], W[d:]) if self.base.lines else (slope * zeta, slope * W)
        sources, shift = torch.from_numpy(V @ self.T.T), torch.from_numpy(V @ self.mean)
        bent = Bent(sources @ L @ lines, W[:d], zeta[:, :d], sources, shift)
        return bent if whole is inner else nn.Sequential(whole[0], bent)  # type: ignore[index]


@dataclass(frozen=True, eq=False)
class Curved(Candidate):
    """A smooth function of few curved coordinates, and a linear one."""

    view: View
    base: WideFit  # the linear chart that is bent
    d: int
    rigid: bool = field(default=False, kw_only=True)
    refines: bool = field(default=False, kw_only=True)

    def told(self, fit: Fit) -> str:
        many = "one curved coordinate" if self.d == 1 else f"{self.d} curved coordinates"
        return f"{many} of principal components ({self.view})"

    def learn(self, data: Data, start: Fit, steps: int) -> Fit:
        return self.on(grown(self.base, data, START, 40), data)

    def on(self, ground: Ground, data: Data) -> WideFit:
        """On the ground of these rows."""
        low, loss = ground.learn(self.d)
        operator, noise = beside(self.d, math.exp(low.c / 2)), math.exp(low.log_noise)
        chart = ground.chart(low.V, data)
        return WideFit(self, chart, operator, noise, loss, len(data), numbers=low)


def steepest(p: Problem, theta: ndarray) -> ndarray:
    """Directions (M, M) of scores by how steep a smooth function is along each, its lines included."""
    g, _, c, _, log_noise = theta
    X = math.exp(g) * p.z
    k = gaussian(X)
    fit = p.evidence(k + math.exp(c) * (p.z @ p.z.T), log_noise)
    total = np.zeros((X.shape[1], X.shape[1]))
    for alpha, s in zip(fit.alpha.T, fit.s):
        B = k * alpha
        slope = B @ X - B.sum(1)[:, None] * X + math.exp(c - g) * (p.z.T @ alpha)
        total += slope.T @ slope / s
    directions: ndarray = np.linalg.eigh(total)[1][:, ::-1].T
    return math.exp(g) * directions


def grown(base: WideFit, data: Data, theta: ndarray, steps: int) -> Ground:
    """The ground of other rows than those the linear chart was learned from."""
    fit = base.candidate.learn(data, base, STEPS)
    assert isinstance(fit, WideFit)
    return Ground.of(fit, data, theta, steps)


def bends(whole: WideFit, data: Data, some: list[int]) -> tuple[Ground, list[Fit]]:
    """Curved charts with some numbers of coordinates, not judged yet, and their ground."""
    assert isinstance(whole.candidate, All)
    assert whole.candidate.components is not None
    view, components = whole.candidate.view, whole.candidate.components
    room = min(ROOM, len(components.sd))
    straight = Few("straight", view, components, whole, room, rigid=False)
    base = straight.learn(data, whole, STEPS)
    assert isinstance(base, WideFit)
    ground = Ground.of(base, data, START, 40)
    some = [d for d in some if d <= len(ground.mean)]
    return ground, [Curved(f"curved{d}", view, base, d).on(ground, data) for d in some]


def curved(whole: WideFit, data: Data, some: list[int], each: Any) -> list[Fit]:
    """The best curved charts by score, judged by folds that they have not seen."""
    begin, seen = time.perf_counter(), data.head(LEARN)
    try:
        ground, fits = bends(whole, seen, some)
        best = min(map(score, fits), default=0.0)
        fits = [fit for fit in fits if score(fit) <= best + NEAR]
        if len(seen) < len(data):
            fits = [replace(f, noise=scanned(f.kernel(data.x), data, f.noise)) for f in fits]
        folds = data.folds.unique().tolist()
        parts = each(errors_of_fold, [(fits, ground, data, k) for k in folds])
    except LinAlgError:
        return []
    spent = (time.perf_counter() - begin) / max(len(fits), 1)
    cost = price(Few.learned, data)
    errors = torch.stack(parts).sum(0)  # (fits, n, c), zero outside of a fold
    return [
        replace(fit, errors=e, nats=data.nats(e), price=cost, seconds=spent)
        for fit, e in zip(fits, errors, strict=True)
    ]


def errors_of_fold(fits: list[Fit], ground: Ground, data: Data, k: int) -> torch.Tensor:
    """Errors (fits, n, c) at the rows of a fold by charts that have not seen it."""
    part, own = data.without(k).head(LEARN), data.folds == k
    there = grown(ground.base, part, ground.theta, 10)
    errors = torch.zeros(len(fits), *data.Y.shape, dtype=data.Y.dtype)
    for i, fit in enumerate(fits):
        assert isinstance(fit.candidate, Curved)
        found = judged(fit.candidate.on(there, part), data).errors
        if found is None:
            raise LinAlgError("a curved chart has no solution on these rows")
        errors[i, own] = found[own]
    return errors


def race_bent(
    data: Data, found: list[Fit], solved: bool, each: Any, n_dims: int | None = None
) -> list[Fit]:
    """`race_wide`; where more linear coordinates win than anybody looks at, curved ones compete, too."""
    fits = race_wide(data, found, solved, each)
    data = data.head(JUDGES).coarse(min(FOLDS, len(data)))
    known = [fit for fit in fits if isinstance(fit.candidate, Few | All)]
    straight = dims(fewest(fits, data), data) if known else 0
    if len(data) < ROWS or straight <= LOOKED_AT:
        return fits
    most = min(data.Y.shape[1], straight - 1)
    lead = min(known, key=lambda fit: fit.nats)
    whole = lead.candidate.whole if isinstance(lead.candidate, Few) else lead
    assert isinstance(whole, WideFit)
    with one_thread():
        some = list(range(1, most + 1)) if n_dims is None else [n_dims]
        bent = curved(whole, data, some, each)
    return sorted([*fits, *bent], key=lambda fit: fit.nats)

"""Candidates for few rows of many columns, and lines for all; `principal` has their mathematics."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from torch import nn

from greenfold.chart import Linear
from greenfold.green.base import Operator
from greenfold.green.diffusion import Heat
from greenfold.green.operators import Superposition
from greenfold.green.pointwise import Affine
from greenfold.learn.candidates import Candidate, Fit, enough_rows
from greenfold.learn.data import Data
from greenfold.learn.fit import judged, relearned, scanned
from greenfold.learn.principal import (
    ALL_START,
    Components,
    Low,
    Problem,
    View,
    learn_all,
    learn_lines,
    learn_low,
    steep,
    views,
)
from greenfold.state import one_thread

# Of the largest component of a table: columns that differ by less are copies, as far as lines go, or new
# rows that tell them apart would be far away from all that was learned from.
COPIES = 0.03
SCREEN = 150  # rows that views of them are compared on
LEARN = 500  # rows to learn from
DIMS = (1, 2, 3, 4, 6)
WORSE = 0.03  # nats at which more coordinates are not tried
NEAR = 0.05  # nats of score behind the best that rows left out may still make up for
JUDGES = 1000  # rows that judge
FOLDS = 5
STEPS = 30
NOTHING = 0.02  # standard deviations of y that a coordinate has to carry, at most


def wide(data: Data) -> bool:
    """Are there too many columns for these rows to search among them, or are they said to be channels?

    The levels of a category are one column.
    """
    D = len(np.unique(data.ties))
    return bool(data.channels) or (D > 50 and len(data) < 2 * D)


@dataclass(frozen=True, eq=False)
class WideFit(Fit):
    """With its numbers, to go on from; `lines` axes of the chart, the last ones, are only linear."""

    numbers: Any = None
    lines: int = 0
    whole: WideFit | None = None  # what it was before its lines were joined, if they were


def known(candidate: Candidate, start: Fit, otherwise: ndarray) -> ndarray:
    """Numbers to go on from."""
    if isinstance(start, WideFit) and start.candidate is candidate:
        found: ndarray = start.numbers
        return found
    return otherwise


@dataclass(frozen=True)
class Principal(Candidate):
    """Learned from principal components of a view of the rows, which y has no part in."""

    view: View
    components: Components | None = None  # of more rows than it is learned from
    refines: bool = field(default=False, kw_only=True)

    learned = 0  # numbers that have seen the rows that judge

    def of(self, data: Data) -> tuple[Components, Problem]:
        components = self.components or replace(Components.of(data, self.view), least=COPIES)
        return components, Problem.of(components, data)

    def numbers(self, fit: Fit) -> int:
        """Those that its price does not have yet."""
        return 0 if fit.price else self.learned


@dataclass(frozen=True)
class Lines(Principal):
    """A linear function."""

    learned = 2  # c, a

    def told(self, fit: Fit) -> str:
        return f"linear function ({self.view})"

    def learn(self, data: Data, start: Fit, steps: int) -> Fit:
        components, p = self.of(data)
        theta = known(self, start, np.array([2.0, 0.3]))
        theta, loss = learn_lines(p, theta, steps)
        chart = components.chart(np.diag(np.exp(theta[0] / 2 - theta[1] * components.size)))
        fit = WideFit(self, chart, Affine(), 1.0, loss + 2 / p.Y.size, len(data), numbers=theta)
        return replace(fit, lines=len(components.sd))


@dataclass(frozen=True)
class All(Principal):
    """A smooth function of all components, and a linear one."""

    learned = 5  # g, b, c, a, λ

    def told(self, fit: Fit) -> str:
        return f"principal components ({self.view})"

    def learn(self, data: Data, start: Fit, steps: int) -> Fit:
        components, p = self.of(data)
        theta, loss = learn_all(p, known(self, start, ALL_START), steps)
        g, b, c, a, log_noise = theta
        scale = np.exp(g - b * components.size)
        slope = np.exp(c / 2 - a * components.size) / scale
        chart, operator = components.chart(np.diag(scale)), beside(len(scale), slope)
        noise = math.exp(log_noise)
        return WideFit(self, chart, operator, noise, loss + 5 / p.Y.size, len(data), numbers=theta)


@dataclass(frozen=True)
class Few(Principal):
    """A smooth function of few directions of all components, and a linear one.

    Directions are learned from the start every time: those that all rows led to would lead back to them
    where some are left out.
    """

    whole: WideFit | None = None  # the fit to all components
    d: int = 1
    learned = 5  # of that

    def told(self, fit: Fit) -> str:
        many = "one direction" if self.d == 1 else f"{self.d} directions"
        return f"{many} of principal components ({self.view})"

    def learn(self, data: Data, start: Fit, steps: int) -> Fit:
        assert self.whole is not None
        components, p = self.of(data)
        g, b, c, a, log_noise = self.whole.numbers
        m = min(len(components.sd), 20 if self.whole.rows <= 300 else 40)
        scale = np.exp(g - b * components.size)[:m]
        X, L = p.z[:, :m] * scale, None if p.Y.shape[1] > 1 else p.lines(a)
        begin = Low(steep(p, self.whole.numbers, m)[: self.d], np.ones(m), c, log_noise)
        low, score = learn_low(p, X, L, begin, 3 if len(data) <= 250 else 2, steps)
        W, q = np.zeros((self.d, len(components.sd))), len(components.sd)
        W[:, :m] = low.V * scale
        slope = math.exp(low.c / 2)
        if L is None:
            chart, operator, lines = components.chart(W), beside(self.d, slope), 0
        else:
            W = np.vstack([W, slope * np.diag(np.exp(-a * components.size))])
            chart, operator, lines = components.chart(W), beside(self.d, 1.0, q), q
        noise = math.exp(low.log_noise)
        fit = WideFit(self, chart, operator, noise, score, len(data), numbers=low)
        return replace(fit, lines=lines)


def beside(d: int, slope: ndarray | float, lines: int = 0) -> Operator:
    """e^{−r²/2} on d axes, and lines along them, or along as many others."""
    axes = [list(range(d)), list(range(d, d + lines))] if lines else None
    members = [Heat(0.5), Affine(torch.as_tensor(slope), level=0.0)]
    return Superposition(members, [(2 * math.pi) ** (d / 2), 1.0], axes=axes, learn=False)


@torch.no_grad()
def condensed(fit: Fit, data: Data) -> Fit:
    """The same function of fewer coordinates: of its linear axes one per output, along its slopes.

    With z the linear axes and kernel z·z', the linear part is z·b with b in the span of Zᵀα. An
    orthonormal basis R of that span has the kernel (Rz)·(Rz)', under which the same b costs as much as
    before, so that the source on (ξ, Rz) is the one on (ξ, z).
    """
    if not isinstance(fit, WideFit) or not fit.lines:
        return fit
    linear = fit.chart if isinstance(fit.chart, Linear) else fit.chart[-1]  # type: ignore[index]
    W, d = linear.weight.detach(), len(linear.weight) - fit.lines
    z = fit.chart(data.x).numpy()[:, d:]
    few = d == 0 and z.shape[1] < len(z)  # lines alone: no kernel between rows is needed
    slopes = ridge(z, data, fit.noise) if few else slopes_beside(fit, z, data)  # (c, m)
    _, s, R = np.linalg.svd(slopes, full_matrices=False)
    kept = (z @ R.T).std(0) * s > nothing(fit)  # of y's standard deviation
    kept[0] |= d == 0
    R = R[kept & (s >= 1e-8 * s[0])]
    R = R * np.where(R @ slopes.sum(0) < 0, -1.0, 1.0)[:, None]
    weight = torch.cat([W[:d], torch.from_numpy(R) @ W[d:]])
    chart: nn.Module = Linear(weight.shape[1], len(weight), weight)
    if linear is not fit.chart:
        chart = nn.Sequential(fit.chart[0], chart)  # type: ignore[index]
    if d == 0:
        return replace(fit, chart=chart, lines=len(R), whole=fit)
    operator = (
        beside(d, 1.0, len(R))
        if len(R)
        else Superposition([Heat(0.5)], [(2 * math.pi) ** (d / 2)], learn=False)
    )
    return replace(fit, chart=chart, operator=operator, lines=len(R), whole=fit)


def nothing(fit: Fit) -> float:
    """What lines may carry without being missed: little beside y, and beside what is missed anyway."""
    if fit.errors is None:
        return NOTHING
    return min(NOTHING, float(fit.errors.square().mean().sqrt()) / 3)


def ridge(z: ndarray, data: Data, noise: float) -> ndarray:
    """Slopes (c, m) of the linear function of z (n, m) with kernel z·z' and a free constant."""
    w, Y = data.weight.numpy(), data.Y.numpy()
    z, Y = (part - w @ part / w.sum() for part in (z, Y))
    wz = w[:, None] * z
    A = wz.T @ z
    A[np.diag_indices_from(A)] += noise
    return np.asarray(cho_solve(cho_factor(A, lower=True), wz.T @ Y).T)


def slopes_beside(fit: Fit, z: ndarray, data: Data) -> ndarray:
    """Those (c, m) along z (n, m) with the rest of its kernel beside."""
    A, Y = fit.kernel(data.x), data.Y.numpy()
    A[np.diag_indices_from(A)] += fit.noise / data.weight.numpy()
    factor = cho_factor(A, lower=True)
    one, Y_ = cho_solve(factor, np.ones(len(A))), cho_solve(factor, Y)
    alpha = Y_ - one[:, None] * (one @ Y / one.sum())  # the constant is free
    return np.asarray(alpha.T @ z)


def parts_of(fit: Fit, data: Data) -> tuple[Fit, ...]:
    """Its charts without each fold. Lines that were joined along the slopes of y have seen all rows."""
    if fit.parts or not isinstance(fit, WideFit) or fit.whole is None:
        return fit.parts
    whole = fit.whole
    return tuple(condensed(whole, data.without(fold)) for fold in data.folds.unique().tolist())


LINES = Lines("lines", View(scaled=True), plain=True, suits=enough_rows)

# --- their race


def contenders(data: Data, each: Any) -> list[Fit]:
    """The best of every kind by their score, the best first; nothing has judged them yet."""
    found = each(looked, [(view, data.head(SCREEN)) for view in views(data)])
    pairs = sorted([pair for pair in found if pair], key=lambda pair: min(map(score, pair)))
    most = 3 if len(data) > 250 else 6  # scores of more rows are surer
    if len(data) > SCREEN:
        found = each(
            looked, [(lines.candidate.view, data, (lines, rest)) for lines, rest in pairs[:most]]
        )
        pairs = [pair for pair in found if pair]
    if not pairs:
        return []
    lines = min((pair[0] for pair in pairs), key=score)
    whole = sorted((pair[1] for pair in pairs), key=score)
    few: dict[int, Fit] = {}  # by dimension
    top, tried = most // 2 + most % 2, []
    rest = whole[:top]
    if len(data) > 250:  # one view tells how many directions are worth trying in the others
        tried, rest = [directions(rest[0], data)], rest[1:]
    some = around(tried[0]) if tried and tried[0] else DIMS
    for fits in tried + each(directions, [(fit, data, some) for fit in rest]):
        for fit in fits:
            d = fit.candidate.d
            few[d] = min(few.get(d, fit), fit, key=score)
    kept = sorted(few.values(), key=score)
    kept = [fit for fit in kept if score(fit) <= score(kept[0]) + NEAR]
    return sorted([lines, whole[0], *kept[:top]], key=score)


def score(fit: Fit) -> float:
    return fit.evidence


def looked(view: View, data: Data, start: tuple[Fit, Fit] | None = None) -> tuple[Fit, Fit] | None:
    """Lines and all components of a view, on from where fewer rows led to."""
    components = Components.of(data, view)
    lines = Lines("lines", view, components, usual=True)
    whole = All("all", view, components)
    nowhere = Fit(lines, nn.Identity(), Affine(), 1.0)
    first, second = (nowhere, nowhere) if start is None else start
    try:
        return (
            timed(lines, data, replace(first, candidate=lines), 40),
            timed(whole, data, replace(second, candidate=whole), 40),
        )
    except LinAlgError:
        return None


def around(fits: list[Fit]) -> tuple[int, ...]:
    """The number of directions that did best, and those next to it."""
    i = int(np.argmin([score(fit) for fit in fits]))
    return DIMS[max(i - 1, 0) : i + 2]


def directions(whole: WideFit, data: Data, some: tuple[int, ...] = DIMS) -> list[Fit]:
    """Few directions, more of them while that helps."""
    assert isinstance(whole.candidate, All)
    assert whole.candidate.components is not None
    view, components = whole.candidate.view, whole.candidate.components
    fits: list[Fit] = []
    for d in some:
        if d > len(components.sd):
            break
        try:
            candidate = Few(f"few{d}", view, components, whole, d, rigid=False)
            fits.append(timed(candidate, data, whole, STEPS))
        except LinAlgError:
            break
        if score(fits[-1]) > min(map(score, fits)) + WORSE:
            break
    return fits


def timed(candidate: Candidate, data: Data, start: Fit, steps: int) -> Fit:
    begin = time.perf_counter()
    fit = candidate.learn(data, start, steps)
    before = start.seconds if start.candidate is candidate else 0.0
    return replace(fit, seconds=before + time.perf_counter() - begin)


def judged_apart(fit: Fit, data: Data) -> Fit:
    """With errors on folds that its source, and where it has many numbers its chart, has not seen."""
    assert isinstance(fit.candidate, Principal)
    begin = time.perf_counter()
    fit = replace(errors_apart(fit, data), price=price(fit.candidate.learned, data))
    return replace(fit, seconds=fit.seconds + time.perf_counter() - begin)


def price(numbers: int, data: Data) -> float:
    """Per row, of numbers that have seen the rows that judge: about half a nat each.

    A chart that leaves nearly all to the lines beside it is a line, and the same rows would tell the two
    apart by how well these numbers suit them.
    """
    return 0.5 * math.log(1 + numbers / len(data))


def errors_apart(fit: Fit, data: Data) -> Fit:
    if fit.rows < len(data):
        fit = replace(fit, noise=scanned(fit.kernel(data.x), data, fit.noise))
    if fit.candidate.rigid:
        return judged(fit, data)
    known = relearned(data, lambda part: fit.candidate.learn(part.head(LEARN), fit, STEPS))
    if known is None:
        return replace(fit, nats=math.inf)
    errors, parts = known
    return replace(fit, errors=errors, nats=data.nats(errors), parts=parts)


def race_wide(data: Data, found: list[Fit], solved: bool, each: Any) -> list[Fit]:
    """The contenders judged by folds, on as few coordinates as they need.

    Scores of these and of what the search found are evidences of the same rows. If the search did better
    it stays, too; and alone, with none of these, if what it `solved` needs no rival.
    """
    data = data.head(JUDGES)
    with one_thread():
        fits = contenders(data.head(LEARN), each)
        better = [fit for fit in found[:1] if not fits or score(fit) < score(fits[0])]
        folded = data.coarse(min(FOLDS, len(data)))
        fits = each(judged_apart, [(fit, folded) for fit in fits])
        fits += [judged(fit, folded) for fit in better]
        fits = [fit for fit in fits if math.isfinite(fit.nats)]
        best = min(fits, key=lambda fit: fit.nats + fit.price, default=None)
        if solved and better and (best is None or best.candidate is better[0].candidate):
            return []
        return sorted(each(condensed, [(fit, data) for fit in fits]), key=lambda fit: fit.nats)

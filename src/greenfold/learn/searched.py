"""Linear charts that a search of their own found, as fits of the race, and whether to believe them."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import torch

from greenfold.chart import AxisScales, Linear
from greenfold.learn.candidates import AXIS_RQ, KERNELS, Fit, Searched, cauchy
from greenfold.learn.choice import constant, difference, errors_of, loss, useful
from greenfold.learn.data import Data
from greenfold.learn.fit import judged
from greenfold.learn.search import search
from greenfold.learn.search.starts import SOLVED
from greenfold.learn.standings import searched_chart
from greenfold.state import one_thread

VERIFIED = 600  # rows up to which a searched chart has to be found without some of them
CLOSED = 1e-3  # of the largest scale: a column that may still open
SEARCHES = 5  # folds that it is searched for without


def searched(data: Data, rng: np.random.Generator, effort: str) -> list[Fit]:
    """What the search for linear charts finds, the best evidence first."""
    with one_thread():
        X, axes = (data.x * data.sd).numpy(), None
        if X.shape[1] > len(X):  # these tell directions of their span apart, not columns
            _, S, axes = np.linalg.svd(X, full_matrices=False)
            axes = axes[: max(1, int((1e-10 * S[0] < S).sum()))]
            X = X @ axes.T
            # and are not enough to pursue directions among as many
            effort = "fast" if effort == "normal" and 2 * X.shape[1] > len(X) else effort
        found = search(X, data.Y.numpy(), rng, effort, data.weight.numpy())
    fits = []
    for each in found:
        W = torch.from_numpy(each.W if axes is None else each.W @ axes) * data.sd
        # A product kernel that leaves no residual says nothing of its error, so its λ has a floor.
        noise = max(each.noise, 1e-7) if each.kernel == "laplace" else each.noise
        fits.append(
            Fit(
                Searched(
                    searched_chart("pca" if axes is not None and each.name == "ard" else each.name)
                ),
                Linear(W.shape[1], W.shape[0], W),
                KERNELS[each.kernel](),
                noise,
                each.laplace,
                each.rows,
                price=0.5 * math.log(1 + min(each.learned / len(data), 1 / 3)),
                nats=math.log(max(each.error, 1e-300)),
                doubt="" if each.forecast is None else each.forecast.doubt,
                seconds=each.seconds,
            )
        )
    return fits


def explained(fit: Fit) -> bool:
    """Is there nothing to challenge? Not what is constant, nor a smooth chart that explains y.

    One with at most a third of the columns' dimensions explains y when it leaves little of it, others
    only when they leave next to nothing: there rough kernels on all columns often predict better.
    """
    W = next(fit.chart.parameters())
    enough = SOLVED if 3 * W.shape[0] <= W.shape[-1] else 4 * SOLVED
    # rows left out have to say so, too: of several outputs one without noise may have made the evidence
    smooth = fit.operator.smooth and max(fit.evidence, fit.nats) < enough
    return not bool(W.any()) or (smooth and useful(fit))


def scales_columns(fit: Fit) -> bool:
    """Is every coordinate a column of its own?"""
    W = next(fit.chart.parameters())
    return bool(W.any()) and bool((W != 0).sum(1).le(1).all())


def on_axes(fit: Fit) -> Fit:
    """What scales columns, for candidates of the race to begin from."""
    s = next(fit.chart.parameters()).detach().abs().sum(0)
    chart = AxisScales(len(s), s.clamp_min(CLOSED * float(s.max())))
    return Fit(AXIS_RQ, chart, cauchy(), fit.noise)


def verified(fits: list[Fit], data: Data, rng: np.random.Generator) -> list[Fit]:
    """With a chart that was searched for judged by folds that the search has not seen, while it leads.

    Where a chart has more than a number for every twenty rows, its directions may hold those rows and no
    others.
    """
    checked: list[Fit] = []
    while fits and len(data) <= VERIFIED:
        leader, rival = sorted([*fits, constant(data)], key=loss)[:2]
        few = 20 * math.expm1(2 * leader.price) <= 1  # numbers that it was learned with, per row
        if not isinstance(leader.candidate, Searched) or few or leader in checked:
            break
        again = looked_again(leader, rival, data, rng)
        checked.append(again)
        fits = [again if fit is leader else fit for fit in fits]
    return sorted(fits, key=loss)


def looked_again(fit: Fit, rival: Fit, data: Data, rng: np.random.Generator) -> Fit:
    """The fit, or what it costs at rows left out of the search if that is more than its rival costs.

    The search is run again without one fold after another, until their rows tell the two apart. Where
    they do not, the chart stays: fewer rows may not be enough to find it.
    """
    begin, folded = time.perf_counter(), data.coarse(SEARCHES)
    errors, seen = errors_of(fit).clone(), torch.zeros(len(data), dtype=torch.bool)
    for fold in folded.folds.unique().tolist():
        own = folded.folds == fold
        part = judged(searched(folded.without(fold), rng, "fast")[0], folded)
        errors[own] = folded.Y[own] if part.errors is None else part.errors[own]
        seen |= own
        behind, error = difference(replace(fit, errors=errors), rival, folded, seen)
        if abs(behind) > 2 * error:
            break
    fit = replace(fit, seconds=fit.seconds + time.perf_counter() - begin)
    if behind <= error:
        return fit
    return replace(fit, nats=folded.take(seen).nats(errors[seen]), errors=errors, price=0.0)

"""A second instrument: what turns its rows into those of the first, from a few with known targets.

Its rows x' stand for x = e^s x' + V t, with one slope and an offset that moves the chart by t (d,)::

    y = u(x) + e,    e ~ N(0, σ²),    s ~ N(0, τ²),    t_j ~ N(0, τ² Var ξ_j)

x is around the mean of the first rows, and V (D, d) says how these change along the chart (the regression
of x on ξ), so that a linear chart moves by t. Both stay at nothing unless targets say otherwise: τ is the
one under which the targets are most probable, with u taken as linear around where s and t end (Laplace),
and 0 is among the choices. No channel has a number of its own, as few rows could not tell.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import least_squares
from torch import Tensor

from greenfold.learn.units import Array
from greenfold.model import IGL

TAUS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
STEPS = 100


class Correction(NamedTuple):
    """x = slope x' + offset, and the standards in the light of it."""

    slope: float
    offset: Array  # (D,)
    excess: Array  # (c,) errors of standards, each left out, over what they should be


class Trial(NamedTuple):
    """Where s and t ended under a prior."""

    nats: float
    theta: Array  # (1 + d,), in units of the prior
    J: Array  # (n·c, 1 + d) slope of the residuals
    e: Array  # (n·c,) residuals at θ = 0, as if u were linear
    tau: float


def corrected(model: IGL, first: Tensor, x: Tensor, Y: Tensor, noise: Tensor) -> Correction:
    """From standards x (n, D) with targets Y (n, c).

    `first` (m, D) are rows of the first instrument, and `noise` (c,) is the mean square of its errors.
    """
    with torch.no_grad():
        xi, new = model.chart(first), model.chart(x)
        mean, spread = xi.mean(0), xi.std(0, correction=0).clamp_min(1e-12)
        V = torch.linalg.pinv(xi - mean) @ (first - first.mean(0))  # (d, D)
    unit = noise.clamp_min(1e-24).sqrt()

    def residuals(theta: Tensor) -> Tensor:
        rows = theta[0].exp() * x + (theta[1:] * spread) @ V
        return ((Y - model(rows)) / unit).reshape(-1)

    def slopes(theta: Array) -> Array:
        found = torch.autograd.functional.jacobian(
            residuals, torch.from_numpy(theta), vectorize=True
        )
        return np.asarray(found.numpy())

    def trial(start: Array, tau: float) -> Trial:
        def loss(theta: Array) -> Array:
            with torch.no_grad():
                return np.concatenate([residuals(torch.from_numpy(theta)).numpy(), theta / tau])

        def slope(theta: Array) -> Array:
            return np.vstack([slopes(theta), np.eye(len(theta)) / tau])

        theta = start
        if tau > 0:
            theta = least_squares(loss, start, slope, method="lm", max_nfev=STEPS).x
        J = slopes(theta)
        e = residuals(torch.from_numpy(theta)).detach().numpy() - J @ theta
        C = np.eye(len(e)) + tau**2 * J @ J.T
        nats = (e @ np.linalg.solve(C, e) + np.linalg.slogdet(C)[1]) / 2
        return Trial(float(nats), theta, J, e, tau)

    nothing = np.zeros(1 + len(spread))
    ratio = (spread / new.std(0, correction=0).clamp_min(1e-12)).log().median().clamp(-1, 1)
    moved = (mean - ratio.exp() * new.mean(0)) / spread
    alike = np.concatenate([[float(ratio)], moved.numpy()])  # standards lie where the first rows do
    trials = [trial(nothing, 0.0)]
    for start, taus in ((nothing, TAUS), (alike, TAUS[::-1])):
        for tau in taus:  # on from where the one before ended
            trials.append(trial(start, tau))
            start = trials[-1].theta
    best = min(trials, key=lambda each: each.nats)
    offset = (torch.from_numpy(best.theta[1:]) * spread) @ V
    return Correction(float(np.exp(best.theta[0])), offset.numpy(), excess(best, Y.shape[1]))


def excess(trial: Trial, c: int) -> Array:
    """Root mean square (c,) of errors left out, over their standard deviations, at least 1.

    With covariance C of the residuals, entry i has the left-out error (C⁻¹e)_i/(C⁻¹)_ii of variance
    1/(C⁻¹)_ii.
    """
    inverse = np.linalg.inv(np.eye(len(trial.e)) + trial.tau**2 * trial.J @ trial.J.T)
    ratio = (inverse @ trial.e) / np.sqrt(np.diag(inverse))
    return np.maximum(np.sqrt(np.square(ratio.reshape(-1, c)).mean(0)), 1.0)

"""Is a row like those that were learned from? How far along the chart it lies, and how far off them.

Two distances, as in the calibration of instruments::

    T²(x) = (ξ − ξ̄)ᵀ S⁻¹ (ξ − ξ̄)          along the chart, S the covariance of the rows there
    Q(x)  = ‖z − P Pᵀ z‖²/D                off the rows: what their principal axes P (D, q) leave of x

z is the row in standard deviations of the columns, seen through what stands fixed before the chart: a row
that differs only in what the chart does not look at is not off. There are as many axes as make rows left
out most probable, with the rest taken as noise of one size (probabilistic principal components, [1]_).
Limits are quantiles of the distances of rows left out.

References
----------
.. [1] M. Tipping, C. Bishop, "Probabilistic principal component analysis", J. R. Stat. Soc. B 61 (1999),
   611–622.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from greenfold.chart.frames import SNV, Squash
from greenfold.learn.units import Array, chunks, evenly
from greenfold.model import IGL

ROWS = 400  # that distances are learned from
FOLDS = 5
MOST_AXES = 100
ROUNDING = 1e-12  # of ‖z‖², below which nothing is left of it


class Applicability(NamedTuple):
    """How far rows lie along the chart (T²) and off it (Q), and whether that is too far."""

    outside: np.ndarray  # (n,) is one of them beyond its limit?
    t2: Array  # (n,)
    q: Array  # (n,)
    t2_limit: float
    q_limit: float


@dataclass(frozen=True)
class Cloud:
    """Mean and inverse factor of the covariance of chart coordinates."""

    mean: Array  # (d,)
    whiten: Array  # (d, d)

    @staticmethod
    def of(xi: Array) -> Cloud:
        """The covariance is drawn to its diagonal where rows are few beside coordinates."""
        n, d = xi.shape
        mean = xi.mean(0)
        S = (xi - mean).T @ (xi - mean) / max(n - 1, 1)
        g = d / (n + d)
        S = (1 - g) * S + g * np.diag(np.diag(S))
        values, V = np.linalg.eigh(S)
        return Cloud(mean, V / np.sqrt(np.maximum(values, max(1e-12 * values[-1], 1e-300))))

    def t2(self, xi: Array) -> Array:
        return np.asarray(np.square((xi - self.mean) @ self.whiten).sum(1))


@dataclass(frozen=True)
class Axes:
    """Principal axes of rows, the largest first."""

    mean: Array  # (D,)
    V: Array  # (D, q)
    values: Array  # (q,) variances along them
    rest: float  # Σ of the variances of all axes

    @staticmethod
    def of(rows: Array) -> Axes:
        n, D = rows.shape
        mean = rows.mean(0)
        z = rows - mean
        if n < D:
            values, U = np.linalg.eigh(z @ z.T / n)
            V = z.T @ U / np.sqrt(np.maximum(n * values, 1e-300))
        else:
            values, V = np.linalg.eigh(z.T @ z / n)
        kept = np.flatnonzero(values > 1e-10 * max(values[-1], 1e-300))[::-1][:MOST_AXES]
        return Axes(mean, V[:, kept], values[kept], float(values.clip(0).sum()))

    def left(self, rows: Array) -> Array:
        """‖z‖² beyond the first 0, 1, …, q axes (n, q + 1)."""
        z = rows - self.mean
        total = np.square(z).sum(1)[:, None]
        along = np.cumsum(np.square(z @ self.V), axis=1)
        left = np.hstack([total, total - along])
        return np.where(left > ROUNDING * total, left, 0.0)

    def nats(self, rows: Array) -> Array:
        """−log density (n, q + 1) with 0, 1, …, q axes, up to a constant."""
        D, q = self.V.shape
        left = self.left(rows)
        along = -np.diff(left, axis=1) / self.values + np.log(self.values)  # of every axis
        inside = np.cumsum(np.hstack([np.zeros((len(rows), 1)), along]), axis=1)
        beyond = D - np.arange(q + 1)
        spare = self.rest - np.concatenate([[0.0], np.cumsum(self.values)])
        noise = np.maximum(spare / np.maximum(beyond, 1), 1e-10 * self.rest / D + 1e-300)
        density = inside + beyond * np.log(noise) + left / noise
        return np.where(beyond > 0, density, inside) / 2

    def first(self, q: int) -> Axes:
        return Axes(self.mean, self.V[:, :q], self.values[:q], self.rest)

    def q(self, rows: Array) -> Array:
        return self.left(rows)[:, -1] / len(self.mean)


@dataclass(frozen=True)
class Domain:
    """Where a chart's rows are, and how far those left out lie from the others."""

    frame: nn.Module  # what stands fixed before the chart
    cloud: Cloud
    axes: Axes
    scale: Array  # (D,), standard deviations of the columns
    t2: Array  # (m,) of rows left out, sorted
    q: Array  # (m,)

    @staticmethod
    @torch.no_grad()
    def of(model: IGL, x: Tensor, folds: Tensor | None = None) -> Domain:
        """`folds` (n,) leave rows out together; by default they are dealt out in turn."""
        keep = evenly(len(x), ROWS)
        frame = frame_of(model.encoder)
        rows, xi = frame(x[keep]).cpu().double().numpy(), _coordinates(model, x[keep])
        scale = spreads(rows)
        rows = rows / scale
        fold = np.arange(len(keep)) % min(FOLDS, len(keep))
        fold = fold if folds is None else np.unique(folds.numpy()[keep], return_inverse=True)[1]
        if fold.max() < 1:
            fold = np.arange(len(keep)) % 2
        parts = [(Axes.of(rows[fold != k]), fold == k) for k in range(fold.max() + 1)]
        most = min(axes.V.shape[1] for axes, _ in parts)
        nats = sum(axes.first(most).nats(rows[own]).sum(0) for axes, own in parts)
        n_axes = int(np.argmin(nats))
        t2, q = np.empty(len(keep)), np.empty(len(keep))
        for axes, own in parts:
            t2[own] = Cloud.of(xi[~own]).t2(xi[own])
            q[own] = axes.first(n_axes).q(rows[own])
        axes = Axes.of(rows).first(n_axes)
        return Domain(frame, Cloud.of(xi), axes, scale, np.sort(t2), np.sort(q))

    @torch.no_grad()
    def of_rows(self, model: IGL, x: Tensor, alpha: float) -> Applicability:
        """Of rows; a share `alpha` of those like the rows fitted to is beyond each limit."""
        if not 0 < alpha < 1:
            raise ValueError(f"`alpha` must be between 0 and 1, got {alpha}.")
        t2 = self.cloud.t2(_coordinates(model, x))
        q = self.axes.q(chunks(self.frame, x) / self.scale)
        t2_limit, q_limit = (quantile(known, alpha) for known in (self.t2, self.q))
        return Applicability((t2 > t2_limit) | (q > q_limit), t2, q, t2_limit, q_limit)


def frame_of(encoder: nn.Module) -> nn.Module:
    """What a chart does to every row before anything was learned from y."""
    if isinstance(encoder, nn.Sequential) and len(encoder) and isinstance(encoder[0], SNV | Squash):
        return encoder[0]
    return nn.Identity()


def spreads(rows: Array) -> Array:
    """Standard deviations (D,); of columns that never vary next to nothing, so that any change is off."""
    sd, size = rows.std(0), np.abs(rows).max(0)
    usual = math.sqrt(float(np.square(sd).mean())) or 1.0
    return np.where(sd > 1e-9 * size, sd, 1e-6 * usual)


def _coordinates(model: IGL, x: Tensor) -> Array:
    return chunks(lambda part: model.chart(part) * model.operator.by_column(model.gates()), x)


def quantile(known: Array, alpha: float) -> float:
    """What a new one exceeds with probability alpha, or, where rows are few, the largest."""
    k = math.ceil((len(known) + 1) * (1 - alpha))
    return float(known[min(k, len(known)) - 1])

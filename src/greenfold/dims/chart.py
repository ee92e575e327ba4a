"""Chart dimension: the smallest d whose chart rebuilds points it has not seen, without tears."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from greenfold.dims.coordinates import classical_scaling, off_plane, project, tangent_alignment
from greenfold.dims.graph import Graph, Index, graph
from greenfold.dims.ridge import KernelRidge, Spectrum, best_spectrum, spacing

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Limits:
    """What a chart may get wrong; see `Trial`."""

    ratio: float = 0.5  # of an error to the distance between neighbors
    median: float = 4.5  # the same, in units of the median ratio: noise raises the bar
    tear: int = 16  # size of the largest cluster of bad points and edges
    error: float = 0.01  # relative mean squared error
    gain: float = 2.0  # or: the error in units of what noise explains


LIMITS = Limits()
LAX = Limits(0.75, 6.0, 20, 0.02, 3.0)
STRICT = Limits(0.35, 3.0, 12, 0.005, 1.5)
NEARLY = 0.1  # charts with a smaller error are worth a re-encoding
CLOSE = 0.75  # median ratio below which what is left may be noise
FLOOR = 0.05  # neighbors closer than this fraction of the rms radius count as this far


@dataclass(frozen=True)
class Trial:
    """One chart, judged: left-out errors at rows, errors at midpoints of edges."""

    name: str
    Z: Array  # (N, d)
    Z_out: Array  # (N, d) what each row gets from an encoder that never saw it
    decoder: KernelRidge
    error: float  # mean squared left-out error; the data has mean square 1
    at_rows: Array  # (N,) error in units of the distance to the eighth neighbor
    at_edges: Array  # (E,) error at the midpoint in units of the edge

    def median(self) -> float:
        return float(np.median(self.at_rows))

    def tear(self, graph: Graph, limits: Limits = LIMITS) -> int:
        """Rows in the largest connected cluster of bad rows, plus twice the matched edges of bad ones.

        A tear is a line of bad edges side by side; one bad corner is a star, and matches once.
        """
        c = max(limits.ratio, limits.median * self.median())
        bad = self.at_rows > c
        inside = graph.edges[bad[graph.edges].all(1)]
        labels = graph.connect(inside)[bad]
        rows = int(np.bincount(labels).max()) if bad.any() else 0
        return rows + 2 * matching(graph, self.at_edges, c)

    def passes(self, graph: Graph, noise: Callable[[], float], limits: Limits = LIMITS) -> bool:
        """No tear, and an error that is small, or no larger than `noise` explains."""
        if self.tear(graph, limits) >= limits.tear:
            return False
        if self.error <= limits.error:
            return True
        return self.median() < CLOSE and self.error <= limits.gain * noise()


def matching(graph: Graph, ratio: Array, c: float) -> int:
    """Edges without a common end, greedily from the worst, in the largest cluster of bad ones."""
    bad = ratio > c
    if not bad.any():
        return 0
    edges = graph.edges[bad][np.argsort(-ratio[bad])]
    labels = graph.connect(edges)[edges[:, 0]]
    used: set[int] = set()
    matched = np.zeros(labels.max() + 1, int)
    for (i, j), label in zip(edges.tolist(), labels, strict=True):
        if i not in used and j not in used:
            used |= {i, j}
            matched[label] += 1
    return int(matched.max())


# --- judging


class Judge:
    """The data with its graph, and the kernel spectra that all encoders share."""

    def __init__(self, X: Array, graph: Graph, rng: Generator):
        self.X, self.graph, self.rng = X, graph, rng
        self.scale = np.maximum(graph.radius, FLOOR)
        self._spectrum: Spectrum | None = None
        self._isomap: Array | None = None

    def encoded(self, name: str, target: Array) -> Trial:
        """The chart that kernel ridge x → z learns from `target`, left out where it is judged."""
        if self._spectrum is None:
            self._spectrum = best_spectrum(self.X, target)
        encoder = KernelRidge.fit(self._spectrum, target)
        return self.trial(name, encoder(self.X), encoder.without(self.X))

    def trial(self, name: str, Z: Array, Z_out: Array) -> Trial:
        """A chart with coordinates Z, and Z_out those each row gets from the other rows."""
        decoder = KernelRidge.fit(best_spectrum(Z, self.X), self.X)
        e = np.linalg.norm(self.X - decoder.without(Z_out), axis=1)
        i, j = self.graph.edges.T
        middle = np.linalg.norm((self.X[i] + self.X[j]) / 2 - decoder((Z[i] + Z[j]) / 2), axis=1)
        lengths = np.maximum(self.graph.lengths, FLOOR)
        return Trial(
            name, Z, Z_out, decoder, float((e**2).mean()), e / self.scale, middle / lengths
        )

    # --- charts

    def isomap(self, d: int) -> Array:
        """Classical scaling of the geodesics of each piece, pieces side by side."""
        if self._isomap is None or self._isomap.shape[1] < d:
            most, paths = max(d + 2, 4), self.graph.geodesics
            self._isomap = self._side_by_side(lambda rows: classical_scaling(paths(rows), most))
        return self._isomap[:, :d]

    def tangents(self, d: int) -> Array:
        """Local tangent space alignment of each piece: right where Isomap bends around holes."""
        return self._side_by_side(lambda rows: tangent_alignment(self.X[rows], d, 2 * d + 8))

    def _side_by_side(self, chart: Callable[[Index], Array]) -> Array:
        parts, edge = [], 0.0
        rows = [np.flatnonzero(self.graph.piece == p) for p in range(self.graph.piece.max() + 1)]
        for z in map(chart, rows):
            z[:, 0] += edge - z[:, 0].min()
            edge = z[:, 0].max() + 0.5
            parts.append(z)
        return np.concatenate(parts)[np.argsort(np.concatenate(rows))]

    def principal(self, d: int) -> Array:
        _, _, Vt = np.linalg.svd(self.X, full_matrices=False)
        return self.X @ Vt[:d].T

    def charts(self, d: int) -> Iterator[Trial]:
        """Candidates of dimension d, cheapest first."""
        D = self.X.shape[1]
        if d <= D:
            Z = self.principal(d)
            yield self.trial("pca", Z, Z)
        if d >= D:
            return
        yield self.encoded("tangents", self.tangents(d))
        trial = self.encoded("isomap", self.isomap(d))
        yield trial
        if trial.error < NEARLY:
            yield self.encoded("re-encoded", self.reencoded(trial))
        yield self.encoded("projection", self.projection(d))

    def reencoded(self, trial: Trial) -> Array:
        """One Gauss–Newton step of each z_i towards the point that decodes to x_i, bounded."""
        J = trial.decoder.jacobian(trial.Z)  # (N, D, d)
        r = self.X - trial.decoder(trial.Z)
        H = np.einsum("nai,naj->nij", J, J)
        H += 1e-6 * np.trace(H, axis1=1, axis2=2)[:, None, None] * np.eye(H.shape[1])
        step = np.linalg.solve(H, np.einsum("nai,na->ni", J, r)[:, :, None])[:, :, 0]
        length = np.linalg.norm(step, axis=1, keepdims=True)
        bound = spacing(trial.Z)
        return trial.Z + step * np.minimum(1, bound / np.maximum(length, 1e-300))

    def projection(self, d: int, tries: int = 75) -> Array:
        """The central projection of a (d + 1)-dimensional chart that keeps neighbors best.

        From a point on the axis a cylinder is an annulus.
        """
        best, kept = np.inf, np.zeros((len(self.X), d))
        for source in (self.principal(d + 1), self.isomap(d + 1)):
            directions = self.rng.normal(size=(tries, d + 1))
            directions[: 2 * (d + 1)] = np.vstack([np.eye(d + 1), -np.eye(d + 1)])
            for axis in directions:
                Z = project(source, axis / np.linalg.norm(axis), self.rng.choice([1.3, 2.0, 4.0]))
                _, near = cKDTree(Z).query(Z, 2)
                gap = np.linalg.norm(self.X - self.X[near[:, 1]], axis=1) / self.scale
                score = float(np.quantile(gap, 0.95))
                if score < best:
                    best, kept = score, Z
        return kept


def neighbors_for(n: int, intrinsic: float) -> int:
    """8, or 2 ln N on curves, whose random gaps would otherwise cut them."""
    return int(np.ceil(2 * np.log(n))) if intrinsic < 1.5 else 8


# --- the search


class Ladder:
    """Charts of growing dimension, tried only as far as they are asked for."""

    def __init__(self, X: Array, intrinsic: float, rng: Generator):
        self.graph = graph(X, neighbors_for(len(X), intrinsic))
        judge = Judge(X, self.graph, rng)
        self.X, self.intrinsic = X, round(intrinsic)
        self.first = max(1, int(intrinsic + 0.25))
        self.last = min(X.shape[1], 2 * round(intrinsic) + 1)  # Whitney: 2d always suffice
        self._rest = {d: judge.charts(d) for d in range(self.first, self.last + 2)}
        self._seen: dict[int, list[Trial]] = {d: [] for d in self._rest}

    def trials(self, d: int) -> Iterator[Trial]:
        """Those seen before, then new ones."""
        yield from self._seen[d]
        for trial in self._rest[d]:
            self._seen[d].append(trial)
            yield trial

    def noise(self, d: int) -> float:
        """What even a better chart of dimension d would leave, in mean square.

        One more dimension leaves it too; and once d is not below the intrinsic dimension, so do local
        planes (every dimension the data has would count as noise before).
        """
        above = min((trial.error for trial, _ in zip(self.trials(d + 1), range(2))), default=0.0)
        return max(above, off_plane(self.X, d)) if d >= self.intrinsic else above

    def first_chart(self, limits: Limits = LIMITS) -> Trial | None:
        """A chart of the smallest dimension that has one that passes."""
        for d in range(self.first, self.last + 1):
            for trial in self.trials(d):
                if trial.passes(self.graph, partial(self.noise, d), limits):
                    return trial
        return None

    def flat_chart(self) -> Trial | None:
        """The chart for linear directions: aligned tangents if they pass, as they bend least."""
        first = self.first_chart()
        if first is None:
            return None
        d = first.Z.shape[1]
        tangents = (t for t in self.trials(d) if t.name == "tangents")
        flat = next(tangents, None)
        passes = flat is not None and flat.passes(self.graph, partial(self.noise, d))
        return flat if passes else first

    def value(self, limits: Limits = LIMITS) -> int | None:
        trial = self.first_chart(limits)
        return None if trial is None else trial.Z.shape[1]

    def curve(self) -> list[tuple[int, Trial]]:
        """The best chart of each dimension tried."""
        order = {
            d: sorted(t, key=lambda t: (t.tear(self.graph) >= LIMITS.tear, t.error))
            for d, t in self._seen.items()
        }
        return [(d, trials[0]) for d, trials in order.items() if trials]

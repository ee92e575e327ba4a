"""Who is next to whom: neighbors, edges, pieces, distances along the data."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors

Array = NDArray[np.float64]
Index = NDArray[np.int64]

LONGEST = 1.5  # an edge may exceed the smaller neighborhood of its two ends by this factor
SMALLEST = 16  # pieces of fewer rows are joined to the nearest other piece


@dataclass(frozen=True)
class Graph:
    """Mutual enough neighbors among N rows."""

    radius: Array  # (N,) distance to the eighth neighbor
    edges: Index  # (E, 2)
    lengths: Array  # (E,)
    piece: Index  # (N,) which connected piece a row is in

    def connect(self, edges: Index) -> Index:
        """Labels (N,) of the connected pieces these edges make."""
        return _pieces(edges, len(self.radius))

    def geodesics(self, rows: Index) -> Array:
        """Shortest paths along edges within one piece, (r, r)."""
        n = len(self.radius)
        (i, j), w = self.edges.T, np.maximum(self.lengths, 1e-300)
        return dijkstra(coo_array((w, (i, j)), shape=(n, n)).tocsr()[rows][:, rows], directed=False)


def graph(X: Array, k: int) -> Graph:
    """Edges to the k nearest rows, without those that jump from a dense region to a far one."""
    n = len(X)
    k = min(k, n - 1)
    r, near = NearestNeighbors(n_neighbors=k).fit(X).kneighbors()
    reach = r[:, -1]  # distance to neighbor k
    i = np.repeat(np.arange(n), k)
    edges, first = np.unique(
        np.sort(np.stack([i, near.ravel()], 1), axis=1), axis=0, return_index=True
    )
    lengths = r.ravel()[first]
    short = lengths <= LONGEST * reach[edges].min(1)
    edges, lengths = edges[short], lengths[short]
    piece = _pieces(edges, n)
    while True:  # a few rows by themselves are a gap in the sample, not a piece of the manifold
        sizes = np.bincount(piece)
        if len(sizes) == 1 or sizes.min() >= SMALLEST:
            break
        inside = piece == int(sizes.argmin())
        D = cdist(X[inside], X[~inside])
        a, b = np.unravel_index(int(D.argmin()), D.shape)
        bridge = [np.flatnonzero(inside)[a], np.flatnonzero(~inside)[b]]
        edges, lengths = np.vstack([edges, np.sort(bridge)]), np.append(lengths, D[a, b])
        piece = _pieces(edges, n)
    return Graph(r[:, min(8, k) - 1], edges, lengths, piece)


def _pieces(edges: Index, n: int) -> Index:
    i, j = edges.T
    links = coo_array((np.ones(len(edges)), (i, j)), shape=(n, n))
    return connected_components(links, directed=False)[1].astype(np.int64)

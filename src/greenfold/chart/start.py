"""Where charts and anchors start: principal components, Isomap, farthest points, grids."""

from itertools import combinations

import numpy as np
import torch
from scipy.linalg import eigh
from scipy.linalg.lapack import dpstrf
from scipy.sparse.csgraph import connected_components, shortest_path
from scipy.sparse.linalg import eigsh
from scipy.spatial.distance import cdist
from sklearn.neighbors import kneighbors_graph
from torch import Tensor


def pca(X: Tensor, n_dims: int) -> Tensor:
    """Rows of the first principal directions (d, D), scaled so that z has unit variances."""
    centered = X.double() - X.double().mean(0)
    _, s, Vt = torch.linalg.svd(centered, full_matrices=False)
    if n_dims > len(s):
        raise ValueError(
            f"{n_dims} principal coordinates were asked for, but {len(X)} rows of {X.shape[1]} columns "
            f"have at most {len(s)}. Lower `n_dims`."
        )
    s = s[:n_dims].clamp_min(1e-12 * s[0] + 1e-300)
    # the sign of a direction is arbitrary: make its largest entry positive
    Vt = Vt[:n_dims]
    largest = Vt.abs().argmax(1)
    Vt = Vt * torch.sign(Vt.gather(1, largest[:, None]))
    return Vt / s[:, None] * len(X) ** 0.5


def isomap(X: Tensor, n_dims: int, n_neighbors: int = 10) -> Tensor:
    """Isomap coordinates of the rows, scaled to unit variance (n, d).

    Distances along the graph of nearest rows, taken apart by classical scaling. Pieces of the graph are
    joined where they are nearest.
    """
    rows, index = np.unique(X.double().numpy(), axis=0, return_inverse=True)
    if len(rows) <= n_dims:
        return X.new_zeros(len(X), n_dims, dtype=torch.float64)
    near = kneighbors_graph(rows, min(n_neighbors, len(rows) - 1), mode="distance").tolil()
    count, piece = connected_components(near, directed=False)
    for a, b in combinations([np.flatnonzero(piece == p) for p in range(count)], 2):
        apart = cdist(rows[a], rows[b])
        i, j = np.unravel_index(apart.argmin(), apart.shape)
        near[a[i], b[j]] = apart[i, j]
    B = -0.5 * shortest_path(near.tocsr(), directed=False) ** 2
    B = B - B.mean(0) - B.mean(1)[:, None] + B.mean()
    n = len(B)
    if n > 200 and n_dims < 10:  # a few vectors of many, from a start that is always the same
        values, U = eigsh(B, n_dims, which="LA", v0=np.random.default_rng(0).uniform(-1, 1, n))
    else:
        values, U = eigh(B, subset_by_index=[n - n_dims, n - 1])
    largest = np.take_along_axis(U, np.abs(U).argmax(0)[None], 0)  # made positive
    z = (U * np.sign(largest) * np.sqrt(np.maximum(values, 0)))[:, ::-1]
    z = torch.from_numpy(np.ascontiguousarray(z[index.ravel()]))
    return z / z.std(0, correction=0).clamp_min(1e-12)


def farthest_points(z: Tensor, n_points: int) -> Tensor:
    """Indices of points that spread over the rows of z, each the farthest from those before it.

    Starts at the row nearest the mean, so the order of rows does not matter unless rows tie.
    """
    z = z.detach().double()
    index = [int((z - z.mean(0)).square().sum(1).argmin())]
    distance = (z - z[index[0]]).square().sum(1)
    for _ in range(min(n_points, len(z)) - 1):
        i = int(distance.argmax())
        if not float(distance[i]) > 0:
            break  # the rest are duplicates
        index.append(i)
        distance = torch.minimum(distance, (z - z[i]).square().sum(1))
    return torch.tensor(index)


def pivots(G: Tensor, tol: float) -> Tensor:
    """Rows that carry a kernel matrix G (n, n): pivoted Cholesky, until less than `tol` is missing.

    Smooth kernels need far fewer anchors than rows; each row chosen is the one its predecessors
    express worst.
    """
    _, order, rank, _ = dpstrf(G.numpy(), tol=tol, lower=1)
    return torch.from_numpy(order[: max(1, rank)].astype(np.int64) - 1)


def grid(n_points: int, n_dims: int, reach: float = 2.0) -> Tensor:
    """At most `n_points` positions on a regular grid of [−reach, reach]^d, for standardized charts."""
    side = round(n_points ** (1 / n_dims))
    side -= side**n_dims > n_points
    if side < 2:
        raise ValueError(
            f"a grid has at least two atoms along each of its {n_dims} axes, 2^{n_dims} in all, and "
            f"`n_atoms` is {n_points}. Use fewer dimensions, more atoms, or anchors='tied'."
        )
    axis = torch.linspace(-reach, reach, side, dtype=torch.float64)
    return torch.cartesian_prod(*[axis] * n_dims).reshape(-1, n_dims)

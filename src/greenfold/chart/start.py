"""Where charts and anchors start: principal components, Isomap, farthest points, grids."""

import numpy as np
import torch
from scipy.linalg.lapack import dpstrf
from sklearn.manifold import Isomap
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
    """Isomap coordinates of the rows, scaled to unit variance (n, d)."""
    k = min(n_neighbors, len(X) - 1)
    z = Isomap(n_neighbors=k, n_components=n_dims).fit_transform(X.double().numpy())
    z = torch.from_numpy(np.ascontiguousarray(z))
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
    """About `n_points` positions on a regular grid of [−reach, reach]^d, for standardized charts."""
    side = max(2, round(n_points ** (1 / n_dims)))
    axis = torch.linspace(-reach, reach, side, dtype=torch.float64)
    return torch.cartesian_prod(*[axis] * n_dims).reshape(-1, n_dims)

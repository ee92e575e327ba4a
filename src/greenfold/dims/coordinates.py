"""Coordinates in closed form: scaling of distances, alignment of tangents, central projections."""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.neighbors import NearestNeighbors

Array = NDArray[np.float64]


def classical_scaling(D: Array, d: int) -> Array:
    """Coordinates (n, d) whose distances are nearest to D."""
    n = len(D)
    d_ = min(d, n)
    B = -0.5 * D**2
    B = B - B.mean(0) - B.mean(1)[:, None] + B.mean()
    values, U = eigh(B, subset_by_index=[n - d_, n - 1])
    Z = np.zeros((n, d))
    Z[:, :d_] = (U * np.sqrt(np.maximum(values, 0)))[:, ::-1]
    return Z


def tangent_alignment(X: Array, d: int, k: int) -> Array:
    """Coordinates (n, d) that every neighborhood sees as an affine image of its tangent plane."""
    n = len(X)
    k = min(k, n - 1)
    d_ = min(d, k - 1)
    _, near = NearestNeighbors(n_neighbors=k).fit(X).kneighbors()
    near = np.hstack([np.arange(n)[:, None], near])  # (n, k + 1)
    local = X[near] - X[near].mean(1, keepdims=True)
    gram = local @ local.transpose(0, 2, 1)
    _, V = np.linalg.eigh(gram)
    G = np.concatenate([np.full((n, k + 1, 1), (k + 1) ** -0.5), V[:, :, -d_:]], axis=2)
    W = np.eye(k + 1) - G @ G.transpose(0, 2, 1)
    B = np.zeros((n, n))
    np.add.at(B, (near[:, :, None], near[:, None, :]), W)
    _, U = eigh(B, subset_by_index=[1, d_])  # the first is constant
    Z = np.zeros((n, d))
    Z[:, :d_] = U / U.std(0)
    return Z


def off_plane(X: Array, d: int) -> float:
    """Mean squared distance of a row from the d-plane of its 4(d + 1) nearest rows, itself left out."""
    k = min(4 * (d + 1), len(X) - 1)
    if d >= min(k, X.shape[1]):
        return 0.0
    _, near = NearestNeighbors(n_neighbors=k).fit(X).kneighbors()
    center = X[near].mean(1, keepdims=True)
    local = X[near] - center  # (n, k, D)
    _, V = np.linalg.eigh(local @ local.transpose(0, 2, 1))
    axes = V[:, :, -d:].transpose(0, 2, 1) @ local  # (n, d, D)
    axes /= np.maximum(np.linalg.norm(axes, axis=2, keepdims=True), 1e-300)
    gap = X - center[:, 0]
    along = np.einsum("ndD,nD->nd", axes, gap)
    return float((gap**2).sum(1).mean() - (along**2).sum(1).mean())


def project(Z: Array, axis: Array, distance: float) -> Array:
    """Z seen from the point at `distance` half-widths along `axis`, (n, d)."""
    Z = Z - Z.mean(0)
    depth = Z @ axis
    eye = depth.mean() + distance * max(float(np.abs(depth).max()), 1e-12)
    basis = np.linalg.svd(axis[None, :])[2][1:]  # (d, d + 1) across the axis
    flat: Array = (Z @ basis.T) / (eye - depth)[:, None]
    return flat * eye

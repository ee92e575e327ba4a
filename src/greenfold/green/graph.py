"""A graph as a factor: nodes, or rows of data and whatever lies near them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from scipy.linalg import eigh
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh
from torch import Tensor

from greenfold.green.factors import Factor, Flow, modal

ALL = 2000  # nodes up to which all eigenvectors are found
MODES = 500  # of larger graphs
STEEP = 0.6  # eigenvalues λ beyond which 1/(1 − λ) makes of new rows what nothing has told


class Graph(Factor):
    """Nodes joined by weights W, with the normalized Laplacian L = 1 − P, P = S⁻¹W, S_i = Σ_j W_ij.

    Its eigenfunctions ψ_m, with Σ_i S_i ψ_m(i)ψ_n(i)/ΣS = δ_mn, are those of the symmetric one, v_m,
    divided by √S: ψ_0 = 1. Heat is Σ_m e^{−tλ_m} ψ_m(i)ψ_m(j), with λ in [0, 2].

    Its column is a node's number, from 0. A graph `of_rows` has the rows' own columns: a row of the graph
    is its node, and another one takes ψ_m(x) = Σ_j p_j(x) ψ_m(j)/(1 − λ_m) from its neighbors, as nodes
    do (Nyström). That division magnifies whatever neighbors disagree about, so that modes beyond λ = 0.6
    are left out of new rows.

    Parameters
    ----------
    adjacency : array-like or sparse array of shape (N, N)
        Weights ≥ 0, symmetric. A graph in several pieces is warned of; `components` tells them apart.
    n_modes : int, optional
        The lowest eigenvectors to use: all up to 2000 nodes, else 500.
    diffusivity, learn
        See `Line`.

    Examples
    --------
    >>> import numpy as np
    >>> from greenfold.green import Graph
    >>> path = np.diag([1.0, 1.0, 1.0], 1)  # four nodes in a row
    >>> Graph(path + path.T).components.tolist()
    [0, 0, 0, 0]
    >>> rows = np.random.default_rng(0).normal(size=(30, 2))
    >>> near = Graph.of_rows(rows, n_neighbors=5)  # new rows find their place among these
    >>> apart = np.linalg.norm(rows[:, None] - rows, axis=2)
    >>> known = Graph.of_distances(apart, n_neighbors=5)
    >>> bool(near.modes(torch.arange(30).double()[:, None]).shape[0] == 30)
    True
    """

    dims = 1
    eigenvalues: Tensor
    psi: Tensor
    components: Tensor
    rows: Tensor | None
    radius: Tensor | None

    def __init__(
        self,
        adjacency: Any,
        *,
        n_modes: int | None = None,
        diffusivity: float | Tensor = 1.0,
        learn: bool = False,
    ):
        super().__init__(diffusivity, learn=learn)
        W = _weights(adjacency)
        n = W.shape[0]
        if n_modes is not None and not 1 <= n_modes <= n:
            raise ValueError(f"`n_modes` must lie between 1 and the {n} nodes, got {n_modes}.")
        lam, psi = _modes(W, n_modes or (n if n <= ALL else MODES))
        self.register_buffer("eigenvalues", torch.from_numpy(lam))
        self.register_buffer("psi", torch.from_numpy(psi))  # (N, M)
        self.register_buffer("components", torch.from_numpy(_pieces(W)))
        self.register_buffer("rows", None)
        self.register_buffer("radius", None)
        self.n_neighbors, self.width = 0, 1.0

    @classmethod
    def of_distances(
        cls, distances: Any, n_neighbors: int = 10, width: float = 1.0, **options: Any
    ) -> Graph:
        """Of distances (N, N): k nearest nodes joined by e^{−d²/(w² s_i s_j)}, s_i the k-th distance.

        Either of two nodes may count the other among its nearest. The widths s adapt to how dense nodes
        are; `width` w scales them all.
        """
        d = np.asarray(distances, dtype=np.float64)
        if d.ndim != 2 or d.shape[0] != d.shape[1] or not np.allclose(d, d.T):
            raise ValueError(f"`distances` must be square and symmetric, got shape {d.shape}.")
        if not np.isfinite(d).all() or (d < 0).any():
            raise ValueError("`distances` must be finite and at least 0.")
        return cls(_joined(d, *_settings(n_neighbors, width, len(d)))[0], **options)

    @classmethod
    def of_rows(
        cls,
        X: Any,
        n_neighbors: int = 10,
        width: float = 1.0,
        *,
        distances: Any = None,
        **options: Any,
    ) -> Graph:
        """Of rows (N, D), by their distances; new rows are taken in where they lie.

        `distances` (N, N) between the rows save computing them again.
        """
        rows = torch.as_tensor(X, dtype=torch.float64)
        if rows.ndim != 2 or not bool(rows.isfinite().all()):
            raise ValueError(f"`X` must be finite, of shape (N, D), got shape {tuple(rows.shape)}.")
        k, width = _settings(n_neighbors, width, len(rows))
        apart = between(rows) if distances is None else np.asarray(distances)
        W, radius = _joined(apart, k, width)
        graph = cls(W, **options)
        graph.rows, graph.radius = rows, torch.from_numpy(radius)
        graph.n_neighbors, graph.width = k, width
        return graph

    @property
    def columns(self) -> int:  # type: ignore[override]
        return 1 if self.rows is None else self.rows.shape[1]

    @property
    def highest(self) -> float:  # type: ignore[override]
        return float(self.eigenvalues[-1])

    def modes(self, x: Tensor) -> Tensor:
        """ψ_m at nodes (n, 1), or at rows (n, D), of shape (n, M)."""
        if self.rows is None or self.radius is None:
            return self.psi[x[:, 0].detach().round().long()]
        x, middle = x.double(), self.rows.mean(0)
        with torch.no_grad():
            apart = torch.cdist(x - middle, self.rows - middle)
            near = apart.topk(self.n_neighbors, largest=False)[1]  # (n, k)
        d = (x[:, None] - self.rows[near]).norm(dim=2)  # exact where rows are the same
        s = d.detach().amax(1, keepdim=True).clamp_min(1e-300)
        w = torch.exp(-(d**2) / (self.width**2 * s * self.radius[near]))
        keep = (self.eigenvalues < STEEP).to(w)
        gain = keep / torch.where(keep > 0, 1 - self.eigenvalues, torch.ones_like(keep))
        mean = torch.einsum("nk,nkm->nm", w / w.sum(1, keepdim=True), self.psi[near])
        nearest, own = d.detach().min(1, keepdim=True)
        node = near.gather(1, own)
        is_node = nearest <= 1e-6 * self.radius[node]
        return torch.where(is_node, self.psi[node[:, 0]], mean * gain)

    def heat(self, mu: Tensor, time: Tensor) -> Flow:
        return modal(self.modes, mu, torch.exp(-self.eigenvalues[:, None, None] * time))

    def summed(self, mu: Tensor, time: Tensor, gamma: Tensor) -> Flow:
        decay = torch.exp(-self.eigenvalues[:, None, None] * time)
        return modal(self.modes, mu, torch.einsum("mkr,k->mr", decay, gamma)[:, None])

    def at_home(self, x: Tensor, time: Tensor) -> Tensor:
        return self.modes(x).square() @ torch.exp(-self.eigenvalues[:, None] * time)

    def origin(self) -> Tensor:
        size = self.psi.square().sum(1)
        usual = int(size.argsort()[len(size) // 2])  # a node that is like most
        return torch.tensor([float(usual)]).double() if self.rows is None else self.rows[usual]

    def extent(self, x: Tensor) -> float:
        return 1.0

    def check(self, x: Tensor, name: str) -> None:
        if self.rows is not None:
            return
        node, n = x.detach().double(), len(self.psi)
        bad = ((node - node.round()).abs() > 1e-6) | (node < -0.5) | (node > n - 0.5)
        if bool(bad.any()):
            raise ValueError(
                f"{name} must hold numbers of nodes, whole and from 0 to {n - 1}, got "
                f"{float(node[bad][0]):g}. A graph of rows (Graph.of_rows) takes their columns."
            )


def _settings(n_neighbors: int, width: float, n: int) -> tuple[int, float]:
    if not (int(n_neighbors) == n_neighbors and 1 <= n_neighbors < n):
        raise ValueError(
            f"`n_neighbors` must be a whole number from 1 to {n - 1}, for {n} nodes, got {n_neighbors}."
        )
    if not (np.isfinite(width) and width > 0):
        raise ValueError(f"`width` must be positive and finite, got {width}.")
    return int(n_neighbors), float(width)


def between(rows: Tensor) -> np.ndarray:
    """Distances (N, N)."""
    rows = rows - rows.mean(0)
    return torch.cdist(rows, rows).numpy()


def _joined(d: np.ndarray, k: int, width: float) -> tuple[csr_array, np.ndarray]:
    """Weights (N, N) of neighbors, and the distance of the k-th (N,)."""
    n = len(d)
    apart = d.copy()
    np.fill_diagonal(apart, np.inf)
    near = np.argpartition(apart, k - 1, axis=1)[:, :k]
    own = np.take_along_axis(apart, near, 1)
    s = np.maximum(own.max(1), 1e-12 * max(float(d.max()), 1e-300))
    i = np.repeat(np.arange(n), k)
    j = near.ravel()
    w = np.maximum(np.exp(-(own.ravel() ** 2) / (width**2 * s[i] * s[j])), 1e-100)
    W = csr_array((w, (i, j)), shape=(n, n))
    return W.maximum(W.T), s


def _weights(adjacency: Any) -> csr_array:
    """W (N, N), checked."""
    dense = isinstance(adjacency, Tensor) or not hasattr(adjacency, "tocsr")
    W = csr_array(np.asarray(adjacency, dtype=np.float64) if dense else adjacency, dtype=np.float64)
    if W.shape[0] != W.shape[1] or W.shape[0] < 2:
        raise ValueError(f"`adjacency` must be (N, N) with at least 2 nodes, got {W.shape}.")
    if not np.isfinite(W.data).all():
        raise ValueError("`adjacency` must be finite.")
    if (W.data < 0).any():
        i, j = (v[0] for v in (W < 0).nonzero())
        raise ValueError(
            f"weights must be at least 0, got {W[i, j]:g} between nodes {i} and {j}. Distances go to "
            "Graph.of_distances; of correlations take a power or the positive part."
        )
    if abs(W - W.T).max() > 1e-10 * W.max():
        raise ValueError("`adjacency` must be symmetric; (W + W.T) / 2 makes it so.")
    alone = np.flatnonzero(W.sum(1) <= 0)
    if len(alone):
        raise ValueError(
            f"{len(alone)} nodes have no neighbor, the first of them {alone[:5].tolist()}: leave them "
            "out, or join them to something."
        )
    return W


def _pieces(W: csr_array) -> np.ndarray:
    """The component (N,) of every node, with a word if there are several."""
    count, piece = connected_components(W, directed=False)
    if count > 1:
        parts = sorted((np.flatnonzero(piece == p) for p in range(count)), key=len, reverse=True)
        told = "; ".join(f"{len(p)} nodes with {_some(p)}" for p in parts[:5])
        more = f"; and {count - 5} more" if count > 5 else ""
        warnings.warn(
            f"the graph falls into {count} components: {told}{more}. What is known in one says nothing "
            "about another. `components` has the number of each node's; more neighbors join them.",
            stacklevel=4,
        )
    return piece.astype(np.int64)


def _some(nodes: np.ndarray) -> str:
    return ", ".join(map(str, nodes[:3].tolist())) + (", …" if len(nodes) > 3 else "")


def _modes(W: csr_array, n_modes: int) -> tuple[np.ndarray, np.ndarray]:
    """λ (M,) and ψ (N, M)."""
    S, n = np.asarray(W.sum(1)), W.shape[0]
    root = 1 / np.sqrt(S)
    A = W * root[:, None] * root
    if n > ALL and n_modes < n // 2:
        start = np.random.default_rng(0).uniform(0.5, 1, n)
        mu, v = eigsh(A, n_modes, which="LA", v0=start)
    else:
        mu, v = eigh(A.toarray())
    order = np.argsort(-mu)[:n_modes]
    lam = np.clip(1 - mu[order], 0, 2)
    return lam, np.ascontiguousarray(v[:, order] * (root * np.sqrt(S.sum()))[:, None])

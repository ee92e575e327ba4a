"""How far a chart is from separable, and what that costs in rank.

On a curved manifold the integral carries a volume element √|g| and the Laplace–Beltrami operator
couples coordinates. A separable source absorbs both: √|g| multiplies its rank by the rank of √|g|, the
coupling L_coup u adds the rank of L_coup u. The functions here measure these two costs on a chart given
by its decoder ξ → x, or by its encoder and tangent spaces.

Functions of the chart are callables on float64 points (n, d); a region is given by `bounds` (d, 2).
"""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import torch
from scipy.special import roots_legendre
from scipy.stats import qmc
from torch import Tensor, nn
from torch.func import jacfwd, jvp, vmap

from greenfold.green.atoms import GaussHermite

Field = Callable[[Tensor], Tensor]  # (n, d) → (n,)
Map = Callable[[Tensor], Tensor]  # (n, d) → (n, D)

MAX_GRID = 2_000_000  # points of a full tensor grid


# --- the metric


def metric(decoder: Map, xi: Tensor) -> Tensor:
    """g = DᵀD with D = ∂x/∂ξ of the decoder, shape (n, d, d)."""
    D = _jacobian(decoder, xi)  # (n, D, d)
    return D.mT @ D


def encoder_metric(encoder: Map, x: Tensor, tangent: Tensor) -> Tensor:
    """The same metric from an encoder ξ = Ψ(x), shape (n, d, d).

    On the manifold ∂x/∂ξ = T(JT)⁻¹, with J = ∂Ψ/∂x and T an orthonormal basis of the tangent space.
    The product JJᵀ is not it: that is an inverse metric, and only if Ψ is constant along normals.

    Parameters
    ----------
    x : Tensor of shape (n, D)
    tangent : Tensor of shape (n, D, d)
        For instance `tangent_basis(X, d)`.
    """
    tangent = tangent.double()
    JT = _jacobian(encoder, x) @ tangent  # (n, d, d)
    if bool((torch.linalg.matrix_rank(JT.detach()) < JT.shape[-1]).any()):
        raise ValueError(
            "the encoder is not a chart here: it is singular along the tangent space of some points. "
            "Use fewer dimensions, or check the tangent spaces."
        )
    D = tangent @ torch.linalg.inv(JT)
    return D.mT @ D


def tangent_basis(X: Tensor, n_dims: int, n_neighbors: int | None = None) -> Tensor:
    """Orthonormal tangent bases (n, D, d) by principal components of each point's neighbors."""
    n, D = X.shape
    k = min(n, 4 * n_dims + 1 if n_neighbors is None else n_neighbors + 1)
    if n_dims > min(D, k - 1):
        raise ValueError(f"{n_dims} tangent directions need more than {k - 1} neighbors in R^{D}.")
    index = torch.cdist(X, X).topk(k, largest=False).indices  # (n, k), the point itself first
    near = X[index] - X[:, None]
    return torch.linalg.svd(near, full_matrices=False).Vh[:, :n_dims].mT


def volume(g: Tensor) -> Tensor:
    """√|g|, shape (n,)."""
    return torch.linalg.det(g).clamp_min(0).sqrt()


def _jacobian(f: Map, x: Tensor) -> Tensor:
    f = _double(f)
    return vmap(jacfwd(lambda z: f(z[None])[0]))(x.double())


def _double(f: Map) -> Map:
    """A network in single precision is looked at in double."""
    return deepcopy(f).double().requires_grad_(False) if isinstance(f, nn.Module) else f


# --- separability and rank on a tensor grid


def separability_defect(f: Field, bounds: Tensor, n_grid: int = 24) -> float:
    """min ‖f − Π_j χ_j(ξ_j)‖ / ‖f‖ on a region: 0 for a product, at most 1.

    Zero for √|g| of polar, spherical and cylindrical coordinates; not for elliptic ones.
    """
    F = _on_grid(f, bounds, n_grid)
    total = F.norm()
    if not float(total) > 0:
        raise ValueError("the function vanishes on the whole region; there is nothing to separate.")
    if F.ndim == 1:
        return 0.0
    # Alternating least squares from the leading vectors of the unfoldings; each sweep cannot increase
    # the residual, and a positive function has a positive best rank-one fit.
    factors = [
        torch.linalg.svd(F.movedim(j, 0).flatten(1), full_matrices=False).U[:, 0]
        for j in range(F.ndim)
    ]
    value, previous = 0.0, -1.0
    for _ in range(200):
        for j in range(F.ndim):
            T = F.movedim(j, -1)
            for i in (i for i in range(F.ndim) if i != j):
                T = torch.tensordot(factors[i], T, dims=([0], [0]))
            value = float(T.norm())
            factors[j] = T / value if value > 0 else T
        if value - previous <= 1e-15 * float(total):
            break
        previous = value
    rank_one = factors[0]
    for v in factors[1:]:
        rank_one = rank_one[..., None] * v
    return float((F - value * rank_one).norm() / total)


def unfolding_ranks(f: Field, bounds: Tensor, n_grid: int = 24, tol: float = 1e-6) -> list[int]:
    """Numerical rank of f with axis j against all others, for each j.

    The number of separable terms f needs is at least the largest of them, and equal to it for d = 2.
    """
    F = _on_grid(f, bounds, n_grid)
    ranks = []
    for j in range(F.ndim):
        s = torch.linalg.svdvals(F.movedim(j, 0).reshape(len(F), -1))
        ranks.append(int((s > tol * s[0]).sum()) if float(s[0]) > 0 else 0)
    return ranks


def minus_laplacian(atoms: GaussHermite, w: Tensor) -> tuple[GaussHermite, Tensor]:
    """−Δ of the source Σ_r w_r φ_r, exactly, as a source of R·d atoms: differentiation keeps rank low."""
    r, d = atoms.mu.shape
    raised = atoms.order[:, None] + 2 * torch.eye(d, dtype=torch.long)  # (r, d, d), one axis each
    repeat = [v.expand(r, d).repeat_interleave(d, 0) for v in (atoms.mu, atoms.sigma)]
    weights = -(w[:, None] / atoms.sigma**2).reshape(r * d)
    return GaussHermite(repeat[0], repeat[1], raised.reshape(r * d, d)), weights


def _check_bounds(bounds: Tensor) -> Tensor:
    bounds = torch.as_tensor(bounds, dtype=torch.float64)
    if bounds.ndim != 2 or bounds.shape[1] != 2 or not bool((bounds[:, 0] < bounds[:, 1]).all()):
        raise ValueError(
            f"`bounds` must be rows of (low, high), one per axis, got {bounds.tolist()}."
        )
    return bounds


def _rule(low: float, high: float, n: int) -> tuple[Tensor, Tensor]:
    """Gauss–Legendre nodes and weights that sum to 1."""
    x, w = roots_legendre(n)
    return torch.from_numpy(low + (high - low) * (x + 1) / 2), torch.from_numpy(w / 2)


def _on_grid(f: Field, bounds: Tensor, n_grid: int) -> Tensor:
    """√weight · f on a Gauss–Legendre tensor grid, so that Euclidean norms are L² norms."""
    bounds = _check_bounds(bounds)
    d = len(bounds)
    if n_grid**d > MAX_GRID:
        raise ValueError(
            f"a grid of {n_grid}^{d} points is too large (at most {MAX_GRID}). Lower `n_grid` to "
            f"{int(MAX_GRID ** (1 / d))}, or look at fewer coordinates at a time."
        )
    rules = [_rule(float(low), float(high), n_grid) for low, high in bounds]
    points = torch.cartesian_prod(*[x for x, _ in rules]).reshape(-1, d)
    F = f(points).detach().double().reshape((n_grid,) * d)
    for j, (_, w) in enumerate(rules):
        F = F * w.sqrt().reshape([-1 if i == j else 1 for i in range(d)])
    if not bool(F.isfinite().all()):
        raise ValueError("the function is not finite everywhere on the region; shrink `bounds`.")
    return F


# --- the Laplace–Beltrami operator


class LaplaceBeltrami:
    """L u = −|g|^{−1/2} ∂_i(|g|^{1/2} g^{ij} ∂_j u), and its split L = L_sep + L_coup.

    L_sep = Σ_j L_j keeps, of the coefficients of ∂_j² and ∂_j, their averages over the other coordinates;
    L_coup is the rest: what a separable Green's function leaves for the source to absorb.

    Parameters
    ----------
    decoder : callable
        ξ (n, d) → x (n, D), twice differentiable.
    bounds : Tensor of shape (d, 2)
        The region averaged over.
    """

    def __init__(self, decoder: Map, bounds: Tensor):
        self.decoder = _double(decoder)
        self.bounds = _check_bounds(bounds)

    def coefficients(self, xi: Tensor) -> tuple[Tensor, Tensor]:
        """A (n, d, d) and b (n, d) with L u = −Σ A_ij ∂_ij u − Σ b_j ∂_j u."""

        def g_of(z: Tensor) -> tuple[Tensor, Tensor]:
            D = jacfwd(lambda t: self.decoder(t[None])[0])(z)
            return D.mT @ D, D.mT @ D

        dg, g = vmap(jacfwd(g_of, has_aux=True))(xi)  # dg_ijk = ∂_k g_ij
        A, singular = torch.linalg.inv_ex(g)
        if bool(singular.any()):
            raise ValueError(
                f"the chart is singular at {int(singular.count_nonzero())} of {len(xi)} points, where "
                "its metric has no inverse. Shrink `bounds`, or use fewer coordinates."
            )
        # ∂_k g⁻¹ = −g⁻¹ (∂_k g) g⁻¹ and ∂_k log √|g| = ½ tr(g⁻¹ ∂_k g)
        slope = -torch.einsum("nia,nabi,nbj->nj", A, dg, A)
        stretch = 0.5 * torch.einsum("nab,nabk->nk", A, dg)
        return A, slope + torch.einsum("nij,ni->nj", A, stretch)

    def separable_coefficients(self, xi: Tensor) -> tuple[Tensor, Tensor]:
        """The averages of A_jj and b_j over the other coordinates, each (n, d)."""
        n, d = xi.shape
        A, b = torch.empty(n, d).to(xi), torch.empty(n, d).to(xi)
        for j in range(d):
            others, weights = self._others(j)  # (m, d), (m,)
            points = others[None].repeat(n, 1, 1)
            points[:, :, j] = xi[:, j, None]
            full, drift = self.coefficients(points.reshape(-1, d))
            A[:, j] = full[:, j, j].reshape(n, -1) @ weights
            b[:, j] = drift[:, j].reshape(n, -1) @ weights
        return A, b

    def _others(self, j: int) -> tuple[Tensor, Tensor]:
        """Points and weights of an average over all coordinates but j."""
        d = len(self.bounds)
        low, high = self.bounds.T
        if d <= 3:
            rules = [
                _rule(float(a), float(b), 16 if i != j else 1)
                for i, (a, b) in enumerate(self.bounds)
            ]
            points = torch.cartesian_prod(*[x for x, _ in rules]).reshape(-1, d)
            weights = torch.cartesian_prod(*[w for _, w in rules]).reshape(-1, d).prod(1)
            return points, weights
        sample = torch.from_numpy(qmc.Sobol(d, scramble=False).random_base2(8) + 0.5 / 256)
        return low + (high - low) * sample, torch.full((256,), 1 / 256, dtype=torch.float64)

    def __call__(self, u: Field, xi: Tensor) -> Tensor:
        """(L u)(ξ), shape (n,)."""
        A, b = self.coefficients(xi)
        gradient, hessian = _derivatives(u, xi)
        return -(A * hessian).sum((1, 2)) - (b * gradient).sum(1)

    def separable(self, u: Field, xi: Tensor) -> Tensor:
        """(L_sep u)(ξ)."""
        A, b = self.separable_coefficients(xi)
        gradient, hessian = _derivatives(u, xi)
        return -(A * hessian.diagonal(dim1=1, dim2=2)).sum(1) - (b * gradient).sum(1)

    def coupling(self, u: Field, xi: Tensor) -> Tensor:
        """(L_coup u)(ξ)."""
        return self(u, xi) - self.separable(u, xi)

    def coupling_ratio(self, u: Field, n_samples: int = 256) -> float:
        """‖L_coup u‖ / ‖L u‖ over the region."""
        xi = _sample(self.bounds, n_samples)
        whole = self(u, xi)
        if not float(whole.norm()) > 0:
            raise ValueError(
                "L u vanishes on the whole region, so its coupled part has no relative size."
            )
        return float((whole - self.separable(u, xi)).norm() / whole.norm())


def _derivatives(u: Field, xi: Tensor) -> tuple[Tensor, Tensor]:
    def value(z: Tensor) -> Tensor:
        return u(z[None])[0]

    return vmap(jacfwd(value))(xi), vmap(jacfwd(jacfwd(value)))(xi)


def _sample(bounds: Tensor, n: int) -> Tensor:
    """Well-spread points of a region, the same at every call."""
    m = max(1, math.ceil(math.log2(n)))
    unit = torch.from_numpy(qmc.Sobol(len(bounds), scramble=False).random_base2(m)[:n] + 0.5 / 2**m)
    return bounds[:, 0] + (bounds[:, 1] - bounds[:, 0]) * unit


# --- mixed smoothness


def mixed_derivatives(u: Field, bounds: Tensor, order: int = 1, n_samples: int = 256) -> Tensor:
    """sup |∂^α u| for every α with max_j α_j ≤ order, a tensor of shape (order + 1,)^d.

    Functions with small entries throughout have dominating mixed smoothness: their tensor rank grows
    slowly with dimension. The corner [order, …, order] is the derivative that isotropic smoothness does
    not control. Suprema are over a well-spread sample, so they are lower bounds.
    """
    bounds = _check_bounds(bounds)
    d = len(bounds)
    if order < 0 or (order + 1) ** d > 4096:
        raise ValueError(
            f"order {order} in {d} dimensions has {(order + 1) ** d} mixed derivatives, at most 4096 are "
            "estimated. Lower `order`, or fix some coordinates."
        )
    xi = _sample(bounds, n_samples)
    suprema = torch.empty((order + 1,) * d, dtype=torch.float64)

    def visit(f: Field, j: int, alpha: tuple[int, ...]) -> None:
        if j == d:
            suprema[alpha] = f(xi).detach().abs().max()
            return
        for i in range(order + 1):
            visit(f, j + 1, (*alpha, i))
            f = _partial(f, j, d)

    visit(u, 0, ())
    return suprema


def _partial(f: Field, j: int, d: int) -> Field:
    """∂_j f."""
    direction = torch.eye(d, dtype=torch.float64)[j]
    return lambda z: jvp(f, (z,), (direction.expand_as(z),))[1]


# --- in one view


@dataclass(frozen=True)
class ChartReport:
    """What a separable source pays for the geometry of a chart."""

    defect: float  # of √|g| from a product
    volume_ranks: list[int]  # numerical ranks of √|g|: the factor on the source's rank
    coupling: float | None  # ‖L_coup u‖ / ‖L u‖
    coupling_ranks: list[int] | None  # numerical ranks of L_coup u: added to the source's rank

    def __str__(self) -> str:
        lines = [
            f"√|g| is {self.defect:.1%} from a product; it multiplies the source's rank by "
            f"{max(self.volume_ranks)}.",
        ]
        if self.coupling is not None and self.coupling_ranks is not None:
            lines.append(
                f"L_coup u is {self.coupling:.1%} of L u; it adds {max(self.coupling_ranks)} to the "
                "source's rank."
            )
        return "\n".join(lines)


def chart_report(
    decoder: Map, bounds: Tensor, u: Field | None = None, *, n_grid: int = 16, tol: float = 1e-3
) -> ChartReport:
    """Measure a chart on a region, with the function `u` on it if there is one."""

    def root(xi: Tensor) -> Tensor:
        return volume(metric(decoder, xi))

    defect = separability_defect(root, bounds, n_grid)
    ranks = unfolding_ranks(root, bounds, n_grid, tol)
    if u is None:
        return ChartReport(defect, ranks, None, None)
    laplacian = LaplaceBeltrami(decoder, bounds)
    field = u

    def coupled(xi: Tensor) -> Tensor:
        return laplacian.coupling(field, xi)

    coupling = laplacian.coupling_ratio(field)
    # A coupling of rounding size has no rank to speak of.
    coupling_ranks = unfolding_ranks(coupled, bounds, n_grid, tol) if coupling > 1e-10 else [0]
    return ChartReport(defect, ranks, coupling, coupling_ranks)

"""The whole path, x → ξ → Φ → w → u, written once."""

import math
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from scipy.optimize import nnls
from torch import Tensor, nn

from greenfold.chart.gates import Gates
from greenfold.design import Design
from greenfold.green.atoms import Atoms, Point
from greenfold.green.base import Operator
from greenfold.green.null_space import Polynomial
from greenfold.solve.factor import jittered
from greenfold.solve.solution import Solution, Solver

CONSTANT = Polynomial(0)
MANY = 2048  # points above which float32 may do
PROBED = 32  # of them, where float32 is compared with float64
SINGLE = 1e-3  # of the spread of u, that float32 may be off
PADDING = 1.2  # a box is this much longer than the range of the rows in it


def placement(z: Tensor, box: Tensor | None) -> tuple[Tensor, Tensor]:
    """Shift and scale (d,) that standardize the rows of z, or put them in the middle of a box (2, d)."""
    if box is None:
        return z.mean(0), z.std(0, correction=0).clamp_min(1e-12)
    low, high = z.amin(0), z.amax(0)
    scale = (PADDING * (high - low) / (box[1] - box[0]).to(z)).clamp_min(1e-12)
    return (low + high - scale * box.sum(0).to(z)) / 2, scale


class Anchored(NamedTuple):
    """The sources where they are, as long as nothing changes."""

    atoms: Atoms
    gate: Tensor  # (d,)
    F: Tensor | None  # (r, r), F Fᵀ = G, under the energy norm


class _Kept(NamedTuple):
    """What `IGL.anchored` found, and the tensors it depends on, as they were."""

    tensors: tuple[Tensor, ...]  # held, so that no other tensor takes their place in memory
    versions: list[int]
    anchored: Anchored

    def of(self, tensors: tuple[Tensor, ...]) -> bool:
        return len(tensors) == len(self.tensors) and all(
            new is old and new._version == version
            for new, old, version in zip(tensors, self.tensors, self.versions)
        )


_KEPT: WeakKeyDictionary[nn.Module, _Kept] = WeakKeyDictionary()


class Ready(NamedTuple):
    """What predictions without slopes are made of, as long as neither sources nor w change."""

    anchored: Anchored
    w: Tensor
    version: int  # of w
    atoms: Atoms  # in the dtype of predictions
    v: Tensor  # (r, c), their strengths


_READY: WeakKeyDictionary[nn.Module, Ready] = WeakKeyDictionary()


class Tied(nn.Module):
    """Anchors that are images of data: μ_r = Ψ(x_r), so they move with the chart.

    Parameters
    ----------
    x : Tensor of shape (r, D)
    atoms : type of Atoms
        With the default `Point` the response is the operator's Green's function between rows.
    sigma : float or Tensor
        Width of every atom, in chart units (the resolution of points), or along every axis.

    Examples
    --------
    >>> import torch
    >>> from greenfold import Tied
    >>> rows = torch.zeros(20, 3, dtype=torch.float64)
    >>> len(Tied(rows).at(rows[:, :2]).mu)
    20
    """

    x: Tensor

    def __init__(self, x: Tensor, atoms: type[Atoms] = Point, sigma: Tensor | float = 1e-2):
        super().__init__()
        self.register_buffer("x", x)
        self.kind = atoms
        self.sigma = sigma

    def at(self, mu: Tensor) -> Atoms:
        """The atoms at these places.

        Parameters
        ----------
        mu : Tensor of shape (r, d)
            Where the rows are on the chart.

        Returns
        -------
        Atoms
        """
        return self.kind(mu, self.sigma)


class IGL(nn.Module):
    """u(x) = Σ_r w_r (L⁻¹φ_r)(Ψ(x)) + null space.

    Parameters
    ----------
    encoder : nn.Module
        Ψ, from (n, D) to (n, d).
    operator : Operator
    sources : Atoms or Tied
        Atoms of their own (free, learned or on a grid), or tied to data.
    null_space : nn.Module, optional
        Columns fitted without penalty. By default those of the operator, as it is with all gates open,
        and a constant beside an operator that has none.
    gates : Gates, optional
    standardize : bool
        Shift and scale z to mean 0 and variance 1 per axis; under an operator on a box, so that the rows
        fill the middle five sixths of it. In training mode the statistics are those of the batch and are
        stored; otherwise the stored ones are used, and rows beyond the box count as on its wall.
    energy : bool
        Penalize the energy wᵀG w, G_rs = (L⁻¹φ_s)(μ_r), in place of wᵀw: Φ is whitened by G's factor.
        Wants atoms of one common width.
    gamma : 'fixed', 'learned', 'free' or 'alternating'
        The weights γ_k of the exponential sum. Fixed by the operator, u solves its equation. Otherwise
        terms are scales to combine: learned with the chart (one factor per term), free (a weight for
        each term and atom, K·R columns), or solved for in turn with w, as in the paper's split.
    importance : bool
        Learn a factor ρ_r ≥ 0 for each atom's column with the chart. Under the evidence objective
        atoms that are not needed fade, as in sparse Bayesian learning.
    n_dims : int
        d.

    Examples
    --------
    >>> import torch
    >>> from greenfold import IGL, Tied
    >>> from greenfold.chart import Linear
    >>> from greenfold.green import Heat
    >>> from greenfold.solve import Ridge
    >>> x = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> model = IGL(Linear(3, 2).double(), Heat(), Tied(x[:20]), n_dims=2).eval()
    >>> solution = model.solve(x, x[:, :1].sin(), Ridge(1e-6))
    >>> model(x).shape, model.chart(x).shape
    (torch.Size([50, 1]), torch.Size([50, 2]))

    Its parts: rows are located on the chart, sources respond there, columns without penalty stand beside.

    >>> xi, gate = model.locate(x), model.gates()
    >>> sources = model.atoms()
    >>> model.respond(xi, sources, gate).shape
    torch.Size([50, 20])
    >>> bool(torch.equal(model.design(x).Phi, model.columns(xi).Phi))
    True
    >>> model.null()(xi, gate).shape, model.n_null()
    (torch.Size([50, 1]), 1)
    >>> model.source_weights().shape, model.trend().shape, model.factor(sources, gate).shape
    (torch.Size([20, 1]), torch.Size([1, 1]), torch.Size([20, 20]))
    >>> bool(torch.allclose(model.decode(xi), model(x))), float(model.unit()) > 0
    (True, True)
    >>> kept = model.settle(x).anchored()
    >>> model.unmixed(model.source_weights(), None).shape
    torch.Size([20, 1])
    """

    mean: Tensor
    scale: Tensor
    null_space: nn.Module | None

    def __init__(
        self,
        encoder: nn.Module,
        operator: Operator,
        sources: Atoms | Tied,
        *,
        n_dims: int,
        null_space: nn.Module | None = None,
        gates: Gates | None = None,
        standardize: bool = False,
        energy: bool = False,
        gamma: str = "fixed",
        importance: bool = False,
    ):
        super().__init__()
        if gamma not in ("fixed", "learned", "free", "alternating"):
            raise ValueError(
                f"`gamma` must be 'fixed', 'learned', 'free' or 'alternating', got {gamma!r}."
            )
        if gamma != "fixed" and not operator.has_terms:
            raise ValueError(f"{type(operator).__name__} has no terms to weigh; use gamma='fixed'.")
        if gamma in ("free", "alternating") and energy:
            raise ValueError(f"{gamma} weights have no energy norm; use energy=False.")
        if importance and energy:
            raise ValueError(
                "the energy norm mixes atoms, so none has an importance of its own; use energy=False."
            )
        self.gamma = gamma
        self.encoder = encoder
        self.operator = operator
        self.sources = sources
        self.register_module("null_space", null_space)  # None: the operator's
        self.gates = Gates(operator.n_gates(n_dims)) if gates is None else gates
        self.standardize = standardize
        self.energy = energy
        self.register_buffer("mean", torch.zeros(n_dims, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(n_dims, dtype=torch.float64))
        self.w: Tensor | None = None  # (p, c), set by `solve`
        factors = torch.ones(operator.count_terms(n_dims), dtype=torch.float64)  # of the γ_k
        self.factors = nn.Parameter(factors, requires_grad=gamma == "learned")
        ones = torch.full((n_sources(sources),), math.log(math.e - 1), dtype=torch.float64)
        self.raw_rho = nn.Parameter(ones, requires_grad=importance)  # softplus⁻¹(1)

    @property
    def rho(self) -> Tensor:
        """Rank importance ρ (r,), by which the columns are multiplied; 1 unless learned."""
        return torch.nn.functional.softplus(self.raw_rho)

    def null(self) -> nn.Module:
        """(ξ, gate) → columns (n, q) beside the response; the operator's move with what it learns."""
        if self.null_space is not None:
            return self.null_space
        own = self.operator.null_space()
        return CONSTANT if own is None else own

    def n_null(self) -> int:
        """q."""
        return int(self.null()(self.mean[None]).shape[1])

    def chart(self, x: Tensor) -> Tensor:
        """ξ (n, d).

        Parameters
        ----------
        x : Tensor of shape (n, D)
            Rows.

        Returns
        -------
        Tensor of shape (n, d)
        """
        return self._place(self.encoder(x))

    def _place(self, z: Tensor) -> Tensor:
        xi = (z - self.mean) / self.scale
        if self.standardize and self.operator.box is not None:
            xi = xi.clamp(*self.operator.box.to(xi))
        return xi

    def atoms(self) -> Atoms:
        """The sources as they stand, tied ones at the images of their rows."""
        if isinstance(self.sources, Tied):
            return self.sources.at(self.chart(self.sources.x))
        return self.sources

    def locate(self, x: Tensor) -> Tensor:
        """ξ (n, d); in training mode the statistics that place it become those of these rows.

        Parameters
        ----------
        x : Tensor of shape (n, D)
            Rows.

        Returns
        -------
        Tensor of shape (n, d)
        """
        z = self.encoder(x)
        if self.training and self.standardize:
            self.mean, self.scale = placement(z, self.operator.box)
        return self._place(z)

    def design(self, x: Tensor, gate: Tensor | None = None) -> Design:
        """Φ and null-space columns of rows, with their penalty.

        Parameters
        ----------
        x : Tensor of shape (n, D)
            Rows.
        gate : Tensor of shape (d,), optional
            In place of the gates of the model.

        Returns
        -------
        Design
        """
        return self.columns(self.locate(x), gate)

    def columns(self, xi: Tensor, gate: Tensor | None = None) -> Design:
        """The same of places on the chart.

        Parameters
        ----------
        xi : Tensor of shape (n, d)
            Places on the chart.
        gate : Tensor of shape (d,), optional
            In place of the gates of the model.

        Returns
        -------
        Design
        """
        atoms, gate, F = self.anchored() if gate is None else self._anchor(gate)
        Phi = self.respond(xi, atoms, gate)  # Φ (n, r)
        null = self.null()(xi, gate)  # (n, q)
        return Design.stack(normed(Phi, F), null)

    def respond(self, xi: Tensor, atoms: Atoms, gate: Tensor) -> Tensor:
        """Φ (n, r), or (n, k·r) with free weights.

        Parameters
        ----------
        xi : Tensor of shape (n, d)
            Places on the chart.
        atoms : Atoms
            Sources.
        gate : Tensor of shape (d,)
            How far coordinates are open.

        Returns
        -------
        Tensor of shape (n, r)
        """
        if self.gamma == "fixed":
            Phi = self.operator.response(xi, atoms, gate)
            return Phi * self.rho.to(Phi) if self.raw_rho.requires_grad else Phi
        terms = self._terms(xi, atoms, gate)
        if self.gamma == "free":
            return terms.movedim(0, 1).flatten(1)
        return torch.einsum("k,knr->nr", self.factors.to(terms.dtype), terms)

    def _terms(self, xi: Tensor, atoms: Atoms, gate: Tensor) -> Tensor:
        """Every term of the exponential sum by itself, (k, n, r)."""
        terms = self.operator.terms(xi, atoms, gate)
        return terms * self.rho.to(terms) if self.raw_rho.requires_grad else terms

    def settle(self, x: Tensor) -> "IGL":
        """Leave training: store the chart's statistics on these rows as constants.

        Parameters
        ----------
        x : Tensor of shape (n, D)
            Rows.

        Returns
        -------
        IGL
            Itself.
        """
        self.eval()
        if self.standardize:
            with torch.no_grad():
                self.mean, self.scale = placement(self.encoder(x), self.operator.box)
        return self

    def factor(self, atoms: Atoms, gate: Tensor) -> Tensor:
        """F (r, r) lower triangular with F Fᵀ = G + jitter.

        Parameters
        ----------
        atoms : Atoms
            Sources.
        gate : Tensor of shape (d,)
            How far coordinates are open.

        Returns
        -------
        Tensor of shape (r, r)
        """
        G = self.respond(atoms.mu, atoms, gate)
        return jittered((G + G.T) / 2, "the energy matrix of the anchors", 1e-12)

    @torch.no_grad()
    def unit(self) -> Tensor:
        """The response of a source at its own place: the natural unit of the energy penalty."""
        origin = self.operator.origin(len(self.mean))[None]
        atoms = self.sources.at(origin) if isinstance(self.sources, Tied) else self.sources
        return self.operator.response(atoms.mu[:1], atoms, self.gates())[0, 0]

    def solve(self, x: Tensor, Y: Tensor, solver: Solver, weight: Tensor | None = None) -> Solution:
        """Stage 2 on the chart as it is: sets `w` and returns the solver's `Solution`.

        Parameters
        ----------
        x : Tensor of shape (n, D)
            Rows.
        Y : Tensor of shape (n, c)
            Targets.
        solver : Solver
            Such as `Ridge`.
        weight : Tensor of shape (n,), optional
            How often each row counts.

        Returns
        -------
        Solution
        """
        solution = solver.solve(self.design(x), Y, weight)
        for _ in range(20 if self.gamma == "alternating" else 0):
            self._reweigh(x, Y, solution.w.detach(), weight)
            solution = solver.solve(self.design(x), Y, weight)
        self.w = solution.w.detach()
        return solution

    @torch.no_grad()
    def _reweigh(self, x: Tensor, Y: Tensor, w: Tensor, weight: Tensor | None) -> None:
        """γ given w: least squares for the K factors, kept non-negative, constant part held."""
        atoms, gate = self.atoms(), self.gates()
        r = len(atoms.mu)
        terms = self._terms(self.chart(x), atoms, gate)  # (k, n, r)
        rest = Y - self.null()(self.chart(x), gate) @ w[r:]
        root = torch.ones(len(x), dtype=torch.float64) if weight is None else weight.sqrt()
        A = (root[:, None] * (terms @ w[:r])).reshape(len(terms), -1).T  # (n·c, k)
        solved, _ = nnls(A.numpy(), (root[:, None] * rest).reshape(-1).numpy())
        if solved.any():
            self.factors.copy_(torch.from_numpy(solved))

    def forward(self, x: Tensor) -> Tensor:
        """u (n, c).

        Parameters
        ----------
        x : Tensor of shape (n, D)
            Rows.

        Returns
        -------
        Tensor of shape (n, c)
        """
        return self.decode(self.locate(x))

    def decode(self, xi: Tensor) -> Tensor:
        """u (n, c) at points of the chart.

        Parameters
        ----------
        xi : Tensor of shape (n, d)
            Places on the chart.

        Returns
        -------
        Tensor of shape (n, c)
        """
        w, anchored = self._solved(), self.anchored()
        atoms, gate, F = anchored
        if self.gamma == "fixed" and isinstance(atoms, Point) and not torch.is_grad_enabled():
            return self._summed(xi, self._ready(anchored))
        null = self.null()(xi, gate).to(w)  # (n, q)
        m = len(w) - null.shape[1]
        return self.respond(xi, atoms, gate) @ self.unmixed(w[:m], F) + null @ w[m:]

    def _summed(self, xi: Tensor, ready: Ready) -> Tensor:
        """u (n, c), without Φ and without slopes."""
        (_, gate, _), w, _, atoms, v = ready
        u = self.operator.spread(xi.to(atoms.mu), atoms, gate, v).to(w)
        return u + self.null()(xi, gate).to(w) @ w[len(v) :]

    def _ready(self, anchored: Anchored) -> Ready:
        """Points and their strengths, in float32 if they are very many and that is enough."""
        known, w = _READY.get(self), self._solved()
        same = known is not None and known.anchored is anchored and known.w is w
        if known is None or not same or known.version != w._version:
            atoms, _, F = anchored
            # F⁻ᵀ goes to c columns of w, not to n rows of Φ
            v = self.unmixed(w[: len(atoms.mu)], F)
            known = Ready(anchored, w, w._version, atoms, v)
            if F is None and len(atoms.mu) > MANY:
                single = known._replace(atoms=Point(atoms.mu.float()))
                known = single if self._alike(single, known) else known
            _READY[self] = known
        return known

    def _alike(self, single: Ready, double: Ready) -> bool:
        """Do strengths cancel so little that rounding does not show at some of the points?"""
        some = double.atoms.mu[:: max(len(double.v) // PROBED, 1)]
        rounded, exact = (self._summed(some, ready) for ready in (single, double))
        spread = (exact - exact.mean(0)).square().mean(0).sqrt()
        return bool(((rounded - exact).abs().amax(0) <= SINGLE * spread).all())

    def anchored(self) -> Anchored:
        """Kept while nothing changes, as anchors have to be encoded and G factored."""
        if torch.is_grad_enabled() or self.training:
            return self._anchor(self.gates())
        tensors = (*self.parameters(), *self.buffers())
        kept = _KEPT.get(self)
        known = kept is not None and (kept.anchored.F is not None) == self.energy
        if kept is None or not known or not kept.of(tensors):
            now = self._anchor(self.gates())
            kept = _KEPT[self] = _Kept(tensors, [t._version for t in tensors], now)
        return kept.anchored

    def _anchor(self, gate: Tensor) -> Anchored:
        atoms = self.atoms()
        return Anchored(atoms, gate, self.factor(atoms, gate) if self.energy else None)

    def _solved(self) -> Tensor:
        if self.w is None:
            raise RuntimeError("the source is not known yet: call `solve(x, Y, solver)` first.")
        return self.w

    def trend(self) -> Tensor:
        """Strengths (q, c) of the columns beside the response."""
        w = self._solved()
        return w[w.shape[0] - self.n_null() :]

    def source_weights(self) -> Tensor:
        """w (r, c) in source units: f̂ = Σ_r w_r φ_r, whatever norm was penalized; (k·r, c) when free."""
        w = self._solved()
        return self.unmixed(w[: w.shape[0] - self.n_null()], self.anchored().F)

    def unmixed(self, w: Tensor, F: Tensor | None) -> Tensor:
        """Strengths of the sources themselves, from those of columns Φ F⁻ᵀ.

        Parameters
        ----------
        w : Tensor of shape (r, c)
        F : Tensor of shape (r, r) or None

        Returns
        -------
        Tensor of shape (r, c)
        """
        if F is None:
            rho = self.rho.repeat(len(w) // len(self.rho))[:, None]
            return w * rho if self.raw_rho.requires_grad else w
        return torch.linalg.solve_triangular(F.T, w, upper=True)


def normed(Phi: Tensor, F: Tensor | None) -> Tensor:
    """Φ F⁻ᵀ (n, r) with G = F Fᵀ, so that |w|² is the energy; Φ itself without such a norm."""
    return Phi if F is None else torch.linalg.solve_triangular(F, Phi.T, upper=False).T


class ResIGL(nn.Module):
    """u(x) = (L⁻¹f)(ξ) + M(ξ), ξ = Ψ(x): the operator carries what is smooth, M what is sharp.

    The source is solved for on what M leaves of the target, so that training moves Ψ and M only::

        ℓ(Ψ, M) = objective(Φ_Ψ, Y − M(ξ)) with w* = argmin ‖Φ w − (Y − M(ξ))‖² + α wᵀCw

    Parameters
    ----------
    igl : IGL
    residual : nn.Module
        M, from (n, d) chart coordinates to (n, c). With M = 0 this is `igl`.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Heat
    >>> from greenfold.chart import MLP
    >>> from greenfold.solve import Ridge
    >>> x = torch.randn(50, 3, dtype=torch.float64)
    >>> igl = IGL(MLP(3, 2), Heat(), Tied(x[:20]), n_dims=2)
    >>> model = ResIGL(igl, MLP(2, 1, hidden=[16]))
    >>> solution = model.solve(x, x[:, :1].sign(), Ridge(1e-2))
    >>> model(x).shape
    torch.Size([50, 1])
    >>> design, left = model.settle(x).split(x, x[:, :1].sign())  # what M leaves for the source
    >>> left.shape, model.chart(x).shape
    (torch.Size([50, 1]), torch.Size([50, 2]))
    """

    def __init__(self, igl: IGL, residual: nn.Module):
        super().__init__()
        self.igl = igl
        self.residual = residual

    def chart(self, x: Tensor) -> Tensor:
        """ξ (n, d).

        Parameters
        ----------
        x : Tensor of shape (n, D)
            Rows.

        Returns
        -------
        Tensor of shape (n, d)
        """
        return self.igl.chart(x)

    def split(self, x: Tensor, Y: Tensor) -> tuple[Design, Tensor]:
        """The columns of the source, and what M leaves of Y (n, c) for them to explain.

        Parameters
        ----------
        x : Tensor of shape (n, D)
            Rows.
        Y : Tensor of shape (n, c)
            Targets.

        Returns
        -------
        design : Design
        rest : Tensor of shape (n, c)
        """
        xi = self.igl.locate(x)
        return self.igl.columns(xi), Y - self.residual(xi)

    def solve(self, x: Tensor, Y: Tensor, solver: Solver, weight: Tensor | None = None) -> Solution:
        """The best source beside M as it is: sets `igl.w` and returns the solver's `Solution`.

        Parameters
        ----------
        x : Tensor of shape (n, D)
            Rows.
        Y : Tensor of shape (n, c)
            Targets.
        solver : Solver
            Such as `Ridge`.
        weight : Tensor of shape (n,), optional
            How often each row counts.

        Returns
        -------
        Solution
        """
        rest = Y - self.residual(self.igl.locate(x)).detach()
        return self.igl.solve(x, rest, solver, weight)

    def settle(self, x: Tensor) -> "ResIGL":
        """Leave training: store the chart's statistics on these rows as constants.

        Parameters
        ----------
        x : Tensor of shape (n, D)
            Rows.

        Returns
        -------
        ResIGL
            Itself.
        """
        self.igl.settle(x)
        return self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """u (n, c).

        Parameters
        ----------
        x : Tensor of shape (n, D)
            Rows.

        Returns
        -------
        Tensor of shape (n, c)
        """
        xi = self.igl.locate(x)
        return self.igl.decode(xi) + self.residual(xi)


def n_sources(sources: Atoms | Tied) -> int:
    """How many atoms there are."""
    return len(sources.x if isinstance(sources, Tied) else sources.mu)

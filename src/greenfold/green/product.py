"""Operators on products of factors: lines, circles, spheres, graphs, each as it is."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from greenfold.green.atoms import Atoms, Point, reach
from greenfold.green.base import (
    Operator,
    Positive,
    fade,
    inverse_power,
    open_axes,
    opened,
    positive,
)
from greenfold.green.diffusion import Interval
from greenfold.green.expsum import best_sum, tabulated_ratio
from greenfold.green.factors import Bounded, Factor
from greenfold.green.matrix import BLOCK, sum_of_products

POWERS = (0.25, 8.0)


class Bumps(Atoms):
    """φ = Π_j e^{−L_j σ_j²/2} δ_μ: on each factor its heat kernel at time σ²/2, on a line N(μ, σ²).

    Parameters
    ----------
    mu : Tensor of shape (r, c)
        Positions, with the columns of all factors side by side.
    sigma : float, or Tensor of shape (m,), (r, 1) or (r, m)
        One width for each of m factors, or one for all. A factor's diffusivity does not change it.
    learn : bool
        See `Atoms`.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Bumps
    >>> Bumps(torch.zeros(3, 2, dtype=torch.float64), sigma=[0.3, 0.2]).n_dims
    2
    """

    name = "bump"

    def _shape_parameter(self, name: str, value: Tensor | float) -> Tensor:
        value = torch.as_tensor(value, dtype=self.mu.dtype, device=self.mu.device)
        if value.ndim > 2 or (value.ndim == 2 and len(value) not in (1, len(self.mu))):
            raise ValueError(
                f"`{name}` of shape {tuple(value.shape)} does not suit {len(self.mu)} bumps. Pass a "
                "number, or a tensor of shape (m,), (r, 1) or (r, m) for m factors."
            )
        return value

    @property
    def sigma(self) -> Tensor:
        """Widths σ, as they were given."""
        return self.log_sigma.exp()

    def profile(self, zeta: Tensor, *shape: Tensor) -> Tensor:
        raise ValueError("bumps have the shape that a factor gives them; evaluate their response.")

    def band(self, axes: Tensor) -> Tensor:
        return reach(int(axes.sum())) / self.sigma**2


class Product(Operator):
    """(κ² + Σ_j D_j L_j)^s on a product of factors, L_j = −Δ on factor j.

    The inverse is Σ_k γ_k Π_j e^{−a_k D_j L_j}, true to the exponential sum's error on every product,
    with no joint eigenfunctions to truncate. Coordinates are columns side by side, three for a sphere;
    there is one gate for each factor. Sources are `Bumps`, or points: bumps as wide as their resolution.

    Parameters
    ----------
    factors : sequence of Line, Circle, Sphere, Graph, Bounded or Interval
    kappa : float
        κ > 0, learned when `learn` is set. Diffusivities are learned by factors that say so.
    power : float
        s, in [0.25, 8]. On a product of d dimensions in all, fields are as smooth as those of a Matérn
        kernel with ν = s − d/2: to predict, take at least 2 on a sphere and 3 on sphere × line.
    n_terms : int
        K of the exponential sum.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Bumps, Line, Product, Sphere
    >>> L = Product([Sphere(), Line(diffusivity=0.5)], kappa=1.3, n_terms=16)
    >>> mu = torch.tensor([[0.0, 0.0, 1.0, 0.2]], dtype=torch.float64)  # the north pole at time 0.2
    >>> x = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 0.6, 0.8, 0.5]], dtype=torch.float64)
    >>> L.response(x, Bumps(mu, [0.3, 0.2])).shape
    torch.Size([2, 1])
    >>> [type(factor).__name__ for factor in L.members()], L.widths(Bumps(mu, [0.3, 0.2])).shape
    (['Sphere', 'Line'], torch.Size([1, 2]))
    >>> a, log_gamma = L.times(Bumps(mu, [0.3, 0.2]), None)
    >>> a.shape
    torch.Size([16])
    """

    kappa = Positive()
    accepts = (Bumps, Point)
    rooted = True

    def __init__(
        self,
        factors: Sequence[Factor | Interval],
        kappa: Tensor | float = 1.0,
        power: float = 1.0,
        n_terms: int = 16,
        *,
        learn: bool = False,
    ):
        super().__init__()
        if isinstance(factors, Factor | Interval) or not factors:
            raise ValueError(
                f"`factors` must be a list such as [Sphere(), Line()], got {factors!r}."
            )
        made = [Bounded(f) if isinstance(f, Interval) else f for f in factors]
        for f in made:
            if not isinstance(f, Factor):
                raise ValueError(
                    f"`factors` must hold Line, Circle, Sphere, Graph or Interval, got {f!r}."
                )
        self.factors = nn.ModuleList(made)
        positive(self, "kappa", kappa, learn, per_axis=False)
        if not POWERS[0] <= power <= POWERS[1]:
            raise ValueError(f"`power` must lie in [{POWERS[0]}, {POWERS[1]}], got {power}.")
        self.power = float(power)
        self.n_terms = n_terms

    def members(self) -> list[Factor]:
        return list(self.factors)  # type: ignore[arg-type]

    @property
    def columns(self) -> int:
        """Of a place on the product."""
        return sum(f.columns for f in self.members())

    @property
    def parts(self) -> list[slice]:
        """Whose columns are whose."""
        ends = accumulate((f.columns for f in self.members()), initial=0)
        return [slice(*pair) for pair in pairwise(ends)]

    @property
    def label(self) -> str:
        return f"{' × '.join(type(f).__name__ for f in self.members())} kernel"

    def n_gates(self, d: int) -> int:
        return len(self.factors)

    def by_column(self, gate: Tensor) -> Tensor:
        return gate.repeat_interleave(torch.tensor([f.columns for f in self.members()]))

    def origin(self, d: int) -> Tensor:
        return torch.cat([f.origin() for f in self.members()])

    def _check(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor | None:
        gate = super()._check(xi, atoms, gate)
        self._count(xi)
        widths = atoms.sigma.shape[-1:] if isinstance(atoms, Bumps) else ()
        if widths and widths[0] not in (1, len(self.factors)):
            raise ValueError(
                f"`sigma` has {widths[0]} widths but there are {len(self.factors)} factors: pass one "
                "for each."
            )
        for f, part in zip(self.members(), self.parts):
            f.check(xi[:, part], "`xi`")
            f.check(atoms.mu[:, part], "`mu`")
        return gate

    def _count(self, xi: Tensor) -> None:
        if xi.shape[1] != self.columns:
            told = " + ".join(f"{f.columns} for {type(f).__name__}" for f in self.members())
            raise ValueError(f"there are {xi.shape[1]} columns but the factors take {told}.")

    def widths(self, atoms: Atoms) -> Tensor:
        """σ (r, m)."""
        sigma = atoms.sigma.double()
        if isinstance(atoms, Point):
            sigma = sigma[:, [part.start for part in self.parts]]
        return sigma.expand(len(atoms.mu), len(self.factors))

    def times(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        """Heat times a (k,) and log weights (k,) on the span of the open factors' spectra."""
        m = len(self.factors)
        low = self.kappa**2
        for f, g in zip(self.members(), opened(gate, m)):
            low = low + f.diffusivity * f.lowest * g
        live = open_axes(gate, m).tolist()
        dims = sum(f.dims for f, on in zip(self.members(), live) if on)
        if isinstance(atoms, Point):
            high, nu = self._top(atoms, gate, 1.0), self.power - dims / 2
            if nu > 0:  # R^{−ν} of the response at its own place lies beyond R times the lowest
                high = torch.minimum(high, low.detach() * 10 ** min(6 / nu, 300))
        else:  # as far as the sum is true, no further
            high = self._top(atoms, gate, reach(dims))
            ratio = tabulated_ratio(1 + float(high / low.detach()))
            error = best_sum(self.n_terms, ratio, self.power).error
            high = self._top(atoms, gate, min(reach(dims, min(error, 0.1)), reach(dims)))
        a, log_gamma = inverse_power(low, low.detach() + high, self.power, self.n_terms)
        return a, log_gamma - a * self.kappa**2

    def _top(self, atoms: Atoms, gate: Tensor | None, q: float) -> Tensor:
        """Σ_j D_j λ_j at most, where Σ_j λ_j σ_j² ≤ q and the spectra end."""
        most, ends = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        sigma, is_open = self.widths(atoms).detach(), open_axes(gate, len(self.factors))
        for j, f in enumerate(self.members()):
            D, top = f.diffusivity.detach(), q / sigma[:, j].min() ** 2
            if is_open[j] and float(top) > f.highest:
                ends = ends + D * f.highest
            elif is_open[j]:
                most = torch.maximum(most, D * top)
        return most + ends

    def _response(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor:
        a, log_gamma = self.times(atoms, gate)
        gamma, mu, start = log_gamma.exp(), atoms.mu.double(), self.widths(atoms) ** 2 / 2
        alone = len(self.factors) == 1 and gate is None
        flows = []
        for j, (f, part) in enumerate(zip(self.members(), self.parts)):
            time = f.diffusivity * a[:, None] + start[:, j]  # (k, r)
            own = mu[:, part]
            flows.append(f.summed(own, time, gamma) if alone else f.heat(own, time))
        if alone:
            gamma = torch.ones(1, dtype=torch.float64)

        def factor(x: Tensor, j: int) -> Tensor:  # (n, c) → (n, k, r)
            return fade(flows[j](x), gate, j)

        # pieces of a sphere's heat take six times the memory
        return sum_of_products(xi, factor, gamma, len(mu), self.parts, BLOCK // 8)

    def resolution(self, xi: Tensor) -> Tensor:
        """Of every column (d,)."""
        self._count(xi)
        sizes = [f.extent(xi[:, part]) for f, part in zip(self.members(), self.parts)]
        return self.by_column(0.03 * torch.tensor(sizes, dtype=torch.float64))

    @torch.no_grad()
    def rise(self, xi: Tensor, gate: Tensor | None = None, sources: Atoms | None = None) -> Tensor:
        origin = self.origin(self.columns)[None].to(xi)
        atoms, places = sources or Point(origin), torch.cat([origin, xi]).double()
        a, log_gamma = self.times(atoms, gate)
        value = torch.ones((), dtype=torch.float64)
        for j, (f, part) in enumerate(zip(self.members(), self.parts)):
            time = f.diffusivity * a + self.widths(atoms)[0, j] ** 2 / 2
            value = value * fade(f.at_home(places[:, part], time), gate, j)
        own = value @ log_gamma.exp()
        return (own[1:] - own[0]).to(xi)

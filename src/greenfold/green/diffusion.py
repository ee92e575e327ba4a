"""Functions of −Σ_j D_j ∂_j²: heat, Poisson, fractional, screened Poisson and Matérn operators.

Each is a small class that names its spectrum and its power; the semigroup is diffusion, in free space or
on a box.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from greenfold.green.atoms import Atoms, Point
from greenfold.green.base import (
    Mixture,
    MixtureOperator,
    NoForm,
    Operator,
    Positive,
    check_extent,
    extent2,
    fade,
    inverse_power,
    no_closed_form,
    open_axes,
    per_axis,
    positive,
    trying,
)
from greenfold.green.expsum import around, check_power, tabulated_ratio
from greenfold.green.forms import Form
from greenfold.green.integrals import GAUSSIAN, INTERVAL
from greenfold.green.matrix import sum_of_products
from greenfold.green.null_space import Polynomial
from greenfold.green.quick import Blocks


@dataclass(frozen=True)
class Interval:
    """One axis of a box: [low, high] with Dirichlet, Neumann or periodic ends.

    Parameters
    ----------
    low, high : float
        Ends.
    boundary : 'dirichlet', 'neumann' or 'periodic'
        u = 0 at the ends, u′ = 0 there, or a circle.

    Examples
    --------
    >>> from greenfold.green import Interval
    >>> Interval(-1, 2, "neumann").length
    3
    """

    low: float
    high: float
    boundary: str = "dirichlet"

    def __post_init__(self) -> None:
        if self.boundary not in BOUNDARIES:
            raise ValueError(f"unknown boundary {self.boundary!r}. Choose one of {BOUNDARIES}.")
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"an interval needs low < high, got [{self.low}, {self.high}].")

    @property
    def length(self) -> float:
        return self.high - self.low

    @property
    def gap(self) -> float:
        """Smallest nonzero eigenvalue of −∂²."""
        return ((2 if self.boundary == "periodic" else 1) * math.pi / self.length) ** 2


BOUNDARIES = ("dirichlet", "neumann", "periodic")


class Diffusion(MixtureOperator):
    """Functions of −Σ_j D_j ∂_j², in free space or on a box.

    Parameters
    ----------
    diffusivity : float or Tensor of shape (d,)
        D_j. Together with the other physical parameters it is learned when `learn` is set.
    domain : Interval, or a sequence of one Interval or None per axis
        None is the free line. Atoms on an interval are continued over its ends as the boundary asks, and
        so is the response at points outside.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Gaussian, Heat, Interval, Poisson
    >>> one = Gaussian(torch.zeros(1, 2, dtype=torch.float64), 0.5)
    >>> a, log_gamma = Poisson(n_terms=16).times(one, None)
    >>> a.shape, Heat().times(one, None)[0].shape  # as many times as terms
    (torch.Size([16]), torch.Size([1]))
    >>> box = Poisson(domain=(Interval(0, 1, "dirichlet"), None))
    >>> [side is None for side in box.sides(2)], round(box.lowest(2, None).item() / torch.pi**2, 6)
    ([False, True], 1.0)
    >>> bool(box.highest(one, None) > 0), box.zero_mode(2, None).item()  # Dirichlet: no constant to drop
    (True, 0.0)
    """

    diffusivity = Positive()
    domain: Interval | tuple[Interval | None, ...] | None

    def __init__(
        self,
        *,
        diffusivity: Tensor | float = 1.0,
        domain: Interval | Sequence[Interval | None] | None = None,
        n_terms: int = 16,
        learn: bool = False,
    ):
        super().__init__()
        positive(self, "diffusivity", diffusivity, learn)
        self.n_terms = n_terms
        self.domain = domain if domain is None or isinstance(domain, Interval) else tuple(domain)
        for side in self.domain if isinstance(self.domain, tuple) else (self.domain,):
            if side is not None and not isinstance(side, Interval):
                raise ValueError(f"`domain` must hold Interval(low, high, boundary), got {side!r}.")

    def sides(self, d: int) -> list[Interval | None]:
        """The domain, axis by axis."""
        if not isinstance(self.domain, tuple):
            return [self.domain] * d
        if len(self.domain) != d:
            raise ValueError(f"`domain` has {len(self.domain)} entries but the chart has {d} axes.")
        return list(self.domain)

    @abstractmethod
    def times(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        """Heat times a (k,) and log weights log γ (k,)."""

    def mixture(self, atoms: Atoms, gate: Tensor | None) -> Mixture:
        a, log_gamma = self.times(atoms, gate)
        V = 2 * a[:, None] * per_axis(self.diffusivity, atoms.n_dims, "diffusivity")
        zero = torch.zeros_like(V)
        return Mixture(log_gamma, torch.ones_like(V), zero, V, zero, zero)

    @property
    def bounded(self) -> bool:
        """Is any axis an interval?"""
        sides = self.domain if isinstance(self.domain, tuple) else (self.domain,)
        return any(side is not None for side in sides)

    def refuses(self, kind: type) -> str:
        table = INTERVAL if self.bounded else GAUSSIAN
        return super().refuses(kind) or no_closed_form(table, kind, "an interval's heat kernel")

    def isotropic(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, ...] | None:
        if self.domain is not None or self.diffusivity.numel() != 1:
            return None
        a, log_gamma = self.times(atoms, gate)
        return log_gamma, 2 * a * self.diffusivity.reshape(()), torch.zeros_like(a)

    def lowest(self, d: int, gate: Tensor | None) -> Tensor:
        """Smallest eigenvalue of −Σ D_j ∂_j²; an axis counts as much as its gate is open."""
        lowest = torch.zeros((), dtype=torch.float64)
        if self.domain is None:
            return lowest
        D = per_axis(self.diffusivity, d, "diffusivity")
        for j, side in enumerate(self.sides(d)):
            if side is not None and side.boundary == "dirichlet":
                lowest = lowest + D[j] * side.gap * (1 if gate is None else gate[j])
        return lowest

    @torch.no_grad()
    def highest(self, atoms: Atoms, gate: Tensor | None) -> Tensor:
        """Eigenvalue above which the atoms have no content."""
        is_open = open_axes(gate, atoms.n_dims)
        D = per_axis(self.diffusivity, atoms.n_dims, "diffusivity")
        return (atoms.band(is_open).double() * D * is_open).max()

    def _response(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor:
        sides = self.sides(atoms.n_dims)
        if not self.bounded:
            return super()._response(xi, atoms, gate)
        mixture = self.mixture(atoms, gate)
        on_interval = INTERVAL[atoms.name]
        on_line = GAUSSIAN[atoms.name]

        def factor(x: Tensor, j: int) -> Tensor:  # (n,) → (n, k, r)
            x, V, side = x[:, None, None], mixture.V[:, j, None], sides[j]
            mu, *rest = atoms.parameters_of(j)
            if side is None:
                value = on_line(x, V, mu, *rest)
            else:
                length = torch.tensor(side.length, dtype=torch.float64)
                value = on_interval(
                    x - side.low, V, mu - side.low, *rest, length=length, boundary=side.boundary
                )
            return fade(value, gate, j)

        gamma = mixture.log_gamma.exp()
        Phi = sum_of_products(xi, factor, gamma, len(atoms.mu))
        share = self.zero_mode(atoms.n_dims, gate)
        if bool(share > 0):
            mean = torch.ones(len(atoms.mu), dtype=torch.float64)
            # the constant part of a factor is the same at every time
            for j, side in enumerate(sides):
                if side is not None:  # else the axis is closed
                    mass = (
                        1.0
                        if isinstance(atoms, Point)
                        else atoms.sigma[:, j] * math.sqrt(2 * math.pi)
                    )
                    mean = mean * fade(mean.new_ones(()) * mass / side.length, gate, j)
            Phi = Phi - (share * gamma.sum() * mean).to(Phi.dtype)
        return Phi

    def _blocks(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Blocks | None:
        return None if self.bounded else super()._blocks(xi, atoms, gate)

    def terms(self, xi: Tensor, atoms: Atoms, gate: Tensor | None = None) -> Tensor:
        if self.domain is not None:
            raise ValueError("single terms are known in free space only; drop `domain`.")
        return super().terms(xi, atoms, gate)

    def forms(self, atoms: Atoms, gate: Tensor | None = None, terms: bool = False) -> list[Form]:
        known = Operator if self.bounded else MixtureOperator
        return known.forms(self, atoms, gate, terms)

    def _part(self, kind: str, scale: str, atoms: Atoms, **numbers: Any) -> list[dict[str, Any]]:
        if self.bounded:
            raise NoForm("an operator on a box is not evaluated in the page")
        D = self.diffusivity.expand(atoms.n_dims).tolist()
        return super()._part(kind, scale, atoms, diffusivity=D, **numbers)

    def zero_mode(self, d: int, gate: Tensor | None) -> Tensor:
        """How much of the constant, 0 to 1, is to be dropped from the source as a zero mode."""
        return torch.zeros((), dtype=torch.float64)


class Heat(Diffusion):
    """e^{−tL}: spreads a source by diffusion for a time t. Its kernel is a Gaussian of variance 2Dt.

    Parameters
    ----------
    time : float or Tensor
        t.
    learn : bool
        Learn t, and D if there are any.
    options
        `diffusivity`, `n_terms` and `domain`: D_j along the axes, terms of the exponential sum, and
        the `Interval` of each axis of a box.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Gaussian, Heat
    >>> source = Gaussian(mu=torch.zeros(1, 2, dtype=torch.float64), sigma=0.5)
    >>> places = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    >>> Heat(time=0.2).response(places, source).shape
    torch.Size([2, 1])
    """

    smooth = True
    time = Positive()

    def __init__(self, time: Tensor | float = 0.5, *, learn: bool = False, **options: Any):
        super().__init__(learn=learn, **options)
        positive(self, "time", time, learn, per_axis=False)

    def times(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.time[None], torch.zeros_like(self.time)[None]

    def described(self, atoms: Atoms, terms: bool = False) -> list[dict[str, Any]]:
        return self._part("heat", "time", atoms)


class SquaredExponential(Diffusion):
    """Convolution with e^{−|δ|²/2ℓ²}: heat of time ℓ²/2, but 1 at distance 0 in any dimension.

    Where `Heat` keeps the mass of a source, this keeps its height, so that lengths can be mixed in a
    `Superposition` and axes closed without one response dwarfing the others.

    Parameters
    ----------
    length : float
        ℓ.
    diffusivity, learn
        See `Diffusion`.

    Examples
    --------
    >>> places = torch.zeros(1, 2, dtype=torch.float64)
    >>> SquaredExponential(length=2.0).response(places, Point(places)).item()
    1.0
    """

    smooth = True
    length = Positive()

    def __init__(
        self,
        length: Tensor | float = 1.0,
        *,
        diffusivity: Tensor | float = 1.0,
        learn: bool = False,
    ):
        super().__init__(diffusivity=diffusivity, learn=learn)
        positive(self, "length", length, learn, per_axis=False)

    def times(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.length[None].square() / 2, torch.zeros_like(self.length)[None]

    def mixture(self, atoms: Atoms, gate: Tensor | None) -> Mixture:
        mixture = super().mixture(atoms, gate)
        return mixture._replace(c=mixture.c + (2 * math.pi * mixture.V).log() / 2)

    def isotropic(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, ...] | None:
        kernels = super().isotropic(atoms, gate)
        if kernels is None:
            return None
        log_gamma, V, c = kernels
        return log_gamma, V, c + (2 * math.pi * V).log() / 2

    def radial(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, Tensor] | None:
        if not isinstance(atoms, Point) or self.diffusivity.numel() != 1:
            return super().radial(atoms, gate)
        precision = (self.length.square() * self.diffusivity).reciprocal().reshape(1)
        return precision, torch.zeros_like(precision)


class Fractional(Diffusion):
    """(−Σ_j D_j ∂_j²)^s, long-range: its Green's function decays like r^{2s−d} for s < d/2.

    Without a spectral gap the inverse is cut at the horizon T = 25·extent²; what is cut off is, on a
    region of that extent, close to a constant plus a multiple of |ξ|². Fit `null_space()` beside the
    response to put it back. It is best for small 2s − d: in one dimension, with 24 terms, the error is
    1e-7 of what lies outside the null space at s = 1, but 7e-3 of it at s = 2.

    Parameters
    ----------
    power : float
        s, in [0.25, 2].
    extent : float
        Diameter of the region in which the response is wanted, in chart units; enlarged to hold all
        atoms. Standardized charts fit in the default.
    options
        `diffusivity`, `n_terms` and `domain`: D_j along the axes, terms of the exponential sum, and
        the `Interval` of each axis of a box.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Gaussian, Fractional
    >>> source = Gaussian(mu=torch.zeros(1, 2, dtype=torch.float64), sigma=0.5)
    >>> places = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    >>> Fractional(0.5).response(places, source).shape
    torch.Size([2, 1])
    >>> low, high = Fractional(0.5).spectrum(source, None)  # where λ^{−s} has to hold
    >>> Fractional(0.5).gap(2, None) is None  # free space: eigenvalues reach down to 0
    True
    """

    def __init__(self, power: float = 0.5, *, extent: float = 8.0, **options: Any):
        super().__init__(**options)
        self.power = check_power(power)
        self.extent = check_extent(extent)

    def times(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        return inverse_power(*self.spectrum(atoms, gate), self.power, self.n_terms)

    def described(self, atoms: Atoms, terms: bool = False) -> list[dict[str, Any]]:
        low, high = self.spectrum(atoms, None)
        sums = around(self.n_terms, float(high / low), self.power)
        numbers = {"power": self.power, "n_terms": self.n_terms, "extent": self.extent}
        return self._part("fractional", "diffusivity", atoms, **numbers, **sums)

    def spectrum(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        """Where the inverse has to hold."""
        d = atoms.n_dims
        low, full = self.lowest(d, gate), self.lowest(d, None)
        floor = self.gap(d, gate)
        if floor is None:  # no gap at all: cut at the horizon T = 25·extent²
            D = per_axis(self.diffusivity, d, "diffusivity")
            floor = D[open_axes(gate, d)].min() / (25 * extent2(self.extent, atoms, gate))
        # While a Dirichlet axis closes, the gap it made closes with it; the rest have theirs.
        low = floor if not bool(full > 0) else torch.maximum(low, torch.minimum(floor, full))
        return low, low.detach() + self.highest(atoms, gate)

    def gap(self, d: int, gate: Tensor | None) -> Tensor | None:
        """Smallest nonzero eigenvalue of the open axes that have a zero mode; None with a free axis."""
        D = per_axis(self.diffusivity, d, "diffusivity")
        sides = self.sides(d)
        if any(side is None and on for side, on in zip(sides, open_axes(gate, d), strict=True)):
            return None
        gaps = [
            D[j] * side.gap
            for j, (side, on) in enumerate(zip(sides, open_axes(gate, d), strict=True))
            if side is not None and on
        ]
        return torch.stack(gaps).min()

    def zero_mode(self, d: int, gate: Tensor | None) -> Tensor:
        gap, full = self.gap(d, gate), self.lowest(d, None)
        if gap is None:
            return torch.zeros((), dtype=torch.float64)
        if not bool(full > 0):
            return torch.ones((), dtype=torch.float64)
        return (1 - self.lowest(d, gate) / torch.minimum(gap, full)).clamp_min(0)

    def null_space(self, gate: Tensor | None = None) -> Polynomial | None:
        sides = self.domain if isinstance(self.domain, tuple) else (self.domain,)
        is_open = (
            [True] * len(sides) if gate is None or len(sides) == 1 else open_axes(gate, len(sides))
        )
        live = [(j, side) for j, side in enumerate(sides) if is_open[j]]
        if any(side is not None and side.boundary == "dirichlet" for _, side in live):
            return None
        free = [j for j, side in live if side is None]
        if not free:
            return Polynomial(0)
        axes = free if isinstance(self.domain, tuple) else None
        D = self.diffusivity
        return Polynomial(self.free_degree, squared=True, diffusivity=D, axes=axes)

    free_degree = 0  # of the polynomials in the null space on the free line


class Poisson(Fractional):
    """−Σ_j D_j ∂_j²: smooth, global fields. Its free null space holds constants and linear trends.

    Parameters
    ----------
    options
        `diffusivity`, `n_terms` and `domain`: D_j along the axes, terms of the exponential sum, and
        the `Interval` of each axis of a box.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Gaussian, Poisson
    >>> source = Gaussian(mu=torch.zeros(1, 2, dtype=torch.float64), sigma=0.5)
    >>> places = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    >>> Poisson().response(places, source).shape
    torch.Size([2, 1])
    """

    def __init__(self, **options: Any):
        super().__init__(1.0, **options)

    free_degree = 1


Settled = tuple[tuple[object, ...], tuple[Tensor, ...] | None]
_SETTLED: WeakKeyDictionary[nn.Module, Settled] = WeakKeyDictionary()


class ScreenedPoisson(Diffusion):
    """(κ² − Σ_j D_j ∂_j²)^s: responses decay like e^{−κr}. The spectrum starts at κ², no null space.

    For s = 1 this is the Yukawa operator, called Helmholtz in the IGL paper.

    Parameters
    ----------
    kappa : float or Tensor
        κ: responses reach as far as 1/κ.
    power : float
        s.
    learn : bool
        Learn κ, and D if there are any.
    options
        `diffusivity`, `n_terms` and `domain`: D_j along the axes, terms of the exponential sum, and
        the `Interval` of each axis of a box.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Gaussian, ScreenedPoisson
    >>> source = Gaussian(mu=torch.zeros(1, 2, dtype=torch.float64), sigma=0.5)
    >>> places = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    >>> ScreenedPoisson(kappa=1.5).response(places, source).shape
    torch.Size([2, 1])
    >>> low, high = ScreenedPoisson(kappa=1.5).spectrum(source, None)  # where 1/λ has to hold
    >>> low.item()
    2.25
    """

    kappa = Positive()

    def __init__(
        self,
        kappa: Tensor | float = 1.0,
        *,
        power: float = 1.0,
        learn: bool = False,
        **options: Any,
    ):
        super().__init__(learn=learn, **options)
        positive(self, "kappa", kappa, learn, per_axis=False)
        self.power = check_power(power)

    def times(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        return self._times(atoms, gate, self.power)

    def _times(self, atoms: Atoms, gate: Tensor | None, power: float) -> tuple[Tensor, Tensor]:
        a, log_gamma = inverse_power(*self.spectrum(atoms, gate), power, self.n_terms)
        return a, log_gamma - a * self.kappa**2  # e^{−a(λ + κ²)}

    def isotropic(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, ...] | None:
        """Kept while nothing but the sources moves: in a training step many small numbers take long."""
        log_kappa, log_D = self.log_kappa, self.log_diffusivity
        assert isinstance(log_kappa, Tensor)
        assert isinstance(log_D, Tensor)
        learned = log_kappa.requires_grad or log_D.requires_grad
        if gate is not None or self.domain is not None or learned or log_D.numel() != 1:
            return super().isotropic(atoms, gate)
        of_kappa, of_D = log_kappa.item(), log_D.item()
        ratio = tabulated_ratio(1 + atoms.top() * math.exp(of_D - 2 * of_kappa))
        # `trying`, as what is kept warns of nothing
        here = log_kappa.dtype, log_kappa.device
        key = of_kappa, of_D, *here, atoms.n_dims, ratio, trying.get()
        known = _SETTLED.get(self)
        if known is None or known[0] != key:
            with torch.no_grad():
                known = _SETTLED[self] = key, super().isotropic(atoms, None)
        return known[1]

    def spectrum(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        """Where the inverse has to hold."""
        low = self.kappa**2 + self.lowest(atoms.n_dims, gate)
        return low, low.detach() + self.highest(atoms, gate)

    def described(self, atoms: Atoms, terms: bool = False) -> list[dict[str, Any]]:
        return self._inverse("screened", atoms, self.power)

    def _inverse(
        self, kind: str, atoms: Atoms, power: float, **numbers: Any
    ) -> list[dict[str, Any]]:
        low, high = self.spectrum(atoms, None)
        numbers |= {"power": power, "n_terms": self.n_terms}
        numbers |= around(self.n_terms, float(high / low), power)
        return self._part(kind, "kappa", atoms, **numbers)


class Matern(ScreenedPoisson):
    """Convolution with the Matérn kernel of smoothness ν, a scaled (κ² − Δ)^{−(ν+d/2)}, κ = √(2ν)/ℓ.

    Under `Point` atoms the response is the kernel, 1 at distance 0; at the cusp of ν = ½ it comes within
    2% of that in up to ten dimensions. Closing a gate keeps the
    power, so that the kernel on the other axes is half an order smoother. Lindgren, Rue & Lindström,
    J. R. Stat. Soc. B 73 (2011), 423–498.

    Parameters
    ----------
    nu : float
        Smoothness, from ½ to 8.
    length : float
        ℓ.
    diffusivity, n_terms, learn
        See `Diffusion`.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Gaussian, Matern
    >>> source = Gaussian(mu=torch.zeros(1, 2, dtype=torch.float64), sigma=0.5)
    >>> places = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    >>> Matern(nu=1.5).response(places, source).shape
    torch.Size([2, 1])
    """

    def __init__(
        self,
        nu: float = 1.5,
        length: Tensor | float = 1.0,
        *,
        diffusivity: Tensor | float = 1.0,
        n_terms: int = 16,
        learn: bool = False,
    ):
        if not 0.5 <= nu <= 8:
            raise ValueError(f"`nu` must lie in [0.5, 8], got {nu}.")
        length = torch.as_tensor(length, dtype=torch.float64)
        if not bool((length > 0).all()):
            raise ValueError(f"`length` must be positive, got {length.tolist()}.")
        kappa = math.sqrt(2 * nu) / length
        super().__init__(kappa, diffusivity=diffusivity, n_terms=n_terms, learn=learn)
        self.nu = nu

    def times(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        power = self.nu + atoms.n_dims / 2
        a, log_gamma = self._times(atoms, gate, power)
        return a, log_gamma + self._log_norm(power) + 2 * self.nu * self.kappa.log()

    def _log_norm(self, power: float) -> float:
        return math.lgamma(power) - math.lgamma(self.nu)

    def described(self, atoms: Atoms, terms: bool = False) -> list[dict[str, Any]]:
        power = self.nu + atoms.n_dims / 2
        numbers = {"nu": self.nu, "log_norm": self._log_norm(power)}
        return self._inverse("matern", atoms, power, **numbers)

    def mixture(self, atoms: Atoms, gate: Tensor | None) -> Mixture:
        mixture = super().mixture(atoms, gate)
        D = per_axis(self.diffusivity, atoms.n_dims, "diffusivity")
        return mixture._replace(c=mixture.c + 0.5 * (4 * math.pi * D).log())

    def isotropic(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, ...] | None:
        kernels = super().isotropic(atoms, gate)
        if kernels is None:
            return None
        log_gamma, V, c = kernels
        return log_gamma, V, c + 0.5 * (4 * math.pi * self.diffusivity.reshape(())).log()

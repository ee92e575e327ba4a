"""Linear operators on a chart, inverted through their heat semigroup.

For L = L_1 + … + L_d with L_j acting on coordinate j only, e^{−aL} = Π_j e^{−aL_j}, hence::

    L^{-s} φ_r ≈ Σ_k γ_k Π_j [e^{−a_k L_j} φ_rj](ξ_j)

with x^{-s} ≈ Σ_k γ_k e^{−a_k x} on the part of the spectrum where the source lives. An operator is a
small class that names its spectrum, its power and its semigroup.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from greenfold.green.atoms import Atoms, Gaussian, Point
from greenfold.green.expsum import best_sum, check_power, tabulated_ratio
from greenfold.green.integrals import EXPONENTIAL, GAUSSIAN, INTERVAL, Integral
from greenfold.green.matrix import exp_quadratic, sum_of_products
from greenfold.green.null_space import Polynomial


class Operator(nn.Module, ABC):
    """A linear operator on the chart, known by how it spreads sources.

    A gate g_j ∈ [0, 1] fades axis j out: g_j = 1 is exactly the integral I_krj, g_j = 0 exactly 1, as
    if operator and source had no such axis. In between it is I^g for factors whose logarithm is known,
    1 + g(I − 1) for factors that change sign.
    """

    accepts: tuple[type, ...] = (Atoms,)

    def response(self, xi: Tensor, atoms: Atoms, gate: Tensor | None = None) -> Tensor:
        """(L⁻¹φ_r)(ξ_n), shape (n, r), in the dtype of `xi`.

        Parameters
        ----------
        xi : Tensor of shape (n, d)
            Chart coordinates.
        atoms : Atoms
            Sources with d axes.
        gate : Tensor of shape (d,), optional
            Open (1) to closed (0) axes; all open when omitted.
        """
        gate = self._check(xi, atoms, gate)
        return self._response(xi, atoms, gate)

    @abstractmethod
    def _response(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor:
        """`response` for arguments known to be good; `gate` is float64 or None."""

    def null_space(self, gate: Tensor | None = None) -> Polynomial | None:
        """Columns to fit beside the response, or None for an operator with a spectral gap."""
        return None

    def _check(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor | None:
        if not isinstance(xi, Tensor) or not xi.is_floating_point() or xi.ndim != 2:
            got = f"{xi.dtype} of shape {tuple(xi.shape)}" if isinstance(xi, Tensor) else type(xi)
            raise ValueError(f"`xi` must be a floating-point tensor of shape (n, d), got {got}.")
        if not isinstance(atoms, self.accepts):
            names = " or ".join(kind.__name__ for kind in self.accepts)
            raise ValueError(
                f"sources must be {names}, such as Gaussian(mu, sigma), got {type(atoms)}."
            )
        if xi.shape[1] != atoms.n_dims:
            raise ValueError(
                f"`xi` has {xi.shape[1]} coordinates but the atoms live in {atoms.n_dims}. "
                f"Build the atoms with `mu` of shape (r, {xi.shape[1]})."
            )
        if not bool(xi.isfinite().all()):
            bad = int((~xi.isfinite()).any(1).sum())
            raise ValueError(
                f"`xi` must be finite, got NaN or infinity in {bad} of {len(xi)} rows. "
                "Check the inputs, or the encoder that made these coordinates."
            )
        if gate is None:
            return None
        gate = torch.as_tensor(gate, dtype=torch.float64)
        if gate.shape != (atoms.n_dims,) or not bool(((gate >= 0) & (gate <= 1)).all()):
            raise ValueError(
                f"`gate` must have shape ({atoms.n_dims},) with values in [0, 1], got shape "
                f"{tuple(gate.shape)} with values {gate.detach().tolist()}."
            )
        return gate


def operator(name: str | Operator, **parameters: Any) -> Operator:
    """An operator by its name in `OPERATORS`; an `Operator` is returned as it is.

    >>> operator("screened_poisson", kappa=2.0).kappa.item()
    2.0
    """
    if isinstance(name, Operator):
        return name
    if name not in OPERATORS:
        raise ValueError(
            f"unknown operator {name!r}. Choose one of {sorted(OPERATORS)}, or pass an `Operator`."
        )
    return OPERATORS[name](**parameters)


def _closed_form(table: dict[str, Integral], atoms: Atoms, kernel: str) -> Integral:
    if atoms.name not in table:
        raise ValueError(
            f"no closed form for {type(atoms).__name__} atoms under {kernel}. Use atoms from "
            f"{sorted(table)}, or the `Spectral` form, which projects any atom on eigenfunctions."
        )
    return table[atoms.name]


def _positive(
    module: nn.Module, name: str, value: Tensor | float, learn: bool, per_axis: bool = True
) -> None:
    """Keep a positive parameter as its logarithm, `log_<name>`."""
    value = torch.as_tensor(value, dtype=torch.float64)
    if value.ndim > per_axis or not bool((value.isfinite() & (value > 0)).all()):
        shape = "a number or one per axis" if per_axis else "a number"
        raise ValueError(f"`{name}` must be positive and finite, {shape}, got {value.tolist()}.")
    setattr(module, f"log_{name}", nn.Parameter(value.log(), requires_grad=learn))


def _check_extent(extent: float) -> float:
    if not (math.isfinite(extent) and extent > 0):
        raise ValueError(f"`extent` must be positive and finite, got {extent}.")
    return extent


def _extent2(extent: float, atoms: Atoms, gate: Tensor | None) -> float:
    """Squared diameter of the region of interest, enlarged to hold all atoms."""
    spread = (atoms.mu.amax(0) - atoms.mu.amin(0)).detach()[_open(gate, atoms.n_dims)]
    return max(extent**2, float(spread.square().sum()))


def _per_axis(value: Tensor, d: int, name: str) -> Tensor:
    if value.ndim == 1 and len(value) not in (1, d):
        raise ValueError(f"`{name}` has {len(value)} entries but the chart has {d} axes.")
    return value.expand(d)


def _open(gate: Tensor | None, d: int) -> Tensor:
    """Mask (d,) of the axes that take part; with all closed, where only constants remain, all."""
    if gate is None or not bool((gate > 0).any()):
        return torch.ones(d, dtype=torch.bool)
    return gate.detach() > 0


# --- operators whose kernel is a mixture of Gaussians


class Mixture(NamedTuple):
    """Kernels of one axis each: K_kj(x, z) = exp(c_kj − ½ P_kj x²) N(z; S_kj x, V_kj)."""

    log_gamma: Tensor  # (k,)
    S: Tensor  # (k, d)
    V: Tensor
    P: Tensor
    c: Tensor


class MixtureOperator(Operator):
    """An inverse that is a mixture of Gaussian kernels: heat (free line) and Mehler semigroups."""

    @abstractmethod
    def mixture(self, atoms: Atoms, gate: Tensor | None) -> Mixture:
        """The kernels, with a range of the exponential sum that fits the atoms."""

    def _response(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor:
        mixture = self.mixture(atoms, gate)
        if isinstance(atoms, Gaussian | Point):
            A, B, C = _quadratic(mixture, atoms)
            if gate is not None:  # log I → g log I
                A, B, C = A * gate, B * gate, C * gate
            return exp_quadratic(xi, A, B, C, mixture.log_gamma)
        integral = _closed_form(GAUSSIAN, atoms, "a Gaussian kernel")

        def factor(x: Tensor, j: int) -> Tensor:  # (n,) → (n, k, r)
            x = x[:, None, None]
            S, V, P, c = (v[:, j, None] for v in mixture[1:])  # (k, 1)
            value = torch.exp(c - P * x**2 / 2) * integral(S * x, V, *atoms.parameters_of(j))
            return _fade(value, gate, j)

        return sum_of_products(xi, factor, mixture.log_gamma.exp(), len(atoms.mu))


def _quadratic(mixture: Mixture, atoms: Gaussian | Point) -> tuple[Tensor, Tensor, Tensor]:
    """log I = −½ A ξ² + B ξ + C, each (k, r, d)."""
    S, V, P, c = (v[:, None, :] for v in mixture[1:])  # (k, 1, d)
    mu = atoms.mu.double()
    if isinstance(atoms, Point):
        s2 = V.expand(-1, len(mu), -1)
        log_height = -0.5 * (2 * math.pi * s2).log()
    else:
        s2 = atoms.sigma.double() ** 2 + V
        log_height = atoms.sigma.double().log() - 0.5 * s2.log()
    return P + S**2 / s2, S * mu / s2, c + log_height - mu**2 / (2 * s2)


def _fade(value: Tensor, gate: Tensor | None, j: int) -> Tensor:
    """1 + g(I − 1), exact at both ends."""
    return value if gate is None else torch.lerp(torch.ones_like(value), value, gate[j])


def _inverse_power(low: Tensor, high: Tensor, power: float, n_terms: int) -> tuple[Tensor, Tensor]:
    """(a, log γ) with x^{-power} ≈ Σ γ e^{−ax} on [low, high]; gradients flow through `low`."""
    # rounded up, so that training steps share one sum
    ratio = tabulated_ratio(float(high.detach() / low.detach()))
    a, gamma, error = best_sum(n_terms, ratio, power)
    if error > 0.01:
        warnings.warn(
            f"{n_terms} exponentials invert a spectrum of ratio {ratio:.1e} to within {error:.0%} only. "
            "Raise `n_terms`, or narrow the range of widths.",
            stacklevel=2,
        )
    return a / low, gamma.log() - power * low.log()


@dataclass(frozen=True)
class Interval:
    """One axis of a box: [low, high] with Dirichlet, Neumann or periodic ends."""

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
    """

    log_diffusivity: Tensor
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
        _positive(self, "diffusivity", diffusivity, learn)
        self.n_terms = n_terms
        self.domain = domain if domain is None or isinstance(domain, Interval) else tuple(domain)
        for side in self.domain if isinstance(self.domain, tuple) else (self.domain,):
            if side is not None and not isinstance(side, Interval):
                raise ValueError(f"`domain` must hold Interval(low, high, boundary), got {side!r}.")

    @property
    def diffusivity(self) -> Tensor:
        return self.log_diffusivity.exp()

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
        V = 2 * a[:, None] * _per_axis(self.diffusivity, atoms.n_dims, "diffusivity")
        return Mixture(log_gamma, torch.ones_like(V), V, torch.zeros_like(V), torch.zeros_like(V))

    def lowest(self, d: int, gate: Tensor | None) -> Tensor:
        """Smallest eigenvalue of −Σ D_j ∂_j²; an axis counts as much as its gate is open."""
        D = _per_axis(self.diffusivity, d, "diffusivity")
        lowest = torch.zeros((), dtype=torch.float64)
        for j, side in enumerate(self.sides(d)):
            if side is not None and side.boundary == "dirichlet":
                lowest = lowest + D[j] * side.gap * (1 if gate is None else gate[j])
        return lowest

    def highest(self, atoms: Atoms, gate: Tensor | None) -> Tensor:
        """Eigenvalue above which the atoms have no content."""
        is_open = _open(gate, atoms.n_dims)
        band = atoms.band(is_open).detach().double()
        D = _per_axis(self.diffusivity.detach(), atoms.n_dims, "diffusivity")
        return (band * D * is_open).max()

    def _response(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor:
        sides = self.sides(atoms.n_dims)
        if all(side is None for side in sides):
            return super()._response(xi, atoms, gate)
        mixture = self.mixture(atoms, gate)
        on_interval = _closed_form(INTERVAL, atoms, "an interval's heat kernel")
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
            return _fade(value, gate, j)

        gamma = mixture.log_gamma.exp()
        Phi = sum_of_products(xi, factor, gamma, len(atoms.mu))
        share = self.zero_mode(atoms.n_dims, gate)
        if bool(share > 0):
            mean = torch.ones(len(atoms.mu), dtype=torch.float64)
            for j, side in enumerate(
                sides
            ):  # the constant part of a factor, the same at every time
                if side is not None:  # else the axis is closed
                    mass = (
                        1.0
                        if isinstance(atoms, Point)
                        else atoms.sigma[:, j] * math.sqrt(2 * math.pi)
                    )
                    mean = mean * _fade(mean.new_ones(()) * mass / side.length, gate, j)
            Phi = Phi - (share * gamma.sum() * mean).to(Phi.dtype)
        return Phi

    def zero_mode(self, d: int, gate: Tensor | None) -> Tensor:
        """How much of the constant, 0 to 1, is to be dropped from the source as a zero mode."""
        return torch.zeros((), dtype=torch.float64)


class Heat(Diffusion):
    """e^{−tL}: spreads a source by diffusion for a time t. Its kernel is a Gaussian of variance 2Dt."""

    log_time: Tensor

    def __init__(self, time: Tensor | float = 0.5, *, learn: bool = False, **options: Any):
        super().__init__(learn=learn, **options)
        _positive(self, "time", time, learn, per_axis=False)

    @property
    def time(self) -> Tensor:
        return self.log_time.exp()

    def times(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.time[None], torch.zeros(1, dtype=torch.float64)


class Fractional(Diffusion):
    """(−Σ_j D_j ∂_j²)^s, long-range: its Green's function decays like r^{2s−d} for s < d/2.

    Without a spectral gap the inverse is cut at the horizon T = 25·extent²; what is cut off is, on a
    region of that extent, close to a constant plus a multiple of |ξ|². Fit `null_space()` beside the
    response to put it back. It is best for small 2s − d: in one dimension about 1e-8 of u remains at
    s = 1 and 24 terms, 1e-3 to 1e-2 at s = 2.

    Parameters
    ----------
    power : float
        s, in [0.25, 2].
    extent : float
        Diameter of the region in which the response is wanted, in chart units; enlarged to hold all
        atoms. Standardized charts fit in the default.
    """

    def __init__(self, power: float = 0.5, *, extent: float = 8.0, **options: Any):
        super().__init__(**options)
        self.power = check_power(power)
        self.extent = _check_extent(extent)

    def times(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        d = atoms.n_dims
        low, full = self.lowest(d, gate), self.lowest(d, None)
        floor = self.gap(d, gate)
        if floor is None:  # no gap at all: cut at the horizon T = 25·extent²
            D = _per_axis(self.diffusivity, d, "diffusivity")
            floor = D[_open(gate, d)].min() / (25 * _extent2(self.extent, atoms, gate))
        # While a Dirichlet axis closes, the gap it made closes with it; the rest have theirs.
        low = floor if not bool(full > 0) else torch.maximum(low, torch.minimum(floor, full))
        high = low.detach() + self.highest(atoms, gate)
        return _inverse_power(low, high, self.power, self.n_terms)

    def gap(self, d: int, gate: Tensor | None) -> Tensor | None:
        """Smallest nonzero eigenvalue of the open axes that have a zero mode; None with a free axis."""
        D = _per_axis(self.diffusivity, d, "diffusivity")
        sides = self.sides(d)
        if any(side is None and on for side, on in zip(sides, _open(gate, d), strict=True)):
            return None
        gaps = [
            D[j] * side.gap
            for j, (side, on) in enumerate(zip(sides, _open(gate, d), strict=True))
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
            [True] * len(sides) if gate is None or len(sides) == 1 else _open(gate, len(sides))
        )
        live = [(j, side) for j, side in enumerate(sides) if is_open[j]]
        if any(side is not None and side.boundary == "dirichlet" for _, side in live):
            return None
        free = [j for j, side in live if side is None]
        if not free:
            return Polynomial(0)
        axes = free if isinstance(self.domain, tuple) else None
        D = self.diffusivity.detach()
        return Polynomial(self.free_degree, squared=True, diffusivity=D, axes=axes)

    free_degree = 0  # of the polynomials in the null space on the free line


class Poisson(Fractional):
    """−Σ_j D_j ∂_j²: smooth, global fields. Its free null space holds constants and linear trends."""

    def __init__(self, **options: Any):
        super().__init__(1.0, **options)

    free_degree = 1


class ScreenedPoisson(Diffusion):
    """(κ² − Σ_j D_j ∂_j²)^s: responses decay like e^{−κr}. The spectrum starts at κ², no null space.

    For s = 1 this is the Yukawa operator, called Helmholtz in the IGL paper.
    """

    log_kappa: Tensor

    def __init__(
        self,
        kappa: Tensor | float = 1.0,
        *,
        power: float = 1.0,
        learn: bool = False,
        **options: Any,
    ):
        super().__init__(learn=learn, **options)
        _positive(self, "kappa", kappa, learn, per_axis=False)
        self.power = check_power(power)

    @property
    def kappa(self) -> Tensor:
        return self.log_kappa.exp()

    def times(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        return self._times(atoms, gate, self.power)

    def _times(self, atoms: Atoms, gate: Tensor | None, power: float) -> tuple[Tensor, Tensor]:
        low = self.kappa**2 + self.lowest(atoms.n_dims, gate)
        high = low.detach() + self.highest(atoms, gate)
        a, log_gamma = _inverse_power(low, high, power, self.n_terms)
        return a, log_gamma - a * self.kappa**2  # e^{−a(λ + κ²)}


class Matern(ScreenedPoisson):
    """Convolution with the Matérn kernel of smoothness ν, a scaled (κ² − Δ)^{−(ν+d/2)}, κ = √(2ν)/ℓ.

    Under `Point` atoms the response is the kernel, 1 at distance 0; at the cusp of ν = ½ it comes within
    a few percent of that, which finer `resolution` and more terms improve. Closing a gate keeps the
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
        half = atoms.n_dims / 2
        a, log_gamma = self._times(atoms, gate, self.nu + half)
        scale = math.lgamma(self.nu + half) - math.lgamma(self.nu)
        return a, log_gamma + scale + 2 * self.nu * self.kappa.log()

    def mixture(self, atoms: Atoms, gate: Tensor | None) -> Mixture:
        mixture = super().mixture(atoms, gate)
        D = _per_axis(self.diffusivity, atoms.n_dims, "diffusivity")
        return mixture._replace(c=mixture.c + 0.5 * (4 * math.pi * D).log())


class HarmonicOscillator(MixtureOperator):
    """(Σ_j D_j(−∂_j² + ω_j²ξ_j²))^s: localized objects around the origin, decay e^{−ω|ξ|²/2}.

    Its eigenfunctions are Hermite functions and its spectrum starts at Σ_j D_j ω_j (Mehler's kernel).
    """

    log_omega: Tensor
    log_diffusivity: Tensor

    def __init__(
        self,
        omega: Tensor | float = 1.0,
        *,
        power: float = 1.0,
        diffusivity: Tensor | float = 1.0,
        n_terms: int = 16,
        learn: bool = False,
    ):
        super().__init__()
        _positive(self, "omega", omega, learn)
        _positive(self, "diffusivity", diffusivity, learn)
        self.power = check_power(power)
        self.n_terms = n_terms

    @property
    def omega(self) -> Tensor:
        return self.log_omega.exp()

    @property
    def diffusivity(self) -> Tensor:
        return self.log_diffusivity.exp()

    def mixture(self, atoms: Atoms, gate: Tensor | None) -> Mixture:
        d = atoms.n_dims
        omega = _per_axis(self.omega, d, "omega")
        D = _per_axis(self.diffusivity, d, "diffusivity")
        is_open = _open(gate, d)
        weight = is_open.double() if gate is None or not bool((gate > 0).any()) else gate
        low = (D * omega * weight).sum()
        with torch.no_grad():  # a source atom in phase space: k² + ω²ξ² inside a Gaussian's reach
            band = atoms.band(is_open).double() * is_open  # (r, d)
            stiffness = D.sqrt() * omega * is_open
            center = (stiffness * atoms.mu.double()).norm(dim=1)  # (r,)
            spread = (stiffness * band.sqrt() * atoms.sigma.double() ** 2).amax(1)
            high = low + (D * band).max() + ((center + spread) ** 2).max()
        a, log_gamma = _inverse_power(low, high, self.power, self.n_terms)
        t = 2 * omega * D * a[:, None]  # (k, d)
        tanh, log_cosh = t.tanh(), t - math.log(2) + torch.log1p(torch.exp(-2 * t))
        return Mixture(log_gamma, torch.exp(-log_cosh), tanh / omega, omega * tanh, -log_cosh / 2)


class Cauchy(MixtureOperator):
    """Convolution with the rational quadratic kernel (1 + |δ|²/2βℓ²)^{−β}; β = 1 is Cauchy's.

    Heavy tails: decay r^{−2β}. With `diffusivity` D_j, |δ|² is Σ_j δ_j²/D_j. The kernel is isotropic,
    not a product of one-dimensional Cauchy kernels.

    Parameters
    ----------
    length, beta : float
        ℓ and β, β in [0.25, 2].
    extent : float
        Diameter of the region in which the response is wanted, enlarged to hold all atoms.
    """

    log_length: Tensor
    log_diffusivity: Tensor

    def __init__(
        self,
        length: Tensor | float = 1.0,
        *,
        beta: float = 1.0,
        extent: float = 8.0,
        diffusivity: Tensor | float = 1.0,
        n_terms: int = 16,
        learn: bool = False,
    ):
        super().__init__()
        _positive(self, "length", length, learn, per_axis=False)
        _positive(self, "diffusivity", diffusivity, learn)
        self.beta = check_power(beta, "beta")
        self.extent = _check_extent(extent)
        self.n_terms = n_terms

    @property
    def length(self) -> Tensor:
        return self.log_length.exp()

    @property
    def diffusivity(self) -> Tensor:
        return self.log_diffusivity.exp()

    def mixture(self, atoms: Atoms, gate: Tensor | None) -> Mixture:
        D = _per_axis(self.diffusivity, atoms.n_dims, "diffusivity")
        one = torch.ones((), dtype=torch.float64)
        nearest = D[_open(gate, atoms.n_dims)].min()
        farthest = _extent2(self.extent, atoms, gate) / nearest / self.length**2
        a, log_gamma = _inverse_power(one, 1 + farthest / (2 * self.beta), self.beta, self.n_terms)
        V = self.beta * self.length**2 / a[:, None] * D  # e^{−a|δ|²/2βℓ²} = e^{−δ²/2V}
        zero = torch.zeros_like(V)
        return Mixture(log_gamma - a, torch.ones_like(V), V, zero, 0.5 * (2 * math.pi * V).log())


# --- the rest


class ProductScreened(Operator):
    """Π_j(κ_j² − ∂_j²): its Green's function is exactly Π_j e^{−κ_j|δ_j|}/2κ_j, a single term.

    The one operator whose Green's function is a product of one-dimensional ones. It measures dominating
    mixed smoothness; under `Point` atoms Φ is the product Laplace kernel.
    """

    log_kappa: Tensor

    def __init__(self, kappa: Tensor | float = 1.0, *, learn: bool = False):
        super().__init__()
        _positive(self, "kappa", kappa, learn)

    @property
    def kappa(self) -> Tensor:
        return self.log_kappa.exp()

    def _response(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor:
        kappa = _per_axis(self.kappa, atoms.n_dims, "kappa")
        integral = _closed_form(EXPONENTIAL, atoms, "the exponential kernel")
        if isinstance(atoms, Point):  # log I is a weighted L1 distance
            weight = torch.ones_like(kappa) if gate is None else gate
            scale = (kappa * weight).to(xi.dtype)
            distance = torch.cdist(xi * scale, atoms.mu.to(xi.dtype) * scale, p=1.0)
            return torch.exp(-distance - (weight * (2 * kappa).log()).sum().to(xi.dtype))

        def factor(x: Tensor, j: int) -> Tensor:  # (n,) → (n, 1, r)
            value = integral(x[:, None, None], kappa[j], *atoms.parameters_of(j))
            return _fade(value, gate, j)

        one = torch.ones(1, dtype=torch.float64)
        return sum_of_products(xi, factor, one, len(atoms.mu))


class Superposition(Operator):
    """A sum of inverses, u = Σ_m γ_m (G_m * f): not the inverse of a sum of operators.

    Parameters
    ----------
    operators : sequence of Operator
    gamma : sequence of float, optional
        Weights, equal when omitted; an `nn.Parameter`, learned when `learn` is set.
    """

    def __init__(
        self,
        operators: Sequence[Operator | str],
        gamma: Sequence[float] | Tensor | None = None,
        *,
        learn: bool = True,
    ):
        super().__init__()
        if not operators:
            raise ValueError("`operators` is empty; a superposition needs at least one.")
        n = len(operators)
        self.operators = nn.ModuleList([operator(member) for member in operators])
        value = torch.as_tensor([1 / n] * n if gamma is None else gamma, dtype=torch.float64)
        if value.shape != (n,) or not bool(value.isfinite().all()):
            raise ValueError(
                f"`gamma` must have one finite weight for each of {n} operators, got {gamma}."
            )
        self.gamma = nn.Parameter(value.clone(), requires_grad=learn)

    def members(self) -> list[Operator]:
        return list(self.operators)  # type: ignore[arg-type]

    def _response(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor:
        Phi = xi.new_zeros(len(xi), len(atoms.mu))
        for gamma, member in zip(self.gamma, self.members(), strict=True):
            Phi = Phi + gamma.to(xi.dtype) * member._response(xi, atoms, gate)
        return Phi

    def null_space(self, gate: Tensor | None = None) -> Polynomial | None:
        """The monomials of all members, and the quadratic column of each that has one."""
        spaces = [
            s for s in (member.null_space(gate) for member in self.members()) if s is not None
        ]
        if not spaces:
            return None
        widest = max(spaces, key=lambda space: space.degree)
        squares = [space.diffusivity for space in spaces if space.squared]
        if not squares:
            return widest
        d = max([len(D) for D in squares if D.ndim] or [1])
        rows = torch.unique(torch.stack([D.expand(d) for D in squares]), dim=0)
        return Polynomial(widest.degree, squared=True, diffusivity=rows, axes=widest.axes)


OPERATORS: dict[str, type[Operator]] = {
    "poisson": Poisson,
    "screened_poisson": ScreenedPoisson,
    "helmholtz": ScreenedPoisson,  # the IGL paper's name for −Δ + μ²
    "matern": Matern,
    "fractional": Fractional,
    "harmonic_oscillator": HarmonicOscillator,
    "heat": Heat,
    "cauchy": Cauchy,
    "product_screened": ProductScreened,
}

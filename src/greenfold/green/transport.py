"""Diffusion in a wind, with decay: −∇·D∇u + v·∇u + κ²u = f in free space and on boxes.

With b = v/2D the substitution u = e^{b·x}w takes the wind away, at the price of a decay κ² + Σ v_j²/4D_j;
the semigroup e^{−aL} is a product over axes of drifting heat kernels. Integrated over times a are::

    steady        all of them
    switched_on   those since the release began
    instant       the time since the release, alone
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from greenfold.green.atoms import Atoms, Box, Gaussian, Point
from greenfold.green.base import (
    Mixture,
    NoForm,
    check_extent,
    extent2,
    fade,
    inverse_power,
    open_axes,
    opened,
    per_axis,
    trying,
)
from greenfold.green.diffusion import Diffusion, Interval
from greenfold.green.drift import along
from greenfold.green.expsum import best_sum, tabulated_ratio
from greenfold.green.forms import Form
from greenfold.green.matrix import sum_of_products
from greenfold.green.times import log_times

RELEASES = ("steady", "switched_on", "instant")


class Transport(Diffusion):
    """−∇·D∇u + v·∇u + κ²u = f: what sources emit is carried by a wind, spreads and decays.

    Sources end at the walls of a box, and responses hold between them. Dirichlet ends stay what they are
    in a wind; across a Neumann end no wind can blow, as what it brings would have to go somewhere.

    Parameters
    ----------
    kappa : float
        κ ≥ 0; κ² is the rate of decay. Zero needs a wind on a free axis or a Dirichlet side.
    wind : float or sequence of d floats
        v.
    diffusivity : float or Tensor of shape (d,) or (d, d)
        D. A symmetric matrix, in free space only, is turned to its axes; sources are points then, or
        Gaussians as wide along every axis.
    domain : Interval, or a sequence of one Interval or None per axis
        Walls; None is a free axis.
    release : 'steady', 'switched_on' or 'instant'
        Sources that always were, that began at `time` before now, or that were there for an instant.
    time : float, optional
        Since the release began.
    error : float
        Of the response, relative, where it is integrated over times. Up to P = Σ_j |v_j|·(distance)/D_j
        of about 10 `n_terms` exponentials are enough; where they are not, there are as many times as the
        error takes.
    extent : float
        Largest distance along free axes at which the response is wanted; enlarged to hold all atoms.
    learn : bool
        Make κ, v and D learnable; the wind stays zero across Neumann sides.

    Examples
    --------
    A plume, 10 units downstream of a point source and 1 beside that:

    >>> import torch
    >>> from greenfold.green import Point
    >>> air = Transport(kappa=0.0, wind=(2.0, 0.0), diffusivity=0.5, extent=20.0)
    >>> source = Point(torch.zeros(1, 2).double())
    >>> u = air.response(torch.tensor([[10.0, 0.0], [10.0, 1.0]]).double(), source)
    >>> [round(v, 4) for v in u[:, 0].tolist()]
    [0.0887, 0.08]

    Wind along the axes of the diffusion, the slowest decay, and how much the wind outweighs spreading:

    >>> air.velocity(2).tolist(), air.gap(2, None).item(), round(air.peclet(source), 1)
    ([2.0, 0.0], 2.0, 80.0)
    >>> bool(torch.equal(air.turned(source).mu, source.mu))  # these axes are not turned
    True
    """

    has_terms = False
    kappa: Tensor
    wind: Tensor
    rotation: Tensor | None

    def __init__(
        self,
        kappa: Tensor | float = 1.0,
        *,
        wind: Tensor | Sequence[float] | float = 0.0,
        diffusivity: Tensor | Sequence[float] | float = 1.0,
        domain: Interval | Sequence[Interval | None] | None = None,
        release: str = "steady",
        time: float | None = None,
        n_terms: int = 24,
        error: float = 1e-6,
        extent: float = 8.0,
        learn: bool = False,
    ):
        D, rotation = _axes_of(diffusivity)
        super().__init__(diffusivity=D, domain=domain, n_terms=n_terms, learn=learn)
        self.register_buffer("rotation", rotation)
        self.kappa = nn.Parameter(_number(kappa, "kappa"), requires_grad=learn)
        v = torch.as_tensor(wind, dtype=torch.float64)
        if v.ndim > 1 or not bool(v.isfinite().all()):
            raise ValueError(f"`wind` must be finite, a number or one per axis, got {v.tolist()}.")
        self.wind = nn.Parameter(v.clone(), requires_grad=learn)
        self.release, self.time = _release(release, time)
        if not 1e-12 <= error < 0.1:
            raise ValueError(f"`error` must lie in [1e-12, 0.1), got {error}.")
        self.error = float(error)
        self.extent = check_extent(extent)
        self._check_walls()

    def _check_walls(self) -> None:
        if self.rotation is not None and self.bounded:
            raise ValueError(
                "a diffusivity that is a matrix turns the axes, and a box does not turn with them. Give "
                "one number per axis, or leave `domain` out; a mesh (finite elements) can do both."
            )
        sides = self.domain if isinstance(self.domain, tuple) else (self.domain,)
        wind = self.wind.detach()
        wind = wind.expand(len(sides)) if isinstance(self.domain, tuple) and not wind.ndim else wind
        if isinstance(self.domain, tuple) and len(wind) != len(sides):
            raise ValueError(f"`wind` has {len(wind)} entries, but `domain` {len(sides)}.")
        across = sides * len(wind) if len(sides) == 1 and wind.ndim else sides
        for side, v in zip(across, wind.reshape(-1).tolist()):
            if side is not None and side.boundary == "neumann" and v != 0:
                raise ValueError(
                    f"the wind blows at {v:g} across a Neumann side, through which nothing passes: "
                    "carried and spread, u has a Robin condition there. Set that component of `wind` to "
                    "0, or make the side 'dirichlet' or 'periodic'."
                )

    # --- physical numbers of the axes in use

    def velocity(self, d: int) -> Tensor:
        """v (d,), along the axes of D; zero across Neumann sides."""
        v = per_axis(self.wind, d, "wind")
        if self.rotation is not None:
            if len(self.rotation) != d:
                raise ValueError(f"`diffusivity` is for {len(self.rotation)} axes, not {d}.")
            return v @ self.rotation
        closed = [s is not None and s.boundary == "neumann" for s in self.sides(d)]
        return v * (1 - torch.tensor(closed, dtype=torch.float64)) if any(closed) else v

    def _tilt(self, d: int) -> Tensor:
        """b = v/2D (d,), zero along periodic axes, which carry the wind in their kernel."""
        around = [s is not None and s.boundary == "periodic" for s in self.sides(d)]
        b = self.velocity(d) / (2 * per_axis(self.diffusivity, d, "diffusivity"))
        return b * (1 - torch.tensor(around, dtype=torch.float64)) if any(around) else b

    def gap(self, d: int, gate: Tensor | None) -> Tensor:
        """Slowest decay: κ² + Σ v_j²/4D_j + the lowest eigenvalue between Dirichlet walls."""
        D = per_axis(self.diffusivity, d, "diffusivity")
        carried = self._tilt(d).square() * D * opened(gate, d)
        return self.kappa**2 + carried.sum() + self.lowest(d, gate)

    def peclet(self, atoms: Atoms, gate: Tensor | None = None) -> float:
        """P = Σ_j |v_j| R_j/D_j over the distances R_j at which the response is wanted."""
        d, free = atoms.n_dims, math.sqrt(extent2(self.extent, atoms, gate))
        lengths = [free if side is None else side.length for side in self.sides(d)]
        R = torch.tensor(lengths, dtype=torch.float64) * open_axes(gate, d)
        b = self._tilt(d).detach().abs()
        bounded = torch.tensor([side is not None for side in self.sides(d)])
        # free axes share one distance, walls have one each
        return 2 * float((b * R)[bounded].sum() + (b * R)[~bounded].norm())

    # --- times

    def times(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.release == "instant":
            assert self.time is not None
            a = torch.tensor([self.time], dtype=torch.float64)
            return a, -a * self.kappa**2
        low, P = self.gap(atoms.n_dims, gate), self.peclet(atoms, gate)
        if self.release == "steady":
            if not bool(low > 0):
                raise ValueError(
                    "without decay, wind or a Dirichlet side nothing is ever steady: give `kappa` > 0, a "
                    "`wind` along a free axis, or release='switched_on' with a `time`."
                )
            high = low.detach() + self.highest(atoms, gate)
            ratio = tabulated_ratio(float(high / low.detach()))
            lost = best_sum(self.n_terms, ratio, 1.0).error * math.exp(min(P / 2, 600))
            if lost <= self.error and not self._around(atoms.n_dims):
                a, log_gamma = inverse_power(low, high, 1.0, self.n_terms)
                return a, log_gamma - a * self.kappa**2
        a, log_weight = log_times(*self._span(atoms, gate, float(low.detach()), P), self.error)
        return a, log_weight - a * self.kappa**2

    def _span(
        self, atoms: Atoms, gate: Tensor | None, low: float, P: float
    ) -> tuple[float, float, float]:
        """First and last time that matter, and ρ = Σ v_j²/D_j."""
        d, on = atoms.n_dims, open_axes(gate, atoms.n_dims)
        D = per_axis(self.diffusivity.detach(), d, "diffusivity")[on]
        v = self.velocity(d).detach()[on]
        rho, digits = float((v**2 / D).sum()), math.log(1 / self.error)
        sigma = atoms.sigma.detach().double()[:, on]
        spread = float((sigma**2 / D).min()) / 2  # the time in which a source doubles its width
        first = spread / (2 * digits) if isinstance(atoms, Point) else self.error * spread
        if not isinstance(atoms, Point) and rho > 0:
            first = min(first, self.error * float(sigma.min() / v.norm()))
        last = (digits + P / 2) / low if low > 0 else math.inf
        if self.release == "switched_on":
            assert self.time is not None
            last = min(last, self.time)
        else:
            last = 2.0 ** math.ceil(math.log2(last))
        return min(first, last / 2), last, rho

    def _around(self, d: int) -> bool:
        """Does a wind blow around a circle? The spectrum is not real then, and no best sum holds."""
        v = self.velocity(d).detach()
        return any(
            s is not None and s.boundary == "periodic" and x != 0
            for s, x in zip(self.sides(d), v.tolist())
        )

    def highest(self, atoms: Atoms, gate: Tensor | None) -> Tensor:
        top = super().highest(atoms, gate)
        if isinstance(atoms, Point):  # as it is from its resolution on, to the error
            return top * 4 * math.log(1 / self.error)
        # a Gaussian cut by a wall has a jump: as far as a box, see `Box`
        return top * 200 if self.bounded and isinstance(atoms, Gaussian) else top

    def mixture(self, atoms: Atoms, gate: Tensor | None) -> Mixture:
        a, log_gamma = self.times(atoms, gate)
        d = atoms.n_dims
        V = 2 * a[:, None] * per_axis(self.diffusivity, d, "diffusivity")
        zero = torch.zeros_like(V)
        drift = -a[:, None] * self.velocity(d)
        return Mixture(log_gamma, torch.ones_like(V), drift, V, zero, zero)

    def isotropic(self, atoms: Atoms, gate: Tensor | None) -> None:
        return None

    # --- response

    def refuses(self, kind: type) -> str:
        reason = super(Diffusion, self).refuses(kind)
        if reason:
            return reason
        if self.bounded and not issubclass(kind, Gaussian | Point | Box):
            return f"sources between walls must be Gaussian, Point or Box, got {kind.__name__}."
        if self.rotation is not None and not issubclass(kind, Gaussian | Point):
            return f"sources must be Point or Gaussian where D is a matrix, got {kind.__name__}."
        return ""

    def _response(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor:
        atoms, xi = self.turned(atoms, gate), self._turn(xi)
        if self._has_closed_form(atoms, gate):
            return self._switched_on(xi, atoms).to(xi.dtype)
        self._warn_beyond(xi, atoms, gate)
        if not self.bounded:
            return self._spread(self.mixture(atoms, gate), xi, atoms, gate)
        a, log_gamma = self.times(atoms, gate)
        d = atoms.n_dims
        D, v, sides = per_axis(self.diffusivity, d, "diffusivity"), self.velocity(d), self.sides(d)

        def factor(x: Tensor, j: int) -> Tensor:  # (n,) → (n, k, r)
            shape, where = _different(atoms.parameters_of(j))
            place = (x[:, None, None], a[:, None], D[j], v[j])
            return fade(along(sides[j], atoms.name, *place, *shape)[..., where], gate, j)

        return sum_of_products(xi, factor, log_gamma.exp(), len(atoms.mu))

    @torch.no_grad()
    def _warn_beyond(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> None:
        """Downstream of `extent` there are no times for what arrives."""
        d, on = atoms.n_dims, open_axes(gate, atoms.n_dims)
        free = on & torch.tensor([side is None for side in self.sides(d)])
        windy = free & (self.velocity(d) != 0)
        if self.release == "instant" or not len(xi) or not bool(windy.any()) or trying.get():
            return
        mu, x = atoms.mu.double()[:, free], xi.double()[:, free]
        ahead, behind = x.amax(0) - mu.amin(0), mu.amax(0) - x.amin(0)
        far = float(torch.maximum(ahead, behind).norm())
        known = math.sqrt(extent2(self.extent, atoms, gate))
        if far > 1.01 * known:
            warnings.warn(
                f"places up to {far:.3g} away from sources lie beyond `extent`={known:.3g}: what the "
                "wind brings there is not counted. Raise `extent`.",
                stacklevel=4,
            )

    def _turn(self, xi: Tensor) -> Tensor:
        return xi if self.rotation is None else xi @ self.rotation.to(xi.dtype)

    def turned(self, atoms: Atoms, gate: Tensor | None = None) -> Atoms:
        """The atoms along the axes of D."""
        if self.rotation is None:
            return atoms
        if gate is not None:
            raise ValueError("where D is a matrix no axis can be closed: all gates must be open.")
        mu, sigma = atoms.mu.double() @ self.rotation, atoms.sigma.double()
        if isinstance(atoms, Point):
            return _like(atoms, mu, float(sigma.max()))
        if not torch.allclose(sigma, sigma[:, :1].expand_as(sigma), rtol=1e-12, atol=0):
            raise ValueError("where D is a matrix, sources must be as wide along every axis.")
        return _like(atoms, mu, sigma[:, :1])

    def _has_closed_form(self, atoms: Atoms, gate: Tensor | None) -> bool:
        known = self.release == "switched_on" and isinstance(atoms, Point) and not self.bounded
        return known and gate is None and atoms.n_dims in (1, 3)

    def _switched_on(self, xi: Tensor, atoms: Atoms) -> Tensor:
        """The integral over times of a point in one or three dimensions, by error functions.

        With ρ the distance in units √D, p = ρ/2√τ and m = λ√τ, λ² = κ² + Σ v_j²/4D_j; within the
        resolution of a point the distance is the resolution.
        """
        d = atoms.n_dims
        root = per_axis(self.diffusivity, d, "diffusivity").sqrt()
        mu, floor = atoms.mu.double(), atoms.sigma.double() / root  # (r, d)
        delta = (xi.double()[:, None] - mu) / root  # (n, r, d)
        r = (delta.square().sum(-1) + 1e-300).sqrt()
        r = torch.maximum(r, floor.amin(1)) if d == 3 else r
        lam, tau = self.gap(d, None).sqrt(), torch.tensor(self.time, dtype=torch.float64)
        p, m = r / (2 * tau.sqrt()), lam * tau.sqrt()
        drift = ((self._tilt(d) * root) * delta).sum(-1)  # b·(x − μ)
        near = torch.exp(drift - lam * r) * torch.erfc(p - m)
        # e^{λr} erfc(p + m), which would be 0·∞
        far = torch.exp(drift - p**2 - m**2) * torch.special.erfcx(p + m)
        volume = root.prod()
        if d == 1:
            return (near - far) / (4 * lam * volume)
        return (near + far) / (8 * math.pi * r * volume)

    def forms(self, atoms: Atoms, gate: Tensor | None = None, terms: bool = False) -> list[Form]:
        if self.rotation is not None or self._has_closed_form(atoms, gate):
            raise NoForm("Transport with a matrix D or a switched-on point has no graph to export.")
        return super().forms(atoms, gate, terms)

    def count_terms(self, n_dims: int) -> int:
        return 1  # they are not weighed

    def extra_repr(self) -> str:
        numbers = {"kappa": self.kappa, "wind": self.wind, "diffusivity": self.diffusivity}
        told = ", ".join(f"{name}={v.detach().tolist()}" for name, v in numbers.items())
        return f"{told}, release={self.release!r}"


def _axes_of(diffusivity: Tensor | Sequence[float] | float) -> tuple[Tensor, Tensor | None]:
    """D along its axes, and these as columns (d, d) if they are not the coordinates'."""
    D = torch.as_tensor(diffusivity, dtype=torch.float64)
    if D.ndim < 2:
        return D, None
    symmetric = D.ndim == 2 and D.shape[0] == D.shape[1] and torch.allclose(D, D.T, rtol=1e-9)
    if not symmetric or not bool(D.isfinite().all()) or float(torch.linalg.eigvalsh(D)[0]) <= 0:
        raise ValueError(
            "`diffusivity` must be symmetric and positive definite where it is a matrix, got "
            f"{D.tolist()}."
        )
    values, axes = torch.linalg.eigh(D)
    return values, axes


def _number(value: Tensor | float, name: str) -> Tensor:
    found = torch.as_tensor(value, dtype=torch.float64)
    if found.ndim or not bool(found.isfinite()) or float(found) < 0:
        raise ValueError(
            f"`{name}` must be a number, finite and not negative, got {found.tolist()}."
        )
    return found.clone()


def _release(release: str, time: float | None) -> tuple[str, float | None]:
    if release not in RELEASES:
        raise ValueError(f"unknown release {release!r}. Choose one of {RELEASES}.")
    if release == "steady":
        if time is not None:
            raise ValueError(
                "a steady release has no `time`; say release='switched_on' or 'instant'."
            )
        return release, None
    if time is None or not (math.isfinite(time) and time > 0):
        raise ValueError(f"release={release!r} needs the `time` since then, positive, got {time}.")
    return release, float(time)


def _different(shape: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], Any]:
    """Numbers of an axis without repetitions, as on a grid, and where each atom finds its own."""
    if any(value.requires_grad for value in shape):
        return shape, slice(None)
    unique, where = torch.unique(torch.stack(shape), dim=1, return_inverse=True)
    return tuple(unique), where


def _like(atoms: Atoms, mu: Tensor, sigma: Any) -> Atoms:
    return type(atoms)(mu, sigma)

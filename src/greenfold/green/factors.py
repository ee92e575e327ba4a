"""Factors of a product: a line, an interval, a circle, a sphere, each known by its heat kernel.

For L = Σ_j D_j L_j with L_j = −Δ on factor j only, e^{−aL} = Π_j e^{−aD_j L_j} whatever the factors are.
All that `Product` asks of one is how heat spreads on it, and where its spectrum begins and ends.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor, nn

from greenfold.green.base import Positive, positive
from greenfold.green.bases import Cosine, Fourier, Sine
from greenfold.green.diffusion import Interval
from greenfold.green.integrals import _interval_heat, point

SERIES = 9.5  # wave numbers times √2t: e^{−45} of the heat lies beyond
MODES = 300  # of an interval; narrower heat is a sum of images

Flow = Callable[[Tensor], Tensor]  # of places (n, c), the heat kernels there (n, k, r)


class Factor(nn.Module, ABC):
    """One factor of a product, in `columns` columns, with its diffusivity D.

    Heat kernels have mass one in the factor's own measure: length, area, or the weights of a graph.

    Parameters
    ----------
    diffusivity : float or Tensor
        D of this factor, positive.
    learn : bool
        Learn it.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Bumps, Circle, Line, Product
    >>> L = Product([Line(), Circle(24.0)], kappa=1.0)  # a place, and an hour of the day
    >>> place = torch.tensor([[0.2, 23.5]], dtype=torch.float64)
    >>> L.response(place, Bumps(torch.zeros(1, 2, dtype=torch.float64), sigma=0.5)).shape
    torch.Size([1, 1])
    >>> line, at, soon = Line(), torch.tensor([[0.5]], dtype=torch.float64), torch.ones(1, 1).double()
    >>> line.check(at, "xi")  # it would raise for what are no places
    >>> line.origin().tolist(), line.extent(torch.cat([at, -at])) > 0
    ([0.0], True)
    >>> warm = line.heat(line.origin()[None], soon)(at)  # of one point, after one unit of time
    >>> line.summed(line.origin()[None], soon, torch.ones(1).double())(at).shape
    torch.Size([1, 1, 1])
    >>> line.at_home(at, soon[:, 0]).shape
    torch.Size([1, 1])
    """

    columns = 1
    dims = 1  # how many numbers tell a place on it from its neighbors
    lowest = 0.0  # eigenvalue of L_j
    highest = math.inf
    diffusivity = Positive()

    def __init__(self, diffusivity: float | Tensor = 1.0, *, learn: bool = False):
        super().__init__()
        positive(self, "diffusivity", diffusivity, learn, per_axis=False)

    @abstractmethod
    def heat(self, mu: Tensor, time: Tensor) -> Flow:
        """Heat from points μ (r, c) after times t_kr (k, r): a function of places, of (n, k, r)."""

    def summed(self, mu: Tensor, time: Tensor, gamma: Tensor) -> Flow:
        """Σ_k γ_k of `heat`, of shape (n, 1, r)."""
        flow = self.heat(mu, time)
        return lambda x: torch.einsum("nkr,k->nr", flow(x), gamma)[:, None]

    def at_home(self, x: Tensor, time: Tensor) -> Tensor:
        """The heat kernel at (n, c) from the same places, after times (k,): (n, k)."""
        own = self.heat(x[:1], time[:, None])(x[:1])[:, :, 0]
        return own.expand(len(x), -1)

    def origin(self) -> Tensor:
        """A place on it (c,)."""
        return torch.zeros(self.columns, dtype=torch.float64)

    def extent(self, x: Tensor) -> float:
        """How far places (n, c) are apart, about."""
        return float((x - x.mean(0)).square().sum(1).mean().sqrt()) or 1.0

    def check(self, x: Tensor, name: str) -> None:
        """Refuse what are no places on it."""


def modal(modes: Callable[[Tensor], Tensor], mu: Tensor, decay: Tensor) -> Flow:
    """Σ_m decay_mkr ψ_m(x) ψ_m(μ_r), one matrix product, for `modes` that are ψ (n, M) of places."""
    M, k, r = decay.shape[0], decay.shape[1], len(mu)
    spread = (decay * modes(mu).T[:, None]).view(M, k * r)
    return lambda x: (modes(x) @ spread).view(len(x), k, r)


class Line(Factor):
    """The real line: heat from a point is a Gaussian of variance 2t.

    Parameters
    ----------
    diffusivity : float
        D of D·∂², positive; learned when `learn` is set. Factors have one each.
    learn : bool
        Learn it.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Bumps, Line, Product
    >>> plane = Product([Line(), Line(diffusivity=0.5)], kappa=1.0)
    >>> plane.response(torch.zeros(3, 2).double(), Bumps(torch.zeros(1, 2).double(), sigma=0.5)).shape
    torch.Size([3, 1])
    """

    def heat(self, mu: Tensor, time: Tensor) -> Flow:
        return lambda x: point(x[:, :, None], 2 * time, mu[:, 0])


EIGENBASES: dict[str, type[Sine | Cosine | Fourier]] = {
    "dirichlet": Sine,
    "neumann": Cosine,
    "periodic": Fourier,
}


class Bounded(Factor):
    """An `Interval` with Dirichlet, Neumann or periodic ends, as a factor with a diffusivity.

    Parameters
    ----------
    interval : Interval
        Its ends.
    diffusivity : float or Tensor
        D of this factor, positive.
    learn : bool
        Learn it.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Bounded, Bumps, Interval, Product
    >>> rod = Product([Bounded(Interval(0.0, 1.0, "dirichlet"))], kappa=1.0)
    >>> heater = Bumps(torch.full((1, 1), 0.5, dtype=torch.float64), sigma=0.1)
    >>> end = rod.response(torch.tensor([[0.0]], dtype=torch.float64), heater)
    >>> bool(end.abs().max() < 1e-6)  # cooled there
    True
    """

    def __init__(
        self, interval: Interval, diffusivity: float | Tensor = 1.0, *, learn: bool = False
    ):
        super().__init__(diffusivity, learn=learn)
        if not isinstance(interval, Interval):
            raise ValueError(
                f"`interval` must be an Interval(low, high, boundary), got {interval!r}."
            )
        self.interval = interval

    @property
    def lowest(self) -> float:  # type: ignore[override]
        return self.interval.gap if self.interval.boundary == "dirichlet" else 0.0

    def heat(self, mu: Tensor, time: Tensor) -> Flow:
        size = math.sqrt(2 * float(time.detach().min()))
        n_modes = math.ceil(SERIES * self.interval.length / (math.pi * size)) + 2
        if n_modes > MODES:
            return lambda x: self._kernel(x[:, :, None], mu[:, 0], time)
        side = self.interval
        basis = EIGENBASES[side.boundary](n_modes, side.low, side.high)
        decay = torch.exp(-basis.eigenvalues[:, None, None] * time)
        return modal(lambda x: basis(x[:, 0]), mu, decay)

    def at_home(self, x: Tensor, time: Tensor) -> Tensor:
        return self._kernel(x, x, time)

    def _kernel(self, x: Tensor, mu: Tensor, time: Tensor) -> Tensor:
        side = self.interval
        length = torch.tensor(side.length, dtype=torch.float64)
        return _interval_heat(x - side.low, mu - side.low, 2 * time, length, side.boundary)

    def origin(self) -> Tensor:
        return torch.tensor([(self.interval.low + self.interval.high) / 2], dtype=torch.float64)


class Circle(Bounded):
    """A circle: angles in radians, or hours and days with a `period` of their own.

    Parameters
    ----------
    period : float
        Length of the way around.
    diffusivity : float or Tensor
        D of this factor, positive.
    learn : bool
        Learn it.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Bumps, Circle, Product
    >>> day = Product([Circle(24.0)], kappa=1.0)
    >>> noon = Bumps(torch.full((1, 1), 12.0, dtype=torch.float64), sigma=1.0)
    >>> u = day.response(torch.tensor([[11.0], [13.0]], dtype=torch.float64), noon)[:, 0]
    >>> bool(torch.isclose(u[0], u[1]))
    True
    """

    def __init__(
        self,
        period: float = 2 * math.pi,
        diffusivity: float | Tensor = 1.0,
        *,
        learn: bool = False,
    ):
        if not (math.isfinite(period) and period > 0):
            raise ValueError(f"`period` must be positive and finite, got {period}.")
        super().__init__(Interval(0.0, period, "periodic"), diffusivity, learn=learn)


class Sphere(Factor):
    """The unit sphere S² in three columns: x with |x| = 1. See `Sphere.at` for degrees.

    Heat from a point is Σ_l (2l+1)/4π e^{−tl(l+1)} P_l(x·μ). The series is summed at knots, and values
    between them come from polynomials of degree 5 that meet it with two derivatives: errors are below
    1e-9 of the largest value.

    Parameters
    ----------
    diffusivity : float or Tensor
        D of this factor, positive.
    learn : bool
        Learn it.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Bumps, Product, Sphere
    >>> globe = Product([Sphere()], kappa=1.0)
    >>> pole = Bumps(Sphere.at(90.0, 0.0)[None], sigma=0.2)
    >>> u = globe.response(Sphere.at([80.0, 10.0], [0.0, 0.0]), pole)[:, 0]
    >>> bool(u[0] > u[1])
    True
    """

    columns = 3
    dims = 2

    @staticmethod
    def at(latitude: Tensor, longitude: Tensor) -> Tensor:
        """Points (n, 3) of the sphere, from degrees north and degrees east (n,)."""
        north, east = (
            torch.deg2rad(torch.as_tensor(v, dtype=torch.float64)) for v in (latitude, longitude)
        )
        flat = torch.cos(north)
        return torch.stack([flat * torch.cos(east), flat * torch.sin(east), torch.sin(north)], -1)

    def heat(self, mu: Tensor, time: Tensor) -> Flow:
        return self._zonal(mu, *self._decay(time))

    def summed(self, mu: Tensor, time: Tensor, gamma: Tensor) -> Flow:
        decay, size = self._decay(time)
        return self._zonal(mu, torch.einsum("lkr,k->lr", decay, gamma)[:, None], size)

    def _decay(self, time: Tensor) -> tuple[Tensor, float]:
        """e^{−tl(l+1)} (L, k, r), one column where all atoms have one width; the least width √2t."""
        if bool((time == time[:, :1]).all()):
            time = time[:, :1]
        size = math.sqrt(2 * float(time.detach().min()))
        degree = torch.arange(math.ceil(SERIES / size) + 2, dtype=torch.float64)
        return torch.exp(-(degree * (degree + 1))[:, None, None] * time), size

    def _zonal(self, mu: Tensor, decay: Tensor, size: float) -> Flow:
        _, k, one = decay.shape
        mu = mu / mu.norm(dim=1, keepdim=True)
        n_knots = math.ceil(max(8.0, math.pi / (0.1 * size)))
        table = _pieces(decay.flatten(1), n_knots).view(n_knots, 6, k, one)
        table = table.permute(0, 3, 1, 2).reshape(n_knots * one, 6 * k)
        left, width, own = *_knots(n_knots)[1:], torch.arange(one).expand(len(mu))

        def at(x: Tensor) -> Tensor:
            t = x / x.norm(dim=1, keepdim=True) @ mu.T  # (n, r)
            i = torch.arccos(t.detach().clamp(-1, 1)) * (n_knots / math.pi)
            i = i.long().clamp_max(n_knots - 1)
            u = ((t - left[i]) / width[i])[..., None]
            c = nn.functional.embedding(i * one + own, table).unflatten(-1, (6, k)).unbind(-2)
            value = c[5]
            for p in range(4, -1, -1):
                value = value * u + c[p]  # (n, r, k)
            return value.transpose(1, 2)

        return at

    def origin(self) -> Tensor:
        return torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)

    def check(self, x: Tensor, name: str) -> None:
        off = (x.detach().double().norm(dim=1) - 1).abs()
        if len(x) and not bool((off <= 1e-5).all()):
            worst = int(off.argmax())
            raise ValueError(
                f"{int((off > 1e-5).sum())} of {len(x)} rows of {name} are not on the unit sphere: row "
                f"{worst} has length {float(x[worst].double().norm()):.6g}. Divide each by its length; "
                "Sphere.at(latitude, longitude) makes points from degrees."
            )


# Powers of u (rows) in the polynomials on [0, 1] that are one in one of these, and zero in the others:
# values at 0 and 1, slopes at 0 and 1, curvatures at 0 and 1.
_HERMITE = torch.tensor(
    [
        [1, 0, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0, 0, 0, 0, 0.5, 0],
        [-10, 10, -6, -4, -1.5, 0.5],
        [15, -15, 8, 7, 1.5, -1],
        [-6, 6, -3, -3, -0.5, 0.5],
    ],
    dtype=torch.float64,
)


def _pieces(decay: Tensor, n_knots: int) -> Tensor:
    """Coefficients of Σ_l (2l+1)/4π decay_l P_l between knots, (knots, 6, k) of decay (L, k)."""
    P = _legendre(n_knots, len(decay))  # (3, knots + 1, L)
    _, _, width = _knots(n_knots)
    degree = torch.arange(len(decay), dtype=torch.float64)
    series = ((2 * degree + 1) / (4 * math.pi))[:, None] * decay
    f, slope, bend = P @ series  # (knots + 1, k)
    w = width[:, None]
    ends = torch.stack(  # angles grow where cosines fall: the piece begins at its second knot
        [f[1:], f[:-1], w * slope[1:], w * slope[:-1], w**2 * bend[1:], w**2 * bend[:-1]], 1
    )
    return _HERMITE @ ends


@lru_cache(maxsize=8)
def _knots(n_knots: int) -> tuple[Tensor, Tensor, Tensor]:
    """cos θ at equal steps of θ (knots + 1,), where pieces begin and how wide they are (knots,)."""
    half = torch.linspace(0, math.pi / 2, n_knots + 1, dtype=torch.float64)
    t = 1 - 2 * torch.sin(half) ** 2
    # cos a − cos b = 2 sin((a+b)/2) sin((b−a)/2), without cancellation next to the poles
    step = math.pi / n_knots
    width = 2 * torch.sin(half[:-1] + half[1:]) * math.sin(step / 2)
    return t, t[1:], width


@lru_cache(maxsize=8)
def _legendre(n_knots: int, n_degrees: int) -> Tensor:
    """P_l and two derivatives at the knots, (3, knots + 1, L)."""
    t = _knots(n_knots)[0]
    P = torch.zeros(3, n_degrees + 1, n_knots + 1, dtype=torch.float64)
    P[0, 0], P[0, 1], P[1, 1] = 1, t, 1
    for n in range(1, n_degrees):
        P[0, n + 1] = ((2 * n + 1) * t * P[0, n] - n * P[0, n - 1]) / (n + 1)
        P[1:, n + 1] = P[1:, n - 1] + (2 * n + 1) * P[:2, n]
    return P[:, :n_degrees].transpose(1, 2).contiguous()

"""Source atoms φ_r(ζ) = Π_j φ_rj(ζ_j): what a source f̂ = Σ_r w_r φ_r is made of."""

import math
from abc import ABC, abstractmethod
from functools import lru_cache

import torch
from scipy.stats import chi2
from torch import Tensor, nn

from greenfold.green.integrals import hermite_polynomial


@lru_cache(maxsize=256)
def reach(degrees: int, error: float = 1e-13) -> float:
    """q with a fraction error² of the energy of e^{−k²/2} in `degrees` dimensions above k² = q.

    57 in one dimension, 74 in ten. The square root of that fraction is the error of a source that is
    cut there.
    """
    return float(chi2.isf(error**2, max(degrees, 1))) / 2


def _bump(mu: Tensor, sigma: Tensor) -> list[float]:
    """Pieces that no quadrature can overlook, however narrow the bell."""
    k = torch.tensor([-10.0, -5.0, 0.0, 5.0, 10.0], dtype=torch.float64)
    return (mu.detach()[:, None] + k * sigma.detach()[:, None]).ravel().tolist()


class Atoms(nn.Module, ABC):
    """Separable source atoms φ_r(ζ) = Π_j φ(ζ_j; μ_rj, σ_rj).

    Parameters
    ----------
    mu : Tensor of shape (r, d)
        Positions.
    sigma : Tensor or float, broadcast to (r, d)
        Widths, positive. A (d,) or (r, 1) tensor keeps widths tied across atoms or axes.
    learn : bool
        Make positions and widths parameters (`nn.Parameter`). Otherwise tensors are kept as given, so
        gradients flow to whatever they were computed from (an encoder, for tied anchors).

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Gaussian, Point
    >>> two = torch.tensor([[0.0, 0.0], [1.0, 0.5]], dtype=torch.float64)
    >>> Gaussian(mu=two, sigma=0.3).n_dims, len(Point(mu=two).mu)
    (2, 2)
    >>> bump = Gaussian(mu=two, sigma=0.3)
    >>> mu, sigma = bump.parameters_of(0)  # on the first axis, each (r,)
    >>> bump.profile(torch.zeros(1, 1).double(), mu, sigma).shape  # one axis of φ, at one place
    torch.Size([1, 2])
    >>> bump.band(torch.tensor([True, True])).shape, len(bump.breaks(0)) > 0
    (torch.Size([]), True)
    >>> bump.top() == bump.band(torch.tensor([True, True])).max().item()
    True
    """

    name: str  # key in the dictionaries of `integrals`
    shapes: tuple[str, ...] = ("mu", "sigma")  # what a one-dimensional integral needs, in order
    mu: Tensor
    log_sigma: Tensor

    def __init__(self, mu: Tensor, sigma: Tensor | float = 1.0, *, learn: bool = False):
        super().__init__()
        mu = torch.as_tensor(mu)
        if mu.ndim != 2:
            raise ValueError(
                f"`mu` must have shape (r, d), one row per atom, got {tuple(mu.shape)}. "
                "For a single atom in d dimensions pass `mu[None]`."
            )
        if not mu.numel():
            raise ValueError(f"`mu` of shape {tuple(mu.shape)} holds no atoms.")
        if not mu.is_floating_point():
            mu = mu.to(torch.get_default_dtype())
        self._keep("mu", mu, learn)
        if not bool(mu.isfinite().all()):
            raise ValueError(f"`mu` must be finite, got {int((~mu.isfinite()).sum())} bad entries.")
        sigma = self._shape_parameter("sigma", sigma)
        if not bool((sigma.isfinite() & (sigma > 0)).all()):
            raise ValueError(
                f"`sigma` must be positive and finite, got a smallest value of {float(sigma.min()):g}. "
                "Widths are standard deviations (half widths for Box and Hat) in chart coordinates."
            )
        self._keep("log_sigma", sigma.log(), learn)

    def _shape_parameter(self, name: str, value: Tensor | float) -> Tensor:
        value = torch.as_tensor(value, dtype=self.mu.dtype, device=self.mu.device)
        try:
            value.expand(self.mu.shape)
        except RuntimeError:
            raise ValueError(
                f"`{name}` of shape {tuple(value.shape)} does not broadcast to the shape of `mu`, "
                f"{tuple(self.mu.shape)}. Pass a number, or a tensor of shape (d,), (r, 1) or (r, d)."
            ) from None
        return value

    def _keep(self, name: str, value: Tensor, learn: bool) -> None:
        if learn:
            setattr(self, name, nn.Parameter(value.detach().clone()))
        else:
            self.register_buffer(name, value)

    @property
    def n_dims(self) -> int:
        return self.mu.shape[1]

    @property
    def sigma(self) -> Tensor:
        """Widths σ (r, d)."""
        return self.log_sigma.exp().expand(self.mu.shape)

    def parameters_of(self, j: int) -> tuple[Tensor, ...]:
        """Axis j of everything the integral needs, each (r,), in float64."""
        return tuple(getattr(self, name)[:, j].double() for name in self.shapes)

    @abstractmethod
    def profile(self, zeta: Tensor, *shape: Tensor) -> Tensor:
        """φ(ζ_j) for one axis, broadcast over `shape`, the tensors named in `shapes`."""

    def breaks(self, j: int) -> list[float]:
        """Where the profiles of axis j jump, bend or stand out: quadrature works piece by piece."""
        return []

    @abstractmethod
    def band(self, axes: Tensor) -> Tensor:
        """k² such that the source has no content at Σ_j k_j²/band_j > 1 on the `axes` (mask).

        Of shape (r, d), or one that broadcasts to it.
        """

    def top(self) -> float:
        """The largest of `band` on all axes."""
        return float(self.band(torch.ones(self.n_dims, dtype=torch.bool)).detach().max())

    def forward(self, zeta: Tensor) -> Tensor:
        """φ_r(ζ_n), shape (n, r): the source atoms themselves."""
        value = torch.ones((), dtype=torch.float64)
        for j in range(self.n_dims):
            value = value * self.profile(zeta[:, j, None].double(), *self.parameters_of(j))
        return value.to(zeta.dtype)

    def extra_repr(self) -> str:
        return f"{self.mu.shape[0]} atoms in {self.n_dims} dimensions"


class Gaussian(Atoms):
    """φ(ζ) = e^{−(ζ−μ)²/2σ²}.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Gaussian
    >>> source = Gaussian(mu=torch.zeros(1, 2, dtype=torch.float64), sigma=0.5)
    >>> source(torch.tensor([[0.0, 0.0], [0.5, 0.0]], dtype=torch.float64)).shape
    torch.Size([2, 1])
    """

    name = "gaussian"

    def profile(self, zeta: Tensor, *shape: Tensor) -> Tensor:
        mu, sigma = shape
        return torch.exp(-(((zeta - mu) / sigma) ** 2) / 2)

    def band(self, axes: Tensor) -> Tensor:
        return reach(int(axes.sum())) * torch.exp(-2 * self.log_sigma)

    def top(self) -> float:
        return reach(self.n_dims) * math.exp(-2 * self.log_sigma.detach().min().item())

    def breaks(self, j: int) -> list[float]:
        return _bump(*self.parameters_of(j))


class Gabor(Atoms):
    """φ(ζ) = e^{−(ζ−μ)²/2σ²} cos(ω(ζ−μ) + θ); `omega` and `theta` broadcast to (r, d).

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Gabor
    >>> source = Gabor(mu=torch.zeros(1, 2, dtype=torch.float64), sigma=0.5, omega=2.0)
    >>> source(torch.tensor([[0.0, 0.0], [0.5, 0.0]], dtype=torch.float64)).shape
    torch.Size([2, 1])
    """

    name = "gabor"
    omega: Tensor
    theta: Tensor
    shapes = ("mu", "sigma", "omega", "theta")

    def __init__(
        self,
        mu: Tensor,
        sigma: Tensor | float = 1.0,
        omega: Tensor | float = 1.0,
        theta: Tensor | float = 0.0,
        *,
        learn: bool = False,
    ):
        super().__init__(mu, sigma, learn=learn)
        for name, value in (("omega", omega), ("theta", theta)):
            value = self._shape_parameter(name, value)
            if not bool(value.isfinite().all()):
                raise ValueError(f"`{name}` must be finite.")
            self._keep(name, value.expand(self.mu.shape), learn)

    def profile(self, zeta: Tensor, *shape: Tensor) -> Tensor:
        mu, sigma, omega, theta = shape
        return torch.exp(-(((zeta - mu) / sigma) ** 2) / 2) * torch.cos(omega * (zeta - mu) + theta)

    def band(self, axes: Tensor) -> Tensor:
        # a Gaussian's band around the wave vector ω: in widths, |k| ≤ √q + ‖σω‖
        wave = (self.omega * self.sigma * axes).norm(dim=1, keepdim=True)  # (r, 1)
        return (math.sqrt(reach(int(axes.sum()))) + wave) ** 2 / self.sigma**2

    def breaks(self, j: int) -> list[float]:
        return _bump(*self.parameters_of(j)[:2])


class GaussHermite(Atoms):
    """φ(ζ) = He_n((ζ−μ)/σ) e^{−(ζ−μ)²/2σ²}: derivatives of Gaussians, so L of a Gaussian is a source.

    `order` holds n and broadcasts to (r, d); order 0 is the Gaussian, order 2 minus the Mexican hat.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import GaussHermite
    >>> source = GaussHermite(mu=torch.zeros(1, 2, dtype=torch.float64), sigma=0.5, order=1)
    >>> source(torch.tensor([[0.0, 0.0], [0.5, 0.0]], dtype=torch.float64)).shape
    torch.Size([2, 1])
    """

    name = "gauss_hermite"
    order: Tensor
    shapes = ("mu", "sigma", "order")

    def __init__(
        self,
        mu: Tensor,
        sigma: Tensor | float = 1.0,
        order: Tensor | int = 0,
        *,
        learn: bool = False,
    ):
        super().__init__(mu, sigma, learn=learn)
        value = self._shape_parameter("order", order)
        if not bool(((value >= 0) & (value == value.round())).all()):
            raise ValueError(f"`order` must hold whole numbers from 0 on, got {value.tolist()}.")
        self.register_buffer("order", value.long().expand(self.mu.shape))

    def profile(self, zeta: Tensor, *shape: Tensor) -> Tensor:
        mu, sigma, order = shape
        t = (zeta - mu) / sigma
        return hermite_polynomial(t, order) * torch.exp(-(t**2) / 2)

    def band(self, axes: Tensor) -> Tensor:
        # k^{2n} e^{−σ²k²} is the density of a χ² of 2n + 1 degrees of freedom
        return reach(int(((2 * self.order + 1) * axes).sum(1).max())) / self.sigma**2

    def breaks(self, j: int) -> list[float]:
        return _bump(*self.parameters_of(j)[:2])


class MexicanHat(Atoms):
    """φ(ζ) = (1 − (ζ−μ)²/σ²) e^{−(ζ−μ)²/2σ²}.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import MexicanHat
    >>> source = MexicanHat(mu=torch.zeros(1, 2, dtype=torch.float64), sigma=0.5)
    >>> source(torch.tensor([[0.0, 0.0], [0.5, 0.0]], dtype=torch.float64)).shape
    torch.Size([2, 1])
    """

    name = "mexican_hat"

    def profile(self, zeta: Tensor, *shape: Tensor) -> Tensor:
        mu, sigma = shape
        t2 = ((zeta - mu) / sigma) ** 2
        return (1 - t2) * torch.exp(-t2 / 2)

    def band(self, axes: Tensor) -> Tensor:
        return reach(5 * int(axes.sum())) / self.sigma**2  # two derivatives on each axis

    def breaks(self, j: int) -> list[float]:
        return _bump(*self.parameters_of(j))


class Point(Atoms):
    """φ(ζ) = δ(ζ−μ): the response is the Green's function itself.

    A point has content at every wavelength, so the exponential sum is cut at `resolution`, the distance
    below which the singularity may be smoothed. Prefer atoms of finite width where there is a choice.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Heat, Point
    >>> origin = Point(mu=torch.zeros(1, 1, dtype=torch.float64))
    >>> place = torch.zeros(1, 1, dtype=torch.float64)
    >>> round(Heat(time=0.5).response(place, origin).item(), 4)  # (4πt)^{−1/2}
    0.3989
    >>> Point.trusted(origin.mu).n_dims  # the same, without a look at whether it is finite
    1
    """

    name = "point"
    shapes = ("mu",)

    def __init__(self, mu: Tensor, resolution: float = 1e-2, *, learn: bool = False):
        super().__init__(mu, resolution, learn=learn)
        self.log_sigma.requires_grad_(False)

    @classmethod
    def trusted(cls, mu: Tensor) -> "Point":
        """At places (r, d) that are known to be good: looking at them takes as long as a response."""
        point = cls.__new__(cls)
        nn.Module.__init__(point)
        point.register_buffer("mu", mu)
        point.register_buffer("log_sigma", mu.new_tensor(1e-2).log())
        return point

    def profile(self, zeta: Tensor, *shape: Tensor) -> Tensor:
        raise ValueError("a point source has no values; evaluate its response instead.")

    def band(self, axes: Tensor) -> Tensor:
        return 1 / self.sigma**2


class Box(Atoms):
    """φ(ζ) = 1 for |ζ−μ| ≤ σ, else 0; `sigma` is the half width.

    The jump has content at every wavelength; the sum is cut at k σ = 100, for an error below 1e-6.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Box
    >>> source = Box(mu=torch.zeros(1, 2, dtype=torch.float64), sigma=0.5)
    >>> source(torch.tensor([[0.0, 0.0], [0.5, 0.0]], dtype=torch.float64)).shape
    torch.Size([2, 1])
    """

    name = "box"

    def profile(self, zeta: Tensor, *shape: Tensor) -> Tensor:
        mu, sigma = shape
        return ((zeta - mu).abs() <= sigma).double()

    def breaks(self, j: int) -> list[float]:
        mu, sigma = (v.detach() for v in self.parameters_of(j))
        return [*(mu - sigma).tolist(), *(mu + sigma).tolist()]

    def band(self, axes: Tensor) -> Tensor:
        return 1e4 / self.sigma**2


class Hat(Atoms):
    """φ(ζ) = max(0, 1 − |ζ−μ|/σ); `sigma` is the half width.

    The kinks have content at every wavelength; the sum is cut at k σ = 100, for an error below 1e-6.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Hat
    >>> source = Hat(mu=torch.zeros(1, 2, dtype=torch.float64), sigma=0.5)
    >>> source(torch.tensor([[0.0, 0.0], [0.5, 0.0]], dtype=torch.float64)).shape
    torch.Size([2, 1])
    """

    name = "hat"

    def profile(self, zeta: Tensor, *shape: Tensor) -> Tensor:
        mu, sigma = shape
        return (1 - (zeta - mu).abs() / sigma).clamp_min(0)

    def breaks(self, j: int) -> list[float]:
        mu, sigma = (v.detach() for v in self.parameters_of(j))
        return [*(mu - sigma).tolist(), *mu.tolist(), *(mu + sigma).tolist()]

    def band(self, axes: Tensor) -> Tensor:
        return 1e4 / self.sigma**2


ATOMS: dict[str, type[Atoms]] = {
    cls.name: cls for cls in (Gaussian, Gabor, GaussHermite, MexicanHat, Point, Box, Hat)
}

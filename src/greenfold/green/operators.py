"""The other operators, and all of them by name."""

import math
from collections.abc import Sequence
from typing import Any

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
    opened,
    per_axis,
    positive,
)
from greenfold.green.diffusion import Fractional, Heat, Matern, Poisson, ScreenedPoisson
from greenfold.green.expsum import around, check_power, tables
from greenfold.green.forms import Form, Laplace, Radial
from greenfold.green.integrals import EXPONENTIAL
from greenfold.green.matrix import enough, exp_radial, square_distances, sum_of_products
from greenfold.green.null_space import Polynomial
from greenfold.green.pointwise import Anova, Exponential
from greenfold.green.quick import BITS, Blocks, city, rational


class HarmonicOscillator(MixtureOperator):
    """(Σ_j D_j(−∂_j² + ω_j²ξ_j²))^s: localized objects around the origin, decay e^{−ω|ξ|²/2}.

    Its eigenfunctions are Hermite functions and its spectrum starts at Σ_j D_j ω_j (Mehler's kernel).

    Parameters
    ----------
    omega : float or Tensor of shape (d,)
        ω_j.
    power : float
        s.
    diffusivity : float or Tensor of shape (d,)
        D_j.
    n_terms : int
        Of the exponential sum.
    learn : bool
        Learn ω and D.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Gaussian, HarmonicOscillator
    >>> source = Gaussian(mu=torch.zeros(1, 2, dtype=torch.float64), sigma=0.5)
    >>> places = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    >>> HarmonicOscillator(2.0).response(places, source).shape
    torch.Size([2, 1])
    """

    omega = Positive()
    diffusivity = Positive()

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
        positive(self, "omega", omega, learn)
        positive(self, "diffusivity", diffusivity, learn)
        self.power = check_power(power)
        self.n_terms = n_terms

    def mixture(self, atoms: Atoms, gate: Tensor | None) -> Mixture:
        d = atoms.n_dims
        omega = per_axis(self.omega, d, "omega")
        D = per_axis(self.diffusivity, d, "diffusivity")
        is_open = open_axes(gate, d)
        weight = is_open.double() if gate is None or not bool((gate > 0).any()) else gate
        low = (D * omega * weight).sum()
        with torch.no_grad():  # a source atom in phase space: k² + ω²ξ² inside a Gaussian's reach
            band = atoms.band(is_open).double() * is_open  # (r, d)
            stiffness = D.sqrt() * omega * is_open
            center = (stiffness * atoms.mu.double()).norm(dim=1)  # (r,)
            spread = (stiffness * band.sqrt() * atoms.sigma.double() ** 2).amax(1)
            high = low + (D * band).max() + ((center + spread) ** 2).max()
        a, log_gamma = inverse_power(low, high, self.power, self.n_terms)
        t = 2 * omega * D * a[:, None]  # (k, d)
        tanh, log_cosh = t.tanh(), t - math.log(2) + torch.log1p(torch.exp(-2 * t))
        zero = torch.zeros_like(t)
        return Mixture(
            log_gamma, torch.exp(-log_cosh), zero, tanh / omega, omega * tanh, -log_cosh / 2
        )

    def described(self, atoms: Atoms, terms: bool = False) -> list[dict[str, Any]]:
        if (self.power, self.n_terms) not in tables():
            raise NoForm(f"no table of exponential sums for the power {self.power:g}")
        D = self.diffusivity.expand(atoms.n_dims).tolist()
        numbers = {"diffusivity": D, "power": self.power, "n_terms": self.n_terms}
        sums = around(self.n_terms, 2.0, self.power)  # all that are tabulated
        return self._part("oscillator", "omega", atoms, **numbers, **sums)


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
    diffusivity : float or Tensor of shape (d,)
        D_j.
    n_terms : int
        Of the sum of Gaussians.
    learn : bool
        Learn ℓ and D.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Gaussian, Cauchy
    >>> source = Gaussian(mu=torch.zeros(1, 2, dtype=torch.float64), sigma=0.5)
    >>> places = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    >>> Cauchy(0.5).response(places, source).shape
    torch.Size([2, 1])
    >>> low, high = Cauchy(0.5).spectrum(source, None)
    >>> float(low)
    1.0
    """

    length = Positive()
    diffusivity = Positive()

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
        positive(self, "length", length, learn, per_axis=False)
        positive(self, "diffusivity", diffusivity, learn)
        self.beta = check_power(beta, "beta")
        self.extent = check_extent(extent)
        self.n_terms = n_terms

    def mixture(self, atoms: Atoms, gate: Tensor | None) -> Mixture:
        D = per_axis(self.diffusivity, atoms.n_dims, "diffusivity")
        a, log_gamma = inverse_power(*self.spectrum(atoms, gate), self.beta, self.n_terms)
        V = self.beta * self.length**2 / a[:, None] * D  # e^{−a|δ|²/2βℓ²} = e^{−δ²/2V}
        zero = torch.zeros_like(V)
        height = 0.5 * (2 * math.pi * V).log()
        return Mixture(log_gamma - a, torch.ones_like(V), zero, V, zero, height)

    def spectrum(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        """What 1 + |δ|²/2βℓ² ranges over."""
        D = per_axis(self.diffusivity, atoms.n_dims, "diffusivity")
        nearest = D[open_axes(gate, atoms.n_dims)].min()
        farthest = extent2(self.extent, atoms, gate) / nearest / self.length**2
        return torch.ones((), dtype=torch.float64), 1 + farthest / (2 * self.beta)

    def forms(self, atoms: Atoms, gate: Tensor | None = None, terms: bool = False) -> list[Form]:
        if terms or not isinstance(atoms, Point):
            return super().forms(atoms, gate, terms)
        D = per_axis(self.diffusivity, atoms.n_dims, "diffusivity")
        scale = (opened(gate, atoms.n_dims) / D).sqrt() / self.length
        return [Radial(atoms.mu, scale, self.beta)]

    def described(self, atoms: Atoms, terms: bool = False) -> list[dict[str, Any]]:
        radial = isinstance(atoms, Point) and not terms
        low, high = self.spectrum(atoms, None)
        numbers = {
            "diffusivity": self.diffusivity.expand(atoms.n_dims).tolist(), "radial": radial,
            "extent": self.extent, "power": self.beta, "n_terms": self.n_terms,
        }  # fmt: skip
        sums = {} if radial else around(self.n_terms, float(high / low), self.beta)
        return self._part("cauchy", "length", atoms, **numbers, **sums)

    def _response(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor:
        if not isinstance(atoms, Point):
            return super()._response(xi, atoms, gate)
        D = per_axis(self.diffusivity, atoms.n_dims, "diffusivity")  # the kernel itself
        scale = (torch.ones_like(D) if gate is None else gate) / (D * self.length**2)
        r2 = square_distances(xi, atoms.mu, scale)
        return r2.div(2 * self.beta).add_(1).pow(-self.beta).to(xi.dtype)

    def _blocks(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Blocks | None:
        if not isinstance(atoms, Point):
            return super()._blocks(xi, atoms, gate)
        D = per_axis(self.diffusivity, atoms.n_dims, "diffusivity")
        scale = (opened(gate, atoms.n_dims) / D).sqrt() / self.length
        dtype = enough(xi, atoms.mu, scale)
        return rational(xi * scale, atoms.mu * scale, dtype, self.beta)


class ProductScreened(Operator):
    """Π_j(κ_j² − ∂_j²): its Green's function is exactly Π_j e^{−κ_j|δ_j|}/2κ_j, a single term.

    The one operator whose Green's function is a product of one-dimensional ones. It measures dominating
    mixed smoothness; under `Point` atoms Φ is the product Laplace kernel.

    Parameters
    ----------
    kappa : float or Tensor of shape (d,)
        κ_j.
    learn : bool
        Learn them.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Gaussian, ProductScreened
    >>> source = Gaussian(mu=torch.zeros(1, 2, dtype=torch.float64), sigma=0.5)
    >>> places = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    >>> ProductScreened(2.0).response(places, source).shape
    torch.Size([2, 1])
    """

    rough = True
    kappa = Positive()

    def __init__(self, kappa: Tensor | float = 1.0, *, learn: bool = False):
        super().__init__()
        positive(self, "kappa", kappa, learn)

    def refuses(self, kind: type) -> str:
        reason = super().refuses(kind)
        return reason or no_closed_form(EXPONENTIAL, kind, "the exponential kernel")

    def forms(self, atoms: Atoms, gate: Tensor | None = None, terms: bool = False) -> list[Form]:
        if not isinstance(atoms, Point):
            return super().forms(atoms, gate, terms)
        kappa, g = per_axis(self.kappa, atoms.n_dims, "kappa"), opened(gate, atoms.n_dims)
        return [Laplace(atoms.mu, kappa * g, torch.exp(-(g * (2 * kappa).log()).sum()))]

    def described(self, atoms: Atoms, terms: bool = False) -> list[dict[str, Any]]:
        if not isinstance(atoms, Point):
            raise NoForm("ProductScreened with sources of finite width is not evaluated here")
        return self._part("product", "kappa", atoms)

    def _response(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor:
        kappa = per_axis(self.kappa, atoms.n_dims, "kappa")
        integral = EXPONENTIAL[atoms.name]
        if isinstance(atoms, Point):  # log I is a weighted L1 distance
            weight = torch.ones_like(kappa) if gate is None else gate
            scale = (kappa * weight).to(xi.dtype)
            a, b = xi * scale, atoms.mu.to(xi.dtype) * scale
            level = (weight * (2 * kappa).log()).sum()
            return torch.exp(-torch.cdist(a, b, p=1.0) - level.to(xi.dtype))

        def factor(x: Tensor, j: int) -> Tensor:  # (n,) → (n, 1, r)
            value = integral(x[:, None, None], kappa[j], *atoms.parameters_of(j))
            return fade(value, gate, j)

        one = torch.ones(1, dtype=torch.float64)
        return sum_of_products(xi, factor, one, len(atoms.mu))

    def _blocks(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Blocks | None:
        if not isinstance(atoms, Point):
            return None
        kappa, weight = per_axis(self.kappa, atoms.n_dims, "kappa"), opened(gate, atoms.n_dims)
        scale, factor = BITS * kappa * weight, (-weight * (2 * kappa).log()).sum().exp()
        return city(xi * scale, atoms.mu * scale, xi.dtype, fade=True, factor=float(factor))


class Superposition(Operator):
    """A sum of inverses, u = Σ_m γ_m (G_m * f): not the inverse of a sum of operators.

    Parameters
    ----------
    operators : sequence of Operator
    gamma : sequence of float, optional
        Weights, equal when omitted; an `nn.Parameter`, learned when `learn` is set.
    shares : bool
        Weights stay positive and sum to one as they are learned: the parameter holds their logarithms.
    axes : sequence, optional
        The axes that each member acts on, as a list of their numbers, or None for all. A member is
        constant along the others, as if their gates were closed to it.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Gaussian, Superposition
    >>> source = Gaussian(mu=torch.zeros(1, 2, dtype=torch.float64), sigma=0.5)
    >>> places = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    >>> Superposition(["heat", "screened_poisson"]).response(places, source).shape
    torch.Size([2, 1])
    >>> [type(L).__name__ for L in Superposition(["heat", "screened_poisson"]).members()]
    ['Heat', 'ScreenedPoisson']
    >>> Superposition(["heat", "screened_poisson"]).gate_of(0, 2, None) is None  # all is open to it
    True
    """

    axes: list[list[int] | None] | None = None  # in files from before there were any
    shares = False  # likewise

    @property
    def label(self) -> str:
        names = dict.fromkeys(member.label.removesuffix(" kernel") for member in self.members())
        return f"{' and '.join(names)} kernel"

    def __init__(
        self,
        operators: Sequence[Operator | str],
        gamma: Sequence[float] | Tensor | None = None,
        *,
        axes: Sequence[Sequence[int] | None] | None = None,
        shares: bool = False,
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
        if shares and not (bool((value > 0).all()) and math.isclose(float(value.sum()), 1.0)):
            raise ValueError(f"`gamma` must be positive and sum to one as shares, got {gamma}.")
        self.shares = shares
        self.gamma = nn.Parameter(value.log() if shares else value.clone(), requires_grad=learn)
        if axes is not None and len(axes) != n:
            raise ValueError(
                f"`axes` must have a list or None for each of {n} operators, got {axes}."
            )
        self.axes = None if axes is None else [None if own is None else list(own) for own in axes]
        for member, own in zip(self.members(), self.axes or []):
            if own is not None and member.null_space() is not None:
                raise ValueError(
                    f"{type(member).__name__} has a null space on all axes: leave its `axes` at None."
                )

    @property
    def weights(self) -> Tensor:
        """γ (m,)."""
        return self.gamma.softmax(0) if self.shares else self.gamma

    def members(self) -> list[Operator]:
        return list(self.operators)  # type: ignore[arg-type]

    def refuses(self, kind: type) -> str:
        return next(filter(None, (member.refuses(kind) for member in self.members())), "")

    def _response(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor:
        balls = self._balls(atoms, gate)
        if balls is not None:
            precision, log_weight, gamma = balls
            return exp_radial(xi, atoms.mu, precision, log_weight, gate, gamma)
        Phi = xi.new_zeros(())
        for m, (gamma, member) in enumerate(zip(self.weights, self.members(), strict=True)):
            own = self.gate_of(m, atoms.n_dims, gate)
            Phi = Phi + gamma.to(xi.dtype) * member._at(xi, atoms, own)
        return Phi

    def _balls(self, atoms: Atoms, gate: Tensor | None) -> list[Tensor] | None:
        """Precisions, log weights and weights (k,) of all terms, if they can share their distances."""
        if self.axes is not None:
            return None
        found = []
        for member in self.members():
            ball = member.radial(atoms, gate)
            if ball is None:
                return None
            found.append(ball)
        gamma, counts = self.weights, [len(precision) for precision, _ in found]
        if max(counts) > 1:
            gamma = gamma.repeat_interleave(torch.tensor(counts, device=gamma.device))
        return [*(torch.cat(parts) for parts in zip(*found, strict=True)), gamma]

    def _summed(self, xi: Tensor, atoms: Atoms, gate: Tensor | None, w: Tensor) -> Tensor:
        u = torch.zeros(len(xi), w.shape[1], dtype=torch.float64)
        for m, (gamma, member) in enumerate(zip(self.weights, self.members(), strict=True)):
            own = self.gate_of(m, atoms.n_dims, gate)
            u = u + gamma * member._summed(xi, atoms, own, w)
        return u

    def forms(self, atoms: Atoms, gate: Tensor | None = None, terms: bool = False) -> list[Form]:
        found = []
        for m, (gamma, member) in enumerate(
            zip(self.weights.tolist(), self.members(), strict=True)
        ):
            for form in member.forms(atoms, self.gate_of(m, atoms.n_dims, gate), terms):
                form.weight *= gamma
                found.append(form)
        return found

    def described(self, atoms: Atoms, terms: bool = False) -> list[dict[str, Any]]:
        found = []
        for m, (gamma, member) in enumerate(
            zip(self.weights.tolist(), self.members(), strict=True)
        ):
            own = opened(self.gate_of(m, atoms.n_dims, None), atoms.n_dims).tolist()
            for part in member.described(atoms, terms):
                part["axes"] = [min(pair) for pair in zip(own, part["axes"], strict=True)]
                part["weight"] *= gamma
                found.append(part)
        return found

    def rise(self, xi: Tensor, gate: Tensor | None = None, sources: Atoms | None = None) -> Tensor:
        parts = [
            gamma * member.rise(xi, self.gate_of(m, xi.shape[1], gate), sources)
            for m, (gamma, member) in enumerate(zip(self.weights, self.members(), strict=True))
        ]
        return torch.stack(parts).sum(0)

    def gate_of(self, m: int, d: int, gate: Tensor | None) -> Tensor | None:
        """What is open (d,) to the member of number m."""
        own = None if self.axes is None else self.axes[m]
        if own is None:
            return gate
        if max(own, default=0) >= d:
            raise ValueError(
                f"`axes` names axis {max(own)}, but the chart has {d}, counted from 0."
            )
        mask = torch.zeros(d, dtype=torch.float64)
        mask[own] = 1.0
        return mask if gate is None else mask * gate

    def null_space(self, gate: Tensor | None = None) -> Polynomial | None:
        """The monomials of all members, and the quadratic column of each that has one."""
        spaces = [
            s for s in (member.null_space(gate) for member in self.members()) if s is not None
        ]
        if not spaces:
            return None
        widest = max(spaces, key=lambda space: space.degree)
        squares = [space.diffusivity.detach() for space in spaces if space.squared]
        if not squares:
            return widest
        d = max([len(D) for D in squares if D.ndim] or [1])
        rows = torch.unique(torch.stack([D.expand(d) for D in squares]), dim=0)
        return Polynomial(widest.degree, squared=True, diffusivity=rows, axes=widest.axes)


def operator(name: str | Operator, **parameters: Any) -> Operator:
    """An operator by its name in `OPERATORS`; an `Operator` is returned as it is.

    Parameters
    ----------
    name : str or Operator
        Which.
    parameters
        Of its class.

    Returns
    -------
    Operator

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
    "exponential": Exponential,
    "anova": Anova,
}

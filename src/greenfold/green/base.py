"""What an operator is, and the mixtures of Gaussian kernels most of them are inverted through.

For L = L_1 + … + L_d with L_j acting on coordinate j only, e^{−aL} = Π_j e^{−aL_j}, hence::

    L^{-s} φ_r ≈ Σ_k γ_k Π_j [e^{−a_k L_j} φ_rj](ξ_j)

with x^{-s} ≈ Σ_k γ_k e^{−a_k x} on the part of the spectrum where the source lives.
"""

import math
import warnings
from abc import ABC, abstractmethod
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from greenfold.design import all_finite, widest
from greenfold.green import fused
from greenfold.green.atoms import Atoms, Gaussian, Point
from greenfold.green.expsum import best_sum, tabulated_ratio
from greenfold.green.forms import Form, Gaussians
from greenfold.green.forms import NoForm as NoForm
from greenfold.green.integrals import GAUSSIAN, Integral
from greenfold.green.matrix import BLOCK, exp_quadratic, exp_radial, radial_blocks, sum_of_products
from greenfold.green.null_space import Polynomial
from greenfold.green.quick import OFF, Blocks

# Is this a step of training? Then only what remains is warned of.
trying = ContextVar("trying", default=False)


class Operator(nn.Module, ABC):
    """A linear operator on the chart, known by how it spreads sources.

    A gate g_j ∈ [0, 1] fades axis j out: g_j = 1 is exactly the integral I_krj, g_j = 0 exactly 1, as
    if operator and source had no such axis. In between it is I^g for factors whose logarithm is known,
    1 + g(I − 1) for factors that change sign.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Operator, Point
    >>> class Tent(Operator):  # an operator of your own: its response to points
    ...     accepts = (Point,)
    ...
    ...     def _response(self, xi, atoms, gate):
    ...         return (1 - torch.cdist(xi, atoms.mu)).clamp_min(0)
    >>> origin = Point(torch.zeros(1, 1, dtype=torch.float64))
    >>> Tent().response(torch.tensor([[0.25]], dtype=torch.float64), origin)
    tensor([[0.7500]], dtype=torch.float64)

    What every operator can be asked, of the one that is in use most:

    >>> from greenfold.green import Gaussian, Heat
    >>> L, places = Heat(), torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    >>> source, w = Gaussian(torch.zeros(3, 2).double(), 0.5), torch.ones(3, 1).double()
    >>> bool(torch.allclose(L.spread(places, source, None, w), L.response(places, source) @ w))
    True
    >>> L.terms(places, source).shape, L.count_terms(2)  # (k, n, r), and k
    (torch.Size([1, 2, 3]), 1)
    >>> L.n_gates(2), L.by_column(torch.ones(2)).tolist(), L.origin(2).tolist()
    (2, [1.0, 1.0], [0.0, 0.0])
    >>> L.refuses(Gaussian), L.null_space()  # it takes these sources, and leaves nothing out
    ('', None)
    >>> L.rise(places).tolist(), L.resolution(places)
    ([0.0, 0.0], 0.01)
    >>> precision, log_weight = L.radial(source, None)  # Φ = Σ_k e^{log_weight_k − precision_k r²}
    >>> [part["kind"] for part in L.described(source)], len(L.forms(source))
    (['heat'], 1)
    """

    accepts: tuple[type, ...] = (Atoms,)
    has_terms = False  # that could be weighed one by one
    smooth = False  # are all derivatives of its response to a point small?
    n_shares = 0  # numbers it has beside scales
    rough = False  # does it take many sources to express more than their places?
    rooted = False  # are columns places as they are, which nothing may shift, scale or average?

    def __init_subclass__(cls, **options: Any) -> None:
        """What changes the response describes itself anew, or not at all."""
        super().__init_subclass__(**options)
        own = vars(cls)
        for name in {"forms", "_blocks", "_summed"} - set(own) if "_response" in own else ():
            setattr(cls, name, getattr(Operator, name))
        if {"_response", "mixture", "times"} & set(own) and "described" not in own:
            cls.described = Operator.described  # type: ignore[method-assign]

    def rise(self, xi: Tensor, gate: Tensor | None = None, sources: Atoms | None = None) -> Tensor:
        """How much more a source responds at its own place ξ than at the origin (n,): 0 for most.

        Of the width of `sources`, or a point.
        """
        return xi.new_zeros(len(xi))

    def n_gates(self, d: int) -> int:
        """Gates of d columns: one for each, unless several are one axis."""
        return d

    def by_column(self, gate: Tensor) -> Tensor:
        """The gate of every column (d,)."""
        return gate

    def resolution(self, xi: Tensor) -> Tensor | float:
        """What may be smoothed of points at rows (n, d)."""
        return 1e-2

    def origin(self, d: int) -> Tensor:
        """A place (d,) where a source may be."""
        return torch.zeros(d, dtype=torch.float64)

    @property
    def label(self) -> str:
        return f"{type(self).__name__} kernel"

    @property
    def box(self) -> Tensor | None:
        """Lower and upper ends (2, d) of where it is defined, if not everywhere."""
        return None

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

        Returns
        -------
        Tensor of shape (n, r)
        """
        gate = self._check(xi, atoms, gate)
        return self._at(xi, atoms, gate)

    def _at(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor:
        """`response` for arguments known to be good: by blocks, if there are any."""
        quick = xi.dtype in OFF and not torch.is_grad_enabled()
        blocks = self._blocks(xi, atoms, gate) if quick else None
        if blocks is None:
            return self._response(xi, atoms, gate)
        return blocks.whole().to(xi.dtype)

    def _blocks(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Blocks | None:
        """The same where nothing asks for slopes, made block by block."""
        return None

    @abstractmethod
    def _response(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor:
        """`response` for arguments known to be good; `gate` is float64 or None."""

    def radial(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """Precisions and log weights (k,) for `exp_radial`, where the response is that sum."""
        return None

    def spread(self, xi: Tensor, atoms: Atoms, gate: Tensor | None, w: Tensor) -> Tensor:
        """Φ w (n, c) in float64 of strengths w (r, c): Φ is not kept, and has no slopes."""
        with torch.no_grad():
            return self._summed(xi, atoms, self._check(xi, atoms, gate), w)

    def _summed(self, xi: Tensor, atoms: Atoms, gate: Tensor | None, w: Tensor) -> Tensor:
        """`spread` for arguments known to be good."""
        blocks = self._blocks(xi, atoms, gate) if xi.dtype in OFF else None
        if blocks is not None:
            return blocks.times(w)
        rows = max(1, BLOCK // max(len(atoms.mu), 1))
        parts = [self._response(x, atoms, gate).to(w) @ w for x in xi.split(rows)]
        return torch.cat(parts).to(widest(w.device))

    def forms(self, atoms: Atoms, gate: Tensor | None = None, terms: bool = False) -> list[Form]:
        """The response as columns that need no operator any more: see `Form`.

        With `terms` those of an exponential sum, even where the sum is known. Raises `NoForm`.
        """
        raise NoForm(
            f"{type(self).__name__} with {type(atoms).__name__} atoms has no graph to export yet: "
            "free space with Gaussian or point sources has one."
        )

    def described(self, atoms: Atoms, terms: bool = False) -> list[dict[str, Any]]:
        """Numbers for green.js, which has the response from them for any gate and any factor on a scale.

        With `terms` those of an exponential sum, even where the sum is known. Raises `NoForm`.
        """
        raise NoForm(f"the operator {type(self).__name__} is not evaluated in the page")

    def _part(self, kind: str, scale: str, atoms: Atoms, **numbers: Any) -> list[dict[str, Any]]:
        """A description: of a kind that green.js has, with the parameter that is its scale."""
        d = atoms.n_dims
        part = {
            "kind": kind, "name": type(self).__name__, "scale": scale, "weight": 1.0, "axes": [1.0] * d,
            "value": getattr(self, scale).expand(d).tolist(), "reach": 4.0,
        }  # fmt: skip
        return [part | numbers]

    def count_terms(self, n_dims: int) -> int:
        """K of its exponential sum."""
        return 1

    def terms(self, xi: Tensor, atoms: Atoms, gate: Tensor | None = None) -> Tensor:
        """The response term by term, γ_k Π_j I_krj, shape (k, n, r): sums to `response` over k."""
        raise ValueError(f"{type(self).__name__} has no terms to weigh.")

    def null_space(self, gate: Tensor | None = None) -> Polynomial | None:
        """Columns to fit beside the response, or None for an operator with a spectral gap."""
        return None

    def refuses(self, kind: type) -> str:
        """Why its response to sources of this kind is not known; empty if it is."""
        if issubclass(kind, self.accepts):
            return ""
        names = " or ".join(accepted.__name__ for accepted in self.accepts)
        example = "Gaussian(mu, sigma)" if issubclass(Gaussian, self.accepts) else "Point(mu)"
        return f"sources must be {names}, such as {example}, got {kind.__name__}."

    def _check(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor | None:
        if not isinstance(xi, Tensor) or not xi.is_floating_point() or xi.ndim != 2:
            got = f"{xi.dtype} of shape {tuple(xi.shape)}" if isinstance(xi, Tensor) else type(xi)
            raise ValueError(f"`xi` must be a floating-point tensor of shape (n, d), got {got}.")
        reason = self.refuses(type(atoms))
        if reason:
            raise ValueError(reason)
        if xi.shape[1] != atoms.n_dims:
            raise ValueError(
                f"`xi` has {xi.shape[1]} coordinates but the atoms live in {atoms.n_dims}. "
                f"Build the atoms with `mu` of shape (r, {xi.shape[1]})."
            )
        if not all_finite(xi):
            bad = int((~xi.isfinite()).any(1).sum())
            raise ValueError(
                f"`xi` must be finite, got NaN or infinity in {bad} of {len(xi)} rows. "
                "Check the inputs, or the encoder that made these coordinates."
            )
        if gate is None:
            return None
        gate, n_gates = torch.as_tensor(gate), self.n_gates(atoms.n_dims)
        values = gate.tolist()  # few, for which a tensor's operations take longer
        if values == [1.0] * n_gates and not gate.requires_grad:
            return None
        if gate.shape != (n_gates,) or not all(0 <= value <= 1 for value in values):
            raise ValueError(
                f"`gate` must have shape ({n_gates},) with values in [0, 1], got shape "
                f"{tuple(gate.shape)} with values {values}."
            )
        return gate.to(widest(xi.device))


def no_closed_form(table: dict[str, Integral], kind: type[Atoms], kernel: str) -> str:
    """Why `table` has no integral of such atoms; empty if it has."""
    if kind.name in table:
        return ""
    return (
        f"no closed form for {kind.__name__} atoms under {kernel}. Use atoms from {sorted(table)}, or "
        "the `Spectral` form, which projects any atom on eigenfunctions."
    )


class Positive:
    """A parameter that `positive` keeps as its logarithm: κ of `log_kappa`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.log_name = f"log_{name}"

    def __get__(self, module: Any, owner: type) -> Tensor:
        value: Tensor = getattr(module, self.log_name)
        return value.exp()


def positive(
    module: nn.Module, name: str, value: Tensor | float, learn: bool, per_axis: bool = True
) -> None:
    """Set a `Positive`."""
    value = torch.as_tensor(value, dtype=torch.float64)
    if value.ndim > per_axis or not bool((value.isfinite() & (value > 0)).all()):
        shape = "a number or one per axis" if per_axis else "a number"
        raise ValueError(f"`{name}` must be positive and finite, {shape}, got {value.tolist()}.")
    setattr(module, f"log_{name}", nn.Parameter(value.log(), requires_grad=learn))


def check_extent(extent: float) -> float:
    if not (math.isfinite(extent) and extent > 0):
        raise ValueError(f"`extent` must be positive and finite, got {extent}.")
    return extent


def extent2(extent: float, atoms: Atoms, gate: Tensor | None) -> float:
    """Squared diameter of the region of interest, enlarged to hold all atoms."""
    spread = (atoms.mu.amax(0) - atoms.mu.amin(0)).detach()[open_axes(gate, atoms.n_dims)]
    return max(extent**2, float(spread.square().sum()))


def per_axis(value: Tensor, d: int, name: str) -> Tensor:
    if value.ndim == 1 and len(value) not in (1, d):
        raise ValueError(f"`{name}` has {len(value)} entries but the chart has {d} axes.")
    return value.expand(d)


def opened(gate: Tensor | None, d: int) -> Tensor:
    """The gate (d,), open where there is none."""
    return torch.ones(d, dtype=torch.float64) if gate is None else gate


def open_axes(gate: Tensor | None, d: int) -> Tensor:
    """Mask (d,) of the axes that take part; with all closed, where only constants remain, all."""
    if gate is None or not bool((gate > 0).any()):
        return torch.ones(d, dtype=torch.bool)
    return gate.detach() > 0


class Mixture(NamedTuple):
    """Kernels of one axis each: K_kj(x, z) = exp(c_kj − ½ P_kj x²) N(z; S_kj x + m_kj, V_kj)."""

    log_gamma: Tensor  # (k,)
    S: Tensor  # (k, d)
    m: Tensor
    V: Tensor
    P: Tensor
    c: Tensor


class MixtureOperator(Operator):
    """An inverse that is a mixture of Gaussian kernels: heat (free line) and Mehler semigroups.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Gaussian, Heat
    >>> one = Gaussian(torch.zeros(1, 2, dtype=torch.float64), 0.5)
    >>> Heat(time=0.5, diffusivity=[1.0, 2.0]).mixture(one, None).V  # a variance 2Dt for each axis
    tensor([[1., 2.]], dtype=torch.float64)
    >>> log_gamma, V, c = Heat(time=0.5).isotropic(one, None)  # one for all axes, of shape (k,)
    """

    has_terms = True

    @abstractmethod
    def mixture(self, atoms: Atoms, gate: Tensor | None) -> Mixture:
        """The kernels, with a range of the exponential sum that fits the atoms."""

    def refuses(self, kind: type) -> str:
        return super().refuses(kind) or no_closed_form(GAUSSIAN, kind, "a Gaussian kernel")

    def isotropic(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, ...] | None:
        """log γ, V and c (k,) of a `Mixture` with one kernel for all axes, S = 1, m = P = 0, or None."""
        return None

    def radial(self, atoms: Atoms, gate: Tensor | None) -> tuple[Tensor, Tensor] | None:
        if not isinstance(atoms, Gaussian | Point) or atoms.log_sigma.numel() != 1:
            return None
        kernels = self.isotropic(atoms, gate)
        if kernels is None:
            return None
        log_gamma, V, c = kernels
        n_open = atoms.n_dims if gate is None else gate.sum()
        if isinstance(atoms, Point):
            return 1 / V, log_gamma + n_open * (c - (2 * math.pi * V).log() / 2)
        log_sigma = atoms.log_sigma.to(V.dtype).reshape(())
        p, height = _Widened.apply(log_sigma, V)
        return p, log_gamma + n_open * (c + height)

    def _response(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor:
        one_width = isinstance(atoms, Gaussian) and atoms.log_sigma.numel() == 1
        learned = any(p is not None and p.requires_grad for p in self._parameters.values())
        if one_width and gate is None and not learned and torch.is_grad_enabled():
            kernels = self.isotropic(atoms, None)
            quick = None if kernels is None else fused.response(xi, atoms, *kernels)
            if quick is not None:
                return quick
        balls = self.radial(atoms, gate)
        if balls is not None:
            return exp_radial(xi, atoms.mu, *balls, gate)
        return self._spread(self.mixture(atoms, gate), xi, atoms, gate)

    def _blocks(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Blocks | None:
        balls = self.radial(atoms, gate)
        if balls is None or len(balls[0]) > 1:  # terms that share their distances
            return None
        return radial_blocks(xi, atoms.mu, *balls, gate)

    def terms(self, xi: Tensor, atoms: Atoms, gate: Tensor | None = None) -> Tensor:
        gate = self._check(xi, atoms, gate)
        mixture = self.mixture(atoms, gate)
        parts = (Mixture(*(v[k : k + 1] for v in mixture)) for k in range(len(mixture.log_gamma)))
        return torch.stack([self._spread(part, xi, atoms, gate) for part in parts])

    def count_terms(self, n_dims: int) -> int:
        origin = torch.zeros(1, n_dims, dtype=torch.float64)
        return len(self.mixture(Gaussian(origin, 1.0), None).log_gamma)

    def forms(self, atoms: Atoms, gate: Tensor | None = None, terms: bool = False) -> list[Form]:
        if not isinstance(atoms, Gaussian | Point):
            return super().forms(atoms, gate, terms)
        mixture = self.mixture(atoms, gate)
        faded = 1.0 if gate is None else gate
        return [Gaussians(mixture.log_gamma, *(v * faded for v in _quadratic(mixture, atoms)))]

    def _spread(self, mixture: Mixture, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor:
        """Σ_k γ_k Π_j I_krj(ξ_nj), shape (n, r)."""
        if isinstance(atoms, Gaussian | Point):
            A, B, C = _quadratic(mixture, atoms)
            if gate is not None:  # log I → g log I
                A, B, C = A * gate, B * gate, C * gate
            return exp_quadratic(xi, A, B, C, mixture.log_gamma)
        integral = GAUSSIAN[atoms.name]

        def factor(x: Tensor, j: int) -> Tensor:  # (n,) → (n, k, r)
            x = x[:, None, None]
            S, m, V, P, c = (v[:, j, None] for v in mixture[1:])  # (k, 1)
            value = torch.exp(c - P * x**2 / 2) * integral(S * x + m, V, *atoms.parameters_of(j))
            return fade(value, gate, j)

        return sum_of_products(xi, factor, mixture.log_gamma.exp(), len(atoms.mu))


class _Widened(torch.autograd.Function):
    """(log σ, V (k,)) → p = 1/(σ² + V) and h = log σ + ½ log p, of a Gaussian that kernels widen.

    ∂p/∂log σ = −2σ²p², ∂p/∂V = −p², ∂h/∂log σ = 1 − σ²p, ∂h/∂V = −½p: few numbers, so that every step of
    autograd would cost more than its arithmetic.
    """

    @staticmethod
    def forward(ctx: Any, log_sigma: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
        p = (torch.exp(2 * log_sigma) + V).reciprocal_()
        ctx.save_for_backward(log_sigma, p)
        return p, torch.add(log_sigma, p.log(), alpha=0.5)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, Tensor | None]:
        p_bar, h_bar = grad
        log_sigma, p = ctx.saved_tensors
        share = torch.exp(2 * log_sigma) * p  # of σ² in σ² + V
        slope = p_bar * p
        sigma_bar = (h_bar - (h_bar + 2 * slope) * share).sum()
        V_bar = -p * (slope + h_bar / 2) if ctx.needs_input_grad[1] else None
        return sigma_bar, V_bar


def _quadratic(mixture: Mixture, atoms: Gaussian | Point) -> tuple[Tensor, Tensor, Tensor]:
    """log I = −½ A ξ² + B ξ + C, each (k, r, d)."""
    S, m, V, P, c = (v[:, None, :] for v in mixture[1:])  # (k, 1, d)
    mu = atoms.mu.double() - m
    if isinstance(atoms, Point):
        s2 = V.expand(-1, len(atoms.mu), -1)
        log_height = -0.5 * (2 * math.pi * s2).log()
    else:
        s2 = atoms.sigma.double() ** 2 + V
        log_height = atoms.sigma.double().log() - 0.5 * s2.log()
    return P + S**2 / s2, S * mu / s2, c + log_height - mu**2 / (2 * s2)


def fade(value: Tensor, gate: Tensor | None, j: int) -> Tensor:
    """1 + g(I − 1), exact at both ends."""
    return value if gate is None else torch.lerp(torch.ones_like(value), value, gate[j])


def inverse_power(low: Tensor, high: Tensor, power: float, n_terms: int) -> tuple[Tensor, Tensor]:
    """(a, log γ) with x^{-power} ≈ Σ γ e^{−ax} on [low, high]; gradients flow through `low`."""
    # rounded up, so that training steps share one sum
    ratio = tabulated_ratio(float(high.detach()) / float(low.detach()))
    a, log_gamma, error = _log_sum(n_terms, ratio, power)
    if error > 0.01 and not trying.get():
        warnings.warn(
            f"{n_terms} exponentials invert a spectrum of ratio {ratio:.1e} to within {error:.0%} only. "
            "Raise `n_terms`, or narrow the range of widths.",
            stacklevel=2,
        )
    return a / low, log_gamma - power * low.log()


@lru_cache(maxsize=256)
def _log_sum(n_terms: int, ratio: float, power: float) -> tuple[Tensor, Tensor, float]:
    """a, log γ and the error of a best sum, the same tensors every time: not to be changed in place."""
    a, gamma, error = best_sum(n_terms, ratio, power)
    return a, gamma.log(), error

"""The spectral form: [e^{−aL_j} φ](ξ_j) = Σ_n φ_n(ξ_j) φ̂_n e^{−aλ_n}, one matrix product per axis.

Each basis belongs to one self-adjoint operator, named in its docstring; mixing the functions of one
with the eigenvalues of another inverts nothing. All are orthonormal, most in L²(dx); where the weight is
another one it enters the projection and nowhere else.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import pairwise, product
from typing import Any

import scipy.special
import torch
from torch import Tensor, nn

from greenfold.green.atoms import Atoms, Point
from greenfold.green.base import Operator, fade, inverse_power, open_axes, positive
from greenfold.green.expsum import check_power
from greenfold.green.matrix import sum_of_products
from greenfold.green.null_space import Polynomial

# --- eigenbases


class Basis(nn.Module, ABC):
    """The first M orthonormal eigenfunctions of a one-dimensional operator.

    Attributes
    ----------
    eigenvalues : float64 tensor of shape (M,)
        λ_0 ≤ λ_1 ≤ …
    """

    eigenvalues: Tensor
    domain = (-math.inf, math.inf)  # where the functions are defined

    def __init__(self, n_modes: int):
        super().__init__()
        if int(n_modes) != n_modes or n_modes < 1:
            raise ValueError(f"`n_modes` must be a positive whole number, got {n_modes}.")
        self.n_modes = int(n_modes)

    def _set(self, eigenvalues: Tensor) -> None:
        self.register_buffer("eigenvalues", eigenvalues)

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """φ_m(x_n), shape (n, M), in float64."""

    @abstractmethod
    def quadrature(self, n_nodes: int, breaks: Sequence[float] = ()) -> tuple[Tensor, Tensor]:
        """Nodes and weights of ∫ · dw over the domain, w being the basis' own weight.

        The rule is exact for smooth integrands between `breaks`; `n_nodes` is spread over the pieces.
        """

    def project(
        self, f: Callable[[Tensor], Tensor], breaks: Sequence[float] = (), tol: float = 1e-10
    ) -> Tensor:
        """Coefficients ∫ f φ_m dw of a function, or of r functions at once.

        Nodes are doubled until no coefficient moves by more than `tol` of the function's largest; what
        defies 2¹⁴ nodes is refused rather than approximated.

        Parameters
        ----------
        f : callable
            Maps nodes (q,) to values (q,) or (q, r).
        breaks : sequence of float
            Where f has jumps, kinks or narrow peaks.

        Returns
        -------
        Tensor of shape (M,) or (r, M)
        """
        n_nodes, previous = 2 * self.n_modes + 64, None
        while previous is None or n_nodes <= 2**14:
            nodes, weights = self.quadrature(n_nodes, breaks)
            c = torch.einsum("q,q...,qm->...m", weights, f(nodes), self(nodes))
            if previous is not None:
                moved, largest = (c - previous).abs().amax(-1), c.abs().amax(-1)
                if bool((moved <= tol * largest).all()):
                    return c
            n_nodes, previous = 2 * n_nodes, c
        raise ValueError(
            f"the projection on {self.n_modes} {type(self).__name__} modes does not converge with 2^14 "
            "nodes. Widen the sources, or name their jumps and kinks in `breaks`."
        )


def _integers(n: int, first: int = 0) -> Tensor:
    return torch.arange(first, first + n, dtype=torch.float64)


def _legendre_rule(
    low: float, high: float, n: int, breaks: Sequence[float] = ()
) -> tuple[Tensor, Tensor]:
    """Gauss–Legendre on each piece, with nodes in proportion to its length and at least 16."""
    edges = sorted({low, high, *(b for b in breaks if low < b < high)})
    nodes, weights = [], []
    for a, b in pairwise(edges):
        x, w = _gauss(max(16, math.ceil(n * (b - a) / (high - low))))
        nodes.append(a + (b - a) * (x + 1) / 2)
        weights.append((b - a) * w / 2)
    return torch.cat(nodes), torch.cat(weights)


@lru_cache(maxsize=256)
def _gauss(n: int) -> tuple[Tensor, Tensor]:
    x, w = scipy.special.roots_legendre(n)
    return torch.from_numpy(x), torch.from_numpy(w)


class _IntervalBasis(Basis):
    """Trigonometric functions on [low, high]."""

    def __init__(self, n_modes: int, low: float = 0.0, high: float = 1.0):
        super().__init__(n_modes)
        if not low < high:
            raise ValueError(f"an interval needs low < high, got [{low}, {high}].")
        self.low, self.high = float(low), float(high)

    def quadrature(self, n_nodes: int, breaks: Sequence[float] = ()) -> tuple[Tensor, Tensor]:
        return _legendre_rule(self.low, self.high, n_nodes, breaks)


class Sine(_IntervalBasis):
    """√(2/L) sin(nπx/L), n ≥ 1: −d² with Dirichlet ends, λ = (nπ/L)²."""

    def __init__(self, n_modes: int, low: float = 0.0, high: float = 1.0):
        super().__init__(n_modes, low, high)
        self._set((_integers(n_modes, 1) * math.pi / (self.high - self.low)) ** 2)

    def forward(self, x: Tensor) -> Tensor:
        t = (x.double() - self.low)[:, None] * self.eigenvalues.sqrt()
        return math.sqrt(2 / (self.high - self.low)) * torch.sin(t)


class Cosine(_IntervalBasis):
    """1/√L and √(2/L) cos(nπx/L): −d² with Neumann ends, λ = (nπ/L)², a zero mode."""

    def __init__(self, n_modes: int, low: float = 0.0, high: float = 1.0):
        super().__init__(n_modes, low, high)
        self._set((_integers(n_modes) * math.pi / (self.high - self.low)) ** 2)

    def forward(self, x: Tensor) -> Tensor:
        t = (x.double() - self.low)[:, None] * self.eigenvalues.sqrt()
        norm = torch.full(
            (self.n_modes,), math.sqrt(2 / (self.high - self.low)), dtype=torch.float64
        )
        norm[0] = math.sqrt(1 / (self.high - self.low))
        return norm * torch.cos(t)


class Fourier(_IntervalBasis):
    """1, cos, sin, cos, … of 2πnx/L: −d² with periodic ends, λ = (2πn/L)², a zero mode."""

    def __init__(self, n_modes: int, low: float = 0.0, high: float = 1.0):
        super().__init__(n_modes, low, high)
        n = torch.div(_integers(n_modes, 1), 2, rounding_mode="floor")
        self._set((n * 2 * math.pi / (self.high - self.low)) ** 2)

    def forward(self, x: Tensor) -> Tensor:
        t = (x.double() - self.low)[:, None] * self.eigenvalues.sqrt()
        # sin is cos a quarter period later: 0 for cosines, π/2 for the even-numbered sines
        phase = (torch.arange(self.n_modes) % 2 == 0).double() * (math.pi / 2)
        phase[0] = 0
        norm = torch.full(
            (self.n_modes,), math.sqrt(2 / (self.high - self.low)), dtype=torch.float64
        )
        norm[0] = math.sqrt(1 / (self.high - self.low))
        return norm * torch.cos(t - phase)

    def quadrature(self, n_nodes: int, breaks: Sequence[float] = ()) -> tuple[Tensor, Tensor]:
        if len(breaks):
            return super().quadrature(n_nodes, breaks)
        length = self.high - self.low  # equal weights are Gauss' rule on a circle
        nodes = self.low + length * torch.arange(n_nodes, dtype=torch.float64) / n_nodes
        return nodes, torch.full((n_nodes,), length / n_nodes, dtype=torch.float64)


class Hermite(Basis):
    """Hermite functions: −d² + ω²x² on the line, λ = ω(2n + 1)."""

    def __init__(self, n_modes: int, omega: float = 1.0):
        super().__init__(n_modes)
        if not omega > 0:
            raise ValueError(f"`omega` must be positive, got {omega}.")
        self.omega = float(omega)
        self._set(self.omega * (2 * _integers(n_modes) + 1))

    def forward(self, x: Tensor) -> Tensor:
        t = math.sqrt(self.omega) * x.double()
        # The recurrence runs on h_n e^{t²/2 − log_scale}; the scale is moved before it can overflow,
        # so that high orders survive where e^{−t²/2} alone has vanished.
        log_scale = torch.zeros_like(t)
        previous, current = torch.zeros_like(t), torch.full_like(t, (self.omega / math.pi) ** 0.25)
        columns = []
        for n in range(self.n_modes):
            columns.append(current * torch.exp(log_scale - t**2 / 2))
            following = math.sqrt(2 / (n + 1)) * t * current - math.sqrt(n / (n + 1)) * previous
            previous, current, log_scale = _rescale(current, following, log_scale)
        return torch.stack(columns, dim=1)

    def quadrature(self, n_nodes: int, breaks: Sequence[float] = ()) -> tuple[Tensor, Tensor]:
        reach = math.sqrt(2 * self.n_modes + 1) + 9  # e^{−40} beyond the last turning point
        reach = reach / math.sqrt(self.omega)
        return _legendre_rule(-reach, reach, 2 * n_nodes, breaks)


def _rescale(a: Tensor, b: Tensor, log_scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Two neighbours of a recurrence, made smaller together before they can overflow."""
    big = (b.detach().abs() > 1e100).double()
    shrink = torch.exp(-big * (100 * math.log(10)))
    return a * shrink, b * shrink, log_scale + big * (100 * math.log(10))


class Legendre(Basis):
    """√(n+½) P_n on [−1, 1]: −((1−x²)u′)′, λ = n(n+1), a zero mode. Not −d²."""

    domain = (-1.0, 1.0)

    def __init__(self, n_modes: int):
        super().__init__(n_modes)
        n = _integers(n_modes)
        self._set(n * (n + 1))

    def forward(self, x: Tensor) -> Tensor:
        x = x.double()
        previous, current = torch.zeros_like(x), torch.ones_like(x)
        columns = []
        for n in range(self.n_modes):
            columns.append(math.sqrt(n + 0.5) * current)
            previous, current = current, ((2 * n + 1) * x * current - n * previous) / (n + 1)
        return torch.stack(columns, dim=1)

    def quadrature(self, n_nodes: int, breaks: Sequence[float] = ()) -> tuple[Tensor, Tensor]:
        return _legendre_rule(-1.0, 1.0, n_nodes, breaks)


class Laguerre(Basis):
    """L_n e^{−x/2} on [0, ∞): −(x u′)′ + x u/4, λ = n + ½."""

    domain = (0.0, math.inf)

    def __init__(self, n_modes: int):
        super().__init__(n_modes)
        self._set(_integers(n_modes) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self._scaled(x.double(), 0.5)

    def _scaled(self, x: Tensor, decay: float) -> Tensor:
        """L_n e^{−decay·x}, with the scale of L_n carried apart as for `Hermite`."""
        log_scale = torch.zeros_like(x)
        previous, current = torch.zeros_like(x), torch.ones_like(x)
        columns = []
        for n in range(self.n_modes):
            columns.append(current * torch.exp(log_scale - decay * x))
            following = ((2 * n + 1 - x) * current - n * previous) / (n + 1)
            previous, current, log_scale = _rescale(current, following, log_scale)
        return torch.stack(columns, dim=1)

    def quadrature(self, n_nodes: int, breaks: Sequence[float] = ()) -> tuple[Tensor, Tensor]:
        # x = t² spreads the oscillations evenly; e^{−40} beyond the last turning point 4n + 2
        reach = math.sqrt(4 * self.n_modes + 2) + 9
        roots = [math.sqrt(b) for b in breaks if b > 0]
        nodes, weights = _legendre_rule(0.0, reach, 2 * n_nodes, roots)
        return nodes**2, 2 * nodes * weights


class LaguerrePolynomial(Laguerre):
    """L_n on [0, ∞) with weight e^{−x}: −x u″ − (1−x)u′, λ = n, a zero mode. At most 150 modes."""

    def __init__(self, n_modes: int):
        super().__init__(n_modes)
        if n_modes > 150:
            raise ValueError(
                f"`n_modes` must be at most 150, got {n_modes}: higher polynomials overflow where "
                "their weight vanishes. Use `Laguerre`, the functions L_n e^{−x/2}."
            )
        self._set(_integers(n_modes))

    def forward(self, x: Tensor) -> Tensor:
        return self._scaled(x.double(), 0.0)

    def quadrature(self, n_nodes: int, breaks: Sequence[float] = ()) -> tuple[Tensor, Tensor]:
        nodes, weights = super().quadrature(n_nodes, breaks)
        return nodes, weights * torch.exp(-nodes)


class Chebyshev(Basis):
    """T_n on [−1, 1] with weight (1−x²)^{−1/2}: −√(1−x²)(√(1−x²)u′)′, λ = n², a zero mode.

    In θ = arccos x these are the Neumann cosines on [0, π]; the recurrence has finite slopes at ±1.
    """

    domain = (-1.0, 1.0)

    def __init__(self, n_modes: int):
        super().__init__(n_modes)
        self.cosine = Cosine(n_modes, 0.0, math.pi)
        self._set(self.cosine.eigenvalues)

    def forward(self, x: Tensor) -> Tensor:
        x = x.double()
        previous, current = x, torch.ones_like(x)
        columns = []
        for _ in range(self.n_modes):
            columns.append(current)
            previous, current = current, 2 * x * current - previous
        T = torch.stack(columns, dim=1) * math.sqrt(2 / math.pi)
        return torch.cat([T[:, :1] / math.sqrt(2), T[:, 1:]], dim=1)

    def quadrature(self, n_nodes: int, breaks: Sequence[float] = ()) -> tuple[Tensor, Tensor]:
        angles = [math.acos(b) for b in breaks if -1 < b < 1]
        theta, weights = self.cosine.quadrature(n_nodes, angles)
        return torch.cos(theta), weights


BASES: dict[str, type[Basis]] = {
    "sine": Sine,
    "cosine": Cosine,
    "fourier": Fourier,
    "hermite": Hermite,
    "legendre": Legendre,
    "laguerre": Laguerre,
    "laguerre_polynomial": LaguerrePolynomial,
    "chebyshev": Chebyshev,
}


# --- sources and operators in the spectral form


class Modes(nn.Module):
    """Sources given by their coefficients: φ_r(ζ) = Π_j Σ_m φ̂_rjm φ_m(ζ_j).

    Parameters
    ----------
    coefficients : sequence of d tensors of shape (r, M_j)
    """

    def __init__(self, coefficients: Sequence[Tensor]):
        super().__init__()
        sizes = {c.shape[0] for c in coefficients}
        if not coefficients or len(sizes) != 1 or any(c.ndim != 2 for c in coefficients):
            shapes = [tuple(c.shape) for c in coefficients]
            raise ValueError(f"`coefficients` must be (r, M) for each axis, got {shapes}.")
        self.coefficients = [c.double() for c in coefficients]

    @property
    def n_dims(self) -> int:
        return len(self.coefficients)

    @property
    def mu(self) -> Tensor:  # as many rows as atoms
        return self.coefficients[0]


def _column(atoms: Atoms, shape: tuple[Tensor, ...], z: Tensor) -> Tensor:
    """One axis of the atoms at nodes z (q,), shape (q, r)."""
    return atoms.profile(z[:, None], *shape)


class Spectral(Operator):
    """(shift + Σ_j L_j)^s on eigenbases of the L_j.

    A zero eigenvalue is no obstacle: its mode is dropped from the source, and `null_space()` holds the
    constant to fit instead. Modes in which only some axes have eigenvalue zero stay. Atoms are projected
    as they are, cut off at the ends of a basis' domain, where `Interval` domains continue them; points
    have mass one in the basis' own weight.

    Parameters
    ----------
    bases : sequence of Basis
        One per axis.
    shift : float
        κ² ≥ 0, learned when `learn` is set and positive.
    power : float
        s, in [0.25, 2].
    """

    log_shift: Tensor
    accepts = (Atoms, Modes)

    def __init__(
        self,
        bases: Sequence[Basis],
        *,
        shift: float = 0.0,
        power: float = 1.0,
        n_terms: int = 16,
        learn: bool = False,
    ):
        super().__init__()
        if isinstance(bases, Basis) or not bases or not all(isinstance(b, Basis) for b in bases):
            raise ValueError(f"`bases` must be a sequence of Basis, one per axis, got {bases!r}.")
        if not (math.isfinite(shift) and shift >= 0):
            raise ValueError(
                f"`shift` must be at least 0, got {shift}. For −Δ − k² use `Oscillatory`."
            )
        if learn and not shift > 0:
            raise ValueError("a shift of 0 cannot be learned; start from a positive one.")
        self.bases = nn.ModuleList(bases)
        self.has_shift = shift > 0
        positive(self, "shift", shift if self.has_shift else 1.0, learn, per_axis=False)
        self.power = check_power(power)
        self.n_terms = n_terms

    @property
    def shift(self) -> Tensor:
        return self.log_shift.exp() * self.has_shift

    def eigenvalues(self) -> list[Tensor]:
        return [basis.eigenvalues for basis in self.bases]  # type: ignore[misc]

    def project(self, atoms: Atoms) -> Modes:
        """Coefficients of any atoms, by quadrature to 1e-10 of the largest (see `Basis.project`)."""
        if atoms.n_dims != len(self.bases):
            raise ValueError(
                f"the atoms have {atoms.n_dims} axes but the operator has {len(self.bases)} bases."
            )
        coefficients = []
        for j, basis in enumerate(self.bases):
            if isinstance(atoms, Point):
                coefficients.append(basis(atoms.mu[:, j]))
                continue
            profile = partial(_column, atoms, atoms.parameters_of(j))
            coefficients.append(basis.project(profile, atoms.breaks(j)))  # type: ignore[operator]
        return Modes(coefficients)

    def response(self, xi: Tensor, atoms: Atoms | Modes, gate: Tensor | None = None) -> Tensor:
        """`Operator.response`; `atoms` may be given as `Modes`, or are projected first."""
        return super().response(xi, atoms, gate)  # type: ignore[arg-type]

    def _check(self, xi: Tensor, atoms: Any, gate: Tensor | None) -> Tensor | None:
        gate = super()._check(xi, atoms, gate)
        if atoms.n_dims != len(self.bases):
            raise ValueError(
                f"the atoms have {atoms.n_dims} axes but the operator has {len(self.bases)} bases."
            )
        for j, basis in enumerate(self.bases):
            assert isinstance(basis, Basis)
            low, high = basis.domain
            if not bool(((xi[:, j] >= low) & (xi[:, j] <= high)).all()):
                raise ValueError(
                    f"axis {j} leaves the domain [{low:g}, {high:g}] of {type(basis).__name__}. Rescale "
                    "the chart, or use a basis with room for it."
                )
            if isinstance(atoms, Modes) and atoms.coefficients[j].shape[1] != basis.n_modes:
                raise ValueError(
                    f"axis {j} has {atoms.coefficients[j].shape[1]} coefficients but its basis has "
                    f"{basis.n_modes} modes."
                )
        return gate

    def _bottom(self, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        """Lower end of the spectrum in use, and how much of the zero mode, 0 to 1, is to be dropped.

        While an axis without zero mode closes, the gap it made closes with it; the others have theirs.
        """
        spectra = self.eigenvalues()
        weight = torch.ones(len(spectra), dtype=torch.float64) if gate is None else gate
        lowest = torch.stack([lam.min() for lam in spectra])
        now, full = (lowest * weight).sum() + self.shift, lowest.sum() + self.shift
        positive = [
            lam[lam > 0]
            for lam, on in zip(spectra, open_axes(gate, len(spectra)), strict=True)
            if on
        ]
        gaps = [lam.min() for lam in positive if len(lam)]
        gap = torch.stack(gaps).min() if gaps else torch.ones((), dtype=torch.float64)
        if not bool(full > 0):
            return gap, torch.ones((), dtype=torch.float64)
        floor = torch.minimum(gap, full.detach())
        return torch.maximum(now, floor), (1 - now / floor).clamp_min(0)

    def times(self, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        """Heat times a (k,) and log weights (k,) on the span of the open axes' eigenvalues."""
        is_open = open_axes(gate, len(self.bases))
        spectra = [lam for lam, on in zip(self.eigenvalues(), is_open, strict=True) if on]
        low, _ = self._bottom(gate)
        high = torch.stack([lam.max() for lam in spectra]).sum() + self.shift
        high = torch.maximum(high.detach(), low.detach())
        a, log_gamma = inverse_power(low, high, self.power, self.n_terms)
        return a, log_gamma - a * self.shift

    def _response(self, xi: Tensor, atoms: Any, gate: Tensor | None) -> Tensor:
        modes = atoms if isinstance(atoms, Modes) else self.project(atoms)
        a, log_gamma = self.times(gate)
        gamma = log_gamma.exp()
        r = len(modes.mu)
        decayed = [  # φ̂ e^{−aλ}, (M, k·r) per axis
            (torch.exp(-a[:, None] * lam)[:, None] * c).permute(2, 0, 1).reshape(len(lam), -1)
            for lam, c in zip(self.eigenvalues(), modes.coefficients, strict=True)
        ]

        def factor(x: Tensor, j: int) -> Tensor:
            value = (self.bases[j](x) @ decayed[j]).view(len(x), len(a), r)
            return fade(value, gate, j)

        Phi = sum_of_products(xi, factor, gamma, r)
        _, share = self._bottom(gate)
        if bool(share > 0):
            part = torch.ones(1, r, dtype=torch.float64)
            for j, basis in enumerate(self.bases):
                constant = basis(xi[:1, j])[:, :1] * modes.coefficients[j][:, 0]
                part = part * fade(constant, gate, j)
            Phi = Phi - (share * gamma.sum() * part).to(Phi.dtype)
        return Phi

    def null_space(self, gate: Tensor | None = None) -> Polynomial | None:
        return Polynomial(0) if bool(self._bottom(gate)[1] > 0) else None


class Oscillatory(Spectral):
    """−Δ − k² on a box: the true Helmholtz operator, waves instead of decay.

    Below k² the symbol 1/(λ − k²) changes sign, so no sum of positive exponentials represents it. The
    finitely many modes with λ < 2k² are inverted one by one and the exponential sum takes the rest.

    Parameters
    ----------
    bases : sequence of Sine, Cosine or Fourier
    wavenumber : float
        k. If k² is an eigenvalue (resonance) the operator has no inverse.
    """

    MAX_EXPLICIT = 20_000

    def __init__(
        self, bases: Sequence[Basis] | None = None, wavenumber: float = 1.0, *, n_terms: int = 16
    ):
        if bases is None:
            raise ValueError(
                "−Δ − k² has no positive exponential sum in free space. Pass `bases` (Sine, Cosine or "
                "Fourier, one per axis) to solve it on a box, or use ScreenedPoisson for −Δ + κ²."
            )
        if isinstance(bases, Basis) or not all(isinstance(b, _IntervalBasis) for b in bases):
            raise ValueError(
                "`bases` must be Sine, Cosine or Fourier: eigenfunctions of −d² on a box."
            )
        super().__init__(bases, n_terms=n_terms)
        if not (math.isfinite(wavenumber) and wavenumber > 0):
            raise ValueError(f"`wavenumber` must be positive and finite, got {wavenumber}.")
        self.wavenumber = float(wavenumber)
        k2 = self.wavenumber**2
        # Candidates per axis: λ_j < 2k² minus what the other axes have at least.
        spectra = self.eigenvalues()
        floor = [float(lam.min()) for lam in spectra]
        low = [
            torch.nonzero(lam + sum(floor) - floor[j] < 2 * k2).ravel().tolist()
            for j, lam in enumerate(spectra)
        ]
        n_candidates = math.prod(len(index) for index in low)
        if n_candidates > 100 * self.MAX_EXPLICIT:
            raise ValueError(
                f"wavenumber {wavenumber} has about {n_candidates} modes below 2k² on this box, too many "
                f"to treat one by one (at most {self.MAX_EXPLICIT}). Use a smaller box or wavenumber."
            )
        explicit = [n for n in product(*low) if self._eigenvalue(n) < 2 * k2]
        if len(explicit) > self.MAX_EXPLICIT:
            raise ValueError(
                f"wavenumber {wavenumber} has {len(explicit)} modes below 2k² on this box, more than "
                f"{self.MAX_EXPLICIT}. Use a smaller box or wavenumber."
            )
        for n in explicit:
            if abs(self._eigenvalue(n) - k2) < 1e-9 * k2:
                raise ValueError(
                    f"k² = {k2:g} is an eigenvalue (mode {n}): the operator has no inverse at resonance. "
                    "Change the wavenumber or the box."
                )
        self.explicit = explicit

    def _eigenvalue(self, index: tuple[int, ...]) -> float:
        return sum(float(lam[i]) for lam, i in zip(self.eigenvalues(), index, strict=True))

    def _bottom(self, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        # λ ≥ 2k² leaves λ − k² ≥ k²; the constant has eigenvalue −k², not zero
        low = torch.tensor(self.wavenumber**2, dtype=torch.float64)
        return low, torch.zeros((), dtype=torch.float64)

    def times(self, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        if gate is not None and not bool((gate == 1).all()):
            raise ValueError(
                "Oscillatory has no gates: closing an axis changes which modes resonate."
            )
        k2 = self.wavenumber**2
        high = torch.stack([lam.max() for lam in self.eigenvalues()]).sum() - k2
        low, _ = self._bottom(gate)
        a, log_gamma = inverse_power(low, torch.maximum(high, 2 * low), self.power, self.n_terms)
        return a, log_gamma + a * k2

    def _response(self, xi: Tensor, atoms: Any, gate: Tensor | None) -> Tensor:
        modes = atoms if isinstance(atoms, Modes) else self.project(atoms)
        Phi = super()._response(xi, modes, gate)
        if not self.explicit:
            return Phi
        a, log_gamma = self.times(gate)
        index = torch.tensor(self.explicit)  # (m, d)
        x = torch.tensor([self._eigenvalue(n) for n in self.explicit], dtype=torch.float64)
        S = torch.exp(log_gamma - a * x[:, None]).sum(1)  # what the sum did with these modes
        values = torch.ones(len(xi), len(index), dtype=torch.float64)
        coefficients = torch.ones(len(modes.mu), len(index), dtype=torch.float64)
        for j, basis in enumerate(self.bases):
            values = values * basis(xi[:, j])[:, index[:, j]]
            coefficients = coefficients * modes.coefficients[j][:, index[:, j]]
        correction = 1 / (x - self.wavenumber**2) - S
        return Phi + ((values * correction) @ coefficients.T).to(Phi.dtype)

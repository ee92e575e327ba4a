"""The spectral form: [e^{−aL_j} φ](ξ_j) = Σ_n φ_n(ξ_j) φ̂_n e^{−aλ_n}, one matrix product per axis."""

import math
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from greenfold.green.atoms import Atoms, Point
from greenfold.green.base import Operator, fade, inverse_power, open_axes, positive
from greenfold.green.bases import Basis, IntervalBasis
from greenfold.green.expsum import check_power
from greenfold.green.matrix import sum_of_products
from greenfold.green.null_space import Polynomial


class Modes(nn.Module):
    """Sources given by their coefficients: φ_r(ζ) = Π_j Σ_m φ̂_rjm φ_m(ζ_j).

    Parameters
    ----------
    coefficients : sequence of d tensors of shape (r, M_j)

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Modes
    >>> Modes([torch.eye(3, dtype=torch.float64)]).n_dims  # the first three modes of one axis
    1
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
    n_terms : int
        Of the exponential sum.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Modes, Sine, Spectral
    >>> one = torch.eye(4, dtype=torch.float64)[:1]
    >>> middle = torch.tensor([[0.5]], dtype=torch.float64)
    >>> u = Spectral([Sine(4)]).response(middle, Modes([one]))  # −u″ = √2 sin πx
    >>> round(u.item() * torch.pi**2, 4)
    1.4142
    >>> (Spectral([Sine(2)]).eigenvalues()[0] / torch.pi**2).tolist()
    [1.0, 4.0]
    >>> from greenfold.green import Gaussian
    >>> bump = Gaussian(torch.full((1, 1), 0.5).double(), 0.1)
    >>> Spectral([Sine(8)]).project(bump).coefficients[0].shape
    torch.Size([1, 8])
    >>> a, log_gamma = Spectral([Sine(4)]).times(None)
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

    @property
    def box(self) -> Tensor | None:
        """Lower and upper ends (2, d) of the domain, if it has any."""
        walls = [(b.low, b.high) if isinstance(b, IntervalBasis) else b.domain for b in self.bases]
        ends = torch.tensor(walls, dtype=torch.float64).T
        return ends if bool(ends.isfinite().all()) else None

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
    n_terms : int
        Of the exponential sum.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Modes, Oscillatory, Sine
    >>> waves = Oscillatory([Sine(8)], wavenumber=5.0)
    >>> one = torch.eye(8, dtype=torch.float64)[:1]
    >>> bool(waves.response(torch.tensor([[0.5]], dtype=torch.float64), Modes([one])) < 0)  # π² < 25
    True
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
        if isinstance(bases, Basis) or not all(isinstance(b, IntervalBasis) for b in bases):
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

"""Eigenbases of one-dimensional operators.

Each basis belongs to one self-adjoint operator, named in its docstring; mixing the functions of one
with the eigenvalues of another inverts nothing. All are orthonormal, most in L²(dx); where the weight
is another one it enters the projection and nowhere else.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

import scipy.special
import torch
from torch import Tensor, nn


class Basis(nn.Module, ABC):
    """The first M orthonormal eigenfunctions of a one-dimensional operator.

    Parameters
    ----------
    n_modes : int
        M.

    Attributes
    ----------
    eigenvalues : float64 tensor of shape (M,)
        λ_0 ≤ λ_1 ≤ …

    Examples
    --------
    >>> from greenfold.green import Sine
    >>> (Sine(3).eigenvalues / Sine(3).eigenvalues[0]).tolist()  # (nπ)²
    [1.0, 4.0, 9.0]
    >>> x, weight = Sine(3).quadrature(20)
    >>> bool(torch.allclose(Sine(3)(x).T @ (weight[:, None] * Sine(3)(x)), torch.eye(3).double()))
    True
    >>> Sine(3).project(lambda x: x * (1 - x)).shape  # coefficients of a function
    torch.Size([3])
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


class IntervalBasis(Basis):
    """Trigonometric functions on [low, high]."""

    def __init__(self, n_modes: int, low: float = 0.0, high: float = 1.0):
        super().__init__(n_modes)
        if not low < high:
            raise ValueError(f"an interval needs low < high, got [{low}, {high}].")
        self.low, self.high = float(low), float(high)

    def quadrature(self, n_nodes: int, breaks: Sequence[float] = ()) -> tuple[Tensor, Tensor]:
        return _legendre_rule(self.low, self.high, n_nodes, breaks)


class Sine(IntervalBasis):
    """√(2/L) sin(nπx/L), n ≥ 1: −d² with Dirichlet ends, λ = (nπ/L)².

    Parameters
    ----------
    n_modes : int
        M, how many.
    low, high : float
        Ends of the interval.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Sine
    >>> Sine(4)(torch.tensor([0.25, 0.75], dtype=torch.float64)).shape
    torch.Size([2, 4])
    """

    def __init__(self, n_modes: int, low: float = 0.0, high: float = 1.0):
        super().__init__(n_modes, low, high)
        self._set((_integers(n_modes, 1) * math.pi / (self.high - self.low)) ** 2)

    def forward(self, x: Tensor) -> Tensor:
        t = (x.double() - self.low)[:, None] * self.eigenvalues.sqrt()
        return math.sqrt(2 / (self.high - self.low)) * torch.sin(t)


class Cosine(IntervalBasis):
    """1/√L and √(2/L) cos(nπx/L): −d² with Neumann ends, λ = (nπ/L)², a zero mode.

    Parameters
    ----------
    n_modes : int
        M, how many.
    low, high : float
        Ends of the interval.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Cosine
    >>> Cosine(4)(torch.tensor([0.25, 0.75], dtype=torch.float64)).shape
    torch.Size([2, 4])
    """

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


class Fourier(IntervalBasis):
    """1, cos, sin, cos, … of 2πnx/L: −d² with periodic ends, λ = (2πn/L)², a zero mode.

    Parameters
    ----------
    n_modes : int
        M, how many.
    low, high : float
        Ends of the interval.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Fourier
    >>> Fourier(4)(torch.tensor([0.25, 0.75], dtype=torch.float64)).shape
    torch.Size([2, 4])
    """

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
    """Hermite functions: −d² + ω²x² on the line, λ = ω(2n + 1).

    Parameters
    ----------
    n_modes : int
        M, how many.
    omega : float
        ω of the oscillator.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Hermite
    >>> Hermite(4)(torch.tensor([0.25, 0.75], dtype=torch.float64)).shape
    torch.Size([2, 4])
    """

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
    """Two neighbors of a recurrence, made smaller together before they can overflow."""
    big = (b.detach().abs() > 1e100).double()
    shrink = torch.exp(-big * (100 * math.log(10)))
    return a * shrink, b * shrink, log_scale + big * (100 * math.log(10))


class Legendre(Basis):
    """√(n+½) P_n on [−1, 1]: −((1−x²)u′)′, λ = n(n+1), a zero mode. Not −d².

    Parameters
    ----------
    n_modes : int
        M, how many.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Legendre
    >>> Legendre(4)(torch.tensor([0.25, 0.75], dtype=torch.float64)).shape
    torch.Size([2, 4])
    """

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
    """L_n e^{−x/2} on [0, ∞): −(x u′)′ + x u/4, λ = n + ½.

    Parameters
    ----------
    n_modes : int
        M, how many.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Laguerre
    >>> Laguerre(4)(torch.tensor([0.5, 1.0], dtype=torch.float64)).shape
    torch.Size([2, 4])
    """

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
    """L_n on [0, ∞) with weight e^{−x}: −x u″ − (1−x)u′, λ = n, a zero mode. At most 150 modes.

    Parameters
    ----------
    n_modes : int
        M, how many.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import LaguerrePolynomial
    >>> LaguerrePolynomial(4)(torch.tensor([0.5, 1.0], dtype=torch.float64)).shape
    torch.Size([2, 4])
    """

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

    Parameters
    ----------
    n_modes : int
        M, how many.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Chebyshev
    >>> Chebyshev(4)(torch.tensor([0.25, 0.75], dtype=torch.float64)).shape
    torch.Size([2, 4])
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

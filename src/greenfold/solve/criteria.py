"""What tells how good a fit is, as functions of a `Summary`, which every factor of its equations makes.

With A = ΦᵀΦ + αC, w = A⁻¹ΦᵀY, residuals r and leverages h of rows, n rows counted by weight and q
independent null-space columns, all averaged over outputs that share α::

    evidence    (n−q)/2n log(2πe S/(n−q)) + logdet/2n
    gcv         RSS/n / (1 − dof/n)²
    loo         Σ (r/(1 − h))²/n
    log_mse     log RSS/n
    penalized   S/n

Sums of squares below what rounding leaves of the targets are replaced by that, so that exact fits stay
finite.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from greenfold.solve.solution import TOO_FEW_ROWS, SolveError

FLOOR = 1e-8  # of 1 − h and 1 − dof/n: an interpolated row has a 0/0 leave-one-out residual
LEAST_SHARE = (
    1e-3  # of the mean variance of outputs: what is explained better has no say of its own
)
UNIT = 0.5 * math.log(2 * math.pi * math.e)  # evidence of rows with unit variance, for each


@dataclass(frozen=True)
class Summary(ABC):
    """What a factor tells of the fit at one strength α, each number when it is asked for."""

    n: float  # Σ weight: a weight counts repetitions of its row
    q: int  # rank of the null-space columns
    least: Tensor  # (c,)  sums of squares below are rounding

    @property
    @abstractmethod
    def S(self) -> Tensor: ...  # (c,)  ‖Y − Φw‖² + α wᵀCw
    @property
    @abstractmethod
    def rss(self) -> Tensor: ...  # (c,)  ‖Y − Φw‖²
    @property
    @abstractmethod
    def logdet(self) -> Tensor: ...  # ()  log|Φ̃C⁻¹Φ̃ᵀ/α + I|, null-space columns projected out
    @property
    @abstractmethod
    def dof(self) -> Tensor: ...  # ()  q + tr Φ̃A⁻¹Φ̃ᵀ

    def left(self) -> tuple[Tensor, Tensor]:
        """√weight r (n, c) and h (n,) of factors that have the rows, null-space columns included."""
        raise ValueError(f"leave-one-out needs all rows at once. Choose one of {STREAMED}.")


def marginal(S: Tensor, logdet: Tensor | float, n: float, q: int = 0) -> Tensor:
    """−log p per row of rows whose covariance is known up to a variance, which is at its maximum.

    An output without noise would have an evidence without end, whatever became of the others that share
    its strength and chart: variances are at least a thousandth of their mean.
    """
    if n <= q:
        raise SolveError(TOO_FEW_ROWS.format(n=n, q=q))
    S = torch.maximum(S, LEAST_SHARE * S.mean())
    return ((n - q) * (2 * math.pi * math.e * S / (n - q)).log().mean() + logdet) / (2 * n)


def evidence(s: Summary) -> Tensor:
    """Negative log marginal likelihood per row.

    Strengths have the prior w ~ N(0, σ²(αC)⁻¹) and are integrated out; the noise variance σ² of each
    output is at its maximum. Null-space coefficients are restricted out (REML [1]_): the likelihood is
    that of n − q orthonormal contrasts of Y, which do not contain them.

    References
    ----------
    .. [1] D. Harville, "Maximum likelihood approaches to variance component estimation and to related
       problems", J. Am. Stat. Assoc. 72 (1977), 320–338.
    """
    return marginal(torch.maximum(s.S, s.least), s.logdet, s.n, s.q)


def gcv(s: Summary) -> Tensor:
    """Generalized cross-validation; 1 − dof/n is kept above 1e-8."""
    rss = torch.maximum(s.rss, s.least).mean()
    return rss / s.n / (1 - s.dof / s.n).clamp_min(FLOOR).square()


def loo(s: Summary) -> Tensor:
    """Mean squared leave-one-out residual, exact without refitting. A row leaves with its whole weight.

    1 − h is kept above 1e-8: a row fitted exactly whatever its target is has no such residual.
    """
    r, h = s.left()
    e = r / (1 - h).clamp_min(FLOOR)[:, None]
    return torch.maximum(e.square().sum(0), s.least).mean() / s.n


def log_mse(s: Summary) -> Tensor:
    """Logarithm of the mean squared residual, with the gradient of w included."""
    return (torch.maximum(s.rss, s.least).mean() / s.n).log()


def penalized(s: Summary) -> Tensor:
    """What the inner problem minimizes, so its gradient is exact with w held constant (the envelope
    theorem) and costs no second solve."""
    return torch.maximum(s.S, s.least).mean() / s.n


CRITERIA: dict[str, Callable[[Summary], Tensor]] = {
    f.__name__: f for f in (evidence, gcv, log_mse, loo, penalized)
}
STREAMED = tuple(name for name in CRITERIA if name != "loo")  # without the rows themselves


def scan(value: Callable[[float], float], low: float, high: float, tol: float) -> float:
    """The strength between e^low and e^high where the value of its logarithm is least, to e^tol."""
    found = minimize_scalar(value, bounds=(low, high), method="bounded", options={"xatol": tol})
    return math.exp(float(found.x))

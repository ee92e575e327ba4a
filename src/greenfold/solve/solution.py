"""What a solver returns, and the ways it can fail, written out together."""

import math
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from greenfold.design import Design, all_finite

NOT_FINITE = """\
`{name}` has non-finite entries in {bad} of its {total} columns, so the strengths cannot be solved for.
Usually one of:

(a) the encoder diverged: lower `lr`, or clip gradients with a callback;
(b) the data contain NaN or infinity: check `x.isfinite().all()` and `y.isfinite().all()`;
(c) an atom's width collapsed: look at `model.atoms.sigma.min()`.
"""

OVERFLOW = """\
The solve overflowed: {what} is not finite although Φ and `Y` are. Usually one of:

(a) columns of Φ or targets near 1e±150, whose squares leave float64: rescale them;
(b) `alpha`={alpha:.3g} is too small for columns this dependent: raise it;
(c) weights of wildly different sizes: divide `weight` by its mean.
"""

SINGULAR = """\
The penalized system of {p} columns is singular to working precision at `alpha`={alpha:.3g}, even with a
relative jitter of {jitter:.0e}. Usually one of:

(a) `alpha` is too small for a solve from sums: raise it to 1e-10 (relative) or more;
(b) null-space columns repeat each other, for instance a coordinate that is constant: drop one;
(c) two atoms coincide: use fewer, or move them apart.
"""

NOT_POSITIVE = """\
{what} ({n} by {n}) has no Cholesky factor, whatever is added to its diagonal: its entries reach
{largest:.3g}. Usually one of:

(a) the chart diverged, or rows lie at infinity on it: look at `model.chart(x)`;
(b) columns of the data near 1e±150, whose squares leave float64: rescale them;
(c) weights of wildly different sizes: divide them by their mean.
"""

TOO_FEW_ROWS = """\
{n:g} rows (counted by weight) do not exceed the {q} independent null-space columns, so nothing is left
from which to judge the ridge strength. Usually one of:

(a) the batch is too small: use more rows;
(b) the null space is too large: lower its polynomial degree;
(c) most weights are zero, or they sum to less than one per row: look at `weight.sum()`.
"""

NOT_DIFFERENTIABLE = """\
With `alpha`=0 and dependent columns (rank {rank} of {p}) the minimum-norm strengths jump when Φ moves,
so they have no gradient. One of:

(a) use a small ridge instead: `alpha=1e-12` gives nearly the same strengths;
(b) use fewer atoms than rows, at distinct positions;
(c) if only the values are wanted, solve under `torch.no_grad()`.
"""

NOT_CONVERGED = """\
Newton's method stopped after {iterations} iterations with a scaled gradient of {gradient:.1e}, above
`tol`={tol:.0e}. Usually one of:

(a) `max_iter` is too small: raise it, or pass a nearby `start`;
(b) `alpha` is so small that the classes are separated by huge strengths: raise it;
(c) `tol` is below rounding: 1e-8 is enough for gradients.
"""


class SolveError(ValueError):
    """The strengths could not be found; the message says why and what to try.

    A ValueError, as numpy's LinAlgError is: the numbers that came in are the reason.

    Examples
    --------
    >>> import torch
    >>> from greenfold import Design
    >>> from greenfold.solve import Ridge, SolveError
    >>> Phi = torch.full((3, 1), float("nan"), dtype=torch.float64)
    >>> try:
    ...     Ridge().solve(Design(Phi, torch.ones(1).double()), torch.ones(3, 1).double())
    ... except SolveError as error:
    ...     print(str(error).splitlines()[0][:40])
    `Phi` has non-finite entries in 1 of its
    """


class Solution(NamedTuple):
    """Source strengths and how they were found.

    Attributes
    ----------
    w : Tensor of shape (p, c)
        Strengths, differentiable.
    alpha : Tensor of shape ()
        The ridge strength in use, absolute.
    residual : Tensor of shape ()
        Mean squared residual, weighted.
    condition : Tensor of shape ()
        Of the penalized, equilibrated system.
    info : dict
        Route, jitter, rank and the like.

    Examples
    --------
    >>> import torch
    >>> from greenfold import Design
    >>> from greenfold.solve import Ridge
    >>> design = Design(torch.eye(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64))
    >>> Ridge(1e-9).solve(design, torch.ones(2, 1, dtype=torch.float64)).w.shape
    torch.Size([2, 1])
    """

    w: Tensor  # (p, c), differentiable
    alpha: Tensor  # ()     the ridge strength used, absolute
    residual: Tensor  # ()     mean squared residual, weighted
    condition: Tensor  # ()     of the penalized, equilibrated system
    info: dict[str, Any]  #        route, jitter, rank, alpha_relative


class Solver(Protocol):
    """What finds the strengths of a design.

    Examples
    --------
    >>> import torch
    >>> from greenfold import Design
    >>> from greenfold.solve import Ridge, Solver
    >>> solver: Solver = Ridge(1e-3)  # or Logistic, GroupLasso, Likely
    >>> design = Design(torch.eye(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64))
    >>> solver.solve(design, torch.ones(3, 2, dtype=torch.float64)).w.shape
    torch.Size([3, 2])
    """

    def solve(
        self, design: Design, Y: Tensor, weight: Tensor | None = None, start: Tensor | None = None
    ) -> Solution:
        """Fit Y (n, c) with rows that count `weight` (n,) times. A `start` (p, c) may save steps.

        Parameters
        ----------
        design : Design
            Φ (n, p) and its penalty.
        Y : Tensor of shape (n, c)
            Targets.
        weight : Tensor of shape (n,), optional
            How often each row counts.
        start : Tensor of shape (p, c), optional
            Strengths to begin from, where that saves steps.

        Returns
        -------
        Solution
        """


def mean_square(square: Tensor, penalty: Tensor) -> Tensor:
    """tr(Φ_aᵀ W Φ_a C⁻¹)/m over the atoms, the unit of a relative strength, from diag ΦᵀWΦ (p,)."""
    atom = penalty > 0
    return (square[atom] / penalty[atom]).sum() / max(int(atom.sum()), 1)


def check(design: Design, Y: Tensor, weight: Tensor | None = None) -> None:
    """Raise ValueError for arguments that do not fit together, SolveError for non-finite ones."""
    Phi, penalty = design
    if Phi.ndim != 2 or len(Phi) == 0:
        raise ValueError(f"Φ must be (n, p) with at least one row, got shape {tuple(Phi.shape)}.")
    n, p = Phi.shape
    low, high = penalty.aminmax() if penalty.numel() else (0.0, 0.0)
    if penalty.shape != (p,) or not 0 <= float(low) <= float(high) < math.inf:
        raise ValueError(
            f"`penalty` must hold one finite, non-negative number for each of the {p} columns of Φ, "
            f"got {penalty.tolist() if penalty.numel() <= 8 else tuple(penalty.shape)}."
        )
    if Y.ndim != 2 or len(Y) != n:
        raise ValueError(
            f"`Y` must be (n, c) with n = {n}, the rows of Φ, got shape {tuple(Y.shape)}. "
            "For a single output pass `Y[:, None]`."
        )
    for name, M in ("Phi", Phi), ("Y", Y):
        if not all_finite(M):
            bad = int((~M.detach().isfinite()).any(0).sum())
            raise SolveError(NOT_FINITE.format(name=name, bad=bad, total=M.shape[1]))
    if weight is not None:
        if weight.shape != (n,):
            raise ValueError(f"`weight` must have shape ({n},), got {tuple(weight.shape)}.")
        if not bool(weight.isfinite().all() & (weight >= 0).all() & (weight > 0).any()):
            raise ValueError(
                "`weight` must be finite, non-negative and not all zero, got values from "
                f"{float(weight.min()):g} to {float(weight.max()):g}."
            )


def check_finite(what: str, value: Tensor, alpha: float) -> None:
    """Raise SolveError when a finite problem gave a non-finite answer."""
    if not all_finite(value):
        raise SolveError(OVERFLOW.format(what=what, alpha=alpha))

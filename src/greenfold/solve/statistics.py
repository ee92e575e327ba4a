"""Sums over rows from which the strengths can be solved without the rows."""

import torch
from torch import Tensor

from greenfold.design import Design
from greenfold.solve.factor import JITTERS, Cholesky, cholesky
from greenfold.solve.solution import SINGULAR, Solution, SolveError, check, check_finite


class Statistics:
    """Streamed ΦᵀWΦ, ΦᵀWY, YᵀWY and Σ weight, in float64.

    Each batch is cast to float64 before the products, since float32 products lose digits that no later
    sum brings back. The sums of two streams add (`merge`), so that workers can share one solve. They
    are constants: no gradient flows through them.

    Parameters
    ----------
    decay : float
        Forgetting: the sums are multiplied by it before every update. 1 forgets nothing.

    Examples
    --------
    >>> statistics = Statistics()
    >>> for Phi in torch.eye(4).split(2):
    ...     statistics.update(Design.stack(Phi), 2 * Phi.sum(1, keepdim=True))
    >>> statistics.solve(1e-10).w[:, 0]
    tensor([2., 2., 2., 2.])
    """

    gram: Tensor  # ΦᵀWΦ  (p, p)
    cross: Tensor  # ΦᵀWY  (p, c)
    square: Tensor  # YᵀWY  (c, c)
    penalty: Tensor  # (p,)

    def __init__(self, *, decay: float = 1.0):
        if not 0 < decay <= 1:
            raise ValueError(f"`decay` must be in (0, 1], got {decay}.")
        self.decay = decay
        self.n = 0.0  # Σ weight, forgotten at the same rate
        self.rows = 0
        self.dtype = torch.float64

    @torch.no_grad()
    def update(self, design: Design, Y: Tensor, weight: Tensor | None = None) -> None:
        """Add the rows of a batch."""
        check(design, Y, weight)
        Phi, Y = design.Phi.double(), Y.double()
        W = Phi.new_ones(len(Phi)) if weight is None else weight.double()
        WPhi = W[:, None] * Phi  # (n, p)
        batch = Statistics(decay=self.decay)
        batch.gram, batch.cross = WPhi.mT @ Phi, WPhi.mT @ Y
        batch.square = (W[:, None] * Y).mT @ Y
        batch.penalty, batch.dtype = design.penalty.double(), design.Phi.dtype
        batch.n, batch.rows = float(W.sum()), len(Phi)
        if self.rows:
            self._agree(batch)
            self.gram, self.cross = self.decay * self.gram, self.decay * self.cross
            self.square, self.n = self.decay * self.square, self.decay * self.n
        self.merge(batch)

    def merge(self, other: "Statistics") -> "Statistics":
        """Add the sums of another stream to these."""
        if other.rows and self.rows:
            self._agree(other)
            self.gram, self.cross = self.gram + other.gram, self.cross + other.cross
            self.square = self.square + other.square
        elif other.rows:
            self.gram, self.cross, self.square = other.gram, other.cross, other.square
            self.penalty, self.dtype = other.penalty, other.dtype
        self.n += other.n
        self.rows += other.rows
        return self

    def _agree(self, other: "Statistics") -> None:
        if self.cross.shape != other.cross.shape or not torch.equal(self.penalty, other.penalty):
            raise ValueError(
                f"these sums are over {self.cross.shape[0]} columns and {self.cross.shape[1]} outputs, "
                f"the new ones over {other.cross.shape[0]} and {other.cross.shape[1]}; columns, outputs "
                "and `penalty` must stay the same."
            )

    def solve(self, alpha: float = 1e-8, *, relative: bool = True) -> Solution:
        """Ridge strengths at α, relative to tr(ΦᵀWΦ)/m over the atoms as in `Ridge`.

        Only Cholesky is possible here, whose predictions carry an error of about 5e-17/α.
        """
        if not self.rows:
            raise ValueError("no rows yet: call `update` before `solve`.")
        atom = self.penalty > 0
        scale = float((self.gram.diagonal()[atom] / self.penalty[atom]).sum()) / max(
            int(atom.sum()), 1
        )
        strength = alpha * scale if relative else alpha
        A = self.gram + (strength * self.penalty).diag()
        chol = self._factor(A, alpha)
        w = chol.solve(self.cross)
        check_finite("w", w, strength)
        fitted = 2 * (w * self.cross).sum() - (w * (self.gram @ w)).sum()
        residual = (self.square.trace() - fitted).clamp_min(0) / (self.n * w.shape[1])
        info = {
            "route": "cholesky",
            "jitter": chol.jitter,
            "rank": int((A.diagonal() > 0).sum()),
            "alpha_relative": strength / scale if scale > 0 else 0.0,
        }
        to = self.dtype
        used, condition = torch.tensor(strength, dtype=to), torch.tensor(chol.condition, dtype=to)
        return Solution(w.to(to), used, residual.to(to), condition, info)

    def weights(self, alpha: float) -> Tensor:
        """w (p, c) of `solve` at an absolute α, without the rest: the condition costs as much as w."""
        A = self.gram + (alpha * self.penalty).diag()
        w = self._factor(A, alpha).solve(self.cross)
        check_finite("w", w, alpha)
        return w.to(self.dtype)

    def _factor(self, A: Tensor, alpha: float) -> Cholesky:
        chol = cholesky(A)
        if chol is None:
            raise SolveError(SINGULAR.format(p=len(A), alpha=alpha, jitter=JITTERS[-1]))
        return chol

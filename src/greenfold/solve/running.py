"""Strengths on sums of the batches as they pass, for a solve inside every step of a training.

With rows of weight s_n and right-hand sides R (n, c), on running means over the batches::

    w = (G + ρ I)⁻¹ b,    G = mean ΦᵀSΦ,   b = mean ΦᵀR,   ρ = α · mean square of the penalized columns

s = 1 and R = Y is a ridge. For any other loss ℓ(u, y), s at least its curvature and R = s u − ∂ℓ/∂u at
the present u = Φw make this a step of Newton's method from w. Gradients go to the newest batch alone,
through the equation that w solves rather than through the factor: that takes c columns instead of p.

In a group of processes (`torch.distributed`) each brings rows of its own; all sums are over all of them.
"""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from greenfold.design import Design
from greenfold.solve.factor import jittered
from greenfold.solve.implicit import Implicit


def _n_processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _summed(value: Tensor) -> Tensor:
    """Over all processes."""
    if _n_processes() > 1:
        value = value.contiguous()
        dist.all_reduce(value)
    return value


class RunningRidge(nn.Module):
    """Sums of which each batch is `1 − decay`, and their solution.

    Parameters
    ----------
    n_columns, n_outputs : int
        p and c.
    alpha : float
        Ridge, relative to the mean square of a penalized column.
    decay : float
        Memory: 0 uses each batch alone.
    """

    gram: Tensor  # (p, p)
    cross: Tensor  # (p, c)
    square: Tensor  # ()  mean square of the penalized columns; 0 as long as no row has passed

    def __init__(self, n_columns: int, n_outputs: int, alpha: float, decay: float):
        super().__init__()
        self.alpha, self.decay = alpha, decay
        shapes = {"gram": (n_columns, n_columns), "cross": (n_columns, n_outputs), "square": ()}
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))

    def solve(
        self, design: Design, R: Tensor, s: Tensor | None = None, keep: bool = True
    ) -> Tensor:
        """w (p, c) with this batch in the sums, which are kept if `keep`; differentiable in Φ, R and s.

        Parameters
        ----------
        design : Design
            Penalties are 1, or 0 on the last columns.
        R : Tensor of shape (n, c)
        s : Tensor of shape (n,), optional
            Ones when omitted.
        """
        Phi, penalty = design
        n_free = len(penalty) - int(penalty.sum())
        n = float(_summed(self.square.new_tensor(len(Phi))))
        part = (1 - self.decay) / n  # of a row
        with torch.no_grad():
            sums = self._mixed(Phi, R, s, n_free, part)
            L = self._factor(sums[0], sums[2] * penalty.to(self.gram))
            w = torch.cholesky_solve(sums[1], L)
            if keep:
                self._keep(*sums)
        if not any(v is not None and v.requires_grad for v in (Phi, R, s)):
            return w
        # This batch's part of the equation, in the precision of the codes: only its gradient is used.
        v = w.to(Phi)
        u = Phi @ v if s is None else s[:, None].to(v) * (Phi @ v)
        ridge = self.alpha * _squares(Phi, n_free) * penalty[:, None].to(v) * v
        F = part * (Phi.T @ (u - R.to(v)) + ridge).to(w)
        return Implicit.apply(w, F, lambda w_bar: torch.cholesky_solve(_summed(w_bar), L))

    def _mixed(
        self, Phi: Tensor, R: Tensor, s: Tensor | None, n_free: int, part: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gram matrix, cross products and mean square with this batch. Their scale is nothing to w."""
        A, R = Phi.to(self.gram), R.to(self.gram)
        SA = A if s is None else s[:, None].to(A) * A
        kept = self.decay / _n_processes()  # the others add as much
        gram = torch.addmm(self.gram, A.T, SA, beta=kept, alpha=part)
        cross = torch.addmm(self.cross, A.T, R, beta=kept, alpha=part)
        square = kept * self.square + part * _squares(A, n_free)
        return _summed(gram), _summed(cross), _summed(square)

    @torch.no_grad()
    def solve_all(self, rows: Iterable[tuple[Design, Tensor, Tensor | None]]) -> Tensor:
        """w (p, c) on all rows, some of them (design, R, s) at a time, in one process; fills the sums."""
        gram, cross, square = (torch.zeros_like(v) for v in (self.gram, self.cross, self.square))
        n, penalty = 0, gram.new_zeros(len(gram))
        for design, R, s in rows:
            A, penalty = design.Phi.to(gram), design.penalty.to(gram)
            gram += A.T @ (A if s is None else s[:, None].to(A) * A)
            cross += A.T @ R.to(gram)
            square += _squares(A, len(penalty) - int(penalty.sum()))
            n += len(A)
        if not n:
            raise ValueError("`batches` held no rows.")
        self._keep(gram / n, cross / n, square / n)
        return torch.cholesky_solve(self.cross, self._factor(self.gram, self.square * penalty))

    def _factor(self, gram: Tensor, unit: Tensor) -> Tensor:
        """L (p, p) of the Gram matrix with its ridge, α times `unit` (p,)."""
        A = gram.clone()
        A.diagonal().add_(unit, alpha=self.alpha)
        L, failed = torch.linalg.cholesky_ex(A)
        return jittered(A, "the Gram matrix of the codes") if failed else L

    def _keep(self, gram: Tensor, cross: Tensor, square: Tensor) -> None:
        self.gram.copy_(gram)
        self.cross.copy_(cross)
        self.square.copy_(square)


def _squares(Phi: Tensor, n_free: int) -> Tensor:
    """Sum over rows of the mean square of the penalized columns."""
    flat, free = Phi.reshape(-1), Phi[:, Phi.shape[1] - n_free :]
    return (flat.dot(flat) - free.square().sum()) / max(Phi.shape[1] - n_free, 1)

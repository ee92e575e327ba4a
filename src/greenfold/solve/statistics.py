"""Sums over rows from which the strengths can be solved without the rows."""

from dataclasses import KW_ONLY, dataclass, field, replace

import torch
from torch import Tensor

from greenfold.design import Design
from greenfold.solve.factor import EPS, definite
from greenfold.solve.projected import project
from greenfold.solve.solution import Solution, check, check_finite, mean_square
from greenfold.solve.strength import choose

STRIP = 256  # columns at a time: as quick as all of them at once, and half of the products


@dataclass(eq=False)
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

    Two streams, one of which was sent by another process as one vector:

    >>> sent = statistics.flat()
    >>> other = Statistics.from_flat(sent, torch.ones(4), 1)
    >>> statistics.merge(other).solve(1e-10).w[:, 0]
    tensor([2., 2., 2., 2.])
    >>> statistics.times(2.0).solve(1e-10).w.shape  # every row counts twice
    torch.Size([4, 1])
    >>> Statistics.on(sent, torch.ones(4), 1).solve(1e-10).w.shape  # without a copy
    torch.Size([4, 1])
    """

    _: KW_ONLY
    decay: float = 1.0
    gram: Tensor = field(init=False, repr=False)  # ΦᵀWΦ  (p, p)
    cross: Tensor = field(init=False, repr=False)  # ΦᵀWY  (p, c)
    square: Tensor = field(init=False, repr=False)  # YᵀWY  (c, c)
    penalty: Tensor = field(init=False, repr=False)  # (p,), in the dtype of Φ
    n: float = field(init=False, default=0.0)  # Σ weight, forgotten at the same rate
    rows: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if not 0 < self.decay <= 1:
            raise ValueError(f"`decay` must be in (0, 1], got {self.decay}.")

    @torch.no_grad()
    def update(self, design: Design, Y: Tensor, weight: Tensor | None = None) -> None:
        """Add the rows of a batch."""
        check(design, Y, weight)
        Phi, Y = design.Phi.double(), Y.double()
        if hasattr(self, "gram"):
            self._agree(design.penalty, Y.shape[1])
            if self.decay < 1:
                for total in (self.gram, self.cross, self.square):
                    total.mul_(self.decay)
        else:
            p, c = len(design.penalty), Y.shape[1]
            self.gram, self.cross = Phi.new_zeros(p, p), Phi.new_zeros(p, c)
            self.square, self.penalty = Phi.new_zeros(c, c), design.penalty.detach()
        WPhi, WY, n = Phi, Y, float(len(Phi))
        if weight is not None:
            W = weight.double()
            WPhi, WY, n = W[:, None] * Phi, W[:, None] * Y, float(W.sum())
        _add_symmetric(self.gram, WPhi, Phi)
        self.cross.addmm_(WPhi.mT, Y)
        self.square.addmm_(WY.mT, Y)
        self.n = self.decay * self.n + n
        self.rows += len(Phi)

    def merge(self, other: "Statistics") -> "Statistics":
        """Add the sums of another stream to these."""
        if other.rows and self.rows:
            self._agree(other.penalty, other.cross.shape[1])
            self.gram, self.cross = self.gram + other.gram, self.cross + other.cross
            self.square = self.square + other.square
        elif other.rows:
            self.gram, self.cross = other.gram.clone(), other.cross.clone()
            self.square, self.penalty = other.square.clone(), other.penalty
        self.n += other.n
        self.rows += other.rows
        return self

    def times(self, factor: float) -> "Statistics":
        """As if every row counted so often."""
        made = Statistics.on(factor * self.flat(), self.penalty, self.cross.shape[1])
        made.rows = self.rows
        return made

    def flat(self) -> Tensor:
        """All sums in one vector, for workers to exchange."""
        counts = torch.tensor([self.n, float(self.rows)], dtype=torch.float64)
        return torch.cat([*(t.reshape(-1) for t in (self.gram, self.cross, self.square)), counts])

    @staticmethod
    def from_flat(flat: Tensor, penalty: Tensor, n_outputs: int) -> "Statistics":
        """The way back from `flat`."""
        return Statistics.on(flat.clone(), penalty, n_outputs)

    @staticmethod
    def on(flat: Tensor, penalty: Tensor, n_outputs: int) -> "Statistics":
        """The same in the memory of the vector; but for its counts, updates go there."""
        p, c = len(penalty), n_outputs
        gram, cross, square, n, rows = flat.split([p * p, p * c, c * c, 1, 1])
        made = Statistics()
        made.gram, made.cross = gram.view(p, p), cross.view(p, c)
        made.square, made.penalty = square.view(c, c), penalty
        made.n, made.rows = float(n), int(rows)
        return made

    def _agree(self, penalty: Tensor, n_outputs: int) -> None:
        p, c = self.cross.shape
        if (p, c) != (len(penalty), n_outputs) or not torch.equal(
            self.penalty.double(), penalty.double()
        ):
            raise ValueError(
                f"these sums are over {p} columns and {c} outputs, the new ones over {len(penalty)} and "
                f"{n_outputs}; columns, outputs and `penalty` must stay the same."
            )

    def solve(self, alpha: float | str = 1e-8, *, relative: bool = True) -> Solution:
        """Ridge strengths at α, relative to tr(ΦᵀWΦ)/m over the atoms as in `Ridge`.

        'evidence' and 'gcv' choose α as `Ridge` does. Only Cholesky is possible here, whose predictions
        carry an error of about 5e-17/α.
        """
        if not self.rows:
            raise ValueError("no rows yet: call `update` before `solve`.")
        penalty = self.penalty.double()
        scale = float(mean_square(self.gram.diagonal(), penalty))
        if isinstance(alpha, str):
            alpha, relative = self._choose(alpha), False
        strength = alpha * scale if relative else alpha
        A = self.gram + (strength * penalty).diag()
        chol = definite(A, alpha)
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
        to = self.penalty.dtype
        used, condition = torch.tensor(strength, dtype=to), torch.tensor(chol.condition, dtype=to)
        return Solution(w.to(to), used, residual.to(to), condition, info)

    def _choose(self, criterion: str) -> float:
        """α (absolute) by a criterion, on p + c rows with the same sums as all rows."""
        if criterion not in ("evidence", "gcv"):
            raise ValueError(
                f"`alpha` must be a number, 'evidence' or 'gcv' where only sums are kept, got "
                f"{criterion!r}."
            )
        # rows [Φ, Y] = [√λ Vᵀ, VᵀΦᵀY/√λ; 0, rest], from ΦᵀΦ = V λ Vᵀ
        values, V = torch.linalg.eigh(self.gram)
        good = values > EPS * len(values) * values[-1]
        root = values.clamp_min(0).sqrt() * good
        b = (V.mT @ self.cross) / torch.where(good, root, torch.inf)[:, None]  # (p, c)
        rest = (self.square.diagonal() - b.square().sum(0)).clamp_min(0).sqrt()
        Phi = torch.cat([root[:, None] * V.mT, b.new_zeros(len(rest), len(values))])
        problem = project(Design(Phi, self.penalty.double()), torch.cat([b, rest.diag()]))
        return choose(replace(problem, n=self.n), criterion, None)[0]


def _add_symmetric(total: Tensor, A: Tensor, B: Tensor) -> None:
    """AᵀB (p, p), known to be symmetric, added to what is: products on one side of the diagonal only."""
    p = len(total)
    for i in range(0, p, STRIP):
        j = min(i + STRIP, p)
        total[i:j, i:].addmm_(A[:, i:j].mT, B[:, i:])
        total[j:, i:j] = total[i:j, j:].mT

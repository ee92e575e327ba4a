"""Source strengths of which most are exactly zero."""

import warnings
from typing import NamedTuple

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from greenfold.design import Design
from greenfold.solve.projected import Projected, project
from greenfold.solve.solution import Solution, check_finite


class GroupLasso:
    """Least squares with a penalty on the norm of each atom's strengths, which removes whole atoms.

    Solves in float64 down a path of penalties: proximal steps atom by atom decide which are exactly
    zero, Newton's method finishes on the others, and the duality gap certifies the answer [1]_.
    Null-space columns are left alone::

        w = argmin ½ Σ_n weight_n ‖(Φw − Y)_n‖² + λ Σ_r ‖w_r‖ + ½ α ‖w‖²

    ‖w_r‖ runs over the outputs, and over the columns of an atom that has several (free weights W_kr,
    where ‖w_r γ‖ is the norm over k). `w` is a constant: use `loss` to differentiate, whose gradient in
    Φ is exact with w held (the envelope theorem).

    Parameters
    ----------
    strength : float
        λ, as a fraction of the smallest λ at which every atom is zero: between 0 and 1.
    alpha : float
        Ridge beside it, relative as in `Ridge`.
    n_columns : int
        Columns per atom, in blocks: column k·R + r belongs to atom r.
    relative : bool
        False takes λ and α as they are.
    tol : float
        On the duality gap, relative to ‖Y‖².
    max_iter : int
        Rounds at most.

    References
    ----------
    .. [1] M. Yuan, Y. Lin, "Model selection and estimation in regression with grouped variables",
       J. R. Stat. Soc. B 68 (2006), 49–67.

    Examples
    --------
    >>> Phi = torch.eye(3)
    >>> GroupLasso(0.5).solve(Design.stack(Phi), torch.tensor([[4.0], [1.0], [-3.0]])).w[:, 0]
    tensor([ 2.,  0., -1.])
    >>> GroupLasso(0.5).loss(Design.stack(Phi), torch.tensor([[4.0], [1.0], [-3.0]])).shape
    torch.Size([])
    """

    def __init__(
        self,
        strength: float,
        *,
        alpha: float = 1e-8,
        n_columns: int = 1,
        relative: bool = True,
        tol: float = 1e-7,
        max_iter: int = 500,
    ):
        if not 0 < strength < float("inf") or (relative and strength > 1):
            raise ValueError(
                "`strength` must be above 0 and, as a fraction of the λ that removes every atom, at most "
                f"1, got {strength}. For no penalty on single atoms use `Ridge`."
            )
        self.strength, self.alpha, self.relative = strength, alpha, relative
        self.n_columns, self.tol, self.max_iter = n_columns, tol, max_iter

    def __repr__(self) -> str:
        return f"GroupLasso({self.strength!r})"

    def solve(
        self, design: Design, Y: Tensor, weight: Tensor | None = None, start: Tensor | None = None
    ) -> Solution:
        """Fit Y (n, c); see `Ridge.solve`. It finds its own `start`, down a path of penalties."""
        problem = project(design, Y, weight)
        with torch.no_grad():
            found = self._descend(problem)
            w = problem.assemble(found.v)
            check_finite("w", w, found.alpha)
            rss = (problem.Y - problem.Phi @ found.v).square().sum()
        active = int((self._norms(found.v) > 0).sum())
        info = {
            "route": "group lasso",
            "iterations": found.iterations,
            "gap": found.gap,
            "rank": active + problem.q,
            "active": active,
            "strength": found.lam,
        }
        to = design.Phi.dtype
        alpha, condition = torch.tensor([found.alpha, found.condition], dtype=to)
        residual = rss / (problem.n * Y.shape[1])
        return Solution(w.to(to), alpha, residual.to(to), condition, info)

    def loss(self, design: Design, Y: Tensor, weight: Tensor | None = None) -> Tensor:
        """The minimum over w, per row. With `relative=False` its gradient is that of the minimum."""
        problem = project(design, Y, weight)
        with torch.no_grad():
            found = self._descend(problem)
        rss = (problem.Y - problem.Phi @ found.v).square().sum()
        penalty = found.lam * self._norms(found.v).sum() + found.alpha / 2 * found.v.square().sum()
        return ((rss / 2 + penalty) / problem.n).to(design.Phi.dtype)

    def _norms(self, v: Tensor) -> Tensor:
        """‖v_r‖ of every atom, (R,)."""
        return v.reshape(self.n_columns, -1, v.shape[1]).square().sum((0, 2)).sqrt()

    def _descend(self, problem: Projected) -> "_Found":
        Phi, Y = problem.Phi.detach(), problem.Y.detach()
        m = Phi.shape[1]
        if m % self.n_columns:
            raise ValueError(f"{m} columns do not divide into atoms of {self.n_columns} columns.")
        unit = float(problem.scale().detach()) if self.relative else 1.0
        alpha = self.alpha * unit
        Q = Phi.mT @ Phi + alpha * torch.eye(m, dtype=torch.float64)
        b = Phi.mT @ Y  # (m, c)
        largest = float(self._norms(b).max())
        lam = self.strength * largest if self.relative else self.strength
        square = float(Y.square().sum())
        gap, level = 0.0, largest
        v = torch.zeros_like(b)
        working = torch.zeros(m // self.n_columns, dtype=torch.bool)
        for k in range(1, self.max_iter + 1):
            if gap <= (self.tol if level == lam else 1e-3) * square:
                if level == lam and k > 1:
                    break
                level = max(0.5 * level, lam)  # down a path: each answer is nearly the next one's
            v = self._polish(self._sweeps(v, Q, b, level, working), Q, b, level)
            gap = self._gap(v, Q, b, square, level)
            excess = self._norms(b - Q @ v) * ~working
            new = excess.topk(min(5, len(excess))).indices
            working[new[excess[new] > level]] = True
        if gap > self.tol * square:
            warnings.warn(
                f"the group lasso stopped after {k} rounds with a duality gap of {gap / square:.1e} of "
                f"‖Y‖², above `tol`={self.tol:.0e}: the zeros may not be the right ones. Raise "
                "`max_iter`, `alpha` or `strength`.",
                ConvergenceWarning,
                stacklevel=3,
            )
        L = torch.linalg.eigvalsh(Q)
        return _Found(v, lam, alpha, gap, k, float((L[-1] / L[0].clamp_min(1e-300)).sqrt()))

    def _sweeps(self, v: Tensor, Q: Tensor, b: Tensor, lam: float, working: Tensor) -> Tensor:
        """Proximal steps on one atom after another: its norm less λ/L, exactly zero below that."""
        atoms = working.nonzero()[:, 0]
        columns = torch.arange(self.n_columns)[:, None] * len(working) + atoms  # (k, a)
        flat = columns.ravel()
        A, x = Q[flat][:, flat].numpy(), v[flat].numpy().copy()  # C order: k-major
        r = b[flat].numpy() - A @ x
        own = [np.arange(self.n_columns) * len(atoms) + i for i in range(len(atoms))]
        L = [np.linalg.eigvalsh(A[np.ix_(g, g)])[-1] for g in own]
        for _ in range(3):
            for g, curvature in zip(own, L, strict=True):
                moved = x[g] + r[g] / curvature
                norm = np.sqrt(np.square(moved).sum())
                moved *= max(0.0, 1 - lam / curvature / norm) if norm > 0 else 0.0
                r -= A[:, g] @ (moved - x[g])
                x[g] = moved
        v = torch.zeros_like(v)
        v[flat] = torch.from_numpy(x)
        return v

    def _polish(self, v: Tensor, Q: Tensor, b: Tensor, lam: float) -> Tensor:
        """Newton's method on the atoms that are not zero, where the penalty is smooth.

        An atom whose strengths would turn round on the way is stopped at zero and taken out.
        """
        c, n_atoms = v.shape[1], len(v) // self.n_columns
        atoms = (self._norms(v) > 0).nonzero()[:, 0].numpy()
        x = v.numpy().reshape(self.n_columns, n_atoms, c)[:, atoms]  # (k, a, c)
        for _ in range(len(atoms) + 20):
            if not len(atoms):
                break
            columns = (np.arange(self.n_columns)[:, None] * n_atoms + atoms).ravel()
            A = np.kron(Q.numpy()[np.ix_(columns, columns)], np.eye(c))
            length = np.sqrt(np.square(x).sum((0, 2)))[None, :, None] + 0 * x
            u, ell = (x / length).ravel(), length.ravel()
            group = np.broadcast_to(np.arange(len(atoms))[None, :, None], x.shape).ravel()
            bend = (group[:, None] == group) * np.outer(u, u) / ell[:, None]
            H = A + lam * (np.diag(1 / ell) - bend) if c * self.n_columns > 1 else A
            gradient = A @ x.ravel() - b.numpy()[columns].ravel() + lam * u
            try:
                step = np.linalg.solve(H, gradient).reshape(x.shape)
            except np.linalg.LinAlgError:
                break
            along = (x * step).sum((0, 2))  # turns round at t = |x|²/along
            t = np.square(x).sum((0, 2)) / np.maximum(along, 1e-300)
            first = int(np.argmin(t))
            x = x - min(1.0, t[first]) * step
            if t[first] <= 1:
                atoms, x = np.delete(atoms, first), np.delete(x, first, axis=1)
            elif np.abs(step).max() <= 1e-12 * np.abs(x).max():
                break
        exact = np.zeros((self.n_columns, n_atoms, c))
        exact[:, atoms] = x
        polished = torch.from_numpy(exact.reshape(len(v), c))
        better = self._value(polished, Q, b, lam) <= self._value(v, Q, b, lam)
        return polished if better else v

    def _value(self, v: Tensor, Q: Tensor, b: Tensor, lam: float) -> float:
        return float((v * (Q @ v / 2 - b)).sum() + lam * self._norms(v).sum())

    def _gap(self, z: Tensor, Q: Tensor, b: Tensor, square: float, lam: float) -> float:
        """Primal minus dual value, with the residual scaled into the dual's feasible set."""
        Qz = Q @ z
        rss = square - float((z * (2 * b - Qz)).sum())
        primal = rss / 2 + lam * float(self._norms(z).sum())
        scale = min(1.0, lam / max(float(self._norms(b - Qz).max()), 1e-300))
        # dual at θ = scale·r:  ½‖y‖² − ½‖θ − y‖² = scale·rᵀy − ½ scale² ‖r‖²
        ry = square - float((z * b).sum())
        return primal - (scale * ry - scale**2 * rss / 2)


class _Found(NamedTuple):
    v: Tensor  # (m, c)
    lam: float
    alpha: float
    gap: float
    iterations: int
    condition: float

"""Sources at very many rows: (K + D) a = B by conjugate gradients, K between the rows and D diagonal.

K is never factored. It is kept as tiles above the diagonal, in float32, up to a budget of memory, and
made anew in every product beyond. A Nyström factor of m rows preconditions [1]_: with K ≈ L Lᵀ, L (n, m),

    (L Lᵀ + D)⁻¹ = D⁻¹ − D⁻¹L (I + LᵀD⁻¹L)⁻¹ LᵀD⁻¹

Values u = K a are off by no more than the residual r = B − (K + D) a, in the norm of D^{−½}:
‖D^{−½} δu‖ ≤ ‖D^{−½} r‖, as K (K + D)⁻¹ has no eigenvalue above 1. So r is what is watched. As tiles
are rounded, r is checked in float64, at some of the rows if there are very many. Where rounding hides the
rest, what is left is solved for again, and then tiles are made in float64. A residual that float64 itself
leaves of any a, some √n ε |K| |a|, is accepted where it is below 1e-6 of the targets, and told.

References
----------
.. [1] Z. Frangella, J. Tropp, M. Udell, "Randomized Nyström preconditioning", SIAM J. Matrix Anal. Appl.
   44 (2023), 718–752.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy import ndarray
from scipy.linalg.lapack import dpotrs, dtrtrs
from torch import Tensor

from greenfold.solve.shared import Apply, factor
from greenfold.solve.solution import SolveError

TILE = 1024  # rows and columns of a tile
BUDGET = 4 * 2**30  # bytes of tiles that are kept
CHECKED = 512  # rows at which residuals are looked at in float64
THIN = 6  # columns
AGAIN = 3  # times that what is left is solved for
REACHED = 2  # √n ε |K| |a|, that rounding leaves of sums over n rows
SMALL = 1e-6  # of the right-hand side, above which rounding is no excuse

Kernel = Callable[[Tensor, Tensor], Tensor]  # points (a, d), (b, d) → (a, b), in their dtype

STUCK = """\
Conjugate gradients on {n} rows stopped after {iterations} steps with a residual of {residual:.1e} of the
targets, above `tol`={tol:.0e}, in {dtype}. Usually one of:

(a) the penalty is so small that the rows are interpolated: raise `alpha`;
(b) rows repeat each other with other targets: join them, with weights;
(c) fewer rows are enough: a source with up to 5,000 anchors is solved for by factors.
"""


class Tiles:
    """K (n, n) between points, symmetric."""

    def __init__(
        self,
        kernel: Kernel,
        z: Tensor,
        dtype: torch.dtype = torch.float32,
        budget: float = BUDGET,
    ):
        self.kernel, self.z, self.dtype, self.budget = kernel, z, dtype, budget
        self.parts = list(z.to(dtype).split(TILE))
        self.kept: dict[tuple[int, int], Tensor] = {}
        self.room = int(budget / (TILE**2 * dtype.itemsize))  # tiles that are kept, the first ones

    def __len__(self) -> int:
        return len(self.z)

    @property
    def megabytes(self) -> float:
        return sum(tile.nbytes for tile in self.kept.values()) / 2**20

    def tile(self, i: int, j: int) -> Tensor:
        """K between two parts of the rows, i ≤ j."""
        known = self.kept.get((i, j))
        if known is None:
            known = self.kernel(self.parts[i], self.parts[j])
            if len(self.kept) < self.room:
                self.kept[i, j] = known
        return known

    def times(self, a: ndarray) -> ndarray:
        """K a (m, c) for the first m = len(a) rows, summed in float64."""
        given, total = torch.from_numpy(a.T.copy()), torch.zeros(a.T.shape, dtype=torch.float64)
        parts = given.to(self.dtype).split(TILE, 1)  # (c, ·)
        sums = total.split(TILE, 1)
        for i, x in enumerate(parts):
            for j in range(i, len(parts)):
                y = parts[j]
                K = self.tile(i, j)[: x.shape[1], : y.shape[1]]
                sums[i].add_(product(K, y))
                if i < j:
                    sums[j].add_(product(K.mT, x))
        return total.numpy().T

    def at(self, rows: Tensor, a: ndarray) -> ndarray:
        """K a (k, c) at some of the rows, in float64."""
        z, sums = self.z.double(), torch.zeros(len(rows), a.shape[1], dtype=torch.float64)
        for part, own in zip(z[: len(a)].split(TILE), torch.from_numpy(a).split(TILE)):
            sums += self.kernel(z[rows], part) @ own
        return sums.numpy()


def product(M: Tensor, rows: Tensor) -> Tensor:
    """rows Mᵀ (c, a) of M (a, b) and rows (c, b); few of them one by one, as thin products are slow."""
    if len(rows) > THIN:
        return rows @ M.mT
    return torch.stack([torch.mv(M, row) for row in rows])


class Nystrom(NamedTuple):
    """(L Lᵀ + D)⁻¹ for one D, for a with Nᵀa = 0 if there is such an N."""

    L: Tensor  # (n, m)
    d: ndarray  # (n,)
    R: ndarray  # (m, m), R Rᵀ = I + LᵀD⁻¹L
    N: ndarray  # (n, q)
    U: ndarray  # (n, q), (L Lᵀ + D)⁻¹ N
    inside: ndarray  # (q, q), (Nᵀ U)⁻¹

    @staticmethod
    def of(L: ndarray, d: ndarray, gram: ndarray, N: ndarray | None = None) -> Nystrom:
        """`gram` is LᵀD⁻¹L."""
        A = gram.copy()
        A[np.diag_indices_from(A)] += 1
        none = np.zeros((len(d), 0))
        free = Nystrom(torch.from_numpy(L), d, factor(A, 1.0), none, none, np.zeros((0, 0)))
        if N is None:
            return free
        U = free.solve(N)
        return free._replace(N=N, U=U, inside=np.linalg.inv(N.T @ U))

    def solve(self, r: ndarray) -> ndarray:
        s = r / self.d[:, None]
        b = product(self.L.mT, torch.from_numpy(s.T.copy())).numpy().T
        inside, _ = dpotrs(self.R, b, lower=1)
        return s - product(self.L, torch.from_numpy(inside.T.copy())).numpy().T / self.d[:, None]

    def __call__(self, r: ndarray) -> tuple[ndarray, ndarray]:
        """What r asks of a (n, c), and what of r is left to the columns of N (q, c)."""
        z = self.solve(r)
        b = self.explained(z)
        return z - self.U @ b, b

    def explained(self, a: ndarray) -> ndarray:
        """How far a (n, c) is from Nᵀa = 0, in columns of U (q, c)."""
        return np.asarray(self.inside @ (self.N.T @ a))

    def size(self, r: ndarray) -> ndarray:
        """‖D^{−½} r‖ (c,)."""
        return np.asarray(np.linalg.norm(r / np.sqrt(self.d)[:, None], axis=0))


class Spent(NamedTuple):
    """What a solve took."""

    iterations: int
    residual: float
    dtype: torch.dtype
    m: int  # rows of the preconditioner


@dataclass
class Many:
    """K between n rows, as `shared.System` wants it: A = K + diag(d) is solved for, not factored."""

    tiles: Tiles
    m: int  # rows of the preconditioner, the first ones
    tol: float = 1e-6  # of the residual over the right-hand side, in the norm of D^{−½}
    max_iter: int = 400
    largest: int = 6000  # rows of a preconditioner
    escalates: bool = True  # to tiles in float64
    loose: float = (
        0.0  # residual that `inverse` may leave, unchecked; none if it is to be as good as `tol`
    )
    used: list[Spent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.precondition(self.m)

    def precondition(self, m: int) -> None:
        """By the first m rows."""
        self.L = nystrom(self.tiles, m)
        self.shape, self.gram = np.zeros(0), np.zeros(0)

    def near(self, d: ndarray, N: ndarray | None = None) -> Nystrom:
        """The preconditioner. LᵀD⁻¹L is kept for the next D that is a multiple of this one."""
        size = float(d.mean())
        if not np.array_equal(self.shape, d / size):
            scaled = self.L / np.sqrt(d / size)[:, None]
            self.shape, self.gram = d / size, scaled.T @ scaled
        return Nystrom.of(self.L, d, self.gram / size, N)

    def __len__(self) -> int:
        return len(self.tiles)

    @property
    def rough(self) -> bool:
        return self.loose > 0

    def times(self, a: ndarray) -> ndarray:
        return self.tiles.times(a)

    def inverse(self, d: ndarray) -> tuple[Apply, ndarray]:
        """A⁻¹, and the factor of the preconditioner."""
        near = self.near(d)
        if not self.rough:
            return lambda B: self.solve(d, B)[0], near.R

        def nearly(B: ndarray) -> ndarray:
            a, count = self.conjugate(near, B, self.loose * np.maximum(near.size(B), 1e-300))
            self.used.append(Spent(count, self.loose, self.tiles.dtype, self.L.shape[1]))
            return a

        return nearly, near.R

    def trace(self, d: ndarray, R: ndarray) -> float:
        """tr(A⁻¹D), by the preconditioner: too large where K has more than m rows tell."""
        half, _ = dtrtrs(R, np.eye(len(R)), lower=1)
        return len(d) - len(R) + float((half**2).sum())

    def solve(
        self, d: ndarray, B: ndarray, N: ndarray | None = None, start: ndarray | None = None
    ) -> tuple[ndarray, ndarray]:
        """a (n, c) and b (q, c) with (K + D) a + N b = B and Nᵀa = 0, from a `start` of a on.

        Where it does not converge, tiles in float64 follow, and then preconditioners of four times as
        many rows: with all of them it is a solve by factors. `SolveError` if that is in vain.
        """
        near, steps = self.near(d, N), 0
        size = np.maximum(near.size(B - near.N @ near(B)[1]), 1e-300)
        goal = self.tol * size
        a = np.zeros_like(B) if start is None else start - near.U @ near.explained(start)
        while True:
            a, b, left, count = self.attempt(near, B, a, goal)
            steps += count
            if (left <= np.maximum(2 * goal, self.reached(near, a, left, SMALL * size))).all():
                worst = float((left / goal).max() * self.tol)
                self.used.append(Spent(steps, worst, self.tiles.dtype, self.L.shape[1]))
                return a, b
            m, most = self.L.shape[1], min(len(B), self.largest)
            if self.escalates and self.tiles.dtype != torch.float64:  # rounding hides what is left
                self.tiles = Tiles(
                    self.tiles.kernel, self.tiles.z, torch.float64, self.tiles.budget
                )
            elif m < most:
                self.precondition(min(4 * m, most))
                near = self.near(d, N)
            else:
                residual = float((left / goal).max() * self.tol)
                told = {"n": len(B), "iterations": steps, "residual": residual, "tol": self.tol}
                dtype = str(self.tiles.dtype).removeprefix("torch.")
                raise SolveError(STUCK.format(**told, dtype=dtype))

    def attempt(
        self, near: Nystrom, B: ndarray, a: ndarray, goal: ndarray
    ) -> tuple[ndarray, ndarray, ndarray, int]:
        """On from a: a, b, what is left (c,), and the steps taken."""
        r, steps = B - self.product(near.d, a) if a.any() else B, 0
        left = np.full(B.shape[1], np.inf)
        for _ in range(AGAIN):
            before = left
            more, count = self.conjugate(near, r, goal)
            a, steps = a + more, steps + count
            left, r, b = self.checked(near, B, a, goal)
            if (left <= 2 * goal).all() or not (left < before / 2).all():
                break
        return a, b, left, steps

    def reached(self, near: Nystrom, a: ndarray, left: ndarray, most: ndarray) -> ndarray:
        """What float64 leaves of any a (c,), up to so much; nothing if that is not what is left."""
        if self.tiles.dtype != torch.float64 or not (left <= most).all():
            return np.zeros_like(left)
        sums = self.product(near.d, np.abs(a))
        rounding = REACHED * math.sqrt(len(a)) * np.finfo(float).eps
        return np.minimum(rounding * near.size(sums), most)

    def product(self, d: ndarray, a: ndarray, careful: bool = False) -> ndarray:
        """(K + D) a, in float64 throughout if asked for."""
        if not careful or self.tiles.dtype == torch.float64:
            return self.tiles.times(a) + d[:, None] * a
        every = torch.arange(len(a)).split(TILE)
        return np.concatenate([self.tiles.at(rows, a) for rows in every]) + d[:, None] * a

    def checked(
        self, near: Nystrom, B: ndarray, a: ndarray, goal: ndarray
    ) -> tuple[ndarray, ndarray, ndarray]:
        """Norms (c,) of what is left in float64, from some rows if that is enough; r (n, c); and b."""
        r = B - self.product(near.d, a)
        b = near(r)[1]
        some = np.arange(0, len(B), max(len(B) // CHECKED, 1))
        rounding = self.tiles.at(torch.from_numpy(some), a) - (B - r - near.d[:, None] * a)[some]
        unit = np.sqrt(near.d)[some, None]
        extra = np.linalg.norm(rounding / unit, axis=0) * math.sqrt(len(B) / len(some))
        left = near.size(r - near.N @ b) + extra
        if (left <= 2 * goal).all() or self.tiles.dtype == torch.float64:
            return left, r, b
        r = B - self.product(near.d, a, careful=True)
        b = near(r)[1]
        return near.size(r - near.N @ b), r, b

    def conjugate(self, near: Nystrom, B: ndarray, goal: ndarray) -> tuple[ndarray, int]:
        """a (n, c) from 0 on, and the steps taken. Columns go side by side and rest when done."""
        a, r = np.zeros_like(B), B.copy()
        z, b = near(r)
        r -= near.N @ b  # what N takes would drown the rest in rounding
        p, rz, size = z.copy(), (r * z).sum(0), near.size(r)
        for step in range(self.max_iter):
            on = size > goal
            if not on.any():
                return a, step
            Ap = self.product(near.d, p[:, on])
            curve = (p[:, on] * Ap).sum(0)
            if not (np.isfinite(curve) & (curve > 0)).all():  # rounding: A is not definite along p
                return a, step
            length = rz[on] / curve
            a[:, on] += length * p[:, on]
            r[:, on] -= length * Ap
            z, b = near(r[:, on])
            r[:, on] -= near.N @ b
            new, size[on] = (r[:, on] * z).sum(0), near.size(r[:, on])
            p[:, on] = z + new / rz[on] * p[:, on]
            rz[on] = new
        return a, self.max_iter


def nystrom(tiles: Tiles, m: int) -> ndarray:
    """L (n, m) with L Lᵀ = K_nm K_mm⁻¹ K_mn, by the first m rows, in float64."""
    z = tiles.z.double()
    K = tiles.kernel(z[:m], z[:m]).numpy()
    K = (K + K.T) / 2
    K[np.diag_indices_from(K)] += 1e-10 * float(np.diag(K).mean())
    F = factor(K, 1e-10)
    L = np.empty((len(z), m))
    for i in range(0, len(z), TILE):
        part = tiles.kernel(z[i : i + TILE], z[:m]).numpy()
        L[i : i + TILE] = dtrtrs(F, part.T, lower=1)[0].T
    return L

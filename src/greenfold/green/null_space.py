"""Functions that the operator sends to zero, or nearly: columns the penalty leaves alone."""

from itertools import combinations_with_replacement

import torch
from torch import Tensor, nn


class Polynomial(nn.Module):
    """All monomials ξ^β with |β| ≤ p, mixed ones too, and on request one quadratic column.

    The columns are 1, ξ_1, …, ξ_d, ξ_1², ξ_1ξ_2, … by degree, then Σ_j ξ_j²/D_j when `squared`. That
    last function is not in the null space of −Δ: it stands for the part of the inverse beyond the
    horizon at which an operator without a spectral gap is cut, whose next term is constant + |ξ|².

    Parameters
    ----------
    degree : int
        p. A degree of −1 gives no monomials.
    squared : bool
        Add the quadratic column.
    diffusivity : Tensor or float
        D_j of the operator, scalar or (d,).
    """

    diffusivity: Tensor

    def __init__(
        self, degree: int = 1, *, squared: bool = False, diffusivity: Tensor | float = 1.0
    ):
        super().__init__()
        if degree < -1:
            raise ValueError(f"`degree` must be at least -1 (no monomials), got {degree}.")
        self.degree = degree
        self.squared = squared
        self.register_buffer("diffusivity", torch.as_tensor(diffusivity))

    def exponents(self, n_dims: int) -> Tensor:
        """The multi-indices β, shape (q, d), with q = C(d + p, p)."""
        rows = []
        for total in range(self.degree + 1):
            for axes in combinations_with_replacement(range(n_dims), total):
                rows.append([axes.count(j) for j in range(n_dims)])
        return torch.tensor(rows, dtype=torch.long).reshape(-1, n_dims)

    def forward(self, xi: Tensor, gate: Tensor | None = None) -> Tensor:
        """Columns (n, q). A closed gate turns the monomials of its axis to zero."""
        if gate is not None:
            xi = xi * gate
        columns = [torch.ones_like(xi[:, :1])] if self.degree >= 0 else []
        previous = [(torch.ones_like(xi[:, :1]), 0)]  # (monomials, their last axis)
        for _ in range(self.degree):  # multiply each monomial by its last axis and those after it
            previous = [
                (value * xi[:, j : j + 1], j)
                for value, last in previous
                for j in range(last, xi.shape[1])
            ]
            columns += [value for value, _ in previous]
        if self.squared and not self.degree >= 2:  # already spanned from degree 2 on
            columns.append((xi**2 / self.diffusivity.to(xi.dtype)).sum(1, keepdim=True))
        return torch.cat(columns, dim=1) if columns else xi[:, :0]

    def extra_repr(self) -> str:
        return f"degree={self.degree}, squared={self.squared}"

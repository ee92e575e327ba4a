"""Functions that the operator sends to zero, or nearly: columns the penalty leaves alone."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Polynomial(nn.Module):
    """All monomials ξ^β with |β| ≤ p, mixed ones too, and on request quadratic columns.

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
        D_j of the operator, scalar or (d,); (m, d) for m quadratic columns.
    axes : sequence of int, optional
        The axes that take part; all by default.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Polynomial
    >>> Polynomial(2)(torch.zeros(5, 2, dtype=torch.float64)).shape  # 1, ξ₁, ξ₂, ξ₁², ξ₁ξ₂, ξ₂²
    torch.Size([5, 6])
    """

    diffusivity: Tensor

    def __init__(
        self,
        degree: int = 1,
        *,
        squared: bool = False,
        diffusivity: Tensor | float = 1.0,
        axes: Sequence[int] | None = None,
    ):
        super().__init__()
        if degree < -1:
            raise ValueError(f"`degree` must be at least -1 (no monomials), got {degree}.")
        self.degree = degree
        self.squared = squared
        self.axes = None if axes is None else list(axes)
        self.register_buffer("diffusivity", torch.as_tensor(diffusivity))

    def forward(self, xi: Tensor, gate: Tensor | None = None) -> Tensor:
        """Columns (n, q). A closed gate turns the monomials of its axis to zero."""
        if gate is not None and (self.degree > 0 or self.squared):
            xi = xi * gate
        one = xi.new_ones(xi.shape[0], 1)
        columns = [one] if self.degree >= 0 else []
        axes = list(range(xi.shape[1])) if self.axes is None else self.axes
        previous = [(one, 0)]  # monomials, and where in `axes` their last factor stands
        for _ in range(self.degree):  # multiply each by its last axis and those after it
            previous = [
                (value * xi[:, axes[i], None], i)
                for value, last in previous
                for i in range(last, len(axes))
            ]
            columns += [value for value, _ in previous]
        if self.squared:
            D = self.diffusivity.to(xi.dtype)
            for row in D if D.ndim == 2 else D[None]:
                columns.append((xi**2 / row)[:, axes].sum(1, keepdim=True))
        if len(columns) == 1:
            return columns[0]
        return torch.cat(columns, dim=1) if columns else xi[:, :0]

    def extra_repr(self) -> str:
        return f"degree={self.degree}, squared={self.squared}"

"""Responses with operator, sources and gates settled: a handful of products and exponentials of ξ.

A form gives columns (n, k·r), for k terms of r sources; the response is their sum over terms, times
`weight`. It needs nothing but its numbers, so that a graph of it runs anywhere. Most are products of
what each axis brings, which `along` tells.
"""

from collections.abc import Iterator
from functools import reduce

import torch
from torch import Tensor, nn


class NoForm(ValueError):
    """Why a response is not known in closed form."""


class Form(nn.Module):
    """Columns of a response, or of one of several that are added."""

    weight = 1.0
    n_terms = 1
    additive = False  # is it a constant and a sum over axes, not a product?

    def along(self, x: Tensor, j: int) -> Tensor:
        """What axis j brings at places (n,) on it, (n, k·r): columns are the product over axes.

        Of an `additive` form they are the sum, and a constant. Raises `NoForm`.
        """
        raise NoForm("its response is no product of functions of one coordinate each")

    def keep(self, **numbers: Tensor) -> None:
        for name, value in numbers.items():
            self.register_buffer(name, value.detach().clone())


class Gaussians(Form):
    """γ_k exp(−½ A ξ² + B ξ + C), with the square around the middle of the sources."""

    center: Tensor
    W: Tensor
    constant: Tensor

    def __init__(self, log_gamma: Tensor, A: Tensor, B: Tensor, C: Tensor):
        """log γ (k,) and the coefficients of every axis (k, r, d)."""
        super().__init__()
        center = (B / A.clamp_min(1e-300)).mean((0, 1)) * (A.amin((0, 1)) > 0)
        C = C + B * center - A * center**2 / 2
        B = B - A * center
        self.n_terms, r, d = A.shape
        W = torch.cat([-A / 2, B], dim=-1).reshape(self.n_terms * r, 2 * d).T.contiguous()
        self.keep(center=center, W=W, constant=(C.sum(-1) + log_gamma[:, None]).reshape(-1))

    def forward(self, xi: Tensor) -> Tensor:
        eta = xi - self.center
        return torch.exp(torch.cat([eta**2, eta], dim=1) @ self.W + self.constant)

    def along(self, x: Tensor, j: int) -> Tensor:
        d = len(self.center)
        A, B = -2 * self.W[:d], self.W[d:]  # (d, k·r)
        top = B / A.clamp_min(1e-300) * (A > 0)  # where the factor is largest
        height = (self.constant + (B * top).sum(0) / 2) / d  # of the product, shared by all axes
        return torch.exp(height - A[j] / 2 * ((x - self.center[j])[:, None] - top[j]).square())


class Distances(Form):
    """What a response takes from the distances t_j = s_j |ξ_j − μ_j| along each axis."""

    scale: Tensor
    mu: Tensor

    def __init__(self, mu: Tensor, scale: Tensor):
        super().__init__()
        self.keep(scale=scale, mu=(mu * scale).T.contiguous())  # (d,), (d, r)

    def along_axes(self, xi: Tensor) -> Iterator[Tensor]:
        """t_j (n, r), an axis at a time to keep memory flat."""
        for j in range(self.mu.shape[0]):
            yield self.distance(xi[:, j], j)

    def distance(self, x: Tensor, j: int) -> Tensor:
        """t_j (n, r) of places (n,)."""
        return (x[:, None] * self.scale[j] - self.mu[j]).abs()


class Radial(Distances):
    """(1 + r²/2β)^{−β} of r² = Σ_j t_j², or e^{−r}, where β is None."""

    def __init__(self, mu: Tensor, scale: Tensor, beta: float | None = None):
        super().__init__(mu, scale)
        self.beta = beta

    def forward(self, xi: Tensor) -> Tensor:
        r2 = reduce(torch.add, (t * t for t in self.along_axes(xi)))
        if self.beta is None:
            return torch.exp(-r2.sqrt())
        return (1 + r2 / (2 * self.beta)).pow(-self.beta)


class Axes(Distances):
    """Π_j (1 − p_j + p_j k(t_j)), with k = e^{−t} of order 1 or (1 + t) e^{−t} of order 2."""

    share: Tensor

    def __init__(self, mu: Tensor, scale: Tensor, share: Tensor, order: int = 1):
        super().__init__(mu, scale)
        self.keep(share=share)
        self.order = order

    def forward(self, xi: Tensor) -> Tensor:
        factors = (1 - p + p * self.kernel(t) for p, t in zip(self.share, self.along_axes(xi)))
        return reduce(torch.mul, factors)

    def along(self, x: Tensor, j: int) -> Tensor:
        p = self.share[j]
        return 1 - p + p * self.kernel(self.distance(x, j))

    def kernel(self, t: Tensor) -> Tensor:
        return torch.exp(-t) if self.order == 1 else (1 + t) * torch.exp(-t)


class Laplace(Distances):
    """h Π_j e^{−t_j}."""

    height: Tensor

    def __init__(self, mu: Tensor, scale: Tensor, height: Tensor):
        super().__init__(mu, scale)
        self.keep(height=height)

    def forward(self, xi: Tensor) -> Tensor:
        return self.height * torch.exp(-reduce(torch.add, self.along_axes(xi)))

    def along(self, x: Tensor, j: int) -> Tensor:
        return self.height ** (1 / len(self.scale)) * torch.exp(-self.distance(x, j))


class Lines(Form):
    """a + Σ_j b_j ξ_j μ_j."""

    additive = True
    level: Tensor
    slopes: Tensor

    def __init__(self, mu: Tensor, level: Tensor, slope: Tensor):
        super().__init__()
        self.keep(level=level, slopes=(mu * slope).T.contiguous())  # (), (d, r)

    def forward(self, xi: Tensor) -> Tensor:
        return self.level + xi @ self.slopes

    def along(self, x: Tensor, j: int) -> Tensor:
        return x[:, None] * self.slopes[j]

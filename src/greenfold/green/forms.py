"""Responses with operator, sources and gates settled: a handful of products and exponentials of ξ.

A form gives columns (n, k·r), for k terms of r sources; the response is their sum over terms, times
`weight`. It needs nothing but its numbers, so that a graph of it runs anywhere.
"""

from collections.abc import Iterator
from functools import reduce

import torch
from torch import Tensor, nn


class Form(nn.Module):
    """Columns of a response, or of one of several that are added."""

    weight = 1.0
    n_terms = 1

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


class Distances(Form):
    """What a response takes from the distances t_j = s_j |ξ_j − μ_j| along each axis."""

    scale: Tensor
    mu: Tensor

    def __init__(self, mu: Tensor, scale: Tensor):
        super().__init__()
        self.keep(scale=scale, mu=(mu * scale).T.contiguous())  # (d,), (d, r)

    def along_axes(self, xi: Tensor) -> Iterator[Tensor]:
        """t_j (n, r), an axis at a time to keep memory flat."""
        z = xi * self.scale
        for j in range(self.mu.shape[0]):
            yield (z[:, j : j + 1] - self.mu[j]).abs()


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


class Lines(Form):
    """a + Σ_j b_j ξ_j μ_j."""

    level: Tensor
    slopes: Tensor

    def __init__(self, mu: Tensor, level: Tensor, slope: Tensor):
        super().__init__()
        self.keep(level=level, slopes=(mu * slope).T.contiguous())  # (), (d, r)

    def forward(self, xi: Tensor) -> Tensor:
        return self.level + xi @ self.slopes

"""Episodes: a source solved for on some rows, in closed form, and what it costs at others.

On a chart with kernel k, the support (m rows, K = k(support, support)) has the source a and the free
constant b, and the query (C = k(query, support)) is predicted by them::

    (K + λI) a + 1 b = Y,    1ᵀa = 0,    u = C a + b

Both are differentiable in K, C and λ: a chart descends what queries cost through the solve, as few rows
will be asked to predict others on it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from greenfold.green.atoms import Point
from greenfold.green.base import Operator


def kernels(operator: Operator, support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """K (m, m) and C (q, m) at places (m, d) and (q, d), 1 at a place by itself."""
    at = Point(support)
    origin = operator.origin(support.shape[1]).to(support)[None]
    unit = operator.response(origin, Point(origin))[0, 0]
    both = operator.response(torch.cat([support, query]), at) / unit
    return both[: len(support)], both[len(support) :]


def solved_for(K: Tensor, C: Tensor, Y: Tensor, noise: Tensor) -> Tensor:
    """u (q, c) at the query, from targets Y (m, c) of the support with noise λ, one for all or (m,)."""
    a, b = source_of(K, Y, noise)
    return C @ a + b


def source_of(K: Tensor, Y: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """a (m, c) and b (c,)."""
    one = torch.ones_like(Y[:, :1])
    L = torch.linalg.cholesky(K + noise.expand(len(K)).diag())
    solved = torch.cholesky_solve(torch.cat([Y, one], 1), L)  # A⁻¹Y and A⁻¹1
    b = solved[:, :-1].sum(0) / solved[:, -1].sum()
    return solved[:, :-1] - solved[:, -1:] * b, b



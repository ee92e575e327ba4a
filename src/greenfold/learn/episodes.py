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
    origin = operator.origin(support.shape[1]).to(support)[None]
    unit = operator.response(origin, Point(origin))[0, 0]
    both = operator.response(torch.cat([support, query]), Point(support)) / unit
    return both[: len(support)], both[len(support) :]


def blocks(
    operator: Operator, supports: list[Tensor], queries: list[Tensor]
) -> list[tuple[Tensor, Tensor]]:
    """`kernels` of several episodes, cut out of one response: a call for each would take longer."""
    K, C = kernels(operator, torch.cat(supports), torch.cat(queries))
    m, q = [len(z) for z in supports], [len(z) for z in queries]
    own = [part.split(m, 1)[i] for i, part in enumerate(K.split(m))]
    rest = [part.split(m, 1)[i] for i, part in enumerate(C.split(q))]
    return list(zip(own, rest, strict=True))


def solved_for(K: Tensor, C: Tensor, Y: Tensor, noise: Tensor) -> Tensor:
    """u (…, q, c) at the query, from targets Y (…, m, c) of the support with noise λ, one or (m,)."""
    A = K + noise.expand(K.shape[-1]).diag()
    L = torch.linalg.cholesky(A)
    solved = torch.cholesky_solve(torch.cat([Y, torch.ones_like(Y[..., :1])], -1), L)
    one = solved[..., -1:]  # A⁻¹1
    b = solved[..., :-1].sum(-2, keepdim=True) / one.sum(-2, keepdim=True)
    return C @ (solved[..., :-1] - one * b) + b


def predicted(pairs: list[tuple[Tensor, Tensor]], Ys: list[Tensor], noise: Tensor) -> list[Tensor]:
    """u (q, c) of every episode, all at once where they have the same sizes."""
    sizes = {(C.shape, Y.shape) for (_, C), Y in zip(pairs, Ys, strict=True)}
    if len(sizes) > 1:
        return [solved_for(K, C, Y, noise) for (K, C), Y in zip(pairs, Ys, strict=True)]
    K, C = (torch.stack(part) for part in zip(*pairs, strict=True))
    return list(solved_for(K, C, torch.stack(Ys), noise))


def halves(
    y: Tensor, n_support: int | None, classes: bool, draws: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Rows of the support and of the query, at random; as evenly over the classes y (n,) as there are."""
    n = len(y)
    order = torch.randperm(n, generator=draws)
    if classes:  # the first of every class, then the second of every class, …
        label = y[order]
        earlier = (label[:, None] == label) & (torch.arange(n)[:, None] > torch.arange(n))
        order = order[earlier.sum(1).argsort(stable=True)]
    m = min(n_support or n // 2, n - 1)
    return order[:m], order[m:]

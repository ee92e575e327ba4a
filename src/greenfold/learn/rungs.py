"""Rungs for tabular data: charts of growing freedom with rough kernels, learned by evidence.

    ard.l1    z = s∘x               Π_j e^{−|δ_j|}    the product kernel on axis scales
    iso.l1    z = s x               Π_j e^{−|δ_j|}
    ard.rq    z = s∘x               1/(1 + |δ|²/2)
    full.rq   z = (I + W) s∘x       1/(1 + |δ|²/2)    smooth along rotated directions
    full.l1   z = (I + W) s∘x       Π_j e^{−|δ_j|}
    warp.l1   z = s∘(x + bends)     Π_j e^{−|δ_j|}    six tanh for each input
    mlp.rq    z = s∘x + r(x)        1/(1 + |δ|²/2)    r an MLP that starts at zero

Inputs have unit variance. All start from the scales of a short ard.rq fit, since a product kernel
finds nothing from equal scales when most inputs do not matter. Learning descends the evidence of an
exact GP, summed over blocks of rows: a block has no anchors to miss anything between, and costs its
size cubed. Priors are N(−½ log D − ½, 3) for log s and N(start, ¼) for every other number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from greenfold.chart import AxisScales, Mixed, PCAResidual, Warp
from greenfold.chart.start import pivots
from greenfold.design import Design
from greenfold.green.atoms import Point
from greenfold.green.base import Operator
from greenfold.green.diffusion import Heat
from greenfold.green.operators import Cauchy, ProductScreened
from greenfold.learn.trainer import descend
from greenfold.model import IGL, Tied
from greenfold.solve import Solution, SolveError
from greenfold.solve.statistics import Statistics

LOG_NOISE = (math.log(1e-7), math.log(1e3))

KERNELS: dict[str, Callable[[], Operator]] = {
    "gaussian": lambda: Heat(0.5),  # e^{−r²/2}
    "cauchy": lambda: Cauchy(1.0),  # 1/(1 + r²/2)
    "laplace": lambda: ProductScreened(1.0),  # Π e^{−|δ_j|}
}


@dataclass(frozen=True)
class Rung:
    """A kind of chart and its kernel."""

    kernel: str  # 'laplace' or 'cauchy'
    chart: Callable[[Tensor], nn.Module]  # from the scales s (D,) it starts at
    rigid: bool = False  # so few parameters that held-out rows may share them


RUNGS: dict[str, Rung] = {
    "ard.l1": Rung("laplace", lambda s: AxisScales(len(s), s), rigid=True),
    "iso.l1": Rung("laplace", lambda s: AxisScales(len(s), s.mean(), tied=True), rigid=True),
    "ard.rq": Rung("cauchy", lambda s: AxisScales(len(s), s), rigid=True),
    "full.rq": Rung("cauchy", Mixed),
    "full.l1": Rung("laplace", Mixed),
    "warp.l1": Rung("laplace", lambda s: Warp(len(s), scale=s)),
    "mlp.rq": Rung("cauchy", lambda s: PCAResidual(s.diag(), hidden=(32, 32))),
}


@dataclass(frozen=True)
class Fitted:
    """A rung with its chart learned."""

    name: str
    encoder: nn.Module
    kernel: str
    noise: float  # λ, for a kernel of unit variance
    evidence: float  # negative log evidence per row and output, with the prior


Block = tuple[Tensor, Tensor, Tensor]  # x (b, D), Y (b, c), weight (b,)


def blocks(x: Tensor, Y: Tensor, weight: Tensor | None, rows: int, size: int) -> list[Block]:
    """The first `rows` rows, dealt out to blocks of about `size`; rows come in random order."""
    rows = min(rows, len(x))
    count = max(1, -(-rows // size))
    w = torch.ones(len(x), dtype=torch.float64) if weight is None else weight
    return [(x[i:rows:count], Y[i:rows:count], w[i:rows:count]) for i in range(count)]


def kernel_matrix(name: str, z: Tensor, z2: Tensor) -> Tensor:
    """Unit-variance k(z_i, z'_j), shape (n, n')."""
    if name == "laplace":
        return torch.exp(-torch.cdist(z, z2, p=1.0))
    r2 = z.square().sum(1)[:, None] + z2.square().sum(1) - 2 * z @ z2.T
    return 1 / (1 + r2.clamp_min(0) / 2)


def evidence(name: str, z: Tensor, Y: Tensor, weight: Tensor, log_noise: Tensor) -> Tensor:
    """Negative log evidence of y ~ N(0, s(K + λ/weight + 1 1ᵀ)), summed over rows, mean over outputs.

    The variance s is profiled out. A row of weight 3 has a third of the noise, as if it were the mean of
    three; that its copies agree exactly is not taken as evidence, or a few copies would make λ vanish.
    The gradient is the closed form Σ_ij M_ij dK_ij with M = (A⁻¹ − ααᵀ/s)/2, so K is differentiated and
    its factor is not.
    """
    K = kernel_matrix(name, z, z.detach())  # half of the gradient: K is symmetric
    noise = log_noise.clamp(*LOG_NOISE).exp()
    n = len(Y)
    with torch.no_grad():
        A = K + 1
        A.diagonal().add_(noise / weight + 1e-10)
        L, failed = torch.linalg.cholesky_ex(A)
        if int(failed):
            raise SolveError("the kernel matrix of a block is not positive definite.")
        alpha = torch.cholesky_solve(Y, L)  # (b, c)
        s = ((Y * alpha).sum(0) / n).clamp_min(1e-300)  # (c,)
        value = n / 2 * s.log().mean() + L.diagonal().log().sum()
        M = (torch.cholesky_inverse(L) - alpha / (s * len(s)) @ alpha.T) / 2
        slope = (M.diagonal() * noise / weight).sum()
    moving = 2 * (M * K).sum() + slope * log_noise
    return value + moving - moving.detach()


def learn(name: str, start: Fitted, data: Sequence[Block], max_iter: int = 30) -> Fitted:
    """Descend the evidence of a rung, on from a fit of the same rung or from the axis scales of another.

    The product kernel starts from scales halfway to equal ones: where a smooth kernel has closed an axis,
    the product kernel would not open it again.
    """
    rung, noise = RUNGS[name], start.noise
    if start.name == name:
        encoder = deepcopy(start.encoder)
    else:
        assert isinstance(start.encoder, AxisScales)
        s = start.encoder.scale.detach()
        if rung.kernel == "laplace":
            s, noise = (s * s.mean()).sqrt(), 1e-2
        encoder = rung.chart(s)
    log_noise = torch.tensor(math.log(noise), dtype=torch.float64, requires_grad=True)
    priors = [
        (p, -0.5 * math.log(data[0][0].shape[1]) - 0.5, 3.0)
        if key.endswith("log_scale")
        else (p, p.detach().clone(), 0.25)
        for key, p in encoder.named_parameters()
    ]
    c = data[0][1].shape[1]
    n = c * sum(len(x) for x, _, _ in data)

    def loss() -> Tensor:
        total = torch.stack([(p - m).square().sum() / (2 * v) for p, m, v in priors]).sum()
        for x, Y, weight in data:
            total = total + c * evidence(rung.kernel, encoder(x), Y, weight, log_noise)
        return total / n

    parameters = [*encoder.parameters(), log_noise]
    history = descend(encoder, loss, parameters, max_iter=max_iter, tol=1e-6)
    noise = float(log_noise.detach().clamp(*LOG_NOISE).exp())
    best = history.loss[-1] if history.loss else math.inf
    return Fitted(name, encoder, rung.kernel, noise, best)


def short_fit(x: Tensor, Y: Tensor, weight: Tensor | None = None) -> Fitted:
    """Axis scales with the rational quadratic kernel, on few rows: where the others start."""
    D = x.shape[1]
    equal = Fitted("ard.rq", AxisScales(D, math.exp(-0.5) / math.sqrt(D)), "cauchy", 1e-2, math.inf)
    return learn("ard.rq", equal, blocks(x, Y, weight, 1000, 250), 25)


# --- the source on a learned chart


def anchored(fit: Fitted, x: Tensor, n_anchors: int) -> IGL:
    """The model of a chart and a kernel, with anchors at rows that carry the kernel matrix.

    Of many rows the first are looked at, so they should come in random order.
    """
    operator = KERNELS[fit.kernel]()
    with torch.no_grad():
        z = fit.encoder(x[: 3 * n_anchors // 2])
        G = operator.response(z, Point(z))
        missing = max(1e-2 * fit.noise, 1e-13) * float(G[0, 0])  # well below the noise
        rows = pivots(G, missing)[:n_anchors]
    return IGL(fit.encoder, operator, Tied(x[rows]), n_dims=z.shape[1], energy=True).eval()


@dataclass(frozen=True)
class Solved:
    """A rung with its source: the model, and how it does on rows held out."""

    name: str
    model: IGL
    solution: Solution
    errors: Tensor  # (n, c)  residuals of every fold when its rows are left out of the solve


@torch.no_grad()
def source(fit: Fitted, x: Tensor, Y: Tensor, weight: Tensor | None, n_anchors: int) -> IGL:
    """The model with its source, λ scanned again by evidence on all rows."""
    model = anchored(fit, x, n_anchors)
    sums = Statistics()
    sums.update(model.design(x), Y, weight)
    model.w = sums.weights(rescan(sums, fit.noise, float(model.unit())))
    return model


@torch.no_grad()
def solve(
    fit: Fitted, x: Tensor, Y: Tensor, weight: Tensor | None, folds: Tensor, n_anchors: int
) -> Solved:
    """`source`, with its errors on held-out folds; `folds` (n,) numbers them.

    A fold is left out of the solve by leaving it out of the sums; chart, anchors and λ stay.
    """
    model = anchored(fit, x, n_anchors)
    design = model.design(x)
    fold_rows = [folds == k for k in range(int(folds.max()) + 1)]
    parts = []
    for rows in fold_rows:
        parts.append(Statistics())
        w = None if weight is None else weight[rows]
        parts[-1].update(Design(design.Phi[rows], design.penalty), Y[rows], w)
    total = merged(parts)
    alpha = rescan(total, fit.noise, float(model.unit()))
    solution = total.solve(alpha, relative=False)
    model.w = solution.w
    errors = torch.empty_like(Y)
    for k, rows in enumerate(fold_rows):
        rest = merged(parts[:k] + parts[k + 1 :])
        errors[rows] = Y[rows] - design.Phi[rows] @ rest.weights(alpha)
    return Solved(fit.name, model, solution, errors)


def merged(parts: Sequence[Statistics]) -> Statistics:
    total = Statistics()
    for part in parts:
        total.merge(part)
    return total


def rescan(sums: Statistics, noise: float, unit: float) -> float:
    """α = λ·unit at the best evidence on these rows, near the λ that blocks of rows had."""
    n, m = sums.rows, float(sums.penalty.sum())
    square = sums.square.diagonal()

    def loss(log_noise: float) -> float:
        alpha = math.exp(log_noise) * unit
        L, failed = torch.linalg.cholesky_ex(sums.gram + (alpha * sums.penalty).diag())
        if int(failed):
            return math.inf
        S = square - (sums.cross * torch.cholesky_solve(sums.cross, L)).sum(0)
        fit = n / 2 * (S.clamp_min(1e-14 * n) / n).log().mean()
        return float(fit + L.diagonal().log().sum()) - m / 2 * math.log(alpha)

    low, high = math.log(noise) - 3, math.log(noise) + 3
    bounds = (max(low, LOG_NOISE[0]), max(min(high, LOG_NOISE[1]), LOG_NOISE[0] + 1))
    found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 0.15})
    return math.exp(float(found.x)) * unit

"""Rungs for tabular data: charts of growing freedom with rough kernels, learned by evidence.

    ard.l1     z = s∘x               Π_j e^{−|δ_j|}    the product kernel on axis scales
    ard.m12    z = s∘x               e^{−|δ|}
    ard.rq     z = s∘x               1/(1 + |δ|²/2)
    anova.l1   z = s∘x               Π_j (1 − p_j + p_j e^{−|δ_j|})    few axes at a time
    anova.m32  z = s∘x               the same with (1 + |δ_j|) e^{−|δ_j|}
    iso.l1     z = s x               Π_j e^{−|δ_j|}
    full.rq    z = (I + W) s∘x       1/(1 + |δ|²/2)    smooth along rotated directions
    full.l1    z = (I + W) s∘x       Π_j e^{−|δ_j|}
    warp.l1    z = s∘(x + bends)     Π_j e^{−|δ_j|}    six tanh for each input
    mlp.rq     z = s∘x + r(x)        1/(1 + |δ|²/2)    r an MLP that starts at zero

Inputs have unit variance. All start from the scales of a short ard.rq fit, since a product kernel
finds nothing from equal scales when most inputs do not matter. Learning descends the evidence of an
exact GP, summed over blocks of rows: a block has no anchors to miss anything between, and costs its
size cubed. Blocks should be large: what a few rows do not show looks like noise in them.

Scales are alike unless the rows say otherwise: log s has N(−½ log D − ½, 3) for its mean, and around it a
law ∝ Π_j 1/(1 + δ_j²/0.3), whose tails let a few inputs matter alone. The logit of a share p has N(0, 4),
every other number N(start, ¼).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import minimize, minimize_scalar
from torch import Tensor, nn

from greenfold.chart import AxisScales, Mixed, PCAResidual, Warp
from greenfold.chart.start import pivots
from greenfold.green.atoms import Point
from greenfold.green.base import Operator
from greenfold.green.diffusion import Heat
from greenfold.green.operators import Cauchy, ProductScreened
from greenfold.green.pointwise import Anova, Exponential
from greenfold.learn.trainer import descend
from greenfold.model import IGL, Tied
from greenfold.solve import Solution, SolveError
from greenfold.solve.solution import check_finite
from greenfold.solve.statistics import Statistics

LOG_NOISE = (math.log(1e-7), math.log(1e3))

KERNELS: dict[str, Callable[[], Operator]] = {
    "gaussian": lambda: Heat(0.5),  # e^{−r²/2}
    "cauchy": lambda: Cauchy(1.0),  # 1/(1 + r²/2)
    "laplace": lambda: ProductScreened(1.0),  # Π e^{−|δ_j|}
}


@dataclass(frozen=True)
class Rung:
    """A kind of chart and its operator."""

    operator: Callable[[int], Operator]  # of D
    chart: Callable[[Tensor], nn.Module]  # from the scales s (D,) it starts at
    rigid: bool = False  # so few parameters that held-out rows may share them


def laplace(_: int) -> Operator:
    return KERNELS["laplace"]()


def cauchy(_: int) -> Operator:
    return KERNELS["cauchy"]()


def anova(order: int) -> Callable[[int], Operator]:
    def operator(D: int) -> Operator:
        made = Anova(torch.full((D,), 0.5), order=order, learn=True)
        made.log_kappa.requires_grad_(False)  # the chart has the scales
        return made

    return operator


def axes(s: Tensor) -> AxisScales:
    return AxisScales(len(s), s)


RUNGS: dict[str, Rung] = {
    "ard.l1": Rung(laplace, axes, rigid=True),
    "ard.m12": Rung(lambda _: Exponential(1.0), axes, rigid=True),
    "ard.rq": Rung(cauchy, axes, rigid=True),
    "anova.l1": Rung(anova(1), axes, rigid=True),
    "anova.m32": Rung(anova(2), axes, rigid=True),
    "iso.l1": Rung(laplace, lambda s: AxisScales(len(s), s.mean(), tied=True), rigid=True),
    "full.rq": Rung(cauchy, Mixed),
    "full.l1": Rung(laplace, Mixed),
    "warp.l1": Rung(laplace, lambda s: Warp(len(s), scale=s)),
    "mlp.rq": Rung(cauchy, lambda s: PCAResidual(s.diag(), hidden=(32, 32))),
}


@dataclass(frozen=True)
class Fitted:
    """A rung with its chart learned."""

    name: str
    encoder: nn.Module
    operator: Operator
    noise: float  # λ, for a kernel of unit variance
    evidence: float  # negative log evidence per row and output, with the prior
    seconds: float = 0.0  # of wall-clock time


Block = tuple[Tensor, Tensor, Tensor]  # x (b, D), Y (b, c), weight (b,)


def blocks(x: Tensor, Y: Tensor, weight: Tensor | None, rows: int, size: int) -> list[Block]:
    """The first `rows` rows, dealt out to blocks of about `size`; rows come in random order."""
    rows = min(rows, len(x))
    count = max(1, -(-rows // size))
    w = torch.ones(len(x), dtype=torch.float64) if weight is None else weight
    return [(x[i:rows:count], Y[i:rows:count], w[i:rows:count]) for i in range(count)]


def evidence(operator: Operator, z: Tensor, Y: Tensor, weight: Tensor, log_noise: Tensor) -> Tensor:
    """Negative log evidence of y ~ N(0, s(K + λ/weight + 1 1ᵀ)), summed over rows, mean over outputs.

    K is the operator's Green's function between the rows, 1 on the diagonal; the variance s is profiled
    out. A row of weight 3 has a third of the noise, as if it were the mean of three; that its copies
    agree exactly is not taken as evidence, or a few copies would make λ vanish. The gradient is the
    closed form Σ_ij M_ij dK_ij with M = (A⁻¹ − ααᵀ/s)/2: K is differentiated and its factor is not.
    """
    # K is symmetric: twice the gradient along one of its sides is that along both.
    K = operator.response(2 * z - z.detach(), Point(z.detach()))
    K = K / float(K[0, 0].detach())
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
    moving = (M * K).sum() + slope * log_noise
    return value + moving - moving.detach()


def learn(name: str, start: Fitted, data: Sequence[Block], max_iter: int = 30) -> Fitted:
    """Descend the evidence of a rung, on from a fit of the same rung or from the axis scales of another.

    A product kernel starts from scales halfway to equal ones: where a smooth kernel has closed an axis,
    the product kernel would not open it again.
    """
    D, noise = data[0][0].shape[1], start.noise
    if start.name == name:
        encoder, operator = deepcopy(start.encoder), deepcopy(start.operator)
    else:
        assert isinstance(start.encoder, AxisScales)
        s, operator = start.encoder.scale.detach(), RUNGS[name].operator(D)
        if isinstance(operator, ProductScreened | Anova):
            s, noise = (s * s.mean()).sqrt(), 1e-2
        encoder = RUNGS[name].chart(s)
    log_noise = torch.tensor(math.log(noise), dtype=torch.float64, requires_grad=True)
    learned = [p for p in operator.parameters() if p.requires_grad]  # the shares, if there are any
    starts = [p.detach().clone() for p in encoder.parameters()]

    def prior() -> Tensor:
        total = sum((p.square().sum() / 8 for p in learned), torch.zeros((), dtype=torch.float64))
        for (key, p), start in zip(encoder.named_parameters(), starts, strict=True):
            if key.endswith("log_scale"):
                level = p.mean()
                total = total + (level + 0.5 * math.log(D) + 0.5).square() / 6
                total = total + torch.log1p((p - level).square() / 0.3).sum()
            else:
                total = total + 2 * (p - start).square().sum()
        return total

    c = data[0][1].shape[1]
    n = c * sum(len(x) for x, _, _ in data)

    def loss() -> Tensor:
        total = prior()
        for x, Y, weight in data:
            total = total + c * evidence(operator, encoder(x), Y, weight, log_noise)
        return total / n

    parameters = [*encoder.parameters(), *learned, log_noise]
    while True:
        try:
            history = descend(encoder, loss, parameters, max_iter=max_iter, tol=1e-6)
            break
        except SolveError:  # at the start: rounding errors of the kernel exceed the noise
            if float(log_noise.detach()) >= 0:
                raise
            with torch.no_grad():
                log_noise.clamp_(min=LOG_NOISE[0]).add_(math.log(10))
    noise = float(log_noise.detach().clamp(*LOG_NOISE).exp())
    best = history.loss[-1] if history.loss else math.inf
    return Fitted(name, encoder, operator, noise, best)


def short_fit(x: Tensor, Y: Tensor, weight: Tensor | None = None, rows: int = 1000) -> Fitted:
    """Axis scales with the rational quadratic kernel, on few rows: where the others start."""
    D = x.shape[1]
    scales = AxisScales(D, math.exp(-0.5) / math.sqrt(D))
    equal = Fitted("ard.rq", scales, KERNELS["cauchy"](), 1e-2, math.inf)
    return learn("ard.rq", equal, blocks(x, Y, weight, rows, 250), 25)


# --- the source on a learned chart


def anchored(fit: Fitted, x: Tensor, n_anchors: int) -> IGL:
    """The model of a chart and a kernel, with anchors at rows that carry the kernel matrix.

    Of many rows the first are looked at, so they should come in random order.
    """
    operator = fit.operator
    with torch.no_grad():
        z = fit.encoder(x[: 3 * n_anchors // 2])
        G = operator.response(z, Point(z))
        missing = max(1e-2 * fit.noise, 1e-13) * float(G[0, 0])  # well below the noise
        rows = pivots(G, missing)[:n_anchors]
    return IGL(fit.encoder, operator, Tied(x[rows]), n_dims=z.shape[1], energy=True).eval()


@torch.no_grad()
def refined(fit: Fitted, x: Tensor, Y: Tensor, weight: Tensor | None, folds: Tensor) -> Fitted:
    """All scales times one number, and λ, where the error on held-out folds is least.

    Evidence weighs how likely all of y is; which roughness predicts best is another question, and two
    numbers can be asked it. With n/2 log e² for a likelihood, log c ~ N(0, ¼) and log λ ~ N(log λ₀, 1).
    """
    z = fit.encoder(x)
    w = torch.ones(len(x), dtype=torch.float64) if weight is None else weight
    rows = [torch.nonzero(folds == k)[:, 0] for k in range(int(folds.max()) + 1)]

    def loss(theta: np.ndarray) -> float:
        log_c, log_noise = theta[0], math.log(fit.noise) + theta[1]
        if not LOG_NOISE[0] <= log_noise <= LOG_NOISE[1]:
            return math.inf
        c_z = math.exp(log_c) * z
        A = fit.operator.response(c_z, Point(c_z))
        A = A / float(A[0, 0]) + 1
        A.diagonal().add_(math.exp(log_noise) / w + 1e-10)
        L, failed = torch.linalg.cholesky_ex(A)
        if int(failed):
            return math.inf
        inverse = torch.cholesky_inverse(L)
        alpha, errors = inverse @ Y, torch.empty_like(Y)
        for own in rows:  # A fold's errors solve (A⁻¹)_own e = (A⁻¹ y)_own.
            errors[own] = torch.linalg.solve_ex(inverse[own][:, own], alpha[own])[0]
        mean_square = float((w @ errors.square()).mean() / w.sum())
        if not math.isfinite(mean_square):
            return math.inf
        return len(x) / 2 * math.log(max(mean_square, 1e-300)) + 2 * log_c**2 + theta[1] ** 2 / 2

    simplex = np.array([[0.0, 0.0], [0.5, 0.0], [0.0, -1.0]])
    options = {"initial_simplex": simplex, "maxfev": 16, "xatol": 0.1, "fatol": 0.1}
    log_c, step = minimize(loss, simplex[0], method="Nelder-Mead", options=options).x
    encoder = deepcopy(fit.encoder)
    for name, p in encoder.named_parameters():
        if name.endswith("log_scale"):
            p.add_(log_c)
    return replace(fit, encoder=encoder, noise=fit.noise * math.exp(step))


@dataclass(frozen=True)
class Solved:
    """A rung with its source: the model, and how it does on rows held out."""

    name: str
    model: IGL
    solution: Solution
    errors: Tensor  # (n, c)  residuals of every fold when its rows are left out of the solve
    seconds: float = 0.0  # of wall-clock time, with the learning


@torch.no_grad()
def solve(
    fit: Fitted,
    x: Tensor,
    Y: Tensor,
    weight: Tensor | None,
    folds: Tensor,
    n_anchors: int,
    scan: bool = True,
) -> Solved:
    """The model with its source, λ scanned again by evidence if asked, and its errors on held-out folds.

    `folds` (n,) numbers them. A fold is left out of the solve; chart, anchors and λ stay. Its errors
    follow from the factor of the whole: (I − H) e = y − u on its rows, H their influence on one another.
    """
    model = anchored(fit, x, n_anchors)
    design = model.design(x)
    sums = Statistics()
    sums.update(design, Y, weight)
    unit = float(model.unit())
    solution, L = firmly(sums, rescan(sums, fit.noise, unit) if scan else fit.noise * unit)
    model.w = solution.w
    root = torch.ones(len(x), 1, dtype=torch.float64) if weight is None else weight.sqrt()[:, None]
    V = torch.linalg.solve_triangular(L, (root * design.Phi).T, upper=False)
    residual = root * (Y - design.Phi @ solution.w)
    errors = torch.empty_like(Y)
    for k in range(int(folds.max()) + 1):
        rows = folds == k
        kept = torch.eye(int(rows.sum()), dtype=torch.float64) - V[:, rows].T @ V[:, rows]
        errors[rows] = torch.linalg.solve_ex(kept, residual[rows])[0] / root[rows]
    check_finite("an error on held-out rows", errors, float(solution.alpha))
    return Solved(fit.name, model, solution, errors)


def firmly(sums: Statistics, alpha: float) -> tuple[Solution, Tensor]:
    """The source and the factor of its system at α, or at the first 10ᵏα where rounding allows one."""
    for k in range(12):
        try:
            return _at(sums, 10**k * alpha)
        except SolveError:
            continue
    return _at(sums, 10**12 * alpha)


def _at(sums: Statistics, alpha: float) -> tuple[Solution, Tensor]:
    solution = sums.solve(alpha, relative=False)
    L, failed = torch.linalg.cholesky_ex(sums.gram + (alpha * sums.penalty.double()).diag())
    if int(failed):
        raise SolveError("the system of a source is not positive definite.")
    return solution, L


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

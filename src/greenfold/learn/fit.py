"""What becomes of a learned chart: errors on rows left out, λ and one scale by them, its source."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import numpy as np
import torch
from scipy.linalg import LinAlgError
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from greenfold.chart import AxisScales, Linear, Mixed
from greenfold.chart.frames import SNV, Pixels, Scaled
from greenfold.chart.start import pivots
from greenfold.green.atoms import Point
from greenfold.learn.candidates import Fit, unit
from greenfold.learn.data import Data, Rows
from greenfold.learn.judges import SQUARES, Judge
from greenfold.model import IGL, Tied
from greenfold.solve import Ridge, Solution, SolveError
from greenfold.solve.criteria import evidence, scan
from greenfold.solve.kernel import kernel_evidence
from greenfold.solve.statistics import Statistics
from greenfold.solve.streamed import Sums


def judged(fit: Fit, data: Data, scan: bool = False) -> Fit:
    """The fit with its errors on folds left out of the source; λ at the best evidence if asked.

    A fit whose covariance is singular on these rows gets more noise until it is not.
    """
    K, Y, weight = fit.kernel(data.x), data.Y.numpy(), data.weight.numpy()
    noise = scanned(K, data, fit.noise) if scan else fit.noise
    for _ in range(12):
        try:
            known = kernel_evidence(K, Y, noise / weight)
            errors = torch.from_numpy(known.left_out(data.folds.numpy()))
            return replace(fit, noise=noise, errors=errors, nats=data.nats(errors))
        except LinAlgError:
            noise = max(10 * noise, 1e-12)
    return replace(fit, nats=math.inf)


def relearned(data: Data, learn: Callable[[Data], Fit]) -> tuple[Tensor, tuple[Fit, ...]] | None:
    """Errors (n, c) on every fold by what is learned without it, and that; None without a solution."""
    errors, parts = torch.empty_like(data.Y), []
    for fold in data.folds.unique().tolist():
        try:
            part = learn(data.without(fold))
        except LinAlgError:
            return None
        there = judged(part, data).errors
        if there is None:
            return None
        errors[data.folds == fold] = there[data.folds == fold]
        parts.append(part)
    return errors, tuple(parts)


def scanned(K: np.ndarray, data: Data, noise: float) -> float:
    """λ at the best evidence on these rows, near the λ that fewer rows had."""
    Y, weight, common = data.Y.numpy(), data.weight.numpy(), data.judge.common

    def loss(log_noise: float) -> float:
        try:
            return kernel_evidence(K, Y, math.exp(log_noise) / weight, common).value
        except LinAlgError:
            return math.inf

    return near(loss, noise, data.judge, 0.2)


def near(loss: Callable[[float], float], noise: float, judge: Judge, tol: float) -> float:
    """λ where the loss of log λ is least, not far from another and within what the judge bounds."""
    (least, most), at = judge.log_noise, math.log(noise)
    low, high = max(at - 3, least), max(min(at + 3, most), least + 1)
    return scan(loss, low, high, tol)


def refined(fit: Fit, data: Data, evaluations: int) -> Fit:
    """All scales times one number, and λ, where the error on held-out folds is least.

    Evidence weighs how likely all of y is; which roughness predicts best is another question, and two
    numbers can be asked it. With n·nats for a judge, log c ~ N(0, ¼) and log λ ~ N(log λ₀, 1).
    """
    if rescaled(fit.chart, 1.0) is None:
        return fit
    Y, weight, folds, n = data.Y.numpy(), data.weight.numpy(), data.folds.numpy(), len(data)
    best, kept = math.inf, fit

    def loss(theta: np.ndarray) -> float:
        nonlocal best, kept
        log_c, log_noise = float(theta[0]), math.log(fit.noise) + float(theta[1])
        if not data.judge.log_noise[0] <= log_noise <= data.judge.log_noise[1]:
            return math.inf
        try:
            K = fit.kernel(data.x, math.exp(log_c))
            known = kernel_evidence(K, Y, math.exp(log_noise) / weight)
            errors = torch.from_numpy(known.left_out(folds))
        except LinAlgError:
            return math.inf
        size = data.nats(errors)
        value = n * size + 2 * log_c**2 + float(theta[1]) ** 2 / 2
        if value < best:
            chart, best = rescaled(fit.chart, math.exp(log_c)), value
            assert chart is not None
            noise = math.exp(log_noise)
            kept = replace(fit, chart=chart, noise=noise, errors=errors, nats=size)
        return value

    simplex = np.array([[0.0, 0.0], [0.5, 0.0], [0.0, -1.0]])
    options = {"initial_simplex": simplex, "maxfev": evaluations, "xatol": 0.1, "fatol": 0.1}
    minimize(loss, simplex[0], method="Nelder-Mead", options=options)
    return kept


@torch.no_grad()
def rescaled(chart: nn.Module, c: float) -> nn.Module | None:
    """The chart with all scales times c, if it has them."""
    chart = deepcopy(chart)
    scales = [p for name, p in chart.named_parameters() if name.endswith("log_scale")]
    for p in scales:
        p.add_(math.log(c))
    if scales:
        return chart
    if isinstance(chart, Linear):
        chart.weight.mul_(c)
        return chart
    return None


# --- the source on a learned chart


def outside(encoder: nn.Module, data: Data) -> nn.Module:
    """The chart of rows as they came, from that of these: in their units, perhaps squashed."""
    if data.squash is None:
        return unscaled(encoder, data.sd)
    chart = unscaled(encoder, torch.ones_like(data.sd))
    rest = chart if isinstance(chart, nn.Sequential) else [chart]
    return nn.Sequential(data.squash.unscaled(data.sd), *rest)


def unscaled(encoder: nn.Module, sd: Tensor) -> nn.Module:
    """The chart of x from that of x / sd."""
    if isinstance(encoder, AxisScales):
        return AxisScales(len(sd), encoder.scale.detach() / sd)
    if isinstance(encoder, Linear):
        W = encoder.weight.detach() / sd
        return Linear(W.shape[1], W.shape[0], W)
    if isinstance(encoder, Mixed):
        W = (torch.eye(len(sd)) + encoder.mix.detach()) * (encoder.axes.scale.detach() / sd)
        return Linear(W.shape[1], W.shape[0], W)
    if isinstance(encoder, nn.Sequential) and isinstance(encoder[0], SNV):
        first = encoder[0]
        return nn.Sequential(SNV(first.scale / sd, first.origin, first.center), encoder[1])
    if isinstance(encoder, nn.Sequential) and isinstance(encoder[0], Pixels):
        pixels, *rest = encoder
        assert isinstance(pixels, Pixels)
        return nn.Sequential(Pixels(pixels.scale / sd, pixels.shift), *rest)
    if isinstance(encoder, Scaled):
        return Scaled(encoder.scale / sd)
    units = AxisScales(len(sd), 1 / sd).requires_grad_(False)
    return nn.Sequential(units, encoder)


def anchored(fit: Fit, x: Tensor, n_anchors: int) -> IGL:
    """The model of a chart and a kernel, with anchors at rows that carry the kernel matrix.

    Of many rows the first are looked at, so they should come in random order.
    """
    operator = fit.operator
    with torch.no_grad():
        z = fit.chart(x[: 3 * n_anchors // 2])
        G = operator.response(z, Point(z))
        missing = max(1e-2 * fit.noise, 1e-13) * unit(operator, z.shape[1])  # well below the noise
        rows = pivots(G, missing)[:n_anchors]
    return IGL(fit.chart, operator, Tied(x[rows]), n_dims=z.shape[1], energy=True).eval()


@torch.no_grad()
def solved(model: IGL, x: Tensor, Y: Tensor, weight: Tensor | None, noise: float) -> Solution:
    """The source at the best evidence near λ on these rows, or at more where rounding asks for it."""
    sums = Statistics()
    sums.update(model.design(x), Y, weight)
    unit = float(model.unit())
    solution = escalated(sums, rescanned(sums, noise, unit) * unit)
    model.w = solution.w
    return solution


def escalated(sums: Statistics, alpha: float) -> Solution:
    """At a strength, or at the least multiple of it by tens that has a solution."""
    for k in range(12):
        try:
            return sums.solve(10**k * alpha, relative=False)
        except SolveError:
            continue
    return sums.solve(10**12 * alpha, relative=False)


def rescanned(sums: Statistics, noise: float, unit: float) -> float:
    """λ at the best evidence of the sums, near the λ that fewer rows had."""
    known = (sums.gram, sums.cross, sums.square.diagonal(), sums.penalty)

    def loss(log_noise: float) -> float:
        alpha = torch.tensor(math.exp(log_noise) * unit, dtype=torch.float64)
        found = Sums.of(*known, alpha, sums.rows)
        return float(evidence(replace(found, q=0)))  # a constant is an atom, as in `kernel.py`

    return near(loss, noise, SQUARES, 0.15)


PAIRS = 1500  # of rows between which a chart may put what nothing has told it
WILD = 30.0  # standard deviations of the target


@torch.no_grad()
def solution_of(model: IGL, rows: Rows, alpha: float | str, asked: bool) -> Solution:
    """The source, with more penalty than chosen where u runs away halfway between two rows.

    A chart that few rows have trained may put rows that differ in y next to each other. A source that
    tells them apart is large, and nothing holds it elsewhere. A penalty that was `asked` for stays,
    with a warning.
    """
    x, target, weight, _ = rows
    solution = model.solve(x, target, ridge(alpha, model), weight)
    if model.operator.rooted:  # halfway between two places is none
        return solution
    between, strength = halfway(x), float(solution.alpha)
    wild, most = float(model(between).abs().amax()), max(WILD, 3 * float(target.abs().amax()))
    if wild > most and asked:
        warnings.warn(
            f"alpha={alpha:g} does not hold the source: halfway between two rows the prediction is "
            f"{wild:.2g} standard deviations of the target. Raise `alpha`, or leave it to 'evidence'.",
            ConvergenceWarning,
            stacklevel=5,
        )
        return solution
    while wild > most and strength < 1e6:
        strength = max(10 * strength, 1e-12)
        solution = model.solve(x, target, Ridge(strength, relative=False), weight)
        wild = float(model(between).abs().amax())
    return solution


def halfway(x: Tensor) -> Tensor:
    """Rows between any two, or of many between pairs that are spread over all."""
    n, k = len(x), torch.arange(PAIRS, dtype=torch.float64)
    if n * (n - 1) // 2 <= PAIRS:
        i, j = torch.triu_indices(n, n, 1)
    else:
        i = (k * n / PAIRS).long()
        j = (i + 1 + ((k * 0.6180339887498949) % 1 * (n - 1)).long()) % n  # in golden steps
    return (x[i] + x[j]) / 2


def ridge(alpha: float | str, model: IGL) -> Ridge:
    """Strengths are in units of a source's response to itself, the energy norm's own."""
    if isinstance(alpha, str) or not model.energy:
        return Ridge(alpha)
    return Ridge(alpha * float(model.unit()), relative=False)

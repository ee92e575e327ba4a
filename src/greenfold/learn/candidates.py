"""What may win: kinds of chart with their operators, and how each is learned.

    axis.l1    z = s∘x               Π_j e^{−|δ_j|}    the product kernel on axis scales
    axis.m12   z = s∘x               e^{−|δ|}
    axis.rq    z = s∘x               1/(1 + |δ|²/2)
    anova.l1   z = s∘x               Π_j (1 − p_j + p_j e^{−|δ_j|})    few axes at a time
    anova.m32  z = s∘x               the same with (1 + |δ_j|) e^{−|δ_j|}
    iso.l1     z = s x               Π_j e^{−|δ_j|}
    full.rq    z = (I + W) s∘x       1/(1 + |δ|²/2)    smooth along rotated directions
    full.l1    z = (I + W) s∘x       Π_j e^{−|δ_j|}
    warp.l1    z = s∘(x + bends)     Π_j e^{−|δ_j|}    six tanh for each input
    mlp.rq     z = s∘x + r(x)        1/(1 + |δ|²/2)    r an MLP that starts at zero

All start from the scales of a short axis.rq fit, since a product kernel finds nothing from equal scales
when most inputs do not matter.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from greenfold.chart import AxisScales, Mixed, PCAResidual, Warp
from greenfold.green.atoms import Point
from greenfold.green.base import Operator
from greenfold.green.diffusion import Heat
from greenfold.green.operators import Cauchy, ProductScreened
from greenfold.green.pointwise import Anova, Exponential
from greenfold.learn.axes import (
    LOG_NOISE,
    AxisKernel,
    City,
    Interactions,
    Learned,
    Radial,
    learn_axes,
)
from greenfold.learn.data import Data
from greenfold.learn.trainer import descend
from greenfold.solve.kernel import Evidence

LARGEST = 8 * 10**6  # entries, axes times rows squared, of kernels evaluated an axis at a time


def few_columns(data: Data) -> bool:
    return data.x.shape[1] <= 200


@dataclass(frozen=True)
class Candidate(ABC):
    """A kind of chart and its operator, not learned yet."""

    name: str  # shown, never compared
    rigid: bool = field(default=True, kw_only=True)  # few numbers: held-out rows may share them
    usual: bool = field(default=False, kw_only=True)  # wins ties
    suits: Callable[[Data], bool] = field(default=few_columns, kw_only=True)

    @abstractmethod
    def learn(self, data: Data, start: Fit, steps: int) -> Fit:
        """On from a fit of this candidate, or from the axis scales of another."""


@dataclass(frozen=True, eq=False)
class Fit:
    """A candidate with its chart learned, and how it does on rows left out."""

    candidate: Candidate
    chart: nn.Module
    operator: Operator
    noise: float  # λ, for a kernel of unit variance
    evidence: float = math.inf  # negative log evidence per row and output, with the prior
    rows: int = 0  # learned from
    price: float = 0.0  # numbers learned from the rows that judge, per row
    errors: Tensor | None = None  # (n, c) of left-out rows
    nats: float = math.inf  # of a left-out row
    doubt: str = ""  # why the chart may be wrong
    seconds: float = 0.0
    failed: bool = False  # there is no evidence of it on these rows

    @torch.no_grad()
    def kernel(self, x: Tensor, scale: float = 1.0) -> np.ndarray:
        """K (n, n) between the rows, 1 on its diagonal."""
        z = scale * self.chart(x)
        K = self.operator.response(z, Point(z))
        return (K / float(K[0, 0])).numpy()


@dataclass(frozen=True)
class OnAxes(Candidate):
    """One scale per column, or a common one; learned in closed form."""

    kernel: AxisKernel
    operator: Callable[[Tensor], Operator]  # of the shares (D,)
    tied: bool = False
    product: bool = False  # would not open again an axis that a smooth kernel has closed
    most: int = 2**62  # entries to learn from, axes times rows squared

    def learn(self, data: Data, start: Fit, steps: int) -> Fit:
        D = data.x.shape[1]
        data = data.head(math.isqrt(self.most // D))
        assert isinstance(start.chart, AxisScales)
        log_s = start.chart.log_scale.detach().numpy()
        logit, noise = np.zeros(D if self.kernel.shares else 0), start.noise
        if start.candidate is self:
            if isinstance(start.operator, Anova):
                logit = start.operator.logit_share.detach().numpy()
        elif self.product:
            s = np.exp(log_s)
            log_s, noise = np.log(np.sqrt(s * s.mean())), 1e-2
        if self.tied and len(log_s) > 1:
            log_s = np.log(np.exp(log_s).mean(keepdims=True))
        begin = Learned(log_s, logit, math.log(noise), math.inf)
        Y, weight = data.Y.numpy(), data.weight.numpy()
        end = learn_axes(self.kernel, data.pairs, Y, weight, begin, steps)
        chart = AxisScales(D, torch.from_numpy(end.s), tied=self.tied)
        operator = self.operator(torch.from_numpy(1 / (1 + np.exp(-end.logit))))
        return Fit(self, chart, operator, math.exp(end.log_noise), end.loss, len(data))


@dataclass(frozen=True)
class Free(Candidate):
    """Charts with many numbers, learned by descent of the same evidence."""

    encoder: Callable[[Tensor, torch.Generator], nn.Module]  # from the scales s (D,) it starts at
    operator: Callable[[], Operator]
    product: bool = False

    def learn(self, data: Data, start: Fit, steps: int) -> Fit:
        D, noise = data.x.shape[1], start.noise
        if start.candidate is self:
            chart, operator = deepcopy(start.chart), deepcopy(start.operator)
        else:
            assert isinstance(start.chart, AxisScales)
            s, operator = start.chart.scale.detach().expand(D), self.operator()
            if self.product:
                s, noise = (s * s.mean()).sqrt(), 1e-2
            chart = self.encoder(s, torch.Generator().manual_seed(data.seed))
        log_noise = torch.tensor(math.log(noise), dtype=torch.float64, requires_grad=True)
        starts = [p.detach().clone() for p in chart.parameters()]

        def prior() -> Tensor:
            total = torch.zeros((), dtype=torch.float64)
            for (key, p), begin in zip(chart.named_parameters(), starts, strict=True):
                if key.endswith("log_scale"):
                    level = p.mean()
                    total = total + (level + 0.5 * math.log(D) + 0.5).square() / 6
                    total = total + torch.log1p((p - level).square() / 0.3).sum()
                else:  # N(start, ¼)
                    total = total + 2 * (p - begin).square().sum()
            return total

        def loss() -> Tensor:
            z = chart(data.x)
            # K is symmetric: twice the gradient along one of its sides is that along both.
            K = operator.response(2 * z - z.detach(), Point(z.detach()))
            K = K / float(K[0, 0].detach())
            value = Evidence.apply(K, log_noise.clamp(*LOG_NOISE), data.Y, data.weight)
            return value + prior() / data.Y.numel()

        history = descend(chart, loss, [*chart.parameters(), log_noise], max_iter=steps, tol=1e-6)
        noise = float(log_noise.detach().clamp(*LOG_NOISE).exp())
        best = history.loss[-1] if history.loss else math.inf
        return Fit(self, chart, operator, noise, best, len(data))


@dataclass(frozen=True)
class Searched(Candidate):
    """A linear chart that the search found. It has learned what it can."""

    def learn(self, data: Data, start: Fit, steps: int) -> Fit:
        return start


KERNELS: dict[str, Callable[[], Operator]] = {
    "gaussian": lambda: Heat(0.5),  # e^{−r²/2}
    "cauchy": lambda: Cauchy(1.0),  # 1/(1 + r²/2)
    "laplace": lambda: ProductScreened(1.0),  # Π e^{−|δ_j|}
}


def laplace(shares: Tensor | None = None) -> Operator:
    return KERNELS["laplace"]()


def cauchy(shares: Tensor | None = None) -> Operator:
    return KERNELS["cauchy"]()


def exponential(shares: Tensor) -> Operator:
    return Exponential(1.0)


def anova(order: int) -> Callable[[Tensor], Operator]:
    return lambda shares: Anova(shares, order=order)


def any_data(data: Data) -> bool:
    return True


def many_rows(data: Data) -> bool:
    return len(data) > 1000 and few_columns(data)


def mixed(s: Tensor, _: torch.Generator) -> nn.Module:
    return Mixed(s)


def warped(s: Tensor, _: torch.Generator) -> nn.Module:
    return Warp(len(s), scale=s)


def bent(s: Tensor, generator: torch.Generator) -> nn.Module:
    return PCAResidual(s.diag(), hidden=(32, 32), generator=generator)


AXIS_RQ = OnAxes("axis.rq", Radial("cauchy"), cauchy, suits=any_data)
RIGID: tuple[Candidate, ...] = (
    OnAxes("axis.l1", City(), laplace, product=True),
    OnAxes("axis.m12", Radial("exponential"), exponential),
    AXIS_RQ,
    OnAxes("anova.l1", Interactions(1), anova(1), product=True, most=LARGEST),
    OnAxes("anova.m32", Interactions(2), anova(2), product=True, most=LARGEST, usual=True),
    OnAxes("iso.l1", City(), laplace, tied=True, product=True),
)
FREE: tuple[Candidate, ...] = (
    Free("full.rq", mixed, cauchy, rigid=False),
    Free("full.l1", mixed, laplace, product=True, rigid=False),
    Free("warp.l1", warped, laplace, product=True, rigid=False),
    Free("mlp.rq", bent, cauchy, rigid=False, suits=many_rows),
)


def equal_scales(data: Data) -> Fit:
    """Where everything starts: every column as important as any other."""
    D = data.x.shape[1]
    return Fit(AXIS_RQ, AxisScales(D, math.exp(-0.5) / math.sqrt(D)), cauchy(), 1e-2)

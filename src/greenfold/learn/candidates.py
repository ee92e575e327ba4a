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
    turned.rq  z = s M^{½} x         1/(1 + |δ|²/2)    M from the slopes of u, see `turned.py`

All start from the scales of a short axis.rq fit, since a product kernel finds nothing from equal scales
when most inputs do not matter.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import pdist
from torch import Tensor, nn

from greenfold.chart import AxisScales, Linear, Mixed, PCAResidual, Warp
from greenfold.green.atoms import Point
from greenfold.green.base import Operator
from greenfold.green.diffusion import Heat
from greenfold.green.operators import Cauchy, ProductScreened, Superposition
from greenfold.green.pointwise import Affine, Anova, Exponential
from greenfold.learn.axes import (
    APART,
    LOOSE,
    AxisKernel,
    City,
    Interactions,
    Learned,
    Pairs,
    Radial,
    Rows,
    learn_axes,
)
from greenfold.learn.data import Data
from greenfold.learn.standings import chart_name
from greenfold.learn.trainer import descend
from greenfold.solve.kernel import Evidence

SCALES, COLUMNS = 200, 300  # that charts of axis scales may have
FEW = 300  # rows that a scale and λ are learned from
LEAST_ROWS = 20  # that a linear function is learned from
AMPLE = 30  # rows for a scale, of which none learns one by heart
SHRINK = 0.25  # at least, of a covariance within classes to its diagonal
AXES = 100  # principal axes of frames that have no more columns than that
SIZE = math.exp(-0.5)  # of a chart to start from
LARGEST = 8 * 10**6  # entries, axes times rows squared, of kernels evaluated an axis at a time


def few_columns(data: Data) -> bool:
    return data.x.shape[1] <= SCALES


def few_scales(data: Data) -> bool:
    """Is a scale for each column a number that rows can tell? Levels of a category share one."""
    return len(np.unique(data.ties)) <= SCALES and data.x.shape[1] <= COLUMNS


def enough_rows(data: Data) -> bool:
    """Far from fewer rows, lines that these cannot tell from chance lead anywhere."""
    return len(data) >= LEAST_ROWS


@dataclass(frozen=True)
class Candidate(ABC):
    """A kind of chart and its operator, not learned yet."""

    name: str  # shown, never compared
    rigid: bool = field(default=True, kw_only=True)  # few numbers: held-out rows may share them
    usual: bool = field(default=False, kw_only=True)  # wins ties
    plain: bool = field(default=False, kw_only=True)  # wins unless clearly behind
    refines: bool = field(
        default=True, kw_only=True
    )  # one scale and λ may be asked of rows left out
    eager: bool = field(
        default=False, kw_only=True
    )  # learns from all rows, also where few would do
    suits: Callable[[Data], bool] = field(default=few_columns, kw_only=True)
    rougher: Candidate | None = field(default=None, kw_only=True)  # that many rows may favor
    product = False  # over axes? It would not open one again that a smooth kernel has closed

    @property
    def kind(self) -> object:
        """The same of candidates that differ in their operator only."""
        return self

    def told(self, fit: Fit) -> str:
        """What its chart is called."""
        return chart_name(fit.chart)

    def numbers(self, fit: Fit) -> int:
        """How many of its chart and operator have seen the rows that judge it."""
        if not self.rigid:
            return 0
        return sum(p.numel() for p in fit.chart.parameters()) + fit.operator.n_shares

    @property
    def warm(self) -> bool:
        """May it begin where it ended on other rows?"""
        return True

    @property
    def grows(self) -> int:
        """How many times the rows that it goes on learning from there have to be; 0 if it does not."""
        return 4 if self.rigid else 0

    def among(self, data: Data, judges: Data) -> Candidate:
        """As it is before so many rows, and so many of them that judge."""
        return self

    def refit(self, fit: Fit, data: Data) -> Fit:
        """With what all rows tell at no cost, its scale as it is."""
        return fit

    def anew(self, fit: Fit, data: Data) -> Fit:
        """Where it may begin once more, when the rows that a fit was learned from were few."""
        return fit

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
    parts: tuple[Fit, ...] = ()  # learned without each fold of the rows that judge
    saw: Tensor | None = None  # (n,) which of these its chart has seen

    @torch.no_grad()
    def kernel(self, x: Tensor, scale: float = 1.0) -> np.ndarray:
        """K (n, n) between the rows, 1 at a place by itself that lines pass through."""
        z = scale * self.chart(x)
        K = self.operator.response(z, Point(z))
        return (K / unit(self.operator, z.shape[1])).numpy()


@torch.no_grad()
def unit(operator: Operator, d: int) -> float:
    """The response of a point at the origin there: of an operator without lines, everywhere."""
    origin = operator.origin(d)[None]
    return float(operator.response(origin, Point(origin)))


@dataclass(frozen=True)
class OnAxes(Candidate):
    """One scale per column, or a common one; learned in closed form."""

    kernel: AxisKernel
    operator: Callable[[Tensor], Operator]  # of the shares (D,)
    tied: bool = False
    product: bool = False
    most: int = 2**62  # entries to learn from, axes times rows squared
    lines: bool = True  # is there a linear function beside?
    apart: float = APART  # how far scales may be from each other

    def among(self, data: Data, judges: Data) -> Candidate:
        """Its numbers are few where rows are many."""
        many = len(judges) >= AMPLE * judges.x.shape[1]
        return replace(self, rigid=True) if many and not self.rigid else self

    def anew(self, fit: Fit, data: Data) -> Fit:
        """A product kernel from equal scales: an axis that was closed on few rows stays so."""
        return replace(fit, chart=equal(data, self.tied), noise=1e-2) if self.product else fit

    def learn(self, data: Data, start: Fit, steps: int) -> Fit:
        D = data.x.shape[1]
        data = data.head(math.isqrt(self.most // D))
        assert isinstance(start.chart, AxisScales)
        ties = data.shared(self.tied)
        log_s = start.chart.log_scale.detach().expand(D).numpy()
        logit, noise = np.zeros(D if self.kernel.shares else 0), start.noise
        lines = self.lines and enough_rows(data)
        log_c = COMMON if lines else None
        if start.candidate is self:
            operator, known = without_lines(start.operator, log_s, log_c)
            log_c = known if lines else None
            if self.kernel.shares:
                assert isinstance(operator, Anova)
                logit = operator.logit_share.detach().numpy()
        elif self.product:
            s = np.exp(log_s)
            log_s, noise = np.log(np.sqrt(s * s.mean())), 1e-2
        s = np.bincount(ties, np.exp(log_s)) / np.bincount(ties)  # the mean of every group
        begin = Learned(np.log(s), logit, math.log(noise), math.inf, log_c)
        gram = (data.x @ data.x.mT / D).numpy() if lines else None
        apart = self.kernel.shares or len(begin.log_s) == D
        pairs = data.pairs if apart else data.joined(self.tied)
        rows = Rows(pairs, data.Y.numpy(), data.weight.numpy(), ties, gram, self.apart)
        end = learn_axes(self.kernel, rows, begin, steps, data.judge)
        chart = AxisScales(D, torch.from_numpy(end.s if self.tied else end.s[ties]), tied=self.tied)
        operator = self.operator(torch.from_numpy(1 / (1 + np.exp(-end.logit))))
        if end.log_c is not None:
            operator = with_lines(operator, end.s[ties], end.log_c)
        return Fit(self, chart, operator, math.exp(end.log_noise), end.loss, len(data))


COMMON = -2.0  # log c to start from
NO_LINES = -9.0  # and what is none


def with_lines(operator: Operator, s: np.ndarray, log_c: float) -> Operator:
    """Beside it e^c x·x'/D, on the chart z = s∘x; the operator alone where c is next to nothing."""
    if log_c < NO_LINES:
        return operator
    slope = torch.from_numpy(math.exp(log_c / 2) / math.sqrt(len(s)) / s)
    members = [operator, Affine(slope, level=0.0)]
    return Superposition(members, [1 / unit(operator, len(s)), 1.0], learn=False)


def without_lines(
    operator: Operator, log_s: np.ndarray, log_c: float | None
) -> tuple[Operator, float | None]:
    """What `with_lines` was given."""
    if not isinstance(operator, Superposition):
        return operator, log_c
    own, affine = operator.members()
    assert isinstance(affine, Affine)
    s, D = math.exp(float(log_s[0])), len(log_s)
    return own, 2 * math.log(float(affine.slope.detach().expand(D)[0]) * s * math.sqrt(D))


@dataclass(frozen=True)
class Free(Candidate):
    """Charts with many numbers, learned by descent of the same evidence."""

    # where it starts, from the axis scales of another fit
    encoder: Callable[[Data, Fit, torch.Generator], nn.Module]
    operator: Callable[[], Operator]
    product: bool = False
    times: int = 1  # as many steps as others

    def learn(self, data: Data, start: Fit, steps: int) -> Fit:
        D, noise, judge = data.x.shape[1], start.noise, data.judge
        if start.candidate is self:
            chart, operator = deepcopy(start.chart), deepcopy(start.operator)
        else:
            operator, noise = self.operator(), 1e-2 if self.product else noise
            chart = self.encoder(data, start, torch.Generator().manual_seed(data.seed))
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
            noise = log_noise.clamp(*judge.log_noise)
            value = Evidence.apply(K, noise, data.Y, data.weight, judge.common)
            return value + prior() / data.Y.numel()

        parameters, most = [*chart.parameters(), log_noise], self.times * steps
        history = descend(chart, loss, parameters, max_iter=most, tol=1e-6)
        noise = float(log_noise.detach().clamp(*judge.log_noise).exp())
        best = history.loss[-1] if history.loss else math.inf
        return Fit(self, chart, operator, noise, best, len(data))


@dataclass(frozen=True)
class OneScale(Candidate):
    """A linear chart z = s F x with E|F x|² = 1: F comes from elsewhere, s and λ are learned."""

    kernel: Radial
    operator: Callable[[], Operator]

    def at_scale(self, F: Tensor, data: Data, noise: float, steps: int, s: float = SIZE) -> Fit:
        """With a frame F, (D,) for a scale of every axis or (d, D), of size one; from s and λ on."""
        pairs = Pairs(pdist(framed(F, data.x).numpy())[None])
        begin = Learned(np.full(1, math.log(s)), np.zeros(0), math.log(noise), math.inf)
        rows = Rows(pairs, data.Y.numpy(), data.weight.numpy(), np.zeros(1, int))
        end = learn_axes(self.kernel, rows, begin, steps, data.judge)
        chart, noise = linear(float(end.s[0]) * F), math.exp(end.log_noise)
        return Fit(self, chart, self.operator(), noise, end.loss, len(data))


def framed(F: Tensor, x: Tensor) -> Tensor:
    return x * F if F.ndim == 1 else x @ F.mT


def of_size_one(F: Tensor, data: Data) -> Tensor:
    return F / max(size_of(framed(F, data.x)), 1e-300)


def size_of(z: Tensor) -> float:
    """√E|z|² around its mean."""
    return float((z - z.mean(0)).square().sum(1).mean().sqrt())


def linear(W: Tensor) -> nn.Module:
    return AxisScales(len(W), W) if W.ndim == 1 else Linear(W.shape[1], len(W), W)


@dataclass(frozen=True)
class Framed(OneScale):
    """With a frame that y does not choose."""

    frame: Callable[[Data], Tensor]

    @property
    def kind(self) -> object:
        return self.frame

    def among(self, data: Data, judges: Data) -> Candidate:
        """Some principal axes suit the rows that they are of: these seem nearer than new rows are."""
        return replace(self, rigid=False) if data.x.shape[1] > AXES else self

    @torch.no_grad()
    def refit(self, fit: Fit, data: Data) -> Fit:
        s = size_of(fit.chart(data.x))
        return replace(fit, chart=linear(s * of_size_one(self.frame(data), data)))

    def learn(self, data: Data, start: Fit, steps: int) -> Fit:
        if start.candidate is self and start.rows == min(len(data), FEW) == FEW:
            return start
        F = of_size_one(self.frame(data), data)
        return self.at_scale(F, data.head(FEW), start.noise, steps)


@dataclass(frozen=True)
class Searched(Candidate):
    """A linear chart that the search found. It has learned what it can."""

    refines: bool = field(default=False, kw_only=True)

    def told(self, fit: Fit) -> str:
        return self.name

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


def exponential(shares: Tensor | None = None) -> Operator:
    return Exponential(1.0)


def anova(order: int) -> Callable[[Tensor], Operator]:
    return lambda shares: Anova(shares, order=order)


def any_data(data: Data) -> bool:
    return True


def many_rows(data: Data) -> bool:
    return len(data) > 1000 and few_columns(data)


def scales(start: Fit, D: int) -> Tensor:
    assert isinstance(start.chart, AxisScales)
    return start.chart.scale.detach().expand(D)


def mixed(data: Data, start: Fit, _: torch.Generator) -> nn.Module:
    return Mixed(scales(start, data.x.shape[1]))


def opened(data: Data, start: Fit, _: torch.Generator) -> nn.Module:
    """Mixed axes from scales that are less apart, for product kernels."""
    s = scales(start, data.x.shape[1])
    return Mixed((s * s.mean()).sqrt())


def warped(data: Data, start: Fit, _: torch.Generator) -> nn.Module:
    s = scales(start, data.x.shape[1])
    return Warp(len(s), scale=(s * s.mean()).sqrt())


def bent(data: Data, start: Fit, generator: torch.Generator) -> nn.Module:
    s = scales(start, data.x.shape[1])
    return PCAResidual(s.diag(), hidden=(32, 32), generator=generator)


AXIS_RQ = OnAxes("axis.rq", Radial("cauchy"), cauchy, suits=any_data)
OPENING = replace(AXIS_RQ, name="opening", apart=LOOSE)  # never judged: others start from it
RIGID: tuple[Candidate, ...] = (
    OnAxes("axis.l1", City(), laplace, product=True, suits=few_scales),
    OnAxes("axis.m12", Radial("exponential"), exponential, suits=few_scales),
    AXIS_RQ,
    OnAxes("anova.l1", Interactions(1), anova(1), product=True, most=LARGEST),
    OnAxes("anova.m32", Interactions(2), anova(2), product=True, most=LARGEST, usual=True),
    OnAxes("iso.l1", City(), laplace, tied=True, product=True),
)
FREE: tuple[Candidate, ...] = (
    Free("full.rq", mixed, cauchy, rigid=False),
    Free("full.l1", opened, laplace, product=True, rigid=False),
    Free("warp.l1", warped, laplace, product=True, rigid=False),
    Free("mlp.rq", bent, cauchy, rigid=False, suits=many_rows),
)


# --- frames that y does not choose, and classes


def columns(units: Tensor, data: Data) -> Tensor:
    """Axes of the columns in these units (D,), or the principal ones where columns are many."""
    if data.x.shape[1] <= AXES:
        return units
    x = data.x - data.x.mean(0)
    _, S, V = torch.linalg.svd(x * units, full_matrices=False)
    d = min(AXES, max(1, int((1e-7 * S[0] < S).sum())))
    return V[:d] * units


def raw(data: Data) -> Tensor:
    """Columns as they came: those that vary more say more, as pixels do."""
    return columns(data.sd, data)


def standard(data: Data) -> Tensor:
    return columns(torch.ones_like(data.sd), data)


def whitened(data: Data) -> Tensor:
    """S^{−½} with S the covariance within classes: what tells rows of one class apart counts less.

    S is drawn to its diagonal: few rows say little of it, and where rows of a class hardly differ is not
    all that tells classes apart.
    """
    onehot = data.Y - data.Y.amin(0)
    label = onehot.argmax(1)
    total = torch.zeros(data.Y.shape[1], dtype=torch.float64)
    total.index_add_(0, label, data.weight)
    mean = torch.zeros(len(total), data.x.shape[1], dtype=torch.float64)
    mean.index_add_(0, label, data.weight[:, None] * data.x)
    inside = data.x - (mean / total.clamp_min(1e-300)[:, None])[label]
    n, D = inside.shape
    S = inside.mT @ (data.weight[:, None] * inside) / data.weight.sum()
    shrink, diagonal = max(D / (n + D), SHRINK), S.diagonal()
    S = (1 - shrink) * S + (shrink * diagonal).diag()
    S = S + 1e-3 * diagonal.mean() * torch.eye(D, dtype=S.dtype)
    values, vectors = torch.linalg.eigh(S)
    return vectors @ (values.clamp_min(1e-12).rsqrt()[:, None] * vectors.mT)


def no_levels(data: Data) -> bool:
    """Levels that few rows have would be stretched until they outweigh everything else."""
    return few_columns(data) and len(np.unique(data.ties)) == data.x.shape[1]


def uneven(data: Data) -> bool:
    """Are the columns' units not those of their spread?"""
    return bool(data.sd.max() > 1.2 * data.sd.min())


def heat() -> Operator:
    return KERNELS["gaussian"]()


CLASSES: tuple[Candidate, ...] = (
    Framed("raw.heat", Radial("heat"), heat, raw, suits=uneven),
    Framed("raw.rq", Radial("cauchy"), cauchy, raw, suits=uneven),
    Framed("iso.heat", Radial("heat"), heat, standard, suits=any_data),
    Framed("iso.rq", Radial("cauchy"), cauchy, standard, suits=any_data),
    Framed("white.rq", Radial("cauchy"), cauchy, whitened, rigid=False, suits=no_levels),
    Framed("white.heat", Radial("heat"), heat, whitened, rigid=False, suits=no_levels),
    OnAxes("axis.rq", Radial("cauchy"), cauchy, lines=False, rigid=False, suits=few_scales),
    OnAxes("axis.l1", City(), laplace, product=True, lines=False, rigid=False, suits=few_scales),
)


def equal_scales(data: Data) -> Fit:
    """Where everything starts: every column as important as any other."""
    return Fit(AXIS_RQ, equal(data), cauchy(), 1e-2)


def equal(data: Data, tied: bool = False) -> AxisScales:
    D = data.x.shape[1]
    return AxisScales(D, math.exp(-0.5) / math.sqrt(D), tied=tied)


# --- what users restrict a race to


def scaled(data: Data, start: Fit, _: torch.Generator) -> nn.Module:
    return AxisScales(data.x.shape[1], scales(start, data.x.shape[1]).clone())


def plane(d: int) -> Callable[[Data, Fit, torch.Generator], nn.Module]:
    """A linear chart with d coordinates, at first the directions in which another fit varies most."""

    def encoder(data: Data, start: Fit, _: torch.Generator) -> nn.Module:
        _, V = torch.linalg.eigh(gradients(data.head(FEW), start))
        W = V.flip(1)[:, :d].mT.contiguous()
        return Linear(W.shape[1], len(W), W)

    return encoder


def gradients(data: Data, fit: Fit) -> Tensor:
    """Mean outer product (D, D) of the gradients of u at the rows."""
    x = data.x.clone().requires_grad_()
    z, anchors = fit.chart(x), fit.chart(data.x).detach()
    K = fit.operator.response(z, Point(anchors)) / unit(fit.operator, z.shape[1])
    A = K.detach() + fit.noise * (1 / data.weight).diag() + 1e-10 * torch.eye(len(K)).to(K)
    u = K @ torch.linalg.solve(A, data.Y)  # (n, c)
    slopes = [
        torch.autograd.grad(u[:, j].sum(), x, retain_graph=True)[0] for j in range(u.shape[1])
    ]
    return sum((g.mT @ g for g in slopes), torch.zeros_like(data.x[:1].mT @ data.x[:1])) / len(x)


def restricted(
    pool: tuple[Candidate, ...], operator: Operator | None, n_dims: int | None, D: int
) -> tuple[Candidate, ...]:
    """What may win where the operator or the number of coordinates is given."""
    if operator is not None:
        check_stationary(operator, n_dims or D)
    elif n_dims in (None, D):
        return pool
    makers: dict[str, Callable[[], Operator]] = {"heat": heat, "rq": cauchy}
    if operator is not None:
        makers = {type(operator).__name__.lower(): lambda: deepcopy(operator)}
    if n_dims not in (None, D):
        charts, n = {f"plane{n_dims}": plane(int(n_dims or 1))}, 4  # directions turn slowly
    else:
        charts, n = {"axis": scaled, "full": mixed}, 1
    rigid = any(candidate is AXIS_RQ for candidate in pool)  # few numbers, but for classes
    return tuple(
        Free(
            f"{chart}.{kernel}",
            encoder,
            make,
            rigid=rigid and encoder is scaled,
            suits=any_data,
            times=n,
        )
        for chart, encoder in charts.items()
        for kernel, make in makers.items()
    )


@torch.no_grad()
def check_stationary(operator: Operator, d: int) -> None:
    """Refuse what is no covariance that is the same everywhere: candidates are compared by those."""
    z = torch.linspace(-1, 1, 5 * d, dtype=torch.float64).reshape(5, d)
    plain = operator.null_space() is None and operator.box is None
    K = operator.response(z, Point(z)) if plain else torch.zeros(1, 1)
    if not plain or not torch.allclose(K.diagonal(), K[0, 0].expand(5), rtol=1e-6):
        raise ValueError(
            f"operator={type(operator).__name__} needs a given chart, such as chart='linear': charts "
            "compete by covariances that are the same everywhere, without a boundary or a null space."
        )


def allowed(fit: Fit, operator: Operator | None, n_dims: int | None, data: Data) -> Fit | None:
    """A linear chart that the search found, if it is what was asked for, with the operator itself.

    The same kernel at another scale of the chart is the same.
    """
    assert isinstance(fit.chart, Linear)
    W = fit.chart.weight.detach()
    if n_dims not in (None, len(W)):
        return None
    if operator is None or not bool(W.any()):
        return fit
    x = data.x[:100]
    K = fit.kernel(x)

    def other(log_c: float) -> Fit:
        W_c = math.exp(log_c) * W
        return replace(fit, chart=Linear(W.shape[1], len(W), W_c), operator=deepcopy(operator))

    def gap(log_c: float) -> float:
        return float(np.abs(other(log_c).kernel(x) - K).max())

    found = minimize_scalar(gap, bounds=(-5, 5), method="bounded", options={"xatol": 1e-9})
    return other(float(found.x)) if found.fun < 1e-6 else None

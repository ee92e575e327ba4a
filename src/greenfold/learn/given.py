"""Stage 1 for a chart whose kind is given: build the model, fit its start, descend the objective."""

import math
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import NamedTuple

import torch
from joblib import Parallel, delayed
from torch import Tensor, nn

from greenfold.chart import MLP, AxisScales, Conv, Gates, Linear, PCAResidual, Warp
from greenfold.chart.start import farthest_points, grid, isomap, pca
from greenfold.design import Design
from greenfold.dims import DimensionReport, dimension
from greenfold.green.atoms import ATOMS, Atoms, Box, Gabor, Gaussian, Hat, MexicanHat, Point
from greenfold.green.base import Operator
from greenfold.green.null_space import Polynomial
from greenfold.green.operators import operator as operator_by_name
from greenfold.learn.callbacks import Film, Progress
from greenfold.learn.data import SAMPLE, Rows
from greenfold.learn.graphs import Eigenmap
from greenfold.learn.trainer import Callback, History, descend, walk
from greenfold.learn.units import evenly
from greenfold.model import IGL, Tied, n_sources, placement
from greenfold.solve import OBJECTIVES, GroupLasso, RunningSums, Solution
from greenfold.spec import Settings
from greenfold.state import own_draws

LARGE = 5000  # rows above which training goes by minibatches
BATCH = 1024
STEPS = 3000  # minibatches at most
HIDDEN = (64, 64)  # widths of layers
DIMS = {"eigenmap": 5}  # coordinates, unless told; of others 2
FILMED = 300  # rows whose way through training is kept for `report`


def _conv(X: Tensor, d: int, s: Settings, generator: torch.Generator) -> nn.Module:
    side = math.isqrt(X.shape[1])
    shape = s.shape or (1, side, side)
    if math.prod(shape) != X.shape[1]:
        told = "are square images" if s.shape is None else f"are images of shape {s.shape}"
        raise ValueError(
            f"chart='conv' takes rows that {told}, got {X.shape[1]} columns. For another shape pass "
            "chart=greenfold.Chart('conv', shape=(channels, height, width))."
        )
    return Conv(shape, d, generator=generator)


# of rows (n, D) and the number of coordinates
CHARTS: dict[str, Callable[[Tensor, int, Settings, torch.Generator], nn.Module]] = {
    "axis": lambda X, *_: AxisScales(X.shape[1], X.shape[1] ** -0.5),
    "conv": _conv,
    "eigenmap": lambda X, d, *_: Eigenmap(X, d),
    "linear": lambda X, d, *_: Linear(X.shape[1], d, pca(X, d)),
    "mlp": lambda X, d, s, draws: MLP(X.shape[1], d, s.hidden or HIDDEN, generator=draws),
    "pca": lambda X, d, s, draws: PCAResidual(pca(X, d), s.hidden or HIDDEN, generator=draws),
    "warp": lambda X, *_: Warp(X.shape[1], scale=X.shape[1] ** -0.5),
}


# of places (r, d), widths (r, d), and whether they are learned
Sources = Callable[[Tensor, Tensor, bool], Atoms]


def _bells(kind: type[Atoms], mu: Tensor, sigma: Tensor, learn: bool) -> Atoms:
    return kind(mu, sigma, learn=learn)


def _waves(mu: Tensor, sigma: Tensor, learn: bool) -> Atoms:
    """A wave as long as its bell is wide, even and odd in turn."""
    theta = -math.pi / 2 * (torch.arange(len(mu)) % 2).to(mu)[:, None]
    return Gabor(mu, sigma, 1 / sigma, theta, learn=learn)


SOURCES: dict[type[Atoms], Sources] = {
    **{kind: partial(_bells, kind) for kind in (Gaussian, MexicanHat, Box, Hat)},
    Gabor: _waves,
    Point: lambda mu, _, learn: Point(mu, learn=learn),
}


def kind_of_atoms(settings: Settings) -> type[Atoms]:
    """What the source of a given chart is made of."""
    if isinstance(settings.atoms, str) and settings.atoms == "auto":
        return Point if settings.anchors == "tied" else Gaussian
    return ATOMS[settings.atoms] if isinstance(settings.atoms, str) else settings.atoms


# of a design, targets (n, c), log α and weights (n,)
Objective = Callable[[Design, Tensor, Tensor, Tensor | None], Tensor]


class Trained(NamedTuple):
    """A model whose chart has learned; its source is not solved for yet, unless training was joint."""

    model: IGL
    history: History
    alpha: float  # strength where training ended, absolute


class Given:
    """A chart whose kind is given: where it starts, and how it is trained."""

    def __init__(
        self,
        settings: Settings,
        objective: Objective | None = None,
        others: Tensor | None = None,
    ):
        """`objective` is what classes have in place of those by name; it needs all rows at once.

        `others` (m, D) are rows without labels, which charts may start from as well.
        """
        self.s, self.objective, self.others = settings, objective, others
        self.d = 2
        self.dimension: DimensionReport | None = None  # the whole answer, if it was asked for

    def encoder(self, X: Tensor, generator: torch.Generator) -> nn.Module:
        if isinstance(self.s.chart, nn.Module):
            return self.s.chart
        if self.s.as_given:
            return nn.Identity()
        size = min(self.d, *X.shape)
        return CHARTS[self.s.chart](self.all(X), size, self.s, generator).double()

    def all(self, x: Tensor) -> Tensor:
        """With rows that have no label."""
        return x if self.others is None else torch.cat([x, self.others])

    def find_dims(self, X: Tensor, target: Tensor | None, generator: torch.Generator) -> None:
        """The number of coordinates asked for, or found: `dimension_` then has the whole answer."""
        usual = self.s.operator.columns if self.s.rooted else DIMS.get(self.s.chart, 2)
        self.d = self.s.n_dims or usual
        if self.s.n_dims != "auto":
            return
        y = None if target is None else target.double().numpy()
        seed = _draw_seed(generator)
        self.dimension = dimension(X.numpy(), y, interval=False, random_state=seed)
        answer = self.dimension.chart if target is None else self.dimension.task
        assert answer is not None
        if answer.value is None:
            raise ValueError(f"n_dims='auto' has no answer: {answer.note}. Give `n_dims` a number.")
        self.d = max(1, answer.value)

    def start(self, x: Tensor, n_atoms: int, generator: torch.Generator, restart: int = 0) -> IGL:
        """The model before training; restarts after the first begin elsewhere."""
        encoder = self.encoder(x, generator)
        if restart:
            encoder = _shaken(encoder, generator)
        with torch.no_grad():
            z = encoder(x)
        learned = self.s.gates == "learned"
        operator = operator_by_name(self.s.operator if self.s.operator != "auto" else "heat")
        self.check_atoms(operator)
        standardize = self.s.chart in ("mlp", "pca", "conv") or learned or operator.box is not None
        standardize = standardize and not operator.rooted
        if standardize:
            mean, scale = placement(z, operator.box)
            z = (z - mean) / scale
        sources = self.sources(x, z, n_atoms, operator)
        null = operator.null_space()
        # too few rows to tell its columns
        few = null is not None and null(z[:1]).shape[1] >= len(x)
        importance = self.s.sparsity == "importance"
        plain = self.s.gamma in ("fixed", "learned") and not importance
        return IGL(
            encoder,
            operator,
            sources,
            n_dims=z.shape[1],
            null_space=Polynomial(0) if few else None,
            gates=Gates(operator.n_gates(z.shape[1]), learn=learned),
            standardize=standardize,
            energy=isinstance(sources, Tied) and plain,
            gamma=self.s.gamma,
            importance=importance,
        ).train()

    def sources(self, x: Tensor, z: Tensor, n_atoms: int, operator: Operator) -> Tied | Atoms:
        """Anchors that spread over where the chart starts: images of rows, or atoms of their own."""
        rows = farthest_points(z, n_atoms)
        if self.s.anchors == "tied":
            return Tied(x[rows], sigma=operator.resolution(z))
        spread = z.std(0, correction=0).clamp_min(1e-12)
        d = z.shape[1]
        mu = z[rows] if self.s.anchors == "free" else z.mean(0) + spread * grid(n_atoms, d)
        sigma = float(spread.mean()) * len(mu) ** (-1 / d) * 2  # about the distance between anchors
        make = SOURCES[kind_of_atoms(self.s)]
        return make(mu, torch.full_like(mu, sigma), self.s.anchors == "free")

    def check_atoms(self, operator: Operator) -> None:
        reason = operator.refuses(kind_of_atoms(self.s))
        if reason:
            told = (
                f"anchors={self.s.anchors!r}"
                if self.s.atoms == "auto"
                else f"atoms={self.s.atoms!r}"
            )
            raise ValueError(
                f"{told} needs another operator than {type(operator).__name__}: {reason}"
            )

    def goal(self, x: Tensor, n_dims: int) -> Tensor | None:
        """Coordinates (n, d) for the encoder to begin with."""
        start = self.s.start
        if start == "auto":
            turns = self.s.chart not in ("axis", "warp", "eigenmap")
            start = "isomap" if self.s.rebuilds and turns else None
        if start is None or n_dims > min(len(x) - 1, x.shape[1]):
            return None
        if start == "isomap" and len(x) > 10:
            return isomap(self.all(x), n_dims)[: len(x)]
        return x @ pca(self.all(x), n_dims).T

    def train(self, rows: Rows, n_atoms: int, generator: torch.Generator) -> Trained:
        """The best of `n_restarts` models by the objective, settled on the rows."""
        x = rows.x
        self.find_dims(x, None if self.s.rebuilds else rows.Y, generator)
        with own_draws(self.s.chart, x, generator):
            models = [self.start(x, n_atoms, generator, i) for i in range(self.s.n_restarts)]
            goal = self.goal(x, len(models[0].mean))
            if goal is not None:
                for model in models:
                    self.begin(model, x, goal)
        train = self.joint if self.s.mode == "joint" else partial(self.two_stage, goal)
        seeds = [_draw_seed(generator) for _ in models]
        found: list[tuple[History, float]] = Parallel(n_jobs=self.s.n_jobs, prefer="threads")(
            delayed(self.seeded)(train, model, rows, seed)
            for model, seed in zip(models, seeds, strict=True)
        )
        best = min(range(len(models)), key=lambda i: min(found[i][0].loss, default=math.inf))
        model = models[best]
        if isinstance(self.s.chart, nn.Module) and model.encoder is not self.s.chart:
            self.s.chart.load_state_dict(model.encoder.state_dict())  # it is trained in place
            model.encoder = self.s.chart
        return Trained(model.settle(x), *found[best])

    def seeded(
        self, train: Callable[..., tuple[History, float]], model: IGL, rows: Rows, seed: int
    ) -> tuple[History, float]:
        """`train`, in whatever thread; the seed tells what a user's module draws."""
        with own_draws(self.s.chart, rows.x, torch.Generator().manual_seed(seed)):
            return train(model, rows, seed)

    def begin(self, model: IGL, x: Tensor, goal: Tensor) -> None:
        """Fit the encoder to `goal` (n, d), and spread the anchors over it."""
        parameters = list(model.encoder.parameters())
        descend(
            model,
            lambda: (model.encoder(x) - goal).square().mean(),
            parameters,
            max_iter=3 * self.s.iterations,
        )
        if isinstance(model.sources, Tied):
            model.sources.x = x[farthest_points(goal, len(model.sources.x))]
        else:  # they were placed where the encoder was before
            with torch.no_grad():
                places, n_atoms = model.locate(x), len(model.sources.mu)
                model.sources = self.sources(x, places, n_atoms, model.operator)
        rho = model.raw_rho  # of as many atoms: there are fewer where rows coincide on the chart
        fewer = rho.detach()[: n_sources(model.sources)]
        model.raw_rho = nn.Parameter(fewer, requires_grad=rho.requires_grad)

    def two_stage(
        self, goal: Tensor | None, model: IGL, rows: Rows, seed: int
    ) -> tuple[History, float]:
        """Descend the objective, with the source solved for at every step."""
        n = len(rows.x)
        some = rows.take(slice(None, None, -(-n // LARGE)))  # they are sorted; enough for scales
        lasso = self.lasso(model, some, n)
        energy = model.energy
        model.energy = energy and lasso is None
        with torch.no_grad():
            Phi = model.design(some.x).Phi
            log_alpha = (1e-2 * (model.unit() if model.energy else Phi.square().mean())).log()
        log_alpha.requires_grad_()
        whole = self.objective or OBJECTIVES[self.s.objective]
        sums = RunningSums(float(n) if rows.weight is None else float(rows.weight.sum()))

        def loss(batch: Tensor | None = None) -> Tensor:
            x, Y, w, _ = rows if batch is None else rows.take(batch)
            design, alpha = model.design(x), log_alpha.clamp(-30, 10)
            if lasso is not None:
                value = lasso.loss(design, Y, w)
            elif batch is None:
                value = whole(design, Y, alpha, w)
            else:
                value = sums.objective(self.s.objective, design, Y, alpha, w)
            if self.s.pull and goal is not None:
                near = goal if batch is None else goal[batch]
                value = value + self.s.pull * (model.encoder(x) - near).square().mean()
            return value

        history = self.optimize(model, loss, [*model.parameters(), log_alpha], rows.x, seed)
        model.energy = energy
        return history, float(log_alpha.detach().clamp(-30, 10).exp())

    @torch.no_grad()
    def unit_strength(self, model: IGL, x: Tensor) -> float:
        """The strength at which the penalty lets u vary by about 1."""
        if model.energy:
            return float(model.unit())
        Phi = model.design(x).Phi
        return float(Phi[:, : Phi.shape[1] - model.n_null()].square().sum(1).mean())

    def watchers(self, steps: int) -> list[Callback]:
        """The user's callbacks, and a bar of so many steps if asked for."""
        bar = [Progress(steps)] if self.s.verbose else []
        return [*(self.s.callbacks or []), *bar]

    @property
    def prunes(self) -> bool:
        """Is `sparsity` the strength of a group lasso?"""
        return bool(self.s.sparsity) and not isinstance(self.s.sparsity, str)

    def lasso(self, model: IGL, some: Rows, n: int) -> GroupLasso | None:
        """The penalty that objective='penalized' descends when `sparsity` is a strength."""
        if not self.prunes or self.s.objective != "penalized":
            return None
        solver, solution = self.strongest(model, some._replace(weight=None))
        lam = solution.info["strength"] * n / len(some.x)
        return GroupLasso(lam, n_columns=solver.n_columns, relative=False)

    @torch.no_grad()
    def strongest(self, model: IGL, rows: Rows) -> tuple[GroupLasso, Solution]:
        """The group lasso on the columns of single atoms, which the energy norm would mix."""
        energy, model.energy = model.energy, False
        solver = GroupLasso(
            self.s.sparsity, n_columns=len(model.factors) if model.gamma == "free" else 1
        )
        solution = solver.solve(model.design(rows.x), rows.Y, rows.weight)
        model.energy = energy
        return solver, solution

    def prune(self, model: IGL, rows: Rows) -> None:
        """Keep the atoms that the group lasso keeps. Their strengths are then solved for anew."""
        solver, solution = self.strongest(model, rows)
        sources = model.sources
        n_atoms = len(model.raw_rho)
        strengths = solution.w[: solver.n_columns * n_atoms].reshape(solver.n_columns, n_atoms, -1)
        keep = (strengths != 0).any(2).any(0).nonzero()[:, 0]
        keep = keep if len(keep) else torch.zeros(1, dtype=torch.long)  # y is constant
        if isinstance(sources, Tied):
            sources.x = sources.x[keep]
        else:
            shapes = (getattr(sources, name).detach()[keep] for name in sources.shapes)
            model.sources = type(sources)(*shapes)
        model.raw_rho = nn.Parameter(model.raw_rho.detach()[keep], requires_grad=False)

    def joint(self, model: IGL, rows: Rows, seed: int) -> tuple[History, float]:
        """Chart and source together, by gradient: what two-stage training is measured against."""
        x, target, share = rows.x, rows.Y, rows.weights[:, None]
        with torch.no_grad():
            columns = model.design(x[:2]).Phi.shape[1]
        w = torch.zeros(columns, target.shape[1], dtype=torch.float64, requires_grad=True)
        varies = (target.abs().amax(0) > 1e-8).double()  # what does not has no source

        def loss(batch: Tensor | None = None) -> Tensor:
            part = slice(None) if batch is None else batch
            error = (model.design(x[part]).Phi @ (varies * w) - target[part]).square()
            mse = (share[part] * error).sum() / share[part].sum()
            return mse.log() if self.s.objective == "log_mse" else mse

        history = self.optimize(model, loss, [*model.parameters(), w], x, seed)
        model.w = varies * w.detach()
        return history, math.nan

    def optimize(
        self,
        model: IGL,
        loss: Callable[..., Tensor],
        parameters: list[Tensor],
        x: Tensor,
        seed: int,
    ) -> History:
        """L-BFGS on all rows up to `LARGE`, Adam on minibatches above, unless told."""
        film, n_rows = filmed(x), len(x)
        callbacks: list[Callback] = [*self.watchers(self.s.iterations), film]
        large = self.s.optimizer == "auto" and n_rows > LARGE and self.objective is None
        if self.s.optimizer == "adam" or large:
            history = walk(
                model,
                loss,
                parameters,
                n_rows,
                epochs=min(self.s.iterations, max(5, STEPS * BATCH // n_rows)),
                batch_size=BATCH,
                lr=1e-2,
                generator=torch.Generator().manual_seed(seed),
                callbacks=callbacks,
            )
        else:
            history = descend(
                model, loss, parameters, max_iter=self.s.iterations, callbacks=callbacks
            )
        history.film = film
        return history


def filmed(x: Tensor) -> Film:
    """Some of the rows that `report` shows, followed through training."""
    sample = evenly(len(x), SAMPLE)
    return Film(x[torch.from_numpy(sample[evenly(len(sample), FILMED)])])


def _shaken(encoder: nn.Module, generator: torch.Generator) -> nn.Module:
    """A copy with every parameter moved by half its size."""
    encoder = deepcopy(encoder)
    with torch.no_grad():
        for p in encoder.parameters():
            step = torch.randn(p.shape, dtype=p.dtype, generator=generator)
            p.add_(0.5 * p.square().mean().sqrt() * step)
    return encoder


def _draw_seed(generator: torch.Generator) -> int:
    return int(torch.randint(2**31 - 1, (), generator=generator))

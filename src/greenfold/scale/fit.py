"""A chart learned from a stream: exact sums over all rows at every refresh, Adam between refreshes.

    ℓ(θ) = objective(G, b, yy),   G = Σ ΦᵀΦ,  b = Σ ΦᵀY                       sums over all rows
    ∂ℓ/∂Φ_n = Φ_n (Ḡ + Ḡᵀ) + Y_n b̄ᵀ,   Ḡ = ∂ℓ/∂G,  b̄ = ∂ℓ/∂b            one row at a time

Sums and gradients are both sums over rows, so that in a step processes exchange (p + c) p numbers and as
many as there are parameters, whatever the number of rows. Between refreshes the sums run along with the
batches (`RunningSums`), starting from the exact ones. Cross-entropy has no such sums: at the end the
source of classes is solved for in passes over all rows (`solve/passes.py`). So are sources too many for
sums, by conjugate gradients (`solve/repeated.py`).
"""

import hashlib
import math
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from greenfold.design import Design
from greenfold.green.atoms import Point
from greenfold.learn.callbacks import Progress
from greenfold.learn.data import Rows
from greenfold.learn.trainer import Epoch, History
from greenfold.model import IGL, placement
from greenfold.provenance import params_of, versions
from greenfold.scale import checkpoint
from greenfold.scale.blocks import Batch, Stream
from greenfold.scale.checkpoint import State
from greenfold.scale.group import Group
from greenfold.scale.sample import CHUNK, Labels, draw, summed
from greenfold.solve import RunningSums, Solution, SolveError, Statistics, repeated
from greenfold.solve.newton import penalized_problem
from greenfold.solve.passes import Pass, descend, solution_of, start_of, sums_of
from greenfold.solve.softmax import Problem
from greenfold.solve.solution import check
from greenfold.spec import settings_of
from greenfold.state import one_thread, seed_of

START = 2000  # rows of the sample that a chart is started from and placed by
ATOMS = 256  # unless told otherwise: the cost of a row grows with the square
LR = 1e-2
MANY = 10_000  # columns above which sums of their products are not kept
TALL, WIDE = 1024, 1024  # rows and sources of a tile
ROOM = 8_000_000  # numbers that rows which stay in memory for cross-entropy may take: 64 MB

Sums = Statistics | Pass


OTHER_ROWS = """\
the stream gave {first} rows at first and {later} later: it must give the same rows at every pass. A \
function must return a new iterator at every call.\
"""


class Learner(Protocol):
    """Who knows units and charts: an estimator, of which only settings are looked at here."""

    estimator: Any
    trained: bool  # is the chart given, and trained here, or found on the sample?
    labeled: bool  # are targets classes?
    in_passes: bool  # is the source solved for by cross-entropy?

    def begin(
        self, X: Any, y: Any, labels: Labels | None, seed: int, rows: int, n_atoms: int
    ) -> tuple[IGL, Tensor, Tensor, Tensor | None]:
        """A model from a sample, started on its first rows; x and target of the sample; and factors
        (c,) on the weights of rows, by class."""

    def encoded(self, X: Any, y: Any) -> tuple[Tensor, Tensor]:
        """x and target in the units of the sample."""

    def solve(self, model: IGL, sums: Statistics) -> Solution: ...

    def strength(self, model: IGL, sample: Rows) -> float:
        """α of cross-entropy, absolute, by the sample."""

    def finish(
        self,
        model: IGL,
        sums: Sums,
        solution: Solution,
        sample: Rows,
        history: History,
        start: float,
    ) -> None:
        """The fit is over; it began at `start`."""


def learned_by(estimator: Any) -> dict[str, Any]:
    """What an estimator has without the parameters of its constructor."""
    names = estimator.get_params(deep=False)
    return {k: v for k, v in vars(estimator).items() if k not in names}


def fit_stream(learner: Learner, stream: Stream, group: Group, options: dict[str, Any]) -> None:
    """Fit in place; every process of the group ends with the same."""
    with ExitStack() as stack:
        if group.ordered:  # threads change the order of sums
            stack.enter_context(one_thread())
            threads = torch.get_num_threads()
            torch.set_num_threads(1)
            stack.callback(torch.set_num_threads, threads)
        Fit(learner, stream, group, **options).run()


class Fit:
    """One fit on its way; `state` is all that a checkpoint has to hold."""

    def __init__(
        self,
        learner: Learner,
        stream: Stream,
        group: Group,
        *,
        epochs: int,
        steps: int | None,
        batch_size: int,
        sample: int,
        folder: Path | None,
        every: int,
        route: str = "auto",
    ):
        self.learner, self.stream, self.group = learner, stream, group
        self.estimator = estimator = learner.estimator
        self.settings = settings_of(estimator)
        self.epochs, self.max_steps, self.every, self.folder = epochs, steps, every, folder
        self.route = route
        self.slot = max(1, batch_size // group.n_blocks)  # rows of a block in a step
        self.objective = self.settings.objective
        self.history, self.start = History(), time.perf_counter()
        shown = estimator.verbose and learner.trained and group.rank == 0
        self.bar = Progress(epochs + 1) if shown else None
        self.state = self._resumed(sample) or self._begun(sample)
        chart = self.settings.chart
        if isinstance(chart, nn.Module):
            chart.load_state_dict(self.state.model.encoder.state_dict())
            self.state.model.encoder = chart  # it is trained in place
        self.model = self.state.model.eval()
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.placing = self.state.sample[0][:START]
        with torch.no_grad():
            self.model.settle(self.placing)
            self.penalty = self.model.design(self.placing[:2]).penalty
        self.n_outputs = self.state.sample[1].shape[1]
        self.in_passes = self._goes_in_passes()
        self.state.log_alpha.requires_grad_()
        self.optimizer = torch.optim.Adam([*self.parameters, self.state.log_alpha], lr=LR)
        if self.state.optimizer:
            self.optimizer.load_state_dict(self.state.optimizer)
        if self.state.running:
            self.running = RunningSums(self._best_sums().n)
            self.running.total, self.running.share = self.state.running, 1.0

    def _goes_in_passes(self) -> bool:
        """Are there so many sources that least squares are solved for in passes, or is that asked for?"""
        trained = self.learner.trained and self.epochs > 0
        if self.learner.in_passes or trained or self.route == "sums":
            return False
        able = isinstance(self.model.atoms(), Point) and self.model.gamma == "fixed"
        if self.route == "passes" and not able:
            raise ValueError(
                "route='passes' needs sources at points with the weights of their operator, as those of "
                "chart='auto' are; choose route='sums'."
            )
        return able and (self.route == "passes" or len(self.penalty) > MANY)

    def run(self) -> None:
        state = self.state
        trained = bool(self.parameters) and self.learner.trained
        for epoch in range(state.epoch, self.epochs if trained else 0):
            if state.epoch != epoch or not state.running:
                state.epoch, state.step = epoch, 0
                if self.refresh():
                    break
            self.walk()
        else:
            state.epoch = self.epochs if trained else 0
            if not (state.points or self.in_passes) and (trained or not self.learner.in_passes):
                self.refresh()
        self.finish()

    # --- the beginning

    def _key(self, sample: int) -> dict[str, str]:
        """Facts about data, settings and version: a checkpoint of others is not gone on from."""
        facts = {
            "greenfold": versions()["greenfold"],
            "estimator": type(self.estimator).__name__,
            **params_of(self.estimator),
            "epochs": self.epochs,
            "steps": self.max_steps,
            "rows of a block in a step": self.slot,
            "blocks": self.group.n_blocks,
            "sample": sample,
            "deterministic": self.group.ordered,
            "route": self.route,
        }
        return {name: str(value) for name, value in facts.items()} | self.stream.describe()

    def _resumed(self, sample: int) -> State | None:
        found: Any = None
        if self.folder is not None and self.group.rank == 0:
            chart = self.settings.chart
            try:
                own = chart if isinstance(chart, nn.Module) else ()
                found = checkpoint.load(self.folder, self._key(sample), own)
            except ValueError as error:
                found = error
        found = self.group.share(found)
        if isinstance(found, ValueError):
            raise found
        if found is None:
            return None
        assert self.folder is not None
        self.stream.table = found.table
        rows, counts, _ = draw(self.stream, self.group, sample, found.seed)
        now = {"rows": str(sum(counts)), "a sample of them": self._sha256(rows)}
        checkpoint.compare(
            self.folder, {"rows": str(found.n), "a sample of them": found.sha256}, now
        )
        vars(self.estimator).update(learned_by(found.estimator))
        return found

    def _sha256(self, rows: Batch) -> str:
        X, y = self.stream.encode(rows)
        y = np.asarray(y)
        content = y.astype("<f8").tobytes() if y.dtype.kind in "biuf" else repr(y.tolist()).encode()
        digest = hashlib.sha256(np.ascontiguousarray(X, dtype="<f8").tobytes() + content)
        return f"SHA-256 {digest.hexdigest()}"

    def _begun(self, sample: int) -> State:
        """Units, chart and anchors from a sample of the rows, the same in every process."""
        seed = self.group.share(seed_of(self.estimator.random_state))
        rows, counts, labels = draw(self.stream, self.group, sample, seed, self.learner.labeled)
        self.stream.learn(rows)
        X, y = self.stream.encode(rows)
        mine = sum(counts[b] for b in self.group.blocks)
        if not mine:
            warnings.warn(
                f"process {self.group.rank} of {self.group.world} has no rows and only waits for the "
                "others: there are fewer pieces of data (row groups, batches) than processes.",
                stacklevel=6,
            )
        model, x, target, factor = self.learner.begin(X, y, labels, seed, START, ATOMS)
        model, learned = self.group.share((model, learned_by(self.estimator)))
        vars(self.estimator).update(learned)
        with torch.no_grad():
            Phi = model.eval().design(x[:START]).Phi
            unit = model.unit() if model.energy else Phi.square().mean()
        steps = max(-(-count // self.slot) for count in counts)
        return State(
            key=self._key(sample),
            sha256=self._sha256(rows),
            seed=seed,
            estimator=self.estimator,
            table=self.stream.table,
            model=model,
            sample=(x.clone(), target.clone()),
            n=int(sum(counts)),
            steps=min(steps, self.max_steps or steps),
            log_alpha=(1e-2 * unit).log(),
            counts=[] if labels is None else labels.counts.tolist(),
            factor=factor,
        )

    def _encoded(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """x and target in internal units, in torch's own memory: its alignment decides about bits."""
        x, target = self.learner.encoded(*self.stream.encode(batch))
        return x.clone(), target.clone()

    def _weight(self, target: Tensor) -> Tensor | None:
        """Of rows, by their classes."""
        return None if self.state.factor is None else target @ self.state.factor

    def _rows(self, x: Tensor, target: Tensor) -> Rows:
        return Rows(x, target, self._weight(target))

    # --- stage 2 over all rows

    @torch.no_grad()
    def exact(self) -> Statistics:
        """The sums over all rows for the chart as it is."""
        p, c = len(self.penalty), self.n_outputs

        def add(batch: Batch, slot: Tensor) -> None:
            x, target = self._encoded(batch)
            if len(x):
                sums = Statistics.on(slot, self.penalty, c)
                sums.update(self.model.design(x), target, self._weight(target))
                slot[-2:] = torch.tensor([sums.n, sums.rows], dtype=torch.float64)

        flat = summed(self.stream, self.group, p * p + p * c + c * c + 2, add)
        return Statistics.on(flat, self.penalty, c)

    def refresh(self) -> bool:
        """Exact sums, and from them the loss; keeps the best. True when a callback asks to stop."""
        state = self.state
        self.model.settle(self.placing)
        sums = self.exact()
        if sums.rows == 0 or sums.rows > state.n:
            raise ValueError(OTHER_ROWS.format(first=state.n, later=sums.rows))
        parts = [sums.gram, sums.cross, sums.square.diagonal()]
        self.running = RunningSums(sums.n)
        self.running.total, self.running.share = parts, 1.0
        state.running = parts
        with torch.no_grad():
            whole = RunningSums(sums.n, decay=0.0)
            loss = self.group.agree(
                whole.value(self.objective, parts, self.penalty, state.log_alpha.clamp(-30, 10))
            )
        if not state.losses or float(loss) < min(state.losses):
            state.best = [p.detach().clone() for p in self.parameters]
            state.best_sums = sums.flat()
        state.losses.append(float(loss))
        self.save()
        self.history.loss = np.minimum.accumulate(state.losses).tolist()
        self.history.seconds.append(time.perf_counter() - self.start)
        epoch = Epoch(len(state.losses), min(state.losses), self.model, self.history.seconds[-1])
        calls = self.settings.callbacks or []
        answers = [call(epoch) for call in calls] if self.group.rank == 0 else []
        if self.bar is not None:
            self.bar(epoch)
        return bool(self.group.share(True in answers)) if calls else False

    # --- stage 1 on shuffled blocks

    def walk(self) -> None:
        """The steps of an epoch, from where the state is."""
        state, n = self.state, self.group.n_blocks
        batches = {
            b: self.stream.batches(
                b, n, self.slot, order=[state.seed, state.epoch, b], skip=state.step * self.slot
            )
            for b in self.group.blocks
        }
        while state.step < state.steps:
            raw = {b: next(iterator, None) for b, iterator in batches.items()}
            self.step({b: self._encoded(batch) for b, batch in raw.items() if batch is not None})
            state.step += 1
            if state.step % self.every == 0 and state.step < state.steps:
                self.save()

    def step(self, rows: dict[int, tuple[Tensor, Tensor]]) -> None:
        """One step of Adam on (x, target) from every block."""
        p, c = len(self.penalty), self.n_outputs
        if self.model.standardize:  # by the same rows in every process
            z = self.model.encoder(self.placing)
            self.model.mean, self.model.scale = placement(z, self.model.operator.box)
        slots = {
            b: torch.zeros(p * p + p * c + c * c + 2, dtype=torch.float64)
            for b in self.group.blocks
        }
        Phis = {}
        for b, (x, target) in rows.items():
            if len(x):
                design = self.model.design(x)
                one = Statistics()
                one.update(design, target, self._weight(target))
                slots[b], Phis[b] = one.flat(), design.Phi
        total = Statistics.from_flat(self.group.sum(slots), self.penalty, c)
        if total.rows == 0:
            return
        G, b_bar, last = self._cotangents(total)
        size = sum(q.numel() for q in self.parameters)
        gradients = {b: torch.zeros(size, dtype=torch.float64) for b in self.group.blocks}
        for b, Phi in Phis.items():
            pulled = Phi.detach() @ (G + G.T) + rows[b][1] @ b_bar.T
            weight = self._weight(rows[b][1])
            pulled = pulled if weight is None else weight[:, None] * pulled
            parts = torch.autograd.grad(
                Phi, self.parameters, pulled.to(Phi), allow_unused=True, retain_graph=True
            )
            gradients[b] = _flat(parts, self.parameters)
        gradient = self.group.agree(torch.cat([self.group.sum(gradients), last]))
        self.history.evaluations += 1
        if not bool(gradient.isfinite().all()):
            self._roll_back()
            return
        for group in self.optimizer.param_groups:
            group["lr"] = LR * 0.5 * (1 + math.cos(math.pi * self._progress()))
        targets = [*self.parameters, self.state.log_alpha]
        pieces = gradient.split([q.numel() for q in targets])
        for q, piece in zip(targets, pieces, strict=True):
            q.grad = piece.reshape(q.shape).to(q)
        self.optimizer.step()
        self._follow(targets)

    def _cotangents(self, total: Statistics) -> tuple[Tensor, Tensor, Tensor]:
        """∂ℓ/∂G, ∂ℓ/∂b and ∂ℓ/∂log α at the running sums; not finite where there is no solution."""
        G, b = total.gram.requires_grad_(), total.cross.requires_grad_()
        scale, alpha = self.running.n / total.n, self.state.log_alpha
        new = [scale * G, scale * b, scale * total.square.diagonal()]
        try:
            value = self.running.value(self.objective, new, self.penalty, alpha.clamp(-30, 10))
            parts = torch.autograd.grad(value, [G, b, alpha])
        except SolveError:
            parts = tuple(torch.full_like(part, torch.nan) for part in (G, b, alpha))
        assert self.running.total is not None
        self.state.running = self.running.total
        flat = self.group.agree(torch.cat([part.reshape(-1) for part in parts]))
        first, second, last = flat.split([G.numel(), b.numel(), 1])
        return first.reshape(G.shape), second.reshape(b.shape), last

    def _progress(self) -> float:
        """Of all steps, between 0 and 1."""
        state = self.state
        return (state.epoch * state.steps + state.step) / (self.epochs * state.steps)

    @torch.no_grad()
    def _follow(self, tensors: list[Tensor]) -> None:
        """Take the parameters of the first process, if it decides."""
        if self.group.first_decides and self.group.world > 1:
            flat = self.group.agree(torch.cat([t.detach().double().reshape(-1) for t in tensors]))
            for t, piece in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
                t.copy_(piece.reshape(t.shape))

    @torch.no_grad()
    def _roll_back(self) -> None:
        """From a step that is not finite to the best parameters so far, and the sums they had."""
        self.state.rollbacks += 1
        for p, value in zip(self.parameters, self.state.best, strict=True):
            p.copy_(value)
        sums = self._best_sums()
        self.running.total = [sums.gram, sums.cross, sums.square.diagonal()]
        self.running.share = 1.0
        self.state.running = self.running.total

    def _best_sums(self) -> Statistics:
        assert self.state.best_sums is not None
        return Statistics.from_flat(self.state.best_sums, self.penalty, self.n_outputs)

    # --- the source

    def squares(self) -> tuple[Statistics, Solution]:
        """By least squares, from the sums of the best chart."""
        sums = self._best_sums()
        return sums, self.learner.solve(self.model, sums)

    def entropy(self) -> tuple[Pass, Solution]:
        """By cross-entropy, in passes over all rows."""
        strength = self.learner.strength(self.model, self._rows(*self.state.sample))
        alpha = self.group.agree(torch.tensor(strength, dtype=torch.float64))
        some = self._stay(alpha)
        if not self.state.points:
            counts = torch.tensor(self.state.counts, dtype=torch.float64)
            w = self.group.agree(start_of(some, counts / counts.sum()))
            self.state.points = [torch.stack([w, torch.zeros_like(w)])]
        end = descend(
            lambda w: self.gather(w, some.rho),
            some,
            self.state.points,
            self.group.agree,
            self._keep,
        )
        return end.last, solution_of(end, some, self.penalty, float(alpha))

    def _stay(self, alpha: Tensor) -> Problem:
        """Rows drawn anew, as many as there is room for, that stand for all."""
        state, c = self.state, self.n_outputs
        room = ROOM // (len(self.penalty) + state.sample[0].shape[1] + c)
        rows, _, _ = draw(self.stream, self.group, room, state.seed + 1)
        some = self._rows(*self._encoded(rows))
        Phi = torch.cat([self.model.design(part).Phi for part in some.x.split(CHUNK)])
        weight = some.weights * (sum(state.counts) / some.weights.sum())
        return penalized_problem(Design(Phi, self.penalty), some.Y, alpha, weight)

    def gather(self, w: Tensor, rho: Tensor) -> Pass:
        """A pass over all rows at w."""
        w = self.group.agree(w.clone())
        p, c = w.shape

        def add(batch: Batch, slot: Tensor) -> None:
            rows = self._rows(*self._encoded(batch))
            if len(rows.x):
                design = self.model.design(rows.x)
                check(design, rows.Y, rows.weight)
                known = design.Phi.double(), rows.Y, rows.weights, torch.zeros_like(rho)
                slot += sums_of(Problem(*known), w)

        flat = summed(self.stream, self.group, Pass.size(p, c), add)
        total = Pass.of(self.group.agree(flat), w)
        if total.counts.tolist() != self.state.counts:
            first = sum(self.state.counts)
            raise ValueError(OTHER_ROWS.format(first=first, later=total.rows))
        return total.penalized(rho)

    def iterated(self) -> tuple[Statistics, Solution]:
        """By least squares, in passes over all rows, from the sample."""
        known, sample = Statistics(), self._rows(*self.state.sample)
        for i in range(0, len(sample.x), CHUNK):
            part = sample.take(slice(i, i + CHUNK))
            known.update(self.model.design(part.x), part.Y, part.weight)
        known = known.times(self.state.n / known.rows)
        start = self.learner.solve(self.model, known)
        start = start._replace(w=self.group.agree(start.w), alpha=self.group.agree(start.alpha))
        place = repeated.Place(*self.state.points) if self.state.points else None
        end = repeated.descend(
            self._pass,
            known,
            start,
            place,
            lambda now: self._keep([self.group.agree(t) for t in now]),
        )
        return end

    def _pass(self, v: Tensor, dtype: torch.dtype) -> repeated.Pass:
        """Over all rows: ΦᵀWΦ v, and what does not change with v."""
        atoms, gate, F = self.model.anchored()
        m, (p, c) = len(atoms.mu), v.shape
        inside = torch.cat([self.model.unmixed(v[:m], F), v[m:]])
        tiles, at = atoms.mu.to(dtype).split(WIDE), inside[:m].to(dtype).split(WIDE)
        places = [Point(mu) for mu in tiles]

        def add(batch: Batch, slot: Tensor) -> None:
            both, square, counts = slot.split([2 * p * c, c * c, 2])
            sums = both.view(2, p, c)
            rows = self._rows(*self._encoded(batch))
            for x, Y, weight in zip(*(t.split(TALL) for t in (rows.x, rows.Y, rows.weights))):
                xi = self.model.chart(x)
                null = self.model.null()(xi, gate).double()
                K = [self.model.respond(xi.to(dtype), place, gate) for place in places]
                u = null @ inside[m:] + sum((k @ w).double() for k, w in zip(K, at))
                pulled = weight[:, None] * torch.cat([u, Y.double()], 1)  # (n, 2c)
                low = pulled.to(dtype)
                across = torch.cat([*((k.mT @ low).double() for k in K), null.mT @ pulled])
                sums += across.view(p, 2, c).movedim(1, 0)
                square += (Y.mT @ (weight[:, None] * Y)).reshape(-1)
                counts += torch.tensor([float(weight.sum()), len(x)], dtype=torch.float64)

        flat = self.group.agree(summed(self.stream, self.group, 2 * p * c + c * c + 2, add))
        both, square, counts = flat.split([2 * p * c, c * c, 2])
        if int(counts[1]) == 0 or int(counts[1]) > self.state.n:
            raise ValueError(OTHER_ROWS.format(first=self.state.n, later=int(counts[1])))
        product, cross = both.view(2, p, c).clone()
        if F is not None:
            for sums in (product, cross):
                sums[:m] = torch.linalg.solve_triangular(F, sums[:m], upper=False)
        return repeated.Pass(product, cross, square.view(c, c), float(counts[0]), int(counts[1]))

    def _keep(self, points: list[Tensor]) -> None:
        self.state.points = points
        self.state.passes += 1
        self.save()

    # --- the end

    def save(self) -> None:
        if self.folder is None or self.group.rank:
            return
        self.state.optimizer = self.optimizer.state_dict()
        checkpoint.save(self.state, self.folder)

    @torch.no_grad()
    def finish(self) -> None:
        """The best chart, and the source on it from all rows."""
        for p, value in zip(self.parameters, self.state.best):  # no other, if it was not trained
            p.copy_(value)
        self.model.settle(self.placing)
        solve = self.entropy if self.learner.in_passes else self.squares
        sums, solution = (self.iterated if self.in_passes else solve)()
        solution = solution._replace(w=self.group.agree(solution.w))
        self.model.w = solution.w
        self.history.rollbacks, self.history.stopped = self.state.rollbacks, "all epochs"
        sample = self._rows(*self.state.sample)
        self.learner.finish(self.model, sums, solution, sample, self.history, self.start)


def _flat(parts: Any, like: list[Any]) -> Tensor:
    return torch.cat(
        [
            (torch.zeros_like(p) if g is None else g).double().reshape(-1)
            for g, p in zip(parts, like, strict=True)
        ]
    )

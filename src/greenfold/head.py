"""A head for networks of your own: a Green's response of the codes, solved for in each step."""

import math
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from greenfold.design import Design, widest
from greenfold.green import (
    Atoms,
    Gaussian,
    Operator,
    Point,
    Polynomial,
    SquaredExponential,
    Superposition,
)
from greenfold.green import operator as named
from greenfold.green.operators import OPERATORS
from greenfold.likelihoods.classes import temperature
from greenfold.options import (
    Need,
    Option,
    Table,
    defaults_of,
    flag,
    integer,
    is_integer,
    number,
    one_of,
    refuse,
)
from greenfold.solve.newton import Logistic
from greenfold.solve.running import RunningRidge

SOLVED = Need(
    lambda s: s.mode == "two-stage", "mode='two-stage': joint training solves for nothing"
)
CLASSES = Need(lambda s: s.task == "classification", "task='classification'")
ENTROPY = Need(lambda s: s.loss == "cross-entropy", "loss='cross-entropy': a ridge takes one step")
OPTIONS: Table = {
    "n_dims": integer(1),
    "n_outputs": integer(1),
    "operator": Option(
        lambda v: v is None or isinstance(v, Operator) or (isinstance(v, str) and v in OPERATORS),
        f"an Operator, one of {sorted(OPERATORS)}, or None for Gaussians of several lengths",
    ),
    "atoms": Option(
        lambda v: isinstance(v, Atoms) or is_integer(v, 1), "Atoms, or how many, at least 1"
    ),
    "gates": flag(),
    "task": one_of("classification", "regression"),
    "loss": one_of("residual", "cross-entropy").needing(CLASSES),
    "n_steps": one_of(1, 2).needing(ENTROPY, SOLVED),
    "mode": one_of("two-stage", "joint"),
    "alpha": number(zero=False),
    "decay": number(below=1.0).needing(SOLVED),
}
PACE = 10.0  # a gate must be able to close within an epoch at the learning rate of the network
PLAIN = 1e6  # heights of responses from 1/PLAIN to PLAIN are within float32's reach


WIDTH = 1.75  # of sources, where points will not do


def several_lengths(
    lengths: Sequence[float] = (0.25, 0.5, 1.0, 2.0), reference: float = 12.0
) -> Superposition:
    """Gaussian kernels of lengths √c·ℓ, learned shares of them.

    c stands for the number of coordinates the task may need: distances grow with its root.
    """
    kernels = [SquaredExponential(math.sqrt(reference) * ell) for ell in lengths]
    return Superposition(kernels, shares=True)


class IGLHead(nn.Module):
    """Logits or values from codes, u = Φ(z) w, with w solved for as the codes are learned.

    The columns are the responses of an operator to R sources, the codes as the gates let them pass, and
    what the operator leaves free, at least a constant. In training, w minimizes its loss over running
    sums of the past batches and the present one, through which gradients flow; in evaluation the last w
    is used, or the one `solve` finds on all rows.

    In a process group, such as under `DistributedDataParallel`, sums are over the rows of all processes:
    the step is that of one process with all rows. Under autocast and `torch.compile` the head computes as
    it does without; `.to(torch.bfloat16)` leaves its parameters in float32 and its sums in float64, which
    are float32 where the device has nothing wider.

    Parameters
    ----------
    n_dims : int
        Size of a code.
    n_outputs : int
        Classes, or targets to regress on.
    operator : Operator or str, optional
        What spreads the sources, such as `green.Heat()`. By default Gaussians at four lengths, their
        shares learned.
    atoms : Atoms or int
        The sources, or how many points to learn.
    gates : bool
        Learn g ∈ [0, 1] per coordinate, to be penalized by `gate_norm()` and cut by `prune`.
    task : 'classification' or 'regression'
        Targets are class numbers, or values.
    loss : 'residual' or 'cross-entropy'
        What w minimizes: the squared residual, of classes to the corners of a simplex, or
        cross-entropy, by Newton steps from the running solution.
    n_steps : 1 or 2
        Newton steps for each batch.
    mode : 'two-stage' or 'joint'
        Joint training has w among the parameters and solves for nothing.
    alpha : float
        Ridge, relative to the mean square of a column.
    decay : float
        How much of the running sums a new batch leaves.

    Examples
    --------
    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch._C.Generator object at ...>
    >>> encoder, head = nn.Linear(20, 8), IGLHead(8, 3)
    >>> x, y = torch.randn(64, 20), torch.randint(3, (64,))
    >>> loss = nn.functional.cross_entropy(head(encoder(x), y), y) + 1e-3 * head.gate_norm()
    >>> loss.backward()
    >>> head.eval()(encoder(x)).shape
    torch.Size([64, 3])

    After training: all rows at once, probabilities that are not too sure, fewer coordinates.

    >>> z = encoder(x).detach()
    >>> head.solve([(z, y)])
    >>> head.calibrate([(z, y)]) > 0, head.prune(0.0)  # all eight stay open
    (True, 8)
    >>> len(head.design(z).Phi), head.loss(z, y).shape
    (64, torch.Size([]))
    """

    w: Tensor
    open: Tensor
    unit: Tensor

    def __init__(
        self,
        n_dims: int,
        n_outputs: int,
        *,
        operator: Operator | str | None = None,
        atoms: Atoms | int = 128,
        gates: bool = True,
        task: str = "classification",
        loss: str = "residual",
        n_steps: int = 1,
        mode: str = "two-stage",
        alpha: float = 0.02,
        decay: float = 0.9,
    ):
        super().__init__()
        given = {
            "n_dims": n_dims, "n_outputs": n_outputs, "operator": operator, "atoms": atoms,
            "gates": gates, "task": task, "loss": loss, "n_steps": n_steps, "mode": mode,
            "alpha": alpha, "decay": decay,
        }  # fmt: skip
        refuse(OPTIONS, given, defaults_of(IGLHead), SimpleNamespace(**given))
        self.n_dims, self.n_outputs, self.task, self.mode = n_dims, n_outputs, task, mode
        self.minimizes, self.n_steps = loss, n_steps
        self.operator = several_lengths() if operator is None else named(operator)
        self.atoms: Atoms = (
            atoms if isinstance(atoms, Atoms) else self._placed(torch.randn(atoms, n_dims))
        )
        self.register_buffer("unit", self._unit())
        self.null = self.operator.null_space() or Polynomial(0)
        self.raw_gates = nn.Parameter(torch.full((n_dims,), 2.0 / PACE), requires_grad=gates)
        # log; logits = e^τ u. Those of cross-entropy have their scale.
        self.temperature = nn.Parameter(torch.tensor(math.log(5.0) if loss == "residual" else 0.0))
        self.temperature.requires_grad_(task == "classification" and loss == "residual")
        self.register_buffer("open", torch.ones(n_dims))
        with torch.no_grad():
            columns = self.design(torch.zeros(1, n_dims)).Phi.shape[1]
        self.running = RunningRidge(columns, n_outputs, float(alpha), float(decay))
        weights = torch.zeros(columns, n_outputs)
        if mode == "joint":
            self.w = nn.Parameter(weights)
        else:
            self.register_buffer("w", weights)

    def _placed(self, mu: Tensor) -> Atoms:
        """Sources to be learned from there (R, d): points, or Gaussians where those are singular."""
        points = Point(mu, learn=True)
        if self.operator.refuses(Gaussian) or _heights(self.operator, points)[0] == 1:
            return points
        return Gaussian(mu, WIDTH, learn=True)

    def _unit(self) -> Tensor:
        """What columns are multiplied by to be of order one, as the ridge takes them to be."""
        if self.atoms.n_dims != self.n_dims:
            raise ValueError(
                f"`atoms` live in {self.atoms.n_dims} dimensions, the codes in n_dims={self.n_dims}."
            )
        own, usual = _heights(self.operator, self.atoms)
        height = own if own == 1 else usual
        if not 1e-250 < height < 1e250:
            raise ValueError(
                f"responses of this operator in {self.n_dims} dimensions are of the order of {height:g}, "
                "too far from 1 to compute with. Take a kernel of height 1 (SquaredExponential, Matern, "
                "Cauchy), wider sources, or fewer dimensions."
            )
        return torch.tensor(1 / height, dtype=torch.float64)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "IGLHead":
        """Moved and cast as other modules are, but to float32 at least; float64 stays where it can."""

        def wide_enough(value: Tensor) -> Tensor:
            if not value.is_floating_point():
                return fn(value)
            goal = fn(value.new_empty(0, dtype=torch.float32))  # where to, and as what
            dtype = torch.promote_types(goal.dtype, torch.float32)
            if value.dtype == torch.float64:
                dtype = widest(goal.device)
            return value.to(goal.device, dtype)

        super()._apply(wide_enough, recurse)
        return self

    @property
    def roots(self) -> Tensor:
        """√g (d,), by which the columns see the codes."""
        if not self.raw_gates.requires_grad:
            return self.open
        return torch.sigmoid(PACE * self.raw_gates).sqrt() * self.open

    @property
    def gates(self) -> Tensor:
        """g (d,), exactly zero where pruned."""
        return self.roots.square()

    def gate_norm(self) -> Tensor:
        """Σ_j g_j, to add to the loss."""
        return self.gates.sum()

    @torch.no_grad()
    def prune(self, threshold: float = 0.15) -> int:
        """Close every gate below `threshold` times the largest, for good; how many remain open.

        Parameters
        ----------
        threshold : float
            Relative to the largest gate.

        Returns
        -------
        int
            Gates that remain open.
        """
        gates = self.gates
        self.open.copy_((gates >= threshold * gates.max()).to(self.open) * self.open)
        return int(self.open.sum())

    def design(self, z: Tensor) -> Design:
        """Responses and gated codes, penalized, and what is free; float32 at least.

        Parameters
        ----------
        z : Tensor of shape (n, d)
            Codes.

        Returns
        -------
        Design
            Columns (n, p), and which of them are penalized.
        """
        z = z.float() if z.dtype in (torch.float16, torch.bfloat16) else z
        root, unit = self.roots, float(self.unit)
        plain = 1 / PLAIN < unit < PLAIN
        xi = z if plain else z.to(widest(z.device))
        Phi = self.operator.response(xi, self.atoms, root.square())
        Phi = Phi if unit == 1 else (unit * Phi).to(z)
        y = z * root.to(z)
        null = self.null(y)
        penalized = [Phi] if self.null.degree > 0 else [Phi, y]  # which has them otherwise
        penalty = z.new_ones(sum(part.shape[1] for part in (*penalized, null)))
        penalty[len(penalty) - null.shape[1] :] = 0
        return Design(torch.cat([*penalized, null], 1), penalty)

    def forward(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        """Logits or values (…, c) of codes (…, d), such as sequences (n, t, d).

        Parameters
        ----------
        z : Tensor of shape (…, d)
            Codes.
        y : Tensor, optional
            In training, class numbers (…) or values (…, c): the solve is part of the step.

        Returns
        -------
        Tensor of shape (…, c)
        """
        u = self._values(z, y)
        return u * self.temperature.exp().to(u) if self.task == "classification" else u

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        """What w minimizes, per row: with it the step is variable projection.

        For the squared residual classes stand at the corners of a simplex, so that rows of a class are
        drawn together and classes apart, more than by cross-entropy.

        Parameters
        ----------
        z : Tensor of shape (…, d)
            Codes.
        y : Tensor
            Targets.

        Returns
        -------
        Tensor of shape ()
        """
        u = self._values(z, y).reshape(-1, self.n_outputs)
        if self.minimizes == "cross-entropy":
            return nn.functional.cross_entropy(u, y.reshape(-1).long())
        residual = (u - self._targets(y).to(u)).square().sum(1).mean()
        return (
            residual + 0 * self.temperature
        )  # a gradient of 0: `DistributedDataParallel` wants one

    @_disable_dynamo  # as torch.compiler.disable, but loads the compiler when it is first used
    def _values(self, z: Tensor, y: Tensor | None) -> Tensor:
        """u = Φ w (…, c)."""
        if z.ndim < 2 or z.shape[-1] != self.n_dims:
            raise ValueError(
                f"codes must have shape (n, {self.n_dims}) or (…, {self.n_dims}), got {tuple(z.shape)}."
            )
        with torch.autocast(z.device.type, enabled=False):
            design = self.design(z.reshape(-1, self.n_dims))
            w = self.w
            if self.mode == "two-stage" and self.training:
                if y is None:
                    raise ValueError(
                        "in training the head needs the targets: head(z, y). For predictions call eval()."
                    )
                w = self._solved(design, self._targets(y))
                self.w.copy_(w.detach())
            elif self.mode == "two-stage" and not bool(self.running.square > 0):
                raise RuntimeError(
                    "the head has seen no rows, so its weights are not known: train it with head(z, y), "
                    "or load a state that was trained, before calling eval()."
                )
            return (design.Phi @ w.to(design.Phi)).reshape(*z.shape[:-1], self.n_outputs)

    def _targets(self, y: Tensor) -> Tensor:
        """(n, c): values, probabilities for cross-entropy, or corners: 1 for the class, else −1/(c−1)."""
        wide, c = self.running.gram, self.n_outputs
        if self.task == "regression":
            return y.to(wide).reshape(-1, c)
        one_hot = nn.functional.one_hot(y.reshape(-1).long(), c).to(wide)
        return one_hot if self.minimizes == "cross-entropy" else (c * one_hot - 1) / max(c - 1, 1)

    def _solved(self, design: Design, Y: Tensor) -> Tensor:
        """w (p, c) on the running sums with this batch."""
        if self.minimizes == "residual":
            return self.running.solve(design, Y)
        w = self.w.to(Y).clone()
        for step in range(self.n_steps):
            last = step == self.n_steps - 1
            w = self.running.solve(design, *_newton(design.Phi.to(Y) @ w, Y), keep=last)
        return w

    @torch.no_grad()
    def solve(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """w on all rows at once, from (codes, targets) of the encoder as it is now.

        Parameters
        ----------
        batches : iterable of (z, y)
            All rows, in parts.
        """
        rows = ((self.design(z.reshape(-1, self.n_dims)), self._targets(y)) for z, y in batches)
        if self.minimizes == "residual":
            w = self.running.solve_all((design, Y, None) for design, Y in rows)
        else:
            designs, targets = zip(*rows, strict=True)
            Y = torch.cat(targets)
            design = Design(torch.cat([d.Phi for d in designs]).to(Y), designs[0].penalty.to(Y))
            w = Logistic(self.running.alpha).solve(design, Y).w
            self.running.solve_all([(design, *_newton(design.Phi @ w, Y))])
        self.w.copy_(w)

    @torch.no_grad()
    def calibrate(self, batches: Iterable[tuple[Tensor, Tensor]]) -> float:
        """The temperature that gives rows the encoder has not learned from the least log-loss; kept.

        In `forward`, probabilities are then as sure as they are right.

        Parameters
        ----------
        batches : iterable of (z, y)
            Rows, in parts.

        Returns
        -------
        float
            The factor on u.
        """
        if self.task != "classification":
            raise ValueError(
                "values have no temperature: `calibrate` is for task='classification'."
            )
        pairs = [
            (self._values(z, None).reshape(-1, self.n_outputs), y.reshape(-1)) for z, y in batches
        ]
        if not pairs:
            raise ValueError("`batches` held no rows.")
        u, y = (torch.cat(parts).cpu() for parts in zip(*pairs, strict=True))
        Y = nn.functional.one_hot(y.long(), self.n_outputs).double()
        T = temperature(u.double().numpy(), Y.numpy(), np.ones(len(Y)))
        self.temperature.fill_(-math.log(T))
        return 1 / T


def _heights(operator: Operator, atoms: Atoms) -> tuple[float, float]:
    """Of responses at the places of their sources (1 if nearly so), and a root mean square elsewhere."""
    with torch.no_grad():
        Phi = operator.response(atoms.mu.detach().double(), atoms)  # (r, r)
    own = Phi.diagonal().abs()
    rest = Phi - Phi.diagonal().diag()
    height = 1.0 if bool(((own - 1).abs() < 0.05).all()) else float(own.mean())
    pairs = max(len(own) * (len(own) - 1), 1)
    return height, math.sqrt(float(rest.square().sum()) / pairs) or height


def _newton(u: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
    """R (n, c) and s (n,) of `running.py` for cross-entropy at logits u (n, c).

    No eigenvalue of its curvature diag P − PPᵀ is larger than s (Gershgorin): steps do not overshoot.
    """
    P = u.softmax(1)
    s = 2 * (P * (1 - P)).amax(1)
    return s[:, None] * u + Y - P, s

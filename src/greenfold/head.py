"""A head for networks of your own: a Green's response of the codes, solved for in each step."""

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from greenfold.options import (
    Need,
    Option,
    Table,
    defaults_of,
    flag,
    integer,
    number,
    one_of,
    refuse,
)
from greenfold.solve.factor import jittered
from greenfold.solve.implicit import Implicit


def _are_scales(value: Any) -> bool:
    one = number(zero=False)
    return isinstance(value, Sequence) and len(value) > 0 and all(one.takes(s) for s in value)


SOLVED = Need(
    lambda s: s.mode == "two-stage", "mode='two-stage': joint training solves for nothing"
)
OPTIONS: Table = {
    "n_dims": integer(1),
    "n_outputs": integer(1),
    "n_atoms": integer(1),
    "scales": Option(_are_scales, "positive numbers, at least one"),
    "reference": number(zero=False),
    "gates": flag(),
    "task": one_of("classification", "regression"),
    "mode": one_of("two-stage", "joint"),
    "alpha": number(zero=False),
    "decay": number(below=1.0).needing(SOLVED),
}
PACE = 10.0  # a gate must be able to close within an epoch at the learning rate of the network


class IGLHead(nn.Module):
    """Logits or values from a batch of codes, u = Φ(z) w, with w solved for as the codes are learned.

    The columns are responses at several length scales to R anchors, the codes, and a constant::

        Φ_r(z) = Σ_k softmax(γ)_k exp(−Σ_j g_j (z_j − μ_rj)² / (2 c ℓ_k²))

    Exponents are summed before anything is exponentiated, and c stands for the number of coordinates the
    task may need, so nothing underflows with hundreds of them. In training, w minimizes the squared
    residual over running sums of the past batches and the present one, through which gradients flow; in
    evaluation the last w is used, or the one `solve` finds on all rows.

    Parameters
    ----------
    n_dims : int
        Size of a code.
    n_outputs : int
        Classes, or targets to regress on.
    n_atoms : int
        R.
    scales : sequence of float
        The ℓ_k.
    reference : float
        c.
    gates : bool
        Learn g ∈ [0, 1] per coordinate, to be penalized by `gate_norm()` and cut by `prune`.
    task : 'classification' or 'regression'
        Targets are class numbers (n,), or values (n, c) or (n,).
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
    """

    w: Tensor
    gram: Tensor
    cross: Tensor
    share: Tensor
    open: Tensor
    log_scales: Tensor

    def __init__(
        self,
        n_dims: int,
        n_outputs: int,
        *,
        n_atoms: int = 128,
        scales: Sequence[float] = (0.25, 0.5, 1.0, 2.0),
        reference: float = 12.0,
        gates: bool = True,
        task: str = "classification",
        mode: str = "two-stage",
        alpha: float = 0.02,
        decay: float = 0.9,
    ):
        super().__init__()
        given = {
            "n_dims": n_dims, "n_outputs": n_outputs, "n_atoms": n_atoms, "scales": scales,
            "reference": reference, "gates": gates, "task": task, "mode": mode, "alpha": alpha,
            "decay": decay,
        }  # fmt: skip
        refuse(OPTIONS, given, defaults_of(IGLHead), SimpleNamespace(**given))
        self.n_dims, self.n_outputs, self.task, self.mode = n_dims, n_outputs, task, mode
        self.reference, self.alpha, self.decay = float(reference), float(alpha), float(decay)
        self.mu = nn.Parameter(torch.randn(n_atoms, n_dims))
        self.gamma = nn.Parameter(torch.zeros(len(scales)))
        self.raw_gates = nn.Parameter(torch.full((n_dims,), 2.0 / PACE), requires_grad=gates)
        self.temperature = nn.Parameter(torch.tensor(math.log(5.0)))  # log; logits = e^τ u
        self.temperature.requires_grad_(task == "classification")
        columns = n_atoms + n_dims + 1
        self.register_buffer("log_scales", torch.tensor(scales).log())
        self.register_buffer("open", torch.ones(n_dims))
        self.register_buffer("gram", torch.zeros(columns, columns, dtype=torch.float64))
        self.register_buffer("cross", torch.zeros(columns, n_outputs, dtype=torch.float64))
        # of the sums that is filled
        self.register_buffer("share", torch.zeros((), dtype=torch.float64))
        weights = torch.zeros(columns, n_outputs)
        if mode == "joint":
            self.w = nn.Parameter(weights)
        else:
            self.register_buffer("w", weights)

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

    def columns(self, z: Tensor) -> Tensor:
        """Φ, the gated codes, and 1: (n, R + d + 1), in float32 at least.

        Parameters
        ----------
        z : Tensor of shape (n, d)
            Codes.

        Returns
        -------
        Tensor of shape (n, p)
        """
        z = z.float() if z.dtype in (torch.float16, torch.bfloat16) else z
        root = self.roots.to(z)
        y, m = z * root, self.mu.to(z) * root
        d2 = (y.square().sum(1)[:, None] + m.square().sum(1) - 2 * y @ m.T).clamp_min(0)  # (n, R)
        rates = (-2 * self.log_scales).exp().to(z) / (2 * self.reference)  # (k,)
        shares = torch.softmax(self.gamma, 0).to(z)
        Phi = sum(share * torch.exp(-rate * d2) for share, rate in zip(shares, rates, strict=True))
        return torch.cat([Phi, y, torch.ones_like(y[:, :1])], 1)

    def forward(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        """Logits or values (n, c). In training give the targets: the solve is part of the step.

        Parameters
        ----------
        z : Tensor of shape (n, d)
            Codes.
        y : Tensor, optional
            Targets, in training.

        Returns
        -------
        Tensor of shape (n, c)
        """
        u = self._values(z, y)
        return u * self.temperature.exp().to(u) if self.task == "classification" else u

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        """Squared residual per row, which w minimizes: with it the step is variable projection.

        Classes stand at the corners of a simplex, so this draws rows of a class together and classes
        apart, more than cross-entropy of the logits does.

        Parameters
        ----------
        z : Tensor of shape (n, d)
            Codes.
        y : Tensor
            Targets.

        Returns
        -------
        Tensor of shape ()
        """
        u = self._values(z, y)
        return (u - self._targets(y).to(u)).square().sum(1).mean()

    def _values(self, z: Tensor, y: Tensor | None) -> Tensor:
        """u = Φ w (n, c)."""
        if z.ndim != 2 or z.shape[1] != self.n_dims:
            raise ValueError(f"codes must have shape (n, {self.n_dims}), got {tuple(z.shape)}.")
        with torch.autocast(z.device.type, enabled=False):
            columns = self.columns(z)
            w = self.w
            if self.training and self.mode == "two-stage":
                if y is None:
                    raise ValueError(
                        "in training the head needs the targets: head(z, y). For predictions call eval()."
                    )
                w = self._solve(columns, self._targets(y)).to(columns)
                self.w.copy_(w.detach())
            elif self.mode == "two-stage" and not self._has_rows():
                raise RuntimeError(
                    "the head has seen no rows, so its weights are not known: train it with head(z, y), "
                    "or load a state that was trained, before calling eval()."
                )
            return columns @ w.to(columns)

    def _has_rows(self) -> bool:
        """Graphs that are traced have no branch for it."""
        return torch.compiler.is_compiling() or bool(self.gram.any())

    def _targets(self, y: Tensor) -> Tensor:
        """(n, c) in float64: values, or 1 for the class and −1/(c−1) for the others."""
        if self.task == "regression":
            return y.double().reshape(len(y), self.n_outputs)
        one_hot = nn.functional.one_hot(y.long(), self.n_outputs).double()
        c = self.n_outputs
        return (c * one_hot - 1) / max(c - 1, 1)

    @_disable_dynamo  # as torch.compiler.disable, but loads the compiler when it is first used
    def _solve(self, columns: Tensor, Y: Tensor) -> Tensor:
        """w (p, c) in float64 for the sums with this batch in them, which are kept.

        Gradients go to the batch alone, through the equation that w solves rather than through the
        factor: that takes c columns instead of p.
        """
        A, keep = columns.double(), self.decay
        with torch.no_grad():
            self.gram.mul_(keep).addmm_(A.T, A, alpha=(1 - keep) / len(A))
            self.cross.mul_(keep).addmm_(A.T, Y, alpha=(1 - keep) / len(A))
            self.share.copy_(1 - keep * (1 - self.share))
            L, penalty = self._factor(self.gram / self.share)
            w = torch.cholesky_solve(self.cross / self.share, L)
        if not columns.requires_grad:
            return w
        # This batch's part of the equation, in the precision of the codes: only its gradient is used.
        v, flat = w.to(columns), columns.reshape(-1)
        n = len(A)
        mean = (flat.dot(flat) - n) / (A.numel() - n)  # square of a column but the constant
        ridge = self.alpha * mean * penalty[:, None].to(v) * v
        part = (1 - keep) / self.share  # new, as `share` changes before the gradient is taken
        F = part * (columns.T @ (columns @ v - Y.to(v)) / n + ridge).double()
        return Implicit.apply(w, F, lambda w_bar: torch.cholesky_solve(w_bar, L))

    def _factor(self, gram: Tensor) -> tuple[Tensor, Tensor]:
        """L (p, p) of the Gram matrix with a ridge on all columns but the constant, and their shares."""
        penalty = torch.ones_like(gram.diagonal())
        penalty[-1] = 1e-9
        A = gram.clone()
        A.diagonal().add_(self.alpha * gram.diagonal()[:-1].mean() * penalty)
        L, failed = torch.linalg.cholesky_ex(A)
        return jittered(A, "the Gram matrix of the codes") if failed else L, penalty

    @torch.no_grad()
    def solve(self, batches: Sequence[tuple[Tensor, Tensor]]) -> None:
        """w on all rows at once, from (codes, targets) of the encoder as it is now.

        Parameters
        ----------
        batches : iterable of (z, y)
            All rows, in parts.
        """
        gram, cross, n = torch.zeros_like(self.gram), torch.zeros_like(self.cross), 0
        for z, y in batches:
            A = self.columns(z).double()
            gram += A.T @ A
            cross += A.T @ self._targets(y)
            n += len(A)
        if not n:
            raise ValueError("`batches` held no rows.")
        self.gram.copy_(gram / n)
        self.cross.copy_(cross / n)
        self.share.fill_(1.0)
        self.w.copy_(torch.cholesky_solve(self.cross, self._factor(self.gram)[0]))

"""Operators that are known by their Green's function alone, and take point sources only."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from greenfold.green.atoms import Atoms, Point
from greenfold.green.base import Operator, Positive, opened, per_axis, positive
from greenfold.green.forms import Axes, Form, Gaussians, Lines, Radial
from greenfold.green.quick import BITS, Blocks, distances, interactions

TILE = 2**16  # entries of a row block: 512 kB in float64, so that a few of them stay in cache


class Exponential(Operator):
    """(κ² − Δ)^{(d+1)/2}, scaled: its Green's function is e^{−κr}, the Matérn kernel of ν = ½.

    In closed form, with the cusp at distance 0 that a sum of Gaussians smooths. A gate g_j multiplies the
    square of the distance along its axis.

    Parameters
    ----------
    kappa : float or Tensor of shape (d,)
        κ, one for all axes or one for each.
    learn : bool
        Learn it.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Exponential, Point
    >>> origin = Point(torch.zeros(1, 1, dtype=torch.float64))
    >>> round(Exponential(2.0).response(torch.tensor([[0.5]], dtype=torch.float64), origin).item(), 4)
    0.3679
    """

    accepts = (Point,)
    kappa = Positive()

    def __init__(self, kappa: Tensor | float = 1.0, *, learn: bool = False):
        super().__init__()
        positive(self, "kappa", kappa, learn)

    def _response(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor:
        scale = per_axis(self.kappa, atoms.n_dims, "kappa").square()
        scale = scale if gate is None else scale * gate  # not √gate, which has no slope at 0
        center = atoms.mu.detach().double().mean(0)
        a, b = xi.double() - center, atoms.mu.double() - center
        squares = a.square() @ scale[:, None] + b.square() @ scale  # (n, r)
        r2 = torch.addmm(squares, a * scale, b.T, alpha=-2)
        # The rounding error of a distance of 0 is taken for 0: its √ would be 1e-8. There is no slope.
        r2 = r2.masked_fill(r2 <= 1e-14 * squares, 1e-36)
        return torch.exp(-r2.sqrt()).to(xi.dtype)

    def _blocks(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Blocks:
        scale = (
            BITS * per_axis(self.kappa, atoms.n_dims, "kappa") * opened(gate, atoms.n_dims).sqrt()
        )
        return distances(xi * scale, atoms.mu * scale, xi.dtype, fade=True)

    def forms(self, atoms: Atoms, gate: Tensor | None = None, terms: bool = False) -> list[Form]:
        scale = self.kappa * opened(gate, atoms.n_dims).sqrt()
        if not terms:
            return [Radial(atoms.mu, scale)]
        # e^{−r} = π^{−½} ∫ t^{−½} e^{−t − r²/4t} dt with t = e^v: a step of 0.7 leaves 4e-6, and 5e-5 at
        # r = 0, which lies beyond the last term
        v = torch.arange(-20, 3.8, 0.7, dtype=torch.float64)  # (k,)
        log_gamma = v / 2 - v.exp() + math.log(0.7 / math.sqrt(math.pi))
        A = (torch.exp(-v)[:, None, None] / 2 * scale**2).expand(-1, *atoms.mu.shape)  # (k, r, d)
        mu = atoms.mu.double()
        return [Gaussians(log_gamma, A, A * mu, -A * mu**2 / 2)]

    def described(self, atoms: Atoms, terms: bool = False) -> list[dict[str, Any]]:
        return self._part("exponential", "kappa", atoms)


class Affine(Operator):
    """Functions a + b·ξ: the Green's function is a₀² + Σ_j s_j² ξ_j ζ_j.

    Sources of any place make a function of degree one, and its energy is (a/a₀)² + Σ_j (b_j/s_j)²: the
    degree-one null space with a penalty of its own. Beside another operator in a `Superposition` it
    carries what is linear, so that a linear task is a linear model. A gate multiplies its axis.

    Parameters
    ----------
    slope : float or Tensor of shape (d,)
        s_j, how steep the function is expected to be.
    level : float
        a₀ ≥ 0. The constant is 0 with a level of 0, and beside a null space that has it.
    learn : bool
        Whether s is learned.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Affine, Point
    >>> one = Point(torch.ones(1, 1, dtype=torch.float64))
    >>> Affine(slope=2.0).response(torch.tensor([[3.0]], dtype=torch.float64), one).item()  # 1 + 4·3
    13.0
    """

    accepts = (Point,)
    slope = Positive()
    level: Tensor

    def __init__(
        self, slope: Tensor | float = 1.0, *, level: Tensor | float = 1.0, learn: bool = False
    ):
        super().__init__()
        positive(self, "slope", slope, learn)
        level = torch.as_tensor(level, dtype=torch.float64)
        if level.ndim or not bool(level.isfinite() & (level >= 0)):
            raise ValueError(
                f"`level` must be a number that is not negative, got {level.tolist()}."
            )
        self.register_buffer("level", level)

    def _response(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor:
        square = per_axis(self.slope, atoms.n_dims, "slope").square()
        square = square if gate is None else square * gate
        a, b = (xi.double() * square).to(xi.dtype), atoms.mu.to(xi.dtype)
        return self.level.to(xi.dtype) ** 2 + a @ b.T

    def _summed(self, xi: Tensor, atoms: Atoms, gate: Tensor | None, w: Tensor) -> Tensor:
        square = per_axis(self.slope, atoms.n_dims, "slope").square()
        square = square if gate is None else square * gate
        slope = square[:, None] * (atoms.mu.double().T @ w.double())  # (d, c)
        return xi.double() @ slope + self.level**2 * w.double().sum(0)

    def forms(self, atoms: Atoms, gate: Tensor | None = None, terms: bool = False) -> list[Form]:
        return [Lines(atoms.mu, self.level**2, self.slope**2 * opened(gate, atoms.n_dims))]

    def described(self, atoms: Atoms, terms: bool = False) -> list[dict[str, Any]]:
        return self._part("affine", "slope", atoms, level=float(self.level))

    def rise(self, xi: Tensor, gate: Tensor | None = None, sources: Atoms | None = None) -> Tensor:
        square = per_axis(self.slope, xi.shape[1], "slope").square()
        square = square if gate is None else square * gate
        return (xi.double().square() @ square).to(xi.dtype)


class Anova(Operator):
    """Constants, main effects and interactions: the Green's function is Π_j (1 − p_j + p_j k(κ_j δ_j)).

    Multiplied out it is a sum over all sets of axes, with a product of one-dimensional Green's functions
    on each set: the tensor-product analysis of variance [1]_. Small shares p_j favor few axes at a time.
    k is 1 at distance 0, and e^{−t} of κ² − ∂² for `order` 1 or (1 + t) e^{−t} of its square for `order`
    2. All p_j = 1 and order 1 is `ProductScreened`, up to a factor. A gate multiplies its share.

    Parameters
    ----------
    share : float or Tensor of shape (d,)
        p_j, between 0 and 1.
    kappa : float or Tensor of shape (d,)
    order : 1 or 2
    learn : bool
        Whether p and κ are learned.

    References
    ----------
    .. [1] G. Wahba, Spline Models for Observational Data, SIAM (1990), chapter 10.

    Examples
    --------
    >>> import torch
    >>> from greenfold.green import Anova, Point
    >>> origin = Point(torch.zeros(1, 2, dtype=torch.float64))
    >>> round(Anova(share=0.5).response(torch.zeros(1, 2, dtype=torch.float64), origin).item(), 4)
    1.0
    """

    accepts = (Point,)
    kappa = Positive()
    logit_share: Tensor

    def __init__(
        self,
        share: Tensor | float = 0.5,
        kappa: Tensor | float = 1.0,
        *,
        order: int = 1,
        learn: bool = False,
    ):
        super().__init__()
        positive(self, "kappa", kappa, learn)
        share = torch.as_tensor(share, dtype=torch.float64)
        if share.ndim > 1 or not bool(((share > 0) & (share < 1)).all()):
            raise ValueError(
                f"`share` must lie between 0 and 1, a number or one per axis, got {share.tolist()}."
            )
        if order not in (1, 2):
            raise ValueError(f"`order` must be 1 or 2, got {order!r}.")
        self.logit_share = nn.Parameter(share.logit(), requires_grad=learn)
        self.order = order

    @property
    def share(self) -> Tensor:
        return self.logit_share.sigmoid()

    def _response(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Tensor:
        kappa = per_axis(self.kappa, atoms.n_dims, "kappa").to(xi.dtype)
        share = per_axis(self.share, atoms.n_dims, "share")
        share = (share if gate is None else share * gate).to(xi.dtype)
        mu = atoms.mu.to(xi.dtype)
        return _Product.apply(xi * kappa, mu * kappa, share, self.order)

    def _blocks(self, xi: Tensor, atoms: Atoms, gate: Tensor | None) -> Blocks:
        kappa = per_axis(self.kappa, atoms.n_dims, "kappa")
        share = per_axis(self.share, atoms.n_dims, "share") * opened(gate, atoms.n_dims)
        return interactions(xi * kappa, atoms.mu * kappa, xi.dtype, share, self.order)

    @property
    def n_shares(self) -> int:  # type: ignore[override]
        return self.logit_share.numel()

    @property
    def label(self) -> str:
        return f"Anova kernel of order {self.order}"

    def forms(self, atoms: Atoms, gate: Tensor | None = None, terms: bool = False) -> list[Form]:
        kappa, g = per_axis(self.kappa, atoms.n_dims, "kappa"), opened(gate, atoms.n_dims)
        return [Axes(atoms.mu, kappa, self.share * g, self.order)]

    def described(self, atoms: Atoms, terms: bool = False) -> list[dict[str, Any]]:
        share = self.share.expand(atoms.n_dims).tolist()
        return self._part("anova", "kappa", atoms, share=share, order=self.order)


def _axis(z: Tensor, mu: Tensor, order: int) -> tuple[Tensor, Tensor, Tensor]:
    """δ, e^{−|δ|} and k of one axis, each (n, r)."""
    delta = z[:, None] - mu
    size = delta.abs()
    e = torch.exp(-size)
    return delta, e, e if order == 1 else torch.addcmul(e, size, e)


def _product(z: Tensor, mu: Tensor, share: Tensor, order: int) -> Tensor:
    Phi = torch.ones(1, 1, dtype=z.dtype)
    for j in range(z.shape[1]):
        k = _axis(z[:, j], mu[:, j], order)[2]
        Phi = Phi * (1 - share[j] + share[j] * k)
    return Phi.expand(len(z), len(mu))


class _Product(torch.autograd.Function):
    """(z (n, d), μ (r, d), p (d,)) → Π_j f_j (n, r) with f_j = 1 − p_j + p_j k(δ_j), in blocks of rows.

    With B = Ḡ ∘ Φ the gradients are p̄_j = ⟨B, (k − 1)/f_j⟩ and, along z_j and −μ_j, p_j B ∘ k'(δ_j)/f_j.
    Between the same points, z = μ, only the pairs above the diagonal are looked at: Φ is symmetric and k'
    is odd.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, mu: Tensor, share: Tensor, order: int) -> Tensor:
        ctx.order, ctx.same = order, z.shape == mu.shape and torch.equal(z, mu)
        rows = max(1, TILE // max(len(mu), 1))
        Phi = z.new_ones(len(z), len(mu))
        for i in range(0, len(z), rows):
            first = i if ctx.same else 0
            Phi[i : i + rows, first:] = _product(z[i : i + rows], mu[first:], share, order)
        if ctx.same:
            Phi = Phi.triu_().add_(Phi.triu(1).T)
        ctx.save_for_backward(z, mu, share, Phi)
        return Phi

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        (G,) = grad
        z, mu, share, Phi = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives are left to autograd
            inputs = (z, mu, share)
            wanted = [v for v, need in zip(inputs, ctx.needs_input_grad) if need]
            value = _product(*inputs, ctx.order)
            found = iter(torch.autograd.grad(value, wanted, G, create_graph=True))
            return (*(next(found) if need else None for need in ctx.needs_input_grad[:3]), None)
        z_bar, mu_bar, share_bar = (torch.zeros_like(v) for v in (z, mu, share))
        # pairs (i, j), and for the same points (j, i) beside them
        sides = [G * Phi] if not ctx.same else [G.triu(1) * Phi, G.tril(-1).T * Phi]
        rows, tiny = max(1, TILE // max(len(mu), 1)), torch.finfo(z.dtype).tiny
        for i in range(0, len(z), rows):
            first = i if ctx.same else 0
            block, rest = slice(i, i + rows), slice(first, None)
            parts = [B[block, rest].contiguous() for B in sides]
            total = (parts[0] if len(parts) == 1 else parts[0] + parts[1]).reshape(-1)
            for j in range(z.shape[1]):
                delta, e, k = _axis(z[block, j], mu[rest, j], ctx.order)
                inverse = torch.add(1 - share[j] + tiny, k, alpha=float(share[j])).reciprocal_()
                # k' is −e^{−|δ|} sign δ for order 1, −e^{−|δ|} δ for order 2
                slope = (delta.sign_() if ctx.order == 1 else delta).mul_(e).mul_(inverse)
                share_bar[j] += torch.dot(total, inverse.mul_(k.sub_(1)).reshape(-1))
                for B, own, other in zip(parts, (z_bar, mu_bar), (mu_bar, z_bar)):
                    T = torch.mul(B, slope, out=e)
                    if own is z_bar or ctx.needs_input_grad[1]:
                        own[block, j] -= share[j] * T.sum(1)
                    if other is z_bar or ctx.needs_input_grad[1]:
                        other[rest, j] += share[j] * T.sum(0)
        return z_bar, mu_bar, share_bar, None

"""What each coordinate of a chart explains: what rows left out lose when its gate closes."""

import numpy as np
import torch
from torch import Tensor, nn

from greenfold.chart import Linear
from greenfold.design import Design
from greenfold.green.atoms import Atoms, Point
from greenfold.learn.units import Array, evenly
from greenfold.model import IGL, Tied
from greenfold.solve.criteria import loo
from greenfold.solve.factor import SVD
from greenfold.solve.projected import Projected, project
from greenfold.solve.strength import GRID, Spectrum

COST = 6e7  # rows cubed times coordinates
ROWS = (60, 300)  # at least and at most
STRENGTHS = [alpha for alpha in GRID[::2] if alpha >= 1e-7]  # below, 1 − h is rounding
LOOKED_AT = 8  # rows that tell whether coordinates can change places


class Asked:
    """Some rows, and what a source at them predicts of each when it is left out."""

    def __init__(self, model: IGL, x: Tensor, Y: Tensor, weight: Tensor | None):
        d = len(model.mean)
        keep = torch.from_numpy(evenly(len(x), int(np.clip((COST / d) ** (1 / 3), *ROWS))))
        self.model, self.x, self.Y, self.d = model, x[keep], Y[keep], d
        w = torch.ones(len(keep), dtype=torch.float64) if weight is None else weight[keep]
        self.weight, self.xi = w, model.chart(self.x)
        rest = self.Y - w @ self.Y / w.sum()
        self.total = float((w[:, None] * rest.square()).sum()) / Y.shape[1]

    @property
    def atoms(self) -> Atoms:
        sources = self.model.sources
        return sources.at(self.xi) if isinstance(sources, Tied) else sources

    def solved(self, gate: Tensor) -> tuple[float, Projected, SVD]:
        """Mean squared error of rows left out, at the penalty that makes it least; the solve."""
        model = self.model
        if isinstance(model.sources, Tied) and model.energy:
            # with a source at every row Φ F⁻ᵀ is F
            null = model.null()(self.xi, gate)
            design = Design.stack(model.factor(self.atoms, gate), null)
        else:
            design = model.design(self.x, gate)
        problem = project(design, self.Y, self.weight)
        spectrum, scale = Spectrum.of(problem), float(problem.scale()) or 1.0
        errors = [float(loo(spectrum.at(scale * alpha))) for alpha in STRENGTHS]
        least = int(np.argmin(errors))
        return errors[least], problem, spectrum.factor._replace(alpha=scale * STRENGTHS[least])

    def r2(self, gate: Tensor) -> float:
        error, problem, _ = self.solved(gate)
        return 1 - problem.n * error / self.total

    def slopes(self) -> Tensor:
        """∂u/∂ξ (n·c, d) of the source with all gates as they are, tied and in the energy norm."""
        gate, r = self.model.gates(), len(self.x)
        _, problem, factor = self.solved(gate)
        w = problem.assemble(factor.weights(problem.Y))[:r]
        v = torch.linalg.solve_triangular(self.model.factor(self.atoms, gate).mT, w, upper=True)
        with torch.enable_grad():
            xi = self.xi.detach().clone().requires_grad_()
            u = self.model.operator.response(xi, self.atoms, gate) @ v
            found = [torch.autograd.grad(each.sum(), xi, retain_graph=True)[0] for each in u.T]
        return torch.cat(found)


@torch.no_grad()
def explained(model: IGL, x: Tensor, Y: Tensor, weight: Tensor | None) -> Array:
    """Drop (d,) of the left-out R² when each gate closes and the source is solved for again.

    Every row is left out of the source in turn, at the penalty that suits this best. Of many rows some
    are asked, with sources at these only. For several outputs R² is that of all together.
    """
    asked, gate = Asked(model, x, Y, weight), model.gates()
    if asked.total <= 0:
        return np.zeros(len(gate))
    whole = asked.r2(gate)
    shut = [gate * (torch.arange(len(gate)) != k) for k in range(len(gate))]
    return np.array([whole - asked.r2(each) for each in shut])


@torch.no_grad()
def settled(model: IGL, x: Tensor, Y: Tensor, weight: Tensor | None) -> Array:
    """What coordinates explain (d,), with those of a linear chart turned, put in order and given a sign.

    An operator that does not tell directions apart leaves them open: they become those along which u
    varies most. The coordinate that explains most comes first, and each rises with the output it goes
    along with most. Only what the operator does not tell apart moves, so that u stays as it is. To be
    called before a source is solved for.
    """
    linear = model.encoder[-1] if isinstance(model.encoder, nn.Sequential) else model.encoder
    asked = Asked(model, x, Y, weight)
    if not movable(model, linear) or asked.total <= 0:
        return explained(model, x, Y, weight)
    assert isinstance(linear, Linear)
    groups = alike(model, asked.xi)
    turn = torch.eye(asked.d, dtype=torch.float64)
    for group in groups:
        if len(group) > 1 and turns(model, asked.xi, group):
            slopes = asked.slopes()[:, group]
            turn[np.ix_(group, group)] = torch.linalg.eigh(slopes.mT @ slopes)[1].flip(1).mT
    linear.weight.copy_(turn @ linear.weight)
    found, xi = explained(model, x, Y, weight), model.chart(asked.x)
    order = torch.arange(asked.d)
    for group in groups:
        order[group] = torch.tensor(sorted(group, key=lambda k: -found[k]))
    sign = torch.ones(asked.d, dtype=torch.float64)
    for k in range(asked.d):
        turned = torch.ones_like(sign)
        turned[k] = -1
        if falls(xi[:, k], asked.Y) and same_response(model, xi, xi * turned):
            sign[k] = -1
    linear.weight.copy_((sign[:, None] * linear.weight)[order])
    return np.asarray(found[order.numpy()])


def movable(model: IGL, linear: nn.Module) -> bool:
    """Can coordinates move? Not where each is a column of its own, which says what it is."""
    if not isinstance(linear, Linear) or not isinstance(model.sources, Tied):
        return False
    own = bool((linear.weight != 0).sum(1).le(1).all())
    return not own and model.energy and not model.standardize and model.n_null() <= 1


def alike(model: IGL, xi: Tensor) -> list[list[int]]:
    """Coordinates that can change places, together."""
    groups: list[list[int]] = []
    for k in range(xi.shape[1]):
        for group in groups:
            swapped = torch.arange(xi.shape[1])
            swapped[k], swapped[group[0]] = group[0], k
            if same_response(model, xi, xi[:, swapped]):
                group.append(k)
                break
        else:
            groups.append([k])
    return groups


def turns(model: IGL, xi: Tensor, group: list[int]) -> bool:
    """Can the first two of a group be turned? Then all can, as they are alike."""
    i, j = group[:2]
    moved = xi.clone()
    moved[:, i], moved[:, j] = 0.8 * xi[:, i] - 0.6 * xi[:, j], 0.6 * xi[:, i] + 0.8 * xi[:, j]
    return same_response(model, xi, moved)


@torch.no_grad()
def same_response(model: IGL, xi: Tensor, moved: Tensor) -> bool:
    """Is the response between some of the rows what it was before their coordinates (n, d) moved?"""
    rows, gate = evenly(len(xi), LOOKED_AT), model.gates()
    one, other = (model.operator.response(z[rows], Point(z[rows]), gate) for z in (xi, moved))
    return torch.allclose(one, other, rtol=1e-9, atol=1e-12 * float(one.abs().max()))


def falls(xi: Tensor, Y: Tensor) -> bool:
    """Does the output (n, c) that a coordinate (n,) goes along with most fall with it?"""
    Y = Y - Y.mean(0)
    r = (xi - xi.mean()) @ Y / Y.norm(dim=0).clamp_min(1e-300)
    most = torch.nonzero(r.abs() >= (1 - 1e-9) * r.abs().max())[-1]  # of two classes the second
    return bool(r[most] < 0)

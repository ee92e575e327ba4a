"""What readings make of sources, and how that changes with places and physical numbers.

Everything is a product over axes inside a sum over times, so that a derivative replaces one factor::

    Φ_nr = Σ_k γ_k e^{−a_kκ²} Π_j F_j(reading n, time k, source r)
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from greenfold.green import Gaussian, Interval, Point, Transport
from greenfold.green.atoms import Atoms
from greenfold.green.base import per_axis
from greenfold.green.drift import along, mean_along
from greenfold.sources.readings import Readings

BLOCK = 2**21  # entries of a factor
STEP = (
    1e-6  # of differences of single factors, in their own scale: slopes are good to 1e-5 or better
)


class Responses(NamedTuple):
    """Φ (n, r), and its derivatives as far as they were asked for."""

    Phi: Tensor
    mu: Tensor | None  # (n, r, d)
    kappa: Tensor | None  # (n, r)
    wind: Tensor | None  # (n, r, d)
    diffusivity: Tensor | None  # (n, r, d)


@torch.no_grad()
def columns(operator: Transport, readings: Readings, atoms: Atoms) -> Tensor:
    """Φ (n, r)."""
    if readings.places and operator.release != "switched_on":
        return operator.response(torch.from_numpy(readings.middle), atoms)
    return responses(operator, readings, atoms).Phi


@torch.no_grad()
def responses(
    operator: Transport, readings: Readings, atoms: Atoms, wanted: tuple[str, ...] = ()
) -> Responses:
    """Φ with derivatives by what is `wanted` of 'mu', 'kappa', 'wind' and 'diffusivity'.

    Those of κ, v and D leave the times of the sum where they are: the integral does not depend on them.
    """
    axes = operator.rotation
    if axes is not None and readings.half.any():
        raise ValueError("where D is a matrix, boxes turn: read values and fluxes at places only.")
    turned, parts = _turned(readings, axes)
    atoms = operator.turned(atoms)
    rows = max(1, BLOCK // max(len(turned) * 96, 1))
    found = [
        _block(operator, turned, atoms, slice(i, i + rows), wanted)
        for i in range(0, len(atoms.mu), rows)
    ]
    Phi, *rest = (None if v[0] is None else torch.cat(v, 1) for v in zip(*found))
    if parts is not None:  # a flux along x is made of those along the axes of D
        Phi, *rest = (
            None if v is None else torch.einsum("mn,n...->m...", parts, v) for v in (Phi, *rest)
        )
    if axes is not None:
        rest = [v if v is None or v.ndim == 2 else v @ axes.T for v in rest[:3]] + rest[3:]
    assert Phi is not None
    return Responses(Phi, *rest)


def _turned(readings: Readings, axes: Tensor | None) -> tuple[Readings, Tensor | None]:
    """Readings along the axes of D, and how those asked for are sums of them."""
    if axes is None:
        return readings, None
    Q = axes.numpy()
    x, d = readings.middle @ Q, len(Q)
    rows = [(i, j) for i in range(len(x)) for j in (range(d) if readings.axis[i] >= 0 else [-1])]
    index, axis = (np.array(v) for v in zip(*rows))
    parts = torch.zeros(len(x), len(rows), dtype=torch.float64)
    for column, (i, j) in enumerate(rows):
        parts[i, column] = 1.0 if j < 0 else float(Q[readings.axis[i], j])
    return Readings(x[index], readings.half[index], axis), parts


def _block(
    operator: Transport, readings: Readings, atoms: Atoms, some: slice, wanted: tuple[str, ...]
) -> tuple[Tensor | None, ...]:
    d = atoms.n_dims
    a, log_gamma = operator.times(atoms, None)
    gamma, sides = log_gamma.exp(), operator.sides(d)
    D, v = per_axis(operator.diffusivity, d, "diffusivity"), operator.velocity(d)
    # steps that are small beside what the factors change on, and large beside rounding
    width = float(atoms.sigma.min()) / (8 if isinstance(atoms, Point) else 1)
    steps = {
        "mu": torch.full((d,), STEP * (10 if isinstance(atoms, Point) else 1) * width),
        "wind": STEP * (v.abs() + (D * operator.gap(d, None)).sqrt()),
        "diffusivity": STEP * D,
    }
    factors: list[Tensor] = []
    slopes: dict[str, list[Tensor]] = {name: [] for name in steps}
    for j in range(d):
        mu, *rest = (value[some] for value in atoms.parameters_of(j))

        def factor(*at: Tensor, j: int = j, rest: list[Tensor] = rest) -> Tensor:
            mu, v, D = at
            return _factor(sides[j], atoms.name, readings, j, width, a[:, None], D, v, mu, *rest)

        at = (mu, v[j], D[j])
        factors.append(factor(*at))
        for i, name in enumerate(steps):
            if name in wanted:
                h = steps[name][j]
                moved = (value + h if i == m else value for m, value in enumerate(at))
                slopes[name].append((factor(*moved) - factors[j]) / h)
    product = _product(factors)
    others = [_product([f for i, f in enumerate(factors) if i != j]) for j in range(d)]
    Phi = torch.einsum("nkr,k->nr", product, gamma)
    kappa = None
    if "kappa" in wanted:
        kappa = torch.einsum("nkr,k->nr", product, -2 * operator.kappa * a * gamma)
    found = [
        torch.stack([torch.einsum("nkr,k->nr", s * o, gamma) for s, o in zip(slope, others)], -1)
        if slope
        else None
        for slope in slopes.values()
    ]
    return Phi, found[0], kappa, found[1], found[2]


def _product(factors: list[Tensor]) -> Tensor:
    total = torch.ones((), dtype=torch.float64)
    for factor in factors:
        total = total * factor
    return total


def _factor(
    side: Interval | None,
    kind: str,
    readings: Readings,
    j: int,
    width: float,
    *physics: Tensor,
) -> Tensor:
    """What axis j brings to every reading, (n, k, r); `physics` are a, D, v and the atoms' numbers."""
    x = torch.from_numpy(readings.middle[:, j])[:, None, None]
    half = torch.from_numpy(readings.half[:, j])[:, None, None]
    flux, mean = readings.axis == j, readings.half[:, j] > 0

    def value(x: Tensor) -> Tensor:
        return along(side, kind, x, *physics)

    if not flux.any() and not mean.any():
        return value(x)
    groups, parts = [np.flatnonzero(~(flux | mean)), np.flatnonzero(mean), np.flatnonzero(flux)], []
    for rows, what in zip(groups, ("value", "mean", "flux")):
        if not len(rows):
            continue
        if what == "value":
            parts.append(value(x[rows]))
        elif what == "mean":
            parts.append(mean_along(side, kind, x[rows], half[rows], *physics))
        else:
            _, D, v, *_ = physics
            parts.append(v * value(x[rows]) - D * _slope(value, x[rows], 1e-2 * width))
    back = torch.from_numpy(np.argsort(np.concatenate(groups)))
    return torch.cat(parts)[back]


def _slope(value: Callable[[Tensor], Tensor], x: Tensor, h: float) -> Tensor:
    """The derivative of a function of single places, by differences of fourth order."""
    near, far = (value(x + m * h) - value(x - m * h) for m in (1, 2))
    return (8 * near - far) / (12 * h)


def source_atoms(mu: Tensor, width: float | None, resolution: float) -> Atoms:
    """Points, or Gaussians of a width."""
    return Point(mu, resolution) if width is None else Gaussian(mu, width)


def mass(atoms: Atoms) -> Tensor:
    """∫φ_r (r,), by which strengths become what a source emits in all."""
    if isinstance(atoms, Point):
        return torch.ones(len(atoms.mu), dtype=torch.float64)
    return (atoms.sigma.double() * (2 * torch.pi) ** 0.5).prod(1)

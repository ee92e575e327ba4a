"""A field of sources: Gaussians on a grid, shrunk by evidence; the chart is the identity."""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from greenfold.design import Design
from greenfold.green import Gaussian, Polynomial, Transport
from greenfold.learn.posterior import Posterior
from greenfold.model import IGL
from greenfold.solve import Ridge, evidence
from greenfold.sources.readings import Readings
from greenfold.sources.responses import columns

Array = NDArray[np.float64]

OCTAVES = range(1, 6)  # widths from 1/2 to 1/32 of the longest side of the region are tried
ALIKE = 1.0  # nats
MOST = 900  # atoms
BEYOND = 3  # atoms on the other side of a wall


class Field(NamedTuple):
    """Strengths of the atoms under a ridge, and how sure they are."""

    model: IGL
    covariance: Array  # (r, r)
    noise: float  # variance of a reading of weight 1
    Z: Array  # (n, r): fitted readings are ZZᵀ of those read, √weights included
    rank: float  # numbers that the readings tell


def grid_atoms(operator: Transport, region: Array, width: float) -> Gaussian | None:
    """Gaussians one width apart over the region, and beyond walls, which cut them; None if too many."""
    lines = []
    for (low, high), side in zip(region.T, operator.sides(region.shape[1])):
        walled = side is not None and side.boundary != "periodic"
        count = max(1, math.ceil((high - low) / width))
        step, beyond = (high - low) / count, BEYOND if walled else 0
        lines.append(low + step * np.arange(-beyond, count + beyond + 1))
    if math.prod(map(len, lines)) > MOST:
        return None
    mu = np.stack(np.meshgrid(*lines, indexing="ij"), -1).reshape(-1, len(lines))
    return Gaussian(torch.from_numpy(mu), width)


def fit_field(
    operator: Transport,
    readings: Readings,
    y: Array,
    weight: Array,
    region: Array,
    width: float | None,
) -> Field:
    """By the width given, or by that of best evidence."""
    Y, W = torch.from_numpy(y)[:, None], torch.from_numpy(weight)
    tried: dict[float, Trial] = {}

    def value(width: float) -> float:
        if width not in tried:
            tried[width] = _trial(operator, readings, region, width, Y, W)
        return tried[width].evidence

    if width is None:
        longest = float((region[1] - region[0]).max())
        best = min((longest / 2**k for k in OCTAVES), key=value)
        best = min((best * 2**s for s in (-0.5, 0.0, 0.5)), key=value)
        # of widths that are about as likely, the smoothest
        width = max(w for w in tried if value(w) <= value(best) + ALIKE / len(y))
    if not math.isfinite(value(width)):
        raise ValueError(
            f"a field of sources {width:g} wide takes more than {MOST} of them in this region. Raise "
            "`width`, or make `region` smaller."
        )
    atoms, design = tried[width].atoms, tried[width].design
    assert atoms is not None
    assert design is not None
    return _solved(operator, atoms, design, Y, W)


class Trial(NamedTuple):
    """Of a width."""

    evidence: float
    atoms: Gaussian | None
    design: Design | None


def _trial(
    operator: Transport, readings: Readings, region: Array, width: float, Y: Tensor, W: Tensor
) -> Trial:
    atoms = grid_atoms(operator, region, width)
    if atoms is None:
        return Trial(math.inf, None, None)
    design = Design.stack(columns(operator, readings, atoms))
    alpha = Ridge("evidence").solve(design, Y, W).alpha
    return Trial(float(evidence(design, Y, alpha.log(), W)), atoms, design)


@torch.no_grad()
def _solved(operator: Transport, atoms: Gaussian, design: Design, Y: Tensor, W: Tensor) -> Field:
    d = atoms.n_dims
    model = IGL(nn.Identity(), operator, atoms, n_dims=d, null_space=Polynomial(-1)).eval()
    solution = Ridge("evidence").solve(design, Y, W)
    model.w = solution.w
    posterior = Posterior.of(model, atoms.mu[:0], Y, solution, W, design)
    noise = float(posterior.noise[0])
    half = torch.linalg.solve_triangular(
        posterior.factor, torch.eye(len(atoms.mu)).double(), upper=False
    )
    inverse = half.T @ half
    Z = (W.sqrt()[:, None] * design.Phi @ half.T).numpy()
    return Field(model, noise * inverse.numpy(), noise, Z, posterior.rank)

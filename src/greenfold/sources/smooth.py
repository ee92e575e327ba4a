"""A field of sources: Gaussians on a grid whose strengths are shrunk by evidence, the identity for a chart."""

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

WIDTHS = [2.0**-k for k in range(1, 7)]  # of the longest side of the region, tried by evidence
MOST = 900  # atoms


class Field(NamedTuple):
    """Strengths of the atoms under a ridge, and how sure they are."""

    model: IGL
    covariance: Array  # (r, r)
    noise: float  # variance of a reading of weight 1
    shrink: Array  # (n, n) H: fitted readings from those read, √weights included
    rank: float  # numbers that the readings tell


def grid_atoms(region: Array, width: float) -> Gaussian | None:
    """Gaussians one width apart over the region; None if they were too many."""
    counts = [max(2, math.ceil((high - low) / width) + 1) for low, high in region.T]
    if math.prod(counts) > MOST:
        return None
    lines = [np.linspace(low, high, count) for (low, high), count in zip(region.T, counts)]
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
    longest = float((region[1] - region[0]).max())
    widths = [longest * share for share in WIDTHS] if width is None else [width]
    Y, W = torch.from_numpy(y)[:, None], torch.from_numpy(weight)
    best: tuple[float, Gaussian, Design] | None = None
    for each in widths:
        atoms = grid_atoms(region, each)
        if atoms is None:
            continue
        design = Design.stack(columns(operator, readings, atoms))
        solution = Ridge("evidence").solve(design, Y, W)
        value = float(evidence(design, Y, solution.alpha, W))
        if best is None or value < best[0]:
            best = value, atoms, design
    if best is None:
        raise ValueError(
            f"a field of sources {widths[0]:g} wide takes more than {MOST} of them in this region. Raise "
            "`width`, or make `region` smaller."
        )
    return _solved(operator, best[1], best[2], Y, W)


@torch.no_grad()
def _solved(operator: Transport, atoms: Gaussian, design: Design, Y: Tensor, W: Tensor) -> Field:
    d = atoms.n_dims
    model = IGL(nn.Identity(), operator, atoms, n_dims=d, null_space=Polynomial(-1)).eval()
    solution = Ridge("evidence").solve(design, Y, W)
    model.w = solution.w
    posterior = Posterior.of(model, atoms.mu[:0], Y, solution, W, design)
    noise = float(posterior.noise[0])
    half = torch.linalg.solve_triangular(posterior.factor, torch.eye(len(atoms.mu)).double(), upper=False)
    inverse = half.T @ half
    Phi = W.sqrt()[:, None] * design.Phi
    shrink = (Phi @ inverse @ Phi.T).numpy()
    return Field(model, noise * inverse.numpy(), noise, shrink, posterior.rank)

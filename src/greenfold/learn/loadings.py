"""What coordinates are made of: their slopes along the columns."""

import numpy as np
import torch
from torch import Tensor

from greenfold.learn.units import Array, Scaling, evenly, finite
from greenfold.model import IGL, Tied

ROWS = 200  # whose slopes are averaged


@torch.enable_grad()
def loadings(model: IGL, units: Scaling) -> Array:
    """∂ξ_k/∂X_j (d, D), in the units of X.

    Of a linear chart these are its rows, through whatever units and filters came before; of others the
    mean over rows that hold its sources, or the value at the mean row if none do.
    """
    x: Tensor = torch.zeros(1, len(units.shift), dtype=torch.float64)
    if isinstance(model.sources, Tied):
        x = model.sources.x.to(x)[torch.from_numpy(evenly(len(model.sources.x), ROWS))]
    x = x.detach().clone().requires_grad_()
    slopes = [torch.autograd.grad(xi.sum(), x, retain_graph=True)[0] for xi in model.chart(x).T]
    mean = torch.stack(slopes).mean(1).cpu().numpy()  # (d, D)
    return finite(mean / (units.scale * units.unit), "loadings")


def column_spreads(model: IGL, units: Scaling) -> Array:
    """Standard deviations (D,) of the columns over the rows that hold the sources, in the units of X."""
    if not isinstance(model.sources, Tied) or len(model.sources.x) < 2:
        return units.scale * units.unit
    return np.asarray(units.widths(model.sources.x.double().std(0, correction=0).numpy()))

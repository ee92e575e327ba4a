"""An operator as numbers: what green.js needs to invert it in the page.

The page scales an operator and closes gates, and an exponential sum belongs to a range of the spectrum
that moves with both. So it is given not one sum but the table of them, by range.
"""

from typing import Any

import torch
from torch import nn

from greenfold.green.atoms import Atoms, Gaussian, Point, reach
from greenfold.green.base import NoForm, Operator
from greenfold.green.null_space import Polynomial


def describe(operator: Operator, atoms: Atoms, terms: bool) -> list[dict[str, Any]]:
    """The members of an operator, each with its kind and numbers; raises `NoForm`."""
    if type(atoms) not in (Point, Gaussian):
        raise NoForm(f"{type(atoms).__name__} sources are not evaluated in the page")
    return operator.described(atoms, terms)


def beside(null: nn.Module, d: int) -> list[dict[str, Any]]:
    """The columns beside the response, each 1, ξ_j or Σ_j s_j ξ_j²; raises `NoForm`."""
    if type(null) is not Polynomial or null.degree not in (0, 1):
        raise NoForm("only constants, trends and squares beside the response are evaluated here")
    axes = range(d) if null.axes is None else null.axes
    columns: list[dict[str, Any]] = [{"one": True}]
    if null.degree == 1:
        columns += [{"axis": j} for j in axes]
    if null.squared:
        on = torch.zeros(d, dtype=torch.float64)
        on[list(axes)] = 1.0
        columns += [{"square": (on / D).tolist()} for D in torch.atleast_2d(null.diffusivity)]
    return columns


def reaches(d: int) -> list[float]:
    """`reach` of 0 to d open axes: how far a Gaussian's spectrum goes."""
    return [reach(m) for m in range(d + 1)]

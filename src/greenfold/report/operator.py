"""An operator as numbers: what green.js needs to invert it in the page.

The page scales an operator and closes gates, and an exponential sum belongs to a range of the spectrum
that moves with both. So it is given not one sum but the table of them, by range.
"""

import math
from typing import Any

import torch
from torch import nn

from greenfold.green.atoms import Atoms, Gaussian, Point, reach
from greenfold.green.base import Operator, extent2
from greenfold.green.diffusion import (
    Diffusion,
    Fractional,
    Heat,
    Matern,
    Poisson,
    ScreenedPoisson,
)
from greenfold.green.expsum import _tables, best_sum
from greenfold.green.null_space import Polynomial
from greenfold.green.operators import Cauchy, HarmonicOscillator, ProductScreened, Superposition
from greenfold.green.pointwise import Affine, Anova, Exponential


class NotLive(ValueError):
    """Why the page cannot evaluate an operator by itself."""


def describe(operator: Operator, atoms: Atoms, closed_form: bool = True) -> list[dict[str, Any]]:
    """The members of an operator, each with its kind and numbers; raises `NotLive`.

    `closed_form` is False where single terms of the sum have weights of their own.
    """
    if type(atoms) not in (Point, Gaussian):
        raise NotLive(f"{type(atoms).__name__} sources are not evaluated in the page")
    if isinstance(operator, Superposition):
        weighted = zip(operator.gamma.tolist(), operator.members(), strict=True)
        parts = []
        for m, (gamma, member) in enumerate(weighted):
            own = operator.gate_of(m, atoms.n_dims, None)
            for made in describe(member, atoms, closed_form):
                if own is not None:
                    made["axes"] = [min(pair) for pair in zip(own.tolist(), made["axes"])]
                parts.append({**made, "weight": gamma * made["weight"]})
        return parts
    kind = type(operator)
    if kind not in MEMBERS:
        raise NotLive(f"the operator {kind.__name__} is not evaluated in the page")
    if isinstance(operator, Diffusion) and operator.domain is not None:
        raise NotLive("an operator on a box is not evaluated in the page")
    d = atoms.n_dims
    name, scale, power = MEMBERS[kind]
    part: dict[str, Any] = {
        "kind": name, "name": kind.__name__, "scale": scale, "weight": 1.0,
        "value": getattr(operator, scale).expand(d).tolist(), "reach": 4.0, "axes": [1.0] * d,
    }  # fmt: skip
    if isinstance(operator, ProductScreened):
        if not isinstance(atoms, Point):
            raise NotLive("ProductScreened with sources of finite width is not evaluated here")
        return [part]
    if isinstance(operator, Anova):
        part |= {"share": operator.share.expand(d).tolist(), "order": operator.order}
    if isinstance(operator, Affine):
        part["level"] = float(operator.level)
    if isinstance(operator, Anova | Exponential | Affine):
        return [part]
    diffusivity: Any = operator.diffusivity
    part["diffusivity"] = diffusivity.expand(d).tolist()
    if isinstance(operator, Heat):
        return [part]
    exponent = getattr(operator, power) if power else 1.0
    if isinstance(operator, Matern):
        nu, exponent = operator.nu, operator.nu + d / 2
        part |= {"nu": nu, "log_norm": math.lgamma(exponent) - math.lgamma(nu)}
    if isinstance(operator, Cauchy):
        part["radial"] = closed_form and isinstance(atoms, Point)
    if isinstance(operator, Cauchy | Fractional):
        part["extent"] = operator.extent
    part |= {"power": exponent, "n_terms": operator.n_terms}
    if not part.get("radial"):
        part["sums"], part["reach"] = _sums(operator, atoms, exponent)
    return [part]


def beside(null: nn.Module, d: int) -> list[dict[str, Any]]:
    """The columns beside the response, each 1, ξ_j or Σ_j s_j ξ_j²; raises `NotLive`."""
    if type(null) is not Polynomial or null.degree not in (0, 1):
        raise NotLive("only constants, trends and squares beside the response are evaluated here")
    axes = range(d) if null.axes is None else null.axes
    columns: list[dict[str, Any]] = [{"one": True}]
    if null.degree == 1:
        columns += [{"axis": j} for j in axes]
    if null.squared:
        on = torch.zeros(d, dtype=torch.float64)
        on[list(axes)] = 1.0
        columns += [{"square": (on / D).tolist()} for D in torch.atleast_2d(null.diffusivity)]
    return columns


# class: its name in green.js, the parameter that the page scales, where its power is
MEMBERS: dict[type[Operator], tuple[str, str, str | None]] = {
    Heat: ("heat", "time", None),
    ScreenedPoisson: ("screened", "kappa", "power"),
    Matern: ("matern", "kappa", None),
    Cauchy: ("cauchy", "length", "beta"),
    HarmonicOscillator: ("oscillator", "omega", "power"),
    ProductScreened: ("product", "kappa", None),
    Exponential: ("exponential", "kappa", None),
    Anova: ("anova", "kappa", None),
    Affine: ("affine", "slope", None),
}
MEMBERS |= dict.fromkeys((Fractional, Poisson), ("fractional", "diffusivity", "power"))


def _sums(operator: Any, atoms: Atoms, power: float) -> tuple[dict[str, Any], float]:
    """Best sums for the ranges 2^{i/2} around the present one, and how far the scale may move."""
    K = operator.n_terms
    table = _tables().get((power, K))
    if table is not None:
        rows, first, factor = [row[:-1].tolist() for row in table], 1, 4.0
    else:
        here = _range_index(operator, atoms)
        first, factor = max(1, here - 4), 2.0
        rows = [
            torch.cat(best_sum(K, 2.0 ** (i / 2), power)[:2]).tolist()
            for i in range(first, here + 5)
        ]
    return {"first": first, "rows": rows}, factor


def _range_index(operator: Any, atoms: Atoms) -> int:
    """i of the range 2^{i/2} that the operator inverts on for these atoms."""
    if isinstance(operator, Cauchy):
        nearest = operator.diffusivity.min() * operator.length**2
        ratio = 1 + float(extent2(operator.extent, atoms, None) / nearest) / (2 * operator.beta)
    elif isinstance(operator, HarmonicOscillator):
        raise NotLive(f"no table of exponential sums for the power {operator.power:g}")
    elif isinstance(operator, Fractional):
        low = float(operator.diffusivity.min()) / (25 * extent2(operator.extent, atoms, None))
        ratio = 1 + float(operator.highest(atoms, None)) / low
    else:
        ratio = 1 + float(operator.highest(atoms, None) / operator.kappa**2)
    return max(1, math.ceil(2 * math.log2(ratio) - 1e-9))


def reaches(d: int) -> list[float]:
    """`reach` of 0 to d open axes: how far a Gaussian's spectrum goes."""
    return [reach(m) for m in range(d + 1)]

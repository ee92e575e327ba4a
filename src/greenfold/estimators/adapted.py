"""What a chart that was learned over tasks predicts for a new one."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf, dpotrs
from scipy.special import log_softmax

from greenfold.green.atoms import Point
from greenfold.green.base import Operator
from greenfold.green.forms import Form, Gaussians, Lines, NoForm, Radial
from greenfold.learn.intervals import OfTasks
from greenfold.learn.units import Array, Scaling
from greenfold.solve.solution import NOT_POSITIVE, SolveError


class Part(NamedTuple):
    """γ k(x, x') of a kernel that a few calls of NumPy evaluate, in a tenth of the time of tensors."""

    weight: float  # γ
    scale: Array  # (d,), by which places are multiplied
    beta: float | None = None  # (1 + r²/2β)^{−β}, e^{−r²/2} at ∞; None: level + ⟨x, x'⟩
    level: float = 0.0

    def at(self, places: Array, sources: Array) -> Array:
        """(n, m)."""
        if self.beta is None:
            K: Array = (places * (self.weight * self.scale**2)) @ sources.T
            K += self.weight * self.level
            return K
        center = sources[0]  # rounding is of squares of distances from here
        a = (places - center) * self.scale
        b = a if sources is places else (sources - center) * self.scale
        K = a @ b.T
        half = np.einsum("nd,nd->n", a, a) / 2
        K -= half[:, None]
        K -= half if b is a else np.einsum("md,md->m", b, b) / 2
        np.minimum(K, 0.0, out=K)  # −r²/2
        if self.beta == math.inf:
            np.exp(K, out=K)
        else:
            K /= -self.beta
            K += 1.0
            K **= -self.beta
        K *= self.weight
        return K


def parts_of(operator: Operator, d: int) -> list[Part] | None:
    """What a response to points is the sum of, if all of it is known to NumPy."""
    try:
        forms = operator.forms(Point(torch.ones(1, d, dtype=torch.float64)))
    except NoForm:
        return None
    found = [part_of(form, float(form.weight)) for form in forms]
    return None if None in found else [part for part in found if part is not None]


def part_of(form: Form, weight: float) -> Part | None:
    """Of a source at (1, …, 1)."""
    if isinstance(form, Radial) and form.beta is not None:
        return Part(weight, form.scale.numpy(), form.beta)
    if isinstance(form, Lines):
        return Part(weight, form.slopes[:, 0].sqrt().numpy(), None, float(form.level))
    if isinstance(form, Gaussians) and form.n_terms == 1:
        A = -2 * form.W[: len(form.center), 0]
        return Part(weight * math.exp(float(form.constant)), A.sqrt().numpy(), math.inf)
    return None


class OnChart:
    """The chart of all tasks: rows X in the user's numbers to places, and kernels between them."""

    def __init__(self, encode: Callable[[Any], torch.Tensor], operator: Operator, noise: float):
        self.encode, self.operator, self.noise = encode, operator, noise
        self._parts: dict[int, list[Part] | None] = {}  # of the dimensions of charts

    def kernel(self, z: torch.Tensor, at: torch.Tensor) -> Array:
        """(n, m), 1 at the origin by itself; arguments were checked where rows came in."""
        d = z.shape[1]
        if d not in self._parts:
            parts, unit = parts_of(self.operator, d), self.unit(d)
            known = parts and [part._replace(weight=part.weight / unit) for part in parts]
            self._parts[d] = known
        known = self._parts[d]
        if known is None:
            return self._response(z, at) / self.unit(d)
        places = z.numpy()
        sources = places if at is z else at.numpy()
        K = known[0].at(places, sources)
        for part in known[1:]:
            K += part.at(places, sources)
        return K

    @torch.no_grad()
    def _response(self, z: torch.Tensor, at: torch.Tensor) -> Array:
        Phi: Array = self.operator._response(z, Point.trusted(at), None).numpy()
        return Phi

    @torch.no_grad()
    def itself(self, z: torch.Tensor) -> Array:
        """k(x, x) (n,)."""
        more: Array = self.operator.rise(z).numpy()
        return 1 + more / self.unit(z.shape[1])

    @torch.no_grad()
    def unit(self, d: int) -> float:
        known = self.__dict__.setdefault("_unit", {})
        if d not in known:
            origin = self.operator.origin(d)[None]
            known[d] = float(self.operator.response(origin, Point(origin)))
        return float(known[d])


class Adapted:
    """A source for one task, solved for on the rows (n, D) of its support in closed form.

    With K the kernel between rows and A = K + λI, u(x) = k(x) a + b with a = A⁻¹(Y − b) and a free
    constant b. Under the field that the penalty thinks of, a new observation has the variance::

        v = σ²/λ (k(x,x) + λ − k A⁻¹kᵀ + (1 − 1ᵀA⁻¹kᵀ)²/1ᵀA⁻¹1),    σ² = λ (Y − b)ᵀA⁻¹(Y − b)/(n − 1)
    """

    def __init__(self, chart: OnChart, X: Any, Y: Array, make: Callable[[], Any], units: Scaling):
        self.chart, self.units, self._make = chart, units, make
        self.z = chart.encode(X)  # (n, d)
        n, c = Y.shape
        if len(self.z) != n:
            raise ValueError(f"X has {len(self.z)} rows and y has {n}.")
        self.target = units.inside(Y)
        A = chart.kernel(self.z, self.z)
        A.flat[:: n + 1] += chart.noise
        self.L, failed = dpotrf(A, lower=1)
        if failed or not math.isfinite(self.L[-1].sum()):
            raise SolveError(
                NOT_POSITIVE.format(what="the kernel of the rows", n=n, largest=A.max())
            )
        both = np.ones((n, c + 1))
        both[:, :c] = self.target
        solved: Array = dpotrs(self.L, both, lower=1)[0]
        self.one = solved[:, c]
        sums = solved.sum(0)
        self.total = sums[c]
        self.b = sums[:c] / self.total  # (c,)
        self.a = solved[:, :c] - self.one[:, None] * self.b  # (n, c)

    @cached_property
    def sigma2(self) -> Array:
        """σ² (c,)."""
        energy: Array = ((self.target - self.b) * self.a).sum(0)
        return self.chart.noise * energy / max(len(self.a) - 1, 1)

    def transform(self, X: Any) -> Array:
        """Chart coordinates (n, d)."""
        return self.chart.encode(X).numpy()

    def estimator(self) -> Any:
        """The same as a fitted `IGLRegressor` or `IGLClassifier`, for `report`, `save` and `export`."""
        return self._make()

    def _field(self, X: Any) -> tuple[Array, torch.Tensor, Array]:
        """u (n, c), places (n, d) and k(x) (n, m)."""
        z = self.chart.encode(X)
        C = self.chart.kernel(z, self.z)
        return C @ self.a + self.b, z, C

    def _std(self, z: torch.Tensor, C: Array) -> Array:
        """√v (n, c)."""
        half = solve_triangular(self.L, C.T, lower=True)
        left = self.chart.itself(z) - np.square(half).sum(0)  # of the field
        extra = left.clip(min=0.0) + self.chart.noise + (1 - C @ self.one) ** 2 / self.total
        return np.sqrt(extra[:, None] * self.sigma2 / self.chart.noise)


class AdaptedRegressor(Adapted):
    """Numbers of a new task; `predict_interval` covers as often as it did in tasks left out."""

    def __init__(self, *told: Any, intervals: OfTasks, flat: bool):
        super().__init__(*told)
        self.intervals, self.flat = intervals, flat

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """u(x), with the standard deviation of a new observation on request."""
        u, z, C = self._field(X)
        answer = self._shaped(self.units.outside(u))
        return (answer, self._shaped(self.units.widths(self._std(z, C)))) if return_std else answer

    def predict_interval(self, X: Any, alpha: float = 0.05) -> tuple[Array, Array]:
        """Lower and upper ends that cover a new observation with probability 1 − alpha.

        Over tasks and rows alike: half widths are standard deviations times the quantile of what errors
        were in them, at queries of tasks left out.
        """
        u, z, C = self._field(X)
        half = self.intervals.quantile(alpha) * self._std(z, C)
        low, high = (self._shaped(self.units.outside(end)) for end in (u - half, u + half))
        return low, high

    def _shaped(self, values: Array) -> Array:
        return values[:, 0] if self.flat else values


class AdaptedClassifier(Adapted):
    """Classes of a new task."""

    def __init__(self, *told: Any, classes: Array, temperature: float):
        super().__init__(*told)
        self.classes_, self.temperature = classes, temperature

    def predict_proba(self, X: Any) -> Array:
        """Probabilities (n, c), columns in the order of `classes_`."""
        p: Array = np.exp(log_softmax(self._field(X)[0] / self.temperature, axis=1))
        return p

    def predict(self, X: Any) -> Any:
        """The most probable class."""
        return self.classes_[self._field(X)[0].argmax(1)]

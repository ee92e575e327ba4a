"""Best exponential sums x^{-s} ≈ Σ_k γ_k e^{−a_k x} in the relative maximum norm.

The sum turns the inverse of L = L_1 + … + L_d into a sum of products, because e^{−aL} = Π_j e^{−aL_j}.
The relative error of the sum is also the relative error of the inverse, in every dimension, so it is
the quantity to minimize. The optimum is characterized by 2K + 1 alternations of equal height [1]_; a
Remez exchange finds it, from one-term sums by inserting terms and then moving the range.

References
----------
.. [1] D. Braess, W. Hackbusch, "Approximation of 1/x by exponential sums in [1, ∞)", IMA J. Numer.
   Anal. 25 (2005), 685–697.
"""

import math
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FLOOR = 3e-12  # rounding keeps float64 sums above this; a better optimum cannot be certified
POWERS = (0.25, 2.0)
MAX_TERMS = 64
TABLES = Path(__file__).with_name("expsum_tables.npz")

Array = NDArray[np.float64]


class ExponentialSum(NamedTuple):
    """x^{-s} ≈ Σ_k γ_k e^{−a_k x} on [1, ratio], relative error at most `error`.

    Attributes
    ----------
    a : Tensor of shape (k,)
        Exponents, increasing.
    gamma : Tensor of shape (k,)
        Weights, positive.
    error : float
        The largest relative error.

    Examples
    --------
    >>> from greenfold.green import minimax
    >>> minimax(8, 1000.0).error < 1e-3
    True
    """

    a: Tensor  # (k,) increasing
    gamma: Tensor  # (k,) positive
    error: float


class ConvergenceError(RuntimeError):
    """The Remez exchange did not converge."""


def minimax(n_terms: int, ratio: float, power: float = 1.0) -> ExponentialSum:
    """Sum of `n_terms` exponentials closest to x^{-power} on [1, ratio].

    The error 1 − x^s Σ_k γ_k e^{−a_k x} takes its largest size, with alternating sign, at 2K + 1
    points. When that size would lie below what float64 can resolve (3e-12) the sum returned is the
    best one for a larger range, which serves the range asked for as well.

    Parameters
    ----------
    n_terms : int
        K, from 1 to 64.
    ratio : float
        Largest over smallest argument, at least 1.
    power : float
        The exponent s, in [0.25, 2].

    Returns
    -------
    ExponentialSum

    Examples
    --------
    >>> minimax(8, 100.0).error < 3e-5
    True
    """
    return best_sum(n_terms, ratio, check_power(power))


def check_power(power: float, name: str = "power") -> float:
    if not POWERS[0] <= power <= POWERS[1]:
        raise ValueError(
            f"`{name}` must lie in [{POWERS[0]}, {POWERS[1]}], got {power}. Write a higher power as "
            "the inverse of one operator applied to the inverse of another."
        )
    return float(power)


def best_sum(n_terms: int, ratio: float, power: float) -> ExponentialSum:
    """`minimax` for any positive power; Matérn kernels in d dimensions need s = ν + d/2."""
    if int(n_terms) != n_terms or not 1 <= n_terms <= MAX_TERMS:
        raise ValueError(
            f"`n_terms` must be a whole number from 1 to {MAX_TERMS}, got {n_terms}. "
            "Use `terms_for(error, ratio)` to find how many an accuracy needs."
        )
    if not (math.isfinite(ratio) and ratio >= 1):
        raise ValueError(
            f"`ratio` must be finite and at least 1, got {ratio}. It is the largest eigenvalue over "
            "the smallest; give an operator without a spectral gap a horizon."
        )
    if not (math.isfinite(power) and power > 0):
        raise ValueError(f"`power` must be positive, got {power}.")
    # A range of a single point has no alternation; 1.01 is as good and well posed.
    try:
        a, gamma, error = _cached(int(n_terms), max(float(ratio), 1.01), float(power))
    except ConvergenceError as failure:
        raise ValueError(
            f"no useful sum of {n_terms} exponentials for x^-{power:g} on a ratio of {ratio:.3g}: its "
            f"error would be close to 100%. Use more terms, or a narrower range of widths."
        ) from failure
    return ExponentialSum(torch.from_numpy(a.copy()), torch.from_numpy(gamma.copy()), error)


def terms_for(error: float, ratio: float, power: float = 1.0) -> int:
    """A number of terms that reaches a relative `error` on [1, ratio].

    For power ≤ 1 this is K = ⌈log(16/ε) log(8R) / π²⌉, at which the minimax error is below ε with a few
    terms to spare; above 1 the rule fails and K is searched for from there on.

    Parameters
    ----------
    error : float
        Relative, between 0 and 1.
    ratio : float
        Largest over smallest argument.
    power : float
        s.

    Returns
    -------
    int

    Examples
    --------
    >>> from greenfold.green import minimax, terms_for
    >>> minimax(terms_for(1e-6, 100.0), 100.0).error <= 1e-6
    True
    """
    check_power(power)
    if not FLOOR <= error < 1:
        raise ValueError(
            f"`error` must lie in [{FLOOR}, 1), got {error}. Float64 sums cannot be better than "
            f"{FLOOR}."
        )
    if not (math.isfinite(ratio) and ratio >= 1):
        raise ValueError(f"`ratio` must be finite and at least 1, got {ratio}.")
    n_terms = max(1, math.ceil(math.log(16 / error) * math.log(8 * ratio) / math.pi**2))
    if power > 1:
        n_terms = min(n_terms, MAX_TERMS)
        while n_terms < MAX_TERMS and minimax(n_terms, ratio, power).error > error:
            n_terms += 1
    if n_terms > MAX_TERMS or (power > 1 and minimax(n_terms, ratio, power).error > error):
        raise ValueError(
            f"an error of {error} on a ratio of {ratio} needs more than {MAX_TERMS} terms. "
            "Accept a larger error or shrink the range."
        )
    return n_terms


@lru_cache(maxsize=1024)
def _cached(n_terms: int, ratio: float, power: float) -> tuple[Array, Array, float]:
    """From the shipped tables where they have the case, else computed (0.02 s at K = 8, 1 s at 32)."""
    table = tables().get((power, n_terms))  # (rows, 2k + 1): a, γ, error for √2, 2, 2√2, …
    row = round(2 * math.log2(ratio)) - 1
    if table is not None and ratio == tabulated_ratio(ratio) and row < len(table):
        entry = table[row]
        return entry[:n_terms], entry[n_terms:-1], float(entry[-1])
    return remez(n_terms, ratio, power)


def tabulated_ratio(ratio: float) -> float:
    """The next power of √2: close by, and shared by many problems."""
    return 2.0 ** (max(1, math.ceil(2 * math.log2(ratio) - 1e-9)) / 2)


@lru_cache(maxsize=1)
def tables() -> dict[tuple[float, int], Array]:
    with np.load(TABLES) as file:
        names = [(name, *name.split("/")) for name in file.files]
        return {(float(s), int(k)): _joined(file[name]) for name, s, k in names}


def _joined(apart: NDArray[np.uint8]) -> Array:
    """Numbers (60, 2K + 1) from their bytes (8, 60, 2K + 1): kept apart, first bytes are nearly alike."""
    return np.ascontiguousarray(np.moveaxis(apart, 0, -1)).view("<f8")[..., 0].astype(np.float64)


def around(n_terms: int, ratio: float, power: float) -> dict[str, Any]:
    """Best sums for ranges 2^{i/2} near a ratio, or all in a table; how far a scale may move in them."""
    table = tables().get((power, n_terms))
    if table is not None:
        return {"sums": {"first": 1, "rows": [row[:-1].tolist() for row in table]}, "reach": 4.0}
    here = round(2 * math.log2(tabulated_ratio(ratio)))
    first = max(1, here - 4)
    sums = [best_sum(n_terms, 2.0 ** (i / 2), power) for i in range(first, here + 5)]
    rows = [[*a.tolist(), *gamma.tolist()] for a, gamma, _ in sums]
    return {"sums": {"first": first, "rows": rows}, "reach": 2.0}


def write_tables(path: Path = TABLES) -> None:
    """Compute the shipped tables anew: common powers and sizes, ratios √2, 2, …, 2³⁰."""
    made = {}
    for power in (0.5, 1.0, 1.5, 2.0):
        for n_terms in (8, 12, 16, 24, 32):
            rows = [remez(n_terms, 2.0 ** (i / 2), power) for i in range(1, 61)]
            numbers = np.array([np.append(np.append(a, g), e) for a, g, e in rows])
            made[f"{power:g}/{n_terms}"] = _apart(_kept(numbers))
    np.savez_compressed(path, allow_pickle=False, **made)


def _kept(numbers: Array) -> Array:
    """Sums (60, 2K + 1) with no more digits than they need: to a two-thousandth of its error."""
    bits = np.clip(np.ceil(-np.log2(5e-4 * numbers[:, -1:])), 1, 53)
    fraction, exponent = np.frexp(numbers)
    return np.ldexp(np.round(fraction * 2.0**bits) / 2.0**bits, exponent)


def _apart(numbers: Array) -> NDArray[np.uint8]:
    """The bytes (8, 60, 2K + 1) of numbers (60, 2K + 1)."""
    single = np.ascontiguousarray(numbers, dtype="<f8").view(np.uint8).reshape(*numbers.shape, 8)
    return np.ascontiguousarray(np.moveaxis(single, -1, 0))


# The state of the exchange: log a (k,), log γ (k,), log of the alternation points (2k + 1,).


class _Sum(NamedTuple):
    log_a: Array
    log_gamma: Array
    t: Array
    level: float

    @property
    def log_ratio(self) -> float:
        return float(self.t[-1])


def remez(n_terms: int, ratio: float, power: float) -> tuple[Array, Array, float]:
    """Best (a, γ) and its error, computed from nothing."""
    best = _one_term(power)
    while len(best.log_a) < n_terms:
        best = _grow(best, power)
        # Growing keeps the error and stretches the range. Coming back to the target keeps the numbers
        # moderate, but near the floor the next growth would start from rounding noise.
        best = _move(best, min(best.log_ratio, math.log(ratio)), power, floor=1e-7)
    best = _move(best, math.log(ratio), power, floor=FLOOR)
    order = np.argsort(best.log_a)
    a, gamma = np.exp(best.log_a[order]), np.exp(best.log_gamma[order])
    # Report what the sum does on the range asked for, measured and not assumed.
    t = np.linspace(0, math.log(ratio), 400 * n_terms + 1)
    measured = float(np.abs(_error(best, t, power)).max())
    return a, gamma, max(measured, best.level if ratio >= math.exp(best.log_ratio) * 0.999 else 0)


def _one_term(power: float) -> _Sum:
    """γ e^{−ax} on [1, e²]: equal errors at both ends and, with opposite sign, at x = s/a."""
    ratio = math.e**2
    a = power * math.log(ratio) / (ratio - 1)
    end, middle = math.exp(-a), (power / a) ** power * math.exp(-power)
    gamma = 2 / (end + middle)
    t = np.array([0.0, math.log(power / a), 2.0])
    return _Sum(np.array([math.log(a)]), np.array([math.log(gamma)]), t, 1 - gamma * end)


def _grow(best: _Sum, power: float) -> _Sum:
    """One more term at about the same error, on a range longer by one node spacing."""
    k = len(best.log_a)
    order = np.argsort(best.log_a)[::-1]  # decreasing a: increasing x
    log_a, log_gamma = best.log_a[order], best.log_gamma[order]
    m = (k + 1) // 2  # the first m nodes stay
    h = 2.0 if k == 1 else float(log_a[m - 1] - log_a[m])
    log_a = np.concatenate([log_a[:m], [log_a[m - 1] - h], log_a[m:] - h])
    log_gamma = np.concatenate(
        [log_gamma[:m], [log_gamma[m - 1] - power * h], log_gamma[m:] - power * h]
    )
    i = 2 * m - 1 if k > 1 else 1  # alternation points up to here stay
    t = np.concatenate([best.t[: i + 1], best.t[i - 1 : i + 1] + h, best.t[i + 1 :] + h])
    return _solve(_Sum(log_a, log_gamma, t, best.level), float(best.t[-1]) + h, power)


def _move(best: _Sum, target: float, power: float, floor: float) -> _Sum:
    """Homotopy of the range to log R = `target`, predicted by secants, halving steps on failure."""
    previous: _Sum | None = None
    step = 1.0
    while abs(best.log_ratio - target) > 1e-13:
        if target < best.log_ratio and best.level < floor:
            return best  # valid on a longer range than asked for
        distance = target - best.log_ratio
        move = math.copysign(min(step, abs(distance)), distance)
        log_ratio = target if abs(distance) <= step else best.log_ratio + move
        try:
            new = _solve(_predict(previous, best, log_ratio), log_ratio, power)
        except ConvergenceError:
            step /= 2
            if step < 0.05 and target < best.log_ratio and best.level < 10 * FLOOR:
                return best  # rounding won; valid on a longer range than asked for
            if step < 1e-3:
                raise
            continue
        previous, best, step = best, new, step * 1.5
    return best


def _predict(previous: _Sum | None, best: _Sum, log_ratio: float) -> _Sum:
    stretch = log_ratio / best.log_ratio
    if previous is None or previous.log_ratio == best.log_ratio:
        return best._replace(t=best.t * stretch)
    f = (log_ratio - best.log_ratio) / (best.log_ratio - previous.log_ratio)
    return _Sum(
        best.log_a + f * (best.log_a - previous.log_a),
        best.log_gamma + f * (best.log_gamma - previous.log_gamma),
        best.t * stretch,
        best.level * (best.level / previous.level) ** f,
    )


def _error(sum_: _Sum, t: Array, power: float) -> Array:
    """1 − x^s S(x) at x = e^t."""
    return 1 - _weighted(sum_, t, power).sum(1)


def _weighted(sum_: _Sum, t: Array, power: float) -> Array:
    exponent = power * t[:, None] + sum_.log_gamma - np.exp(t[:, None] + sum_.log_a)
    return np.exp(np.minimum(exponent, 300.0))  # (n, k)


def _solve(start: _Sum, log_ratio: float, power: float) -> _Sum:
    """Remez exchange on [0, log_ratio] from a good start."""
    t = start.t.copy()
    t[-1] = log_ratio
    best = start
    if not np.all(np.diff(t) > 0):
        raise ConvergenceError
    for _ in range(40):
        best = _level(best._replace(t=t), power)
        t, heights = _extrema(best, log_ratio, power)
        if heights.max() <= heights.min() * (1 + 1e-3):
            return best._replace(t=t, level=float(heights.max()))
        # At the rounding floor heights cannot level any better.
        if heights.max() - heights.min() < 2e-15 * len(t) and heights.max() < heights.min() * 1.02:
            return best._replace(t=t, level=float(heights.max()))
    raise ConvergenceError


def _level(sum_: _Sum, power: float) -> _Sum:
    """Newton for e(x_i) = (−1)^i E at fixed points; unknowns log a, log γ, E."""
    k = len(sum_.log_a)
    sign = (-1.0) ** np.arange(2 * k + 1)
    level = sum_.level
    for _ in range(50):
        B = _weighted(sum_, sum_.t, power)  # (2k + 1, k)
        residual = 1 - B.sum(1) - sign * level
        J = np.concatenate([B * np.exp(sum_.t[:, None] + sum_.log_a), -B, -sign[:, None]], axis=1)
        scale = np.linalg.norm(J, axis=0)
        if not np.isfinite(residual).all() or not np.isfinite(J).all() or (scale == 0).any():
            raise ConvergenceError
        delta = -np.linalg.lstsq(J / scale, residual, rcond=1e-15)[0] / scale
        size = float(np.abs(delta[:-1]).max())
        delta *= min(1.0, 0.7 / size) if size > 0 else 1.0
        level += float(delta[-1])
        sum_ = sum_._replace(
            log_a=sum_.log_a + delta[:k], log_gamma=sum_.log_gamma + delta[k : 2 * k]
        )
        if size < 1e-9 or np.abs(residual).max() < max(1e-6 * abs(level), 3e-16):
            break
    if not level > 0:
        raise ConvergenceError
    return sum_._replace(level=level)


def _extrema(sum_: _Sum, log_ratio: float, power: float) -> tuple[Array, Array]:
    """The 2k + 1 alternating extrema of the error on [0, log_ratio] and their heights."""
    k = len(sum_.log_a)
    # A grid that is dense between neighboring alternation points, wherever they crowd.
    fractions = np.linspace(0, 1, 17)[:-1]
    left, width = sum_.t[:-1, None], np.diff(sum_.t)[:, None]
    t = np.append((left + fractions * width).ravel(), log_ratio)
    e = _error(sum_, t, power)
    change = np.flatnonzero(np.signbit(e[1:]) != np.signbit(e[:-1])) + 1
    if len(change) != 2 * k:
        raise ConvergenceError
    peaks = []
    for begin, end in zip(np.append(0, change), np.append(change, len(t)), strict=True):
        peaks.append(begin + int(np.argmax(np.abs(e[begin:end]))))
    peak = np.array(peaks)
    inner = peak[(peak > 0) & (peak < len(t) - 1)]
    # Parabola through three neighbors of unequal spacing.
    t0, t1, t2 = t[inner - 1], t[inner], t[inner + 1]
    e0, e1, e2 = e[inner - 1], e[inner], e[inner + 1]
    top = (t1 - t0) ** 2 * (e1 - e2) - (t1 - t2) ** 2 * (e1 - e0)
    bottom = (t1 - t0) * (e1 - e2) - (t1 - t2) * (e1 - e0)
    with np.errstate(divide="ignore", invalid="ignore"):
        vertex = np.where(bottom != 0, t1 - 0.5 * top / bottom, t1)
    points = t[peak].copy()
    points[(peak > 0) & (peak < len(t) - 1)] = np.clip(vertex, t0, t2)
    points[0], points[-1] = 0.0, log_ratio
    if not np.all(np.diff(points) > 0):
        raise ConvergenceError
    return points, np.abs(_error(sum_, points, power))

"""A few sources: how many, where, how strong, and physical numbers with them.

Sources are added one after the other where they explain most of what is left, and after every step all
places, strengths and learned numbers are refined together. A count m costs what m places on a grid are
worth::

    score = n log(rss/n) + m((d + 1) log n + log |grid|)
"""

import copy
import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import least_squares

from greenfold.green import Transport
from greenfold.green.atoms import Atoms
from greenfold.sources.readings import Readings
from greenfold.sources.responses import columns, mass, responses, source_atoms

Array = NDArray[np.float64]

SIDES = {1: 128, 2: 24, 3: 11}  # places along an axis of the grid
NEAR = 20.0  # of the score: what is farther off after a rough fit is not refined
STARTS, APART = 3, 0.2  # places that are tried for one more source, this share of the region apart
NEARLY = 0.6  # of what the best place explains: what others must, for a source to be moved there
HALVES = 0.1  # of the region: how far from a source are the two that may take its place
ROUGH = 8  # evaluations in a rough fit
SEARCH_ERROR = 1e-4  # of the operator, until sources are refined
PATIENCE = 2  # sources that may be added without gain
SIGNS = {"positive": (0.0, np.inf), "negative": (-np.inf, 0.0), "any": (-np.inf, np.inf)}


class Problem(NamedTuple):
    """What is known."""

    operator: Transport
    readings: Readings
    y: Array  # (n,)
    root: Array  # (n,) of the weights, whose mean is 1
    region: Array  # (2, d)
    width: float | None
    sign: str
    names: list[str]  # of physical numbers that are learned
    theta: Array  # (p,) where these start
    resolution: float

    @property
    def n_dims(self) -> int:
        return int(self.region.shape[1])

    def atoms(self, mu: Array) -> Atoms:
        return source_atoms(torch.from_numpy(np.ascontiguousarray(mu)), self.width, self.resolution)

    @property
    def rss_of_nothing(self) -> float:
        return float(np.sum((self.root * self.y) ** 2))

    @property
    def floor(self) -> float:
        """The sum of squares below which residuals are those of the operator's own error."""
        return max(self.operator.error**2 * self.rss_of_nothing, 1e-300)


class Found(NamedTuple):
    """Sources, and the physical numbers they were found with."""

    mu: Array  # (m, d)
    q: Array  # (m,)
    theta: Array  # (p,)
    rss: float

    @property
    def parameters(self) -> Array:
        return np.concatenate([self.mu.ravel(), self.q, self.theta])


def physics(operator: Transport, learn: tuple[str, ...], d: int) -> tuple[list[str], Array]:
    """Names and values of the numbers that are learned."""
    names: list[str] = []
    values: list[float] = []
    for name in learn:
        value = getattr(operator, name).detach().reshape(-1)
        if name == "wind":
            value = operator.wind.detach().expand(d)
            walls = [s is not None and s.boundary == "neumann" for s in operator.sides(d)]
            free = [j for j in range(d) if not walls[j]]
            names += [f"wind[{j}]" for j in free]
            values += [float(value[j]) for j in free]
        elif len(value) == 1:
            names.append(name)
            values.append(float(value[0]))
        else:
            names += [f"{name}[{j}]" for j in range(len(value))]
            values += value.tolist()
    return names, np.array(values)


def with_physics(operator: Transport, names: list[str], theta: Array, d: int) -> Transport:
    """A copy with those numbers."""
    if not names:
        return operator
    operator = copy.deepcopy(operator)
    wind = operator.wind.detach().expand(d).clone()
    D = operator.diffusivity.detach().clone().reshape(-1)
    for name, value in zip(names, theta.tolist()):
        what, _, index = name.partition("[")
        j = int(index[:-1]) if index else 0
        if what == "kappa":
            operator.kappa.data.fill_(value)
        elif what == "wind":
            wind[j] = value
        else:
            D[j] = value
    operator.wind.data = wind
    operator.get_parameter("log_diffusivity").data = D.log().reshape(operator.diffusivity.shape)
    return operator


def grid_of(region: Array) -> Array:
    """Places (g, d): the middles of cells."""
    d = region.shape[1]
    side = SIDES[d]
    lines = [low + (high - low) * (np.arange(side) + 0.5) / side for low, high in region.T]
    return np.stack(np.meshgrid(*lines, indexing="ij"), -1).reshape(-1, d)


def find(problem: Problem, most: int) -> Found:
    """The count of sources with the best score, and these: searched for roughly, then refined."""
    rough = problem
    if problem.operator.error < SEARCH_ERROR:
        operator = copy.deepcopy(problem.operator)
        operator.error = SEARCH_ERROR
        rough = problem._replace(operator=operator)
    found = _searched(rough, most)
    if found.rss < 100 * rough.floor and rough is not problem and problem.y.any():
        found = _searched(problem, most)  # readings are better than that
    return refined(problem, found, 1e-12) if len(found.q) else found


def _searched(problem: Problem, most: int) -> Found:
    """One source after the other, until two of them are not worth their price."""
    nothing = np.zeros((0, problem.n_dims))
    best = now = Found(nothing, np.zeros(0), problem.theta, problem.rss_of_nothing)
    grid = grid_of(problem.region)
    Phi = _columns(problem, problem.theta, grid)
    tries = 0
    for _ in range(most):
        if now.rss <= problem.floor or tries >= PATIENCE:
            break
        if problem.names and len(now.q):
            Phi = _columns(problem, now.theta, grid)
        places = _next(problem, now, grid, Phi)
        if not places:
            break
        more = refined(problem, _added(problem, now, grid[places[0]]), 1e-4)
        if not tries and score(problem, more, len(grid)) >= score(problem, best, len(grid)):
            # perhaps elsewhere, or one of them is two
            starts = [_added(problem, now, grid[place]) for place in places[1:]]
            more = _best_of(problem, more, starts + _halved(problem, now))
        now = more
        tries = 0 if score(problem, now, len(grid)) < score(problem, best, len(grid)) else tries + 1
        best = best if tries else now
    return _thinned(problem, _moved(problem, best, grid, Phi), len(grid))


def _best_of(problem: Problem, best: Found, starts: list[Found]) -> Found:
    """What is best, or the start that is clearly better after a rough fit, refined."""
    rough = [refined(problem, start, 1e-3, ROUGH) for start in starts]
    other = min(rough, key=lambda found: found.rss, default=best)
    return refined(problem, other, 1e-4) if other.rss < best.rss * (1 - 1e-3) else best


def _halved(problem: Problem, now: Found) -> list[Found]:
    """Two sources in place of one, a little apart along an axis: the two best of these starts."""
    size, starts = problem.region[1] - problem.region[0], []
    for i in range(len(now.q)):
        for step in np.diag(HALVES * size):
            pair = np.clip([now.mu[i] - step, now.mu[i] + step], *problem.region)
            mu = np.vstack([np.delete(now.mu, i, 0), pair])
            starts.append(_resolved(problem, now._replace(mu=mu)))
    return sorted(starts, key=lambda found: found.rss)[:2]


def _moved(problem: Problem, best: Found, grid: Array, Phi: Array) -> Found:
    """With single sources taken away and put elsewhere, as long as that helps."""
    i, apart = 0, APART / 2 * (problem.region[1] - problem.region[0])
    while i < len(best.q) and len(best.q) > 1:
        rest = best._replace(mu=np.delete(best.mu, i, 0), q=np.delete(best.q, i))
        rest = _resolved(problem, rest)
        places = _next(problem, rest, grid, Phi, NEARLY)
        away = [p for p in places if not (np.abs(grid[p] - best.mu[i]) < apart).all()]
        other = _best_of(problem, best, [_added(problem, rest, grid[p]) for p in away])
        best, i = (best, i + 1) if other is best else (other, 0)
    return best


def score(problem: Problem, found: Found, n_grid: int) -> float:
    n, m, d = len(problem.y), len(found.q), problem.n_dims
    rss = max(found.rss, problem.floor)
    return n * math.log(rss / n) + m * ((d + 1) * math.log(n) + math.log(n_grid))


def _columns(problem: Problem, theta: Array, mu: Array) -> Array:
    """√w times what readings make of unit sources at places, (n, m)."""
    operator = with_physics(problem.operator, problem.names, theta, problem.n_dims)
    atoms = problem.atoms(mu)
    Phi = columns(operator, problem.readings, atoms) / mass(atoms)
    return problem.root[:, None] * Phi.numpy()


def _next(problem: Problem, now: Found, grid: Array, Phi: Array, share: float = 0.0) -> list[int]:
    """The places on the grid that explain most of what is left beside the sources that are there.

    No more than a few, apart from each other, that explain at least a `share` of what the best does.
    """
    y = problem.root * problem.y
    if len(now.q):
        there = _columns(problem, now.theta, now.mu)
        Q = np.linalg.qr(there)[0]
        rest, Phi = y - there @ now.q, Phi - Q @ (Q.T @ Phi)
    else:
        rest = y
    along, size = rest @ Phi, np.square(Phi).sum(0)
    if problem.sign != "any":
        along = np.maximum(along * (1 if problem.sign == "positive" else -1), 0)
    gain = along**2 / np.maximum(size, 1e-12 * size.max())
    chosen: list[int] = []
    apart = APART * (problem.region[1] - problem.region[0])
    least = share * gain.max()
    for _ in range(STARTS):
        place = int(np.argmax(gain))
        if not gain[place] > 0 or gain[place] < least:
            break
        chosen.append(place)
        gain = np.where((np.abs(grid - grid[place]) < apart).all(1), 0.0, gain)
    return chosen


def _added(problem: Problem, now: Found, place: Array) -> Found:
    """One more source."""
    return _resolved(problem, now._replace(mu=np.vstack([now.mu, place])))


def _resolved(problem: Problem, now: Found) -> Found:
    """All strengths solved for, where they may be."""
    A, y = _columns(problem, now.theta, now.mu), problem.root * problem.y
    scale = np.maximum(np.linalg.norm(A, axis=0), 1e-300)
    q = np.linalg.lstsq(A / scale, y, rcond=1e-10)[0] / scale
    q = np.clip(q, *SIGNS[problem.sign])
    return Found(now.mu, q, now.theta, float(np.sum((y - A @ q) ** 2)))


def refined(problem: Problem, start: Found, tolerance: float, most: int = 60) -> Found:
    """Places, strengths and physical numbers by least squares, within their bounds."""
    m, d = start.mu.shape
    low, high = _bounds(problem, start)
    x0 = np.clip(start.parameters, low, high)
    known: dict[bytes, tuple[Array, Array]] = {}

    def both(x: Array) -> tuple[Array, Array]:
        key = x.tobytes()
        if key not in known:
            known.clear()
            known[key] = residual_and_slopes(problem, unpacked(x, m, d))
        return known[key]

    solution = least_squares(
        lambda x: both(x)[0],
        x0,
        lambda x: both(x)[1],
        bounds=(low, high),
        x_scale="jac",
        ftol=tolerance,
        xtol=1e-9,
        gtol=1e-14,
        max_nfev=most,
    )
    found = unpacked(solution.x, m, d)
    return found._replace(rss=2 * float(solution.cost))


def unpacked(x: Array, m: int, d: int) -> Found:
    return Found(x[: m * d].reshape(m, d), x[m * d : m * (d + 1)], x[m * (d + 1) :], math.nan)


def _bounds(problem: Problem, start: Found) -> tuple[Array, Array]:
    m = len(start.q)
    low, high = (np.tile(side, m) for side in problem.region)
    ends = SIGNS[problem.sign]
    low, high = np.append(low, [ends[0]] * m), np.append(high, [ends[1]] * m)
    for name, value in zip(problem.names, problem.theta):
        wind = name.startswith("wind")
        low = np.append(low, -np.inf if wind else 1e-3 * value)
        high = np.append(high, np.inf if wind else 1e3 * value)
    return low, high


def residual_and_slopes(problem: Problem, found: Found) -> tuple[Array, Array]:
    """√w(Φq − y) (n,), and its derivatives (n, k) by places, strengths and physical numbers."""
    operator = with_physics(problem.operator, problem.names, found.theta, problem.n_dims)
    atoms = problem.atoms(found.mu)
    u, J = field_and_slopes(operator, problem.readings, atoms, found, problem.names)
    return problem.root * (u - problem.y), problem.root[:, None] * J


def field_and_slopes(
    operator: Transport, readings: Readings, atoms: Atoms, found: Found, names: list[str]
) -> tuple[Array, Array]:
    """u (n,) as it is read, and its derivatives (n, k)."""
    wanted = {"mu", *(name.partition("[")[0] for name in names)}
    parts = responses(operator, readings, atoms, tuple(wanted))
    weight = mass(atoms)
    Phi = (parts.Phi / weight).numpy()
    assert parts.mu is not None
    places = (parts.mu / weight[:, None]).numpy() * found.q[:, None]
    slopes = [places.reshape(len(Phi), -1), Phi]
    for name in names:
        what, _, index = name.partition("[")
        slope = (getattr(parts, what).movedim(1, -1) / weight).numpy()  # (n, r) or (n, d, r)
        if slope.ndim == 3:
            slope = slope[:, int(index[:-1])] if index else slope.sum(1)
        slopes.append((slope @ found.q)[:, None])
    return Phi @ found.q, np.hstack(slopes)


def _thinned(problem: Problem, best: Found, n_grid: int) -> Found:
    """Without the sources that the others do as well without."""
    while len(best.q) > 1:
        fewer = []
        for i in range(len(best.q)):
            start = best._replace(mu=np.delete(best.mu, i, 0), q=np.delete(best.q, i))
            fewer.append(refined(problem, start, 1e-3))
        least = min(fewer, key=lambda found: found.rss)
        if score(problem, least, n_grid) < score(problem, best, n_grid) + NEAR:
            least = refined(problem, least, 1e-6)
        if score(problem, least, n_grid) >= score(problem, best, n_grid):
            return best
        best = least
    return best

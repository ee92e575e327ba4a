"""Search for a linear chart z = W x and a kernel, scored by the evidence of an exact GP.

The model is y ~ N(0, s A) with A = K(Z) + λ I + 1 1ᵀ and Z = X Wᵀ; the variance s is profiled
out, so every row costs (negative log evidence, y standardized)::

    L(W, λ) = ½ log s + log|A| / 2n,      s = yᵀ A⁻¹ y / n
    dL/dA   = (A⁻¹ − α αᵀ / s) / 2n,      α = A⁻¹ y

Evidence ignores how many numbers W holds, so rungs, subspaces and dimensions are compared by its
Laplace approximation over them, with J the Jacobian of the posterior mean and prior N(m, τ²)::

    L + |θ − m|² / 2τ²n + log|I + τ² Jᵀ A⁻¹ J / s| / 2n

Several outputs share W and λ; their evidences are averaged. Rows are put into a canonical order
first, so the result does not depend on the order they came in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy import ndarray
from numpy.random import Generator
from scipy.linalg import LinAlgError, solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

TAUS = (0.3, 1.0, 3.0, 10.0)  # prior widths of a free W; the fit itself uses τ = 3
LOG_NOISE = (np.log(1e-12), np.log(1e3))
SOLVED = -0.6  # Laplace evidence above which the search widens, and a fit deserves a warning


@dataclass(frozen=True)
class Candidate:
    """One chart z = (x − mean) Wᵀ with its kernel, noise and scores (lower is better)."""

    W: ndarray  # (d, D)
    mean: ndarray  # (D,)
    kernel: str  # "gaussian", "cauchy" or "laplace"
    noise: float  # λ, for a kernel of unit variance
    evidence: float  # negative log evidence per row and output
    laplace: float  # the same, with the volume of the chart's parameters
    name: str  # the rung it came from


# --- kernels


def kernel_matrix(kernel: str, Z: ndarray, Z2: ndarray) -> ndarray:
    """k(z_i, z'_j): e^{−r²/2}, 1/(1 + r²/2) or the product e^{−Σ_j|δ_j|}."""
    if kernel == "laplace":
        return np.exp(-cdist(Z, Z2, "cityblock"))
    r2 = (Z**2).sum(1)[:, None] + (Z2**2).sum(1) - 2 * Z @ Z2.T  # (n, n')
    half = np.maximum(r2, 0) / 2
    return np.exp(-half) if kernel == "gaussian" else 1 / (1 + half)


def contract(kernel: str, Z: ndarray, K: ndarray, M: ndarray) -> ndarray:
    """Σ_j M_ij ∂k(z_i, z_j)/∂z_i, shape (n, d)."""
    if kernel == "laplace":
        B = M * K
        return np.stack([-(B * np.sign(z[:, None] - z)).sum(1) for z in Z.T], axis=1)
    B = M * K if kernel == "gaussian" else M * K**2
    return B @ Z - B.sum(1)[:, None] * Z


# --- charts: how parameters θ make the matrix W


@dataclass(frozen=True)
class Linear:
    """Free W (d, q) on the first q coordinates; θ = W, prior N(0, 3²)."""

    d: int
    q: int
    taus = TAUS
    scale = 3.0

    def W(self, theta: ndarray) -> ndarray:
        return theta.reshape(self.d, self.q)

    def pull(self, theta: ndarray, dW: ndarray) -> ndarray:
        return dW.ravel()

    def deviation(self, theta: ndarray) -> ndarray:
        return theta / self.scale

    def jacobian(self, theta: ndarray, G: ndarray, X: ndarray) -> ndarray:
        return self.scale * (G[:, :, None] * X[:, None, : self.q]).reshape(len(X), -1)


@dataclass(frozen=True)
class Axes:
    """W = diag(e^θ) on q coordinates, or e^θ I when `tied`; prior N(−½ log q − ½, 3)."""

    q: int
    tied: bool = False
    taus = (3.0,)
    scale = np.sqrt(3.0)

    def W(self, theta: ndarray) -> ndarray:
        return np.diag(np.exp(np.broadcast_to(np.clip(theta, -50, 50), self.q)))

    def pull(self, theta: ndarray, dW: ndarray) -> ndarray:
        g = np.diag(dW) * np.exp(np.clip(theta, -50, 50))
        return g.sum(keepdims=True) if self.tied else g

    def deviation(self, theta: ndarray) -> ndarray:
        return (theta + 0.5 * np.log(self.q) + 0.5) / self.scale

    def jacobian(self, theta: ndarray, G: ndarray, X: ndarray) -> ndarray:
        J = self.scale * G * X[:, : self.q] * np.exp(theta)
        return J.sum(1, keepdims=True) if self.tied else J


Chart = Linear | Axes


# --- the evidence and its gradient


@dataclass(frozen=True)
class Fit:
    """A chart with fitted parameters, in the working coordinates X̃."""

    chart: Chart
    theta: ndarray
    log_noise: float
    kernel: str
    name: str
    evidence: float = np.inf
    laplace: float = np.inf

    @property
    def W(self) -> ndarray:
        return self.chart.W(self.theta)


def factor(K: ndarray, noise: float) -> tuple[ndarray, ndarray]:
    """Cholesky factor of A = K + λ I + 1 1ᵀ, and A⁻¹."""
    A = K + 1.0
    A[np.diag_indices_from(A)] += noise
    L, failed = dpotrf(A, lower=1, clean=1)
    if failed:
        raise LinAlgError("A is not positive definite")
    inverse, _ = dpotri(L, lower=1)
    return L, np.tril(inverse) + np.tril(inverse, -1).T


def evidence(
    K: ndarray, noise: float, Y: ndarray
) -> tuple[float, ndarray, ndarray, ndarray, ndarray]:
    """The value, the Cholesky factor of A, A⁻¹, α (n, c) and s (c,)."""
    L, Ainv = factor(K, noise)
    alpha, _ = dpotrs(L, Y, lower=1)  # backward stable; A⁻¹ y loses the last digits
    s = np.maximum((Y * alpha).mean(0), 1e-300)
    value = 0.5 * np.log(s).mean() + np.log(np.diag(L)).mean()
    return value, L, Ainv, alpha, s


def loss(params: ndarray, fit: Fit, X: ndarray, Y: ndarray) -> tuple[float, ndarray]:
    """L + |θ − m|²/2τ²n and its gradient in (θ, log λ)."""
    theta, noise, n = params[:-1], np.exp(params[-1]), len(X)
    W = fit.chart.W(theta)
    X = X[:, : W.shape[1]]
    Z = X @ W.T  # (n, d)
    K = kernel_matrix(fit.kernel, Z, Z)
    try:
        value, _, Ainv, alpha, s = evidence(K, noise, Y)
    except LinAlgError:
        return 1e3, np.zeros_like(params)
    M = (Ainv - alpha / (s * len(s)) @ alpha.T) / (2 * n)  # dL/dA
    dZ = 2 * contract(fit.kernel, Z, K, M)
    unit = fit.chart.deviation(theta)
    n *= len(s)
    gradient = fit.chart.pull(theta, dZ.T @ X) + unit / (fit.chart.scale * n)
    return value + unit @ unit / (2 * n), np.append(gradient, noise * np.trace(M))


def whitened_jacobian(fit: Fit, X: ndarray, Y: ndarray) -> tuple[float, ndarray]:
    """Evidence, and L⁻¹ J τ / √s (n c, p): the noise and the prior of the fit have unit variance."""
    X = X[:, : fit.W.shape[1]]
    Z = X @ fit.W.T
    K = kernel_matrix(fit.kernel, Z, Z)
    value, L, _, alpha, s = evidence(K, np.exp(fit.log_noise), Y)
    G = [contract(fit.kernel, Z, K, a[None, :] / np.sqrt(v)) for a, v in zip(alpha.T, s)]
    J = [solve_triangular(L, fit.chart.jacobian(fit.theta, g, X), lower=True) for g in G]
    return value, np.concatenate(J)


def laplace_evidence(fit: Fit, X: ndarray, Y: ndarray) -> tuple[float, float]:
    """Evidence and Laplace evidence, the latter at its best prior width."""
    value, J = whitened_jacobian(fit, X, Y)
    gram = J.T @ J if J.shape[1] <= len(J) else J @ J.T
    spectrum = np.maximum(np.linalg.eigvalsh(gram), 0)
    unit = fit.chart.deviation(fit.theta)
    penalty = [
        unit @ unit / r + np.log1p(r * spectrum).sum()
        for r in ((tau / 3) ** 2 for tau in fit.chart.taus)
    ]
    return value, value + min(penalty) / (2 * Y.size)


def preconditioner(fit: Fit, X: ndarray, Y: ndarray) -> ndarray:
    """R with R Rᵀ = (I/τ² + Jᵀ A⁻¹ J / s)⁻¹ n c, the inverse Gauss–Newton Hessian of the loss.

    At small noise the loss is a ravine, flat along the charts that explain y equally well and
    steeper than 1/λ across them; in u = R⁻¹ θ it is nearly round.
    """
    _, J = whitened_jacobian(fit, X, Y)
    H = J.T @ J
    H[np.diag_indices_from(H)] += 1
    values, vectors = np.linalg.eigh(H)
    return fit.chart.scale * vectors * np.sqrt(Y.size / np.maximum(values, 1))


def descend(fit: Fit, X: ndarray, Y: ndarray, R: ndarray, steps: int) -> Fit:
    """L-BFGS from the fit, in the coordinates θ = θ₀ + R u."""
    p = len(fit.theta)

    def objective(params: ndarray) -> tuple[float, ndarray]:
        theta = fit.theta + R @ params[:p]
        value, gradient = loss(np.append(theta, params[p]), fit, X, Y)
        return value, np.append(R.T @ gradient[:p], gradient[p])

    start = np.append(np.zeros(p), fit.log_noise)
    bounds = [(None, None)] * p + [LOG_NOISE]
    options = {"maxiter": steps, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-7}
    x = minimize(objective, start, method="L-BFGS-B", jac=True, bounds=bounds, options=options).x
    return replace(fit, theta=fit.theta + R @ x[:p], log_noise=x[p])


def optimize(fit: Fit, X: ndarray, Y: ndarray, steps: int, rounds: int = 0) -> Fit:
    """Plain L-BFGS, then preconditioned `rounds`, then the two scores."""
    fit = replace(fit, log_noise=max(fit.log_noise, np.log(1e-9)))
    fit = descend(fit, X, Y, np.eye(len(fit.theta)), steps)
    try:
        for _ in range(rounds):
            fit = descend(fit, X, Y, preconditioner(fit, X, Y), steps)
        value, laplace = laplace_evidence(fit, X, Y)
    except LinAlgError:
        return fit
    return replace(fit, evidence=value, laplace=laplace)


# --- starts


def linear(W: ndarray, name: str, log_noise: float = np.log(1e-2)) -> Fit:
    return Fit(Linear(*W.shape), W.ravel(), log_noise, "gaussian", name)


def residual(W: ndarray, X: ndarray, Y: ndarray) -> ndarray:
    """α = A⁻¹ y at λ = 1: what a smooth function of W x leaves unexplained (y itself if d = 0)."""
    Z = X @ W.T
    *_, alpha, s = evidence(kernel_matrix("gaussian", Z, Z), 1.0, Y)
    return alpha / np.sqrt(s)


def hessian_directions(X: ndarray, y: ndarray, d: int) -> ndarray:
    """Principal Hessian directions: eigenvectors of Σ y_i x_i x_iᵀ in whitened coordinates."""
    sd = X.std(0) + 1e-9
    white = X / sd
    values, vectors = np.linalg.eigh((white * y[:, None]).T @ white)
    top = vectors[:, np.argsort(-np.abs(values))[:d]].T / sd
    return top / np.linalg.norm(top, axis=1, keepdims=True)


def powers(omega: ndarray, X: ndarray, alpha: ndarray) -> tuple[ndarray, ndarray]:
    """P(ω) = Σ_c |Σ_i α_ic e^{iω·x_i}|² and ½∇P."""
    phase = omega @ X.T  # (m, n)
    cos, sin = np.cos(phase), np.sin(phase)
    C, S = cos @ alpha, sin @ alpha  # (m, c)
    gradient = ((S @ alpha.T) * cos - (C @ alpha.T) * sin) @ X
    return (C**2 + S**2).sum(1), gradient


def pursue(X: ndarray, alpha: ndarray, rng: Generator, starts: int, keep: int) -> ndarray:
    """Frequencies ω where the residual has most power, by ascent from random starts.

    Near a peak log P falls like −ΔᵀCΔ with C the covariance of x, so C⁻¹∇P/2P is a Newton step;
    its length is capped.
    """
    q = X.shape[1]
    X = X.astype(np.float32)
    alpha = (alpha / np.sqrt((alpha**2).sum())).astype(np.float32)
    curvature = X.var(0) + np.float32(0.05)
    direction = rng.standard_normal((starts, q))
    radius = np.exp(rng.uniform(np.log(0.3), np.log(4.0), (starts, 1)))
    omega = direction / np.linalg.norm(direction, axis=1, keepdims=True) * radius
    omega = omega.astype(np.float32)
    for _ in range(20):
        P, gradient = powers(omega, X, alpha)
        move = gradient / (P[:, None] + 1e-6) / curvature
        length = np.linalg.norm(move, axis=1, keepdims=True)
        omega = omega + move * np.minimum(1, 0.6 / (length + 1e-9))
    P, _ = powers(omega, X, alpha)
    return distinct(omega[np.argsort(-P)].astype(float), X.std(0), keep)


def distinct(omega: ndarray, sd: ndarray, keep: int) -> ndarray:
    """The first `keep` frequencies that differ (as axes ±ω) by half a radian over the data."""
    chosen: list[ndarray] = []
    for w in omega:
        gaps = [min(np.linalg.norm((w - v) * sd), np.linalg.norm((w + v) * sd)) for v in chosen]
        if min(gaps, default=np.inf) > 0.5:
            chosen.append(w)
        if len(chosen) == keep:
            break
    return np.array(chosen)


def subspaces(X: ndarray) -> list[int]:
    """Numbers q of leading coordinates to search in; the widest gap of the spectrum comes first.

    A cut through coordinates of nearly equal variance is arbitrary, so it is not tried.
    """
    sd = X.std(0) + 1e-9
    r = len(sd)
    drop = sd[:-1] / sd[1:]  # (r − 1,)
    gap = 1 + int(np.argmax(drop)) if r > 2 and drop.max() > 2 else r
    levels = [q for q in (2, 5, 12, 30) if q < 0.8 * r and sd[q] < 0.7 * sd[0]] + [r]
    return [gap] + [q for q in levels if q != gap]


def best(fits: list[Fit]) -> Fit:
    return min(fits, key=lambda fit: fit.laplace)


def pursuit(
    X: ndarray, Y: ndarray, rng: Generator, starts: int, beam: int, d_max: int = 6
) -> list[Fit]:
    """Charts of growing d: each adds a strong frequency of the residual as a new row of W.

    The residual is that of the chain of frequencies itself: a refitted W has enough freedom to
    bend towards the noise, and hides the direction that is still missing.
    """
    fits: list[Fit] = []
    scores: list[float] = []
    chains = [np.zeros((0, X.shape[1]))]
    for d in range(1, d_max + 1):
        peaks = {1: 2 * beam, 2: beam}.get(d, 2)
        grown = [
            np.vstack([W, 0.7 * omega])
            for W in chains
            for omega in pursue(X, residual(W, X, Y), rng, starts, peaks)
        ]
        tries = [optimize(linear(W, "pursuit"), X, Y, 30) for W in grown]
        order = np.argsort([fit.laplace for fit in tries])
        fits += [tries[i] for i in order[:2]]
        scores.append(tries[order[0]].laplace)
        chains = [grown[i] for i in order[: beam if d == 1 else 2]] + [tries[order[0]].W]
        if (d > 1 and scores[-1] < 4 * SOLVED) or (d > 2 and scores[-1] > scores[-2] - 0.005):
            break
    return fits


def linear_charts(X: ndarray, Y: ndarray, rng: Generator, starts: int, beam: int) -> list[Fit]:
    """Pursuit, principal Hessian directions and padded smaller charts in growing subspaces."""
    fits: list[Fit] = []
    for q in subspaces(X):
        Xq = X[:, :q]
        level = pursuit(Xq, Y, rng, *((500, 2) if fits else (starts, beam)))
        hessian = hessian_directions(Xq, Y[:, 0], min(2, q))
        level.append(optimize(linear(0.7 * hessian, "hessian"), Xq, Y, 30))
        smaller = [fit for fit in fits if fit.chart.q < q]
        if smaller:
            W = best(smaller).W
            padded = np.hstack([W, np.zeros((len(W), q - W.shape[1]))])
            level.append(optimize(linear(padded, "padded", best(smaller).log_noise), Xq, Y, 30))
        fits += level
        if best(fits).laplace < SOLVED:
            break
    return fits


def axis_charts(X: ndarray, Y: ndarray) -> list[Fit]:
    """Axis scales with the Cauchy and product-Laplace kernels, and a full Cauchy chart from them.

    The product kernel finds nothing from equal scales, so it starts from a short Cauchy fit.
    """
    D = X.shape[1]
    theta = np.full(D, -0.5 * np.log(D) - 0.5)
    short = optimize(Fit(Axes(D), theta, np.log(1e-2), "cauchy", "ard"), X, Y, 25)
    fits = [short, optimize(replace(short, kernel="laplace"), X, Y, 25)]
    if 1 < D <= 20:
        full = Fit(Linear(D, D), short.W.ravel(), short.log_noise, "cauchy", "full")
        fits.append(optimize(full, X, Y, 25))
    return fits


# --- coordinates


@dataclass(frozen=True)
class Frame:
    """Working coordinates x̃ = P x of centred x."""

    P: ndarray  # (r, D)

    def __call__(self, X: ndarray) -> ndarray:
        return X @ self.P.T

    def chart(self, fit: Fit) -> ndarray:
        """W of the fit in the units of x."""
        return fit.W @ self.P[: fit.W.shape[1]]


Pool = list[tuple[Frame, Fit]]


def score(pair: tuple[Frame, Fit]) -> float:
    return pair[1].laplace


def principal(X: ndarray, weights: ndarray) -> Frame:
    """Principal coordinates of the weighted columns, the first with standard deviation 1."""
    _, S, Vt = np.linalg.svd(X * weights, full_matrices=False)
    rank = max(1, int((1e-7 * S[0] < S).sum()))
    return Frame(Vt[:rank] * weights / S[0] * np.sqrt(len(X)))


def spread(X: ndarray) -> ndarray:
    """Standard deviation of each column, exactly 0 where it is only rounding."""
    sd = X.std(0)
    return np.where(sd > 1e-12 * np.abs(X).max(0), sd, 0.0)


def sample(X: ndarray, Y: ndarray, rng: Generator, size: int) -> tuple[ndarray, ndarray]:
    """At most `size` random rows, the same ones whatever order the rows came in."""
    order = np.lexsort(np.hstack([Y, X]).T[::-1])
    rows = order[rng.permutation(len(X))[:size]]
    return X[rows], Y[rows]


# --- the search


def isotropic(X: ndarray, Y: ndarray) -> Fit:
    start = Fit(Axes(X.shape[1], tied=True), np.zeros(1), np.log(1e-2), "gaussian", "isotropic")
    return optimize(start, X, Y, 40)


def search(X: ndarray, y: ndarray, rng: Generator, effort: str = "fast") -> list[Candidate]:
    """Charts and kernels for (X, y), best Laplace evidence first.

    Parameters
    ----------
    X : ndarray (n, D)
    y : ndarray (n,) or (n, c)
        Constant outputs are ignored.
    rng : Generator
        Chooses the rows (at most 500 are used) and the starts of the pursuit.
    effort : str
        "fast", or "full" for a beam twice as wide.

    Returns
    -------
    list of Candidate
        At most 5. Evidences refer to the rows used; above `SOLVED` the first deserves a warning.
    """
    if effort not in ("fast", "full"):
        raise ValueError(f"unknown effort {effort!r}. Choose 'fast' or 'full'.")
    X = np.asarray(X, float)
    X, Y = sample(X, np.asarray(y, float).reshape(len(X), -1), rng, 500)
    mean, sd, y_sd = X.mean(0), spread(X), spread(Y)
    Y = Y[:, y_sd > 0]
    if not sd.any() or not Y.size:
        return [Candidate(np.zeros((1, X.shape[1])), mean, "gaussian", 1.0, 0.0, 0.0, "constant")]
    Y = (Y - Y.mean(0)) / y_sd[y_sd > 0]
    scale = sd.max()
    X = (X - mean) / scale
    pool = explore(X, Y, sd / scale, rng, effort)
    return [
        Candidate(
            frame.chart(fit) / scale,
            mean,
            fit.kernel,
            float(np.exp(fit.log_noise)),
            float(fit.evidence),
            float(fit.laplace),
            fit.name,
        )
        for frame, fit in pool[:5]
    ]


def explore(X: ndarray, Y: ndarray, sd: ndarray, rng: Generator, effort: str) -> Pool:
    """All rungs on at most 200 rows, the best polished on all, once more and wider if unsolved."""
    few = slice(0, 200)
    used = sd > 0
    inverse = np.divide(1.0, sd, out=np.zeros_like(sd), where=used)
    frames = [principal(X, used.astype(float)), principal(X, inverse)]
    starts = [isotropic(frame(X)[few], Y[few]) for frame in frames]
    chosen = int(starts[1].laplace < starts[0].laplace - 0.02)  # are the units comparable?
    frame, start = frames[chosen], starts[chosen]
    T, y = frame(X)[few], Y[few]

    fits = [start]
    fits += [optimize(linear(0.7 * np.eye(d), "pca"), T, y, 60) for d in (2, 3) if d <= T.shape[1]]
    small = len(X) <= 8 or best(fits).laplace < 4 * SOLVED
    if not small:
        fits += linear_charts(T, y, rng, 2000, 4 if effort == "fast" else 8)
    pool = [(frame, fit) for fit in fits]
    axes = Frame(np.diag(inverse)[used])
    if not small and used.sum() <= 200:
        pool += [(axes, fit) for fit in axis_charts(axes(X)[few], y)]
    pool = polish(pool, X, Y)
    if not small and score(pool[0]) > SOLVED:
        T = T[:, : subspaces(T)[0]]
        n_starts, beam = (4000, 10) if len(y) <= 150 else (2000, 4)
        fits = pursuit(T, y, rng, n_starts, beam, d_max=2)
        pool += polish([(frame, fit) for fit in fits[-2:]], X, Y)
    return unlike(sorted(pool, key=score))


def unlike(pool: Pool) -> Pool:
    """Drop fits that found the same optimum as an earlier one."""
    keys = [(fit.kernel, len(fit.W), round(fit.laplace, 2)) for _, fit in pool]
    return [pair for i, pair in enumerate(pool) if keys[i] not in keys[:i]]


def polish(pool: Pool, X: ndarray, Y: ndarray) -> Pool:
    """The three best on all rows, and the best of them with rougher kernels; best first.

    A smooth target that is already solved needs neither rivals on more rows nor a rough kernel.
    """
    pool = unlike(sorted(pool, key=score))
    solved = score(pool[0]) < 4 * SOLVED and len(pool[0][1].W) > 1
    pool = pool[: 1 if solved and len(X) > 200 else 3]
    pool = [(frame, optimize(fit, frame(X), Y, 80, rounds=3)) for frame, fit in pool]
    frame, fit = min(pool, key=score)
    if fit.kernel == "gaussian" and not solved:
        rougher = ["cauchy", "laplace"] if len(fit.W) == 1 else ["cauchy"]
        others = [replace(fit, kernel=k, log_noise=max(fit.log_noise, -9.0)) for k in rougher]
        pool += [(frame, optimize(other, frame(X), Y, 60, rounds=1)) for other in others]
    return sorted(pool, key=score)

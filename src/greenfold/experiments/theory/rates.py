"""Mixed against isotropic smoothness: how fast errors fall with the number N of coefficients or samples.

Worst cases are exact. Over functions with Σ_k ω(k)^{2r} |f̂_k|² ≤ 1 the best N frequencies are those of
smallest ω, and the worst error left is ω^{−r} of the next: ω = Π_j max(1, k_j) for mixed smoothness
(a hyperbolic cross), ω = max(1, |k|) for isotropic smoothness (a ball). Then two targets, and the
library's product and isotropic kernels fitted to samples of them.
"""

from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from scipy.stats import qmc
from torch import Tensor

from greenfold.design import Design
from greenfold.experiments.claims import Claim
from greenfold.green import Matern, Point, ProductScreened
from greenfold.solve import Ridge

f64 = torch.float64
SMOOTHNESS = 2.0
D = 3


def measure(config: Any) -> dict[str, Any]:
    T = config.largest_frequency
    return {**_worst_cases(T), **_targets(config.n_frequencies), **_samples(config.samples)}


# --- worst cases


def _cross_sizes(T: int, d: int) -> np.ndarray:
    """#{k ≥ 0 : Π_j max(1, k_j) ≤ t} for t = 1 … T, by counting divisors."""
    one = np.ones(T + 1)
    one[0], one[1] = 0, 2  # both 0 and 1 have weight 1
    count = one.copy()
    for _ in range(d - 1):
        total = np.zeros(T + 1)
        for t in range(1, T + 1):
            total[t::t] += count[t] * one[1 : T // t + 1]
        count = total
    return np.cumsum(count)[1:]


def _ball_sizes(radii: np.ndarray, d: int) -> np.ndarray:
    """#{k ≥ 0 : |k| ≤ ρ}."""
    top = int(radii.max()) + 1
    squares = np.zeros(top**2 + 1)
    squares[np.arange(top + 1) ** 2] = 1
    count = squares.copy()
    for _ in range(d - 1):
        total = np.zeros_like(count)
        for k in range(top + 1):
            total[k * k :] += count[: len(count) - k * k]
        count = total
    return np.cumsum(count)[np.floor(radii**2).astype(int)]


def _worst_cases(T: int) -> dict[str, Any]:
    r = SMOOTHNESS
    found: dict[str, Any] = {"worst": {}}
    t = np.unique(np.geomspace(32, T, 24).astype(int))
    for d in (2, D):
        N = _cross_sizes(T, d)[t - 1]
        error = t**-r
        # log ε = c − r log N + q log log N: q with r as known
        q = np.polyfit(np.log(np.log(N)), np.log(error) + r * np.log(N), 1)[0]
        found["worst"][f"mixed, d = {d}"] = {"N": N.tolist(), "error": error.tolist()}
        found[f"log_power_{d}"] = float(q)
        found[f"exponent_mixed_{d}"] = float(
            -np.polyfit(np.log(N), np.log(error) - r * (d - 1) * np.log(np.log(N)), 1)[0]
        )
        radii = np.geomspace(6, 60, 24)
        N = _ball_sizes(radii, d)
        found["worst"][f"isotropic, d = {d}"] = {"N": N.tolist(), "error": (radii**-r).tolist()}
        found[f"exponent_isotropic_{d}"] = float(-np.polyfit(np.log(N), np.log(radii**-r), 1)[0])
    return found


# --- two targets by their coefficients


def _targets(n: int) -> dict[str, Any]:
    """Error of the N frequencies of a cross and of a cube on a mixed and on an isotropic target."""
    k = np.arange(n)
    K = np.meshgrid(*[k] * D, indexing="ij")
    cross = np.multiply.reduce([np.maximum(1.0, a) for a in K])
    radius = np.sqrt(sum(a**2.0 for a in K))
    r = SMOOTHNESS
    targets = {
        "mixed": cross ** -(r + 0.5),
        "isotropic": np.maximum(1, radius) ** -(r + D / 2),
    }
    orders = {"cross": cross, "cube": np.maximum.reduce(K).astype(float)}
    found: dict[str, Any] = {"target": {}}
    for name, f in targets.items():
        for method, order in orders.items():
            index = np.argsort(order.ravel(), kind="stable")
            square = f.ravel()[index] ** 2
            tail = np.sqrt(np.cumsum(square[::-1])[::-1] / square.sum())
            N = np.unique(np.geomspace(30, n**D / 60, 16).astype(int))
            error = tail[N]
            found["target"][f"{name}, {method}"] = {"N": N.tolist(), "error": error.tolist()}
            found[f"rate_{name}_{method}"] = float(-np.polyfit(np.log(N), np.log(error), 1)[0])
    return found


# --- the library's kernels on samples


def _samples(sizes: Any) -> dict[str, Any]:
    """Interpolation on Sobol points of the cube: product Laplace against Matérn ½, best of 3 lengths."""
    test = torch.from_numpy(qmc.Sobol(D, scramble=True, seed=1).random(1024))
    train = torch.from_numpy(qmc.Sobol(D, scramble=True, seed=0).random(max(sizes)))

    def mixed(x: Tensor) -> Tensor:
        return (1 + 2 * (x - 0.4).abs()).prod(1, keepdim=True)

    def isotropic(x: Tensor) -> Tensor:
        return (x - 0.45).norm(dim=1, keepdim=True)

    found: dict[str, Any] = {"samples": {}}
    for name, f in (("mixed", mixed), ("isotropic", isotropic)):
        y, truth = f(train), f(test)
        for kernel in ("product", "isotropic"):
            errors = []
            for n in sizes:
                points = Point(train[:n])
                trials = []
                for scale in (0.3, 1.0, 3.0):
                    operator = (
                        ProductScreened(1 / scale)
                        if kernel == "product"
                        else Matern(0.5, scale, n_terms=24)
                    )
                    Phi = operator.response(torch.cat([train[:n], test]), points)
                    mean = y[:n].mean()
                    w = Ridge(1e-9).solve(Design.stack(Phi[:n]), y[:n] - mean).w
                    trials.append(float((Phi[n:] @ w + mean - truth).norm() / truth.norm()))
                errors.append(min(trials))
            found["samples"][f"{name}, {kernel}"] = {"N": list(sizes), "error": errors}
            found[f"sample_{name}_{kernel}"] = float(
                -np.polyfit(np.log(sizes), np.log(errors), 1)[0]
            )
            found[f"last_{name}_{kernel}"] = errors[-1]
    return found


def claims(parts: list[dict[str, Any]]) -> list[Claim]:
    def of(key: str) -> list[float]:
        return [float(part[key]) for part in parts]

    r = SMOOTHNESS
    return [
        Claim(
            "App. low-rank, table of smoothness",
            f"exponent of 1/N over all functions of isotropic smoothness r = {r:g}, d = {D}",
            f"r/d = {r / D:.2f}",
            of(f"exponent_isotropic_{D}"),
            all(abs(v - r / D) < 0.05 for v in of(f"exponent_isotropic_{D}")),
            "Exact worst case: lattice points in a ball.",
            small=False,
        ),
        Claim(
            "App. low-rank, table of smoothness",
            f"the same over all functions of mixed smoothness r = {r:g}, without the logarithm",
            f"r = {r:g}",
            of(f"exponent_mixed_{D}"),
            all(abs(v - r) < 0.1 for v in of(f"exponent_mixed_{D}")),
            "Exact worst case: lattice points in a hyperbolic cross.",
            small=False,
        ),
        Claim(
            "App. low-rank, table of smoothness",
            f"power q of log N in N^{{−r}}(log N)^q, r = {r:g}, d = {D} (fitted)",
            f"d − 1 = {D - 1}",
            of(f"log_power_{D}"),
            all(v > (D - 1) + 0.5 for v in of(f"log_power_{D}")),
            f"The rate is (log^{D - 1} N / N)^r, q = r(d−1) = {r * (D - 1):g}, approached from below; "
            "d − 1 is the case r = 1.",
            change="(log N)^{r(d−1)}",
        ),
        Claim(
            "App. low-rank, table of smoothness",
            f"rate on a mixed-smooth target, d = {D}: N frequencies of a hyperbolic cross",
            f"free of d; a cube gives {parts[0]['rate_mixed_cube']:.2f}",
            of("rate_mixed_cross"),
            min(of("rate_mixed_cross")) > 1.5 * max(of("rate_mixed_cube")),
            "The cross spends nothing on frequencies that are high in all coordinates.",
            small=False,
        ),
        Claim(
            "App. low-rank, table of smoothness",
            f"rate on an isotropic target, d = {D}: cross over cube",
            "≤ 1: products do not help",
            [
                a / b
                for a, b in zip(of("rate_isotropic_cross"), of("rate_isotropic_cube"), strict=True)
            ],
            all(
                a <= b
                for a, b in zip(of("rate_isotropic_cross"), of("rate_isotropic_cube"), strict=True)
            ),
            "Its large coefficients fill a ball.",
        ),
        Claim(
            "App. low-rank, table of smoothness",
            f"error of the product kernel over the isotropic one on a mixed-smooth target, d = {D}",
            "< 1",
            [
                a / b
                for a, b in zip(of("last_mixed_product"), of("last_mixed_isotropic"), strict=True)
            ],
            all(
                a < b
                for a, b in zip(of("last_mixed_product"), of("last_mixed_isotropic"), strict=True)
            ),
            "On the isotropic target the order is reversed: "
            f"{of('last_isotropic_product')[0] / of('last_isotropic_isotropic')[0]:.1f}.",
        ),
    ]


STYLES = {"mixed": "C0", "isotropic": "C3"}


def draw(axes: list[Axes], part: dict[str, Any]) -> None:
    titles = {
        "worst": f"worst case of a class, r = {SMOOTHNESS:g}",
        "target": f"two targets by frequencies, d = {D}",
        "samples": f"two targets by samples, d = {D}",
    }
    for panel, (key, title) in zip(axes, titles.items(), strict=True):
        for name, curve in part[key].items():
            smooth, rest = name.split(", ")
            dashed = rest in ("d = 3", "cube", "isotropic")
            style = f"{STYLES[smooth]}{'--' if dashed else '-'}"
            panel.loglog(curve["N"], curve["error"], style, label=f"{smooth}: {rest}")
        panel.set(title=title, xlabel="N", ylabel="error")
        panel.legend(fontsize=6.5)

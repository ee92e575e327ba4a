"""How good a chart or a prediction is."""

import numpy as np
from numpy.typing import NDArray
from sklearn.manifold import trustworthiness
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import KNeighborsRegressor, NearestNeighbors

Array = NDArray[np.float64]


def mse(u: Array, truth: Array) -> float:
    return float(np.mean((u - truth) ** 2))


def r2(u: Array, truth: Array) -> float:
    return 1 - mse(u, truth) / float(np.var(truth))


def knn_r2(chart: Array, coordinate: Array, k: int = 10) -> float:
    """R² of a true coordinate from its neighbors in the chart (n, d), by 5-fold CV."""
    z = (chart - chart.mean(0)) / np.maximum(chart.std(0), 1e-12)
    return r2(cross_val_predict(KNeighborsRegressor(k), z, coordinate), coordinate)


def topology(X: Array, chart: Array, coordinates: Array) -> dict[str, float]:
    """Trustworthiness of the chart, and inj95: the 95% quantile of the true distance to the neighbor
    nearest in the chart, in standard deviations of the true coordinates. A fold makes it large."""
    z = (chart - chart.mean(0)) / np.maximum(chart.std(0), 1e-12)
    truth = (coordinates - coordinates.mean(0)) / coordinates.std(0)
    nearest = NearestNeighbors(n_neighbors=2).fit(z).kneighbors(z, return_distance=False)[:, 1]
    jump = np.linalg.norm(truth - truth[nearest], axis=1)
    return {
        "trustworthiness": float(trustworthiness(X, z, n_neighbors=10)),
        "inj95": float(np.quantile(jump, 0.95)),
    }


def crossings(lines: Array) -> float:
    """How often two of the polylines (k, m, 2) cross, on average over pairs."""
    a, b = lines[:, :-1], lines[:, 1:]  # segments (k, m - 1, 2)

    def side(p: Array, q: Array, points: Array) -> Array:
        """Of the lines through p and q (m - 1, 2), on which each of the points (m, 2) lies."""
        d, e = (q - p)[:, None], points[None] - p[:, None]
        sides: Array = np.sign(d[..., 0] * e[..., 1] - d[..., 1] * e[..., 0])
        return sides

    total, k = 0, len(lines)
    for i in range(k):
        for j in range(i):
            over = side(a[i], b[i], lines[j])  # (m - 1, m)
            under = side(a[j], b[j], lines[i])
            crossed = over[:, :-1] * over[:, 1:] < 0
            total += int((crossed & (under[:, :-1] * under[:, 1:] < 0).T).sum())
    return total / (k * (k - 1) / 2)

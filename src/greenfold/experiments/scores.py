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
    """R² of a true coordinate from its neighbours in the chart (n, d), by 5-fold CV."""
    z = (chart - chart.mean(0)) / np.maximum(chart.std(0), 1e-12)
    return r2(cross_val_predict(KNeighborsRegressor(k), z, coordinate), coordinate)


def topology(X: Array, chart: Array, coordinates: Array) -> dict[str, float]:
    """Trustworthiness of the chart, and inj95: the 95% quantile of the true distance to the neighbour
    nearest in the chart, in standard deviations of the true coordinates. A fold makes it large."""
    z = (chart - chart.mean(0)) / np.maximum(chart.std(0), 1e-12)
    truth = (coordinates - coordinates.mean(0)) / coordinates.std(0)
    nearest = NearestNeighbors(n_neighbors=2).fit(z).kneighbors(z, return_distance=False)[:, 1]
    jump = np.linalg.norm(truth - truth[nearest], axis=1)
    return {
        "trustworthiness": float(trustworthiness(X, z, n_neighbors=10)),
        "inj95": float(np.quantile(jump, 0.95)),
    }

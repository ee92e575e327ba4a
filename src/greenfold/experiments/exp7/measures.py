"""What is measured of a trained autoencoder; `judged.COLUMNS_MEAN` says what each number is."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import silhouette_score
from torch import Tensor

from greenfold.experiments.exp7.networks import Autoencoder
from greenfold.experiments.exp7.training import refit_decoder

Array = NDArray[np.float32]
STRENGTHS = (0.003, 0.03, 0.3)
N_SILHOUETTE = 10_000


@torch.no_grad()
def codes(model: Autoencoder, x: Tensor) -> Tensor:
    return torch.cat([model(part)[0] for part in x.split(1000)])


@torch.no_grad()
def rebuilt_mse(decoder: torch.nn.Module, h: Tensor, x: Tensor) -> float:
    pairs = zip(h.split(1000), x.split(1000), strict=True)
    return sum(float((decoder(a) - b).square().sum()) for a, b in pairs) / x.numel()


def fit_probe(h: Array, y: Array) -> LogisticRegression:
    """Trained on all rows at the strength that did best on the last fifth."""
    cut = len(h) - len(h) // 5
    fits = [LogisticRegression(C=c, max_iter=1000).fit(h[:cut], y[:cut]) for c in STRENGTHS]
    scores = [fit.score(h[cut:], y[cut:]) for fit in fits]
    return LogisticRegression(C=STRENGTHS[int(np.argmax(scores))], max_iter=1000).fit(h, y)


def roughness(probe: LogisticRegression, h: Array, n_pairs: int = 2000) -> float:
    rng = np.random.default_rng(0)
    a, b = (h[rng.integers(len(h), size=n_pairs)] for _ in range(2))
    steps = np.linspace(0, 1, 11)
    p = np.stack([probe.predict_proba(a + t * (b - a)) for t in steps])  # (11, pairs, classes)
    return float(np.linalg.norm(np.diff(p, axis=0), axis=2).mean())


def measure(
    model: Autoencoder,
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    seed: int,
    refit_epochs: int = 0,
    batch: int = 128,
) -> dict[str, Any]:
    """All scores, of the training rows under names that end in _train; `refit_epochs` 0 for no refit."""
    roots = model.roots.detach()
    (x, y), (x_new, y_new) = train, test
    h, h_new = codes(model, x), codes(model, x_new)
    unit = h.std(0).clamp_min(1e-6)
    a, b = (h / unit).numpy(), (h_new / unit).numpy()
    c, c_new = y.numpy(), y_new.numpy()
    probe = fit_probe(a, c)
    few = slice(0, N_SILHOUETTE)
    scores: dict[str, Any] = {
        "mse": rebuilt_mse(model.decoder, model.seen(h_new).detach(), x_new),
        "mse_train": rebuilt_mse(model.decoder, model.seen(h).detach(), x),
        "probe": float(probe.score(b, c_new)),
        "probe_train": float(probe.score(a, c)),
        "silhouette": float(silhouette_score(h_new[few].numpy(), c_new[few])),
        "silhouette_train": float(silhouette_score(h[few].numpy(), c[few])),
        "smoothness": roughness(probe, b),
        "dims": int((roots > 0).sum()),
    }
    if model.head is None:
        return scores
    gated, gated_new = h * roots, h_new * roots
    open_ = (roots > 0).float()
    inside = fit_probe(gated.numpy(), c)
    scores |= {
        "probe_gated": float(inside.score(gated_new.numpy(), c_new)),
        "silhouette_gated": float(silhouette_score(gated_new[few].numpy(), c_new[few])),
        "silhouette_gated_train": float(silhouette_score(gated[few].numpy(), c[few])),
        "residual": _residual(model, h, y),
        "gates": (roots**2).tolist(),
    }
    with torch.no_grad():
        scores["head"] = float((model.head(h_new).argmax(1) == y_new).float().mean())
        scores["mse_zeroed"] = rebuilt_mse(model.decoder, model.seen(h_new) * open_, x_new)
    if refit_epochs:
        decoder = refit_decoder(h * open_, x, refit_epochs, seed, batch)
        scores["mse_active"] = rebuilt_mse(decoder, h_new * open_, x_new)
    return scores


@torch.no_grad()
def _residual(model: Autoencoder, h: Tensor, y: Tensor) -> float:
    """The head's own loss on the training rows, its weights solved for once more on all of them."""
    assert model.head is not None
    model.head.solve([(h, y)])
    return float(model.head.loss(h, y))

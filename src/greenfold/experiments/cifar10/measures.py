"""What is measured of a trained network; `judged.COLUMNS_MEAN` says what each number is."""

from typing import Any

import torch
from sklearn.metrics import silhouette_score
from torch import Tensor

from greenfold.experiments.cifar10.networks import Network
from greenfold.experiments.cifar10.training import codes
from greenfold.experiments.exp7.measures import fit_probe, rebuilt_mse
from greenfold.likelihoods.classes import temperature

Pair = tuple[Tensor, Tensor]


def calibration_error(p: Tensor, y: Tensor, n_bins: int = 15) -> float:
    """ECE: |accuracy − confidence| in bins of equal width of the largest probability, by their rows."""
    sure, named = p.max(1)
    right = (named == y).to(p)
    bins = (sure * n_bins).long().clamp_max(n_bins - 1)
    gaps = torch.zeros(n_bins, dtype=p.dtype).index_add_(0, bins, right - sure)
    return float(gaps.abs().sum() / len(y))


@torch.no_grad()
def measure(model: Network, train: Pair, held_out: Pair, test: Pair) -> dict[str, Any]:
    """All scores on the test rows. Temperatures are those that suit the rows held out best."""
    (x, y), (x_new, y_new) = train, test
    h, h_new = codes(model, x), codes(model, x_new)
    roots = model.roots
    seen_new = h_new * roots
    unit = h.std(0).clamp_min(1e-6)
    probe = fit_probe((h / unit).numpy(), y.numpy())
    scores: dict[str, Any] = {
        "probe": float(probe.score((h_new / unit).numpy(), y_new.numpy())),
        "silhouette": float(silhouette_score(h_new.numpy(), y_new.numpy())),
        "silhouette_gated": float(silhouette_score(seen_new.numpy(), y_new.numpy())),
        "dims": int((roots > 0).sum()),
    }
    if model.decoder is not None:
        scores["mse"] = rebuilt_mse(model.decoder, h_new, x_new)
    if model.head is None and model.linear is None:
        return scores
    u, u_new = model.logits(codes(model, held_out[0])).double(), model.logits(h_new).double()
    Y = torch.nn.functional.one_hot(held_out[1], u.shape[1]).double()
    T = temperature(u.numpy(), Y.numpy(), torch.ones(len(Y), dtype=torch.float64).numpy())
    scaled, raw = (u_new / T).softmax(1), u_new.softmax(1)
    if model.head is not None and model.head.minimizes == "residual":
        raw = scaled  # a squared residual has no scale of its own
    return scores | {
        "accuracy": float((u_new.argmax(1) == y_new).double().mean()),
        "ece": calibration_error(raw, y_new),
        "ece_scaled": calibration_error(scaled, y_new),
        "log_loss": float(-raw.log().gather(1, y_new[:, None]).clamp_min(-50).mean()),
    }

"""t-SNE of the codes of every method, and the gates over the epochs."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from sklearn.manifold import TSNE

from greenfold.experiments.exp7.networks import METHODS, has_head


def draw(shown: dict[str, Any], cpu: dict[str, float]) -> Figure:
    """Above the codes of one seed's test rows as the head sees them, below gates while learning."""
    heads = [method for method in METHODS if has_head(method)]
    figure, axes = plt.subplots(
        2, len(METHODS), figsize=(2.3 * len(METHODS), 4.8), layout="constrained"
    )
    for i, method in enumerate(METHODS):
        flat, curve = axes[0, i], axes[1, i]
        codes = np.asarray(shown[method]["codes"])
        perplexity = min(30.0, (len(codes) - 1) / 3)
        places = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(codes)
        flat.scatter(*places.T, c=shown[method]["classes"], s=2, cmap="tab10")
        flat.set(title=method.replace(", ", ",\n"), xticks=[], yticks=[])
        flat.title.set_fontsize(8)
        if method in heads:
            gates = np.asarray(shown[method]["gates"])  # (epochs, d)
            curve.plot(np.arange(1, len(gates) + 1), gates, lw=0.8)
            curve.set(xlabel="epoch", ylim=(-0.03, 1.03))
            curve.set_title(
                f"{int((gates[-1] > 0).sum())} of {gates.shape[1]} gates open", fontsize=8
            )
        else:
            curve.axis("off")
    axes[1, METHODS.index(heads[0])].set_ylabel("gate")
    axes[1, 0].text(0, 0.5, "\n".join(f"{m}: {s:.0f} CPU-s" for m, s in cpu.items()), fontsize=7)
    return figure

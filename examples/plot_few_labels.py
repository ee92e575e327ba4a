"""
Faces with thirty labels
========================

698 pictures of one face, of which thirty say where the light comes from and how the head is turned. The
others have no label, and still tell how faces change: rows with NaN in y join a graph of all rows. The
same learner errs by more if it sees the thirty pictures only.

`GREENFOLD_DATA` names a folder that holds `manifolds/faces.npz` with X (698, 1024) and Y (698, 3):
light, pan,
tilt, the set that came with Isomap (Tenenbaum, de Silva, Langford, Science 290, 2000). It is not shipped.
"""

# %%
# Thirty labels, NaN elsewhere.
# sphinx_gallery_thumbnail_path = 'images/gallery/plot_few_labels.png'
import os
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from greenfold import IGLRegressor

with np.load(Path(os.environ["GREENFOLD_DATA"]) / "manifolds" / "faces.npz") as file:
    X, Y = file["X"].astype(float), file["Y"].astype(float)
Y = (Y - Y.mean(0)) / Y.std(0)
order = np.random.default_rng(0).permutation(len(X))
known, rest = order[:30], order[30:]

# %%
# For each target all pictures, and the thirty alone.
found = {"the 30 alone": [], "with 668 more, unlabeled": []}
for target in Y.T:
    y = np.full(len(X), np.nan)
    y[known] = target[known]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # how many rows have no label, and that 30 are few
        every = IGLRegressor(random_state=0).fit(X, y)
        alone = IGLRegressor(random_state=0).fit(X[known], target[known])
    for u, model in zip(found.values(), (alone, every)):
        u.append(model.predict(X[rest]))
print(f"{every.n_unlabeled_} of {len(X)} pictures have no label")

# %%
# Predictions and what was to be predicted, both in standard deviations.
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
for axis, (title, values) in zip(axes, found.items()):
    errors = [np.sqrt(np.mean((u - y[rest]) ** 2)) for u, y in zip(values, Y.T)]
    for u, y, name in zip(values, Y.T, ("light", "pan", "tilt")):
        axis.plot(y[rest], u, ".", ms=3, alpha=0.5, label=name)
    axis.set(xlabel="target", ylabel="as predicted", title=f"{title}: error {np.mean(errors):.2f}")
    print(f"{title}: root mean square errors", np.round(errors, 2))
axes[0].legend(markerscale=3)
tiles = [X[i].reshape(32, 32).T for i in order[:9]]
axes[2].imshow(np.vstack([np.hstack(tiles[k : k + 3]) for k in (0, 3, 6)]), cmap="gray")
axes[2].set(title="nine of the pictures", xticks=[], yticks=[])
plt.show()

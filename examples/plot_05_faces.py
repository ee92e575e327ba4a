"""
How is the face turned, and where is the light?
===============================================

698 pictures of one face, 32 by 32 pixels. Each has three numbers: the direction of the light, and how the
head is turned left and right, up and down. The model finds three coordinates in 1024 pixels.
"""

# %%
# The pictures came with Isomap (Tenenbaum, de Silva and Langford, Science 290, 2000). They are not
# shipped: `GREENFOLD_DATA` names a folder with `manifolds/faces.npz`, X (698, 1024) and Y (698, 3).
# sphinx_gallery_thumbnail_path = 'images/gallery/plot_05_faces.png'
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from greenfold import IGLRegressor

with np.load(Path(os.environ["GREENFOLD_DATA"]) / "manifolds" / "faces.npz") as file:
    X, Y = file["X"].astype(float), file["Y"].astype(float)
Y = (Y - Y.mean(0)) / Y.std(0)
order = np.random.default_rng(0).permutation(len(X))
rows, new = order[:400], order[400:]

# %%
# One fit for all three numbers.
model = IGLRegressor(random_state=0).fit(X[rows], Y[rows])
errors = np.sqrt(np.mean((model.predict(X[new]) - Y[new]) ** 2, axis=0))
print(model.standings_[0].name)
print(", ".join(f"{n} off by {e:.3f}" for n, e in zip(("light", "pan", "tilt"), errors)))

# %%
# New faces on the first two coordinates. Nobody told the model what a head is.
xi = model.transform(X[new])
figure, ax = plt.subplots(figsize=(9, 6), layout="constrained")
ax.scatter(xi[:, 0], xi[:, 1], c=Y[new, 1], s=10, cmap="coolwarm")
taken = []
for i in range(len(xi)):
    place = (xi[i, :2] - xi[:, :2].min(0)) / np.ptp(xi[:, :2], axis=0)
    if all(np.abs((place - other) * [1.5, 1]).max() > 0.12 for other in taken):
        taken.append(place)
        box = ax.inset_axes([*(0.93 * place + 0.035 - [0.035, 0.05]), 0.07, 0.1])
        box.imshow(X[new][i].reshape(32, 32).T, cmap="gray")
        box.set_axis_off()
ax.set(title="298 new faces, colored by how they are turned", xlabel=r"$\xi_1$", ylabel=r"$\xi_2$")
plt.show()

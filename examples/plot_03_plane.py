"""
Which two directions of a hundred columns matter?
=================================================

300 rows of 100 columns. They fill a ten-dimensional plane, and the target depends on two of its
directions. Nobody says which.
"""

# %%
# The first 300 rows are learned from, the others are new.
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV

from greenfold import IGLRegressor
from greenfold.datasets import hidden_plane

X, y, z = hidden_plane(1300, n_hidden=10, noise=0.1)
rows, new = slice(300), slice(300, None)

# %%
# No settings on one side; on the other kernel ridge, its width and penalty chosen by cross-validation.
start = time.process_time()
model = IGLRegressor(random_state=0).fit(X[rows], y[rows])
print(f"{time.process_time() - start:.0f} CPU-seconds, {len(model.gates_)} coordinates")
grid = {"gamma": np.logspace(-4, 1, 11), "alpha": np.logspace(-5, 1, 7)}
peer = GridSearchCV(KernelRidge(kernel="rbf"), grid).fit(X[rows], y[rows])
print(f"R² of kernel ridge {peer.score(X[new], y[new]):.2f}")
print(f"R² of IGLRegressor {model.score(X[new], y[new]):.2f}")

# %%
# Are the coordinates that it found the two that matter? Regress each on all ten hidden ones: the weights
# should lie on the first two.
xi = model.transform(X[new])
weights = np.linalg.lstsq(z[new], xi - xi.mean(0), rcond=None)[0]  # (10, 2)
share = (weights[:2] ** 2).sum() / (weights**2).sum()
print(f"{share:.1%} of the coordinates is made of the two directions that matter")

# %%
# The hidden truth, and what was found: the same picture, turned.
figure, panels = plt.subplots(1, 3, figsize=(12, 3.7), layout="constrained")
panels[0].scatter(*z[new, :2].T, c=y[new], s=9)
panels[0].set(title="hidden: the two directions that matter", xlabel="$z_1$", ylabel="$z_2$")
panels[1].scatter(*xi.T, c=y[new], s=9)
panels[1].set(title="found in 100 columns", xlabel=r"$\xi_1$", ylabel=r"$\xi_2$")
panels[2].plot(y[new], peer.predict(X[new]), "o", ms=2.5, color="0.65", label="kernel ridge")
panels[2].plot(y[new], model.predict(X[new]), "o", ms=2.5, color="C0", label="IGLRegressor")
panels[2].axline((0, 0), slope=1, color="k", lw=0.8)
panels[2].set(title="new rows", xlabel="true", ylabel="predicted")
panels[2].legend()
plt.show()

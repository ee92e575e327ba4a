"""
Which four of 32 inputs matter?
===============================

A simulated robot arm has 32 inputs: angles, speeds, torques. One number, the acceleration of its hand,
comes out. It depends on four of the inputs. Which, and how?
"""

# %%
# pumadyn32nm of DELVE. It is not shipped: `GREENFOLD_DATA` names a folder with
# `uci/pumadyn32nm/data.csv.gz`, 33 columns, the last of which is the target.
# sphinx_gallery_thumbnail_path = 'images/gallery/plot_06_which_inputs.png'
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from greenfold import IGLRegressor

table = np.loadtxt(
    Path(os.environ["GREENFOLD_DATA"]) / "uci" / "pumadyn32nm" / "data.csv.gz", delimiter=","
)
X, y = table[:, :-1], table[:, -1]
y = (y - y.mean()) / y.std()

# %%
# 1500 rows to learn from, 2000 new ones to judge by. Every column keeps an axis of its own, and the model
# learns how far it is stretched. A column that does nothing is squeezed to nothing.
model = IGLRegressor(random_state=0).fit(X[:1500], y[:1500])
print(f"R² {model.score(X[-2000:], y[-2000:]):.3f} on new rows")
print(model.standings_[0].name)
stretch = np.abs(np.diag(model.loadings_)) * X.std(0)
four = np.argsort(-stretch)[:4]
print("inputs that matter:", sorted(four.tolist()))

# %%
# Most of the target is one pair of them: what the two do together.
print(model.effects_)
pair = model.effects_[0]
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.9), layout="constrained")
colors = ["C0" if j in four else "0.75" for j in range(32)]
left.bar(range(32), stretch / stretch.max(), color=colors)
left.set(title="how far each axis is stretched", xlabel="input", xticks=range(0, 32, 4))
mesh = right.pcolormesh(*pair.grid, pair.values.T, cmap="RdBu_r", shading="gouraud")
figure.colorbar(mesh, ax=right, label="effect")
right.set(title=f"{' × '.join(pair.columns)}: {pair.share:.0%} of the prediction")
right.set(xlabel=pair.columns[0], ylabel=pair.columns[1])
plt.show()

"""
What is behind a curve?
=======================

Forty noisy points of a curve. The model is the response of an equation to sources at these points. Where
the source is strong, the curve bends.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from greenfold import IGLRegressor

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 10, 40))
truth = lambda x: np.sin(x) + 1.5 * np.exp(-(((x - 6.5) / 0.7) ** 2))  # noqa: E731
y = truth(x) + 0.15 * rng.normal(size=40)

# %%
# Fit, predict, and ask how sure the model is. The interval is made of errors at rows left out.
model = IGLRegressor(operator="heat", random_state=0).fit(x[:, None], y)
grid = np.linspace(0, 10, 400)
u = model.predict(grid[:, None])
low, high = model.predict_interval(grid[:, None], alpha=0.1)
print(f"noise: 0.15, found: {np.std(y - model.predict(x[:, None])):.2f}")
print(f"off the truth by {np.sqrt(np.mean((u - truth(grid)) ** 2)):.2f}")

# %%
# Above: the points, the truth, the prediction. Below: the source, a strength at every anchor.
figure, (above, below) = plt.subplots(
    2, 1, figsize=(8, 5.2), sharex=True, height_ratios=[2.2, 1], layout="constrained"
)
above.fill_between(grid, low, high, color="C0", alpha=0.18, lw=0, label="90% interval")
above.plot(grid, truth(grid), "--", color="0.5", label="truth")
above.plot(grid, u, "C0", lw=2, label="prediction")
above.plot(x, y, "ko", ms=4, label="rows")
above.legend(ncols=2, fontsize="small")
anchors = model.model_.sources.x.numpy() * model.units_.x.scale + model.units_.x.shift
anchors = anchors[:, 0] * model.units_.x.unit
below.axhline(0, color="0.7", lw=0.8)
below.vlines(anchors, 0, model.source_[:, 0], color="C3")
below.plot(anchors, model.source_[:, 0], "o", color="C3", ms=4)
below.set(xlabel="x", ylabel="source")
above.set(ylabel="y")
plt.show()

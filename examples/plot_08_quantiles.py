"""
What range will it be in?
=========================

The noise of this target grows with x, and it is skewed. A mean and one standard deviation would mislead.
Quantiles tell the range: 5% of new values should lie below the lowest curve, 5% above the highest.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from greenfold import IGLRegressor
from greenfold.likelihoods import Quantile


def draw(n, rng):
    x = np.sort(rng.uniform(0, 10, n))
    return x, np.sin(x) + 0.15 * (1 + x) * rng.gamma(1.5, 0.5, n)


x, y = draw(500, np.random.default_rng(0))
x_new, y_new = draw(5000, np.random.default_rng(1))

# %%
# One model for three levels. They never cross.
levels = [0.05, 0.5, 0.95]
model = IGLRegressor(likelihood=Quantile(levels), random_state=0).fit(x[:, None], y)
below = (y_new[:, None] < model.predict(x_new[:, None])).mean(0)
print(
    ", ".join(
        f"{level:.0%}: {found:.1%} of new values below" for level, found in zip(levels, below)
    )
)

# %%
grid = np.linspace(0, 10, 300)
low, middle, high = model.predict(grid[:, None]).T
figure, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
ax.plot(x, y, "o", ms=2.5, color="0.5")
ax.fill_between(grid, low, high, color="C0", alpha=0.2, lw=0, label="5% to 95%")
ax.plot(grid, middle, "C0", lw=2, label="median")
ax.set(xlabel="x", ylabel="y")
ax.legend()
plt.show()

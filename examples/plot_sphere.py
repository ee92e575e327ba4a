"""
Temperature on sphere × year
============================

Places on the globe are points of a sphere and days are points of a circle: neither has an edge. A
`Product` of the two has the Green's function of (κ² − D₁Δ − D₂∂²)³; its source is solved for from a few
hundred readings. The truth is known here, so that predictions can be held against it everywhere.
"""

# %%
# A year of temperatures: cold poles, seasons that are opposite in north and south and stronger inland,
# and a warm current. Stations stand on two continents and some islands; each has read four days.

import matplotlib.pyplot as plt
import numpy as np

from greenfold import IGLRegressor, Source, Training
from greenfold.green import Circle, Product, Sphere

rng = np.random.default_rng(0)


def points(latitude, longitude):
    return Sphere.at(latitude, longitude).numpy()


INLAND, CURRENT = points([50, -15], [100, -60]), points(60, 0)


def temperature(p, t):
    """Of places (n, 3) at times of the year t (n,), in °C."""
    inland = np.exp(3 * (p @ INLAND.T - 1)).sum(1)
    season = -p[:, 2] * (8 + 14 * inland) * np.cos(2 * np.pi * (t - 0.05))
    return 27 - 45 * p[:, 2] ** 2 + season + 9 * np.exp(8 * (p @ CURRENT - 1))


def near(latitude, longitude, spread, n):
    p = points(latitude, longitude) + spread * rng.normal(size=(n, 3))
    return p / np.linalg.norm(p, axis=1, keepdims=True)


stations = np.vstack([near(50, 90, 0.4, 70), near(-10, -60, 0.4, 50), near(0, 0, 5, 80)])
p = np.repeat(stations, 4, axis=0)
t = rng.uniform(0, 1, len(p))
X, y = np.c_[p, t], temperature(p, t) + rng.normal(size=len(p))  # 1 °C of noise

# %%
# Columns go in as they are: three for the sphere, one for the year. κ and both diffusivities are learned
# by the evidence. Readings of one station are left out together.
globe = Product(
    [Sphere(learn=True), Circle(period=1.0, diffusivity=0.05, learn=True)],
    kappa=1.0,
    power=3.0,
    learn=True,
)
model = IGLRegressor(
    operator=globe, source=Source(n_atoms=250), training=Training(max_iter=15), random_state=0
)
model.fit(X, y, groups=np.repeat(np.arange(len(stations)), 4))
print(
    f"what each factor explains: sphere {model.explained_[0]:.2f}, year {model.explained_[1]:.2f}"
)

# %%
# The same learner with latitude, longitude and day as if they were lines.
flat_X = np.c_[np.arcsin(p[:, 2]), np.arctan2(p[:, 1], p[:, 0]), t]
flat = IGLRegressor(random_state=0).fit(flat_X, y)

# %%
# Against the truth, at places all over the globe and days all over the year.
q = near(0, 0, 1e3, 4000)
s = rng.uniform(0, 1, len(q))
truth = temperature(q, s)
u, std = model.predict(np.c_[q, s], return_std=True)
lines = flat.predict(np.c_[np.arcsin(q[:, 2]), np.arctan2(q[:, 1], q[:, 0]), s])
print(f"error on sphere × year {np.sqrt(np.mean((u - truth) ** 2)):.2f} °C")
print(f"error on three lines   {np.sqrt(np.mean((lines - truth) ** 2)):.2f} °C")

# %%
# January, and one place through two winters: nothing happens at New Year.
latitude, longitude = np.meshgrid(
    np.linspace(-90, 90, 61), np.linspace(-180, 180, 121), indexing="ij"
)
everywhere = points(latitude.ravel(), longitude.ravel())
january = np.c_[everywhere, np.full(len(everywhere), 0.04)]
fields = temperature(everywhere, january[:, 3]), model.predict(january)
figure, axes = plt.subplots(2, 2, figsize=(11, 6), layout="constrained")
for ax, field, title in zip(
    axes[0], fields, ("true, January", "predicted, and stations"), strict=True
):
    drawn = ax.pcolormesh(
        longitude, latitude, field.reshape(latitude.shape), cmap="RdYlBu_r", vmin=-45, vmax=35
    )
    ax.set(title=title, xlabel="longitude", ylabel="latitude")
where = np.rad2deg([np.arctan2(stations[:, 1], stations[:, 0]), np.arcsin(stations[:, 2])])
axes[0, 1].plot(*where, "k.", ms=3)
figure.colorbar(drawn, ax=axes[0], label="°C")

_, doubt = model.predict(january, return_std=True)
drawn = axes[1, 0].pcolormesh(longitude, latitude, doubt.reshape(latitude.shape), cmap="viridis")
axes[1, 0].plot(*where, "w.", ms=2)
axes[1, 0].set(title="standard deviation, January", xlabel="longitude", ylabel="latitude")
figure.colorbar(drawn, ax=axes[1, 0], label="°C")

days = np.linspace(-0.5, 1.5, 200)
for name, place, color in (("55° N, 90° E", (55, 90), "C0"), ("35° S, 65° W", (-35, -65), "C3")):
    there = np.repeat(points(*place)[None], len(days), axis=0)
    u, std = model.predict(np.c_[there, days], return_std=True)
    axes[1, 1].fill_between(days, u - 2 * std, u + 2 * std, color=color, alpha=0.2, lw=0)
    axes[1, 1].plot(days, u, color=color, label=name)
    axes[1, 1].plot(days, temperature(there, days), "k--", lw=0.8)
axes[1, 1].set(
    title="two places (dashed: true), ± 2 standard deviations", xlabel="year", ylabel="°C"
)
axes[1, 1].legend()
plt.show()

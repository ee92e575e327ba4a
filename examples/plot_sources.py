"""
Which of the tanks leaks?
=========================

A yard of 200 by 120 meters, a steady breeze, and gas in the air. Eighteen sensors stand along the fence
and between the tanks, and two lasers look across the yard: each reads the mean along its beam. Where does
the gas come from, how much of it, and where along the fence should three more sensors stand?
"""

# %%
# The breeze blows at 2 m/s towards east-northeast, turbulence spreads what it carries at 15 m²/s, and
# nothing decays on the way; up and down the air is mixed. Meters, seconds, grams.
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

from greenfold import SourceFinder
from greenfold.green import Transport
from greenfold.sources import Average

rng = np.random.default_rng(7)
breeze = np.array([1.9, 0.6])
truth = Transport(0.0, wind=breeze, diffusivity=15.0)
tanks = {"A": (40, 35), "B": (75, 80), "C": (110, 40), "D": (140, 85), "E": (60, 55)}
leaks = {"B": 1.5, "C": 0.8}  # grams per second

# %%
# Two leaks, as sensors with an error of 4% of their mean read them.
fence = [(x, y) for x in (30, 90, 150, 195) for y in (5, 115)] + [(195, 40), (195, 80)]
inside = [(x, y) for x in (95, 125, 160) for y in (30, 60, 95)][:8]
lasers = [Average((105, 10), (105, 110)), Average((170, 10), (170, 110))]
sensors = [*fence, *inside, *lasers]
finder = SourceFinder(truth, region=[[0, 0], [200, 120]])
clean = finder.simulate([tanks[name] for name in leaks], list(leaks.values()), sensors)
readings = clean + 0.04 * clean.mean() * rng.normal(size=len(clean))

# %%
# The weather station is some way off, so its breeze is a first guess: the wind is learned with the leaks.
guess = Transport(0.0, wind=(1.6, 0.3), diffusivity=15.0)
finder = SourceFinder(guess, region=[[0, 0], [200, 120]], learn="wind").fit(sensors, readings)
for source in finder.sources_:
    nearest = min(tanks, key=lambda name: np.linalg.norm(source.position - tanks[name]))
    x, y = source.position
    print(
        f"{source.strength:.2f} ± {source.strength_std:.2f} g/s at ({x:.0f}, {y:.0f}) ± "
        f"{source.position_std.max():.0f} m: tank {nearest}"
    )
print(
    f"in all {finder.total_.value:.2f} ± {finder.total_.std:.2f} g/s, truly {sum(leaks.values())}"
)
wind = [finder.physics_[f"wind[{j}]"] for j in range(2)]
print("wind " + ", ".join(f"{v.value:.2f} ± {v.std:.2f}" for v in wind) + f" m/s, truly {breeze}")

# %%
# Three more sensors along the fence, where they make the total surest.
walk = np.linspace(0, 1, 41)[:, None]
corners = np.array([(2, 2), (198, 2), (198, 118), (2, 118), (2, 2)])
candidates = np.vstack([a + walk * (b - a) for a, b in pairwise(corners)])
more = finder.suggest(candidates, 3)
print(f"with three more sensors the total would be known to ± {more.std[-1]:.3f} g/s")

# %%
figure = finder.plot()
ax = figure.axes[0]
for name, place in tanks.items():
    ax.annotate(name, place, color="white", weight="bold", ha="center", va="center")
for laser in lasers:
    ax.plot(*zip(laser.low, laser.high), color="white", lw=1)
ax.plot(*candidates[more.indices].T, "*", ms=11, color="white", mec="black")
ax.set(title="gas in the air, leaks with 90% ellipses, next sensors", xlabel="m", ylabel="m")
plt.show()

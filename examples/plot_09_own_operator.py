"""
When was the bell struck? An operator of your own
=================================================

A bell rings on after every stroke. Its equation is u″ + 2ζωu′ + ω²u = f: the source f is the hand that
strikes it. From a noisy recording of u we want f. greenfold has no bell, so we write one.
"""

# %%
# An operator is a class with one method: the response at ξ (n, d) to sources at μ (r, d). For points
# that is the Green's function. The bell is silent before it is struck, then e^{−ζωt} sin(ω't)/ω'.
import matplotlib.pyplot as plt
import numpy as np
import torch

from greenfold import Design
from greenfold.green import Operator, Point
from greenfold.solve import GroupLasso, Ridge


class Bell(Operator):
    """∂² + 2ζω∂ + ω² on the line, at rest before the first source."""

    accepts = (Point,)

    def __init__(self, omega: float, zeta: float):
        super().__init__()
        self.omega, self.zeta = omega, zeta

    def _response(self, xi, atoms, gate):
        t = xi[:, None, 0] - atoms.mu[None, :, 0]  # (n, r)
        swing = self.omega * (1 - self.zeta**2) ** 0.5
        ringing = torch.exp(-self.zeta * self.omega * t.clamp_min(0)) * torch.sin(swing * t) / swing
        return torch.where(t > 0, ringing, 0.0)


# %%
# Does it solve its equation? Differences of the response, away from the source, leave nothing.
bell = Bell(omega=9.0, zeta=0.04)
t, h = torch.linspace(1, 8, 50, dtype=torch.float64)[:, None], 1e-4
origin = Point(torch.zeros(1, 1, dtype=torch.float64))
before, now, after = (bell.response(t + s, origin) for s in (-h, 0, h))
left = (after - 2 * now + before) / h**2 + 2 * 0.04 * 9 * (after - before) / (2 * h) + 81 * now
print(f"what is left of the equation: {float(left.abs().max()):.0e}")

# %%
# Four strokes, recorded with noise. The source is looked for at 161 moments: a group lasso leaves few of
# them, and a solve without its shrinkage finds how hard the strokes were.
strokes, strengths = np.array([0.7, 2.1, 3.4, 5.8]), np.array([1.0, 0.6, -0.8, 1.2])
time = torch.linspace(0, 8, 600, dtype=torch.float64)[:, None]
clean = bell.response(time, Point(torch.from_numpy(strokes)[:, None])) @ torch.from_numpy(strengths)
noise = torch.from_numpy(np.random.default_rng(0).normal(size=600))
heard = clean + 0.1 * clean.std() * noise

moments = torch.linspace(0, 8, 161, dtype=torch.float64)[:, None]
Phi = bell.response(time, Point(moments))
one = torch.ones(161, dtype=torch.float64)
sparse = GroupLasso(strength=0.1).solve(Design(Phi, one), heard[:, None]).w[:, 0]
kept = sparse.nonzero()[:, 0]
w = torch.zeros(161, dtype=torch.float64)
w[kept] = Ridge(1e-6).solve(Design(Phi[:, kept], one[kept]), heard[:, None]).w[:, 0]
for i in kept:
    print(f"struck at {moments[i, 0]:.2f} with {w[i]:+.2f}")

# %%
figure, (above, below) = plt.subplots(2, 1, figsize=(8.5, 4.6), sharex=True, layout="constrained")
above.plot(time[:, 0], heard, color="0.7", lw=0.8, label="recorded")
above.plot(time[:, 0], Phi @ w, "C0", lw=1.3, label="response to the source found")
above.legend(loc="upper left", fontsize="small")
below.vlines(strokes, 0, strengths, color="0.6", lw=6, alpha=0.5, label="strokes")
below.vlines(moments[:, 0], 0, w, color="C3", lw=1.6, label="source found")
below.axhline(0, color="0.7", lw=0.8)
below.legend(loc="upper right", fontsize="small")
below.set(xlabel="seconds")
plt.show()

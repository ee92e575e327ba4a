"""
What does one source look like under each operator?
===================================================

A source is where something comes from. An operator says how it spreads. The response is what arrives.
Here is one small Gaussian source, and the response of ten operators to it.
"""

# %%
# One source, to the left of the middle, and the places where we look.
import matplotlib.pyplot as plt
import torch

from greenfold.green import (
    Cauchy,
    Fractional,
    Gaussian,
    HarmonicOscillator,
    Heat,
    Interval,
    Matern,
    Poisson,
    ProductScreened,
    ScreenedPoisson,
    Transport,
)

source = Gaussian(mu=torch.tensor([[-0.6, 0.4]]), sigma=0.15)
point = Gaussian(mu=torch.tensor([[-0.6, 0.4]]), sigma=0.03)
line = torch.linspace(-2, 2, 121, dtype=torch.float64)
places = torch.stack(torch.meshgrid(line, line, indexing="xy"), dim=-1).reshape(-1, 2)

# %%
# Ten operators. Heat blurs. Poisson reaches far, and screening (κ) ends its reach. A wind carries, walls
# absorb, an oscillator pulls everything to the middle.
walls = Interval(-2, 2, "dirichlet")
operators = {
    "Heat, t = 0.1": Heat(0.1),
    "Poisson": Poisson(),
    "ScreenedPoisson, κ = 2": ScreenedPoisson(2.0),
    "Matern, ν = 3/2": Matern(nu=1.5),
    "Fractional, s = 1/2": Fractional(0.5),
    "Cauchy": Cauchy(0.5),
    "HarmonicOscillator": HarmonicOscillator(3.0),
    "walls that absorb": ScreenedPoisson(0.3, domain=(walls, walls)),
    "Transport, a wind": Transport(kappa=0.5, wind=(4.0, -2.0)),
    "ProductScreened": ProductScreened(2.0),
}
figure, panels = plt.subplots(2, 5, figsize=(13, 5.4), layout="constrained")
for (name, operator), panel in zip(operators.items(), panels.flat, strict=True):
    kind = source if not operator.refuses(Gaussian) else point
    with torch.no_grad():
        u = operator.response(places, kind)[:, 0].reshape(121, 121)
    panel.pcolormesh(line, line, u, cmap="viridis", rasterized=True)
    panel.contour(line, line, u, 7, colors="white", linewidths=0.6, alpha=0.7)
    panel.plot(-0.6, 0.4, "+", color="red", ms=9)
    panel.set(title=name, xticks=[], yticks=[], aspect="equal")
plt.show()

# %%
# The red cross is the source. Only the operator differs from panel to panel. A model in greenfold is a
# sum of such responses, with strengths that are solved for.

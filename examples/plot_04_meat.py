"""
How much fat is in the meat?
============================

Light of 100 wavelengths through 215 samples of meat (recorded on a Tecator Infratec Food and Feed
Analyzer). The fat depends on two coordinates of the spectrum, and not along straight lines.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.cross_decomposition import PLSRegression
from sklearn.model_selection import GridSearchCV

from greenfold import IGLRegressor, plot
from greenfold.datasets import load_tecator

meat = load_tecator()
fat = meat.Y[:, meat.names.index("fat")]
learn, test = meat.split == 0, meat.split == 1

# %%
# No settings, but that columns are channels in this order. Beside it partial least squares, the tool
# of the trade, with the number of components chosen by cross-validation.
model = IGLRegressor(channels=meat.wavelengths, random_state=0).fit(meat.X[learn], fat[learn])
print(model.standings_[0])
pls = GridSearchCV(PLSRegression(), {"n_components": range(1, 30)}, cv=10)
pls.fit(meat.X[learn], fat[learn])
predicted = {
    "PLS": np.ravel(pls.predict(meat.X[test])),
    "IGLRegressor": model.predict(meat.X[test]),
}
errors = {name: np.sqrt(np.mean((p - fat[test]) ** 2)) for name, p in predicted.items()}
print({name: f"{error:.2f} % of fat" for name, error in errors.items()})

# %%
# From 100 channels to two coordinates to the fat.
figure, (a, b, c) = plt.subplots(1, 3, figsize=(12.5, 3.7), layout="constrained")
for row in np.flatnonzero(learn)[::3]:
    a.plot(meat.wavelengths, meat.X[row], lw=0.7, color=plt.cm.viridis(fat[row] / fat[learn].max()))
a.set(title="spectra, yellow is fat", xlabel="wavelength (nm)", ylabel="absorbance")
dots = b.scatter(*model.transform(meat.X[learn]).T, c=fat[learn], s=16)
figure.colorbar(dots, ax=b, label="fat (%)")
b.set(title="two coordinates found in 100 channels", xlabel=r"$\xi_1$", ylabel=r"$\xi_2$")
for (name, values), color in zip(predicted.items(), ("0.65", "C0")):
    c.plot(fat[test], values, "o", ms=4, color=color, label=f"{name}, off by {errors[name]:.2f}")
c.axline((0, 0), slope=1, color="k", lw=0.8)
c.set(title="43 new samples", xlabel="fat measured (%)", ylabel="fat predicted (%)")
c.legend()
plt.show()

# %%
# What the coordinates are made of: weights of the channels, through the derivative that was chosen.
figure = plot.loadings(model)
plt.show()

# %%
# `model.report("report.html", meat.X[test], fat[test])` writes the page of this model.

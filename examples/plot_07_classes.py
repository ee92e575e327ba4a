"""
How sure is a classifier?
=========================

Cells of 569 tumors, 30 numbers each: benign or malignant? A label is not enough here. The probabilities
should be right, too: of the cases called 80% malignant, eight in ten should be.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from greenfold import IGLClassifier

data = load_breast_cancer()
X, malignant = data.data, 1 - data.target

# %%
# Every case is predicted by a model that has not seen it.
folds = StratifiedKFold(3, shuffle=True, random_state=0)
model = IGLClassifier(random_state=0)
p = cross_val_predict(model, X, malignant, cv=folds, method="predict_proba")[:, 1]
print(f"{np.mean((p > 0.5) == malignant):.1%} right, log-loss {log_loss(malignant, p):.3f}")

# %%
# Where is it unsure? Left: the chart of one model, with its rows. Right: how often cases of each
# predicted probability are malignant, with one standard error.
model.fit(X, malignant)
xi = model.transform(X)
first, second = np.argsort(-xi.std(0))[:2]
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
dots = left.scatter(xi[:, first], xi[:, second], c=p, s=14, cmap="coolwarm", vmin=0, vmax=1)
figure.colorbar(dots, ax=left, label="probability, predicted unseen")
left.set(title=f"569 cases on two of {xi.shape[1]} coordinates", xticks=[], yticks=[])
edges = np.array([0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1])
group = np.digitize(p, edges[1:-1])
for g in range(len(edges) - 1):
    inside = group == g
    if inside.sum() > 3:
        share, n = malignant[inside].mean(), inside.sum()
        bar = np.sqrt((share * (1 - share) + 1 / n) / n)
        right.errorbar(p[inside].mean(), share, bar, fmt="o", color="C0", capsize=3)
        right.annotate(
            f"{n}", (p[inside].mean(), share), xytext=(7, -4), textcoords="offset points"
        )
right.axline((0, 0), slope=1, color="k", lw=0.8)
right.set(title="are probabilities right?", xlabel="predicted", ylabel="share that is malignant")
plt.show()

"""
An autoencoder that also knows its classes
==========================================

Two heads share the codes of one encoder: a decoder draws the picture again, an `IGLHead` names it. The
gates of the head tell which of the codes the classes need.
"""

# %%
# Pictures of handwritten digits, 8 by 8.

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import silhouette_score
from torch import nn

from greenfold import IGLHead

torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images / 16).float(), torch.tensor(labels)
n = 1400

# %%
# Any encoder will do. Codes of unit variance give gates and distances a common measure.
encoder = nn.Sequential(
    nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 24), nn.BatchNorm1d(24, affine=False)
)
decoder = nn.Sequential(nn.Linear(24, 128), nn.ReLU(), nn.Linear(128, 64), nn.Sigmoid())
head = IGLHead(24, 10)
parts = nn.ModuleList([encoder, decoder, head])
optimizer = torch.optim.Adam(parts.parameters(), lr=3e-3)

# %%
# An ordinary loop. `head.loss` solves for the weights of the response and has the gradient through the
# solve; the gates are pressed for 70% of the steps, then the small ones are cut.
n_steps, history = 1500, []
for step in range(n_steps):
    rows = torch.randint(n, (128,))
    h = encoder(x[rows])
    loss = (decoder(h) - x[rows]).square().mean() + 0.1 * head.loss(h, y[rows])
    if step < 0.7 * n_steps:
        loss = loss + 0.003 * head.gate_norm()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == int(0.7 * n_steps):
        head.prune()
    history.append(head.gates.detach().numpy().copy())

# %%
# Unseen digits: how well they are named, drawn, and how far apart their classes lie.
parts.eval()
with torch.no_grad():
    codes = encoder(x)
    head.solve([(codes[:n], y[:n])])  # once more, on all rows
    right = (head(codes[n:]).argmax(1) == y[n:]).float().mean()
    rebuilt = decoder(codes[n:])
    seen = codes[n:] * head.roots
print(f"{right:.3f} of unseen digits named, {int((head.gates > 0).sum())} of 24 gates open")
print(f"mean squared error of the pictures {float((rebuilt - x[n:]).square().mean()):.4f}")
print(
    f"silhouette of the classes {silhouette_score(seen, y[n:]):.2f} in the gated codes, "
    f"{silhouette_score(codes[n:], y[n:]):.2f} in all"
)

# %%
figure, (gates, drawn) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
gates.plot(history, lw=0.8)
gates.set(title="gates while learning", xlabel="step", ylabel="g")
pairs = torch.stack([x[n : n + 10], rebuilt[:10]]).reshape(2, 10, 8, 8)
pairs = nn.functional.pad(pairs, (1, 1, 2, 2))  # (2, 10, 12, 10)
drawn.imshow(pairs.permute(0, 2, 1, 3).reshape(24, 100).numpy(), cmap="gray_r")
drawn.set(title="unseen digits, and drawn from their codes", xticks=[], yticks=[])
plt.show()

"""A small residual network, and what stands behind its codes."""

import torch
from torch import Tensor, nn

from greenfold.experiments.exp7.networks import rebuilt_loss
from greenfold.head import IGLHead

CLASSIFIERS = ("cross-entropy", "two-stage", "joint", "two-stage, cross-entropy")
AUTOENCODERS = ("AE", "AE + two-stage")
METHODS = (*CLASSIFIERS, *AUTOENCODERS)


class Block(nn.Module):
    """Two convolutions of 3 by 3 beside a short cut."""

    def __init__(self, n_in: int, n_out: int, stride: int):
        super().__init__()
        self.bent = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(),
            nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False), nn.BatchNorm2d(n_out),
        )  # fmt: skip
        same = stride == 1 and n_in == n_out
        self.straight = nn.Identity() if same else nn.Conv2d(n_in, n_out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.bent(x) + self.straight(x))


class Network(nn.Module):
    """x (n, 3, 32, 32) → code (n, d) → what the method makes of it.

    Codes are standardized by batch, without learned scales, so that gates and distances mean the same in
    all methods.
    """

    def __init__(self, method: str, width: int, n_dims: int, n_atoms: int):
        super().__init__()
        if method not in METHODS:
            raise ValueError(f"`method` must be one of {METHODS}, got {method!r}.")
        self.method, self.n_dims = method, n_dims
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2),
            nn.Flatten(), nn.Linear(64 * width, n_dims), nn.BatchNorm1d(n_dims, affine=False),
        )  # fmt: skip
        self.head: IGLHead | None = None
        self.linear = nn.Linear(n_dims, 10) if method == "cross-entropy" else None
        if "two-stage" in method or method == "joint":
            self.head = IGLHead(
                n_dims,
                10,
                atoms=n_atoms,
                mode="joint" if method == "joint" else "two-stage",
                loss="cross-entropy" if method.endswith(", cross-entropy") else "residual",
            )
        self.decoder = decoder(width, n_dims) if method in AUTOENCODERS else None

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x)

    @property
    def roots(self) -> Tensor:
        """√g (d,), by which the head sees the codes; ones without a head."""
        return torch.ones(self.n_dims) if self.head is None else self.head.roots

    def loss(self, x: Tensor, y: Tensor, weight: float) -> Tensor:
        """`weight` is that of the head beside a decoder."""
        h = self(x)
        if self.linear is not None:
            return nn.functional.cross_entropy(self.linear(h), y)
        added = torch.zeros(()) if self.head is None else self.head.loss(h, y)
        if self.decoder is None:
            return added
        return rebuilt_loss(self.decoder(h), x) + weight * added

    def logits(self, h: Tensor) -> Tensor:
        """Of codes (n, d)."""
        part = self.linear if self.linear is not None else self.head
        assert part is not None
        return part(h)


def decoder(width: int, n_dims: int) -> nn.Sequential:
    few, many = 2 * width, 4 * width
    return nn.Sequential(
        nn.Linear(n_dims, 16 * many), nn.ReLU(), nn.Unflatten(1, (many, 4, 4)),
        nn.ConvTranspose2d(many, few, 4, 2, 1, bias=False), nn.BatchNorm2d(few), nn.ReLU(),
        nn.ConvTranspose2d(few, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Sigmoid(),
    )  # fmt: skip

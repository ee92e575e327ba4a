"""The autoencoder all methods share, and the method's own part of the loss."""

import torch
from torch import Tensor, nn

from greenfold.head import IGLHead

METHODS = (
    "AE",
    "AE+KL",
    "AE+contrastive",
    "AE+IGL two-stage",
    "AE+IGL joint",
    "AE+IGL two-stage, gated decoder",
    "AE+IGL joint, gated decoder",
)


def has_head(method: str) -> bool:
    return "IGL" in method


class Autoencoder(nn.Module):
    """x (n, 1, s, s) → code h (n, d) → x̂ (n, 1, s, s), with what the method adds.

    Codes are standardized by batch, without learned scales, so that gates and distances mean the same
    in all methods. Kullback–Leibler training needs the scale of the code and has its own log variance.
    """

    def __init__(self, method: str, side: int, n_dims: int, n_classes: int, n_atoms: int):
        super().__init__()
        if method not in METHODS:
            raise ValueError(f"`method` must be one of {METHODS}, got {method!r}.")
        self.method, self.n_dims = method, n_dims
        few, many, flat = 16, 32, 2 * side**2
        self.encoder = nn.Sequential(
            *[nn.Conv2d(1, few, 5, 2, 2, bias=False), nn.BatchNorm2d(few), nn.ReLU()],
            *[nn.Conv2d(few, many, 5, 2, 2, bias=False), nn.BatchNorm2d(many), nn.ReLU()],
            nn.Flatten(),
        )
        varied = method == "AE+KL"
        n_out = 2 * n_dims if varied else n_dims
        self.straight = nn.Linear(flat, n_out)  # what a picture looks like is nearly linear in it
        self.bent = nn.Sequential(nn.Linear(flat, 256), nn.ReLU(), nn.Linear(256, n_out))
        self.norm = nn.Identity() if varied else nn.BatchNorm1d(n_dims, affine=False)
        self.decoder = decoder(side, n_dims)
        self.head = None
        if has_head(method):
            mode = "joint" if "joint" in method else "two-stage"
            self.head = IGLHead(n_dims, n_classes, atoms=n_atoms, mode=mode)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Codes (n, d), and what else the encoder says of them: log variances, or nothing."""
        features = self.encoder(x)
        out = self.straight(features) + self.bent(features)
        h, rest = out.split([self.n_dims, out.shape[1] - self.n_dims], 1)
        return self.norm(h), rest

    @property
    def roots(self) -> Tensor:
        """√g (d,), by which the head sees the codes; ones without a head."""
        if self.head is None:
            return torch.ones(self.n_dims)
        return self.head.roots

    def seen(self, h: Tensor) -> Tensor:
        """What the decoder gets of the codes."""
        return h * self.roots if "gated" in self.method else h

    def losses(self, x: Tensor, y: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """Of the reconstruction, and of what the method adds to it."""
        h, rest = self(x)
        added = torch.zeros(())
        if self.method == "AE+KL":
            added = 0.5 * (h.square() + rest.exp() - rest - 1).sum(1).mean()
            h = h + (0.5 * rest).exp() * torch.randn_like(h)
        elif self.method == "AE+contrastive":
            added = contrast(h, y, temperature)
        elif self.head is not None:
            added = self.head.loss(h, y)
        return rebuilt_loss(self.decoder(self.seen(h)), x), added


def decoder(side: int, n_dims: int) -> nn.Sequential:
    few, many, small = 16, 32, side // 4
    return nn.Sequential(
        *[nn.Linear(n_dims, many * small**2), nn.ReLU(), nn.Unflatten(1, (many, small, small))],
        *[nn.ConvTranspose2d(many, few, 4, 2, 1, bias=False), nn.BatchNorm2d(few), nn.ReLU()],
        *[nn.ConvTranspose2d(few, 1, 4, 2, 1), nn.Sigmoid()],
    )


def rebuilt_loss(rebuilt: Tensor, x: Tensor, edges: float = 0.1) -> Tensor:
    """Mean squared difference of pixels, and of steps between neighboring ones with weight λ_e."""
    gap = rebuilt - x
    steps = gap.diff(dim=2).square().mean() + gap.diff(dim=3).square().mean()
    return gap.square().mean() + edges * steps


def contrast(h: Tensor, y: Tensor, temperature: float) -> Tensor:
    """Supervised contrastive loss: codes on the sphere, rows of one class attract [1]_.

    References
    ----------
    .. [1] P. Khosla et al., "Supervised contrastive learning", NeurIPS 2020.
    """
    z = nn.functional.normalize(h, dim=1)
    itself = torch.eye(len(z), dtype=torch.bool)
    logits = (z @ z.T / temperature).masked_fill(itself, -torch.inf)
    log_p = logits - logits.logsumexp(1, keepdim=True)
    same = (y[:, None] == y) & ~itself
    friends = same.sum(1)
    mean = log_p.masked_fill(~same, 0).sum(1) / friends.clamp_min(1)
    return -mean[friends > 0].mean()

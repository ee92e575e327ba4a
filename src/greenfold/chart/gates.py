"""Which chart coordinates are open."""

import torch
from torch import Tensor, nn


class Gates(nn.Module):
    """g (d,) in [0, 1]; closed gates are exact zeros.

    Parameters
    ----------
    n_dims : int
        d.
    learn : bool
        Learn how far they are open.

    Examples
    --------
    >>> from greenfold.chart import Gates
    >>> Gates(3)().tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, n_dims: int, *, learn: bool = False):
        super().__init__()
        self.value = nn.Parameter(torch.ones(n_dims, dtype=torch.float64), requires_grad=learn)

    def forward(self) -> Tensor:
        return self.value.clamp(0, 1)

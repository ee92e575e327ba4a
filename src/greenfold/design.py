"""The contract between the Green's response and the solver."""

import math
from typing import NamedTuple

import torch
from torch import Tensor


def all_finite(M: Tensor) -> bool:
    """No NaN and no infinity. A finite sum says so at once; an infinite one may be an overflow."""
    M = M.detach()
    return math.isfinite(float(M.sum())) or bool(M.isfinite().all())


def widest(device: torch.device) -> torch.dtype:
    """Float64, or float32 on a device that has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


class Design(NamedTuple):
    """The columns a solver fits, and which of them it may shrink.

    u = Φ w,   w = argmin ‖Φ w − Y‖² + α Σ_p c_p w_p²

    Attributes
    ----------
    Phi : Tensor of shape (n, p)
        Columns.
    penalty : Tensor of shape (p,)
        c: 1 on atoms, 0 on null-space columns.

    Examples
    --------
    >>> import torch
    >>> from greenfold import Design
    >>> Design.stack(torch.eye(3), torch.ones(3, 1)).penalty
    tensor([1., 1., 1., 0.])
    """

    Phi: Tensor  # (n, p)
    penalty: Tensor  # (p,)  c: 1 on atoms, 0 on null-space columns

    @staticmethod
    def stack(Phi: Tensor, null: Tensor | None = None) -> "Design":
        """Responses (n, r), penalized, and null-space columns (n, q), free.

        Parameters
        ----------
        Phi : Tensor of shape (n, r)
            Responses.
        null : Tensor of shape (n, q), optional
            Columns without penalty.

        Returns
        -------
        Design
        """
        penalty = Phi.new_ones(Phi.shape[1])
        if null is None:
            return Design(Phi, penalty)
        return Design(
            torch.cat([Phi, null.to(Phi)], dim=1),
            torch.cat([penalty, Phi.new_zeros(null.shape[1])]),
        )

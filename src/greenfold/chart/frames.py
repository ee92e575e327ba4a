"""Fixed first layers of charts: what a row is before it is looked at, without numbers learned from y."""

import torch
from torch import Tensor, nn


class SNV(nn.Module):
    """Each row minus its own mean, over its own standard deviation (standard normal variate).

    It takes out how thick a sample is and how much light it scatters, which shift and stretch a whole
    spectrum. No other row matters but for `center` (D,), which is subtracted at the end. Rows are given
    as (x − origin)/scale, with `origin` and `scale` (D,) of their columns.

    Parameters
    ----------
    scale, origin : Tensor of shape (D,)
        How rows were standardized, which is undone first.
    center : Tensor of shape (D,), optional
        Subtracted at the end.

    Examples
    --------
    >>> import torch
    >>> from greenfold.chart import SNV
    >>> row = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    >>> snv = SNV(torch.ones(3).double(), torch.zeros(3).double())
    >>> bool(torch.allclose(snv(row), snv(5 * row + 2)))  # thickness and scatter are gone
    True
    """

    scale: Tensor
    origin: Tensor
    center: Tensor

    def __init__(self, scale: Tensor, origin: Tensor, center: Tensor | None = None):
        super().__init__()
        self.register_buffer("scale", scale.clone())
        self.register_buffer("origin", origin.clone())
        self.register_buffer(
            "center", torch.zeros_like(scale) if center is None else center.clone()
        )

    def forward(self, x: Tensor) -> Tensor:
        row = x * self.scale.to(x.dtype) + self.origin.to(x.dtype)
        row = row - row.mean(1, keepdim=True)
        size = row.square().mean(1, keepdim=True)
        flat = size <= 1e-24 * self.origin.square().mean().to(x.dtype)  # a row without a shape
        return row / torch.where(flat, torch.ones_like(size), size).sqrt() - self.center.to(x.dtype)


class Pixels(nn.Module):
    """z = s∘x + t: pictures as they came, up to a common unit and level, from their columns in units of
    their own. `scale` s and `shift` t are (D,).
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, scale: Tensor, shift: Tensor):
        super().__init__()
        self.register_buffer("scale", scale.clone())
        self.register_buffer("shift", shift.clone())

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale.to(x.dtype) + self.shift.to(x.dtype)


class Scaled(nn.Module):
    """z = s∘x with s (D,) that nothing changes any more."""

    scale: Tensor

    def __init__(self, scale: Tensor):
        super().__init__()
        self.register_buffer("scale", scale.clone())

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale.to(x.dtype)


class Squash(nn.Module):
    """z = c∘asinh((x − m)/s) where a column has long tails, and c∘x elsewhere.

    Near m it is a line, far from it a logarithm: rows in a tail no longer lie apart from all others.

    Parameters
    ----------
    long : Tensor of shape (D,)
        Which columns have long tails.
    center, width, size : Tensor of shape (D,)
        m, s and c.

    Examples
    --------
    >>> import torch
    >>> from greenfold.chart import Squash
    >>> one = torch.ones(2).double()
    >>> squash = Squash(torch.tensor([True, False]), 0 * one, one, one)
    >>> squash(torch.tensor([[1000.0, 1000.0]]).double()).round()
    tensor([[   8., 1000.]], dtype=torch.float64)
    >>> rows = torch.linspace(-1, 1, 9).double()[:, None] ** 3
    >>> found = Squash.of(rows, torch.tensor([True]), 1.0)  # from rows themselves
    >>> found.unscaled(torch.tensor([2.0]).double())(2 * rows).shape  # for columns twice as large
    torch.Size([9, 1])
    """

    long: Tensor
    center: Tensor
    width: Tensor
    size: Tensor

    def __init__(self, long: Tensor, center: Tensor, width: Tensor, size: Tensor):
        super().__init__()
        self.register_buffer("long", long.clone())
        self.register_buffer("center", center.clone())
        self.register_buffer("width", width.clone())
        self.register_buffer("size", size.clone())

    @staticmethod
    def of(x: Tensor, long: Tensor, width: float) -> "Squash":
        """Of rows (n, D), around medians; s is so many times the median distance of rows not there.

        Columns keep their standard deviations.
        """
        center = x.median(0).values
        away = (x - center).abs()
        s = torch.where(away > 0, away, torch.full_like(away, torch.nan)).nanmedian(0).values
        s = width * torch.where(s > 0, s, torch.ones_like(s))
        sd = torch.asinh((x - center) / s).std(0, correction=0)
        c = torch.where(long & (sd > 0), x.std(0, correction=0) / sd, torch.ones_like(sd))
        return Squash(long, center, s, c)

    def forward(self, x: Tensor) -> Tensor:
        center, width, size = (v.to(x.dtype) for v in (self.center, self.width, self.size))
        return size * torch.where(self.long, torch.asinh((x - center) / width), x)

    def unscaled(self, sd: Tensor) -> "Squash":
        """The same of x from that of x / sd."""
        size = torch.where(self.long, self.size, self.size / sd)
        return Squash(self.long, self.center * sd, self.width * sd, size)

"""Encoders x → z. Any `nn.Module` from (n, D) to (n, d) will do; these are the ones worth having.

What starts at random is drawn from `generator`, or from torch's own where none is given.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

LARGEST = 32  # pixels along a side; larger images are averaged first
SMALLEST = 4  # below which nothing is pooled


class AxisScales(nn.Module):
    """z_j = s_j x_j: one learned relevance per input (ARD); the chart has the inputs' own axes.

    With `tied` there is one s for all inputs.

    Parameters
    ----------
    n_features : int
        D.
    scale : float or Tensor of shape (D,)
        s at the start.
    tied : bool
        One s for all inputs.

    Examples
    --------
    >>> import torch
    >>> from greenfold.chart import AxisScales
    >>> AxisScales(4).double()(torch.zeros(7, 4).double()).shape
    torch.Size([7, 4])
    """

    def __init__(self, n_features: int, scale: float | Tensor = 1.0, tied: bool = False):
        super().__init__()
        size = 1 if tied else n_features
        scale = torch.as_tensor(scale, dtype=torch.float64).expand(size).clone()
        self.log_scale = nn.Parameter(scale.log())

    @property
    def scale(self) -> Tensor:
        return self.log_scale.exp()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale.to(x.dtype)


class Linear(nn.Module):
    """z = W x with W (d, D); rows orthonormal at the start unless `weight` is given.

    Parameters
    ----------
    n_features, n_dims : int
        D and d.
    weight : Tensor of shape (d, D), optional
        W at the start.
    generator : torch.Generator, optional
        Of the weights at the start.

    Examples
    --------
    >>> import torch
    >>> from greenfold.chart import Linear
    >>> Linear(4, 2).double()(torch.zeros(7, 4).double()).shape
    torch.Size([7, 2])
    """

    def __init__(
        self,
        n_features: int,
        n_dims: int,
        weight: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        if weight is None:
            weight = torch.empty(n_dims, n_features, dtype=torch.float64)
            nn.init.orthogonal_(weight, generator=generator)
        if weight.shape != (n_dims, n_features):
            raise ValueError(
                f"`weight` must have shape ({n_dims}, {n_features}), got {tuple(weight.shape)}."
            )
        self.weight = nn.Parameter(weight.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T.to(x.dtype)


class Mixed(nn.Module):
    """z = (I + W) s∘x: scaled inputs, then mixed; W starts at zero, so the chart starts as `AxisScales`.

    An input that does not matter has a small s_j, and cannot come back through W.

    Parameters
    ----------
    scale : Tensor of shape (D,)
        s at the start.

    Examples
    --------
    >>> import torch
    >>> from greenfold.chart import Mixed
    >>> Mixed(torch.ones(4)).double()(torch.zeros(7, 4).double()).shape
    torch.Size([7, 4])
    """

    def __init__(self, scale: Tensor):
        super().__init__()
        self.axes = AxisScales(len(scale), scale)
        self.mix = nn.Parameter(torch.zeros(len(scale), len(scale), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        scaled: Tensor = self.axes(x)
        return scaled + scaled @ self.mix.T.to(x.dtype)


class Warp(nn.Module):
    """z_j = s_j (x_j + Σ_u a_ju tanh(b_ju (x_j − c_ju))): each input bent by itself, then scaled.

    The amplitudes start at zero, so the chart starts as `AxisScales`.

    Parameters
    ----------
    n_features : int
        D.
    n_units : int
        Bends of each input.
    scale : float or Tensor of shape (D,)
        s at the start.

    Examples
    --------
    >>> import torch
    >>> from greenfold.chart import Warp
    >>> Warp(4).double()(torch.zeros(7, 4).double()).shape
    torch.Size([7, 4])
    """

    def __init__(self, n_features: int, n_units: int = 6, scale: float | Tensor = 1.0):
        super().__init__()
        self.axes = AxisScales(n_features, scale)
        centers = torch.linspace(-1.5, 1.5, n_units, dtype=torch.float64)
        self.amplitude = nn.Parameter(torch.zeros(n_features, n_units, dtype=torch.float64))
        self.slope = nn.Parameter(torch.ones(n_features, n_units, dtype=torch.float64))
        self.center = nn.Parameter(centers.repeat(n_features, 1))

    def forward(self, x: Tensor) -> Tensor:
        bend = torch.zeros_like(x)
        for u in range(self.amplitude.shape[1]):  # never an (n, D, u) tensor
            a, b, c = (p[:, u].to(x.dtype) for p in (self.amplitude, self.slope, self.center))
            bend = bend + a * torch.tanh(b * (x - c))
        return self.axes(x + bend)


class MLP(nn.Sequential):
    """Fully connected layers with smooth activations, as charts are differentiated twice.

    Parameters
    ----------
    n_features, n_dims : int
        D and d.
    hidden : sequence of int
        Widths of the hidden layers.
    generator : torch.Generator, optional
        Of the weights at the start.

    Examples
    --------
    >>> import torch
    >>> from greenfold.chart import MLP
    >>> MLP(4, 2).double()(torch.zeros(7, 4).double()).shape
    torch.Size([7, 2])
    """

    def __init__(
        self,
        n_features: int,
        n_dims: int,
        hidden: Sequence[int] = (64, 64),
        *,
        generator: torch.Generator | None = None,
    ):
        layers: list[nn.Module] = []
        width = n_features
        for size in hidden:
            layers += [_drawn(generator, nn.Linear, width, size), nn.Tanh()]
            width = size
        super().__init__(*layers, _drawn(generator, nn.Linear, width, n_dims))


class PCAResidual(nn.Module):
    """z = P x + r(x): fixed or given linear coordinates P (d, D) plus an MLP that starts at zero.

    Parameters
    ----------
    weight : Tensor of shape (d, D)
        P.
    hidden : sequence of int
        Widths of the hidden layers of r.
    learn_weight : bool
        Learn P too.
    generator : torch.Generator, optional
        Of the weights at the start.

    Examples
    --------
    >>> import torch
    >>> from greenfold.chart import PCAResidual
    >>> PCAResidual(torch.eye(2, 4)).double()(torch.zeros(7, 4).double()).shape
    torch.Size([7, 2])
    """

    def __init__(
        self,
        weight: Tensor,
        hidden: Sequence[int] = (64, 64),
        learn_weight: bool = True,
        *,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        n_dims, n_features = weight.shape
        self.linear = Linear(n_features, n_dims, weight)
        self.linear.weight.requires_grad_(learn_weight)
        self.residual = MLP(n_features, n_dims, hidden, generator=generator)
        last = self.residual[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.residual(x)


class Bent(nn.Module):
    """z = P x + W k(B x) − c: linear coordinates, bent by responses on another linear chart.

    There ζ = B x, and k_r = e^{−|ζ − μ_r|²/2} is the response to a source at μ_r. P is `linear` (d, D), B
    `inner` (b, D), μ `anchors` (m, b), W `sources` (d, m), c `shift` (d,).

    Examples
    --------
    >>> import torch
    >>> from greenfold.chart import Bent
    >>> P, B = torch.eye(2, 4).double(), torch.eye(1, 4).double()
    >>> bent = Bent(P, B, torch.zeros(3, 1).double(), torch.ones(2, 3).double(), torch.zeros(2).double())
    >>> bent(torch.zeros(7, 4).double()).shape
    torch.Size([7, 2])
    """

    anchors: Tensor
    shift: Tensor

    def __init__(
        self, linear: Tensor, inner: Tensor, anchors: Tensor, sources: Tensor, shift: Tensor
    ):
        super().__init__()
        sizes = (len(linear), len(anchors))
        if sources.shape != sizes:
            raise ValueError(f"`sources` must have shape {sizes}, got {tuple(sources.shape)}.")
        self.linear = Linear(linear.shape[1], len(linear), linear)
        self.inner = Linear(inner.shape[1], len(inner), inner)
        self.sources = nn.Parameter(sources.detach().clone())
        self.register_buffer("anchors", anchors.clone())
        self.register_buffer("shift", shift.clone())

    def forward(self, x: Tensor) -> Tensor:
        zeta, mu = self.inner(x), self.anchors.to(x.dtype)
        r2 = zeta.square().sum(1, keepdim=True) + mu.square().sum(1) - 2 * zeta @ mu.T
        near = torch.exp(-r2.clamp_min(0) / 2)  # (n, m)
        return self.linear(x) + near @ self.sources.T.to(x.dtype) - self.shift.to(x.dtype)


class Conv(nn.Module):
    """Convolutions and a dense layer, for rows that are images of `shape` (C, H, W).

    They are strided, with tanh between them. If `pooled`, they have rectifiers, and maxima of two by two
    where the sides allow it; the first one of a large image is strided, and of a very large one it sees
    means of squares.

    Parameters
    ----------
    shape : (int, int, int)
        Channels, height and width.
    n_dims : int
        d.
    channels : sequence of int
        Of the two convolutions.
    pooled : bool
        Rectifiers and maxima in place of tanh and strides.
    generator : torch.Generator, optional
        Of the weights at the start.

    Examples
    --------
    >>> import torch
    >>> from greenfold.chart import Conv
    >>> Conv((1, 8, 8), 2).double()(torch.zeros(7, 64).double()).shape
    torch.Size([7, 2])
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        n_dims: int,
        channels: Sequence[int] = (16, 32),
        *,
        pooled: bool = False,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        self.shape = tuple(shape)
        make = _pooled if pooled else _strided
        layers = make(shape, channels, generator)
        self.features = nn.Sequential(*layers, nn.Flatten())
        with torch.no_grad():
            flat = self.features(torch.zeros(1, *shape, dtype=torch.float64)).shape[1]
        self.head = _drawn(generator, nn.Linear, flat, n_dims)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x.reshape(-1, *self.shape)))


def _strided(
    shape: Sequence[int], channels: Sequence[int], generator: torch.Generator | None
) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for before, size in zip((shape[0], *channels), channels):
        conv = _drawn(generator, nn.Conv2d, before, size, 3, stride=2, padding=1)
        layers += [conv, nn.Tanh()]
    return layers


def _pooled(
    shape: Sequence[int], channels: Sequence[int], generator: torch.Generator | None
) -> list[nn.Module]:
    few, side = max(1, -(-max(shape[1:]) // LARGEST)), min(shape[1:])
    layers: list[nn.Module] = [nn.AvgPool2d(few)] if few > 1 and side >= few else []
    side = side // few if layers else side
    for i, (before, size) in enumerate(zip((shape[0], *channels), channels)):
        large = i == 0 and side > LARGEST // 2
        how = {"stride": 2, "padding": 2} if large else {"padding": 1}
        layers += [_drawn(generator, nn.Conv2d, before, size, 5 if large else 3, **how), nn.ReLU()]
        if not large and side > SMALLEST:
            layers.append(nn.MaxPool2d(2))
        side = side // 2 if large or side > SMALLEST else side
    return layers


def _drawn(generator: torch.Generator | None, kind: Any, *sizes: int, **options: int) -> Any:
    """A layer as torch starts it, weights and biases uniform within 1/√inputs of 0."""
    layer = nn.utils.skip_init(kind, *sizes, **options, dtype=torch.float64)
    bound = layer.weight[0].numel() ** -0.5
    nn.init.kaiming_uniform_(layer.weight, a=5**0.5, generator=generator)
    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return layer

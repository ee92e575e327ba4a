"""How much rows next to a place tell that anchors do not, where every row is a source.

Of a field with prior covariance k, m anchors leave r(x, x') = k(x, x') − φ(x)·φ(x'). Given those,
the rows that r is largest to, of weights w and noise α/w in units of k, take from the variance at x::

    r_S (r_SS + α diag(1/w))⁻¹ r_Sᵀ,   S the eight rows with the largest |r(x, x_i)|

which is nearly all that the other rows would take: those of a rough kernel reach no further.
"""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from greenfold.green.atoms import Point
from greenfold.model import IGL, normed

COLUMNS = 500  # anchors, the first ones
NEAR = 8  # rows
TALL, WIDE, FEW = (
    256,
    1024,
    32,
)  # places, rows of a tile, and places whose rows are looked at together


@dataclass(frozen=True, eq=False)
class Nearby:
    """Rows that are sources."""

    z: Tensor  # (n, d) on the chart, float32
    weight: Tensor  # (n,)

    @torch.no_grad()
    def taken(self, model: IGL, xi: Tensor, phi: Tensor, alpha: float) -> Tensor:
        """From the variances at places (n, d) with first columns (n, m), in units of the noise (n,)."""
        gate, Phi, k = model.gates(), self._columns(model, phi.shape[1]), model.operator.response
        parts, most = [Point(z) for z in self.z.split(WIDE)], min(NEAR, len(self.z))
        found = [xi.new_zeros(0)]
        for at, own in zip(xi.split(TALL), phi.split(TALL)):
            r = torch.cat([k(at.float(), part, gate) for part in parts], 1)
            near = r.sub_(own.float() @ Phi.T).abs_().topk(most).indices  # (·, 8)
            for places, first, rows in zip(at.split(FEW), own.split(FEW), near.split(FEW)):
                z, there = self.z[rows].double(), Phi[rows].double()  # (·, 8, d), (·, 8, m)
                flat, n = z.flatten(0, 1), len(rows)
                between = k(flat, Point(flat), gate).view(n, most, n, most)
                S = between.diagonal(dim1=0, dim2=2).movedim(-1, 0) - there @ there.mT
                S = S / alpha + (1 / self.weight[rows].double()).diag_embed()
                to = k(places, Point(flat), gate).view(n, n, most)
                c = to.diagonal().movedim(-1, 0) - (there @ first[..., None])[..., 0]
                c = c / alpha
                found.append((c * torch.linalg.solve(S, c)).sum(1))
        return torch.cat(found)

    def _columns(self, model: IGL, m: int) -> Tensor:
        """Φ (n, m) of the rows, in float32; kept, as all of them are needed for every place."""
        known = _COLUMNS.get(self)
        if known is None or known.shape[1] != m:
            parts = self.z.split(WIDE)
            known = torch.cat([columns(model, z.double(), m).float() for z in parts])
            _COLUMNS[self] = known
        return known


def columns(model: IGL, xi: Tensor, m: int) -> Tensor:
    """The first m columns of Φ at places (n, d)."""
    atoms, gate, F = model.anchored()
    assert F is not None
    return normed(model.operator.response(xi, Point(atoms.mu[:m]), gate), F[:m, :m])


_COLUMNS: WeakKeyDictionary[Nearby, Tensor] = WeakKeyDictionary()

"""A model as a sum of products of functions of one column each, and what columns do in it by themselves.

With a source w_r, terms k of its response and factors g_krj of one column each,

    u(x) = Σ_r w_r Σ_k Π_j g_krj(x_j) + what is a sum over columns

With m_krj the mean of a factor over its column, h = g/m and M_kr = Π_j m_krj, its mean and its effects
under columns that do not depend on each other are (Hoeffding's decomposition [1]_)

    f_0  = Σ_r w_r Σ_k M_kr
    f_j  = Σ_r w_r Σ_k M_kr (h_krj − 1)
    f_ij = Σ_r w_r Σ_k M_kr (h_kri − 1)(h_krj − 1)

All are linear in w: rows of a design, with the posterior of w for how sure they are. The columns of one
category are taken as one.

References
----------
.. [1] W. Hoeffding, "A class of statistics with asymptotically normal distribution", Ann. Math. Stat. 19
   (1948), 293–325.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from greenfold.green.forms import Form, NoForm
from greenfold.learn.loadings import loadings
from greenfold.learn.marginals import Block
from greenfold.learn.posterior import Posterior
from greenfold.learn.standings import chart_name
from greenfold.learn.units import Scaling
from greenfold.model import IGL, normed

COARSE = 12  # nodes of a block, when pairs are looked for
CHECKED = 64  # places where the sum of products is compared with the model
CLOSE = 0.01  # standard deviations of u that they may differ by


class Rows(NamedTuple):
    """What is linear in the source: values are Phi v + null t, v strengths of sources, t the trend."""

    Phi: Tensor  # (n, r), or (n, k·r) if terms have strengths of their own
    null: Tensor  # (n, q)


class Products:
    """Effects of one model under the marginals of its columns, as rows of a design. Raises `NoForm`."""

    @torch.no_grad()
    def __init__(self, model: IGL, posterior: Posterior | None, blocks: list[Block]):
        self.model, self.posterior, self.blocks = model, posterior, blocks
        atoms, self.gate, self.F = model.anchored()
        forms = model.operator.forms(atoms, self.gate, terms=True)
        self.products = [form for form in forms if not form.additive]
        self.sums = [form for form in forms if form.additive]
        self.own = coordinates_of(model, blocks, self.products)
        self.r, self.v = len(atoms.mu), model.source_weights().double()
        D = sum(len(block.columns) for block in blocks)
        self.zero = torch.zeros(1, D, dtype=torch.float64)
        self.xi = [self._chart(block) for block in blocks]
        self.means = self._means()

    def _chart(self, block: Block) -> Tensor:
        """ξ (q, d) of the nodes of a block, other columns at 0."""
        x = self.zero.repeat(len(block.nodes), 1)
        x[:, block.columns] = torch.from_numpy(block.nodes)
        return self.model.chart(x)

    def _factor(self, form: Form, b: int) -> Tensor:
        """g (q, k·r) of a block."""
        one = torch.ones(len(self.xi[b]), form.n_terms * self.r, dtype=torch.float64)
        return reduce(torch.mul, (form.along(self.xi[b][:, j], j) for j in self.own[b]), one)

    def _means(self) -> list[Tensor]:
        """M (k·r,) of every product."""
        free = sorted(set(range(len(self.model.mean))) - {j for own in self.own for j in own})
        at, found = self.model.chart(self.zero), []
        for form in self.products:
            M = torch.ones(form.n_terms * self.r, dtype=torch.float64)
            for j in free:  # coordinates that no column moves
                M = M * form.along(at[:, j], j)[0]
            for b, block in enumerate(self.blocks):
                M = M * (torch.from_numpy(block.weight) @ self._factor(form, b))
            found.append(M)
        return found

    def _centered(self, form: Form, b: int) -> Tensor:
        """h − 1 (q, k·r) of a block."""
        g = self._factor(form, b)
        mean = torch.from_numpy(self.blocks[b].weight) @ g
        return torch.where(mean > 0, g / mean.clamp_min(1e-300), 1.0) - 1

    def _by_source(self, form: Form, Phi: Tensor) -> Tensor:
        """Columns (n, k·r) of a form as those (n, r) of sources, or (n, k·r) if terms have strengths."""
        terms = form.weight * Phi.reshape(len(Phi), form.n_terms, self.r)
        if self.model.gamma == "free":
            return terms.flatten(1)
        if self.model.gamma != "fixed":
            terms = terms * self.model.factors.to(terms)[:, None]
        return terms.sum(1)

    def _added(self, xi: Tensor) -> Rows:
        """What is a sum over columns."""
        none = torch.zeros(len(xi), len(self.v), dtype=torch.float64)
        parts = (self._by_source(form, form(xi)) for form in self.sums)
        return Rows(sum(parts, none), self.model.null()(xi, self.gate).double())

    @torch.no_grad()
    def values(self, rows: Rows) -> Tensor:
        """(n, c)."""
        return rows.Phi @ self.v + rows.null @ self.model.trend()

    @torch.no_grad()
    def std(self, rows: Rows) -> Tensor | None:
        """Of the values (n, c), by what is not known of the source; None if that is not known."""
        if self.posterior is None:
            return None
        Phi, rho = rows.Phi, self.model.rho.double()
        if self.model.raw_rho.requires_grad:
            Phi = Phi * rho.repeat(Phi.shape[1] // len(rho))
        design = torch.cat([normed(Phi, self.F), rows.null], dim=1)  # (n, p)
        return (self.posterior.spread(design)[:, None] * self.posterior.noise).sqrt()

    @torch.no_grad()
    def mean(self) -> Rows:
        """f_0, one row."""
        base = self._added(self.model.chart(self.zero))
        Phi, null = base
        for xi, block in zip(self.xi, self.blocks):
            moved, p = self._added(xi), torch.from_numpy(block.weight)
            Phi, null = (a + p @ (v - v0) for a, v, v0 in zip((Phi, null), moved, base))
        for form, M in zip(self.products, self.means):
            Phi = Phi + self._by_source(form, M[None])
        return Rows(Phi, null)

    @torch.no_grad()
    def main(self, b: int) -> Rows:
        """f_b at the nodes, q rows."""
        p = torch.from_numpy(self.blocks[b].weight)
        Phi, null = (v - p @ v for v in self._added(self.xi[b]))
        for form, M in zip(self.products, self.means):
            Phi = Phi + self._by_source(form, M * self._centered(form, b))
        return Rows(Phi, null)

    @torch.no_grad()
    def pair(self, a: int, b: int) -> Rows:
        """f_ab at pairs of nodes, q_a·q_b rows."""
        n = len(self.xi[a]) * len(self.xi[b])
        Phi = torch.zeros(n, len(self.v), dtype=torch.float64)
        for form, M in zip(self.products, self.means):
            one, other = M * self._centered(form, a), self._centered(form, b)
            rows = [self._by_source(form, g * other) for g in one]  # never (q_a, q_b, k·r)
            Phi = Phi + torch.cat(rows)
        return Rows(Phi, torch.zeros(n, self.model.n_null(), dtype=torch.float64))

    @torch.no_grad()
    def pairs(self, Q: Tensor) -> Tensor:
        """All f_ab by the root of the weights, on a few coarse nodes (c, B, COARSE, B, COARSE).

        Sums of their squares are variances. Q (c, c') are the combinations of outputs that are told.
        """
        v = self.v @ Q  # (r, c')
        B, c = len(self.blocks), Q.shape[1]
        total = torch.zeros(c, B * COARSE, B * COARSE, dtype=torch.float64)
        for form, M in zip(self.products, self.means):
            H = torch.zeros(B, COARSE, len(M), dtype=torch.float64)
            for b, block in enumerate(self.blocks):
                means = averages(torch.from_numpy(block.weight))
                H[b, : len(means)] = means @ self._centered(form, b)
            H = H.flatten(0, 1)
            for i in range(c):
                strength = M * self._by_term(form, v[:, i])
                total[i] += (H * strength) @ H.T
        return total.reshape(c, B, COARSE, B, COARSE)

    def _by_term(self, form: Form, v: Tensor) -> Tensor:
        """Strengths (k·r,) of the columns of a form, from those of sources."""
        if self.model.gamma == "free":
            return form.weight * v
        terms = v.expand(form.n_terms, self.r)
        if self.model.gamma != "fixed":
            terms = terms * self.model.factors.to(v)[:, None]
        return form.weight * terms.reshape(-1)

    @torch.no_grad()
    def check(self, x: Tensor) -> None:
        """Refuse what products of functions of one block each do not tell, at places (n, D)."""
        u, few = self.model(x[: 16 * CHECKED]), x[:CHECKED]
        base = self._added(self.model.chart(self.zero))
        Phi, null = (v.repeat(len(few), 1) for v in base)
        for block in self.blocks:
            alone = torch.zeros_like(few)
            alone[:, block.columns] = few[:, block.columns]
            moved = self._added(self.model.chart(alone))
            Phi, null = (a + v - v0 for a, v, v0 in zip((Phi, null), moved, base))
        xi = self.model.chart(few)
        for form in self.products:
            Phi = Phi + self._by_source(form, form(xi))
        told = self.values(Rows(Phi, null))
        error = (told - u[: len(few)]).abs().amax(0) / u.std(0).clamp_min(1e-6)
        if bool((error > CLOSE).any()):
            raise NoForm(
                "products of functions of one column each tell it to within "
                f"{float(error.max()):.1g} standard deviations only"
            )


def averages(weight: Tensor) -> Tensor:
    """(m, q): means over up to COARSE runs of nodes, times the roots of what the runs weigh."""
    middle = weight.cumsum(0) - weight / 2
    run = (middle * COARSE).long() if len(weight) > COARSE else torch.arange(len(weight))
    one = torch.nn.functional.one_hot(run, int(run.max()) + 1).double().T * weight  # (m, q)
    return one / one.sum(1, keepdim=True).sqrt().clamp_min(1e-300)


def coordinates_of(model: IGL, blocks: list[Block], products: list[Form]) -> list[list[int]]:
    """Coordinates that each block alone moves; raises `NoForm` if products have some of several blocks.

    What is linear may be made of any columns: it is a sum over them.
    """
    D = sum(len(block.columns) for block in blocks)
    moved = loadings(model, Scaling.none(D)) != 0  # (d, D)
    moved &= (model.gates().detach().numpy() > 0)[:, None]
    by = np.stack([moved[:, block.columns].any(1) for block in blocks])  # (B, d)
    for j in np.flatnonzero(by.sum(0) > 1).tolist():
        if any(varies(form, j) for form in products):
            raise NoForm(
                f"coordinate {j + 1} of its chart ({chart_name(model.encoder)}) is made of "
                f"{by[:, j].sum()} columns"
            )
    return [np.flatnonzero(own & (by.sum(0) == 1)).tolist() for own in by]


def varies(form: Form, j: int) -> bool:
    """Does a product change along an axis?"""
    along = form.along(torch.linspace(-1, 1, 3, dtype=torch.float64), j)
    return bool((along != along[:1]).any())

"""How targets are distributed around what a model computes: counts, quantiles, outliers, times.

A model computes η(x) (n, c). A likelihood says what a target costs there, −log p(y | η) in nats, with its
slope and its curvature in η, so that one solver and one way to judge rows left out serve all of them::

    poisson             y ~ Poisson(e^η · exposure)
    negative_binomial   the same with variance μ + μ²/r; r from rows left out
    student_t           y = η + s ε, ε of few degrees of freedom: outliers hardly count; s likewise
    lognormal           log y = η + σ ε, ε normal, y known or known to be larger; σ likewise
    Quantile(levels)    P(y < η_k) = level_k

Charts compete on working targets, which are nearly normal; scale, penalty and source of the best are
those of the likelihood itself.
"""

from greenfold.likelihoods.base import Likelihood
from greenfold.likelihoods.counts import NegativeBinomial, Poisson
from greenfold.likelihoods.located import LogNormal, StudentT
from greenfold.likelihoods.quantiles import Quantile

__all__ = [
    "NAMED",
    "Likelihood",
    "LogNormal",
    "NegativeBinomial",
    "Poisson",
    "Quantile",
    "StudentT",
]

NAMED: dict[str, Likelihood | None] = {
    "gaussian": None,
    "poisson": Poisson(),
    "negative_binomial": NegativeBinomial(),
    "student_t": StudentT(),
    "lognormal": LogNormal(),
}

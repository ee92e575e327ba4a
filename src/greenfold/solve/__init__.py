"""(Φ, Y) → w: source strengths by a linear or Newton solve, differentiable in Φ."""

from greenfold.solve.group_lasso import GroupLasso
from greenfold.solve.left_out import cross_entropy, left_out, squares
from greenfold.solve.likely import Likely
from greenfold.solve.newton import Logistic, laplace_evidence
from greenfold.solve.objectives import OBJECTIVES, evidence, gcv, log_mse, loo, penalized
from greenfold.solve.ridge import Ridge
from greenfold.solve.solution import Solution, SolveError, Solver
from greenfold.solve.statistics import Statistics
from greenfold.solve.streamed import RunningSums

__all__ = [
    "OBJECTIVES",
    "GroupLasso",
    "Likely",
    "Logistic",
    "Ridge",
    "RunningSums",
    "Solution",
    "SolveError",
    "Solver",
    "Statistics",
    "cross_entropy",
    "evidence",
    "gcv",
    "laplace_evidence",
    "left_out",
    "log_mse",
    "loo",
    "penalized",
    "squares",
]

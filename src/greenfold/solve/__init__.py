"""(Φ, Y) → w: source strengths by a linear or Newton solve, differentiable in Φ."""

from greenfold.solve.leave_out import LeaveOneOut, leave_one_out, ridge_leave_one_out
from greenfold.solve.newton import Logistic, cross_entropy, laplace_evidence
from greenfold.solve.objectives import OBJECTIVES, evidence, gcv, log_mse, loo, penalized
from greenfold.solve.ridge import Ridge
from greenfold.solve.solution import Solution, SolveError
from greenfold.solve.statistics import Statistics

__all__ = [
    "OBJECTIVES",
    "LeaveOneOut",
    "Logistic",
    "Ridge",
    "Solution",
    "SolveError",
    "Statistics",
    "cross_entropy",
    "evidence",
    "gcv",
    "laplace_evidence",
    "leave_one_out",
    "log_mse",
    "loo",
    "penalized",
    "ridge_leave_one_out",
]

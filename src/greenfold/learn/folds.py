"""Errors on folds of rows that neither the source nor the chart has learned from.

Leaving a row out of the solve says nothing of the chart, which has seen the row; where rows are few that
is much of the error. So the chart goes on learning without each fold, from where it was.
"""

from __future__ import annotations

import math
from copy import deepcopy

import numpy as np
import torch
from scipy.linalg import LinAlgError
from torch import Tensor

from greenfold.learn.candidates import Fit
from greenfold.learn.data import Data, Rows
from greenfold.learn.fit import relearned
from greenfold.learn.trainer import descend
from greenfold.model import IGL
from greenfold.solve import OBJECTIVES, Ridge, SolveError

FOLDS = 4
FEW = (20, 400)  # rows from which folds tell anything, and up to which they are needed
NEAR = 3.0  # log α stays this near to that of all rows


def few(n: int) -> bool:
    return FEW[0] <= n <= FEW[1]


def unseen(fit: Fit, data: Data, steps: int = 10) -> Tensor | None:
    """Errors (n, c) of a fit of the race on folds that its chart has gone on learning without.

    None where rows are many, where it cannot go on, or where it has no solution.
    """
    errors = fit.errors
    if not fit.candidate.rigid and errors is not None and len(errors) == len(data):
        return errors  # such folds judged it already
    if not few(len(data)) or not fit.candidate.rigid:
        return None

    def learn(part: Data) -> Fit:
        again = fit.candidate.learn(part, fit, steps)
        if again is fit:
            raise LinAlgError("it has learned what it can")
        return again

    known = relearned(data.coarse(FOLDS), learn)
    return None if known is None else known[0]


def held_out(
    model: IGL,
    rows: Rows,
    alpha: float,
    errors: Tensor,
    objective: str = "evidence",
    max_iter: int = 10,
    folds: Tensor | None = None,
) -> Tensor:
    """Errors (n, c) of rows in folds left out; `errors` of rows left out of the solve, where that fails.

    A chart that has learned nothing from Y is left as it is, and so are they.
    """
    learned = any(p.requires_grad for p in model.parameters()) and max_iter > 0
    n = len(rows.x)
    if not learned or not few(n):
        return errors
    if folds is None:
        folds = torch.from_numpy(np.random.default_rng(n).permutation(n))
    folds, errors = folds % FOLDS, errors.clone()
    for k in folds.unique().tolist():
        out = rows.take(folds == k)
        try:
            part = gone_on(model, rows.take(folds != k), alpha, objective, max_iter)
        except SolveError:
            continue
        with torch.no_grad():
            errors[folds == k] = out.Y - part(out.x)
    return errors


def gone_on(model: IGL, rows: Rows, alpha: float, objective: str, max_iter: int) -> IGL:
    """A copy that has gone on learning from these rows only."""
    x, Y, weight, _ = rows
    part, at = deepcopy(model).train(), math.log(max(alpha, 1e-13))
    log_alpha = torch.tensor(at, dtype=torch.float64, requires_grad=True)

    def loss() -> Tensor:
        return OBJECTIVES[objective](
            part.design(x), Y, log_alpha.clamp(at - NEAR, at + NEAR), weight
        )

    descend(part, loss, [*part.parameters(), log_alpha], max_iter=max_iter)
    part.settle(x)
    strength = float(log_alpha.detach().clamp(at - NEAR, at + NEAR).exp())
    with torch.no_grad():
        part.solve(x, Y, Ridge(strength, relative=False), weight)
    return part

"""The race for classes: all candidates on indicators, and linear charts that challenge them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from greenfold.learn.candidates import Fit
from greenfold.learn.choice import difference, dims, errors_of, loss
from greenfold.learn.data import Data
from greenfold.learn.fit import judged
from greenfold.learn.race import MOST, Asked, Each, Schedule, Tell, one_by_one, race, silent
from greenfold.learn.search.ladder import ROOM
from greenfold.learn.searched import searched
from greenfold.learn.turned import Turned
from greenfold.learn.wide import race_wide, wide
from greenfold.state import one_thread

SEARCHED = 500  # rows that linear charts for classes are searched on
# Classes that leave less than so many times what is enough are not searched for linear charts: among few
# columns, where that is quick, and among many.
CLEAR = (10, 16)
CODES = 12  # columns that stand in for the indicators of more classes while charts are searched for


def race_classes(
    data: Data,
    schedule: Schedule,
    rng: np.random.Generator,
    effort: str,
    asked: Asked,
    *,
    tell: Tell = silent,
    each: Each = one_by_one,
) -> tuple[list[Fit], list[Fit]]:
    """The race for classes; unless they are explained, linear charts that a search finds challenge it.

    Of few rows with many columns those challenge it that are made for them.
    The search sees part of the rows only, and the others judge it: what was fitted to the class of a row
    is no judge of it. Its best is used when its gain there is more than twice its standard error, or if
    it gains and the best of the race mixes columns to more coordinates.
    """
    fits, out = race(data, asked.pool(schedule, data), tell=tell, each=each)
    judges = schedule.judging(data.head(MOST))
    if asked.operator is None and wide(judges):
        few = race_wide(judges, [], False, each)
        few = [fit for fit in few if asked.n_dims in (None, dims(fit, judges))]
        return sorted(few + fits, key=loss), out
    seen = judges.first(min(SEARCHED, 2 * len(judges) // 3))
    clear = CLEAR[int(data.x.shape[1] > ROOM)] * data.judge.enough
    others = [fit for fit in fits if not isinstance(fit.candidate, Turned)]  # few directions may do
    if (
        int(seen.sum()) < 20
        or bool(seen.all())
        or (others and loss(others[0]) < clear and effort != "full")
    ):
        return fits, out
    part, beam = judges.take(seen), "full" if effort == "full" else "fast"
    part = replace(part, Y=codes(part.Y, rng))
    with one_thread():
        found = asked.of(searched(part, rng, beam), part)[:2]
        rivals = [judged(fit, judges, scan=True) for fit in found]
    rivals = [
        fit for fit in rivals if next(fit.chart.parameters()).any() and fit.errors is not None
    ]
    if not rivals or not fits:
        return fits or rivals, out
    rest = judges.take(~seen)
    rivals = [replace(f, price=0.0, nats=rest.nats(errors_of(f)[~seen])) for f in rivals]
    rivals.sort(key=loss)
    gain, error = difference(fits[0], rivals[0], judges, ~seen)
    fewer = isinstance(fits[0].candidate, Turned) and dims(rivals[0], part) < dims(fits[0], part)
    rivals = [replace(f, errors=None, rows=len(rest), saw=seen) for f in rivals]  # that judged them
    tell("searched", rivals)
    return (rivals + fits, out) if gain > (0 if fewer else 2 * error) else (fits, out + rivals)


def codes(Y: Tensor, rng: np.random.Generator) -> Tensor:
    """Columns that tell classes apart, from indicators Y (n, c): one of two, or random halves of many."""
    c = Y.shape[1]
    if c == 2:
        return Y[:, :1]
    signs = rng.choice([-1.0, 1.0], size=(c, CODES))
    return Y @ torch.from_numpy(signs) if c > CODES else Y

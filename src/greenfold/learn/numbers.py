"""The race for numbers: what the search finds, what few rows of many columns tell, and the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from greenfold.learn.candidates import Fit
from greenfold.learn.choice import believed, best, constant, dims, fewest, useful
from greenfold.learn.curved import race_bent
from greenfold.learn.data import Data
from greenfold.learn.fit import judged
from greenfold.learn.race import (
    FEWEST,
    MOST,
    NOTHING,
    Asked,
    Each,
    Schedule,
    Tell,
    one_by_one,
    race,
    silent,
)
from greenfold.learn.searched import explained, searched, verified
from greenfold.learn.wide import wide
from greenfold.solve import SolveError


def race_numbers(
    data: Data,
    schedule: Schedule,
    rng: np.random.Generator,
    effort: str,
    asked: Asked,
    *,
    tell: Tell = silent,
    each: Each = one_by_one,
) -> tuple[Fit, list[Fit]]:
    """The chart in use, and its rivals. What the search finds is challenged unless it explains y.

    Of few rows the search alone decides: folds of them cannot tell candidates apart.
    """
    schedule = asked.pool(schedule, data)  # refuses what cannot compete before anything is done
    found = asked.of(searched(data, rng, effort), data)
    if data.grouped:  # the search left rows out one at a time
        found = [replace(judged(fit, data.head(MOST)), price=fit.price) for fit in found]
    tell("searched", found)
    if asked.operator is None and found and wide(data):
        fits = race_bent(data, found, explained(found[0]), each, asked.n_dims)
        fits = [fit for fit in fits if asked.n_dims in (None, dims(fit, data))]
        if fits:
            won = fewest(fits, data)
            return won, [fit for fit in [*fits, *found] if fit is not won]
    if found and (explained(found[0]) or len(data) < FEWEST):
        won = found[0] if explained(found[0]) else believed(found, data)
        return won, [fit for fit in found if fit is not won]
    fits, out = race(data, schedule, found, tell=tell, each=each)
    if asked.n_dims is not None:
        d = min(asked.n_dims, data.x.shape[1])
        fits, out = ([fit for fit in part if dims(fit, data) == d] for part in (fits, out))
    if not fits:
        raise SolveError(NOTHING)
    fits = verified(fits, data, rng)
    won = best(fits, data)
    won = won if useful(won) else constant(data)
    return won, [fit for fit in [*fits, *out] if fit is not won]

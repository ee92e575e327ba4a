"""What is known of a chart's coordinates: what they are made of, what they explain, where rows lie."""

import time
from dataclasses import replace
from typing import Any

import torch

from greenfold.estimators.base import Base
from greenfold.learn.applicability import Applicability, Domain
from greenfold.learn.data import Rows
from greenfold.learn.explained import explained, settled
from greenfold.learn.found import tuned_charts
from greenfold.learn.given import Given
from greenfold.learn.likely import (
    judging,
    likely_charts,
    likely_source,
    likely_strength,
    surely,
    working_rows,
)
from greenfold.learn.penalty import fewest
from greenfold.learn.race import EFFORTS
from greenfold.learn.raised import Raised, raised
from greenfold.learn.units import Array
from greenfold.learn.wide import wide
from greenfold.likelihoods.base import Likelihood
from greenfold.model import IGL
from greenfold.state import one_thread


class Coordinates(Base):
    """Of regressors and classifiers, whose coordinates explain a target."""

    explained_: Array
    history_: Any  # History | None
    domain_: Domain

    def _settle(self, model: IGL, rows: Rows) -> None:
        """What coordinates explain; before the source is solved for, as those of a chart that was found
        are put in order by it.
        """
        learn = explained if self._s.given else settled
        self.explained_ = learn(model, *rows[:3])

    def _learn_likely(self, rows: Rows, seed: int, law: Likelihood) -> None:
        """Under a likelihood: charts compete on working targets, rows left out choose the rest."""
        s, begin, found = self._s, time.perf_counter(), list[Raised]()
        if s.given:
            generator, given = torch.Generator().manual_seed(seed), Given(s)
            work = working_rows(rows, law)
            model, self.history_, _ = given.train(work, s.n_atoms or 150, generator)
            self._keep_dimension(given)
            self.n_iter_ = max(1, len(self.history_.loss))
            law, alpha, nats = likely_strength(model, rows, s, seed, law)
        else:
            self.history_, self.n_iter_ = None, 1
            raced = likely_charts(rows, s, seed, self.units_.x, law)
            self._keep_channels(raced.data)
            kept = len(raced.fits) if wide(raced.data) else 1
            best = fewest(*tuned_charts(raced, s, law, kept))
            most = s.n_atoms or EFFORTS[s.effort].anchors
            found = raised([best], raced, s, most)[:1]
            for more in found:
                best = more.chart
            law, nats = best.law, best.fit.nats
            self.standings_ = raced.standings([(1.0, best.fit)])
            self.standings_[0] = self.standings_[0]._replace(score=nats)
            model, alpha = raced.model(best.fit, best.alpha, most)
            work = working_rows(rows, law)
        self._settle(model, work)
        with one_thread():
            end = likely_source(model, rows, law, alpha)
        law, posterior = surely(law, end, end.unsure)
        self.predictor_ = replace(self.predictor_, units=replace(self.units_, law=law))
        Base._store(self, model, end.solution, posterior)
        self.effective_rank_ = end.solution.info["degrees"]
        self.domain_ = Domain.of(model, rows.x, rows.own())
        self._store_whole(found)
        if self._member.whole is not None:
            rows, members = judging([self._member], found, raced.rows)
            self.predictor_ = replace(self.predictor_, members=tuple(members))
            posterior = self._member.posterior
        if law.conformal and posterior is not None:
            self.predictor_ = self.predictor_.judged(rows, posterior.loo_errors[None])
        if s.given:
            self._alone(nats, len(work.x), time.perf_counter() - begin)

    def _store_whole(self, found: list[Raised]) -> None:
        """A source at every row, if there is one, of which the model is a sketch."""
        for one in found:
            member = self._member._replace(whole=one.model)
            self.predictor_ = replace(self.predictor_, members=(member,))
            self.solver_info_ |= one.info

    def applicability(self, X: Any, alpha: float = 0.05) -> Applicability:
        """Are rows like those that were learned from? Predictions of others are no more than a guess.

        Parameters
        ----------
        X : array-like of shape (n, D)
        alpha : float
            Share of rows like those fitted to that is beyond each of the two limits.

        Returns
        -------
        Applicability
            `outside` (n,) tells which rows are; `t2` (n,) is how far along the chart they lie from the
            middle of the rows fitted to (Hotelling's T²), `q` (n,) how far off the principal axes of
            those (squared residual per column, in variances), `t2_limit` and `q_limit` are quantiles
            1 − alpha of rows left out; of few rows, the largest.
        """
        X = self.encode(X)
        if getattr(self, "domain_", None) is None:
            raise ValueError(
                "the model is of an older file, which does not know where its rows were: fit it again."
            )
        return self.domain_.of_rows(self.model_, self._inside(X), alpha)

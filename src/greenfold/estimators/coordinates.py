"""What is known of a chart's coordinates: what they are made of, what they explain, where rows lie."""

from typing import Any

from greenfold.estimators.base import Base
from greenfold.learn.applicability import Applicability, Domain
from greenfold.learn.data import Rows
from greenfold.learn.explained import explained, settled
from greenfold.learn.units import Array
from greenfold.model import IGL


class Coordinates(Base):
    """Of regressors and classifiers, whose coordinates explain a target."""

    explained_: Array
    domain_: Domain

    def _settle(self, model: IGL, rows: Rows) -> None:
        """What coordinates explain; before the source is solved for, as those of a chart that was found
        are put in order by it.
        """
        learn = explained if self._s.given else settled
        self.explained_ = learn(model, *rows[:3])

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

"""A sentence of the paper with a number in it, and what came out here."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Claim:
    """One row of the page.

    Parameters
    ----------
    where : str
        Place in the paper.
    says : str
        What is claimed, in our words.
    paper : str
        The paper's value.
    values : sequence of float
        Ours, one per seed.
    holds : bool
        Does the claim hold for these values?
    why : str
        One sentence on the reason.
    change : str
        What had to be done differently than in the paper for it to hold; empty if nothing.
    mark : float, optional
        What we ask of our own median.
    small : bool
        Small values are good; decides which seed is the worst and on which side of the mark to be.
    """

    where: str
    says: str
    paper: str
    values: Sequence[float]
    holds: bool
    why: str
    change: str = ""
    mark: float | None = None
    small: bool = True

    @property
    def median(self) -> float:
        return float(median(self.values))

    @property
    def worst(self) -> float:
        return float(max(self.values) if self.small else min(self.values))

    @property
    def verdict(self) -> str:
        if not self.holds:
            return "not reproduced"
        return f"holds with a change: {self.change}" if self.change else "holds"

    @property
    def met(self) -> bool | None:
        if self.mark is None:
            return None
        return self.median <= self.mark if self.small else self.median >= self.mark

    def record(self) -> dict[str, Any]:
        """For results.json: the fields and what follows from them."""
        values = [float(v) for v in self.values]
        judged = {"median": self.median, "worst": self.worst, "verdict": self.verdict}
        return {
            **asdict(self),
            "values": values,
            "holds": bool(self.holds),
            **judged,
            "met": self.met,
        }

"""The settings-free search for a linear chart."""

from greenfold.learn.search.ladder import BEAMS, Candidate, search

__all__ = ["BEAMS", "Candidate", "search"]

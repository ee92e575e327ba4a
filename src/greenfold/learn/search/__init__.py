"""The settings-free search for a linear chart."""

from greenfold.learn.search.ladder import Candidate, search

__all__ = ["Candidate", "search"]

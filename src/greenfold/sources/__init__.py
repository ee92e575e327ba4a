"""Where does it come from? Sources found from readings, with error bars.

readings.py     what sensors read: values, averages, fluxes
responses.py    what readings make of sources, with derivatives
sparse.py       a few sources: how many, where, how strong
smooth.py       a field of sources
uncertainty.py  residuals that are alike, and the next reading
estimates.py    what was found, by either way
finder.py       the estimator
figure.py       maps
"""

from greenfold.sources.finder import FoundSource, SourceFinder
from greenfold.sources.readings import Average, Flux
from greenfold.sources.uncertainty import Check, Suggestion, Value

__all__ = ["Average", "Check", "Flux", "FoundSource", "SourceFinder", "Suggestion", "Value"]

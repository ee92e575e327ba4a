"""How many dimensions: of the data, of a chart of it, of a task on it."""

from greenfold.dims.answers import dimension
from greenfold.dims.report import Answer, DimensionReport

__all__ = ["Answer", "DimensionReport", "dimension"]

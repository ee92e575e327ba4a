"""The one place that says which version this is; needs nothing."""

__version__ = "0.2.0"

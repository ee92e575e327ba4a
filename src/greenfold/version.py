"""The one place that says which version this is; needs nothing."""

__version__ = "0.1.0"

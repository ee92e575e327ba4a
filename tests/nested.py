"""Options as tests list them: all on one level."""

from greenfold import spec


def nested(**options):
    """Arguments of an estimator."""
    return spec.nested(options)

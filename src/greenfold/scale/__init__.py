"""Rows beyond memory and processes beyond one: streams, groups, checkpoints, the launcher."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from greenfold.scale.blocks import Stream as Stream
    from greenfold.scale.streams import stream as stream

__all__ = ["Stream", "stream"]


def __getattr__(name: str) -> Any:
    """When asked for: the launcher needs no PyTorch."""
    if name == "Stream":
        from greenfold.scale.blocks import Stream

        return Stream
    if name == "stream":
        from greenfold.scale.streams import stream

        return stream
    raise AttributeError(f"module 'greenfold.scale' has no attribute {name!r}")

"""Rows beyond memory and processes beyond one: streams, groups, checkpoints, the launcher."""

from greenfold.scale.streams import Stream, stream

__all__ = ["Stream", "stream"]

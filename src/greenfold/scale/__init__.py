"""Rows beyond memory and processes beyond one: streams, groups, checkpoints, the launcher."""

from greenfold.scale.blocks import Stream
from greenfold.scale.streams import stream

__all__ = ["Stream", "stream"]

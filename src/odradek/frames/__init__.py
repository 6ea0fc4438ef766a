"""Frames: records as tables of pyarrow, polars and pandas, by the schemas of a registry."""

from __future__ import annotations

from odradek.frames.serde import FrameSerde, SerializationError, topic_name_strategy

__all__ = ["FrameSerde", "SerializationError", "topic_name_strategy"]

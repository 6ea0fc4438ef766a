"""Streams and tables on Spark: `Streams`, `Stream`, `Table`, and a test driver. Nothing imports Spark before a plan runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.model.lazy import lazy_names

if TYPE_CHECKING:
    from odradek.streams.app import Streams
    from odradek.streams.driver import TestDriver
    from odradek.streams.grouped import GroupedStream
    from odradek.streams.language import Stream, Table
    from odradek.streams.plan.windows import time_limit
    from odradek.streams.processors.custom import Processor, Timers, To
    from odradek.streams.processors.records import StreamRecord
    from odradek.values.formats.avro_file import Avro
    from odradek.values.formats.protobuf_file import Protobuf

__all__ = [
    "Avro",
    "GroupedStream",
    "Processor",
    "Protobuf",
    "Stream",
    "StreamRecord",
    "Streams",
    "Table",
    "TestDriver",
    "Timers",
    "To",
    "time_limit",
]

__getattr__ = lazy_names(
    globals(),
    {
        "odradek.streams.app": ("Streams",),
        "odradek.streams.driver": ("TestDriver",),
        "odradek.streams.processors.custom": ("Processor", "Timers", "To"),
        "odradek.streams.processors.records": ("StreamRecord",),
        "odradek.values.formats.avro_file": ("Avro",),
        "odradek.values.formats.protobuf_file": ("Protobuf",),
        "odradek.streams.grouped": ("GroupedStream",),
        "odradek.streams.language": ("Stream", "Table"),
        "odradek.streams.plan.windows": ("time_limit",),
    },
)

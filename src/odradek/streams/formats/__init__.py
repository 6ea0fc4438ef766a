"""Formats with a schema in a file: Avro and Protobuf, plain or in Confluent's framing. No Spark."""

from __future__ import annotations

from odradek.streams.formats.avro import Avro
from odradek.streams.formats.protobuf import Protobuf

__all__ = ["Avro", "Protobuf"]

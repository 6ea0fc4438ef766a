"""Which format a record has: its name and options, its columns, and the window of a windowed key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from odradek.values.schema_registry import SchemaRegistryTerms
from odradek.values.types import SqlType


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatInfo:
    """`name`: KAFKA, JSON, JSON_SR, DELIMITED, NONE, AVRO, PROTOBUF, PROTOBUF_NOSR. `wrapped` False: a single column is
    written bare.
    `schema_id`: of the registry, for what is written. `nullable`: how PROTOBUF says null: None, OPTIONAL or WRAPPER.
    """

    name: str
    wrapped: bool = True
    delimiter: str = ","
    schema_name: str | None = None
    schema_id: int | None = None
    nullable: str | None = None
    registry: SchemaRegistryTerms | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowInfo:
    """The windows of windowed keys. `size_ms` is None for sessions.

    `held_ms`: how long after its end a window that joins a table is held. None: until its tombstone.
    """

    kind: Literal["tumbling", "hopping", "session"]
    size_ms: int | None
    held_ms: int | None = None


class FormatColumn(NamedTuple):
    """`name`: in records; `column`: in Spark."""

    name: str
    column: str
    type: SqlType

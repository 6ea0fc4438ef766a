"""Which format a record has: its name and options, its columns, and the window of a windowed key."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from odradek.values.errors import SqlError
from odradek.values.schema_registry import SchemaRegistryTerms
from odradek.values.types import SqlType


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatInfo:
    """A format of records, with its properties.

    `name`: KAFKA, JSON, JSON_SR, DELIMITED, NONE, AVRO, PROTOBUF, PROTOBUF_NOSR. `wrapped` False: a single column is
    written bare.
    `schema_id`: of the registry, for what is written. `nullable`: how PROTOBUF writes null: None, OPTIONAL or WRAPPER.
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


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class FormatColumn(NamedTuple):
    """A column of a format.

    `name`: in records; `column`: in Spark.
    """

    name: str
    column: str
    type: SqlType


def check_names(form: str, fields: Iterable[tuple[str, SqlType]]) -> None:
    """Raises SqlError for a name of a column, or of a field in one, that Avro and Protobuf do not have."""
    for name, kind in fields:
        if _NAME.fullmatch(name) is None:
            raise SqlError(
                f"{form} has no name `{name}`",
                hint="Use letters from A to Z, digits and _, a digit not first.",
            )
        check_names(form, [*kind.fields, *(("part", part) for part in kind.parts)])

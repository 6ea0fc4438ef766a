"""Rows of AVRO, PROTOBUF and JSON_SR, for what needs no Spark: INSERT VALUES, pull queries, simple push queries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final, Protocol

from odradek.model.errors import OdradekError
from odradek.sql.catalog import FormatInfo
from odradek.sql.errors import SqlError
from odradek.sql.formats import record_format
from odradek.sql.formats.times import day, day_number, moment, moment_ms
from odradek.sql.queries.row_codec import UnreadableRecord
from odradek.sql.schema_registry import UnknownSchemaId, registry_of
from odradek.sql.types import SqlType

_HEAD_BYTES: Final = 5


class RecordCodec(Protocol):
    """The bytes of a key or a value as values of columns, and back; `SqlRowCodec` says what values are like."""

    @property
    def columns(self) -> tuple[tuple[str, SqlType], ...]: ...

    def decode(self, data: bytes | None) -> list[Any] | None:
        """Values in the order of the columns; None of a null. UnreadableRecord."""

    def encode(self, values: Sequence[Any] | None) -> bytes | None:
        """SqlError for a value that the format cannot have."""


class SchemaRowCodec:
    """`learn` before `decode` and `encode`: these find their schemas in memory then."""

    def __init__(self, columns: tuple[tuple[str, SqlType], ...], info: FormatInfo, *, is_key: bool) -> None:
        self.columns: Final = columns
        self._info = info
        self._format = record_format(info, [(name, name, kind) for name, kind in columns], is_key=is_key)

    async def learn(self, pieces: Iterable[bytes | None]) -> None:
        """Ask the registry for the schemas of these records, and for the one that is written. SchemaRegistryError."""
        if self._info.registry is None or self._info.name == "PROTOBUF_NOSR":
            return
        registry = registry_of(self._info.registry)
        ids = {
            int.from_bytes(data[1:_HEAD_BYTES], "big") for data in pieces if data and len(data) > _HEAD_BYTES
        }
        if self._info.schema_id is not None:
            ids.add(self._info.schema_id)
        for schema_id in ids:
            if not registry.knows(schema_id):
                try:
                    await asyncio.to_thread(registry.by_id, schema_id)
                except UnknownSchemaId:
                    continue  # decoding says of which record

    def decode(self, data: bytes | None) -> list[Any] | None:
        if data is None:
            return None
        if not self.columns:
            return []
        try:
            row = self._format.decode(data)
        except (ValueError, SqlError) as error:
            raise UnreadableRecord(f"no {self._info.name}: {error}") from error
        return None if row is None else [_plain(row[name], kind) for name, kind in self.columns]

    def encode(self, values: Sequence[Any] | None) -> bytes | None:
        if values is None or not self.columns:
            return None
        row = {name: _as_spark(value, kind) for value, (name, kind) in zip(values, self.columns, strict=True)}
        try:
            return self._format.encode(row)
        except ValueError as error:
            raise SqlError(f"these values are no {self._info.name}: {error}") from error


def _plain(value: Any, kind: SqlType) -> Any:
    """Days and milliseconds in place of dates and moments."""
    if value is None:
        return None
    match kind.kind:
        case "DATE" if isinstance(value, date):
            return day_number(value)
        case "TIMESTAMP" if isinstance(value, datetime):
            return moment_ms(value)
        case "ARRAY":
            return [_plain(part, kind.element) for part in value]
        case "MAP":
            pairs = value.items() if isinstance(value, Mapping) else value
            return {name: _plain(part, kind.element) for name, part in pairs}
        case "STRUCT":
            return {name: _plain(value[name], part) for name, part in kind.fields}
    return value


def _as_spark(value: Any, kind: SqlType) -> Any:
    if value is None:
        return None
    match kind.kind:
        case "DATE":
            return day(value)
        case "TIMESTAMP":
            return moment(value)
        case "ARRAY":
            return [_as_spark(part, kind.element) for part in value]
        case "MAP":
            return {name: _as_spark(part, kind.element) for name, part in value.items()}
        case "STRUCT":
            return {name: _as_spark(value.get(name), part) for name, part in kind.fields}
    return value


async def learn_all(codecs: Iterable[RecordCodec], pieces: Iterable[Sequence[bytes | None]]) -> None:
    """`pieces`: of each codec, what it decodes. OdradekError when the registry cannot be asked."""
    for codec, data in zip(codecs, pieces, strict=True):
        if isinstance(codec, SchemaRowCodec):
            try:
                await codec.learn(data)
            except OdradekError as error:
                raise SqlError(str(error)) from error

"""Rows of AVRO, PROTOBUF and JSON_SR, for what needs no Spark: INSERT VALUES, pull queries, simple push queries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from odradek.model.errors import OdradekError
from odradek.values.errors import SqlError
from odradek.values.formats import record_format
from odradek.values.formats.format_info import FormatInfo
from odradek.values.formats.row_codec import decoded_row, encoded_row
from odradek.values.rows import SqlValue
from odradek.values.schema_registry import UnknownSchemaId, registry_of
from odradek.values.types import SqlType

_HEAD_BYTES: Final = 5


class RecordCodec(Protocol):
    """The bytes of a key or a value as values of columns, and back; `SqlRowCodec` documents the values."""

    @property
    def columns(self) -> tuple[tuple[str, SqlType], ...]: ...

    def decode(self, data: bytes | None) -> list[Any] | None:
        """Values in the order of the columns; None of a null. UnreadableRecord."""

    def encode(self, values: Sequence[SqlValue] | None) -> bytes | None:
        """Encodes a row. SqlError for a value that the format cannot have."""


class SchemaRowCodec:
    """A codec of rows whose schemas a registry has.

    `learn` before `decode` and `encode`: these find their schemas in memory then.
    """

    def __init__(self, columns: tuple[tuple[str, SqlType], ...], info: FormatInfo, *, is_key: bool) -> None:
        self.columns: Final = columns
        self._info = info
        self._format = record_format(info, [(name, name, kind) for name, kind in columns], is_key=is_key)

    async def learn(self, pieces: Iterable[bytes | None]) -> None:
        """Asks the registry for the schemas of these records, and for the one that is written. SchemaRegistryError."""
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
                    continue  # decoding reports which record

    def decode(self, data: bytes | None) -> list[Any] | None:
        if data is None:
            return None
        if not self.columns:
            return []
        return decoded_row(self._format, self.columns, data)

    def encode(self, values: Sequence[SqlValue] | None) -> bytes | None:
        if values is None or not self.columns:
            return None
        return encoded_row(self._format, self.columns, values)


async def learn_all(codecs: Iterable[RecordCodec], pieces: Iterable[Sequence[bytes | None]]) -> None:
    """Fetches the schemas of records. `pieces`: the bytes for each codec. OdradekError when the registry does not answer."""
    for codec, data in zip(codecs, pieces, strict=True):
        if isinstance(codec, SchemaRowCodec):
            try:
                await codec.learn(data)
            except OdradekError as error:
                raise SqlError(str(error)) from error

"""AVRO in Confluent's framing. Schemas are made of columns as ksqlDB makes them, or come from a schema registry."""

from __future__ import annotations

import json
from collections.abc import Mapping

from odradek.values.formats.avro_schemas import SQL_TYPES, AvroSchema, avro_schema, avro_type, parsed_schema
from odradek.values.formats.avro_values import AvroCodec
from odradek.values.formats.format_info import FormatColumn, FormatInfo
from odradek.values.formats.framing import SchemaIds
from odradek.values.rows import SqlValue
from odradek.values.schema_registry import RegisteredSchema
from odradek.values.types import SqlType, struct_of_fields


def avro_columns(schema: RegisteredSchema) -> list[tuple[str, SqlType]] | SqlType:
    """Returns the fields of a record, in upper case; else the type of the bare value. Raises SqlError for other schemas."""
    kind = avro_type(parsed_registered(schema), SQL_TYPES)
    return list(kind.fields) if kind.kind == "STRUCT" else kind


def parsed_registered(schema: RegisteredSchema) -> AvroSchema:
    """Parses a schema of the registry, with those that it refers to. Raises SqlError for a text that is no schema."""
    return parsed_schema(
        schema.text,
        f"schema {schema.id}",
        [(f"schema {part.id}", part.text) for part in schema.all_references()],
    )


class AvroFormat:
    """The codec of AVRO. It reads data of any schema of the registry: fields find their columns by name."""

    def __init__(self, columns: tuple[FormatColumn, ...], info: FormatInfo, *, wrapped: bool) -> None:
        self._columns = columns
        self._ids = SchemaIds(
            info, "AVRO", json.dumps(avro_schema(columns, info.schema_name, wrapped=wrapped))
        )
        self._wrapped = wrapped
        fields = struct_of_fields([(column.name, column.type) for column in columns])
        self._kind = fields if wrapped else columns[0].type
        self._codecs: dict[int, AvroCodec] = {}

    def __getstate__(self) -> object:
        return {**vars(self), "_codecs": {}}  # tasks make them again

    def _codec(self, schema_id: int) -> AvroCodec:
        known = self._codecs.get(schema_id)
        if known is None:
            schema = self._ids.schema(schema_id)
            known = self._codecs[schema_id] = AvroCodec(parsed_registered(schema), self._kind)
        return known

    def encode(self, values: Mapping[str, SqlValue]) -> bytes | None:
        """Raises ValueError for a value that the schema does not have."""
        head, schema_id = self._ids.head()
        codec = self._codec(schema_id)
        row = {column.name: values[column.column] for column in self._columns}
        if self._wrapped:
            return codec.encode(row, head)
        (value,) = row.values()
        return None if value is None else codec.encode(value, head)

    def decode(self, data: bytes) -> dict[str, object] | None:
        """Raises ValueError for data that is not of its schema."""
        schema_id, body = self._ids.body(data)
        codec = self._codec(schema_id)
        try:
            row = codec.decode(body)
        except ValueError as error:
            raise ValueError(f"no data of schema {schema_id}: {error!s:.200}") from None
        if not self._wrapped:
            return {self._columns[0].column: row}
        if row is None:
            raise ValueError(f"schema {schema_id} is no record")
        return {column.column: row[column.name] for column in self._columns}

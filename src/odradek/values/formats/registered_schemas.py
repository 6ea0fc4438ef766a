"""Schemas of a registry, whatever their format: of columns, and as columns."""

from __future__ import annotations

import json
from typing import Final

from odradek.values.formats.avro_format import avro_columns
from odradek.values.formats.avro_schemas import avro_schema
from odradek.values.formats.format_info import FormatColumn, FormatInfo
from odradek.values.formats.json_sr_format import json_columns, json_schema
from odradek.values.formats.protobuf_schemas import proto_columns, proto_text
from odradek.values.schema_registry import RegisteredSchema
from odradek.values.types import SqlType

SCHEMA_TYPES: Final = {"AVRO": "AVRO", "PROTOBUF": "PROTOBUF", "JSON_SR": "JSON"}
"""Formats, and what the registry calls their schemas."""


def is_bare(info: FormatInfo, columns: tuple[FormatColumn, ...], *, is_key: bool) -> bool:
    """A single column is written without an object around it; PROTOBUF always has the object."""
    if len(columns) != 1 or info.name.startswith("PROTOBUF"):
        return False
    return is_key or not info.wrapped


def schema_text(info: FormatInfo, columns: tuple[FormatColumn, ...], *, is_key: bool) -> str:
    """Returns what is registered for these columns. Raises SqlError for a type that the format does not have."""
    wrapped = not is_bare(info, columns, is_key=is_key)
    match info.name:
        case "AVRO":
            return json.dumps(avro_schema(columns, info.schema_name, wrapped=wrapped))
        case "JSON_SR":
            return json.dumps(json_schema(columns, wrapped=wrapped))
    return proto_text(columns, info.schema_name, info.nullable)


def columns_of(schema: RegisteredSchema, full_name: str | None) -> list[tuple[str, SqlType]] | SqlType:
    """The fields of a record, in upper case, or the type of a bare value. `full_name`: of a message, of those in a file."""
    match schema.type:
        case "AVRO":
            return avro_columns(schema)
        case "JSON":
            return json_columns(schema)
    return proto_columns(schema, full_name)

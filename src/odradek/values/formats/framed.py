"""Which schema a record has: a zero byte and the schema's id stand before the data."""

from __future__ import annotations

import struct
from typing import Final

from odradek.values.formats.format_info import FormatInfo
from odradek.values.schema_registry import RegisteredSchema, registry_of

_HEAD: Final = struct.Struct(">bI")


class SchemaIds:
    """`text`: the schema that the columns make, which stands for every id where there is no registry."""

    def __init__(self, info: FormatInfo, kind: str, text: str) -> None:
        self._format = info.name
        self._written_id = info.schema_id
        self._terms = info.registry
        self._own = RegisteredSchema(id=info.schema_id or 0, type=kind, text=text)

    def head(self) -> tuple[bytes, int]:
        """What stands before the data that is written, and the id in it. ValueError when there is none."""
        if self._written_id is None:
            raise ValueError(f"writing {self._format} needs the id of a schema in the registry")
        return _HEAD.pack(0, self._written_id), self._written_id

    def body(self, data: bytes) -> tuple[int, bytes]:
        """The id in a record, and what follows it. ValueError for data without a head."""
        if len(data) < _HEAD.size or data[0] != 0:
            raise ValueError("no magic byte and schema id before the data")
        return int(_HEAD.unpack_from(data)[1]), data[_HEAD.size :]

    def schema(self, schema_id: int) -> RegisteredSchema:
        """UnknownSchemaId, SchemaRegistryError."""
        if self._terms is None:
            return self._own
        schema = registry_of(self._terms).by_id(schema_id)
        if schema.type != self._own.type:
            raise ValueError(f"schema {schema_id} is {schema.type}, not {self._own.type}")
        return schema

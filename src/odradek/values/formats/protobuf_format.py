"""PROTOBUF in Confluent's framing, and PROTOBUF_NOSR, which is the same without it.

A simple column that is null is written as the default of its type, unless NULLABLE_REPRESENTATION is set.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.values.formats.format_info import FormatColumn, FormatInfo
from odradek.values.formats.framing import FIRST_MESSAGE, SchemaIds, after_message_head, message_head
from odradek.values.formats.protobuf_schemas import ProtoFile, message_class, proto_file, proto_text
from odradek.values.formats.protobuf_values import decoded_message, encoded_message
from odradek.values.rows import SqlValue
from odradek.values.schema_registry import RegisteredSchema
from odradek.values.types import struct_of_fields


class ProtobufFormat:
    """The codec of PROTOBUF. It reads data of any schema of the registry: fields find their columns by name."""

    def __init__(self, columns: tuple[FormatColumn, ...], info: FormatInfo) -> None:
        text = proto_text(columns, info.schema_name, info.nullable)
        self._columns = columns
        self._kind = struct_of_fields([(column.name, column.type) for column in columns])
        self._message_name = info.schema_name
        self._own = RegisteredSchema(id=0, type="PROTOBUF", text=text)
        self._ids = SchemaIds(info, "PROTOBUF", text) if info.name == "PROTOBUF" else None
        self._files: dict[int, ProtoFile] = {}

    def __getstate__(self) -> object:
        return {**vars(self), "_files": {}}  # tasks parse them again

    def _file(self, schema_id: int) -> ProtoFile:
        known = self._files.get(schema_id)
        if known is None:
            schema = self._own if self._ids is None else self._ids.schema(schema_id)
            known = self._files[schema_id] = proto_file(schema)
        return known

    def encode(self, values: Mapping[str, SqlValue]) -> bytes:
        """Raises ValueError for a value that the schema does not have."""
        head, schema_id, indexes = b"", 0, FIRST_MESSAGE
        if self._ids is not None:
            head, schema_id = self._ids.head()
        file = self._file(schema_id)
        if self._ids is not None:
            indexes = file.indexes_of(self._message_name)
            head += message_head(indexes)
        message_type = message_class(file.message_at(indexes))
        row = {column.name: values[column.column] for column in self._columns}
        return head + encoded_message(message_type, self._kind, row)

    def decode(self, data: bytes) -> dict[str, object]:
        """Raises ValueError for data that is not of its schema."""
        schema_id, indexes, body = 0, FIRST_MESSAGE, data
        if self._ids is not None:
            schema_id, body = self._ids.body(data)
            indexes, body = after_message_head(body)
        message_type = message_class(self._file(schema_id).message_at(indexes))
        row = decoded_message(message_type, self._kind, body)
        return {column.column: row[column.name] for column in self._columns}

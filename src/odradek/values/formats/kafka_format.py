"""KAFKA: one column, as Kafka's own serializers write it. NONE: nothing."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from odradek.values.errors import SqlError
from odradek.values.formats.format_info import FormatColumn

_NUMBERS: Final = {
    "INTEGER": struct.Struct(">i"),
    "BIGINT": struct.Struct(">q"),
    "DOUBLE": struct.Struct(">d"),
}


class KafkaFormat:
    """The format KAFKA: bytes of Kafka's serializers.

    SqlError for more than one column, and for types without a serializer of Kafka.
    """

    def __init__(self, columns: tuple[FormatColumn, ...]) -> None:
        if len(columns) != 1:
            named = ", ".join(f"`{column.name}` {column.type}" for column in columns)
            raise SqlError(
                f"The 'KAFKA' format only supports a single field. Got: [{named}]", hint="Use JSON"
            )
        (self._column,) = columns
        if self._column.type.kind not in (*_NUMBERS, "STRING", "BYTES"):
            raise SqlError(
                f"The 'KAFKA' format does not support type '{self._column.type.kind}', column: `{self._column.name}`"
            )

    def encode(self, values: Mapping[str, Any]) -> bytes | None:
        value = values[self._column.column]
        if value is None or isinstance(value, bytes):
            return value
        number = _NUMBERS.get(self._column.type.kind)
        return str(value).encode() if number is None else number.pack(value)

    def decode(self, data: bytes) -> dict[str, Any]:
        number = _NUMBERS.get(self._column.type.kind)
        if number is None:
            is_bytes = self._column.type.kind == "BYTES"
            return {self._column.column: data if is_bytes else data.decode(errors="replace")}
        if len(data) != number.size:
            raise ValueError(f"Size of data received by {self._column.type} is not {number.size}")
        return {self._column.column: number.unpack(data)[0]}


class NoneFormat:
    """The codec of NONE, for keys and values that do not exist."""

    def encode(self, values: Mapping[str, Any]) -> None:
        return None

    def decode(self, data: bytes) -> None:
        return None

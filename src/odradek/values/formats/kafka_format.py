"""KAFKA: one column, as Kafka's own serializers write it. NONE: nothing."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.values.errors import SqlError
from odradek.values.formats.format_info import FormatColumn
from odradek.values.rows import SqlValue


@dataclass(frozen=True, slots=True)
class KafkaNumber:
    """A serializer of Kafka for numbers, which are big-endian.

    `name`: what Kafka calls it, as in `LongSerializer`, in lower case.
    """

    name: str
    layout: struct.Struct

    @property
    def size_bytes(self) -> int:
        return self.layout.size

    def data(self, number: object) -> bytes:
        """Returns the bytes of a number. `DoubleSerializer` writes every NaN as the same bytes."""
        return self.layout.pack(math.nan if number != number else number)


KAFKA_NUMBERS: Final[Mapping[str, KafkaNumber]] = {
    "SMALLINT": KafkaNumber("short", struct.Struct(">h")),
    "INTEGER": KafkaNumber("int", struct.Struct(">i")),
    "BIGINT": KafkaNumber("long", struct.Struct(">q")),
    "FLOAT": KafkaNumber("float", struct.Struct(">f")),
    "DOUBLE": KafkaNumber("double", struct.Struct(">d")),
}
"""Serializers by the kind of a type. A STRING is UTF-8, and BYTES are as they are."""


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
        if self._column.type.kind not in (*KAFKA_NUMBERS, "STRING", "BYTES"):
            raise SqlError(
                f"The 'KAFKA' format does not support type '{self._column.type.kind}', column: `{self._column.name}`"
            )

    def encode(self, values: Mapping[str, SqlValue]) -> bytes | None:
        value = values[self._column.column]
        if value is None or isinstance(value, bytes):
            return value
        number = KAFKA_NUMBERS.get(self._column.type.kind)
        return str(value).encode() if number is None else number.data(value)

    def decode(self, data: bytes) -> dict[str, object]:
        number = KAFKA_NUMBERS.get(self._column.type.kind)
        if number is None:
            is_bytes = self._column.type.kind == "BYTES"
            return {self._column.column: data if is_bytes else data.decode(errors="replace")}
        if len(data) != number.size_bytes:
            raise ValueError(f"Size of data received by {self._column.type} is not {number.size_bytes}")
        return {self._column.column: number.layout.unpack(data)[0]}


class NoneFormat:
    """The codec of NONE, for keys and values that do not exist."""

    def encode(self, values: Mapping[str, SqlValue]) -> None:
        return None

    def decode(self, data: bytes) -> None:
        return None

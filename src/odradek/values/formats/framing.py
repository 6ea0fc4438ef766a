"""Confluent's framing: a zero byte and the schema's id in a registry (four bytes, big endian) before the data.

Protobuf has the indexes of its message after that: which message of the file, which message within it, and so on.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from odradek.model.errors import ConfigError
from odradek.values.formats.format_info import FormatInfo
from odradek.values.schema_registry import RegisteredSchema, registry_of

_MAGIC: Final = 0
_HEAD: Final = struct.Struct(">bI")
_VARINT_BYTES_MAX: Final = 5
"""Of an index, which has 32 bits."""


def framed_head(schema_id: int) -> bytes:
    """Returns the zero byte and the id that precede the data."""
    return _HEAD.pack(_MAGIC, schema_id)


def split_frame(data: bytes) -> tuple[int, bytes]:
    """Returns the id in a record, and what follows it. Raises ValueError for data without a head."""
    if len(data) < _HEAD.size or data[0] != _MAGIC:
        raise ValueError(
            "no magic byte and schema id before the data: it was not written with Confluent's framing"
        )
    return int(_HEAD.unpack_from(data)[1]), data[_HEAD.size :]


def framed(data: bytes) -> tuple[int, bytes] | None:
    """Returns the id of a schema in a record, and what follows it; None for data without a head."""
    return split_frame(data) if len(data) >= _HEAD.size and data[0] == _MAGIC else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfluentFraming:
    """The framing of a schema registry: a magic byte and a schema id.

    `schema_id`: what is written, and the only one that is read; None reads any, and cannot write.
    """

    schema_id: int | None

    def payload(self, data: bytes) -> bytes:
        """Returns what follows the head. Raises ValueError for data without a head, or of another schema."""
        schema_id, body = split_frame(data)
        if self.schema_id not in (None, schema_id):
            raise ValueError(f"the schema id is {schema_id}, not {self.schema_id}")
        return body

    def head(self) -> bytes:
        if self.schema_id is None:
            raise ConfigError(
                "writing with Confluent's framing needs schema_id=, the schema's id in the registry"
            )
        return framed_head(self.schema_id)


def framing(confluent: bool, schema_id: int | None) -> ConfluentFraming | None:
    """Returns None for plain data. Raises ConfigError for an id that nothing would hold."""
    if schema_id is not None and not confluent:
        raise ConfigError("schema_id= is for confluent=True: plain data holds no id")
    return ConfluentFraming(schema_id=schema_id) if confluent else None


class SchemaIds:
    """Finds schemas of records in a registry.

    `text`: the schema that the columns make; it is used for every id where there is no registry.
    """

    def __init__(self, info: FormatInfo, kind: str, text: str) -> None:
        self._format = info.name
        self._written_id = info.schema_id
        self._terms = info.registry
        self._own = RegisteredSchema(id=info.schema_id or 0, type=kind, text=text)

    def head(self) -> tuple[bytes, int]:
        """Returns the bytes before the data that is written, and the id in them. Raises ValueError when there is none."""
        if self._written_id is None:
            raise ValueError(f"writing {self._format} needs the id of a schema in the registry")
        return framed_head(self._written_id), self._written_id

    def body(self, data: bytes) -> tuple[int, bytes]:
        """Returns the id in a record, and what follows it. Raises ValueError for data without a head."""
        return split_frame(data)

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Raises UnknownSchemaId and SchemaRegistryError."""
        if self._terms is None:
            return self._own
        schema = registry_of(self._terms).by_id(schema_id)
        if schema.type != self._own.type:
            raise ValueError(f"schema {schema_id} is {schema.type}, not {self._own.type}")
        return schema


# ---- the indexes of a message

FIRST_MESSAGE: Final[tuple[int, ...]] = (0,)


def message_head(indexes: Sequence[int]) -> bytes:
    """Returns the indexes as they are written: the first message of a file is one zero byte."""
    if tuple(indexes) == FIRST_MESSAGE:
        return b"\0"
    return b"".join(map(_varint, (len(indexes), *indexes)))


def after_message_head(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """Returns the indexes of the message, and what follows them. Raises ValueError for data that has none."""
    count, end = _read_varint(data, 0)
    if not 0 <= count <= len(data):
        raise ValueError(f"{count} indexes of a message in {len(data)} bytes")
    indexes = []
    for _ in range(count):
        number, end = _read_varint(data, end)
        if number < 0:
            raise ValueError(f"the index of a message is {number}")
        indexes.append(number)
    return tuple(indexes) or FIRST_MESSAGE, data[end:]


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns a zigzag number, and the position after it. Raises ValueError where the data ends before it does."""
    number = 0
    for count in range(_VARINT_BYTES_MAX):
        if position >= len(data):
            raise ValueError("the data ends within a number")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise ValueError("the index of a message has more than 32 bits")


def _varint(number: int) -> bytes:
    """Returns a zigzag number, zero or above."""
    rest, written = number << 1, bytearray()
    while rest >= 0x80:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    written.append(rest)
    return bytes(written)

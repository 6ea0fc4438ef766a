"""Confluent's framing: a zero byte and the schema's id in a registry (four bytes, big endian) before the data."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from odradek.model.errors import ConfigError

_MAGIC: Final = 0
_HEAD: Final = struct.Struct(">bI")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfluentFraming:
    """`schema_id`: what is written, and the only one that is read; None reads any, and cannot write."""

    schema_id: int | None

    def payload(self, data: bytes) -> memoryview:
        """What follows the head. ValueError for data without a head, or of another schema."""
        if len(data) < _HEAD.size or data[0] != _MAGIC:
            raise ValueError(
                "no magic byte and schema id before the data: it was not written with Confluent's framing"
            )
        _, schema_id = _HEAD.unpack_from(data)
        if self.schema_id not in (None, schema_id):
            raise ValueError(f"the schema id is {schema_id}, not {self.schema_id}")
        return memoryview(data)[_HEAD.size :]

    def head(self) -> bytes:
        if self.schema_id is None:
            raise ConfigError(
                "writing with Confluent's framing needs schema_id=, the schema's id in the registry"
            )
        return _HEAD.pack(_MAGIC, self.schema_id)


def framing(confluent: bool, schema_id: int | None) -> ConfluentFraming | None:
    """None for plain data. ConfigError for an id that nothing would hold."""
    if schema_id is not None and not confluent:
        raise ConfigError("schema_id= is for confluent=True: plain data holds no id")
    return ConfluentFraming(schema_id=schema_id) if confluent else None


def read_varint(data: memoryview, place: int) -> tuple[int, int]:
    """A zigzag number, and the place after it. ValueError where the data ends before it does."""
    number = shift = 0
    while True:
        if place >= len(data):
            raise ValueError("the data ends within a number")
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), place
        shift += 7


def varint(number: int) -> bytes:
    """A zigzag number, zero or above."""
    rest, made = number << 1, bytearray()
    while rest >= 0x80:
        made.append(rest & 0x7F | 0x80)
        rest >>= 7
    made.append(rest)
    return bytes(made)

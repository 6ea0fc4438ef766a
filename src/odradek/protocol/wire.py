"""Functions that compiled codecs call at run time: varints, tagged sections, and caches of `struct` formats.

Everything here is bounded: caches stop growing at a fixed size and then do the same work uncached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct as Layout
from typing import Final
from uuid import UUID

from odradek.protocol.errors import Fault

LENGTH_MAX: Final = 0x7FFFFFFF
TAGS_MAX: Final = 100
"""Tagged fields of one struct; no message of Kafka's has more than ten. To step over a million of them takes half a second."""
_INT32: Final = Layout(">i")
_CACHED_COUNT_MAX: Final = 256
_CACHED_NUMBERS_MAX: Final = 8
_CACHED_ARRAYS_MAX: Final = 4096
_CACHED_UUIDS_MAX: Final = 8192


def read_uvarint(buffer: Sequence[int], position: int) -> tuple[int, int]:
    """Returns (value, position after it); at most five bytes and 2**31-1, enough for lengths and tags."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > LENGTH_MAX:
                raise Fault("a varint is above 2**31-1")
            return value, position
    raise Fault("a varint is longer than five bytes")


def uvarint(value: int) -> bytes:
    """Returns the shortest encoding of `value`."""
    if value < 0x80:
        return value.to_bytes(1, "big")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def skip_tags(buffer: Sequence[int], position: int, end: int) -> int:
    """Steps over a section of unknown tagged fields; returns the position after it."""
    count, position = read_uvarint(buffer, position)
    if count * 2 > end - position:
        raise Fault(f"{count} tagged fields cannot fit into {end - position} bytes")
    if count > TAGS_MAX:
        raise Fault(f"{count} tagged fields in one place")
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > end:
            raise Fault("a tagged field reaches past the end")
    return position


def tag_prefix(tag: int, size: int) -> bytes:
    """Returns the bytes before the content of one tagged field."""
    return uvarint(tag) + uvarint(size)


class UuidCache(dict[bytes, UUID]):
    """16 bytes -> UUID. Topic ids repeat in every request, and making a UUID costs twenty times a look-up."""

    def __missing__(self, raw: bytes) -> UUID:
        if len(self) >= _CACHED_UUIDS_MAX:
            self.clear()
        value = self[raw] = UUID(bytes=raw)
        return value


class ArrayReaders(dict[int, Callable[..., tuple[object, ...]]]):
    """Stored element count -> function that unpacks that many numbers of one format.

    The stored count is one too many in compact form. For null it raises Fault. A count that reaches past the
    end of the buffer fails in the function, before it allocates.
    """

    def __init__(self, character: str, compact: bool) -> None:
        super().__init__()
        self._character = character
        self._excess = int(compact)

    def __missing__(self, stored: int) -> Callable[..., tuple[object, ...]]:
        count = stored - self._excess
        if count < 0:
            raise Fault("null where an array is required")
        reader = Layout(f">{count}{self._character}").unpack_from
        if count <= _CACHED_COUNT_MAX:
            self[stored] = reader
        return reader


class EncodedArrays(dict[tuple[object, ...] | None, bytes]):
    """An array of numbers of one format, as a tuple, or None -> its bytes, count included.

    Short arrays on the wire are mostly replica lists: a few combinations, repeated for every partition.
    Looking their bytes up is cheaper than packing them.
    """

    def __init__(self, character: str, compact: bool) -> None:
        super().__init__()
        self._character = character
        self._compact = compact

    def __missing__(self, numbers: tuple[object, ...] | None) -> bytes:
        count = -1 if numbers is None else len(numbers)
        prefix = uvarint(count + 1) if self._compact else _INT32.pack(count)
        encoded = prefix + Layout(f">{max(count, 0)}{self._character}").pack(*numbers or ())
        if count <= _CACHED_NUMBERS_MAX and self._character != "d":  # as keys, 0.0 and -0.0 would be one
            if len(self) >= _CACHED_ARRAYS_MAX:
                self.clear()
            self[numbers] = encoded
        return encoded

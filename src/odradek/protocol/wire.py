"""What compiled codecs call at run time: varints, tagged sections, and caches of `struct` formats.

Everything here is bounded: caches stop growing at a fixed size and then do the same work uncached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct as Layout
from typing import Any, Final
from uuid import UUID

from odradek.protocol.errors import Fault

UVARINT_BYTES_MAX: Final = 5
LENGTH_MAX: Final = 0x7FFFFFFF
_CACHED_COUNT_MAX: Final = 256
_CACHED_SHAPES_MAX: Final = 4096
_CACHED_UUIDS_MAX: Final = 8192


def read_uvarint(buffer: Sequence[int], position: int) -> tuple[int, int]:
    """(value, position after it); at most five bytes and 2**31-1: Kafka uses them for lengths and tags
    only."""
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
    """The shortest encoding of `value`."""
    if value < 0x80:
        return value.to_bytes(1, "big")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def skip_tags(buffer: Sequence[int], position: int, end: int) -> int:
    """Step over a section of tagged fields none of which is known; the position after it."""
    count, position = read_uvarint(buffer, position)
    if count * 2 > end - position:
        raise Fault(f"{count} tagged fields cannot fit into {end - position} bytes")
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > end:
            raise Fault("a tagged field reaches past the end")
    return position


def tag_prefix(tag: int, size: int) -> bytes:
    """What stands before the content of one tagged field."""
    return uvarint(tag) + uvarint(size)


class UuidCache(dict[bytes, UUID]):
    """16 bytes -> UUID. Topic ids repeat in every request, and making a UUID costs twenty times a look-up."""

    def __missing__(self, raw: bytes) -> UUID:
        if len(self) >= _CACHED_UUIDS_MAX:
            self.clear()
        value = self[raw] = UUID(bytes=raw)
        return value


class ArrayReaders(dict[int, Callable[..., tuple[Any, ...]]]):
    """Element count -> function that unpacks that many numbers of one format."""

    def __init__(self, character: str) -> None:
        super().__init__()
        self._character = character

    def __missing__(self, count: int) -> Callable[..., tuple[Any, ...]]:
        reader = Layout(f">{count}{self._character}").unpack_from
        if count <= _CACHED_COUNT_MAX:
            self[count] = reader
        return reader


class ShapedPackers(dict[Any, Callable[..., bytes]]):
    """Packers for a run of fixed-width fields with arrays of numbers between them.

    The key is the tuple of array lengths (one length alone for a single array; -1 for a null array). `parts`
    holds a format for each fixed field, and `(format,)` for each array, whose length is the argument before
    its elements: n+1 as a varint in compact form, else a plain int32.
    """

    def __init__(self, parts: Sequence[str | tuple[str]], compact: bool) -> None:
        super().__init__()
        self._parts = parts
        self._compact = compact

    def __missing__(self, key: int | tuple[int, ...]) -> Callable[..., bytes]:
        lengths = (key,) if isinstance(key, int) else key
        if self._compact and max(lengths) > 126:
            return self._with_long_arrays(lengths)
        prefix = "B" if self._compact else "i"
        remaining = iter(lengths)
        packer = Layout(
            ">"
            + "".join(
                part if isinstance(part, str) else f"{prefix}{max(0, next(remaining))}{part[0]}"
                for part in self._parts
            )
        ).pack
        if len(self) < _CACHED_SHAPES_MAX and max(lengths) <= _CACHED_COUNT_MAX:
            self[key] = packer
        return packer

    def _with_long_arrays(self, lengths: tuple[int, ...]) -> Callable[..., bytes]:
        """A packer that takes the same arguments, for lengths whose varint has more than one byte."""

        def pack(*arguments: Any) -> bytes:
            encoded = bytearray()
            taken = 0
            remaining = iter(lengths)
            for part in self._parts:
                if isinstance(part, tuple):
                    count = max(0, next(remaining))
                    encoded += uvarint(arguments[taken])
                    taken += 1
                    layout = Layout(f">{count}{part[0]}")
                else:
                    layout = Layout(">" + part)
                    count = sum(1 for character in part if character.isalpha() and character != "x")
                encoded += layout.pack(*arguments[taken : taken + count])
                taken += count
            return bytes(encoded)

        return pack

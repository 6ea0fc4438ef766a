"""Hopping from batch to batch in a buffer or a file without building a `BatchHeader` for each.

A read of 1 MiB may pass ten thousand small batches, so this reads only what a hop needs: offset, length, the last offset
and the largest timestamp. It trusts lengths no further than the bytes that are there; it never looks at a CRC.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from odradek.records import HEADER_BYTES, BatchHeader, read_header
from odradek.runtime.ports import Buffer, DiskFile

FRAME: Final = struct.Struct(">qi")
FRAME_BYTES: Final = FRAME.size
BATCH_BYTES_MIN: Final = HEADER_BYTES
_MAGIC: Final = 2
_HEAD: Final = struct.Struct(">qiiBIhiqq")
_WINDOW_BYTES: Final = 64 * 1024
_SMALL_WINDOW_BYTES: Final = 4 * 1024


class Mark(NamedTuple):
    """The position of a batch, and the header fields that the indexes need."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int


class BrokenChain(Exception):
    """The bytes at `position` cannot be a batch."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"at byte {position}: {reason}")
        self.position = position
        self.reason = reason


def mark_at(buffer: Buffer, index: int, position: int) -> Mark:
    """Returns the batch whose header begins at `buffer[index]`, which is byte `position` of its file. Raises BrokenChain."""
    if len(buffer) - index < HEADER_BYTES:
        raise BrokenChain(position, "a header cut short")
    base, length, epoch, magic, _, _, last_delta, _, max_timestamp = _HEAD.unpack_from(buffer, index)
    size = length + FRAME_BYTES
    if magic != _MAGIC or size < BATCH_BYTES_MIN or base < 0 or last_delta < 0:
        raise BrokenChain(
            position, f"not a record batch (magic {magic}, length {length}, base offset {base})"
        )
    return Mark(position, size, base, base + last_delta, max_timestamp, epoch)


def walk(file: DiskFile, start: int, end: int) -> Iterator[Mark]:
    """Yields the batches of `file` between the byte positions, by their headers alone, in few reads.

    Raises BrokenChain at the first position that holds no whole batch.
    """
    for window, index, position in _hops(file, start, end):
        yield mark_at(window, index, position)


def walk_headers(file: DiskFile, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yields the position and the whole header of each batch, as `walk` does."""
    for window, index, position in _hops(file, start, end):
        mark_at(window, index, position)
        yield position, read_header(window, index)


def last_boundary(file: DiskFile, start: int, limit: int) -> tuple[int, int] | None:
    """Hops from the batch at byte `start`; returns the end position of the last batch that ends by `limit`, and its next
    offset.

    None when not even the first one does. Raises BrokenChain.
    """
    window, window_start, position = b"", start, start
    place: tuple[int, int] | None = None
    while position + BATCH_BYTES_MIN <= limit:
        index = position - window_start
        if index + HEADER_BYTES > len(window):
            window = file.pread(min(_SMALL_WINDOW_BYTES, limit - position), position)
            window_start, index = position, 0
        mark = mark_at(window, index, position)
        position += mark.size_bytes
        if position <= limit:
            place = (position, mark.last_offset + 1)
    return place


def _hops(file: DiskFile, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    window = b""
    window_start = position = start
    while position < end:
        index = position - window_start
        if index + HEADER_BYTES > len(window):
            window = file.pread(min(_WINDOW_BYTES, end - position), position)
            window_start, index = position, 0
        if len(window) - index < HEADER_BYTES:
            raise BrokenChain(position, "a header cut short")
        size = FRAME.unpack_from(window, index)[1] + FRAME_BYTES
        if size < BATCH_BYTES_MIN or position + size > end:
            raise BrokenChain(position, f"a batch of {size} bytes does not fit")
        yield window, index, position
        position += size

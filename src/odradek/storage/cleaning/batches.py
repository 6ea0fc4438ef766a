"""The batches of a segment's file one after another, each checked down to its CRC, in reads of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import HEADER_BYTES, BatchHeader, check_crc, read_header
from odradek.runtime.ports import DiskFile

_WINDOW_BYTES_MIN: Final = 16 << 10


def checked_batches(
    file: DiskFile, size_bytes: int, window_bytes: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yields all batches; reads a larger one by itself. Raises KafkaError CORRUPT_MESSAGE or UNSUPPORTED_FOR_MESSAGE_FORMAT."""
    window_bytes = max(window_bytes, _WINDOW_BYTES_MIN)
    window, start, position = memoryview(b""), 0, 0
    while position < size_bytes:
        if position + HEADER_BYTES > start + len(window):
            window, start = _read(file, position, window_bytes, size_bytes), position
        header = read_header(window, position - start)
        end = position + header.size_bytes
        if end > size_bytes:
            message = f"the batch at byte {position} ends {end - size_bytes} bytes after its segment"
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, message)
        if end > start + len(window):
            wanted_bytes = max(window_bytes, header.size_bytes)
            window, start = _read(file, position, wanted_bytes, size_bytes), position
        batch = window[position - start : end - start]
        check_crc(batch)
        yield header, batch
        position = end


def _read(file: DiskFile, position: int, length: int, size_bytes: int) -> memoryview:
    return memoryview(file.pread(min(length, size_bytes - position), position))

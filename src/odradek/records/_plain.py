"""The records inside a batch, in plain Python: the readable twin of the compiled engine.

`_fast.py` must do exactly what this file does; one test suite runs over both, and a fuzzer sets them against
each other.

A record (KIP-98; all varints zigzag, at most 5 bytes, the timestamp's at most 10):

    length | attributes i8 | timestamp delta | offset delta | key length | key | value length | value
    | header count | (key length | key | value length | value)*

A length of -1 stands for null. Nothing a producer wrote is believed: every length is held against the bytes
that are there before it is used, and a record must end exactly where its own length says.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from odradek.records.faults import invalid
from odradek.records.frame import RECORD_BYTES_MIN, Frame, Walk
from odradek.records.record import Header, Record, TimestampType
from odradek.runtime.ports import Buffer

NAME: Final = "plain"

_HEADER_BYTES: Final = 61
_INT32_MAX: Final = 0x7FFF_FFFF
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_NO_TIMESTAMP: Final = -1


def _read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """(value, position behind it) of a zigzag varint of at most 32 bits. IndexError at the end of `data`."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise invalid("a varint is longer than 5 bytes")
    if value > 0xFFFF_FFFF:
        raise invalid("a varint does not fit in 32 bits")
    return (value >> 1) ^ -(value & 1), position + 1


def _read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """Like `_read_varint`, for 64 bits."""
    value, shift = 0, 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise invalid("a varint is longer than 10 bytes")
    if value > 0xFFFF_FFFF_FFFF_FFFF:
        raise invalid("a varint does not fit in 64 bits")
    return (value >> 1) ^ -(value & 1), position


def _read_span(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """(start, stop) of a field behind its length; stop is -1 for null, and the next field then begins at
    start.
    """
    length, position = _read_varint(data, position)
    if length < -1 or length > end - position:
        raise invalid(f"a field of {length} bytes in a record with {end - position} left")
    return position, (position + length if length >= 0 else -1)


class _RawRecord(NamedTuple):
    timestamp: int
    offset_delta: int
    key: tuple[int, int]
    value: tuple[int, int]
    header_count: int
    headers_position: int
    end: int


def _read_record(data: Buffer, position: int, frame: Frame, previous_delta: int) -> _RawRecord:
    """The record at `position`, up to its headers."""
    length, position = _read_varint(data, position)
    if length < 0 or length > len(data) - position:
        raise invalid(f"a record of {length} bytes where {len(data) - position} are left")
    end = position + length
    timestamp_delta, position = _read_varlong(data, position + 1)
    offset_delta, position = _read_varint(data, position)
    if not previous_delta < offset_delta <= frame.last_offset_delta:
        raise invalid(
            f"offset delta {offset_delta} after {previous_delta}, the batch ends at {frame.last_offset_delta}"
        )
    if frame.timestamp_type is TimestampType.LOG_APPEND_TIME:
        timestamp = frame.append_timestamp
    else:
        timestamp = frame.base_timestamp + timestamp_delta
        if not _INT64_MIN <= timestamp <= _INT64_MAX:
            raise invalid("a timestamp does not fit in 64 bits")
    key = _read_span(data, position, end)
    value = _read_span(data, max(key), end)
    header_count, position = _read_varint(data, max(value))
    if header_count < 0 or header_count > end - position:
        raise invalid(f"{header_count} headers in a record with {end - position} bytes left")
    return _RawRecord(timestamp, offset_delta, key, value, header_count, position, end)


def _read_headers(data: Buffer, raw: _RawRecord) -> list[tuple[int, int, int, int]]:
    """(key start, key stop, value start, value stop) of each header; checks that the record ends where it
    should.
    """
    headers = []
    position = raw.headers_position
    for _ in range(raw.header_count):
        key_start, key_stop = _read_span(data, position, raw.end)
        if key_stop < 0:
            raise invalid("a record header has no key")
        value_start, value_stop = _read_span(data, key_stop, raw.end)
        position = max(value_start, value_stop)
        headers.append((key_start, key_stop, value_start, value_stop))
    if position != raw.end:
        raise invalid(f"a record says it ends {raw.end - position} bytes from where it does")
    return headers


def _each_record(
    data: Buffer, frame: Frame, visit: Callable[[_RawRecord, list[tuple[int, int, int, int]]], None]
) -> None:
    """Call `visit` with every record of the batch; INVALID_RECORD when the bytes are not exactly such a
    batch.
    """
    if not 0 <= frame.record_count <= len(data) // RECORD_BYTES_MIN:
        raise invalid(f"{frame.record_count} records cannot be in {len(data)} bytes")
    position, delta = 0, -1
    try:
        for _ in range(frame.record_count):
            raw = _read_record(data, position, frame, delta)
            headers = _read_headers(data, raw)
            visit(raw, headers)
            position, delta = raw.end, raw.offset_delta
    except IndexError:
        raise invalid("the records are cut short") from None
    if position != len(data):
        raise invalid(f"{len(data) - position} bytes behind the last of {frame.record_count} records")


def _span(data: bytes, span: tuple[int, int]) -> bytes | None:
    return data[span[0] : span[1]] if span[1] >= 0 else None


def walk(data: Buffer, frame: Frame) -> Walk:
    """Check every record of a batch without keeping any."""
    timestamps: list[tuple[int, int]] = []
    null_keys = 0

    def visit(raw: _RawRecord, _headers: list[tuple[int, int, int, int]]) -> None:
        nonlocal null_keys
        timestamps.append((raw.timestamp, -raw.offset_delta))
        null_keys += raw.key[1] < 0

    _each_record(data, frame, visit)
    if not timestamps:
        return Walk(_NO_TIMESTAMP, _NO_TIMESTAMP, -1, 0)
    latest, negative_delta = max(timestamps)
    known = [timestamp for timestamp, _ in timestamps if timestamp != _NO_TIMESTAMP]
    return Walk(min(known, default=_NO_TIMESTAMP), latest, -negative_delta, null_keys)


def decode(data: Buffer, frame: Frame, from_offset: int) -> list[Record]:
    """The records of a batch whose offset is at least `from_offset`; all of them are checked."""
    content = bytes(data)
    records: list[Record] = []

    def visit(raw: _RawRecord, spans: list[tuple[int, int, int, int]]) -> None:
        offset = frame.base_offset + raw.offset_delta
        if offset < from_offset:
            return
        headers: tuple[Header, ...] = tuple(
            (content[span[0] : span[1]].decode("utf-8", "replace"), _span(content, span[2:]))
            for span in spans
        )
        key, value = _span(content, raw.key), _span(content, raw.value)
        records.append(
            Record(offset, raw.timestamp, frame.timestamp_type, key, value, headers, frame.leader_epoch)
        )

    _each_record(content, frame, visit)
    return records


def _write_varint(out: bytearray, number: int) -> None:
    """Zigzag, for the whole 64 bits: a 32-bit number has the same bytes."""
    rest = (number << 1) ^ (number >> 63)
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)


def _write_field(out: bytearray, field: Buffer | None) -> None:
    if field is None:
        out.append(1)
    else:
        _write_varint(out, memoryview(field).nbytes)
        out += field


class RecordWriter:
    """Records of one batch, one behind the other, after 61 bytes that are left for the header."""

    __slots__ = ("_limit", "_out", "base_timestamp", "max_timestamp", "record_count")

    def __init__(self, size_bytes_max: int) -> None:
        self._limit = size_bytes_max
        self._clear()

    def _clear(self) -> None:
        self._out = bytearray(_HEADER_BYTES)
        self.record_count = 0
        self.base_timestamp = _NO_TIMESTAMP
        self.max_timestamp = _NO_TIMESTAMP

    @property
    def size_bytes(self) -> int:
        return len(self._out)

    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
    ) -> bool:
        """Add a record; False, changing nothing, when it would go beyond the limit and is not the first."""
        base_timestamp = self.base_timestamp if self.record_count else timestamp
        if (
            not _INT64_MIN <= timestamp <= _INT64_MAX
            or not _INT64_MIN <= timestamp - base_timestamp <= _INT64_MAX
        ):
            raise OverflowError("a timestamp, and its distance from the batch's first, must fit in 64 bits")
        body = bytearray(1)
        _write_varint(body, timestamp - base_timestamp)
        _write_varint(body, self.record_count)
        _write_field(body, key)
        _write_field(body, value)
        _write_varint(body, len(headers))
        for name, content in headers:
            _write_field(body, str.encode(name))
            _write_field(body, content)
        length = bytearray()
        _write_varint(length, len(body))
        if not self._fits(len(length) + len(body)):
            return False
        self._out += length
        self._out += body
        self.max_timestamp = max(timestamp, self.max_timestamp) if self.record_count else timestamp
        self.base_timestamp = base_timestamp
        self.record_count += 1
        return True

    def _fits(self, record_bytes: int) -> bool:
        size = len(self._out) + record_bytes
        if size > _INT32_MAX:
            raise OverflowError("a batch holds less than 2 GiB")
        return size <= self._limit or self.record_count == 0

    def take(self) -> bytearray:
        """The bytes; the writer is empty afterwards."""
        out = self._out
        self._clear()
        return out


def murmur2(data: bytes) -> int:
    """The Java client's hash of a key: murmur2 with its seed, as a signed 32-bit number."""
    multiplier, mask = 0x5BD1_E995, 0xFFFF_FFFF
    length = len(data)
    whole = length & ~3
    h = 0x9747_B28C ^ length
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = k * multiplier & mask
        k = (k ^ k >> 24) * multiplier & mask
        h = (h * multiplier & mask) ^ k
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    h = (h ^ h >> 13) * multiplier & mask
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h

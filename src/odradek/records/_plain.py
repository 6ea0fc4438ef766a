"""The records inside a batch, in plain Python: the readable twin of the compiled engine.

`_fast.py` must do exactly what this file does; one test suite runs over both, and a fuzzer sets them against
each other.

A record (KIP-98; all varints zigzag, at most 5 bytes, the timestamp's at most 10):

    length | attributes i8 | timestamp delta | offset delta | key length | key | value length | value
    | header count | (key length | key | value length | value)*

A length of -1 means null. Nothing a producer wrote is trusted: every length is compared with the bytes
that are there before it is used, and a record must end exactly at its own length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeAlias, TypeVar

from odradek.records.faults import invalid
from odradek.records.frame import RECORD_BYTES_MIN, Frame, ScanState, SoundRun, Walk, Written
from odradek.records.record import Header, Record, TimestampType
from odradek.runtime.ports import Buffer

NAME: Final = "plain"

H = TypeVar("H", bound=tuple[int, ...])
T = TypeVar("T", bound=tuple[object, ...])

_HEADER_BYTES: Final = 61
_INT32_MAX: Final = 0x7FFF_FFFF
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_NO_TIMESTAMP: Final = -1


def _read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Returns (value, position after it) of a zigzag varint of at most 32 bits. Raises IndexError at the end of `data`."""
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
    """Reads a varint of 64 bits as `_read_varint` reads one of 32."""
    value, shift, byte = 0, 0, 0x80
    while byte >= 0x80:
        if shift > 63:
            raise invalid("a varint is longer than 10 bytes")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    if value > 0xFFFF_FFFF_FFFF_FFFF:
        raise invalid("a varint does not fit in 64 bits")
    return (value >> 1) ^ -(value & 1), position


def _read_span(data: Buffer, position: int, end: int) -> tuple[int, int, int]:
    """Returns (start, stop, position after it) of a field in `data`; null has a stop of -1."""
    length, position = _read_varint(data, position)
    if length < -1 or length > end - position:
        raise invalid(f"a field of {length} bytes in a record with {end - position} left")
    if length < 0:
        return position, -1, position
    stop = position + length
    return position, stop, stop


_HeaderSpans: TypeAlias = list[tuple[int, int, int, int]]
"""(key start, key stop, value start, value stop) of each header."""
_RecordSpans: TypeAlias = tuple[int, int, int, int, int, int, _HeaderSpans]
"""(timestamp, offset delta, key start, key stop, value start, value stop, headers) of a record."""
_NO_HEADERS: Final[_HeaderSpans] = []


def each_record(data: Buffer, frame: Frame) -> Iterator[_RecordSpans]:
    """Yields every record of the batch, in order; INVALID_RECORD when the bytes are not exactly such a batch."""
    if not 0 <= frame.record_count <= len(data) // RECORD_BYTES_MIN:
        raise invalid(f"{frame.record_count} records cannot be in {len(data)} bytes")
    position, size, previous_delta = 0, len(data), -1
    is_append_time = frame.timestamp_type is TimestampType.LOG_APPEND_TIME
    try:
        for _ in range(frame.record_count):
            length, position = _read_varint(data, position)
            if length < 0 or length > size - position:
                raise invalid(f"a record of {length} bytes where {size - position} are left")
            end = position + length
            timestamp_delta, position = _read_varlong(data, position + 1)
            timestamp = frame.append_timestamp if is_append_time else frame.base_timestamp + timestamp_delta
            if not _INT64_MIN <= timestamp <= _INT64_MAX:
                raise invalid("a timestamp does not fit in 64 bits")
            delta, position = _read_varint(data, position)
            if not previous_delta < delta <= frame.last_offset_delta:
                raise invalid(
                    f"offset delta {delta} after {previous_delta}, last is {frame.last_offset_delta}"
                )
            key_start, key_stop, position = _read_span(data, position, end)
            value_start, value_stop, position = _read_span(data, position, end)
            count, position = _read_varint(data, position)
            headers = _NO_HEADERS
            if count:
                headers, position = _read_headers(data, position, end, count)
            if position != end:
                raise invalid(f"a record says it ends {end - position} bytes from where it does")
            yield timestamp, delta, key_start, key_stop, value_start, value_stop, headers
            previous_delta = delta
    except IndexError:
        raise invalid("the records are cut short") from None
    if position != size:
        raise invalid(f"{size - position} bytes behind the last of {frame.record_count} records")


def _read_headers(data: Buffer, position: int, end: int, count: int) -> tuple[_HeaderSpans, int]:
    if not 0 <= count <= end - position:
        raise invalid(f"{count} headers in a record with {end - position} bytes left")
    headers = []
    for _ in range(count):
        key_start, key_stop, position = _read_span(data, position, end)
        if key_stop < 0:
            raise invalid("a record header has no key")
        value_start, value_stop, position = _read_span(data, position, end)
        headers.append((key_start, key_stop, value_start, value_stop))
    return headers, position


def split(data: memoryview, header_type: type[H]) -> tuple[list[tuple[H, memoryview]], int]:
    """Returns the whole batches at the front of `data`, as far as nothing is odd about their headers, and where they end.

    A shortcut of the compiled engine: `batch.split_batches` continues from there, and does all of the work
    here.
    """
    return [], 0


def produced(data: memoryview, header_type: type[H]) -> tuple[H, int, int] | None:
    """Returns None: `content.produced_batch` describes the short way of the compiled engine, and here there is none."""
    return None


def sound_run(
    data: memoryview,
    state: ScanState,
    last_offset_max: int,
    index_interval_bytes: int,
    recovery_point: int,
    header_type: type[H] | None,
) -> SoundRun:
    """Returns how far the batches at the front of `data` are whole and sound, and follow each other.

    A batch is sound if its CRC is right and its offsets are neither below `state.next_offset` nor above
    `last_offset_max`, at most 2**62. With a `header_type`, the run ends before a control batch, and headers
    of producers' batches are returned. A shortcut of the compiled engine: `segment_scan` continues batch by
    batch from there, and does all of the work here.
    """
    return SoundRun(0, state, [], [], -1)


def walk(data: Buffer, frame: Frame) -> Walk:
    """Checks every record of a batch without keeping any."""
    earliest, latest, latest_delta, null_keys = _NO_TIMESTAMP, _NO_TIMESTAMP, -1, 0
    for timestamp, delta, _, key_stop, _, _, _ in each_record(bytes(data), frame):
        if latest_delta < 0 or timestamp > latest:
            latest, latest_delta = timestamp, delta
        if timestamp != _NO_TIMESTAMP and (earliest == _NO_TIMESTAMP or timestamp < earliest):
            earliest = timestamp
        null_keys += key_stop < 0
    return Walk(earliest, latest, latest_delta, null_keys, _largest(data))


def _largest(data: Buffer) -> int:
    """Returns the length that the largest of these records declares; they are checked already."""
    largest, position, size = 0, 0, len(data)
    while position < size:
        length, position = _read_varint(data, position)
        largest = max(largest, length)
        position += length
    return largest


def decode(data: Buffer, frame: Frame, from_offset: int) -> list[Record]:
    """Returns the records of a batch whose offset is at least `from_offset`; all of them are checked."""
    content = bytes(data)
    kind, leader_epoch = frame.timestamp_type, frame.leader_epoch
    records: list[Record] = []
    for timestamp, delta, key_start, key_stop, value_start, value_stop, spans in each_record(content, frame):
        offset = frame.base_offset + delta
        if offset >= from_offset:
            key = content[key_start:key_stop] if key_stop >= 0 else None
            value = content[value_start:value_stop] if value_stop >= 0 else None
            headers = _headers(content, spans) if spans else ()
            records.append(Record(offset, timestamp, kind, key, value, headers, leader_epoch))
    return records


def placed(records: list[Record], kind: type[T], place: tuple[object, ...]) -> list[T]:
    """Returns every record as a tuple of this kind: the items of `place`, then the record's."""
    new = tuple.__new__
    return [new(kind, place + record) for record in records]


def allocate(size_bytes: int) -> memoryview:
    """Returns writable memory of this size. What it holds is undefined."""
    return memoryview(bytearray(size_bytes))


def _headers(content: bytes, spans: _HeaderSpans) -> tuple[Header, ...]:
    return tuple(
        (
            content[key_start:key_stop].decode("utf-8", "replace"),
            content[value_start:value_stop] if value_stop >= 0 else None,
        )
        for key_start, key_stop, value_start, value_stop in spans
    )


@lru_cache(maxsize=8192)
def _varint(number: int) -> bytes:
    """Encodes a zigzag number of the whole 64 bits: a 32-bit number has the same bytes."""
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append((rest & 0x7F) | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


_NULL: Final = _varint(-1)


def _field(content: Buffer | None) -> bytes:
    if content is None:
        return _NULL
    if type(content) is not bytes:
        content = bytes(memoryview(content))
    return _varint(len(content)) + content


class RecordWriter:
    """Records of one batch, one after the other, after 61 bytes that are left for the header."""

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
        """Adds a record; False, changing nothing, when it would go beyond the limit and is not the first."""
        base_timestamp = self.base_timestamp if self.record_count else timestamp
        if (
            not _INT64_MIN <= timestamp <= _INT64_MAX
            or not _INT64_MIN <= timestamp - base_timestamp <= _INT64_MAX
        ):
            raise OverflowError("a timestamp, and its distance from the batch's first, must fit in 64 bits")
        parts = [
            b"\x00",
            _varint(timestamp - base_timestamp),
            _varint(self.record_count),
            _field(key),
            _field(value),
            _varint(len(headers)),
        ]
        for name, content in headers:
            parts += (_field(str.encode(name)), _field(content))
        body = b"".join(parts)
        record = _varint(len(body)) + body
        if not self._fits(len(record)):
            return False
        self._out += record
        self.max_timestamp = max(timestamp, self.max_timestamp) if self.record_count else timestamp
        self.base_timestamp = base_timestamp
        self.record_count += 1
        return True

    def _fits(self, record_bytes: int) -> bool:
        size = len(self._out) + record_bytes
        if size > _INT32_MAX:
            raise OverflowError("a batch holds less than 2 GiB")
        return size <= self._limit or self.record_count == 0

    def take(self) -> Written:
        """Returns the written records; the writer is empty afterwards."""
        written = Written(self._out, self.record_count, self.base_timestamp, self.max_timestamp)
        self._clear()
        return written


def murmur2(data: bytes) -> int:
    """Returns the Java client's hash of a key: murmur2 with its seed, as a signed 32-bit number."""
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

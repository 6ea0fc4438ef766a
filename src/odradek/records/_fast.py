# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The types here are C's: Cython checks them, mypy and ruff cannot see those that `_fast.pxd` declares.
# mypy: ignore-errors
# ruff: noqa: F821
"""The records inside a batch, compiled: Cython in pure-Python mode. `_plain.py` is the same thing to be read.

Built by `setup.py` where a C compiler is found; types shared with `_fast_columns.py` are in `_fast.pxd`. How
it stays inside its buffers:

- Bytes are read through `_varint`, `_varlong` and `_field` alone. Each takes the position and the end,
  compares them before it touches a byte, and returns the position after what it read or NULL. No pointer is
  ever formed past the end; lengths are 64 bits wide, so no sum of them can wrap. No length is used twice.
- What may refuse a record returns NULL or a sentence, the error's message; it runs without the GIL and calls nothing.
- Writers compute the size first, make room, and run no Python code between that and the last byte written.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_Resize
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython.cimports.cpython.ref import Py_INCREF
from cython.cimports.cpython.tuple import PyTuple_SET_ITEM
from cython.cimports.cpython.unicode import PyUnicode_AsUTF8AndSize
from cython.cimports.libc.string import memcpy, memset
from cython.cimports.odradek.records.cpython_extra import PyObject_GC_UnTrack, PyType_GenericAlloc

from odradek.records._fast_headers import sound_run as sound_run
from odradek.records._fast_headers import split as split
from odradek.records._fast_memory import allocate as allocate
from odradek.records._fast_placing import murmur2 as murmur2
from odradek.records._fast_placing import placed as placed
from odradek.records.crc import crc32c
from odradek.records.faults import invalid
from odradek.records.frame import RECORD_BYTES_MIN, Frame, Walk, Written
from odradek.records.record import Record, TimestampType
from odradek.runtime.ports import Buffer

NAME = "compiled"

_HEADER_BYTES = cython.declare(cython.longlong, 61)
_INT32_MAX = cython.declare(cython.longlong, 0x7FFF_FFFF)
_INT64_MAX = cython.declare(cython.longlong, 0x7FFF_FFFF_FFFF_FFFF)
_INT64_MIN = cython.declare(cython.longlong, ~_INT64_MAX)
_NO_TIMESTAMP = cython.declare(cython.longlong, -1)
_RECORD_BYTES_MIN = cython.declare(cython.longlong, RECORD_BYTES_MIN)


# --- reading: positions and ends, no Python ---


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _varint(position: cython.p_uchar, end: cython.p_uchar, out: cython.p_longlong) -> cython.p_uchar:
    """Reads a zigzag number of at most 32 bits, in at most 5 bytes."""
    raw: cython.ulonglong
    byte: cython.uint
    shift: cython.int = 7
    if position >= end:
        return cython.NULL
    byte = position[0]
    position += 1
    raw = byte & 0x7F
    while byte >= 0x80:
        if position >= end or shift > 28:
            return cython.NULL
        byte = position[0]
        position += 1
        raw |= cython.cast(cython.ulonglong, byte & 0x7F) << shift
        shift += 7
    if raw >> 32:
        return cython.NULL
    out[0] = cython.cast(cython.longlong, raw >> 1) ^ -cython.cast(cython.longlong, raw & 1)
    return position


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _varlong(position: cython.p_uchar, end: cython.p_uchar, out: cython.p_longlong) -> cython.p_uchar:
    """Reads a zigzag number of at most 64 bits, in at most 10 bytes."""
    raw: cython.ulonglong = 0
    byte: cython.uint = 0x80
    shift: cython.int = 0
    while byte >= 0x80:
        if position >= end or shift > 63:
            return cython.NULL
        byte = position[0]
        position += 1
        if shift == 63 and byte > 1:
            return cython.NULL
        raw |= cython.cast(cython.ulonglong, byte & 0x7F) << shift
        shift += 7
    out[0] = cython.cast(cython.longlong, raw >> 1) ^ -cython.cast(cython.longlong, raw & 1)
    return position


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _field(position: cython.p_uchar, end: cython.p_uchar, field: cython.pointer(Field)) -> cython.p_uchar:
    """Reads a length and as many bytes; -1 is null and has none."""
    position = _varint(position, end, cython.address(field.length))
    if position == cython.NULL or field.length < -1 or field.length > end - position:
        return cython.NULL
    field.start = position
    return position + field.length if field.length > 0 else position


def parse_record(position, end, expected, previous_delta, record):
    """Parses the record at `position`, up to its headers; `record.end` is within `end`."""
    number: cython.longlong
    position = _varint(position, end, cython.address(number))
    if position == cython.NULL or number < 1 or number > end - position:
        return b"a record is cut short, or its length is impossible"
    end = position + number
    record.end = end
    position = _varlong(position + 1, end, cython.address(number))
    if position == cython.NULL:
        return b"a record's timestamp is cut short or longer than 64 bits"
    if expected.is_append_time:
        record.timestamp = expected.append_timestamp
    else:
        if number > 0 and expected.base_timestamp > _INT64_MAX - number:
            return b"a timestamp does not fit in 64 bits"
        if number < 0 and expected.base_timestamp < _INT64_MIN - number:
            return b"a timestamp does not fit in 64 bits"
        record.timestamp = expected.base_timestamp + number
    position = _varint(position, end, cython.address(number))
    if position == cython.NULL:
        return b"a record's offset is cut short or longer than 32 bits"
    if number <= previous_delta or number > expected.last_offset_delta:
        return b"offset deltas do not rise, or go beyond the batch's last"
    record.offset_delta = number
    position = _field(position, end, cython.address(record.key))
    if position == cython.NULL:
        return b"a record's key is longer than the record"
    position = _field(position, end, cython.address(record.value))
    if position == cython.NULL:
        return b"a record's value is longer than the record"
    position = _varint(position, end, cython.address(record.header_count))
    if position == cython.NULL or record.header_count < 0 or record.header_count > end - position:
        return b"a record has an impossible number of headers"
    if record.header_count == 0 and position != end:
        return b"a record does not end where it says"
    record.headers = position
    return cython.NULL


def parse_header(position, end, key, value):
    """Parses a record header at `position`; returns the position after it, or NULL."""
    position = _field(position, end, key)
    if position == cython.NULL or key.length < 0:
        return cython.NULL
    return _field(position, end, value)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _check_headers(record: cython.pointer(Parsed)) -> cython.pointer(cython.const[cython.char]):
    position: cython.p_uchar = record.headers
    key: Field
    value: Field
    for _ in range(record.header_count):
        position = parse_header(position, record.end, cython.address(key), cython.address(value))
        if position == cython.NULL:
            return b"a record header is longer than its record, or has no key"
    if position != record.end:
        return b"a record does not end where it says"
    return cython.NULL


def expect(expected, frame, size_bytes):
    """Fills `expected`; INVALID_RECORD for a count that this many bytes cannot hold."""
    expected.record_count = frame.record_count
    if not 0 <= expected.record_count <= size_bytes // _RECORD_BYTES_MIN:
        raise invalid(f"{frame.record_count} records cannot be in {size_bytes} bytes")
    expected.last_offset_delta = frame.last_offset_delta
    expected.base_offset = frame.base_offset
    expected.base_timestamp = frame.base_timestamp
    expected.append_timestamp = frame.append_timestamp
    expected.is_append_time = frame.timestamp_type == TimestampType.LOG_APPEND_TIME
    return 0


Seen = cython.struct(
    min_timestamp=cython.longlong,
    max_timestamp=cython.longlong,
    max_timestamp_delta=cython.longlong,
    null_key_count=cython.longlong,
    record_bytes_max=cython.longlong,
)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk(
    position: cython.p_uchar,
    end: cython.p_uchar,
    expected: cython.pointer(Expected),
    seen: cython.pointer(Seen),
) -> cython.pointer(cython.const[cython.char]):
    fault: cython.pointer(cython.const[cython.char])
    record: Parsed
    length: cython.longlong = 0
    delta: cython.longlong = -1
    for _ in range(expected.record_count):
        fault = parse_record(position, end, expected, delta, cython.address(record))
        if fault == cython.NULL and record.header_count:
            fault = _check_headers(cython.address(record))
        if fault != cython.NULL:
            return fault
        _varint(position, record.end, cython.address(length))
        seen.record_bytes_max = max(seen.record_bytes_max, length)
        position = record.end
        delta = record.offset_delta
        if seen.max_timestamp_delta < 0 or record.timestamp > seen.max_timestamp:
            seen.max_timestamp = record.timestamp
            seen.max_timestamp_delta = delta
        if record.timestamp != _NO_TIMESTAMP and (
            seen.min_timestamp == _NO_TIMESTAMP or record.timestamp < seen.min_timestamp
        ):
            seen.min_timestamp = record.timestamp
        seen.null_key_count += record.key.length < 0
    if position != end:
        return b"there are bytes behind the last record"
    return cython.NULL


@cython.cfunc
def _walk_from(
    data: object, begin: cython.Py_ssize_t, expected: cython.pointer(Expected), seen: cython.pointer(Seen)
) -> cython.pointer(cython.const[cython.char]):
    """Walks over the records that start at `begin`; returns what is wrong with them, or NULL."""
    fault: cython.pointer(cython.const[cython.char])
    view: Py_buffer
    seen.min_timestamp = seen.max_timestamp = seen.max_timestamp_delta = -1
    seen.null_key_count = seen.record_bytes_max = 0
    PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
    try:
        start = cython.cast(cython.p_uchar, view.buf)
        with cython.nogil:
            fault = _walk(start + begin, start + view.len, expected, seen)
    finally:
        PyBuffer_Release(cython.address(view))
    return fault


def walk(data: Buffer, frame: Frame) -> Walk:
    """Checks every record of a batch without keeping any."""
    expected: Expected
    seen: Seen
    expect(cython.address(expected), frame, len(data))
    fault = _walk_from(data, 0, cython.address(expected), cython.address(seen))
    if fault != cython.NULL:
        raise invalid(fault.decode())
    return Walk(
        seen.min_timestamp,
        seen.max_timestamp,
        seen.max_timestamp_delta,
        seen.null_key_count,
        seen.record_bytes_max,
    )


def produced(data: memoryview, header_type: type) -> tuple | None:
    """Returns the header of the one batch that `data` is, its first timestamp, and how many keys are null; None unless a
    producer may send it, uncompressed and outside of a transaction, and everything in it agrees."""
    expected: Expected
    seen: Seen
    batches, end = split(data, header_type)
    if len(batches) != 1 or end != len(data):
        return None
    header = batches[0][0]
    if header[5] or header[12] != header[6] + 1 or (header[9] >= 0 and (header[10] < 0 or header[11] < 0)):
        return None
    expected.record_count, expected.last_offset_delta, expected.base_offset = header[12], header[6], header[0]
    if not 1 <= expected.record_count <= (len(data) - _HEADER_BYTES) // _RECORD_BYTES_MIN:
        return None
    expected.base_timestamp, expected.append_timestamp, expected.is_append_time = header[7], 0, False
    if crc32c(data[21:]) != header[4]:
        return None
    fault = _walk_from(data, _HEADER_BYTES, cython.address(expected), cython.address(seen))
    if fault != cython.NULL or seen.max_timestamp != header[8]:
        return None
    return header, seen.min_timestamp, seen.null_key_count


# --- reading: Python objects ---


@cython.cfunc
@cython.inline
def _bytes_or_none(field: cython.pointer(Field)):
    if field.length < 0:
        return None
    return PyBytes_FromStringAndSize(cython.cast(cython.p_char, field.start), field.length)


@cython.cfunc
def _read_headers(record: cython.pointer(Parsed), names: dict) -> tuple:
    """Returns the record's headers. `names`: header names seen so far, as most records have the same ones."""
    position: cython.p_uchar = record.headers
    key: Field
    value: Field
    headers: list = []
    for _ in range(record.header_count):
        position = parse_header(position, record.end, cython.address(key), cython.address(value))
        if position == cython.NULL:
            raise invalid("a record header is longer than its record, or has no key")
        raw = PyBytes_FromStringAndSize(cython.cast(cython.p_char, key.start), key.length)
        name = names.get(raw)
        if name is None:
            name = names[raw] = raw.decode("utf-8", "replace")
        headers.append((name, _bytes_or_none(cython.address(value))))
    if position != record.end:
        raise invalid("a record does not end where it says")
    return tuple(headers)


@cython.cfunc
@cython.inline
def _new_record(
    offset: object,
    timestamp: object,
    kind: object,
    key: object,
    value: object,
    headers: object,
    leader_epoch: object,
):
    """`Record(...)` at a third of its price. Nothing in it can close a cycle: the collector may forget it."""
    record = PyType_GenericAlloc(Record, 7)
    PyObject_GC_UnTrack(record)
    _set_item(record, 0, offset)
    _set_item(record, 1, timestamp)
    _set_item(record, 2, kind)
    _set_item(record, 3, key)
    _set_item(record, 4, value)
    _set_item(record, 5, headers)
    _set_item(record, 6, leader_epoch)
    return record


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _set_item(record: object, index: cython.Py_ssize_t, value: object) -> cython.void:
    Py_INCREF(value)  # the tuple takes it over
    PyTuple_SET_ITEM(record, index, value)


def decode(data: Buffer, frame: Frame, from_offset: int) -> list[Record]:
    """Returns the records of a batch whose offset is at least `from_offset`; all of them are checked."""
    view: Py_buffer
    PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
    try:
        start = cython.cast(cython.p_uchar, view.buf)
        return _decode(start, start + view.len, frame, from_offset)
    finally:
        PyBuffer_Release(cython.address(view))


@cython.cfunc
def _decode(
    position: cython.p_uchar, end: cython.p_uchar, frame: object, from_offset: cython.longlong
) -> list:
    expected: Expected
    record: Parsed
    delta: cython.longlong = -1
    offset: cython.longlong
    fault: cython.pointer(cython.const[cython.char])
    records: list = []
    expect(cython.address(expected), frame, end - position)
    kind = frame.timestamp_type
    leader_epoch = frame.leader_epoch
    nothing: tuple = ()
    names: dict = {}
    for _ in range(expected.record_count):
        fault = parse_record(position, end, cython.address(expected), delta, cython.address(record))
        if fault != cython.NULL:
            raise invalid(fault.decode())
        headers = _read_headers(cython.address(record), names) if record.header_count else nothing
        position = record.end
        delta = record.offset_delta
        offset = expected.base_offset + delta
        if offset >= from_offset:
            key = _bytes_or_none(cython.address(record.key))
            value = _bytes_or_none(cython.address(record.value))
            records.append(_new_record(offset, record.timestamp, kind, key, value, headers, leader_epoch))
    if position != end:
        raise invalid("there are bytes behind the last record")
    return records


# --- writing ---


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _zigzag(number: cython.longlong) -> cython.ulonglong:
    return (cython.cast(cython.ulonglong, number) << 1) ^ cython.cast(cython.ulonglong, number >> 63)


def varint_bytes(number):
    raw: cython.ulonglong = _zigzag(number)
    size: cython.longlong = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


def field_bytes(length):
    return varint_bytes(length) + length if length > 0 else 1


def body_bytes(timestamp_delta, offset_delta, key_bytes, value_bytes):
    """Returns a record's size without its length and its headers. Attributes are one byte."""
    return (
        1
        + varint_bytes(timestamp_delta)
        + varint_bytes(offset_delta)
        + field_bytes(key_bytes)
        + field_bytes(value_bytes)
    )


def put_varint(position, number):
    raw: cython.ulonglong = _zigzag(number)
    while raw >= 0x80:
        position[0] = cython.cast(cython.uchar, (raw & 0x7F) | 0x80)
        position += 1
        raw >>= 7
    position[0] = cython.cast(cython.uchar, raw)
    return position + 1


def put_field(position, start, length):
    """Writes a field of `length` bytes, or null where it is -1."""
    position = put_varint(position, length)
    if length > 0:
        memcpy(position, start, length)
        position += length
    return position


@cython.cfunc
def _encode_headers(headers: object) -> bytes:
    """Returns the number of headers, and the headers, as they end a record."""
    name_bytes: cython.Py_ssize_t = 0
    fields: list = []
    size: cython.longlong = 0
    for name, content in headers:
        PyUnicode_AsUTF8AndSize(name, cython.address(name_bytes))
        if content is None:
            size += field_bytes(name_bytes) + 1
        else:
            if type(content) is not bytes:
                content = bytes(memoryview(content))
            size += field_bytes(name_bytes) + field_bytes(PyBytes_GET_SIZE(content))
        fields.append(name)
        fields.append(content)
    count: cython.longlong = len(fields) // 2
    out = PyBytes_FromStringAndSize(cython.NULL, varint_bytes(count) + size)
    _put_headers(put_varint(cython.cast(cython.p_uchar, PyBytes_AS_STRING(out)), count), fields)
    return out


@cython.cfunc
@cython.exceptval(-1)
def _put_headers(position: cython.p_uchar, fields: list) -> cython.int:
    """Names and values by turns, str and bytes or None: to look at them runs no code and changes nothing."""
    name_bytes: cython.Py_ssize_t = 0
    for index in range(0, len(fields), 2):
        text = PyUnicode_AsUTF8AndSize(fields[index], cython.address(name_bytes))
        content = fields[index + 1]
        position = put_field(position, cython.cast(cython.p_uchar, text), name_bytes)
        if content is None:
            position = put_varint(position, -1)
        else:
            start = cython.cast(cython.p_uchar, PyBytes_AS_STRING(content))
            position = put_field(position, start, PyBytes_GET_SIZE(content))
    return 0


@cython.cclass
class RecordWriter:
    """Records of one batch, one after the other, after 61 bytes that are left for the header."""

    _limit: cython.longlong
    _out: bytearray
    _used: cython.longlong
    _capacity: cython.longlong
    record_count = cython.declare(cython.longlong, visibility="readonly")
    base_timestamp = cython.declare(cython.longlong, visibility="readonly")
    max_timestamp = cython.declare(cython.longlong, visibility="readonly")

    def __cinit__(self, size_bytes_max: cython.longlong) -> None:
        self._limit = size_bytes_max
        self._clear()

    @cython.cfunc
    def _clear(self):
        self._out = bytearray(_HEADER_BYTES)
        self._used = self._capacity = _HEADER_BYTES
        self.record_count = 0
        self.base_timestamp = self.max_timestamp = _NO_TIMESTAMP

    @property
    def size_bytes(self) -> int:
        return self._used

    def append(self, timestamp: cython.longlong, key: object, value: object, headers: object = ()) -> bool:
        """Adds a record; False, changing nothing, when it would go beyond the limit and is not the first."""
        key_view: Py_buffer
        value_view: Py_buffer
        memset(cython.address(key_view), 0, cython.sizeof(Py_buffer))
        memset(cython.address(value_view), 0, cython.sizeof(Py_buffer))
        key_view.len = value_view.len = -1
        try:
            if key is not None:
                PyObject_GetBuffer(key, cython.address(key_view), PyBUF_SIMPLE)
            if value is not None:
                PyObject_GetBuffer(value, cython.address(value_view), PyBUF_SIMPLE)
            trailer = _encode_headers(headers) if headers else None
            return self._append(timestamp, cython.address(key_view), cython.address(value_view), trailer)
        finally:
            PyBuffer_Release(cython.address(key_view))
            PyBuffer_Release(cython.address(value_view))

    @cython.cfunc
    def _append(
        self,
        timestamp: cython.longlong,
        key: cython.pointer(Py_buffer),
        value: cython.pointer(Py_buffer),
        trailer: bytes | None,
    ):
        position: cython.p_uchar
        trailer_bytes: cython.longlong = 1 if trailer is None else len(trailer)
        delta: cython.longlong = self._delta(timestamp)
        body: cython.longlong = body_bytes(delta, self.record_count, key.len, value.len) + trailer_bytes
        total: cython.longlong = self._used + varint_bytes(body) + body
        if total > _INT32_MAX:
            raise OverflowError("a batch holds less than 2 GiB")
        if total > self._limit and self.record_count:
            return False
        self._reserve(total)
        position = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self._out)) + self._used
        position = put_varint(position, body)
        position[0] = 0
        position = put_varint(position + 1, delta)
        position = put_varint(position, self.record_count)
        position = put_field(position, cython.cast(cython.p_uchar, key.buf), key.len)
        position = put_field(position, cython.cast(cython.p_uchar, value.buf), value.len)
        if trailer is None:
            position[0] = 0
        else:
            memcpy(position, PyBytes_AS_STRING(trailer), trailer_bytes)
        if self.record_count == 0:
            self.base_timestamp = self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self._used = total
        self.record_count += 1
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _delta(self, timestamp: cython.longlong) -> cython.longlong:
        """`timestamp` counted from the batch's first."""
        base: cython.longlong = self.base_timestamp if self.record_count else timestamp
        if (base < 0 and timestamp > _INT64_MAX + base) or (base > 0 and timestamp < _INT64_MIN + base):
            raise OverflowError("a timestamp, and its distance from the batch's first, must fit in 64 bits")
        return timestamp - base

    @cython.cfunc
    @cython.exceptval(-1)
    def _reserve(self, size_bytes: cython.longlong) -> cython.int:
        if size_bytes > self._capacity:
            self._capacity = max(size_bytes, 2 * self._capacity)
            PyByteArray_Resize(self._out, self._capacity)
        return 0

    def take(self) -> Written:
        """Returns the written records; the writer is empty afterwards."""
        PyByteArray_Resize(self._out, self._used)
        written = Written(self._out, self.record_count, self.base_timestamp, self.max_timestamp)
        self._clear()
        return written

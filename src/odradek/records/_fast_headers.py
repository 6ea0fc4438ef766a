# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The types here are C's: Cython checks them, mypy and ruff cannot see those that the .pxd files declare.
# mypy: ignore-errors
# ruff: noqa: F821
"""The 61 bytes in front of a batch, compiled: a short way for batches that are as they should be.

Producers send batches of 16 KiB unless a setting says otherwise, so a large fetch holds hundreds of them. What is odd in
any way is left to the long way in `batch.py` and `content.py`, which says what is wrong with it: no refusal is written twice.
"""

from __future__ import annotations

from typing import TypeVar

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.memoryview import PyMemoryView_FromMemory
from cython.cimports.cpython.ref import Py_INCREF
from cython.cimports.cpython.tuple import PyTuple_SET_ITEM
from cython.cimports.odradek.records.cpython_extra import PyObject_GC_UnTrack, PyType_GenericAlloc

from odradek.records.crc import crc32c
from odradek.records.frame import RECORD_BYTES_MIN, ScanState, SoundRun

H = TypeVar("H", bound=tuple[int, ...])

_HEADER_BYTES = cython.declare(cython.longlong, 61)
_LENGTH_PREFIX_BYTES = cython.declare(cython.longlong, 12)
_RECORD_BYTES_MIN = cython.declare(cython.longlong, RECORD_BYTES_MIN)
_INT64_MAX = cython.declare(cython.longlong, 0x7FFF_FFFF_FFFF_FFFF)
_MAGIC = cython.declare(cython.int, 2)
_CODEC_BITS = cython.declare(cython.int, 0x07)
_CONTROL_BIT = cython.declare(cython.int, 0x20)
_APPEND_TIME_BIT = cython.declare(cython.int, 0x08)
_CRC_START = cython.declare(cython.longlong, 21)
_PyBUF_READ = cython.declare(cython.int, 0x100)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _big_endian(position: cython.p_uchar, width: cython.int) -> cython.ulonglong:
    number: cython.ulonglong = 0
    for index in range(width):
        number = (number << 8) | position[index]
    return number


def split(data: memoryview, header_type: type[H]) -> tuple[list[tuple[H, memoryview]], int]:
    """Returns the whole batches at the front of `data`, as far as nothing is odd about their headers, and where they end."""
    view: Py_buffer
    batches: list = []
    position: cython.Py_ssize_t = 0
    length: cython.longlong
    PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
    try:
        start = cython.cast(cython.p_uchar, view.buf)
        while view.len - position >= _HEADER_BYTES:
            length = cython.cast(cython.int, _big_endian(start + position + 8, 4))
            if start[position + 16] != _MAGIC or length < _HEADER_BYTES - _LENGTH_PREFIX_BYTES:
                break
            if length > view.len - position - _LENGTH_PREFIX_BYTES:
                break
            end: cython.Py_ssize_t = position + length + _LENGTH_PREFIX_BYTES
            batches.append((_new_header(start + position, header_type), data[position:end]))
            position = end
    finally:
        PyBuffer_Release(cython.address(view))
    return batches, position


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _last_offset(
    batch: cython.p_uchar, next_offset: cython.longlong, offset_max: cython.longlong
) -> cython.longlong:
    """Returns the last offset of a batch; -1 if this is no batch that may follow."""
    base: cython.longlong = cython.cast(cython.longlong, _big_endian(batch, 8))
    delta: cython.int = cython.cast(cython.int, _big_endian(batch + 23, 4))
    if batch[16] != _MAGIC or base < next_offset or base > offset_max or delta < 0:
        return -1
    return base + delta if base + delta <= offset_max else -1


@cython.cfunc
@cython.inline
def _has_its_crc(batch: cython.p_uchar, size_bytes: cython.longlong) -> cython.bint:
    content = PyMemoryView_FromMemory(
        cython.cast(cython.p_char, batch + _CRC_START), size_bytes - _CRC_START, _PyBUF_READ
    )
    return crc32c(content) == _big_endian(batch + 17, 4)


def sound_run(data, state, last_offset_max, index_interval_bytes, recovery_point, header_type):
    """Returns how far the batches at the front of `data` are whole and sound, and follow each other (`_plain.sound_run`)."""
    view: Py_buffer
    position: cython.Py_ssize_t = 0
    above: cython.Py_ssize_t = -1
    next_offset: cython.longlong = state.next_offset
    last_epoch: cython.longlong = state.last_epoch
    since_entry: cython.longlong = state.bytes_since_entry
    max_timestamp: cython.longlong = state.max_timestamp
    max_timestamp_offset: cython.longlong = state.max_timestamp_offset
    offset_max: cython.longlong = last_offset_max
    interval: cython.longlong = index_interval_bytes
    point: cython.longlong = recovery_point
    length: cython.longlong
    last: cython.longlong
    timestamp: cython.longlong
    wants_producers: cython.bint = header_type is not None
    entries: list = []
    produced: list = []
    PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
    try:
        start = cython.cast(cython.p_uchar, view.buf)
        while view.len - position >= _HEADER_BYTES:
            batch = start + position
            last = _last_offset(batch, next_offset, offset_max)
            length = _LENGTH_PREFIX_BYTES + cython.cast(cython.int, _big_endian(batch + 8, 4))
            if last < 0 or length < _HEADER_BYTES or length > view.len - position:
                break
            if (wants_producers and batch[22] & _CONTROL_BIT) or not _has_its_crc(batch, length):
                break
            timestamp = cython.cast(cython.longlong, _big_endian(batch + 35, 8))
            if timestamp > max_timestamp:
                max_timestamp = timestamp
                max_timestamp_offset = last
            if since_entry > interval:
                entries.append((position, last, max_timestamp, max_timestamp_offset))
                since_entry = 0
            since_entry += length
            next_offset = last + 1
            last_epoch = cython.cast(cython.int, _big_endian(batch + 12, 4))
            if above < 0 and next_offset > point:
                above = position
            if wants_producers and cython.cast(cython.longlong, _big_endian(batch + 43, 8)) >= 0:
                produced.append((_new_header(batch, header_type), position, position + length))
            position += length
    finally:
        PyBuffer_Release(cython.address(view))
    behind = ScanState(next_offset, last_epoch, since_entry, max_timestamp, max_timestamp_offset)
    return SoundRun(position, behind, entries, produced, above)


@cython.cfunc
def _new_header(start: cython.p_uchar, header_type: type):
    """`BatchHeader(...)`, from its 61 bytes."""
    header = PyType_GenericAlloc(header_type, 13)
    PyObject_GC_UnTrack(header)  # numbers close no cycle
    _set_item(header, 0, cython.cast(cython.longlong, _big_endian(start, 8)))
    _set_item(header, 1, cython.cast(cython.int, _big_endian(start + 8, 4)))
    _set_item(header, 2, cython.cast(cython.int, _big_endian(start + 12, 4)))
    _set_item(header, 3, cython.cast(cython.schar, start[16]))
    _set_item(header, 4, cython.cast(cython.uint, _big_endian(start + 17, 4)))
    _set_item(header, 5, cython.cast(cython.short, _big_endian(start + 21, 2)))
    _set_item(header, 6, cython.cast(cython.int, _big_endian(start + 23, 4)))
    _set_item(header, 7, cython.cast(cython.longlong, _big_endian(start + 27, 8)))
    _set_item(header, 8, cython.cast(cython.longlong, _big_endian(start + 35, 8)))
    _set_item(header, 9, cython.cast(cython.longlong, _big_endian(start + 43, 8)))
    _set_item(header, 10, cython.cast(cython.short, _big_endian(start + 51, 2)))
    _set_item(header, 11, cython.cast(cython.int, _big_endian(start + 53, 4)))
    _set_item(header, 12, cython.cast(cython.int, _big_endian(start + 57, 4)))
    return header


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _set_item(header: object, index: cython.Py_ssize_t, value: object) -> cython.void:
    Py_INCREF(value)  # the tuple takes it over
    PyTuple_SET_ITEM(header, index, value)


def expect_plain(expected, batch, size_bytes, verify_crc):
    """Fills `expected` from one whole batch; False where its records are packed, or anything is odd.

    With `verify_crc`, False as well where the batch does not carry the CRC of its content.
    """
    if not _is_plain(batch, size_bytes):
        return False
    expected.base_offset = cython.cast(cython.longlong, _big_endian(batch, 8))
    expected.last_offset_delta = cython.cast(cython.int, _big_endian(batch + 23, 4))
    expected.base_timestamp = cython.cast(cython.longlong, _big_endian(batch + 27, 8))
    expected.append_timestamp = cython.cast(cython.longlong, _big_endian(batch + 35, 8))
    expected.is_append_time = batch[22] & _APPEND_TIME_BIT != 0
    expected.record_count = cython.cast(cython.int, _big_endian(batch + 57, 4))
    if expected.base_offset < 0 or expected.base_offset > _INT64_MAX - max(expected.last_offset_delta, 0):
        return False
    if not 0 <= expected.record_count <= (size_bytes - _HEADER_BYTES) // _RECORD_BYTES_MIN:
        return False
    if not verify_crc:
        return True
    return _has_its_crc(batch, size_bytes)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_plain(batch: cython.p_uchar, size_bytes: cython.longlong) -> cython.bint:
    """Returns whether the header fits the size, in this format, without compression."""
    if size_bytes < _HEADER_BYTES or batch[16] != _MAGIC or batch[22] & _CODEC_BITS:
        return False
    return cython.cast(cython.int, _big_endian(batch + 8, 4)) == size_bytes - _LENGTH_PREFIX_BYTES

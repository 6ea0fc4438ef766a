# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The types here are C's: Cython checks them, mypy and ruff cannot see those that the .pxd files declare.
# mypy: ignore-errors
# ruff: noqa: F821
"""The key map of compaction, and new bases for timestamps, compiled. `_plain_cleaning.py` is the same thing to be read.

The map is one block of memory: slots of three 64-bit numbers (two of the hash, the offset + 1), searched one after
another from where the hash says; 0 in the third is a free slot. It is never full, so each search ends. The hash is
SipHash-2-4 with 128 bits under a seed that no one outside knows. All loops run without the GIL, over records that
`parse_record` has held against the bytes that are there.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_Resize
from cython.cimports.libc.stdlib import calloc, free
from cython.cimports.libc.string import memcpy
from cython.cimports.odradek.records._fast import (
    Expected,
    Field,
    Parsed,
    expect,
    parse_header,
    parse_record,
    put_varint,
    varint_bytes,
)

from odradek.records.cleaning import SLOT_BYTES, Sieved
from odradek.records.faults import invalid
from odradek.records.frame import Frame
from odradek.runtime.ports import Buffer

_HEADER_BYTES = cython.declare(cython.longlong, 61)
_NO_TIMESTAMP = cython.declare(cython.longlong, -1)
_INT64_MAX = cython.declare(cython.longlong, 0x7FFF_FFFF_FFFF_FFFF)
_INT64_MIN = cython.declare(cython.longlong, ~_INT64_MAX)
_GROWTH_BYTES_MAX = cython.declare(cython.longlong, 14)
"""The most bytes by which one record grows: ten bytes of timestamp, and four of length."""
_SEED_BYTES = cython.declare(cython.Py_ssize_t, 16)
_SIP_0 = cython.declare(cython.ulonglong, 0x736F_6D65_7073_6575)
_SIP_1 = cython.declare(cython.ulonglong, 0x646F_7261_6E64_6F6D)
_SIP_2 = cython.declare(cython.ulonglong, 0x6C79_6765_6E65_7261)
_SIP_3 = cython.declare(cython.ulonglong, 0x7465_6462_7974_6573)

Hash = cython.struct(low=cython.ulonglong, high=cython.ulonglong)
Sip = cython.struct(v0=cython.ulonglong, v1=cython.ulonglong, v2=cython.ulonglong, v3=cython.ulonglong)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _round(sip: cython.pointer(Sip)) -> cython.void:
    sip.v0 += sip.v1
    sip.v1 = (sip.v1 << 13) | (sip.v1 >> 51)
    sip.v1 ^= sip.v0
    sip.v0 = (sip.v0 << 32) | (sip.v0 >> 32)
    sip.v2 += sip.v3
    sip.v3 = (sip.v3 << 16) | (sip.v3 >> 48)
    sip.v3 ^= sip.v2
    sip.v0 += sip.v3
    sip.v3 = (sip.v3 << 21) | (sip.v3 >> 43)
    sip.v3 ^= sip.v0
    sip.v2 += sip.v1
    sip.v1 = (sip.v1 << 17) | (sip.v1 >> 47)
    sip.v1 ^= sip.v2
    sip.v2 = (sip.v2 << 32) | (sip.v2 >> 32)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _word(data: cython.p_uchar, length: cython.longlong) -> cython.ulonglong:
    """Returns up to eight bytes as a number, the lowest first."""
    word: cython.ulonglong = 0
    index: cython.longlong
    for index in range(length):
        word |= cython.cast(cython.ulonglong, data[index]) << (8 * index)
    return word


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _siphash(
    seed: cython.pointer(Hash), data: cython.p_uchar, length: cython.longlong, out: cython.pointer(Hash)
) -> cython.void:
    sip: Sip
    word: cython.ulonglong
    rest: cython.longlong = length
    sip.v0 = _SIP_0 ^ seed.low
    sip.v1 = _SIP_1 ^ seed.high ^ 0xEE
    sip.v2 = _SIP_2 ^ seed.low
    sip.v3 = _SIP_3 ^ seed.high
    while rest >= 8:
        word = _word(data, 8)
        sip.v3 ^= word
        _round(cython.address(sip))
        _round(cython.address(sip))
        sip.v0 ^= word
        data += 8
        rest -= 8
    word = _word(data, rest) | (cython.cast(cython.ulonglong, length & 0xFF) << 56)
    sip.v3 ^= word
    _round(cython.address(sip))
    _round(cython.address(sip))
    sip.v0 ^= word
    sip.v2 ^= 0xEE
    for _ in range(4):
        _round(cython.address(sip))
    out.low = sip.v0 ^ sip.v1 ^ sip.v2 ^ sip.v3
    sip.v1 ^= 0xDD
    for _ in range(4):
        _round(cython.address(sip))
    out.high = sip.v0 ^ sip.v1 ^ sip.v2 ^ sip.v3


def siphash(seed: bytes, data: bytes) -> bytes:
    """Returns the hash in the form of the reference implementation; for tests."""
    key: Hash
    out: Hash
    source: cython.p_uchar = cython.cast(cython.p_uchar, data)
    _read_seed(seed, cython.address(key))
    _siphash(cython.address(key), source, len(data), cython.address(out))
    return (int(out.low) | int(out.high) << 64).to_bytes(16, "little")


@cython.cfunc
@cython.exceptval(-1)
def _read_seed(seed: bytes, out: cython.pointer(Hash)) -> cython.int:
    if len(seed) != _SEED_BYTES:
        raise ValueError(f"a seed has 16 bytes, not {len(seed)}")
    source: cython.p_uchar = cython.cast(cython.p_uchar, seed)
    out.low = _word(source, 8)
    out.high = _word(source + 8, 8)
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _parse(
    position: cython.p_uchar,
    end: cython.p_uchar,
    expected: cython.pointer(Expected),
    delta: cython.longlong,
    record: cython.pointer(Parsed),
) -> cython.pointer(cython.const[cython.char]):
    """`parse_record`, and all of its headers."""
    key: Field
    value: Field
    fault: cython.pointer(cython.const[cython.char])
    fault = parse_record(position, end, expected, delta, record)
    if fault != cython.NULL or record.header_count == 0:
        return fault
    position = record.headers
    for _ in range(record.header_count):
        position = parse_header(position, record.end, cython.address(key), cython.address(value))
        if position == cython.NULL:
            return b"a record header is longer than its record, or has no key"
    if position != record.end:
        return b"a record does not end where it says"
    return cython.NULL


Tally = cython.struct(
    record_count=cython.longlong,
    max_timestamp=cython.longlong,
    tombstone_count=cython.longlong,
    used=cython.longlong,
)


@cython.cclass
class KeyMap:
    """See `cleaning.KeyMap`."""

    _slots: cython.pointer(cython.ulonglong)
    _slot_count: cython.ulonglong
    _key_count_max: cython.longlong
    _key_count: cython.longlong
    _seed: Hash

    def __cinit__(self, slot_count: cython.ulonglong, key_count_max: cython.longlong, seed: bytes) -> None:
        self._slots = cython.NULL
        if slot_count < 2:
            raise ValueError(f"{slot_count} slots are not enough")
        _read_seed(seed, cython.address(self._seed))
        self._slots = cython.cast(cython.pointer(cython.ulonglong), calloc(slot_count, 24))
        if self._slots == cython.NULL:
            raise MemoryError(f"no memory for {slot_count} keys")
        self._slot_count = slot_count
        self._key_count_max = min(key_count_max, cython.cast(cython.longlong, slot_count) - 1)
        self._key_count = 0

    def __dealloc__(self) -> None:
        free(self._slots)

    @property
    def key_count(self) -> int:
        return self._key_count

    @property
    def size_bytes(self) -> int:
        return self._slot_count * SLOT_BYTES

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _find(self, key: cython.pointer(Field)) -> cython.pointer(cython.ulonglong):
        """Returns the slot of a key, or the free one that it may have."""
        number: Hash
        slot: cython.pointer(cython.ulonglong)
        index: cython.ulonglong
        _siphash(cython.address(self._seed), key.start, key.length, cython.address(number))
        index = number.low % self._slot_count
        while True:
            slot = self._slots + 3 * index
            if slot[2] == 0:
                slot[0] = number.low
                slot[1] = number.high
                return slot
            if slot[0] == number.low and slot[1] == number.high:
                return slot
            index += 1
            if index == self._slot_count:
                index = 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _note(
        self,
        position: cython.p_uchar,
        end: cython.p_uchar,
        expected: cython.pointer(Expected),
        from_offset: cython.longlong,
        refused: cython.p_longlong,
    ) -> cython.pointer(cython.const[cython.char]):
        fault: cython.pointer(cython.const[cython.char])
        slot: cython.pointer(cython.ulonglong)
        record: Parsed
        delta: cython.longlong = -1
        offset: cython.longlong
        refused[0] = -1
        for _ in range(expected.record_count):
            fault = _parse(position, end, expected, delta, cython.address(record))
            if fault != cython.NULL:
                return fault
            position = record.end
            delta = record.offset_delta
            offset = expected.base_offset + delta
            if offset < from_offset or record.key.length < 0:
                continue
            slot = self._find(cython.address(record.key))
            if slot[2] == 0:
                if self._key_count >= self._key_count_max:
                    refused[0] = offset
                    return cython.NULL
                self._key_count += 1
            slot[2] = cython.cast(cython.ulonglong, offset) + 1
        if position != end:
            return b"there are bytes behind the last record"
        return cython.NULL

    def note(self, data: Buffer, frame: Frame, from_offset: cython.longlong) -> int:
        expected: Expected
        view: Py_buffer
        refused: cython.longlong
        fault: cython.pointer(cython.const[cython.char])
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        try:
            expect(cython.address(expected), frame, view.len)
            start = cython.cast(cython.p_uchar, view.buf)
            with cython.nogil:
                fault = self._note(
                    start, start + view.len, cython.address(expected), from_offset, cython.address(refused)
                )
            if fault != cython.NULL:
                raise invalid(fault.decode())
        finally:
            PyBuffer_Release(cython.address(view))
        return refused

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _stays(
        self, record: cython.pointer(Parsed), offset: cython.longlong, drops_tombstones: cython.bint
    ) -> cython.bint:
        slot: cython.pointer(cython.ulonglong)
        if record.key.length < 0 or (record.value.length < 0 and drops_tombstones):
            return False
        slot = self._find(cython.address(record.key))
        return slot[2] == 0 or cython.cast(cython.ulonglong, offset) + 1 >= slot[2]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _sieve(
        self,
        position: cython.p_uchar,
        end: cython.p_uchar,
        expected: cython.pointer(Expected),
        end_offset: cython.longlong,
        drops_tombstones: cython.bint,
        out: cython.p_uchar,
        tally: cython.pointer(Tally),
    ) -> cython.pointer(cython.const[cython.char]):
        """Copies runs of records that stay, from the first on that goes: without one nothing is copied."""
        fault: cython.pointer(cython.const[cython.char])
        record: Parsed
        delta: cython.longlong = -1
        offset: cython.longlong
        run: cython.p_uchar = position
        tally.record_count = tally.tombstone_count = tally.used = 0
        tally.max_timestamp = _NO_TIMESTAMP
        for _ in range(expected.record_count):
            fault = _parse(position, end, expected, delta, cython.address(record))
            if fault != cython.NULL:
                return fault
            delta = record.offset_delta
            offset = expected.base_offset + delta
            if offset >= end_offset or self._stays(cython.address(record), offset, drops_tombstones):
                if tally.record_count == 0 or record.timestamp > tally.max_timestamp:
                    tally.max_timestamp = record.timestamp
                tally.record_count += 1
                tally.tombstone_count += record.value.length < 0
            else:
                memcpy(out + tally.used, run, position - run)
                tally.used += position - run
                run = record.end
            position = record.end
        if position != end:
            return b"there are bytes behind the last record"
        if tally.record_count < expected.record_count:
            memcpy(out + tally.used, run, end - run)
            tally.used += end - run
        return cython.NULL

    def sieve(
        self, data: Buffer, frame: Frame, end_offset: cython.longlong, drops_tombstones: cython.bint
    ) -> Sieved:
        expected: Expected
        view: Py_buffer
        tally: Tally
        fault: cython.pointer(cython.const[cython.char])
        batch: bytearray = bytearray()
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        try:
            expect(cython.address(expected), frame, view.len)
            PyByteArray_Resize(batch, _HEADER_BYTES + view.len)
            start = cython.cast(cython.p_uchar, view.buf)
            out = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(batch)) + _HEADER_BYTES
            with cython.nogil:
                fault = self._sieve(
                    start,
                    start + view.len,
                    cython.address(expected),
                    end_offset,
                    drops_tombstones,
                    out,
                    cython.address(tally),
                )
            if fault != cython.NULL:
                raise invalid(fault.decode())
        finally:
            PyBuffer_Release(cython.address(view))
        if tally.record_count == expected.record_count:
            return Sieved(None, tally.record_count, tally.max_timestamp, tally.tombstone_count)
        PyByteArray_Resize(batch, _HEADER_BYTES + tally.used)
        return Sieved(batch, tally.record_count, tally.max_timestamp, tally.tombstone_count)


# --- new bases ---


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _behind_varint(position: cython.p_uchar) -> cython.p_uchar:
    """Returns the position after a number that was read before."""
    while position[0] >= 0x80:
        position += 1
    return position + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _rebase(
    position: cython.p_uchar,
    end: cython.p_uchar,
    expected: cython.pointer(Expected),
    base_timestamp: cython.longlong,
    out: cython.pointer(cython.p_uchar),
    overflows: cython.pointer(cython.bint),
) -> cython.pointer(cython.const[cython.char]):
    fault: cython.pointer(cython.const[cython.char])
    record: Parsed
    delta: cython.longlong = -1
    body: cython.p_uchar
    rest: cython.p_uchar
    target: cython.p_uchar = out[0]
    rest_bytes: cython.longlong
    overflows[0] = False
    for _ in range(expected.record_count):
        fault = _parse(position, end, expected, delta, cython.address(record))
        if fault != cython.NULL:
            return fault
        delta = record.offset_delta
        if expected.is_append_time:  # the distances mean nothing: they stay
            memcpy(target, position, record.end - position)
            target += record.end - position
            position = record.end
            continue
        if (base_timestamp > 0 and record.timestamp < _INT64_MIN + base_timestamp) or (
            base_timestamp < 0 and record.timestamp > _INT64_MAX + base_timestamp
        ):
            overflows[0] = True
            return cython.NULL
        body = _behind_varint(position)
        rest = _behind_varint(body + 1)
        rest_bytes = record.end - rest
        target = put_varint(target, 1 + varint_bytes(record.timestamp - base_timestamp) + rest_bytes)
        target[0] = body[0]
        target = put_varint(target + 1, record.timestamp - base_timestamp)
        memcpy(target, rest, rest_bytes)
        target += rest_bytes
        position = record.end
    out[0] = target
    if position != end:
        return b"there are bytes behind the last record"
    return cython.NULL


def rebase(data: Buffer, frame: Frame, base_timestamp: cython.longlong) -> bytearray:
    """See `cleaning.CleaningEngine`."""
    expected: Expected
    view: Py_buffer
    overflows: cython.bint
    fault: cython.pointer(cython.const[cython.char])
    target: cython.p_uchar
    first: cython.p_uchar
    batch: bytearray = bytearray()
    PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
    try:
        expect(cython.address(expected), frame, view.len)
        PyByteArray_Resize(batch, _HEADER_BYTES + view.len + expected.record_count * _GROWTH_BYTES_MAX)
        start = cython.cast(cython.p_uchar, view.buf)
        first = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(batch))
        target = first + _HEADER_BYTES
        with cython.nogil:
            fault = _rebase(
                start,
                start + view.len,
                cython.address(expected),
                base_timestamp,
                cython.address(target),
                cython.address(overflows),
            )
        if fault != cython.NULL:
            raise invalid(fault.decode())
        if overflows:
            raise OverflowError("a timestamp's distance from the batch's base must fit in 64 bits")
    finally:
        PyBuffer_Release(cython.address(view))
    PyByteArray_Resize(batch, target - first)
    return batch

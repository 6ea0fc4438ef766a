# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The types here are C's: Cython checks them, mypy and ruff cannot see those that the .pxd files declare.
# mypy: ignore-errors
# ruff: noqa: F821
"""Batches to columns and back, compiled. `_plain_columns.py` is the same thing to be read.

Reading is one pass: before a batch is parsed, every column gets room for the most that its bytes can hold,
and is cut to what it took at the end. Memory that is never written is never touched, so the excess costs
nothing. Only the header columns, which most batches do not have, wait for the first record that has a header:
the pass stops there, makes room, and continues.

Writing takes columns that came from outside: each offset is held against its neighbour and its data before use.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_Resize
from cython.cimports.libc.string import memcpy, memset
from cython.cimports.odradek.records._fast import (
    Expected,
    Field,
    Parsed,
    body_bytes,
    expect,
    field_bytes,
    parse_header,
    parse_record,
    put_field,
    put_varint,
    varint_bytes,
)
from cython.cimports.odradek.records._fast_headers import expect_plain

from odradek.records.columns import COLUMN_BYTES_MAX, BinaryColumn, Columns, Headers, ListColumn
from odradek.records.faults import invalid
from odradek.records.frame import Frame, Written
from odradek.runtime.ports import Buffer

_HEADER_BYTES = cython.declare(cython.longlong, 61)
_HEADER_FIELD_BYTES_MIN = cython.declare(cython.longlong, 2)
_COLUMN_BYTES_MAX = cython.declare(cython.longlong, COLUMN_BYTES_MAX)
_BATCH_BYTES_MAX = cython.declare(cython.longlong, 0x7FFF_FFFF)
_INT64_MAX = cython.declare(cython.longlong, 0x7FFF_FFFF_FFFF_FFFF)
_INT64_MIN = cython.declare(cython.longlong, ~_INT64_MAX)


@cython.cclass
class _GrowingBuffer:
    """Memory for a column, as a bytearray: room for more is not initialised until it is used."""

    store: bytearray
    capacity: cython.longlong
    memory: cython.p_uchar

    def __cinit__(self) -> None:
        self._clear()

    @cython.cfunc
    def _clear(self):
        self.store = bytearray()
        self.capacity = 0
        self.memory = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.store))

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def room(self, size_bytes: cython.longlong) -> cython.int:
        """See that `memory` has `size_bytes`; it may move, what was there before stays."""
        if size_bytes > self.capacity:
            self.capacity = max(size_bytes, 2 * self.capacity)
            PyByteArray_Resize(self.store, self.capacity)
            self.memory = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.store))
        return 0

    @cython.cfunc
    def cut(self, size_bytes: cython.longlong) -> bytearray:
        """Returns the first `size_bytes` of the buffer, and gives that up."""
        self.room(size_bytes)
        PyByteArray_Resize(self.store, size_bytes)
        store = self.store
        self._clear()
        return store


Target = cython.struct(
    row_count=cython.longlong,
    data_bytes=cython.longlong,
    null_count=cython.longlong,
    offsets=cython.p_int,
    data=cython.p_uchar,
    validity=cython.p_uchar,
)
"""The target of a binary column's rows; there is room for all that `put` will add."""


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put(target: cython.pointer(Target), field: cython.pointer(Field)) -> cython.void:
    if field.length > 0:
        memcpy(target.data + target.data_bytes, field.start, field.length)
        target.data_bytes += field.length
    elif field.length < 0:
        target.validity[target.row_count >> 3] &= ~(1 << (target.row_count & 7))
        target.null_count += 1
    target.row_count += 1
    target.offsets[target.row_count] = cython.cast(cython.int, target.data_bytes)


@cython.cclass
class _GrowingColumn:
    """A binary column to which rows are added."""

    offsets: _GrowingBuffer
    data: _GrowingBuffer
    validity: _GrowingBuffer
    validity_bytes: cython.longlong
    target: Target

    def __cinit__(self) -> None:
        self.offsets = _GrowingBuffer()
        self.data = _GrowingBuffer()
        self.validity = _GrowingBuffer()
        self.validity_bytes = 0
        memset(cython.address(self.target), 0, cython.sizeof(Target))
        self.reserve(0, 0)
        self.target.offsets[0] = 0

    @cython.cfunc
    @cython.exceptval(-1)
    def reserve(self, more_rows: cython.longlong, more_bytes: cython.longlong) -> cython.int:
        """Makes room after the present content."""
        rows: cython.longlong = self.target.row_count + more_rows
        if self.target.data_bytes + more_bytes > _COLUMN_BYTES_MAX:
            raise OverflowError("one column holds less than 2 GiB")
        self.offsets.room((rows + 1) * 4)
        self.data.room(self.target.data_bytes + more_bytes)
        self.validity.room((rows + 7) // 8)
        self.target.offsets = cython.cast(cython.p_int, self.offsets.memory)
        self.target.data = self.data.memory
        self.target.validity = self.validity.memory
        if self.validity.capacity > self.validity_bytes:
            memset(
                self.target.validity + self.validity_bytes, 0xFF, self.validity.capacity - self.validity_bytes
            )
            self.validity_bytes = self.validity.capacity
        return 0

    @cython.cfunc
    def finish(self) -> object:
        rows: cython.longlong = self.target.row_count
        validity = self.validity.cut((rows + 7) // 8) if self.target.null_count else None
        offsets = self.offsets.cut((rows + 1) * 4)
        return BinaryColumn(
            0, validity, offsets, self.data.cut(self.target.data_bytes), self.target.null_count
        )


Pass = cython.struct(
    position=cython.p_uchar,
    end=cython.p_uchar,
    previous_delta=cython.longlong,
    from_offset=cython.longlong,
    records_left=cython.longlong,
    row_count=cython.longlong,
    offsets=cython.p_longlong,
    timestamps=cython.p_longlong,
    timestamp_types=cython.p_int,
    header_lists=cython.p_int,
    has_header_room=cython.bint,
    wants_header_room=cython.bint,
)
"""How far a batch was read, and where its records go."""


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _read_headers(
    record: cython.pointer(Parsed),
    is_wanted: cython.bint,
    names: cython.pointer(Target),
    values: cython.pointer(Target),
) -> cython.bint:
    """Returns whether the record's headers are sound; they are kept if the record is wanted."""
    position: cython.p_uchar = record.headers
    name: Field
    value: Field
    for _ in range(record.header_count):
        position = parse_header(position, record.end, cython.address(name), cython.address(value))
        if position == cython.NULL:
            return False
        if is_wanted:
            _put(names, cython.address(name))
            _put(values, cython.address(value))
    return position == record.end


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _read(
    state: cython.pointer(Pass),
    expected: cython.pointer(Expected),
    keys: cython.pointer(Target),
    values: cython.pointer(Target),
    header_names: cython.pointer(Target),
    header_values: cython.pointer(Target),
) -> cython.pointer(cython.const[cython.char]):
    fault: cython.pointer(cython.const[cython.char])
    record: Parsed
    row: cython.longlong
    is_wanted: cython.bint
    while state.records_left > 0:
        fault = parse_record(
            state.position, state.end, expected, state.previous_delta, cython.address(record)
        )
        if fault != cython.NULL:
            return fault
        is_wanted = expected.base_offset + record.offset_delta >= state.from_offset
        if record.header_count > 0:
            if not state.has_header_room:
                state.wants_header_room = True
                return cython.NULL
            if not _read_headers(cython.address(record), is_wanted, header_names, header_values):
                return b"a record header is longer than its record, or has no key"
        if is_wanted:
            row = state.row_count
            state.offsets[row] = expected.base_offset + record.offset_delta
            state.timestamps[row] = record.timestamp
            state.timestamp_types[row] = expected.is_append_time
            _put(keys, cython.address(record.key))
            _put(values, cython.address(record.value))
            state.row_count = row + 1
            state.header_lists[row + 1] = cython.cast(cython.int, header_names.row_count)
        state.position = record.end
        state.previous_delta = record.offset_delta
        state.records_left -= 1
    if state.position != state.end:
        return b"there are bytes behind the last record"
    return cython.NULL


@cython.cclass
class ColumnReader:
    """Gathers the records of many batches in columns.

    While one thread reads, the GIL is free and the columns may not move: another one is refused. So is everyone once
    a read has failed half-way, or the columns were handed out.
    """

    _is_closed: cython.bint
    _row_count: cython.longlong
    _offsets: _GrowingBuffer
    _timestamps: _GrowingBuffer
    _timestamp_types: _GrowingBuffer
    _header_lists: _GrowingBuffer
    _keys: _GrowingColumn
    _values: _GrowingColumn
    _header_names: _GrowingColumn
    _header_values: _GrowingColumn

    def __cinit__(self, value_bytes: cython.longlong = 0) -> None:
        self._is_closed = False
        self._row_count = 0
        self._offsets = _GrowingBuffer()
        self._timestamps = _GrowingBuffer()
        self._timestamp_types = _GrowingBuffer()
        self._header_lists = _GrowingBuffer()
        self._keys = _GrowingColumn()
        self._values = _GrowingColumn()
        self._header_names = _GrowingColumn()
        self._header_values = _GrowingColumn()
        self._header_lists.room(4)
        cython.cast(cython.p_int, self._header_lists.memory)[0] = 0
        self._values.reserve(0, min(max(value_bytes, 0), _COLUMN_BYTES_MAX))

    def read(self, data: Buffer, frame: Frame, from_offset: cython.longlong) -> None:
        view: Py_buffer
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        try:
            self._close()
            start = cython.cast(cython.p_uchar, view.buf)
            expected: Expected
            expect(cython.address(expected), frame, view.len)
            self._read(start, start + view.len, cython.address(expected), from_offset)
            self._is_closed = False
        finally:
            PyBuffer_Release(cython.address(view))

    def read_plain_batches(
        self, batches: list, index: cython.Py_ssize_t, from_offset: cython.longlong, verify_crc: cython.bint
    ) -> int:
        view: Py_buffer
        expected: Expected
        for entry in batches[index:]:
            PyObject_GetBuffer(entry[1], cython.address(view), PyBUF_SIMPLE)
            try:
                start = cython.cast(cython.p_uchar, view.buf)
                if not expect_plain(cython.address(expected), start, view.len, verify_crc):
                    break
                self._close()
                self._read(start + _HEADER_BYTES, start + view.len, cython.address(expected), from_offset)
                self._is_closed = False
            finally:
                PyBuffer_Release(cython.address(view))
            index += 1
        return index

    @cython.cfunc
    @cython.exceptval(-1)
    def _close(self) -> cython.int:
        if self._is_closed:
            raise RuntimeError("this reader is in use, finished, or failed")
        self._is_closed = True
        return 0

    @cython.cfunc
    def _read(
        self,
        start: cython.p_uchar,
        end: cython.p_uchar,
        expected: cython.pointer(Expected),
        from_offset: cython.longlong,
    ):
        state: Pass
        fault: cython.pointer(cython.const[cython.char]) = cython.NULL
        size_bytes: cython.longlong = end - start
        rows: cython.longlong = self._row_count + expected.record_count
        self._offsets.room(rows * 8)
        self._timestamps.room(rows * 8)
        self._timestamp_types.room(rows * 4)
        self._header_lists.room((rows + 1) * 4)
        self._keys.reserve(expected.record_count, size_bytes)
        self._values.reserve(expected.record_count, size_bytes)
        state.position = start
        state.end = end
        state.previous_delta = -1
        state.from_offset = from_offset
        state.records_left = expected.record_count
        state.row_count = self._row_count
        state.offsets = cython.cast(cython.p_longlong, self._offsets.memory)
        state.timestamps = cython.cast(cython.p_longlong, self._timestamps.memory)
        state.timestamp_types = cython.cast(cython.p_int, self._timestamp_types.memory)
        state.header_lists = cython.cast(cython.p_int, self._header_lists.memory)
        state.has_header_room = False
        state.wants_header_room = True
        while state.wants_header_room and fault == cython.NULL:
            state.wants_header_room = False
            with cython.nogil:
                fault = _read(
                    cython.address(state),
                    expected,
                    cython.address(self._keys.target),
                    cython.address(self._values.target),
                    cython.address(self._header_names.target),
                    cython.address(self._header_values.target),
                )
            if state.wants_header_room:
                self._reserve_headers(end - state.position)
                state.has_header_room = True
        if fault != cython.NULL:
            raise invalid(fault.decode())
        self._row_count = state.row_count

    @cython.cfunc
    @cython.exceptval(-1)
    def _reserve_headers(self, size_bytes: cython.longlong) -> cython.int:
        self._header_names.reserve(size_bytes // _HEADER_FIELD_BYTES_MIN, size_bytes)
        self._header_values.reserve(size_bytes // _HEADER_FIELD_BYTES_MIN, size_bytes)
        return 0

    def finish(self) -> Columns:
        self._close()
        rows: cython.longlong = self._row_count
        headers = None
        if self._header_names.target.row_count:
            lists = ListColumn(0, None, self._header_lists.cut((rows + 1) * 4))
            headers = Headers(lists, self._header_names.finish(), self._header_values.finish())
        return Columns(
            rows,
            self._timestamps.cut(rows * 8),
            self._keys.finish(),
            self._values.finish(),
            headers,
            self._offsets.cut(rows * 8),
            self._timestamp_types.cut(rows * 4),
        )


# --- writing ---


@cython.cclass
class _SourceBuffer:
    """The bytes of a buffer, held as long as this lives."""

    view: Py_buffer
    start: cython.p_uchar
    size_bytes: cython.longlong

    def __cinit__(self, source: Buffer) -> None:
        PyObject_GetBuffer(source, cython.address(self.view), PyBUF_SIMPLE)
        self.start = cython.cast(cython.p_uchar, self.view.buf)
        self.size_bytes = self.view.len

    def __dealloc__(self) -> None:
        PyBuffer_Release(cython.address(self.view))


@cython.cclass
class _Slots:
    """Offsets and validity of a column: row `i` is a range of `limit` bytes or rows of something else."""

    first: cython.longlong
    offsets: _SourceBuffer
    validity: _SourceBuffer
    limit: cython.longlong

    def __cinit__(self, column: object, row_count: cython.longlong, limit: cython.longlong) -> None:
        self.first = column.first
        self.offsets = _SourceBuffer(column.offsets)
        self.validity = None if column.validity is None else _SourceBuffer(column.validity)
        self.limit = limit
        last: cython.longlong = self.first + row_count
        if self.first < 0 or row_count < 0 or last < 0 or self.offsets.size_bytes // 4 <= last:
            raise ValueError("a column is shorter than its rows")
        if self.validity is not None and self.validity.size_bytes * 8 < last:
            raise ValueError("a column is shorter than its rows")

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-2)
    def get(self, row: cython.longlong, start: cython.p_longlong) -> cython.longlong:
        """Returns the length of the row's range, -1 for null, and where it starts. The row is one of those checked above."""
        index: cython.longlong = self.first + row
        stop: cython.longlong
        if self.validity is not None and not self.validity.start[index >> 3] >> (index & 7) & 1:
            return -1
        start[0] = cython.cast(cython.p_int, self.offsets.start)[index]
        stop = cython.cast(cython.p_int, self.offsets.start)[index + 1]
        if start[0] < 0 or stop < start[0] or stop > self.limit:
            raise ValueError(f"row {row} is {start[0]} to {stop} of {self.limit}")
        return stop - start[0]


@cython.cclass
class _Rows:
    """A binary column to read from, row by row."""

    slots: _Slots
    data: _SourceBuffer

    def __cinit__(self, column: object, row_count: cython.longlong) -> None:
        self.data = _SourceBuffer(column.data)
        self.slots = _Slots(column, row_count, self.data.size_bytes)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def get(self, row: cython.longlong, field: cython.pointer(Field)) -> cython.int:
        start: cython.longlong = 0
        field.start = self.data.start
        field.length = -1
        field.length = self.slots.get(row, cython.address(start))
        field.start += start
        return 0


@cython.cclass
class _HeaderRows:
    """The headers of each row."""

    lists: _Slots
    names: _Rows
    values: _Rows

    def __cinit__(self, headers: object, row_count: cython.longlong) -> None:
        self.lists = _Slots(headers.lists, row_count, _COLUMN_BYTES_MAX)
        last: cython.longlong = self.lists.first + row_count
        count: cython.longlong = cython.cast(cython.p_int, self.lists.offsets.start)[last]
        self.lists.limit = count
        self.names = _Rows(headers.names, count)
        self.values = _Rows(headers.values, count)

    @cython.cfunc
    @cython.exceptval(-1)
    def size_bytes(self, row: cython.longlong) -> cython.longlong:
        """Returns the bytes of the row's headers at the end of a record, their number included."""
        start: cython.longlong = 0
        name: Field
        value: Field
        count: cython.longlong = max(self.lists.get(row, cython.address(start)), 0)
        size: cython.longlong = varint_bytes(count)
        for header in range(start, start + count):
            self.names.get(header, cython.address(name))
            if name.length < 0:
                raise ValueError("a header's name may not be null")
            self.values.get(header, cython.address(value))
            size += field_bytes(name.length) + field_bytes(value.length)
        return size

    @cython.cfunc
    @cython.exceptval(-1)
    def put(self, row: cython.longlong, position: cython.p_uchar, size_bytes: cython.longlong) -> cython.int:
        """Writes what `size_bytes` measured, and not a byte more, should the columns have changed since."""
        end: cython.p_uchar = position + size_bytes
        start: cython.longlong = 0
        name: Field
        value: Field
        count: cython.longlong = max(self.lists.get(row, cython.address(start)), 0)
        if varint_bytes(count) > end - position:
            raise ValueError("the columns changed while they were read")
        position = put_varint(position, count)
        for header in range(start, start + count):
            self.names.get(header, cython.address(name))
            self.values.get(header, cython.address(value))
            if field_bytes(name.length) + field_bytes(value.length) > end - position:
                raise ValueError("the columns changed while they were read")
            position = put_field(position, name.start, name.length)
            position = put_field(position, value.start, value.length)
        if position != end:
            raise ValueError("the columns changed while they were read")
        return 0


@cython.cclass
class ColumnWriter:
    """Writes rows of columns as records."""

    _row_count: cython.longlong
    _timestamps: _SourceBuffer
    _keys: _Rows
    _values: _Rows
    _headers: _HeaderRows

    def __cinit__(self, columns: object) -> None:
        self._row_count = columns.row_count
        self._timestamps = _SourceBuffer(columns.timestamps)
        if self._row_count < 0 or self._timestamps.size_bytes // 8 < self._row_count:
            raise ValueError("a column is shorter than its rows")
        self._keys = _Rows(columns.keys, self._row_count)
        self._values = _Rows(columns.values, self._row_count)
        self._headers = None if columns.headers is None else _HeaderRows(columns.headers, self._row_count)

    def write(self, start: cython.longlong, size_bytes_max: cython.longlong) -> Written:
        if not 0 <= start < self._row_count:
            raise ValueError(f"row {start} of {self._row_count}")
        timestamps = cython.cast(cython.p_longlong, self._timestamps.start)
        base: cython.longlong = timestamps[start]
        latest: cython.longlong = base
        row: cython.longlong = start
        used: cython.longlong = _HEADER_BYTES
        headers_bytes: cython.longlong = 1
        position: cython.p_uchar
        key: Field
        value: Field
        out = _GrowingBuffer()
        out.room(_HEADER_BYTES)
        memset(out.memory, 0, _HEADER_BYTES)
        while row < self._row_count:
            timestamp: cython.longlong = timestamps[row]
            delta: cython.longlong = _distance(base, timestamp)
            self._keys.get(row, cython.address(key))
            self._values.get(row, cython.address(value))
            if self._headers is not None:
                headers_bytes = self._headers.size_bytes(row)
            body: cython.longlong = body_bytes(delta, row - start, key.length, value.length) + headers_bytes
            total: cython.longlong = used + varint_bytes(body) + body
            if total > _BATCH_BYTES_MAX:
                raise OverflowError("a batch holds less than 2 GiB")
            if total > size_bytes_max and row > start:
                break
            out.room(total)
            position = put_varint(out.memory + used, body)
            position[0] = 0
            position = put_varint(position + 1, delta)
            position = put_varint(position, row - start)
            position = put_field(position, key.start, key.length)
            position = put_field(position, value.start, value.length)
            if self._headers is None:
                position[0] = 0
            else:
                self._headers.put(row, position, headers_bytes)
            latest = max(latest, timestamp)
            used = total
            row += 1
        return Written(out.cut(used), row - start, base, latest)


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=True)
def _distance(base: cython.longlong, timestamp: cython.longlong) -> cython.longlong:
    if (base < 0 and timestamp > _INT64_MAX + base) or (base > 0 and timestamp < _INT64_MIN + base):
        raise OverflowError("a timestamp, and its distance from the batch's first, must fit in 64 bits")
    return timestamp - base

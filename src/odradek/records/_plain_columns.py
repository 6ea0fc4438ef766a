"""Batches to columns and back, in plain Python: the readable twin of `_fast_columns.py`."""

from __future__ import annotations

import struct
from array import array
from typing import Literal, TypeVar

from odradek.records._plain import RecordWriter, each_record
from odradek.records.columns import (
    COLUMN_BYTES_MAX,
    BinaryColumn,
    Columns,
    Headers,
    ListColumn,
)
from odradek.records.frame import Frame, Written
from odradek.runtime.ports import Buffer

H = TypeVar("H")


class _GrowingColumn:
    """A binary column to which rows are added."""

    def __init__(self) -> None:
        self._offsets = array("i", [0])
        self._data = bytearray()
        self._nulls: list[int] = []

    @property
    def row_count(self) -> int:
        return len(self._offsets) - 1

    def add(self, content: bytes, start: int, stop: int) -> None:
        """Adds the row `content[start:stop]`, or null where `stop` is negative."""
        if stop < 0:
            self._nulls.append(self.row_count)
        else:
            self._data += content[start:stop]
            if len(self._data) > COLUMN_BYTES_MAX:
                raise OverflowError("one column holds less than 2 GiB")
        self._offsets.append(len(self._data))

    def finish(self) -> BinaryColumn:
        validity = None
        if self._nulls:
            validity = bytearray(b"\xff" * ((self.row_count + 7) // 8))
            for row in self._nulls:
                validity[row >> 3] &= ~(1 << (row & 7))
        return BinaryColumn(0, validity, memoryview(self._offsets).cast("B"), self._data, len(self._nulls))


class ColumnReader:
    """Gathers the records of many batches in columns."""

    def __init__(self, value_bytes: int = 0) -> None:
        self._is_closed = False
        self._offsets = array("q")
        self._timestamps = array("q")
        self._timestamp_types = array("i")
        self._keys = _GrowingColumn()
        self._values = _GrowingColumn()
        self._header_lists = array("i", [0])
        self._header_names = _GrowingColumn()
        self._header_values = _GrowingColumn()

    def read_plain_batches(
        self, batches: list[tuple[H, memoryview]], index: int, from_offset: int, verify_crc: bool
    ) -> int:
        return index

    def read(self, data: Buffer, frame: Frame, from_offset: int) -> None:
        self._close()
        content = bytes(data)
        for timestamp, delta, key_start, key_stop, value_start, value_stop, headers in each_record(
            content, frame
        ):
            offset = frame.base_offset + delta
            if offset < from_offset:
                continue
            self._offsets.append(offset)
            self._timestamps.append(timestamp)
            self._timestamp_types.append(frame.timestamp_type)
            self._keys.add(content, key_start, key_stop)
            self._values.add(content, value_start, value_stop)
            for name_start, name_stop, header_start, header_stop in headers:
                self._header_names.add(content, name_start, name_stop)
                self._header_values.add(content, header_start, header_stop)
            self._header_lists.append(self._header_names.row_count)
        self._is_closed = False

    def _close(self) -> None:
        if self._is_closed:
            raise RuntimeError("this reader is in use, finished, or failed")
        self._is_closed = True

    def finish(self) -> Columns:
        self._close()
        headers = None
        if self._header_names.row_count:
            lists = ListColumn(0, None, memoryview(self._header_lists).cast("B"))
            headers = Headers(lists, self._header_names.finish(), self._header_values.finish())
        return Columns(
            row_count=len(self._offsets),
            timestamps=memoryview(self._timestamps).cast("B"),
            keys=self._keys.finish(),
            values=self._values.finish(),
            headers=headers,
            offsets=memoryview(self._offsets).cast("B"),
            timestamp_types=memoryview(self._timestamp_types).cast("B"),
        )


def _numbers(buffer: Buffer, kind: Literal["i", "q"]) -> memoryview:
    """Returns a view of the whole numbers in a buffer; `kind` is a format of `struct`."""
    content = memoryview(buffer).cast("B")
    return content[: len(content) - len(content) % struct.calcsize(kind)].cast(kind)


def _is_valid(validity: Buffer | None, index: int) -> bool:
    return validity is None or bool(validity[index >> 3] >> (index & 7) & 1)


class _Rows:
    """A binary column to read from, row by row."""

    def __init__(self, column: BinaryColumn, row_count: int) -> None:
        self._first = column.first
        self._validity = None if column.validity is None else memoryview(column.validity).cast("B")
        self._offsets = _numbers(column.offsets, "i")
        self._data = memoryview(column.data).cast("B")
        _check_room(column.first, row_count, self._validity, self._offsets)

    def get(self, row: int) -> memoryview | None:
        index = self._first + row
        if not _is_valid(self._validity, index):
            return None
        start, stop = self._offsets[index], self._offsets[index + 1]
        if not 0 <= start <= stop <= len(self._data):
            raise ValueError(f"row {row} is bytes {start} to {stop} of {len(self._data)}")
        return self._data[start:stop]


def _check_room(first: int, row_count: int, validity: memoryview | None, offsets: memoryview) -> None:
    last = first + row_count
    has_room = last < len(offsets) and (validity is None or last <= len(validity) * 8)
    if first < 0 or row_count < 0 or not has_room:
        raise ValueError("a column is shorter than its rows")


class _HeaderRows:
    """The headers of each row."""

    def __init__(self, headers: Headers, row_count: int) -> None:
        lists = headers.lists
        self._first = lists.first
        self._validity = None if lists.validity is None else memoryview(lists.validity).cast("B")
        self._offsets = _numbers(lists.offsets, "i")
        _check_room(lists.first, row_count, self._validity, self._offsets)
        self._count = self._offsets[lists.first + row_count]
        self._names = _Rows(headers.names, self._count)
        self._values = _Rows(headers.values, self._count)

    def get(self, row: int) -> list[tuple[str, memoryview | None]]:
        index = self._first + row
        if not _is_valid(self._validity, index):
            return []
        start, stop = self._offsets[index], self._offsets[index + 1]
        if not 0 <= start <= stop <= self._count:
            raise ValueError(f"the headers of row {row} are {start} to {stop} of {self._count}")
        return [(self._name(header), self._values.get(header)) for header in range(start, stop)]

    def _name(self, header: int) -> str:
        name = self._names.get(header)
        if name is None:
            raise ValueError("a header's name may not be null")
        return str(name, "utf-8")


class ColumnWriter:
    """Writes rows of columns as records."""

    def __init__(self, columns: Columns) -> None:
        self._row_count = columns.row_count
        self._timestamps = _numbers(columns.timestamps, "q")
        if not 0 <= columns.row_count <= len(self._timestamps):
            raise ValueError("a column is shorter than its rows")
        self._keys = _Rows(columns.keys, columns.row_count)
        self._values = _Rows(columns.values, columns.row_count)
        self._headers = None if columns.headers is None else _HeaderRows(columns.headers, columns.row_count)

    def write(self, start: int, size_bytes_max: int) -> Written:
        if not 0 <= start < self._row_count:
            raise ValueError(f"row {start} of {self._row_count}")
        writer = RecordWriter(size_bytes_max)
        for row in range(start, self._row_count):
            headers = self._headers.get(row) if self._headers is not None else ()
            if not writer.append(self._timestamps[row], self._keys.get(row), self._values.get(row), headers):
                break
        return writer.take()

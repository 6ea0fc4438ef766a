"""Rows of tables as bytes of state, a batch at a time.

A join keeps the row of each key: its value, with or without the time of its record. Value by value, each row takes
microseconds to write and to read. Where the fields of a value are texts, bytes and numbers, the same bytes are made and read
for all rows at once. The format is the same as in `state_bytes.py`; tests compare the two.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from odradek.streams.processors.state.state_bytes import state_bytes

Numbers: TypeAlias = npt.NDArray[np.int64]
_Bytes: TypeAlias = npt.NDArray[np.uint8]
_LENGTH: Final = struct.Struct(">I")
_NUMBER_BYTES: Final = 8
_TEXT_BYTES_MAX: Final = (1 << 31) - 1
_NULL: Final = pa.scalar(b"N", pa.binary())
_NOTHING: Final = pa.scalar(b"", pa.binary())
_TAGS: Final = {
    pa.string(): b"s",
    pa.binary(): b"b",
    pa.int8(): b"i",
    pa.int16(): b"i",
    pa.int32(): b"i",
    pa.int64(): b"i",
    pa.float64(): b"f",
    pa.bool_(): b"1",
}
_BYTES_AT_ONCE: Final = 1 << 28
_SHORT_TEXT_BYTES: Final = 32
"""The mean length up to which texts are gathered byte by byte, with two numbers for each byte; longer ones are joined."""


class _UnlikeRowsError(Exception):
    """Bytes do not encode a row of these fields: an earlier version or another schema wrote them."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of one table. `kind`: the type of its values; `has_time`: the time of the record is kept with the value."""

    kind: pa.StructType
    has_time: bool

    @classmethod
    def of(cls, kind: pa.DataType, *, has_time: bool) -> TableRows | None:
        """Returns the rows of a table with such values; None where a field has another type than those that are known here."""
        if not pa.types.is_struct(kind) or not kind.num_fields:
            return None
        return cls(kind, has_time) if all(field.type in _TAGS for field in kind) else None

    def written(self, values: pa.StructArray, times: Numbers) -> list[bytes | None]:
        """Returns the bytes of rows; None where the value is null."""
        if values.nbytes > _BYTES_AT_ONCE and len(values) > 1:
            middle = len(values) // 2
            begin, rest = values.slice(0, middle), values.slice(middle)
            return [*self.written(begin, times[:middle]), *self.written(rest, times[middle:])]
        parts: list[Any] = []
        for field, column, before in zip(self.kind, values.flatten(), self._constants(), strict=True):
            parts += [pa.scalar(before, pa.binary()), *_written_column(column, _TAGS[field.type])]
        if self.has_time:
            parts.append(_tagged(b"i", times.astype(">i8")))
        rows = pc.binary_join_element_wise(*parts, _NOTHING)
        if values.null_count:
            rows = pc.if_else(values.is_valid(), rows, pa.scalar(None, pa.binary()))
        written: list[bytes | None] = rows.to_pylist()
        return written

    def read(self, datas: Sequence[bytes | None]) -> tuple[pa.StructArray, Numbers] | None:
        """Returns values, null where there are no bytes, and times, 0 there; None for bytes that only `state_value` reads."""
        is_there = np.fromiter((data is not None for data in datas), bool, len(datas))
        try:
            values, times = self._read_all([data for data in datas if data is not None])
        except (_UnlikeRowsError, pa.ArrowInvalid):
            return None
        if is_there.all():
            return values, times
        row_of = np.cumsum(is_there) - 1
        all_times = np.where(is_there, times[row_of] if len(times) else 0, 0)
        return values.take(pa.array(row_of, mask=~is_there)), all_times

    def _constants(self) -> list[bytes]:
        """Returns the bytes before each field's value: its name, and before the first one what a row begins with."""
        names = [state_bytes(field.name)[1:] for field in self.kind]
        count = b"d" + _LENGTH.pack(len(names))
        begin = state_bytes(None)[:1] + (b"t" + _LENGTH.pack(2) if self.has_time else b"") + count
        return [begin + names[0], *names[1:]]

    def _read_all(self, datas: list[bytes]) -> tuple[pa.StructArray, Numbers]:
        reader = _RowReader.of(datas)
        columns = []
        for field, before in zip(self.kind, self._constants(), strict=True):
            reader.pass_constant(before)
            columns.append(reader.column(_TAGS[field.type]).cast(field.type))
        times = np.zeros(len(datas), np.int64)
        if self.has_time:
            column = reader.column(b"i")
            if column.null_count:
                raise _UnlikeRowsError
            times = column.to_numpy()
        reader.end()
        return pa.StructArray.from_arrays(columns, fields=list(self.kind)), times


def _written_column(column: pa.Array, tag: bytes) -> list[pa.Array]:
    """Returns what is joined for the values of a field."""
    if tag == b"1":
        return [_null_where_null(column, pc.if_else(column, pa.scalar(b"1"), pa.scalar(b"0")))]
    if tag in (b"i", b"f"):
        filled = column.fill_null(0) if column.null_count else column
        kind = ">i8" if tag == b"i" else ">f8"
        return [_null_where_null(column, _tagged(tag, filled.to_numpy().astype(kind)))]
    texts = column.cast(pa.binary())
    lengths = pc.fill_null(pc.binary_length(texts), 0).to_numpy()
    head = _tagged(tag, lengths.astype(">u4"))
    return [_null_where_null(column, head), texts.fill_null(b"") if column.null_count else texts]


def _null_where_null(column: pa.Array, tagged: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), tagged, _NULL) if column.null_count else tagged


def _tagged(tag: bytes, numbers: npt.NDArray[Any]) -> pa.Array:
    """Returns the bytes of each number after a tag."""
    width = 1 + numbers.dtype.itemsize
    matrix = np.empty((len(numbers), width), np.uint8)
    matrix[:, 0] = tag[0]
    matrix[:, 1:] = np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), width - 1)
    ends = np.arange(0, width * len(numbers) + 1, width, dtype=np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(numbers), [None, pa.py_buffer(ends), pa.py_buffer(matrix)]
    )


@dataclass(slots=True)
class _RowReader:
    """Reads rows side by side: `at` is the position in each of them."""

    data: _Bytes
    at: Numbers
    ends: Numbers

    @classmethod
    def of(cls, datas: list[bytes]) -> _RowReader:
        lengths = np.fromiter(map(len, datas), np.int64, len(datas))
        ends = np.cumsum(lengths)
        # after the last row there is room for bytes that are read before the end is compared
        joined = b"".join([*datas, bytes(1 + _NUMBER_BYTES)])
        return cls(np.frombuffer(joined, np.uint8), ends - lengths, ends)

    def pass_constant(self, expected: bytes) -> None:
        """Passes bytes that are the same in all rows."""
        if ((self.ends - self.at) < len(expected)).any():
            raise _UnlikeRowsError
        for index, byte in enumerate(expected):
            if (self.data[self.at + index] != byte).any():
                raise _UnlikeRowsError
        self.at = self.at + len(expected)

    def column(self, tag: bytes) -> pa.Array:
        """Reads a value in each row: null, or one with this tag."""
        tags = self.data[self.at]
        is_null = tags == ord("N")
        is_known = is_null | (tags == tag[0])
        if tag == b"1":
            is_known |= tags == ord("0")
        if not is_known.all():
            raise _UnlikeRowsError
        if tag == b"1":
            self._advance(np.ones(len(self.at), np.int64))
            return pa.array(tags == tag[0], mask=is_null)
        if tag in (b"i", b"f"):
            numbers = self._big_endian(_NUMBER_BYTES).view(np.float64 if tag == b"f" else np.int64)
            self._advance(np.where(is_null, 1, 1 + _NUMBER_BYTES))
            return pa.array(numbers, mask=is_null)
        lengths = np.where(is_null, 0, self._big_endian(_LENGTH.size)).astype(np.int64)
        begins = self.at + 1 + _LENGTH.size
        self._advance(np.where(is_null, 1, 1 + _LENGTH.size + lengths))
        return self._texts(begins, lengths, is_null)

    def end(self) -> None:
        """Makes sure that nothing follows the last value of a row."""
        if (self.at != self.ends).any():
            raise _UnlikeRowsError

    def _advance(self, byte_counts: Numbers) -> None:
        self.at = self.at + byte_counts
        if (self.at > self.ends).any():
            raise _UnlikeRowsError

    def _big_endian(self, byte_count: int) -> Numbers:
        """Returns the numbers after the tags."""
        numbers = np.zeros(len(self.at), np.uint64)
        for index in range(byte_count):
            numbers = (numbers << np.uint64(8)) | self.data[self.at + 1 + index]
        return numbers.view(np.int64)

    def _texts(self, begins: Numbers, lengths: Numbers, is_null: npt.NDArray[np.bool_]) -> pa.Array:
        ends = np.concatenate(([0], np.cumsum(lengths)))
        total = int(ends[-1])
        if total > _TEXT_BYTES_MAX:
            raise _UnlikeRowsError
        if total <= _SHORT_TEXT_BYTES * len(lengths):
            content = pa.py_buffer(self.data[np.arange(total) + np.repeat(begins - ends[:-1], lengths)])
        else:
            data, bounds = (
                self.data.data,
                zip(begins.tolist(), (begins + lengths).tolist(), strict=True),
            )
            content = pa.py_buffer(b"".join([data[begin:end] for begin, end in bounds]))
        texts = pa.BinaryArray.from_buffers(
            pa.binary(), len(lengths), [None, pa.py_buffer(ends.astype(np.int32)), content]
        )
        return pc.if_else(pa.array(is_null), pa.scalar(None, pa.binary()), texts) if is_null.any() else texts

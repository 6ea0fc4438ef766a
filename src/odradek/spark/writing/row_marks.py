"""Headers that mark the rows of a task, a column at a time.

The marks of a row are four headers: `Marks.headers` defines them. All rows of a task share three of them, so the values of a
batch are its rows' numbers, each after the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from odradek.spark.writing.duplicates import MARK_HEADERS
from odradek.spark.writing.outgoing import Marks

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(HEADER_TYPE)

_MARK_COUNT: Final = len(MARK_HEADERS)
_NAMES: Final = "".join(MARK_HEADERS).encode()
_NAME_STARTS: Final = np.cumsum([0, *(len(name) for name in MARK_HEADERS[:-1])])
_NAME_SET: Final = pa.array(MARK_HEADERS, pa.string())


def marked(headers: pa.ListArray | None, marks: Marks, numbers: Sequence[int]) -> pa.ListArray:
    """Returns the headers of rows followed by their marks, which replace the marks of an earlier write.

    `headers`: of type HEADERS_TYPE, one list or null for each row; None: no row has any. `numbers`: the rows' own, in the task.
    """
    pairs = _mark_pairs(marks, numbers)
    own_pairs = None if headers is None else pc.list_flatten(headers)
    if headers is None or own_pairs is None or not len(own_pairs):
        return _lists(_MARK_COUNT * np.arange(len(numbers) + 1), pairs)
    own_ends = np.cumsum(pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False))
    is_mark = pc.is_in(pc.struct_field(own_pairs, "key"), value_set=_NAME_SET)
    if is_mark.true_count:
        is_own = pc.invert(is_mark)
        own_pairs = own_pairs.filter(is_own)
        own_ends = np.concatenate(([0], np.cumsum(is_own.to_numpy(zero_copy_only=False))))[own_ends]
    ends = own_ends + _MARK_COUNT * np.arange(1, len(numbers) + 1)
    indexes = np.empty(len(own_pairs) + len(pairs), np.int64)
    is_behind = np.zeros(len(indexes), bool)
    is_behind[(ends[:, None] - np.arange(_MARK_COUNT, 0, -1)).ravel()] = True
    indexes[is_behind] = np.arange(len(own_pairs), len(indexes))
    indexes[~is_behind] = np.arange(len(own_pairs))
    joined = pa.concat_arrays([own_pairs, pairs]).take(pa.array(indexes))
    return _lists(np.concatenate(([0], ends)), joined)


def _mark_pairs(marks: Marks, numbers: Sequence[int]) -> pa.StructArray:
    """Returns the marks of all rows, one after the other."""
    count = len(numbers)
    name_offsets = _offsets(len(_NAMES) * np.arange(count + 1), _NAME_STARTS)
    names = _binary(pa.string(), name_offsets, pa.py_buffer(_NAMES * count))
    alike = [value or b"" for _, value in marks.headers(0)[:-1]]
    digits = _int64(numbers).cast(pa.string()).cast(pa.binary())
    prefix, nothing = (pa.scalar(text, pa.binary()) for text in (b"".join(alike), b""))
    together = pc.binary_join_element_wise(prefix, digits, nothing)
    _, offsets, data = together.buffers()
    starts = np.frombuffer(offsets, np.int32)[together.offset : together.offset + count + 1]
    values = _binary(pa.binary(), _offsets(starts, np.cumsum([0, *(len(value) for value in alike)])), data)
    return pa.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE))


def _int64(numbers: Sequence[int]) -> pa.Array:
    if isinstance(numbers, range):
        return pa.array(np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int64))
    return pa.array(numbers, pa.int64())


def _offsets(starts: npt.NDArray[np.integer], parts: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
    """Returns the offsets of the parts of each range. `starts`: of the ranges, and where the last one ends."""
    offsets = np.empty((len(starts) - 1) * len(parts) + 1, np.int32)
    offsets[:-1] = (starts[:-1, None] + parts).ravel()
    offsets[-1] = starts[-1]
    return offsets


def _binary(kind: pa.DataType, offsets: npt.NDArray[np.int32], data: pa.Buffer | None) -> pa.Array:
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, pa.py_buffer(offsets), data], 0)


def _lists(offsets: npt.NDArray[np.integer], pairs: pa.StructArray) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pairs, type=HEADERS_TYPE)

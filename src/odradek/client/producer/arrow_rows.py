"""Rows of a frame on their way to a topic: their columns as records need them, which rows go to which partition, and the
batches that they become.

The one module here that needs pyarrow; it is imported when someone sends rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import engine
from odradek.records.arrow import HEADER_TYPE, written_batches
from odradek.records.frame import Written

ChoosePartition = Callable[[bytes | None], int | None]
"""A rule for each row's key; None leaves a row to the producer."""
_PARTITION: Final = "partition"
_SIGN_BIT_CLEARED = pa.scalar(0x7FFF_FFFF, pa.int32())
_RUN_BYTES: Final = 4 << 20
"""Batches of a stream are sent together up to this size, so that many small ones do not become many small requests."""
_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(HEADER_TYPE),
    _PARTITION: pa.int32(),
}
_WANTED: Final = {
    "key": "binary or text",
    "value": "binary or text",
    "headers": "a list of structs of key and value",
    _PARTITION: "a whole number",
    "timestamp": "milliseconds since 1970, or a timestamp",
}


def record_batches(frame: object) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a frame in order, with the columns that records have, in types that `by_partition` takes.

    A frame is whatever hands out Arrow data through the C data interface (`__arrow_c_stream__`, `__arrow_c_array__`): tables
    and batches of pyarrow, frames of polars and pandas. A stream is read as it is sent, a few MiB ahead.

    TypeError for other objects, ValueError for a column whose type no record can hold.
    """
    waiting: list[pa.RecordBatch] = []
    size_bytes = 0
    for rows in _streamed(frame):
        waiting.append(_record_columns(rows))
        size_bytes += waiting[-1].nbytes
        if size_bytes >= _RUN_BYTES:
            yield _joined(waiting)
            waiting, size_bytes = [], 0
    if waiting:
        yield _joined(waiting)


def _streamed(frame: object) -> Iterator[pa.RecordBatch]:
    if isinstance(frame, pa.RecordBatch):
        yield frame
    elif isinstance(frame, type) or not (
        hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__arrow_c_array__")
    ):
        hint = ": collect() it first" if callable(getattr(frame, "collect", None)) else ""
        raise TypeError(
            "rows come from a pyarrow RecordBatch or Table, a polars or pandas DataFrame,"
            f" or another object with __arrow_c_stream__, not from {type(frame).__name__}{hint}"
        )
    elif hasattr(frame, "__arrow_c_stream__"):
        yield from pa.RecordBatchReader.from_stream(frame)
    else:
        yield pa.record_batch(frame)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _record_columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the columns that a record has, and no others: keys and values as binary, which `take` can sort."""
    names = rows.schema.names
    repeated = sorted({name for name in _WANTED if names.count(name) > 1})
    if repeated:
        raise ValueError(f"the frame has the column {repeated[0]!r} {names.count(repeated[0])} times")
    present = [name for name in _WANTED if name in names]
    if "value" not in present and "key" not in present:
        raise ValueError(
            f"the frame has neither a column 'value' nor a column 'key', but {', '.join(names[:20]) or 'none'}:"
            " rename its columns, or encode them by a schema first"
        )
    columns = [_cast(name, rows.column(name)) for name in present]
    return pa.RecordBatch.from_arrays(columns, present)


def _cast(name: str, column: pa.Array) -> pa.Array:
    kind = _TYPES.get(name)
    if pa.types.is_dictionary(column.type):  # a categorical column
        column = column.dictionary.cast(_narrow(column.type.value_type)).take(column.indices)
    if kind is None:
        is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        kind = column.type if pa.types.is_timestamp(column.type) else pa.int64()
        is_castable = is_number or pa.types.is_timestamp(column.type) or pa.types.is_null(column.type)
    else:
        is_castable = pa.types.is_null(column.type) or _is_fitting(name, column.type)
    try:
        if is_castable:
            return column if column.type.equals(kind) else column.cast(kind)
        problem = ""
    except pa.ArrowException as error:
        problem = f": {error!s:.200}"
    raise ValueError(f"the column {name!r} is {column.type!s:.200}, and {_WANTED[name]} is needed{problem}")


def _is_fitting(name: str, kind: pa.DataType) -> bool:
    if name == _PARTITION:
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
    if name == "headers":
        return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
    return _narrow(kind) in (pa.string(), pa.binary())


def _narrow(kind: pa.DataType) -> pa.DataType:
    """Returns string or binary for the wide and the view types of both, any other type as it is."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return pa.string()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or kind == pa.binary_view():
        return pa.binary()
    return pa.binary() if pa.types.is_fixed_size_binary(kind) else kind


class RowsOfPartition(NamedTuple):
    """Rows that belong together, in their order. A partition of None: the producer may choose any one."""

    partition: int | None
    rows: pa.RecordBatch

    def batches(self, size_bytes_max: int, now_ms: int) -> Iterator[Written]:
        """Yields the batches to send, in order."""
        return written_batches(self.rows, max_bytes=size_bytes_max, default_timestamp=now_ms)


def highest_partition(rows: pa.RecordBatch) -> int:
    """Returns the highest number in the column `partition`; -1 without one."""
    highest = pc.max(rows[_PARTITION]).as_py() if _PARTITION in rows.schema.names else None
    return -1 if highest is None else int(highest)


def by_partition(
    topic: str, rows: pa.RecordBatch, partition_count: int, choose: ChoosePartition | None = None
) -> Iterator[RowsOfPartition]:
    """Yields groups of rows by partition. A row's own column `partition` counts first, then its key; rows of a group keep
    their order.

    Keys go where the Java client puts them, unless `choose` returns another partition.

    UNKNOWN_TOPIC_OR_PARTITION for a partition that the topic does not have."""
    if rows.num_rows == 0:
        return
    numbers = _numbers(rows, partition_count, choose)
    least_and_most = pc.min_max(numbers).as_py()
    least, most = least_and_most["min"], least_and_most["max"]
    for number in (least, most):
        if number is not None and not 0 <= number < partition_count:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has partitions 0 to {partition_count - 1}, not {number}",
            )
    if least == most and numbers.null_count in (0, len(numbers)):
        yield RowsOfPartition(least, rows)
        return
    order = pc.array_sort_indices(numbers)  # stable, nulls last
    ordered = rows.take(order)
    start = 0
    for counted in sorted(pc.value_counts(numbers).to_pylist(), key=_nulls_last):
        yield RowsOfPartition(counted["values"], ordered.slice(start, counted["counts"]))
        start += counted["counts"]


def _nulls_last(counted: dict[str, int | None]) -> tuple[bool, int]:
    number = counted["values"]
    return number is None, number or 0


def _numbers(rows: pa.RecordBatch, partition_count: int, choose: ChoosePartition | None) -> pa.Array:
    """Returns the partition of each row, null where any will do."""
    names = rows.schema.names
    keys = rows["key"].cast(pa.binary()) if "key" in names else pa.nulls(rows.num_rows, pa.binary())
    if choose is not None:
        by_key = pa.array(map(choose, keys.to_pylist()), pa.int32(), size=len(keys))
    elif keys.null_count == len(keys):
        by_key = pa.nulls(len(keys), pa.int32())
    else:
        by_key = _hashed(keys, partition_count)
    if _PARTITION not in names:
        return by_key
    return pc.coalesce(rows[_PARTITION].cast(pa.int32()), by_key)


def _hashed(keys: pa.Array, partition_count: int) -> pa.Array:
    """Returns the result of `records.partition_of` for each key."""
    hashes = pa.array(map(engine.active.murmur2, keys.fill_null(b"").to_pylist()), pa.int32(), size=len(keys))
    positive = pc.bit_wise_and(hashes, _SIGN_BIT_CLEARED)
    count = pa.scalar(partition_count, pa.int32())
    numbers = pc.subtract(positive, pc.multiply(pc.divide(positive, count), count))
    return numbers if keys.null_count == 0 else pc.if_else(keys.is_valid(), numbers, None)

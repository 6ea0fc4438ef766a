"""Rows of an Arrow batch on their way to a topic: which go to which partition, and the batches that they become.

The one module here that needs pyarrow; it is imported when someone sends rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import engine
from odradek.records.arrow import written_batches
from odradek.records.frame import Written

ChoosePartition = Callable[[bytes | None], int | None]
"""A rule for each row's key; None leaves a row to the producer."""
_PARTITION = "partition"
_SIGN_BIT_CLEARED = pa.scalar(0x7FFF_FFFF, pa.int32())


class RowsOfPartition(NamedTuple):
    """Rows that belong together, in their order. A partition of None: the producer may choose any one."""

    partition: int | None
    rows: pa.RecordBatch

    def batches(self, size_bytes_max: int, now_ms: int) -> Iterator[Written]:
        """Yields the batches to send, in order."""
        return written_batches(self.rows, max_bytes=size_bytes_max, default_timestamp=now_ms)


def by_partition(
    topic: str, rows: pa.RecordBatch, partition_count: int, choose: ChoosePartition | None = None
) -> Iterator[RowsOfPartition]:
    """Yields groups of rows by partition. A row's own column `partition` counts first, then its key; rows of a group keep
    their order.

    Keys go where the Java client puts them, unless `choose` says otherwise.

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

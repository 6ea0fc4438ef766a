"""A task's share of a read: every record of one range of offsets, none before it, none after it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.lazy import lazy
from odradek.runtime.real import SystemClock
from odradek.spark.connections import catalog, reading
from odradek.spark.decode import to_columns
from odradek.spark.offsets import OffsetRange
from odradek.spark.options import ReadOptions
from odradek.spark.positions import EARLIEST
from odradek.spark.progress import report_loss

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import compute as pc

    from odradek.client import Consumer
    from odradek.runtime.ports import Clock
else:
    pc = lazy("pyarrow.compute")

log: Final = logging.getLogger("odradek.spark")

ROWS_MAX: Final = 32_768
"""Rows of one Arrow batch, about: enough for speed, and few enough to fit in memory when values are large."""
_LOOK_EVERY_S: Final = 0.1
"""How soon to notice that what is left of a range is only what transactions and compaction left out of it."""


def read_range(extent: OffsetRange, options: ReadOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the range's records as batches of `schema`, in order.

    Records that the log no longer holds are reported as `failOnDataLoss` says. TimedOutError when no record came for
    `kafkaConsumer.pollTimeoutMs`.
    """
    with reading(options.client, extent.size) as consumer:
        for rows in _records(consumer, extent, options, SystemClock()):
            yield to_columns(rows, extent.partition, schema, options.projection)


def _records(
    consumer: Consumer, extent: OffsetRange, options: ReadOptions, clock: Clock
) -> Iterator[pa.RecordBatch]:
    partition = extent.partition
    consumer.assign([partition])
    consumer.seek(partition, extent.start)
    heard_at = clock.monotonic()
    position = extent.start
    while position < extent.end:
        try:
            rows = consumer.poll_arrow(_LOOK_EVERY_S, ROWS_MAX)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            position = _behind_the_gap(position, extent, options)
            if position < extent.end:
                consumer.seek(partition, position)
            continue
        reached = consumer.position(partition)
        if reached > position:
            position, heard_at = reached, clock.monotonic()
        elif clock.monotonic() - heard_at > options.poll_timeout_ms / 1_000:
            raise _nothing_came(extent, position, options.poll_timeout_ms)
        if rows.num_rows:
            yield _up_to(rows, extent.end)


def _up_to(rows: pa.RecordBatch, end: int) -> pa.RecordBatch:
    """Without the records at or after `end`: a fetch answers whole batches."""
    offsets = rows["offset"]
    if offsets[-1].as_py() < end:
        return rows

    return rows.slice(0, pc.sum(pc.less(offsets, end)).as_py())


def _behind_the_gap(position: int, extent: OffsetRange, options: ReadOptions) -> int:
    """The log does not hold `position`: where to go on, once the loss has been reported."""
    partition = extent.partition
    first = catalog(options.client).offsets({partition: EARLIEST}).get(partition)
    goes_on = extent.end if first is None or first <= position else min(first, extent.end)
    report_loss(
        [f"{partition} no longer holds offsets {position} to {goes_on - 1}"], fail=options.fail_on_data_loss
    )
    return goes_on


def _nothing_came(extent: OffsetRange, position: int, waited_ms: int) -> KafkaError:
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"{extent.partition}: no record came from offset {position} on for {waited_ms} ms, though the range ends"
        f" at {extent.end}; is the broker reachable from here? (option kafkaConsumer.pollTimeoutMs)",
    )

"""A task's share of a read: every record of some ranges of offsets, none before them, none after them."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.model.lazy import lazy
from odradek.runtime.real import SystemClock
from odradek.spark.clients.connections import catalog, reading
from odradek.spark.options.options import ReadOptions
from odradek.spark.reading.catalog import log_ranges
from odradek.spark.reading.decode import to_columns
from odradek.spark.reading.offsets import OffsetRange
from odradek.spark.reading.progress import report_loss

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import compute as pc

    from odradek.client import Consumer
    from odradek.runtime.ports import Clock
else:
    pa = lazy("pyarrow")
    pc = lazy("pyarrow.compute")

log: Final = logging.getLogger("odradek.spark")

ROWS_MAX: Final = 32_768
"""Rows of one Arrow batch, about: enough for speed, and few enough to fit in memory when values are large."""
PIECE_BYTES: Final = 2 << 20
"""The size of a batch for the JVM, roughly. The JVM allocates new memory for batches larger than the blocks that it reuses."""
_LOOK_EVERY_S: Final = 0.1
"""The interval for checking whether the rest of a range has no records, as transactions and compaction left them out."""


def read_ranges(
    extents: Sequence[OffsetRange],
    options: ReadOptions,
    schema: pa.Schema,
    keys: frozenset[bytes] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields the records of ranges as batches of `schema`; with `keys`, only records with these keys.

    Each range is of another partition, and its records come in order. Records that the log no longer holds are reported as
    `failOnDataLoss` demands. TimedOutError when no record came for `kafkaConsumer.pollTimeoutMs`.
    """
    yield from decoded(fetched(extents, options), options, schema, keys)


def decoded(
    records: Iterable[tuple[TopicPartition, pa.RecordBatch]],
    options: ReadOptions,
    schema: pa.Schema,
    keys: frozenset[bytes] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields records that were fetched as `read_ranges` does."""
    wanted = None if keys is None else pa.array(sorted(keys), pa.binary())
    for partition, rows in records:
        if wanted is not None:
            rows = rows.filter(pc.is_in(rows["key"], wanted))
        yield from pieces(to_columns(rows, partition, schema, options.projection))


def fetched(
    extents: Sequence[OffsetRange], options: ReadOptions
) -> Generator[tuple[TopicPartition, pa.RecordBatch]]:
    """Yields the records of ranges, not decoded, in batches of one partition. Raises the same errors as `read_ranges`."""
    with reading(options.client, max(extent.size for extent in extents)) as consumer:
        yield from _Reading(consumer, extents, options, SystemClock()).records()


def pieces(rows: pa.RecordBatch, bytes_max: int = PIECE_BYTES) -> Iterator[pa.RecordBatch]:
    """Yields the rows, in batches of equal length, of about `bytes_max` or less; nothing is copied."""
    piece_count = min(-(-rows.nbytes // bytes_max), rows.num_rows)
    if piece_count <= 1:
        yield rows
        return
    length = -(-rows.num_rows // piece_count)
    for start in range(0, rows.num_rows, length):
        yield rows.slice(start, length)


class _Reading:
    """Ranges that one consumer reads, and its position in each of them."""

    def __init__(
        self, consumer: Consumer, extents: Sequence[OffsetRange], options: ReadOptions, clock: Clock
    ) -> None:
        self._consumer = consumer
        self._options = options
        self._clock = clock
        self._left = {extent.partition: extent for extent in extents}
        """The ranges that are not read yet."""

    def records(self) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        consumer = self._consumer
        consumer.assign(self._left)
        for partition, extent in self._left.items():
            consumer.stop_at(partition, extent.end)
            consumer.seek(partition, extent.start, topic_id=extent.topic_id)
        heard_at = self._clock.monotonic()
        while self._left:
            rows = self._poll()
            ends = {partition: extent.end for partition, extent in self._left.items()}
            if self._advance():
                heard_at = self._clock.monotonic()
            elif self._clock.monotonic() - heard_at > self._options.poll_timeout_ms / 1_000:
                raise self._nothing_came()
            if rows is not None and rows.num_rows:
                partition = TopicPartition(rows["topic"][0].as_py(), rows["partition"][0].as_py())
                if partition in ends:
                    yield partition, _up_to(rows, ends[partition])

    def _poll(self) -> pa.RecordBatch | None:
        try:
            return self._consumer.poll_arrow(_LOOK_EVERY_S, ROWS_MAX)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            self._pass_gaps()
            return None

    def _advance(self) -> bool:
        """Notes what has been read; returns whether that is more than before."""
        has_advanced = False
        for partition, position in self._consumer.positions().items():
            extent = self._left.get(partition)
            if extent is None or position <= extent.start:
                continue
            has_advanced = True
            self._go_on(extent, position)
        return has_advanced

    def _go_on(self, extent: OffsetRange, position: int) -> None:
        if position >= extent.end:
            del self._left[extent.partition]
            self._consumer.pause([extent.partition])
        else:
            self._left[extent.partition] = replace(extent, start=position)

    def _pass_gaps(self) -> None:
        """Continues after offsets that a log does not hold any more, once the loss has been reported."""
        cluster = catalog(self._options.client)
        ids = cluster.topic_ids(sorted({partition.topic for partition in self._left}))
        earliest, latest = log_ranges(self._left, cluster)
        for partition, extent in list(self._left.items()):
            is_of_another = ids.get(partition.topic, extent.topic_id) != extent.topic_id != ZERO_UUID
            first = extent.end if is_of_another else earliest.get(partition, extent.end)
            if first <= extent.start <= latest.get(partition, -1):
                if partition not in self._consumer.positions():  # its metadata was older than the range
                    self._consumer.seek(partition, extent.start)
                continue
            position = extent.end if first <= extent.start else min(first, extent.end)
            loss = f"{partition} no longer holds offsets {extent.start} to {position - 1}"
            if is_of_another:
                loss += f" (topic id {extent.topic_id} was deleted, and the name belongs to {ids[partition.topic]} now)"
            report_loss([loss], fail=self._options.fail_on_data_loss)
            self._go_on(extent, position)
            if partition in self._left:
                self._consumer.seek(partition, position)

    def _nothing_came(self) -> KafkaError:
        waited_ms = self._options.poll_timeout_ms
        extent = next(iter(self._left.values()))
        return KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"{extent.partition}: no record came from offset {extent.start} on for {waited_ms} ms, though the range ends"
            f" at {extent.end}; is the broker reachable from here? (option kafkaConsumer.pollTimeoutMs)",
        )


def _up_to(rows: pa.RecordBatch, end: int) -> pa.RecordBatch:
    """Returns the rows below the offset `end`: a fetch returns whole batches."""
    offsets = rows["offset"]
    if offsets[-1].as_py() < end:
        return rows

    return rows.slice(0, pc.sum(pc.less(offsets, end)).as_py())

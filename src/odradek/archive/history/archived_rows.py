"""Rows of an archive by offset and by time: only the files, and the parts of them, that may hold them are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from odradek.archive.files.data_files import split_by
from odradek.archive.files.extent_index import sort_key
from odradek.archive.files.reading import FileReader
from odradek.archive.history.record_columns import as_records
from odradek.archive.store.location import ArchiveLocation
from odradek.archive.store.values import DataFile
from odradek.model.ids import TopicPartition
from odradek.spark.options.options import Projection
from odradek.spark.reading.decode import to_columns
from odradek.spark.reading.offsets import OffsetRange
from odradek.spark.rows.columns import TIMESTAMP_MS_MAX, US_PER_MS

_TIME: Final = pa.timestamp("us", tz="UTC")
_NO_OFFSET: Final = 1 << 63
"""A number above all offsets."""
_TIME_COLUMNS: Final = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", _TIME)]
)


def read_share(
    reader: FileReader,
    files: Iterable[DataFile],
    extents: Sequence[OffsetRange],
    projection: Projection,
    schema: pa.Schema,
    keys: frozenset[bytes] | None,
) -> Iterator[pa.RecordBatch]:
    """Yields the records of the ranges, as a read from the topics would give them."""
    wanted = {extent.partition: extent for extent in extents}
    span = min(extent.start for extent in extents), max(extent.end for extent in extents)
    of_keys = None if keys is None else pa.array(sorted(keys), pa.binary())
    for file in files:
        for batch in reader.read(file, offsets=span):
            for partition, rows in _by_partition(batch):
                extent = wanted.get(partition)
                if extent is None:
                    continue
                records = as_records(_within(rows, extent))
                if of_keys is not None:
                    records = records.filter(pc.is_in(records["key"], of_keys))
                if records.num_rows:
                    yield to_columns(records, partition, schema, projection)


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    for values, rows in split_by(batch, ("topic", "partition")):
        named = dict(values)
        yield TopicPartition(named["topic"] or "", int(named["partition"] or 0)), rows


def _within(rows: pa.RecordBatch, extent: OffsetRange) -> pa.RecordBatch:
    offsets = rows["offset"]
    return rows.filter(pc.and_(pc.greater_equal(offsets, extent.start), pc.less(offsets, extent.end)))


def first_at(
    location: ArchiveLocation, files: Iterable[DataFile], times_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Returns each partition's first archived offset with a timestamp at or after a time; omits partitions without one.

    Reads files in the order of their offsets, and stops once all that follow begin after the offsets found.
    """
    if not times_ms:
        return {}
    reader = FileReader(location=location, schema=_TIME_COLUMNS)
    firsts: dict[TopicPartition, int] = {}
    for file in sorted(files, key=sort_key):
        if not _may_be_earlier(file, times_ms, firsts):
            continue
        for batch in reader.read(file):
            for partition, rows in _by_partition(batch):
                time_ms = times_ms.get(partition)
                if time_ms is not None:
                    _note_first(firsts, partition, rows, time_ms)
    return firsts


def _may_be_earlier(
    file: DataFile, times_ms: Mapping[TopicPartition, int], firsts: Mapping[TopicPartition, int]
) -> bool:
    """Tells whether a file may hold a record of a partition at or after its time, before the one that was found."""
    if file.ranges:
        starts = ((span.partition, span.start) for span in file.ranges if span.partition in times_ms)
    else:
        bounds = file.bounds
        starts = (
            (partition, 0 if bounds is None else bounds.offsets[0])
            for partition in times_ms
            if bounds is None or bounds.may_hold(OffsetRange(partition=partition, start=0, end=_NO_OFFSET))
        )
    last_us = file.timestamps_us and file.timestamps_us[1]
    return any(
        start < firsts.get(partition, _NO_OFFSET)
        and (last_us is None or last_us >= _microseconds(times_ms[partition]))
        for partition, start in starts
    )


def _microseconds(time_ms: int) -> int:
    return min(time_ms, TIMESTAMP_MS_MAX) * US_PER_MS


def _note_first(
    firsts: dict[TopicPartition, int], partition: TopicPartition, rows: pa.RecordBatch, time_ms: int
) -> None:
    is_late = pc.greater_equal(rows["timestamp"].cast(pa.int64()), _microseconds(time_ms))
    first = pc.min(rows["offset"].filter(is_late)).as_py()
    if first is not None:
        firsts[partition] = min(first, firsts.get(partition, first))

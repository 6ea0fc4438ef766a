"""The status of an archive: what it holds of each partition, compared with the partition's end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from odradek.archive.checks.topic_side import TopicSide, extents_of_archived
from odradek.archive.files.extent_index import ExtentIndex
from odradek.archive.store.values import DataFile
from odradek.archive.tables.port import ArchiveTable
from odradek.model.ids import TopicPartition
from odradek.spark.reading.offsets import OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One partition of an archived topic."""

    partition: TopicPartition
    position: int
    """The next offset to archive."""
    end: int | None
    """The end offset in the topic; None where the partition does not exist any more, or another topic has its name."""
    file_count: int
    size_bytes: int
    """The size of the files that hold records of the partition; a file that several partitions share counts in each."""

    @property
    def behind(self) -> int | None:
        return None if self.end is None else max(0, self.end - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveStatus:
    partitions: tuple[PartitionStatus, ...]
    file_count: int
    size_bytes: int
    row_count: int


def archive_status(table: ArchiveTable, topics: TopicSide) -> ArchiveStatus:
    """Asks the table and the brokers. Partitions of archived topics that were never archived are there, too."""
    state = table.state()
    positions = state.positions
    files = table.files()
    partitions = sorted(set(positions) | set(topics.partitions({partition.topic for partition in positions})))
    extents = extents_of_archived(topics, partitions, state.topic_ids)
    counts, sizes_bytes = _held_by_partition(files, partitions)
    statuses = []
    for partition, file_count, size_bytes in zip(partitions, counts, sizes_bytes, strict=True):
        extent = extents.get(partition)
        position = positions.get(partition, 0 if extent is None else extent.start)
        statuses.append(
            PartitionStatus(
                partition=partition,
                position=position,
                end=None if extent is None else extent.end,
                file_count=file_count,
                size_bytes=size_bytes,
            )
        )
    return ArchiveStatus(
        partitions=tuple(statuses),
        file_count=len(files),
        size_bytes=sum(file.size_bytes for file in files),
        row_count=sum(file.row_count for file in files),
    )


def _held_by_partition(
    files: Iterable[DataFile], partitions: Sequence[TopicPartition]
) -> tuple[list[int], list[int]]:
    """Counts and bytes of the files that may have each of the partitions, which are in order.

    What a file adds to a run of partitions is noted where the run begins and ends, and summed up once.
    """
    index = ExtentIndex(OffsetRange(partition=partition, start=0, end=1 << 62) for partition in partitions)
    counts, sizes_bytes = [0] * (len(partitions) + 1), [0] * (len(partitions) + 1)
    for file in files:
        for run in index.runs(file):
            counts[run.start] += 1
            counts[run.stop] -= 1
            sizes_bytes[run.start] += file.size_bytes
            sizes_bytes[run.stop] -= file.size_bytes
    return list(accumulate(counts[:-1])), list(accumulate(sizes_bytes[:-1]))

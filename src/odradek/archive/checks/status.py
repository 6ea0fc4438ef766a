"""How far an archive is: what it holds of each partition, beside where the partition ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from odradek.archive.checks.topic_side import TopicSide
from odradek.archive.tables.port import ArchiveTable
from odradek.archive.values import DataFile
from odradek.model.ids import TopicPartition
from odradek.spark.offsets import OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One partition of an archived topic."""

    partition: TopicPartition
    position: int
    """The next offset to archive."""
    end: int | None
    """Of the topic; None where the partition does not exist any more."""
    file_count: int
    size_bytes: int
    """Of files that hold records of the partition; a file that several partitions share counts in each."""

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
    """Ask the table and the brokers. Partitions of archived topics that were never archived are there, too."""
    positions = table.state().positions
    files = table.files()
    partitions = sorted(set(positions) | set(topics.partitions({partition.topic for partition in positions})))
    extents = topics.extents(partitions)
    statuses = []
    for partition in partitions:
        holding = _holding(files, partition)
        extent = extents.get(partition)
        position = positions.get(partition, 0 if extent is None else extent.start)
        statuses.append(
            PartitionStatus(
                partition=partition,
                position=position,
                end=None if extent is None else extent.end,
                file_count=len(holding),
                size_bytes=sum(file.size_bytes for file in holding),
            )
        )
    return ArchiveStatus(
        partitions=tuple(statuses),
        file_count=len(files),
        size_bytes=sum(file.size_bytes for file in files),
        row_count=sum(file.row_count for file in files),
    )


def _holding(files: Iterable[DataFile], partition: TopicPartition) -> list[DataFile]:
    everything = OffsetRange(partition=partition, start=0, end=1 << 62)
    return [file for file in files if file.may_hold(everything)]

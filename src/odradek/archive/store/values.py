"""The state of an archive: its files, its batches, its extent. Plain values, which Spark may pickle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar
from uuid import UUID

from odradek.model.errors import OdradekError
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.spark.reading.offsets import OffsetRange

TIME_HEADER: Final = "odradek.archive.timestamp"
KEY_HEADER: Final = "odradek.archive.key"
"""Headers of a row that keep what its columns cannot hold: see `files/unfit_values.py`."""

PartitionValues = tuple[tuple[str, str | None], ...]
"""Name and value of each column by which a table is partitioned, in the table's order; None for null."""


class ArchiveError(OdradekError):
    """An archive cannot do what was asked; the message explains what, where and what to do."""


class CommitConflict(ArchiveError):
    """Someone else has committed to the table meanwhile. Nothing of this commit is there: look again, and try again."""


class MissingFiles(CommitConflict):
    """A file to replace is not part of the table any more: trying again is of no use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBounds:
    """The bounds of a file's rows in a table's statistics: smallest and largest, both included."""

    topics: tuple[str, str]
    partitions: tuple[int, int]
    offsets: tuple[int, int]

    def may_hold(self, extent: OffsetRange) -> bool:
        return (
            self.topics[0] <= extent.partition.topic <= self.topics[1]
            and self.partitions[0] <= extent.partition.partition <= self.partitions[1]
            and self.offsets[0] < extent.end
            and self.offsets[1] >= extent.start
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A complete file of rows. It is part of the table once a commit names it."""

    path: str
    """The path below the archive's root, as the file system has it, with `/`."""
    size_bytes: int
    row_count: int
    partition_values: PartitionValues = ()
    ranges: tuple[OffsetRange, ...] = ()
    """The smallest range that holds the rows, for each topic partition. Empty where the table lacks it: then `bounds`."""
    bounds: RowBounds | None = None
    timestamps_us: tuple[int, int] | None = None
    """The smallest and the largest timestamp."""

    def row_bounds(self) -> RowBounds | None:
        """Returns the bounds that a table's statistics state."""
        if not self.ranges:
            return self.bounds
        return RowBounds(
            topics=_span(span.partition.topic for span in self.ranges),
            partitions=_span(span.partition.partition for span in self.ranges),
            offsets=(min(span.start for span in self.ranges), max(span.end for span in self.ranges) - 1),
        )


_Ordered = TypeVar("_Ordered", str, int)


def _span(values: Iterable[_Ordered]) -> tuple[_Ordered, _Ordered]:
    listed = list(values)
    return min(listed), max(listed)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchId:
    """A micro-batch of a streaming query that writes to a sink."""

    sink: str
    query: str
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch:
    """The content of one commit: the files of a batch, and the offsets that the batch has read, whole ranges of them."""

    id: BatchId
    files: tuple[DataFile, ...]
    ranges: tuple[OffsetRange, ...]

    @property
    def topic_ids(self) -> dict[str, UUID]:
        """The id of each topic that the batch has read, where the query knew it."""
        return {
            span.partition.topic: span.topic_id
            for span in self.ranges
            if span.size > 0 and span.topic_id != ZERO_UUID
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveState:
    """A table at one version."""

    version: int
    """The version that a commit must follow directly."""
    archived: Mapping[TopicPartition, OffsetRange]
    """The offsets that batches have read, by topic partition: all records of the range are in the table."""
    batches: Mapping[tuple[str, str], int]
    """The last batch of each sink and query."""
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    """The ids of the archived topics: their offsets mean nothing in a recreated topic. Former versions stored none."""

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to archive of each topic partition."""
        return {partition: extent.end for partition, extent in self.archived.items()}

    def after(self, batch: NewBatch) -> dict[TopicPartition, OffsetRange]:
        """Returns the archived ranges of the batch's partitions after its commit."""
        reached = {}
        for span in batch.ranges:
            before = self.archived.get(span.partition)
            start = span.start if before is None else before.start
            reached[span.partition] = OffsetRange(partition=span.partition, start=start, end=span.end)
        return reached

    def new_topic_ids(self, batch: NewBatch) -> dict[str, UUID]:
        """Returns the ids that the batch brings: of topics that the archive knows no id of."""
        return {topic: topic_id for topic, topic_id in batch.topic_ids.items() if topic not in self.topic_ids}

    def check_topics(self, topic_ids: Mapping[str, UUID]) -> None:
        """Raises ArchiveError when one of these topics is another one than the archive has under its name."""
        for topic, topic_id in sorted(topic_ids.items()):
            known = self.topic_ids.get(topic, topic_id)
            if known != topic_id:
                raise ArchiveError(
                    f"topic {topic!r} was deleted and made again: the archive has offsets of the one with id {known}, and the"
                    f" name now belongs to id {topic_id}. Offsets of both would be mixed; archive the new"
                    " one at another location"
                )

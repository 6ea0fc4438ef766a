"""Is everything there, once? Offsets of the archive's rows, counted and compared with the topic, partition by partition.

An archive claims, for each partition, the offsets that its batches have read. Faults are a row that is there twice, a row
outside of the claim, and an offset of the claim without a row where the topic has a record. Other offsets without a row are
explained: the record belongs to an aborted transaction, the offset is a control record's, compaction took the record before it
was archived, or the topic does not reach back so far any more, and no one can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from odradek.archive.checks.offset_runs import OffsetRuns, spell
from odradek.archive.checks.topic_side import LogExtent, TopicSide, extents_of_archived
from odradek.archive.files.data_files import split_by
from odradek.archive.files.reading import FileReader
from odradek.archive.tables.port import ArchiveTable
from odradek.model.ids import TopicPartition
from odradek.spark.reading.offsets import OffsetRange


@dataclass(slots=True, kw_only=True)
class ArchivedRows:
    """The rows that an archive holds of one partition."""

    row_count: int = 0
    parts: list[OffsetRuns] = field(default_factory=list)

    def add(self, offsets: OffsetRuns, row_count: int) -> None:
        self.parts.append(offsets)
        self.row_count += row_count
        if len(self.parts) >= 64:
            self.parts = [OffsetRuns.union(self.parts)]

    @property
    def offsets(self) -> OffsetRuns:
        self.parts = [OffsetRuns.union(self.parts)]
        return self.parts[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedOffsets:
    """The offsets of a partition that an archive claims to hold: all records of `extent`."""

    extent: OffsetRange
    """The claimed offsets before the files were listed."""
    latest: int
    """The end of the claim afterwards: rows up to here may be in the files, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFindings:
    """The findings of a verification in one partition. All counts except `row_count` count offsets."""

    partition: TopicPartition
    first: int
    position: int
    row_count: int
    doubled: int
    """Rows beyond the first one of an offset."""
    beyond: OffsetRuns
    """Offsets with rows, though the archive does not claim them."""
    lost: OffsetRuns
    """Offsets without a row, though the topic has a record."""
    aborted: int
    control: int
    """Control records; in a compacted topic also what compaction has taken."""
    unknown: OffsetRuns
    """Offsets without a row, below the topic's first offset."""
    is_compacted: bool
    is_gone: bool
    """The topic, or this partition, does not exist any more, or another topic has its name."""

    @property
    def faults(self) -> list[str]:
        """The faults, a clause for each; none when all is well."""
        complaints = []
        if self.doubled:
            complaints.append(f"{self.doubled} rows of {self.partition} are there twice")
        if len(self.lost):
            complaints.append(
                f"{len(self.lost)} records of {self.partition} are missing: offsets {spell(self.lost)}"
            )
        if len(self.beyond):
            claim = f"{self.first} to {self.position - 1}"
            complaints.append(
                f"{self.partition} has rows outside of {claim}, which is archived: offsets {spell(self.beyond)}"
            )
        return complaints


def held_rows(table: ArchiveTable) -> dict[TopicPartition, ArchivedRows]:
    """Returns the offsets of all rows of an archive: three columns of every file are read."""
    columns = pa.schema([table.schema.field(name) for name in ("topic", "partition", "offset")])
    reader = FileReader(location=table.location, schema=columns)
    system = table.location.file_system()
    held: dict[TopicPartition, ArchivedRows] = {}
    for file in table.files():
        for batch in reader.read(file, system):
            for partition, offsets in _by_partition(batch):
                held.setdefault(partition, ArchivedRows()).add(OffsetRuns.of(offsets), len(offsets))
    return held


def _by_partition(
    batch: pa.RecordBatch,
) -> Iterator[tuple[TopicPartition, np.ndarray[tuple[int], np.dtype[np.int64]]]]:
    for values, rows in split_by(batch, ("topic", "partition")):
        named = dict(values)
        partition = TopicPartition(named["topic"] or "", int(named["partition"] or 0))
        yield partition, rows["offset"].to_numpy(zero_copy_only=False).astype(np.int64)


def verify_archive(table: ArchiveTable, topics: TopicSide) -> list[PartitionFindings]:
    """Compares rows, claims and topics, for every partition that the archive knows of. Others may commit meanwhile."""
    state = table.state()
    before = state.archived
    held = held_rows(table)
    after = table.state().archived
    partitions = sorted(held.keys() | before.keys())
    extents = extents_of_archived(topics, partitions, state.topic_ids)
    findings = []
    for partition in partitions:
        nothing = OffsetRange(partition=partition, start=0, end=0)
        extent = before.get(partition, nothing)
        claim = ClaimedOffsets(extent=extent, latest=after.get(partition, extent).end)
        findings.append(
            verify_partition(
                partition, held.get(partition) or ArchivedRows(), claim, extents.get(partition), topics
            )
        )
    return findings


def verify_partition(
    partition: TopicPartition,
    rows: ArchivedRows,
    claim: ClaimedOffsets,
    extent: LogExtent | None,
    topics: TopicSide,
) -> PartitionFindings:
    """Compares the rows of one partition with the claimed offsets, and with the topic."""
    held = rows.offsets
    claimed = OffsetRuns.between(claim.extent.start, claim.extent.end)
    missing = claimed.minus(held)
    readable = OffsetRuns.empty() if extent is None else OffsetRuns.between(extent.start, extent.end)
    open_questions = missing.within(readable)
    lost, aborted = _judged(partition, open_questions, topics)
    return PartitionFindings(
        partition=partition,
        first=claim.extent.start,
        position=claim.extent.end,
        row_count=rows.row_count,
        doubled=rows.row_count - len(held),
        beyond=held.minus(OffsetRuns.between(claim.extent.start, claim.latest)),
        lost=lost,
        aborted=len(aborted),
        control=len(open_questions) - len(lost) - len(aborted),
        unknown=missing.minus(readable),
        is_compacted=bool(len(open_questions)) and topics.is_compacted(partition.topic),
        is_gone=extent is None,
    )


def _judged(
    partition: TopicPartition, missing: OffsetRuns, topics: TopicSide
) -> tuple[OffsetRuns, OffsetRuns]:
    """Returns the offsets with a record that should be there, and those with an aborted one."""
    if not len(missing):
        return missing, missing
    stretch = LogExtent(start=int(missing.starts[0]), end=int(missing.ends[-1]))
    lost = missing.within(topics.offsets(partition, stretch, committed=True))
    rest = missing.minus(lost)
    if not len(rest):
        return lost, rest
    written = topics.offsets(partition, stretch, committed=False)
    return lost, rest.within(written)


def all_faults(findings: Iterable[PartitionFindings]) -> list[str]:
    """Returns the faults of all partitions."""
    return [fault for finding in findings for fault in finding.faults]

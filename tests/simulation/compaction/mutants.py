"""Planted bugs of compaction. The bank and its use are in `mutants.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tests.simulation.mutant import Patches, mutant

from odradek.records.batch import BatchHeader
from odradek.storage.cleaning.access import CleaningAccess
from odradek.storage.cleaning.fates import CompactionTerms, Fates
from odradek.storage.cleaning.keys import KeyReading
from odradek.storage.cleaning.target import CleanedSegment
from odradek.storage.cleaning.transactions import CleanedTransactions
from odradek.storage.log_cleaner import LogCleaner


@mutant("the originals are removed before the name of what replaces them is durable", "compaction")
def replaced_before_durable() -> Patches:
    def hasty(real: Any) -> Any:
        def work(self: CleanedSegment, *arguments: Any) -> Any:
            disk, self._disk = self._disk, _Unsynced(self._disk)
            try:
                return real(self, *arguments)
            finally:
                self._disk = disk

        return work

    yield patch.object(CleanedSegment, "_commit", hasty(CleanedSegment._commit))
    yield patch.object(CleanedSegment, "_replace_originals", hasty(CleanedSegment._replace_originals))


class _Unsynced:
    """A disk, or a file, that syncs nothing."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def sync(self) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@mutant("what a compaction wrote is not synced before it replaces the originals", "compaction")
def compacted_log_not_synced() -> Patches:
    real = CleanedSegment.finish

    def finish(self: CleanedSegment, *arguments: Any, **rest: Any) -> None:
        self._file = _Unsynced(self.file)
        real(self, *arguments, **rest)

    yield patch.object(CleanedSegment, "finish", finish)


@mutant("a tombstone is dropped by the second compaction, whatever its time", "compaction")
def tombstone_dropped_early() -> Patches:
    real = CompactionTerms.of

    def of(*arguments: Any, **rest: Any) -> CompactionTerms:
        return replace(real(*arguments, **rest), delete_horizon_ms=0)

    yield patch.object(CompactionTerms, "of", of)


@mutant("a marker is dropped while records of its transaction are left", "compaction")
def marker_dropped_early() -> Patches:
    real = Fates._marker

    def marker(self: Fates, header: BatchHeader, batch: Any) -> Any:
        real(self, header, batch)

    yield patch.object(Fates, "_marker", marker)


@mutant("the last batch of a producer is dropped with its records", "compaction")
def last_batch_dropped() -> Patches:
    yield patch.object(Fates, "_is_last_of_producer", lambda self, header: False)


@mutant("a compacted segment does not say where it ends", "compaction")
def end_of_segment_dropped() -> Patches:
    yield patch.object(CleanedSegment, "_say_end", lambda self, end_offset: None)


@mutant("the active segment is compacted", "compaction")
def active_segment_cleaned() -> Patches:
    real = CleaningAccess._source

    def end_of(self: CleaningAccess) -> int:
        last = self._segments.active.search.last_batch()
        return self._segments.active.base_offset if last is None else last.last_offset + 1

    def sealed(self: CleaningAccess) -> Any:
        segment_views = [self._view(number) for number in range(len(self._segments))]
        return [*segment_views[:-1], replace(segment_views[-1], end_offset=end_of(self))]

    def source(self: CleaningAccess, number: int) -> Any:
        source_segment = real(self, number)
        if number == len(self._segments) - 1:
            source_segment.end_offset = end_of(self)
        return source_segment

    yield patch.object(CleaningAccess, "sealed", sealed)
    yield patch.object(CleaningAccess, "_source", source)


@mutant("compaction does not stop at open transactions", "compaction")
def open_transactions_compacted() -> Patches:
    real = LogCleaner.run_round

    class Unstable:
        def __init__(self, partition: Any) -> None:
            self.log = partition.log
            self.last_stable_offset = partition.high_watermark
            self.flush_if_due = partition.flush_if_due

    async def run_round(self: LogCleaner, partitions: Any, config: Any) -> None:
        await real(self, [Unstable(partition) for partition in partitions], config)

    yield patch.object(LogCleaner, "run_round", run_round)


@mutant("records of aborted transactions count as the newest of their keys", "compaction")
def aborted_records_count() -> Patches:
    real = KeyReading._add_batch

    def add_batch(self: KeyReading, header: BatchHeader, batch: Any) -> bool:
        self._transactions = CleanedTransactions(())
        return real(self, header, batch)

    yield patch.object(KeyReading, "_add_batch", add_batch)


@mutant("retention deletes segments that a compaction works on", "compaction")
def held_segments_deleted() -> Patches:
    real = CleaningAccess.next_group

    def next_group(self: CleaningAccess, *arguments: Any) -> Any:
        group = real(self, *arguments)
        if group is not None:
            self.release(group)
        return group

    yield patch.object(CleaningAccess, "next_group", next_group)

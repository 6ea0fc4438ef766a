"""A bank of planted bugs: each is a mistake that a log of this kind has been known to make.

"No violation" means nothing until the checkers were seen to catch violations. Each mutant patches the
production code while a run lasts; a sweep over seeds must fail, with the mutant's own way of breaking a
promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from tests.simulation.cluster import (
    controller_mutants,  # noqa: F401  their mutants are of the bank, too
    coordinator_mutants,  # noqa: F401  their mutants are of the bank, too
)
from tests.simulation.cluster import mutants as cluster_mutants  # noqa: F401  their mutants are of the bank, too
from tests.simulation.compaction import mutants as compaction_mutants  # noqa: F401  their mutants are of the bank, too
from tests.simulation.disks import mutants as disk_mutants  # noqa: F401  their mutants are of the bank, too
from tests.simulation.groups import (
    consumer_group_mutants,  # noqa: F401  their mutants are of the bank, too
    large_targets_mutants,  # noqa: F401  their mutants are of the bank, too
)
from tests.simulation.groups import mutants as group_mutants  # noqa: F401  their mutants are of the bank, too
from tests.simulation.mutant import BANK, Mutant, Patches, mutant
from tests.simulation.rude import mutants as rude_mutants  # noqa: F401  their mutants are of the bank, too
from tests.simulation.share import mutants as share_mutants  # noqa: F401  their mutants are of the bank, too
from tests.simulation.storage import (
    extent_mutants,  # noqa: F401  their mutants are of the bank, too
    follower_mutants,  # noqa: F401  their mutants are of the bank, too
)
from tests.simulation.streams import mutants as streams_mutants  # noqa: F401  their mutants are of the bank, too
from tests.simulation.transactions import mutants as transaction_mutants  # noqa: F401  their mutants are of the bank, too

from odradek.broker.coordinators.producer_ids import ProducerIds
from odradek.config.topic import LogConfig
from odradek.net.replies import ReplyQueue
from odradek.records import BatchHeader, engine
from odradek.replication.leader_role import LeaderRole
from odradek.runtime.ports import Buffer, DiskFile
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.files.writer import SegmentWriter
from odradek.storage.log import log_appender
from odradek.storage.log.active_segment import ActiveSegment
from odradek.storage.log.durability import Durability, FlushJob
from odradek.storage.log.file_removal import RemovalJob
from odradek.storage.log.log import Log
from odradek.storage.log.log_appender import LogAppender
from odradek.storage.log.log_jobs import LogJobs
from odradek.storage.log.log_retention import LogRetention
from odradek.storage.producers import snapshot as producer_snapshot
from odradek.storage.producers.open_transactions import LogTransactions
from odradek.storage.producers.producer_state import Producers, ProducerState, check_marker
from odradek.storage.producers.verification import Verifications
from odradek.storage.recovery import after_crash, producers_loader, segment_scan
from odradek.storage.recovery import replay as producer_replay
from odradek.storage.recovery.producers_loader import ProducersLoader
from odradek.storage.recovery.replay import replay_batch, replay_segment
from odradek.storage.segment.batch_search import BatchSearch
from odradek.storage.segment.batch_walk import walk
from odradek.storage.segment.file_records import FileRecords
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.segment_index import SegmentIndex
from odradek.storage.segment.segment_list import SegmentList
from odradek.storage.segment.sparse_index import OFFSET_MAX

__all__ = ["BANK", "Mutant"]

# -- durability ----------------------------------------------------------------------------------------------


@mutant("batches are acknowledged from the page cache")
def no_fsync_before_ack() -> Patches:
    def sync(self: SegmentWriter) -> None:
        self.durable = self.sealed

    yield patch.object(SegmentWriter, "sync", sync)


@mutant("the high watermark follows the log's end, not what is durable")
def ack_before_flush() -> Patches:
    yield patch.object(Log, "flushed_offset", property(lambda self: self.end_offset))


@mutant("a file gives its descriptor back before what was written is synced, and the disk's error with it")
def rests_unsynced() -> Patches:
    right = SegmentWriter.rest

    def rest(self: SegmentWriter) -> bool:
        self._synced_write_count = self.write_count
        return right(self)

    yield patch.object(SegmentWriter, "rest", rest)


class _LazyFile:
    """Keeps the last write back until the next call that is not a sync."""

    def __init__(self, file: DiskFile) -> None:
        self._file = file
        self._kept: tuple[bytes, int] | None = None

    def _write_kept(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            self._file.pwrite(*kept)

    def pwrite(self, data: Buffer, position: int) -> None:
        self._write_kept()
        self._kept = (bytes(data), position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        self.pwrite(b"".join(bytes(buffer) for buffer in buffers), position)

    def sync(self) -> None:
        self._file.sync()

    def __getattr__(self, name: str) -> Any:
        self._write_kept()
        return getattr(self._file, name)


@mutant("a batch is acknowledged while it is still in the process's own buffer")
def ack_before_write() -> Patches:
    real = FileRecords.open_writer

    def open_writer(self: FileRecords, *, create: bool = False) -> SegmentWriter:
        writer = real(self, create=create)
        writer.log_file = _LazyFile(writer.log_file)
        return writer

    yield patch.object(FileRecords, "open_writer", open_writer)


@mutant("a flush claims what was appended while it ran")
def flushed_past_the_job() -> Patches:
    real = Durability.done

    def flushed(self: LogJobs, job: FlushJob) -> None:
        real(self._durability, job)
        self._durability.flushed_offset = self._segments.end_offset

    yield patch.object(LogJobs, "flushed", flushed)


@mutant("a flush syncs the active segment and forgets those sealed since the last one")
def sealed_segment_not_synced() -> Patches:
    real = FlushJob.sync_all

    def sync_all(self: FlushJob) -> None:
        for writer in self.writers[:-1]:
            writer.durable = True
        real(self)

    yield patch.object(FlushJob, "sync_all", sync_all)


@mutant("a new segment's name is never made durable")
def no_directory_sync() -> Patches:
    yield patch.object(Durability, "names_changed", lambda self, *directories: None)


@mutant("an fsync that failed is taken for one that succeeded")
def fsync_error_swallowed() -> Patches:
    real = SegmentWriter.sync

    def sync(self: SegmentWriter) -> None:
        try:
            real(self)
        except OSError:
            self.durable = self.sealed

    yield patch.object(SegmentWriter, "sync", sync)


@mutant("an fsync that failed is tried again")
def fsync_retried() -> Patches:
    real = SegmentWriter.sync

    def sync(self: SegmentWriter) -> None:
        try:
            real(self)
        except OSError:
            real(self)

    yield patch.object(SegmentWriter, "sync", sync)


# -- recovery ------------------------------------------------------------------------------------------------


@mutant("recovery takes a torn batch for a good one: no CRC")
def torn_tail_accepted() -> Patches:
    yield patch.object(engine, "active", engine.PLAIN)  # the compiled one checks several at once
    yield patch.object(segment_scan, "check_crc", lambda batch: None)


@mutant("recovery believes that every crash was a clean shutdown")
def crash_taken_for_clean() -> Patches:
    real = LogDirectory.load

    def load(self: LogDirectory) -> list[str]:
        names = real(self)
        self.was_clean = True
        return names

    yield patch.object(LogDirectory, "load", load)


@mutant("recovery cuts one batch more than it must")
def recovery_cuts_too_much() -> Patches:
    real = segment_scan.scan_file

    def scan_file(file: DiskFile, base_offset: int, size_bytes: int, **rest: Any) -> Any:
        scanned_segment = real(file, base_offset, size_bytes, **rest)
        return (
            scanned_segment
            if scanned_segment.problem is None
            else real(file, base_offset, max(0, scanned_segment.good_bytes - 1), **rest)
        )

    yield patch.object(after_crash, "scan_file", scan_file)


@mutant("indexes are believed without a look at the log")
def index_trusted_blindly() -> Patches:
    def trust(self: SegmentIndex) -> None:
        self._offsets_checked = self._times_checked = True

    def walk_to(self: BatchSearch, offset: int, entry: Any) -> int:
        position = entry.position if entry is not None else 0
        for mark in walk(self._records.log_file, position, self._records.size_bytes):
            if mark.last_offset >= offset:
                return mark.position
        return self._records.size_bytes

    yield patch.object(SegmentIndex, "_check_offsets", trust)
    yield patch.object(SegmentIndex, "_check_times", trust)
    yield patch.object(BatchSearch, "_walk_to", walk_to)


@mutant("a producer snapshot is durable before its batches are, and believed beyond the log's end")
def snapshot_beyond_the_end() -> Patches:
    real_sync, real_load = FlushJob.sync_all, ProducersLoader.load

    def sync_all(self: FlushJob) -> None:
        for path, _, data in self.files:
            self.disk.replace(path, data)
        real_sync(self)

    def load(self: ProducersLoader, names: Sequence[str]) -> Producers:
        segments = self._segments
        end_offset, segments.end_offset = segments.end_offset, 1 << 62
        scanned, segments.scanned = segments.scanned, ()
        self._followed = []
        try:
            return real_load(self, names)
        finally:
            segments.end_offset, segments.scanned = end_offset, scanned

    yield patch.object(FlushJob, "sync_all", sync_all)
    yield patch.object(ProducersLoader, "load", load)


@mutant("producers are known from snapshots alone, not from the batches behind them")
def producers_not_replayed() -> Patches:
    yield patch.object(Producers, "replay", lambda self, header, now_ms: None)


# -- disk errors ---------------------------------------------------------------------------------------------


@mutant("after a failed write the next one goes behind what is left of it")
def append_after_failed_write() -> Patches:
    real = ActiveSegment.write

    def write(self: ActiveSegment, *arguments: Any, is_urgent: bool) -> Segment:
        try:
            return real(self, *arguments, is_urgent=is_urgent)
        except Exception:
            self._health.fault = None
            active = self._segments.active
            active.records.size_bytes = active.records.log_file.length()
            raise

    yield patch.object(ActiveSegment, "write", write)
    yield patch.object(ActiveSegment, "_cut_back", lambda self, segment: None)


@mutant("a failed write is counted as written: its offsets are used up")
def failed_write_leaves_a_gap() -> Patches:
    real = LogAppender.append

    def append(self: LogAppender, *arguments: Any) -> Any:
        try:
            return real(self, *arguments)
        except Exception:
            if self._tail._health.is_full:
                self._segments.end_offset += 1
            raise

    yield patch.object(LogAppender, "append", append)


# -- deletion ------------------------------------------------------------------------------------------------


@mutant("retention removes the newest of the old segments first: a crash leaves a hole")
def newest_removed_first() -> Patches:
    real = RemovalJob.run

    def run(self: RemovalJob) -> None:
        object.__setattr__(self, "doomed", tuple(reversed(self.doomed)))
        real(self)

    yield patch.object(RemovalJob, "run", run)


@mutant("retention takes segments that are not durable yet")
def retention_ignores_the_high_watermark() -> Patches:
    real = LogRetention.apply

    def apply(self: LogRetention, config: LogConfig, now_ms: int, below: int | None) -> Any:
        flushed, self._durability.flushed_offset = self._durability.flushed_offset, self._segments.end_offset
        try:
            return real(self, config, now_ms, None)
        finally:
            self._durability.flushed_offset = flushed

    yield patch.object(LogRetention, "apply", apply)


# -- transactions ------------------------------------------------------------------------------------------------


@mutant("an aborted transaction is not put into the index")
def aborted_transaction_not_indexed() -> Patches:
    yield patch.object(SegmentList, "note_aborted", lambda self, segment, transaction: None)


@mutant("recovery does not make the index of aborted transactions again")
def transaction_index_not_recovered() -> Patches:
    def replay(producers: Producers, segment: Segment, offset: int, now_ms: int, _: Any) -> None:
        replay_segment(producers, segment, offset, now_ms)

    def replay_scanned(
        producers: Producers, header: BatchHeader, batch: Buffer, position: int, now_ms: int, _: Any = None
    ) -> None:
        replay_batch(producers, header, batch, position, now_ms)

    yield patch.object(producer_replay, "replay_segment", replay)
    yield patch.object(producers_loader, "replay_batch", replay_scanned)


@mutant(
    "the index of aborted transactions is not synced before a clean shutdown, and believed whatever its sum says"
)
def transaction_index_not_synced() -> Patches:
    yield patch.object(SegmentWriter, "sync_transactions", lambda self: None)
    yield patch.object(ProducersLoader, "_first_doubtful", lambda self, segments: OFFSET_MAX)


@mutant("readers of committed records are not stopped by an open transaction")
def stable_past_an_open_transaction() -> Patches:
    yield patch.object(LogTransactions, "stable_below", lambda self, high_watermark: high_watermark)


@mutant("a transaction counts as decided while a crash could still undo its marker")
def stable_past_a_marker_in_doubt() -> Patches:
    real = LogTransactions.end

    def end(self: LogTransactions, ended: Any) -> None:
        real(self, ended)
        self.forget_decided()

    yield patch.object(LogTransactions, "end", end)


@mutant("the marker of a coordinator that was replaced is taken")
def marker_of_an_old_coordinator() -> Patches:
    def check(state: Any, marker: Any, transaction_version: int) -> None:
        known = state if state is None else state._replace(coordinator_epoch=-1)
        check_marker(known, marker, transaction_version)

    yield patch.object(log_appender, "check_marker", check)


@mutant("snapshots do not say where open transactions began")
def snapshot_without_transactions() -> Patches:
    real = producer_snapshot._fields

    def fields(state: ProducerState) -> tuple[int, ...]:
        return (*real(state)[:-1], -1)

    yield patch.object(producer_snapshot, "_fields", fields)


@mutant("a batch that comes after its transaction ended begins another one")
def late_batch_begins_a_transaction() -> Patches:
    yield patch.object(Verifications, "check", lambda self, header, guard: None)


# -- the broker around the log -------------------------------------------------------------------------------


@mutant("acks=all is answered without waiting for the high watermark", "broker")
def answer_before_the_high_watermark() -> Patches:
    yield patch.object(LeaderRole, "acknowledgement", lambda self, last_offset: None)


@mutant("a fetch returns what is above the high watermark", "broker")
def fetch_above_the_high_watermark() -> Patches:
    real = Log.read

    def read(self: Log, offset: int, max_bytes: int, *, end_offset: int, **how: bool) -> Any:
        return real(self, offset, max_bytes, end_offset=self.end_offset, **how)

    yield patch.object(Log, "read", read)


@mutant("answers overtake each other on a connection", "broker")
def answers_out_of_order() -> Patches:
    real = ReplyQueue.settle

    def settle(self: ReplyQueue, slot: Any, chunks: Any) -> None:
        self.slots.remove(slot)
        self.slots.appendleft(slot)
        real(self, slot, chunks)

    yield patch.object(ReplyQueue, "settle", settle)


@mutant("producer ids begin again at 0 with every start", "broker")
def producer_ids_repeat() -> Patches:
    real = ProducerIds.__init__

    def init(self: ProducerIds, allocate_block: Any) -> None:
        async def first_block() -> range:
            return range(1000)

        real(self, first_block)

    yield patch.object(ProducerIds, "__init__", init)

"""Planted bugs of followers' logs and of truncation. The bank and its use are in `bank.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tests.simulation.mutant import Patches, mutant

from odradek.storage.files.leader_epochs import EpochHistory
from odradek.storage.log import log_appender
from odradek.storage.log.durability import Durability, FlushJob
from odradek.storage.log.follower_append import portions
from odradek.storage.log.log_appender import LogAppender
from odradek.storage.log.log_truncation import LogTruncation
from odradek.storage.producers.producer_state import Producers
from odradek.storage.recovery import file_truncation, interrupted_truncation, log_loader
from odradek.storage.recovery.file_truncation import Truncation, TruncationPlan, write_plan
from odradek.storage.recovery.producers_loader import ProducersLoader
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.sparse_index import OFFSET_MAX
from odradek.storage.segment.transaction_index import TransactionIndex


@mutant("files are cut before it is written down that they will be", "follower")
def truncated_without_a_note() -> Patches:
    def write_when_done(disk: Any, directory: str, plan: TruncationPlan) -> None:
        if plan.is_done:
            write_plan(disk, directory, plan)

    yield patch.object(file_truncation, "write_plan", write_when_done)


@mutant("a truncation leaves no note that older checkpoints are void", "follower")
def old_checkpoints_believed() -> Patches:
    def void_nothing(disk: Any, directory: str, plan: TruncationPlan) -> None:
        write_plan(disk, directory, replace(plan, recovery_point=OFFSET_MAX))

    yield patch.object(file_truncation, "write_plan", void_nothing)
    yield patch.object(log_loader, "write_plan", void_nothing)
    yield patch.object(interrupted_truncation, "write_plan", void_nothing)


@mutant("the cut of the last segment is not synced", "follower")
def cut_not_synced() -> Patches:
    def cut(disk: Any, path: str, plan: TruncationPlan) -> None:
        file = disk.open(path, create=plan.starts_empty)
        if file.length() > plan.position:
            file.truncate(plan.position)
        file.close()

    yield patch.object(file_truncation, "_cut_log", cut)


@mutant("segments behind the cut are left where they are", "follower")
def later_segments_left() -> Patches:
    real = file_truncation._goes
    yield patch.object(
        file_truncation,
        "_goes",
        lambda file, plan, *, is_begun: file.kind != ".log" and real(file, plan, is_begun=is_begun),
    )


@mutant("a truncation leaves the flushed offset where it was", "follower")
def flushed_offset_stays() -> Patches:
    real = Durability.truncated

    def truncated(self: Durability, *arguments: Any) -> None:
        flushed_offset = self.flushed_offset
        real(self, *arguments)
        self.flushed_offset = max(flushed_offset, self.flushed_offset)

    yield patch.object(Durability, "truncated", truncated)


@mutant("a flush that was under way when the log was cut counts", "follower")
def flush_of_old_files_counts() -> Patches:
    real = Durability.done

    def done(self: Durability, job: FlushJob) -> None:
        real(self, replace(job, truncation_count=self.truncation_count))

    yield patch.object(Durability, "done", done)


@mutant("a flush that comes late writes what it was made with", "follower")
def late_flush_writes_old_files() -> Patches:
    real = FlushJob.sync_all

    def sync_all(self: FlushJob) -> None:
        count, self.life.truncation_count = self.life.truncation_count, 0
        real(self)
        self.life.truncation_count = max(count, self.life.truncation_count)

    yield patch.object(FlushJob, "sync_all", sync_all)


@mutant("an append does not wait for the files of a truncation", "follower")
def append_before_the_cut() -> Patches:
    yield patch.object(LogTruncation, "check_ready", lambda self: self._health.check_writable())


@mutant("epochs of what was cut off are kept", "follower")
def epochs_kept() -> Patches:
    yield patch.object(EpochHistory, "truncate_from_end", lambda self, end_offset: False)


@mutant("a follower does not note which epoch wrote its batches", "follower")
def epochs_not_followed() -> Patches:
    real = LogAppender._write_fetched

    def write_fetched(self: LogAppender, *arguments: Any) -> None:
        with patch.object(EpochHistory, "assign", lambda self, epoch, start_offset: False):
            real(self, *arguments)

    yield patch.object(LogAppender, "_write_fetched", write_fetched)


@mutant("producers are what they were before the cut", "follower")
def producers_kept() -> Patches:
    real = LogTruncation.files_followed

    def files_followed(self: LogTruncation, truncation: Truncation) -> None:
        with patch.object(Producers, "become", lambda self, other: None):
            real(self, truncation)

    yield patch.object(LogTruncation, "files_followed", files_followed)


@mutant("snapshots of producers behind the cut are kept", "follower")
def snapshots_kept() -> Patches:
    real = file_truncation._goes
    yield patch.object(
        file_truncation,
        "_goes",
        lambda file, plan, *, is_begun: file.kind != ".snapshot" and real(file, plan, is_begun=is_begun),
    )


@mutant("markers behind the cut go on aborting transactions", "follower")
def aborted_transactions_kept() -> Patches:
    yield patch.object(file_truncation, "_cut_transactions", lambda *arguments: None)
    yield patch.object(TransactionIndex, "cut", lambda self, end_offset: None)


@mutant("a follower takes no notice of markers", "follower")
def markers_not_followed() -> Patches:
    yield patch.object(
        log_appender, "portions", lambda batches, markers, **rest: portions(batches, {}, **rest)
    )


@mutant("positions that readers left behind outlive the cut", "follower")
def positions_kept() -> Patches:
    real = Segment.cut

    def cut(self: Segment, position: int, end_offset: int) -> Any:
        hints = dict(self.index.hints)
        stale = real(self, position, end_offset)
        self.index.hints.update(hints)
        return stale

    yield patch.object(Segment, "cut", cut)


@mutant("the high watermark on disk is believed after the log was cut below it", "follower")
def high_watermark_kept() -> Patches:
    yield patch.object(
        LogTruncation,
        "high_watermark_max",
        property(lambda self: OFFSET_MAX, lambda self, value: None),
    )


@mutant(
    "recovery does not look at a segment that ends where the recovery point is, and its indexes are believed",
    "follower",
)
def sealed_index_believed() -> Patches:
    yield patch.object(ProducersLoader, "_first_doubtful", lambda self, segments: OFFSET_MAX)
    yield patch.object(
        Durability, "recovery_point", lambda self, end_offset: min(self.synced_offset, end_offset)
    )

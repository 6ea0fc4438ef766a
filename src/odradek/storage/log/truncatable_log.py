"""Taking back what a log's end says: memory changes at once, the files follow (`truncation.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import BatchHeader
from odradek.runtime.ports import DiskFile
from odradek.storage.directories import naming
from odradek.storage.directories.open_files import OpenFiles
from odradek.storage.log.durable_log import DurableLog
from odradek.storage.log.file_removal import PendingRemovals
from odradek.storage.log.truncation import Truncation, TruncationPlan
from odradek.storage.log.truncation_point import find_cut
from odradek.storage.producers.producer_state import Producers
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.writer import SegmentWriter
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.storage.cleaning.access import CleaningAccess

log = events.get("storage")


class TruncatableLog(DurableLog):
    """The part of `Log` that a follower needs whose leader has another end. `Log` gives it its parts."""

    _files: OpenFiles
    _removals: PendingRemovals
    _cleaning: CleaningAccess | None
    _snapshot_offset: int
    _index_written_to: int
    truncated_to: int

    def truncate_to(self, offset: int) -> None:
        """Drop everything at and above `offset`, from the start of the batch that holds it on: `end_offset` says from where.

        Nothing waits for the disk here: the files follow with the next `flush_job`. Until then a crash leaves the log as it
        was, and appends are refused (`awaits_truncation`). An epoch that began at the log's end and wrote nothing goes, too,
        even when nothing else does. At or below `start_offset` this is `restart_at`.
        """
        self._health.check_readable()
        if offset >= self.end_offset:
            if self._epochs.truncate_from_end(self.end_offset):
                self._write_epochs()
            return
        if offset <= self.start_offset:
            self.restart_at(offset)
            return
        try:
            cut = find_cut(self._segments, offset)
            sweeps = False
            if cut is None or cut.number + 1 < len(self._segments):
                sweeps = self._cleaning is not None and self._cleaning.abort()
                cut = find_cut(self._segments, offset)
            if cut is None or cut.end_offset <= self.start_offset:
                self._begin_anew(self.start_offset, self.start_offset, sweeps=sweeps)
                return
            stale = self._segments[cut.number].cut(cut.position, cut.end_offset)
        except OSError as error:
            raise self._health.failed(error) from error
        dropped = self._segments.keep_first(cut.number + 1)
        self._epochs.truncate_from_end(cut.end_offset)
        self._truncated(cut.position, cut.end_offset, self.start_offset, dropped, stale, sweeps=sweeps)

    def restart_at(self, offset: int) -> None:
        """Drop everything: the log is empty and begins at `offset`, which may lie anywhere. As with `truncate_to` the files
        follow.
        """
        self._health.check_readable()
        if offset < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.topic_partition} cannot begin at {offset}"
            )
        self._begin_anew(offset, offset)

    def starts_inside_batch(self, header: BatchHeader) -> bool:
        """Whether the log is empty and begins in the middle of this batch: its leader's records were deleted up to there."""
        return not self._size_bytes and header.base_offset < self.end_offset <= header.last_offset

    def begin_with(self, header: BatchHeader) -> None:
        """Make room for a batch that the log `starts_inside_batch`: the files follow, then the batch may be appended.

        Until then the log ends below `start_offset`, which stays. `restart_at(start_offset)` takes it back.
        """
        self._health.check_readable()
        self._begin_anew(header.base_offset, self.start_offset)

    def _begin_anew(self, base_offset: int, start_offset: int, *, sweeps: bool = False) -> None:
        new = Segment(
            self._runtime.disk,
            self._files,
            self.directory,
            base_offset,
            0,
            index_interval_bytes=self.config.index_interval_bytes,
        )
        try:
            sweeps |= self._cleaning is not None and self._cleaning.abort()
            new.begin_aside()
        except OSError as error:
            raise self._health.failed(error) from error
        dropped = self._segments.keep_first(0)
        self._segments.add(new)
        self._epochs.truncate_from_end(0)
        self._removals.all_gone()
        self._durability.forget_file(self._start_path)
        self.producers = Producers()
        self._truncated(0, base_offset, start_offset, dropped, [], sweeps=sweeps)
        self._write_snapshot()
        if start_offset > base_offset:
            self._write_start()

    def _truncated(
        self,
        position: int,
        end_offset: int,
        start_offset: int,
        dropped: list[Segment],
        stale: list[DiskFile],
        *,
        sweeps: bool,
    ) -> None:
        """The segments in memory are what is left. `stale`: open files of the last one that nobody needs any more."""
        last, now_ms = self._segments.active, self._runtime.clock.wall_ms()
        plan = TruncationPlan(
            base_offset=last.base_offset,
            position=position,
            end_offset=end_offset,
            start_offset=start_offset,
            recovery_point=self._recovery_point(end_offset),
            high_watermark_max=min(self.high_watermark_max, end_offset),
            is_anew=not position,
            sweeps=sweeps,
        )
        truncation = Truncation(
            self._runtime.disk,
            self.directory,
            plan,
            life=self._life,
            number=self._durability.truncation_count + 1,
            segments=[(segment.base_offset, segment.size_bytes) for segment in self._segments],
            now_ms=now_ms,
            behind=self._durability.truncation,
        )
        if self._damage_offset is not None and end_offset <= self._damage_offset:
            self._damage_offset, self._lost_below = None, self.end_offset
        self._durability.truncated(truncation, [*stale, *self._let_go(dropped)])
        due_ms = now_ms + self.config.file_delete_delay_ms
        self._removals.renamed((segment.base_offset for segment in dropped), due_ms)
        log.warning("log_truncated", partition=self.topic_partition, before=self.end_offset, now=end_offset)
        self._size_bytes = self._segments.size_bytes
        self.start_offset, self.end_offset = start_offset, end_offset
        self.truncated_to = min(self.truncated_to, end_offset)
        self.high_watermark_max = plan.high_watermark_max
        self._unflushed_since = None
        self._snapshot_offset = self._index_written_to = -1
        if last.size_bytes and last.first_append_ms < 0:
            last.first_append_ms = last.records.last_append_ms()
        if self._durability.awaits(naming.join(self.directory, naming.LEADER_EPOCHS)):
            self._write_epochs()  # else the truncation itself cuts the file

    def _let_go(self, dropped: list[Segment]) -> list[SegmentWriter]:
        """The writers of segments that go; their other files are closed here."""
        writers = []
        for segment in dropped:
            for kind in (naming.LOG, *naming.INDEX_SUFFIXES):
                self._files.forget(segment.path(kind))
            if (writer := segment.records.release_writer()) is not None:
                writers.append(writer)
        return writers

"""What leaves a log at its beginning, and in its middle: records deleted by request, by age, by size; compaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.lazy import lazy
from odradek.storage.cleaning.choice import roll_due
from odradek.storage.directories import naming
from odradek.storage.directories.open_files import OpenFiles
from odradek.storage.log.durable_log import DurableLog
from odradek.storage.log.file_removal import PendingRemovals, RemovalJob
from odradek.storage.log.results import DeletedSegment
from odradek.storage.log.retention import RetentionTerms, deletable
from odradek.storage.log.segment_deletion import candidates, take_out
from odradek.storage.segment.rolling import RollReason
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.storage.cleaning import access
    from odradek.storage.cleaning.access import CleaningAccess
else:
    access = lazy("odradek.storage.cleaning.access")

log = events.get("storage")


class ShrinkingLog(DurableLog):
    """The part of `Log` that gives space back. `Log` gives it its parts."""

    _files: OpenFiles
    _removals: PendingRemovals
    _cleaning: CleaningAccess | None
    start_is_doubted: bool

    def delete_records(self, offset: int) -> int:
        """Nothing below `offset` may be read from now on; return the new start offset. It never goes back.

        Whole segments below it go with the next `apply_retention`. OFFSET_OUT_OF_RANGE above the log's end. The caller
        keeps `offset` at or below the high watermark.
        """
        self._health.check_readable()
        if not 0 <= offset <= self.end_offset:
            message = f"{self.topic_partition} ends at {self.end_offset}: cannot delete up to {offset}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self._move_start(offset)
        if self.start_offset > self._segments[0].base_offset:
            self._write_start()
        return self.start_offset

    def begins_at(self, start_offset: int) -> None:
        """A replica that knows says that the log begins here, or earlier: that ends a doubt."""
        if self.start_is_doubted and self.start_offset >= start_offset:
            self.start_is_doubted = False
            self._write_start()
            log.info("log_start_known", partition=self.topic_partition, start_offset=self.start_offset)

    def _move_start(self, offset: int) -> None:
        self.start_offset = max(self.start_offset, offset)
        if self._epochs.truncate_from_start(self.start_offset):
            self._write_epochs()

    def apply_retention(self, now_ms: int, *, below: int | None = None) -> list[DeletedSegment]:
        """Take out of the log what its topic's settings no longer keep, and return it, the oldest first.

        Only segments that end at or below `below` (by default what is durable): the high watermark. Their files follow
        with `removal_job`. When the active segment is due, too, a new one is begun. It works on a full disk as well, where
        it is the cure.
        """
        self._health.check_readable()
        if self._durability.truncation is not None:
            return []
        deletable_below = self.flushed_offset if below is None else min(below, self.flushed_offset)
        terms = RetentionTerms.of(
            self.config, start_offset=self.start_offset, deletable_below=deletable_below, now_ms=now_ms
        )
        try:
            reasons = deletable(candidates(self._segments, self.end_offset), self._size_bytes, terms)
        except OSError as error:
            raise self._health.failed(error) from error
        if len(reasons) == len(self._segments):
            if self._health.is_full:
                reasons.pop()
            else:
                self._tail.roll(RollReason.AGE, self.end_offset)
        deleted = take_out(self._segments, reasons, self.end_offset)
        for segment, one in deleted:
            self._size_bytes -= one.size_bytes
            self._files.forget(segment.path(naming.LOG))
            self._durability.forget_file(segment.path(naming.SNAPSHOT))
            log.info(
                "segment_deleted",
                partition=self.topic_partition,
                base_offset=one.base_offset,
                reason=one.reason.value,
            )
        if deleted:
            self._removals.add([segment for segment, _ in deleted])
            self._move_start(self._segments[0].base_offset)
            self._write_start()  # durable before the files go: a log that begins later than it did lost something
        return [one for _, one in deleted]

    @property
    def cleaning(self) -> access.CleaningAccess:
        """What compaction may do here. Most logs are never compacted, so it is made, and imported, when it is asked for."""
        if self._cleaning is None:
            self._cleaning = access.CleaningAccess(
                disk=self._runtime.disk,
                directory=self.directory,
                segments=self._segments,
                files=self._files,
                life=self._life,
                resized=self._resized,
            )
        return self._cleaning

    def _resized(self, change_bytes: int) -> None:
        self._size_bytes += change_bytes
        self._note_transaction_sums()

    def roll_for_compaction(self, now_ms: int) -> bool:
        """End the active segment if its oldest record must be compacted by now (max.compaction.lag.ms); whether it did."""
        active = self._segments.active
        if self._health.fault is not None or not active.size_bytes or self._durability.truncation is not None:
            return False
        if not roll_due(active.first_append_ms, self.config, now_ms):
            return False
        self._tail.roll(RollReason.AGE, self.end_offset)
        return True

    def removal_job(self, now_ms: int) -> RemovalJob | None:
        """What must be done on disk about deleted segments; None when there is nothing to do yet."""
        if self._health.is_broken:
            return None
        return self._removals.job(
            now_ms,
            self.flush_job,
            self._durability.truncation_count,
            keeps_renamed=self._durability.awaits(self._start_path),
        )

    def removed(self, job: RemovalJob, now_ms: int) -> None:
        """`job.run()` returned."""
        if job.flush is not None:
            self.flushed(job.flush)
        if job.truncation_count != self._durability.truncation_count:
            return
        self._removals.done(job, now_ms + self.config.file_delete_delay_ms)

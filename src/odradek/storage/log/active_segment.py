"""The end of a log, where batches are written and segments begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from odradek.config.topic import LogConfig
from odradek.records import BatchHeader
from odradek.runtime.ports import Disk
from odradek.storage.files import naming
from odradek.storage.files.lifetime import NO_DESCRIPTORS
from odradek.storage.log.context import LogContext
from odradek.storage.log.durability import Durability
from odradek.storage.log.file_removal import PendingRemovals
from odradek.storage.log.health import RepairJob
from odradek.storage.log.small_files import SmallFiles
from odradek.storage.recovery.context import OpenedLog, Opening
from odradek.storage.segment.rolling import RollLimits, RollReason, SegmentFill, roll_reason
from odradek.storage.segment.segment import Segment
from odradek.telemetry import events

log = events.caused_by_peers("storage")

Batches: TypeAlias = Sequence[tuple[BatchHeader, memoryview]]

_INDEX_ENTRIES_HELD: Final = 512
"""Index entries that may wait in memory; they are written before the append that would exceed it."""
_REPAIR_BYTES_MIN: Final = 1 << 20


class ActiveSegment:
    """Writes to the active segment and replaces it when it is full."""

    __slots__ = (
        "_config",
        "_context",
        "_durability",
        "_health",
        "_leftover",
        "_limits",
        "_segments",
        "_small_files",
    )

    def __init__(
        self,
        context: LogContext,
        config: LogConfig,
        durability: Durability,
        small_files: SmallFiles,
    ) -> None:
        self._context = context
        self._segments = context.segments
        self._health = context.health
        self._durability = durability
        self._small_files = small_files
        self._leftover: str | None = None
        """The empty file of a segment that could not be begun: removed by a repair, or used by the next roll."""
        self.reconfigure(config)

    def reconfigure(self, config: LogConfig) -> None:
        self._config = config
        self._limits = self._draw_limits()
        self._segments.active.index.interval_bytes = config.index_interval_bytes

    def _draw_limits(self) -> RollLimits:
        jitter = self._context.runtime.entropy.uniform() if self._config.segment_jitter_ms else 0.0
        return RollLimits.of(self._config, jitter)

    def write(
        self, batches: Batches, append_bytes: int, last_offset: int, now_ms: int, *, is_urgent: bool
    ) -> Segment:
        """Puts the batches at the log's end; returns their segment, whose own record of them is yet to be made.

        KAFKA_STORAGE_ERROR when it fails; no part of the batches is in the log then. An urgent write is refused later where
        logs are crowded.
        """
        try:
            segment = self._segment_for(append_bytes, last_offset, now_ms)
            writer, _ = segment.writing()
            if writer.resting:
                self._context.files.wake(writer, is_urgent=is_urgent)
        except OSError as error:
            raise self._health.failed(error) from error
        file = writer.log_file
        writer.write_count += 1
        try:
            if len(batches) == 1:
                file.pwrite(batches[0][1], segment.size_bytes)
            else:
                file.pwritev([batch for _, batch in batches], segment.size_bytes)
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:  # then the file was not even opened
                self._cut_back(segment)
            raise self._health.failed(error) from error
        return segment

    def _cut_back(self, segment: Segment) -> None:
        """Removes the written part of a failed write. Appends still wait for a `RepairJob`: this must be durable."""
        try:
            segment.records.log_file.truncate(segment.size_bytes)
        except OSError as error:
            log.error("truncation_failed", path=segment.path(naming.LOG), error=error)

    def _segment_for(self, append_bytes: int, last_offset: int, now_ms: int) -> Segment:
        segment = self._segments.active
        _, index = segment.writing()
        fill = SegmentFill(
            segment.base_offset,
            segment.size_bytes,
            segment.first_append_ms,
            index.offset_entry_count,
            index.time_entry_count,
        )
        reason = roll_reason(
            self._limits, fill, append_bytes=append_bytes, last_offset=last_offset, now_ms=now_ms
        )
        if reason is not None:
            return self._roll(reason)
        if max(index.unwritten_count, segment.aborted.unwritten_count) >= _INDEX_ENTRIES_HELD:
            segment.write_index()
        return segment

    def roll(self, reason: RollReason) -> None:
        """Begins a new segment, unless the active one is empty."""
        if self._segments.active.size_bytes == 0:
            return
        try:
            self._roll(reason)
        except OSError as error:
            raise self._health.failed(error) from error

    def _roll(self, reason: RollReason) -> Segment:
        """Begins a new segment. An OSError leaves the log as it was."""
        context, old, end_offset = self._context, self._segments.active, self._segments.end_offset
        old.complete_index()
        new = Segment(
            context.runtime.disk,
            context.files,
            context.directory,
            end_offset,
            0,
            index_interval_bytes=self._config.index_interval_bytes,
        )
        if old.base_offset == end_offset:
            raise AssertionError(f"{old.path(naming.LOG)} would be replaced by a segment of the same name")
        try:
            new.begin()
        except OSError:
            self._leftover = new.path(naming.LOG)
            raise
        self._leftover = None
        self._durability.sealed(old.detach())
        self._segments.add(new)
        self._durability.names_changed(context.directory)
        self._small_files.write_snapshot()
        self._limits = self._draw_limits()
        log.debug("segment_rolled", directory=context.directory, base_offset=end_offset, reason=reason.value)
        return new

    def repair_job(self) -> RepairJob | None:
        """Returns the repair after a full disk once there is space again; None until then."""
        active = self._segments.active
        if active.writer is None:
            return None
        try:
            free_bytes = self._context.runtime.disk.free_bytes(self._context.directory)
        except OSError:
            return None
        if free_bytes < max(_REPAIR_BYTES_MIN, self._config.max_message_bytes):
            return None
        return RepairJob(
            disk=self._context.runtime.disk,
            leftover=self._leftover,
            file=active.writer.log_file,
            good_length=active.size_bytes,
            life=self._context.life,
            truncation_count=self._durability.truncation_count,
            truncation=self._durability.truncation,
        )


class LogFiles(NamedTuple):
    """The parts of a log that change its files, for those that use them together."""

    tail: ActiveSegment
    durability: Durability
    small_files: SmallFiles
    removals: PendingRemovals

    @classmethod
    def of(cls, context: LogContext, opening: Opening, opened: OpenedLog, disk: Disk) -> LogFiles:
        durability = Durability(context)
        small_files = SmallFiles(context, durability, opened)
        return cls(
            tail=ActiveSegment(context, opening.config, durability, small_files),
            durability=durability,
            small_files=small_files,
            removals=PendingRemovals(disk, opening.directory, context.life),
        )

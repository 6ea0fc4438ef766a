"""Truncates a log's end: memory changes at once, the files follow (`file_truncation.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import BatchHeader
from odradek.runtime.ports import DiskFile
from odradek.storage.files import naming
from odradek.storage.files.damage import DamagedBatchError
from odradek.storage.files.writer import SegmentWriter
from odradek.storage.log.active_segment import LogFiles
from odradek.storage.log.context import LogContext
from odradek.storage.log.lacked_records import LackedRecords
from odradek.storage.log.log_cleaning import LogCleaning
from odradek.storage.producers.producer_state import Producers
from odradek.storage.recovery.context import OpenedLog
from odradek.storage.recovery.file_truncation import NoteRemoval, Truncation, TruncationPlan
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.segment_list import SegmentList
from odradek.storage.segment.sparse_index import OFFSET_MAX
from odradek.telemetry import events

log = events.get("storage")


class LogTruncation:
    """Truncates a log in memory, and tracks whether its files followed. `Log` documents the methods of the same names. Used
    on the event loop only."""

    __slots__ = (
        "_cleaning",
        "_context",
        "_durability",
        "_health",
        "_is_noted",
        "_lacked",
        "_on_moved",
        "_removals",
        "_segments",
        "_small_files",
        "end_offset_min",
        "high_watermark_max",
    )

    def __init__(
        self,
        context: LogContext,
        *,
        files: LogFiles,
        cleaning: LogCleaning,
        lacked: LackedRecords,
        opened: OpenedLog,
        on_moved: Callable[[], None],
    ) -> None:
        """`on_moved` is called when the files followed."""
        self._context = context
        self._segments = context.segments
        self._health = context.health
        self._durability = files.durability
        self._small_files = files.small_files
        self._removals = files.removals
        self._cleaning = cleaning
        self._lacked = lacked
        self._on_moved = on_moved
        self._is_noted = opened.truncation_noted
        """A file says that checkpoints do not know of a truncation yet."""
        self.end_offset_min = OFFSET_MAX
        """The lowest end of a truncation since the last compaction ended: what was compacted above it was
        removed."""
        self.high_watermark_max = opened.high_watermark_max
        """A high watermark above it that was written down is of the time before a truncation."""

    # ---- in memory ---------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, config: LogConfig) -> None:
        self._health.check_readable()
        segments = self._segments
        if offset >= segments.end_offset:
            if self._context.epochs.truncate_from_end(segments.end_offset):
                self._small_files.write_epochs()
            return
        if offset <= segments.start_offset:
            self.restart_at(offset, config)
            return
        try:
            cut = find_cut(segments, offset)
            sweeps = False
            if cut is None or cut.number + 1 < len(segments):
                sweeps = self._cleaning.abort()
                cut = find_cut(segments, offset)
            if cut is None or cut.end_offset <= segments.start_offset:
                start_offset = segments.start_offset
                self._restart(start_offset, start_offset, config, sweeps=sweeps)
                return
            stale = segments[cut.number].cut(cut.position, cut.end_offset)
        except OSError as error:
            raise self._health.failed(error) from error
        dropped = segments.keep_first(cut.number + 1)
        self._context.epochs.truncate_from_end(cut.end_offset)
        plan = self._plan(cut.position, cut.end_offset, segments.start_offset, sweeps=sweeps)
        self._truncated(plan, dropped, stale, config)

    def restart_at(self, offset: int, config: LogConfig) -> None:
        self._health.check_readable()
        if offset < 0:
            message = f"{self._context.topic_partition} cannot begin at {offset}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self._restart(offset, offset, config)

    def starts_inside_batch(self, header: BatchHeader) -> bool:
        segments = self._segments
        return not segments.size_bytes and header.base_offset < segments.end_offset <= header.last_offset

    def begin_with(self, header: BatchHeader, config: LogConfig) -> None:
        self._health.check_readable()
        self._restart(header.base_offset, self._segments.start_offset, config)

    def _restart(
        self, base_offset: int, start_offset: int, config: LogConfig, *, sweeps: bool = False
    ) -> None:
        """Drops everything; the log's only segment is a new one."""
        context = self._context
        new = Segment(
            context.runtime.disk,
            context.files,
            context.directory,
            base_offset,
            0,
            index_interval_bytes=config.index_interval_bytes,
        )
        try:
            sweeps |= self._cleaning.abort()
            new.begin_aside()
        except OSError as error:
            raise self._health.failed(error) from error
        dropped = self._segments.keep_first(0)
        self._segments.add(new)
        self._context.epochs.truncate_from_end(0)
        self._removals.all_gone()
        self._small_files.forget_start()
        self._context.producers.become(Producers())
        self._truncated(self._plan(0, base_offset, start_offset, sweeps=sweeps), dropped, [], config)
        self._small_files.write_snapshot()
        if start_offset > base_offset:
            self._small_files.write_start()

    def _plan(self, position: int, end_offset: int, start_offset: int, *, sweeps: bool) -> TruncationPlan:
        """Returns the plan for the files, after the segments in memory were truncated."""
        return TruncationPlan(
            base_offset=self._segments.active.base_offset,
            position=position,
            end_offset=end_offset,
            start_offset=start_offset,
            recovery_point=self._durability.recovery_point(end_offset),
            high_watermark_max=min(self.high_watermark_max, end_offset),
            starts_empty=not position,
            sweeps=sweeps,
        )

    def _truncated(
        self, plan: TruncationPlan, dropped: list[Segment], stale: list[DiskFile], config: LogConfig
    ) -> None:
        """Notes a truncation in memory, which the files have to follow. `stale`: open files of the last segment that no one
        needs any more."""
        context, segments, now_ms = self._context, self._segments, self._context.runtime.clock.wall_ms()
        truncation = Truncation(
            context.runtime.disk,
            context.directory,
            plan,
            life=context.life,
            number=self._durability.truncation_count + 1,
            segments=[(segment.base_offset, segment.size_bytes) for segment in segments],
            now_ms=now_ms,
            behind=self._durability.truncation,
        )
        self._lacked.truncated(plan.end_offset)
        self._durability.truncated(truncation, [*stale, *self._let_go(dropped)])
        due_ms = now_ms + config.file_delete_delay_ms
        self._removals.renamed((segment.base_offset for segment in dropped), due_ms)
        log.warning(
            "log_truncated",
            partition=context.topic_partition,
            before=segments.end_offset,
            now=plan.end_offset,
        )
        segments.truncated(plan.start_offset, plan.end_offset)
        self.end_offset_min = min(self.end_offset_min, plan.end_offset)
        self.high_watermark_max = plan.high_watermark_max
        active = segments.active
        if active.size_bytes and active.first_append_ms < 0:
            active.first_append_ms = active.records.last_append_ms()
        self._small_files.write_epochs_again()  # else the truncation itself cuts the file

    def _let_go(self, dropped: list[Segment]) -> list[SegmentWriter]:
        """Returns the writers of segments that go; their other files are closed here."""
        writers = []
        for segment in dropped:
            for kind in (naming.LOG, *naming.INDEX_SUFFIXES):
                self._context.files.forget(segment.path(kind))
            if (writer := segment.records.release_writer()) is not None:
                writers.append(writer)
        return writers

    # ---- the files ---------------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How often the log was truncated since it was opened."""
        return self._durability.truncation_count

    @property
    def awaits_files(self) -> bool:
        return self._durability.truncation is not None

    def check_ready(self) -> None:
        """Checks before an append that the disk works and that the files have followed the last truncation. Raises
        KAFKA_STORAGE_ERROR."""
        self._health.check_writable()
        if self._durability.truncation is not None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self._context.topic_partition}: it was truncated, and its files have not followed yet: try again",
            )

    def files_followed(self, truncation: Truncation) -> None:
        """Notes that the files followed a truncation; does nothing if they did not, or if this is known already."""
        if truncation.finished and self._durability.truncation is truncation:
            self._durability.truncation_finished()
            self._context.producers.become(truncation.producers)
            self._is_noted = True
            self._on_moved()

    def note(self) -> NoteRemoval | None:
        """Returns what may be done once the current checkpoints of the log's directory are durable; None when there is
        nothing."""
        if not self._is_noted or self._durability.truncation is not None:
            return None
        return NoteRemoval(
            disk=self._context.runtime.disk,
            directory=self._context.directory,
            life=self._context.life,
            truncation_count=self._durability.truncation_count,
        )

    def forgotten(self, note: NoteRemoval) -> None:
        """Notes that `note.run()` succeeded: the truncation is not on the disk any more."""
        if note.truncation_count == self._durability.truncation_count:
            self._is_noted = False
            self.high_watermark_max = OFFSET_MAX


class Cut(NamedTuple):
    """The part that stays: the segments up to number `number`, of that one `position` bytes. The log ends at `end_offset`
    then."""

    number: int
    position: int
    end_offset: int


def find_cut(segments: SegmentList, offset: int) -> Cut | None:
    """Returns the cut before the first batch that reaches `offset`; None when no batch stays.

    Where a compaction removed offsets, the log ends after the last batch that stays, as it would after a restart.
    """
    number = segments.number_of(offset)
    try:
        position = segments[number].search.locate(offset)
    except DamagedBatchError:  # what cannot be read is cut off, too
        position = segments[number].records.damaged_at(offset)
    while position == 0:
        if number == 0:
            return None
        number -= 1
        position = segments[number].size_bytes
    return Cut(number, position, segments[number].search.mark_before(position).last_offset + 1)

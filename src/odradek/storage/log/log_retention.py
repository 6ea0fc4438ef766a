"""Removes a log's beginning: records deleted by request, segments by age and size. `file_removal.py` has the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.storage.files import naming
from odradek.storage.log.active_segment import LogFiles
from odradek.storage.log.context import LogContext
from odradek.storage.log.results import DeletedSegment
from odradek.storage.log.retention_rules import DeletionReason, RetentionSegment, RetentionTerms, deletable
from odradek.storage.segment.rolling import RollReason
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.segment_list import SegmentList
from odradek.telemetry import events

log = events.get("storage")


class LogRetention:
    """Moves the start of a log: deletes records and segments. `Log` documents the methods of the same names. Used on the
    event loop only."""

    __slots__ = (
        "_context",
        "_durability",
        "_health",
        "_removals",
        "_segments",
        "_small_files",
        "_tail",
        "start_is_doubted",
    )

    def __init__(
        self,
        context: LogContext,
        *,
        files: LogFiles,
        start_is_doubted: bool,
    ) -> None:
        self._context = context
        self._segments = context.segments
        self._health = context.health
        self._tail = files.tail
        self._durability = files.durability
        self._small_files = files.small_files
        self._removals = files.removals
        self.start_is_doubted = start_is_doubted

    def delete_records(self, offset: int) -> int:
        self._health.check_readable()
        segments = self._segments
        if not 0 <= offset <= segments.end_offset:
            message = (
                f"{self._context.topic_partition} ends at {segments.end_offset}: cannot delete up to {offset}"
            )
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self._move_start(offset)
        if segments.start_offset > segments.base_offset:
            self._small_files.write_start()
        return segments.start_offset

    def begins_at(self, start_offset: int) -> None:
        own = self._segments.start_offset
        if self.start_is_doubted and own >= start_offset:
            self.start_is_doubted = False
            self._small_files.write_start()
            log.info("log_start_known", partition=self._context.topic_partition, start_offset=own)

    def _move_start(self, offset: int) -> None:
        segments = self._segments
        segments.start_offset = max(segments.start_offset, offset)
        if self._context.epochs.truncate_from_start(segments.start_offset):
            self._small_files.write_epochs()

    def apply(self, config: LogConfig, now_ms: int, below: int | None) -> list[DeletedSegment]:
        """Removes segments that the settings no longer keep; see `Log.apply_retention`."""
        self._health.check_readable()
        if self._durability.truncation is not None:
            return []
        segments, flushed_offset = self._segments, self._durability.flushed_offset
        terms = RetentionTerms.of(
            config,
            start_offset=segments.start_offset,
            deletable_below=flushed_offset if below is None else min(below, flushed_offset),
            now_ms=now_ms,
        )
        try:
            reasons = deletable(candidates(segments), segments.size_bytes, terms)
        except OSError as error:
            raise self._health.failed(error) from error
        if len(reasons) == len(segments):
            if self._health.is_full:
                reasons.pop()
            else:
                self._tail.roll(RollReason.AGE)
        deleted = remove_oldest(segments, reasons)
        for segment, deletion in deleted:
            self._context.files.forget(segment.path(naming.LOG))
            self._durability.forget_file(segment.path(naming.SNAPSHOT))
            log.info(
                "segment_deleted",
                partition=self._context.topic_partition,
                base_offset=deletion.base_offset,
                reason=deletion.reason.value,
            )
        if deleted:
            self._removals.add([segment for segment, _ in deleted])
            self._move_start(segments.base_offset)
            self._small_files.write_start()  # durable before the files go: a log that begins later than it did lost something
        return [deletion for _, deletion in deleted]


def candidates(segments: SegmentList) -> Iterator[RetentionSegment]:
    """Yields segments, oldest first, up to the first that must stay: one that is held, or an active one without records."""
    for number, segment in enumerate(segments):
        if segment.held or (segment is segments.active and not segment.size_bytes):
            return
        yield RetentionSegment(
            end_offset=segments.end_of(number),
            size_bytes=segment.size_bytes,
            last_append_ms=segment.records.last_append_ms(),
        )


def remove_oldest(
    segments: SegmentList, reasons: Sequence[DeletionReason]
) -> list[tuple[Segment, DeletedSegment]]:
    """Returns the oldest segments, one for each reason."""
    ends = [segments.end_of(number) for number in range(len(reasons))]
    return [
        (
            segment,
            DeletedSegment(
                base_offset=segment.base_offset,
                end_offset=end_offset,
                size_bytes=segment.size_bytes,
                reason=reason,
            ),
        )
        for segment, end_offset, reason in zip(segments.drop_first(len(reasons)), ends, reasons, strict=True)
    ]

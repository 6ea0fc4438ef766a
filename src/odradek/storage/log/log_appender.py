"""Putting batches at a log's end: the leader's, with new offsets; a marker; a follower's, as the leader has them.

An append first decides everything, then writes, then changes memory. So an error at any point leaves the log as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import BatchHeader, ControlKind, assign, control_batch, read_header
from odradek.records.batch import write_header
from odradek.storage.log.active_segment import Batches, LogFiles
from odradek.storage.log.context import LogContext
from odradek.storage.log.follower_append import SegmentWrite, check_fetched, portions
from odradek.storage.log.log_truncation import LogTruncation
from odradek.storage.log.results import AppendResult
from odradek.storage.producers.producer_state import Marker, WrittenBatch, check_marker
from odradek.storage.producers.verification import Guard
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.transaction_index import AbortedTransaction

LOG_APPEND_TIME: Final = "LogAppendTime"


class LogAppender:
    """Appends to a log. The contracts of `Log`'s methods of the same names apply."""

    __slots__ = (
        "_config",
        "_durability",
        "_epochs",
        "_producers",
        "_segments",
        "_small_files",
        "_tail",
        "_truncation",
    )

    def __init__(
        self,
        context: LogContext,
        config: LogConfig,
        *,
        files: LogFiles,
        truncation: LogTruncation,
    ) -> None:
        self._config = config
        self._segments = context.segments
        self._epochs = context.epochs
        self._producers = context.producers
        self._tail = files.tail
        self._durability = files.durability
        self._small_files = files.small_files
        self._truncation = truncation

    def reconfigure(self, config: LogConfig) -> None:
        self._config = config
        self._tail.reconfigure(config)

    # ---- as the leader -----------------------------------------------------------------------------------------------

    def append(self, batches: Batches, leader_epoch: int, now_ms: int, guard: Guard | None) -> AppendResult:
        self._truncation.check_ready()
        append_bytes = check_batches(batches, self._config, now_ms)
        headers = [header for header, _ in batches]
        if self._config.message_timestamp_type == LOG_APPEND_TIME:
            headers = [header._replace(max_timestamp=now_ms) for header in headers]
        producers, repeated = self._producers.check(headers, self._segments.end_offset, now_ms, guard)
        if repeated:
            return self._known(repeated)
        _, appended = self._write(batches, append_bytes, leader_epoch, now_ms, is_urgent=guard is None)
        for state in producers:
            self._producers.put(state)
        return appended

    def _known(self, repeated: tuple[WrittenBatch, ...]) -> AppendResult:
        time = repeated[0].timestamp if self._config.message_timestamp_type == LOG_APPEND_TIME else -1
        return AppendResult(repeated[0].first_offset, repeated[-1].last_offset, time, True)

    def append_marker(
        self, marker: Marker, transaction_version: int, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        self._truncation.check_ready()
        check_marker(self._producers.get(marker.producer_id), marker, transaction_version)
        batch = memoryview(
            control_batch(
                ControlKind.COMMIT if marker.is_commit else ControlKind.ABORT,
                marker.producer_id,
                marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                timestamp=marker.timestamp,
            )
        )
        segment, appended = self._write(
            [(read_header(batch), batch)], len(batch), leader_epoch, now_ms, is_urgent=True
        )
        self._mark(segment, marker, appended.first_offset, now_ms)
        return appended

    def _write(
        self, batches: Batches, append_bytes: int, leader_epoch: int, now_ms: int, *, is_urgent: bool
    ) -> tuple[Segment, AppendResult]:
        first_offset = self._segments.end_offset
        log_append_time = now_ms if self._config.message_timestamp_type == LOG_APPEND_TIME else None
        next_offset = _place(batches, first_offset, leader_epoch, log_append_time)
        try:
            segment = self._tail.write(batches, append_bytes, next_offset - 1, now_ms, is_urgent=is_urgent)
        except KafkaError:
            # They may be checked once more and appended later: as their producers sent them, without LogAppendTime.
            for header, batch in batches:
                write_header(batch, header)
            raise

        # The batches are in the file. From here on nothing can fail.
        size_bytes = _note_batches(segment, batches, first_offset, log_append_time)
        self._segments.appended(segment, size_bytes, next_offset, now_ms)
        self._durability.appended()
        if self._epochs.assign(leader_epoch, first_offset):
            self._small_files.write_epochs()
        time = -1 if log_append_time is None else log_append_time
        return segment, AppendResult(first_offset, next_offset - 1, time, False)

    def begin_epoch(self, leader_epoch: int) -> None:
        if self._epochs.assign(leader_epoch, self._segments.end_offset):
            self._small_files.write_epochs()

    # ---- as a follower -----------------------------------------------------------------------------------------------

    def append_as_follower(self, batches: Batches, now_ms: int) -> None:
        self._truncation.check_ready()
        end_offset = self._segments.end_offset
        markers = check_fetched(batches, end_offset=end_offset, latest_epoch=self._epochs.latest)
        for portion in portions(
            batches, markers, end_offset=end_offset, segment_bytes=self._config.segment_bytes
        ):
            self._write_fetched(portion, now_ms)

    def _write_fetched(self, portion: SegmentWrite, now_ms: int) -> None:
        batches, first_offset, last_offset = portion.batches, self._segments.end_offset, portion.last_offset
        segment = self._tail.write(batches, portion.size_bytes, last_offset, now_ms, is_urgent=True)

        # The batches are in the file. From here on nothing can fail.
        self._segments.appended(segment, _note_fetched(segment, batches), last_offset + 1, now_ms)
        self._durability.appended()
        epochs_changed = False
        for header, _ in batches:
            # Where offsets are missing the later epoch has them: replicas with other records there must fetch again.
            epochs_changed |= self._epochs.assign(header.partition_leader_epoch, first_offset)
            first_offset = header.next_offset
            if (marker := portion.markers.get(header.base_offset)) is None:
                self._producers.replay(header, now_ms)
            else:
                self._mark(segment, marker, header.base_offset, now_ms)
        if epochs_changed:
            self._small_files.write_epochs()

    def _mark(self, segment: Segment, marker: Marker, offset: int, now_ms: int) -> None:
        """Notes a marker in the segment, its newest batch that ends a transaction."""
        ended = self._producers.mark(marker, offset, now_ms)
        if ended is not None and not ended.is_commit:
            self._segments.note_aborted(segment, AbortedTransaction.of(ended))


def _place(batches: Batches, first_offset: int, leader_epoch: int, log_append_time: int | None) -> int:
    """Writes offsets, epoch and append time into the batches; returns the offset after the last."""
    next_offset = first_offset
    for header, batch in batches:
        assign(batch, next_offset, leader_epoch, log_append_time=log_append_time)
        next_offset += header.last_offset_delta + 1
    return next_offset


def _note_batches(segment: Segment, batches: Batches, first_offset: int, log_append_time: int | None) -> int:
    """Enters batches that were written into the indexes in memory; returns the segment's size with them."""
    _, index = segment.writing()
    interval, position, next_offset = segment.index.interval_bytes, segment.size_bytes, first_offset
    for header, _ in batches:
        next_offset += header.last_offset_delta + 1
        timestamp = header.max_timestamp if log_append_time is None else log_append_time
        index.note(interval, position, header.size_bytes, next_offset - 1, timestamp)
        position += header.size_bytes
    return position


def _note_fetched(segment: Segment, batches: Batches) -> int:
    """Does the same for batches that came with their offsets and times."""
    _, index = segment.writing()
    interval, position = segment.index.interval_bytes, segment.size_bytes
    for header, _ in batches:
        index.note(interval, position, header.size_bytes, header.last_offset, header.max_timestamp)
        position += header.size_bytes
    return position


def check_batches(batches: Sequence[tuple[BatchHeader, memoryview]], config: LogConfig, now_ms: int) -> int:
    """Returns the bytes of all batches together. Raises MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE or INVALID_TIMESTAMP."""
    total_bytes = 0
    for header, _ in batches:
        size_bytes = header.size_bytes
        total_bytes += size_bytes
        if size_bytes > config.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batch has {size_bytes} bytes, max.message.bytes is {config.max_message_bytes}",
            )
        if config.message_timestamp_type != LOG_APPEND_TIME:
            _check_time(header, config, now_ms)
    if total_bytes > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batches have {total_bytes} bytes, a segment at most {config.segment_bytes}",
        )
    return total_bytes


def _check_time(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Checks the header's first and largest timestamps; -1 means that the producer set none."""
    if header.max_timestamp - now_ms > config.message_timestamp_after_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header.max_timestamp} is {header.max_timestamp - now_ms} ms ahead of the broker's clock, "
            f"message.timestamp.after.max.ms is {config.message_timestamp_after_max_ms}",
        )
    if 0 <= header.base_timestamp < now_ms - config.message_timestamp_before_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header.base_timestamp} is {now_ms - header.base_timestamp} ms before the broker's clock, "
            f"message.timestamp.before.max.ms is {config.message_timestamp_before_max_ms}",
        )

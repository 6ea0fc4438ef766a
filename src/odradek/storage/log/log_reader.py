"""Reads for a log's readers: batches, times, aborted transactions."""

from __future__ import annotations

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import check_crc, split_batches
from odradek.storage.files.at_hand import Missing, NotAtHand, ReadProgress
from odradek.storage.files.damage import DamagedBatchError
from odradek.storage.log import offset_by_time
from odradek.storage.log.context import LogContext
from odradek.storage.log.lacked_records import LackedRecords
from odradek.storage.log.offset_by_time import TimestampedOffset
from odradek.storage.log.results import LogRead


class LogReader:
    """Reads a log, and changes nothing on the disk. `Log` documents the methods of the same names."""

    __slots__ = ("_files", "_health", "_lacked", "_segments", "_topic_partition")

    def __init__(self, context: LogContext, lacked: LackedRecords) -> None:
        self._topic_partition = context.topic_partition
        self._files = context.files
        self._segments = context.segments
        self._health = context.health
        self._lacked = lacked

    def read(
        self, offset: int, max_bytes: int, *, end_offset: int, at_least_one: bool, to_send: bool
    ) -> LogRead:
        segments = self._segments
        if not segments.start_offset <= offset <= segments.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self._topic_partition} holds offsets {segments.start_offset} to {segments.end_offset}, not {offset}",
            )
        end_offset = min(end_offset, segments.end_offset)
        if offset >= end_offset:
            return LogRead(b"", offset)
        self._health.check_readable()
        try:
            return self._first_batches(
                offset, max_bytes, end_offset, at_least_one=at_least_one, to_send=to_send
            )
        except DamagedBatchError as damage:
            self._lacked.met(damage)
            raise
        except OSError as error:
            raise self._health.failed(error) from error

    def _first_batches(
        self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool, to_send: bool
    ) -> LogRead:
        """Reads batches of the first segment that has any from `offset` on."""
        segments = self._segments
        for number in range(segments.number_of(offset), len(segments)):
            segment = segments[number]
            if segment.base_offset >= end_offset:
                break
            chunk = segment.reader.read(
                offset,
                max_bytes,
                end_offset=end_offset,
                segment_end=segments.end_of(number),
                at_least_one=at_least_one,
                to_send=to_send,
            )
            if chunk is not None:
                return LogRead(chunk.data, chunk.next_offset)
        return LogRead(b"", offset)

    def not_at_hand(self, offset: int, max_bytes: int, beside: ReadProgress) -> Missing | None:
        if not self._segments.start_offset <= offset < self._segments.end_offset or self._health.is_broken:
            return None
        try:
            segment = self._segments[self._segments.number_of(offset)]
            segment.reader.check_at_hand(offset, max_bytes, beside)
        except NotAtHand as not_at_hand:
            return not_at_hand.missing
        except (OSError, KafkaError):  # the reader meets it
            return None
        return None

    def verify(self, read: LogRead) -> LogRead:
        for header, batch in split_batches(read.records):
            try:
                check_crc(batch)
            except KafkaError as error:
                message = f"{self._topic_partition}: the batch at offset {header.base_offset} is damaged: {error.message}"
                damage = DamagedBatchError(ErrorCode.CORRUPT_MESSAGE, message, header.base_offset)
                self._lacked.met(damage)
                raise damage from None
        return read

    # ---- times -------------------------------------------------------------------------------------------------------

    def offset_for_timestamp(
        self, timestamp: int, end_offset: int | None, beside: ReadProgress | None
    ) -> TimestampedOffset | None:
        self._health.check_readable()
        try:
            with self._files.only_at_hand(beside):
                return offset_by_time.first_at_or_after(
                    self._segments, timestamp, end_offset=self._end(end_offset), beside=beside
                )
        except OSError as error:
            raise self._health.failed(error) from error

    def max_timestamp_offset(
        self, end_offset: int | None, beside: ReadProgress | None
    ) -> TimestampedOffset | None:
        self._health.check_readable()
        try:
            with self._files.only_at_hand(beside):
                return offset_by_time.latest(self._segments, end_offset=self._end(end_offset), beside=beside)
        except OSError as error:
            raise self._health.failed(error) from error

    def _end(self, end_offset: int | None) -> int:
        end = self._segments.end_offset
        return end if end_offset is None else min(end_offset, end)

    # ---- transactions ------------------------------------------------------------------------------------------------

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        self._health.check_readable()
        try:
            aborted = self._segments.aborted_transactions(start_offset, end_offset)
        except OSError as error:
            raise self._health.failed(error) from error
        except ValueError as error:
            message = f"{self._topic_partition}: a transaction index is damaged: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error
        return [(entry.producer_id, entry.first_offset) for entry in aborted]

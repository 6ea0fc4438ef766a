"""Reading across segments."""

from __future__ import annotations

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.records import check_crc, split_batches
from odradek.storage.log.damage import DamagedBatchError
from odradek.storage.log.results import LogRead
from odradek.storage.log.segment_list import SegmentList


def read_batches(
    segments: SegmentList,
    offset: int,
    max_bytes: int,
    *,
    end_offset: int,
    log_end_offset: int,
    at_least_one: bool,
    to_send: bool,
) -> LogRead:
    """Batches from one segment: the first that has any from `offset` on. See `Log.read`."""
    for number in range(segments.number_of(offset), len(segments)):
        segment = segments[number]
        if segment.base_offset >= end_offset:
            break
        chunk = segment.reader.read(
            offset,
            max_bytes,
            end_offset=end_offset,
            segment_end=segments.end_of(number, log_end_offset),
            at_least_one=at_least_one,
            to_send=to_send,
        )
        if chunk is not None:
            return LogRead(chunk.data, chunk.next_offset)
    return LogRead(b"", offset)


def check_read(read: LogRead, name: TopicPartition) -> None:
    """DamagedBatchError unless every batch carries the CRC of its content."""
    for header, batch in split_batches(read.records):
        try:
            check_crc(batch)
        except KafkaError as error:
            message = f"{name}: the batch at offset {header.base_offset} is damaged: {error.message}"
            raise DamagedBatchError(ErrorCode.CORRUPT_MESSAGE, message, header.base_offset) from None

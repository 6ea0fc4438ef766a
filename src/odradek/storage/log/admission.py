"""Checks the size and time of batches that enter a log. Pure. The caller has checked their CRC and their records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import BatchHeader

LOG_APPEND_TIME: Final = "LogAppendTime"


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
            f"timestamp {header.base_timestamp} is {now_ms - header.base_timestamp} ms behind the broker's clock, "
            f"message.timestamp.before.max.ms is {config.message_timestamp_before_max_ms}",
        )

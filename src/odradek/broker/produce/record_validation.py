"""All checks of a produced batch before it may enter a log: the broker trusts no client.

Order of the checks: size, format, CRC (which also finds what the network or the client's memory damaged), then every record
inside, decompressed within bounds. Pure: bytes and the topic's settings in, checked batches out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError, RecordsRefusedError
from odradek.records import (
    DEFAULT_LIMITS,
    BatchHeader,
    Codec,
    DecompressionLimitExceeded,
    Limits,
    Record,
    RecordsSummary,
    assign,
    check_crc,
    decode_batch,
    produced_batch,
    read_header,
    recompressed,
    split_batches,
    validate_records,
)
from odradek.runtime.ports import Buffer

ZSTD_SINCE_PRODUCE: Final = 7
ZSTD_SINCE_FETCH: Final = 10
RECORDS_NAMED_MAX: Final = 1000
"""The number of records of a refused batch that are named."""
RECORDS_SEARCHED_MAX: Final = 10_000
"""A batch of more records has none of them named: small batches may expand to millions, which would all be in memory at once,
and be decoded in one call that no other thread can interrupt."""
INLINE_BYTES_MAX: Final = 2 << 20
"""The expanded bytes of one request that may be checked on the event loop: a few milliseconds."""
PLAIN_BYTES_MAX: Final = 64 * 1024
"""A larger batch is checked in the general way, which counts what it costs the event loop."""
_RECOMPRESSING_COSTS: Final = 16
"""Compressing bytes costs this many times as much as checking them."""

_NO_CODEC: Final = Codec.NONE
"""Read once: Python 3.11 calls a function for each look at a member of an enum."""

Batches = list[tuple[BatchHeader, memoryview]]

_TARGET_CODEC: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationTerms:
    """The demands of the partition and the request on a batch."""

    config: LogConfig
    api_version: int
    now_ms: int


class OffloadRequired(Exception):
    """The check would hold up the event loop: repeat it on another thread. Nothing was done."""


class InlineWork:
    """The rest of the bytes that one request may have checked on the event loop."""

    __slots__ = ("left_bytes",)

    def __init__(self, left_bytes: int = INLINE_BYTES_MAX) -> None:
        self.left_bytes = left_bytes

    def spend(self, expanded_bytes: int) -> None:
        self.left_bytes -= expanded_bytes
        if self.left_bytes < 0:
            raise OffloadRequired


def checked_batches(
    records: Buffer | None, terms: ValidationTerms, inline: InlineWork | None = None
) -> Batches:
    """Returns the one batch that a Produce request may hold for a partition, checked, with offsets yet to be assigned.

    With `inline`, OffloadRequired before more is expanded, or done, than it allows: a batch may expand to a thousand
    times its bytes.

    Raises INVALID_RECORD, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP,
    UNSUPPORTED_COMPRESSION_TYPE or UNSUPPORTED_FOR_MESSAGE_FORMAT.
    """
    if not records:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "a produce request needs exactly one batch for each partition, not none"
        )
    batches = split_batches(records)
    if len(batches) != 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"a produce request needs exactly one batch for each partition, not {len(batches)}",
        )
    header, batch = batches[0]
    _check_size(header, terms.config)
    check_crc(batch)
    if header.codec is Codec.ZSTD and terms.api_version < ZSTD_SINCE_PRODUCE:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce version {ZSTD_SINCE_PRODUCE} or newer",
        )
    if header.is_transactional and header.producer_id < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
    summary = _summary(batch, header, inline)
    _check_content(summary, terms, batch, header)
    if summary.max_timestamp != header.max_timestamp:
        # Indexes and retention go by the header, so it must not be wrong about what is inside.
        assign(batch, header.base_offset, header.partition_leader_epoch, max_timestamp=summary.max_timestamp)
        header = read_header(batch)
    target = _TARGET_CODEC.get(terms.config.compression_type)
    if target is not None and target is not header.codec:
        if inline is not None:
            inline.spend(summary.records_bytes * _RECOMPRESSING_COSTS)
        header, batch = _recompressed(header, batch, target, terms.config)
        _check_size(header, terms.config)
    return [(header, batch)]


def plain_batch(records: memoryview, config: LogConfig, now_ms: int) -> tuple[BatchHeader, memoryview] | None:
    """Returns the batch that `checked_batches` would return, if nothing about it needs a closer look: it is small, not
    compressed, of no transaction, and as the topic wants it. None for any other, and for one that `checked_batches` refuses."""
    if len(records) > min(config.max_message_bytes, config.segment_bytes, PLAIN_BYTES_MAX):
        return None
    checked = produced_batch(records)
    if checked is None or _TARGET_CODEC.get(config.compression_type, _NO_CODEC) is not _NO_CODEC:
        return None
    header, min_timestamp, null_key_count = checked
    if null_key_count and "compact" in config.cleanup_policy:
        return None
    if config.message_timestamp_type == "LogAppendTime":
        return header, records
    earliest_ms = now_ms - config.message_timestamp_before_max_ms
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    if 0 <= min_timestamp < earliest_ms or 0 <= header.max_timestamp < earliest_ms:
        return None
    if min_timestamp > latest_ms or header.max_timestamp > latest_ms:
        return None
    return header, records


def _summary(batch: memoryview, header: BatchHeader, inline: InlineWork | None) -> RecordsSummary:
    if inline is None:
        return validate_records(batch, header)
    inline.spend(header.size_bytes)
    if header.codec is Codec.NONE:
        return validate_records(batch, header)
    allowed_bytes = DEFAULT_LIMITS.allowed_bytes(header.size_bytes)
    if inline.left_bytes >= allowed_bytes:
        summary = validate_records(batch, header)
    else:
        try:
            summary = validate_records(batch, header, limits=Limits(decompressed_bytes_max=inline.left_bytes))
        except DecompressionLimitExceeded:
            raise OffloadRequired from None
    inline.spend(summary.records_bytes)
    return summary


def _check_size(header: BatchHeader, config: LogConfig) -> None:
    if header.size_bytes > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {header.size_bytes} bytes, max.message.bytes is {config.max_message_bytes}",
        )
    if header.size_bytes > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {header.size_bytes} bytes, a segment of this topic {config.segment_bytes}",
        )


def _check_content(
    summary: RecordsSummary, terms: ValidationTerms, batch: memoryview, header: BatchHeader
) -> None:
    """The topic's demands. Kafka's clients fail only those records of a refused batch that are named, so they are."""
    config = terms.config
    if header.codec is not Codec.NONE and summary.record_bytes_max > config.max_decompressed_message_bytes:
        raise KafkaError(  # names no record, as Kafka does: the producer fails the whole batch
            ErrorCode.INVALID_RECORD,
            f"a record has {summary.record_bytes_max} bytes once decompressed, "
            f"max.decompressed.message.bytes is {config.max_decompressed_message_bytes}",
        )
    if summary.null_key_count and "compact" in config.cleanup_policy:
        why = "a compacted topic accepts only records with a key"
        raise _refused(
            ErrorCode.INVALID_RECORD, batch, header, lambda record: None if record.key is not None else why
        )
    if config.message_timestamp_type == "LogAppendTime":
        return
    judged = partial(_out_of_time, terms)
    if judged(summary.min_timestamp) or judged(summary.max_timestamp):
        raise _refused(ErrorCode.INVALID_TIMESTAMP, batch, header, lambda record: judged(record.timestamp))


def _out_of_time(terms: ValidationTerms, timestamp: int) -> str | None:
    """Returns why a record's time is refused; None if it is allowed."""
    before = terms.config.message_timestamp_before_max_ms
    after = terms.config.message_timestamp_after_max_ms
    if 0 <= timestamp < terms.now_ms - before:
        return f"timestamp {timestamp} is more than message.timestamp.before.max.ms={before} in the past"
    if timestamp > terms.now_ms + after:
        return f"timestamp {timestamp} is more than message.timestamp.after.max.ms={after} in the future"
    return None


def _refused(
    code: ErrorCode, batch: memoryview, header: BatchHeader, judge: Callable[[Record], str | None]
) -> KafkaError:
    """Returns the error for a batch, with the first of the records that `judge` rejects."""
    if header.record_count > RECORDS_SEARCHED_MAX:
        return KafkaError(code)
    judged = ((index, judge(record)) for index, record in enumerate(decode_batch(batch, header)))
    refused = list(islice(((index, why) for index, why in judged if why is not None), RECORDS_NAMED_MAX))
    return RecordsRefusedError(code, refused[0][1], refused)


def _recompressed(
    header: BatchHeader, batch: memoryview, codec: Codec, config: LogConfig
) -> tuple[BatchHeader, memoryview]:
    """Returns the same records with the codec of the topic's `compression.type`."""
    level = {
        Codec.GZIP: None if config.compression_gzip_level == -1 else config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }.get(codec)
    rebuilt = memoryview(recompressed(batch, header, codec, level))
    return read_header(rebuilt), rebuilt

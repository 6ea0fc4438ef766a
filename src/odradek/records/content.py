"""The records inside a batch: check them all, or read them all. Both never trust the header, nor the header
them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import engine
from odradek.records.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_crc,
    read_header,
    write_header,
)
from odradek.records.codec import DEFAULT_LIMITS, READ_LIMITS, Codec, Limits, compress, decompress
from odradek.records.columns import ColumnReader
from odradek.records.faults import corrupt, invalid
from odradek.records.frame import Frame
from odradek.records.record import Record
from odradek.runtime.ports import Buffer

_OFFSET_MAX: Final = (1 << 63) - 1


class RecordsSummary(NamedTuple):
    """The contents of a produced batch, from a check of its records. A tuple: every produced batch makes one."""

    record_count: int
    min_timestamp: int
    """The earliest timestamp that is not -1 (none); -1 when no record has one."""
    max_timestamp: int
    """May differ from the header's, which producers get wrong: `assign(..., max_timestamp=)` mends it."""
    offset_of_max_timestamp: int
    """The first record with `max_timestamp`, counted from the header's base offset."""
    null_key_count: int
    """Records without a key: a compacted topic refuses them."""
    records_bytes: int
    """The records' size once decompressed."""
    record_bytes_max: int
    """The size of the largest record once decompressed, without the length in front of it, as Kafka counts it."""


def validate_records(
    batch: Buffer, header: BatchHeader, *, limits: Limits = DEFAULT_LIMITS
) -> RecordsSummary:
    """Checks a batch that a producer sent, down to the last byte of the last record. The CRC is the caller's
    to check.

    Raises INVALID_RECORD when header and records do not agree, when the format is violated, when the batch
    expands beyond `limits` or is a control batch, which only brokers make; INVALID_TIMESTAMP when it claims
    LogAppendTime.
    """
    _check_produced(header)
    records = records_of(batch, header, limits)
    seen = engine.active.walk(records, _frame(header))
    return RecordsSummary(
        header.record_count,
        seen.min_timestamp,
        seen.max_timestamp,
        header.base_offset + seen.max_timestamp_delta,
        seen.null_key_count,
        len(records),
        seen.record_bytes_max,
    )


class ProducedBatch(NamedTuple):
    """A batch that a producer may send, checked to the last byte. It is not compressed, and of no transaction."""

    header: BatchHeader
    min_timestamp: int
    """The earliest timestamp that is not -1 (none); -1 when no record has one. The latest is the header's."""
    null_key_count: int


def produced_batch(records: memoryview) -> ProducedBatch | None:
    """Returns the batch if `records` is one that `check_crc` and `validate_records` would take, uncompressed and of no
    transaction, with the right maximum timestamp. None for any other: they say what is wrong with it. A short way of the
    compiled engine for small batches; the plain one has none."""
    checked = engine.active.produced(records, BatchHeader)
    return None if checked is None else tuple.__new__(ProducedBatch, checked)


def _check_produced(header: BatchHeader) -> None:
    """Raises unless the header is one that a producer may send."""
    if header.attributes & CONTROL_BIT:
        raise invalid("control batches are written by brokers alone")
    if header.attributes & TIMESTAMP_TYPE_BIT:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type LogAppendTime"
        )
    if header.record_count < 1:
        raise invalid(f"a produced batch may not have {header.record_count} records")
    if header.last_offset_delta != header.record_count - 1:
        raise invalid(
            f"{header.record_count} produced records cannot end at offset delta {header.last_offset_delta}"
        )
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise invalid(
            f"producer {header.producer_id}, epoch {header.producer_epoch}, sequence {header.base_sequence}"
        )


def records_of(batch: Buffer, header: BatchHeader, limits: Limits) -> Buffer:
    """Returns the bytes after the header, decompressed."""
    if len(batch) != header.size_bytes:
        raise corrupt(f"the header says {header.size_bytes} bytes, the batch has {len(batch)}")
    codec = header.codec
    packed = memoryview(batch)[HEADER_BYTES:]
    if codec is Codec.NONE or not packed:
        return packed
    return decompress(codec, packed, limits)


def recompressed(batch: Buffer, header: BatchHeader, codec: Codec, level: int | None) -> bytearray:
    """Returns the same batch under another codec. The records' bytes stay as they are: none is read."""
    packed = compress(codec, records_of(batch, header, DEFAULT_LIMITS), level)
    rebuilt = bytearray(HEADER_BYTES + len(packed))
    rebuilt[HEADER_BYTES:] = packed
    write_header(rebuilt, header._replace(attributes=codec | (header.attributes & TRANSACTIONAL_BIT)))
    return rebuilt


def _frame(header: BatchHeader) -> Frame:
    return Frame(
        header.record_count,
        header.last_offset_delta,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp,
        header.timestamp_type,
        header.partition_leader_epoch,
    )


def frame_of(header: BatchHeader) -> Frame:
    """Returns the frame that an engine reads by. Raises INVALID_RECORD when no log can have the batch's
    offsets."""
    if not 0 <= header.base_offset <= _OFFSET_MAX - max(header.last_offset_delta, 0):
        raise invalid(
            f"a batch cannot begin at {header.base_offset} and end {header.last_offset_delta} later"
        )
    return _frame(header)


def read_batches(
    reader: ColumnReader,
    batches: list[tuple[BatchHeader, memoryview]],
    *,
    from_offset: int,
    verify_crc: bool,
    limits: Limits = READ_LIMITS,
) -> None:
    """Adds the records of whole batches to columns; CORRUPT_MESSAGE and INVALID_RECORD as when records are read."""
    index = 0
    while (index := reader.read_plain_batches(batches, index, from_offset, verify_crc)) < len(batches):
        header, batch = batches[index]
        if verify_crc:
            check_crc(batch)
        reader.read(records_of(batch, header, limits), frame_of(header), from_offset)
        index += 1


def decode_batch(
    batch: Buffer,
    header: BatchHeader | None = None,
    *,
    from_offset: int = 0,
    limits: Limits = READ_LIMITS,
) -> list[Record]:
    """Returns the records of one whole batch whose offset is at least `from_offset`.

    Offsets may have gaps (compaction) and there may be no record at all. The CRC is the caller's to check;
    everything else is checked here, and raises INVALID_RECORD. Invalid UTF-8 in header keys is replaced, as
    the Java client does.
    """
    if header is None:
        header = read_header(batch)
    records = records_of(batch, header, limits)
    return engine.active.decode(records, frame_of(header), from_offset)

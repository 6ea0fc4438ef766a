"""The 61 bytes in front of every record batch: read them, check them, patch them.

RecordBatch v2 (KIP-98), big-endian. The CRC covers everything from `attributes` to the end, so the broker may
set the first two fields below (and the leader epoch) without touching it:

    base_offset i64 | batch_length i32 | leader_epoch i32 | magic i8 | crc u32 || attributes i16 |
    last_offset_delta i32 | base_timestamp i64 | max_timestamp i64 | producer_id i64 | producer_epoch i16 |
    base_sequence i32 | count i32
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import engine
from odradek.records.codec import Codec, codec_of
from odradek.records.crc import crc32c
from odradek.records.faults import corrupt
from odradek.records.record import TimestampType
from odradek.runtime.ports import Buffer

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
LENGTH_PREFIX_BYTES: Final = 12
"""`base_offset` and `batch_length`: what `batch_length` itself does not count."""

MAGIC: Final = 2
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

_INT32_MAX: Final = 0x7FFF_FFFF
_CRC_POSITION: Final = 17
_ATTRIBUTES_POSITION: Final = 21
_MAGIC_POSITION: Final = 16
_U32: Final = struct.Struct(">I")
_I16: Final = struct.Struct(">h")
_I64: Final = struct.Struct(">q")
_LEADER_EPOCH: Final = struct.Struct(">i")
_LEADER_EPOCH_POSITION: Final = 12
_MAX_TIMESTAMP_POSITION: Final = 35
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_POSITION: Final = 43
_FRAME: Final = struct.Struct(">qi")


class BatchHeader(NamedTuple):
    """A batch's header. A tuple and not a dataclass: every produced and fetched batch makes one (0.5 us, not
    3).
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch on the wire and on disk, header included."""
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def codec(self) -> Codec:
        """Raises INVALID_RECORD for a codec that does not exist."""
        return codec_of(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        return (
            TimestampType.LOG_APPEND_TIME
            if self.attributes & TIMESTAMP_TYPE_BIT
            else TimestampType.CREATE_TIME
        )

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the time after which tombstones may go (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number; they wrap from 2**31 - 1 to 0. -1 for a batch without any."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) & _INT32_MAX


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Returns the header at `position`. The batch after it may be incomplete; its CRC is not looked at.

    Raises CORRUPT_MESSAGE when there are not 61 bytes or the length is impossible,
    UNSUPPORTED_FOR_MESSAGE_FORMAT for the formats before v2 (magic 0 and 1).
    """
    available = len(buffer) - position
    if available > _MAGIC_POSITION:
        _check_magic(buffer[position + _MAGIC_POSITION])
    if available < HEADER_BYTES:
        raise corrupt(f"a batch header has {HEADER_BYTES} bytes, only {max(available, 0)} are there")
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    if header.batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
        raise corrupt(f"batch length {header.batch_length} is less than a header needs")
    return header


def _check_magic(magic: int) -> None:
    if magic == MAGIC:
        return
    if magic < MAGIC:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"message format v{magic} is not supported, only record batches v2 (clients since 0.11)",
        )
    raise corrupt(f"unknown message format (magic {magic})")


def split_batches(buffer: Buffer, *, allow_partial: bool = False) -> list[tuple[BatchHeader, memoryview]]:
    """Returns the batches in `buffer`, each a slice of it (writable where `buffer` is), in order.

    A batch cut short at the end is CORRUPT_MESSAGE, or left out where `allow_partial`: a fetch answer may end
    so.
    """
    view = memoryview(buffer).cast("B")
    batches, position = engine.active.split(view, BatchHeader)
    end = len(view)
    while position < end:
        if allow_partial and not _is_whole(view, position):
            break
        header = read_header(view, position)
        batch_end = position + header.size_bytes
        if batch_end > end:
            raise corrupt(f"a batch of {header.size_bytes} bytes is cut short after {end - position}")
        batches.append((header, view[position:batch_end]))
        position = batch_end
    return batches


def _is_whole(view: memoryview, position: int) -> bool:
    available = len(view) - position
    if available < LENGTH_PREFIX_BYTES:
        return False
    length: int = _FRAME.unpack_from(view, position)[1]
    return available >= length + LENGTH_PREFIX_BYTES


def crc_of(batch: Buffer) -> int:
    """Returns the CRC32C that the header of this one whole batch should carry."""
    return crc32c(memoryview(batch)[_ATTRIBUTES_POSITION:])


def check_crc(batch: Buffer) -> None:
    """Raises CORRUPT_MESSAGE unless `batch`, one whole batch, carries the CRC of its content."""
    if len(batch) < HEADER_BYTES:
        raise corrupt(f"a batch has at least {HEADER_BYTES} bytes, this one {len(batch)}")
    stored: int = _U32.unpack_from(batch, _CRC_POSITION)[0]
    computed = crc_of(batch)
    if stored != computed:
        raise corrupt(f"batch CRC is {stored:#010x}, its content has {computed:#010x}")


def assign(
    batch: memoryview | bytearray,
    base_offset: int,
    leader_epoch: int,
    *,
    log_append_time: int | None = None,
    max_timestamp: int | None = None,
) -> None:
    """Patches a writable batch in place with the leader's decisions.

    `log_append_time` (milliseconds) turns the batch into one of LogAppendTime: all its records then have that
    time. `max_timestamp` mends a producer's wrong header field. Only these two touch the CRC.
    """
    _I64.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, _LEADER_EPOCH_POSITION, leader_epoch)
    if log_append_time is not None:
        attributes: int = _I16.unpack_from(batch, _ATTRIBUTES_POSITION)[0]
        _I16.pack_into(batch, _ATTRIBUTES_POSITION, attributes | TIMESTAMP_TYPE_BIT)
        max_timestamp = log_append_time
    if max_timestamp is not None:
        _I64.pack_into(batch, _MAX_TIMESTAMP_POSITION, max_timestamp)
        _stamp_crc(batch)


def stamp_producer(
    batch: memoryview | bytearray, *, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    """Puts another producer identity and sequence on a built batch, in place, CRC included (KIP-360: epoch
    bumps).
    """
    _PRODUCER.pack_into(batch, _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    _stamp_crc(batch)


def write_header(batch: memoryview | bytearray, header: BatchHeader) -> None:
    """Puts `header` in front of `batch`; `batch_length` and `crc` are computed, whatever it contains."""
    HEADER.pack_into(batch, 0, *header._replace(batch_length=len(batch) - LENGTH_PREFIX_BYTES, crc=0))
    _stamp_crc(batch)


def _stamp_crc(batch: memoryview | bytearray) -> None:
    _U32.pack_into(batch, _CRC_POSITION, crc_of(batch))

"""Builds one batch, record by record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from odradek.records import engine
from odradek.records.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    write_header,
)
from odradek.records.codec import Codec, compress
from odradek.records.frame import Written

NO_LIMIT: Final = 0x7FFF_FFFF


class BatchBuilder:
    """Takes records until they are `max_bytes`, counted before compression; then `build` makes them a batch.

    The first record always fits, however large. A builder makes one batch: after `build` it is empty again.
    """

    __slots__ = ("_codec", "_level", "_writer", "append")

    append: Callable[..., bool]
    """`append(timestamp, key, value, headers=()) -> bool`: add a record, or return False, changing nothing,
    when it would go beyond `max_bytes`. The writer's own method: one call less on the hottest path of a
    producer.
    """

    def __init__(
        self, codec: Codec = Codec.NONE, max_bytes: int = NO_LIMIT, *, level: int | None = None
    ) -> None:
        self._codec = codec
        self._level = level
        self._writer = engine.active.RecordWriter(max_bytes)
        self.append = self._writer.append

    @property
    def size_bytes(self) -> int:
        """The batch so far, header included, before compression."""
        return self._writer.size_bytes

    @property
    def record_count(self) -> int:
        return self._writer.record_count

    @property
    def max_timestamp(self) -> int:
        """The latest of the records so far; -1 before the first."""
        return self._writer.max_timestamp

    def build(
        self,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
    ) -> bytearray:
        """Returns the batch, base offset 0 and leader epoch -1, ready to send. ValueError without a record."""
        if not self._writer.record_count:
            raise ValueError("a batch without records cannot be built")
        return seal(
            self._writer.take(),
            codec=self._codec,
            level=self._level,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
            control=control,
        )


class FilledBatch:
    """A batch whose records were written elsewhere: it takes no more of them, and waits for its header.

    Senders use it like a `BatchBuilder`.
    """

    __slots__ = ("_codec", "_level", "_written")

    def __init__(self, written: Written, codec: Codec = Codec.NONE, *, level: int | None = None) -> None:
        self._written = written
        self._codec = codec
        self._level = level

    @property
    def size_bytes(self) -> int:
        """The batch with its header, before compression."""
        return len(self._written.batch)

    @property
    def record_count(self) -> int:
        return self._written.record_count

    def append(self, *_record: object) -> bool:
        """Refuses the record: this builder is full."""
        return False

    def build(
        self,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> bytearray:
        """Returns the batch, base offset 0 and leader epoch -1, ready to send."""
        return seal(
            self._written,
            codec=self._codec,
            level=self._level,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )


def seal(
    written: Written,
    *,
    codec: Codec,
    level: int | None,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
    control: bool = False,
) -> bytearray:
    """Compresses the written records, if requested, and puts the header in front."""
    batch = written.batch
    if codec is not Codec.NONE:
        batch = bytearray(HEADER_BYTES) + compress(codec, memoryview(batch)[HEADER_BYTES:], level)
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=codec | transactional * TRANSACTIONAL_BIT | control * CONTROL_BIT,
        last_offset_delta=written.record_count - 1,
        base_timestamp=written.base_timestamp,
        max_timestamp=written.max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=written.record_count,
    )
    write_header(batch, header)
    return batch

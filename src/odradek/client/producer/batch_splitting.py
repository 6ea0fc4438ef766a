"""Halve a batch that the broker found too large."""

from __future__ import annotations

from odradek.client.producer.delivery import ProducerBatch
from odradek.records import BatchBuilder, Codec, decode_batch


def split_batch(batch: ProducerBatch, codec: Codec, codec_level: int | None) -> tuple[ProducerBatch, ...]:
    """Two batches with the records of one that was built, each with about half of them, in order."""
    assert batch.payload is not None
    records = decode_batch(batch.payload)
    middle = len(records) // 2
    parts = []
    first = batch.order[1]
    for half in (records[:middle], records[middle:]):
        builder = BatchBuilder(codec, level=codec_level)
        for record in half:
            builder.append(record.timestamp, record.key, record.value, record.headers)
        part = ProducerBatch(
            batch.topic_partition,
            builder,
            order=(batch.order[0], first),
            created_at=batch.created_at,
            deadline=batch.deadline,
            reserved_bytes=0,
            transactional=batch.transactional,
        )
        part.record_count = len(half)
        first += len(half)
        parts.append(part)
    return tuple(parts)

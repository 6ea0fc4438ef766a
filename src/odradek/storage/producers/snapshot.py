"""Producer state as a file: Kafka's `<offset>.snapshot`, version 1.

    version i16 = 1 | CRC-32C u32 of all that follows | count i32 | count times:
    producer id i64 | epoch i16 | last sequence i32 | last offset i64 | offset delta i32 | timestamp i64 |
    coordinator epoch i32 | first offset of the open transaction i64

The file's name has the end offset (exclusive) of the state. Kafka keeps only the newest of a producer's last
five batches. We add the older ones after the entries, under the same CRC, where Kafka does not look, so that
after a restart, too, each of the five batches that may be in flight is recognised:

    mark "ODR1" | for each entry above: count u8 | count times, the oldest first:
    last sequence i32 | last offset i64 | offset delta i32 | timestamp i64
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from odradek.records.crc import crc32c
from odradek.storage.producers.producer_state import SEQUENCE_MAX, ProducerState, WrittenBatch

_HEADER: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_VERSION: Final = 1
_MARK: Final = b"ODR1"
_BATCH: Final = struct.Struct(">iqiq")


class BadSnapshotError(Exception):
    """The bytes are no snapshot, or a damaged one: use an older one and replay more of the log."""


def encode_snapshot(states: Iterable[ProducerState]) -> bytes:
    states = list(states)
    body = _COUNT.pack(len(states)) + b"".join(_ENTRY.pack(*_fields(state)) for state in states)
    if any(len(state.batches) > 1 for state in states):
        body += _MARK + b"".join(_older_batches(state) for state in states)
    return _HEADER.pack(_VERSION, crc32c(body)) + body


def _fields(state: ProducerState) -> tuple[int, ...]:
    if not state.batches:
        sequence, offset, delta = -1, -1, 0
    else:
        batch = state.batches[-1]
        sequence, offset, delta = batch.last_sequence, batch.last_offset, batch.offset_delta
    return (
        state.producer_id,
        state.epoch,
        sequence,
        offset,
        delta,
        state.seen_ms,
        state.coordinator_epoch,
        state.transaction_first_offset,
    )


def _older_batches(state: ProducerState) -> bytes:
    older = state.batches[:-1]
    packed = (
        _BATCH.pack(batch.last_sequence, batch.last_offset, batch.offset_delta, batch.timestamp)
        for batch in older
    )
    return bytes([len(older)]) + b"".join(packed)


def decode_snapshot(data: bytes, now_ms: int) -> list[ProducerState]:
    """Returns the states, or BadSnapshotError. A timestamp ahead of `now_ms` is taken as now, so that it can expire."""
    head = _HEADER.size + _COUNT.size
    if len(data) < head:
        raise BadSnapshotError(f"{len(data)} bytes are too few")
    version, crc = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise BadSnapshotError(f"version {version} is unknown")
    if crc32c(memoryview(data)[_HEADER.size :]) != crc:
        raise BadSnapshotError("the CRC does not match")
    (count,) = _COUNT.unpack_from(data, _HEADER.size)
    end = head + count * _ENTRY.size
    if count < 0 or end > len(data):
        raise BadSnapshotError(f"{count} entries do not fit into {len(data)} bytes")
    states = [_state(fields, now_ms) for fields in _ENTRY.iter_unpack(data[head:end])]
    return _with_older_batches(states, data[end:]) if end < len(data) else states


def _with_older_batches(states: list[ProducerState], data: bytes) -> list[ProducerState]:
    complete = []
    try:
        if not data.startswith(_MARK):
            raise BadSnapshotError(f"{len(data)} unknown bytes after the entries")
        position = len(_MARK)
        for state in states:
            count = data[position]
            position += 1
            older = []
            for _ in range(count):
                older.append(_batch(*_BATCH.unpack_from(data, position)))
                position += _BATCH.size
            complete.append(state._replace(batches=(*older, *state.batches)))
    except (IndexError, struct.error):
        raise BadSnapshotError("the older batches are cut short") from None
    return complete


def _batch(last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> WrittenBatch:
    first_sequence = (last_sequence - offset_delta) & SEQUENCE_MAX if last_sequence >= 0 else last_sequence
    return WrittenBatch(first_sequence, last_sequence, last_offset, offset_delta, timestamp)


def _state(fields: tuple[int, ...], now_ms: int) -> ProducerState:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, transaction_first_offset = (
        fields
    )
    batches: tuple[WrittenBatch, ...] = ()
    if offset >= 0:
        batches = (_batch(sequence, offset, delta, timestamp),)
    seen_ms = min(timestamp, now_ms)
    return ProducerState(
        producer_id, epoch, batches, seen_ms, coordinator_epoch, transaction_first_offset, timestamp
    )

"""Control batches: the markers that end a transaction on a partition (KIP-98), and what a reader at `read_committed` skips.

The one record of such a batch has a key `version i16 | type i16` and, for the end of a transaction, a value
`version i16 | coordinator epoch i32`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from odradek.records.batch import BatchHeader
from odradek.records.builder import BatchBuilder
from odradek.records.content import decode_batch
from odradek.records.faults import invalid
from odradek.runtime.ports import Buffer

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0


class ControlKind(IntEnum):
    """How a transaction ended."""

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlMarker:
    """A control record. `kind` is None for kinds that do not concern transactions: readers skip those."""

    kind: ControlKind | None
    offset: int
    timestamp: int
    coordinator_epoch: int
    """-1 where `kind` is None."""


def control_batch(
    kind: ControlKind, producer_id: int, producer_epoch: int, *, coordinator_epoch: int, timestamp: int
) -> bytearray:
    """Returns the batch that ends `producer_id`'s transaction; `timestamp` in milliseconds."""
    builder = BatchBuilder()
    builder.append(timestamp, _KEY.pack(_VERSION, kind), _VALUE.pack(_VERSION, coordinator_epoch))
    return builder.build(
        producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )


def read_control(batch: Buffer) -> ControlMarker:
    """Returns the marker in one control batch. INVALID_RECORD when it does not hold exactly one well-formed control
    record.

    Newer versions may have further fields after the ones known here; they are ignored.
    """
    records = decode_batch(batch)
    if len(records) != 1:
        raise invalid(f"a control batch has one record, this one {len(records)}")
    record = records[0]
    if record.key is None or len(record.key) < _KEY.size:
        raise invalid("a control record's key is cut short")
    version, number = _KEY.unpack_from(record.key)
    if version < 0:
        raise invalid(f"a control record's key has version {version}")
    if number not in (ControlKind.ABORT, ControlKind.COMMIT):
        return ControlMarker(
            kind=None, offset=record.offset, timestamp=record.timestamp, coordinator_epoch=-1
        )
    if record.value is None or len(record.value) < _VALUE.size:
        raise invalid("a control record's value is cut short")
    return ControlMarker(
        kind=ControlKind(number),
        offset=record.offset,
        timestamp=record.timestamp,
        coordinator_epoch=_VALUE.unpack_from(record.value)[1],
    )


def data_batches(
    batches: Iterable[tuple[BatchHeader, memoryview]], *, aborted: Iterable[tuple[int, int]] = ()
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yields the batches that carry records for the application, in order: no markers, nothing of an aborted
    transaction.

    `aborted`: (producer id, first offset) of each, as the fetch answer lists them, in any order. From its
    first offset on the producer's batches are void, until its ABORT marker.
    """
    waiting = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    void: set[int] = set()
    for header, batch in batches:
        while waiting and waiting[-1][1] <= header.last_offset:
            void.add(waiting.pop()[0])
        if header.is_control:
            # A marker without its record: compaction took all of its transaction.
            is_marker = header.producer_id in void and header.record_count > 0
            if is_marker and read_control(batch).kind is ControlKind.ABORT:
                void.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in void):
            yield header, batch

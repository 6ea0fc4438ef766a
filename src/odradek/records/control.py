"""Control batches: the markers that end a transaction on a partition (KIP-98).

The one record of such a batch has a key `version i16 | type i16` and, for the end of a transaction, a value
`version i16 | coordinator epoch i32`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

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
    """The batch that ends `producer_id`'s transaction; `timestamp` in milliseconds."""
    builder = BatchBuilder()
    builder.append(timestamp, _KEY.pack(_VERSION, kind), _VALUE.pack(_VERSION, coordinator_epoch))
    return builder.build(
        producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )


def read_control(batch: Buffer) -> ControlMarker:
    """The marker in one control batch. INVALID_RECORD when it does not hold exactly one well-formed control
    record.

    Newer versions may have more fields behind those known here; they are ignored.
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

"""The functions on records that compaction needs: the last offset of each key, and a batch without the records that go.

An engine offers a `KeyMap` and `rebase`. A batch that loses records keeps everything else: base offset, last offset,
producer and sequence, leader epoch, codec, timestamps. As both bases stay, the bytes of each record stay, too, and
leaving some out is copying the rest. Only a new delete horizon (KIP-534) moves the base that timestamps count from.
"""

from __future__ import annotations

import importlib
from typing import Final, NamedTuple, Protocol, cast

from odradek.records import engine
from odradek.records.batch import (
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    write_header,
)
from odradek.records.codec import READ_LIMITS, Codec, compress
from odradek.records.content import frame_of, records_of
from odradek.records.frame import Frame
from odradek.runtime.ports import Buffer

SLOT_BYTES: Final = 24
"""Memory for one key, whatever its length: 16 bytes of its hash and its offset."""
_CODEC_MASK: Final = 0x07
_NO_TIMESTAMP: Final = -1


class Sieved(NamedTuple):
    """The records of a batch that stay. A tuple: one for every batch of a log."""

    batch: bytearray | None
    """61 bytes of room for the header, and the records that stay; None when all do."""
    record_count: int
    max_timestamp: int
    """The largest timestamp of the records that stay; -1 without any."""
    tombstone_count: int
    """The number of tombstones that stay."""


class KeyMap(Protocol):
    """The last offset of each key, by a hash of 16 bytes under a secret seed: keys that collide cannot be made up."""

    @property
    def key_count(self) -> int: ...

    @property
    def size_bytes(self) -> int:
        """The memory that it takes, however many keys are in it."""

    def note(self, data: Buffer, frame: Frame, from_offset: int) -> int:
        """Notes the records of a batch whose offset is at least `from_offset`, in order.

        -1 when all of them are in; else the offset of the first that found no place.
        """

    def sieve(self, data: Buffer, frame: Frame, end_offset: int, drops_tombstones: bool) -> Sieved:
        """Leaves out every record below `end_offset` that has no key, or whose key was written later, or that is a
        tombstone, if those go.
        """


class CleaningEngine(Protocol):
    """The functions of both engines for compaction."""

    def KeyMap(self, slot_count: int, key_count_max: int, seed: bytes) -> KeyMap:  # noqa: N802 - a module's class
        """Makes a map with room for `key_count_max` keys, less than there are slots. `seed`: 16 secret bytes."""

    def rebase(self, data: Buffer, frame: Frame, base_timestamp: int) -> bytearray:
        """Returns the records with their timestamps counted from another base, after 61 bytes for the header.

        Raises OverflowError when a distance does not fit in 64 bits.
        """


def _active_engine() -> CleaningEngine:
    """Returns the active engine's half for compaction, imported on first use."""
    name = "_plain_cleaning" if engine.active is engine.PLAIN else "_fast_cleaning"
    # late-import: the engine is chosen when the process runs
    return cast(CleaningEngine, importlib.import_module(f"odradek.records.{name}"))


def new_key_map(slot_count: int, key_count_max: int, seed: bytes) -> KeyMap:
    """Returns an empty key map of the active engine."""
    return _active_engine().KeyMap(slot_count, key_count_max, seed)


def note_keys(keys: KeyMap, batch: Buffer, header: BatchHeader, from_offset: int) -> int:
    """Notes the keys of a batch in the map; see `KeyMap.note`. Raises INVALID_RECORD or CORRUPT_MESSAGE for a damaged batch."""
    return keys.note(records_of(batch, header, READ_LIMITS), frame_of(header), from_offset)


def sieve_batch(
    keys: KeyMap,
    batch: Buffer,
    header: BatchHeader,
    *,
    end_offset: int,
    drops_tombstones: bool,
    delete_horizon_ms: int,
) -> Buffer | None:
    """Returns the batch without what `KeyMap.sieve` leaves out: itself when nothing changes, None when no record stays.

    A batch that keeps tombstones and has no delete horizon gets this one; -1 gives none.
    """
    records = records_of(batch, header, READ_LIMITS)
    kept = keys.sieve(records, frame_of(header), end_offset, drops_tombstones)
    if not kept.record_count:
        return None
    header = header._replace(record_count=kept.record_count)
    if kept.batch is not None and not header.attributes & TIMESTAMP_TYPE_BIT:
        header = header._replace(max_timestamp=kept.max_timestamp)
    if kept.tombstone_count and delete_horizon_ms >= 0 and not header.has_delete_horizon:
        left = records if kept.batch is None else memoryview(kept.batch)[HEADER_BYTES:]
        marked = _with_horizon(left, header, delete_horizon_ms)
        if marked is not None:
            return marked
    return batch if kept.batch is None else _packed(kept.batch, header)


def with_horizon(batch: Buffer, header: BatchHeader, delete_horizon_ms: int) -> Buffer:
    """Returns the batch, to be deleted after that time; itself when its format cannot express that."""
    return _with_horizon(records_of(batch, header, READ_LIMITS), header, delete_horizon_ms) or batch


def _with_horizon(records: Buffer, header: BatchHeader, delete_horizon_ms: int) -> bytearray | None:
    """Returns None when a record's time is too far from the horizon: the batch then goes without, and its tombstones stay."""
    try:
        rebased = _active_engine().rebase(records, frame_of(header), delete_horizon_ms)
    except OverflowError:
        return None
    attributes = header.attributes | DELETE_HORIZON_BIT
    return _packed(rebased, header._replace(attributes=attributes, base_timestamp=delete_horizon_ms))


def _packed(batch: bytearray, header: BatchHeader) -> bytearray:
    """Compresses the records as the original was, and puts the header in front."""
    codec = header.codec
    if codec is not Codec.NONE:
        batch = bytearray(HEADER_BYTES) + compress(codec, memoryview(batch)[HEADER_BYTES:])
    write_header(batch, header)
    return batch


def emptied(header: BatchHeader) -> bytearray:
    """Returns a batch without records, of which only offsets, producer and sequence are still needed."""
    batch = bytearray(HEADER_BYTES)
    attributes = header.attributes & ~(_CODEC_MASK | DELETE_HORIZON_BIT)
    write_header(batch, header._replace(attributes=attributes, base_timestamp=_NO_TIMESTAMP, record_count=0))
    return batch


def placeholder(offset: int, leader_epoch: int) -> bytearray:
    """Returns a batch without records, which shows that the log reaches to `offset`."""
    batch = bytearray(HEADER_BYTES)
    header = BatchHeader(
        base_offset=offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=_NO_TIMESTAMP,
        max_timestamp=_NO_TIMESTAMP,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    write_header(batch, header)
    return batch

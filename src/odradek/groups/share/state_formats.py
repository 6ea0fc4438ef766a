"""The records of `__share_group_state`, in the versions that Kafka 4.3 writes: how far a group is in a partition.

0  a snapshot: all there is to know
1  an update: what changed since the snapshot of the same number
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from odradek.groups.shard.formats import read, version_of, versioned
from odradek.groups.share.partition import RecordState, StateBatch
from odradek.protocol import MalformedMessage, Message, Struct
from odradek.protocol.schema import array, int8, int16, int32, int64, string, uuid

SNAPSHOT: Final = 0
UPDATE: Final = 1


class Batch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")


class ShareSnapshotKey(Message, versions="0", flexible="none"):
    group_id: str = string("0+")
    topic_id: UUID = uuid("0+")
    partition: int = int32("0+")


class ShareSnapshotValue(Message, versions="0", flexible="0+"):
    snapshot_epoch: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", default=-1, tag=0)
    create_timestamp: int = int64("0+")
    write_timestamp: int = int64("0+")
    state_batches: list[Batch] = array(Batch, "0+")


class ShareUpdateKey(Message, versions="1", flexible="none"):
    group_id: str = string("1+")
    topic_id: UUID = uuid("1+")
    partition: int = int32("1+")


class ShareUpdateValue(Message, versions="0", flexible="0+"):
    snapshot_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", default=-1, tag=0)
    state_batches: list[Batch] = array(Batch, "0+")


class SharePartitionKey(NamedTuple):
    """One partition, for one share group."""

    group_id: str
    topic_id: UUID
    partition: int

    def snapshot_key(self) -> bytes:
        key = ShareSnapshotKey(group_id=self.group_id, topic_id=self.topic_id, partition=self.partition)
        return versioned(key, SNAPSHOT)

    def update_key(self) -> bytes:
        key = ShareUpdateKey(group_id=self.group_id, topic_id=self.topic_id, partition=self.partition)
        return versioned(key, UPDATE)


def read_key(key: bytes) -> SharePartitionKey:
    """Raises MalformedMessage."""
    kind = version_of(key)
    if kind not in (SNAPSHOT, UPDATE):
        raise MalformedMessage(f"a key of type {kind} is none of a share group's state")
    read_as: ShareSnapshotKey | ShareUpdateKey = (
        read(ShareSnapshotKey, key) if kind == SNAPSHOT else read(ShareUpdateKey, key)
    )
    return SharePartitionKey(read_as.group_id, read_as.topic_id, read_as.partition)


def listed(batches: Iterable[StateBatch]) -> list[Batch]:
    return [
        Batch(
            first_offset=batch.first_offset,
            last_offset=batch.last_offset,
            delivery_state=batch.state,
            delivery_count=batch.delivery_count,
        )
        for batch in batches
    ]


_STATES: Final = {int(state): state for state in RecordState}


class AnyStateBatch(Protocol):
    """A state batch in records and requests."""

    @property
    def first_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    @property
    def delivery_state(self) -> int: ...

    @property
    def delivery_count(self) -> int: ...


def unlisted(batches: Iterable[AnyStateBatch]) -> list[StateBatch]:
    """Raises MalformedMessage for a state that does not exist."""
    try:
        return [
            StateBatch(
                batch.first_offset, batch.last_offset, _STATES[batch.delivery_state], batch.delivery_count
            )
            for batch in batches
        ]
    except KeyError as error:
        raise MalformedMessage(f"a share group's state: there is no delivery state {error}") from None

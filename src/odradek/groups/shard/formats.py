"""The records of `__consumer_offsets`: Kafka's own keys and values, so that its tools read our log and we read its.

A key begins with an int16 that identifies its type; a value begins with the version of its own layout. A null
value deletes.

    0, 1   a committed offset      (0 came from ZooKeeper's days and is still read)
    2      a classic group
    3 ...  groups of the newer protocols: declared by their own sub-packages

Written are the versions that Kafka 4.3 writes: offsets as 4, which carries the topic's id, or as 1 when a client asked for a
retention of its own; groups as 3.
"""

from __future__ import annotations

from functools import lru_cache, partial
from struct import Struct as Layout
from typing import Final, TypeVar
from uuid import UUID

from odradek.groups.shard.offset_table import CommittedOffset
from odradek.model.ids import ZERO_UUID
from odradek.protocol import Message, Struct, decode, encode
from odradek.protocol.schema import array, bytestring, int32, int64, string, uuid

OFFSET_COMMIT_KEYS: Final = (0, 1)
GROUP_METADATA_KEY: Final = 2

_VERSION_BYTES: Final = 2
_OFFSET_KEY_VERSION: Final = 1
_OFFSET_VALUE_VERSION: Final = 4
_OFFSET_VALUE_WITH_EXPIRY_VERSION: Final = 1
_GROUP_VALUE_VERSION: Final = 3

M = TypeVar("M", bound=Message)


class OffsetCommitKey(Message, versions="0-1", flexible="none"):
    group: str = string("0+")
    topic: str = string("0+")
    partition: int = int32("0+")


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    offset: int = int64("0+")
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: UUID = uuid("4+", default=ZERO_UUID, tag=0, ignorable=True)


class GroupMetadataKey(Message, versions="2", flexible="none"):
    group: str = string("2+")


class MemberMetadata(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout: int = int32("1+", ignorable=True)
    session_timeout: int = int32("0+")
    subscription: bytes = bytestring("0+")
    assignment: bytes = bytestring("0+")


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    protocol_type: str = string("0+")
    generation: int = int32("0+")
    protocol: str | None = string("0+", nullable="0+")
    leader: str | None = string("0+", nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata, "0+")


def versioned(message: Message, version: int) -> bytes:
    """Returns a key or value as it is in the log: the version, then the message."""
    return version.to_bytes(_VERSION_BYTES, "big") + encode(message, version)


def version_of(data: bytes) -> int:
    """Returns the type of a key, or the version of a value; -1 for fewer bytes than that needs."""
    return int.from_bytes(data[:_VERSION_BYTES], "big") if len(data) >= _VERSION_BYTES else -1


def read(cls: type[M], data: bytes) -> M:
    """Returns the message in a key or value. Raises MalformedMessage, or UnknownVersion for one that is newer than we are."""
    message, _ = decode(cls, version_of(data), data, _VERSION_BYTES)
    return message


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    if len(group_id) > _REMEMBERED_LENGTH_MAX:
        return _offset_key(group_id, topic, partition)
    return _remembered_offset_key(group_id, topic, partition)


def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return versioned(OffsetCommitKey(group=group_id, topic=topic, partition=partition), _OFFSET_KEY_VERSION)


def read_offset_key(key: bytes) -> OffsetCommitKey:
    """Raises as `read`."""
    if len(key) > _REMEMBERED_LENGTH_MAX:
        return read(OffsetCommitKey, key)
    return _remembered_read(key)


_REMEMBERED_LENGTH_MAX: Final = 512
_remembered_offset_key = lru_cache(4096)(_offset_key)
"""Groups commit for the same partitions again and again."""
_remembered_read = lru_cache(4096)(partial(read, OffsetCommitKey))


_PLAIN_VALUE: Final = Layout(">hqiBqBBB16s")
"""Version 4 of an offset with a topic's id, and without metadata: version, offset, leader epoch, the metadata's length + 1,
commit time, the count of tagged fields, the tag and size of the id, and the id. Nearly all commits are so, and the general
codec takes several times as long."""
_EMPTY_TEXT: Final = 1
_ID_FIELD: Final = (1, 0, 16)
"""One tagged field, with tag 0, of 16 bytes."""


def offset_value(
    *,
    offset: int,
    commit_timestamp: int,
    leader_epoch: int = -1,
    metadata: str = "",
    expire_timestamp: int = -1,
    topic_id: UUID = ZERO_UUID,
) -> bytes:
    """Returns the value of a committed offset, in the version that holds all of it."""
    has_expiry = expire_timestamp != -1
    if not metadata and not has_expiry and topic_id is not ZERO_UUID and topic_id.int:
        return _PLAIN_VALUE.pack(
            _OFFSET_VALUE_VERSION,
            offset,
            leader_epoch,
            _EMPTY_TEXT,
            commit_timestamp,
            *_ID_FIELD,
            topic_id.bytes,
        )
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp,
        expire_timestamp=expire_timestamp,
        topic_id=topic_id,
    )
    return versioned(value, _OFFSET_VALUE_WITH_EXPIRY_VERSION if has_expiry else _OFFSET_VALUE_VERSION)


def read_offset_value(value: bytes, record_offset: int) -> CommittedOffset:
    """Returns the committed offset that a record holds. Raises as `read`."""
    if len(value) == _PLAIN_VALUE.size:
        version, offset, leader_epoch, text, committed_ms, fields, tag, size, topic_id = _PLAIN_VALUE.unpack(
            value
        )
        if version == _OFFSET_VALUE_VERSION and text == _EMPTY_TEXT and (fields, tag, size) == _ID_FIELD:
            return CommittedOffset(
                offset, leader_epoch, "", committed_ms, -1, _remembered_id(topic_id), record_offset
            )
    message = read(OffsetCommitValue, value)
    return CommittedOffset(
        offset=message.offset,
        leader_epoch=message.leader_epoch,
        metadata=message.metadata,
        commit_timestamp_ms=message.commit_timestamp,
        expire_timestamp_ms=message.expire_timestamp,
        topic_id=message.topic_id,
        record_offset=record_offset,
    )


@lru_cache(4096)
def _remembered_id(topic_id: bytes) -> UUID:
    return UUID(bytes=topic_id)


def group_key(group_id: str) -> bytes:
    return versioned(GroupMetadataKey(group=group_id), GROUP_METADATA_KEY)


def group_value(value: GroupMetadataValue) -> bytes:
    return versioned(value, _GROUP_VALUE_VERSION)

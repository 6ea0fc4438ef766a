"""OffsetCommit requests for partitions of one topic, and their answers, read and written without messages.

Consumers commit one topic most of the time. As in `single_batch.py` the general codec has the meaning: it reads what this one
leaves, and writes every answer that refuses something. The test compares both on generated and on damaged frames.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from struct import Struct as Layout
from typing import Final, NamedTuple
from uuid import UUID

from odradek.protocol.errors import Fault
from odradek.protocol.wire import UuidCache, uvarint

PARTITIONS_MAX: Final = 100
"""The most partitions of a request that is read here."""

_RETENTION_UNTIL: Final = 4
_THROTTLE_SINCE: Final = 3
_LEADER_EPOCH_SINCE: Final = 6
_INSTANCE_SINCE: Final = 7
_FLEXIBLE_SINCE: Final = 8
_TOPIC_IDS_SINCE: Final = 10

_SHORT: Final = Layout(">h")
_INT: Final = Layout(">i")
_LONG: Final = Layout(">q")
_GENERATION: Final = Layout(">ih")
_TOPICS: Final = Layout(">ih")
_OFFSET: Final = Layout(">iqh")
_OFFSET_WITH_EPOCH: Final = Layout(">iqih")
_COMPACT_OFFSET: Final = Layout(">iqi")
_ONE: Final = 2
"""One element, as a compact count."""
_ONE_BYTE_MAX: Final = 127
_SIZE_AND_CORRELATION: Final = Layout(">ii")
_VERDICT: Final = Layout(">ih")
_COMPACT_VERDICT: Final = Layout(">ihB")
_REMEMBERED: Final = 4096

_uuids: Final = UuidCache()


class SmallOffset(NamedTuple):
    """The offset of one partition."""

    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class SmallCommit(NamedTuple):
    """An OffsetCommit request for partitions of one topic."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    retention_ms: int
    topic: str | UUID
    """The topic's name; its id from version 10 on."""
    offsets: list[SmallOffset]


def read_small_commit(frame: memoryview, position: int, version: int) -> SmallCommit | None:
    """Reads the request that starts at `position`, behind the header, and ends with the frame; None for any other request, and
    for one that is damaged. `version` is one that brokers serve."""
    data = bytes(frame[position:])
    try:
        return _plain(data, version) if version < _FLEXIBLE_SINCE else _compact(data, version)
    except (Fault, IndexError, struct.error, UnicodeDecodeError):
        return None


def _plain(data: bytes, version: int) -> SmallCommit | None:
    (length,) = _SHORT.unpack_from(data, 0)
    position = 2 + length
    if length < 0:
        return None
    generation, member_bytes = _GENERATION.unpack_from(data, position)
    start = position + _GENERATION.size
    position = start + member_bytes
    if member_bytes < 0:
        return None
    member_id, instance_id, retention_ms = data[start:position].decode(), None, -1
    if version >= _INSTANCE_SINCE:
        (instance_bytes,) = _SHORT.unpack_from(data, position)
        position += 2
        if instance_bytes >= 0:
            instance_id = data[position : position + instance_bytes].decode()
            position += instance_bytes
    elif version <= _RETENTION_UNTIL:
        (retention_ms,) = _LONG.unpack_from(data, position)
        position += _LONG.size
    topics, name_bytes = _TOPICS.unpack_from(data, position)
    start = position + _TOPICS.size
    position = start + name_bytes
    (count,) = _INT.unpack_from(data, position)
    if topics != 1 or name_bytes < 0 or not 0 < count <= PARTITIONS_MAX:
        return None
    topic = data[start:position].decode()
    offsets, position = _plain_offsets(data, position + _INT.size, count, version)
    if position != len(data):
        return None
    group_id = data[2 : 2 + length].decode()
    return SmallCommit(group_id, generation, member_id, instance_id, retention_ms, topic, offsets)


def _plain_offsets(data: bytes, position: int, count: int, version: int) -> tuple[list[SmallOffset], int]:
    offsets = []
    for _ in range(count):
        if version >= _LEADER_EPOCH_SINCE:
            index, offset, epoch, length = _OFFSET_WITH_EPOCH.unpack_from(data, position)
            position += _OFFSET_WITH_EPOCH.size
        else:
            index, offset, length = _OFFSET.unpack_from(data, position)
            epoch = -1
            position += _OFFSET.size
        metadata = None
        if length >= 0:
            metadata = data[position : position + length].decode()
            position += length
        offsets.append(SmallOffset(index, offset, epoch, metadata))
    return offsets, position


def _compact(data: bytes, version: int) -> SmallCommit | None:
    group_id, position = _compact_text(data, 0)
    (generation,) = _INT.unpack_from(data, position)
    member_id, position = _compact_text(data, position + _INT.size)
    instance_id, position = _compact_text(data, position)
    if data[position] != _ONE or group_id is None or member_id is None:
        return None
    position += 1
    topic: str | UUID | None
    if version >= _TOPIC_IDS_SINCE:
        raw = data[position : position + 16]
        if len(raw) != 16:
            return None
        topic = _uuids[raw]
        position += 16
    else:
        topic, position = _compact_text(data, position)
    count = data[position] - 1
    if topic is None or not 0 < count <= PARTITIONS_MAX:
        return None
    position += 1
    offsets = []
    for _ in range(count):
        index, offset, epoch = _COMPACT_OFFSET.unpack_from(data, position)
        metadata, position = _compact_text(data, position + _COMPACT_OFFSET.size)
        if data[position]:
            return None
        position += 1
        offsets.append(SmallOffset(index, offset, epoch, metadata))
    if data[position:] != b"\0\0":
        return None
    return SmallCommit(group_id, generation, member_id, instance_id, -1, topic, offsets)


def _compact_text(data: bytes, position: int) -> tuple[str | None, int]:
    """Returns a short text, or None for null, and the position behind it. Fault for a long one."""
    length = data[position]
    if length > _ONE_BYTE_MAX:
        raise Fault("a long text")
    start = position + 1
    if not length:
        return None, start
    stop = position + length
    if stop > len(data):
        raise Fault("a text reaches past the end")
    return data[start:stop].decode(), stop


def encode_committed(version: int, correlation_id: int, topic: str | UUID, indexes: list[int]) -> bytes:
    """Returns the response, with its size in front, that says that the offsets of all partitions were committed."""
    names = _around_names(version, topic, len(indexes))
    if version >= _FLEXIBLE_SINCE:
        tail = b"".join([_COMPACT_VERDICT.pack(index, 0, 0) for index in indexes]) + b"\0\0"
    else:
        tail = b"".join([_VERDICT.pack(index, 0) for index in indexes])
    return _SIZE_AND_CORRELATION.pack(4 + len(names) + len(tail), correlation_id) + names + tail


@lru_cache(_REMEMBERED)
def _around_names(version: int, topic: str | UUID, count: int) -> bytes:
    """Returns the bytes between the correlation id and the partitions. Only topics that exist come here, so names are short."""
    if version >= _FLEXIBLE_SINCE:
        text = topic.bytes if isinstance(topic, UUID) else uvarint(len(topic.encode()) + 1) + topic.encode()
        return bytes(5) + b"\2" + text + uvarint(count + 1)
    assert isinstance(topic, str)
    name = topic.encode()
    throttle = bytes(4) if version >= _THROTTLE_SINCE else b""
    return throttle + _TOPICS.pack(1, len(name)) + name + _INT.pack(count)

"""OffsetCommit requests for partitions of one topic, and their answers, read and written without messages.

Consumers commit one topic most of the time. As in `single_batch.py` the general codec has the meaning: it reads what this one
leaves, and writes every answer that refuses something. The test compares both on generated and on damaged frames.

A member commits the same partition again and again in a generation, and of its request only the end changes:
the bytes before the partition are cached.
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
_COMPACT_TAIL: Final = Layout(">ihBBB")
"""The only verdict, and two empty sections of tagged fields after it."""
_REMEMBERED: Final = 4096
_FRONT_BYTES_MAX: Final = 512
"""The longest front of a request that is remembered."""
_FRONTS_MAX: Final = 1024
_ONE_PARTITION: Final = b"\0\0\0\1"
"""The count of one partition."""
_NO_TEXTS: Final = {-1: None, 0: ""}
_COMPACT_END: Final = Layout(">iqiB3s")
"""The only partition, without metadata, and the end of the request: three empty sections of tagged fields."""
_NO_COMPACT_TEXTS: Final = {0: None, 1: ""}

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
    """Reads the request that starts at `position`, after the header, and ends with the frame; None for any
    other request, and for one that is damaged. `version` is one that brokers serve."""
    data = bytes(frame[position:])
    try:
        if version < _FLEXIBLE_SINCE:
            return _plain_repeated(data, version) or _plain(data, version)
        return _compact_repeated(data, version) or _compact(data, version)
    except _DAMAGES:
        return None


_DAMAGES: Final = (Fault, IndexError, struct.error, UnicodeDecodeError)


class _Front(NamedTuple):
    """A request up to its partitions."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    retention_ms: int
    topic: str | UUID
    partition_count: int
    size_bytes: int


def _plain_repeated(data: bytes, version: int) -> SmallCommit | None:
    """Reads a request for one partition without metadata; None for any other."""
    if version < _LEADER_EPOCH_SINCE:
        return None
    front_bytes = len(data) - _OFFSET_WITH_EPOCH.size
    if front_bytes > _FRONT_BYTES_MAX or data[front_bytes - 4 : front_bytes] != _ONE_PARTITION:
        return None
    front = _remembered_front(data[:front_bytes], version)
    if front is None:
        return None
    index, offset, epoch, text = _OFFSET_WITH_EPOCH.unpack_from(data, front_bytes)
    return _with_offset(front, index, offset, epoch, _NO_TEXTS[text]) if text in _NO_TEXTS else None


def _compact_repeated(data: bytes, version: int) -> SmallCommit | None:
    """Reads a request for one partition without metadata; None for any other."""
    front_bytes = len(data) - _COMPACT_END.size
    if not 0 < front_bytes <= _FRONT_BYTES_MAX or data[front_bytes - 1] != _ONE:
        return None
    front = _remembered_front(data[:front_bytes], version)
    if front is None:
        return None
    index, offset, epoch, text, tags = _COMPACT_END.unpack_from(data, front_bytes)
    if tags != b"\0\0\0" or text not in _NO_COMPACT_TEXTS:
        return None
    return _with_offset(front, index, offset, epoch, _NO_COMPACT_TEXTS[text])


def _with_offset(front: _Front, index: int, offset: int, epoch: int, metadata: str | None) -> SmallCommit:
    # Half the price of `SmallCommit(...)`, which is a function of Python.
    offsets = [tuple.__new__(SmallOffset, (index, offset, epoch, metadata))]
    return tuple.__new__(SmallCommit, (*front[:6], offsets))


@lru_cache(_FRONTS_MAX)
def _remembered_front(data: bytes, version: int) -> _Front | None:
    """Reads the front that takes all of `data` and announces one partition; None for anything else."""
    try:
        front = _plain_front(data, version) if version < _FLEXIBLE_SINCE else _compact_front(data, version)
    except _DAMAGES:
        return None
    return (
        front if front is not None and front.partition_count == 1 and front.size_bytes == len(data) else None
    )


def _plain_front(data: bytes, version: int) -> _Front | None:
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
    group_id = data[2 : 2 + length].decode()
    position += _INT.size
    return _Front(group_id, generation, member_id, instance_id, retention_ms, topic, count, position)


def _plain(data: bytes, version: int) -> SmallCommit | None:
    front = _plain_front(data, version)
    if front is None:
        return None
    offsets, position = _plain_offsets(data, front.size_bytes, front.partition_count, version)
    return SmallCommit(*front[:6], offsets) if position == len(data) else None


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


def _compact_front(data: bytes, version: int) -> _Front | None:
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
    return _Front(group_id, generation, member_id, instance_id, -1, topic, count, position + 1)


def _compact(data: bytes, version: int) -> SmallCommit | None:
    front = _compact_front(data, version)
    if front is None:
        return None
    position = front.size_bytes
    offsets = []
    for _ in range(front.partition_count):
        index, offset, epoch = _COMPACT_OFFSET.unpack_from(data, position)
        metadata, position = _compact_text(data, position + _COMPACT_OFFSET.size)
        if data[position]:
            return None
        position += 1
        offsets.append(SmallOffset(index, offset, epoch, metadata))
    return SmallCommit(*front[:6], offsets) if data[position:] == b"\0\0" else None


def _compact_text(data: bytes, position: int) -> tuple[str | None, int]:
    """Returns a short text, or None for null, and the position after it. Raises Fault for a long one."""
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
    """Returns the response, with its size in front, for a commit of all partitions' offsets."""
    names = _around_names(version, topic, len(indexes))
    if len(indexes) == 1:
        tail = (
            _COMPACT_TAIL.pack(indexes[0], 0, 0, 0, 0)
            if version >= _FLEXIBLE_SINCE
            else _VERDICT.pack(indexes[0], 0)
        )
    elif version >= _FLEXIBLE_SINCE:
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

"""Produce requests of a single batch, and their answers, read and written without messages.

A producer that does not wait for more records sends nothing else, and its request costs what is around the records, not the
records. A message of three objects, and another of three for the answer, were a quarter of it.

The general codec has the meaning. What this reader does not take, it leaves to that one: several topics or partitions, a
transactional id, unknown tagged fields, and whatever is damaged, for it refuses nothing itself. The codec's own test compares
both on generated and on damaged frames.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from struct import Struct as Layout
from typing import Final, NamedTuple
from uuid import UUID

from odradek.protocol.errors import Fault
from odradek.protocol.wire import UuidCache, read_uvarint, uvarint

_LOG_START_SINCE: Final = 5
_ERROR_TEXT_SINCE: Final = 8
_FLEXIBLE_SINCE: Final = 9
_TOPIC_IDS_SINCE: Final = 13

_START: Final = Layout(">hhiih")
"""The lengths and counts before version 9: of the transactional id, acks, timeout, topics, the name's length."""
_PARTITION: Final = Layout(">iii")
"""Partitions, index, the size of the records."""
_COMPACT_START: Final = Layout(">BhiBB")
_COMPACT_START_WITH_ID: Final = Layout(">BhiB16s")
_COMPACT_PARTITION: Final = Layout(">Bi")
_NO_TAGS: Final = b"\0\0\0"
"""The tagged fields of partition, topic and request: none."""
_ONE: Final = 2
"""One element, as a compact count."""
_ONE_BYTE_MAX: Final = 127

_SIZE_AND_CORRELATION: Final = Layout(">ii")
_PLAIN_TAIL: Final = Layout(">ihqqi")
_TAIL_WITH_LOG_START: Final = Layout(">ihqqqi")
_TAIL_WITH_ERROR_TEXT: Final = Layout(">ihqqqihi")
_COMPACT_TAIL: Final = Layout(">ihqqqBBBBiB")
_REMEMBERED_NAMES: Final = 4096

_uuids: Final = UuidCache()


class SingleBatch(NamedTuple):
    """A Produce request with one batch, for one partition."""

    acks: int
    timeout_ms: int
    topic: str | UUID
    """The topic's name; its id from version 13 on."""
    partition: int
    records: memoryview
    """A slice of the frame."""


def read_single_batch(frame: memoryview, position: int, version: int) -> SingleBatch | None:
    """Reads the request that starts at `position`, after the header, and ends with the frame; None for any
    other request, and for one that is damaged. `version` is one that brokers serve."""
    try:
        if version < _FLEXIBLE_SINCE:
            return _plain(frame, position)
        return _compact(frame, position, version)
    except (Fault, IndexError, struct.error, UnicodeDecodeError):
        return None


def _plain(frame: memoryview, position: int) -> SingleBatch | None:
    transactional, acks, timeout_ms, topics, name_bytes = _START.unpack_from(frame, position)
    if transactional >= 0 or topics != 1 or name_bytes < 0:
        return None
    start = position + _START.size
    stop = start + name_bytes
    partitions, index, size_bytes = _PARTITION.unpack_from(frame, stop)
    begin = stop + _PARTITION.size
    if partitions != 1 or size_bytes != len(frame) - begin:
        return None
    # At half the price of `SingleBatch(...)`, which is a function of Python.
    return tuple.__new__(
        SingleBatch, (acks, timeout_ms, str(frame[start:stop], "utf-8"), index, frame[begin:])
    )


def _compact(frame: memoryview, position: int, version: int) -> SingleBatch | None:
    topic: str | UUID
    if version < _TOPIC_IDS_SINCE:
        transactional, acks, timeout_ms, topics, length = _COMPACT_START.unpack_from(frame, position)
        start = position + _COMPACT_START.size
        stop = start + length - 1
        if not 0 < length <= _ONE_BYTE_MAX or stop > len(frame):
            return None
        topic = str(frame[start:stop], "utf-8")
    else:
        transactional, acks, timeout_ms, topics, raw = _COMPACT_START_WITH_ID.unpack_from(frame, position)
        stop = position + _COMPACT_START_WITH_ID.size
        topic = _uuids[raw]
    if transactional or topics != _ONE:
        return None
    partitions, index = _COMPACT_PARTITION.unpack_from(frame, stop)
    stored_bytes, begin = read_uvarint(frame, stop + _COMPACT_PARTITION.size)
    end = len(frame) - len(_NO_TAGS)
    if (
        not stored_bytes
        or partitions != _ONE
        or begin + stored_bytes - 1 != end
        or bytes(frame[end:]) != _NO_TAGS
    ):
        return None
    return tuple.__new__(SingleBatch, (acks, timeout_ms, topic, index, frame[begin:end]))


def encode_appended(
    version: int,
    correlation_id: int,
    topic: str | UUID,
    index: int,
    *,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> bytes:
    """Returns the response, with its size in front, for a batch that was appended."""
    names = _around_names(version, topic)
    if version >= _FLEXIBLE_SINCE:
        tail = _COMPACT_TAIL.pack(
            index, 0, base_offset, log_append_time_ms, log_start_offset, 1, 0, 0, 0, 0, 0
        )
    elif version >= _ERROR_TEXT_SINCE:
        tail = _TAIL_WITH_ERROR_TEXT.pack(
            index, 0, base_offset, log_append_time_ms, log_start_offset, 0, -1, 0
        )
    elif version >= _LOG_START_SINCE:
        tail = _TAIL_WITH_LOG_START.pack(index, 0, base_offset, log_append_time_ms, log_start_offset, 0)
    else:
        tail = _PLAIN_TAIL.pack(index, 0, base_offset, log_append_time_ms, 0)
    return _SIZE_AND_CORRELATION.pack(4 + len(names) + len(tail), correlation_id) + names + tail


@lru_cache(_REMEMBERED_NAMES)
def _around_names(version: int, topic: str | UUID) -> bytes:
    """Returns the bytes between the correlation id and the partition. Only topics that exist come here, so names are short."""
    if isinstance(topic, UUID):
        return b"\0\2" + topic.bytes + b"\2"
    name = topic.encode()
    if version >= _FLEXIBLE_SINCE:
        return b"\0\2" + uvarint(len(name) + 1) + name + b"\2"
    return struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", 1)

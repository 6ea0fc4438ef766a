"""Fetch requests of a follower for one partition of its session, and the leader's answers with records of it, without messages.

A follower that keeps up with a partition sends nothing else: one request for each answer, and one answer for each append. The
acknowledgement of the record waits for both. What is not exactly of this form is left to the codec.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final, NamedTuple
from uuid import UUID

from odradek.protocol.errors import Fault
from odradek.protocol.wire import UuidCache, read_uvarint, uvarint
from odradek.runtime.ports import Buffer

VERSION: Final = 18
"""The one version of Fetch in which brokers of this program ask each other."""

_REQUEST: Final = Layout(">iiibiiB16sBiiqiqi3sq6siqB")
_HIGH_WATERMARK: Final = b"\1\1\x08"
"""One tagged field of the partition: number 1, of eight bytes."""
_BEFORE_REPLICA: Final = b"\0\1\1\1\1\x0d"
"""No tagged fields of the topic, nothing forgotten, no rack; one tagged field of the request: number 1, of 13 bytes."""
_ONE: Final = 2
"""One element, as a compact count."""

_SIZE: Final = Layout(">i")
_HEAD: Final = Layout(">iBihiB16sBihqqqBi")
_TAIL: Final = b"\0\0\0"
"""The tagged fields of partition, topic and response: none."""
JOINED_BYTES_MAX: Final = 16 * 1024
"""The most bytes of records that are copied between the other parts of the answer."""

_uuids: Final = UuidCache()


class FollowerFetch(NamedTuple):
    """A follower's request for one partition, in the order of its fields on the wire."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    topic_id: UUID
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    high_watermark: int
    replica_id: int
    replica_epoch: int


def read_follower_fetch(frame: memoryview, position: int) -> FollowerFetch | None:
    """Reads the request of version 18 that starts at `position`, after the header, and ends with the frame; None for any other
    request."""
    if len(frame) - position != _REQUEST.size:
        return None
    (
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        topic_id,
        partitions,
        partition,
        current_leader_epoch,
        fetch_offset,
        last_fetched_epoch,
        log_start_offset,
        partition_max_bytes,
        partition_tags,
        high_watermark,
        before_replica,
        replica_id,
        replica_epoch,
        replica_tags,
    ) = _REQUEST.unpack_from(frame, position)
    if (
        topics != _ONE
        or partitions != _ONE
        or partition_tags != _HIGH_WATERMARK
        or before_replica != _BEFORE_REPLICA
        or isolation_level
        or replica_tags
    ):
        return None
    values = (
        max_wait_ms,
        min_bytes,
        max_bytes,
        session_id,
        session_epoch,
        _uuids[topic_id],
        partition,
        current_leader_epoch,
        fetch_offset,
        last_fetched_epoch,
        log_start_offset,
        partition_max_bytes,
        high_watermark,
        replica_id,
        replica_epoch,
    )
    return tuple.__new__(FollowerFetch, values)  # at half the price of `FollowerFetch(...)`


def encode_follower_fetch(fetch: FollowerFetch) -> bytes:
    """Returns the body of the request of version 18."""
    (
        max_wait_ms,
        min_bytes,
        max_bytes,
        session_id,
        session_epoch,
        topic_id,
        partition,
        current_leader_epoch,
        fetch_offset,
        last_fetched_epoch,
        log_start_offset,
        partition_max_bytes,
        high_watermark,
        replica_id,
        replica_epoch,
    ) = fetch
    return _REQUEST.pack(
        max_wait_ms,
        min_bytes,
        max_bytes,
        0,  # isolation level
        session_id,
        session_epoch,
        _ONE,
        topic_id.bytes,
        _ONE,
        partition,
        current_leader_epoch,
        fetch_offset,
        last_fetched_epoch,
        log_start_offset,
        partition_max_bytes,
        _HIGH_WATERMARK,
        high_watermark,
        _BEFORE_REPLICA,
        replica_id,
        replica_epoch,
        0,  # tagged fields of the replica
    )


class Fetched(NamedTuple):
    """An answer with records of one partition, and nothing else."""

    session_id: int
    topic_id: UUID
    partition: int
    high_watermark: int
    log_start_offset: int
    records: memoryview
    """A slice of the frame."""


def read_fetched(frame: memoryview) -> Fetched | None:
    """Reads an answer of version 18, from the correlation id on; None for any other answer, and for a damaged one."""
    end = len(frame) - len(_TAIL)
    if end <= _HEAD.size:
        return None
    (
        _,
        header_tags,
        throttle_time_ms,
        error_code,
        session_id,
        topics,
        topic_id,
        partitions,
        partition,
        partition_error_code,
        high_watermark,
        _,
        log_start_offset,
        aborted,
        preferred,
    ) = _HEAD.unpack_from(frame)
    if (
        topics != _ONE
        or partitions != _ONE
        or preferred != -1
        or header_tags
        or throttle_time_ms
        or error_code
        or partition_error_code
        or aborted
    ):
        return None
    try:
        length, start = read_uvarint(frame, _HEAD.size)
    except (Fault, IndexError):
        return None
    if length < _ONE or start + length - 1 != end or bytes(frame[end:]) != _TAIL:
        return None
    values = (session_id, _uuids[topic_id], partition, high_watermark, log_start_offset, frame[start:end])
    return tuple.__new__(Fetched, values)


def encode_fetched(
    correlation_id: int,
    session_id: int,
    topic_id: UUID,
    partition: int,
    *,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    records: Buffer,
    is_joined: bool,
) -> list[Buffer]:
    """Returns the answer of version 18, with its size in front, that has these records of the partition. If `is_joined`, it is
    in one piece; else the records are a piece of their own, and only the kernel reads them."""
    records_bytes = len(records)
    length = uvarint(records_bytes + 1)
    head = _HEAD.pack(
        correlation_id,
        0,  # tagged fields of the header
        0,
        0,
        session_id,
        _ONE,
        topic_id.bytes,
        _ONE,
        partition,
        0,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        0,  # null: no list of aborted transactions
        -1,
    )
    size = _SIZE.pack(_HEAD.size + len(length) + records_bytes + len(_TAIL))
    if is_joined:
        return [b"".join((size, head, length, records, _TAIL))]
    return [size + head + length, records, _TAIL]

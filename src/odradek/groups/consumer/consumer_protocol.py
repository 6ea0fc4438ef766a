"""The subscriptions and assignments of the classic protocol, in bytes that only its members and this file read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from odradek.groups.shard.machine import ClusterTopics
from odradek.protocol import decode, encode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.groups.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

PROTOCOL_TYPE = "consumer"
_VERSION_BYTES = 2
_NEWEST = 3


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Raises MalformedMessage."""
    return decode(ConsumerProtocolSubscription, _version(metadata), metadata, _VERSION_BYTES)[0]


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Raises MalformedMessage. No bytes at all are no assignment."""
    if not data:
        return ConsumerProtocolAssignment()
    return decode(ConsumerProtocolAssignment, _version(data), data, _VERSION_BYTES)[0]


def assignment_bytes(holding: Mapping[UUID, Iterable[int]], topics: ClusterTopics, metadata: bytes) -> bytes:
    """Encodes a member's assignment, in the version of its own metadata. Deleted topics have no name and are left out."""
    named = sorted((name, topic) for topic in holding if (name := topics.topic_name(topic)) is not None)
    version = _version(metadata)
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedPartitions(topic=name, partitions=sorted(holding[topic])) for name, topic in named
        ]
    )
    return version.to_bytes(_VERSION_BYTES, "big") + encode(assignment, version)


def by_topic_id(partitions: Mapping[str, Iterable[int]], topics: ClusterTopics) -> dict[UUID, set[int]]:
    """Returns the partitions by topic id, without topics that do not exist."""
    by_id: dict[UUID, set[int]] = {}
    for name, numbers in partitions.items():
        topic_id = topics.topic_id(name)
        if topic_id is not None and (parts := set(numbers)):
            by_id[topic_id] = parts
    return by_id


def _version(data: bytes) -> int:
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True) if len(data) >= _VERSION_BYTES else -1
    if version < 0:
        raise MalformedMessage("the version of a consumer's metadata is missing")
    return min(version, _NEWEST)

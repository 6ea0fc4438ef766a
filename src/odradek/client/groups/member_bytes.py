"""The bytes that members of a classic group tell each other: subscriptions, assignments, and what sticky assignors
keep in them. The same as Kafka's own clients write and read, so that groups may be mixed.

Each begins with an int16, the version. A newer version than we know is read as the newest that we do know.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.client.groups.values import NO_GENERATION, Partitions
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol import Buffer, decode, encode
from odradek.protocol.messages.groups.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
)

PROTOCOL_TYPE: Final = "consumer"
_VERSION: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NEWEST: Final = 3
_ASSIGNMENT_VERSION: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """The subscription that one member sends to the others."""

    topics: tuple[str, ...] = ()
    owned: Partitions = ()
    generation: int = NO_GENERATION
    user_data: bytes | None = None
    rack_id: str | None = None
    version: int = _NEWEST


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Returns the partition numbers of each topic, both sorted."""
    grouped: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        grouped.setdefault(tp.topic, []).append(tp.partition)
    return grouped


def write_subscription(member_subscription: MemberSubscription) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=sorted(member_subscription.topics),
        user_data=member_subscription.user_data,
        owned_partitions=[
            OwnedPartitions(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(member_subscription.owned).items()
        ],
        generation_id=member_subscription.generation,
        rack_id=member_subscription.rack_id,
    )
    return _VERSION.pack(member_subscription.version) + encode(message, member_subscription.version)


def read_subscription(content: Buffer) -> MemberSubscription:
    """Reads a subscription. Raises INVALID_REQUEST (in words) when the bytes make no sense."""
    version, position = _version(content)
    subscription, _ = decode(ConsumerProtocolSubscription, version, content, position)
    return MemberSubscription(
        topics=tuple(subscription.topics),
        owned=tuple(
            TopicPartition(owned_partition.topic, number)
            for owned_partition in subscription.owned_partitions
            for number in owned_partition.partitions
        ),
        generation=subscription.generation_id,
        user_data=None if subscription.user_data is None else bytes(subscription.user_data),
        rack_id=subscription.rack_id,
        version=version,
    )


def write_assignment(partitions: Iterable[TopicPartition], user_data: bytes | None = None) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedPartitions(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ],
        user_data=user_data,
    )
    return _VERSION.pack(_ASSIGNMENT_VERSION) + encode(message, _ASSIGNMENT_VERSION)


def read_assignment(content: Buffer) -> Partitions:
    """Empty bytes, which a leader may hand to a member without partitions, are an empty assignment."""
    if not content:
        return ()
    version, position = _version(content)
    assignment, _ = decode(ConsumerProtocolAssignment, version, content, position)
    return tuple(
        TopicPartition(assigned_partition.topic, number)
        for assigned_partition in assignment.assigned_partitions
        for number in assigned_partition.partitions
    )


def write_sticky_data(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """Writes what `sticky` keeps in a subscription: the member's partitions and their generation."""
    content = bytearray()
    grouped: Mapping[str, list[int]] = by_topic(owned)
    content += _INT32.pack(len(grouped))
    for topic, numbers in grouped.items():
        name = topic.encode()
        content += _VERSION.pack(len(name)) + name + _INT32.pack(len(numbers))
        content += b"".join(_INT32.pack(number) for number in numbers)
    return bytes(content + _INT32.pack(generation))


def read_sticky_data(content: bytes | None) -> tuple[Partitions, int]:
    """Returns (owned partitions, generation) from a member's user data; nothing where it sent none that can be read."""
    if not content:
        return (), NO_GENERATION
    owned: list[TopicPartition] = []
    try:
        (topic_count,) = _INT32.unpack_from(content, 0)
        position = _INT32.size
        for _ in range(topic_count):
            (length,) = _VERSION.unpack_from(content, position)
            position += _VERSION.size
            topic = content[position : position + length].decode()
            position += length
            (count,) = _INT32.unpack_from(content, position)
            position += _INT32.size
            numbers = struct.unpack_from(f">{count}i", content, position) if count > 0 else ()
            position += _INT32.size * len(numbers)
            owned += [TopicPartition(topic, number) for number in numbers]
        generation = _INT32.unpack_from(content, position)[0] if position < len(content) else NO_GENERATION
    except (struct.error, UnicodeDecodeError):
        return (), NO_GENERATION
    return tuple(owned), generation


def write_generation(generation: int) -> bytes:
    """Writes what `cooperative-sticky` keeps in a subscription, for members that read no newer version than 1."""
    return _INT32.pack(generation)


def read_generation(content: bytes | None) -> int:
    return _INT32.unpack(content)[0] if content is not None and len(content) == _INT32.size else NO_GENERATION


def _version(content: Buffer) -> tuple[int, int]:
    if len(content) < _VERSION.size:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a member of the group sent metadata without a version")
    (version,) = _VERSION.unpack_from(content)
    if version < 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"a member of the group sent metadata of version {version}"
        )
    return min(version, _NEWEST), _VERSION.size

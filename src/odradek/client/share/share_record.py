"""A record as a share consumer returns it, and the names of its partition and of the session that acquired it."""

from __future__ import annotations

from typing import Generic, NamedTuple
from uuid import UUID

from odradek.client.consumer.consumer_record import K, V
from odradek.model.ids import TopicPartition
from odradek.model.public import public
from odradek.records import Header, TimestampType


@public("odradek")
class ShareRecord(NamedTuple, Generic[K, V]):
    """A record, its offset, and how often it was delivered.

    `delivery_count` is 1 at the first delivery; the group's setting share.delivery.count.limit is the
    highest. The other fields are the same as in a `ConsumerRecord`.

    `K` and `V` are what the deserializers return, `bytes` without one: type checkers know it, and Python ignores it.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Milliseconds since 1970; -1 where the producer set none."""
    timestamp_type: TimestampType
    key: K | None
    """bytes or None, or what the key_deserializer returned for it."""
    value: V | None
    """bytes or None, or what the value_deserializer returned for it."""
    headers: tuple[Header, ...]
    leader_epoch: int
    """-1 where the broker does not say."""
    delivery_count: int
    """1 at the first delivery; the group's setting share.delivery.count.limit is the highest."""


class SharePartitionId(NamedTuple):
    """A partition of a topic that may be deleted and created again: the id identifies the topic."""

    topic: str
    topic_id: UUID
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ShareSource(NamedTuple):
    """The share session that acquired records. They can be acknowledged in no other one."""

    broker: int
    incarnation: int
    """The number of sessions with this broker before it."""

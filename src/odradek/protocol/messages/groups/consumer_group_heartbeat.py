"""ConsumerGroupHeartbeat (key 68): join, stay in, reconcile with and leave a consumer group (KIP-848).

One request carries all of a member's state: what it subscribes to, what it owns. In the epoch, 0 joins, -1 leaves,
-2 is a static member's absence for a while. Fields that did not change since the last heartbeat may be left null;
the answer's assignment is null while there is nothing new.

Versions
     1  subscription by a regular expression, which the broker resolves; the member id comes from the member (KIP-1082)
"""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import Message, Struct, array, int16, int32, string, struct, uuid


class TopicPartitions(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[int] = array(int32, "0+")


class ConsumerGroupHeartbeatRequest(Message, api=68, versions="0-1", flexible="0+"):
    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = int32("0+", default=-1)
    subscribed_topic_names: list[str] | None = array(string, "0+", nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string("0+", nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, "0+", nullable="0+", default=None)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")


class ConsumerGroupHeartbeatResponse(Message, api=68, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: Assignment | None = struct(Assignment, "0+", nullable="0+", default=None)

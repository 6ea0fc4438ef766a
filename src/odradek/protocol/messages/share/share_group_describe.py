"""ShareGroupDescribe (key 77): state, assignment and members of share groups (KIP-932).

Version 0 was early access and was removed."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import (
    INT32_MIN,
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    string,
    struct,
    uuid,
)


class ShareGroupDescribeRequest(Message, api=77, versions="1", flexible="0+"):
    group_ids: list[str] = array(string, "0+")
    include_authorized_operations: bool = boolean("0+")


class TopicPartitions(Struct):
    topic_id: UUID = uuid("0+")
    topic_name: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")


class Member(Struct):
    member_id: str = string("0+")
    rack_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(string, "0+")
    assignment: Assignment = struct(Assignment, "0+")


class DescribedGroup(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    assignor_name: str = string("0+")
    members: list[Member] = array(Member, "0+")
    authorized_operations: int = int32("0+", default=INT32_MIN)


class ShareGroupDescribeResponse(Message, api=77, versions="1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")

"""OffsetCommit (key 8): store how far a consumer group has read.

Versions
     2  a retention time for the commit
     3  response: throttle time
     4  quota violations are answered first and throttled afterwards (KIP-219)
     5  no retention time any more: it is the broker's setting (KIP-211)
     6  leader epoch of the record read last (KIP-320)
     7  static members (KIP-345)
     8  flexible
     9  members of groups of the new protocol commit with their member epoch; STALE_MEMBER_EPOCH,
     GROUP_ID_NOT_FOUND
        (KIP-848)
    10  topic ids in place of names (KIP-848)

0 and 1 (offsets kept in ZooKeeper, commit timestamps) were removed in 4.0.
"""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import Message, Struct, array, int16, int32, int64, string, uuid


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = string("0-9", ignorable=True)
    topic_id: UUID = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition, "0+")


class OffsetCommitRequest(Message, api=8, versions="2-10", flexible="8+"):
    group_id: str = string("0+")
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic, "0+")


class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class OffsetCommitResponseTopic(Struct):
    name: str = string("0-9", ignorable=True)
    topic_id: UUID = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition, "0+")


class OffsetCommitResponse(Message, api=8, versions="2-10", flexible="8+"):
    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic, "0+")

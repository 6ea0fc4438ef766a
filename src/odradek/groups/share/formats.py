"""The records of a share group in `__consumer_offsets`, in the versions that Kafka 4.3 writes.

10  a member: what it is and what it subscribes to
11  the group: its epoch, and a hash of the topics it reads
12  the target assignment: its epoch, and when it was worked out
13  the target assignment of one member
14  the current assignment of one member
15  the partitions whose progress is kept in `__share_group_state`
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from odradek.groups.modern.records import GroupRecord, GroupRecords
from odradek.protocol import Message, Struct
from odradek.protocol.schema import array, int8, int32, int64, string, uuid


class ShareMemberKey(Message, versions="10", flexible="none"):
    group_id: str = string("10+")
    member_id: str = string("10+")


class ShareMemberValue(Message, versions="0", flexible="0+"):
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(string, "0+")


class ShareGroupKey(Message, versions="11", flexible="none"):
    group_id: str = string("11+")


class ShareGroupValue(Message, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+")


class ShareTargetKey(Message, versions="12", flexible="none"):
    group_id: str = string("12+")


class ShareTargetValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", default=0, tag=0, ignorable=True)


class Partitions(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[int] = array(int32, "0+")


class ShareTargetMemberKey(Message, versions="13", flexible="none"):
    group_id: str = string("13+")
    member_id: str = string("13+")


class ShareTargetMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[Partitions] = array(Partitions, "0+")


class ShareCurrentKey(Message, versions="14", flexible="none"):
    group_id: str = string("14+")
    member_id: str = string("14+")


class ShareCurrentValue(Message, versions="0", flexible="0+"):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: list[Partitions] = array(Partitions, "0+")


class StatePartitionsKey(Message, versions="15", flexible="none"):
    group_id: str = string("15+")


class TopicPartitionsInfo(Struct):
    topic_id: UUID = uuid("0+")
    topic_name: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class TopicInfo(Struct):
    topic_id: UUID = uuid("0+")
    topic_name: str = string("0+")


class StatePartitionsValue(Message, versions="0", flexible="0+"):
    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo, "0+")
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo, "0+")
    deleting_topics: list[TopicInfo] = array(TopicInfo, "0+")


Key = (
    ShareMemberKey
    | ShareGroupKey
    | ShareTargetKey
    | ShareTargetMemberKey
    | ShareCurrentKey
    | StatePartitionsKey
)
Value = (
    ShareMemberValue
    | ShareGroupValue
    | ShareTargetValue
    | ShareTargetMemberValue
    | ShareCurrentValue
    | StatePartitionsValue
)

RECORDS: Final = GroupRecords[Key, Value](
    {
        ShareMemberKey: ShareMemberValue,
        ShareGroupKey: ShareGroupValue,
        ShareTargetKey: ShareTargetValue,
        ShareTargetMemberKey: ShareTargetMemberValue,
        ShareCurrentKey: ShareCurrentValue,
        StatePartitionsKey: StatePartitionsValue,
    }
)
ShareGroupRecord = GroupRecord[Key, Value]

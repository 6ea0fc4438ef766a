"""The records of a consumer group in `__consumer_offsets`, in the versions that Kafka 4.3 writes.

3   the group: its epoch, and a hash of the topics it reads
4   the topics' partition counts, as Kafka 4.0 kept them: only ever deleted
5   a member: what it is and what it subscribes to
6   the target assignment: its epoch, and when it was worked out
7   the target assignment of one member
8   the current assignment of one member: what it has, and what it has still to give back
16  a regular expression, and the topics that it named when it was last looked at
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from odradek.groups.modern.records import GroupRecord, GroupRecords
from odradek.protocol import Message, Struct
from odradek.protocol.schema import array, bytestring, int8, int32, int64, string, struct, uuid


class GroupKey(Message, versions="3", flexible="none"):
    group_id: str = string("3+")


class GroupValue(Message, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+", default=0, tag=0)


class PartitionMetadataKey(Message, versions="4", flexible="none"):
    group_id: str = string("4+")


class PartitionRacks(Struct):
    partition: int = int32("0+")
    racks: list[str] = array(string, "0+")


class TopicMetadata(Struct):
    topic_id: UUID = uuid("0+")
    topic_name: str = string("0+")
    num_partitions: int = int32("0+")
    partition_metadata: list[PartitionRacks] = array(PartitionRacks, "0+")


class PartitionMetadataValue(Message, versions="0", flexible="0+"):
    topics: list[TopicMetadata] = array(TopicMetadata, "0+")


class MemberKey(Message, versions="5", flexible="none"):
    group_id: str = string("5+")
    member_id: str = string("5+")


class ClassicProtocol(Struct):
    name: str = string("0+")
    metadata: bytes = bytestring("0+")


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32("0+")
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol, "0+")


class MemberValue(Message, versions="0", flexible="0+"):
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(string, "0+")
    subscribed_topic_regex: str | None = string("0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = int32("0+", default=-1)
    server_assignor: str | None = string("0+", nullable="0+", default=None)
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, "0+", nullable="0+", tag=0
    )
    """Kafka takes an empty one, not null, for what is left out; so null is always written, as it does itself."""


class TargetKey(Message, versions="6", flexible="none"):
    group_id: str = string("6+")


class TargetValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", default=0, tag=0, ignorable=True)


class TargetMemberKey(Message, versions="7", flexible="none"):
    group_id: str = string("7+")
    member_id: str = string("7+")


class TargetPartitions(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[int] = array(int32, "0+")


class TargetMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TargetPartitions] = array(TargetPartitions, "0+")


class CurrentKey(Message, versions="8", flexible="none"):
    group_id: str = string("8+")
    member_id: str = string("8+")


class CurrentPartitions(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[int] = array(int32, "0+")
    assignment_epochs: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=0)


class CurrentValue(Message, versions="0", flexible="0+"):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: list[CurrentPartitions] = array(CurrentPartitions, "0+")
    partitions_pending_revocation: list[CurrentPartitions] = array(CurrentPartitions, "0+")


class RegexKey(Message, versions="16", flexible="none"):
    group_id: str = string("16+")
    regular_expression: str = string("16+")


class RegexValue(Message, versions="0", flexible="0+"):
    topics: list[str] = array(string, "0+")
    version: int = int64("0+")
    timestamp: int = int64("0+")


Key = GroupKey | PartitionMetadataKey | MemberKey | TargetKey | TargetMemberKey | CurrentKey | RegexKey
Value = (
    GroupValue
    | PartitionMetadataValue
    | MemberValue
    | TargetValue
    | TargetMemberValue
    | CurrentValue
    | RegexValue
)

RECORDS: Final = GroupRecords[Key, Value](
    {
        GroupKey: GroupValue,
        PartitionMetadataKey: PartitionMetadataValue,
        MemberKey: MemberValue,
        TargetKey: TargetValue,
        TargetMemberKey: TargetMemberValue,
        CurrentKey: CurrentValue,
        RegexKey: RegexValue,
    }
)
ConsumerGroupRecord = GroupRecord[Key, Value]

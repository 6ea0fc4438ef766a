"""The records of a streams group in `__consumer_offsets`, in the versions that Kafka 4.4 writes.

17  the group: its epoch, a hash of the topics that it needs, the topology epoch that was valid with them
19  a member: its process, its endpoint, its topology epoch
20  the target assignment: its epoch, and when it was worked out
21  the target assignment of one member
22  the current assignment of one member
23  the topology
"""

from __future__ import annotations

from typing import Final

from odradek.groups.modern.records import GroupRecord, GroupRecords
from odradek.protocol import Message, Struct
from odradek.protocol.schema import array, int8, int16, int32, int64, string, struct, uint16


class StreamsGroupKey(Message, versions="17", flexible="none"):
    group_id: str = string("17+")


class LastAssignmentConfig(Struct):
    key: str = string("0+")
    value: str = string("0+")


class StreamsGroupValue(Message, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+")
    validated_topology_epoch: int = int32("0+", default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = array(
        LastAssignmentConfig, "0+", nullable="0+", tag=1
    )
    stored_description_topology_epoch: int = int32("0+", default=-1, tag=2)
    failed_description_topology_epoch: int = int32("0+", default=-1, tag=3)


class StreamsMemberKey(Message, versions="19", flexible="none"):
    group_id: str = string("19+")
    member_id: str = string("19+")


class MemberEndpoint(Struct):
    host: str = string("0+")
    port: int = uint16("0+")


class ClientTag(Struct):
    key: str = string("0+")
    value: str = string("0+")


class StreamsMemberValue(Message, versions="0", flexible="0+"):
    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    topology_epoch: int = int32("0+")
    process_id: str = string("0+")
    user_endpoint: MemberEndpoint | None = struct(MemberEndpoint, "0+", nullable="0+", default=None)
    client_tags: list[ClientTag] = array(ClientTag, "0+")


class StreamsTargetKey(Message, versions="20", flexible="none"):
    group_id: str = string("20+")


class StreamsTargetValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", default=0, tag=0, ignorable=True)


class StreamsTargetMemberKey(Message, versions="21", flexible="none"):
    group_id: str = string("21+")
    member_id: str = string("21+")


class TargetTaskIds(Struct):
    subtopology_id: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class StreamsTargetMemberValue(Message, versions="0", flexible="0+"):
    active_tasks: list[TargetTaskIds] = array(TargetTaskIds, "0+")
    standby_tasks: list[TargetTaskIds] = array(TargetTaskIds, "0+")
    warmup_tasks: list[TargetTaskIds] = array(TargetTaskIds, "0+")


class StreamsCurrentKey(Message, versions="22", flexible="none"):
    group_id: str = string("22+")
    member_id: str = string("22+")


class CurrentTaskIds(Struct):
    """TaskAssignment of one subtopology; active ones with the epoch in which each was assigned."""

    subtopology_id: str = string("0+")
    partitions: list[int] = array(int32, "0+")
    assignment_epochs: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=0)


class StreamsCurrentValue(Message, versions="0", flexible="0+"):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    active_tasks: list[CurrentTaskIds] = array(CurrentTaskIds, "0+")
    standby_tasks: list[CurrentTaskIds] = array(CurrentTaskIds, "0+")
    warmup_tasks: list[CurrentTaskIds] = array(CurrentTaskIds, "0+")
    active_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds, "0+")
    standby_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds, "0+")
    warmup_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds, "0+")


class StreamsTopologyKey(Message, versions="23", flexible="none"):
    group_id: str = string("23+")


class StoredTopicConfig(Struct):
    key: str = string("0+")
    value: str = string("0+")


class StoredTopicInfo(Struct):
    name: str = string("0+")
    partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    topic_configs: list[StoredTopicConfig] = array(StoredTopicConfig, "0+")


class StoredCopartitionGroup(Struct):
    """Topics with equal partition counts, as indexes into the arrays of their subtopology."""

    source_topics: list[int] = array(int16, "0+")
    source_topic_regex: list[int] = array(int16, "0+")
    repartition_source_topics: list[int] = array(int16, "0+")


class StoredSubtopology(Struct):
    subtopology_id: str = string("0+")
    source_topics: list[str] = array(string, "0+")
    source_topic_regex: list[str] = array(string, "0+")
    state_changelog_topics: list[StoredTopicInfo] = array(StoredTopicInfo, "0+")
    repartition_sink_topics: list[str] = array(string, "0+")
    repartition_source_topics: list[StoredTopicInfo] = array(StoredTopicInfo, "0+")
    copartition_groups: list[StoredCopartitionGroup] = array(StoredCopartitionGroup, "0+")


class StreamsTopologyValue(Message, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    subtopologies: list[StoredSubtopology] = array(StoredSubtopology, "0+")


Key = (
    StreamsGroupKey
    | StreamsMemberKey
    | StreamsTargetKey
    | StreamsTargetMemberKey
    | StreamsCurrentKey
    | StreamsTopologyKey
)
Value = (
    StreamsGroupValue
    | StreamsMemberValue
    | StreamsTargetValue
    | StreamsTargetMemberValue
    | StreamsCurrentValue
    | StreamsTopologyValue
)

RECORDS: Final = GroupRecords[Key, Value](
    {
        StreamsGroupKey: StreamsGroupValue,
        StreamsMemberKey: StreamsMemberValue,
        StreamsTargetKey: StreamsTargetValue,
        StreamsTargetMemberKey: StreamsTargetMemberValue,
        StreamsCurrentKey: StreamsCurrentValue,
        StreamsTopologyKey: StreamsTopologyValue,
    }
)
StreamsGroupRecord = GroupRecord[Key, Value]

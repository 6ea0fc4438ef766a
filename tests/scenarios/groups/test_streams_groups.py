"""Streams groups (KIP-1071) over the wire: internal topics, tasks, offsets in epochs, administration, rights, a restart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.cluster.image import NO_ACLS
from odradek.model.errors import ErrorCode
from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek.protocol.messages.cluster.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.messages.groups.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.groups.list_groups import ListGroupsRequest
from odradek.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.groups.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.protocol.messages.groups.streams_group_describe import StreamsGroupDescribeRequest
from odradek.protocol.messages.groups.streams_group_heartbeat import (
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from odradek.protocol.messages.groups.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest
from odradek.security.acls import Acl, AclPattern

SETTINGS = {
    "offsets_topic_num_partitions": "2",
    "group_streams_assignment_interval_ms": "0",
    "group_streams_initial_rebalance_delay_ms": "0",
    "group_streams_min_session_timeout_ms": "1000",
}
MISSING_INTERNAL_TOPICS = 3


def internal(name: str, **fields: Any) -> TopicInfo:
    return TopicInfo(name=name, **fields)


def counting() -> Topology:
    """Counts words: a repartition topic, and a changelog with a setting of its own."""
    changelog = internal("g-log", topic_configs=[KeyValue(key="cleanup.policy", value="compact")])
    return Topology(
        epoch=0,
        subtopologies=[
            Subtopology(subtopology_id="0", source_topics=["t"], repartition_sink_topics=["g-repart"]),
            Subtopology(
                subtopology_id="1",
                repartition_source_topics=[internal("g-repart")],
                state_changelog_topics=[changelog],
            ),
        ],
    )


class Member:
    """A member of the group `g` that does at once what the coordinator asks."""

    def __init__(self, wire: Any, member_id: str, version: int = 1) -> None:
        self.wire = wire
        self.member_id = member_id
        self.version = version
        self.epoch = 0
        self.has: list[TaskIds] = []

    async def join(self, topology: Topology | None = None, **said: Any) -> Any:
        self.epoch, self.has = 0, []
        return await self.beat(
            rebalance_timeout_ms=60_000,
            topology=topology or counting(),
            process_id=self.member_id,
            **said,
        )

    async def beat(self, **said: Any) -> Any:
        request = StreamsGroupHeartbeatRequest(
            group_id="g",
            member_id=self.member_id,
            member_epoch=self.epoch,
            active_tasks=self.has,
            standby_tasks=[],
            warmup_tasks=[],
        ).replace(**said)
        response = await self.wire.ask(request, self.version)
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            if response.active_tasks is not None:
                self.has = response.active_tasks
        return response

    @property
    def tasks(self) -> dict[str, list[int]]:
        return {tasks.subtopology_id: tasks.partitions for tasks in self.has}


async def settled(*members: Member) -> None:
    """Everyone sends heartbeats until nothing changes any more, and no one waits for topics."""
    for _ in range(200):
        before = [(member.epoch, member.tasks) for member in members]
        responses = [await member.beat() for member in members]
        assert {response.error_code for response in responses} == {ErrorCode.NONE}, responses
        is_ready = not any(response.status for response in responses)
        if is_ready and before == [(member.epoch, member.tasks) for member in members]:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the group does not come to rest")


async def describe(wire: Any, version: int = 1, **more: Any) -> Any:
    request = StreamsGroupDescribeRequest(group_ids=["g"], **more)
    return (await wire.ask(request, version)).groups[0]


async def commit(wire: Any, member: Member, *, epoch: int | None = None, topic: str = "t") -> ErrorCode:
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=member.epoch if epoch is None else epoch,
        member_id=member.member_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=5)],
            )
        ],
    )
    response = await wire.ask(request, 9)
    return ErrorCode.of(response.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("version", [0, 1])
async def test_two_members_share_the_tasks_once_the_broker_has_made_the_internal_topics(
    scene: Any, version: int
) -> None:
    await scene.start(**SETTINGS)
    wire = await scene.connect()
    await wire.create("t", partitions=3)
    await wire.find_coordinator("g")
    anne, bert = Member(wire, "anne", version), Member(wire, "bert", version)
    joined = await anne.join()
    assert joined.error_code == ErrorCode.NONE, joined
    assert [status.status_code for status in joined.status] == [MISSING_INTERNAL_TOPICS]
    assert (joined.heartbeat_interval_ms, joined.task_offset_interval_ms) == (5_000, 60_000)
    lag = joined.acceptable_recovery_lag_legacy if version == 0 else joined.acceptable_recovery_lag
    assert lag == 10_000
    await bert.join()
    await settled(anne, bert)
    assert sorted(anne.tasks.get("0", []) + bert.tasks.get("0", [])) == [0, 1, 2]
    assert sorted(anne.tasks.get("1", []) + bert.tasks.get("1", [])) == [0, 1, 2]
    topics = (await wire.ask(MetadataRequest(topics=None), 12)).topics
    counts = {topic.name: len(topic.partitions) for topic in topics if topic.name.startswith("g-")}
    assert counts == {"g-repart": 3, "g-log": 3}
    left = await bert.beat(member_epoch=-1)
    assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)
    await settled(anne)
    assert anne.tasks == {"0": [0, 1, 2], "1": [0, 1, 2]}


async def test_a_group_is_described_listed_and_deleted(scene: Any) -> None:
    await scene.start(**SETTINGS)
    wire = await scene.connect()
    await wire.create("t", partitions=2)
    await wire.find_coordinator("g")
    anne = Member(wire, "anne")
    await anne.join(client_tags=[KeyValue(key="zone", value="a")], rack_id="r1")
    await settled(anne)
    group = await describe(wire, include_authorized_operations=True, include_topology_description=True)
    assert (group.error_code, group.group_state, group.assignor_name) == (ErrorCode.NONE, "Stable", "sticky")
    assert group.group_epoch == group.assignment_epoch == anne.epoch
    assert (group.topology_description, group.topology_description_status) == (None, 1)
    assert group.authorized_operations > 0
    (member,) = group.members
    assert (member.member_id, member.rack_id, member.process_id) == ("anne", "r1", "anne")
    assert [(tag.key, tag.value) for tag in member.client_tags] == [("zone", "a")]
    assert [(tasks.subtopology_id, tasks.partitions) for tasks in member.assignment.active_tasks] == [
        ("0", [0, 1]),
        ("1", [0, 1]),
    ]
    assert member.assignment == member.target_assignment
    first, second = group.topology.subtopologies
    assert (first.source_topics, first.repartition_sink_topics) == (["t"], ["g-repart"])
    assert [(topic.name, topic.partitions) for topic in second.state_changelog_topics] == [("g-log", 2)]
    older = await describe(wire, 0)
    assert older.members == group.members
    listed = (await wire.ask(ListGroupsRequest(types_filter=["streams"]), 5)).groups
    assert [(entry.group_id, entry.group_state, entry.group_type) for entry in listed] == [
        ("g", "Stable", "streams")
    ]
    other = await wire.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1)
    assert other.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    refused = await wire.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
    assert refused.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    await anne.beat(member_epoch=-1)
    deleted = await wire.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
    assert deleted.results[0].error_code == ErrorCode.NONE
    assert (await describe(wire)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    unnamed = await wire.ask(StreamsGroupDescribeRequest(group_ids=[""]), 1)
    assert unnamed.groups[0].error_code == ErrorCode.INVALID_GROUP_ID


async def test_offsets_are_committed_and_read_in_the_epoch_of_a_member(scene: Any) -> None:
    await scene.start(**SETTINGS)
    wire = await scene.connect()
    await wire.create("t", partitions=2)
    await wire.find_coordinator("g")
    anne = Member(wire, "anne")
    await anne.join()
    await settled(anne)
    assert await commit(wire, anne) is ErrorCode.NONE
    assert await commit(wire, anne, epoch=anne.epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert await commit(wire, Member(wire, "nobody"), epoch=1) is ErrorCode.UNKNOWN_MEMBER_ID
    for epoch, code in ((anne.epoch, ErrorCode.NONE), (anne.epoch + 1, ErrorCode.STALE_MEMBER_EPOCH)):
        group = OffsetFetchRequestGroup(group_id="g", member_id="anne", member_epoch=epoch, topics=None)
        response = await wire.ask(OffsetFetchRequest(groups=[group]), 9)
        assert response.groups[0].error_code == code


async def test_a_restart_finds_the_group_and_its_members_go_on(scene: Any) -> None:
    await scene.start(**SETTINGS)
    wire = await scene.connect()
    await wire.create("t", partitions=3)
    await wire.find_coordinator("g")
    anne, bert = Member(wire, "anne"), Member(wire, "bert")
    await anne.join()
    await bert.join()
    await settled(anne, bert)
    before = anne.epoch, anne.tasks, bert.tasks
    await scene.stop()
    await scene.start(**SETTINGS)
    anne.wire = bert.wire = wire = await scene.connect()
    await wire.find_coordinator("g")
    while (await anne.beat()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        await asyncio.sleep(0.01)
    await settled(anne, bert)
    assert (anne.epoch, anne.tasks, bert.tasks) == before
    assert (await describe(wire)).group_state == "Stable"


async def test_why_topics_cannot_be_made_is_in_the_status(scene: Any) -> None:
    await scene.start(**SETTINGS)
    wire = await scene.connect()
    await wire.create("t", partitions=1)
    await wire.find_coordinator("g")
    topology = Topology(
        epoch=0,
        subtopologies=[
            Subtopology(
                subtopology_id="0",
                source_topics=["t"],
                state_changelog_topics=[internal("g-log", replication_factor=7)],
            )
        ],
    )
    anne = Member(wire, "anne")
    await anne.join(topology)
    detail = ""
    for _ in range(200):
        detail = (await anne.beat()).status[0].status_detail
        if "Creation failed" in detail:
            break
        await asyncio.sleep(0.01)
    assert detail.startswith("Internal topics are missing: g-log; Creation failed: g-log (")


@pytest.mark.parametrize(
    "name",
    ["__consumer_offsets", "__transaction_state", "no/such", ""],
    ids=["offsets", "txn", "bad", "empty"],
)
async def test_topics_that_no_application_can_have_are_refused(scene: Any, name: str) -> None:
    await scene.start(**SETTINGS)
    wire = await scene.connect()
    await wire.find_coordinator("g")
    topology = Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=[name])])
    response = await Member(wire, "anne").join(topology)
    assert response.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert (await describe(wire)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_classic_group_without_members_becomes_a_streams_group_with_its_offsets(scene: Any) -> None:
    """An application changes its protocol while it is down."""
    await scene.start(**SETTINGS)
    wire = await scene.connect()
    await wire.create("t", partitions=1)
    await wire.find_coordinator("g")
    assert await commit(wire, Member(wire, ""), epoch=-1) is ErrorCode.NONE
    anne = Member(wire, "anne")
    await anne.join()
    await settled(anne)
    group = OffsetFetchRequestGroup(group_id="g", member_id=None, member_epoch=-1, topics=None)
    response = await wire.ask(OffsetFetchRequest(groups=[group]), 9)
    (topic,) = response.groups[0].topics
    assert topic.partitions[0].committed_offset == 5


async def test_an_application_goes_back_to_the_classic_protocol_once_it_is_down(scene: Any) -> None:
    await scene.start(**SETTINGS, group_initial_rebalance_delay_ms="0")
    wire = await scene.connect()
    await wire.create("t", partitions=1)
    await wire.find_coordinator("g")
    anne = Member(wire, "anne")
    await anne.join()
    await settled(anne)
    assert await commit(wire, anne) is ErrorCode.NONE
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="stream", metadata=b"")],
    )
    refused = await wire.ask(join, 3)
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    await anne.beat(member_epoch=-1)
    joined = await wire.ask(join, 3)
    assert joined.error_code == ErrorCode.NONE
    assert (await describe(wire)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    group = OffsetFetchRequestGroup(group_id="g", member_id=None, member_epoch=-1, topics=None)
    response = await wire.ask(OffsetFetchRequest(groups=[group]), 9)
    assert response.groups[0].topics[0].partitions[0].committed_offset == 5
    assert (await Member(wire, "bert").join()).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_the_feature_is_offered_and_can_be_switched_off(scene: Any) -> None:
    await scene.start(**SETTINGS)
    wire = await scene.connect()
    await wire.find_coordinator("g")
    versions = await wire.ask(ApiVersionsRequest(client_software_name="c", client_software_version="1"), 4)
    levels = {feature.name: feature.max_version_level for feature in versions.finalized_features}
    assert levels["streams.version"] == 1
    off = FeatureUpdateKey(feature="streams.version", max_version_level=0, upgrade_type=2)
    await wire.ask(UpdateFeaturesRequest(feature_updates=[off]), 1)
    assert (await Member(wire, "anne").join()).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_internal_topics_are_made_for_members_that_may_create_them(scene: Any) -> None:
    broker = await scene.start(
        **SETTINGS,
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
    )
    authorizer = broker.context.authorizer
    wire = await scene.connect()
    await wire.create("t", partitions=1)
    await wire.find_coordinator("g")

    def allow(*required: tuple[AclOperation, AclResourceType]) -> None:
        authorizer.configure({"super.users": ""})
        acls = frozenset(
            Acl(AclPattern(resource, "*", PatternType.LITERAL), "User:*", "*", operation, AclPermission.ALLOW)
            for operation, resource in required
        )
        authorizer.update((acls, *NO_ACLS[1:]))

    member = (AclOperation.READ, AclResourceType.GROUP), (AclOperation.DESCRIBE, AclResourceType.TOPIC)
    allow(*member)
    anne = Member(wire, "anne")
    (status,) = (await anne.join()).status
    assert status.status_detail.endswith("; Unauthorized to CREATE on topics g-log, g-repart.")
    assert broker.context.image.topics.keys() >= {"t"}
    assert "g-log" not in broker.context.image.topics
    allow(*member, (AclOperation.CREATE, AclResourceType.TOPIC))
    await settled(anne)
    assert anne.tasks == {"0": [0], "1": [0]}
    allow(*member[:1])
    assert (await Member(wire, "bert").join()).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_no_description_of_a_topology_is_taken(scene: Any) -> None:
    await scene.start(**SETTINGS)
    wire = await scene.connect()
    response = await wire.ask(StreamsGroupTopologyDescriptionUpdateRequest(group_id="g", member_id="anne"), 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION

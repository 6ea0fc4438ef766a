"""Consumer groups (KIP-848) over the wire: both versions, assignment, offsets in epochs, administration, a restart."""

import asyncio
from itertools import chain
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.coordinators.partition_log import PartitionLog
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.groups.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.protocol.messages.groups.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from odradek.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.groups.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.groups.list_groups import ListGroupsRequest
from odradek.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.groups.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest
from odradek.protocol.messages.topics.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState

SETTINGS = {
    "offsets_topic_num_partitions": "2",
    "group_consumer_assignment_interval_ms": "0",
    "group_consumer_min_session_timeout_ms": "1000",
}


class Member:
    """A member of the group `g` that does at once what the coordinator asks."""

    def __init__(self, wire: Any, member_id: str, version: int = 1) -> None:
        self.wire = wire
        self.member_id = member_id
        self.version = version
        self.epoch = 0
        self.has: list[TopicPartitions] = []

    async def join(self, **said: Any) -> Any:
        self.epoch = 0
        self.has = []
        return await self.beat(rebalance_timeout_ms=60_000, topic_partitions=[], **said)

    async def beat(self, **said: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=self.member_id, member_epoch=self.epoch, topic_partitions=self.has
        ).replace(**said)
        response = await self.wire.ask(request, self.version)
        if response.error_code == ErrorCode.NONE:
            self.member_id = response.member_id
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.has = response.assignment.topic_partitions
        return response

    @property
    def partitions(self) -> dict[UUID, list[int]]:
        return {partitions.topic_id: partitions.partitions for partitions in self.has}


async def settled(*members: Member) -> None:
    """Everyone sends heartbeats until nothing changes any more."""
    for _ in range(10):
        before = [(member.epoch, member.partitions) for member in members]
        for member in members:
            response = await member.beat()
            assert response.error_code == ErrorCode.NONE, response
        if before == [(member.epoch, member.partitions) for member in members]:
            return
    raise AssertionError("the group does not come to rest")


async def describe(wire: Any, version: int = 1) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)
    return (await wire.ask(request, version)).groups[0]


async def commit(wire: Any, member: Member, epoch: int, *, version: int = 9, partition: int = 0) -> int:
    request = OffsetCommitRequest(
        group_id="g",
        member_id=member.member_id,
        generation_id_or_member_epoch=epoch,
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[OffsetCommitRequestPartition(partition_index=partition, committed_offset=7)],
            )
        ],
    )
    response = await wire.ask(request, version)
    return int(response.topics[0].partitions[0].error_code)


@pytest.fixture
async def wire(scene: Any) -> Any:
    await scene.start(**SETTINGS)
    wire = await scene.connect()
    assert (await wire.create("t", 4)).error_code == 0
    await wire.find_coordinator()
    return wire


async def test_the_feature_is_announced(wire: Any) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    response = await wire.ask(request, 4)
    assert {(feature.name, feature.max_version_level) for feature in response.finalized_features} >= {
        ("group.version", 1)
    }
    assert {(api_key.api_key, api_key.min_version, api_key.max_version) for api_key in response.api_keys} >= {
        (68, 0, 1),
        (69, 0, 1),
    }


@pytest.mark.parametrize("version", [0, 1])
async def test_members_share_the_partitions_and_hand_them_on(wire: Any, version: int) -> None:
    given_by_member = version >= 1
    first = Member(wire, "one" if given_by_member else "", version)
    second = Member(wire, "two" if given_by_member else "", version)
    joined = await first.join(subscribed_topic_names=["t"])
    assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (0, 1, 5000)
    assert list(first.partitions.values()) == [[0, 1, 2, 3]]
    await second.join(subscribed_topic_names=["t"])
    await settled(first, second)
    assert sorted(chain(*first.partitions.values(), *second.partitions.values())) == [0, 1, 2, 3]
    left = await first.beat(member_epoch=-1)
    assert left.member_epoch == -1
    await settled(second)
    assert list(second.partitions.values()) == [[0, 1, 2, 3]]


async def test_an_answer_says_the_assignment_only_when_it_changed_or_was_asked_for(wire: Any) -> None:
    member = Member(wire, "one")
    await member.join(subscribed_topic_names=["t"])
    assert (await member.beat()).assignment is None
    full = await member.beat(rebalance_timeout_ms=60_000, subscribed_topic_names=["t"])
    assert full.assignment is not None


async def test_a_regular_expression_finds_topics_as_they_come_and_go(wire: Any) -> None:
    member = Member(wire, "one")
    await member.join(subscribed_topic_regex="t|orders-.*")
    assert [len(partitions) for partitions in member.partitions.values()] == [4]
    await wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000), 6)
    await settled(member)
    assert member.partitions == {}
    refused = await member.beat(subscribed_topic_regex="(")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "missing )" in refused.error_message


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "magic"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": 9}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"member_epoch": -9}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "two"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": "other"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"subscribed_topic_regex": "(?=a)"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
async def test_bad_heartbeats_are_refused_and_change_nothing(wire: Any, said: Any, code: ErrorCode) -> None:
    member = Member(wire, "one")
    await member.join(subscribed_topic_names=["t"])
    before = await describe(wire)
    response = await member.beat(**said)
    assert response.error_code == code
    assert response.error_message
    assert await describe(wire) == before


async def test_offsets_are_committed_and_fetched_in_the_members_epoch(wire: Any) -> None:
    member = Member(wire, "one")
    await member.join(subscribed_topic_names=["t"])
    assert await commit(wire, member, 1) == ErrorCode.NONE
    assert await commit(wire, member, 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert await commit(wire, member, 1, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert await commit(wire, Member(wire, "two"), 1) == ErrorCode.UNKNOWN_MEMBER_ID
    for epoch, code in ((1, ErrorCode.NONE), (0, ErrorCode.STALE_MEMBER_EPOCH)):
        group = OffsetFetchRequestGroup(group_id="g", member_id="one", member_epoch=epoch, topics=None)
        response = await wire.ask(OffsetFetchRequest(groups=[group]), 9)
        assert response.groups[0].error_code == code


@pytest.mark.parametrize("version", [0, 1])
async def test_administrators_see_the_group_as_it_is(wire: Any, version: int) -> None:
    member = Member(wire, "one")
    await member.join(subscribed_topic_names=["t"], rack_id="r1")
    group = await describe(wire, version)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 1, 1)
    assert group.assignor_name == "uniform"
    assert group.authorized_operations > 0
    (shown,) = group.members
    assert (shown.member_id, shown.member_epoch, shown.client_id, shown.rack_id) == ("one", 1, "test", "r1")
    assert shown.client_host == "/127.0.0.1"
    assert [
        (partition.topic_name, partition.partitions) for partition in shown.assignment.topic_partitions
    ] == [("t", [0, 1, 2, 3])]
    assert shown.member_type == (1 if version >= 1 else -1)
    classic = await wire.ask(DescribeGroupsRequest(groups=["g"]), 6)
    assert classic.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    listed = await wire.ask(ListGroupsRequest(types_filter=["consumer"]), 5)
    assert [(group.group_id, group.group_state, group.group_type) for group in listed.groups] == [
        ("g", "Stable", "consumer")
    ]
    delete = DeleteGroupsRequest(groups_names=["g"])
    assert (await wire.ask(delete, 2)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    await member.beat(member_epoch=-1)
    assert (await wire.ask(delete, 2)).results[0].error_code == ErrorCode.NONE
    assert (await describe(wire, version)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_restart_of_the_broker_loses_nothing(scene: Any, wire: Any) -> None:
    first, second = Member(wire, "one"), Member(wire, "two")
    await first.join(subscribed_topic_names=["t"])
    await second.join(subscribed_topic_regex="t.*", instance_id="i")
    await settled(first, second)
    before = await describe(wire)
    await scene.stop()
    await scene.start(**SETTINGS)
    first.wire = second.wire = wire = await scene.connect()
    await wire.find_coordinator()
    assert await describe(wire) == before
    await settled(first, second)
    assert await describe(wire) == before


async def test_a_group_that_is_being_loaded_is_asked_again(
    scene: Any, wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is answered from a part of the log: COORDINATOR_LOAD_IN_PROGRESS, on which Kafka's clients try again."""
    member = Member(wire, "one")
    await member.join(subscribed_topic_names=["t"])
    assert await commit(wire, member, 1) == ErrorCode.NONE
    before = await describe(wire)
    await scene.stop()
    may_load = asyncio.Event()
    bring = PartitionLog.bring

    async def bring_later(self: PartitionLog, offset: int, max_bytes: int) -> None:
        await may_load.wait()
        await bring(self, offset, max_bytes)

    monkeypatch.setattr(PartitionLog, "bring", bring_later)
    await scene.start(**SETTINGS)
    member.wire = wire = await scene.connect()
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    offsets = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id="g", member_id="one", member_epoch=1, topics=None)]
    )
    assert (await describe(wire)).error_code == loading
    assert (await member.beat()).error_code == loading
    assert await commit(wire, member, 1) == loading
    assert (await wire.ask(offsets, 9)).groups[0].error_code == loading
    assert (await wire.ask(ListGroupsRequest(), 5)).error_code == loading
    may_load.set()
    await wire.find_coordinator()
    assert await describe(wire) == before
    assert (await member.beat()).error_code == ErrorCode.NONE
    group = (await wire.ask(offsets, 9)).groups[0]
    assert [partition.committed_offset for topic in group.topics for partition in topic.partitions] == [7]


async def test_a_group_may_have_settings_of_its_own(wire: Any) -> None:
    setting = AlterableConfig(name="consumer.heartbeat.interval.ms", value="7000")
    resource = AlterConfigsResource(resource_type=32, resource_name="g", configs=[setting])
    changed = await wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert changed.responses[0].error_code == ErrorCode.NONE
    joined = await Member(wire, "one").join(subscribed_topic_names=["t"])
    assert joined.heartbeat_interval_ms == 7000


async def test_what_does_not_fit_into_the_log_is_refused_and_changes_nothing(wire: Any) -> None:
    member = Member(wire, "one")
    await member.join(subscribed_topic_names=["t"])
    before = await describe(wire)
    names = [f"{number:0200}" for number in range(6000)]
    refused = await member.beat(subscribed_topic_names=names)
    assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert await describe(wire) == before
    assert (await member.beat()).error_code == ErrorCode.NONE


async def test_a_topic_that_grows_is_shared_again(wire: Any) -> None:
    member = Member(wire, "one")
    await member.join(subscribed_topic_names=["t"])
    grow = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=6, assignments=None)], timeout_ms=5000
    )
    grown = await wire.ask(grow, 3)
    assert grown.results[0].error_code == 0, grown
    await settled(member)
    assert list(member.partitions.values()) == [[0, 1, 2, 3, 4, 5]]
    names = await wire.ask(MetadataRequest(topics=None), 12)
    assert {topic.topic_id for topic in names.topics if topic.name == "t"} == set(member.partitions)

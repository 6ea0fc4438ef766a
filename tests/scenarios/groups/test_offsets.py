"""Committed offsets over the wire: every version, what is refused, restarts, deleted topics."""

import asyncio
import threading
from typing import Any
from uuid import UUID

import pytest
from tests.kit.waiting import until

from odradek.model.ids import TopicPartition
from odradek.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.groups.list_groups import ListGroupsRequest
from odradek.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.groups.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.records import split_batches
from odradek.runtime.real import PosixFile
from odradek.storage.directories.log_manager import LogManager

UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE, UNKNOWN_TOPIC_ID = 3, 12, 100
ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, INVALID_COMMIT_OFFSET_SIZE = 22, 25, 69, 28
COMMIT_VERSIONS, FETCH_VERSIONS = range(2, 11), range(1, 11)


class Offsets:
    """OffsetCommit and OffsetFetch of group `g`, in a chosen version."""

    def __init__(self, wire: Any) -> None:
        self.wire = wire
        self.ids: dict[str, UUID] = {}

    async def create(self, topic: str, partitions: int = 2) -> None:
        self.ids[topic] = (await self.wire.create(topic, partitions)).topic_id

    async def commit(
        self, topic: str, partition: int, offset: int, *, version: int = 10, **changes: Any
    ) -> int:
        """The partition's error."""
        request_partition = OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=changes.pop("leader_epoch", -1),
            committed_metadata=changes.pop("metadata", None),
        )
        by_id = version >= 10
        topic_request = OffsetCommitRequestTopic(
            name="" if by_id else topic,
            topic_id=self.ids.get(topic, UUID(int=9)) if by_id else UUID(int=0),
            partitions=[request_partition],
        )
        request = OffsetCommitRequest(group_id="g", topics=[topic_request]).replace(**changes)
        response = await self.wire.ask(request, version)
        (answered,) = response.topics
        assert answered.name == topic_request.name
        assert answered.topic_id == topic_request.topic_id
        return int(answered.partitions[0].error_code)

    async def fetch(
        self, *places: tuple[str, int], version: int = 10, group: str = "g"
    ) -> dict[tuple[str, int], tuple[int, int, str, int]]:
        """Offset, leader epoch, metadata and error of each partition; all of the group's when none is named."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in places:
            by_topic.setdefault(topic, []).append(partition)
        if version < 8:
            old = [OffsetFetchRequestTopic(name=k, partition_indexes=v) for k, v in by_topic.items()]
            request = OffsetFetchRequest(group_id=group, topics=old or None)
            topics = (await self.wire.ask(request, version)).topics
        else:
            by_id = version >= 10
            new = [
                OffsetFetchRequestTopics(
                    name="" if by_id else topic,
                    topic_id=self.ids.get(topic, UUID(int=9)) if by_id else UUID(int=0),
                    partition_indexes=partitions,
                )
                for topic, partitions in by_topic.items()
            ]
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=new or None)])
            (answered,) = (await self.wire.ask(request, version)).groups
            assert answered.error_code == 0
            topics = answered.topics
        names = {topic_id: name for name, topic_id in self.ids.items()}
        return {
            (named.name or names.get(getattr(named, "topic_id", None), "?"), partition.partition_index): (
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.metadata,
                partition.error_code,
            )
            for named in topics
            for partition in named.partitions
        }


async def connected(scene: Any) -> Offsets:
    wire = await scene.connect()
    await wire.find_coordinator()
    return Offsets(wire)


@pytest.fixture
async def offsets(scene: Any) -> Offsets:
    await scene.start(offsets_topic_num_partitions="3")
    return await connected(scene)


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
async def test_a_commit_in_every_version_is_found(offsets: Offsets, version: int) -> None:
    await offsets.create("t")
    epoch = 3 if version >= 6 else -1
    code = await offsets.commit("t", 1, 42, version=version, leader_epoch=epoch, metadata="note")
    assert code == 0
    assert await offsets.fetch(("t", 1)) == {("t", 1): (42, epoch, "note", 0)}


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_an_offset_is_found_in_every_version(offsets: Offsets, version: int) -> None:
    await offsets.create("t")
    await offsets.commit("t", 0, 7, leader_epoch=2, metadata="m")
    epoch = 2 if version >= 5 else -1
    assert await offsets.fetch(("t", 0), ("t", 1), version=version) == {
        ("t", 0): (7, epoch, "m", 0),
        ("t", 1): (-1, -1, "", 0),
    }
    assert await offsets.fetch(("t", 0), version=version, group="other") == {("t", 0): (-1, -1, "", 0)}


@pytest.mark.parametrize("version", range(2, 11))
async def test_all_offsets_are_found_in_every_version(offsets: Offsets, version: int) -> None:
    await offsets.create("t")
    await offsets.create("u")
    await offsets.commit("t", 0, 7)
    await offsets.commit("u", 1, 8)
    results = await offsets.fetch(version=version)
    assert {place: entry[0] for place, entry in results.items()} == {("t", 0): 7, ("u", 1): 8}


async def test_several_groups_at_once(offsets: Offsets) -> None:
    await offsets.create("t")
    await offsets.commit("t", 0, 7)
    await offsets.commit("t", 0, 9, group_id="h")
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics) for group_id in ("g", "h", "none")]
    )
    response = await offsets.wire.ask(request, 8)
    assert [
        (group.group_id, group.topics[0].partitions[0].committed_offset) for group in response.groups
    ] == [
        ("g", 7),
        ("h", 9),
        ("none", -1),
    ]


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
async def test_what_bad_commits_get(offsets: Offsets, version: int) -> None:
    await offsets.create("t")
    missing = UNKNOWN_TOPIC_ID if version >= 10 else UNKNOWN_TOPIC_OR_PARTITION
    assert await offsets.commit("missing", 0, 1, version=version) == missing
    assert await offsets.commit("t", 2, 1, version=version) == UNKNOWN_TOPIC_OR_PARTITION
    assert await offsets.commit("t", -1, 1, version=version) == UNKNOWN_TOPIC_OR_PARTITION
    too_long = "x" * 4097
    assert await offsets.commit("t", 0, 1, version=version, metadata=too_long) == OFFSET_METADATA_TOO_LARGE
    unknown_member: Any = {"generation_id_or_member_epoch": 5, "member_id": "unknown"}
    no_group = GROUP_ID_NOT_FOUND if version >= 9 else ILLEGAL_GENERATION
    assert await offsets.commit("t", 0, 1, version=version, **unknown_member) == no_group
    assert await offsets.commit("t", 0, 1, version=version) == 0
    assert await offsets.commit("t", 0, 2, version=version, **unknown_member) == UNKNOWN_MEMBER_ID
    assert (await offsets.fetch(("t", 0)))["t", 0][0] == 1


@pytest.mark.parametrize("count", [400, 700, 30_000])
async def test_a_commit_larger_than_a_batch_may_be_is_refused_whole(offsets: Offsets, count: int) -> None:
    await offsets.create("t", 4)
    metadata = "x" * (4096 if count < 10_000 else 10)
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=number % 4, committed_offset=1, committed_metadata=metadata
        )
        for number in range(count)
    ]
    topic = OffsetCommitRequestTopic(name="t", partitions=partitions)
    response = await offsets.wire.ask(OffsetCommitRequest(group_id="g", topics=[topic]), 9)
    assert len(response.topics[0].partitions) == count
    assert {partition.error_code for partition in response.topics[0].partitions} == {
        INVALID_COMMIT_OFFSET_SIZE
    }
    assert await offsets.fetch() == {}


async def test_a_commit_of_many_offsets_is_one_batch_so_that_a_crash_keeps_all_or_nothing(
    offsets: Offsets,
) -> None:
    await offsets.create("t", 4)
    partitions = [
        OffsetCommitRequestPartition(partition_index=number % 4, committed_offset=number)
        for number in range(3000)
    ]
    partitions.append(
        OffsetCommitRequestPartition(partition_index=0, committed_offset=9000, committed_metadata="x" * 4097)
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=partitions[:-1])
    refused = OffsetCommitRequestTopic(name="t", partitions=[partitions[-1]])
    missing = OffsetCommitRequestTopic(name="missing", partitions=[partitions[0]])
    request = OffsetCommitRequest(group_id="g", topics=[topic, missing, refused])
    response = await offsets.wire.ask(request, 9)
    codes = [[partition.error_code for partition in topic.partitions] for topic in response.topics]
    assert codes[1] == [UNKNOWN_TOPIC_OR_PARTITION]
    assert codes[2] == [OFFSET_METADATA_TOO_LARGE]
    assert [entry[0] for entry in (await offsets.fetch()).values()] == [2996, 2997, 2998, 2999]
    batches = [
        header.record_count
        for partition in range(3)
        for header, _ in split_batches(
            (await offsets.wire.fetch("__consumer_offsets", 0, partition=partition)).records
        )
    ]
    assert batches == [3000]


async def test_an_unknown_topic_id_is_said_for_each_partition(offsets: Offsets) -> None:
    assert await offsets.fetch(("missing", 0)) == {("?", 0): (-1, -1, "", UNKNOWN_TOPIC_ID)}


async def test_offsets_outlive_the_broker(offsets: Offsets, scene: Any) -> None:
    await offsets.create("t")
    await offsets.commit("t", 0, 7, metadata="kept")
    await offsets.commit("t", 0, 8, metadata="kept too")
    ids = offsets.ids
    await scene.stop()
    await scene.start()
    again = await connected(scene)
    again.ids = ids
    assert await again.fetch() == {("t", 0): (8, -1, "kept too", 0)}


async def test_the_offsets_of_a_topic_go_with_it(offsets: Offsets) -> None:
    await offsets.create("t")
    await offsets.create("u")
    await offsets.commit("t", 0, 7)
    await offsets.commit("u", 0, 8)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
    assert (await offsets.wire.ask(request, 6)).responses[0].error_code == 0
    await offsets.create("t")
    assert await offsets.fetch(("t", 0), version=9) == {("t", 0): (-1, -1, "", 0)}
    assert await offsets.fetch() == {("u", 0): (8, -1, "", 0)}


async def test_offsets_are_deleted_on_request(offsets: Offsets) -> None:
    await offsets.create("t")
    await offsets.commit("t", 0, 7)
    await offsets.commit("t", 1, 8)

    async def delete(group: str, *partitions: int) -> Any:
        asked = [OffsetDeleteRequestPartition(partition_index=partition) for partition in partitions]
        topic = OffsetDeleteRequestTopic(name="t", partitions=asked)
        return await offsets.wire.ask(OffsetDeleteRequest(group_id=group, topics=[topic]), 0)

    response = await delete("g", 0, 5)
    assert [partition.error_code for partition in response.topics[0].partitions] == [
        0,
        UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert await offsets.fetch() == {("t", 1): (8, -1, "", 0)}
    assert (await delete("nowhere", 0)).error_code == GROUP_ID_NOT_FOUND


async def test_offsets_do_not_outlive_a_topic_that_is_made_again_before_anyone_sees_it_gone(
    offsets: Offsets, scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is busy with one image gets the next ones as one."""
    await offsets.create("t")
    await offsets.commit("t", 0, 7)
    busy, done = asyncio.Event(), asyncio.Event()
    open_log = LogManager.open_log

    async def slowly(self: LogManager, name: TopicPartition, *args: Any, **options: Any) -> Any:
        if name.topic == "slow":
            busy.set()
            await done.wait()
        return await open_log(self, name, *args, **options)

    monkeypatch.setattr(LogManager, "open_log", slowly)
    wires = [await scene.connect() for _ in range(3)]
    asked = [asyncio.ensure_future(wires[0].create("slow"))]
    await busy.wait()
    controller = scene.broker.context.controller
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    asked.append(asyncio.ensure_future(wires[1].ask(request, 6)))
    await until(lambda: "t" not in controller.latest.topics)
    asked.append(asyncio.ensure_future(wires[2].create("t", 2)))
    await until(lambda: "t" in controller.latest.topics)
    done.set()
    *_, made = await asyncio.gather(*asked)
    offsets.ids["t"] = made.topic_id
    for version in (9, 10):
        assert (await offsets.fetch(("t", 0), version=version))["t", 0][0] == -1


async def test_a_deleted_group_stays_deleted_across_a_restart(offsets: Offsets, scene: Any) -> None:
    await offsets.create("t")
    await offsets.commit("t", 0, 7)
    response = await offsets.wire.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
    assert response.results[0].error_code == 0
    ids = offsets.ids
    await scene.stop()
    await scene.start()
    again = await connected(scene)
    again.ids = ids
    assert await again.fetch() == {}
    assert (await again.wire.ask(ListGroupsRequest(), 5)).groups == []


async def test_expired_offsets_are_gone_and_their_group_with_them(scene: Any) -> None:
    await scene.start(offsets_retention_check_interval_ms="20")
    offsets = await connected(scene)
    await offsets.create("t")
    assert await offsets.commit("t", 0, 7, version=2, retention_time_ms=1) == 0
    assert await offsets.commit("t", 1, 8, group_id="kept") == 0
    while await offsets.fetch() != {}:
        await asyncio.sleep(0.01)
    listed = await offsets.wire.ask(ListGroupsRequest(), 5)
    assert [group.group_id for group in listed.groups] == ["kept"]


async def test_a_commit_that_does_not_become_durable_in_time_is_to_be_tried_again(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.start(offsets_topic_num_partitions="1", offsets_commit_timeout_ms="20")
    offsets = await connected(scene)
    await offsets.create("t")
    disk_works, real_sync = threading.Event(), PosixFile.sync

    def sync(self: PosixFile) -> None:
        disk_works.wait(20)
        real_sync(self)

    with monkeypatch.context() as patch:
        patch.setattr(PosixFile, "sync", sync)
        assert await offsets.commit("t", 0, 7) == 15
        disk_works.set()
    for _ in range(200):  # a slow disk may need longer than so short a time
        code = await offsets.commit("t", 0, 8)
        if code != 15:
            break
    assert code == 0
    assert (await offsets.fetch(("t", 0)))["t", 0][0] == 8


async def test_offsets_outlive_the_compaction_of_their_log(scene: Any) -> None:
    settings = {
        "offsets_topic_num_partitions": "1",
        "offsets_topic_segment_bytes": "1048576",
        "log_cleaner_backoff_ms": "20",
    }
    await scene.start(**settings)
    offsets = await connected(scene)
    await offsets.create("t")
    await offsets.commit("t", 0, 1, group_id="gone")
    await offsets.wire.ask(DeleteGroupsRequest(groups_names=["gone"]), 2)
    for number in range(600):
        assert await offsets.commit("t", number % 2, number, metadata="x" * 4096) == 0
    log = scene.broker.context.replicas.leader("__consumer_offsets", 0).log
    await until(lambda: log.size_bytes < 1_500_000)
    ids = offsets.ids
    await scene.stop()
    await scene.start(**settings)
    again = await connected(scene)
    again.ids = ids
    results = await again.fetch()
    assert {place: entry[0] for place, entry in results.items()} == {("t", 0): 598, ("t", 1): 599}
    listed = await again.wire.ask(ListGroupsRequest(), 5)
    assert [group.group_id for group in listed.groups] == ["g"]


async def test_segments_of_internal_topics_too_small_for_a_topic_count_as_what_it_may_have(
    scene: Any,
) -> None:
    await scene.start(offsets_topic_segment_bytes="1", transaction_state_log_segment_bytes="1")
    offsets = await connected(scene)
    await offsets.create("t")
    assert await offsets.commit("t", 0, 1) == 0
    request = FindCoordinatorRequest(key="x", key_type=1)
    assert (await offsets.wire.ask(request, 2)).error_code == 0

"""Streams groups (KIP-1071): members, epochs, tasks, statuses, sessions, and what a restart finds."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from tests.unit.groups.streams.streams_world import (
    COUNTING,
    STATELESS,
    StreamsWorld,
    internal,
    subtopology,
    topology,
)

from odradek.groups.shard.kinds import Committer
from odradek.groups.streams.tasks import TaskId
from odradek.groups.streams.topology import StatusCode
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.streams_group_heartbeat import Endpoint, TaskIds, TaskOffset


def refused(action: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        action()
    return error.value.code


def tasks(*partitions: int, name: str = "0") -> set[TaskId]:
    return {TaskId(name, partition) for partition in partitions}


def test_one_member_has_all_tasks_and_the_second_takes_over_what_the_first_gives_back() -> None:
    world = StreamsWorld()
    anne = world.join("anne")
    assert anne.active == tasks(0, 1, 2, 3)
    bert = world.join("bert")
    assert bert.active == set()
    before = set(anne.active)
    world.beat(anne)
    given_up = before - anne.active
    assert len(given_up) == 2
    world.beat(bert)
    assert bert.active == set(), "the first has not said yet that it gave them up"
    world.beat(anne)
    world.beat(bert)
    assert bert.active == given_up
    assert world.group.state_name == "Stable"


def test_the_tasks_of_a_member_that_leaves_go_to_the_others_and_the_rest_stays() -> None:
    world = StreamsWorld()
    anne, bert = world.join("anne"), world.join("bert")
    world.settle(anne, bert)
    kept = set(anne.active)
    world.leave(bert)
    world.beat(anne)
    assert anne.active == tasks(0, 1, 2, 3)
    assert kept < anne.active


def test_a_silent_member_is_removed_after_its_session() -> None:
    world = StreamsWorld(session_timeout_ms=5_000)
    anne, bert = world.join("anne"), world.join("bert")
    world.settle(anne, bert)
    world.wait(4_000)
    world.beat(anne)
    world.wait(2_000)
    assert list(world.group.members) == ["anne"]
    assert refused(lambda: world.beat(bert)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_gives_nothing_back_is_removed_after_its_rebalance_timeout() -> None:
    world = StreamsWorld(session_timeout_ms=1_000_000)
    anne = world.join("anne")
    bert = world.join("bert")
    world.send(member_id="anne", member_epoch=anne.epoch)
    world.wait(9_000)
    world.send(member_id="anne", member_epoch=anne.epoch)
    assert len(world.group.members) == 2
    world.wait(1_500)
    assert list(world.group.members) == ["bert"]
    world.beat(bert)
    assert bert.active == tasks(0, 1, 2, 3)


def test_a_new_group_waits_for_more_members_before_its_first_assignment() -> None:
    world = StreamsWorld(initial_rebalance_delay_ms=3_000)
    anne = world.join("anne")
    bert = world.join("bert")
    assert anne.active == bert.active == set()
    assert anne.status == [StatusCode.ASSIGNMENT_DELAYED]
    assert anne.epoch > 0
    world.wait(3_000)
    world.beat(anne)
    world.beat(bert)
    assert len(anne.active) == len(bert.active) == 2
    assert anne.status == []


def test_a_restart_finds_members_tasks_and_topology_as_they_were() -> None:
    world = StreamsWorld()
    anne, bert = world.join("anne", sent_topology=COUNTING), world.join("bert", sent_topology=COUNTING)
    world.settle(anne, bert)
    before = world.group
    world.restart()
    after = world.group
    assert after is not before
    assert after.members == before.members
    assert (after.epoch, after.assignment_epoch, after.targets) == (
        before.epoch,
        before.assignment_epoch,
        before.targets,
    )
    assert (after.owners, after.copies, after.topology) == (before.owners, before.copies, before.topology)
    assert after.state_name == "Stable"
    epoch, active = anne.epoch, set(anne.active)
    world.beat(anne)
    assert (anne.epoch, anne.active) == (epoch, active)
    world.wait(100_000)
    assert not world.group.members


def test_an_emptied_group_leaves_no_record_behind_its_deletion() -> None:
    world = StreamsWorld()
    world.leave(world.join("anne", sent_topology=COUNTING))
    group = world.group
    assert group.state_name == "Empty"
    for record in group.tombstones():
        world.records.append(record)
    world.restart()
    assert world.machine.groups == {}
    left = {record.key: record.value for record in world.records}
    assert set(left.values()) == {None}


# -- epochs


@pytest.mark.parametrize("epoch", [7, 1])
def test_a_member_in_another_epoch_is_fenced(epoch: int) -> None:
    world = StreamsWorld()
    anne = world.join("anne")
    anne.epoch = epoch
    assert refused(lambda: world.beat(anne)) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_missed_an_answer_goes_on_from_the_epoch_before() -> None:
    world = StreamsWorld()
    anne, bert = world.join("anne"), world.join("bert")
    world.settle(anne, bert)
    world.leave(bert)
    before, active = anne.epoch, set(anne.active)
    world.beat(anne)
    assert anne.epoch > before
    anne.epoch, anne.active = before, active
    world.beat(anne)
    assert anne.epoch > before


def test_a_group_takes_no_more_members_than_it_may() -> None:
    world = StreamsWorld(max_size=1)
    world.join("anne")
    assert refused(lambda: world.join("bert")) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_heartbeat_of_no_member_of_no_group_is_refused() -> None:
    world = StreamsWorld()
    assert refused(lambda: world.send(member_id="x", member_epoch=3)) is ErrorCode.GROUP_ID_NOT_FOUND
    world.join("anne")
    assert refused(lambda: world.send(member_id="x", member_epoch=3)) is ErrorCode.UNKNOWN_MEMBER_ID


# -- static members


def test_a_static_member_that_comes_back_has_its_tasks_at_once() -> None:
    world = StreamsWorld()
    anne = world.join("anne", instance_id="i1")
    bert = world.join("bert", instance_id="i2")
    world.settle(anne, bert)
    tasks_before, epoch = set(bert.active), world.group.epoch
    world.leave(bert, epoch=-2)
    world.beat(anne)
    assert anne.active.isdisjoint(tasks_before), "they stay its own until its session ends"
    again = world.join("bert-2", process_id="bert", instance_id="i2")
    assert again.active == tasks_before
    assert world.group.epoch == epoch
    assert "bert" not in world.group.members


def test_an_instance_id_in_use_is_not_released() -> None:
    world = StreamsWorld()
    world.join("anne", instance_id="i1")
    code = refused(lambda: world.join("bert", instance_id="i1"))
    assert code is ErrorCode.UNRELEASED_INSTANCE_ID


def test_the_predecessor_of_a_static_member_is_fenced() -> None:
    world = StreamsWorld()
    anne = world.join("anne", instance_id="i1")
    world.leave(anne, epoch=-2)
    world.join("anne-2", instance_id="i1")
    code = refused(lambda: world.beat(anne, instance_id="i1"))
    assert code is ErrorCode.FENCED_INSTANCE_ID


# -- topics and statuses


def test_tasks_are_assigned_once_the_internal_topics_are_there() -> None:
    world = StreamsWorld(topics={"in": 3})
    heartbeat = world.send(
        member_id="anne",
        member_epoch=0,
        rebalance_timeout_ms=1,
        topology=COUNTING,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
    )
    assert {topic.name: topic.partition_count for topic in heartbeat.missing_topics} == {
        "repart": 3,
        "log": 3,
    }
    (status,) = heartbeat.response.status or []
    assert status.status_code == StatusCode.MISSING_INTERNAL_TOPICS
    assert status.status_detail == "Internal topics are missing: log, repart"
    assert world.group.state_name == "NotReady"
    world.topics.create("repart", 3)
    world.topics.create("log", 3)
    anne = world.join("anne", "p", COUNTING)
    assert anne.active == tasks(0, 1, 2) | tasks(0, 1, 2, name="1")
    assert anne.status == []


def test_why_topics_were_not_created_is_in_the_status() -> None:
    world = StreamsWorld(topics={"in": 1})
    anne = world.join("anne", sent_topology=COUNTING)
    world.written(
        world.streams.note_creation(
            world.machine, world.now, group_id="g", error="Creation failed: log (no)."
        )
    )
    (status,) = world.beat(anne).status or []
    assert status.status_detail.endswith("; Creation failed: log (no).")


def test_a_source_topic_that_is_deleted_takes_the_tasks_away_and_one_that_grows_adds_some() -> None:
    world = StreamsWorld()
    anne = world.join("anne")
    world.topics.delete("in")
    world.beat(anne)
    assert anne.status == [StatusCode.MISSING_SOURCE_TOPICS]
    world.beat(anne)
    assert anne.active == set()
    world.topics.create("in", 6)
    world.settle(anne)
    assert anne.active == tasks(0, 1, 2, 3, 4, 5)


def test_a_member_with_an_older_topology_gets_a_status_and_one_with_another_is_refused() -> None:
    world = StreamsWorld()
    newer = topology(subtopology(source_topics=["in"]), epoch=2)
    world.join("anne", sent_topology=newer)
    bert = world.join("bert", sent_topology=STATELESS)
    assert StatusCode.STALE_TOPOLOGY in bert.status
    other = topology(subtopology(source_topics=["repart"]), epoch=2)
    assert refused(lambda: world.join("carl", sent_topology=other)) is ErrorCode.INVALID_REQUEST
    assert "carl" not in world.group.members


def test_the_same_topology_in_another_order_is_the_same() -> None:
    world = StreamsWorld()
    world.join("anne", sent_topology=COUNTING)
    reordered = topology(*reversed(COUNTING.subtopologies))
    assert world.join("bert", sent_topology=reordered).epoch > 0


def test_all_members_learn_of_the_end_of_the_application_until_the_group_is_empty() -> None:
    world = StreamsWorld()
    anne, bert = world.join("anne"), world.join("bert")
    world.beat(anne, shutdown_application=True)
    world.beat(bert)
    assert StatusCode.SHUTDOWN_APPLICATION in bert.status
    world.leave(anne)
    world.leave(bert)
    again = world.join("carl")
    assert StatusCode.SHUTDOWN_APPLICATION not in again.status


# -- what requests may say


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (
            topology(subtopology(source_topics=["in"]), subtopology(source_topics=["in"])),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (topology(subtopology(source_topics=[])), ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (topology(subtopology(source_topics=["in"]), epoch=-1), ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (
            topology(subtopology(source_topics=["in"], state_changelog_topics=[internal("log", 3)])),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (
            topology(
                subtopology(source_topics=["in"], repartition_source_topics=[internal("never-written")])
            ),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (
            topology(subtopology(repartition_source_topics=[internal("r")], repartition_sink_topics=["r"])),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (topology(subtopology(source_topics=["in"] * 30_000)), ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (topology(subtopology(source_topic_regex=["in.*"])), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_topology_that_cannot_be_is_refused_and_makes_no_group(sent: object, code: ErrorCode) -> None:
    world = StreamsWorld()
    assert refused(lambda: world.join("anne", sent_topology=sent)) is code  # type: ignore[arg-type]
    assert world.machine.groups == {}


@pytest.mark.parametrize(
    "entry",
    [
        TaskIds(subtopology_id="9", partitions=[0]),
        TaskIds(subtopology_id="0", partitions=[4]),
        TaskIds(subtopology_id="0", partitions=[-1]),
        TaskIds(subtopology_id="0", partitions=[0] * 1_000_000),
    ],
)
def test_tasks_that_the_topology_does_not_have_are_refused(entry: TaskIds) -> None:
    world = StreamsWorld()
    anne = world.join("anne")
    code = refused(
        lambda: world.send(
            member_id="anne", member_epoch=anne.epoch, active_tasks=[entry], standby_tasks=[], warmup_tasks=[]
        )
    )
    assert code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "fields",
    [
        {"member_id": ""},
        {"group_id": ""},
        {"member_epoch": -3},
        {"member_epoch": -2},
        {"rebalance_timeout_ms": -1},
        {"topology": None},
        {"active_tasks": [TaskIds(subtopology_id="0", partitions=[0])]},
        {"standby_tasks": None},
        {"rack_id": ""},
        {"instance_id": ""},
        {"member_epoch": 4},
    ],
)
def test_a_request_that_makes_no_sense_is_refused(fields: dict[str, object]) -> None:
    world = StreamsWorld()
    request = {
        "member_id": "anne",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1,
        "topology": STATELESS,
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": "p",
    }
    assert refused(lambda: world.send(**(request | fields))) is ErrorCode.INVALID_REQUEST


def test_offsets_of_tasks_that_do_not_exist_are_not_kept() -> None:
    world = StreamsWorld()
    anne = world.join("anne")
    world.beat(
        anne,
        task_offsets=[
            TaskOffset(subtopology_id="0", partition=1, offset=7),
            TaskOffset(subtopology_id="0", partition=9, offset=7),
            TaskOffset(subtopology_id="x", partition=0, offset=7),
        ],
    )
    assert world.group.soft.task_offsets == {"anne": {TaskId("0", 1): 7}}
    world.leave(anne)
    assert world.group.soft.task_offsets == {}


# -- endpoints


def test_members_learn_where_the_partitions_of_the_others_are() -> None:
    world = StreamsWorld()
    anne = world.join("anne", user_endpoint=Endpoint(host="a", port=1))
    bert = world.join("bert", user_endpoint=Endpoint(host="b", port=65_535))
    world.settle(anne, bert)
    response = world.beat(anne, endpoint_information_epoch=-1)
    endpoints = {
        (entry.user_endpoint.host, entry.user_endpoint.port): [
            (topic.topic, topic.partitions) for topic in entry.active_partitions
        ]
        for entry in response.partitions_by_user_endpoint or ()
    }
    assert set(endpoints) == {("a", 1), ("b", 65_535)}
    numbers = sorted(
        number for topics in endpoints.values() for _, partitions in topics for number in partitions
    )
    assert numbers == [0, 1, 2, 3]
    same = world.beat(anne, endpoint_information_epoch=response.endpoint_information_epoch)
    assert same.partitions_by_user_endpoint is None


# -- offsets


def check(world: StreamsWorld, member_id: str, epoch: int, partition: int = 0, topic: str = "in") -> None:
    committer = Committer(member_id=member_id, generation=epoch, api_version=9)
    verify = world.group.check_commit(committer)
    if verify is not None:
        verify(topic, UUID(int=0), partition)


def test_members_commit_in_their_epoch_or_for_tasks_that_they_had_since_then() -> None:
    world = StreamsWorld()
    anne, bert = world.join("anne"), world.join("bert")
    world.settle(anne, bert)
    old, kept = anne.epoch, next(iter(anne.active)).partition
    check(world, "anne", old)
    world.leave(bert)
    world.beat(anne)
    check(world, "anne", old, kept)
    taken_over = next(
        task.partition
        for task in anne.active
        if world.group.members["anne"].current.epoch_of(task) == anne.epoch
    )
    code = refused(lambda: check(world, "anne", old, taken_over))
    assert code is ErrorCode.STALE_MEMBER_EPOCH
    assert refused(lambda: check(world, "anne", anne.epoch + 1)) is ErrorCode.STALE_MEMBER_EPOCH
    assert refused(lambda: check(world, "nobody", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(lambda: check(world, "", -1)) is ErrorCode.UNKNOWN_MEMBER_ID
    world.leave(anne)
    check(world, "", -1)

"""Standby tasks by client tags: as different as the tags allow, the first key first, and never at a cost in tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.groups.streams.streams_world import CALLER, COUNTING, StreamsWorld

from odradek.config.group import check_group
from odradek.config.loading import load_broker_config
from odradek.groups.streams.assignor import AssignableMember, assign
from odradek.groups.streams.settings import StreamsSettings
from odradek.groups.streams.tasks import TaskAssignment, TaskId, TaskRole
from odradek.groups.streams.topology import StatusCode, SubtopologyTasks
from odradek.model.errors import ConfigError
from odradek.protocol.messages.groups.streams_group_heartbeat import KeyValue

STATEFUL = {"0": SubtopologyTasks(task_count=6, is_stateful=True, source_topics={"t": 6})}


def tagged(
    *tags: Mapping[str, str], keys: tuple[str, ...] = ("zone",), standby: int = 1
) -> dict[str, AssignableMember]:
    return {
        f"m{number}": AssignableMember(
            process_id=f"p{number}", standby_replicas=standby, rack_aware_tags=keys, client_tags=own
        )
        for number, own in enumerate(tags)
    }


def holders(assignment: Mapping[str, TaskAssignment], task: TaskId) -> tuple[str, set[str]]:
    """The member with the active task, and those with a standby task."""
    (active,) = [name for name, tasks in assignment.items() if task in set(tasks.pairs(TaskRole.ACTIVE))]
    return active, {name for name, tasks in assignment.items() if task in set(tasks.pairs(TaskRole.STANDBY))}


def tasks_of(subtopologies: Mapping[str, SubtopologyTasks]) -> list[TaskId]:
    return [TaskId(name, number) for name, part in subtopologies.items() for number in range(part.task_count)]


def test_a_standby_task_is_in_another_zone_than_its_active_task() -> None:
    members = tagged(*({"zone": zone} for zone in "abba"))
    assignment = assign(members, STATEFUL, {})
    for task in tasks_of(STATEFUL):
        active, standby = holders(assignment, task)
        zones = {members[name].client_tags["zone"] for name in (active, *standby)}
        assert zones == {"a", "b"}


def test_without_the_tags_of_the_setting_a_standby_task_is_anywhere() -> None:
    members = tagged(*({"zone": zone} for zone in "abba"), keys=())
    assignment = assign(members, STATEFUL, {})
    zones = {
        tuple(sorted(members[name].client_tags["zone"] for name in (active, *standby)))
        for active, standby in (holders(assignment, task) for task in tasks_of(STATEFUL))
    }
    assert zones - {("a", "b")}, "the test above would pass for a reason of its own"


def test_the_first_key_counts_more_than_those_after_it() -> None:
    members = tagged(
        {"zone": "a", "cluster": "1"},
        {"zone": "a", "cluster": "2"},
        {"zone": "b", "cluster": "1"},
        {"zone": "b", "cluster": "2"},
        keys=("cluster", "zone"),
    )
    assignment = assign(members, STATEFUL, {})
    for task in tasks_of(STATEFUL):
        active, standby = holders(assignment, task)
        (other,) = standby
        mine, its = members[active].client_tags, members[other].client_tags
        assert (mine["cluster"] != its["cluster"], mine["zone"] != its["zone"]) == (True, True)


def test_zones_that_are_used_up_leave_the_choice_to_the_loads() -> None:
    members = tagged(*({"zone": zone} for zone in "aab"), standby=2)
    assignment = assign(members, STATEFUL, {})
    for task in tasks_of(STATEFUL):
        active, standby = holders(assignment, task)
        assert {active, *standby} == set(members), "there are three processes for three copies"


def test_a_process_without_the_tag_is_the_last_choice() -> None:
    members = tagged({"zone": "a"}, {}, {"zone": "b"})
    assignment = assign(members, STATEFUL, {})
    for task in tasks_of(STATEFUL):
        active, standby = holders(assignment, task)
        if active != "m1":
            assert standby == ({"m0", "m2"} - {active})


def test_standby_tasks_stay_where_they_are_as_long_as_that_is_as_different() -> None:
    members = tagged(*({"zone": zone} for zone in "aabbcc"))
    before = assign(members, STATEFUL, {})
    assert assign(members, STATEFUL, before) == before


@given(
    st.lists(
        st.fixed_dictionaries({}, optional={"zone": st.sampled_from("abc"), "rack": st.sampled_from("xy")}),
        min_size=1,
        max_size=7,
    ),
    st.integers(0, 3),
    st.integers(1, 5),
)
def test_the_first_standby_task_differs_wherever_a_process_does(
    tags: list[dict[str, str]], standby: int, task_count: int
) -> None:
    subtopologies = {"0": SubtopologyTasks(task_count=task_count, is_stateful=True, source_topics={})}
    members = tagged(*tags, keys=("zone", "rack"), standby=standby)
    assignment = assign(members, subtopologies, {})
    for task in tasks_of(subtopologies):
        active, others = holders(assignment, task)
        assert len(others) == min(standby, len(members) - 1), "tags cost no standby task"
        zones = [members[name].client_tags.get("zone") for name in (active, *others)]
        possible = {member.client_tags.get("zone") for member in members.values()} - {None}
        repeats = any(first == second and first is not None for first, second in combinations(zones, 2))
        if repeats:
            assert set(zones) - {None} == possible, "a zone is used twice only when all are used"


# -- settings and statuses


def test_a_member_learns_which_tags_it_lacks_if_it_knows_that_status() -> None:
    world = StreamsWorld(rack_aware_tags=("zone", "rack"), standby_replicas=1)
    client = world.join("m", client_tags=[KeyValue(key="zone", value="a")])
    response = world.beat(client)
    (status,) = [
        entry for entry in response.status or () if entry.status_code == StatusCode.MISSING_CLIENT_TAGS
    ]
    assert "[rack]" in status.status_detail
    world.beat(client, caller=CALLER._replace(api_version=0))
    assert StatusCode.MISSING_CLIENT_TAGS not in client.status
    world.beat(client, client_tags=[KeyValue(key=key, value="a") for key in ("zone", "rack")])
    assert StatusCode.MISSING_CLIENT_TAGS not in client.status


def test_tasks_are_spread_again_when_the_tags_of_the_setting_change() -> None:
    world = StreamsWorld(standby_replicas=1)
    clients = [
        world.join(name, sent_topology=COUNTING, client_tags=[KeyValue(key="zone", value=name[0])])
        for name in ("a1", "a2", "b1", "b2")
    ]
    world.settle(*clients)
    epoch = world.group.epoch
    world.settings = replace(world.settings, rack_aware_tags=("zone",))
    world.settle(*clients)
    assert world.group.epoch == epoch + 1
    zones = {task: client.member_id[0] for client in clients for task in client.active}
    assert sum(len(client.standby) for client in clients) == 4
    for client in clients:
        assert all(zones[task] != client.member_id[0] for task in client.standby)


def test_a_groups_own_tags_replace_those_of_the_broker() -> None:
    broker, _ = load_broker_config({"group.streams.rack.aware.assignment.tags": "zone"})
    assert StreamsSettings.of(broker, {}).rack_aware_tags == ("zone",)
    own = {"streams.rack.aware.assignment.tags": "rack, host"}
    check_group(own, broker)
    settings = StreamsSettings.of(broker, own)
    assert settings.rack_aware_tags == ("rack", "host")
    assert settings.assignment_configs["rack.aware.assignment.tags"] == "rack,host"


@pytest.mark.parametrize(
    "own",
    [
        {"streams.rack.aware.assignment.tags": "zone,zone"},
        {"streams.rack.aware.assignment.tags": "zone,"},
        {"streams.assignor.name": "high-availability"},
        {"streams.task.offset.interval.ms": "14999"},
        {"streams.acceptable.recovery.lag": "-1"},
        {"streams.num.standby.replicas": "3"},
    ],
)
def test_what_a_group_may_not_choose_is_refused(own: dict[str, str]) -> None:
    broker, _ = load_broker_config({})
    with pytest.raises(ConfigError, match=next(iter(own))):
        check_group(own, broker)

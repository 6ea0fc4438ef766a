"""The sticky task assignor: every task once, even loads, and as few moves as these allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from odradek.groups.streams.assignor import AssignableMember, assign
from odradek.groups.streams.tasks import TaskAssignment, TaskId, TaskRole, grouped
from odradek.groups.streams.topology import SubtopologyTasks


def part(task_count: int, *, is_stateful: bool = True) -> SubtopologyTasks:
    return SubtopologyTasks(task_count=task_count, is_stateful=is_stateful, source_topics={"t": task_count})


def members(*process_ids: str, standby: int = 0) -> dict[str, AssignableMember]:
    return {
        f"m{number}": AssignableMember(process_id=process_id, standby_replicas=standby)
        for number, process_id in enumerate(process_ids)
    }


def loads(assignment: Mapping[str, TaskAssignment], role: TaskRole = TaskRole.ACTIVE) -> list[int]:
    return sorted(len(set(tasks.pairs(role))) for tasks in assignment.values())


def moved(before: Mapping[str, TaskAssignment], after: Mapping[str, TaskAssignment]) -> int:
    return sum(
        len(
            set(after[member].pairs(TaskRole.ACTIVE))
            - set(before.get(member, TaskAssignment()).pairs(TaskRole.ACTIVE))
        )
        for member in after
    )


def test_tasks_are_spread_evenly() -> None:
    assert loads(assign(members("a", "b", "c"), {"0": part(7)}, {})) == [2, 2, 3]


def test_stateful_and_stateless_tasks_are_even_each() -> None:
    subtopologies = {"0": part(4), "1": part(4, is_stateful=False)}
    assignment = assign(members("a", "b"), subtopologies, {})
    for tasks in assignment.values():
        assert {name: len(partitions) for name, partitions in tasks.active.items()} == {"0": 2, "1": 2}


def test_a_new_member_takes_its_share_and_nothing_else_moves() -> None:
    before = assign(members("a", "b"), {"0": part(6)}, {})
    after = assign(members("a", "b", "c"), {"0": part(6)}, before)
    assert loads(after) == [2, 2, 2]
    assert moved(before, after) == 2


def test_the_same_members_keep_what_they_have() -> None:
    before = assign(members("a", "b", "c"), {"0": part(8), "1": part(5)}, {})
    assert assign(members("a", "b", "c"), {"0": part(8), "1": part(5)}, before) == before


def test_a_task_goes_to_the_member_with_a_copy_of_its_state() -> None:
    three = members("a", "b", "c", standby=1)
    before = assign(three, {"0": part(3)}, {})
    left = {member_id: member for member_id, member in three.items() if member_id != "m0"}
    after = assign(left, {"0": part(3)}, before)
    for task in before["m0"].pairs(TaskRole.ACTIVE):
        owner = next(member for member in left if task in set(after[member].pairs(TaskRole.ACTIVE)))
        had_copy = {member for member in left if task in set(before[member].pairs(TaskRole.STANDBY))}
        assert had_copy == {owner}


def test_a_member_with_the_state_on_its_disk_is_preferred() -> None:
    two = members("a", "b")
    two["m1"] = AssignableMember(process_id="b", task_offsets={TaskId("0", 0): 100})
    assert TaskId("0", 0) in set(assign(two, {"0": part(2)}, {})["m1"].pairs(TaskRole.ACTIVE))


def test_standby_tasks_are_in_other_processes() -> None:
    assignment = assign(members("a", "a", "b", standby=1), {"0": part(6)}, {})
    for task in (TaskId("0", number) for number in range(6)):
        processes = [
            "b" if member_id == "m2" else "a"
            for member_id, tasks in assignment.items()
            for role in (TaskRole.ACTIVE, TaskRole.STANDBY)
            if task in set(tasks.pairs(role))
        ]
        assert sorted(processes) == ["a", "b"]


def test_stateless_tasks_have_no_standby() -> None:
    assignment = assign(members("a", "b", standby=1), {"0": part(4, is_stateful=False)}, {})
    assert loads(assignment, TaskRole.STANDBY) == [0, 0]


def test_there_are_as_many_standby_tasks_as_there_are_processes_for_them() -> None:
    assignment = assign(members("a", "b", standby=2), {"0": part(2)}, {})
    assert sum(loads(assignment, TaskRole.STANDBY)) == 2


def test_a_group_without_members_or_tasks_has_no_assignment() -> None:
    assert assign({}, {"0": part(2)}, {}) == {}
    assert assign(members("a"), {}, {}) == {"m0": TaskAssignment()}


@given(
    processes=st.lists(st.sampled_from("abc"), min_size=1, max_size=6),
    counts=st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=4),
    standby=st.integers(0, 2),
    earlier=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3), st.integers(0, 7), st.booleans())),
)
def test_every_task_is_active_once_whatever_was_before(
    processes: list[str],
    counts: list[tuple[int, bool]],
    standby: int,
    earlier: list[tuple[int, int, int, bool]],
) -> None:
    everyone = members(*processes, standby=standby)
    subtopologies = {
        str(number): part(count, is_stateful=is_stateful)
        for number, (count, is_stateful) in enumerate(counts)
    }
    before: dict[str, TaskAssignment] = {
        f"m{member}": TaskAssignment(
            active=grouped(
                TaskId(str(name), number)
                for who, name, number, is_active in earlier
                if who == member and is_active
            ),
            standby=grouped(
                TaskId(str(name), number)
                for who, name, number, is_active in earlier
                if who == member and not is_active
            ),
        )
        for member in range(9)
    }
    assignment = assign(everyone, subtopologies, before)
    expected = {
        TaskId(name, number) for name, tasks in subtopologies.items() for number in range(tasks.task_count)
    }
    active = Counter(task for tasks in assignment.values() for task in tasks.pairs(TaskRole.ACTIVE))
    assert active == Counter(expected)
    held = Counter(
        (everyone[member_id].process_id, task)
        for member_id, tasks in assignment.items()
        for role in (TaskRole.ACTIVE, TaskRole.STANDBY)
        for task in tasks.pairs(role)
    )
    assert set(held.values()) <= {1}
    assert set(assignment) == set(everyone)
    again = assign(everyone, subtopologies, assignment)
    assert moved(assignment, again) <= max(loads(assignment))

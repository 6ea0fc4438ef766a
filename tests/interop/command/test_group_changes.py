"""`odradek group delete-offsets`, `remove-members`, and `reset-offsets` for share groups, against a real broker."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator

import pytest

from odradek import Admin, Consumer, Producer, ShareConsumer, TopicPartition

MakeTopic = Callable[..., str]
Run = Callable[..., str]
SECONDS = 20.0
_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    return f"changed-{time.time_ns()}-{next(_numbers)}"


@pytest.fixture
def filled(bootstrap: str, topic: MakeTopic) -> str:
    """A topic with two partitions of ten records each."""
    name = topic(partitions=2)
    with Producer(bootstrap) as producer:
        for number in range(20):
            producer.send(name, b"%d" % number, partition=number % 2)
    return name


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as client:
        yield client


def offsets(run: Run, group: str) -> dict[tuple[str, int], int]:
    """What a group has committed, or where a share group goes on."""
    [described] = json.loads(run("group", "describe", group, "--json"))
    return {
        (entry["topic"], entry["partition"]): entry["committed"]
        for entry in described["offsets"]
        if entry["committed"] is not None
    }


def test_offsets_of_a_topic_or_of_some_partitions_are_forgotten(
    run: Run, filled: str, topic: MakeTopic, name: str, admin: Admin
) -> None:
    other = topic()
    partitions = [TopicPartition(filled, 0), TopicPartition(filled, 1), TopicPartition(other, 0)]
    admin.alter_group_offsets(name, dict.fromkeys(partitions, 0))
    said = json.loads(run("group", "delete-offsets", name, "--topic", f"{filled}:1", "--json"))
    assert said == {"group": name, "deleted": [{"topic": filled, "partition": 1}]}
    assert set(offsets(run, name)) == {(filled, 0), (other, 0)}
    run("group", "delete-offsets", name, "--topic", filled)
    assert set(offsets(run, name)) == {(other, 0)}


def test_offsets_that_a_group_does_not_have_are_an_error(
    run: Run, filled: str, name: str, admin: Admin, errors: list[str]
) -> None:
    admin.alter_group_offsets(name, {TopicPartition(filled, 0): 3})
    run("group", "delete-offsets", name, "--topic", "none", code=1)
    assert f"group '{name}' has no offsets of 'none'" in errors[0]
    run("group", "delete-offsets", name, "--topic", f"{filled}:1", code=1)
    assert offsets(run, name) == {(filled, 0): 3}
    run("group", "delete-offsets", f"{name}-none", "--topic", filled, code=1)
    run("group", "delete-offsets", name, code=2)


def test_a_static_member_is_removed_and_its_partitions_are_free(
    run: Run, filled: str, name: str, bootstrap: str, errors: list[str]
) -> None:
    left = Consumer(bootstrap, group_id=name, group_instance_id="till-1", auto_offset_reset="earliest")
    try:
        left.subscribe([filled])
        while not left.poll(timeout_s=1.0):
            pass
        run("group", "remove-members", name, "--instance", "till-2", code=1)
        assert "till-2" in errors[0]
        said = json.loads(
            run("group", "remove-members", name, "--instance", "till-1", "--reason", "sold", "--json")
        )
        assert said == {"group": name, "removed": ["till-1"]}
        [described] = json.loads(run("group", "describe", name, "--json"))
        assert described["members"] == []
    finally:
        left.close(commit=False)


def test_all_members_are_removed(run: Run, filled: str, name: str, bootstrap: str, errors: list[str]) -> None:
    left = Consumer(bootstrap, group_id=name, group_instance_id="till-1", auto_offset_reset="earliest")
    try:
        left.subscribe([filled])
        while not left.poll(timeout_s=1.0):
            pass
        run("group", "remove-members", name, "--all")
        assert errors == [f"removed all members from {name}"]
        [described] = json.loads(run("group", "describe", name, "--json"))
        assert described["members"] == []
    finally:
        left.close(commit=False)


@pytest.mark.parametrize("words", [(), ("--all", "--instance", "till-1")])
def test_members_are_named_in_one_way(run: Run, name: str, errors: list[str], words: tuple[str, ...]) -> None:
    run("group", "remove-members", name, *words, code=2)
    assert any("say which members" in line for line in errors)


def test_a_share_group_is_made_and_set_where_it_goes_on(
    run: Run, filled: str, name: str, bootstrap: str
) -> None:
    plan = ("group", "reset-offsets", name, "--topic", filled)
    assert "nothing" not in run(*plan, "--to-earliest", "--share", "--json")
    run(*plan, "--to-earliest", "--share", "--execute")
    [described] = json.loads(run("group", "describe", name, "--json"))
    assert described["type"] == "share"
    assert offsets(run, name) == {(filled, 0): 0, (filled, 1): 0}
    changed = json.loads(run("group", "reset-offsets", name, "--to-offset", "8", "--execute", "--json"))
    assert [(entry["before"], entry["after"]) for entry in changed["offsets"]] == [(0, 8), (0, 8)]
    values = []
    with ShareConsumer(bootstrap, group_id=name) as worker:
        worker.subscribe([filled])
        deadline = time.monotonic() + SECONDS
        while len(values) < 4 and time.monotonic() < deadline:
            values += [int(record.value or b"") for record in worker.poll(timeout_s=1.0)]
    assert sorted(values) == [16, 17, 18, 19]


def test_a_share_group_forgets_whole_topics(run: Run, filled: str, name: str, errors: list[str]) -> None:
    run("group", "reset-offsets", name, "--topic", filled, "--to-earliest", "--share", "--execute")
    run("group", "delete-offsets", name, "--topic", f"{filled}:0", code=1)
    assert "a share group forgets whole topics" in errors[0]
    said = json.loads(run("group", "delete-offsets", name, "--topic", filled, "--json"))
    assert said == {"group": name, "deleted": [{"topic": filled, "partition": None}]}
    assert offsets(run, name) == {}


def test_a_share_group_with_members_keeps_its_offsets(
    run: Run, filled: str, name: str, bootstrap: str, errors: list[str]
) -> None:
    run("group", "reset-offsets", name, "--topic", filled, "--to-earliest", "--share", "--execute")
    with ShareConsumer(bootstrap, group_id=name) as worker:
        worker.subscribe([filled])
        while not worker.poll(timeout_s=1.0):
            pass
        run("group", "reset-offsets", name, "--to-latest", "--execute", code=1)
        assert "stop them first" in errors[0]
        run("group", "delete-offsets", name, "--topic", filled, code=1)
        assert "NON_EMPTY_GROUP" in errors[0]


def test_a_group_of_consumers_is_no_share_group(
    run: Run, filled: str, name: str, admin: Admin, errors: list[str]
) -> None:
    admin.alter_group_offsets(name, {TopicPartition(filled, 0): 3})
    run("group", "reset-offsets", name, "--to-earliest", "--share", "--execute", code=1)
    assert "is no share group" in errors[0]
    assert offsets(run, name) == {(filled, 0): 3}

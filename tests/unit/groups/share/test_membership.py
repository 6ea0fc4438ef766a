"""Members of share groups: epochs, assignments, sessions, and what a restart finds."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

import pytest

from odradek.groups.offsets.kind import OFFSETS
from odradek.groups.shard.kinds import Caller
from odradek.groups.shard.machine import GroupDependencies, GroupMachine
from odradek.groups.shard.settings import GroupSettings
from odradek.groups.share.kind import ShareGroups
from odradek.groups.share.settings import ShareSettings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.share.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from odradek.shards import Moment, NewRecord, Outcome, StoredRecord

CALLER = Caller(client_id="client", client_host="/host", api_version=1)


class Topics:
    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.version = 1

    def topic_id(self, name: str) -> UUID | None:
        return UUID(bytes=name.encode().ljust(16, b".")) if name in self.counts else None

    def topic_name(self, topic_id: UUID) -> str | None:
        name = topic_id.bytes.decode().rstrip(".")
        return name if name in self.counts else None

    def partition_count(self, name: str) -> int:
        return self.counts.get(name, 0)

    def names(self) -> Collection[str]:
        return self.counts


class World:
    def __init__(self, **settings: Any) -> None:
        self.topics = Topics(t=4)
        self.shares = ShareGroups(lambda _: ShareSettings(**{"assignment_interval_ms": 0} | settings))
        self.records: list[NewRecord] = []
        self.now_ms = 1_000_000
        self.machine = self._made()

    def _made(self) -> GroupMachine:
        dependencies = GroupDependencies(
            settings=GroupSettings,
            topics=self.topics,
            new_uuid=lambda: UUID(int=1),
            batch_bytes_max=lambda: 1 << 20,
        )
        return GroupMachine(dependencies, [OFFSETS, self.shares.parts()])

    @property
    def now(self) -> Moment:
        return Moment(self.now_ms, self.now_ms)

    def written(self, outcome: Outcome[Any]) -> Any:
        for record in outcome.records:
            self.machine.replay(StoredRecord(record.key, record.value, len(self.records), self.now_ms))
            self.records.append(record)
        return outcome.reply

    def restart(self) -> None:
        self.machine = self._made()
        for offset, record in enumerate(self.records):
            self.machine.replay(StoredRecord(record.key, record.value, offset, 0))
        self.machine.loaded(self.now)

    def beat(self, member: str, epoch: int, *topics: str) -> ShareGroupHeartbeatResponse:
        names = list(topics) or None
        request = ShareGroupHeartbeatRequest(
            group_id="g", member_id=member, member_epoch=epoch, subscribed_topic_names=names
        )
        response: ShareGroupHeartbeatResponse = self.written(
            self.shares.heartbeat(self.machine, self.now, request=request, caller=CALLER)
        )
        return response

    def joined(self, member: str, *topics: str) -> int:
        """The epoch of a member that has its first partitions."""
        return self.beat(member, self.beat(member, 0, *topics).member_epoch).member_epoch

    def has(self, member: str) -> list[int]:
        described = self.shares.describe(self.machine, self.now, group_id="g").reply
        (described_member,) = [
            group_member for group_member in described.members if group_member.member_id == member
        ]
        return [
            number
            for partition in described_member.assignment.topic_partitions
            for number in partition.partitions
        ]


def refused(world: World, *beat: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        world.beat(*beat)
    return error.value.code


def test_two_members_have_half_of_the_partitions_each_and_the_last_has_all() -> None:
    world = World()
    first = world.beat("a", 0, "t")
    second = world.beat("b", 0, "t")
    world.beat("a", first.member_epoch)
    assert sorted(world.has("a") + world.has("b")) == [0, 1, 2, 3]
    assert len(world.has("a")) == len(world.has("b")) == 2
    world.beat("a", -1)
    response = world.beat("b", second.member_epoch)
    assert response.assignment is not None
    assert sorted(world.has("b")) == [0, 1, 2, 3]


def test_more_members_than_partitions_share_them() -> None:
    world = World()
    world.topics.counts = {"t": 1}
    epochs = {member: world.beat(member, 0, "t").member_epoch for member in "abc"}
    for member, epoch in epochs.items():
        world.beat(member, epoch)
    assert [world.has(member) for member in "abc"] == [[0], [0], [0]]


def test_an_unchanged_member_gets_nothing_and_nothing_is_written() -> None:
    world = World()
    epoch = world.joined("a", "t")
    written = len(world.records)
    response = world.beat("a", epoch)
    assert (response.assignment, response.member_epoch, len(world.records)) == (None, epoch, written)


def test_a_topic_that_grows_is_shared_out_again() -> None:
    world = World()
    epoch = world.joined("a", "t")
    world.topics.counts["t"], world.topics.version = 6, 2
    response = world.beat("a", epoch)
    assert response.member_epoch == epoch + 1
    response = world.beat("a", response.member_epoch)
    assert world.has("a") == [0, 1, 2, 3, 4, 5]


def test_the_first_member_does_not_have_everything_until_the_others_are_there() -> None:
    world = World(assignment_interval_ms=1_000)
    epochs = {member: world.beat(member, 0, "t").member_epoch for member in "abc"}
    assert [world.has(member) for member in "abc"] == [[], [], []]
    world.now_ms += 1_000
    for member, epoch in epochs.items():
        world.beat(member, epoch)
    assert [len(world.has(member)) for member in "abc"] == [2, 1, 1]


def test_a_group_that_was_there_before_shares_out_at_once_what_it_knows() -> None:
    world = World()
    world.joined("a", "t")
    world.beat("a", -1)
    world.beat("b", 0, "t")
    assert world.has("b") == [0, 1, 2, 3]


def test_who_does_not_want_a_topic_any_more_loses_it_at_once_and_gets_the_other_with_the_next_target() -> (
    None
):
    world = World(assignment_interval_ms=1_000)
    world.topics.counts["u"] = 2
    world.beat("a", 0, "t")
    world.now_ms += 1_000
    epoch = world.beat("a", 1).member_epoch
    assert world.has("a") == [0, 1, 2, 3]
    response = world.beat("a", epoch, "u")
    assert response.assignment is not None
    assert world.has("a") == []
    assert world.beat("a", 1).error_code == 0, "a heartbeat that was sent before is not fenced"
    world.now_ms += 1_000
    world.beat("a", epoch)
    assert world.has("a") == [0, 1]


def test_who_is_not_in_step_is_refused() -> None:
    world = World(max_size=1)
    assert refused(world, "a", 1) is ErrorCode.GROUP_ID_NOT_FOUND
    epoch = world.beat("a", 0, "t").member_epoch
    assert refused(world, "a", epoch + 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(world, "b", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(world, "b", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(world, "b", 0, "t") is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused(world, "a", -2) is ErrorCode.INVALID_REQUEST
    assert refused(world, "a", 0) is ErrorCode.INVALID_REQUEST
    assert refused(world, "", 0, "t") is ErrorCode.INVALID_REQUEST
    assert refused(world, "m" * 37, 0, "t") is ErrorCode.INVALID_REQUEST


def test_a_silent_member_is_removed_and_a_restart_gives_it_all_its_time() -> None:
    world = World(session_timeout_ms=1_000)
    world.joined("a", "t")
    world.now_ms += 999
    world.written(world.machine.tick(world.now))
    world.restart()
    assert world.has("a") == [0, 1, 2, 3]
    world.now_ms += 999
    world.written(world.machine.tick(world.now))
    assert world.machine.groups["g"].state_name == "Stable"
    world.now_ms += 1
    world.written(world.machine.tick(world.now))
    assert world.machine.groups["g"].state_name == "Empty"


def test_a_deleted_group_leaves_nothing_to_a_restart() -> None:
    world = World()
    world.beat("a", 0, "t")
    group = world.machine.groups["g"]
    with pytest.raises(KafkaError):
        group.check_delete()
    world.beat("a", -1)
    group.check_delete()
    world.written(Outcome(None, records=list(group.tombstones())))
    assert world.machine.groups == {}
    world.restart()
    assert world.machine.groups == {}


def test_an_empty_group_stays_however_old_it_is() -> None:
    world = World()
    world.beat("a", 0, "t")
    world.beat("a", -1)
    world.restart()
    for _ in range(2):
        deadline_ms = world.machine.next_deadline_ms()
        assert deadline_ms is not None
        world.now_ms = deadline_ms
        world.written(world.machine.tick(world.now))
    assert world.machine.groups["g"].state_name == "Empty"

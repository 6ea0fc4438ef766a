"""The target of a large group is worked out beside the decisions about it, and written if the group has not changed."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import pytest
from tests.unit.groups.group_bench import GroupBench

from odradek.groups.consumer.kind import ConsumerGroups
from odradek.groups.consumer.settings import ConsumerGroupSettings
from odradek.groups.shard.kinds import Caller
from odradek.groups.shard.large_targets import AT_ONCE_MAX, LargeTarget
from odradek.groups.share.kind import ShareGroups
from odradek.groups.share.settings import ShareSettings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest

CALLER = Caller(client_id="client", client_host="/127.0.0.1", api_version=1)
CONSUMER, SHARE = "consumer", "share"


class Beside:
    """`LargeTargets` whose work is done when the test says so."""

    def __init__(self) -> None:
        self.begun: list[LargeTarget] = []

    def is_wanted(self, group_id: str, epoch: int) -> bool:
        return not self.begun

    def begin(self, target: LargeTarget) -> None:
        self.begun.append(target)

    def finish(self, world: World) -> None:
        target = self.begun.pop()
        records = target.compute()
        world.bench.execute(lambda machine, now: target.write(machine, now, records))


class World:
    """A group of one kind, whose members read a topic of many partitions."""

    def __init__(self, kind: str, partition_count: int = AT_ONCE_MAX, **bench: Any) -> None:
        self.beside = Beside()
        self._partition_count = partition_count
        self._is_share = kind == SHARE
        self._consumers = ConsumerGroups(lambda _: ConsumerGroupSettings(assignment_interval_ms=0))
        self._shares = ShareGroups(lambda _: ShareSettings(assignment_interval_ms=0))
        kinds = [self._consumers.parts(), self._shares.parts()]
        self.bench = GroupBench(
            topics={"t": partition_count}, kinds=kinds, large_targets=self.beside, **bench
        )
        self._epochs: dict[int, int] = {}

    def beat(self, member: int) -> int:
        """How many partitions the group's target has for the member after its heartbeat."""
        said = {
            "group_id": "g",
            "member_id": str(UUID(int=member)),
            "member_epoch": self._epochs.get(member, 0),
        }
        operation: Any
        if self._is_share:
            names = None if member in self._epochs else ["t"]
            shared = ShareGroupHeartbeatRequest(**said, subscribed_topic_names=names)
            operation = partial(self._shares.heartbeat, request=shared, caller=CALLER)
        else:
            request = ConsumerGroupHeartbeatRequest(
                **said, rebalance_timeout_ms=30_000, subscribed_topic_names=["t"], topic_partitions=[]
            )
            operation = partial(self._consumers.heartbeat, request=request, caller=CALLER)
        self._epochs[member] = self.bench.execute(operation).member_epoch
        return self.targets().get(member, 0)

    def targets(self) -> dict[int, int]:
        group: Any = self.bench.machine.groups["g"]
        return {
            UUID(member_id).int: sum(map(len, share.values())) for member_id, share in group.targets.items()
        }

    def begin(self) -> None:
        """The first member has everything: a share group's with the target after the first, which is a large one."""
        self.beat(1)
        if self._is_share:
            self.beat(1)
            self.finish_if_begun()
        assert self.targets() == {1: self._partition_count}
        assert not self.beside.begun

    def finish_if_begun(self) -> None:
        if self.beside.begun:
            self.beside.finish(self)

    def epoch_of(self, member: int) -> int:
        return self._epochs[member]


@pytest.mark.parametrize("kind", [CONSUMER, SHARE])
def test_a_heartbeat_goes_on_without_the_target_and_a_later_one_has_it(kind: str) -> None:
    world = World(kind)
    world.begin()
    world.beat(2)
    assert 2 not in world.targets()
    assert len(world.beside.begun) == 1
    world.beside.finish(world)
    assert world.targets() == {1: AT_ONCE_MAX // 2, 2: AT_ONCE_MAX // 2}
    assert not world.beside.begun


@pytest.mark.parametrize("kind", [CONSUMER, SHARE])
def test_no_member_gets_the_epoch_of_one_that_has_yet_to_join(kind: str) -> None:
    world = World(kind)
    for member in (1, 2, 3):
        world.beat(member)
        assert world.epoch_of(member) > 0
        world.beat(member)


@pytest.mark.parametrize("kind", [CONSUMER, SHARE])
def test_a_target_for_an_older_epoch_is_dropped_and_worked_out_again(kind: str) -> None:
    world = World(kind)
    world.begin()
    world.beat(2)
    world.beat(3)
    world.beside.finish(world)
    assert world.targets() == {1: AT_ONCE_MAX}
    world.beside.finish(world)
    assert sorted(world.targets()) == [1, 2, 3]
    assert sum(world.targets().values()) == AT_ONCE_MAX


def test_a_target_for_fewer_partitions_than_a_topic_has_by_now_is_dropped() -> None:
    world = World(CONSUMER)
    world.begin()
    world.beat(2)
    world.bench.topics.create("t", AT_ONCE_MAX + 10)
    world.beside.finish(world)
    assert world.targets() == {1: AT_ONCE_MAX}
    world.beside.finish(world)
    assert world.targets() == {1: AT_ONCE_MAX // 2 + 5, 2: AT_ONCE_MAX // 2 + 5}


@pytest.mark.parametrize("kind", [CONSUMER, SHARE])
def test_the_target_of_a_small_group_is_worked_out_at_once(kind: str) -> None:
    world = World(kind, partition_count=10)
    world.begin()
    world.beat(2)
    assert world.targets() == {1: 5, 2: 5}
    assert not world.beside.begun


@pytest.mark.parametrize("kind", [CONSUMER, SHARE])
def test_a_target_that_comes_after_a_restart_of_the_coordinator_counts_if_the_group_is_the_same(
    kind: str,
) -> None:
    world = World(kind)
    world.begin()
    world.beat(2)
    world.bench.restart()
    world.beside.finish(world)
    assert world.targets() == {1: AT_ONCE_MAX // 2, 2: AT_ONCE_MAX // 2}


def test_a_target_that_no_batch_can_hold_is_refused_and_nothing_is_written() -> None:
    world = World(CONSUMER, batch_bytes_max=200_000)
    world.begin()
    world.bench.topics.create("t", 20 * AT_ONCE_MAX)
    world.beat(2)
    with pytest.raises(KafkaError) as refusal:
        world.beside.finish(world)
    assert refusal.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.targets() == {1: AT_ONCE_MAX}

"""Who leads, and who is in sync, when disks of brokers are full or slow; and what happens when they are well again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.cluster.availability import (
    Liveness,
    ReplicaAvailability,
    TopicRules,
    relieved_brokers,
)
from odradek.cluster.elections import settled, with_preferred_leader
from odradek.cluster.image import NO_LEADER, BrokerImage, PartitionImage
from odradek.cluster.sync import BrokerReport
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch

REPLICA = (UUID(int=1), 0)
BROKERS = tuple(BrokerId(number) for number in range(1, 5))


class Scene(NamedTuple):
    """One partition, and the brokers as they stand."""

    partition: PartitionImage
    liveness: Liveness
    rules: TopicRules

    @property
    def availability(self) -> ReplicaAvailability:
        return self.liveness.standing_for(*REPLICA)

    def settled(self) -> PartitionImage:
        return settled(self.partition, self.availability, self.rules)

    def with_disks_well(self) -> Scene:
        return self._replace(liveness=self.liveness._replace(full={}, slow={}, relieved=frozenset()))


def on(brokers: frozenset[BrokerId]) -> dict[BrokerId, frozenset[tuple[UUID, int]]]:
    return {broker: frozenset({REPLICA}) for broker in brokers}


def scene(
    *,
    replicas: tuple[BrokerId, ...] = BROKERS[:3],
    isr: tuple[BrokerId, ...] | None = None,
    leader: int = 1,
    alive: frozenset[BrokerId] = frozenset(BROKERS),
    leaving: frozenset[BrokerId] = frozenset(),
    full: frozenset[BrokerId] = frozenset(),
    slow: frozenset[BrokerId] = frozenset(),
    min_isr: int = 1,
) -> Scene:
    partition = PartitionImage(
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(3),
        replicas=replicas,
        isr=replicas if isr is None else isr,
    )
    images = {
        broker: BrokerImage(
            broker_id=broker, host="h", port=1, epoch=int(broker), is_leaving=broker in leaving
        )
        for broker in sorted(alive)
    }
    relieved = relieved_brokers(dict.fromkeys(sorted(slow & alive), 0.0), len(alive))
    liveness = Liveness(brokers=images, full=on(full), slow=on(slow), relieved=relieved)
    return Scene(partition, liveness, TopicRules(min_isr=min_isr))


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    some = st.frozensets(st.sampled_from(BROKERS))
    replicas = tuple(draw(st.permutations(BROKERS))[: draw(st.integers(1, 4))])
    isr = tuple(broker for broker in replicas if draw(st.booleans())) or replicas[:1]
    return scene(
        replicas=replicas,
        isr=isr,
        leader=draw(st.sampled_from([*isr, NO_LEADER])),
        alive=draw(some),
        leaving=draw(some),
        full=draw(some),
        slow=draw(some),
        min_isr=draw(st.integers(1, 3)),
    )


FULL_1 = scene(full=frozenset(BROKERS[:1]))


@given(before=scenes())
@example(before=FULL_1)
def test_a_disk_takes_no_leader_away_and_no_member_that_the_others_need(before: Scene) -> None:
    after, usual = before.settled(), before.with_disks_well().settled()
    assert (after.leader == NO_LEADER) == (usual.leader == NO_LEADER)
    assert after.isr
    assert set(after.isr) <= set(before.partition.isr)
    if after.leader != NO_LEADER:
        assert after.leader in after.isr
    availability = before.availability
    left_for_slowness = {
        broker for broker in set(usual.isr) - set(after.isr) if broker not in availability.full
    }
    if left_for_slowness:
        assert len(after.isr) >= before.rules.min_isr_of(before.partition)


@given(before=scenes())
@example(before=FULL_1)
def test_a_full_disk_leads_only_where_no_member_can_write(before: Scene) -> None:
    after, availability = before.settled(), before.availability
    if after.leader in availability.full:
        can_write = (availability.electable | availability.slow).intersection(before.partition.isr)
        assert not can_write
    if availability.full.intersection(after.isr):
        assert availability.electable.isdisjoint(before.partition.isr)


@given(before=scenes())
def test_a_slow_disk_that_is_relieved_leads_only_where_no_better_member_is(before: Scene) -> None:
    after, availability = before.settled(), before.availability
    if after.leader in availability.relieved:
        assert availability.electable.isdisjoint(before.partition.isr)


@given(before=scenes())
@example(before=FULL_1)
def test_a_decision_stands_until_something_changes(before: Scene) -> None:
    after = before.settled()
    assert before._replace(partition=after).settled() is after


@given(before=scenes())
def test_a_leader_on_a_sound_disk_does_not_change_for_the_disks_of_others(before: Scene) -> None:
    usual = before.with_disks_well().settled()
    availability = before.availability
    if usual.leader == before.partition.leader and usual.leader in availability.electable:
        assert before.settled().leader == usual.leader


@given(
    since=st.dictionaries(st.sampled_from(BROKERS), st.floats(0, 100)),
    serving=st.integers(1, 4),
    more=st.data(),
)
def test_never_more_than_half_of_the_brokers_are_relieved_and_no_turn_is_taken_away(
    since: dict[BrokerId, float], serving: int, more: st.DataObject
) -> None:
    relieved = relieved_brokers(since, serving)
    assert len(relieved) <= serving / 2
    later = more.draw(st.dictionaries(st.sampled_from(BROKERS), st.floats(101, 200)))
    assert relieved <= relieved_brokers({**later, **since}, serving)


def test_a_slow_replica_leads_where_the_leader_is_about_to_leave_and_no_one_better_is_in_sync() -> None:
    slow = scene(isr=BROKERS[:2], leader=1, leaving=frozenset(BROKERS[:1]), slow=frozenset(BROKERS[1:2]))
    assert slow.settled().leader == 2


def test_a_full_replica_is_not_preferred() -> None:
    returning = scene(leader=2, full=frozenset(BROKERS[:1]))
    assert with_preferred_leader(returning.partition, returning.availability) is returning.partition
    well = returning.with_disks_well()
    assert with_preferred_leader(well.partition, well.availability).leader == 1


def test_a_report_says_which_replicas_are_on_full_and_slow_disks() -> None:
    report = BrokerReport(
        broker_id=BROKERS[0], broker_epoch=1, full=frozenset({REPLICA}), slow=frozenset({(UUID(int=2), 7)})
    )
    assert BrokerReport(broker_id=BROKERS[0], broker_epoch=1).with_data(report.data()) == report


# -- with the controller


def replica(three: Any, topic: str = "t", index: int = 0) -> tuple[UUID, int]:
    return three.controller.latest.topics[topic].topic_id, index


@pytest.mark.parametrize("condition", ["full", "slow"])
async def test_a_leader_hands_over_at_its_report_and_leads_again_when_its_disk_is_well(
    three: Any, condition: str
) -> None:
    await three.topic("t")
    before = three.partition("t")
    setattr(three.brokers[1], condition, frozenset({replica(three)}))
    await three.brokers[1].ask()
    now = three.partition("t")
    assert (now.leader, now.isr) == (2, (2, 3))
    assert now.leader_epoch == before.leader_epoch + 1
    await three.all_ask()
    refused = await three.brokers[2].propose("t", 0, [2, 3, 1])
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.INELIGIBLE_REPLICA
    setattr(three.brokers[1], condition, frozenset())
    await three.all_ask()
    joined = await three.brokers[2].propose("t", 0, [2, 3, 1])
    assert isinstance(joined, PartitionImage)
    await three.controller.elect_leaders(None, unclean=False)
    assert three.partition("t").leader == 1


async def test_only_the_partitions_of_the_full_directory_are_handed_over(three: Any) -> None:
    await three.topic("t", partitions=6)
    led = [index for index in range(6) if three.partition("t", index).leader == 1]
    three.brokers[1].full = frozenset({replica(three, index=led[0])})
    await three.brokers[1].ask()
    assert [index for index in range(6) if three.partition("t", index).leader == 1] == led[1:]
    assert all(1 in three.partition("t", index).isr for index in range(6) if index != led[0])


async def test_a_follower_on_a_full_disk_leaves_even_below_min_insync_replicas_and_stays_eligible(
    three: Any,
) -> None:
    await three.topic("t", min_insync_replicas="3")
    three.brokers[3].full = frozenset({replica(three)})
    await three.brokers[3].ask()
    now = three.partition("t")
    assert (now.leader, now.isr, now.eligible) == (1, (1, 2), (3,))


async def test_a_follower_on_a_slow_disk_stays_while_min_insync_replicas_needs_it(three: Any) -> None:
    await three.topic("t", min_insync_replicas="3")
    before = three.partition("t")
    three.brokers[3].slow = frozenset({replica(three)})
    await three.brokers[3].ask()
    assert three.partition("t") == before
    three.clock.now += 1
    three.brokers[1].slow = frozenset({replica(three)})
    await three.brokers[1].ask()
    assert three.partition("t") == before, "the second of three slow brokers keeps what it leads"


async def test_where_all_disks_are_full_nothing_moves_and_the_last_one_left_leads(three: Any) -> None:
    await three.topic("t")
    for broker in three.brokers.values():
        broker.full = frozenset({replica(three)})
    three.brokers[1].full = frozenset()
    await three.all_ask()
    three.brokers[1].full = frozenset({replica(three)})
    await three.brokers[1].ask()
    assert (three.partition("t").leader, three.partition("t").isr) == (1, (1,))
    await three.kill(3)
    assert three.partition("t").leader == 1


async def test_a_new_controller_learns_of_full_disks_from_the_reports(three: Any) -> None:
    await three.topic("t")
    three.brokers[1].full = frozenset({replica(three)})
    await three.brokers[1].ask()
    await three.elect(three.brokers[2], knows=three.controller.latest)
    await three.all_ask()
    assert three.partition("t").leader == 2
    refused = await three.brokers[2].propose("t", 0, [2, 3, 1])
    assert isinstance(refused, KafkaError)


def test_a_disk_that_is_well_again_changes_nothing_by_itself() -> None:
    after = FULL_1.settled()
    assert FULL_1._replace(partition=after).with_disks_well().settled() is after
    assert replace(after) == after

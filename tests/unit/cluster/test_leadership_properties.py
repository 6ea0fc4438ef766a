"""Whatever happens to the brokers of a partition: what was acknowledged is at its leader, and no epoch has two leaders.

The model has logs, and a leader that acknowledges as Odradek's leaders do: what all of the ISR holds, while the ISR has at
least min.insync.replicas members.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.cluster.availability import Liveness, ReplicaAvailability, TopicRules, without
from odradek.cluster.elections import (
    completed,
    settled,
    was_elected_uncleanly,
    with_preferred_leader,
    with_unclean_leader,
    without_damaged,
)
from odradek.cluster.image import NO_LEADER, BrokerImage, PartitionImage
from odradek.cluster.isr_changes import ProposedIsr, changed_isr
from odradek.cluster.reassignment import begun, cancelled, check_target
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch

REPLICA = (UUID(int=1), 0)
BROKERS = [BrokerId(number) for number in range(1, 6)]
ACTIONS = (
    "kill", "kill", "revive", "revive", "revive", "restart", "leave", "stay", "append", "append", "replicate", "acknowledge",
    "acknowledge", "join", "join", "shrink", "reassign", "cancel", "prefer", "damage", "unclean", "wait for",
)  # fmt: skip

EXPECTED = {
    ErrorCode.INELIGIBLE_REPLICA,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
}


class World:
    """One partition, its brokers, and what each of them holds."""

    def __init__(self, replicas: list[BrokerId], rules: TopicRules) -> None:
        self.rules = rules
        self.partition = PartitionImage(
            leader=replicas[0], leader_epoch=LeaderEpoch(0), replicas=tuple(replicas), isr=tuple(replicas)
        )
        self.alive = dict.fromkeys(BROKERS, 1)
        self.epochs = dict.fromkeys(BROKERS, 1)
        self.leaving: set[BrokerId] = set()
        self.awaited: set[BrokerId] = set()
        self.logs: dict[BrokerId, list[int]] = {broker: [] for broker in BROKERS}
        self.acknowledged: list[int] = []
        self.leaders: dict[int, BrokerId] = {}
        self.records = 0
        self.has_lost = False
        """An unclean election: nothing can be promised any more."""
        self.lost: set[BrokerId] = set()
        """They lack what they had, and know that the cluster counts on them."""
        self.lacking: set[BrokerId] = set()
        """They lack what they had, and no one counts on them."""
        self.refusals: set[ErrorCode] = set()

    # -- what the controller does

    def liveness(self) -> Liveness:
        return Liveness(
            brokers={
                broker: BrokerImage(
                    broker_id=broker, host="", port=0, epoch=epoch, is_leaving=broker in self.leaving
                )
                for broker, epoch in self.alive.items()
                if broker not in self.awaited
            },
            awaited=frozenset(self.awaited),
            lost=dict.fromkeys(self.lost, frozenset({REPLICA})),
            lacking=dict.fromkeys(self.lacking, frozenset({REPLICA})),
        )

    def availability(self) -> ReplicaAvailability:
        return self.liveness().standing_for(*REPLICA)

    def become(self, after: PartitionImage) -> None:
        before, self.partition = self.partition, after
        if after is before:
            return
        if was_elected_uncleanly(before, after):
            assert self.rules.allows_unclean or self.has_lost
            self.has_lost = True
        assert after.partition_epoch > before.partition_epoch
        assert after.leader_epoch >= before.leader_epoch
        if after.leader != before.leader:
            assert after.leader_epoch > before.leader_epoch
        for broker in self.logs:
            if broker not in after.replicas:
                self.logs[broker] = []
        self.notice()
        self.check()

    def notice(self) -> None:
        """Brokers see what the cluster counts on, as `note_after` says."""
        counted = {*self.partition.isr, *self.partition.eligible}
        for broker in list(self.lost):
            if self.partition.leader == broker and self.partition.recovering:
                self.lost.discard(broker)
            elif broker not in counted:
                self.lost.discard(broker)
                self.lacking.add(broker)
        self.lacking -= counted

    def check(self) -> None:
        now = self.partition
        availability = self.availability()
        assert now.isr
        assert set(now.isr) <= set(now.replicas)
        assert len(set(now.isr)) == len(now.isr)
        assert set(now.eligible).isdisjoint(now.isr)
        assert set(now.eligible) <= set(now.replicas)
        assert set(now.adding) <= set(now.replicas)
        assert set(now.removing) <= set(now.replicas)
        if now.leader != NO_LEADER:
            assert now.leader in now.isr
            assert now.leader in availability.alive
            assert now.leader not in self.lost
            assert self.leaders.setdefault(now.leader_epoch, now.leader) == now.leader
            if not self.has_lost:
                assert set(self.acknowledged) <= set(self.logs[now.leader])
        elif not self.has_lost:
            able = {broker for broker in now.isr if broker in availability.electable}
            assert not able, "someone could lead"
        if len(now.isr) >= self.rules.min_isr_of(now):
            assert not now.eligible
        assert completed(now, availability) is now, "a move could end"

    def settle(self) -> None:
        self.become(settled(self.partition, self.availability(), self.rules))

    # -- what happens

    def kill(self, broker: BrokerId, _: int) -> None:
        self.alive.pop(broker, None)
        self.leaving.discard(broker)
        self.awaited.discard(broker)
        self.settle()

    def revive(self, broker: BrokerId, _: int) -> None:
        if broker not in self.alive:
            self.epochs[broker] += 1
            self.alive[broker] = self.epochs[broker]
            self.settle()

    def restart(self, broker: BrokerId, number: int) -> None:
        self.kill(broker, number)
        self.revive(broker, number)

    def leave(self, broker: BrokerId, _: int) -> None:
        if broker in self.alive and broker not in self.awaited:
            self.leaving.add(broker)
            self.settle()

    def stay(self, broker: BrokerId, _: int) -> None:
        self.leaving.discard(broker)
        self.awaited.discard(broker)
        self.settle()

    def wait_for(self, broker: BrokerId, _: int) -> None:
        """A new controller has not heard of the broker yet."""
        if broker in self.alive:
            self.leaving.discard(broker)
            self.awaited.add(broker)
            self.settle()

    def append(self, _: BrokerId, __: int) -> None:
        leader = self.partition.leader
        if leader != NO_LEADER:
            self.records += 1
            self.logs[leader].append(self.records)

    def replicate(self, broker: BrokerId, _: int) -> None:
        """A follower takes over all that the leader has, and drops what it has not."""
        leader = self.partition.leader
        is_here = broker in self.alive and broker in self.partition.replicas
        if leader != NO_LEADER and is_here and broker not in self.lost:
            self.logs[broker] = list(self.logs[leader])

    def acknowledge(self, broker: BrokerId, number: int) -> None:
        now = self.partition
        if now.leader == NO_LEADER or len(now.isr) < self.rules.min_isr:
            return
        for member in now.isr:
            if member in self.alive:
                self.replicate(member, number)
        held = [set(self.logs[member]) for member in now.isr]
        new = set.intersection(*held) - set(self.acknowledged)
        self.acknowledged += sorted(new)

    def propose(self, isr: list[BrokerId]) -> None:
        proposal = ProposedIsr(
            leader_epoch=self.partition.leader_epoch,
            partition_epoch=self.partition.partition_epoch,
            isr=tuple((broker, self.epochs[broker]) for broker in isr),
        )
        liveness = self.liveness()
        try:
            after = changed_isr(
                self.partition,
                proposal,
                proposer=self.partition.leader,
                liveness=liveness,
                availability=self.availability(),
                rules=self.rules,
            )
        except KafkaError as error:
            self.refusals.add(error.code)
            return
        self.become(after)

    def join(self, broker: BrokerId, number: int) -> None:
        now = self.partition
        if now.leader != NO_LEADER and broker in now.replicas and broker not in now.isr:
            self.replicate(broker, number)
            if broker in self.alive:
                self.propose([*now.isr, broker])

    def shrink(self, broker: BrokerId, _: int) -> None:
        now = self.partition
        if now.leader != NO_LEADER and broker in now.isr and broker != now.leader:
            self.propose([broker_id for broker_id in now.isr if broker_id != broker])

    def reassign(self, broker: BrokerId, number: int) -> None:
        start = BROKERS.index(broker)
        target = [BROKERS[(start + step) % len(BROKERS)] for step in range(1 + number % 3)]
        availability = self.availability()
        check_target(self.partition, target, frozenset(BROKERS))
        try:
            self.become(settled(begun(self.partition, target, availability), availability, self.rules))
        except KafkaError as error:
            self.refusals.add(error.code)

    def cancel(self, _: BrokerId, __: int) -> None:
        try:
            availability = self.availability()
            self.become(settled(cancelled(self.partition, availability), availability, self.rules))
        except KafkaError as error:
            self.refusals.add(error.code)

    def prefer(self, _: BrokerId, __: int) -> None:
        self.become(with_preferred_leader(self.partition, self.availability()))

    def damage(self, broker: BrokerId, _: int) -> None:
        """A broker comes back without its data, and says so."""
        if broker not in self.partition.replicas:
            return
        if broker in self.alive:
            self.kill(broker, 0)
        self.logs[broker] = []
        if broker in (*self.partition.isr, *self.partition.eligible):
            self.lost.add(broker)
        self.epochs[broker] += 1
        self.alive[broker] = self.epochs[broker]
        availability = self.availability()
        partition = settled(self.partition, without(availability, frozenset([broker])), self.rules)
        partition = without_damaged(partition, broker, without(availability, frozenset([broker])), self.rules)
        self.become(settled(partition, availability, self.rules))

    def unclean(self, _: BrokerId, number: int) -> None:
        if self.partition.leader == NO_LEADER and number % 4 == 0:
            self.has_lost = True
            availability = self.availability()
            better = availability.electable - availability.lacking
            self.become(with_unclean_leader(self.partition, availability))
            if better.intersection(self.partition.replicas):
                assert self.partition.leader in better


@settings(deadline=None, max_examples=200)
@given(
    factor=st.integers(1, 3),
    min_isr=st.integers(1, 3),
    steps=st.lists(
        st.tuples(st.sampled_from(ACTIONS), st.sampled_from(BROKERS), st.integers(0, 7)), max_size=60
    ),
)
@example(
    factor=2,
    min_isr=1,
    steps=[("wait for", BROKERS[1], 0), ("reassign", BROKERS[1], 0), ("stay", BROKERS[1], 0)],
)
@example(
    factor=1,
    min_isr=1,
    steps=[("reassign", BROKERS[1], 0), ("kill", BROKERS[0], 0), ("unclean", BROKERS[1], 0)],
)
def test_what_is_acknowledged_is_at_the_leader_whatever_happens(
    factor: int, min_isr: int, steps: list[tuple[str, BrokerId, int]]
) -> None:
    world = World(BROKERS[:factor], TopicRules(min_isr=min_isr))
    for action, broker, number in steps:
        getattr(world, action.replace(" ", "_"))(broker, number)
        world.check()
    assert world.refusals <= EXPECTED


@settings(deadline=None, max_examples=100)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(ACTIONS), st.sampled_from(BROKERS), st.integers(0, 7)), max_size=60
    ),
)
def test_where_it_is_allowed_someone_leads_as_long_as_a_replica_is_alive(
    steps: list[tuple[str, BrokerId, int]],
) -> None:
    world = World(BROKERS[:3], TopicRules(allows_unclean=True))
    for action, broker, number in steps:
        getattr(world, action.replace(" ", "_"))(broker, number)
        now, availability = world.partition, world.availability()
        hopes = availability.alive.intersection((*now.isr, *now.eligible))
        if availability.electable.intersection(now.replicas) and not hopes:
            assert now.leader != NO_LEADER


@pytest.mark.parametrize("alive", [True, False])
def test_a_partition_that_nothing_happened_to_stays_the_same_object(alive: bool) -> None:
    world = World(BROKERS[:3], TopicRules())
    if not alive:
        for broker in BROKERS:
            world.kill(broker, 0)
    assert settled(world.partition, world.availability(), world.rules) is world.partition


def test_a_copy_that_is_the_last_one_in_sync_is_never_dropped() -> None:
    world = World(BROKERS[:2], TopicRules())
    world.kill(BROKERS[1], 0)
    with pytest.raises(KafkaError) as refused:
        begun(replace(world.partition, adding=(BROKERS[0],)), [BROKERS[2]], world.availability())
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    after = begun(world.partition, [BROKERS[2]], world.availability())
    assert after.isr == (BROKERS[0],)
    assert after.removing == (BROKERS[0], BROKERS[1])

"""Changes that leaders and operators ask the controller for: the ISR, reassignments, refusals."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from tests.kit.waiting import PATIENCE_S

from odradek.cluster.availability import TopicRules
from odradek.cluster.controller.changes import Changes
from odradek.cluster.controller.maintenance import Maintenance, MaintenancePolicy
from odradek.cluster.image import PartitionImage
from odradek.cluster.isr_changes import ProposedIsr
from odradek.cluster.reassignment import Reassignment
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.registry import RegistryError


def brokers(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


async def test_a_restarted_broker_joins_no_isr_by_what_its_former_self_fetched(three: Any) -> None:
    await three.topic("t")
    await three.kill(2)
    broker = three.brokers[1]
    await three.revive(2)
    await broker.ask()
    stale = broker.image
    await three.kill(2)
    await three.revive(2)
    await broker.ask()
    current = broker.image.topics["t"].partitions[0]
    broker.image = stale.with_topics(
        [broker.image.topics["t"]]
    )  # the leader saw the former epoch of broker 2
    outcome = await broker.propose("t", 0, [1, 3, 2])
    assert isinstance(outcome, KafkaError)
    assert outcome.code is ErrorCode.INELIGIBLE_REPLICA
    assert three.partition("t") == current


async def test_proposals_that_come_at_once_share_a_commit(three: Any) -> None:
    await three.topic("t", partitions=30)
    for broker in three.brokers.values():
        await broker.ask()
    commits = three.brokers[1].session.commits
    count = len(commits)
    wanted = [
        (
            three.brokers[partition.leader],
            index,
            [member for member in partition.isr if member != 3 or partition.leader == 3],
        )
        for index, partition in enumerate(three.controller.latest.topics["t"].partitions)
    ]
    outcomes = await asyncio.gather(*(broker.propose("t", index, isr) for broker, index, isr in wanted))
    assert all(isinstance(outcome, PartitionImage) for outcome in outcomes)
    assert len(commits) <= count + 2


async def test_a_reassignment_ends_when_the_target_is_in_sync_and_can_be_cancelled(cluster: Any) -> None:
    await cluster.start(4)
    await cluster.topic("t", partitions=2)
    replicas = [cluster.partition("t", index).replicas for index in (0, 1)]
    leader = cluster.brokers[cluster.partition("t").leader]
    absent = next(broker for broker in brokers(1, 2, 3, 4) if broker not in replicas[0])
    target = (absent, replicas[0][1], replicas[0][2])
    [none] = await cluster.controller.reassign([Reassignment(topic="t", partition=0, replicas=target)])
    assert none is None
    now = cluster.partition("t")
    assert now.adding == (absent,)
    assert now.removing == (replicas[0][0],)
    assert now.leader == leader.broker_id
    await cluster.all_ask()
    outcome = await leader.propose("t", 0, [*now.isr, absent])
    assert isinstance(outcome, PartitionImage)
    done = cluster.partition("t")
    assert done.replicas == target
    assert set(done.isr) == set(target)
    assert done.leader == absent  # its old leader is not a replica any more
    assert done.leader_epoch == now.leader_epoch + 1
    absent = next(broker for broker in brokers(1, 2, 3, 4) if broker not in replicas[1])
    wanted = Reassignment(topic="t", partition=1, replicas=(*replicas[1][:2], absent))
    assert await cluster.controller.reassign([wanted]) == [None]
    assert cluster.partition("t", 1).adding == (absent,)
    cancel = Reassignment(topic="t", partition=1, replicas=None)
    assert await cluster.controller.reassign([cancel]) == [None]
    assert set(cluster.partition("t", 1).replicas) == set(replicas[1])
    [refused] = await cluster.controller.reassign([cancel])
    assert refused.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def test_a_reassignment_outlives_the_controller(cluster: Any) -> None:
    await cluster.start(4)
    await cluster.topic("t")
    absent = next(broker for broker in brokers(1, 2, 3, 4) if broker not in cluster.partition("t").replicas)
    await cluster.controller.reassign([Reassignment(topic="t", partition=0, replicas=(absent,))])
    await cluster.all_ask()
    await cluster.elect(cluster.brokers[2], knows=cluster.brokers[2].image)
    await cluster.all_ask()
    now = cluster.partition("t")
    assert now.adding == (absent,)
    leader = cluster.brokers[now.leader]
    await leader.propose("t", 0, [*now.isr, absent])
    assert cluster.partition("t").replicas == (absent,)
    assert cluster.partition("t").leader == absent


async def test_a_reassignment_that_waits_only_for_a_leader_ends_when_a_broker_is_back_in_service(
    three: Any,
) -> None:
    await three.topic("t")
    before = three.partition("t")
    leader = three.brokers[before.leader]
    target = tuple(replica for replica in before.replicas if replica != leader.broker_id)
    await three.elect(leader)
    await leader.ask()  # the others are in sync, and not yet in service under this controller
    assert await three.controller.reassign([Reassignment(topic="t", partition=0, replicas=target)]) == [None]
    assert three.partition("t").removing == (leader.broker_id,)
    assert three.partition("t").isr == before.isr
    await three.brokers[target[1]].ask()
    now = three.partition("t")
    assert now.replicas == target
    assert set(now.isr) == set(target)
    assert not now.is_reassigned
    assert now.leader == target[1]
    assert now.leader_epoch == before.leader_epoch + 1


@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ((1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
async def test_an_assignment_that_cannot_be_is_refused(three: Any, replicas: Any, code: ErrorCode) -> None:
    await three.topic("t")
    before = three.partition("t")
    [refused] = await three.controller.reassign(
        [Reassignment(topic="t", partition=0, replicas=replicas)], allow_factor_change=False
    )
    assert refused.code is code
    assert three.partition("t") == before


async def test_requests_about_what_is_not_there_are_refused(three: Any) -> None:
    topic = await three.topic("t")
    proposal = ProposedIsr(leader_epoch=0, partition_epoch=0, isr=((BrokerId(1), three.brokers[1].epoch),))
    outcomes = await three.controller.alter_partitions(
        BrokerId(1),
        three.brokers[1].epoch,
        {(UUID(int=99), 0): proposal, (topic.topic_id, 7): proposal},
    )
    assert [outcome.code for outcome in outcomes.values()] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    with pytest.raises(KafkaError) as refused:
        await three.controller.alter_partitions(BrokerId(1), 12345, {})
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


async def test_proposals_that_were_refused_are_forgotten(three: Any) -> None:
    """Their leader makes them again; they must not pile up, and be carried out later, while the registry is away."""
    await three.topic("t")
    leader = three.brokers[three.partition("t").leader]
    session = three.brokers[1].session
    session.fails = ["before"]
    with pytest.raises(KafkaError):
        await leader.propose("t", 0, [leader.broker_id])

    async def away() -> None:
        raise RegistryError("no answer")

    here, session.sync = session.sync, away
    for _ in range(3):
        with pytest.raises(KafkaError):
            await leader.propose("t", 0, [leader.broker_id])
    session.sync = here
    isr = three.partition("t").isr
    await three.controller.alter_partitions(leader.broker_id, leader.epoch, {})
    assert three.partition("t").isr == isr


async def test_every_leader_hears_when_a_change_that_they_share_goes_wrong(
    three: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is: one that waited for ever would propose nothing any more."""
    await three.topic("t")
    await three.topic("u")

    async def fail_once(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise LookupError("a mistake of ours")

    monkeypatch.setattr(Changes, "commit_topics", fail_once)
    asked = [three.brokers[1].propose(topic, 0, [1, 2]) for topic in ("t", "u")]
    async with asyncio.timeout(PATIENCE_S):
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [LookupError, KafkaError]


async def test_healing_goes_on_after_a_mistake(three: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[MaintenancePolicy] = []

    async def heal(self: Maintenance, policy: MaintenancePolicy) -> None:
        rounds.append(policy)
        if len(rounds) == 2:
            self._changes.store.depose()
        raise LookupError("a mistake of ours")

    monkeypatch.setattr(Maintenance, "heal", heal)
    maintenance = Maintenance(
        three.controller.changes,
        three.controller.brokers,
        lambda: three.controller.partition_changes,
        three.clock,
        lambda: MaintenancePolicy(rebalance_interval_s=0.001),
    )
    async with asyncio.timeout(PATIENCE_S):
        await maintenance.run()
    assert len(rounds) == 2


async def test_a_controller_that_asks_for_fewer_in_sync_holds_up_no_leader(three: Any) -> None:
    """Its file says another min.insync.replicas than that of the last one; leaders wait while anyone is eligible."""
    three.rules = TopicRules(min_isr=2)
    await three.elect(three.brokers[1], knows=three.controller.latest)
    await three.topic("t")
    await three.kill(2)
    await three.kill(3)
    assert (three.partition("t").isr, three.partition("t").eligible) == ((1,), (3,))
    await three.elect(three.brokers[1], knows=three.controller.latest)
    assert three.partition("t").eligible == (3,)
    three.rules = TopicRules(min_isr=1)
    await three.elect(three.brokers[1], knows=three.controller.latest)
    assert (three.partition("t").isr, three.partition("t").eligible) == ((1,), ())

"""What the controller does for a cluster of several brokers: who leads, who is in sync, who is told, and who may decide."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from odradek.cluster.availability import TopicRules
from odradek.cluster.controller.changes import Changes
from odradek.cluster.controller.heartbeat_monitor import HeartbeatMonitor
from odradek.cluster.controller.maintenance import Maintenance, MaintenancePolicy
from odradek.cluster.image import NO_LEADER, PartitionImage, TopicImage
from odradek.cluster.isr_changes import ProposedIsr
from odradek.cluster.planning import TopicSpec
from odradek.cluster.reassignment import Reassignment
from odradek.cluster.sync import UpdateKind
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, TopicPartition
from odradek.registry import Put, RegistryError


def brokers(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


@pytest.fixture
async def three(cluster: Any) -> Any:
    """Three brokers; brokers 2 and 3 follow, the controller is at broker 1."""
    await cluster.start(3)
    return cluster


async def test_leaders_are_spread_over_the_brokers(three: Any) -> None:
    topic = await three.topic("t", partitions=6)
    leaders = [partition.leader for partition in topic.partitions]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    assert all(sorted(partition.replicas) == [1, 2, 3] for partition in topic.partitions)
    assert all(broker.image.topics["t"] == topic for broker in three.brokers.values())


async def test_a_member_of_the_isr_leads_when_the_leader_dies(three: Any) -> None:
    await three.topic("t", partitions=3)
    before = [three.partition("t", index) for index in range(3)]
    await three.kill(3)
    for index, old in enumerate(before):
        now = three.partition("t", index)
        assert now.leader in now.isr
        assert 3 not in now.isr
        assert now.leader_epoch == old.leader_epoch + (old.leader == 3)
        assert now.partition_epoch == old.partition_epoch + 1
    assert {broker.broker_id for broker in three.controller.image.brokers} == {1, 2}


async def test_an_election_after_a_death_is_one_commit(three: Any) -> None:
    for number in range(20):
        await three.topic(f"t{number}", partitions=5)
    commits = three.brokers[1].session.commits
    count = len(commits)
    await three.kill(2)
    assert len(commits) == count + 1


async def test_a_broker_that_comes_back_leads_nothing_until_it_is_in_sync(three: Any) -> None:
    await three.topic("t")
    assert three.partition("t").leader == 1
    await three.kill(2)
    await three.revive(2)
    assert three.partition("t").isr == (1, 3)
    await three.brokers[1].ask()
    outcome = await three.brokers[1].propose("t", 0, [1, 3, 2])
    assert isinstance(outcome, PartitionImage)
    assert three.partition("t").isr == (1, 3, 2)


async def test_a_restart_that_the_registry_did_not_tell_of_is_a_death_all_the_same(three: Any) -> None:
    await three.topic("t", partitions=3)
    led = next(index for index in range(3) if three.partition("t", index).leader == 2)
    before = three.partition("t", led)
    three.brokers[2].session.expire()
    await three.brokers[2].start()  # nobody told the controller
    await three.brokers[2].ask()
    now = three.partition("t", led)
    assert now.leader != 2
    assert now.leader_epoch > before.leader_epoch
    assert 2 not in now.isr


async def test_while_nobody_of_the_isr_is_alive_nobody_leads(three: Any) -> None:
    await three.topic("t")
    await three.kill(3)
    await three.revive(3)  # alive, not in sync
    three.brokers[1].session.expire()
    three.brokers[2].die()
    controller = await three.elect(three.brokers[3])
    await three.brokers[3].ask()
    assert three.partition("t").leader == NO_LEADER
    assert set(three.partition("t").isr) == {1, 2}
    assert controller.latest.topics["t"].partitions[0].last_known_leader == 1
    await three.revive(2)
    assert three.partition("t").leader == 2
    assert three.partition("t").isr == (2,)


async def test_an_unclean_leader_is_elected_only_where_the_topic_says_so(three: Any) -> None:
    await three.topic("safe")
    await three.topic("careless", unclean_leader_election_enable="true")
    for name in ("safe", "careless"):
        [leader] = brokers(1)
        assert three.partition(name).leader == leader
        await three.brokers[1].ask()
        await three.brokers[1].propose(name, 0, [1])
        await three.brokers[1].ask()
    three.brokers[1].die()
    await three.elect(three.brokers[2], knows=three.brokers[2].image)
    assert three.partition("safe").leader == NO_LEADER
    careless = three.partition("careless")
    assert careless.leader in (2, 3)
    assert careless.isr == (careless.leader,)
    assert careless.recovering


async def test_a_topic_that_allows_it_too_late_gets_its_unclean_leader_at_once(three: Any) -> None:
    await three.topic("t")
    await three.brokers[1].propose("t", 0, [1])
    three.brokers[1].die()
    await three.elect(three.brokers[2], knows=three.brokers[2].image)
    assert three.partition("t").leader == NO_LEADER
    await three.controller.alter_topic_configs("t", lambda _: {"unclean.leader.election.enable": "true"})
    assert three.partition("t").leader in (2, 3)
    assert three.partition("t").recovering


async def test_each_life_of_a_broker_that_is_alone_leads_under_another_epoch(cluster: Any) -> None:
    await cluster.start(1)
    await cluster.topic("t", replicas=1)
    before = cluster.partition("t")
    cluster.brokers[1].die()
    await cluster.brokers[1].start()
    await cluster.elect(cluster.brokers[1])
    await cluster.brokers[1].ask()
    after = cluster.partition("t")
    assert after.leader == 1
    assert after.isr == (1,)
    assert after.leader_epoch > before.leader_epoch


async def test_a_member_that_left_below_min_insync_replicas_may_lead(three: Any) -> None:
    await three.topic("t", min_insync_replicas="2")
    await three.kill(3)
    await three.kill(2)
    assert three.partition("t").isr == (1,)
    assert three.partition("t").eligible == (2,)  # 3 left while two were enough
    three.brokers[1].die()
    await three.brokers[2].start()
    await three.elect(three.brokers[2])
    await three.brokers[2].ask()
    assert three.partition("t").leader == 2
    assert three.partition("t").isr == (2,)
    assert three.partition("t").eligible == (1,)


async def test_nobody_is_eligible_any_more_once_the_high_watermark_may_move(three: Any) -> None:
    await three.topic("t", min_insync_replicas="2")
    await three.kill(3)
    await three.kill(2)
    assert three.partition("t").eligible == (2,)
    await three.controller.alter_topic_configs("t", lambda _: {"min.insync.replicas": "1"})
    assert three.partition("t").eligible == ()


async def test_a_new_controller_that_knows_the_brokers_elects_nobody(three: Any) -> None:
    await three.topic("t", partitions=6)
    before = three.controller.latest.topics["t"]
    await three.elect(three.brokers[2], knows=three.brokers[2].image)
    assert three.controller.latest.topics["t"] == before
    for number, kind in ((1, UpdateKind.SNAPSHOT), (2, UpdateKind.NOTHING), (3, UpdateKind.SNAPSHOT)):
        assert (await three.brokers[number].ask()).kind is kind
        assert three.brokers[number].image.controller_id == 2
    assert three.controller.latest.topics["t"] == before


async def test_a_new_controller_that_knows_nobody_waits_a_while_for_who_is_registered(three: Any) -> None:
    await three.topic("t", partitions=6)
    before = three.controller.latest.topics["t"]
    await three.elect(three.brokers[2])
    assert three.controller.latest.topics["t"] == before
    await three.brokers[1].ask()
    await three.brokers[2].ask()
    assert three.controller.latest.topics["t"] == before
    three.clock.now += 60
    await three.controller.brokers_changed()
    after = three.controller.latest.topics["t"]
    assert all(3 not in partition.isr and partition.leader in (1, 2) for partition in after.partitions)


async def test_a_deposed_controller_changes_nothing_and_says_so(three: Any) -> None:
    await three.topic("t")
    old = three.controller
    asking = asyncio.ensure_future(old.sync(three.brokers[3].report(), max_wait_s=1000))
    await asyncio.sleep(0)
    await three.elect(three.brokers[2], knows=three.brokers[2].image)
    state = dict(three.tree.nodes)
    with pytest.raises(KafkaError) as refused:
        await old.delete_topic("t")
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert three.tree.nodes == state
    assert three.deposed == [1]
    old.depose()
    with pytest.raises(KafkaError) as refused:
        await asking
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


async def test_an_expired_session_ends_the_term(three: Any) -> None:
    three.brokers[1].session.is_over = True
    with pytest.raises(KafkaError) as refused:
        await three.controller.allocate_producer_ids()
    assert refused.value.code is not None
    await three.controller.brokers_changed()
    assert three.deposed == [1]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_after_a_commit_of_unknown_outcome_the_state_is_read_again(three: Any, when: str) -> None:
    await three.topic("t")
    session = three.brokers[1].session
    session.fails.append(when)
    with pytest.raises(KafkaError) as refused:
        await three.controller.alter_topic_configs("t", lambda _: {"retention.ms": "5"})
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    await three.controller.alter_topic_configs("t", lambda now: {**now, "retention.bytes": "7"})
    expected = {"retention.bytes": "7"} | ({"retention.ms": "5"} if when == "after" else {})
    assert three.controller.latest.topics["t"].configs == expected
    await three.all_ask()
    assert three.brokers[2].image.topics["t"].configs == expected


async def test_an_election_that_could_not_be_written_is_made_up_for(three: Any) -> None:
    await three.topic("t", partitions=3)
    three.brokers[1].session.fails.append("before")
    await three.kill(3)
    assert any(3 in three.partition("t", index).isr for index in range(3))
    await three.controller.brokers_changed()
    assert all(3 not in three.partition("t", index).isr for index in range(3))


async def test_a_fenced_incarnation_is_refused_and_may_register_again(three: Any) -> None:
    await three.topic("t")
    two = three.brokers[2]
    await three.controller.fence(two.broker_id, two.epoch)
    assert 2 not in three.partition("t").isr
    with pytest.raises(KafkaError) as refused:
        await two.ask()
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    old = two.epoch
    await two.register()
    await two.ask()
    assert two.epoch > old
    assert 2 in {broker.broker_id for broker in three.controller.latest.brokers}
    report = two.report()
    two.epoch = old
    with pytest.raises(KafkaError) as refused:
        await two.ask()
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
    await three.controller.fence(two.broker_id, old)  # too late: another incarnation is registered
    assert 2 in {broker.broker_id for broker in three.controller.latest.brokers}
    assert report.broker_epoch > old


async def test_fencing_spares_the_incarnation_that_registers_meanwhile(
    three: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller has read the registration of the dead one, and has not removed it yet."""
    dead = three.brokers[2]
    former_epoch = dead.epoch
    session = three.brokers[1].session
    commit = session.commit

    async def after_it_is_back(operations: Any) -> None:
        monkeypatch.setattr(session, "commit", commit)
        await dead.start()
        await commit(operations)

    monkeypatch.setattr(session, "commit", after_it_is_back)
    await three.controller.fence(BrokerId(2), former_epoch)
    assert dead.epoch > former_epoch
    node = await session.get("/brokers/ids/2")
    assert node is not None
    assert node.created == dead.epoch


async def test_a_broker_is_told_what_changed_as_soon_as_it_does(three: Any) -> None:
    await three.topic("t")
    two = three.brokers[2]
    asking = asyncio.ensure_future(two.ask(max_wait_s=1000))
    await asyncio.sleep(0)
    assert not asking.done()
    await three.controller.alter_topic_configs("t", lambda _: {"retention.ms": "5"})
    answer = await asking
    assert answer.kind is UpdateKind.DELTA
    assert two.image == three.controller.latest
    assert (await two.ask()).kind is UpdateKind.NOTHING


async def test_whoever_is_far_behind_gets_everything(three: Any) -> None:
    await three.topic("t")
    for number in range(200):
        await three.controller.alter_topic_configs("t", lambda _, n=number: {"retention.ms": str(n)})
    answer = await three.brokers[2].ask()
    assert answer.kind is UpdateKind.SNAPSHOT
    assert three.brokers[2].image == three.controller.latest


async def test_a_topic_is_created_once_the_brokers_that_hold_it_know_it(three: Any) -> None:
    creating = asyncio.ensure_future(
        three.controller.create_topics([TopicSpec(name="t", partition_count=1, replication_factor=3)])
    )
    for _ in range(10):
        await asyncio.sleep(0)
    for number in (2, 3):
        assert not creating.done()
        await three.brokers[number].ask()  # is told
        await asyncio.sleep(0)
        assert not creating.done()
        await three.brokers[number].ask()  # says that it has applied it
        await asyncio.sleep(0)
    await creating


async def test_a_dead_broker_does_not_hold_up_a_new_topic(three: Any) -> None:
    creating = asyncio.ensure_future(
        three.controller.create_topics([TopicSpec(name="t", partition_count=1, replication_factor=3)])
    )
    for _ in range(10):
        await asyncio.sleep(0)
    await three.kill(2, 3)
    assert [type(outcome) for outcome in await creating] == [TopicImage]


async def test_a_broker_that_is_down_counts_for_a_new_topic_and_joins_when_it_is_back(three: Any) -> None:
    await three.kill(3)
    topic = await three.topic("t", partitions=4)
    for partition in topic.partitions:
        assert sorted(partition.replicas) == [1, 2, 3]
        assert sorted(partition.isr) == [1, 2]
        assert partition.leader == partition.replicas[0] != 3
    await three.revive(3)
    led = next(index for index in range(4) if three.partition("t", index).leader == 1)
    await three.brokers[1].ask()
    await three.brokers[1].propose("t", led, [1, 2, 3])
    assert sorted(three.partition("t", led).isr) == [1, 2, 3]


async def test_a_broker_that_was_unregistered_counts_no_more_until_it_comes_back(three: Any) -> None:
    with pytest.raises(KafkaError) as refused:
        await three.controller.unregister_broker(BrokerId(3))
    assert refused.value.code is ErrorCode.INVALID_REQUEST, "it runs"
    await three.kill(3)
    await three.controller.unregister_broker(BrokerId(3))
    for broker in (3, 9):
        with pytest.raises(KafkaError) as refused:
            await three.controller.unregister_broker(BrokerId(broker))
        assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    (outcome,) = await three.controller.create_topics([TopicSpec(name="t", replication_factor=3)])
    assert isinstance(outcome, KafkaError)
    assert outcome.code is ErrorCode.INVALID_REPLICATION_FACTOR
    await three.revive(3)
    await three.kill(3)
    await three.topic("t")


async def test_a_new_controller_knows_who_is_down(three: Any) -> None:
    await three.kill(3)
    await three.elect(three.brokers[2])
    topic = await three.topic("t")
    assert sorted(topic.partitions[0].replicas) == [1, 2, 3]


async def test_a_broker_that_leaves_hands_over_what_it_leads(three: Any) -> None:
    await three.topic("t", partitions=3)
    two = three.brokers[2]
    two.is_leaving = True
    await two.ask()
    for index in range(3):
        assert three.partition("t", index).leader != 2
        assert 2 not in three.partition("t", index).isr
    leader = next(one for one in three.brokers.values() if one.broker_id == three.partition("t").leader)
    await leader.ask()
    outcome = await leader.propose("t", 0, [*three.partition("t").isr, 2])
    assert isinstance(outcome, KafkaError)
    assert outcome.code is ErrorCode.INELIGIBLE_REPLICA
    [refused] = await three.controller.create_topics([TopicSpec(name="u", replication_factor=3)])
    assert refused.code is ErrorCode.INVALID_REPLICATION_FACTOR


async def test_a_broker_that_leaves_hands_over_as_soon_as_somebody_is_in_sync(three: Any) -> None:
    await three.topic("t")
    one = three.brokers[1]
    await one.propose("t", 0, [1])
    one.is_leaving = True
    await one.ask()
    assert three.partition("t").leader == 1  # there is nobody else
    assert isinstance(await one.propose("t", 0, [1, 2]), PartitionImage)
    assert three.partition("t").leader == 2
    assert three.partition("t").isr == (2,)


async def test_a_damaged_replica_never_leads_while_another_one_is_complete(three: Any) -> None:
    topic = await three.topic("t")
    for broker in three.brokers.values():
        broker.die()
    three.brokers[1].damaged = frozenset([(topic.topic_id, 0)])
    await three.brokers[1].start()
    await three.elect(three.brokers[1])
    await three.brokers[1].ask()
    assert three.partition("t").leader == NO_LEADER
    assert three.partition("t").isr == (2, 3)
    await three.revive(3)
    assert three.partition("t").leader == 3


async def test_the_only_replica_leads_even_when_it_is_damaged(three: Any) -> None:
    topic = await three.topic("t", replicas=1)
    assert three.partition("t").replicas == (1,)
    three.brokers[1].damaged = frozenset([(topic.topic_id, 0)])
    await three.brokers[1].ask()
    assert three.partition("t").leader == 1


async def test_a_replica_whose_log_is_offline_hands_over(three: Any) -> None:
    topic = await three.topic("t")
    three.brokers[1].offline = frozenset([(topic.topic_id, 0)])
    await three.brokers[1].ask()
    assert three.partition("t").leader == 2
    assert three.partition("t").isr == (2, 3)
    await three.brokers[2].ask()
    outcome = await three.brokers[2].propose("t", 0, [2, 3, 1])
    assert isinstance(outcome, KafkaError)
    assert outcome.code is ErrorCode.INELIGIBLE_REPLICA
    three.brokers[1].offline = frozenset()
    await three.brokers[1].ask()
    await three.brokers[2].ask()
    assert isinstance(await three.brokers[2].propose("t", 0, [2, 3, 1]), PartitionImage)


async def test_a_restarted_broker_joins_no_isr_by_what_its_former_self_fetched(three: Any) -> None:
    await three.topic("t")
    await three.kill(2)
    one = three.brokers[1]
    await three.revive(2)
    await one.ask()
    stale = one.image
    await three.kill(2)
    await three.revive(2)
    await one.ask()
    current = one.image.topics["t"].partitions[0]
    one.image = stale.with_topic(one.image.topics["t"])  # the leader saw the former epoch of broker 2
    outcome = await one.propose("t", 0, [1, 3, 2])
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
            [one for one in partition.isr if one != 3 or partition.leader == 3],
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
    absent = next(one for one in brokers(1, 2, 3, 4) if one not in replicas[0])
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
    absent = next(one for one in brokers(1, 2, 3, 4) if one not in replicas[1])
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
    absent = next(one for one in brokers(1, 2, 3, 4) if one not in cluster.partition("t").replicas)
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
    target = tuple(one for one in before.replicas if one != leader.broker_id)
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


async def test_preferred_leaders_are_elected_on_demand(three: Any) -> None:
    await three.topic("t", partitions=3)
    preferred = [three.partition("t", index).leader for index in range(3)]
    away = next(index for index in range(3) if preferred[index] == 3)
    await three.kill(3)
    name = TopicPartition("t", away)
    outcomes = await three.controller.elect_leaders([name], unclean=False)
    assert outcomes[name].code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    await three.revive(3)
    leader = three.brokers[three.partition("t", away).leader]
    await leader.ask()
    await leader.propose("t", away, [*three.partition("t", away).isr, 3])
    outcomes = await three.controller.elect_leaders(None, unclean=False)
    assert outcomes[name] is None
    assert [one.code for one in outcomes.values() if one is not None] == [ErrorCode.ELECTION_NOT_NEEDED] * 2
    assert three.partition("t", away).leader == 3


async def test_an_unclean_leader_can_be_elected_on_demand(three: Any) -> None:
    await three.topic("t")
    await three.brokers[1].propose("t", 0, [1])
    three.brokers[1].die()
    await three.elect(three.brokers[2], knows=three.brokers[2].image)
    assert three.partition("t").leader == NO_LEADER
    name = TopicPartition("t", 0)
    assert await three.controller.elect_leaders([name], unclean=True) == {name: None}
    assert three.partition("t").recovering
    await three.all_ask()
    leader = three.brokers[three.partition("t").leader]
    assert isinstance(await leader.propose("t", 0, [leader.broker_id]), PartitionImage)
    assert not three.partition("t").recovering


async def test_requests_about_what_is_not_there_are_refused(three: Any) -> None:
    topic = await three.topic("t")
    proposal = ProposedIsr(leader_epoch=0, partition_epoch=0, isr=((BrokerId(1), three.brokers[1].epoch),))
    outcomes = await three.controller.alter_partitions(
        BrokerId(1),
        three.brokers[1].epoch,
        {(UUID(int=99), 0): proposal, (topic.topic_id, 7): proposal},
    )
    assert [one.code for one in outcomes.values()] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    with pytest.raises(KafkaError) as refused:
        await three.controller.alter_partitions(BrokerId(1), 12345, {})
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


async def test_who_claims_to_know_a_later_controller_is_not_believed_without_proof(three: Any) -> None:
    """Anybody can say so; the registry knows whether the term is over."""
    forged = replace(three.brokers[2].report(), controller_epoch=99, version=5)
    answer = await three.controller.sync(forged, max_wait_s=0.0)
    assert answer.kind is UpdateKind.SNAPSHOT
    stranger = replace(forged, broker_id=BrokerId(77), broker_epoch=123)
    with pytest.raises(KafkaError) as refused:
        await three.controller.sync(stranger, max_wait_s=0.0)
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    await three.topic("t")


async def test_who_knows_a_later_controller_tells_an_older_one_that_its_time_is_over(three: Any) -> None:
    old, session = three.controller, three.brokers[1].session
    node = await session.get("/controller_epoch")
    await session.commit([Put(path="/controller_epoch", data=b"2", version=node.version)])
    report = replace(three.brokers[2].report(), controller_epoch=2)
    with pytest.raises(KafkaError) as refused:
        await old.sync(report, max_wait_s=0.0)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert three.deposed == [1]


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
    async with asyncio.timeout(5):
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in outcomes] == [LookupError, KafkaError]


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
    async with asyncio.timeout(5):
        await maintenance.run()
    assert len(rounds) == 2


async def test_a_broker_that_the_controller_does_not_hear_leads_no_longer_until_it_does(three: Any) -> None:
    """It is cut off from the controller alone, and cannot take out of sync who does not fetch from it."""
    await three.topic("t")
    await three.controller.elect_leaders([TopicPartition("t", 0)], unclean=False)
    leader = three.partition("t").leader
    changes = three.controller.brokers
    listened: list[BrokerId] = []
    for _ in range(12):
        three.clock.now += 1.0
        for number, broker in three.brokers.items():
            if number != leader:
                await broker.ask()
        listened = changes.newly_silent(9.0)
        if listened:
            await changes.doubt(listened, 9.0)
    assert three.clock.now >= 9.0
    assert three.partition("t").leader not in (leader, NO_LEADER)
    assert leader not in three.partition("t").isr
    assert [one.broker_id for one in three.controller.latest.brokers if one.is_leaving] == [leader]
    await three.brokers[leader].ask()
    assert not any(one.is_leaving for one in three.controller.latest.brokers)


def test_who_hears_nobody_is_cut_off_himself() -> None:
    silence, brokers = HeartbeatMonitor(), (BrokerId(1), BrokerId(2), BrokerId(3))
    silent = []
    for second in range(30):
        silence.heard(BrokerId(1))
        silent += silence.look(brokers, float(second), 9.0)
    assert silent == []


def test_who_was_held_up_has_not_listened() -> None:
    silence, brokers = HeartbeatMonitor(), (BrokerId(1), BrokerId(2), BrokerId(3))
    assert silence.look(brokers, 0.0, 9.0) == []
    silence.heard(BrokerId(1))
    silence.heard(BrokerId(2))
    assert silence.look(brokers, 60.0, 9.0) == []
    for second in range(61, 70):
        silence.heard(BrokerId(1))
        silence.heard(BrokerId(2))
        silent = silence.look(brokers, float(second), 9.0)
    assert silent == [BrokerId(3)]


async def test_a_controller_that_asks_for_fewer_in_sync_holds_up_no_leader(three: Any) -> None:
    """Its file says another min.insync.replicas than that of the last one; leaders wait while anybody is eligible."""
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


# -- replicas that lost what they had


async def test_the_last_replica_in_sync_that_lost_its_records_leads_only_when_somebody_accepts_the_loss(
    three: Any,
) -> None:
    await three.topic("t")
    name, place = TopicPartition("t", 0), (three.controller.latest.topics["t"].topic_id, 0)
    await three.kill(2, 3)
    assert three.partition("t").isr == (1,)
    three.brokers[1].lost = three.brokers[1].offline = frozenset({place})

    await three.revive(1)
    three.brokers[2].lacking = frozenset({place})
    for number in (2, 3):
        await three.revive(number)
    assert (three.partition("t").leader, three.partition("t").isr) == (NO_LEADER, (1,))
    assert three.partition("t").leader == NO_LEADER, "the others have less, and are not in sync"

    assert await three.controller.elect_leaders([name], unclean=True) == {name: None}

    assert (three.partition("t").leader, three.partition("t").isr) == (3, (3,)), (
        "2 lacks something, 3 does not"
    )
    assert three.partition("t").recovering


async def test_where_every_replica_lost_its_records_the_order_accepts_even_that(three: Any) -> None:
    await three.topic("t")
    name, place = TopicPartition("t", 0), (three.controller.latest.topics["t"].topic_id, 0)
    await three.kill(2, 3)
    three.brokers[1].lost = three.brokers[1].offline = frozenset({place})
    await three.revive(1)

    assert three.partition("t").leader == NO_LEADER
    assert await three.controller.elect_leaders([name], unclean=True) == {name: None}
    assert (three.partition("t").leader, three.partition("t").recovering) == (1, True)

    three.brokers[1].lost = three.brokers[1].offline = frozenset()
    await three.brokers[1].ask()
    assert three.partition("t").leader == 1


async def test_two_replicas_that_lost_everything_at_the_same_time_do_not_lead_one_after_the_other(
    three: Any,
) -> None:
    await three.topic("t")
    place = (three.controller.latest.topics["t"].topic_id, 0)
    await three.brokers[1].ask()
    await three.brokers[1].propose("t", 0, [1, 2])
    await three.elect(three.brokers[3], knows=three.brokers[3].image)
    await three.all_ask()
    await three.kill(1, 2)
    assert set(three.partition("t").isr) == {1, 2}
    for number in (1, 2):
        three.brokers[number].damaged = three.brokers[number].lost = frozenset({place})
        await three.revive(number)
    assert three.partition("t").leader == NO_LEADER
    assert len(three.partition("t").isr) == 1

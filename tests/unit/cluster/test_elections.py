"""Who leads when brokers of a cluster come and go, and who may lead again."""

from typing import Any

from odradek.cluster.image import NO_LEADER, PartitionImage
from odradek.cluster.planning import TopicSpec
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, TopicPartition


def brokers(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


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
    await three.brokers[2].start()  # the controller does not know it
    await three.brokers[2].ask()
    now = three.partition("t", led)
    assert now.leader != 2
    assert now.leader_epoch > before.leader_epoch
    assert 2 not in now.isr


async def test_while_no_one_of_the_isr_is_alive_no_one_leads(three: Any) -> None:
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


async def test_no_one_is_eligible_any_more_once_the_high_watermark_may_move(three: Any) -> None:
    await three.topic("t", min_insync_replicas="2")
    await three.kill(3)
    await three.kill(2)
    assert three.partition("t").eligible == (2,)
    await three.controller.alter_topic_configs("t", lambda _: {"min.insync.replicas": "1"})
    assert three.partition("t").eligible == ()


async def test_a_broker_that_leaves_hands_over_what_it_leads(three: Any) -> None:
    await three.topic("t", partitions=3)
    two = three.brokers[2]
    two.is_leaving = True
    await two.ask()
    for index in range(3):
        assert three.partition("t", index).leader != 2
        assert 2 not in three.partition("t", index).isr
    leader = next(
        broker for broker in three.brokers.values() if broker.broker_id == three.partition("t").leader
    )
    await leader.ask()
    outcome = await leader.propose("t", 0, [*three.partition("t").isr, 2])
    assert isinstance(outcome, KafkaError)
    assert outcome.code is ErrorCode.INELIGIBLE_REPLICA
    [refused] = await three.controller.create_topics([TopicSpec(name="u", replication_factor=3)])
    assert refused.code is ErrorCode.INVALID_REPLICATION_FACTOR


async def test_a_broker_that_leaves_hands_over_as_soon_as_someone_is_in_sync(three: Any) -> None:
    await three.topic("t")
    broker = three.brokers[1]
    await broker.propose("t", 0, [1])
    broker.is_leaving = True
    await broker.ask()
    assert three.partition("t").leader == 1  # there is no one else
    assert isinstance(await broker.propose("t", 0, [1, 2]), PartitionImage)
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
    assert [outcome.code for outcome in outcomes.values() if outcome is not None] == [
        ErrorCode.ELECTION_NOT_NEEDED
    ] * 2
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


async def test_a_broker_that_comes_back_leaves_partitions_alone_that_it_does_not_hold(cluster: Any) -> None:
    await cluster.start(4)
    for number in range(4):
        await cluster.topic(f"t{number}", partitions=3, replicas=2)
    before = dict(cluster.controller.latest.topics)
    cluster.brokers[4].die()  # and comes back within its session: the registry never says that it was gone
    await cluster.revive(4)
    after = cluster.controller.latest.topics
    is_held = {
        (name, index): 4 in partition.replicas
        for name, topic in before.items()
        for index, partition in enumerate(topic.partitions)
    }
    changed = {
        (name, index): after[name].partitions[index] != before[name].partitions[index]
        for name, index in is_held
    }
    assert any(is_held.values())
    assert not all(is_held.values())
    assert changed == is_held
    assert all(
        after[name].partitions[index].leader_epoch > before[name].partitions[index].leader_epoch
        for name, index in is_held
        if before[name].partitions[index].leader == 4
    )

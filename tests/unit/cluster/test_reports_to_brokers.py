"""Which brokers hear of a change, which are waited for, and which are heard."""

import asyncio
from typing import Any

import pytest

from odradek.cluster.controller.heartbeat_monitor import HeartbeatMonitor
from odradek.cluster.image import NO_LEADER, TopicImage
from odradek.cluster.planning import TopicSpec
from odradek.cluster.sync import UpdateKind
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, TopicPartition


async def test_a_broker_learns_what_changed_as_soon_as_it_does(three: Any) -> None:
    await three.topic("t")
    two = three.brokers[2]
    asking = asyncio.ensure_future(two.ask(max_wait_s=1000))
    await asyncio.sleep(0)
    assert not asking.done()
    await three.controller.alter_topic_configs("t", lambda _: {"retention.ms": "5"})
    response = await asking
    assert response.kind is UpdateKind.DELTA
    assert two.image == three.controller.latest
    assert (await two.ask()).kind is UpdateKind.NOTHING


async def test_a_broker_far_behind_gets_everything(three: Any) -> None:
    await three.topic("t")
    for number in range(200):
        await three.controller.alter_topic_configs("t", lambda _, n=number: {"retention.ms": str(n)})
    response = await three.brokers[2].ask()
    assert response.kind is UpdateKind.SNAPSHOT
    assert three.brokers[2].image == three.controller.latest


async def test_a_topic_is_created_once_the_brokers_that_hold_it_know_it(three: Any) -> None:
    creating = asyncio.ensure_future(
        three.controller.create_topics([TopicSpec(name="t", partition_count=1, replication_factor=3)])
    )
    for _ in range(10):
        await asyncio.sleep(0)
    for number in (2, 3):
        assert not creating.done()
        await three.brokers[number].ask()  # the answer says it
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
    assert [node.broker_id for node in three.controller.latest.brokers if node.is_leaving] == [leader]
    await three.brokers[leader].ask()
    assert not any(broker.is_leaving for broker in three.controller.latest.brokers)


def test_a_broker_that_hears_of_no_other_is_cut_off_itself() -> None:
    silence, brokers = HeartbeatMonitor(), (BrokerId(1), BrokerId(2), BrokerId(3))
    silent = []
    for second in range(30):
        silence.heard(BrokerId(1))
        silent += silence.silent_brokers(brokers, float(second), 9.0)
    assert silent == []


def test_who_was_held_up_has_not_listened() -> None:
    silence, brokers = HeartbeatMonitor(), (BrokerId(1), BrokerId(2), BrokerId(3))
    assert silence.silent_brokers(brokers, 0.0, 9.0) == []
    silence.heard(BrokerId(1))
    silence.heard(BrokerId(2))
    assert silence.silent_brokers(brokers, 60.0, 9.0) == []
    for second in range(61, 70):
        silence.heard(BrokerId(1))
        silence.heard(BrokerId(2))
        silent = silence.silent_brokers(brokers, float(second), 9.0)
    assert silent == [BrokerId(3)]

"""Replicas that lost what they had, and who leads then."""

from typing import Any

from odradek.cluster.image import NO_LEADER
from odradek.model.ids import TopicPartition


async def test_the_last_replica_in_sync_that_lost_its_records_leads_only_when_someone_accepts_the_loss(
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

"""What clients learn about a leader that has just died, before the controller has found another."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.handlers.metadata import metadata
from odradek.broker.requests.context import RequestContext
from odradek.cluster.image import BrokerImage, ClusterImage
from odradek.model.errors import ErrorCode
from odradek.model.ids import BrokerId
from odradek.protocol.messages.metadata.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from odradek.protocol.messages.metadata.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

OTHER = BrokerId(2)
WANTED = MetadataRequest(topics=[MetadataRequestTopic(name="t")])


class Suspected:
    """Broker 2, as broker 1 sees it."""

    def __init__(self, link: Any) -> None:
        self.link = link
        self.died: frozenset[BrokerId] = frozenset()
        self.seconds: list[float] = []
        link.failure_detector = self

    def dead(self) -> frozenset[BrokerId]:
        return self.died

    def undecided_for(self) -> float:
        return self.seconds.pop(0) if self.seconds else 0.0

    async def close(self) -> None:
        pass


@pytest.fixture
async def known(scene: Any, wire: Any) -> ClusterImage:
    """Topic t, whose only partition broker 2 leads as far as broker 1 knows."""
    await wire.create("t")
    link = scene.broker.context.cluster
    other = BrokerImage(
        broker_id=OTHER, host="127.0.0.1", port=9, epoch=77, endpoints={"PLAINTEXT": ("other", 1234)}
    )
    topic = link.image.topics["t"]
    partition = replace(
        topic.partitions[0],
        leader=OTHER,
        replicas=(OTHER, BrokerId(1)),
        isr=(OTHER,),
        eligible=(BrokerId(1),),
    )
    image: ClusterImage = link.image.with_topics([replace(topic, partitions=(partition,))])
    known = replace(image, brokers=(*image.brokers, other))
    link.show(known)
    return known


@pytest.fixture
def suspected(scene: Any) -> Iterator[Suspected]:
    link = scene.broker.context.cluster
    yield Suspected(link)
    link.failure_detector = None


async def test_a_leader_that_lives_is_named(wire: Any, known: ClusterImage, suspected: Suspected) -> None:
    (topic,) = (await wire.ask(WANTED, 12)).topics
    assert (topic.partitions[0].leader_id, topic.partitions[0].error_code) == (OTHER, 0)


async def test_a_leader_that_is_dead_is_not_named(
    wire: Any, known: ClusterImage, suspected: Suspected
) -> None:
    suspected.died = frozenset([OTHER])
    (topic,) = (await wire.ask(WANTED, 12)).topics
    (partition,) = topic.partitions
    assert (partition.leader_id, partition.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    assert partition.offline_replicas == [OTHER]


async def test_every_broker_describes_a_topic_alike(
    wire: Any, known: ClusterImage, suspected: Suspected
) -> None:
    wanted = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
    (partition,) = (await wire.ask(wanted, 0)).topics[0].partitions
    assert (partition.leader_id, partition.offline_replicas) == (OTHER, [])
    assert partition.eligible_leader_replicas == [BrokerId(1)]
    suspected.died = frozenset([OTHER])
    (partition,) = (await wire.ask(wanted, 0)).topics[0].partitions
    assert (partition.leader_id, partition.offline_replicas) == (-1, [OTHER])


async def test_the_answer_waits_for_the_look_at_the_leader(
    wire: Any, known: ClusterImage, suspected: Suspected
) -> None:
    """Three times is asked whether to wait; the answer is made after the last one."""
    suspected.seconds = [0.001, 0.001, 0.001]
    (topic,) = (await wire.ask(WANTED, 12)).topics
    assert not suspected.seconds
    assert topic.partitions[0].leader_id == OTHER


async def test_news_of_a_death_that_comes_with_the_question_is_heard_first(
    scene: Any, known: ClusterImage, suspected: Suspected
) -> None:
    """A client and this broker lose their connections at once, and the loop may hear the client first."""
    loop = asyncio.get_running_loop()
    listener = SimpleNamespace(broker_id=BrokerId(1), advertised=("here", 1), name="PLAINTEXT")
    connection: Any = SimpleNamespace(listener=listener, local_host="127.0.0.1")
    context = RequestContext(connection=connection, api_version=12, client_id="")

    def lost() -> (
        None
    ):  # as asyncio does it: the socket is found broken in one round, the protocol hears of it in the next
        loop.call_soon(lambda: setattr(suspected, "died", frozenset([OTHER])))

    loop.call_soon(lost)
    reply = metadata.handle(scene.broker.context, context, WANTED.replace(topics=None))
    assert not isinstance(reply, MetadataResponse)
    response = await reply
    assert [topic.partitions[0].leader_id for topic in response.topics if topic.name == "t"] == [-1]


async def test_a_broker_that_left_is_named_a_while_longer(scene: Any, wire: Any, known: ClusterImage) -> None:
    """If librdkafka learns from one answer that a partition moved, and that its old broker is no more, it loses sight of the
    partition for a second (seen in 2.16.0): its thread for that broker ends before it has let go of the partition."""
    link = scene.broker.context.cluster
    before = link.image
    link.show(
        replace(before, brokers=tuple(broker for broker in before.brokers if broker.broker_id != OTHER))
    )
    response = await wire.ask(WANTED, 12)
    assert [broker.node_id for broker in response.brokers] == [BrokerId(1), OTHER]
    assert response.topics[0].partitions[0].leader_id == -1

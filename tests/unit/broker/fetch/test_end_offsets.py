"""Where a partition ends, here and on other brokers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.fetch.end_offsets import high_watermark_of, known_ends, readable
from odradek.cluster.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import BrokerId, LeaderEpoch, TopicPartition
from odradek.protocol import Message
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.runtime.turns import Turns

HERE, OTHER = BrokerId(1), BrokerId(2)
NAME = TopicPartition("t", 0)


class Leading:
    """Its disk has not everything yet, but for waiters."""

    high_watermark = 6

    def check_leads(self) -> None:
        pass

    def when_own_records_are_readable(self) -> asyncio.Future[None]:
        self.high_watermark = 7
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        durable.set_result(None)
        return durable


class FakeContext:
    def __init__(self, leader: BrokerId) -> None:
        partition = PartitionImage(leader=leader, leader_epoch=LeaderEpoch(0), replicas=(HERE,), isr=(HERE,))
        empty = ClusterImage(
            version=0, cluster_id="c", controller_id=HERE, brokers=(), topics={}, topics_by_id={}
        )
        self.image = empty.with_topics([TopicImage(name="t", topic_id=UUID(int=1), partitions=(partition,))])
        self.coordinators = SimpleNamespace(here=HERE, send_to_peer=self.ask)
        self.replicas = self
        self.answer: Message | OdradekError = ListOffsetsResponse()

    def add_partitions(self, leader: BrokerId, count: int) -> None:
        topic = self.image.topics["t"]
        more = replace(topic.partitions[0], leader=leader)
        self.image = self.image.with_topics([replace(topic, partitions=(*topic.partitions, *[more] * count))])

    def leader(self, topic: str, index: int) -> Any:
        return Leading()

    async def ask(self, broker: BrokerId, api_key: int, request: Message, **_: Any) -> Message:
        assert (broker, api_key) == (OTHER, 2)
        assert isinstance(request, ListOffsetsRequest)
        assert request.topics[0].partitions[0].timestamp == -1
        if isinstance(self.answer, OdradekError):
            raise self.answer
        return self.answer


def offsets_response(code: ErrorCode = ErrorCode.NONE, offset: int = 42) -> ListOffsetsResponse:
    response = ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[response])])


async def end_of(broker: Any, name: TopicPartition = NAME) -> int:
    return await high_watermark_of(broker, name)


async def test_a_leader_knows_it_itself_once_its_disk_has_everything() -> None:
    assert await end_of(FakeContext(HERE)) == 7


async def test_another_leader_is_asked() -> None:
    broker = FakeContext(OTHER)
    broker.answer = offsets_response()
    assert await end_of(broker) == 42


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (offsets_response(ErrorCode.NOT_LEADER_OR_FOLLOWER), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ListOffsetsResponse(), ErrorCode.UNKNOWN_SERVER_ERROR),
        (OdradekError("unreachable"), ErrorCode.NETWORK_EXCEPTION),
    ],
)
async def test_what_the_other_does_not_tell_is_refused(reply: Any, code: ErrorCode) -> None:
    broker = FakeContext(OTHER)
    broker.answer = reply
    with pytest.raises(KafkaError) as refused:
        await end_of(broker)
    assert refused.value.code is code


async def test_without_a_leader_no_one_is_asked() -> None:
    with pytest.raises(KafkaError) as refused:
        await end_of(FakeContext(NO_LEADER))
    assert refused.value.code is ErrorCode.LEADER_NOT_AVAILABLE
    with pytest.raises(KafkaError) as refused:
        await end_of(FakeContext(HERE), TopicPartition("t", 5))
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_disk_that_stands_still_does_not_hold_an_answer_back_for_ever() -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    await readable([never], timeout_ms=1)
    assert never.cancelled()


async def known(broker: Any, *names: TopicPartition) -> dict[TopicPartition, int]:
    turn = Turns(asyncio.get_running_loop().time).begin()
    return await known_ends(broker, names, turn, timeout_s=0.05)


async def test_ends_of_other_leaders_are_known_in_parts() -> None:
    """What is refused, left out, leaderless or gone is left out; what no one asked for, too."""
    broker = FakeContext(OTHER)
    broker.add_partitions(OTHER, 1_199)
    broker.add_partitions(HERE, 1)
    broker.add_partitions(NO_LEADER, 1)
    sizes = []

    async def ask(_leader: BrokerId, _api_key: int, request: Any, **_: Any) -> Message:
        (topic,) = request.topics
        sizes.append(len(topic.partitions))
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name="t",
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=asked.partition_index,
                            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
                            if asked.partition_index == 7
                            else ErrorCode.NONE,
                            offset=asked.partition_index + 100,
                        )
                        for asked in topic.partitions
                        if asked.partition_index != 8
                    ]
                    + [ListOffsetsPartitionResponse(partition_index=5_000, offset=1)],
                )
            ]
        )

    broker.coordinators.send_to_peer = ask
    names = [TopicPartition("t", index) for index in range(1_202)]
    ends = await known(broker, *names, TopicPartition("gone", 0))
    assert sizes == [500, 500, 200]
    assert ends == {
        name: 6 if name.partition == 1_200 else name.partition + 100
        for name in names
        if name.partition not in (7, 8, 1_201)
    }


@pytest.mark.parametrize("silent", [True, False])
async def test_a_leader_that_does_not_answer_leaves_its_partitions_out(*, silent: bool) -> None:
    broker = FakeContext(OTHER)
    broker.add_partitions(HERE, 1)
    broker.answer = OdradekError("unreachable")
    if silent:

        async def never(*_: Any, **__: Any) -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        broker.coordinators.send_to_peer = never
    assert await known(broker, NAME, TopicPartition("t", 1)) == {TopicPartition("t", 1): 6}

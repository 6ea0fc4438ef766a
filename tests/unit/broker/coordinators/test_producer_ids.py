"""Producer ids: no id twice, and blocks from the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.coordinators.producer_ids import ControllerIdBlocks, ProducerIds
from odradek.cluster.image import NO_LEADER, BrokerImage, ClusterImage
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import BrokerId
from odradek.protocol import Message
from odradek.protocol.messages.cluster.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

HERE, OTHER = BrokerId(1), BrokerId(2)
ME = BrokerImage(broker_id=HERE, host="", port=0, epoch=77)


def image(controller: BrokerId) -> ClusterImage:
    return ClusterImage(
        version=0, cluster_id="c", controller_id=controller, brokers=(ME,), topics={}, topics_by_id={}
    )


class World:
    def __init__(self, controller: BrokerId, *answers: Message | OdradekError) -> None:
        self.image = image(controller)
        self.answers = list(answers)
        self.asked: list[Any] = []
        self.slept: list[float] = []
        self.in_a_pause: Callable[[], None] = lambda: None

    async def here(self) -> range:
        if self.image.controller_id != HERE:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return range(5, 8)

    async def ask(
        self,
        broker: BrokerId,
        api_key: int,
        request: Message,
        *,
        timeout_s: float | None = None,
        lane: str = "",
    ) -> Message:
        self.asked.append((broker, api_key, request))
        answered = self.answers.pop(0)
        if isinstance(answered, OdradekError):
            raise answered
        return answered

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.in_a_pause()

    def blocks(self) -> ControllerIdBlocks:
        return ControllerIdBlocks(HERE, lambda: self.image, self.here, lambda: self.ask, self.sleep)


async def test_the_controller_asks_no_one() -> None:
    world = World(HERE)
    assert await world.blocks().allocate() == range(5, 8)
    assert not world.asked


async def test_another_controller_is_asked_in_the_name_of_this_incarnation() -> None:
    world = World(OTHER, AllocateProducerIdsResponse(producer_id_start=1000, producer_id_len=1000))
    assert await world.blocks().allocate() == range(1000, 2000)
    assert world.asked == [(OTHER, 67, AllocateProducerIdsRequest(broker_id=HERE, broker_epoch=77))]


async def test_an_answer_of_the_former_controller_leads_to_the_next() -> None:
    world = World(OTHER, AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER))

    def elected() -> None:
        world.image = image(HERE)

    world.in_a_pause = elected
    assert await world.blocks().allocate() == range(5, 8)
    assert world.slept == [0.05]


@pytest.mark.parametrize(
    "reply",
    [
        OdradekError("unreachable"),
        AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
        AllocateProducerIdsResponse(producer_id_start=10, producer_id_len=0),
        AllocateProducerIdsResponse(producer_id_start=-1, producer_id_len=5),
    ],
)
async def test_without_a_block_clients_must_try_again(reply: Any) -> None:
    world = World(OTHER, *[reply] * 5)
    with pytest.raises(KafkaError) as refused:
        await world.blocks().allocate()
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert len(world.asked) == 5
    assert world.slept == [0.05, 0.1, 0.2, 0.4]


async def test_a_cluster_without_a_controller_gives_none() -> None:
    world = World(NO_LEADER)
    with pytest.raises(KafkaError, match="no controller"):
        await world.blocks().allocate()


async def test_all_who_wait_share_a_block_and_no_id_is_given_twice() -> None:
    blocks = [range(3), range(3, 6), range(6, 20)]

    async def allocate() -> range:
        await asyncio.sleep(0)
        return blocks.pop(0)

    ids = ProducerIds(allocate)
    given = await asyncio.gather(*(ids.next() for _ in range(10)))
    assert sorted(given) == list(range(10))


async def test_all_who_wait_hear_of_a_failure_at_once_and_the_next_tries_again() -> None:
    attempts = []

    async def allocate() -> range:
        attempts.append(1)
        await asyncio.sleep(0)
        if len(attempts) == 1:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return range(3)

    ids = ProducerIds(allocate)
    outcomes = await asyncio.gather(*(ids.next() for _ in range(4)), return_exceptions=True)
    assert all(isinstance(outcome, KafkaError) for outcome in outcomes)
    assert len(attempts) == 1
    assert await ids.next() == 0


async def test_who_gives_up_waiting_leaves_the_block_to_the_others() -> None:
    go = asyncio.Event()

    async def allocate() -> range:
        await go.wait()
        return range(3)

    ids = ProducerIds(allocate)
    loop = asyncio.get_running_loop()
    first, second = loop.create_task(ids.next()), loop.create_task(ids.next())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    go.set()
    assert await second == 0


async def test_stopping_ends_the_wait() -> None:
    async def allocate() -> range:
        await asyncio.Event().wait()
        return range(0)

    ids = ProducerIds(allocate)
    waiting = asyncio.get_running_loop().create_task(ids.next())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    ids.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting

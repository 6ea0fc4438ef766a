"""Looking up offsets where one of the topics is missing."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from tests.unit.client.scripted_log import QUICK, A, Log, Within, consumer_of

from odradek.client.admin.aio import AsyncAdmin
from odradek.client.consumer import offset_lookup
from odradek.client.network.errors import PartialFailureError, TimedOutError
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition

GONE = TopicPartition("gone", 0)
LATEST = -1


@pytest.fixture
def log(broker: Any) -> Log:
    log = Log(broker)
    log.end = 20
    return log


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_lookup, "GONE_AFTER_S", 0.05)


@pytest.mark.parametrize("wanted", [[GONE, A], [A, GONE], [GONE, TopicPartition("other", 1), A]])
async def test_a_missing_topic_keeps_no_other_waiting_and_is_named(
    broker: Any, log: Log, within: Within, wanted: list[TopicPartition]
) -> None:
    """Within its time-out of a minute, which is longer than this test waits."""
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        with pytest.raises(PartialFailureError) as caught:
            await within(admin.list_offsets(dict.fromkeys(wanted, LATEST)))
    assert {tp: listing.offset for tp, listing in caught.value.results.items()} == {A: 20}
    for tp, error in caught.value.errors.items():
        assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert f"there is no topic {tp.topic!r}" in error.message


@pytest.mark.parametrize("question", ["end_offsets", "beginning_offsets", "offsets_for_times"])
async def test_a_consumer_that_asks_about_a_topic_that_is_gone_hears_its_name(
    broker: Any, log: Log, within: Within, question: str
) -> None:
    async with consumer_of(broker) as consumer:
        wanted = {A: 0, GONE: 0} if question == "offsets_for_times" else [A, GONE]
        with pytest.raises(KafkaError, match="there is no topic 'gone'"):
            await within(getattr(consumer, question)(wanted))


async def test_a_topic_that_comes_while_it_is_waited_for_is_asked_about(
    broker: Any, log: Log, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new topic is not known to every broker at once."""
    monkeypatch.setattr(offset_lookup, "GONE_AFTER_S", 20.0)
    answered = asyncio.Event()

    def metadata(asked: Any) -> Any:
        if any(topic.name == "t" for topic in asked.message.topics or ()):
            answered.set()
        return broker.answer_Metadata(asked)

    broker.on["Metadata"] = metadata
    broker.topics = {}
    async with consumer_of(broker) as consumer:
        asking = asyncio.create_task(consumer.end_offsets([A]))
        await within(answered.wait())
        broker.topics = {"t": 1}
        assert await within(asking) == {A: 20}


async def test_a_cluster_that_does_not_answer_has_not_said_that_a_topic_is_gone(
    broker: Any, log: Log, within: Within, hang_up: object
) -> None:
    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        assert await within(consumer.position(A)) == 0
        broker.on["Metadata"] = lambda asked: hang_up
        with pytest.raises(TimedOutError, match="topic 'gone'"):
            await within(consumer.end_offsets([GONE], 0.3))


@pytest.mark.parametrize("left", [{}, {"t": 1}], ids=["deleted", "made again with fewer partitions"])
async def test_a_topic_that_goes_while_its_offsets_are_looked_up_is_given_up(
    broker: Any, log: Log, within: Within, left: dict[str, int]
) -> None:
    """Its leader says so first, and then the metadata. The look-up may take a minute, and this test does not wait for it."""
    last = TopicPartition("t", 1)
    broker.topics = {"t": 2}
    answer_offsets = broker.on["ListOffsets"]

    def offsets(asked: Any) -> Any:
        response = answer_offsets(asked)
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.partition_index == last.partition:
                    partition.error_code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        broker.topics, broker.topic_id = left, uuid4()
        return response

    broker.on["ListOffsets"] = offsets
    async with consumer_of(broker) as consumer:
        with pytest.raises(
            KafkaError, match=r"there is no topic 't'|topic 't' has partitions 0 to 0, not 1"
        ) as caught:
            await within(consumer.end_offsets([last]))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
